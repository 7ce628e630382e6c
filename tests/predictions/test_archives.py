"""`.npz` and `.npy` files give back what was saved; their keys, headers and sizes are not taken on trust."""

import struct
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glayers.arrays import Array
from glayers.errors import BadFile, GlayersWarning
from glayers.predictions import Predictions
from glayers.predictions.source import read_confidences, read_predictions
from tests.predictions.examples import GROUPS, LABELS, LOGITS, NAMES, PROBABILITIES, WEIGHTS, bad


def npz(path: Path, **entries: Any) -> Path:
    np.savez(path, **entries)
    return path


def assert_same(found: Predictions, logits: Array, labels: Array = LABELS) -> None:
    np.testing.assert_array_equal(found.logits, logits)
    np.testing.assert_array_equal(found.labels, labels)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_gives_back_everything_that_was_saved(tmp_path: Path, save: Any) -> None:
    path = tmp_path / "a.npz"
    names = np.array(NAMES)
    save(path, logits=LOGITS, labels=LABELS, weights=WEIGHTS, groups=GROUPS, class_names=names, epoch=np.array(3))
    found = read_predictions(path)
    assert_same(found, LOGITS)
    np.testing.assert_array_equal(found.weights, WEIGHTS)
    np.testing.assert_array_equal(found.groups, GROUPS)
    assert found.class_names == NAMES


@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f4", ">f8", "<f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_byte_order_and_memory_order_of_saved_arrays_do_not_matter(tmp_path: Path, dtype: str, order: Any) -> None:
    logits = np.asarray(LOGITS.astype(dtype), order=order)
    path = npz(tmp_path / "a.npz", logits=logits, labels=LABELS.astype(">i4"), groups=LABELS.astype(">i2"))
    found = read_predictions(path)
    assert_same(found, logits)
    assert found.logits.dtype == np.dtype(dtype).newbyteorder("=")
    assert found.groups is not None
    assert found.groups.dtype.isnative


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_longer_than_one_read_come_back_whole(tmp_path: Path, save: Any) -> None:
    logits, labels = np.random.default_rng(3).normal(size=(30_000, 3)), np.arange(30_000) % 3
    save(tmp_path / "a.npz", logits=logits, labels=labels)
    assert_same(read_predictions(tmp_path / "a.npz"), logits, labels)


@pytest.mark.parametrize("logits", ["logits", "logit", "z"])
@pytest.mark.parametrize("labels", ["labels", "label", "y", "y_true", "targets", "target"])
def test_logits_and_labels_go_by_several_names(tmp_path: Path, logits: str, labels: str) -> None:
    assert_same(read_predictions(npz(tmp_path / "a.npz", **{logits: LOGITS, labels: LABELS})), LOGITS)


@pytest.mark.parametrize("probabilities", ["probabilities", "probs", "proba", "p"])
@pytest.mark.parametrize(("weights", "groups"), [("weight", "group"), ("sample_weight", "groups")])
def test_probabilities_weights_and_groups_go_by_several_names(
    tmp_path: Path, probabilities: str, weights: str, groups: str
) -> None:
    entries = {probabilities: PROBABILITIES, "y": LABELS, weights: WEIGHTS, groups: GROUPS}
    found = read_predictions(npz(tmp_path / "a.npz", **entries))
    assert_same(found, np.log(PROBABILITIES))
    np.testing.assert_array_equal(found.weights, WEIGHTS)
    np.testing.assert_array_equal(found.groups, GROUPS)


