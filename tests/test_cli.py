import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from glayers import GlayersWarning, cli, metrics

PROGRAM = Path(sys.executable).with_name("glayers")


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, check=False)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    logits, labels = rng.normal(size=(300, 4)) * 3, rng.integers(0, 4, 300)
    path = tmp_path / "model.npz"
    np.savez(path, logits_val=logits[:100], y_val=labels[:100], logits_test=logits[100:], y_test=labels[100:])
    return path


def test_score_prints_a_column_for_each_part(saved: Path) -> None:
    done = run("score", saved)
    assert done.returncode == 0
    header = done.stdout.splitlines()[1].split()
    assert header == ["calibration", "test"]
    assert "overconfident: says" in done.stdout


def test_score_as_json_is_the_scorecard(saved: Path) -> None:
    done = run("score", saved, "--part", "test", "--json")
    card = json.loads(done.stdout)
    assert list(card) == ["test"]
    assert card["test"]["rows"] == 200


@pytest.mark.parametrize(
    "make",
    [
        lambda _: None,
        lambda path: path.mkdir(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n"),
        lambda path: np.savez(path, logits=np.full((3, 2), np.nan), labels=[0, 1, 1]),
        lambda path: np.savez(path, logits=np.zeros((3, 2)), labels=[0, 1]),
        lambda path: np.savez(path, logits=np.zeros((3, 2)), labels=[0, 1, 7]),
    ],
    ids=["missing", "directory", "empty", "git-lfs", "nan", "shapes", "labels"],
)
def test_bad_input_is_one_line_and_a_status_of_one(make: object, tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    assert callable(make)
    make(path)
    done = run("score", path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("glayers: ")
    assert "bad.npz" in done.stderr


def test_weights_in_the_file_change_the_score(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    logits, labels, weights = rng.normal(size=(50, 3)), rng.integers(0, 3, 50), rng.integers(0, 5, 50)
    np.savez(tmp_path / "w.npz", logits=logits, labels=labels, weights=weights)
    card = json.loads(run("score", tmp_path / "w.npz", "--json").stdout)["all"]
    assert card == pytest.approx(metrics.scorecard_from_logits(logits, labels, weights).to_dict())
    assert card["accuracy"] != metrics.scorecard_from_logits(logits, labels).accuracy


def test_json_has_null_for_infinity(tmp_path: Path) -> None:
    np.savez(tmp_path / "far.npz", logits=[[1e308, -1e308], [0.0, 2.0]], labels=[1, 0])
    done = run("score", tmp_path / "far.npz", "--json")
    assert done.stderr == ""
    assert "Infinity" not in done.stdout
    assert json.loads(done.stdout)["all"]["nll"] is None


def inside(monkeypatch: pytest.MonkeyPatch, *words: object) -> int | str | None:
    """Run the command line in this process, and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["glayers", *map(str, words)])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code


def test_only_our_own_warnings_become_notes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], saved: Path
) -> None:
    def score(*_: object) -> metrics.Scorecard:
        warnings.warn("ours", GlayersWarning, stacklevel=1)
        warnings.warn("not ours", FutureWarning, stacklevel=1)
        return metrics.scorecard([[0.5, 0.5]], [0])

    monkeypatch.setattr(cli, "score_checked_logits", score)
    with pytest.warns(FutureWarning, match="not ours"):
        assert inside(monkeypatch, "score", saved, "--part", "test") == 0
    notes = capsys.readouterr().err
    assert "note: ours" in notes
    assert "note: not ours" not in notes


def test_probabilities_of_one_column_are_scored_without_a_false_note(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", probabilities=[[0.5], [0.6], [0.7]], labels=[0, 1, 1])
    done = run("score", tmp_path / "p.npz")
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_file_one_may_not_read_is_one_line_and_a_status_of_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], saved: Path
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # the tests may run as root, whom no mode of a file keeps out
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert inside(monkeypatch, "score", saved) == 1
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith(f"glayers: {saved}: cannot be opened (Permission denied)")


@pytest.mark.parametrize("name", ["two\nlines", "\x1b[31mred", "right\u202eleft", os.fsdecode(b"no text \xff")])
def test_file_names_cannot_give_orders_to_the_terminal(saved: Path, name: str) -> None:
    path = saved.rename(saved.with_name(f"{name}.npz"))
    good, bad = run("score", path), run("score", path.with_name(f"{name}.txt"))
    plain = f"{name}.npz".encode("unicode_escape").decode()
    assert good.stdout.splitlines()[0] == plain
    assert good.returncode == 0
    assert bad.returncode == 1
    assert len(bad.stderr.splitlines()) == 1
    assert plain.removesuffix(".npz") in bad.stderr
    assert (good.stdout + bad.stderr).replace("\n", "").isprintable()


@pytest.mark.parametrize("words", [["demo"], ["demo", "--help"], ["--version"], ["score", "--json"]])
def test_output_that_cannot_be_written_is_one_line_and_a_status_of_one(saved: Path, words: list[str]) -> None:
    file = [saved] if "score" in words else []
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([PROGRAM, *words, *file], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "glayers: cannot write the output: [Errno 28] No space left on device\n"


def test_warnings_are_notes(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", probabilities=[[1.0, 0.0], [0.5, 0.5]], labels=[0, 1])
    done = run("score", tmp_path / "p.npz")
    assert done.returncode == 0
    assert done.stderr.startswith("note: 1 of 4 probabilities are exactly 0")


def test_the_demo_shows_sample_data_before_and_after_calibration() -> None:
    done = run("demo")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].split() == ["uncalibrated", "temperature", "g-layers"]
    assert "uncalibrated: overconfident: says" in done.stdout
    ks = next(line for line in done.stdout.splitlines() if line.startswith("KS  "))
    before, temperature, g_layers = (float(word) for word in ks.split() if word not in ("KS", "%"))
    assert max(temperature, g_layers) < before / 3


def test_the_demo_does_without_torch() -> None:
    code = (
        "import sys, importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'torch' else real(name, *rest)\n"
        "sys.argv = ['glayers', 'demo']; from glayers.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].split() == ["uncalibrated", "temperature"]
    assert "glayers[fit]" in done.stderr


def test_the_version_is_the_package_version() -> None:
    import glayers

    assert run("--version").stdout.strip() == glayers.__version__


def test_no_command_is_a_usage_error() -> None:
    done = run()
    assert done.returncode == 2
    assert "score" in done.stdout + done.stderr
