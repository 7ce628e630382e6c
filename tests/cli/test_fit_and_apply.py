"""`fit` writes a calibrator and `apply` uses it, from files of every format."""

import csv
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import glayers
from glayers import Predictions, TemperatureScaling, read_predictions
from glayers.predictions.contents import Contents
from glayers.predictions.formats import FORMATS, to_bytes
from tests.cli.conftest import NAMES, overconfident
from tests.cli.running import complaint, run, usage_error


def test_fit_writes_what_the_library_would(folder: Path) -> None:
    done = run("fit", "calibration.npz", "-o", "t.safetensors", "--method", "temperature")
    assert done.exit_code == 0
    assert "wrote t.safetensors" in done.stdout
    assert done.stderr == ""  # no bar where nobody sees it
    same = TemperatureScaling().fit(*overconfident(90, 0))
    assert (
        glayers.load("t.safetensors").predict_proba([[1.0, 2, 3, 4]]).tolist()
        == same.predict_proba([[1.0, 2, 3, 4]]).tolist()
    )


def test_fit_as_json_says_what_was_fitted(folder: Path) -> None:
    done = run("fit", "calibration.npz", "-o", "t.safetensors", "-m", "temperature", "--json", "--seed", 3)
    found = json.loads(done.stdout)
    assert (found["method"], found["seed"], found["output"], found["classes"]) == ("temperature", 3, "t.safetensors", 4)
    assert found["diagnostics"]["loss_after"] < found["diagnostics"]["loss_before"]
    assert found["selection"] is None


def test_auto_explains_its_selection(folder: Path) -> None:
    done = run("fit", "calibration.npz", "-o", "auto.safetensors")
    assert "90 rows, 4 classes (22 rows per class)" in done.stdout
    assert "gain over temperature" in done.stdout


def test_a_fit_starts_from_an_earlier_calibrator(folder: Path) -> None:
    run("fit", "calibration.npz", "-o", "may.safetensors", "--set", "time_budget=0")
    words = ["fit", "calibration.npz", "-o", "june.safetensors", "--set", "time_budget=0", "--prior", "may.safetensors"]
    found = json.loads(run(*words, "--json").stdout)
    assert "prior 1" in [part["name"] for part in found["selection"]["parts"]]
    assert "prior" in complaint(run(*words[:4], *words[6:], "-m", "vector", "--force"))


def test_one_part_of_a_file_is_fitted(folder: Path) -> None:
    run("fit", "both.npz", "-o", "a.safetensors", "-m", "temperature", "--part", "val")
    run("fit", "calibration.npz", "-o", "b.safetensors", "-m", "temperature")
    run("fit", "both.npz", "-o", "c.safetensors", "-m", "temperature", "--part", "test")
    a, b, c = (glayers.load(f"{name}.safetensors").transform([[3.0, 1, 2, 0]]).tolist() for name in "abc")
    assert a == b != c


def test_a_method_that_is_misspelt_is_a_usage_error_with_a_guess(folder: Path) -> None:
    done = run("fit", "calibration.npz", "-o", "t.safetensors", "-m", "temprature")
    assert "unknown method 'temprature'; did you mean 'temperature'?" in usage_error(done)


def test_a_seed_too_large_is_a_usage_error(folder: Path) -> None:
    done = run("fit", "calibration.npz", "-o", "t.safetensors", "-m", "vector", "--seed", 2**32)
    assert "Invalid value for '--seed'" in usage_error(done)
    assert "4294967295" in usage_error(done)


@pytest.mark.parametrize("ending", [".npz", ".csv", ".tsv", ".parquet", ".json"])
def test_apply_writes_the_calibrated_probabilities_in_every_format(folder: Path, ending: str) -> None:
    done = run("apply", "model.safetensors", "test.npz", "-o", f"out{ending}")
    assert done.exit_code == 0
    found = read_predictions(f"out{ending}")
    logits, labels = overconfident(150, 1)
    np.testing.assert_allclose(
        found.probabilities(), glayers.load("model.safetensors").predict_proba(logits), rtol=1e-12
    )
    assert found.labels.tolist() == labels.tolist()
    assert found.class_names == NAMES


