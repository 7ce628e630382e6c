"""`.npz`, `.npy` and `.json` files <-> contents.

Nothing is unpickled, and every size is checked before the data are read. A `.npy` file is mapped, so that some of its
rows can be read at a time.
"""

import io
import json
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.files import DAMAGED, check_size, errors_as_bad_file, file_path, open_regular
from glayers.predictions.contents import (
    WHOLE_FILE,
    Chunks,
    Parts,
    Portion,
    cells_of,
    contents_of,
    keys_by_part,
    only_part,
    parts_of,
)

TEXT_FACTOR = 8  # bytes of memory for a byte of text: a cell of ten characters takes 67 as a Python object
_HEADER_READERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
_PADDING = 64  # an array of text holds every name at the length of the longest; longer than this many times is refused


def read_npz(portion: Portion) -> Chunks:
    """Read every part of a NumPy archive."""
    with zipfile.ZipFile(portion.path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        keys = keys_by_part(sorted(members))
        wanted = {key for key_of in keys.values() for key in key_of.values()}
        check_size(sum(members[key].file_size for key in wanted), portion.limit)
        arrays = {key: _member(archive, members[key]) for key in wanted}
    yield parts_of(keys, arrays)


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """Return one array of an archive; a header that claims another size than the archive says is refused."""
    with archive.open(member) as stream:
        version = npy_format.read_magic(stream)
        if version not in _HEADER_READERS:
            raise BadFile(f"holds an array in .npy version {version}; save plain numbers with np.save")
        shape, is_fortran, dtype = _HEADER_READERS[version](stream)
        if dtype.hasobject:
            raise BadFile(
                "holds Python objects, which only pickle could read, and pickle can run any code; save numbers"
            )
        if dtype.kind not in "biufUS" or dtype.itemsize == 0:
            raise BadFile(f"holds an array of {str(dtype)[:80]}; save plain numbers, or text for names and groups")
        n_bytes = member.file_size - stream.tell()
        expected = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or expected != n_bytes:
            raise BadFile(f"an array of shape {shape} and {dtype} takes {expected} bytes, not {n_bytes}; {DAMAGED}")
        return _cleaned(np.ndarray(shape, dtype, stream.read(), order="F" if is_fortran else "C"))


def read_npy(portion: Portion) -> Chunks:
    """Read the one array of a `.npy` file as logits, and the labels of another file."""
    arrays = {"logits": _rows_of(portion.path, portion)}
    if portion.reading.labels is not None:
        labels = file_path(portion.reading.labels)
        with errors_as_bad_file(labels):
            if labels.suffix.lower() != ".npy":
                raise BadFile("labels= must be a .npy file; save the labels with np.save")
            arrays["labels"] = _rows_of(labels, portion)
    yield {WHOLE_FILE: contents_of(arrays)}


def _rows_of(path: Path, portion: Portion) -> Array:
    array = mapped_array(path)
    if portion.entries is None:
        check_size(array.nbytes, portion.limit)
        return _cleaned(np.array(array))
    rows = portion.rows or range(len(array))
    return array[rows.start : rows.stop]


def mapped_array(path: Path) -> Array:
    """Return the array of a `.npy` file, read from the disk only where it is used."""
    open_regular(path).close()
    array: np.memmap[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.offset + array.nbytes != path.stat().st_size:
        raise BadFile(f"has more bytes than its array of shape {array.shape} and {array.dtype}; {DAMAGED}")
    return array


def _cleaned(array: Array) -> Array:
    """Return an array in this machine's byte order, with values that exist: a file may hold any bytes."""
    if array.dtype.kind == "b":
        return np.not_equal(array.view(np.uint8), 0)  # NumPy trusts that a boolean's byte is 0 or 1
    if array.dtype.kind == "U":
        array.tolist()  # an error if a character does not exist
    if array.dtype == np.longdouble:
        return array.astype(np.float64)  # no other format holds more digits
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def read_json(portion: Portion) -> Chunks:
    """Read every part of a JSON object with the keys of an `.npz` and lists as arrays."""
    stored = parsed_json(read_text(portion))
    if not isinstance(stored, dict):
        raise BadFile(f"holds a {type(stored).__name__}; expected an object of lists, such as logits and labels")
    yield parts_of(keys_by_part(sorted(stored)), stored)


def read_text(portion: Portion) -> bytes:
    """Return the bytes of a text file, unless their numbers would take too much memory."""
    check_size(TEXT_FACTOR * portion.path.stat().st_size, portion.limit)
    return portion.path.read_bytes()


def parsed_json(data: bytes) -> Any:
    """Return what a JSON text holds."""
    try:
        return json.loads(data)
    except ValueError as error:
        raise BadFile(f"is not JSON ({error}); {DAMAGED}") from error


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
    if all(type(cell) is float or (type(cell) is int and abs(cell) < 2**63) for cell in cells):
        return np.array(cells)
    names = list(map(str, cells))
    lengths = list(map(len, names))
    if max(lengths) * len(lengths) > _PADDING * (sum(lengths) + 2**20):
        raise BadFile(f"{key} holds a name of {max(lengths)} characters, and .npz would store all as long; write .json")
    return np.array(names)
