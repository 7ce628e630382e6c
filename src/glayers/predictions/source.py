"""Files, directories and globs -> checked rows, at once or chunk by chunk; and contents -> the bytes of a file.

The ending of its name says what a file holds, and anything wrong with a file raises `BadFile`.
docs/reference/formats.md lists all formats, keys and columns. Written numbers keep every digit.

Many files are read side by side, one thread per core, each in chunks, so memory does not grow with the number of rows.
"""

import glob
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np

from glayers.arrays import available_threads
from glayers.errors import BadFile
from glayers.files import errors_as_bad_file, file_path
from glayers.predictions.contents import Contents, Inputs, Reading, Rows, Stated
from glayers.predictions.formats import FORMATS, open_file
from glayers.predictions.predictions import Confidences, Predictions
from glayers.predictions.several_labels import MultiLabelPredictions
from glayers.progress import progress_bar
from glayers.text_tables import plural

_LOGGER = logging.getLogger(__name__)
PathLike: TypeAlias = str | os.PathLike[str]
Chunks: TypeAlias = Iterator[tuple[Contents, Rows]]  # consecutive rows as the file holds them, and checked
_Result = TypeVar("_Result")

LARGE_FILE = 2**30  # bytes: a larger one is read in chunks
MOST_REPEATED = 100_000  # rows by counts; tests of 200,000 rows take 40 seconds
CHUNK_ENTRIES = 2**22  # scores: 16 MB in float32


def read_predictions(
    path: PathLike,
    part: str | None = None,
    labels: PathLike | None = None,
    inputs: Inputs = None,
    options: Sequence[str] | None = None,
) -> Predictions:
    """Read a file of logits or probabilities, or a log of a language model.

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
    options
        For answers of a language model with `top_logprobs`: the words among which it chose, such as "ABCD" or
        ["yes", "no"], if the file does not say them.

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
    found = _read(path, Reading(labels, part, inputs, options))
    if isinstance(found, Confidences):
        raise BadFile(f"{path}: holds `confidence` and `correct`, not scores of every class; use read_confidences")
    return found


def read_confidences(path: PathLike, part: str | None = None, stated: Stated = None) -> Confidences:
    """Read a file with the two arrays or columns `confidence` and `correct`.

    Parameters
    ----------
    path
        A file name.
    part
        As for `read_predictions`.
    stated
        "percent" if the confidences go from 0 to 100, or a dict with the number of each word, such as
        `{"likely": 0.7}`. A text such as "90%" needs neither.

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
    found = _read(path, Reading(part=part, stated=stated))
    if isinstance(found, Predictions):
        raise BadFile(f"{path}: holds scores of every class, not `confidence` and `correct`; use read_predictions")
    return found


def _read(path: PathLike, reading: Reading) -> Rows:
    return Source((file_path(path),), reading, warn=True, is_small=True).checked()


