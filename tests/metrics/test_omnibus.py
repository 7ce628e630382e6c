"""`calibration_test` keeps its level, sees what single tests miss, and says which of them reject."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glayers import (
    BadPredictions,
    Confidences,
    GlayersError,
    GlayersWarning,
    IsotonicCalibration,
    Predictions,
    TemperatureScaling,
    VectorScaling,
    metrics,
)
from glayers.metrics import CalibrationTest
from glayers.metrics.calibration_tests import detectable_error
from tests.metrics.simulation import sample
from tests.strategies import Numbers, confidences_of


def alternating() -> tuple[Numbers, Numbers]:
    """Six confidences of 200 rows each; the model is right 10 points too often or too seldom, by turns."""
    said, right = np.linspace(0.4, 0.9, 6), [100, 80, 140, 120, 180, 160]
    p = np.column_stack([said, (1 - said) / 2, (1 - said) / 2])
    labels = [np.append(np.zeros(hits, int), np.arange(200 - hits) % 2 + 1) for hits in right]
    return np.repeat(p, 200, axis=0), np.concatenate(labels)


def test_its_values_are_those_of_the_metrics_with_weights_and_ties() -> None:
    rng = np.random.default_rng(1)
    p, y, weights = rng.multinomial(10, np.full(5, 0.2), 70) / 10, rng.integers(0, 5, 70), rng.random(70)
    weights[:5] = 0
    given: dict[str, Any] = {"sample_weight": weights}
    found = metrics.calibration_test(p, y, n_resamples=99, **given)
    expected = {
        "ks": metrics.ks(p, y, **given),
        "ece": metrics.ece(p, y, **given),
        "rank_2_ks": metrics.ks(p, y, event=metrics.rank(2), **given),
        "classwise_ks": metrics.classwise_ks(p, y, **given),
    }
    assert {name: test.value for name, test in found.tests.items()} == pytest.approx(expected, abs=1e-12)


def test_p_values_of_single_tests_are_those_of_their_own_functions() -> None:
    p, y = sample(3, 400, 4, sharpness=1.1)
    found = metrics.calibration_test(p, y)
    assert found.tests["classwise_ks"] == metrics.classwise_ks_test(p, y, n_resamples=999)  # the same labels are drawn
    assert found.tests["ks"].p_value == pytest.approx(metrics.ks_test(p, y).p_value, abs=0.05)
    assert found.tests["ece"].p_value == pytest.approx(metrics.ece_test(p, y).p_value, abs=0.05)


def test_a_calibrated_model_is_rejected_in_5_of_100_cases() -> None:
    found = [metrics.calibration_test(*sample(seed, 40, 3), n_resamples=79).rejected for seed in range(100)]
    assert 1 <= sum(found) <= 12  # 5 expected, deviation 2.2


def test_tests_that_always_agree_cost_nothing() -> None:
    # All scores are equal, so that KS and ECE are the same number; Holm's correction would double their p-values.
    found = metrics.calibration_test(Confidences(np.full(40, 0.7), np.arange(40) < 22))
    assert found.tests["ks"].p_value == found.tests["ece"].p_value == found.p_value
    assert 0.05 < found.p_value < 0.2


def test_alternating_errors_are_seen_where_ks_misses_them() -> None:
    p, y = alternating()
    assert not metrics.ks_test(p, y).rejected
    found = metrics.calibration_test(p, y, n_resamples=199)
    assert found.rejecting == ("ece",)
    assert str(found) == f"not calibrated (p <= {found.p_value:.2g}); significant: ECE (confidence)"


def test_errors_below_the_top_class_are_seen_where_the_confidence_is_right() -> None:
    p = np.tile([0.6, 0.3, 0.05, 0.05], (1_000, 1))
    y = np.repeat([0, 1, 2, 3], [600, 150, 125, 125])
    for event in (metrics.ks_test, metrics.ece_test):
        assert not event(p, y).rejected
    found = metrics.calibration_test(p, y, n_resamples=199)
    assert found.rejecting == ("rank_2_ks", "classwise_ks")
    assert str(found) == (
        "the probabilities of the classes that are not predicted are wrong; "
        f"1,000 rows are too few to tell whether the top probability is right (p <= {found.p_value:.2g})"
    )
    many = metrics.calibration_test(np.repeat(p, 9, axis=0), np.repeat(y, 9), n_resamples=199)
    assert many.detectable < 0.02
    assert many.finding == (
        "the top probability is right, as far as 9,000 rows can tell, "
        "but the probabilities of the classes that are not predicted are wrong"
    )


def test_two_classes_have_no_other_classes() -> None:
    # The confidence is right in both halves together, and the probability of class 1 in neither.
    p = np.repeat([[0.3, 0.7], [0.7, 0.3]], 3_000, axis=0)
    y = np.repeat([1, 0, 0, 1], [2_350, 650, 1_850, 1_150])
    found = metrics.calibration_test(p, y, n_resamples=199)
    assert found.rejecting == ("classwise_ks",)
    assert "the probability of class 1 is wrong" in found.finding


def test_no_number_of_calibration_rows_is_named_that_the_fit_had() -> None:
    calibration, test = (rows_of_a_truth(n, 0.0, seed) for n, seed in ((20_000, 0), (300, 2)))
    fitted = VectorScaling().fit_predictions(calibration)
    found = metrics.calibration_test(fitted.apply(test), calibrator=fitted, before=test, n_resamples=99)
    assert found.allowed is not None
    assert found.rows_needed is None
    allowed = replace(found, adjusted=dict.fromkeys(found.adjusted, 0.01), allowed=dict.fromkeys(found.adjusted, 0.5))
    assert allowed.verdict == "as calibrated as the rows allow"
    assert "calibration rows these" not in str(allowed)


def test_a_calibrated_model_is_described_with_its_rows_and_the_error_they_would_show() -> None:
    p, y = sample(0, 6_000, 3)
    found = metrics.calibration_test(Predictions.from_probabilities(p, y), n_resamples=99)
    assert (found.verdict, found.rejected, found.undecided) == ("calibrated", False, False)
    assert str(found) == (
        f"6,000 rows show no miscalibration (p = {found.p_value:.2g}); "
        f"an error of {100 * found.detectable:.2g} points would show"
    )
    assert found.to_dict()["sentence"] == str(found)


@pytest.mark.parametrize("n", [20, 60, 300])
def test_few_rows_of_an_overconfident_model_are_not_called_calibrated(n: int) -> None:
    p, y = sample(1, 8_000, 4, sharpness=1.25)
    off = metrics.mean_confidence(p, y) - metrics.accuracy(p, y)
    assert 0.03 < off < 0.06
    assert metrics.calibration_test(p, y, n_resamples=99).verdict == "not calibrated"
    found = [metrics.calibration_test(p[i : i + n], y[i : i + n], n_resamples=99) for i in range(0, 10 * n, n)]
    assert "calibrated" not in {test.verdict for test in found}
    few = next(test for test in found if not test.rejected)
    assert few.verdict == "too few rows"
    assert few.undecided
    assert few.detectable > off
    assert str(few) == (
        f"{n} rows are too few to tell whether the model is calibrated (p = {few.p_value:.2g}); "
        f"only errors above about {100 * few.detectable:.2g} points would show"
    )


def test_a_model_that_could_be_off_by_everything_is_said_so_without_an_exponent() -> None:
    p, y = sample(0, 200, 3)
    with pytest.warns(GlayersWarning, match="few rows decide everything"):
        found = metrics.calibration_test(p, y, sample_weight=np.append(np.ones(199), 1e6), n_resamples=99)
    assert "only errors above about 100 points would show" in str(found)


@pytest.mark.parametrize("n", [20, 60])
def test_few_rows_in_groups_and_few_confidences_are_not_called_calibrated_either(n: int) -> None:
    p, y = sample(2, n, 4)
    confidences = Confidences(p.max(axis=1), p.argmax(axis=1) == y)
    in_groups = Predictions.from_probabilities(p, y, groups=np.arange(n) // 2)
    for rows in (confidences, in_groups, Predictions.from_probabilities(p, y, np.linspace(1, 2, n))):
        found = metrics.calibration_test(rows, n_resamples=99)
        assert found.verdict == "too few rows"
        assert "only errors above about" in str(found)


@pytest.mark.parametrize(("n", "score"), [(100, 0.7), (800, 0.95), (300, 0.999)])
def test_an_error_of_the_detectable_size_is_found_with_the_stated_power(n: int, score: float) -> None:
    rng = np.random.default_rng(n)
    scores = np.clip(score + 0.1 * (1 - score) * rng.normal(size=n), 0.0, 1.0)
    calibrated = Confidences(scores, rng.random(n) < scores)
    detectable = metrics.calibration_test(calibrated, n_resamples=199).detectable
    found = []
    for _ in range(60):
        too_high = Confidences(scores, rng.random(n) < scores - detectable)
        found.append(metrics.calibration_test(too_high, n_resamples=99).rejected)
    assert 0.65 < np.mean(found) < 0.98  # 0.8 and a little more; standard error 0.05


def test_the_detectable_error_by_hand() -> None:
    # 400 fair coins: deviation 0.025, mean error 0.0313. Brownian motion exceeds 2.2414 in 5 %, and 2.7344 in a fourth
    # of that: a critical value of 0.05 * 2.7344 / 2.2414 = 0.061. With power 80 %, 0.8416 deviations more, of which the
    # square is at most 0.025^2 + 0.0854 / 400: 0.061 + 0.8416 * 0.029 = 0.0854.
    test = CalibrationTest(value=0.0, p_value=1.0, bound=0.05, expected=0.0313, level=0.95, n_resamples=999)
    assert detectable_error(400, test, 4) == pytest.approx(0.0854, abs=1e-4)
    assert detectable_error(400, test, 1) == pytest.approx(0.05 + 0.8416 * 0.0284, abs=1e-4)
    # A mean error of twice that of independent rows says that pairs widen the deviation by 2.
    pairs = replace(test, expected=0.0627)
    assert detectable_error(200, pairs, 4) == pytest.approx(0.061 + 0.8416 * 0.0553, abs=2e-4)


def test_groups_that_depend_on_each_other_show_only_larger_errors() -> None:
    p, y = sample(2, 400, 3)
    copies = np.repeat(np.arange(400), 5)
    alone = metrics.calibration_test(p[copies], y[copies], n_resamples=99)
    together = metrics.calibration_test(p[copies], y[copies], groups=copies, n_resamples=99)
    assert together.detectable == pytest.approx(np.sqrt(5) * alone.detectable, rel=0.25)


def test_a_model_that_is_always_sure_needs_rows_too() -> None:
    sure = metrics.calibration_test(Confidences(np.ones(20), np.ones(20)), n_resamples=99)
    assert sure.detectable == pytest.approx(1 - 0.2 ** (1 / 20))  # seen with 80 % if it happens in 1 of 13 rows
    assert sure.verdict == "too few rows"
    assert metrics.calibration_test(Confidences(np.ones(200), np.ones(200)), n_resamples=99).verdict == "calibrated"


def test_an_event_is_tested_alone() -> None:
    p, y = sample(5, 300, 3, sharpness=2.0)
    second = metrics.rank(2)
    found = metrics.calibration_test(p, y, event=second, n_resamples=99)
    assert list(found.tests) == ["ks", "ece"]
    assert found.tests["ks"].value == pytest.approx(metrics.ks(p, y, event=second), abs=1e-12)
    bare = metrics.calibration_test(confidences_of(second, p, y), n_resamples=99)
    assert bare.adjusted == found.adjusted
    assert "KS (rank 2)" in str(metrics.calibration_test(p, np.zeros(300, int), event=second, n_resamples=99))


def test_of_two_classes_the_second_adds_no_test() -> None:
    assert list(metrics.calibration_test(*sample(5, 100, 2), n_resamples=99).tests) == ["ks", "ece", "classwise_ks"]


def test_with_groups_it_tests_what_allows_for_groups() -> None:
    p, y = sample(4, 400, 3, sharpness=1.3)
    groups = np.arange(400) // 4
    found = metrics.calibration_test(p, y, groups=groups, n_resamples=199)
    assert list(found.tests) == ["ks", "ece", "rank_2_ks"]
    for name, test in found.tests.items():
        assert found.adjusted[name] >= test.p_value
    given: dict[str, Any] = {"groups": groups, "n_resamples": 199}
    assert found.tests["ks"].p_value == pytest.approx(metrics.ks_test(p, y, **given).p_value, abs=0.05)
    assert found.tests["ece"].p_value == pytest.approx(metrics.ece_test(p, y, **given).p_value, abs=0.05)
    assert found.p_value == min(found.adjusted.values())
    assert "400 rows in 100 groups" in str(metrics.calibration_test(*sample(0, 400, 3), groups=groups))


def test_too_few_groups_are_a_third_answer() -> None:
    p, y = sample(4, 400, 3)
    groups = np.arange(400) // 100
    found = metrics.calibration_test(p, y, groups=groups, n_resamples=99)
    assert found.undecided
    assert not found.rejected
    assert str(found) == "400 rows in 4 groups are too few to tell whether the model is calibrated"


def test_too_few_draws_are_refused() -> None:
    with pytest.raises(GlayersError, match=r"for 4 tests at level 0\.95, n_resamples must be at least 79"):
        metrics.calibration_test(*sample(0, 20, 3), n_resamples=78)
    with pytest.raises(BadPredictions, match="must sum to 1"):
        metrics.calibration_test([[0.7, 0.7], [0.2, 0.8]], [0, 1])


def rows_of_a_truth(n_rows: int, bends: float, seed: int) -> Predictions:
    """Overconfident logits; the truth is one scale and one shift per class, and bends that no such map has."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n_rows, 10))
    scores = z * np.linspace(0.6, 1.4, 10) + np.linspace(-0.5, 0.5, 10) + bends * np.abs(z)
    return Predictions(1.5 * z, (scores + rng.gumbel(size=z.shape)).argmax(axis=1))


