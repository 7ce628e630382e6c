"""Scorecards -> tables and a sentence for people."""

import math
from collections.abc import Mapping

from rich.table import Table

from glayers.metrics import Scorecard


def score_table(cards: Mapping[str, Scorecard]) -> Table:
    """One metric a line, one set of predictions a column."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    columns = {name: card.printed() for name, card in cards.items()}
    for name in columns:
        table.add_column(name, justify="right")
    for metric in next(iter(columns.values())):
        table.add_row(metric, *(values[metric] for values in columns.values()))
    return table


def verdict(card: Scorecard) -> str:
    """Say in a sentence whether confidence and accuracy agree, as far as this many rows can tell.

    The difference counts once it exceeds two standard errors of the accuracy.
    """
    noise = 2 * math.sqrt(card.confidence * (1 - card.confidence) / card.rows)
    says = f"says {100 * card.confidence:.1f} %, right {100 * card.accuracy:.1f} %"
    if abs(card.confidence - card.accuracy) <= noise:
        return f"confidence agrees with accuracy on average: {says}"
    return f"{'over' if card.confidence > card.accuracy else 'under'}confident: {says}"
