"""Bad input gives one clear line, exit status 1, and a traceback only for a bug."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from glayers import GlayersWarning, metrics
from glayers.cli import scoring
from tests.cli.conftest import overconfident
from tests.cli.running import complaint, run


def wrong_shapes(path: Path) -> None:
    np.savez(path, logits=np.zeros((3, 2)), labels=[0, 1])


def truncated(path: Path) -> None:
    np.savez(path, logits=np.tile([0.0, 1, 2], (30, 1)), labels=np.zeros(30, int))
    path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda _: None, "there is no such file"),
        (lambda path: path.mkdir(), "is a directory with no files"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"),
        (lambda path: np.savez(path, logits=np.full((3, 2), np.nan), labels=[0, 1, 1]), "must be finite; row 0"),
        (wrong_shapes, "different numbers of rows"),
        (lambda path: np.savez(path, logits=np.tile([0.0, 5], (3, 1)), labels=[0, 1, 7]), "row 2 has 7"),
        (lambda path: np.savez(path, logits=[[0.7, 0.3], [0.1, 0.9]], labels=[0, 1]), "look like probabilities"),
        (lambda path: np.savez(path, logits=np.zeros((3, 2))), "no labels: name their key or column"),
        (truncated, "cannot be read"),
    ],
    ids=["missing", "directory", "empty", "git-lfs", "nan", "shapes", "labels", "probabilities", "unlabelled", "cut"],
)
@pytest.mark.parametrize(
    "words", [["fit", "bad.npz", "-o", "new.safetensors"], ["score", "bad.npz"], ["compare", "bad.npz", "test.npz"]]
)
def test_bad_input_is_one_line_and_a_status_of_one(folder: Path, make: object, said: str, words: list[str]) -> None:
    assert callable(make)
    make(folder / "bad.npz")
    line = complaint(run(*words))
    assert line.count("bad.npz: ") == 1
    assert said in line
    assert not (folder / "new.safetensors").exists()


def test_a_bug_shows_its_traceback_and_has_a_status_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("glayers.cli.scoring.calibration_test", broken)
    done = run("score", "test.npz")
    assert done.exit_code == 70
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-2] == "KeyError: 'lost'"
    assert lines[-1] == "glayers: this is a bug in glayers; please report it with the lines above"


def test_memory_that_runs_out_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(scoring, "card_of", greedy)
    assert "not enough memory" in complaint(run("score", "test.npz"))


def test_a_file_without_read_permission_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # the tests may run as root, who can read every file
    assert "test.npz: cannot be opened (Permission denied)" in complaint(run("score", "test.npz"))


def test_the_error_for_odd_json_is_one_line(folder: Path) -> None:
    Path("deep.json").write_bytes(b'{"logits": ' + 100_000 * b"[" + 100_000 * b"]" + b"}")
    assert "cannot be read" in complaint(run("score", "deep.json"))
    Path("far.json").write_bytes(b'{"logits": [[1e400, 0], [0, 2]], "labels": [0, 1]}')
    assert "must be finite; row 0, column 0 has inf" in complaint(run("score", "far.json"))


def test_json_with_a_byte_order_mark_is_read(folder: Path) -> None:
    Path("marked.json").write_bytes('{"logits": [[1, 0], [0, 2]], "labels": [0, 1]}'.encode("utf-8-sig"))
    assert run("score", "marked.json").exit_code == 0


def test_only_our_own_warnings_become_notes_and_each_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def score(*_: object, **__: object) -> metrics.Scorecard:
        warnings.warn("ours", GlayersWarning, stacklevel=1)
        warnings.warn("not ours", FutureWarning, stacklevel=1)
        return metrics.scorecard([[0.5, 0.5]], [0])

    monkeypatch.setattr(scoring, "card_of", score)
    with pytest.warns(FutureWarning, match="not ours"):
        done = run("score", "test.npz")
    assert done.exit_code == 0
    assert done.stderr == "note: ours\n"


def test_warnings_about_the_file_are_notes(folder: Path) -> None:
    np.savez("p.npz", probabilities=[[1.0, 0.0], [0.5, 0.5]], labels=[1, 1])
    done = run("score", "p.npz")
    assert done.exit_code == 0
    assert done.stderr.startswith("note: 1 of 2 probabilities of labels are 0")
    np.savez("q.npz", probabilities=[[0.5], [0.6], [0.7]], labels=[0, 1, 1])
    assert run("score", "q.npz").stderr == ""  # of class 1 alone, and no logits


def test_names_of_labels_are_as_many_as_labels(folder: Path) -> None:
    logits = np.linspace(-2, 2, 40).reshape(20, 2)
    labels = np.tile([[0, 1], [1, 0]], (10, 1))
    np.savez("several.npz", logits=logits, labels=labels, class_names=["cat", "dog", "fox"])
    assert "class_names must be 2 different names" in complaint(run("score", "several.npz"))


def test_counts_of_many_rows_are_scored_as_many_rows_are(folder: Path) -> None:
    np.savez("counted.npz", logits=[[2.0, 0.0], [0.0, 1.0]], labels=[0, 0], counts=[90_000, 30_000])
    found = json.loads(run("score", "counted.npz", "--json").stdout)
    assert found["all"]["rows"] == 120_000
    assert found["all"]["accuracy"] == pytest.approx(0.75)
    assert found["all"]["nll"] == pytest.approx(0.75 * np.log1p(np.exp(-2)) + 0.25 * np.log1p(np.e))
    assert found["tested_rows"] == 25_000


def test_counts_that_stand_for_millions_of_rows_are_refused_in_words(folder: Path) -> None:
    logits, labels = overconfident(50, 0)
    for n_rows, allowed in ((10_000_000, False), (1_000, True)):
        counts = np.ones(50, int)
        counts[3] = n_rows
        np.savez("counted.npz", logits=logits, labels=labels, counts=counts)
        done = run("score", "counted.npz")
        assert (done.exit_code == 0) is allowed
        assert allowed or "counts sum to 10,000,049, and rows are repeated in memory: here at most 2,097,152" in (
            complaint(done)
        )
