"""`.npz`, `.npy` and `.json` files <-> contents.

Nothing is unpickled, and every size is checked before the data are read. `.npz` and `.npy` can be read some rows at a
time.
"""

import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format

from glayers.arrays import Array
from glayers.errors import BadFile, shown
from glayers.files import DAMAGED, MemoryBudget, errors_as_bad_file, file_path, open_regular
from glayers.predictions.contents import (
    ARCHIVE_KEYS,
    WHOLE_FILE,
    Contents,
    Parts,
    Portion,
    Reading,
    cells_of,
    class_names_in,
    groups_in,
    keys_by_part,
    missing_message,
)

_HEADER_BYTES = 2**14  # more than NumPy reads of a header
_HEADER_READERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
_MAX_UNPACKED = {
    zipfile.ZIP_STORED: 1,
    zipfile.ZIP_DEFLATED: 1032,  # times: two bits of a DEFLATE stream give at most 258 bytes
}
_LAST_CHARACTER = 0x10FFFF  # of Unicode; NumPy accepts any four bytes until the text is used
JSON_VALUE = 72  # bytes: more than a float in a list takes, or an empty list
_PADDING = 64  # an array of text holds every name at the length of the longest; longer than this many times is refused
_NO_LABELS = (
    "a .npy file holds logits alone; give labels too: labels=, on the command line --labels labels.npy. "
    "compare and report need both in one file: np.savez('rows.npz', logits=..., labels=...)"
)


def read_npz(path: Path, _: Reading, portion: Portion) -> Parts:
    """Read every part of a NumPy archive."""
    with zipfile.ZipFile(path) as archive:
        members = [(member.filename.removesuffix(".npy"), member) for member in archive.infolist()]
    names = sorted(name for name, _ in members)
    parts: Parts = {}
    for part, key_of in keys_by_part(names, ARCHIVE_KEYS).items():
        no_labels = missing_message(part, names, ARCHIVE_KEYS, "labels")
        parts[part] = _npz_part(path, dict(members), key_of, portion, no_labels)
    return parts


def _npz_part(
    path: Path, members: dict[str, zipfile.ZipInfo], key_of: dict[str, str], portion: Portion, no_labels: str
) -> Iterator[Contents]:
    with zipfile.ZipFile(path) as archive, ExitStack() as streams:
        arrays = {}
        for field, key in key_of.items():
            stream = streams.enter_context(_open_member(archive, members[key]))
            arrays[field] = ArrayStream(stream, members[key].file_size, key)
        yield from _array_chunks(arrays, portion, no_labels)


def _open_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
    """Open one array of an archive, after checking that it can be as large as it claims."""
    if member.compress_type not in _MAX_UNPACKED:
        raise BadFile(f"{member.filename} is compressed in a way NumPy does not write; save with np.savez_compressed")
    if member.file_size > _MAX_UNPACKED[member.compress_type] * member.compress_size:
        raise BadFile(f"{member.filename} claims {member.file_size} bytes, more than it can unpack to; {DAMAGED}")
    return archive.open(member)


def read_npy(path: Path, reading: Reading, portion: Portion) -> Parts:
    """Read the one array of a `.npy` file as logits, and the labels of another file."""
    labels = None
    if reading.labels is not None:
        labels = file_path(reading.labels)
        if labels.suffix.lower() != ".npy":
            raise BadFile(f"{labels}: labels= must be a .npy file; save the labels with np.save")
    return {WHOLE_FILE: _npy_part(path, labels, portion)}


def _npy_part(path: Path, labels: Path | None, portion: Portion) -> Iterator[Contents]:
    with ExitStack() as streams:
        arrays = {"logits": ArrayStream(streams.enter_context(path.open("rb")), path.stat().st_size, "logits")}
        if labels is not None:
            with errors_as_bad_file(labels):
                stream = streams.enter_context(open_regular(labels))
                arrays["labels"] = ArrayStream(stream, labels.stat().st_size, "labels")
        yield from _array_chunks(arrays, portion, _NO_LABELS)


def npy_rows(path: Path) -> int:
    """Return the number of rows of a `.npy` file."""
    with path.open("rb") as stream:
        return ArrayStream(stream, path.stat().st_size, "logits").n_rows


