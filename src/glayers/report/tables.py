"""Scorecards, intervals, tests and methods -> tables and sentences for the terminal."""

import math
from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from glayers.metrics import METRICS, CalibrationTest, Intervals, Scorecard
from glayers.report import p_text

_COMPARED = ("confidence", "accuracy", "nll", "brier", "ks", "ece")


def score_table(cards: Mapping[str, Scorecard]) -> Table:
    """Return a table with one line per metric and one column per set of predictions."""
    table = _plain_table(*cards)
    for lines in zip(*(card.printed().items() for card in cards.values()), strict=True):
        metric = " / ".join(dict.fromkeys(name for name, _ in lines))  # "top 3 / top 5" if numbers of classes differ
        table.add_row(metric, *(value for _, value in lines))
    return table


def interval_table(found: Intervals, name: str) -> Table:
    """Return a table with one line per metric: value and interval; a star marks unreliable intervals."""
    table = _plain_table(name, f"{100 * found.level:g} % interval")
    for label, value, ends, _ in found.printed():
        table.add_row(label, value, ends)
    table.caption = found.footnote()
    return table


def comparison_table(cards: Mapping[str, Scorecard], seconds: Mapping[str, float]) -> Table:
    """Return a table with one line per method; the best number of each column is highlighted."""
    compared = [name for name in _COMPARED if all(name in card for card in cards.values())]
    table = _plain_table(*(METRICS[name].short_label for name in compared), "seconds")
    ends = {"higher": max, "lower": min}
    best = {
        name: ends[better](card[name] for card in cards.values())
        for name in compared
        if (better := METRICS[name].better) is not None
    }
    for method, card in cards.items():
        cells = [
            Text(METRICS[name].format(card[name]), style="bold green" if card[name] == best.get(name) else "")
            for name in compared
        ]
        table.add_row(Text(method), *cells, f"{seconds[method]:.1f}" if method in seconds else "")
    return table


def confidence_sentence(card: Scorecard) -> str:
    """Say whether mean confidence and accuracy agree within two standard errors of the accuracy."""
    confidence, accuracy = card["confidence"], card["accuracy"]
    variance = max(0.0, confidence * (1 - confidence))  # a mean of ones may round to just above 1
    noise = 2 * math.sqrt(variance / card.rows)
    if abs(confidence - accuracy) <= noise:
        return f"neither over- nor underconfident ({mean_sentence(card)})"
    return f"{'over' if confidence > accuracy else 'under'}confident ({mean_sentence(card)})"


def mean_sentence(card: Scorecard) -> str:
    """Return mean confidence and accuracy within a sentence."""
    confidence, accuracy = (METRICS[name].format(card[name]) for name in ("confidence", "accuracy"))
    return f"mean confidence {confidence}, accuracy {accuracy}"


def ks_test_sentence(test: CalibrationTest) -> str:
    """Say what the KS test found.

    >>> ks_test_sentence(CalibrationTest(value=0.02, p_value=0.004, bound=0.015, expected=0.008, level=0.95))
    'KS 2.00 % is significant (p = 0.004; 95 % of calibrated models stay below 1.50 %)'
    """
    value, bound = METRICS["ks"].format(test.value), METRICS["ks"].format(test.bound)
    if test.too_few_groups:
        return f"KS {value}: too few groups to tell whether this is sampling error"
    found = "significant" if test.rejected else "within sampling error"
    others = f"{100 * test.level:g} % of calibrated models stay below {bound}"
    return f"KS {value} is {found} ({p_text(test.p_value)}; {others})"


def _plain_table(*headings: str) -> Table:
    table = Table("", box=None, pad_edge=False, header_style="bold", caption_justify="left")
    for heading in headings:
        table.add_column(Text(heading), justify="right")
    return table
