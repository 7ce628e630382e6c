from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glayers import BadPredictions, GlayersError, metrics
from glayers.metrics import class_tests
from glayers.metrics.calibration_tests import step_down
from glayers.metrics.class_tests import ClassSteps
from glayers.metrics.events import check_rows
from tests.metrics.simulation import sample


@given(seed=st.integers(0, 2**16), n=st.integers(1, 60), k=st.integers(2, 9), digits=st.integers(1, 8))
@settings(max_examples=80, deadline=None)
def test_the_places_of_the_hits_give_the_class_errors(seed: int, n: int, k: int, digits: int) -> None:
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(k), n).round(digits)  # one digit: many equal scores
    y, weights = rng.integers(0, k, n), rng.random(n) + 0.01
    for given_weights in (None, weights):
        steps = ClassSteps.of(check_rows(p, y, given_weights))
        assert steps.ks(y) == pytest.approx(metrics.ks_per_class(p, y, sample_weight=given_weights), abs=1e-12)


def test_it_agrees_with_the_test_of_any_metric() -> None:
    p, y = sample(11, 400, 4, sharpness=1.15)
    made = metrics.classwise_ks_test(p, y, n_resamples=999)
    general = metrics.consistency_test(metrics.classwise_ks, p, y, n_resamples=999)
    assert made.value == pytest.approx(general.value, rel=1e-12)
    assert made.p_value == general.p_value  # the same labels are drawn
    assert made.bound == pytest.approx(general.bound, abs=1e-12)


