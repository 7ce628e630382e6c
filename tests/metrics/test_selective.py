"""Metrics of models that may abstain."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from glayers import Confidences
from glayers.metrics import intervals, scorecard
from glayers.metrics.outcomes import aurc, auroc, excess_aurc

BY_COVERAGE = ("aurc", "excess_aurc", "auroc", "accuracy_at_coverage", "coverage_at_accuracy")


def answers(seed: int = 0, n: int = 300) -> Confidences:
    rng = np.random.default_rng(seed)
    confidence = rng.uniform(0.3, 1, n)
    return Confidences(confidence, rng.uniform(size=n) < confidence)


def test_aurc_is_the_mean_error_rate_of_the_surest_rows() -> None:
    rows = answers()
    wrong = ~rows.correct[np.argsort(-rows.confidence)]
    by_hand = np.mean([wrong[: i + 1].mean() for i in range(len(wrong))])
    assert aurc(rows) == pytest.approx(by_hand)


def test_a_perfect_order_has_no_excess() -> None:
    correct = np.arange(1000) < 700
    assert excess_aurc(Confidences(np.linspace(1, 0, 1000), correct)) == pytest.approx(0, abs=1e-3)
    assert auroc(Confidences(np.linspace(1, 0, 1000), correct)) == 1.0


def test_auroc_agrees_with_scikit_learn_with_ties_and_weights() -> None:
    rng = np.random.default_rng(1)
    confidence = rng.integers(0, 10, 400) / 10
    correct = rng.uniform(size=400) < confidence
    weights = rng.uniform(0.1, 3, 400)
    expected = roc_auc_score(correct, confidence, sample_weight=weights)
    assert auroc(Confidences(confidence, correct, weights=weights)) == pytest.approx(expected)


def test_auroc_without_errors_is_one_half() -> None:
    assert auroc(Confidences([0.9, 0.8], [True, True])) == 0.5


def test_accuracy_of_the_surest_and_coverage_at_an_accuracy_by_hand() -> None:
    rows = answers()
    correct = rows.correct[np.argsort(-rows.confidence)]
    card = scorecard(rows)
    assert card["accuracy_at_coverage"] == pytest.approx(correct[:240].mean())
    right = np.cumsum(correct) / np.arange(1, 301) >= 0.95
    assert card["coverage_at_accuracy"] == pytest.approx(np.flatnonzero(right).max(initial=-1) / 300 + 1 / 300)


def test_rows_of_equal_confidence_enter_together() -> None:
    correct = [True, False, True, False]
    shuffled = [False, True, False, True]
    first, second = (scorecard(Confidences([0.7] * 4, hits)) for hits in (correct, shuffled))
    assert [first[name] for name in BY_COVERAGE] == [second[name] for name in BY_COVERAGE]
    assert aurc(Confidences([0.7] * 4, correct)) == 0.5


def test_a_weight_of_2_is_the_row_twice() -> None:
    rows = answers(n=60)
    weights = np.arange(60) % 3
    repeated = Confidences(np.repeat(rows.confidence, weights), np.repeat(rows.correct, weights))
    weighted = Confidences(rows.confidence, rows.correct, weights=weights)
    for name in BY_COVERAGE:
        assert scorecard(weighted)[name] == pytest.approx(scorecard(repeated)[name]), name


def test_scorecard_and_intervals_have_them() -> None:
    rows = answers()
    assert scorecard(rows)["aurc"] == pytest.approx(aurc(rows))
    found = intervals(rows, metrics=["aurc", "auroc"], n_resamples=200)
    assert found["aurc"].low < aurc(rows) < found["aurc"].high
