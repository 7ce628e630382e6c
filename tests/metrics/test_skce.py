from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from glayers import BadPredictions, metrics
from glayers.metrics.skce import _error_of_labels, _rows_to_compare
from tests.metrics.simulation import sample
from tests.strategies import Case, Numbers, cases, make_case


def slow_skce(p: Numbers, y: Numbers, w: Numbers, groups: Numbers, bandwidth: float) -> float:
    """The mean over pairs of rows of different groups, pair by pair."""
    residuals = np.eye(p.shape[1])[y] - p
    total = mass = 0.0
    for i in range(len(y)):
        for j in range(i):
            if groups[i] != groups[j]:
                alike = np.exp(-(((p[i] - p[j]) / bandwidth) ** 2).sum() / 2)
                total += w[i] * w[j] * alike * (residuals[i] @ residuals[j])
                mass += w[i] * w[j]
    return total / mass


@given(case=cases(max_rows=20, max_classes=12))
@settings(max_examples=30, deadline=None)
def test_skce_agrees_with_a_slow_loop(case: Case) -> None:
    p, y, w = case
    n = len(y)
    found = metrics.skce(p, y, sample_weight=w, bandwidth=0.7)
    assert found == pytest.approx(slow_skce(p, y, w, np.arange(n), 0.7), abs=1e-10)
    groups = np.arange(n) // 2 if n > 2 else np.arange(n)
    grouped = metrics.skce(p, y, groups=groups, sample_weight=w, bandwidth=0.7)
    assert grouped == pytest.approx(slow_skce(p, y, w, groups, 0.7), abs=1e-10)


def test_blocks_of_pairs_and_rows_all_but_equal_agree_with_a_slow_loop() -> None:
    p, y, w = make_case(8, 400, 3, ties=True)  # 327 + 73 rows of pairs
    p[50:150], y[50:150] = p[0], 1
    p[50:150, :2] += 1e-10 * np.outer(np.arange(100), [1, -1])  # all but equal: differences of squares lose this
    found = metrics.skce(p, y, sample_weight=w, bandwidth=0.2)
    assert found == pytest.approx(slow_skce(p, y, w, np.arange(400), 0.2), abs=1e-12)


def test_blocks_are_the_mean_over_pairs_that_share_one() -> None:
    p, y, _ = make_case(9, 70, 4)
    found = metrics.skce(p, y, bandwidth=0.5, block_size=20, random_state=5)
    total = pairs = 0.0
    for block in np.array_split(np.random.default_rng(5).permutation(70), 3):
        size = len(block)
        mean = slow_skce(p[block], y[block], np.ones(size), np.arange(size), 0.5)
        total, pairs = total + mean * size * (size - 1), pairs + size * (size - 1)
    assert found == pytest.approx(total / pairs, abs=1e-12)


def test_rows_of_a_group_are_drawn_as_one_where_surprises_are_few() -> None:
    # Ten copies of each row and one miss expected in all: signs rejected a third of calibrated models.
    rejected = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(100), 10)
        sure = 1 - 0.01 * rng.uniform(0.5, 1.5, 100)
        y = (rng.random(100) > sure).astype(int)
        p = np.column_stack([sure, 1 - sure])[groups]
        rejected += metrics.skce_test(p, y[groups], groups=groups, n_resamples=39, block_size=100).rejected
    assert rejected <= 13  # 5 expected at most, standard deviation 2.2


@pytest.mark.parametrize(
    ("labels", "expected"), [([0, 1], 0.0), ([0, 0], 0.0), ([1, 0], -2 * np.exp(-1)), ([1, 1], 0.0)]
)
def test_two_certain_rows_have_the_values_of_the_authors_own_tests(labels: list[int], expected: float) -> None:
    # test/skce.jl of CalibrationErrors.jl (github.com/devmotion/CalibrationErrors.jl): squared exponential kernel.
    found = metrics.skce([[1, 0], [0, 1]], labels, bandwidth=1, block_size=2)
    assert found == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("block_size", [150, 50])
def test_skce_is_zero_on_average_for_a_calibrated_model_and_positive_otherwise(block_size: int) -> None:
    how: dict[str, Any] = {"bandwidth": 0.3, "block_size": block_size}
    fair = [metrics.skce(*sample(seed, 150, 4), **how) for seed in range(150)]
    unfair = [metrics.skce(*sample(seed, 150, 4, sharpness=2), **how) for seed in range(150)]
    assert abs(np.mean(fair)) < 3.5 * np.std(fair) / np.sqrt(150)
    assert np.mean(unfair) > 5 * np.std(unfair) / np.sqrt(150)


@pytest.mark.parametrize("block_size", [180, 60])
def test_calibrated_models_are_rejected_at_the_level(block_size: int) -> None:
    how: dict[str, Any] = {"n_resamples": 99, "block_size": block_size}
    rejected = [metrics.skce_test(*sample(seed, 180, 5), **how).rejected for seed in range(120)]
    assert 1 <= sum(rejected) <= 14  # 6 expected, standard deviation 2.4


