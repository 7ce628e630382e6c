"""Intervals that cover too little say why they should not be trusted."""

import numpy as np
import pytest

from glayers.metrics import intervals
from tests.metrics.simulation import sample


def test_few_different_scores_are_flagged() -> None:
    rng = np.random.default_rng(0)
    score = rng.choice([0.6, 0.7, 0.8, 0.9], 2000)
    labels = (rng.random(2000) < score - 0.2).astype(np.int64)  # overconfident by 20 points: no other reason
    p = np.column_stack([1 - score, score])
    assert intervals(p, labels, metrics=["ks"], n_resamples=99)["ks"].unreliable == "few different scores: 4"


def test_groups_of_copies_are_flagged_and_groups_of_different_rows_not() -> None:
    p, y = sample(1, 1000, 4, sharpness=2.5)
    groups = np.repeat(np.arange(1000), 5)
    copies = intervals(p.repeat(5, axis=0), y.repeat(5), groups=groups, metrics=["ks"], n_resamples=999)
    assert copies["ks"].unreliable == "rows of a group are copies"
    apart = intervals(p, y, groups=np.arange(1000) // 5, metrics=["ks"], n_resamples=999)
    assert apart["ks"].unreliable == ""


@pytest.mark.parametrize("metric", ["classwise_ks", "classwise_ece"])
def test_class_wise_errors_of_two_classes_are_flagged(metric: str) -> None:
    p, y = sample(2, 4000, 2, sharpness=4.0)
    tilted = np.column_stack([p[:, 0] ** 2, p[:, 1]])  # the two largest gaps differ, so resamples are not biased
    tilted /= tilted.sum(axis=1, keepdims=True)
    found = intervals(tilted, y, metrics=[metric, "ks"], n_resamples=99)
    assert found["ks"].unreliable == ""
    assert found[metric].unreliable in ("class-wise with two classes", "the resamples are biased")


def test_ece_is_trusted_only_far_from_zero() -> None:
    reasons = set()
    for seed in range(25):  # two of them have no other flag, and miss
        p, y = sample(seed, 1000, 2, sharpness=1.5)
        reasons.add(intervals(p, y, metrics=["ece"], n_resamples=199, random_state=seed)["ece"].unreliable)
    assert "" not in reasons
    p, y = sample(0, 10_000, 4, sharpness=2.5)
    assert intervals(p, y, metrics=["ece"], n_resamples=499)["ece"].unreliable == ""
