from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

from glayers import BadPredictions, Confidences, GlayersWarning, Predictions, VectorScaling, metrics, read_predictions
from glayers.activations import log_softmax
from tests.lazy import torch

LOGITS = np.array([[2.0, 0.0, 1.0], [0.5, 1.5, 0.0], [-1.0, 3.0, 0.25], [0.0, 0.1, 0.2]])
LABELS = np.array([2, 0, 1, 1])


class OnlyArray:
    """What a library we have never heard of offers."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.values


@pytest.mark.parametrize(
    "wrap",
    [
        np.asarray,
        lambda a: a.tolist(),
        lambda a: torch.tensor(a, requires_grad=a.dtype.kind == "f"),
        lambda a: pd.DataFrame(a) if a.ndim == 2 else pd.Series(a),
        lambda a: pl.DataFrame(a) if a.ndim == 2 else pl.Series(a),
        OnlyArray,
    ],
    ids=["numpy", "lists", "torch", "pandas", "polars", "protocol"],
)
def test_arrays_of_other_libraries_are_taken_as_they_are(wrap: Any) -> None:
    predictions = Predictions(wrap(LOGITS), wrap(LABELS), weights=wrap(np.ones(4)))
    assert (predictions.logits == LOGITS).all()
    assert (predictions.labels == LABELS).all()


def test_bfloat16_tensors_become_float32() -> None:
    predictions = Predictions(torch.tensor(LOGITS).bfloat16(), LABELS)
    assert predictions.logits.dtype == np.float32
    assert (predictions.logits == torch.tensor(LOGITS).bfloat16().float().numpy()).all()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_precision_of_the_logits_is_kept(dtype: type) -> None:
    assert Predictions(LOGITS.astype(dtype), LABELS).logits.dtype == dtype


def test_big_endian_and_integer_logits_become_native_floats() -> None:
    assert Predictions(LOGITS.astype(">f4"), LABELS).logits.dtype == np.dtype(np.float32)
    assert Predictions([[3, -1, 0], [0, 5, 2]], [0, 1]).logits.dtype == np.float64


def test_predictions_are_frozen_and_leave_the_callers_array_alone() -> None:
    logits = LOGITS.copy()
    predictions = Predictions(logits, LABELS)
    with pytest.raises(ValueError, match="read-only"):
        predictions.logits[0, 0] = 9
    with pytest.raises(AttributeError):
        setattr(predictions, "labels", LABELS)  # noqa: B010 (a plain assignment would not pass the type checker)
    logits[0, 0] = 9  # still writable for its owner, and shared as the docstring says
    assert predictions.logits[0, 0] == 9
    assert "shared with the caller, not copied" in (Predictions.__doc__ or "")


@given(shift=st.floats(-50, 50))
def test_probabilities_ignore_a_constant_added_to_a_row(shift: float) -> None:
    shifted = Predictions(LOGITS + shift, LABELS).probabilities()
    np.testing.assert_allclose(shifted, softmax(LOGITS, axis=1), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_probabilities_of_huge_logits_are_finite_and_sum_to_one(dtype: type) -> None:
    logits: np.ndarray = np.array([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4]], dtype=dtype)
    probabilities = Predictions(logits, [0, 1]).probabilities()
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_one_logit_means_two_classes() -> None:
    predictions = Predictions([[2.0], [-1.0]], [1, 0])
    assert predictions.n_classes == 2
    np.testing.assert_allclose(predictions.probabilities()[:, 1], 1 / (1 + np.exp([-2.0, 1.0])))
    assert predictions.label_counts().tolist() == [1, 1]


def test_rows_can_be_taken_with_all_that_belongs_to_them() -> None:
    whole = Predictions(LOGITS, LABELS, weights=[1, 2, 3, 4], groups=list("aabb"), class_names="xyz")
    some = whole.take(np.array([3, 1]))
    assert some.labels.tolist() == [1, 0]
    assert some.weights is not None
    assert some.weights.tolist() == [4, 2]
    assert some.groups is not None
    assert some.groups.tolist() == ["b", "a"]
    assert some.class_names == ("x", "y", "z")
    assert len(whole.take(LABELS == 1)) == 2
    assert repr(some) == "Predictions(2 rows, 3 classes, float64, weights, groups, class_names)"
    assert whole.take(np.array([0])).take(np.array([0])).label_counts().tolist() == [0, 0, 1]
    bare = Predictions(LOGITS, LABELS).take(np.array([0]))
    assert bare.weights is None
    assert bare.groups is None


def test_labels_may_be_names_of_the_classes() -> None:
    assert Predictions(LOGITS, list("zxxy"), class_names="xyz").labels.tolist() == [2, 0, 0, 1]
    assert Predictions(LOGITS, np.array(list("zxxy"), object), class_names="xyz").labels.tolist() == [2, 0, 0, 1]


def test_one_logit_may_be_one_dimensional() -> None:
    z = LOGITS[:, 0]
    assert Predictions(z, [0, 1, 1, 0]).logits.tolist() == z[:, None].tolist()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a name that is no class": ({"labels": list("xxzq"), "class_names": "xyz"}, "the class names .*; row 3 has q"),
    "names and numbers": ({"labels": ["x", 1, "z", None], "class_names": "xyz"}, "the class names .*; row 1 has 1"),
    "names without class names": ({"labels": list("xxyz")}, "in the order of the columns"),
    "-1 of three classes": ({"labels": [-1, 1, 1, -1]}, "row 0 has -1"),
    "three-dimensional logits": ({"logits": LOGITS[None]}, r"\(1, 4, 3\)"),
    "no rows": ({"logits": LOGITS[:0]}, "empty"),
    "no columns": ({"logits": LOGITS[:, :0]}, "empty"),
    "NaN": ({"logits": np.where(LOGITS == 3, np.nan, LOGITS)}, "row 2, column 1 has nan"),
    "infinity": ({"logits": np.where(LOGITS == 3, np.inf, LOGITS)}, "only -inf is allowed"),
    "text as logits": ({"logits": [["a", "b"]]}, "real numbers"),
    "complex logits": ({"logits": LOGITS + 1j}, "real numbers"),
    "ragged lists": ({"logits": [[1.0, 2.0], [1.0]]}, "cannot be converted to"),
    "probabilities": ({"logits": softmax(LOGITS, axis=1)}, "from_probabilities"),
    "float16 probabilities": ({"logits": softmax(LOGITS, axis=1).astype(np.float16)}, "from_probabilities"),
    "label too large": ({"labels": [0, 1, 3, 0]}, "row 2 has 3"),
    "labels from 1": ({"labels": [1, 2, 3, 1]}, "numbered from 1"),
    "no label": ({"labels": [0, 255, 2, 1]}, "row 1 has 255. Leave out rows without a label"),
    "pixels": ({"logits": np.zeros((2, 3, 4, 4))}, "to make every pixel or token a row, np.moveaxis"),
    "negative label": ({"labels": [0, -1, 2, 0]}, "row 1 has -1"),
    "fractional label": ({"labels": [0, 0.5, 2, 0]}, r"row 1 has 0\.5"),
    "missing label": ({"labels": [0, np.nan, 2, 0]}, "row 1 has nan"),
    "huge label": ({"labels": [0, 1e300, 2, 0]}, "row 1 has 1e"),
    "one-hot labels": ({"labels": np.eye(3)[LABELS]}, r"argmax\(axis=1\)"),
    "names as labels": ({"labels": list("abca")}, "in the order of the columns"),
    "too few labels": ({"labels": [0, 1]}, r"\(4,\)"),
    "too few weights": ({"weights": [1, 2]}, r"\(4,\)"),
    "negative weight": ({"weights": [1, 2, -1, 0]}, "row 2"),
    "infinite weight": ({"weights": [1, 2, np.inf, 0]}, "row 2"),
    "no weight": ({"weights": [0, 0, 0, 0]}, "all be zero"),
    "half a count": ({"counts": [1, 2, 0.5, 0]}, "counts must be whole numbers; row 2 has 0.5"),
    "endless counts": (
        {"counts": [1, 2, 1e9, 0]},
        "counts sum to 1,000,000,003, and rows are repeated in memory: here at most 2,097,152",
    ),
    "weights and counts": ({"weights": [1, 2, 1, 0], "counts": [1, 2, 1, 0]}, "pass one of them"),
    "too few groups": ({"groups": ["a"]}, r"\(4,\)"),
    "too few names": ({"class_names": ["a", "b"]}, "3 different names"),
    "equal names": ({"class_names": ["a", "b", "a"]}, "3 different names"),
}


@pytest.mark.parametrize(("changed", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_a_way_out(changed: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"logits": LOGITS, "labels": LABELS} | changed
    with pytest.raises(BadPredictions, match=message):
        Predictions(**given)


def test_labels_from_1_are_warned_about_where_nobody_has_the_last_class() -> None:
    labels = np.arange(60) % 4
    logits = 3 * np.eye(5)[labels]
    with pytest.warns(GlayersWarning, match=r"no label is 0, .*; are labels numbered from 1\?") as caught:
        Predictions(logits, labels + 1)
    assert [warning.filename for warning in caught] == [__file__]
    Predictions(logits[labels > 0], labels[labels > 0])  # class 0 is missing, and the others are right
    Predictions(logits[:10], labels[:10] + 1)  # too few to say


def test_the_error_names_an_object_that_is_not_an_array() -> None:
    class Broken:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            raise RuntimeError("lost")

    with pytest.raises(BadPredictions, match=r"logits: a Broken .* \(lost\)"):
        Predictions(Broken(), LABELS)


def test_labels_may_be_a_column_of_whole_floats() -> None:
    assert Predictions(LOGITS, LABELS[:, None].astype(float)).labels.tolist() == LABELS.tolist()


def test_one_column_between_zero_and_one_is_warned_about() -> None:
    with pytest.warns(GlayersWarning, match="from_probabilities"):
        Predictions([[0.2], [0.9]], [0, 1])


def test_the_warning_points_at_the_line_that_passed_the_logits() -> None:
    with pytest.warns(GlayersWarning) as caught:
        Predictions([[0.2], [0.9]], [0, 1])
    assert [warning.filename for warning in caught] == [__file__]


def test_only_logits_from_the_user_are_tested_for_looking_like_probabilities() -> None:
    whole = Predictions([[0.25], [0.75], [-3.0]], [0, 1, 0])
    assert len(whole.take(np.array([0, 1]))) == 2  # both between 0 and 1
    whole = Predictions([[0.5, 0.25, 0.25], [3.0, 1.0, 0.0]], [0, 2])
    assert whole.take(np.array([0])).logits.tolist() == [[0.5, 0.25, 0.25]]
    # p = 0.5, 0.6, 0.7 have logits 0, 0.41, 0.85
    assert len(Predictions.from_probabilities([[0.5], [0.6], [0.7]], [0, 1, 1])) == 3


def test_no_rows_cannot_be_taken() -> None:
    with pytest.raises(BadPredictions, match="empty"):
        Predictions(LOGITS, LABELS).take(LABELS > 5)


class TestFromProbabilities:
    def test_softmax_gives_them_back(self) -> None:
        given = softmax(LOGITS, axis=1)
        np.testing.assert_allclose(Predictions.from_probabilities(given, LABELS).probabilities(), given)

    def test_exact_zeros_are_counted_and_floored(self) -> None:
        with pytest.warns(GlayersWarning, match="2 of 6 probabilities are exactly 0"):
            predictions = Predictions.from_probabilities([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]], [0, 1], floor=1e-6)
        assert predictions.logits[0, 1] == pytest.approx(np.log(1e-6))

    def test_one_column_is_the_probability_of_class_one(self) -> None:
        predictions = Predictions.from_probabilities([[0.25], [0.9]], [0, 1])
        np.testing.assert_allclose(predictions.probabilities()[:, 1], [0.25, 0.9])
        with pytest.warns(GlayersWarning, match="2 of 2 probabilities are exactly 0 or 1 and were moved") as caught:
            Predictions.from_probabilities([[0.0], [1.0]], [0, 1])
        assert [warning.filename for warning in caught] == [__file__]

    def test_the_tolerance_for_rounding_is_that_of_the_metrics(self) -> None:
        above = np.nextafter(np.float32(1), np.float32(2))  # 1.0000001
        with pytest.warns(GlayersWarning, match="1 of 6 probabilities are exactly 0"):
            predictions = Predictions.from_probabilities(
                np.array([[above, 0.0, 1e-9], [0.333, 0.333, 0.33]], dtype=np.float32), [0, 1]
            )
        assert predictions.logits[0, 0] == 0
        with pytest.warns(GlayersWarning, match="1 of 2 probabilities are exactly 0 or 1"):
            Predictions.from_probabilities(np.array([[above], [0.5]], dtype=np.float32), [0, 1])

    def test_float32_stays_narrow(self) -> None:
        given = softmax(LOGITS, axis=1).astype(np.float32)
        assert Predictions.from_probabilities(given, LABELS).logits.dtype == np.float32

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (LOGITS, r"Predictions\(logits=\.\.\., labels=\.\.\.\)"),
            ([[0.5, 0.4], [0.5, 0.5]], r"row 0 sums to 0\.9"),
            ([[0.5, np.nan], [0.5, 0.5]], "finite"),
            ([[70.4], [5.0]], r"row 0 has 70\.4\. Divide percentages by 100\. If these are logits"),
            ([[70.4, 20.1, 9.9], [5.0, 15.0, 80.0]], r"row 0 has 70\.4\. Divide percentages by 100$"),
            ([0.5, 0.5], "shape"),
        ],
    )
    def test_values_that_are_not_probabilities_are_refused(self, given: Any, message: str) -> None:
        with pytest.raises(BadPredictions, match=message):
            Predictions.from_probabilities(given, [0, 1])

    def test_the_floor_must_be_small_and_positive(self) -> None:
        with pytest.raises(BadPredictions, match="floor"):
            Predictions.from_probabilities([[0.5, 0.5]], [0], floor=0.6)
        wrong: list[Any] = ["x", None, np.nan]
        for floor in wrong:
            with pytest.raises(BadPredictions, match=r"floor must be a number between 0 and 0\.5; got"):
                Predictions.from_probabilities([[0.5, 0.5]], [0], floor=floor)


def test_groups_that_cannot_be_sorted_are_refused() -> None:
    with pytest.raises(BadPredictions, match="groups must be all numbers or all names"):
        Predictions([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0]], [0, 1, 0], groups=[None, 1, "a"])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.float32, object])
def test_groups_that_are_no_finite_numbers_are_refused(bad: float, kind: Any) -> None:
    with pytest.raises(BadPredictions, match="finite numbers or names; row 1 has"):
        Confidences([0.9, 0.6], [1, 0], groups=np.array([3, bad], kind))


CONFIDENCE, CORRECT = [0.9, 0.6, 0.8, 1.0], [True, False, True, True]

REFUSED_CONFIDENCES: dict[str, tuple[dict[str, Any], str]] = {
    "two-dimensional": ({"confidence": LOGITS}, r"one number per row; got shape \(4, 3\).*from_probabilities"),
    "no rows": ({"confidence": [], "correct": []}, r"confidence must be one number per row; got shape \(0,\)"),
    "percentages": ({"confidence": [90, 60, 80, 100]}, "row 0 has 90. Divide percentages by 100"),
    "NaN": ({"confidence": [0.9, np.nan, 0.8, 1.0]}, "must be finite and lie between 0 and 1; row 1 has nan"),
    "text": ({"confidence": list("abcd")}, "confidence must be real numbers"),
    "labels as correct": ({"correct": [0, 1, 5, 1]}, r"row 2 has .*5.*\. Compare the answers .* predicted == labels"),
    "missing correct": ({"correct": [0, 1, np.nan, 1]}, "row 2 has .*nan"),
    "text as correct": ({"correct": ["yes", "no", "yes", "no"]}, "row 0 has .*yes.* Compare the answers"),
    "too few correct": ({"correct": [True]}, r"correct must have shape \(4,\), one per row"),
    "too few weights": ({"weights": [1, 2]}, r"weights must have shape \(4,\)"),
    "too few groups": ({"groups": ["a"]}, r"groups must have shape \(4,\)"),
}


class TestConfidences:
    def test_rows_can_be_taken_with_all_that_belongs_to_them(self) -> None:
        whole = Confidences(CONFIDENCE, CORRECT, weights=[1, 2, 3, 4], groups=list("aabb"))
        some = whole.take(np.array([3, 1]))
        assert (some.confidence.tolist(), some.correct.tolist()) == ([1.0, 0.6], [True, False])
        assert some.weights is not None
        assert some.groups is not None
        assert (some.weights.tolist(), some.groups.tolist()) == ([4, 2], ["b", "a"])
        assert repr(some) == "Confidences(2 rows, weights, groups)"
        assert len(Confidences(CONFIDENCE, CORRECT).take(np.array(CORRECT))) == 3

    @pytest.mark.parametrize("correct", [CORRECT, [1, 0, 1, 1], [1.0, 0.0, 1.0, 1.0], pd.Series(CORRECT)])
    def test_correct_may_be_booleans_or_zeros_and_ones(self, correct: Any) -> None:
        made = Confidences(np.array(CONFIDENCE, dtype=np.float32), correct)
        assert made.correct.dtype == np.bool_
        assert made.correct.tolist() == CORRECT
        assert made.confidence.dtype == np.float64

    def test_they_are_frozen(self) -> None:
        made = Confidences(CONFIDENCE, CORRECT)
        with pytest.raises(ValueError, match="read-only"):
            made.confidence[0] = 0.5
        with pytest.raises(AttributeError):
            setattr(made, "correct", CORRECT)  # noqa: B010 (a plain assignment would not pass the type checker)

    @pytest.mark.parametrize(("changed", "message"), REFUSED_CONFIDENCES.values(), ids=REFUSED_CONFIDENCES.keys())
    def test_bad_input_is_refused_with_a_way_out(self, changed: dict[str, Any], message: str) -> None:
        given: dict[str, Any] = {"confidence": CONFIDENCE, "correct": CORRECT} | changed
        with pytest.raises(BadPredictions, match=message):
            Confidences(**given)


@pytest.mark.parametrize("scale", [1, 20, 1e4])
def test_float32_logits_give_the_probabilities_of_double_precision(scale: float) -> None:
    logits = (np.random.default_rng(0).normal(size=(500, 60)) * scale).astype(np.float32)
    found = Predictions(logits, np.zeros(500, int)).probabilities()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, softmax(logits.astype(np.float64), axis=1), rtol=0, atol=2e-7)


SOFT = np.array([[0.7, 0.3, 0.0], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0], [0.2, 0.2, 0.6]])
SOFT_LOGITS = np.array([[2.0, 0.5, 1.0], [0.1, 0.9, 0.3], [1.4, 0.2, 0.1], [0.3, 0.4, 2.0]])


def test_soft_labels_have_the_cross_entropy_of_their_distributions() -> None:
    rows = Predictions(SOFT_LOGITS, SOFT)
    cross_entropy = -(SOFT * log_softmax(SOFT_LOGITS)).sum(axis=1)
    assert metrics.nll(rows) == pytest.approx(cross_entropy.mean())
    weights = np.array([1.0, 2.0, 0.5, 3.0])
    weighted = Predictions(SOFT_LOGITS, SOFT, weights, groups=["a", "a", "b", "c"])
    assert metrics.nll(weighted) == pytest.approx(np.average(cross_entropy, weights=weights))
    assert weighted.groups is not None
    assert weighted.groups.tolist() == ["a", "a", "a", "a", "b", "c", "c", "c"]


def test_a_fit_to_soft_labels_is_the_fit_to_rows_with_weights() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(60, 3))
    soft = rng.dirichlet(np.ones(3), 60)
    fitted = VectorScaling(strength=0.1).fit(logits, soft)
    repeated = np.repeat(logits, 3, axis=0), np.tile(np.arange(3), 60), soft.ravel(), np.repeat(np.arange(60), 3)
    assert fitted.predict_proba(logits) == pytest.approx(
        VectorScaling(strength=0.1).fit(*repeated).predict_proba(logits)
    )


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[0.7, 0.2, 0.0], *SOFT[1:]], "soft labels must sum to 1; row 0 has 0.9"),
        ([[1.7, -0.7, 0.0], *SOFT[1:]], "lie between 0 and 1"),
        (np.eye(3)[[0, 1, 2, 1]], r"one-hot, pass labels.argmax"),
    ],
)
def test_labels_that_are_no_distributions_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(BadPredictions, match=message):
        Predictions(SOFT_LOGITS, labels)


def test_soft_labels_have_no_counts() -> None:
    with pytest.raises(BadPredictions, match="have no counts"):
        Predictions(SOFT_LOGITS, SOFT, counts=[1, 2, 3, 4])


def test_soft_labels_of_a_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "soft.npz", logits=SOFT_LOGITS, labels=SOFT)
    read = read_predictions(tmp_path / "soft.npz")
    assert read.labels.tolist() == [0, 1, 1, 2, 0, 0, 1, 2]
