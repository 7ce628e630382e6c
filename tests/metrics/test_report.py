"""Scorecards become a sentence and a table that say what the numbers say."""

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from glayers.metrics import old as metrics
from glayers.metrics.old import Scorecard
from glayers.report.tables import score_table, verdict
from tests.strategies import make_case


def card(confidence: float, accuracy: float, rows: int = 100) -> Scorecard:
    p, y, _ = make_case(0, 20, 3)
    return replace(metrics.scorecard(p, y), confidence=confidence, accuracy=accuracy, rows=rows)


@pytest.mark.parametrize(
    ("confidence", "accuracy", "said"),
    [
        # Two standard errors: 2 * sqrt(0.9 * 0.1 / 100) = 0.06.
        (0.9, 0.83, "overconfident: says 90.0 %, right 83.0 %"),
        (0.9, 0.97, "underconfident: says 90.0 %, right 97.0 %"),
        (0.9, 0.85, "confidence agrees with accuracy on average: says 90.0 %, right 85.0 %"),
        (0.9, 0.95, "confidence agrees with accuracy on average: says 90.0 %, right 95.0 %"),
        (1.0, 0.99, "overconfident: says 100.0 %, right 99.0 %"),
        (1.0, 1.0, "confidence agrees with accuracy on average: says 100.0 %, right 100.0 %"),
    ],
)
def test_the_verdict_compares_confidence_with_accuracy(confidence: float, accuracy: float, said: str) -> None:
    assert verdict(card(confidence, accuracy)) == said


def test_more_rows_make_the_verdict_sharper() -> None:
    assert verdict(card(0.9, 0.88, rows=100)).startswith("confidence agrees")
    assert verdict(card(0.9, 0.88, rows=10_000)).startswith("overconfident")


def test_confidence_that_rounds_to_just_above_one_has_a_verdict() -> None:
    assert verdict(card(1 + 2.3e-16, 0.5)) == "overconfident: says 100.0 %, right 50.0 %"


def test_the_verdict_says_in_percent_what_the_scorecard_holds() -> None:
    p = np.array([[0.75, 0.125, 0.125]] * 80)
    y = np.repeat([1, 0], [60, 20])
    assert verdict(metrics.scorecard(p, y)) == "overconfident: says 75.0 %, right 25.0 %"


def test_parts_with_different_numbers_of_classes_share_a_table() -> None:
    console = Console(width=120)
    cards = {name: metrics.scorecard(*make_case(1, 30, k)) for name, k in (("calibration", 3), ("test", 4))}
    with console.capture() as capture:
        console.print(score_table(cards))
    lines = capture.get().splitlines()
    assert lines[0].split() == ["calibration", "test"]
    assert lines[2].split() == ["classes", "3", "4"]
    assert any(line.startswith("accuracy, top 3 / accuracy, top 4") for line in lines)
