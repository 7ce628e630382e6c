"""Tests with groups: the level whatever their dependence and sizes, and the power of many rows per group."""

import math
from typing import Any

import numpy as np
import pytest

from glayers import Confidences, metrics
from glayers.metrics import label, rank
from glayers.report.verdict import ks_sentence
from tests.metrics.simulation import sample
from tests.strategies import Numbers


def uneven_groups(n_groups: int) -> Numbers:
    """Sizes that fall as in Zipf's law; the largest group has a quarter of about 800 rows."""
    sizes = np.maximum(1, 200 / np.arange(1, n_groups + 1) ** 1.2).astype(int)
    return np.repeat(np.arange(n_groups), sizes)


def labels_of_groups(p: Numbers, groups: Numbers, rng: np.random.Generator) -> Numbers:
    """One draw per group: rows of a group depend as strongly as they can."""
    reached = p.cumsum(axis=1)
    return np.minimum((reached < rng.random(groups.max() + 1)[groups, None]).sum(axis=1), p.shape[1] - 1)


@pytest.mark.parametrize("event", [rank(2), rank(3), label(0)], ids=str)
def test_groups_of_uneven_size_keep_the_level(event: metrics.Event) -> None:
    groups, rejected = uneven_groups(200), 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        p = sample(seed, 200, 10, scale=3.0)[0][groups]  # copies of one row in each group
        y = labels_of_groups(p, groups, rng)
        rejected += metrics.ks_test(p, y, groups=groups, event=event, n_resamples=39, random_state=seed).rejected
    assert rejected <= 12  # 5 expected, deviation 2.2; with signs of groups 11 to 22


@pytest.mark.parametrize("copies", [True, False])
def test_eight_groups_keep_the_level_of_an_event_that_few_of_them_show(copies: bool) -> None:
    groups, rejected = np.repeat(np.arange(8), 50), 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        scores = rng.uniform(0, 0.2, 400)
        hits = (rng.random(8)[groups] if copies else rng.random(400)) < scores
        rows = Confidences(scores, hits, groups=groups)
        rejected += metrics.ks_test(rows, n_resamples=39, random_state=seed).rejected
    assert rejected <= 12


def test_groups_that_err_in_opposite_ways_at_low_and_high_scores_keep_the_level() -> None:
    groups, rejected = np.repeat(np.arange(16), 100), 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        scores = rng.uniform(0.2, 0.8, 1600)
        lean = rng.choice([-0.15, 0.15], 16)[groups] * np.sign(scores - 0.5)
        rows = Confidences(scores, rng.random(1600) < scores + lean, groups=groups)
        rejected += metrics.ks_test(rows, n_resamples=39, random_state=seed).rejected
    assert rejected <= 9  # 3 expected, deviation 1.7; 35 if sums of whole groups were compared


@pytest.mark.parametrize("off", [-0.147, 0.147])
def test_sixteen_images_show_that_their_pixels_are_off(off: float) -> None:
    rng = np.random.default_rng(0)
    images = np.repeat(np.arange(16), 1000)
    scores = rng.uniform(0.2, 0.8, len(images))
    rate = scores + off + rng.normal(0, 0.018, 16)[images]
    rows = Confidences(scores, rng.random(len(images)) < rate, groups=images)
    found = metrics.ks_test(rows)
    assert found.p_value < 0.01
    assert found.bound < found.value / 2
    assert metrics.calibration_test(rows, n_resamples=99).rejected


def test_few_groups_that_may_fail_as_a_whole_keep_the_level() -> None:
    rejected = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        groups, scores = np.repeat(np.arange(16), 50), rng.uniform(0.4, 0.85, 800)
        fails = (rng.random(16) < 0.1)[groups]
        hits = rng.random(800) < np.where(fails, 0.0, scores / 0.9)
        rejected += metrics.ks_test(
            Confidences(scores, hits, groups=groups), n_resamples=39, random_state=seed
        ).rejected
    assert rejected <= 15  # 11 are; 24 if failures that no group showed were left out


