"""Pickles of the published logits collection -> their arrays, without running any code that the file names.

A pickle is a program. All its instructions are checked before any is executed, and every function it may call is
replaced by one of ours that checks its arguments and builds an array.
"""

import io
import pickle  # only as the base of the Unpickler below, which finds nothing but our replacements
import pickletools
import re
from pathlib import Path
from typing import Any, final

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile, shown
from glayers.files import DAMAGED, Room
from glayers.predictions.contents import PART_WORDS, Contents, array_from_bytes

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


def read_legacy_pickle(path: Path, room: Room) -> dict[str, Contents]:
    """Read both parts of a file of the published collection."""
    room.take(path.stat().st_size)
    data = path.read_bytes()
    check_instructions(data)
    pairs = _Unpickler(io.BytesIO(data), encoding="latin-1").load()
    if not (isinstance(pairs, tuple) and len(pairs) == 2 and all(_is_pair(pair) for pair in pairs)):
        raise BadFile(f"does not hold {_EXPECTED}; {_WAY_OUT}")
    return {part: Contents(logits=z.array, labels=y.array) for part, (z, y) in zip(PART_WORDS, pairs, strict=True)}


def check_instructions(data: bytes) -> None:
    """Scan a pickle without executing it; refuse what a tuple of numeric arrays never needs."""
    stream = io.BytesIO(data)
    calls = 0
    for count in range(1, _MOST_INSTRUCTIONS + 1):
        info = _INSTRUCTIONS.get(stream.read(1))
        if info is None:
            raise BadFile(f"is not a pickle from byte {stream.tell() - 1} on; {DAMAGED}")
        if info.name not in _ALLOWED:
            raise BadFile(f"uses the pickle instruction {info.name}, which {_EXPECTED} never need; {_WAY_OUT}")
        argument: Any = None
        if info.name == "STRING":  # pickletools expects ASCII here, but Python 2 wrote the bytes of arrays
            argument = stream.readline()
        elif info.arg is not None:
            argument = info.arg.reader(stream)  # a length past the end of the file raises an error
        if info.name == "GLOBAL":
            _refuse_unknown(argument)
        # The C unpickler allocates memory for every index up to the largest one stored.
        if info.name in ("PUT", "BINPUT", "LONG_BINPUT") and not 0 <= argument <= count:
            raise BadFile(f"stores under index {argument} after {count} instructions; {DAMAGED}")
        calls += info.name == "REDUCE"
        if calls > _MOST_CALLS:
            break
        if info.name == "STOP":
            return
    raise BadFile(f"has more pickle instructions than {_EXPECTED} ever take; {_WAY_OUT}")


@final
class _Unpickler(pickle.Unpickler):
    """An unpickler that finds no names but those of our replacements."""

    def find_class(self, module: str, name: str) -> Any:
        return _refuse_unknown(f"{module} {name}")


@final
class _PickledDtype:
    """Replaces `numpy.dtype`: the constructor takes kind and width, `__setstate__` the byte order."""

    __slots__ = ("dtype",)

    def __init__(self, text: object, *_align_and_copy: object) -> None:
        if not isinstance(text, str) or not re.fullmatch("[biuf][0-9]{1,2}", text):
            raise BadFile(f"holds an array of {shown(text)}; only plain numbers are read. {_WAY_OUT}")
        self.dtype: np.dtype[Any] = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, byte_order, *structure = state
        if byte_order not in ("<", ">", "=", "|") or structure[:3] != [None, None, None]:
            raise BadFile(f"holds an array of records or of an unknown byte order; {_WAY_OUT}")
        self.dtype = self.dtype.newbyteorder(byte_order)


@final
class _PickledArray:
    """Replaces `numpy.ndarray`: filled by the constructor from data, dtype, shape and order, or by `__setstate__`."""

    __slots__ = ("array",)

    def __init__(self, *description: object) -> None:
        self.array = _array(*description) if description else None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _version, shape, dtype, is_fortran, data = state
        self.array = _array(data, dtype, shape, "F" if is_fortran else "C")


def _is_pair(value: object) -> bool:
    """Return whether a value is a tuple of two filled arrays."""
    items = value if isinstance(value, tuple) and len(value) == 2 else (None,)
    return all(isinstance(item, _PickledArray) and item.array is not None for item in items)


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


def _encode(text: str, encoding: str) -> bytes:
    """Replace `_codecs.encode`, which Python 3 uses to write bytes for Python 2."""
    if encoding not in ("latin1", "latin-1"):
        raise BadFile(f"encodes text as {shown(encoding)}, which arrays never need; {DAMAGED}")
    return text.encode("latin-1")


_NDARRAY = object()  # used for comparison only: it cannot be called or changed
_REPLACEMENTS: dict[str, object] = {
    "numpy ndarray": _NDARRAY,
    "numpy dtype": _PickledDtype,
    "_codecs encode": _encode,
    "__builtin__ bytes": lambda: b"",
    "builtins bytes": lambda: b"",
    "numpy.core.multiarray _reconstruct": _reconstruct,
    "numpy.core.multiarray scalar": lambda dtype, data: _PickledArray(data, dtype, (), "C"),
    "numpy.core.numeric _frombuffer": lambda data, dtype, shape, order: _PickledArray(data, dtype, shape, order),
}


def _refuse_unknown(name: str) -> object:
    """Return the replacement for "module name", or raise an error that names what is refused."""
    known = name.replace("numpy._core.", "numpy.core.")  # its name since NumPy 2
    if known not in _REPLACEMENTS:
        raise BadFile(f"asks to load {name.replace(' ', '.')[:80]!r}, which arrays never need; {_WAY_OUT}")
    return _REPLACEMENTS[known]
