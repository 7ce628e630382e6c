"""What readers may take and leave behind: memory, the warning filters, groups of any kind."""

import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glayers import BadFile, Predictions, read_confidences, read_predictions
from glayers.predictions.contents import Contents
from glayers.predictions.formats import to_bytes
from tests.predictions.examples import read_rows

LOGITS = np.array([[2.0, 0.5], [0.1, 3.0], [1.0, -1.0]])
ENDINGS = [".npz", ".csv", ".tsv", ".parquet", ".json"]


def written(folder: Path, ending: str, **more: Any) -> Path:
    path = folder / f"a{ending}"
    path.write_bytes(to_bytes(Contents(logits=LOGITS, labels=np.array([0, 1, 0]), **more), ending))
    return path


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_limit_refuses_a_good_file_as_too_large_and_not_as_damaged(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, ending)
    monkeypatch.setenv("GLAYERS_MAX_BYTES", "100000")
    assert len(read_predictions(path)) == 3
    monkeypatch.setenv("GLAYERS_MAX_BYTES", "40")
    with pytest.raises(BadFile, match=r"a\.\w+: is too large: .* more than 40 bytes .*GLAYERS_MAX_BYTES"):
        read_predictions(path)


def test_the_environment_sets_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"confidence": [0.5, 0.6], "correct": [0, 1]}))
    monkeypatch.setenv("GLAYERS_MAX_BYTES", "40")
    with pytest.raises(BadFile, match="is too large"):
        read_confidences(path)
    monkeypatch.setenv("GLAYERS_MAX_BYTES", "4 GB")
    with pytest.raises(BadFile, match="GLAYERS_MAX_BYTES must be a number of bytes; got '4 GB'"):
        read_confidences(path)


def test_reading_in_threads_leaves_the_warning_filters_as_they_were(tmp_path: Path) -> None:
    paths = [written(tmp_path, ending) for ending in ENDINGS] * 40
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read_predictions, paths))
    assert list(warnings.filters) == before


GROUPS: dict[str, tuple[Any, list[str]]] = {
    "bytes": (np.array([b"a", b"\xc3\xa9", b"a"]), ["a", "é", "a"]),
    "bytes of no encoding": (np.array([b"a", b"\xff", b"\xc3\xa9"]), ["a", "\\xff", "é"]),
    "long floats": (np.array([0.5, 2, 0.5], np.longdouble), ["0.5", "2.0", "0.5"]),
    "large numbers": (np.array([2**64 - 1, 3, 3], np.uint64), ["18446744073709551615", "3", "3"]),
    "formulas": (np.array(["=1+1", "'=1+1", "@a"]), ["=1+1", "'=1+1", "@a"]),
    "signs": (np.array(["-1", "-a", "+"]), ["-1", "-a", "+"]),
    "apostrophes": (np.array(["'a", "'", "''-b"]), ["'a", "'", "''-b"]),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("kind", GROUPS)
def test_groups_that_are_read_can_be_written_in_any_format(tmp_path: Path, kind: str, ending: str) -> None:
    given, expected = GROUPS[kind]
    np.savez(tmp_path / "in.npz", logits=LOGITS, groups=given)
    rows, _ = read_rows(tmp_path / "in.npz")
    again = read_predictions(written(tmp_path, ending, groups=rows.groups))
    assert again.groups is not None
    assert list(map(str, again.groups)) == expected


def test_text_that_utf_8_cannot_hold_is_refused_by_tables_only(tmp_path: Path) -> None:
    groups = np.array(["\ud800", "a", "b"])
    for ending in (".csv", ".tsv", ".parquet"):
        with pytest.raises(BadFile, match=r"write \.npz or \.json"):
            written(tmp_path, ending, groups=groups)
    for ending in (".npz", ".json"):
        assert str(read_predictions(written(tmp_path, ending, groups=groups)).groups[0]) == "\ud800"  # type: ignore[index]


def test_numbers_in_json_are_groups_as_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"logits": LOGITS.tolist(), "labels": [0, 1, 0], "groups": [3, 0.5, 3]}))
    groups = read_predictions(path).groups
    assert list(map(str, groups)) == ["3.0", "0.5", "3.0"]  # type: ignore[arg-type]  # as other formats give back


def test_long_numbers_as_groups_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"logits": LOGITS.tolist(), "labels": [0, 1, 0], "groups": [2**63, 2**63 + 1, -1]}))
    groups = read_predictions(path).groups
    assert len(set(map(str, groups))) == 3  # type: ignore[arg-type]  # float64 would merge the first two


def test_an_archive_of_another_writer_is_read(tmp_path: Path) -> None:
    """Other libraries write the header in another order, with other spaces."""
    header = b'{"shape": (1,2), "descr": "<f8", "fortran_order": False}'.ljust(117) + b"\n"
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + np.array([2.0, 1.0]).tobytes()
    (tmp_path / "a.npy").write_bytes(data)
    rows, _ = read_rows(tmp_path / "a.npy")
    assert isinstance(rows, Predictions)
    assert rows.logits.tolist() == [[2.0, 1.0]]
