"""Files, directories and globs -> rows, at once or chunk by chunk, and a fold over the chunks of any number of files.

A `Source` is what to read. It is cut into tasks, each some rows of one file, which an executor runs: `Threads` here, or
`Cluster` of `glayers.bridges.dask`. A task reads its rows in chunks, so memory does not grow with their number.
"""

import glob
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, TypeAlias

from glayers.arrays import available_threads
from glayers.errors import BadFile
from glayers.files import errors_as_bad_file, memory_limit
from glayers.predictions.array_files import mapped_array
from glayers.predictions.contents import Contents, Portion, Reading, Rows, one_part
from glayers.predictions.formats import READERS, open_file
from glayers.predictions.parquet import group_starts, read_metadata
from glayers.progress import progress_bar

LARGE_FILE = 2**30  # bytes: a larger one is read in chunks
CHUNK_ENTRIES = 2**22  # scores: 16 MB in float32
_TASK_BYTES = 2**28  # of a file that can be cut; a task of some seconds leaves work for all threads


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of one file: checked, what they were given as, and whether they have labels."""

    rows: Rows
    inputs: str
    labelled: bool
    others: Mapping[str, Any] = field(default_factory=dict)
    path: Path = Path()
    file: int = 0
    first_row: int = 0

    @property
    def n_classes(self) -> int:
        """The number of classes, 1 for a confidence."""
        return getattr(self.rows, "n_classes", 1)

    def chunks(self) -> Iterator["Chunk"]:
        """Return these rows as a task that has been read."""
        return iter((self,))


def checked_chunk(contents: Contents, needs_labels: bool, warn: bool) -> Chunk:
    """Check rows; where labels are not needed and not there, each label is a possible class."""
    labelled = contents if needs_labels else contents.with_possible_labels()
    return Chunk(labelled.checked(warn), contents.inputs, contents.labelled, contents.others)


@dataclass(frozen=True)
class FileTask:
    """Some rows of one file; `number` is its place among the tasks of that file."""

    portion: Portion
    file: int = 0
    number: int = 0
    needs_labels: bool = True
    first: Chunk | None = None  # of all files: others must have the same classes

    def chunks(self) -> Iterator[Chunk]:
        """Read the rows, a chunk at a time."""
        portion = self.portion
        reading = portion.reading
        first_row = portion.rows.start if portion.rows else 0
        with errors_as_bad_file(portion.path):
            for parts in open_file(portion):
                contents = one_part(parts, reading.part if len(parts) > 1 else None)
                for some in contents.with_declared_inputs(reading.inputs).in_chunks(portion):
                    with errors_as_bad_file(f"counted from row {first_row:,}"):
                        chunk = self._checked(some, first_row)
                    yield chunk
                    first_row += len(chunk.rows)

    def _checked(self, contents: Contents, first_row: int) -> Chunk:
        is_first = self.file == 0 and first_row == 0  # warnings about one chunk are enough
        chunk = checked_chunk(contents, self.needs_labels, is_first and self.first is not None)
        if self.first is not None:
            names, expected = (getattr(each.rows, "class_names", None) for each in (chunk, self.first))
            if names != expected or chunk.n_classes != self.first.n_classes:
                raise BadFile("its classes or class names are not those of the first rows; handle these files apart")
        return replace(chunk, path=self.portion.path, file=self.file, first_row=first_row)


@dataclass(frozen=True)
class Source:
    """The files to read, in order, and how to read them; `is_one_file` if one was named, and no directory or glob."""

    files: tuple[Path, ...]
    reading: Reading = field(default_factory=Reading)
    chunk_entries: int | None = None
    is_one_file: bool = False

    @classmethod
    def of(cls, paths: Sequence[Path], reading: Reading | None = None, chunk_entries: int | None = None) -> "Source":
        """Return the source of files, directories and globs."""
        files = files_of(paths)
        return cls(files, reading or Reading(), chunk_entries, is_one_file=files == (paths[0],))

    @property
    def is_small(self) -> bool:
        """Whether to read everything at once: one file of at most 1 GB."""
        file = self.files[0]
        return self.is_one_file and (not file.is_file() or file.stat().st_size <= LARGE_FILE)

    def first(self) -> Chunk:
        """Read the first row, which tells what all rows hold, whether or not there are labels."""
        portion = Portion(self.files[0], self.reading, memory_limit(), entries=1)
        return next(FileTask(portion, needs_labels=False).chunks())

    def tasks(self, needs_labels: bool = True) -> list[FileTask]:
        """Return the work to do: one task per file, several for a large one that can be cut."""
        first = self.first()
        entries = self.chunk_entries or CHUNK_ENTRIES
        tasks = []
        for file, path in enumerate(self.files):
            for number, rows in enumerate(_row_ranges(path)):
                portion = Portion(path, self.reading, memory_limit(), entries, rows)
                tasks.append(FileTask(portion, file, number, needs_labels, first))
        return tasks


def _row_ranges(path: Path) -> Sequence[range | None]:
    """Return the rows of each task: Parquet is cut between row groups, `.npy` anywhere, and other files not at all."""
    n_tasks = path.stat().st_size // _TASK_BYTES if path.is_file() else 0
    ending = path.suffix.lower()
    if n_tasks < 2 or ending not in (".parquet", ".npy"):
        return [None]
    with errors_as_bad_file(path):
        if ending == ".npy":
            n_rows = len(mapped_array(path))
            starts = list(range(n_rows))
        else:
            metadata = read_metadata(path)
            n_rows = metadata.num_rows
            starts = group_starts(metadata)
    starts = starts[:: max(1, len(starts) // n_tasks)]
    return [range(*pair) for pair in itertools.pairwise([*starts, n_rows])]


def files_of(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files that are meant: those in directories and subdirectories, and those that match a glob.

    Names that begin with a dot or an underscore are left out of directories, as other programs do.
    """
    files: list[Path] = []
    for path in paths:
        found = [path]
        if path.is_dir():
            found = [file for file in sorted(path.rglob("*")) if _is_meant(file, path)]
        elif is_glob(path):
            names = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207  # a pattern may be an absolute path
            found = [Path(name) for name in names if Path(name).is_file()]
        if not found:
            raise BadFile(f"{path}: is a directory with no files of predictions, or a pattern that no file matches")
        files += found
    for file, times in Counter(files).items():
        if times > 1:
            raise BadFile(f"{file}: is given twice; give each file once")
    return tuple(files)


