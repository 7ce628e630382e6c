"""The published logits collection, pickled arrays -> those arrays, running nothing that the file asks for.

Its instructions are looked through before any is followed, and each name it may call is answered by a
stand-in of ours: what NumPy would have been given meets our checks instead.
"""

import io
import pickle  # its Unpickler only as the subclass below, which can look up nothing but stand-ins
import pickletools
import re
from pathlib import Path
from typing import Any, final

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.predictions.contents import PART_WORDS, Contents
from glayers.predictions.raw_arrays import DAMAGED, array_from_bytes

_EXPECTED = "((logits_val, y_val), (logits_test, y_test)) of NumPy arrays of numbers"
_WAY_OUT = "if you trust whoever wrote it, load it yourself and save the arrays with np.savez"
_MOST_INSTRUCTIONS = 1_000  # four arrays take about 300
_MOST_CALLS = 16  # four for each array; each may copy the array, so this bounds memory

# fmt: off
_ALLOWED = frozenset((
    "PROTO", "FRAME", "STOP", "MARK", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
    "GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD",
    "PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GET", "BINGET", "LONG_BINGET",
    "NONE", "NEWTRUE", "NEWFALSE", "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1",
    "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
))
# fmt: on
_INSTRUCTIONS = {info.code.encode("latin-1"): info for info in pickletools.opcodes}


def read_legacy_pickle(path: Path) -> dict[str, Contents]:
    """Read both parts of a file of the published collection."""
    data = path.read_bytes()
    check_instructions(data)
    pairs = _Unpickler(io.BytesIO(data), encoding="latin-1").load()
    if not (isinstance(pairs, tuple) and len(pairs) == 2 and all(_is_pair(pair) for pair in pairs)):
        raise BadFile(f"does not hold {_EXPECTED}; {_WAY_OUT}")
    return {
        part: Contents(logits=logits.array, labels=labels.array)
        for part, (logits, labels) in zip(PART_WORDS, pairs, strict=True)
    }


def check_instructions(data: bytes) -> None:
    """Walk a pickle without following it; refuse what a tuple of number arrays never needs."""
    stream = io.BytesIO(data)
    calls = 0
    for count in range(1, _MOST_INSTRUCTIONS + 1):
        info = _INSTRUCTIONS.get(stream.read(1))
        if info is None:
            raise BadFile(f"is no pickle from byte {stream.tell() - 1} on; {DAMAGED}")
        if info.name not in _ALLOWED:
            raise BadFile(f"uses the pickle instruction {info.name}, which {_EXPECTED} never need; {_WAY_OUT}")
        argument = _argument(info, stream)
        if info.name == "GLOBAL":
            _refuse_unknown(argument)
        # The C unpickler makes room for every index up to the one it is told to store under.
        if info.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= argument <= count:
            raise BadFile(f"stores under index {argument} after {count} instructions; {DAMAGED}")
        calls += info.name == "REDUCE"
        if calls > _MOST_CALLS:
            break
        if info.name == "STOP":
            return
    raise BadFile(f"has more pickle instructions than {_EXPECTED} ever take; {_WAY_OUT}")


def _argument(info: pickletools.OpcodeInfo, stream: io.BytesIO) -> Any:
    """Read what follows an instruction; a length past the end of the file raises."""
    if info.arg is None:
        return None
    if info.name == "STRING":  # pickletools wants ASCII here, and Python 2 wrote arrays' bytes
        return stream.readline()
    return info.arg.reader(stream)


@final
class _Unpickler(pickle.Unpickler):
    """An unpickler for which no name exists but those of our stand-ins."""

    def find_class(self, module: str, name: str) -> Any:
        return _refuse_unknown(f"{module} {name}")


@final
class _PickledDtype:
    """Stands in for `numpy.dtype`: a kind and a width first, its byte order by `__setstate__`."""

    __slots__ = ("dtype",)

    def __init__(self, text: object, *_align_and_copy: object) -> None:
        if not isinstance(text, str) or not re.fullmatch("[biuf][0-9]{1,2}", text):
            raise BadFile(f"holds an array of {str(text)[:20]!r}; only plain numbers are read. {_WAY_OUT}")
        self.dtype: np.dtype[Any] = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, byte_order, *structure = state
        if byte_order not in ("<", ">", "=", "|") or structure[:3] != [None, None, None]:
            raise BadFile(f"holds an array of records or of an unknown byte order; {_WAY_OUT}")
        self.dtype = self.dtype.newbyteorder(byte_order)


@final
class _PickledArray:
    """Stands in for `numpy.ndarray`: empty first, its values by `__setstate__`."""

    __slots__ = ("array",)

    def __init__(self) -> None:
        self.array: Array | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, is_fortran, data = state
        self.array = _array(data, dtype, shape, "F" if is_fortran else "C")


def _is_pair(value: object) -> bool:
    """Whether a value is a tuple of two finished arrays."""
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and all(isinstance(item, _PickledArray) and item.array is not None for item in value)
    )


def _array(data: object, dtype: object, shape: object, order: object) -> Array:
    if isinstance(data, str):  # a Python 2 byte string, which latin-1 carries byte for byte
        data = data.encode("latin-1")
    if not (
        isinstance(data, bytes | bytearray)
        and isinstance(dtype, _PickledDtype)
        and isinstance(shape, tuple)
        and all(isinstance(side, int) for side in shape)
        and order in ("C", "F")
    ):
        raise BadFile(f"describes an array in a way NumPy does not; {DAMAGED}")
    return array_from_bytes(data, dtype.dtype, shape, str(order))


def _reconstruct(kind: object, _shape: object, _typecode: object) -> _PickledArray:
    if kind is not _NDARRAY:
        raise BadFile(f"holds something other than plain NumPy arrays; {_WAY_OUT}")
    return _PickledArray()


def _from_buffer(data: object, dtype: object, shape: object, order: object) -> _PickledArray:
    result = _PickledArray()
    result.array = _array(data, dtype, shape, order)
    return result


def _scalar(dtype: object, data: object) -> _PickledArray:
    return _from_buffer(data, dtype, (), "C")


def _encode(text: str, encoding: str) -> bytes:
    """Stand in for `_codecs.encode`, by which Python 3 writes bytes for Python 2."""
    if encoding not in ("latin1", "latin-1"):
        raise BadFile(f"encodes text as {encoding[:20]!r}, which arrays never need; {DAMAGED}")
    return text.encode("latin-1")


def _no_bytes() -> bytes:
    return b""


_NDARRAY = object()  # only ever compared with; it can be neither called nor changed
_STAND_INS: dict[str, object] = {
    "numpy ndarray": _NDARRAY,
    "numpy dtype": _PickledDtype,
    "_codecs encode": _encode,
    "__builtin__ bytes": _no_bytes,
    "builtins bytes": _no_bytes,
    **{
        f"numpy.{core}.{name}": stand_in
        for core in ("core", "_core")
        for name, stand_in in {
            "multiarray _reconstruct": _reconstruct,
            "multiarray scalar": _scalar,
            "numeric _frombuffer": _from_buffer,
        }.items()
    },
}


def _refuse_unknown(name: str) -> object:
    """Return the stand-in for a "module name", or name what is refused."""
    if name not in _STAND_INS:
        raise BadFile(f"asks to load {name.replace(' ', '.')[:80]!r}, which arrays never need; {_WAY_OUT}")
    return _STAND_INS[name]
