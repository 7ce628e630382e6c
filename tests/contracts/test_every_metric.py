"""Laws that every metric of probabilities, labels and weights obeys: those of the registry, and others by event."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings

from glayers import BadPredictions, Predictions, metrics
from glayers.metrics import METRICS, label, one_of, rank, within_top
from glayers.metrics.events import check_rows
from glayers.metrics.metric import Metric, evaluate_once
from tests.strategies import Case, cases, make_case

Function = Callable[..., float]


def of_registry(metric: Metric) -> Function:
    return lambda p, y, w=None: evaluate_once(check_rows(p, y, w), [metric])[metric.name]


FUNCTIONS: dict[str, Function] = {name: of_registry(metric) for name, metric in METRICS.items()} | {
    "top_2_accuracy": lambda p, y, w=None: metrics.top_k_accuracy(p, y, sample_weight=w, k=2),
    "ks, rank 2": lambda p, y, w=None: metrics.ks(p, y, sample_weight=w, event=rank(2)),
    "ks, within top 2": lambda p, y, w=None: metrics.ks(p, y, sample_weight=w, event=within_top(2)),
    "ks, class 1": lambda p, y, w=None: metrics.ks(p, y, sample_weight=w, event=label(1)),
    "ks, one of 2 classes": lambda p, y, w=None: metrics.ks(p, y, sample_weight=w, event=one_of([0, 1])),
    "mean KS of 2 ranks": lambda p, y, w=None: metrics.mean_top_ks(p, y, sample_weight=w, n_ranks=2),
}
# Of logits, not of probabilities; the laws of rows and weights hold for it too.
WEIGHTED = FUNCTIONS | {
    "nll of logits": lambda p, y, w=None: metrics.nll(Predictions(np.log(p), y, weights=w)),
    "scorecard of logits": lambda p, y, w=None: metrics.scorecard(Predictions(np.log(p), y, weights=w))["nll"],
}
every_metric = pytest.mark.parametrize("metric", FUNCTIONS.values(), ids=FUNCTIONS.keys())


@given(case=cases())
@settings(max_examples=15, deadline=None)
def test_order_scale_and_repetition_of_rows_change_nothing_but_their_weight(case: Case) -> None:
    p, y, w = case
    n = len(y)
    order = np.random.default_rng(0).permutation(n)
    times = np.random.default_rng(1).integers(0, 4, n)
    times[0] = 2
    rows = np.repeat(np.arange(n), times)
    for name, metric in WEIGHTED.items():
        close = 1e-5 if name in ("calibration_slope", "calibration_intercept") else 1e-9  # these are found by iteration
        assert metric(p[order], y[order], w[order]) == pytest.approx(metric(p, y, w), abs=close), name
        assert metric(p, y, times) == pytest.approx(metric(p[rows], y[rows]), abs=close), name
        for equal in (np.full(n, 7), np.full(n, 1 / n)):
            assert metric(p, y, equal) == pytest.approx(metric(p, y), abs=close), name


@pytest.mark.parametrize("metric", WEIGHTED.values(), ids=WEIGHTED.keys())
def test_a_row_of_weight_zero_does_not_count(metric: Function) -> None:
    p, y, _ = make_case(2, 40, 3)
    counts = np.arange(40) % 2
    assert metric(p, y, counts) == pytest.approx(metric(p[1::2], y[1::2]))


@every_metric
def test_float32_and_float16_are_accumulated_in_float64(metric: Function) -> None:
    case = make_case(3, 20_000, 7)
    for dtype, places in ((np.float32, 1e-6), (np.float16, 1e-3)):
        narrow = case.probabilities.astype(dtype)
        # The same rounded numbers held in float64 must give the same result.
        exact = metric(narrow.astype(np.float64), case.labels)
        assert metric(narrow, case.labels) == pytest.approx(exact, rel=1e-6, abs=places * 1e-3)


# Every metric of the registry reads rows that `check_rows` has checked; the others call it themselves.
ONE_OF_EACH_EDGE = pytest.mark.parametrize("name", ["ece", "top_2_accuracy", "ks, one of 2 classes"])


@ONE_OF_EACH_EDGE
@pytest.mark.parametrize("bad", [np.nan, np.inf, -3.0, 7.0])
def test_values_that_are_no_probabilities_are_refused(name: str, bad: float) -> None:
    case = make_case(4, 30, 3)
    broken = np.full_like(case.probabilities, bad)
    with pytest.raises(BadPredictions, match="probabilities must be finite and lie between 0 and 1"):
        FUNCTIONS[name](broken, case.labels)


@ONE_OF_EACH_EDGE
def test_bad_shapes_labels_and_weights_are_refused(name: str) -> None:
    metric = FUNCTIONS[name]
    p, y, w = make_case(5, 30, 3)
    with pytest.raises(BadPredictions, match=r"^probabilities must be real numbers"):
        metric(p.astype(str), y)
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
def test_lists_and_one_row_are_enough(metric: Function) -> None:
    assert np.isfinite(metric([[0.7, 0.2, 0.1]], [0]))
    assert np.isfinite(metric([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]))
