"""Directories, globs and files of any size -> rows, some at a time, with the file and the number of each row.

Parquet, CSV, `.npy` and `.npz` are read in chunks. Other formats are read whole, up to the limit of
`read_predictions`.
"""

import glob
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.files import Room, errors_as_bad_file
from glayers.predictions.contents import (
    ARCHIVE_KEYS,
    Contents,
    array_from_bytes,
    class_names_in,
    contents_by_part,
    groups_in,
    listed,
    open_member,
    read_header,
)
from glayers.predictions.formats import (
    READERS,
    TABLE_READERS,
    Inputs,
    checked_ending,
    either_record,
    rows_to_calibrate,
    told_contents,
)
from glayers.predictions.parquet import parquet_chunks
from glayers.predictions.predictions import Confidences, Predictions
from glayers.predictions.tables import TEXT_READERS, Columns, ColumnsOf, contents_of_table, text_chunks

_Value = TypeVar("_Value")

ENTRIES = 2**23  # scores in a chunk: 32 MB in float32


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of one file: checked, whether they have labels, and what they were given as."""

    rows: Predictions | Confidences
    labelled: bool
    inputs: str
    file: int
    first_row: int
    number: int  # in its file, from 0


@dataclass
class Unfinished:
    """A chunk that was read, but not yet converted and checked."""

    file: int
    number: int
    n_rows: int
    _finish: list[Callable[[], Chunk]]

    def finish(self) -> Chunk:
        """Convert and check the rows, in any thread; once only, as what was read is given up to save memory."""
        return self._finish.pop()()


@dataclass(frozen=True)
class Source:
    """What to read, and how: the files in order, and the options of `read_predictions`."""

    files: tuple[Path, ...]
    labels: Path | None = None
    part: str | None = None
    inputs: Inputs = None
    columns: ColumnsOf = field(default_factory=dict)
    entries: int = ENTRIES

    def chunks(self, file: int | None = None, needs_labels: bool = True) -> Iterator[Chunk]:
        """Yield the rows of one file or of all."""
        return (each.finish() for each in self.unfinished_chunks(None if file is None else [file], needs_labels))

    def unfinished_chunks(self, files: Iterable[int] | None = None, needs_labels: bool = True) -> Iterator[Unfinished]:
        """Yield chunks as soon as they are read; only the first is converted and checked at once."""
        names: list[Any] = []  # the class names of the first chunk
        for file in range(len(self.files)) if files is None else files:
            first = 0
            for number, (n_rows, contents) in enumerate(_chunks(self.files[file], self)):
                finish = partial(self._finished, contents, (file, first, number), needs_labels, names)
                if not names:
                    chunk = finish()
                    names.append(_class_names(chunk.rows))
                    finish = partial(_itself, chunk)
                yield Unfinished(file, number, n_rows, [finish])
                del finish, contents
                first += n_rows

    def _finished(
        self, contents: Callable[[], Contents], place: tuple[int, int, int], needs_labels: bool, names: list[Any]
    ) -> Chunk:
        path = self.files[place[0]]
        with errors_as_bad_file(path), np.errstate(all="ignore"):
            told = told_contents(contents(), self.inputs)
        with errors_as_bad_file(f"{path}, counted from row {place[1]:,}"), np.errstate(all="ignore"):
            labelled = told.labels is not None or told.correct is not None
            if needs_labels and not labelled:
                raise BadFile(told.no_labels or "holds `confidence` without `correct`; add it as 1 or 0")
            rows = either_record(told, warned=not names) if labelled else rows_to_calibrate(told, not names)[0]
            if names and names[0] != _class_names(rows):
                raise BadFile("its class names are not those of the first rows; handle these files apart")
        kind = "logits" if told.logits is not None else "probabilities"
        return Chunk(rows, labelled, "confidence" if told.confidence is not None else kind, *place)


def _class_names(rows: Predictions | Confidences) -> tuple[str, ...] | None:
    return rows.class_names if isinstance(rows, Predictions) else None


def files_of(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the files that are meant: those in directories and subdirectories, and those that match a glob.

    Names that begin with a dot or an underscore are left out of directories, as other programs do.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [file for file in sorted(path.rglob("*")) if file.is_file() and _wanted(file.relative_to(path))]
            if not inside:
                raise BadFile(f"{path}: is a directory with no files of predictions, such as .parquet, .npz or .csv")
            found += inside
        elif not path.exists() and glob.has_magic(str(path)):
            names = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207  # a pattern may be an absolute path
            matching = [Path(name) for name in names if Path(name).is_file()]
            if not matching:
                raise BadFile(f"{path}: no file matches; check the pattern")
            found += matching
        else:
            found.append(path)
    twice = [file for file, times in Counter(found).items() if times > 1]
    if twice:
        raise BadFile(f"{twice[0]}: is given twice; give each file once")
    return tuple(found)


def _wanted(path: Path) -> bool:
    hidden = any(part.startswith((".", "_")) for part in path.parts)
    return not hidden and path.name.lower().endswith(tuple(READERS))


def _chunks(path: Path, source: Source) -> Iterator[tuple[int, Callable[[], Contents]]]:
    """Yield the number of rows of each chunk, and a function that converts them."""
    with errors_as_bad_file(path), np.errstate(all="ignore"):
        ending = checked_ending(path)
        if source.columns and ending not in TABLE_READERS:
            raise BadFile(f"columns= is for tables; a {ending} file has keys, so rename these instead")
        if source.labels is not None and ending != ".npy":
            raise BadFile(f"labels= is for a pair of .npy files; a {ending} file holds its own labels, so leave it out")
        if ending == ".parquet":
            for n_rows, table in parquet_chunks(path, source.columns, source.entries):
                yield n_rows, partial(_of_table, table, source.part)
                del table  # only the caller keeps it while the next one is read
            return
        found: Iterator[Contents]
        if ending in TEXT_READERS:
            several = text_chunks(path, Room(), source.columns, source.entries)
            found = (_part(parts, source.part) for parts in several)
        elif ending in (".npy", ".npz"):
            found = _array_chunks(path, source)
        else:
            found = iter([_part(READERS[ending](path, Room()), source.part)])
        for contents in found:
            yield len(contents), partial(_itself, contents)


def _itself(value: _Value) -> _Value:
    return value


def _of_table(table: Columns, part: str | None) -> Contents:
    contents: Contents = _part(contents_of_table(table), part)
    return contents


def _part(parts: dict[str, Any], part: str | None) -> Any:
    if part is None and len(parts) > 1:
        raise BadFile(f"has the parts {listed(parts)}; say which with --part, such as {next(iter(parts))}")
    if part is not None and part not in parts:
        raise BadFile(f"has no part {part!r}; its parts are {listed(parts)}")
    return parts[part or next(iter(parts))]


def _array_chunks(path: Path, source: Source) -> Iterator[Contents]:
    """Read the arrays of a NumPy file or archive row by row, each from a stream of its own."""
    with ExitStack() as open_files:
        names, no_labels = None, "a .npy file holds logits alone; give labels too: --labels labels.npy"
        if path.suffix.lower() == ".npy":
            arrays = {"logits": _Array(open_files.enter_context(path.open("rb")), path.stat().st_size)}
            if source.labels is not None:
                stream = open_files.enter_context(source.labels.open("rb"))
                arrays["labels"] = _Array(stream, source.labels.stat().st_size)
        else:
            archive = open_files.enter_context(zipfile.ZipFile(path))
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
            part: Any = _part(contents_by_part(sorted(members), ARCHIVE_KEYS, lambda key_of: key_of), source.part)
            no_labels = part.no_labels
            key_of = {field: key for field, key in vars(part).items() if key is not None and field != "no_labels"}
            arrays = {}
            for field, key in key_of.items():
                array = _Array(open_files.enter_context(open_member(archive, members[key])), members[key].file_size)
                if field == "class_names":
                    names = class_names_in(key, array.read(array.n_rows))
                else:
                    arrays[field] = array
        sizes = {field: array.n_rows for field, array in arrays.items()}
        if len(set(sizes.values())) > 1:
            raise BadFile(f"its arrays have different numbers of rows: {sizes}; save rows of one kind")
        n_rows, width = next(iter(sizes.values())), max(array.width for array in arrays.values())
        if n_rows == 0:
            raise BadFile("has no rows; write one row per prediction")
        for first in range(0, n_rows, step := max(1, source.entries // width)):
            values: dict[str, Any] = {field: array.read(min(step, n_rows - first)) for field, array in arrays.items()}
            if "groups" in values:
                values["groups"] = groups_in("groups", values["groups"])
            yield Contents(**values, class_names=names, no_labels=no_labels)


class _Array:
    """An array in a stream, read some rows at a time."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._stream = stream
        self.dtype, self.shape, order, self._start = read_header(stream, size)
        if order == "F" and len(self.shape) > 1 and min(self.shape) > 1:
            raise BadFile("holds an array in Fortran order; save np.ascontiguousarray(array) to read it in chunks")
        self.n_rows = self.shape[0] if self.shape else 0
        self.width = int(np.prod(self.shape[1:], dtype=np.int64))

    def read(self, n_rows: int) -> Array:
        """Return the next rows."""
        n_bytes = n_rows * self.width * self.dtype.itemsize
        data = self._start[:n_bytes]
        self._start = self._start[n_bytes:]
        data += self._stream.read(n_bytes - len(data))
        return array_from_bytes(data, self.dtype, (n_rows, *self.shape[1:]), "C")
