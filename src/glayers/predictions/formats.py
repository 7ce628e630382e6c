"""Files or pipes -> contents, `Predictions` or `Confidences`, and back; anything wrong with a file raises `BadFile`.

The ending of its name says what a file holds; for a pipe, the first bytes do. docs/reference/formats.md lists all
formats, keys and columns. Written numbers keep every digit: the reader returns the same values, bit by bit.
"""

import json
import os
import tempfile
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TypeAlias, TypeVar, cast

import numpy as np

from glayers.errors import BadFile
from glayers.files import check_size, errors_as_bad_file, file_path, memory_limit, open_regular
from glayers.predictions.array_files import json_bytes, npy_bytes, npz_bytes, read_json, read_npy, read_npz
from glayers.predictions.contents import (
    ARCHIVE_KEYS,
    Chunks,
    Contents,
    Inputs,
    Parts,
    Portion,
    Reading,
    listed,
    one_part,
)
from glayers.predictions.language_models import json_lines_bytes, read_json_lines
from glayers.predictions.parquet import parquet_bytes, read_parquet
from glayers.predictions.predictions import Confidences, Predictions
from glayers.predictions.tables import read_table, text_bytes

PathLike: TypeAlias = str | os.PathLike[str]
PathOrStream: TypeAlias = PathLike | IO[bytes]
_Record = TypeVar("_Record")

_FORMATS: Mapping[str, tuple[Callable[[Portion], Chunks], Callable[[Parts], bytes]]] = {
    ".npz": (read_npz, npz_bytes),
    ".npy": (read_npy, npy_bytes),
    ".json": (read_json, json_bytes),
    ".jsonl": (read_json_lines, json_lines_bytes),
    ".parquet": (read_parquet, parquet_bytes),
    ".csv": (read_table, text_bytes),
    ".tsv": (read_table, partial(text_bytes, delimiter="\t")),
}
READERS = {ending: read for ending, (read, _) in _FORMATS.items()}
WRITERS = {ending: write for ending, (_, write) in _FORMATS.items()}
_TABLES = (".parquet", ".csv", ".tsv")

# The first bytes of binary files in a pipe. Text may begin with anything but these.
_BEGINNINGS = {b"PK\x03\x04": ".npz", b"\x93NUMPY": ".npy", b"PAR1": ".parquet"}
_LFS_POINTER = b"version https://git-lfs"
_BLOCK = 65_536  # bytes of a stream that are read at a time; enough for a header of a thousand long class names
_STREAM = "standard input"


def read_predictions(
    path: PathOrStream,
    part: str | None = None,
    labels: PathLike | None = None,
    max_bytes: int | None = None,
    inputs: Inputs = None,
    columns: Mapping[str, str] | None = None,
) -> Predictions:
    """Read one part of a file of logits or probabilities.

    Parameters
    ----------
    path
        A file name, or a binary stream such as `sys.stdin.buffer`, which is read to its end.
    part
        "calibration" or "test" for a file with two parts; not needed for a file with one part.
    labels
        The second file of a pair of `.npy` files.
    max_bytes
        The most memory that the contents may take; by default the environment variable GLAYERS_MAX_BYTES, or 8 GiB.
    inputs
        "probabilities" if the file holds those under another name, or without one as `.npy` does. By default the name
        decides, and `.npy` holds logits.
    columns
        For tables with other headers: the column of each field, such as {"logits": "c*", "labels": "y"}. The star
        stands for the class.

    Returns
    -------
    Predictions

    Raises
    ------
    BadFile
        If the file cannot be read, or if there are several parts and `part` names none of them.

    Examples
    --------
    >>> import io
    >>> contents = b'{"logits": [[2.0, 0.5], [0.1, 0.9]], "labels": [0, 1], "class_names": ["cat", "dog"]}'
    >>> rows = read_predictions(io.BytesIO(contents))  # or a file name
    >>> rows.labels.tolist(), rows.class_names
    ([0, 1], ('cat', 'dog'))
    """
    reading = Reading(labels, part, inputs, {} if columns is None else columns)
    return _read_part(Predictions, path, reading, max_bytes)