def test_rows_without_labels_are_calibrated_and_stay_without(folder: Path) -> None:
    assert run("apply", "model.safetensors", "new.csv", "-o", "out.npz").exit_code == 0
    assert run("apply", "model.safetensors", "logits.npy", "-o", "npy.npz").exit_code == 0
    for name, rows in (("out.npz", 150), ("npy.npz", 90)):
        with np.load(name) as stored:
            assert sorted(stored) == ["class_names", "confidence", "predicted", "probabilities"]
            assert stored["probabilities"].shape == (rows, 4)


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".json", ".npz"])
def test_apply_writes_prediction_sets(folder: Path, ending: str) -> None:
    run("fit", "calibration.npz", "-o", "t.safetensors", "-m", "temperature")
    done = run("apply", "t.safetensors", "test.npz", "-o", f"sets{ending}", "--sets", "90%")
    assert done.exit_code == 0, done.output
    rows = read_predictions("test.npz")
    expected = glayers.load("t.safetensors").predict_set(rows.logits, 0.9)
    names = np.array(rows.class_names or ("0", "1", "2", "3"))
    if ending == ".csv":
        with Path("sets.csv").open(newline="") as file:
            found = [line["set"] for line in csv.DictReader(file)]
    elif ending == ".parquet":
        found = parquet.read_table("sets.parquet")["set"].to_pylist()
    elif ending == ".json":
        found = json.loads(Path("sets.json").read_text())["set"]
    else:
        found = np.load("sets.npz")["set"].tolist()
    assert found == ["|".join(names[in_set]) for in_set in expected]


def test_sets_that_cannot_be_made_are_refused(folder: Path) -> None:
    run("fit", "calibration.npz", "-o", "i.safetensors", "-m", "isotonic")
    run("fit", "calibration.npz", "-o", "t.safetensors", "-m", "temperature")
    apply = ["apply", "t.safetensors", "test.npz", "-o"]
    assert "no held-out scores" in complaint(run("apply", "i.safetensors", "test.npz", "-o", "s.csv", "--sets", "90%"))
    assert "from 0.5 to 0.999" in complaint(run(*apply, "s.csv", "--sets", "90"))
    assert "no place for sets" in usage_error(run(*apply, "s.npy", "--sets", "90%"))
    assert not Path("s.csv").exists()


def test_counts_repeat_rows_in_scores_and_stay_counts_in_apply(folder: Path) -> None:
    logits, labels = overconfident(30, 4)
    counts = np.arange(30) % 3
    np.savez("counted.npz", logits=logits, labels=labels, counts=counts)
    assert json.loads(run("score", "counted.npz", "--json").stdout)["all"]["rows"] == 30
    assert run("apply", "model.safetensors", "counted.npz", "-o", "out.npz").exit_code == 0
    with np.load("out.npz") as stored:
        assert stored["counts"].tolist() == counts.tolist()
        assert stored["probabilities"].shape == (30, 4)


def cells_of(path: str) -> dict[str, list[object]]:
    """Read a table or a log as any other program would."""
    if path.endswith(".jsonl"):
        records = [json.loads(line) for line in Path(path).read_text().splitlines()]
        return {name: [record[name] for record in records] for name in records[0]}
    if path.endswith(".parquet"):
        columns: dict[str, list[object]] = parquet.read_table(path).to_pydict()
        return columns
    with Path(path).open(newline="") as stream:
        header, *lines = csv.reader(stream)
    return {name: list(cells) for name, cells in zip(header, zip(*lines, strict=True), strict=True)}


