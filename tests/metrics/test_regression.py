"""Kuiper's error, calibration slope and intercept, observed over expected, and the integrated calibration index."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import minimize
from sklearn.isotonic import isotonic_regression

from glayers import Confidences, Predictions
from glayers.metrics import (
    METRICS,
    StreamingScorecard,
    intervals,
    kuiper,
    label,
    scorecard,
)
from glayers.metrics import ks as ks_error
from glayers.metrics.outcomes import (
    calibration_intercept,
    calibration_slope,
    integrated_calibration_index,
    observed_over_expected,
)
from tests.strategies import Case, cases

NEW = ("kuiper", "calibration_slope", "calibration_intercept", "observed_over_expected", "integrated_calibration_index")
NEITHER = NEW[1:4]


def overconfident(n: int, factor: float = 2.0, shift: float = 0.0, seed: int = 0) -> Predictions:
    """Two classes; the log-odds of the model are `factor` times the true ones, plus `shift`."""
    rng = np.random.default_rng(seed)
    true = rng.normal(size=n)
    return Predictions((factor * true + shift)[:, None], rng.random(n) < 1 / (1 + np.exp(-true)))


def interval_gaps(rows: Confidences) -> float:
    """The gap over every interval of distinct scores, one by one."""
    weights = np.ones(len(rows.confidence)) if rows.weights is None else rows.weights
    residuals = weights / weights.sum() * (rows.confidence - rows.correct)
    largest = 0.0
    for low in rows.confidence:
        for high in rows.confidence[rows.confidence >= low]:
            inside = (rows.confidence >= low) & (rows.confidence <= high)
            largest = max(largest, abs(residuals[inside].sum()))
    return largest


def test_kuiper_by_hand() -> None:
    # The running sum of score - hit is 0.2, then 0.2 + 0.3 = 0.5, then 0.5 - 0.6 - 0.4 = -0.5 (ties together), then
    # -0.5 + 0.9 = 0.4; from its highest to its lowest value it falls by 1.0, over 5 rows.
    rows = Confidences([0.9, 0.2, 0.5, 0.3, 0.5], [0, 0, 1, 0, 1])
    assert kuiper(rows) == pytest.approx((0.5 + 0.5) / 5)
    assert ks_error(rows) == pytest.approx(0.5 / 5)


@given(case=cases(max_rows=25))
@settings(max_examples=30, deadline=None)
def test_kuiper_is_the_largest_gap_over_any_interval(case: Case) -> None:
    p, y, w = case
    rows = Confidences(p.max(axis=1).round(2), p.argmax(axis=1) == y, w)
    assert kuiper(rows) == pytest.approx(interval_gaps(rows), abs=1e-12)
    assert ks_error(rows) - 1e-12 <= kuiper(rows) <= 2 * ks_error(rows) + 1e-12


def test_slope_and_intercept_by_hand() -> None:
    # 4 : 1 comes true at 2 : 1 on both sides, so the slope is log(2) / log(4), and nothing is off on average.
    moderate = Confidences([0.8, 0.8, 0.8, 0.2, 0.2, 0.2], [1, 1, 0, 1, 0, 0])
    assert calibration_slope(moderate) == pytest.approx(0.5, abs=1e-6)
    assert calibration_intercept(moderate) == pytest.approx(0.0, abs=1e-9)
    # 1 : 1 comes true at 3 : 1.
    assert calibration_intercept(Confidences([0.5] * 4, [1, 1, 1, 0])) == pytest.approx(math.log(3), abs=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_slope_and_intercept_are_those_of_a_general_optimiser(weighted: bool) -> None:
    rows = overconfident(400, 1.7, 0.4)
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.2, 3, 400) if weighted else np.ones(400)
    z, hits = rows.logits[:, 0], rows.labels

    def loss(coefficients: Any, slope: float | None = None) -> float:
        log_odds = coefficients[0] + (coefficients[1] if slope is None else slope) * z
        return float(weights @ (np.logaddexp(0, log_odds) - hits * log_odds)) / weights.sum()

    both = minimize(loss, [0.0, 1.0], tol=1e-12).x
    alone = minimize(loss, [0.0], args=(1.0,), tol=1e-12).x
    given_weights = Predictions(rows.logits, rows.labels, weights)
    assert calibration_slope(given_weights, event=label(1)) == pytest.approx(both[1], abs=1e-4)
    assert calibration_intercept(given_weights, event=label(1)) == pytest.approx(alone[0], abs=1e-4)


def test_slope_and_intercept_recover_what_was_done_to_the_log_odds() -> None:
    assert calibration_slope(overconfident(40_000, 2.0), event=label(1)) == pytest.approx(0.5, abs=0.02)
    shifted = overconfident(40_000, 1.0, 0.7)
    assert calibration_slope(shifted, event=label(1)) == pytest.approx(1.0, abs=0.04)
    assert calibration_intercept(shifted, event=label(1)) == pytest.approx(-0.7, abs=0.04)


@pytest.mark.parametrize(
    ("confidence", "correct"),
    [
        ([0.9, 0.8, 0.3, 0.2], [1, 1, 0, 0]),  # separated
        ([0.9, 0.8, 0.3, 0.2], [0, 0, 1, 1]),  # the wrong way round
        ([0.9, 0.8, 0.7], [1, 1, 1]),
        ([0.9, 0.8, 0.7], [0, 0, 0]),
        ([1.0, 1.0, 0.0, 0.0], [1, 0, 1, 0]),
        ([1.0, 1.0, 1.0], [0, 0, 0]),
        ([0.5] * 4, [1, 0, 1, 0]),
        ([0.7], [1]),
    ],
)
def test_numbers_stay_finite_where_the_likelihood_has_no_maximum(confidence: list[float], correct: list[int]) -> None:
    rows = Confidences(confidence, correct)
    for name in NEW:
        assert math.isfinite(scorecard(rows)[name]), name
    assert abs(calibration_intercept(rows)) < 50


def test_separated_scores_have_a_large_slope_of_the_right_sign() -> None:
    assert calibration_slope(Confidences([0.9, 0.8, 0.3, 0.2], [1, 1, 0, 0])) > 5
    assert calibration_slope(Confidences([0.9, 0.8, 0.3, 0.2], [0, 0, 1, 1])) < -5
    assert calibration_slope(Confidences([0.5] * 4, [1, 0, 1, 1])) == pytest.approx(1.0)  # rows do not tell


def test_observed_over_expected_by_hand() -> None:
    assert observed_over_expected(Confidences([0.5, 0.75, 0.75], [1, 0, 0])) == pytest.approx(0.5)
    assert observed_over_expected(Confidences([0.5, 0.75, 0.75], [1, 0, 0], [1, 2, 2])) == pytest.approx(1 / 3.5)
    assert observed_over_expected(Confidences([0.0, 0.0], [0, 0])) == 1.0
    assert observed_over_expected(Confidences([0.0, 0.0], [0, 1])) == math.inf


@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_the_index_is_the_mean_distance_to_an_isotonic_fit(case: Case) -> None:
    p, y, w = case
    scores, hits = p.max(axis=1), p.argmax(axis=1) == y
    _, which = np.unique(scores.round(10), return_inverse=True)  # rows of equal score are one
    held = np.bincount(which, w)
    fitted = isotonic_regression(np.bincount(which, w * hits) / held, sample_weight=held)[which]
    expected = w @ np.abs(scores - fitted) / w.sum()
    assert integrated_calibration_index(p, y, sample_weight=w) == pytest.approx(expected, abs=1e-9)


@given(case=cases(max_rows=30))
@settings(max_examples=25, deadline=None)
def test_weights_of_2_equal_the_row_repeated(case: Case) -> None:
    p, y, _ = case
    weights = 1 + np.arange(len(y)) % 2
    repeated = np.repeat(np.arange(len(y)), weights)
    twice, once = scorecard(p[repeated], y[repeated]), scorecard(p, y, sample_weight=weights)
    for name in NEW:
        assert once[name] == pytest.approx(twice[name], abs=1e-5 if "calibration_" in name else 1e-12), name


def test_intervals_cover_what_was_done_to_the_log_odds() -> None:
    found = intervals(overconfident(2000), event=label(1), metrics=NEW, n_resamples=300)
    assert 0.4 < found["calibration_slope"].low < 0.5 < found["calibration_slope"].high < 0.6
    assert found["calibration_intercept"].low < 0 < found["calibration_intercept"].high
    assert found["observed_over_expected"].low < 1 < found["observed_over_expected"].high
    assert found["kuiper"].low > 0.03
    assert not found["calibration_slope"].unreliable


def test_streamed_slopes_are_near_the_exact_ones() -> None:
    rows = overconfident(20_000)
    streamed = StreamingScorecard(event=label(1))
    streamed.exact_entries = 0
    streamed.update(rows)
    exact = scorecard(rows, event=label(1))
    for name in NEW:
        assert streamed.result()[name] == pytest.approx(exact[name], abs=1e-3), name


def test_metrics_without_a_better_direction_say_so() -> None:
    assert all(METRICS[name].better is None for name in NEITHER)


def test_scores_that_are_all_1_and_right_settle_in_every_resample(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []
    solve = np.linalg.solve

    def counted(*given: Any) -> Any:
        steps.append(1)
        return solve(*given)

    monkeypatch.setattr(np.linalg, "solve", counted)
    labels = np.random.default_rng(0).integers(0, 3, 400)
    found = intervals(np.eye(3)[labels], labels, metrics=["calibration_slope"], progress=False)
    assert found["calibration_slope"].value == pytest.approx(1, abs=0.01)
    assert len(steps) < 50  # the rounding of one resample used to take all 2,000
