"""`compare` and `report` give the numbers of the library; `methods` lists every method, and `demo` runs."""

import json
import subprocess
import sys
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glayers
from glayers import CALIBRATORS, __version__, read_predictions
from glayers.cli.arguments import method_names
from glayers.datasets import CalibrationAndTest, load_fashion_mnist
from tests.cli.running import complaint, run, usage_error


def test_the_numbers_are_those_of_compare(folder: Path) -> None:
    words = ("compare", "calibration.npz", "test.npz", "--methods", "temperature", "--seed", 5, "--json")
    found = json.loads(run(*words).stdout)
    calibration, test = read_predictions("calibration.npz"), read_predictions("test.npz")
    compared = glayers.compare(calibration, test, ["temperature"], random_state=5)
    assert list(found["methods"]) == ["uncalibrated", "temperature"]
    assert found["calibration_tests"]["uncalibrated"]["rejected"]
    assert found["methods"]["temperature"]["nll"] == compared.scorecards["temperature"]["nll"]
    tests = {name: test.to_dict() for name, test in compared.calibration_tests.items()}
    assert found["calibration_tests"] == json.loads(json.dumps(tests))


def test_the_table_has_one_line_per_method_and_a_verdict_before_and_after(folder: Path) -> None:
    lines = run("compare", "calibration.npz", "test.npz", "--methods", "temperature, vector").stdout.splitlines()
    assert lines[0] == "test.npz: fitted on 90 rows, scored on 150"
    assert lines[1].startswith("uncalibrated: the model is overconfident by ")
    assert lines[2].startswith("uncalibrated: not calibrated (p <= 0.01); significant: KS (confidence), ")
    assert lines[3].startswith("temperature: 150 rows are too few to tell")
    table = lines[lines.index("") + 1 :]
    assert [line.split()[0] for line in table[1:4]] == ["uncalibrated", "temperature", "vector"]


def test_a_class_that_is_off_is_named_where_all_rows_together_pass(folder: Path) -> None:
    rng = np.random.default_rng(1)
    z = 2 * rng.normal(size=(8_000, 5))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    np.savez("old.npz", logits=z[:4_000], labels=labels[:4_000])
    z, labels = z[4_000:], labels[4_000:].copy()
    last = np.flatnonzero(z.argmax(axis=1) == 4)
    labels[last[:25]] = 0  # predicted as class 4, and wrong
    kept = np.setdiff1d(np.arange(4_000), last[25:])
    np.savez("new.npz", logits=z[kept], labels=labels[kept])
    lines = run("compare", "old.npz", "new.npz", "--methods", "temperature").stdout.splitlines()
    assert "uncalibrated: the model is not calibrated where it predicts class 4" in lines


def test_the_report_of_one_file_says_whether_it_is_calibrated_and_fits_nothing(folder: Path) -> None:
    printed = run("report", "test.npz", "-o", "audit.html").stdout
    assert printed.splitlines()[0] == "test.npz: scored on 150"
    page = Path("audit.html").read_text("utf-8")
    assert "<strong>What to do:</strong> Calibrate the model: glayers fit, " in page
    assert "Which method to use?" not in page


def test_judging_by_the_rows_of_the_fit_is_noted(folder: Path) -> None:
    done = run("compare", "test.npz", "test.csv", "--methods", "temperature")
    assert "note: calibration and test rows are the same" in done.stderr


def test_a_method_that_cannot_be_fitted_is_a_note_unless_it_is_the_only_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise glayers.BadPredictions("not these rows")

    monkeypatch.setattr(glayers.VectorScaling, "_fit", refuse)
    done = run("compare", "calibration.npz", "test.npz", "--methods", "temperature,vector")
    assert done.exit_code == 0
    assert "note: vector could not be fitted: not these rows" in done.stderr
    assert "no method could be fitted; vector: not these rows" in complaint(
        run("compare", "calibration.npz", "test.npz", "--methods", "vector")
    )


def test_a_note_of_several_methods_is_printed_once(folder: Path) -> None:
    np.savez(
        "p.npz", probabilities=np.tile([[0.7, 0.3, 0.0], [0.2, 0.2, 0.6], [0.3, 0.5, 0.2]], (20, 1)), y=[0, 2, 1] * 20
    )
    done = run("compare", "p.npz", "p.npz", "--methods", "temperature,vector")
    assert [line for line in done.stderr.splitlines() if " are 0" in line] == [
        "note: temperature, vector: 20 of 180 probabilities are 0 and were raised to 0.1, half the smallest other one"
    ]


