"""`.npz`, `.npy` and `.json` files <-> contents.

Nothing is unpickled, and every size is checked before the data are read. `.npy` files can be read some rows at a time.
"""

import io
import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from glayers.arrays import Array
from glayers.errors import BadFile, shown
from glayers.files import DAMAGED, MemoryBudget, errors_as_bad_file, file_path, open_regular
from glayers.predictions.contents import (
    WHOLE_FILE,
    Chunks,
    Parts,
    Portion,
    Reading,
    cells_of,
    contents_of,
    keys_by_part,
    one_part,
    only_part,
)

_HEADER_READERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
_MAX_UNPACKED = {
    zipfile.ZIP_STORED: 1,
    zipfile.ZIP_DEFLATED: 1032,  # times: two bits of a DEFLATE stream give at most 258 bytes
}
_LAST_CHARACTER = 0x10FFFF  # of Unicode; NumPy accepts any four bytes until the text is used
JSON_VALUE = 72  # bytes: more than a float in a list takes, or an empty list
_PADDING = 64  # an array of text holds every name at the length of the longest; longer than this many times is refused


class _Header(NamedTuple):
    """What an array in a file is, and where its data begin."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]
    start: int


def read_npz(path: Path, reading: Reading, portion: Portion) -> Chunks:
    """Read every part of a NumPy archive; of many rows, the part that is asked for."""
    with zipfile.ZipFile(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        keys = keys_by_part(sorted(members))
        if portion.chunk_entries is not None:
            keys = {WHOLE_FILE: one_part(keys, reading.part)}
        parts = {}
        for part, key_of in keys.items():
            parts[part] = {name: _member(archive, members[key], portion.budget) for name, key in key_of.items()}
    if portion.chunk_entries is None:
        yield {part: contents_of(arrays) for part, arrays in parts.items()}
    else:
        yield from _row_chunks(parts[WHOLE_FILE], portion)


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: MemoryBudget) -> Array:
    """Return one array of an archive, after checking that it can be as large as it claims."""
    if member.compress_type not in _MAX_UNPACKED:
        raise BadFile(f"{member.filename} is compressed in a way NumPy does not write; save with np.savez_compressed")
    if member.file_size > _MAX_UNPACKED[member.compress_type] * member.compress_size:
        raise BadFile(f"{member.filename} claims {member.file_size} bytes, more than it can unpack to; {DAMAGED}")
    with archive.open(member) as stream:
        return _read_array(stream, member.file_size, budget)


def read_npy(path: Path, reading: Reading, portion: Portion) -> Chunks:
    """Read the one array of a `.npy` file as logits, and the labels of another file."""
    files = {"logits": path}
    if reading.labels is not None:
        files["labels"] = file_path(reading.labels)
        if files["labels"].suffix.lower() != ".npy":
            raise BadFile(f"{files['labels']}: labels= must be a .npy file; save the labels with np.save")
    arrays = {}
    for name, file in files.items():
        with errors_as_bad_file(file), open_regular(file) as stream:
            if portion.chunk_entries is None:
                arrays[name] = _read_array(stream, file.stat().st_size, portion.budget)
            else:
                arrays[name] = mapped_array(file)
    yield from _row_chunks(arrays, portion)


def mapped_array(path: Path) -> Array:
    """Return the array of a `.npy` file, read from the disk only where it is used."""
    with path.open("rb") as stream:
        header = _read_header(stream, path.stat().st_size)
    order: Any = "F" if header.is_fortran else "C"
    return np.memmap(path, header.dtype, "r", header.start, header.shape, order)


def _row_chunks(arrays: Mapping[str, Array], portion: Portion) -> Chunks:
    """Yield arrays at once, or some rows at a time."""
    if portion.chunk_entries is None:
        yield {WHOLE_FILE: contents_of(arrays)}
        return
    columns = {name: array for name, array in arrays.items() if name != "class_names"}
    names = {name: array for name, array in arrays.items() if name == "class_names"}
    sizes = {name: len(array) if array.ndim else 0 for name, array in columns.items()}
    if len(set(sizes.values())) > 1:
        raise BadFile(f"its arrays have different numbers of rows: {sizes}; save rows of one kind")
    rows = portion.rows or range(sizes.popitem()[1])
    if not rows:
        raise BadFile("has no rows; write one row per prediction")
    step = portion.rows_at_once(max(array[0].size for array in columns.values()))
    for first in range(rows.start, rows.stop, step):
        some = slice(first, min(first + step, rows.stop))
        chunk = {name: np.array(array[some]) for name, array in columns.items()}
        yield {WHOLE_FILE: contents_of(chunk | names)}


def _read_header(stream: IO[bytes], size: int) -> _Header:
    """Read what an array is; refuse what is neither numbers nor text, and shapes that the file does not hold."""
    version = npy_format.read_magic(stream)
    if version not in _HEADER_READERS:
        raise BadFile(f"holds an array in .npy version {version}; save plain numbers with np.save")
    header = _Header(*_HEADER_READERS[version](stream), stream.tell())
    dtype = header.dtype
    if dtype.hasobject:
        raise BadFile(
            "holds an array of Python objects, which only pickle could read, and pickle can run any code; "
            "save plain numbers instead, for example np.array(values, dtype=float)"
        )
    if dtype.kind not in "biufUS" or dtype.itemsize == 0:
        raise BadFile(f"holds an array of {str(dtype)[:80]}; save plain numbers, or text for names and groups")
    n_bytes = size - header.start
    expected = math.prod(header.shape) * dtype.itemsize
    if min(header.shape, default=0) < 0 or expected != n_bytes:
        raise BadFile(f"an array of shape {header.shape} and {dtype} takes {expected} bytes, not {n_bytes}; {DAMAGED}")
    return header


def _read_array(stream: IO[bytes], size: int, budget: MemoryBudget) -> Array:
    """Return the array in a stream of so many bytes, in this machine's byte order."""
    header = _read_header(stream, size)
    budget.spend(size)
    data = stream.read()
    dtype = header.dtype
    array: Array = np.ndarray(header.shape, dtype, buffer=data, order="F" if header.is_fortran else "C")
    if dtype.kind == "b":
        return np.not_equal(array.view(np.uint8), 0)  # NumPy trusts that a boolean's byte is 0 or 1; a file need not
    if dtype.kind == "U":
        characters = np.frombuffer(data, np.dtype("u4").newbyteorder(dtype.byteorder))
        if (characters > _LAST_CHARACTER).any():
            raise BadFile(f"holds text with characters that do not exist; {DAMAGED}")
    if dtype == np.longdouble:
        return array.astype(np.float64)  # no other format holds more digits
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def read_json(path: Path, reading: Reading, portion: Portion) -> Chunks:
    """Read every part of a JSON object with the keys of an `.npz` and lists as arrays."""
    portion.budget.spend(path.stat().st_size)
    stored = parsed_json(path.read_bytes(), portion.budget)
    if not isinstance(stored, dict):
        raise BadFile(f"holds a {type(stored).__name__}; expected an object of lists, such as logits and labels")
    parts = {}
    for part, key_of in keys_by_part(sorted(stored)).items():
        parts[part] = contents_of({name: stored[key] for name, key in key_of.items()})
    yield parts if portion.chunk_entries is None else {WHOLE_FILE: one_part(parts, reading.part)}