@pytest.mark.parametrize(("bends", "verdict"), [(0.0, "as calibrated as the rows allow"), (0.7, "not calibrated")])
def test_a_fit_is_compared_with_what_its_calibration_rows_allow(bends: float, verdict: str) -> None:
    calibration, test = (rows_of_a_truth(n, bends, seed) for n, seed in ((1_000, 0), (10_000, 1)))
    fitted = VectorScaling().fit_predictions(calibration)
    found = metrics.calibration_test(fitted.apply(test), calibrator=fitted, before=test, n_resamples=99)
    assert found.verdict == verdict
    assert found.rejected
    if bends:
        return
    alone = metrics.calibration_test(fitted.apply(test), n_resamples=99)
    assert alone.verdict == "not calibrated"
    assert alone.allowed is None
    assert found.tests == alone.tests
    assert found.rows_needed is not None
    # With so many rows the errors of the fit are about a tenth above those of a perfect one: the truth of this family.
    assert 10_000 < found.rows_needed < 60_000
    assert f"; with about {found.rows_needed:,} calibration rows these test rows would no longer show it" in str(found)
    assert found.to_dict()["rows_needed"] == found.rows_needed


def test_arrays_are_compared_with_what_a_fit_allows_in_the_same_digits() -> None:
    calibration, test = (rows_of_a_truth(n, 0.0, seed) for n, seed in ((500, 0), (400, 1)))
    fitted = VectorScaling().fit_predictions(calibration)
    found = metrics.calibration_test(fitted.apply(test), calibrator=fitted, before=test, n_resamples=99)
    p = fitted.predict_proba(test.logits)
    again = metrics.calibration_test(p, test.labels, calibrator=fitted, before=test.logits, n_resamples=99)
    assert found.allowed is not None
    assert again.allowed == found.allowed


