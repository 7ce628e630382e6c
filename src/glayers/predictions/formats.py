"""Files -> contents, `Predictions` or `Confidences`, and back; anything wrong with a file raises `BadFile`.

The ending of its name says what a file holds. docs/reference/formats.md lists all formats, keys and columns. Written
numbers keep every digit: the reader returns the same values, bit by bit.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from glayers.errors import BadFile, listed
from glayers.files import errors_as_bad_file, file_path, open_regular
from glayers.predictions.array_files import json_bytes, npy_bytes, npz_bytes, read_json, read_npy, read_npz
from glayers.predictions.contents import Chunks, Contents, Inputs, Reading
from glayers.predictions.language_models import json_lines_bytes, read_json_lines
from glayers.predictions.predictions import Confidences, Predictions
from glayers.predictions.tables import parquet_bytes, read_csv, read_parquet, text_bytes

PathLike: TypeAlias = str | os.PathLike[str]

READERS: Mapping[str, Callable[[Path, Reading], Chunks]] = {
    ".npz": read_npz,
    ".npy": read_npy,
    ".json": read_json,
    ".jsonl": read_json_lines,
    ".parquet": read_parquet,
    ".csv": read_csv,
    ".tsv": read_csv,
}
WRITERS: Mapping[str, Callable[[Contents], bytes]] = {
    ".npz": npz_bytes,
    ".npy": npy_bytes,
    ".json": json_bytes,
    ".jsonl": json_lines_bytes,
    ".parquet": parquet_bytes,
    ".csv": text_bytes,
    ".tsv": partial(text_bytes, delimiter="\t"),
}
_LFS_POINTER = b"version https://git-lfs"


def read_predictions(
    path: PathLike, part: str | None = None, labels: PathLike | None = None, inputs: Inputs = None
) -> Predictions:
    """Read a file of logits or probabilities.

    Parameters
    ----------
    path
        A file name.
    part
        For an `.npz` or `.json` file with several sets of rows: the word before or after the keys, such as "test" for
        logits_test and labels_test.
    labels
        The second file of a pair of `.npy` files.
    inputs
        "probabilities" if a `.npy` file holds those. In other files the names of keys and columns decide.

    Returns
    -------
    Predictions

    Raises
    ------
    BadFile
        If the file cannot be read.

    Examples
    --------
    >>> folder = getfixture("tmp_path")
    >>> np.savez(folder / "test.npz", logits=[[2.0, 0.5], [0.1, 0.9]], labels=[0, 1], class_names=["cat", "dog"])
    >>> rows = read_predictions(folder / "test.npz")
    >>> rows.labels.tolist(), rows.class_names
    ([0, 1], ('cat', 'dog'))
    """
    found = _read(path, Reading(labels, part, inputs))
    if isinstance(found, Confidences):
        raise BadFile(f"{path}: holds `confidence` and `correct`, not scores of every class; use read_confidences")
    return found


def read_confidences(path: PathLike, part: str | None = None) -> Confidences:
    """Read a file with the two arrays or columns `confidence` and `correct`.

    Parameters
    ----------
    path
        A file name.
    part
        As for `read_predictions`.

    Returns
    -------
    Confidences

    Raises
    ------
    BadFile
        If the file cannot be read.

    Examples
    --------
    >>> file = getfixture("tmp_path") / "answers.json"
    >>> _ = file.write_text('{"confidence": [0.9, 0.6], "correct": [true, false]}')
    >>> read_confidences(file).correct.tolist()
    [True, False]
    """
    found = _read(path, Reading(part=part))
    if isinstance(found, Predictions):
        raise BadFile(f"{path}: holds scores of every class, not `confidence` and `correct`; use read_predictions")
    return found


def _read(path: PathLike, reading: Reading) -> Predictions | Confidences:
    with errors_as_bad_file(file_path(path)), np.errstate(all="ignore"):
        return next(open_file(file_path(path), reading)).checked()


def open_file(path: Path, reading: Reading) -> Chunks:
    """Return the contents of a file, at once or in chunks, read by its ending."""
    ending = path.suffix.lower()
    with open_regular(path) as stream:
        beginning = stream.read(len(_LFS_POINTER))
    if ending not in READERS:
        raise BadFile(f"unknown ending {path.suffix!r}; it must be one of {listed(sorted(READERS))}")
    if not beginning:
        raise BadFile("is empty; fetch it or write it again")
    if beginning == _LFS_POINTER:
        raise BadFile("is a Git LFS pointer, not the file itself; fetch the file with `git lfs pull`")
    if ending != ".npy" and (reading.labels is not None or reading.inputs is not None):
        raise BadFile(f"labels and inputs are for .npy files; those of a {ending} file follow from its keys or columns")
    if ending not in (".npz", ".json") and reading.part is not None:
        raise BadFile(f"part is for .npz and .json files; a {ending} file has one part, so leave it out")
    return READERS[ending](path, reading)


def to_bytes(contents: Contents, ending: str) -> bytes:
    """Return the bytes of a file of this ending.

    >>> rows = Contents(probabilities=np.array([[0.75, 0.25]]), labels=np.array([1]))
    >>> to_bytes(rows, ".csv").splitlines()
    [b'probability_0,probability_1,label', b'0.75,0.25,1']
    """
    if ending not in WRITERS:
        raise BadFile(f"cannot write {ending!r}; the ending must be one of {listed(WRITERS)}")
    try:
        return WRITERS[ending](contents)
    except UnicodeEncodeError as error:
        raise BadFile(f"holds text that UTF-8 cannot hold ({error.reason}); write .npz or .json") from error