def test_logits_take_precedence_over_probabilities(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", logits=LOGITS + 5, probabilities=PROBABILITIES, labels=LABELS)
    assert_same(read_predictions(path), LOGITS + 5)
    path = npz(tmp_path / "a.npz", logits=LOGITS, probabilities=PROBABILITIES.astype(object), labels=LABELS)
    assert_same(read_predictions(path), LOGITS)  # they are not even read


@pytest.mark.parametrize("mark", ["val", "calibration"])
@pytest.mark.parametrize("pattern", ["{word}_{mark}", "{mark}_{word}"])
def test_a_part_is_read_by_the_word_beside_its_keys(tmp_path: Path, mark: str, pattern: str) -> None:
    def key(word: str, part: str) -> str:
        return pattern.format(word=word, mark=part)

    entries = {
        key("logits", "test"): LOGITS[4:],
        key("y_true", "test"): LABELS[4:],
        key("y", mark): LABELS[:4],
        key("logits", mark): LOGITS[:4],
        "class_names": np.array(NAMES),
    }
    path = npz(tmp_path / "a.npz", **entries)
    calibration, test = read_predictions(path, part=mark), read_predictions(path, part="test")
    assert_same(calibration, LOGITS[:4], LABELS[:4])
    assert_same(test, LOGITS[4:], LABELS[4:])
    assert test.class_names == calibration.class_names == NAMES


def test_a_file_of_two_parts_asks_which_one(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", z_val=LOGITS, y_val=LABELS, z_test=LOGITS, y_test=LABELS)
    assert "found y_test, y_val, z_test, z_val; expected one of" in bad(path)
    assert "say part= (on the command line --part)" in bad(path)
    assert "expected one of these keys or column headers: logits_train, train_logits" in bad(path, part="train")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["scores", "truth"], "found scores, truth; expected one of these keys or column headers: logits, logit, z"),
        (["logits"], "no labels: name their key or column one of labels, label, y"),
        (["labels"], "no logits or probabilities: found labels; expected one of these keys or column headers: logits"),
        (["logits", "z", "y"], "both 'logits' and 'z' are logits; keep one of them"),
        (["logits", "y", "labels"], "both 'labels' and 'y' are labels"),
    ],
)
def test_each_contradiction_between_keys_has_its_own_message(tmp_path: Path, keys: list[str], said: str) -> None:
    values = {key: LABELS if key[0] in "lyt" and key != "logits" else LOGITS for key in keys}
    assert said in bad(npz(tmp_path / "a.npz", **values))


