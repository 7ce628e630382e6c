"""`.npz`, `.npy` and `.json` files <-> arrays by name; nothing is unpickled, and every size is checked first."""

import io
import json
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.files import DAMAGED
from glayers.predictions.contents import WHOLE_FILE, Contents, contents_by_part

_HEADER_LIMIT = 65_536  # NumPy itself refuses headers past 10,000 characters
_HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_DEFLATE_LIMIT = 1032  # two bits of a DEFLATE stream give at most 258 bytes
_LAST_CHARACTER = 0x10FFFF  # of Unicode; NumPy accepts any four bytes until the text is used


def read_npz(path: Path) -> dict[str, Contents]:
    """Read every part of a NumPy archive."""
    with zipfile.ZipFile(path) as archive:
        keys = [member.filename.removesuffix(".npy") for member in archive.infolist()]
        members = dict(zip(keys, archive.infolist(), strict=True))
        return contents_by_part(
            keys,
            lambda key: _read_member(archive, members[key]),
            lambda key: _class_names(_read_member(archive, members[key])),
        )


def read_npy(path: Path) -> Array:
    """Read the one array of a `.npy` file."""
    with path.open("rb") as stream:
        return _read_array(stream, path.stat().st_size)


def read_json(path: Path) -> dict[str, Contents]:
    """Read every part of a JSON object with the keys of an `.npz` and lists as arrays."""
    try:
        stored = json.loads(path.read_bytes(), object_pairs_hook=_without_repeats)
    except ValueError as error:
        raise BadFile(f"is not JSON ({error}); {DAMAGED}") from error
    if not isinstance(stored, dict):
        raise BadFile(
            f"holds a {type(stored).__name__}; expected an object with logits (or probabilities) and labels, as lists"
        )
    return contents_by_part(
        stored, lambda key: _array_from_list(key, stored[key]), lambda key: _class_names(stored[key])
    )


def npz_bytes(parts: Mapping[str, Contents]) -> bytes:
    """Return a NumPy archive."""
    stream = io.BytesIO()
    arrays: dict[str, Any] = _arrays_by_key(parts)
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def json_bytes(parts: Mapping[str, Contents]) -> bytes:
    """Return a JSON object with the keys of an `.npz`, arrays as lists."""
    return (json.dumps({key: array.tolist() for key, array in _arrays_by_key(parts).items()}) + "\n").encode()


def array_from_bytes(data: bytes | bytearray, dtype: np.dtype[Any], shape: tuple[int, ...], order: str) -> Array:
    """Return bytes from a file as an array in this machine's byte order; `order` is "C" or "F"."""
    check_size(dtype, shape, len(data))
    array: Array = np.ndarray(shape, dtype, buffer=data, order="F" if order == "F" else "C")
    if dtype.kind == "b":
        return np.not_equal(array.view(np.uint8), 0)  # NumPy trusts that a boolean's byte is 0 or 1; a file need not
    if (
        dtype.kind == "U"
        and (np.frombuffer(data, np.dtype("u4").newbyteorder(dtype.byteorder)) > _LAST_CHARACTER).any()
    ):
        raise BadFile(f"holds text with characters that do not exist; {DAMAGED}")
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def check_size(dtype: np.dtype[Any], shape: tuple[int, ...], n_bytes: int) -> None:
    """Refuse dtypes that are not numbers or text, and shapes that do not take exactly `n_bytes`."""
    if dtype.hasobject:
        raise BadFile(
            "holds an array of Python objects, which only pickle could read, and pickle can run any code; "
            "save plain numbers instead, for example np.array(values, dtype=float)"
        )
    if dtype.kind not in "biufUS" or dtype.itemsize == 0:
        raise BadFile(f"holds an array of {dtype}; save plain numbers, or text for names and groups")
    expected = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or expected != n_bytes:
        raise BadFile(f"an array of shape {shape} and {dtype} takes {expected} bytes, not {n_bytes}; {DAMAGED}")


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    most = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _DEFLATE_LIMIT}.get(member.compress_type)
    if most is None:
        raise BadFile(f"{member.filename} is compressed in a way NumPy does not write; save with np.savez_compressed")
    if member.file_size > most * member.compress_size:
        raise BadFile(f"{member.filename} claims {member.file_size} bytes, more than it can unpack to; {DAMAGED}")
    with archive.open(member) as stream:
        return _read_array(stream, member.file_size)


def _read_array(stream: IO[bytes], size: int) -> Array:
    """Read an array from a stream of `size` bytes, checking the size before reading the data."""
    start = stream.read(_HEADER_LIMIT)
    header = io.BytesIO(start)
    version = np.lib.format.read_magic(header)
    if version not in _HEADER_READERS:
        raise BadFile(f"holds an array in .npy version {version}; save plain numbers with np.save")
    shape, is_fortran, dtype = _HEADER_READERS[version](header)
    check_size(dtype, shape, size - header.tell())
    data = start[header.tell() :] + stream.read()
    return array_from_bytes(data, dtype, shape, "F" if is_fortran else "C")


def _class_names(values: object) -> tuple[str, ...]:
    names = values.tolist() if isinstance(values, np.ndarray) else values
    if isinstance(names, list):
        names = [name.decode() if isinstance(name, bytes) else name for name in names]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadFile(f"class_names must be a list of text, one name per class; got {names!r:.40}")
    return tuple(names)


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object as a dict, refusing a repeated key, of which json would keep only the last value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
        raise BadFile(f"holds the key {twice!r:.40} twice; remove one of them")
    return found


def _array_from_list(key: str, values: object) -> Array:
    if not isinstance(values, list):
        raise BadFile(f"{key} must be a list; got {values!r:.40}")
    try:
        return np.array(values)
    except ValueError as error:
        raise BadFile(f"{key} must have rows of equal length, all of them numbers ({error})") from error


def _arrays_by_key(parts: Mapping[str, Contents]) -> dict[str, Array]:
    """Return the arrays by the keys that the reader knows: plain for a whole file, else such as logits_test."""
    arrays: dict[str, Array] = {}
    for part, contents in parts.items():
        names = contents.class_names
        fields = vars(contents) | {"class_names": None if names is None else np.array(names, dtype=str)}
        ending = "" if part == WHOLE_FILE else f"_{part}"
        arrays |= {f"{key}{ending}": array for key, array in fields.items() if isinstance(array, np.ndarray)}
    return arrays
