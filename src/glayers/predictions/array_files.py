"""`.npz`, `.npy` and `.json` files <-> contents.

Nothing is unpickled, and every size is checked before the data are read. A `.npy` file is mapped, so that some of its
rows can be read at a time.
"""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.files import DAMAGED, check_size, errors_as_bad_file, file_path, open_regular
from glayers.predictions.contents import Contents, Reading, cells_of, contents_of, keys_of_part

TEXT_FACTOR = 8  # bytes of memory for a byte of text: a cell of ten characters takes 67 as a Python object


def read_npz(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read a NumPy archive."""
    with zipfile.ZipFile(path) as archive:
        members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        keys = keys_of_part(sorted(members), reading.part)
        check_size(sum(members[key].file_size for key in keys.values()))
        arrays = {name: _member(archive, members[key]) for name, key in keys.items()}
    yield contents_of(arrays)


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """Return one array of an archive."""
    with archive.open(member) as stream:
        try:
            return _cleaned(npy_format.read_array(stream, allow_pickle=False))
        except ValueError as error:
            raise BadFile(f"{member.filename}: {error}; save plain numbers or text with np.savez") from error


def read_npy(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read the one array of a `.npy` file as logits or probabilities, and the labels of another file."""
    arrays: dict[str, Array] = {reading.inputs or "logits": _array(path, reading)}
    if reading.labels is not None:
        labels = file_path(reading.labels)
        with errors_as_bad_file(labels):
            if labels.suffix.lower() != ".npy":
                raise BadFile("labels= must be a .npy file; save the labels with np.save")
            arrays["labels"] = _array(labels, reading)
    yield contents_of(arrays)


def _array(path: Path, reading: Reading) -> Array:
    """Return the array of a `.npy` file; if it is read in chunks, from the disk only where it is used."""
    open_regular(path).close()
    array: np.memmap[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.offset + array.nbytes != path.stat().st_size:
        raise BadFile(f"has more bytes than its array of shape {array.shape} and {array.dtype}; {DAMAGED}")
    if reading.entries is not None:
        return array
    check_size(array.nbytes)
    return _cleaned(np.array(array))


def _cleaned(array: Array) -> Array:
    """Return an array in this machine's byte order, with values that exist: a file may hold any bytes."""
    if array.dtype.kind not in "biufUS" or array.dtype.itemsize == 0:
        raise BadFile(f"holds an array of {str(array.dtype)[:80]}; save plain numbers, or text for names and groups")
    if array.dtype.kind == "b":
        return np.not_equal(array.view(np.uint8), 0)  # NumPy trusts that a boolean's byte is 0 or 1
    if array.dtype.kind == "U":
        array.tolist()  # an error if a character does not exist
    if array.dtype == np.longdouble:
        return array.astype(np.float64)  # no other format holds more digits
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def read_json(path: Path, reading: Reading) -> Iterator[Contents]:
    """Read a JSON object with the keys of an `.npz` and lists as arrays."""
    stored = json.loads(read_text(path))
    if not isinstance(stored, dict):
        raise BadFile(f"holds a {type(stored).__name__}; expected an object of lists, such as logits and labels")
    keys = keys_of_part(sorted(stored), reading.part)
    yield contents_of({name: stored[key] for name, key in keys.items()})


def read_text(path: Path) -> bytes:
    """Return the bytes of a text file, unless their numbers would take too much memory."""
    check_size(TEXT_FACTOR * path.stat().st_size)
    return path.read_bytes()


def npz_bytes(contents: Contents) -> bytes:
    """Return a NumPy archive."""
    stream = io.BytesIO()
    arrays: dict[str, Any] = {key: _as_array(values) for key, values in _columns(contents).items()}
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def npy_bytes(contents: Contents) -> bytes:
    """Return the scores as one array: there is no place for labels."""
    stream = io.BytesIO()
    np.save(stream, contents.scores)
    return stream.getvalue()


def json_bytes(contents: Contents) -> bytes:
    """Return a JSON object with the keys of an `.npz`, arrays as lists."""
    lists = {key: cells_of(values) for key, values in _columns(contents).items()}
    return (json.dumps(lists, default=str) + "\n").encode()


def _columns(contents: Contents) -> dict[str, Any]:
    """Return values by the keys that the reader knows."""
    columns: dict[str, Any] = {**contents.arrays(), **contents.others}
    if contents.class_names is not None:
        columns["class_names"] = contents.class_names
    return columns


def _as_array(values: Any) -> Array:
    """Return a column as numbers or text."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values
    cells = cells_of(values)
    if all(type(cell) is float or (type(cell) is int and abs(cell) < 2**63) for cell in cells):
        return np.array(cells)
    return np.array(list(map(str, cells)))
