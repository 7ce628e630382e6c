"""Bytes, a dtype and a shape from a file -> an array, once the three are known to agree."""

import math
from typing import Any

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile

_LAST_CHARACTER = 0x10FFFF  # of Unicode; NumPy lets any four bytes pass until the text is used
DAMAGED = "the file is cut short or damaged: fetch it or write it again"


def array_from_bytes(data: bytes | bytearray, dtype: np.dtype[Any], shape: tuple[int, ...], order: str) -> Array:
    """Lay the bytes out as an array in this machine's byte order; `order` is "C" or "F"."""
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
