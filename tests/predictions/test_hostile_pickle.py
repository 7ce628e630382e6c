"""No pickle gets anything run, takes memory out of proportion, or is read as what it is not."""

import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glayers.arrays import Array
from tests.predictions.examples import refusal


def collection() -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Seven and five rows of four classes, labels unsorted."""
    logits = np.random.default_rng(0).normal(size=(12, 4))
    labels = np.array([3, 0, 2, 1, 1, 3, 0, 2, 0, 3, 1, 2])
    return (logits[:7], labels[:7]), (logits[7:], labels[7:])


class Calls:
    """An object whose pickle calls `function(*arguments)` when loaded."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def touch(marker: Path) -> str:
    return f"touch '{marker}'"


def hidden_in(place: str, call: Calls) -> object:
    """Put a call where the collection has its outside, a part, an array or an entry of an array."""
    (logits, labels), test = collection()
    entries = np.empty(3, dtype=object)
    entries[:] = [call, 1, 2]
    return {
        "outside": call,
        "part": (call, test),
        "array": ((call, labels), test),
        "entry": ((logits, entries), test),
    }[place]


@pytest.mark.parametrize("protocol", range(6))
def test_the_marker_would_be_made_by_the_standard_unpickler(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "marker"
    pickle.loads(pickle.dumps(hidden_in("entry", Calls(os.system, touch(marker))), protocol=protocol))
    assert marker.exists()  # so its absence below means something


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("place", ["outside", "part", "array", "entry"])
def test_a_call_is_refused_wherever_it_hides(tmp_path: Path, protocol: int, place: str) -> None:
    marker = tmp_path / "marker"
    make = f"open({str(marker)!r}, 'w').close()"
    for call in (Calls(os.system, touch(marker)), Calls(eval, make), Calls(exec, make)):
        refusal(tmp_path / "evil.p", pickle.dumps(hidden_in(place, call), protocol=protocol))
        assert not marker.exists()


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("function", "named"),
    [(os.system, "system"), (eval, "eval"), (np.load, "numpy.load"), (getattr, "getattr"), (open, "open")],
)
def test_a_refused_name_is_named(tmp_path: Path, protocol: int, function: Any, named: str) -> None:
    hostile = ((Calls(function, "x"), 1), 2)
    assert named in refusal(tmp_path / "evil.p", pickle.dumps(hostile, protocol=protocol))


def test_arrays_of_objects_are_refused_without_a_call_in_them(tmp_path: Path) -> None:
    (logits, labels), test = collection()
    for protocol in range(6):
        hostile = pickle.dumps(((logits.astype(object), labels), test), protocol=protocol)
        refusal(tmp_path / "objects.p", hostile)


def test_arrays_of_records_and_text_and_dates_are_refused(tmp_path: Path) -> None:
    (_, labels), test = collection()
    for dtype in ("U3", "S3", "M8[s]", "c16", [("a", "f8")]):
        refusal(tmp_path / "odd.p", pickle.dumps(((np.zeros((7, 4), dtype=dtype), labels), test)))


def test_subclasses_of_arrays_are_refused(tmp_path: Path) -> None:
    (logits, labels), test = collection()
    masked = np.ma.MaskedArray(logits, mask=logits > 0)
    assert "ma" in refusal(tmp_path / "masked.p", pickle.dumps(((masked, labels), test)))