class ArrayStream:
    """An array in a stream, read at once or some rows at a time."""

    def __init__(self, stream: IO[bytes], size: int, key: str) -> None:
        self._stream = stream
        self._size = size
        self.key = key
        self.dtype, self.shape, self.is_fortran, self._start = _read_header(stream, size)
        self.n_rows = self.shape[0] if self.shape else 0
        self.width = int(np.prod(self.shape[1:], dtype=np.int64))

    def read_all(self, budget: MemoryBudget) -> Array:
        """Return the whole array."""
        budget.spend(self._size)
        return _array_from_bytes(self._start + self._stream.read(), self.dtype, self.shape, self.is_fortran)

    def read(self, n_rows: int) -> Array:
        """Return the next rows."""
        n_bytes = n_rows * self.width * self.dtype.itemsize
        data = self._start[:n_bytes]
        self._start = self._start[n_bytes:]
        data += self._stream.read(n_bytes - len(data))
        return _array_from_bytes(data, self.dtype, (n_rows, *self.shape[1:]), False)

    def skip(self, n_rows: int) -> None:
        """Leave out the next rows of a file."""
        n_bytes = n_rows * self.width * self.dtype.itemsize
        if n_bytes:
            self._stream.seek(n_bytes - len(self._start), io.SEEK_CUR)
            self._start = b""


def _array_chunks(arrays: dict[str, ArrayStream], portion: Portion, no_labels: str) -> Iterator[Contents]:
    """Read arrays at once, or row by row, each from a stream of its own."""
    key_of = {field: array.key for field, array in arrays.items()}
    if portion.chunk_entries is None:
        whole = {field: array.read_all(portion.budget) for field, array in arrays.items()}
        yield _archive_contents(whole, key_of, no_labels)
        return
    names = {}
    if "class_names" in arrays:
        names["class_names"] = arrays.pop("class_names").read_all(portion.budget)
    rows = portion.rows or range(_common_rows(arrays))
    for array in arrays.values():
        array.skip(rows.start)
    step = portion.rows_at_once(max(array.width for array in arrays.values()))
    for first in range(rows.start, rows.stop, step):
        values = {field: array.read(min(step, rows.stop - first)) for field, array in arrays.items()}
        yield _archive_contents(values | names, key_of, no_labels)


def _common_rows(arrays: dict[str, ArrayStream]) -> int:
    """Return the number of rows that all arrays have, after checking that they can be read row by row."""
    for array in arrays.values():
        if array.is_fortran and len(array.shape) > 1 and min(array.shape) > 1:
            raise BadFile("holds an array in Fortran order; save np.ascontiguousarray(array) to read it in chunks")
    sizes = {field: array.n_rows for field, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise BadFile(f"its arrays have different numbers of rows: {sizes}; save rows of one kind")
    n_rows = next(iter(sizes.values()))
    if n_rows == 0:
        raise BadFile("has no rows; write one row per prediction")
    return n_rows


def _read_header(stream: IO[bytes], size: int) -> tuple[np.dtype[Any], tuple[int, ...], bool, bytes]:
    """Read dtype, shape and order of an array, and the first bytes of its data, and check its size."""
    start = stream.read(_HEADER_BYTES)
    header = io.BytesIO(start)
    version = npy_format.read_magic(header)
    if version not in _HEADER_READERS:
        raise BadFile(f"holds an array in .npy version {version}; save plain numbers with np.save")
    shape, is_fortran, dtype = _HEADER_READERS[version](header)
    _check_size(dtype, shape, size - header.tell())
    return dtype, shape, is_fortran, start[header.tell() :]


def _array_from_bytes(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], is_fortran: bool) -> Array:
    """Return bytes from a file as an array in this machine's byte order."""
    _check_size(dtype, shape, len(data))
    array: Array = np.ndarray(shape, dtype, buffer=data, order="F" if is_fortran else "C")
    if dtype.kind == "b":
        return np.not_equal(array.view(np.uint8), 0)  # NumPy trusts that a boolean's byte is 0 or 1; a file need not
    if dtype.kind == "U":
        characters = np.frombuffer(data, np.dtype("u4").newbyteorder(dtype.byteorder))
        if (characters > _LAST_CHARACTER).any():
            raise BadFile(f"holds text with characters that do not exist; {DAMAGED}")
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def _check_size(dtype: np.dtype[Any], shape: tuple[int, ...], n_bytes: int) -> None:
    """Refuse dtypes that are not numbers or text, and shapes that do not take exactly `n_bytes`."""
    if dtype.hasobject:
        raise BadFile(
            "holds an array of Python objects, which only pickle could read, and pickle can run any code; "
            "save plain numbers instead, for example np.array(values, dtype=float)"
        )
    if dtype.kind not in "biufUS" or dtype.itemsize == 0:
        raise BadFile(f"holds an array of {str(dtype)[:80]}; save plain numbers, or text for names and groups")
    expected = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or expected != n_bytes:
        raise BadFile(f"an array of shape {shape} and {dtype} takes {expected} bytes, not {n_bytes}; {DAMAGED}")


