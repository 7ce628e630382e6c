"""Thresholds that promise an accuracy."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from glayers import BadPredictions, Confidences, Predictions
from glayers.decisions.threshold import threshold


def answers(seed: int, n: int, gap: float = 0.0) -> Confidences:
    """Confidences between 0.5 and 1 whose accuracy is lower by `gap`."""
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.5, 1, n)
    return Confidences(confidence, rng.uniform(size=n) < confidence - gap)


def true_accuracy(confidence: float, gap: float) -> float:
    """Mean of c - gap for c between the threshold and 1."""
    return (max(confidence, 0.5) + 1) / 2 - gap


@pytest.mark.parametrize("n", [200, 2000])
def test_the_promise_is_broken_as_seldom_as_stated(n: int) -> None:
    broken = 0
    draws = 200
    for seed in range(draws):
        found = threshold(answers(seed, n, gap=0.05), accuracy=0.85, level=0.8)
        if found.confidence is not None:
            broken += true_accuracy(found.confidence, 0.05) < 0.85
    assert broken <= binom.ppf(0.999, draws, 0.2)


def test_more_rows_answer_more() -> None:
    few = threshold(answers(0, 300), accuracy=0.9)
    many = threshold(answers(0, 30_000), accuracy=0.9)
    assert many.coverage > few.coverage
    assert many.coverage == pytest.approx(0.4, abs=0.03)  # (c + 1) / 2 = 0.9 at c = 0.8


def test_no_threshold_without_evidence() -> None:
    found = threshold(answers(0, 30), accuracy=0.99)
    assert found.confidence is None
    assert found.coverage == 0
    assert found.accuracy is None
    assert "No threshold" in str(found)


def test_all_rows_are_answered_where_the_model_is_good_enough() -> None:
    found = threshold(Confidences(np.linspace(0.5, 1, 1000), np.ones(1000)), accuracy=0.95)
    assert found.confidence == 0
    assert found.coverage == pytest.approx(1)


def test_groups_of_copies_count_once() -> None:
    rows = answers(1, 200)
    groups = np.arange(200)
    once = threshold(rows, accuracy=0.85)
    copied = Confidences(np.repeat(rows.confidence, 10), np.repeat(rows.correct, 10), groups=np.repeat(groups, 10))
    assert threshold(copied, accuracy=0.85).confidence == pytest.approx(once.confidence, abs=0.02)
    uncounted = Confidences(copied.confidence, copied.correct)
    assert threshold(uncounted, accuracy=0.85).coverage > threshold(copied, accuracy=0.85).coverage


def test_the_surest_rows_may_be_of_one_group() -> None:
    rng = np.random.default_rng(0)
    confidence = np.sort(rng.uniform(0.5, 1, 1000))
    rows = Confidences(confidence, rng.uniform(size=1000) < confidence, groups=np.repeat(np.arange(20), 50))
    assert threshold(rows, accuracy=0.6).coverage >= 0


def test_equal_weights_change_nothing() -> None:
    rows = answers(2, 1000)
    weighted = Confidences(rows.confidence, rows.correct, weights=np.full(1000, 3.0))
    assert threshold(weighted, accuracy=0.85) == threshold(rows, accuracy=0.85)


def test_equal_confidences_are_answered_together() -> None:
    rows = Confidences(np.repeat([0.9, 0.6], 500), np.repeat([True, False], 500))
    found = threshold(rows, accuracy=0.95)
    assert found.coverage == pytest.approx(0.5)
    assert found.confidence is not None
    assert 0.6 < found.confidence <= 0.9


def test_predictions_give_the_threshold_of_their_top_class() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet([0.3, 0.3, 0.3], 2000)
    labels = (rng.random((2000, 1)) > p.cumsum(axis=1)).sum(axis=1).clip(0, 2)
    found = threshold(Predictions.from_probabilities(p, labels), accuracy=0.9)
    assert found.confidence == pytest.approx(threshold(p, labels, accuracy=0.9).confidence)


@pytest.mark.parametrize("accuracy", [0, 1, 95, math.nan, "high"])
def test_impossible_targets_are_refused(accuracy: Any) -> None:
    with pytest.raises(BadPredictions, match="accuracy"):
        threshold([[0.7, 0.3]], [0], accuracy=accuracy)


def test_the_printed_threshold_answers_no_row_that_was_left_out() -> None:
    sure = np.repeat([1.0, 0.9], [300, 600])
    right = np.repeat([True, False, True, False], [297, 3, 500, 100])
    found = threshold(Confidences(sure, right), accuracy=0.9)
    assert found.coverage == pytest.approx(1 / 3)
    printed = float(str(found).split("at least ")[1].split(":")[0])
    assert printed > 0.9


def test_a_model_that_is_accurate_enough_everywhere_needs_no_threshold() -> None:
    confidence = np.linspace(0.5, 1, 1000)
    found = threshold(Confidences(confidence, np.arange(1000) % 20 > 0), accuracy=0.9)  # 19 of 20 are right
    assert found.confidence == 0
    assert str(found).startswith("No threshold is needed for an accuracy of at least 90 %")
    assert "95.00 % of all 1,000 answers are right" in str(found)


def test_few_groups_are_named_as_the_reason_with_the_way_out() -> None:
    rng = np.random.default_rng(0)
    given = Confidences(rng.uniform(0.9, 1, 1800), np.ones(1800, dtype=bool))
    groups = np.arange(1800) % 24
    found = str(threshold(Confidences(given.confidence, given.correct, groups=groups), accuracy=0.95))
    assert "as far as 1,800 rows in 24 groups can tell" in found
    assert "--ignore-groups" in found
    assert "Use more rows" not in found
    assert "Answer" in str(threshold(given, accuracy=0.95)) or "needed" in str(threshold(given, accuracy=0.95))
    alone = str(threshold(given.take(slice(20)), accuracy=0.95))
    assert "as far as 20 rows can tell. Use more rows or a lower target." in alone
