"""Proper scores of a confidence, so that a constant does not look best."""

import numpy as np
import pytest

from glayers import Confidences, compare
from glayers.metrics import scorecard


def answers(n: int = 4000) -> Confidences:
    rng = np.random.default_rng(0)
    true = rng.beta(4, 1, n)
    return Confidences(true, rng.uniform(size=n) < true)


def test_they_are_the_log_loss_and_the_squared_error_of_correct() -> None:
    card = scorecard(Confidences([0.8, 0.6], [True, False]))
    assert card["confidence_nll"] == pytest.approx(-(np.log(0.8) + np.log(0.4)) / 2)
    assert card["confidence_brier"] == pytest.approx((0.04 + 0.36) / 2)


def test_a_constant_confidence_has_the_lowest_ks_and_not_the_lowest_score() -> None:
    rows = answers()
    constant = Confidences(np.full(len(rows), rows.correct.mean()), rows.correct)
    assert scorecard(constant)["ks"] < scorecard(rows)["ks"]
    assert scorecard(constant)["confidence_nll"] > scorecard(rows)["confidence_nll"]
    assert scorecard(constant)["confidence_brier"] > scorecard(rows)["confidence_brier"]


def test_a_wrong_answer_of_full_confidence_costs_infinitely_much() -> None:
    assert scorecard(Confidences([1.0, 0.5], [False, True]))["confidence_nll"] == np.inf


def test_compare_shows_them_and_recommends_by_them() -> None:
    rows = answers()
    found = compare(rows.take(slice(0, 2000)), rows.take(slice(2000, None)), ["temperature", "histogram"])
    scores = {name: found.scorecards[name]["confidence_nll"] for name in found.calibrators}
    assert found.recommended == min(scores, key=lambda name: scores[name])
    assert "confidence NLL" in str(found)
