"""Prediction sets: which classes they hold, how often they hold the label, and where they are refused."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from glayers import (
    AutoCalibrator,
    BadPredictions,
    Confidences,
    GlayersError,
    HistogramBinning,
    IsotonicCalibration,
    MultiLabelCalibrator,
    Predictions,
    TemperatureScaling,
    VectorScaling,
    load,
    set_report,
)
from glayers.activations import softmax
from glayers.serving.sets import KINDS, LEVELS, SetThresholds, class_scores
from tests.strategies import Numbers


def drawn(n: int, seed: int, classes: int = 5, factor: float = 2.0) -> Predictions:
    """Labels from the softmax of z; the model says factor * z."""
    rng = np.random.default_rng(seed)
    z = 1.5 * rng.normal(size=(n, classes))
    return Predictions(factor * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1))


def coverage(sets: Numbers, rows: Predictions) -> float:
    return float(sets[np.arange(len(rows)), rows.labels].mean())


def repeated(row: list[float], labels: list[int]) -> Predictions:
    return Predictions(np.tile(np.log(row), (len(labels), 1)), labels)


def test_adaptive_scores_are_what_more_probable_classes_leave() -> None:
    p = np.array([[0.1, 0.6, 0.3], [1 / 3, 1 / 3, 1 / 3]])
    # 1 - (0.6 + 0.3), 1 / (1 - 0.6), 1 - 0.6; of equal classes the first counts as the most probable, as for argmax
    expected = [[0.1, 2.5, 0.4], [1.5, 2 / 3, 1 / 3]]
    assert np.exp(class_scores(np.log(p), "adaptive")) == pytest.approx(np.array(expected))


@pytest.mark.parametrize("kind", KINDS)
def test_the_threshold_is_the_finite_sample_quantile(kind: str) -> None:
    rows = drawn(19, 0)
    scores = np.sort(class_scores(rows.logits, kind)[np.arange(19), rows.labels])
    found = SetThresholds.of(rows)
    # A new score is among the k lowest of 20 with a probability of k / 20: k = 2 at 90 %, 1 at 95 %, and none at 96 %.
    assert found.at(0.9, kind) == pytest.approx(scores[1], abs=2e-6)
    assert found.at(0.95, kind) == pytest.approx(scores[0], abs=2e-6)
    assert found.at(0.96, kind) < -1e100


@pytest.mark.parametrize("kind", KINDS)
def test_repeated_draws_of_held_out_rows_cover_exactly(kind: str) -> None:
    calibrator = TemperatureScaling().fit_predictions(drawn(500, 0))
    test = drawn(5000, 1)
    found = []
    for seed in range(200):
        conformed = calibrator.conform(drawn(39, 2 + seed))
        found.append(coverage(conformed.predict_set(test.logits, 0.9, kind), test))
    # (n + 1) * 0.1 is whole, so the expected coverage is 90 %; its spread over draws is sqrt(0.09 / 40)
    assert np.mean(found) == pytest.approx(0.9, abs=4 * np.sqrt(0.09 / 40 / 200) + 0.005)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", [TemperatureScaling(), VectorScaling(), AutoCalibrator(time_budget=0)])
def test_calibration_rows_serve_twice(method: Any, kind: str) -> None:
    found = []
    test = drawn(4000, 99)
    for seed in range(10):
        fitted = method._fit_and_keep(drawn(300, seed))  # without its warnings
        found.append(coverage(fitted.predict_set(test.logits, 0.9, kind), test))
    assert np.mean(found) == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_files_pickles_and_onnx_give_the_same_sets(kind: str, tmp_path: Path) -> None:
    fitted = VectorScaling().fit_predictions(drawn(400, 0))
    z = drawn(300, 1).logits.astype(np.float32)
    z[:50, 1] = -np.inf
    expected = fitted.predict_set(z, 0.95, kind)
    fitted.save(tmp_path / "m.safetensors")
    assert np.array_equal(load(tmp_path / "m.safetensors").predict_set(z, 0.95, kind), expected)
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict_set(z, 0.95, kind), expected)
    load(tmp_path / "m.safetensors").to_onnx(tmp_path / "m.onnx", set_level=0.95, set_kind=kind)
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(["set"], {"uncalibrated_logits": z})
    assert found.dtype == bool
    assert np.array_equal(found, expected)
    assert fitted.predict_set(z[:0]).shape == (0, 5)


def test_arrays_of_torch_give_sets_of_torch() -> None:
    torch = pytest.importorskip("torch")
    fitted = TemperatureScaling().fit_predictions(drawn(400, 0))
    z = drawn(50, 1).logits
    for kind in KINDS:
        found = fitted.predict_set(torch.asarray(z.copy()), kind=kind)
        assert np.array_equal(found.numpy(), fitted.predict_set(z, kind=kind))


@pytest.mark.parametrize("kind", KINDS)
def test_higher_levels_give_larger_sets(kind: str) -> None:
    fitted = TemperatureScaling().fit_predictions(drawn(1000, 0))
    z = drawn(500, 1).logits
    before = fitted.predict_set(z, 0.5, kind)
    for level in (0.7, 0.9, 0.975, 0.999):
        sets = fitted.predict_set(z, level, kind)
        assert (sets >= before).all()
        before = sets


@pytest.mark.parametrize("kind", KINDS)
def test_sets_cover_no_more_than_the_level_where_the_predicted_class_is_right_more_often(kind: str) -> None:
    rows = Predictions(*_accurate(20_000))
    fitted = TemperatureScaling().fit_predictions(rows.take(slice(10_000)))
    test = rows.take(slice(10_000, 20_000))
    assert (fitted.predict(test.logits) == test.labels).mean() > 0.95
    for level in (0.8, 0.9):
        sets = fitted.predict_set(test.logits, level, kind)
        assert coverage(sets, test) == pytest.approx(level, abs=4 * np.sqrt(2 * level * (1 - level) / 10_000))
    # Sets are empty where the confidence is lowest; at a higher level than the accuracy, none is.
    confidence = fitted.predict_proba(test.logits).max(axis=1)
    assert confidence[sets.any(axis=1)].min() >= confidence[~sets.any(axis=1)].max() - 1e-6
    if kind == "adaptive":
        assert fitted.predict_set(test.logits, 0.99, kind)[np.arange(10_000), fitted.predict(test.logits)].all()


def _accurate(n: int) -> tuple[Numbers, Numbers]:
    """Logits and labels of an accurate model of five classes."""
    rng = np.random.default_rng(0)
    z = 30 * rng.normal(size=(n, 5))
    return z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)


def test_a_level_between_two_thresholds_is_rounded_up() -> None:
    fitted = TemperatureScaling().fit_predictions(drawn(3000, 0))
    z = drawn(500, 1).logits
    for level, rounded in ((0.913, 0.915), (0.9, 0.9), (0.996, 0.999)):
        assert np.array_equal(fitted.predict_set(z, level), fitted.predict_set(z, rounded))
    assert len(LEVELS) == 101


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_rows_are_too_few_for_a_high_level(kind: str) -> None:
    rows = drawn(20, 0)
    with_mask = rows.logits.copy()
    with_mask[:, 4] = -np.inf
    fitted = TemperatureScaling().fit_predictions(rows)
    sets = fitted.predict_set(with_mask, 0.96, kind)
    assert sets[:, :4].all()
    assert not sets[:, 4].any()
    assert not fitted.predict_set(with_mask, 0.9, kind)[:, :4].all()


@pytest.mark.parametrize("kind", KINDS)
def test_one_class_may_dominate(kind: str) -> None:
    conformed = (
        TemperatureScaling()
        .fit_predictions(drawn(100, 0, classes=3))
        .conform(repeated([0.98, 0.01, 0.01], [0] * 98 + [1, 2]))
    )
    sets = conformed.predict_set(repeated([0.98, 0.01, 0.01], [0]).logits, 0.95, kind)
    assert sets.tolist() == [[True, False, False]]


@pytest.mark.parametrize("kind", KINDS)
def test_ties_do_not_lower_the_coverage(kind: str) -> None:
    # A binning gives the same few probabilities again and again.
    fitted = HistogramBinning(n_bins=3).fit_predictions(drawn(1000, 0)).conform(drawn(1000, 1))
    test = drawn(4000, 2)
    assert coverage(fitted.predict_set(test.logits, 0.9, kind), test) > 0.885


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_is_always_certain_and_often_wrong_gets_every_class(kind: str) -> None:
    rng = np.random.default_rng(0)
    z = 1e4 * np.eye(4)[rng.integers(4, size=500)]
    labels = np.where(rng.uniform(size=500) < 0.7, z.argmax(axis=1), rng.integers(4, size=500))
    rows = Predictions(z + rng.normal(size=z.shape), labels)
    fitted = TemperatureScaling().fit_predictions(rows)
    assert coverage(fitted.predict_set(rows.logits, 0.9, kind), rows) >= 0.88
    conformed = fitted.conform(Predictions(1e4 * z, labels))  # probabilities of exactly 0
    assert coverage(conformed.predict_set(1e4 * z, 0.9, kind), rows) >= 0.88


@pytest.mark.parametrize("kind", KINDS)
def test_labels_among_masked_classes_are_not_expected(kind: str) -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(2000, 6))
    z[rng.uniform(size=z.shape) < 0.3] = -np.inf
    z[:, 0] = rng.normal(size=2000)
    rows = Predictions(z, (z + rng.gumbel(size=z.shape)).argmax(axis=1))
    fitted = TemperatureScaling().fit_predictions(rows.take(slice(1000)))
    test = rows.take(slice(1000, 2000))
    sets = fitted.predict_set(test.logits, 0.9, kind)
    assert not sets[np.isneginf(test.logits)].any()
    assert coverage(sets, test) == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_zero_are_rows_left_out_and_a_common_factor_changes_nothing(kind: str) -> None:
    rows = drawn(300, 0)
    some = np.arange(300) % 3 > 0
    alone = SetThresholds.of(rows.take(some))
    for weights in (1.0 * some, 7.0 * some):
        assert SetThresholds.of(Predictions(rows.logits, rows.labels, weights=weights)).at(0.9, kind) == pytest.approx(
            alone.at(0.9, kind)
        )


def test_importance_weights_move_coverage_to_the_weighted_population() -> None:
    rows = drawn(20_000, 0)
    easy = rows.logits.max(axis=1) > 4
    weights = np.where(easy, 1.0, 8.0)
    fitted = TemperatureScaling().fit_predictions(Predictions(rows.logits, rows.labels, weights=weights))
    test = drawn(20_000, 1)
    sets = fitted.predict_set(test.logits)
    covered = sets[np.arange(20_000), test.labels]
    again = np.where(test.logits.max(axis=1) > 4, 1.0, 8.0)
    assert covered @ again / again.sum() == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_a_group_count_as_copies_of_one(kind: str) -> None:
    rows = drawn(30, 0)
    copies = np.repeat(np.arange(30), 4)
    grouped = Predictions(rows.logits[copies], rows.labels[copies], groups=copies)
    assert SetThresholds.of(grouped).at(0.9, kind) == SetThresholds.of(rows).at(0.9, kind)
    assert SetThresholds.of(grouped).at(0.97, kind) < -1e100  # 30 rows are too few, 120 would not be
    one_group = Predictions(rows.logits, rows.labels, groups=np.zeros(30))
    assert TemperatureScaling().fit_predictions(one_group).predict_set(rows.logits, 0.9, kind).all()


@pytest.mark.parametrize("level", [0, 1, 0.4, 0.9999, "90%", None, float("nan")])
def test_levels_that_no_row_can_promise_are_refused(level: Any) -> None:
    fitted = TemperatureScaling().fit_predictions(drawn(100, 0))
    with pytest.raises(BadPredictions, match=r"level must be a number from 0.5 to 0.999"):
        fitted.predict_set(drawn(5, 1).logits, level)
    with pytest.raises(BadPredictions, match="kind must be one of 'least ambiguous', 'adaptive'"):
        fitted.predict_set(drawn(5, 1).logits, kind="smallest")


def test_what_has_no_held_out_scores_of_classes_is_refused_in_words(tmp_path: Path) -> None:
    rows = drawn(200, 0)
    several = MultiLabelCalibrator().fit(rows.logits, np.eye(5, dtype=int)[rows.labels])
    confidence = Confidences(softmax(rows.logits).max(axis=1), rows.logits.argmax(axis=1) == rows.labels)
    for fitted, values in (
        (several, rows.logits),
        (TemperatureScaling(inputs="confidence").fit_predictions(confidence), confidence.confidence),
        (IsotonicCalibration().fit_predictions(rows), rows.logits),
        (TemperatureScaling().fit_predictions(rows).adapt(frequencies=[1, 2, 3, 4, 5]), rows.logits),
    ):
        with pytest.raises(GlayersError, match=r"no held-out scores for prediction sets.*conform\(predictions\)"):
            fitted.predict_set(values)
        with pytest.raises(GlayersError, match="no held-out scores"):
            fitted.to_onnx(tmp_path / "m.onnx", set_level=0.9)


def test_confidences_cannot_conform() -> None:
    rows = Confidences([0.6, 0.7, 0.8, 0.9] * 10, [0, 1, 1, 1] * 10)
    fitted = TemperatureScaling(inputs="confidence").fit_predictions(rows)
    with pytest.raises(GlayersError, match="a confidence has no classes for prediction sets"):
        fitted.conform(rows)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not fitted yet"):  # scikit-learn's error is one
        TemperatureScaling().conform(drawn(20, 0))


def test_a_new_fit_forgets_the_old_thresholds() -> None:
    fitted = TemperatureScaling().fit_predictions(drawn(300, 0))
    before = fitted.set_thresholds_
    assert fitted.fit_predictions(drawn(300, 1)).set_thresholds_ != before


def test_one_logit_stands_for_two_classes() -> None:
    rng = np.random.default_rng(0)
    z = 3 * rng.normal(size=6000)
    labels = (rng.uniform(size=6000) < 1 / (1 + np.exp(-z))).astype(int)
    rows = Predictions(2 * z[:, None], labels)
    fitted = TemperatureScaling().fit_predictions(rows.take(slice(3000)))
    report = set_report(fitted, rows.take(slice(3000, 6000)), level=0.95)
    for kind in KINDS:
        assert report[kind]["coverage"].value == pytest.approx(0.95, abs=0.015)


def test_a_report_counts_what_the_sets_hold() -> None:
    fitted = TemperatureScaling().fit_predictions(drawn(1000, 0))
    test = drawn(2000, 1)
    report = set_report(fitted, test)
    for kind in KINDS:
        sets = fitted.predict_set(test.logits, 0.9, kind)
        found = report[kind]
        assert found["coverage"].value == pytest.approx(coverage(sets, test))
        assert found["size"].value == pytest.approx(sets.sum(axis=1).mean())
        assert found["single"].value == pytest.approx((sets.sum(axis=1) == 1).mean())
        counts = np.bincount(test.labels) / 2000
        assert counts @ list(report.facts[f"{kind}, coverage by class"].values()) == pytest.approx(coverage(sets, test))
    assert str(report).splitlines()[2].startswith("least ambiguous ")


@pytest.mark.parametrize(("factor", "sign"), [(0.7, 1), (4.0, -1)])
def test_a_report_says_whether_temperature_scaling_enlarges_adaptive_sets(factor: float, sign: int) -> None:
    fitted = TemperatureScaling().fit_predictions(drawn(2000, 0, classes=50, factor=factor))
    test = drawn(3000, 1, classes=50, factor=factor)
    report = set_report(fitted, test)
    added = report["adaptive"]["added by temperature scaling"]
    assert min(sign * added.low, sign * added.high) > 0
    assert "size" in str(report)
    assert "added by temperature scaling" in str(report)
    said = "temperature scaling: it enlarges the adaptive sets of this model"
    assert (said in str(report).splitlines()) == (sign > 0)
    assert ("temperature scaling" in report.to_dict()) == (sign > 0)
    # By hand: both thresholds cover 90 % of these very rows.
    sizes = []
    for logits in (TemperatureScaling().fit_predictions(test).apply(test).logits, test.logits):
        scores = class_scores(logits, "adaptive")
        own = np.sort(scores[np.arange(3000), test.labels])
        sizes.append((scores >= own[299] - 1e-6).sum(axis=1).mean())
    assert added.value == pytest.approx(sizes[0] - sizes[1])
