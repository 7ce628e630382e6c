from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.isotonic import IsotonicRegression, isotonic_regression

from glayers import BadPredictions, Confidences, metrics
from glayers.metrics.corp import isotonic
from tests.metrics.simulation import sample
from tests.strategies import Case, cases, make_case

both_scores = pytest.mark.parametrize("score", ["brier", "log"])


@both_scores
@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_the_parts_add_up_and_none_is_negative(score: Any, case: Case) -> None:
    p, y, w = case
    for event in (metrics.top, metrics.label(0), metrics.label(1)):
        parts = metrics.corp(p, y, sample_weight=w, score=score, event=event)
        assert parts.mean_score == pytest.approx(
            parts.miscalibration - parts.discrimination + parts.uncertainty, abs=1e-12
        )
        assert min(parts.miscalibration, parts.discrimination, parts.uncertainty) >= 0


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_recalibration_agrees_with_scikit_learn(case: Case) -> None:
    p, y, w = case
    scores, hits = (
        p.max(axis=1).round(9),
        (p.argmax(axis=1) == y).astype(float),
    )  # scikit-learn pools all but equal ones
    parts = metrics.corp(Confidences(scores, hits, weights=w))
    fitted = IsotonicRegression().fit(scores, hits, w)
    for lower, upper, value in zip(parts.lower, parts.upper, parts.values, strict=True):
        assert fitted.predict([lower, upper]) == pytest.approx([value, value], abs=1e-9)
    assert (np.diff(parts.values) > 0).all()
    assert (parts.upper >= parts.lower).all()
    assert (parts.lower[1:] > parts.upper[:-1]).all()
    assert parts.shares.sum() == pytest.approx(1)


@given(values=st.lists(st.integers(-5, 5), min_size=1, max_size=40), seed=st.integers(0, 99))
@settings(max_examples=100, deadline=None)
def test_pooling_gives_the_nearest_values_that_never_fall(values: list[int], seed: int) -> None:
    weights = np.random.default_rng(seed).uniform(0.1, 2, len(values))
    found = isotonic(np.array(values) * weights, weights)
    expected = isotonic_regression(np.array(values, dtype=float), sample_weight=weights)
    assert found.x == pytest.approx(expected, abs=1e-9)


def test_a_long_climb_before_a_fall_is_pooled_step_by_step() -> None:
    # 0, 1, ..., 99 and then -10000: everything ends up in one block.
    found = isotonic(np.append(np.arange(100.0), -10_000.0), np.ones(101))
    assert found.x == pytest.approx(np.full(101, (4950 - 10_000) / 101))


def test_the_log_score_by_hand() -> None:
    # Scores 1/4, 1/2, 3/4 with hits 1, 0, 1: recalibrated to 1/2, 1/2, 1, overall 2/3.
    parts = metrics.corp(Confidences([0.25, 0.5, 0.75], [1, 0, 1]), score="log")
    given_score = (np.log(4) + np.log(2) + np.log(4 / 3)) / 3
    recalibrated = 2 * np.log(2) / 3
    overall = -(2 * np.log(2 / 3) + np.log(1 / 3)) / 3
    assert parts.mean_score == pytest.approx(given_score)
    assert parts.miscalibration == pytest.approx(given_score - recalibrated)
    assert parts.discrimination == pytest.approx(overall - recalibrated)
    assert parts.uncertainty == pytest.approx(overall)
    assert parts.values.tolist() == [0.5, 1.0]
    assert (parts.lower.tolist(), parts.upper.tolist()) == ([0.25, 0.75], [0.5, 0.75])


def test_mean_scores_are_those_of_the_package() -> None:
    p, y, w = make_case(3, 300, 4)
    by_class = [metrics.corp(p, y, sample_weight=w, event=metrics.label(c)).mean_score for c in range(4)]
    assert np.mean(by_class) == pytest.approx(metrics.brier(p, y, sample_weight=w))
    two, hits = p[:, :2] / p[:, :2].sum(axis=1, keepdims=True), y % 2
    loss = metrics.corp(Confidences(two[:, 1], hits, weights=w), score="log").mean_score
    assert loss == pytest.approx(metrics.nll(two, hits, sample_weight=w))


@both_scores
def test_what_was_recalibrated_is_calibrated_and_discriminates_as_before(score: Any) -> None:
    p, y = sample(1, 400, 3, sharpness=1.5)
    scores, hits = p.max(axis=1), p.argmax(axis=1) == y
    first = metrics.corp(Confidences(scores, hits), score=score)
    again = metrics.corp(Confidences(first.values[np.searchsorted(first.upper, scores)], hits), score=score)
    assert again.miscalibration == pytest.approx(0, abs=1e-12)
    assert again.discrimination == pytest.approx(first.discrimination, abs=1e-12)
    squashed = metrics.corp(Confidences(scores**3, hits), score=score)
    assert squashed.discrimination == pytest.approx(first.discrimination, abs=1e-12)
    assert squashed.miscalibration > first.miscalibration