def parsed_json(data: bytes, budget: MemoryBudget) -> Any:
    """Return what a JSON text holds, after counting the memory that its values will take."""
    budget.spend(JSON_VALUE * sum(map(data.count, (b",", b"[", b"{"))))
    try:
        return json.loads(data, object_pairs_hook=_without_repeats)
    except BadFile:
        raise
    except ValueError as error:
        raise BadFile(f"is not JSON ({error}); {DAMAGED}") from error


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object as a dict, refusing a repeated key, of which json would keep only the last value."""
    unique: dict[str, object] = {}
    for key, value in pairs:
        if key in unique:
            raise BadFile(f"holds the key {shown(key)} twice; remove one of them")
        unique[key] = value
    return unique


def npz_bytes(parts: Parts) -> bytes:
    """Return a NumPy archive."""
    stream = io.BytesIO()
    arrays: dict[str, Any] = {key: _as_array(key, values) for key, values in _columns_by_key(parts)}
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def npy_bytes(parts: Parts) -> bytes:
    """Return the scores of the only part as one array: there is no place for labels."""
    stream = io.BytesIO()
    np.save(stream, only_part(parts).scores)
    return stream.getvalue()


def json_bytes(parts: Parts) -> bytes:
    """Return a JSON object with the keys of an `.npz`, arrays as lists."""
    lists = {key: cells_of(values) for key, values in _columns_by_key(parts)}
    return (json.dumps(lists, default=str) + "\n").encode()


def _columns_by_key(parts: Parts) -> Iterator[tuple[str, Any]]:
    """Yield values by the keys that the reader knows: plain for a whole file, else such as logits_test."""
    for part, contents in parts.items():
        columns: dict[str, Any] = {**contents.arrays(), **contents.others}
        if contents.class_names is not None:
            columns["class_names"] = contents.class_names
        for name, values in columns.items():
            yield (name if part == WHOLE_FILE else f"{name}_{part}"), values


def _as_array(key: str, values: Any) -> Array:
    """Return a column as numbers or text, unless one long name would make all of them long."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    cells = cells_of(values)
    if all(type(cell) in (int, float) for cell in cells):
        return np.array(cells)
    names = list(map(str, cells))
    lengths = list(map(len, names))
    if max(lengths) * len(lengths) > _PADDING * (sum(lengths) + 2**20):
        raise BadFile(f"{key} holds a name of {max(lengths)} characters, and .npz would store all as long; write .json")
    return np.array(names)
