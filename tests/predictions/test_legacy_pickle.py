"""Pickles of the published collection read right, whichever Python, protocol and NumPy wrote them."""

import pickle
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.predictions.formats import read_parts
from tests.predictions.examples import refusal

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
def test_every_protocol_and_byte_order_reads_right(tmp_path: Path, protocol: int, dtypes: tuple[str, str]) -> None:
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


def test_the_error_for_other_contents_says_what_was_expected(tmp_path: Path) -> None:
    (logits, labels), _ = collection()
    for value in (logits, (logits, labels), ((logits, labels),), ((logits, labels), (logits, 3)), 7):
        message = refusal(tmp_path / "other.p", pickle.dumps(value))
        assert "((logits_val, y_val), (logits_test, y_test))" in message


def test_an_error_in_the_contents_names_the_part(tmp_path: Path) -> None:
    (logits, labels), (more, more_labels) = collection()
    message_path = tmp_path / "resnet.p"
    message_path.write_bytes(pickle.dumps(((logits, labels), (more, more_labels + 4))))
    with pytest.raises(BadFile, match=r"resnet\.p, part test: labels must be whole numbers in 0\.\.3"):
        read_parts(message_path)


@pytest.mark.parametrize("protocol", range(6))
def test_empty_arrays_are_read_and_then_refused_as_predictions(tmp_path: Path, protocol: int) -> None:
    _, test = collection()
    empty = pickle.dumps(((np.zeros((0, 4)), np.zeros(0, dtype=int)), test), protocol=protocol)
    assert "part calibration: logits are empty, with shape (0, 4)" in refusal(tmp_path / "empty.p", empty)


@pytest.mark.parametrize("protocol", range(6))
def test_a_truncated_pickle_is_never_read(tmp_path: Path, protocol: int) -> None:
    data = pickle.dumps(collection(), protocol=protocol)
    for length in range(1, len(data), 7):
        refusal(tmp_path / "cut.p", data[:length])