def test_temperature_scaling_has_three_levels_and_methods_without_a_posterior_two() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(10_300, 3))
    given = Predictions(1.5 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1))
    calibration, test = given.take(np.arange(300)), given.take(np.arange(300, 10_300))
    temperature = TemperatureScaling().fit_predictions(calibration)
    found = metrics.calibration_test(temperature.apply(test), calibrator=temperature, before=test, n_resamples=99)
    assert found.verdict in ("calibrated", "as calibrated as the rows allow")
    assert found.allowed is not None
    isotonic = IsotonicCalibration().fit_predictions(calibration)
    few = test.take(slice(200))
    unknown = metrics.calibration_test(isotonic.apply(few), calibrator=isotonic, before=few, n_resamples=99)
    assert unknown.allowed is None


def test_a_calibrator_that_did_not_make_the_probabilities_is_refused() -> None:
    calibration, test = (rows_of_a_truth(n, 0.0, seed) for n, seed in ((500, 0), (400, 1)))
    fitted = VectorScaling().fit_predictions(calibration)
    p = fitted.apply(test)
    for before in (test.take(slice(0, 300)), test.take(np.arange(400)[::-1]), test.logits[:, :9]):
        with pytest.raises(BadPredictions):
            metrics.calibration_test(p, calibrator=fitted, before=before, n_resamples=99)
    for wrong in ({"calibrator": "vector", "before": test}, {"calibrator": fitted}):
        with pytest.raises(BadPredictions, match="before= the rows"):
            metrics.calibration_test(p, n_resamples=99, **wrong)