@pytest.mark.parametrize("written", [".csv", ".parquet", ".jsonl"])
@pytest.mark.parametrize("read", [".csv", ".parquet", ".jsonl"])
def test_other_columns_are_kept_and_the_prediction_is_added(folder: Path, read: str, written: str) -> None:
    logits, labels = overconfident(30, 3)
    ids = [f"row {number}" for number in range(30)]
    columns = {"id": ids, **{f"logit_{name}": logits[:, n] for n, name in enumerate(NAMES)}, "label": labels}
    if read == ".jsonl":
        lines = [{"id": i, "logits": z.tolist(), "label": int(y)} for i, z, y in zip(ids, logits, labels, strict=True)]
        Path("in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif read == ".parquet":
        days = pyarrow.array([None, *[datetime(2026, 1, 1, tzinfo=UTC)] * 29])
        parquet.write_table(pyarrow.table({**columns, "day": days}), "in.parquet")
    else:
        rows = [columns, *zip(*columns.values(), strict=True)]
        Path("in.csv").write_text("\n".join(",".join(map(str, row)) for row in rows))
    assert run("apply", "model.safetensors", f"in{read}", "-o", f"out{written}").exit_code == 0
    found = cells_of(f"out{written}")
    assert next(iter(found)) == "id"
    assert [name for name in found if name != "class_names"][-2:] == ["predicted", "confidence"]
    assert found["id"] == ids
    p = glayers.load("model.safetensors").predict_proba(logits)
    assert np.array(found["confidence"], float) == pytest.approx(p.max(axis=1))
    names = [str(found["predicted"][row]) for row in range(30)]
    assert names == [NAMES[c] for c in p.argmax(axis=1)]
    if read == written == ".parquet":
        assert parquet.read_table("out.parquet")["day"].equals(parquet.read_table("in.parquet")["day"])
    assert (read_predictions(f"out{written}").labels == labels).all()  # and what was written can be read
    assert run("apply", "model.safetensors", f"out{written}", "-o", f"twice{written}").exit_code == 0
    assert list(cells_of(f"twice{written}")) == list(found)


@pytest.mark.parametrize("ending", [ending for ending in FORMATS if ending != ".npy"])
def test_a_log_with_nested_values_can_be_written_in_every_format(folder: Path, ending: str) -> None:
    logits, labels = overconfident(30, 3)
    with Path("log.jsonl").open("w") as stream:
        for number, (row, label) in enumerate(zip(logits.tolist(), labels.tolist(), strict=True)):
            answers = [[score, False] for score in row]
            record = {"doc_id": number, "doc": {"question": "a\nb"}, "filtered_resps": answers, "target": label}
            stream.write(json.dumps(record | {"tags": [1, None], "odd": None if number % 2 else "x"}) + "\n")
    done = run("apply", "model.safetensors", "log.jsonl", "-o", f"out{ending}")
    assert done.exit_code == 0, done.stderr
    assert (read_predictions(f"out{ending}").labels == labels).all()


def test_an_array_alone_can_be_written(folder: Path) -> None:
    assert run("apply", "model.safetensors", "logits.npy", "-o", "out.npy").exit_code == 0
    p = glayers.load("model.safetensors").predict_proba(np.load("logits.npy"))
    np.testing.assert_allclose(np.load("out.npy"), p, atol=1e-12)


def test_a_model_refuses_other_classes(folder: Path) -> None:
    logits, labels = overconfident(20, 2)
    np.savez("other.npz", logits=logits, labels=labels, class_names=np.array(NAMES[::-1]))
    assert "fitted on the classes cat, dog, owl, bee" in complaint(
        run("apply", "model.safetensors", "other.npz", "-o", "x.csv")
    )
    np.savez("narrow.npz", logits=logits[:, :3], labels=labels % 3)
    assert "fitted on 4 logits per row; got 3" in complaint(
        run("apply", "model.safetensors", "narrow.npz", "-o", "x.csv")
    )
    assert "both.npz" in complaint(run("apply", "both.npz", "test.npz", "-o", "x.csv"))


def test_an_unknown_output_format_is_a_usage_error(folder: Path) -> None:
    message = usage_error(run("apply", "model.safetensors", "test.npz", "-o", "x.txt"))
    assert ".npz, .npy, .json, .jsonl, .parquet, .csv" in message


def test_same_seed_same_bytes(folder: Path) -> None:
    for name in "ab":
        run("fit", "calibration.npz", "-o", f"{name}.safetensors", "-m", "vector", "--seed", 5)
        run("apply", f"{name}.safetensors", "test.npz", "-o", f"{name}.npz")
    assert Path("a.npz").read_bytes() == Path("b.npz").read_bytes()


def test_apply_keeps_impossible_classes_with_and_without_labels(folder: Path) -> None:
    run("fit", "calibration.npz", "-o", "t.safetensors", "--method", "temperature")
    logits = np.array([[-np.inf, 1.0, 2.0, 0.0], [0.0, 1.0, -np.inf, -np.inf]])
    arrays: dict[str, Any] = {"logits": logits}
    for more in ({}, {"labels": [1, 1]}):
        np.savez("masked.npz", **arrays | more)
        assert run("apply", "t.safetensors", "masked.npz", "-o", "out.npz", "--force").exit_code == 0
        assert np.array_equal(np.load("out.npz")["probabilities"] == 0, np.isneginf(logits))


def test_settings_of_the_method_are_given_by_name(folder: Path) -> None:
    words = ("fit", "calibration.npz", "-o", "m.safetensors", "-m", "vector", "--force")
    assert run(*words, "--set", "strength=0.5").exit_code == 0
    assert glayers.load("m.safetensors").get_params()["strength"] == 0.5
    assert "did you mean 'strength'?" in usage_error(run(*words, "--set", "strenght=1"))
    assert "cannot read the setting 'strength'" in usage_error(run(*words, "--set", "strength"))
    assert "strength" in complaint(run(*words, "--set", "strength=much"))


def test_float32_stays_float32(folder: Path) -> None:
    z = np.load("test.npz")["logits"]
    for kind in (np.float32, np.float64):
        np.savez("z.npz", logits=z.astype(kind))
        run("apply", "model.safetensors", "z.npz", "-o", "out.npz", "--force")
        assert np.load("out.npz")["probabilities"].dtype == kind


def test_masked_options_are_read_back_without_a_note(folder: Path) -> None:
    logits, labels = overconfident(90, 0)
    logits[(np.arange(90) % 2 == 0) & (labels < 3), 3] = -np.inf  # questions of three options
    np.savez("masked.npz", logits=logits, labels=labels)
    for ending in ("npz", "csv", "jsonl"):
        run("apply", "model.safetensors", "masked.npz", "-o", f"out.{ending}")
        done = run("score", f"out.{ending}")
        assert (done.exit_code, done.stderr) == (0, "")


def test_groups_are_fitted_and_applied(folder: Path) -> None:
    logits, labels = overconfident(300, 0)
    site = np.array(["Bern", "Oslo"])[np.arange(300) % 2]
    logits[site == "Oslo"] /= 3  # which needs no correction there
    np.savez("sites.npz", logits=logits, labels=labels, groups=site)
    done = run("fit", "sites.npz", "-o", "sites.safetensors", "-m", "temperature", "--by-group")
    assert done.exit_code == 0, done.output
    assert "group Oslo: its correction has a share of" in done.stdout
    assert "common calibrator: learned 1 parameter" in done.stdout
    assert "common calibrator: mean training loss, on these rows: " in done.stdout
    assert run("apply", "sites.safetensors", "sites.npz", "-o", "out.npz").exit_code == 0
    fitted: Any = glayers.load("sites.safetensors")
    assert np.allclose(np.load("out.npz")["probabilities"], fitted.predict_proba(logits, site))
    np.savez("no_site.npz", logits=logits)
    assert "groups are missing" in complaint(run("apply", "sites.safetensors", "no_site.npz", "-o", "b.npz"))
    assert "for_group(name).to_onnx(path)" in complaint(run("export", "sites.safetensors", "-o", "oslo.onnx"))


def test_a_model_by_group_is_scored_and_used_where_it_only_has_to_be_applied(folder: Path) -> None:
    logits, labels = overconfident(300, 0)
    site = np.array(["Bern", "Oslo"])[np.arange(300) % 2]
    Path("sites").mkdir()
    np.savez("sites/a.npz", logits=logits, labels=labels, groups=site)
    shutil.copy("sites/a.npz", "sites.npz")
    assert run("fit", "sites.npz", "-o", "m.safetensors", "-m", "temperature", "--by-group").exit_code == 0
    model: Any = glayers.load("m.safetensors")
    nll = glayers.metrics.nll(model.predict_proba(logits, site), labels)
    dependent, independent, many = (
        json.loads(run("score", *words, "--model", "m.safetensors", "--json").stdout)
        for words in (["sites.npz"], ["sites.npz", "--ignore-groups"], ["sites", "--ignore-groups"])
    )
    for found in (dependent, independent, many):
        assert found["calibrated"]["nll"] == pytest.approx(nll)
    assert dependent["verdict"] == "too few groups"
    for found in (independent, many):  # the rows are independent, but the model needs the sites
        assert found["uncalibrated"]["calibration_test"]["rejected"]
        assert not found["calibrated"]["calibration_test"]["rejected"]
        assert found["shift"]["rows"] == 300
    for words in (["threshold", "sites.npz", "--accuracy", "60%"], ["decide", "sites.npz", "--costs", "costs.csv"]):
        assert run(*words, "--model", "m.safetensors").exit_code in (0, 3)
    assert run("apply", "m.safetensors", "sites", "-o", "out", "--costs", "costs.csv").exit_code == 0
    for words in (["adapt", "-o", "b.safetensors"], ["card"], ["apply", "--sets", "90%", "-o", "out.csv"]):
        done = run(words[0], "m.safetensors", "sites.npz", *words[1:])
        assert "was fitted by group or on several labels" in complaint(done)


@pytest.mark.parametrize("ending", [".csv", ".json", ".jsonl", ".npz", ".parquet"])
def test_soft_labels_stay_soft(folder: Path, ending: str) -> None:
    logits, _ = overconfident(150, 1)
    soft = np.random.default_rng(0).dirichlet(np.ones(4), 150)
    soft[3] = [0.0, 1.0, 0.0, 0.0]
    weights = np.arange(1.0, 151.0)
    contents = Contents(logits=logits, labels=soft, weights=weights, class_names=NAMES)
    (folder / f"soft{ending}").write_bytes(to_bytes(contents, ending))
    done = run("apply", "model.safetensors", f"soft{ending}", "-o", f"out{ending}")
    assert done.exit_code == 0, done.stderr
    assert "calibrated 150 rows" in done.stdout
    found = read_predictions(f"out{ending}")
    wanted = glayers.load("model.safetensors").apply(Predictions(logits, soft, weights, class_names=NAMES))
    np.testing.assert_allclose(found.probabilities(), wanted.probabilities(), rtol=1e-12)
    assert found.weights == pytest.approx(wanted.weights)
    assert found.labels.tolist() == wanted.labels.tolist()


def test_soft_labels_of_other_classes_are_refused(folder: Path) -> None:
    np.savez(folder / "soft.npz", logits=overconfident(20, 1)[0], labels=np.full((20, 5), 0.2))
    done = run("apply", "model.safetensors", "soft.npz", "-o", "out.npz")
    assert "soft labels of 5 classes, but scores of 4" in complaint(done)
