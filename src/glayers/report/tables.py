"""Scorecards, intervals, comparisons and notes -> tables and sentences for people."""

import math
from collections.abc import Mapping

from rich.table import Table
from rich.text import Text

from glayers.metrics.old import Intervals, Scorecard
from glayers.metrics.old.reweighted import STATISTICS
from glayers.metrics.old.verdicts import CalibrationTest

# A column's heading, the field of the scorecard, how it is printed, and which end of it is the best.
_COMPARED = (
    ("says", "confidence", "{:.1%}", None),
    ("right", "accuracy", "{:.2%}", max),
    ("NLL", "nll", "{:.4f}", min),
    ("Brier", "brier", "{:.5f}", min),
    ("KS", "ks", "{:.2%}", min),
    ("ECE", "ece", "{:.2%}", min),
)


def score_table(cards: Mapping[str, Scorecard]) -> Table:
    """One metric a line, one set of predictions a column."""
    table = _plain_table("", *cards)
    for lines in zip(*(card.printed().items() for card in cards.values()), strict=True):
        metric = " / ".join(dict.fromkeys(name for name, _ in lines))  # "top 3 / top 5" where classes differ in number
        table.add_row(metric, *(value for _, value in lines))
    return table


def interval_table(found: Intervals, name: str) -> Table:
    """One metric a line, with the ends of its interval; a star marks those that are not to be trusted."""
    table = _plain_table("", name, f"{100 * found.level:g} % interval")
    printed = zip(
        found.value.to_dict(), *(card.printed().items() for card in (found.value, found.low, found.high)), strict=True
    )
    for metric, (words, value), (_, low), (_, high) in printed:
        ends = f"{low.removesuffix(' %')} to {high}" if metric in STATISTICS else ""
        table.add_row(words, value, f"{ends} {'*' if metric in found.doubtful else ' '}")
    table.caption = "* not to be trusted: the MCE never is, others where resamples lie far off"
    table.caption_justify = "left"
    return table


def comparison_table(cards: Mapping[str, Scorecard], seconds: Mapping[str, float]) -> Table:
    """One method a line; the best number of each column stands out."""
    table = _plain_table("", *(heading for heading, *_ in _COMPARED), "seconds")
    best = {
        field: end(getattr(card, field) for card in cards.values()) for _, field, _, end in _COMPARED if end is not None
    }
    for name, card in cards.items():
        cells = []
        for _, field, form, _ in _COMPARED:
            value = getattr(card, field)
            cells.append(
                Text(form.format(value).replace("%", " %"), style="bold green" if value == best.get(field) else "")
            )
        table.add_row(Text(name), *cells, f"{seconds[name]:.1f}" if name in seconds else "")
    return table


def method_table(notes: Mapping[str, tuple[str, str, str]]) -> Table:
    """One method a line: what it is, what it cannot do, whether its fit needs torch."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method", no_wrap=True)
    table.add_column("is")
    table.add_column("cannot")
    table.add_column("torch", no_wrap=True)
    for name, note in notes.items():
        table.add_row(name, *note)
    return table


def verdict(card: Scorecard) -> str:
    """Say in a sentence whether confidence and accuracy agree, as far as this many rows can tell.

    The difference counts once it exceeds two standard errors of the accuracy.
    """
    variance = max(0.0, card.confidence * (1 - card.confidence))  # a mean of ones may round to just above 1
    noise = 2 * math.sqrt(variance / card.rows)
    says = f"says {100 * card.confidence:.1f} %, right {100 * card.accuracy:.1f} %"
    if abs(card.confidence - card.accuracy) <= noise:
        return f"confidence agrees with accuracy on average: {says}"
    return f"{'over' if card.confidence > card.accuracy else 'under'}confident: {says}"


def tested(test: CalibrationTest) -> str:
    """Say what the test of the KS error found.

    >>> tested(CalibrationTest(value=0.02, p_value=0.004, bound=0.015, expected=0.008, level=0.95))
    'KS 2.00 % is more than chance explains (p = 0.004; calibrated, at most 1.50 %)'
    """
    chance = "p < 0.0001" if test.p_value < 1e-4 else f"p = {test.p_value:.2g}"
    found = "more than chance explains" if test.rejected else "within sampling error"
    return f"KS {100 * test.value:.2f} % is {found} ({chance}; calibrated, at most {100 * test.bound:.2f} %)"


def _plain_table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first)
    for heading in others:
        table.add_column(Text(heading), justify="right")
    return table
