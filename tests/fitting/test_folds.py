"""Folds: rows dealt out evenly, blind to labels, groups whole; training and held-out rows share nothing."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glayers import GlayersError
from glayers.fitting.folds import assign_folds, fold_weights, format_gain, paired_gain


@given(seed=st.integers(0, 1000), rows=st.integers(2, 200), n_folds=st.integers(2, 7))
@settings(max_examples=60, deadline=None)
def test_rows_are_dealt_out_evenly(seed: int, rows: int, n_folds: int) -> None:
    counts = np.bincount(assign_folds(rows, None, n_folds, random_state=seed))
    assert len(counts) == min(n_folds, rows)
    assert np.ptp(counts) <= 1


def test_a_class_that_is_frequent_by_chance_is_no_more_so_where_held_out() -> None:
    # Five classes of equal chance. How often each comes in the training rows must not tell how often it comes in the
    # held-out ones: learned there, used here, the frequencies of 100 rows cost what they cost on new rows.
    gains = []
    for seed in range(200):
        labels = np.random.default_rng(seed).integers(0, 5, 100)
        folds = assign_folds(100, None, 5, seed)
        for fold in range(5):
            frequencies = (np.bincount(labels[folds != fold], minlength=5) + 1) / 85
            gains.append(np.log(5 * frequencies[labels[folds == fold]]).mean())
    # 4 free shares from 80 rows cost 4 / (2 * 80) = 0.025 each row; the mean of so many folds is known to 0.004
    assert np.mean(gains) == pytest.approx(-0.025, abs=0.012)


@given(seed=st.integers(0, 2**32 - 1), n_groups=st.integers(2, 30), n_folds=st.integers(2, 5))
@settings(max_examples=30, deadline=None)
def test_groups_are_never_split(seed: int, n_groups: int, n_folds: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, n_groups, 90)
    groups[:2] = [0, 1]
    folds = assign_folds(90, groups, n_folds, random_state=0)
    for group in np.unique(groups):
        assert len(set(folds[groups == group])) == 1
    assert len(set(folds)) == min(n_folds, len(np.unique(groups)))


def test_groups_may_be_names_and_the_large_ones_go_apart() -> None:
    groups = np.array(["a", "a", "b", "b", "c", "c", "d"])
    folds = assign_folds(7, groups, n_folds=3, random_state=1)
    assert folds[0] == folds[1]
    assert folds[2] == folds[3]
    assert folds[4] == folds[5]
    assert len(set(folds)) == 3


def test_the_same_seed_gives_the_same_folds_and_another_does_not() -> None:
    one, same, other = (assign_folds(50, None, 5, seed) for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


def test_fewer_rows_than_folds_leave_one_row_out_each() -> None:
    folds = assign_folds(3, None, n_folds=5, random_state=0)
    assert sorted(folds) == [0, 1, 2]


def test_impossible_folds_are_refused() -> None:
    with pytest.raises(GlayersError, match="n_folds must be at least 2, a whole number; got 1"):
        assign_folds(3, None, n_folds=1, random_state=0)
    with pytest.raises(GlayersError, match="at least 2 rows, one to hold out; got 1"):
        assign_folds(1, None, n_folds=5, random_state=0)
    with pytest.raises(GlayersError, match="at least 2 different values"):
        assign_folds(3, np.array([7, 7, 7]), n_folds=3, random_state=0)


def test_weights_by_hand() -> None:
    # Fold 0 holds out rows 0 and 2, of weight 1 and 3; it trains on rows 1 and 3, of weight 2 and 2.
    train, held_out = fold_weights(np.array([0, 1, 0, 1]), np.array([1.0, 2.0, 3.0, 2.0]))
    assert train.tolist() == [[0, 0.5, 0, 0.5], [0.25, 0, 0.75, 0]]
    assert held_out.tolist() == [[0.25, 0, 0.75, 0], [0, 0.5, 0, 0.5]]


def test_training_and_held_out_rows_share_nothing_and_leave_nothing_out() -> None:
    train, held_out = fold_weights(assign_folds(31, None, 5, 0), None)
    assert not ((train > 0) & (held_out > 0)).any()
    assert ((train > 0) | (held_out > 0)).all()
    assert ((held_out > 0).sum(axis=0) == 1).all()
    assert train.sum(axis=1) == pytest.approx(1.0)
    assert held_out.sum(axis=1) == pytest.approx(1.0)


@pytest.mark.parametrize("weights", [[1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]])
def test_a_fold_without_weight_is_refused(weights: list[float]) -> None:
    with pytest.raises(GlayersError, match="no weight to train on or to hold out"):
        fold_weights(np.array([0, 1, 0, 1]), np.array(weights))


def test_the_gain_is_paired_and_its_error_is_that_of_a_mean() -> None:
    before = np.array([2.0, 3.0, 4.0, 9.0, 2.0, 1.0, 5.0, 4.0, 3.0])
    after = np.array([1.0, 1.0, 4.0, 3.0, 2.0, 2.0, 4.0, 1.0, 1.0])
    gains = before - after  # 1, 2, 0, 6, 0, -1, 1, 3, 2: 14 together
    gain, error = paired_gain(before, after, None, None)
    assert gain == pytest.approx(14 / 9)
    assert error == pytest.approx(gains.std(ddof=1) / 3)


def test_rows_of_no_weight_and_rows_of_one_group_tell_nothing_more() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 40))
    few = paired_gain(before[:20], after[:20], None, None)
    assert paired_gain(before, after, np.where(np.arange(40) < 20, 3.0, 0.0), None) == pytest.approx(few)
    spoilt = np.where(np.arange(40) < 20, after, np.inf)
    assert paired_gain(before, spoilt, np.where(np.arange(40) < 20, 3.0, 0.0), None) == pytest.approx(few)
    twenty_times = np.repeat(np.arange(40), 20)
    grouped = paired_gain(before[twenty_times], after[twenty_times], None, twenty_times)
    assert grouped == pytest.approx(paired_gain(before, after, None, None))


def test_few_observations_are_no_evidence_however_many_rows_they_are() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 300))
    one_group = np.concatenate([np.zeros(298), [1, 2]])  # worth 300^2 / (298^2 + 2) = 1.01 groups
    one_weight = np.ones(300)
    one_weight[17] = 1e4  # worth 10,299^2 / (1e8 + 299) = 1.06 rows
    seven = np.arange(300) % 7
    for weights, groups in ((None, one_group), (one_weight, None), (None, seven), (None, np.zeros(300))):
        gain, error = paired_gain(before, after, weights, groups)
        assert gain == pytest.approx(np.average(before - after, weights=weights))
        assert error == np.inf
    assert np.isfinite(paired_gain(before[:296], after[:296], None, np.arange(296) % 8)[1])


@given(n=st.integers(1, 30), scale=st.floats(1e-6, 1e6))
def test_from_eight_equal_observations_on_there_is_an_error(n: int, scale: float) -> None:
    before = np.random.default_rng(n).normal(size=n)
    assert np.isfinite(paired_gain(before, np.zeros(n), np.full(n, scale), None)[1]) == (n >= 8)


@pytest.mark.parametrize("size", [1e200, 1e300])
def test_losses_too_large_to_square_are_no_evidence(size: float) -> None:
    before, after = np.random.default_rng(0).uniform(size=(2, 50))
    assert paired_gain(size * before, size * after, None, None) == (0.0, np.inf)


@pytest.mark.parametrize("far", [np.inf, -np.inf, np.nan])
def test_losses_that_are_no_numbers_are_no_evidence(far: float) -> None:
    before = np.ones(20)
    after = np.where(np.arange(20) == 3, far, 0.0)
    assert paired_gain(before, after, None, None) == (0.0, np.inf)
    assert paired_gain(after, after, None, None) == (0.0, np.inf)


def test_a_gain_without_an_error_says_why() -> None:
    assert format_gain(0.25, 0.125) == "0.25 +- 0.12"
    assert format_gain(0.25, np.inf) == "0.25 (too few rows or groups for a standard error)"