@both_scores
def test_whole_weights_are_repeated_rows(score: Any) -> None:
    p, y = sample(2, 90, 3)
    times = np.random.default_rng(0).integers(0, 4, 90)
    rows = np.repeat(np.arange(90), times)
    weighted, written = metrics.corp(p, y, sample_weight=times, score=score), metrics.corp(p[rows], y[rows])
    assert weighted.values == pytest.approx(written.values)
    assert weighted.upper.tolist() == written.upper.tolist()


def test_a_true_model_has_little_miscalibration_and_an_overconfident_one_more() -> None:
    fair = metrics.corp(*sample(3, 20_000, 5))
    unfair = metrics.corp(*sample(3, 20_000, 5, sharpness=1.5))
    assert fair.miscalibration < 0.001
    assert unfair.miscalibration > 5 * fair.miscalibration
    assert unfair.discrimination == pytest.approx(fair.discrimination, rel=0.1)


def test_certainty_that_is_wrong_costs_infinitely_much_in_the_log_score() -> None:
    parts = metrics.corp(Confidences([0.0, 0.5, 1.0], [1, 0, 1]), score="log")
    assert parts.mean_score == parts.miscalibration == np.inf
    sure = metrics.corp(Confidences([0.0, 1.0, 1.0], [0, 1, 1]), score="log")
    assert (sure.mean_score, sure.miscalibration) == (0.0, 0.0)
    assert sure.discrimination == sure.uncertainty > 0


def test_a_band_holds_the_recalibrated_values_of_a_calibrated_model_at_its_level() -> None:
    inside = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        scores = np.round(rng.beta(2, 1, 300), 2)
        hits = rng.random(300) < scores
        at, lower, upper = metrics.corp_band(Confidences(scores, hits), n_resamples=100, level=0.9)
        parts = metrics.corp(Confidences(scores, hits))
        values = parts.values[np.searchsorted(parts.upper, at)]
        inside.append(((lower <= values) & (values <= upper)).mean())
    assert 0.86 < np.mean(inside) < 0.95


def test_a_band_leaves_an_overconfident_model_outside() -> None:
    p, y = sample(4, 5_000, 5, sharpness=1.5)
    scores, hits = p.max(axis=1), p.argmax(axis=1) == y
    at, lower, upper = metrics.corp_band(Confidences(scores, hits), n_resamples=100)
    parts = metrics.corp(Confidences(scores, hits))
    values = parts.values[np.searchsorted(parts.upper, at)]
    assert len(at) == 512
    assert (values < lower).mean() > 0.8
    assert ((lower <= at) & (at <= upper)).mean() > 0.95


def test_rows_that_depend_on_each_other_widen_the_band() -> None:
    rng = np.random.default_rng(5)
    groups = np.repeat(np.arange(40), 10)
    scores = rng.choice([0.3, 0.5, 0.7], 40)[groups]
    hits = rng.random(40)[groups] < scores
    _, lower_alone, upper_alone = metrics.corp_band(Confidences(scores, hits))
    _, lower, upper = metrics.corp_band(Confidences(scores, hits, groups=groups))
    assert (upper - lower > 1.5 * (upper_alone - lower_alone)).all()
    assert ((lower >= 0) & (upper <= 1)).all()


def test_a_band_repeats_counted_rows_and_leaves_out_weight_zero() -> None:
    scores, hits = np.array([0.2, 0.5, 0.5, 0.9]), np.array([0, 1, 0, 1])
    rows = np.repeat(np.arange(4), [5, 0, 3, 2])
    weighted, written = (
        metrics.corp_band(Confidences(scores, hits, counts=[5, 0, 3, 2])),
        metrics.corp_band(Confidences(scores[rows], hits[rows])),
    )
    assert weighted[1].tolist() == written[1].tolist()
    assert metrics.corp_band(Confidences(scores, hits, weights=[0.5, 0.0, 0.1, 0.0]))[0].tolist() == [0.2, 0.5]


def test_settings_out_of_range_are_refused() -> None:
    unknown: Any = "hinge"
    with pytest.raises(BadPredictions, match="score must be one of 'brier', 'log'; got 'hinge'"):
        metrics.corp(Confidences([0.5], [1]), score=unknown)
    with pytest.raises(BadPredictions, match="correct must be"):
        metrics.corp(Confidences([0.5], [2]))
    with pytest.raises(BadPredictions, match="n_resamples must be at least 19"):
        metrics.corp_band(Confidences([0.5], [1]), n_resamples=5)