def read_parts(
    path: PathOrStream,
    labels: PathLike | None = None,
    max_bytes: int | None = None,
    inputs: Inputs = None,
    columns: Mapping[str, str] | None = None,
) -> dict[str, Predictions]:
    """Read every part of a file of logits or probabilities.

    Parameters
    ----------
    path
        A file name, or a binary stream such as `sys.stdin.buffer`, which is read to its end.
    labels
        The second file of a pair of `.npy` files.
    max_bytes, inputs, columns
        As for `read_predictions`.

    Returns
    -------
    dict
        The predictions by part: "calibration" and "test", in that order, or "all" for a file without parts.

    Raises
    ------
    BadFile
        If the file cannot be read.

    Examples
    --------
    >>> import io
    >>> contents = b'{"logits_val": [[2, 0]], "labels_val": [0], "logits_test": [[0, 3]], "labels_test": [1]}'
    >>> list(read_parts(io.BytesIO(contents)))
    ['calibration', 'test']
    """
    reading = Reading(labels, inputs=inputs, columns={} if columns is None else columns)
    return read_as(partial(_checked_as, Predictions), path, reading, max_bytes)


def read_confidences(path: PathOrStream, part: str | None = None, max_bytes: int | None = None) -> Confidences:
    """Read one part of a file with the two arrays or columns `confidence` and `correct`.

    Parameters
    ----------
    path
        A file name, or a binary stream such as `sys.stdin.buffer`, which is read to its end.
    part
        "calibration" or "test" for a file with two parts; not needed for a file with one part.
    max_bytes
        As for `read_predictions`.

    Returns
    -------
    Confidences

    Raises
    ------
    BadFile
        If the file cannot be read, or if there are several parts and `part` names none of them.

    Examples
    --------
    >>> import io
    >>> read_confidences(io.BytesIO(b'{"confidence": [0.9, 0.6], "correct": [true, false]}')).correct.tolist()
    [True, False]
    """
    return _read_part(Confidences, path, Reading(part=part), max_bytes)


def read_as(
    check: Callable[[Contents], _Record], path: PathOrStream, reading: Reading, max_bytes: int | None = None
) -> dict[str, _Record]:
    """Return what `check` makes of the contents of every part of a file."""
    limit = memory_limit(max_bytes)
    with _local_file(path, limit) as (file, name):
        with errors_as_bad_file(name), np.errstate(all="ignore"):
            parts = next(open_file(Portion(file, reading, limit)))
        records = {}
        for part, contents in parts.items():
            with errors_as_bad_file(f"{name}, part {part}"), np.errstate(all="ignore"):
                records[part] = check(contents.with_declared_inputs(reading.inputs))
    return records


def _read_part(kind: type[_Record], path: PathOrStream, reading: Reading, max_bytes: int | None) -> _Record:
    """Return the part that is asked for, or the only one; all of them are checked."""
    parts = read_as(partial(_checked_as, kind), path, reading, max_bytes)
    with errors_as_bad_file(_STREAM if hasattr(path, "read") else path):
        return one_part(parts, reading.part)


def _checked_as(kind: type[_Record], contents: Contents) -> _Record:
    """Return checked rows, or name the function that reads rows of the other kind."""
    if contents.inputs == "confidence" and kind is Predictions:
        raise BadFile("holds `confidence` and `correct`, not scores of every class; read it with read_confidences")
    if contents.inputs != "confidence" and kind is Confidences:
        raise BadFile("holds scores of every class, not `confidence` and `correct`; read it with read_predictions")
    return cast("_Record", contents.checked())


def open_file(portion: Portion) -> Chunks:
    """Return a file's parts, at once or in chunks, read by its ending; refuse a file that cannot be of that kind."""
    ending = _checked_ending(portion.path)
    if ending != ".npy" and portion.reading.labels is not None:
        raise BadFile(f"labels= is for a pair of .npy files; a {ending} file holds its own labels, so leave it out")
    if portion.reading.columns and ending not in _TABLES:
        raise BadFile(f"columns= is for tables; a {ending} file has keys, so rename these instead")
    return READERS[ending](portion)


