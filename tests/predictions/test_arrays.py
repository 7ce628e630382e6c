"""What other libraries hand over becomes numbers, or is refused with a way out; nothing is lost on the way."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from glayers import BadPredictions, Confidences, Predictions, metrics

LOGITS = np.array([[2.0, 0.0, 1.0], [0.5, 1.5, 0.0], [-1.0, 3.0, 0.25], [0.0, 0.1, 0.2]])
LABELS = np.array([2, 0, 1, 1])


def masked(values: Any) -> Any:
    return np.ma.masked_array(values, mask=np.asarray(values) == np.asarray(values).max())


@pytest.mark.parametrize(
    "given",
    [
        {"logits": masked(LOGITS)},
        {"logits": [masked(row) for row in LOGITS]},
        {"logits": tuple(masked(row) for row in LOGITS)},
        {"labels": masked(LABELS)},
        {"weights": masked([1.0, 2.0, 3.0, 4.0])},
        {"weights": [1.0, 2.0, np.ma.masked, 4.0]},
        {"groups": masked([1, 2, 3, 4])},
    ],
)
def test_masked_entries_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(BadPredictions, match=r"masked entries.*\.filled\(value\)"):
        Predictions(**({"logits": LOGITS, "labels": LABELS} | given))


def test_a_masked_array_without_masked_entries_is_an_array() -> None:
    found = Predictions(np.ma.masked_array(LOGITS), np.ma.masked_array(LABELS))
    assert (found.logits == LOGITS).all()


def mixed_frame(values: Any) -> pd.DataFrame:
    """Columns of nullable, Arrow and plain types, which NumPy sees as Python objects."""
    kinds = ["Float64", "double[pyarrow]", "float64"]
    return pd.DataFrame({kind: pd.array(values[:, place], dtype=kind) for place, kind in enumerate(kinds)})


@pytest.mark.parametrize("wrap", [mixed_frame, lambda a: a.astype(object)], ids=["pandas", "objects"])
def test_real_numbers_held_as_objects_become_float64(wrap: Any) -> None:
    assert np.asarray(wrap(LOGITS)).dtype == object
    found = Predictions(wrap(LOGITS), LABELS)
    assert found.logits.dtype == np.float64
    assert (found.logits == LOGITS).all()


@pytest.mark.parametrize(
    "labels",
    [
        np.array([2, 0, True, 1.0], dtype=object),
        np.array([np.int8(2), np.float32(0), np.bool_(True), 1], dtype=object),
        pd.Series([2, 0, 1, 1], dtype="Int64"),
        pd.Series([2, 0, 1, 1], dtype="int64[pyarrow]"),
    ],
)
def test_whole_numbers_held_as_objects_are_labels(labels: Any) -> None:
    assert Predictions(LOGITS, labels).labels.tolist() == LABELS.tolist()


def test_correct_and_weights_may_be_objects_too() -> None:
    found = Confidences([0.7, 0.2, 0.9], np.array([True, False, 1], object), np.array([1, 2.5, True], object))
    assert found.correct.tolist() == [True, False, True]
    assert metrics.ece(found) == metrics.ece(Confidences([0.7, 0.2, 0.9], [1, 0, 1], [1, 2.5, 1]))


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([[1.0, None], [0.5, 2.0]], r"array of object.*\.astype\(float\)"),
        (pd.DataFrame({"a": pd.array([1.0, None], dtype="Float64"), "b": [1.0, 2.0]}), "array of object"),
        (np.array([[1.0, "2"], [3.0, 4.0]], dtype=object), "array of object"),
        (scipy.sparse.csr_matrix(np.eye(2)), r"sparse matrix.*\.toarray\(\)"),
        ([[10**400, 1], [0, 0]], "too large for float64"),
    ],
    ids=["None", "NA", "text", "sparse", "huge"],
)
def test_objects_that_are_not_numbers_are_refused(logits: Any, message: str) -> None:
    with pytest.raises(BadPredictions, match=message):
        Predictions(logits, [0, 1])


def test_the_error_for_labels_that_are_not_numbers_says_how_to_number_them() -> None:
    with pytest.raises(BadPredictions, match="in the order of the columns"):
        Predictions(LOGITS, np.array(["a", 1, 2, None], dtype=object))


def test_weights_too_large_to_add_up_are_refused() -> None:
    with pytest.raises(BadPredictions, match=r"finite sum"):
        Predictions(LOGITS, LABELS, weights=[1e308, 1e308, 0, 0])
    assert metrics.accuracy([[0.7, 0.3], [0.6, 0.4]], [0, 1], sample_weight=[1e307, 1e307]) == pytest.approx(0.5)
