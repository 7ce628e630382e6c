"""A file of predictions, or a pipe -> `Predictions`; anything wrong with it is a `BadFile`.

The ending of a file's name says what it holds; of a pipe, its first bytes do.

docs/formats.md lists every format, key and column that is read here.
"""

import csv
import os
import pickle  # for the name of its error alone
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeAlias, TypeVar

import numpy as np

from glayers.errors import BadFile, BadPredictions
from glayers.predictions.archives import read_npy, read_npz
from glayers.predictions.contents import WHOLE_FILE, Contents, Rows, listed
from glayers.predictions.json_files import read_json
from glayers.predictions.legacy_pickle import read_legacy_pickle
from glayers.predictions.predictions import Predictions
from glayers.predictions.raw_arrays import DAMAGED
from glayers.predictions.streams import spooled
from glayers.predictions.table_files import read_csv, read_parquet, read_tsv

_Checked = TypeVar("_Checked")
Source: TypeAlias = str | os.PathLike[str] | IO[bytes]

_READERS: dict[str, Callable[[Path], dict[str, Contents]]] = {
    ".npz": read_npz,
    ".csv": read_csv,
    ".csv.gz": read_csv,
    ".tsv": read_tsv,
    ".tsv.gz": read_tsv,
    ".parquet": read_parquet,
    ".json": read_json,
    ".p": read_legacy_pickle,
    ".pkl": read_legacy_pickle,
    ".pickle": read_legacy_pickle,
}
_ENDINGS = (*_READERS, ".npy")

# How files of a kind begin. Text and old pickles may begin with anything, but not like one of these.
_BEGINNINGS = {".npz": b"PK\x03\x04", ".npy": b"\x93NUMPY", ".parquet": b"PAR1", ".gz": b"\x1f\x8b"}
_PIPE = "standard input"
_LFS_POINTER = b"version https://git-lfs"

_LABELS_APART = (
    'a .npy file holds logits alone; pass their labels too, as labels="labels.npy" '
    "(--labels labels.npy on the command line)"
)

# What NumPy, zipfile, zlib, gzip, csv and pickle may raise on damaged bytes; KeyboardInterrupt passes.
_UNREADABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    SystemError,
    TypeError,
    ValueError,
    csv.Error,
    pickle.PickleError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
)


def read_parts(path: Source, labels: str | os.PathLike[str] | None = None) -> dict[str, Predictions]:
    """Read every part of a file, by name; `labels` is the second file of a `.npy` pair.

    A file with two parts gives "calibration" and "test", in that order; a file without parts gives "all". A binary
    stream, such as `sys.stdin.buffer`, is read to its end.
    """
    return _each_part(path, labels, Contents.predictions)


def read_rows(path: Source, labels: str | os.PathLike[str] | None = None) -> dict[str, Rows]:
    """Read every part of a file as `read_parts` does, also where there are no labels: new rows to calibrate."""
    return _each_part(path, labels, Contents.rows)


def read_predictions(
    path: Source, part: str | None = None, labels: str | os.PathLike[str] | None = None
) -> Predictions:
    """Read the one part of a file, or the part that is asked for."""
    parts = read_parts(path, labels)
    if part is None and len(parts) > 1:
        raise BadFile(
            f"{path}: has the parts {listed(parts)}; say which with part=, such as part={next(iter(parts))!r}"
        )
    if part is not None and part not in parts:
        raise BadFile(f"{path}: has no part {part!r}; its parts are {listed(parts)}")
    return parts[part or next(iter(parts))]


def _each_part(
    path: Source, labels: str | os.PathLike[str] | None, check: Callable[[Contents], _Checked]
) -> dict[str, _Checked]:
    labels_path = None if labels is None else Path(labels)
    if isinstance(path, str | os.PathLike):
        name = str(Path(path))
        parts = _read_contents(Path(path), labels_path, name)
    else:
        name = _PIPE
        with spooled(path) as copy:
            parts = _read_contents(copy, labels_path, name)
    found = {}
    for part, contents in parts.items():
        with _complaints_about(f"{name}, part {part}"), np.errstate(all="ignore"):
            found[part] = check(contents)
    return found


def _read_contents(path: Path, labels: Path | None, name: str) -> dict[str, Contents]:
    """Read a file by its ending, checking first that it can be what its name says."""
    with _complaints_about(name), _without_parsing_noise():
        ending = _checked_ending(path)
        if ending != ".npy" and labels is not None:
            raise BadFile(f"labels= is for a pair of .npy files; a {ending} file holds its own labels, so leave it out")
        if ending != ".npy":
            return _READERS[ending](path)
        logits = read_npy(path)
    if labels is None:
        return {WHOLE_FILE: Contents(logits=logits, labels=None, no_labels=_LABELS_APART)}
    with _complaints_about(labels), _without_parsing_noise():
        if _checked_ending(labels) != ".npy":
            raise BadFile("labels= must be a .npy file; save the labels with np.save")
        return {WHOLE_FILE: Contents(logits=logits, labels=read_npy(labels))}


def _checked_ending(path: Path) -> str:
    """Return the ending of a file's name, or say why the file cannot be of that kind."""
    name = path.name.lower()
    ending = next((known for known in _ENDINGS if name.endswith(known)), None)
    try:
        beginning = _beginning(path)
    except OSError as error:  # here it is the system that says no; past this, what the file holds
        raise BadFile(f"cannot be opened ({error.strerror}); check its name and your right to read it") from error
    if ending is None:
        raise BadFile(f"unknown ending {path.suffix!r}; it must be one of {listed(sorted(_ENDINGS))}")
    if not beginning:
        raise BadFile("is empty; fetch it or write it again")
    if beginning == _LFS_POINTER:
        raise BadFile("is a Git LFS pointer, not the file itself; fetch the file with `git lfs pull`")
    _check_beginning(beginning, ending)
    return ending


def _beginning(path: Path) -> bytes:
    """Return the first bytes of a regular file."""
    if path.is_dir():
        raise BadFile("is a directory; give one file in it")
    if not path.exists():
        raise BadFile("there is no such file; check the path")
    if not path.is_file():
        raise BadFile("is not a regular file; copy its contents to one, or pipe them in as -")
    with path.open("rb") as stream:
        return stream.read(len(_LFS_POINTER))


def _check_beginning(beginning: bytes, ending: str) -> None:
    expected = next((magic for kind, magic in _BEGINNINGS.items() if ending.endswith(kind)), b"")
    looks_like = next((kind for kind, magic in _BEGINNINGS.items() if beginning.startswith(magic)), None)
    if looks_like is not None and not ending.endswith(looks_like):
        raise BadFile(f"does not begin as a {ending} file does, but as a {looks_like} file; rename it if it is one")
    if not beginning.startswith(expected):
        raise BadFile(f"does not begin as a {ending} file does; {DAMAGED}")


@contextmanager
def _complaints_about(name: object) -> Iterator[None]:
    """Turn whatever goes wrong inside into one line that names the file."""
    try:
        yield
    except (BadFile, BadPredictions) as error:
        raise BadFile(f"{name}: {_one_line(error)}") from error
    except _UNREADABLE as error:
        raise BadFile(f"{name}: cannot be read ({type(error).__name__}: {_one_line(error)}); {DAMAGED}") from error


@contextmanager
def _without_parsing_noise() -> Iterator[None]:
    """Silence what NumPy says about headers and odd numbers: here it either reads or is a `BadFile`."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:600]