def test_a_failure_that_no_group_happened_to_show_may_explain_that_all_are_better() -> None:
    """Each group has 92 hits of 100 at a score of 0.84; a group with fewer would make up for all of them."""
    for n_groups, explained in ((16, True), (40, False)):
        groups = np.repeat(np.arange(n_groups), 100)
        hits, scores = np.arange(100 * n_groups) % 100 >= 8, np.full(100 * n_groups, 0.84)
        alone = metrics.ks_test(Confidences(scores, hits))
        found = metrics.ks_test(Confidences(scores, hits, groups=groups))
        assert alone.p_value < 0.001
        assert found.rejected is not explained
        assert (found.value > found.bound) is found.rejected
        # A group that fails lacks 0.6 of its expected hits.
        assert found.p_value == pytest.approx((0.6 * 0.84 / (0.6 * 0.84 + 0.08)) ** n_groups)
        # Rows of their own prove the error without the groups.
        more = Confidences(np.tile(scores, 2), np.tile(hits, 2), groups=np.append(groups, 1_000 + np.arange(len(hits))))
        assert metrics.ks_test(more).rejected
        # Claims that are too high need no unseen group of misses: the scores leave little room for more hits.
        assert metrics.ks_test(Confidences(np.full(len(hits), 0.98), hits, groups=groups)).rejected


def test_independent_rows_lose_little_by_groups() -> None:
    p, y = sample(0, 4_000, 5, sharpness=1.3)
    none: dict[str, Any] = {}
    some: dict[str, Any] = {"groups": np.arange(4_000) // 100}
    for test in (metrics.ks_test, metrics.ece_test):
        alone, grouped = (test(p, y, n_resamples=99, **how) for how in (none, some))
        assert grouped.p_value == 0.01
        assert grouped.bound < 1.7 * alone.bound


def test_fewer_than_eight_groups_are_too_few_to_tell() -> None:
    p, y = sample(1, 420, 3, sharpness=3.0)
    draws: dict[str, Any] = {"groups": np.arange(420) % 7, "n_resamples": 19}
    found = [
        metrics.ks_test(p, y, **draws),
        metrics.ece_test(p, y, **draws),
    ]
    for test in found:
        assert test.too_few_groups
        assert not test.rejected
        assert math.isnan(test.p_value)
        assert "too few groups to tell" in str(test)
        assert "too few groups to tell" in ks_sentence(test)
        assert "within" not in ks_sentence(test)
    assert found[0].value == pytest.approx(metrics.ks(p, y), rel=1e-12)
    uneven = np.minimum(np.arange(420) // 2, 50)  # 51 groups, of which one has three quarters of the rows
    assert metrics.ks_test(p, y, groups=uneven).too_few_groups
    assert not metrics.ks_test(p, y, groups=np.arange(420) % 8).too_few_groups


def test_groups_of_sure_rows_and_rows_of_no_weight_are_no_trouble() -> None:
    groups, hits = np.arange(40) // 2, np.arange(40) % 5 > 0
    sure = metrics.ks_test(Confidences(hits.astype(float), hits, groups=groups))
    assert (sure.value, sure.p_value, sure.bound) == (0.0, 1.0, 0.0)
    p, y = sample(5, 40, 3)
    weights = np.where(p.max(axis=1) < np.median(p.max(axis=1)), 0.0, 1.0)  # the lowest scores have no weight
    counted = weights > 0
    for test in (metrics.ks_test, metrics.ece_test):
        all_rows = test(p, y, sample_weight=weights, groups=groups, n_resamples=99)
        alone = test(p[counted], y[counted], groups=groups[counted], n_resamples=99)
        assert all_rows.value == pytest.approx(alone.value, abs=1e-12)
        assert all_rows.p_value == pytest.approx(alone.p_value, abs=0.2)


def test_few_expected_surprises_have_their_exact_p_value() -> None:
    # One hit in 20 rows; any hit has probability 1 - 0.93 * 0.999^19 = 0.0875, and Brownian motion would say 0.03.
    scores, hits = np.append(np.full(19, 0.001), 0.07), np.append(np.zeros(19), 1)
    assert metrics.ks_test(Confidences(scores, hits), n_resamples=4000).p_value == pytest.approx(0.0875, abs=0.015)