def test_small_errors_of_many_classes_are_seen_together_where_none_is_seen_alone() -> None:
    p, y = sample(2, 3_000, 60, sharpness=1.25)
    assert metrics.ks_test_per_class(p, y, n_resamples=99).rejected == ()
    assert metrics.classwise_ks_test(p, y, n_resamples=99).p_value == 1 / 100
    assert metrics.classwise_ks_test(p, y, groups=np.arange(3000) // 2, n_resamples=99).p_value == 1 / 100
    calibrated = sample(3, 3_000, 60)
    assert metrics.classwise_ks_test(*calibrated, n_resamples=99).p_value > 0.05


def test_groups_keep_the_level_where_rows_are_copies() -> None:
    rejected = {"without": 0, "with": 0}
    for seed in range(60):
        p, y = sample(seed, 60, 3)
        rows = np.repeat(np.arange(60), 5)
        rejected["without"] += metrics.classwise_ks_test(p[rows], y[rows], n_resamples=39).rejected
        rejected["with"] += metrics.classwise_ks_test(p[rows], y[rows], groups=rows, n_resamples=39).rejected
    assert rejected["without"] > 24
    assert rejected["with"] <= 8  # 3 expected, deviation 1.7


def test_groups_keep_the_level_where_many_classes_have_few_hits() -> None:
    # Signs that change leave a class without hits all but without noise: 40 of 100 were rejected before that was added.
    found = [
        metrics.classwise_ks_test(*sample(seed, 200, 100), groups=np.arange(200) // 2, n_resamples=39).rejected
        for seed in range(30)
    ]
    assert sum(found) <= 5  # 1.5 expected, deviation 1.2


def test_each_class_has_the_sampling_error_of_its_own_dependence() -> None:
    """Groups share the draw between the first two of six classes, and the rows of the others are independent."""
    rng, groups = np.random.default_rng(0), np.repeat(np.arange(40), 50)
    p = np.full((len(groups), 6), 1 / 6)
    y = rng.integers(0, 6, len(groups))
    y = np.where(y < 2, rng.integers(0, 2, 40)[groups], y)
    found = metrics.ks_test_per_class(p, y, groups=groups, n_resamples=99)
    expected = np.array([test.expected for test in found.classes])
    assert expected[:2].min() > 1.5 * expected[2:].max()  # with one dependence for all classes they were alike


def test_rows_that_are_no_probabilities_are_refused() -> None:
    with pytest.raises(BadPredictions, match="must sum to 1"):
        metrics.classwise_ks_test([[0.7, 0.7], [0.2, 0.8]], [0, 1])
    with pytest.raises(BadPredictions, match="n_resamples must be at least 19"):
        metrics.classwise_ks_test([[0.3, 0.7], [0.2, 0.8]], [0, 1], n_resamples=5)
    with pytest.raises(BadPredictions, match="at least 2 different values"):
        metrics.classwise_ks_test([[0.3, 0.7], [0.2, 0.8]], [0, 1], groups=[1, 1])


def test_the_class_that_is_off_is_found_among_many() -> None:
    p, y = sample(2, 2_000, 12)
    y = np.where((y == 7) & (np.arange(2_000) % 2 == 0), 8, y)  # half of class 7 is class 8 in truth
    found = metrics.ks_test_per_class(p, y)
    assert found.rejected == (7, 8)
    assert found.classes[7] == metrics.ks_test(p, y, event=metrics.label(7))
    assert found.together == metrics.classwise_ks_test(p, y)
    assert found.p_value == found.together.p_value
    grouped = metrics.ks_test_per_class(p, y, groups=np.arange(2_000) // 2, method="resampling", n_resamples=199)
    assert grouped.rejected == (7, 8)
    calibrated = metrics.ks_test_per_class(*sample(3, 2_000, 12), n_resamples=199)
    assert calibrated.rejected == ()


def test_the_smallest_corrected_p_value_of_a_calibrated_model_is_uniform() -> None:
    joint, holm = [], []
    for seed in range(100):
        found = metrics.ks_test_per_class(*sample(seed, 200, 2), n_resamples=99, random_state=seed)
        joint.append(min(found.adjusted))
        holm.append(metrics.adjust([test.p_value for test in found.classes]).min())
    assert np.mean(joint) == pytest.approx(0.5, abs=0.1)  # standard error 0.03
    assert np.mean(holm) > 0.6  # two classes say nearly the same, and Holm's method counts them twice


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


@pytest.mark.parametrize("groups", [None, np.arange(400) // 2])
def test_a_class_that_cannot_be_is_found_and_hides_no_other(groups: Any) -> None:
    p, row = np.tile([0.5, 0.3, 0.2, 0.0], (400, 1)), np.arange(400)
    fair = np.select([row % 10 < 5, row % 10 < 8], [0, 1], 2)
    impossible = np.where(row == 0, 3, fair)
    off = np.where(fair == 2, np.where(row == 9, 3, 1), fair)  # 1 where 2 is expected
    how: dict[str, Any] = {"groups": groups, "method": "resampling", "n_resamples": 99}
    assert metrics.ks_test_per_class(p, fair, **how).rejected == ()
    assert metrics.ks_test_per_class(p, impossible, **how).rejected == (3,)
    assert metrics.ks_test_per_class(p, off, **how).rejected == (1, 2, 3)


def test_sure_rows_that_hold_are_no_evidence() -> None:
    p, y = np.tile([1.0, 0.0], (40, 1)), np.zeros(40, dtype=int)
    found = metrics.ks_test_per_class(p, y, n_resamples=99)
    assert (found.rejected, found.p_value, found.adjusted) == ((), 1.0, (1.0, 1.0))
    half = np.array([[1.0, 0.007]], dtype=np.float16).repeat(40, axis=0)  # rows that add up to 1.007
    assert metrics.ks_test_per_class(half, np.arange(40) % 2, n_resamples=99).rejected == (0, 1)


def test_errors_that_are_equal_on_paper_count_as_equal() -> None:
    n = 3_000
    p, y = np.tile([0.3, 0.7], (n, 1)), (np.arange(n) % 10 >= 3).astype(int)
    off = y.copy()
    off[np.flatnonzero(y)[:10]] = 0  # ten more hits than expected
    found = metrics.ks_test_per_class(p, off, method="resampling", n_resamples=199)
    # The running sum has one place, so that hits are all that counts: 900 +- 25.1, and 10 or more away in 69 of 100.
    assert found.p_value == pytest.approx(0.705, abs=0.1)
    assert found.adjusted == pytest.approx([found.p_value] * 2)


def test_groups_keep_the_chance_that_any_class_is_named() -> None:
    named = {"without": 0, "with": 0}
    for seed in range(40):
        p, y = sample(seed, 60, 5)
        rows = np.repeat(np.arange(60), 5)
        how: dict[str, Any] = {"method": "resampling", "n_resamples": 39}
        named["without"] += bool(metrics.ks_test_per_class(p[rows], y[rows], **how).rejected)
        named["with"] += bool(metrics.ks_test_per_class(p[rows], y[rows], groups=rows, **how).rejected)
    assert named["without"] > 20
    assert named["with"] <= 6  # 2 expected, deviation 1.4


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"method": "asymtotic"}, "method"),
        ({"groups": np.arange(200) // 2, "method": "asymptotic"}, "method"),
        ({"n_resamples": 3}, "n_resamples must be at least 19"),
        ({"probabilities": np.full((200, 3), 0.3)}, "sum to"),
    ],
)
def test_what_is_wrong_is_named_before_anything_is_drawn(
    wrong: dict[str, Any], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drawn(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(class_tests, "redraw", drawn)
    p, y = sample(0, 200, 3)
    with pytest.raises(GlayersError, match=named):
        metrics.ks_test_per_class(**{"probabilities": p, "labels": y} | wrong)
