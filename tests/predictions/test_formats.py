"""Every format gives back any logits, and what is no file of predictions is refused in one clear line."""

import errno
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.predictions import Confidences, Predictions
from glayers.predictions.source import read_confidences, read_predictions
from tests.files import write_anew
from tests.predictions.examples import LABELS, LOGITS, bad, read_any, read_rows


def save(path: Path, logits: Array, labels: Array) -> Path:
    """Write logits and labels in the format the ending says."""
    columns = {**{f"logit_{column}": values for column, values in enumerate(logits.T)}, "label": labels}
    between = "\t" if ".tsv" in path.name else ","
    rows = [columns, *zip(*(values.tolist() for values in columns.values()), strict=True)]
    text = "\n".join(between.join(map(str, row)) for row in rows).encode()
    match path.suffix:
        case ".npz":
            np.savez_compressed(path, logits=logits, labels=labels)
        case ".parquet":
            pyarrow.parquet.write_table(pyarrow.table(columns), path)
        case _:
            path.write_bytes(text)
    return path


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def npz(path: Path, **entries: Any) -> Path:
    np.savez(path, **entries)
    return path


def assert_same(found: Predictions, logits: Array, labels: Array) -> None:
    np.testing.assert_array_equal(found.logits, logits)
    np.testing.assert_array_equal(found.labels, labels)


ENDINGS = [".npz", ".npy", ".csv", ".tsv", ".parquet"]