@pytest.mark.parametrize("groups", [None, np.arange(100) // 2])
def test_sure_models_that_never_missed_are_not_rejected(groups: Any) -> None:
    # Residuals that change sign know no chance of a miss that was not seen: 90 of 100 calibrated models were rejected.
    sure = np.random.default_rng(0).uniform(0.998, 1, 100)
    test = metrics.skce_test(np.column_stack([sure, 1 - sure]), np.zeros(100, dtype=int), groups=groups)
    assert test.p_value > 0.5


@pytest.mark.parametrize("k", [3, 12])
@pytest.mark.parametrize("weighted", [True, False])
def test_redrawn_labels_have_the_error_of_those_labels(k: int, weighted: bool) -> None:
    p, y, w = make_case(6, 380, k)  # two blocks of pairs
    rows = _rows_to_compare(p, y, w if weighted else None, None)
    drawn = np.stack([y, np.random.default_rng(1).integers(0, k, 380)])
    errors = _error_of_labels(rows, 0.4, 380, np.random.default_rng(1))(drawn)
    for found, labels in zip(errors, drawn, strict=True):
        direct = slow_skce(p, labels, w if weighted else np.ones(380), np.arange(380), 0.4)
        assert found == pytest.approx(direct, abs=1e-12)


def test_a_temperature_off_by_a_fifth_is_found_in_ten_thousand_rows() -> None:
    test = metrics.skce_test(*sample(0, 10_000, 10, sharpness=1.2), n_resamples=199)
    assert test.p_value == 0.005
    assert test.value > test.bound > 0
    assert abs(test.expected) < test.bound / 5


def test_classes_swapped_below_the_top_are_found_though_the_top_class_is_calibrated() -> None:
    p, y = sample(1, 3_000, 4)
    ranking = np.argsort(-p, axis=1)
    claimed = p.copy()
    rows = np.arange(3_000)
    claimed[rows, ranking[:, 1]], claimed[rows, ranking[:, 2]] = p[rows, ranking[:, 2]], p[rows, ranking[:, 1]]
    assert not metrics.ks_test(claimed, y).rejected
    assert metrics.skce_test(claimed, y, n_resamples=99).p_value == 0.01


def test_rows_that_depend_on_each_other_need_groups() -> None:
    rejected = {"without": 0, "with": 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        groups = rng.permutation(np.repeat(np.arange(40), 4))
        p, u = rng.dirichlet(np.ones(3), 40)[groups], rng.random(40)[groups]
        y = (p.cumsum(axis=1) < u[:, None]).sum(axis=1)
        how: dict[str, Any] = {"n_resamples": 99, "bandwidth": 0.3}
        rejected["without"] += metrics.skce_test(p, y, **how).rejected
        rejected["with"] += metrics.skce_test(p, y, groups=groups, **how).rejected
    assert rejected["without"] > 30
    assert rejected["with"] <= 9  # 3 expected, standard deviation 1.7


def test_a_file_sorted_by_class_is_no_evidence() -> None:
    p, y = sample(3, 1_200, 4)
    order = np.argsort(y, kind="stable")
    assert not metrics.skce_test(p[order], y[order], block_size=100, n_resamples=99).rejected


def test_the_bandwidth_is_a_quarter_of_the_median_distance() -> None:
    p, y = sample(5, 40, 3)
    distances = [np.sqrt(((p[i] - p[j]) ** 2).sum()) for i in range(40) for j in range(i)]
    by_hand = metrics.skce(p, y, bandwidth=float(np.median(distances)) / 4)
    assert metrics.skce(p, y) == pytest.approx(by_hand, abs=1e-12)
    same = np.tile([0.5, 0.3, 0.2], (30, 1))  # no two rows differ: every pair is alike
    assert np.isfinite(metrics.skce(same, np.arange(30) % 3))


def test_the_same_seed_gives_the_same_bytes() -> None:
    p, y = sample(6, 300, 3)
    how: dict[str, Any] = {"n_resamples": 39, "block_size": 50}
    assert metrics.skce_test(p, y, **how) == metrics.skce_test(p, y, **how)
    assert metrics.skce_test(p, y, **how) != metrics.skce_test(p, y, random_state=1, **how)


def test_with_the_smallest_bandwidth_only_equal_rows_are_alike() -> None:
    p, y = [[0.625, 0.25, 0.125], [0.625, 0.25, 0.125], [0.25, 0.625, 0.125]], [0, 1, 2]
    # One pair of three is alike: residuals (0.375, -0.25, -0.125) and (-0.625, 0.75, -0.125).
    for bandwidth in (1e-320, 1e-9):
        assert metrics.skce(p, y, bandwidth=bandwidth) == pytest.approx(-0.40625 / 3)


def test_settings_out_of_range_are_refused() -> None:
    p, y, _ = make_case(0, 20, 3)
    with pytest.raises(BadPredictions, match="bandwidth must be a number between 0 and inf; got -1"):
        metrics.skce(p, y, bandwidth=-1)
    with pytest.raises(BadPredictions, match="random_state must be at least 0, a whole number; got -1"):
        metrics.skce(p, y, random_state=-1)
    with pytest.raises(BadPredictions, match="block_size must be at least 2"):
        metrics.skce(p, y, block_size=1)
    with pytest.raises(BadPredictions, match="at least 2 rows; got 1"):
        metrics.skce(p[:1], y[:1])
    with pytest.raises(BadPredictions, match="each row of probabilities must sum to 1"):
        metrics.skce_test(p / 2, y)
    with pytest.raises(BadPredictions, match="n_resamples must be at least 19"):
        metrics.skce_test(p, y, n_resamples=10)
    with pytest.raises(BadPredictions, match="no block holds rows of two different groups"):
        [metrics.skce(p[:4], y[:4], groups=[0, 0, 1, 1], block_size=2, random_state=seed) for seed in range(20)]
