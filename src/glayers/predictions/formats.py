"""Files or pipes -> `Predictions` or `Confidences`, and back; anything wrong with a file raises `BadFile`.

The ending of its name says what a file holds; for a pipe, the first bytes do. docs/formats.md lists all formats, keys
and columns. Written numbers keep every digit: the reader returns the same values, bit by bit.
"""

import json
import os
import re
import tempfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Literal, TypeAlias, TypeVar

import numpy as np

from glayers.checks import check_choice, check_probabilities
from glayers.errors import BadFile, shown
from glayers.files import DAMAGED, Room, errors_as_bad_file, file_path, open_regular
from glayers.predictions.contents import ARCHIVE_READERS, ARCHIVE_WRITERS, WHOLE_FILE, Contents, listed
from glayers.predictions.json_lines import LINE_READERS
from glayers.predictions.parquet import parquet_bytes, read_parquet
from glayers.predictions.predictions import Confidences, Predictions
from glayers.predictions.tables import NO_COLUMNS, TEXT_READERS, TEXT_WRITERS, ColumnsOf

PathLike: TypeAlias = str | os.PathLike[str]
Source: TypeAlias = PathLike | IO[bytes]
Inputs: TypeAlias = Literal["logits", "probabilities"] | None
_Record = TypeVar("_Record")
_SCORES = ("logits", "probabilities")

TABLE_READERS = {".parquet": read_parquet, **TEXT_READERS}
READERS: Mapping[str, Callable[[Path, Room], dict[str, Contents]]] = {
    **ARCHIVE_READERS,
    **TABLE_READERS,
    **LINE_READERS,
}
WRITERS = {**ARCHIVE_WRITERS, **TEXT_WRITERS, ".parquet": parquet_bytes}

# The first bytes of binary files. Text may begin with anything but these.
_BEGINNINGS = {b"PK\x03\x04": ".npz", b"\x93NUMPY": ".npy", b"PAR1": ".parquet", b"\x1f\x8b": ".gz"}
# In a pipe these mark the other formats.
_PIPE_BEGINNINGS = _BEGINNINGS | {b"{": ".json", b"[": ".json"}
_LOOKED_AT = 65_536  # enough for a header of a thousand long class names
_LFS_POINTER = b"version https://git-lfs"


