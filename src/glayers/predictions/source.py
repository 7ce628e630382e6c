"""Files, directories and globs -> rows, at once or chunk by chunk.

A `Source` is what to read. Files are read side by side, one thread per core, each in chunks, so memory does not grow
with the number of rows.
"""

import glob
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from glayers.arrays import available_threads
from glayers.errors import BadFile
from glayers.files import errors_as_bad_file
from glayers.predictions.contents import Contents, Reading, Rows
from glayers.predictions.formats import READERS, open_file
from glayers.progress import progress_bar

LARGE_FILE = 2**30  # bytes: a larger one is read in chunks
CHUNK_ENTRIES = 2**22  # scores: 16 MB in float32
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of one file: checked, what they were given as, and whether they have labels.

    `file` is the number of the file, and `first_row` that of the first row in it.
    """

    rows: Rows
    inputs: str
    labelled: bool
    others: Mapping[str, Any] = field(default_factory=dict)
    file: int = 0
    first_row: int = 0


@dataclass(frozen=True)
class Source:
    """The files to read, in order, and how to read them; rows without labels are refused if these are needed."""

    files: tuple[Path, ...]
    reading: Reading = field(default_factory=Reading)
    needs_labels: bool = True
    warn: bool = False  # of probabilities of 0; a calibrator counts them itself
    is_small: bool = False  # one file of at most 1 GB, which is read at once

    @classmethod
    def of(cls, paths: Sequence[Path], reading: Reading | None = None, **rules: bool) -> "Source":
        """Return the source of files, directories and globs; `rules` are needs_labels and warn."""
        files = files_of(paths)
        reading = reading or Reading()
        if reading.labels is not None and len(files) > 1:
            raise BadFile("labels can be given for one .npy file; put logits and labels of several into .npz files")
        is_small = files == (paths[0],) and not (files[0].is_file() and files[0].stat().st_size > LARGE_FILE)
        return cls(files, reading, is_small=is_small, **rules)

    def contents(self) -> Contents | None:
        """Return all that a small file holds, not yet checked; None for many files, or a large one."""
        if not self.is_small:
            return None
        with errors_as_bad_file(self.files[0]), np.errstate(all="ignore"):
            return next(open_file(self.files[0], self.reading))

    def checked(self, contents: Contents | None) -> Chunk:
        """Return the checked rows of a small file."""
        with errors_as_bad_file(self.files[0]), np.errstate(all="ignore"):
            if contents is None:
                raise BadFile("is one of several files, or larger than 1 GB; give one smaller file")
            return self._checked(contents, 0, 0)

    def chunks(self, file: int) -> Iterator[Chunk]:
        """Read the rows of one file, a chunk at a time."""
        path = self.files[file]
        reading = replace(self.reading, entries=self.reading.entries or CHUNK_ENTRIES)
        first_row = 0
        with errors_as_bad_file(path):
            for contents in open_file(path, reading):
                for some in contents.in_chunks(reading):
                    with errors_as_bad_file(f"counted from row {first_row:,}"):
                        chunk = self._checked(some, file, first_row)
                    yield chunk
                    first_row += len(chunk.rows)

    def _checked(self, contents: Contents, file: int, first_row: int) -> Chunk:
        warn = self.warn and file == 0 and first_row == 0  # about one chunk is enough
        rows = contents.checked(needs_labels=self.needs_labels, warn=warn)
        return Chunk(rows, contents.inputs, contents.labelled, contents.others, file, first_row)

    def map(
        self, function: Callable[[int, Iterable[Chunk]], _Result], progress: bool | None = False, what: str = "reading"
    ) -> Iterator[_Result]:
        """Yield what a function makes of the number and the chunks of each file, in the order of the files.

        One thread per core works, and results do not depend on the number of threads.
        """
        from concurrent.futures import ThreadPoolExecutor

        stopped = threading.Event()

        def chunks(file: int) -> Iterator[Chunk]:
            for chunk in self.chunks(file):
                if stopped.is_set():
                    raise RuntimeError("another file failed, or the user interrupted the program")
                yield chunk

        n_files = len(self.files)
        with progress_bar(progress, what, n_files) as advance, ThreadPoolExecutor(available_threads()) as pool:
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
    return not is_hidden and file.is_file() and file.suffix.lower() in READERS
