import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glayers import BadPredictions, metrics
from glayers.metrics.calibration_tests import _class_errors_of_labels, step_down
from glayers.metrics.events import check_rows
from tests.metrics.simulation import sample


@given(seed=st.integers(0, 2**16), n=st.integers(1, 60), k=st.integers(2, 9), digits=st.integers(1, 8))
@settings(max_examples=80, deadline=None)
def test_the_places_of_the_hits_give_the_class_errors(seed: int, n: int, k: int, digits: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(k), n).round(digits) + 10.0**-digits  # one digit: many equal scores
    p /= p.sum(axis=1, keepdims=True)
    y, weights = rng.integers(0, k, n), rng.random(n) + 0.01
    for given_weights in (None, weights):
        rows = check_rows(p, y, given_weights)
        found = _class_errors_of_labels(rows)(rows.labels)
        assert found == pytest.approx(metrics.ks_per_class(p, y, sample_weight=given_weights), abs=1e-12)


def test_small_errors_of_many_classes_are_seen_together_where_none_is_seen_alone() -> None:
    p, y = sample(4, 400, 30, sharpness=1.4)
    alone = [metrics.ks_test(p, y, event=metrics.label(c)).p_value for c in range(30)]  # of 1,000 draws: 0.03 or more
    assert metrics.adjust(alone).min() > 0.05
    assert metrics.classwise_ks_test(p, y, n_resamples=99).p_value == 1 / 100
    calibrated = sample(3, 400, 30)
    assert metrics.classwise_ks_test(*calibrated, n_resamples=99).p_value > 0.05


def test_rows_that_are_no_probabilities_are_refused() -> None:
    with pytest.raises(BadPredictions, match="must sum to 1"):
        metrics.classwise_ks_test([[0.7, 0.7], [0.2, 0.8]], [0, 1])
    with pytest.raises(BadPredictions, match="n_resamples must be at least 19"):
        metrics.classwise_ks_test([[0.3, 0.7], [0.2, 0.8]], [0, 1], n_resamples=5)


@given(seed=st.integers(0, 2**16), k=st.integers(1, 6), ties=st.booleans())
@settings(max_examples=60, deadline=None)
def test_step_down_agrees_with_a_slow_loop(seed: int, k: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    values, drawn = rng.random(k), rng.random((25, k))
    if ties:
        values, drawn = values.round(1), drawn.round(1)
    slow = np.ones(k)
    for c in range(k):
        # A class is rejected only with all that are larger: its p-value is the largest of theirs.
        larger = [d for d in range(k) if values[d] > values[c]] + [c]
        slow[c] = max(
            (1 + sum(max(row[e] for e in range(k) if values[e] <= values[d]) >= values[d] for row in drawn)) / 26
            for d in larger
        )
    assert step_down(values, drawn) == pytest.approx(slow)