def read_predictions(
    path: Source,
    part: str | None = None,
    labels: PathLike | None = None,
    max_bytes: int | None = None,
    inputs: Inputs = None,
    columns: ColumnsOf = NO_COLUMNS,
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
    return _one_part(read_parts(path, labels, max_bytes, inputs, columns), part, path)


def read_parts(
    path: Source,
    labels: PathLike | None = None,
    max_bytes: int | None = None,
    inputs: Inputs = None,
    columns: ColumnsOf = NO_COLUMNS,
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
    return _each_part(path, labels, lambda contents: _predictions(told_contents(contents, inputs)), max_bytes, columns)


def read_confidences(path: Source, part: str | None = None, max_bytes: int | None = None) -> Confidences:
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
    return _one_part(_each_part(path, None, _confidences, max_bytes), part, path)


def read_any(
    path: Source, labels: PathLike | None = None, inputs: Inputs = None, columns: ColumnsOf = NO_COLUMNS
) -> dict[str, Predictions | Confidences]:
    """Read every part of a file as `Confidences` if it holds those, otherwise as `Predictions`."""
    return _each_part(path, labels, lambda contents: either_record(told_contents(contents, inputs)), columns=columns)


def read_to_fit(
    path: Source, labels: PathLike | None = None, inputs: Inputs = None, columns: ColumnsOf = NO_COLUMNS
) -> dict[str, tuple[Predictions | Confidences, str]]:
    """Read every part of a file, and what it holds: the `inputs` of a calibrator that is fitted on it."""

    def check(contents: Contents) -> tuple[Predictions | Confidences, str]:
        told = told_contents(contents, inputs)
        kind = "confidence" if told.confidence is not None else "logits" if told.logits is not None else "probabilities"
        return either_record(told, warned=False), kind  # a calibrator counts the zeros itself

    return _each_part(path, labels, check, columns=columns)


def read_contents(
    path: Source, labels: PathLike | None = None, inputs: Inputs = None, columns: ColumnsOf = NO_COLUMNS
) -> dict[str, Contents]:
    """Read every part of a file without checking it, for rows that may have several labels."""
    return _each_part(path, labels, lambda contents: told_contents(contents, inputs), columns=columns)


def read_rows(
    path: Source,
    labels: PathLike | None = None,
    inputs: Inputs = None,
    columns: ColumnsOf = NO_COLUMNS,
    warned: bool = True,
) -> dict[str, tuple[Predictions | Confidences, bool]]:
    """Read every part of a file, and whether it has labels: new rows to calibrate may have none.

    With `warned`, a warning counts probabilities of 0. A calibrator of probabilities has a floor of its own for them.
    """

    def check(contents: Contents) -> tuple[Predictions | Confidences, bool]:
        return rows_to_calibrate(told_contents(contents, inputs), warned)

    return _each_part(path, labels, check, columns=columns)


def to_bytes(parts: Mapping[str, Contents], ending: str) -> bytes:
    """Return the bytes of a file of this ending that holds these parts; a table holds one part.

    >>> rows = Contents(probabilities=np.array([[0.75, 0.25]]), labels=np.array([1]))
    >>> to_bytes({"all": rows}, ".csv").splitlines()
    [b'probability_0,probability_1,label', b'0.75,0.25,1']
    """
    if ending not in WRITERS:
        raise BadFile(f"cannot write {ending!r}; the ending must be one of {listed(WRITERS)}")
    return WRITERS[ending](parts)


def ending_of(beginning: bytes) -> str:
    r"""Return the ending that a file with these first bytes should have; text is a table, with tabs or with commas.

    >>> ending_of(b"\x93NUMPY\x01"), ending_of(b"logit_a\tlogit_b\tlabel\n"), ending_of(b' {"logits": [[')
    ('.npy', '.tsv', '.json')
    """
    text = beginning.removeprefix(BOM_UTF8).lstrip()
    ending = next((ending for magic, ending in _PIPE_BEGINNINGS.items() if text.startswith(magic)), None)
    if ending == ".gz":
        return f"{ending_of(_unzipped(beginning))}.gz"
    if ending == ".json" and re.search(rb"\n\s*\{", text):
        return ".jsonl" if _is_json(text.split(b"\n", 1)[0]) else ending
    header = beginning.split(b"\n", 1)[0]
    return ending or (".tsv" if b"\t" in header else ".csv")


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def told_contents(contents: Contents, inputs: Inputs) -> Contents:
    """Return the contents with their scores under the name that the caller gave them."""
    if inputs is None or contents.confidence is not None:
        return contents
    check_choice(inputs, _SCORES, "inputs")
    scores = contents.probabilities if contents.logits is None else contents.logits
    return replace(
        contents, logits=scores if inputs == "logits" else None, probabilities=None if inputs == "logits" else scores
    )


def either_record(contents: Contents, warned: bool = True) -> Predictions | Confidences:
    """Return checked rows of either kind."""
    return _predictions(contents, warned) if contents.confidence is None else _confidences(contents)


def _confidences(contents: Contents) -> Confidences:
    if contents.confidence is None:
        raise BadFile("holds scores of every class, not `confidence` and `correct`; read it with read_predictions")
    if contents.correct is None:
        raise BadFile("holds `confidence` without `correct`; add whether each answer was correct, as 1 or 0")
    return Confidences(contents.confidence, contents.correct, contents.weights, contents.groups, contents.counts)


def _predictions(contents: Contents, warned: bool = True) -> Predictions:
    if contents.confidence is not None:
        raise BadFile(
            "holds `confidence` and `correct`, but logits or probabilities of every class are needed here; "
            "read_confidences reads such a file for metrics, tests, figures and calibrators of a confidence"
        )
    if contents.labels is None:
        raise BadFile(contents.no_labels)
    scores = np.asarray(contents.probabilities if contents.logits is None else contents.logits)
    extras = contents.labels, contents.weights, contents.groups, contents.class_names
    if contents.logits is not None:
        return Predictions(scores, *extras, counts=contents.counts)
    if warned:
        return Predictions.from_probabilities(scores, *extras, counts=contents.counts)
    return Predictions._of_probabilities(check_probabilities(scores), *extras, counts=contents.counts)


def rows_to_calibrate(contents: Contents, warned: bool = True) -> tuple[Predictions | Confidences, bool]:
    """Return rows, and whether they have labels; if not, each label is a possible class."""
    if contents.confidence is not None:
        none = np.zeros(np.shape(contents.confidence), bool)
        correct = none if contents.correct is None else contents.correct
        return _confidences(replace(contents, correct=correct)), contents.correct is not None
    scores = np.asarray(contents.probabilities if contents.logits is None else contents.logits)
    several = scores.ndim == 2 and scores.shape[1] > 1 and scores.dtype.kind == "f"
    possible = scores.argmax(axis=1) if several else np.zeros(scores.shape[:1], np.int64)
    labels = possible if contents.labels is None else contents.labels
    return _predictions(replace(contents, labels=labels), warned), contents.labels is not None


def _one_part(parts: dict[str, _Record], part: str | None, path: Source) -> _Record:
    if part is None and len(parts) > 1:
        raise BadFile(f"{path}: has the parts {listed(parts)}; say which with part=, such as {next(iter(parts))!r}")
    if part is not None and (not isinstance(part, str) or part not in parts):
        raise BadFile(f"{path}: has no part {shown(part)}; its parts are {listed(parts)}")
    return parts[part or next(iter(parts))]


def _each_part(
    path: Source,
    labels: PathLike | None,
    check: Callable[[Contents], _Record],
    max_bytes: int | None = None,
    columns: ColumnsOf = NO_COLUMNS,
) -> dict[str, _Record]:
    room = Room(max_bytes)
    if isinstance(path, str | os.PathLike) or not hasattr(path, "read"):
        name = str(file_path(path))
        parts = _read_contents(file_path(path), labels, name, room, columns)
    else:
        name = "standard input"
        with tempfile.TemporaryDirectory(prefix="glayers-") as folder:
            parts = _read_contents(_copied(path, Path(folder), room.most), labels, name, room, columns)
    found = {}
    for part, contents in parts.items():
        with errors_as_bad_file(f"{name}, part {part}"), np.errstate(all="ignore"):
            found[part] = check(contents)
    return found


def _copied(stream: IO[bytes], folder: Path, max_bytes: int) -> Path:
    """Copy a stream to a file with the ending that its first bytes ask for; a stream may have no end."""
    room = Room(max_bytes)
    try:
        beginning = stream.read(_LOOKED_AT)
        if not isinstance(beginning, bytes):
            raise BadFile("must be read as bytes, such as sys.stdin.buffer or a file opened with mode 'rb'")
        path = folder / f"stream{ending_of(beginning)}"
        with path.open("wb") as copy:
            while beginning:
                room.take(len(beginning))
                copy.write(beginning)
                beginning = stream.read(_LOOKED_AT)
    except BadFile as error:
        raise BadFile(f"standard input: {error}") from error
    except OSError as error:
        raise BadFile(
            f"standard input: cannot be kept for reading ({error.strerror or error}); "
            f"check that {folder.parent} has room, or set TMPDIR to a folder that has"
        ) from error
    return path


def _unzipped(beginning: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(beginning, _LOOKED_AT)
    except zlib.error:
        return b""


def _read_contents(
    path: Path, labels: PathLike | None, name: str, room: Room, columns: ColumnsOf = NO_COLUMNS
) -> dict[str, Contents]:
    """Read a file by its ending, after checking that it can be of that kind."""
    with errors_as_bad_file(name), np.errstate(all="ignore"):
        ending = checked_ending(path)
        if ending != ".npy" and labels is not None:
            raise BadFile(f"labels= is for a pair of .npy files; a {ending} file holds its own labels, so leave it out")
        if columns and ending not in TABLE_READERS:
            raise BadFile(f"columns= is for tables; a {ending} file has keys, so rename these instead")
        parts = TABLE_READERS[ending](path, room, columns) if columns else READERS[ending](path, room)
    if labels is None:
        return parts
    if file_path(labels).suffix.lower() != ".npy":
        raise BadFile(f"{labels}: labels= must be a .npy file; save the labels with np.save")
    read = _read_contents(Path(labels), None, str(labels), room)
    return {WHOLE_FILE: Contents(logits=parts[WHOLE_FILE].logits, labels=read[WHOLE_FILE].logits)}


def checked_ending(path: Path) -> str:
    """Return the ending of a file's name, or raise an error if the file cannot be of that kind."""
    name = path.name.lower()
    ending = next((known for known in READERS if name.endswith(known)), None)
    with open_regular(path) as stream:
        beginning = stream.read(len(_LFS_POINTER))
    if ending is None:
        raise BadFile(f"unknown ending {path.suffix!r}; it must be one of {listed(sorted(READERS))}")
    if not beginning:
        raise BadFile("is empty; fetch it or write it again")
    if beginning == _LFS_POINTER:
        raise BadFile("is a Git LFS pointer, not the file itself; fetch the file with `git lfs pull`")
    looks_like = next((kind for magic, kind in _BEGINNINGS.items() if beginning.startswith(magic)), None)
    if looks_like is not None and not ending.endswith(looks_like):
        raise BadFile(f"does not begin as a {ending} file does, but as a {looks_like} file; rename it if it is one")
    if looks_like is None and ending.endswith(tuple(_BEGINNINGS.values())):
        raise BadFile(f"does not begin as a {ending} file does; {DAMAGED}")
    return ending
