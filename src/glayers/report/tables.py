"""Scorecards, intervals, tests and methods -> tables and sentences for the terminal."""

from collections.abc import Iterable, Mapping

from rich.table import Table
from rich.text import Text

from glayers.metrics import METRICS, Intervals, Scorecard
from glayers.report.words import confidence_sentence as confidence_sentence
from glayers.report.words import ks_test_sentence as ks_test_sentence

_COMPARED = ("confidence", "accuracy", "nll", "brier", "ks", "ece")
_FIRST_TO_GO = tuple(METRICS[name].short_label for name in ("ece", "brier", "confidence"))  # where a table is too wide


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


def comparison_table(cards: Mapping[str, Scorecard], seconds: Mapping[str, float], width: int | None = None) -> Table:
    """Return a table with one line per method; a star marks the best number of each column.

    A table wider than `width` loses its least important columns, and its caption names them.
    """
    compared = [name for name in _COMPARED if all(name in card for card in cards.values())]
    ends = {"higher": max, "lower": min}
    best = {
        name: METRICS[name].format(ends[better](card[name] for card in cards.values()))
        for name in compared
        if (better := METRICS[name].better) is not None
    }

    def cell(name: str, card: Scorecard) -> Text:
        text = METRICS[name].format(card[name])
        return Text(f"{text}*", style="bold green") if text == best.get(name) else Text(f"{text} ")

    columns = {METRICS[name].short_label: [cell(name, card) for card in cards.values()] for name in compared}
    columns["seconds"] = [Text(f"{seconds[method]:.1f}" if method in seconds else "") for method in cards]
    dropped = []
    for label in ("seconds", *_FIRST_TO_GO):
        if width is None or _needed(cards, columns) <= width:
            break
        if columns.pop(label, None) is not None:
            dropped.append(label)
    table = _plain_table(*columns)
    for method, line in zip(cards, zip(*columns.values(), strict=True), strict=True):
        table.add_row(Text(method), *line)
    table.caption = "* best of its column" + (f"; too narrow for {', '.join(dropped)}" if dropped else "")
    return table


def _needed(methods: Iterable[str], columns: Mapping[str, list[Text]]) -> int:
    """Return how many characters a table of these columns takes."""
    widths = [max(len(label), *(len(text) for text in texts)) for label, texts in columns.items()]
    return max(len(method) for method in methods) + sum(width + 2 for width in widths)


def _plain_table(*headings: str) -> Table:
    table = Table("", box=None, pad_edge=False, header_style="bold", caption_justify="left")
    for heading in headings:
        table.add_column(Text(heading), justify="right")
    return table
