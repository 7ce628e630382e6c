"""Scorecards -> tables and a sentence for people."""

import math
from collections.abc import Mapping

from rich.table import Table

from glayers.metrics import Scorecard


def score_table(cards: Mapping[str, Scorecard]) -> Table:
    """One metric a line, one set of predictions a column."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in cards:
        table.add_column(name, justify="right")
    for lines in zip(*(card.printed().items() for card in cards.values()), strict=True):
        metric = " / ".join(dict.fromkeys(name for name, _ in lines))  # "top 3 / top 5" where classes differ in number
        table.add_row(metric, *(value for _, value in lines))
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
