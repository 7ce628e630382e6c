"""Pickles of the published collection read right whoever wrote them, and no pickle gets anything run."""

import os
import pickle
import struct
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.predictions.readers import read_parts

Collection = tuple[tuple[Array, Array], tuple[Array, Array]]


def collection(seed: int = 0, logits_dtype: str = "<f8", labels_dtype: str = "<i8") -> Collection:
    """Seven and five rows of four classes, labels unsorted and two-dimensional in one part."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(12, 4)).astype(logits_dtype)
    labels = np.array([3, 0, 2, 1, 1, 3, 0, 2, 0, 3, 1, 2]).astype(labels_dtype)
    return (logits[:7], labels[:7].reshape(-1, 1)), (logits[7:], labels[7:])


def assert_reads_as(path: Path, expected: Collection) -> None:
    parts = read_parts(path)
    assert list(parts) == ["calibration", "test"]
    for (logits, labels), part in zip(expected, parts.values(), strict=True):
        np.testing.assert_array_equal(part.logits, logits)
        np.testing.assert_array_equal(part.labels, labels.ravel())
        assert part.logits.dtype.isnative


def refusal(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(BadFile) as caught:
        read_parts(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


# --- Python 2 pickles, written by hand as its cPickle wrote them -------------------------------------------


def python2_text(array: Array) -> bytes:
    """Protocol 0: everything is text, byte strings as their escaped repr, one side of the shape a long."""
    shape = b"".join(b"I%d\n" % side for side in array.shape[:-1]) + b"L%dL\n" % array.shape[-1]
    kind = array.dtype.str[1:].encode()
    return (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR"
        b"(I1\n(" + shape + b"tcnumpy\ndtype\n(S'" + kind + b"'\nI0\nI1\ntR"
        b"(I3\nS'" + byte_order(array) + b"'\nNNNI-1\nI-1\nI0\ntbI00\n"
        b"S" + repr(array.tobytes())[1:].encode() + b"\ntb"
    )


def python2_binary(array: Array) -> bytes:
    """Protocol 2: byte strings with their length before them."""
    data = array.tobytes()
    shape = b"(" + b"".join(b"M" + struct.pack("<H", side) for side in array.shape) + b"t"
    kind = array.dtype.str[1:].encode()
    return (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x01cnumpy\nndarray\nq\x02K\x00\x85U\x01b\x87R"
        b"(K\x01" + shape + b"cnumpy\ndtype\nq\x03U" + bytes([len(kind)]) + kind + b"K\x00K\x01\x87R"
        b"(K\x03U\x01" + byte_order(array) + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89"
        b"T" + struct.pack("<i", len(data)) + data + b"tb"
    )


def byte_order(array: Array) -> bytes:
    return b"<" if array.dtype.byteorder == "=" else array.dtype.byteorder.encode()


def python2_pickle(protocol: int, pairs: Collection) -> bytes:
    write = {0: python2_text, 2: python2_binary}[protocol]
    start, both = {0: (b"(", b"t"), 2: (b"\x80\x02(", b"t")}[protocol]
    return start + b"".join(b"(" + write(a) + write(b) + b"t" for a, b in pairs) + both + b"."


@pytest.mark.parametrize("protocol", [0, 2])
@pytest.mark.parametrize("dtypes", [("<f8", "<i8"), ("<f4", "|u1"), (">f4", ">i4")])
def test_python_2_pickles_read_as_the_standard_unpickler_reads_them(
    tmp_path: Path, protocol: int, dtypes: tuple[str, str]
) -> None:
    pairs = collection(1, *dtypes)
    data = python2_pickle(protocol, pairs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy 2 says that numpy.core has moved
        for expected, standard in zip(pairs, pickle.loads(data, encoding="latin-1"), strict=True):
            np.testing.assert_array_equal(expected[0], standard[0])
            np.testing.assert_array_equal(expected[1], standard[1])
    path = tmp_path / "resnet.p"
    path.write_bytes(data)
    assert_reads_as(path, pairs)


# --- Python 3 pickles --------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".p", ".pkl", ".pickle", ".PKL"])
def test_each_ending_of_a_pickle_is_known(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"resnet{ending}"
    path.write_bytes(pickle.dumps(collection()))
    assert_reads_as(path, collection())


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtypes", [("<f8", "<i8"), (">f4", ">i2"), ("<f2", "|b1")])
def test_every_protocol_and_byte_order_reads_right(
    tmp_path: Path, protocol: int, dtypes: tuple[str, str]
) -> None:
    pairs = collection(2, *dtypes)
    path = tmp_path / "resnet.p"
    path.write_bytes(pickle.dumps(pairs, protocol=protocol))
    assert_reads_as(path, pairs)


@pytest.mark.parametrize("protocol", range(6))
def test_fortran_order_and_strided_arrays_read_right(tmp_path: Path, protocol: int) -> None:
    (logits, labels), (more, more_labels) = collection(3)
    pairs = ((np.asfortranarray(logits), labels), (np.repeat(more, 2, axis=1)[:, ::2], more_labels))
    path = tmp_path / "resnet.p"
    path.write_bytes(pickle.dumps(pairs, protocol=protocol))
    assert_reads_as(path, pairs)


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_from_before_numpy_2_read_right(tmp_path: Path, protocol: int) -> None:
    data = pickle.dumps(collection(4), protocol=protocol)
    if protocol >= 4:  # names of counted length, and frames that count them
        short = data.replace(b"\x8c\x16numpy._core.multiarray", b"\x8c\x15numpy.core.multiarray")
        short = short.replace(b"\x8c\x13numpy._core.numeric", b"\x8c\x12numpy.core.numeric")
        data = short[:3] + struct.pack("<Q", len(short) - 11) + short[11:]
    else:
        data = data.replace(b"numpy._core.", b"numpy.core.")
    assert b"_core" not in data
    path = tmp_path / "resnet.p"
    path.write_bytes(data)
    assert_reads_as(path, collection(4))


def test_a_file_that_holds_something_else_is_told_what_was_expected(tmp_path: Path) -> None:
    (logits, labels), _ = collection()
    for value in (logits, (logits, labels), ((logits, labels),), ((logits, labels), (logits, 3)), 7):
        message = refusal(tmp_path / "other.p", pickle.dumps(value))
        assert "((logits_val, y_val), (logits_test, y_test))" in message


def test_what_is_wrong_inside_names_the_part(tmp_path: Path) -> None:
    (logits, labels), (more, more_labels) = collection()
    message_path = tmp_path / "resnet.p"
    message_path.write_bytes(pickle.dumps(((logits, labels), (more, more_labels + 4))))
    with pytest.raises(BadFile, match=r"resnet\.p, part test: labels must be whole numbers in 0\.\.3"):
        read_parts(message_path)


@pytest.mark.parametrize("protocol", range(6))
def test_no_beginning_of_a_pickle_reads(tmp_path: Path, protocol: int) -> None:
    data = pickle.dumps(collection(), protocol=protocol)
    for length in range(1, len(data), 7):
        refusal(tmp_path / "cut.p", data[:length])


# --- hostile pickles ---------------------------------------------------------------------------------------


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
    "data",
    [
        NDARRAY + b"(t(I1\ntb.",  # BUILD on the stand-in for a type
        NDARRAY + b"Nb.",
        b"cnumpy\ndtype\n(I3\nS'<'\nNNNtb.",
        b"c_codecs\nencode\n(S'a'\nS'b'\ntb.",
        b"(I1\nI2\nt(I3\ntb.",  # BUILD on a tuple
        NDARRAY + b"(I3\ntR.",  # REDUCE of what cannot be called
        b"(I1\nt(I3\ntR.",
        b"S'a'\n(tR.",
        DTYPE + b"S'a'\nb.",
        DTYPE + b"(I3\nS'<'\nS'subarray'\nNNtb.",
        b"cnumpy\ndtype\n(S'O'\nI0\nI1\ntR.",
        b"cnumpy\ndtype\n(S'f8,f8'\nI0\nI1\ntR.",
        b"cnumpy\ndtype\n(S'f77'\nI0\nI1\ntR.",
        b"c_codecs\nencode\n(S'a'\nS'zlib'\ntR.",
        b"c_codecs\nencode\n(S'a'\nI1\ntR.",
        b"cnumpy.core.multiarray\nscalar\n(" + DTYPE + b"S'abc'\ntR.",
        b"cnumpy.core.multiarray\n_reconstruct\n(S'a'\n(I0\ntS'b'\ntR.",
        b"cnumpy.core.numeric\n_frombuffer\n(S'abcdefgh'\n" + DTYPE + b"(I1\ntS'K'\ntR.",
        b"cnumpy.core.numeric\n_frombuffer\n(S'abcdefgh'\n" + DTYPE + b"(S'1'\ntS'C'\ntR.",
        b"g5\n.",
        b".",
        b"t.",
        b"hello, world",
        b"\xff\xfe\xfd",
    ],
)
def test_the_stand_ins_take_nothing_that_numpy_would_not_have_written(tmp_path: Path, data: bytes) -> None:
    refusal(tmp_path / "evil.p", data)


@pytest.mark.parametrize("shape", [(2**40, 4), (-7, -4), (-1, 4), (7, 4, 2**62), (7, 3), (10**30, 0)])
def test_a_shape_that_is_not_what_the_bytes_hold_is_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    good = python2_text(collection()[0][0])
    sides = b"".join(b"L%dL\n" % side for side in shape)
    hostile = good.replace(b"(I7\nL4L\nt", b"(" + sides + b"t")
    assert hostile != good
    message = refusal(tmp_path / "shape.p", b"((" + hostile + hostile + b"t(" + hostile + hostile + b"tt.")
    assert "takes" in message


def test_the_scalar_stand_in_makes_no_part_of_a_collection(tmp_path: Path) -> None:
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
        b"Nr\xff\xff\xff\x3f.",  # LONG_BINPUT of 2**30 - 1
        b"Np500000000\n.",
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