NDARRAY = b"cnumpy\nndarray\n"
DTYPE = b"cnumpy\ndtype\n(S'f8'\nI0\nI1\ntR"
FROM_BUFFER = b"cnumpy.core.numeric\n_frombuffer\n("


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"(S'touch marker'\nios\nsystem\n.", "INST"),
        (b"(cos\nsystem\nS'touch marker'\no.", "os.system"),
        (b"(" + NDARRAY + b"I3\no.", "OBJ"),
        (b"\x80\x02" + NDARRAY + b")\x81.", "NEWOBJ"),
        (b"\x80\x04" + NDARRAY + b")}\x92.", "EMPTY_DICT"),
        (b"\x80\x02\x82\x01.", "EXT1"),
        (b"\x80\x02\x83\x01\x01.", "EXT2"),
        (b"\x80\x02\x84\x01\x01\x01\x01.", "EXT4"),
        (b"Pmarker\n.", "PERSID"),
        (b"\x80\x02NQ.", "BINPERSID"),
        (b"\x80\x05\x97.", "NEXT_BUFFER"),
        (b"(dp0\n.", "DICT"),
        (b"\x80\x04\x8c\x05posix\x8c\x06system\x93.", "posix.system"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0fndarray.__new__\x93.", "numpy.ndarray.__new__"),
        (b"cnumpy.core.multiarray\n_reconstruct.__globals__\n.", "__globals__"),
        (b"cbuiltins\nbytearray\n(I1000000000000\ntR.", "bytearray"),
    ],
)
def test_instructions_and_names_that_arrays_never_need_are_refused_by_name(
    tmp_path: Path, data: bytes, named: str
) -> None:
    assert named in refusal(tmp_path / "evil.p", data)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (NDARRAY + b"(t(I1\ntb.", "cannot be read"),  # BUILD on the tuple above the stand-in for a type
        (NDARRAY + b"(I1\ntb.", "cannot be read"),  # and on that stand-in
        (b"cnumpy\ndtype\n(I3\nS'<'\nNNNtb.", "cannot be read"),
        (b"c_codecs\nencode\n(S'a'\nS'b'\ntb.", "cannot be read"),
        (b"(I1\nI2\nt(I3\ntb.", "cannot be read"),
        (NDARRAY + b"(I3\ntR.", "cannot be read"),  # REDUCE of what cannot be called
        (b"(I1\nt(I3\ntR.", "cannot be read"),
        (b"S'a'\n(tR.", "cannot be read"),
        (DTYPE + b"S'a'\nb.", "cannot be read"),
        (DTYPE + b"(I3\nS'?'\nNNNtb.", "unknown byte order"),
        (DTYPE + b"(I3\nS'<'\nS'subarray'\nNNtb.", "records"),
        (DTYPE + b"(I3\nS'<'\nN(S'a'\ntNtb.", "records"),
        (b"cnumpy\ndtype\n(S'O'\nI0\nI1\ntR.", "only plain numbers are read"),
        (b"cnumpy\ndtype\n(S'f8,f8'\nI0\nI1\ntR.", "only plain numbers are read"),
        (b"cnumpy\ndtype\n(I8\nI0\nI1\ntR.", "only plain numbers are read"),
        (b"cnumpy\ndtype\n(S'f77'\nI0\nI1\ntR.", "cannot be read"),
        (b"c_codecs\nencode\n(S'a'\nS'zlib'\ntR.", "encodes text as 'zlib'"),
        (b"c_codecs\nencode\n(S'a'\nI1\ntR.", "encodes text as 1"),
        (b"c_codecs\nencode\n(I1\nS'latin1'\ntR.", "cannot be read"),
        (b"cnumpy.core.multiarray\nscalar\n(" + DTYPE + b"S'abc'\ntR.", "takes 8 bytes, not 3"),
        (b"cnumpy.core.multiarray\n_reconstruct\n(S'a'\n(I0\ntS'b'\ntR.", "other than plain NumPy arrays"),
        (FROM_BUFFER + b"S'abcdefgh'\n" + DTYPE + b"(I1\ntS'K'\ntR.", "in a way NumPy does not"),
        (FROM_BUFFER + b"S'abcdefgh'\n" + DTYPE + b"(S'1'\ntS'C'\ntR.", "in a way NumPy does not"),
        (FROM_BUFFER + b"S'abcdefgh'\n" + DTYPE + b"I1\nS'C'\ntR.", "in a way NumPy does not"),
        (FROM_BUFFER + b"S'abcdefgh'\nS'f8'\n(I1\ntS'C'\ntR.", "in a way NumPy does not"),
        (FROM_BUFFER + b"I8\n" + DTYPE + b"(I1\ntS'C'\ntR.", "in a way NumPy does not"),
        (b"g5\n.", "cannot be read"),
        (b".", "cannot be read"),
        (b"t.", "cannot be read"),
        (b"hello, world", "LIST"),
        (b"\xff\xfe\xfd", "is not a pickle from byte 0 on"),
    ],
)
def test_the_replacements_accept_only_what_numpy_writes(tmp_path: Path, data: bytes, said: str) -> None:
    assert said in refusal(tmp_path / "evil.p", data)


@pytest.mark.parametrize("shape", [(2**40, 4), (-7, -4), (-1, 4), (7, 4, 2**62), (7, 3), (10**30, 0)])
def test_a_shape_that_is_not_what_the_bytes_hold_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    good = pickle.dumps(collection()[0][0], protocol=0)[:-1]
    sides = b"".join(b"L%dL\n" % side for side in shape)
    hostile = good.replace(b"(I7\nI4\nt", b"(" + sides + b"t")
    assert hostile != good
    message = refusal(tmp_path / "shape.p", b"((" + hostile + hostile + b"t(" + hostile + hostile + b"tt.")
    assert "takes" in message


def test_the_replacement_for_scalars_makes_no_part_of_a_collection(tmp_path: Path) -> None:
    number = b"cnumpy.core.multiarray\nscalar\n(" + DTYPE + b"S'abcdefgh'\ntR"
    message = refusal(tmp_path / "scalars.p", b"((" + number * 2 + b"t(" + number * 2 + b"tt.")
    assert "must have shape (rows, classes); got ()" in message


def peak_memory_of_refusing(path: Path, data: bytes) -> int:
    refusal(path, b".")  # whatever is only made once
    tracemalloc.start()
    try:
        refusal(path, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "data",
    [
        b"Nr\x00\x00\x00\x01.",  # LONG_BINPUT of 2**24: 128 MB of memo
        b"Np16777216\n.",
        b"Np-1\n.",
        b"\x80\x04\x95\xff\xff\xff\xff\x00\x00\x00\x00N.",  # a frame of 4 GB
        b"\x80\x04\x8e\xff\xff\xff\x7f\x00\x00\x00\x00N.",  # bytes of 2 GB
        b"\x80\x05\x96\xff\xff\xff\x7f\x00\x00\x00\x00N.",
        b"X\xff\xff\xff\x7fN.",
        # One long text, encoded again and again: 240 copies of 100 kB if the calls were not counted.
        b"c_codecs\nencode\np0\n(S'" + b"a" * 100_000 + b"'\nS'latin-1'\ntp1\n(" + b"g0\ng1\nR" * 240 + b"t.",
    ],
)
def test_a_small_file_cannot_take_much_memory(tmp_path: Path, data: bytes) -> None:
    assert peak_memory_of_refusing(tmp_path / "big.p", data) < 4_000_000


def test_a_flood_of_instructions_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path / "flood.p", b"(" + b"N" * 5_000_000 + b"t.")
    assert "more pickle instructions" in message
