"""Laws that every metric of (probabilities, labels, weights) obeys."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from glayers import BadPredictions
from glayers.metrics import old as metrics
from tests.strategies import Case, cases, make_case

METRICS: dict[str, Callable[..., float]] = {
    "accuracy": metrics.accuracy,
    "top_2_accuracy": lambda p, y, w=None: metrics.top_k_accuracy(p, y, w, k=2),
    "nll": metrics.nll,
    "brier": metrics.brier,
    "brier_sum": metrics.brier_sum,
    "spherical": lambda p, y, w=None: metrics.proper_scores(p, y, w).spherical,
    "ks": metrics.ks_error,
    "ks_rank_2": lambda p, y, w=None: metrics.ks_error(p, y, w, rank=2),
    "ks_within_top_2": lambda p, y, w=None: metrics.ks_within_top(p, y, 2, w),
    "mean_top_2_ks": lambda p, y, w=None: metrics.mean_top_ks(p, y, w, ranks=2),
    "classwise_ks": metrics.classwise_ks,
    "subset_ks": lambda p, y, w=None: metrics.subset_ks(p, y, [0, 1], w),
    "ece": metrics.ece,
    "ece_equal_mass": lambda p, y, w=None: metrics.ece(p, y, w, binning="equal_mass"),
    "mce": metrics.mce,
    "rms": metrics.rms_calibration_error,
    "debiased_ece": metrics.debiased_ece,
    "debiased_rms": metrics.debiased_rms_calibration_error,
    "classwise_ece": metrics.classwise_ece,
    "smooth_ece": metrics.smooth_ece,
}

# Of logits, not of probabilities; all that is said of rows and weights holds for it too.
WEIGHTED = METRICS | {
    "nll_from_logits": lambda p, y, w=None: metrics.nll_from_logits(np.log(p), y, w),
    "scorecard_nll": lambda p, y, w=None: metrics.scorecard_from_logits(np.log(p), y, w).nll,
}

every_weighted_metric = pytest.mark.parametrize("metric", WEIGHTED.values(), ids=WEIGHTED.keys())
every_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS.keys())


@every_weighted_metric
@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_the_order_of_rows_does_not_matter(metric: Callable[..., float], case: Case) -> None:
    order = np.random.default_rng(0).permutation(len(case.labels))
    shuffled = metric(case.probabilities[order], case.labels[order], case.weights[order])
    assert metric(*case) == pytest.approx(shuffled, abs=1e-9)


@every_weighted_metric
@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_weights_are_repeated_rows(metric: Callable[..., float], case: Case) -> None:
    times = np.random.default_rng(1).integers(0, 4, len(case.labels))
    times[0] = 2
    rows = np.repeat(np.arange(len(times)), times)
    assert metric(case.probabilities, case.labels, times) == pytest.approx(
        metric(case.probabilities[rows], case.labels[rows]), abs=1e-9
    )


@every_weighted_metric
@given(case=cases())
@settings(max_examples=10, deadline=None)
def test_equal_weights_are_no_weights(metric: Callable[..., float], case: Case) -> None:
    rows = len(case.labels)
    expected = metric(case.probabilities, case.labels)
    for equal in (np.ones(rows), np.full(rows, 1 / rows)):
        # The debiased RMS is a root near 0, where rounding of 1e-16 becomes 1e-8.
        assert metric(case.probabilities, case.labels, equal) == pytest.approx(expected, abs=1e-7)


@every_weighted_metric
def test_a_row_of_weight_zero_does_not_count(metric: Callable[..., float]) -> None:
    p, y, _ = make_case(2, 40, 3)
    counts = np.arange(40) % 2
    assert metric(p, y, counts) == pytest.approx(metric(p[1::2], y[1::2]))


@every_metric
def test_float32_and_float16_are_accumulated_in_float64(metric: Callable[..., float]) -> None:
    case = make_case(3, 20_000, 7)
    for dtype, places in ((np.float32, 1e-6), (np.float16, 1e-3)):
        narrow = case.probabilities.astype(dtype)
        # The same rounded numbers held in float64 must give the same result.
        exact = metric(narrow.astype(np.float64), case.labels)
        assert metric(narrow, case.labels) == pytest.approx(exact, rel=1e-6, abs=places * 1e-3)


@every_metric
@pytest.mark.parametrize("bad", [np.nan, np.inf, -3.0, 7.0])
def test_values_that_are_no_probabilities_are_refused(metric: Callable[..., float], bad: float) -> None:
    case = make_case(4, 30, 3)
    broken = np.full_like(case.probabilities, bad)
    with pytest.raises(BadPredictions, match="between 0 and 1"):
        metric(broken, case.labels)


@every_metric
def test_bad_shapes_labels_and_weights_are_refused(metric: Callable[..., float]) -> None:
    p, y, w = make_case(5, 30, 3)
    with pytest.raises(BadPredictions, match="shape"):
        metric(p[:, 0], y)
    with pytest.raises(BadPredictions, match="at least 1 row"):
        metric(p[:0], y[:0])
    with pytest.raises(BadPredictions, match=r"0\.\.2; row 0 has 3"):
        metric(p, y * 0 + 3)
    with pytest.raises(BadPredictions, match="one-hot"):
        metric(p, np.eye(3)[y])
    with pytest.raises(BadPredictions, match="weights"):
        metric(p, y, w[:-1])
    with pytest.raises(BadPredictions, match="not negative"):
        metric(p, y, -w)
    with pytest.raises(BadPredictions, match="all be zero"):
        metric(p, y, w * 0)


@every_metric
def test_lists_and_two_rows_are_enough(metric: Callable[..., float]) -> None:
    assert np.isfinite(metric([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]))