@pytest.mark.parametrize("level", [1e-300, 1e-17, 0.5])
def test_a_level_of_nearly_nothing_gives_numbers(level: float) -> None:
    p, y = sample(2, 100, 3)
    found = metrics.calibration_test(p, y, level=level, n_resamples=99)
    assert 0 < found.detectable < 0.3  # before, the bound was the largest draw, or a division by 0
    assert found.tests["ks"].bound < found.tests["ks"].expected * 1.5


def test_few_calibration_rows_are_no_excuse_where_classes_have_other_frequencies() -> None:
    def hospital(rate: float, rows: int, seed: int) -> Predictions:
        rng = np.random.default_rng(seed)
        ill = rng.random(rows) < rate
        logits = 2 * rng.normal(1.5 * ill, 1.0)
        return Predictions(logits[:, None], ill.astype(np.int64))

    fitted = VectorScaling().fit_predictions(hospital(0.1, 300, seed=0))
    for rate, verdicts in ((0.1, ("calibrated", "as calibrated as the rows allow")), (0.25, ("not calibrated",))):
        new = hospital(rate, 4_000, seed=1)
        found = metrics.calibration_test(fitted.apply(new), calibrator=fitted, before=new, n_resamples=199)
        assert found.verdict in verdicts
    adapted = fitted.adapt(frequencies=[0.75, 0.25])
    assert adapted.expects(np.array([3_000.0, 1_000.0]))
    assert not adapted.expects(np.array([3_600.0, 400.0]))