def read_json(path: Path, _: Reading, portion: Portion) -> Parts:
    """Read every part of a JSON object with the keys of an `.npz` and lists as arrays."""
    portion.budget.spend(path.stat().st_size)
    data = path.read_bytes()
    portion.budget.spend(json_size(data))
    try:
        stored = json.loads(data, object_pairs_hook=without_repeats)
    except BadFile:
        raise
    except ValueError as error:
        raise BadFile(f"is not JSON ({error}); {DAMAGED}") from error
    if not isinstance(stored, dict):
        raise BadFile(f"holds a {type(stored).__name__}; expected an object of lists, such as logits and labels")
    names = sorted(stored)
    parts: Parts = {}
    for part, key_of in keys_by_part(names, ARCHIVE_KEYS).items():
        values = {field: stored[key] for field, key in key_of.items()}
        no_labels = missing_message(part, names, ARCHIVE_KEYS, "labels")
        parts[part] = iter([_archive_contents(values, key_of, no_labels)])
    return parts


def json_size(data: bytes) -> int:
    """Return the bytes of memory that the values of a JSON text will take."""
    return JSON_VALUE * sum(map(data.count, (b",", b"[", b"{")))


def without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object as a dict, refusing a repeated key, of which json would keep only the last value."""
    unique: dict[str, object] = {}
    for key, value in pairs:
        if key in unique:
            raise BadFile(f"holds the key {shown(key)} twice; remove one of them")
        unique[key] = value
    return unique


def _archive_contents(values: Mapping[str, object], key_of: Mapping[str, str], no_labels: str) -> Contents:
    fields: dict[str, Any] = {}
    for field, value in values.items():
        if field == "class_names":
            fields[field] = class_names_in(key_of[field], value)
        elif field == "groups":
            fields[field] = groups_in(key_of[field], value)
        else:
            fields[field] = _array(key_of[field], value)
    return Contents(**fields, no_labels=no_labels)


def _array(key: str, values: object) -> Array:
    if isinstance(values, np.ndarray):
        return values
    if not isinstance(values, list):
        raise BadFile(f"{key} must be a list; got {shown(values)}")
    _refuse_text(key, values)
    try:
        return np.array(values)
    except ValueError as error:
        raise BadFile(f"{key} must have rows of equal length, all of them numbers ({error})") from error


def _refuse_text(key: str, values: list[Any]) -> None:
    """Refuse text in lists of numbers: NumPy would store every number at the length of the longest text."""
    for value in values:
        if isinstance(value, list):
            _refuse_text(key, value)
        elif isinstance(value, str):
            raise BadFile(f"{key} must be real numbers; got the text {shown(value)}")


def npz_bytes(parts: Mapping[str, Contents]) -> bytes:
    """Return a NumPy archive."""
    stream = io.BytesIO()
    arrays: dict[str, Any] = {key: _plain_text(key, array) for key, array in _arrays_by_key(parts).items()}
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def npy_bytes(parts: Mapping[str, Contents]) -> bytes:
    """Return the scores of the only part as one array: there is no place for labels."""
    if len(parts) != 1:
        raise BadFile("a .npy file holds one array; write .npz to keep both parts")
    (contents,) = parts.values()
    stream = io.BytesIO()
    np.save(stream, contents.scores)
    return stream.getvalue()


def json_bytes(parts: Mapping[str, Contents]) -> bytes:
    """Return a JSON object with the keys of an `.npz`, arrays as lists."""
    lists = {key: array.tolist() for key, array in _arrays_by_key(parts).items()}
    return (json.dumps(lists, default=str) + "\n").encode()


def _arrays_by_key(parts: Mapping[str, Contents]) -> dict[str, Array]:
    """Return the arrays by the keys that the reader knows: plain for a whole file, else such as logits_test."""
    arrays = {}
    for part, contents in parts.items():
        ending = "" if part == WHOLE_FILE else f"_{part}"
        columns = {**vars(contents), **contents.others}
        del columns["others"], columns["no_labels"]
        for name, values in columns.items():
            if values is not None:
                arrays[f"{name}{ending}"] = _as_array(values)
    return arrays


def _as_array(values: Any) -> Array:
    """Return the cells of a column as an array of numbers, or else of objects."""
    if isinstance(values, np.ndarray):
        return values
    cells = cells_of(values)
    if all(type(cell) in (int, float) for cell in cells):
        return np.array(cells)
    array = np.empty(len(cells), object)
    array[:] = cells
    return array


def _plain_text(key: str, array: Array) -> Any:
    """Return text as an array of text, which `.npz` can hold, unless one long name would make all of them long."""
    if array.dtype != object:
        return array
    lengths = [len(str(value)) for value in array]
    if max(lengths) * len(lengths) > _PADDING * (sum(lengths) + 2**20):
        raise BadFile(f"{key} holds a name of {max(lengths)} characters, and .npz would store all as long; write .json")
    return np.array(list(map(str, array)))
