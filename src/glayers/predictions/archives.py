"""`.npz` and `.npy` files -> arrays; nothing is unpickled, and no header is taken at its word."""

import io
import zipfile
from pathlib import Path
from typing import IO

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.predictions.contents import Contents, assign_keys, missing_labels
from glayers.predictions.raw_arrays import DAMAGED, array_from_bytes, check_size

_HEADER_LIMIT = 65_536  # NumPy itself refuses headers past 10,000 characters
_HEADER_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_DEFLATE_LIMIT = 1032  # two bits of a DEFLATE stream give at most 258 bytes


def read_npz(path: Path) -> dict[str, Contents]:
    """Read every part of a NumPy archive."""
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        keys = assign_keys(_key(member) for member in members)
        by_key = {_key(member): member for member in members}
        parts = {}
        for part, fields in keys.items():
            arrays = {field: _read_member(archive, by_key[key]) for field, key in fields.items()}
            names = arrays.pop("class_names", None)
            parts[part] = Contents(
                **{"labels": None} | arrays,
                class_names=None if names is None else _texts(names),
                no_labels=missing_labels(part, sorted(by_key)),
            )
        return parts


def read_npy(path: Path) -> Array:
    """Read the one array of a `.npy` file."""
    with path.open("rb") as stream:
        return _read_array(stream, path.stat().st_size)


def _key(member: zipfile.ZipInfo) -> str:
    return member.filename.removesuffix(".npy")


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    most = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _DEFLATE_LIMIT}.get(member.compress_type)
    if most is None:
        raise BadFile(f"{member.filename} is compressed in a way NumPy does not write; save with np.savez_compressed")
    if member.file_size > most * member.compress_size:
        raise BadFile(f"{member.filename} claims {member.file_size} bytes, more than it can unpack to; {DAMAGED}")
    with archive.open(member) as stream:
        return _read_array(stream, member.file_size)


def _read_array(stream: IO[bytes], size: int) -> Array:
    """Read an array from a stream of `size` bytes, checking the size before making anything of it."""
    start = stream.read(_HEADER_LIMIT)
    header = io.BytesIO(start)
    version = np.lib.format.read_magic(header)
    if version not in _HEADER_READERS:
        raise BadFile(f"holds an array in .npy version {version}; save plain numbers with np.save")
    shape, is_fortran, dtype = _HEADER_READERS[version](header)
    check_size(dtype, shape, size - header.tell())
    data = start[header.tell() :] + stream.read()
    return array_from_bytes(data, dtype, shape, "F" if is_fortran else "C")


def _texts(names: Array) -> tuple[str, ...]:
    if names.ndim != 1 or names.dtype.kind not in "US":
        raise BadFile(
            f"class_names must be text of shape (classes,); got {names.dtype} of shape {names.shape}. "
            f"Save np.array(names, dtype=str)"
        )
    return tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names.tolist())