def test_objects_are_refused_and_the_reason_given(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", logits=LOGITS, labels=LABELS.astype(object))
    assert (
        "labels.npy: Object arrays cannot be loaded when allow_pickle=False; save plain numbers or text with np.savez"
        in bad(path)
    )


@pytest.mark.parametrize("dtype", ["c16", "M8[s]", [("a", "f8")], "V8"])
def test_arrays_that_are_neither_numbers_nor_text_are_refused(tmp_path: Path, dtype: Any) -> None:
    assert "holds an array of" in bad(npz(tmp_path / "a.npz", logits=np.zeros((3, 3), dtype), labels=[0, 1, 2]))


def test_one_number_in_the_place_of_rows_is_refused(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", confidence=np.array(0.7), correct=np.array(1))
    with pytest.raises(BadFile, match="confidence must be a list; got array"):
        read_confidences(path)


def test_class_names_may_be_bytes(tmp_path: Path) -> None:
    names = np.array([name.encode() for name in NAMES])
    assert read_predictions(npz(tmp_path / "a.npz", z=LOGITS, y=LABELS, class_names=names)).class_names == NAMES


def test_odd_booleans_in_a_file_are_true(tmp_path: Path) -> None:
    odd = np.array([2, 0, 255], dtype=np.uint8).view(bool)
    found = read_predictions(npz(tmp_path / "a.npz", z=LOGITS[:3], y=odd, groups=odd))
    assert found.labels.tolist() == [1, 0, 1]
    assert found.groups is not None
    assert found.groups.view(np.uint8).tolist() == [1, 0, 1]


def test_characters_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", z=LOGITS, y=LABELS, groups=np.full(7, 0x7FFFFFFF, dtype="<u4").view("<U1"))
    assert "the file is cut short or damaged" in bad(path)


def npy_claiming(shape: str, data: bytes, descr: str = "'<f8'") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


@pytest.mark.parametrize(
    "shape", ["(1000000000, 8)", "(-1, 8)", "(-1, -8)", "(4611686018427387904, 8)", "(0, 8)", "(2,)"]
)
def test_a_header_that_lies_about_the_shape_is_refused(tmp_path: Path, shape: str) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("logits.npy", npy_claiming(shape, bytes(64)))
        archive.writestr("labels.npy", npy_claiming("(1,)", bytes(8), "'<i8'"))
    bad(path)


def test_what_a_header_does_not_claim_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logits.npy", npy_claiming("(2, 4)", bytes(50_000_000)))
        archive.writestr("labels.npy", npy_claiming("(2,)", bytes(16), "'<i8'"))
    tracemalloc.start()
    try:
        read_predictions(path)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_a_header_that_python_2_wrote_is_read(tmp_path: Path) -> None:
    (tmp_path / "z.npy").write_bytes(npy_claiming("(7L, 4L)", LOGITS.tobytes()))
    np.save(tmp_path / "y.npy", LABELS)
    with pytest.warns(UserWarning, match="created on Python 2"):  # NumPy's own
        found = read_predictions(tmp_path / "z.npy", labels=tmp_path / "y.npy")
    assert_same(found, LOGITS)


def test_numbers_too_large_to_add_up_do_not_become_a_numpy_warning(tmp_path: Path) -> None:
    path = npz(tmp_path / "a.npz", logits=np.full((3, 4), 1e308), labels=[0, 1, 2])
    assert_same(read_predictions(path), np.full((3, 4), 1e308), np.array([0, 1, 2]))


def test_probabilities_of_0_are_warned_about_where_they_belong_to_labels(tmp_path: Path) -> None:
    p = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    assert len(read_predictions(npz(tmp_path / "masked.npz", p=p, y=[0, 2]))) == 2  # they change no score
    with pytest.warns(GlayersWarning, match="1 of 2 probabilities of labels are 0 and were moved by 1e-12"):
        read_predictions(npz(tmp_path / "wrong.npz", p=p, y=[1, 2]))
    with pytest.warns(GlayersWarning, match="2 of 3 probabilities of labels are 0"):
        read_predictions(npz(tmp_path / "binary.npz", p=np.array([[1.0], [0.0], [0.5]]), y=[0, 1, 1]))


def test_a_pair_of_npy_files_gives_back_logits_and_labels(tmp_path: Path) -> None:
    np.save(tmp_path / "z.npy", np.asfortranarray(LOGITS.astype(np.float32)))
    np.save(tmp_path / "y.npy", LABELS.reshape(-1, 1))
    found = read_predictions(str(tmp_path / "z.npy"), labels=str(tmp_path / "y.npy"))
    assert_same(found, LOGITS.astype(np.float32))


def test_each_way_a_pair_of_npy_files_can_be_wrong_has_its_own_message(tmp_path: Path) -> None:
    logits, labels, both = tmp_path / "z.npy", tmp_path / "y.npy", npz(tmp_path / "a.npz", z=LOGITS, y=LABELS)
    np.save(logits, LOGITS)
    np.save(labels, LABELS)
    assert "labels= or on the command line --labels labels.npy" in bad(logits)
    assert "labels and inputs are for .npy files" in bad(both, labels=labels)
    with pytest.raises(BadFile, match=r"a\.npz: labels= must be a \.npy file"):
        read_predictions(logits, labels=both)
    with pytest.raises(BadFile, match=r"nowhere\.npy: there is no such file"):
        read_predictions(logits, labels=tmp_path / "nowhere.npy")
    np.save(labels, LABELS[:5])
    assert "different numbers of rows: {'logits': 7, 'labels': 5}" in bad(logits, labels=labels)
    labels.write_bytes(labels.read_bytes()[:-3])
    with pytest.raises(BadFile, match=r"y\.npy: .*cut short or damaged"):
        read_predictions(logits, labels=labels)


def test_bytes_after_the_array_are_not_overlooked(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", LABELS)
    with (tmp_path / "z.npy").open("wb") as stream:
        np.save(stream, LOGITS)
        np.save(stream, LOGITS)
    assert "has more bytes than its array of shape (7, 4)" in bad(tmp_path / "z.npy", labels=tmp_path / "y.npy")