def to_bytes(parts: Parts, ending: str) -> bytes:
    """Return the bytes of a file of this ending that holds these parts; a table holds one part.

    >>> rows = Contents(probabilities=np.array([[0.75, 0.25]]), labels=np.array([1]))
    >>> to_bytes({"all": rows}, ".csv").splitlines()
    [b'probability_0,probability_1,label', b'0.75,0.25,1']
    """
    if ending not in WRITERS:
        raise BadFile(f"cannot write {ending!r}; the ending must be one of {listed(WRITERS)}")
    return WRITERS[ending](parts)


def ending_in(name: str, endings: Mapping[str, object]) -> str | None:
    """Return which of the endings a file name has, in upper or lower case.

    >>> ending_in("A.CSV", READERS)
    '.csv'
    """
    ending = Path(name).suffix.lower()
    return ending if ending in endings else None


def _checked_ending(path: Path) -> str:
    """Return the ending of a file's name, or raise an error if it cannot be read."""
    ending = path.suffix.lower()
    with open_regular(path) as stream:
        beginning = stream.read(len(_LFS_POINTER))
    if ending not in READERS:
        raise BadFile(f"unknown ending {path.suffix!r}; it must be one of {listed(sorted(READERS))}")
    if not beginning:
        raise BadFile("is empty; fetch it or write it again")
    if beginning == _LFS_POINTER:
        raise BadFile("is a Git LFS pointer, not the file itself; fetch the file with `git lfs pull`")
    return ending


@contextmanager
def _local_file(path: PathOrStream, limit: int) -> Iterator[tuple[Path, str]]:
    """Yield a file and its name in messages; a stream is copied to a temporary file."""
    if isinstance(path, str | os.PathLike) or not hasattr(path, "read"):
        yield file_path(path), str(file_path(path))
        return
    with tempfile.TemporaryDirectory(prefix="glayers-") as folder:
        with errors_as_bad_file(_STREAM):
            file = _copied(path, Path(folder), limit)
        yield file, _STREAM


def _copied(stream: IO[bytes], folder: Path, limit: int) -> Path:
    """Copy a stream, which may have no end, to a file with the ending that its first bytes ask for."""
    block = stream.read(_BLOCK)
    if not isinstance(block, bytes):
        raise BadFile("must be read as bytes, such as sys.stdin.buffer or a file opened with mode 'rb'")
    path = folder / f"stream{ending_of(block)}"
    with path.open("wb") as copy:
        while block:
            copy.write(block)
            check_size(copy.tell(), limit)
            block = stream.read(_BLOCK)
    return path


def ending_of(beginning: bytes) -> str:
    r"""Return the ending that a file with these first bytes should have; text is a table, with tabs or with commas.

    >>> ending_of(b"\x93NUMPY\x01"), ending_of(b"logit_a\tlogit_b\tlabel\n"), ending_of(b' {"logits": [[')
    ('.npy', '.tsv', '.json')
    """
    for magic, ending in _BEGINNINGS.items():
        if beginning.startswith(magic):
            return ending
    text = beginning.removeprefix(BOM_UTF8).lstrip()
    first_line, _, rest = text.partition(b"\n")
    if text.startswith((b"{", b"[")):
        return ".jsonl" if _begins_lines(first_line, rest) else ".json"
    return ".tsv" if b"\t" in first_line else ".csv"


def _begins_lines(first_line: bytes, rest: bytes) -> bool:
    """Return whether JSON has one object per line; a lone line is one if it has a number where `.json` has a list."""
    try:
        record = json.loads(first_line)
    except (ValueError, RecursionError):
        return False
    if not isinstance(record, dict):
        return False
    has_numbers = any(key in ARCHIVE_KEYS and not isinstance(value, list) for key, value in record.items())
    return has_numbers or rest.lstrip().startswith(b"{")