def test_files_are_read_as_the_options_say(folder: Path) -> None:
    for name, file in (("old", "calibration.npz"), ("new", "test.npz")):
        archive = np.load(file)
        arrays = {"logits_dev": archive["logits"], "labels_dev": archive["labels"]}
        np.savez(f"{name}.npz", **arrays, groups_dev=np.arange(len(archive["labels"])) // 60)
    words = ("old.npz", "new.npz", "--part", "dev", "--methods", "temperature")
    few = run("compare", *words).stdout
    assert "150 rows in 3 groups are too few" in few
    assert "attention: Groups: the test rows are in 3 groups" in few
    assert "leave the groups out (--ignore-groups)" in few
    assert "groups" not in run("compare", *words, "--ignore-groups").stdout
    audited = run("report", "new.npz", "--part", "dev", "--ignore-groups", "-o", "audit.html")
    assert audited.exit_code == 0
    assert "groups" not in audited.stdout
    npy = run("compare", "logits.npy", "logits.npy", "--labels", "labels.npy")
    assert "put logits and labels of each set into an .npz" in usage_error(npy)


def test_a_list_without_a_method_is_a_usage_error(folder: Path) -> None:
    for nothing in ("", " , "):
        assert "unknown method" in usage_error(run("compare", "calibration.npz", "test.npz", "--methods", nothing))


def test_a_method_that_is_misspelt_is_found_before_anything_is_fitted(folder: Path) -> None:
    assert "did you mean 'vector'?" in usage_error(
        run("compare", "calibration.npz", "test.npz", "--methods", "temperature,vektor")
    )


@pytest.mark.usefixtures("quick_pages")
def test_report_writes_one_page_that_names_the_file(folder: Path) -> None:
    done = run("report", "calibration.npz", "test.npz", "--methods", "temperature")
    assert done.exit_code == 0, done.output
    assert "wrote report.html: open it in a browser" in done.stdout
    page = Path("report.html").read_text(encoding="utf-8")
    assert "test.npz" in page
    assert "temperature" in page


def test_every_method_is_listed_with_what_it_is(folder: Path) -> None:
    lines = run("methods").stdout.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(CALIBRATORS)]] == list(
        CALIBRATORS
    )  # one line each, at 80 columns
    assert json.loads(run("methods", "--json").stdout)["temperature"]["keeps"] == "ranking"


def test_exactly_the_methods_that_require_torch_fail_without_it() -> None:
    code = (
        "import sys, warnings, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else real(name, *rest)\n"
        "class Missing:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name.split('.')[0] == 'torch':\n"
        "            raise ModuleNotFoundError(name, name='torch')\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import numpy as np, glayers\n"
        "warnings.simplefilter('ignore')\n"
        "z, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) * 7 % 3\n"
        "for name, make in glayers.CALIBRATORS.items():\n"
        "    try:\n"
        "        make().fit(z, y)\n"
        "    except ModuleNotFoundError as problem:\n"
        "        print(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [name for name, note in CALIBRATORS.items() if note.torch == "required"]


@pytest.fixture
def small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample data's first rows: the demo itself takes half a minute."""
    parts = load_fashion_mnist()
    few = CalibrationAndTest(*(part.take(np.arange(90)) for part in parts))
    monkeypatch.setattr("glayers.cli.scoring.load_fashion_mnist", lambda: few)


def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    real = util.find_spec

    def find_spec(name: str, *rest: Any) -> Any:
        return None if name == "torch" else real(name, *rest)

    for module in ("cli.models", "calibrators.auto"):
        monkeypatch.setattr(f"glayers.{module}.find_spec", find_spec)
    for loaded in [name for name in sys.modules if name.startswith("glayers.")]:  # or the fits would not import torch
        if "torch" in vars(sys.modules[loaded]):
            monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "torch", None)


@pytest.mark.usefixtures("small_sample", "quick_pages")
def test_the_demo_without_torch_notes_the_methods_that_need_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_torch(monkeypatch)
    monkeypatch.setattr("glayers.comparison.DEFAULT_METHODS", ("g-layers", "temperature", "shared-g-layers"))
    done = run("demo")
    assert done.exit_code == 0, done.output
    for name in ("g-layers", "shared-g-layers"):
        assert f"note: {name} could not be fitted: " in done.stderr
    assert 'pip install "glayers[fit]"' in done.stderr
    lines = done.stdout.splitlines()
    table = lines[lines.index("") + 1 :]
    assert [line.split()[0] for line in table[1:3]] == ["uncalibrated", "temperature"]
    assert f"wrote {folder / 'report.html'}: open it in a browser" in done.stdout
    assert "(not installed: pip install" in run("methods").stdout


@pytest.mark.usefixtures("small_sample", "quick_pages")
def test_the_demo_replaces_a_page_by_force_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glayers.comparison.DEFAULT_METHODS", ("temperature",))
    (folder / "mine.html").write_text("<title>my own</title>")
    assert "already exists" in complaint(run("demo", "-o", "mine.html"))
    assert run("demo", "-o", "mine.html", "--force").exit_code == 0


def test_all_stands_for_every_method() -> None:
    assert method_names("all") == list(CALIBRATORS)


def test_apply_gives_what_compare_judged(folder: Path) -> None:
    run("fit", "calibration.npz", "-o", "v.safetensors", "-m", "vector")
    run("apply", "v.safetensors", "test.npz", "-o", "v.npz")
    judged = json.loads(run("compare", "calibration.npz", "test.npz", "--methods", "vector", "--json").stdout)[
        "methods"
    ]["vector"]
    applied = glayers.metrics.scorecard(read_predictions("v.npz"))
    assert applied["nll"] == pytest.approx(judged["nll"], rel=1e-9)


def test_differences_have_intervals(folder: Path) -> None:
    words = ("compare", "calibration.npz", "test.npz", "--methods", "temperature", "--differences")
    assert "NLL by" in run(*words).stdout
    found = json.loads(run(*words, "--json").stdout)["differences"]
    assert {each["method"] for each in found} == {"temperature"}
    assert all(each["low"] <= each["difference"] <= each["high"] for each in found if each["metric"] == "nll")


def test_json_says_what_was_run_and_found(folder: Path) -> None:
    found = json.loads(run("compare", "calibration.npz", "test.npz", "--methods", "temperature", "--json").stdout)
    assert found["recommended"] == "temperature"
    assert found["verdict"] == found["calibration_tests"]["temperature"]["verdict"]
    assert (found["calibration"], found["test"], found["version"]) == ("calibration.npz", "test.npz", __version__)
    refused = json.loads(run("compare", "calibration.npz", "missing.npz", "--json").stdout)
    assert refused["verdict"] is None
    assert "there is no such file" in refused["error"]
    assert refused["calibration"] == "calibration.npz"
