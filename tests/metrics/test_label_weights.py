"""Weights that are a function of the label, as in case-control studies and with class-balanced weights."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from glayers.errors import GlayersWarning
from glayers.metrics import (
    calibration_test,
    ks,
    ks_test,
    one_of,
    within_top,
)
from glayers.metrics.events import check_rows
from glayers.metrics.null_distribution import label_law, redraw
from glayers.predictions import Confidences
from tests.strategies import Numbers


def case_control(rng: np.random.Generator, n: int, rate: float, weight: float) -> tuple[Numbers, Numbers, Numbers]:
    """Probabilities that are calibrated once rows of class 1, this share of the rows, have the weight."""
    log_odds = rng.normal(np.log(rate / (1 - rate)), 1.0, n)  # among the rows
    labels = (rng.random(n) < 1 / (1 + np.exp(-log_odds))).astype(np.int64)
    positive = 1 / (1 + np.exp(-log_odds - np.log(weight)))
    return np.column_stack([1 - positive, positive]), labels, np.where(labels == 1, weight, 1.0)


def test_residuals_have_mean_zero_where_weights_are_a_function_of_the_label() -> None:
    p, y, weights = case_control(np.random.default_rng(0), 400, 0.1, 10.0)
    rows = check_rows(p, y, weights)

    def total(labels: Numbers, drawn_weights: Numbers) -> Numbers:
        return (drawn_weights * ((labels == 1) - p[:, 1])).sum(axis=1)

    drawn = redraw(rows, [total], 4000, np.random.default_rng(0))
    error = drawn.std() / np.sqrt(len(drawn))
    assert abs(drawn.mean()) < 4 * error + 0.002  # a ratio of sums has a bias of about 1 / rows


@pytest.mark.parametrize("weight", [5.0, 30.0])
@pytest.mark.parametrize(
    "test",
    [
        lambda p, y, w, seed: calibration_test(
            p, y, sample_weight=w, n_resamples=79, random_state=seed, progress=False
        ),
        lambda p, y, w, seed: ks_test(p, y, sample_weight=w, n_resamples=39, random_state=seed),
        lambda p, y, w, seed: ks_test(Confidences(p[:, 1], y, w), n_resamples=39, random_state=seed),
    ],
)
def test_calibrated_models_are_seldom_rejected(weight: float, test: Callable[..., Any]) -> None:
    rng = np.random.default_rng(1)
    rejected = [test(*case_control(rng, 500, 0.05, weight), seed).rejected for seed in range(60)]
    assert sum(rejected) <= 9  # of a binomial with a share of 5 %, more have a probability of 0.001


def test_an_error_of_the_weighted_population_is_found() -> None:
    p, y, weights = case_control(np.random.default_rng(2), 2000, 0.05, 10.0)
    assert not calibration_test(p, y, sample_weight=weights, n_resamples=99).rejected
    assert calibration_test(p, y, n_resamples=99).rejected


def test_outcomes_of_every_event_are_those_of_the_labels_drawn() -> None:
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.ones(4), 60)
    y = rng.integers(0, 4, 60)
    by_class = np.array([1.0, 2.0, 4.0, 8.0])
    for event in (within_top(2), one_of([0, 3])):
        found = ks_test(p, y, sample_weight=by_class[y], event=event, n_resamples=99)
        assert found.value == pytest.approx(ks(p, y, sample_weight=by_class[y], event=event))
        assert found.p_value > 0.01 or found.value > found.bound


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_weights_that_are_constant_within_classes_and_differ_between_follow_labels(scale: float) -> None:
    rng = np.random.default_rng(4)
    p = rng.dirichlet(np.ones(3), 40)
    y = np.arange(40) % 2
    by_class = scale * np.where(y == 1, 3.0, 1.0)
    law = label_law(check_rows(p, y, by_class))
    assert law is not None
    assert law.class_weights == pytest.approx([1 / 3, 1.0, 1.0])  # class 2 has no rows
    assert law.probabilities[0] == pytest.approx(p[0] * [3, 1, 1] / (p[0] * [3, 1, 1]).sum())
    assert law.own == pytest.approx(1.0)
    assert label_law(check_rows(p, y, np.full(40, scale))) is None
    assert label_law(check_rows(p, y)) is None
    assert label_law(check_rows(p[:8], y[:8], by_class[:8])) is None  # may be chance


def test_rows_without_weight_stay_without() -> None:
    p, y, weights = case_control(np.random.default_rng(5), 300, 0.2, 4.0)
    ignored = np.arange(300) < 100
    less = np.where(ignored, 0.0, weights)
    found = calibration_test(p, y, sample_weight=less, n_resamples=199)
    kept = calibration_test(p[~ignored], y[~ignored], sample_weight=weights[~ignored], n_resamples=199)
    for name, test in found.tests.items():
        assert test.value == pytest.approx(kept.tests[name].value)
        assert test.bound == pytest.approx(kept.tests[name].bound, rel=0.3)


def test_groups_with_such_weights_are_warned_of_with_a_way_out() -> None:
    p, y, weights = case_control(np.random.default_rng(7), 200, 0.2, 4.0)
    for test in (calibration_test, ks_test):
        with pytest.warns(
            GlayersWarning, match=r"weights are a function of the label, and rows are in groups.*leave out"
        ):
            test(p, y, sample_weight=weights, groups=np.arange(200) // 4)


def times_site(rng: np.random.Generator, n: int) -> Numbers:
    return rng.choice([1.0, 1.5], n)


def times_anything(rng: np.random.Generator, n: int) -> Numbers:
    return np.exp(rng.normal(size=n))


@pytest.mark.parametrize("other", [times_site, times_anything])
def test_weights_with_a_factor_by_label_and_another_keep_the_level(other: Callable[..., Numbers]) -> None:
    # With fixed weights, 48 of 100 such models were rejected (30 positives in 4,000 rows).
    rejected = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        p, y, weights = case_control(rng, 1000, 0.03, 30.0)
        weights = weights * other(rng, 1000)
        rejected += ks_test(p, y, sample_weight=weights, n_resamples=39, random_state=seed).rejected
    assert rejected <= 13  # of a binomial with a share of 5 %, more have a probability of 0.0005


def test_the_factor_of_each_label_is_found_beside_another() -> None:
    rng = np.random.default_rng(8)
    p = rng.dirichlet(np.ones(3), 4000)
    y = (rng.random((4000, 1)) > (p / [1, 2, 8]).cumsum(axis=1) / (p / [1, 2, 8]).sum(axis=1, keepdims=True)).sum(
        axis=1
    )
    by_label = np.array([1.0, 2.0, 8.0])[y]
    law = label_law(check_rows(p, y, by_label * np.exp(rng.normal(size=4000))))
    assert law is not None
    assert law.class_weights == pytest.approx([1 / 8, 1 / 4, 1.0], rel=0.15)


@pytest.mark.parametrize("classes", [2, 10])
def test_weights_that_depend_on_the_row_alone_stay_with_their_rows(classes: int) -> None:
    rng = np.random.default_rng(9)
    p = rng.dirichlet(np.ones(classes), 2000)
    y = (rng.random((2000, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, classes - 1)
    for weights in (p.max(axis=1), np.where(p.argmax(axis=1) == 0, 5.0, 1.0), rng.exponential(size=2000)):
        assert label_law(check_rows(p, y, weights)) is None