@dataclass(frozen=True)
class Source:
    """The files to read, in order, and how to read them; rows without labels are refused if these are needed."""

    files: tuple[Path, ...]
    reading: Reading
    needs_labels: bool = True
    warn: bool = False  # of probabilities of 0; a calibrator counts them itself
    is_small: bool = False  # one file of at most 1 GB, which is read at once

    @classmethod
    def of(cls, paths: Sequence[Path], reading: Reading, **rules: bool) -> "Source":
        """Return the source of files, directories and globs; `rules` are needs_labels and warn."""
        files = files_of(paths)
        if reading.labels is not None and len(files) > 1:
            raise BadFile("labels can be given for one .npy file; put logits and labels of several into .npz files")
        is_large = files[0].is_file() and files[0].stat().st_size > LARGE_FILE
        return cls(files, reading, is_small=files == (paths[0],) and not is_large, **rules)

    @cached_property
    def _whole(self) -> Contents | None:
        """All that a small file holds, not yet checked; None for many files, or a large one."""
        if not self.is_small:
            return None
        with errors_as_bad_file(self.files[0]), np.errstate(all="ignore"):
            return next(open_file(self.files[0], self.reading))

    @property
    def contents(self) -> Contents | None:
        """All that a small file holds, unless its counts say that its rows are many: then rows are read in chunks."""
        contents = self._whole
        if contents is not None and contents.counts is not None and not self.reading.others:
            return None if contents.counts.sum() > MOST_REPEATED else contents
        return contents

    def checked(self) -> Rows:
        """Return the checked rows of a small file."""
        contents = self._whole
        with errors_as_bad_file(self.files[0]), np.errstate(all="ignore"):
            if contents is None:
                raise BadFile("is one of several files, or larger than 1 GB; give one smaller file")
            rows = self._checked(contents, self.warn)
        _LOGGER.info("read %s: %s with %s", self.files[0], plural(len(rows), "row"), contents.inputs)
        return rows

    def chunks(self, file: int) -> Chunks:
        """Read one file, a chunk of consecutive rows at a time: what the file holds, and the checked rows."""
        path = self.files[file]
        reading = replace(self.reading, entries=self.reading.entries or CHUNK_ENTRIES)
        warn = self.warn and file == 0
        first_row = 0
        with errors_as_bad_file(path):
            for contents in open_file(path, reading):
                for chunk in contents.in_chunks(reading):
                    if chunk.has_soft_labels:  # their copies would be groups that other files and chunks have too
                        raise BadFile("rows with soft labels are read at once: give one file of at most 1 GB")
                    with errors_as_bad_file(f"counted from row {first_row:,}"):
                        rows = self._checked(chunk, warn and first_row == 0)  # about one chunk is enough
                    if isinstance(rows, MultiLabelPredictions):
                        raise BadFile("rows with several labels are read at once: give one file of at most 1 GB")
                    yield chunk, rows
                    first_row += len(chunk)
        _LOGGER.info("read %s: %s", path, plural(first_row, "row"))

    def _checked(self, contents: Contents, warn: bool) -> Rows:
        if self.reading.others:  # every row is written again once, with its count
            contents = replace(contents, counts=None)
            labels = contents.labels
            if labels is not None and contents.has_soft_labels:  # which would become a row for each class
                n_classes = max(2, contents.scores[:1].size)
                if labels.shape[1] != n_classes:
                    raise BadFile(f"soft labels of {labels.shape[1]} classes, but scores of {n_classes}")
                contents = replace(contents, labels=None)
        return contents.checked(needs_labels=self.needs_labels, warn=warn)

    def map(self, function: Callable[[int, Chunks], _Result], what: str = "reading") -> Iterator[_Result]:
        """Yield what a function makes of the number and the chunks of each file, in the order of the files.

        One thread per core works, and results do not depend on the number of threads.
        """
        from concurrent.futures import ThreadPoolExecutor

        stopped = threading.Event()

        def chunks(file: int) -> Chunks:
            for chunk in self.chunks(file):
                if stopped.is_set():
                    raise RuntimeError("another file failed, or the user interrupted the program")
                yield chunk

        n_files = len(self.files)
        with progress_bar(None, what, n_files) as advance, ThreadPoolExecutor(available_threads()) as pool:
            try:
                for result in pool.map(lambda file: function(file, chunks(file)), range(n_files)):
                    advance()
                    yield result
            finally:
                stopped.set()


def files_of(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files that are meant: those in directories and subdirectories, and those that match a glob.

    Names that begin with a dot or an underscore are left out of directories, as other programs do.
    """
    files: list[Path] = []
    for path in paths:
        found = [path]
        if path.is_dir():
            found = [file for file in sorted(path.rglob("*")) if _is_meant(file, path)]
        elif glob.has_magic(str(path)) and not path.exists():
            names = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207  # a pattern may be an absolute path
            found = [Path(name) for name in names if Path(name).is_file()]
        if not found:
            raise BadFile(f"{path}: is a directory with no files of predictions, or a pattern that no file matches")
        files += found
    for file, times in Counter(files).items():
        if times > 1:
            raise BadFile(f"{file}: is given twice; give each file once")
    return tuple(files)


def _is_meant(file: Path, folder: Path) -> bool:
    """Return whether a file in a folder holds predictions, by its name."""
    is_hidden = any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
    return not is_hidden and file.is_file() and file.suffix.lower() in FORMATS
