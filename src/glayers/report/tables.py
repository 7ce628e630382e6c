"""Scorecards, intervals, tests and methods -> tables and sentences for the terminal."""

import math
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
    columns = {}
    for name in _COMPARED:
        if all(name in card for card in cards.values()):
            columns[METRICS[name].short_label] = _metric_column(name, cards)
    columns["seconds"] = [Text(f"{seconds[method]:.1f}") if method in seconds else Text() for method in cards]
    caption = "* best of its column"
    separator = "; too narrow for "
    for label in ("seconds", *_FIRST_TO_GO):
        if width is None or _needed(cards, columns) <= width:
            break
        if label in columns:
            del columns[label]
            caption += separator + label
            separator = ", "
    table = _plain_table(*columns)
    for method, line in zip(cards, zip(*columns.values(), strict=True), strict=True):
        table.add_row(Text(method), *line)
    table.caption = caption
    return table


def _metric_column(name: str, cards: Mapping[str, Scorecard]) -> list[Text]:
    """Return one metric of every method; those as good as the best are marked."""
    values = [card[name] for card in cards.values()]
    ends = {"higher": max(values), "lower": min(values), None: math.nan}
    best = METRICS[name].format(ends[METRICS[name].better])
    texts = []
    for value in values:
        text = Text(f"{METRICS[name].format(value)} ")
        if text.plain.strip() == best:
            text = Text(f"{best}*", style="bold green")
        texts.append(text)
    return texts


def _needed(methods: Iterable[str], columns: Mapping[str, list[Text]]) -> int:
    """Return how many characters a table of these columns takes."""
    total = max(map(len, methods))
    for label, texts in columns.items():
        total += 2 + max(len(label), *map(len, texts))
    return total


def _plain_table(*headings: str) -> Table:
    table = Table("", box=None, pad_edge=False, header_style="bold", caption_justify="left")
    for heading in headings:
        table.add_column(Text(heading), justify="right")
    return table