@pytest.mark.parametrize("ending", ENDINGS)
def test_each_kind_of_unusable_path_has_its_own_message(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    assert "there is no such file; check the path" in bad(path)
    path.mkdir()
    assert "is a directory" in bad(path)
    path.rmdir()
    path.touch()
    assert "is empty; fetch it or write it again" in bad(path)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n")
    assert "is a Git LFS pointer, not the file itself; fetch the file with `git lfs pull`" in bad(path)
    path.unlink()
    os.mkfifo(path)
    assert "not a regular file" in bad(path)


@pytest.mark.parametrize("ending", [".npz", ".npy", ".parquet"])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a{ending}", "<html>404</html>")
    assert "cannot be read" in bad(path)


@pytest.mark.parametrize("name", ["a.txt", "a", "a.h5", "a.gz", "npz", "a.npz.zip"])
def test_an_unknown_ending_lists_the_known_ones(tmp_path: Path, name: str) -> None:
    message = bad(write(tmp_path / name, "x"))
    assert "unknown ending" in message
    assert ".csv, .json, .jsonl, .npy, .npz, .parquet, .tsv" in message


@pytest.mark.parametrize("name", ["a.npz", "a.parquet"])
def test_a_truncated_file_is_never_read(tmp_path: Path, name: str) -> None:
    path = save(tmp_path / name, LOGITS, LABELS)
    data = path.read_bytes()
    assert_same(read_predictions(path), LOGITS, LABELS)
    for length in range(1, len(data), 13):
        write_anew(path, data[:length])
        bad(path)


def test_an_error_in_predictions_names_the_file(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", z_val=LOGITS, y_val=LABELS, z_test=LOGITS, y_test=LABELS + 1)
    assert len(read_predictions(path, part="val")) == 7
    assert bad(path, part="test").startswith(f"{path}: labels must be whole numbers in 0..3")


@pytest.mark.parametrize("error", [RecursionError("deep"), OverflowError("wide"), SystemError("c"), struct.error("s")])
def test_any_error_in_parsing_becomes_a_bad_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    path = npz(tmp_path / "a.npz", logits=LOGITS, labels=LABELS)
    monkeypatch.setattr(zipfile, "ZipFile", fail)
    assert f"cannot be read ({type(error).__name__}: " in bad(path)


def test_a_file_that_memory_cannot_hold_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MemoryError

    path = npz(tmp_path / "a.npz", logits=LOGITS, labels=LABELS)
    monkeypatch.setattr(zipfile, "ZipFile", fail)
    assert "is too large for the memory of this machine" in bad(path)


def test_logits_and_probabilities_under_each_others_names_say_how_to_name_them(tmp_path: Path) -> None:
    probabilities = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    assert "in a file, name the array `probabilities`" in bad(npz(tmp_path / "a.npz", z=probabilities, y=LABELS))
    assert "in a file, name the array `logits`" in bad(npz(tmp_path / "a.npz", p=LOGITS, y=LABELS))


def test_a_file_the_system_will_not_open_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = bad(tmp_path / ("a" * 300 + ".npz"))
    assert "cannot be opened (File name too long); check its name and your right to read it" in message
    assert "damaged" not in message

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    path = npz(tmp_path / "a.npz", logits=LOGITS, labels=LABELS)
    monkeypatch.setattr(Path, "open", refuse)
    message = bad(path)
    assert "cannot be opened (Permission denied)" in message
    assert "damaged" not in message


def test_an_interrupt_is_not_swallowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    path = npz(tmp_path / "a.npz", logits=LOGITS, labels=LABELS)
    monkeypatch.setattr(zipfile, "ZipFile", interrupt)
    with pytest.raises(KeyboardInterrupt):
        read_predictions(path)


@settings(max_examples=40, deadline=None)
@given(
    logits=arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        st.tuples(st.integers(1, 6), st.integers(3, 5)),
        elements=st.floats(-1000, -1, width=16),  # negative, so that no row can look like probabilities
    ),
    data=st.data(),
)
def test_every_format_gives_back_any_logits(
    tmp_path_factory: pytest.TempPathFactory, logits: Array, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("any")
    n_rows, n_classes = logits.shape
    labels = np.array(data.draw(st.lists(st.integers(0, n_classes - 1), min_size=n_rows, max_size=n_rows)))
    for name in ("a.npz", "a.csv", "a.tsv", "a.parquet"):
        assert_same(read_predictions(save(folder / name, logits, labels)), logits, labels)


CONFIDENCE, CORRECT = np.array([0.9, 0.25, 0.5]), np.array([1, 0, 1])


def test_confidence_and_correct_may_come_in_two_parts(tmp_path: Path) -> None:
    path = npz(
        tmp_path / "a.npz", confidence_val=CONFIDENCE, correct_val=CORRECT, test_confidence=[0.5], correct_test=[True]
    )
    assert read_confidences(path, part="test").correct.tolist() == [True]
    assert len(read_confidences(path, part="val")) == 3


@pytest.mark.parametrize("cells", [["1", "0", "1"], [" True", "FALSE ", "true"], ["1.0", "0.0", "1.0"]])
def test_a_table_may_spell_correct_in_several_ways(tmp_path: Path, cells: list[str]) -> None:
    rows = [f"{score},x,{cell}" for score, cell in zip(CONFIDENCE, cells, strict=True)]
    path = write(tmp_path / "a.csv", "\n".join(["confidence,label,correct", *rows]))
    assert read_confidences(path).correct.tolist() == [True, False, True]
    pyarrow.parquet.write_table(
        pyarrow.table({"confidences": CONFIDENCE, "correct": CORRECT == 1}), tmp_path / "a.parquet"
    )
    assert read_confidences(tmp_path / "a.parquet").correct.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("confidence,correct\n0.5,yes\n", "line 2, column 'correct' has 'yes'; expected a number or one of true, True"),
        ("confidence,correct\n0.5,\n", "line 2, column 'correct' has ''; expected a number or one of true"),
        ("confidence,correct\nnan,1\n", "line 2, column 'confidence' has 'nan'; expected a number"),
        ("confidence,correct\n90,1\n", "confidence must be finite and lie between 0 and 1; row 0 has 90"),
        ("confidence,logit_a\n0.5,1\n", "no labels"),
        ("confidence,answer\n0.5,1\n", "holds `confidence` without `correct`"),
    ],
)
def test_a_table_that_holds_no_confidences_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = write(tmp_path / "a.csv", text)
    with pytest.raises(BadFile) as caught:
        read_any(path)
    assert said in str(caught.value)


def test_predictions_and_confidences_point_to_each_others_reader(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", confidence=CONFIDENCE, correct=CORRECT)
    assert "not scores of every class; use read_confidences" in bad(path)
    with pytest.raises(BadFile, match=r"not `confidence` and `correct`; use read_predictions"):
        read_confidences(npz(path, z=LOGITS, y=LABELS))
    alone = npz(path, confidence=CONFIDENCE)
    with pytest.raises(BadFile, match="holds `confidence` without `correct`; add whether"):
        read_confidences(alone)
    rows, labelled = read_rows(alone)  # new rows need no answers
    assert isinstance(rows, Confidences)
    assert (rows.confidence.tolist(), labelled) == (np.asarray(CONFIDENCE).tolist(), False)


def test_confidence_and_correct_next_to_logits_are_ignored(tmp_path: Path) -> None:
    assert_same(read_predictions(npz(tmp_path / "a.npz", z=LOGITS, y=LABELS, correct=LABELS)), LOGITS, LABELS)
    path = write(tmp_path / "a.csv", "logit_a,logit_b,label,confidence,correct\n1,2,0,0.9,1\n")
    assert_same(read_predictions(path), np.array([[1.0, 2.0]]), np.array([0]))