def is_glob(path: Path) -> bool:
    """Return whether a path is a pattern of file names."""
    return glob.has_magic(str(path)) and not path.exists()


def _is_meant(file: Path, folder: Path) -> bool:
    """Return whether a file in a folder holds predictions, by its name."""
    is_hidden = any(part.startswith((".", "_")) for part in file.relative_to(folder).parts)
    return not is_hidden and file.is_file() and file.suffix.lower() in READERS


Make: TypeAlias = Callable[[Iterable[Chunk]], Any]
Merge: TypeAlias = Callable[[Any, Any], Any]
UseTask: TypeAlias = Callable[[Any, Iterable[Chunk]], Any]  # a task and its chunks


Executor: TypeAlias = Any  # where tasks run: `Threads`, or `Cluster` of `glayers.bridges.dask`


@dataclass(frozen=True)
class Threads:
    """One thread per core. Results are merged in the order of the tasks, so they do not depend on the threads.

    `progress` and `what` are those of `progress_bar`.
    """

    progress: bool | None = False
    what: str = "reading"

    def fold(self, tasks: Sequence[Any], make: Make, merge: Merge) -> Any:
        """Return what `make` makes of the chunks of each task, merged in order, as soon as it is there."""
        return reduce(merge, self._run(lambda _, chunks: make(chunks), tasks))

    def map(self, function: UseTask, tasks: Sequence[Any]) -> list[Any]:
        """Return function(task, its chunks) of each task."""
        return list(self._run(function, tasks))

    def _run(self, function: UseTask, tasks: Sequence[Any]) -> Iterator[Any]:
        from concurrent.futures import ThreadPoolExecutor

        stopped = threading.Event()

        def chunks_of(task: Any) -> Iterator[Chunk]:
            for chunk in task.chunks():
                if stopped.is_set():
                    raise RuntimeError("another task failed, or the user interrupted the program")
                yield chunk

        with (
            progress_bar(self.progress, self.what, len(tasks)) as advance,
            ThreadPoolExecutor(available_threads()) as pool,
        ):
            try:
                for result in pool.map(lambda task: function(task, chunks_of(task)), tasks):
                    advance()
                    yield result
            finally:
                stopped.set()
