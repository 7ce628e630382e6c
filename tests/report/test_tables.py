"""Scorecards become sentences and tables that agree with the numbers."""

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console
from rich.table import Table

from glayers import metrics
from glayers.metrics import Scorecard
from glayers.report.tables import comparison_table, confidence_sentence, interval_table, score_table
from tests.strategies import make_case


def card(confidence: float, accuracy: float, rows: int = 100) -> Scorecard:
    p, y, _ = make_case(0, 20, 3)
    given = metrics.scorecard(p, y)
    return replace(given, by_name={**given, "confidence": confidence, "accuracy": accuracy}, rows=rows)


@pytest.mark.parametrize(
    ("confidence", "accuracy", "said"),
    [
        # Two standard errors: 2 * sqrt(0.9 * 0.1 / 100) = 0.06.
        (0.9, 0.83, "overconfident (mean confidence 90.00 %, accuracy 83.00 %)"),
        (0.9, 0.97, "underconfident (mean confidence 90.00 %, accuracy 97.00 %)"),
        (0.9, 0.85, "neither over- nor underconfident (mean confidence 90.00 %, accuracy 85.00 %)"),
        (0.9, 0.95, "neither over- nor underconfident (mean confidence 90.00 %, accuracy 95.00 %)"),
        (1.0, 0.99, "overconfident (mean confidence 100.00 %, accuracy 99.00 %)"),
        (1.0, 1.0, "neither over- nor underconfident (mean confidence 100.00 %, accuracy 100.00 %)"),
    ],
)
def test_the_sentence_compares_confidence_with_accuracy(confidence: float, accuracy: float, said: str) -> None:
    assert confidence_sentence(card(confidence, accuracy)) == said


def test_more_rows_make_the_sentence_stricter() -> None:
    assert confidence_sentence(card(0.9, 0.88, rows=100)).startswith("neither over- nor underconfident")
    assert confidence_sentence(card(0.9, 0.88, rows=10_000)).startswith("overconfident")


def test_confidence_that_rounds_to_just_above_one_has_a_sentence() -> None:
    assert confidence_sentence(card(1 + 2.3e-16, 0.5)) == "overconfident (mean confidence 100.00 %, accuracy 50.00 %)"


def test_the_sentence_gives_the_scorecards_numbers_in_percent() -> None:
    p = np.array([[0.75, 0.125, 0.125]] * 80)
    y = np.repeat([1, 0], [60, 20])
    assert confidence_sentence(metrics.scorecard(p, y)) == "overconfident (mean confidence 75.00 %, accuracy 25.00 %)"


def test_parts_with_different_numbers_of_classes_share_a_table() -> None:
    console = Console(width=120)
    cards = {name: metrics.scorecard(*make_case(1, 30, k)[:2]) for name, k in (("calibration", 3), ("test", 4))}
    with console.capture() as capture:
        console.print(score_table(cards))
    lines = capture.get().splitlines()
    assert lines[0].split() == ["calibration", "test"]
    assert lines[2].split() == ["classes", "3", "4"]
    assert any(line.startswith("accuracy, top 3 / accuracy, top 4") for line in lines)


def printed(table: Table) -> list[str]:
    console = Console(width=120)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


def test_an_interval_table_has_one_line_per_metric_and_marks_unreliable_ones() -> None:
    p, y, _ = make_case(1, 60, 3)
    found = metrics.intervals(p, y, metrics=["nll", "mce"], n_resamples=50)
    heading, nll, mce, *note = printed(interval_table(found, "test"))
    assert heading.split() == ["test", "95", "%", "interval"]
    assert f"{found['nll'].value:.4f}" in nll
    assert f"{100 * found['mce'].low:.2f} to {100 * found['mce'].high:.2f} % *" in mce
    assert note[0].startswith("* unreliable")


def test_a_comparison_table_has_one_line_per_method() -> None:
    cards = {"uncalibrated": card(0.9, 0.8), "auto": card(0.8, 0.8)}
    heading, *lines, caption = printed(comparison_table(cards, {"auto": 1.25}))
    assert caption.strip() == "* best of its column"
    assert heading.split() == ["confidence", "accuracy", "NLL", "Brier", "KS", "ECE", "seconds"]
    assert [line.split()[:3] for line in lines] == [["uncalibrated", "90.00", "%"], ["auto", "80.00", "%"]]
    assert lines[1].endswith("1.2")


def test_a_narrow_table_loses_columns_and_names_them() -> None:
    cards = {"uncalibrated": card(0.9, 0.8), "auto": card(0.8, 0.85)}
    wide = printed(comparison_table(cards, {"auto": 1.25}))
    heading, _, auto, *caption = printed(comparison_table(cards, {"auto": 1.25}, width=60))
    assert heading.split() == ["confidence", "accuracy", "NLL", "KS"]
    assert " ".join(map(str.strip, caption)) == "* best of its column; too narrow for seconds, ECE, Brier"
    assert max(map(len, (heading, auto))) <= 60 < max(map(len, wide[:3]))
    assert "85.00 %*" in auto  # the best, also without colour
