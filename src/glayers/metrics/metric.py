"""What a metric is: how it is named and printed, and one evaluation over a block of row weights.

A block holds several weightings of the same rows side by side, one per column: the bootstrap evaluates many columns at
once, and a single score is one column. Results that several metrics need, such as the sums of each bin, are kept on the
block (`cached`), so that every metric can be written as if it were alone.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from glayers.arrays import Array, Floats, Ints, kish
from glayers.metrics.events import Memoized, Rows, Scored, class_events, rank_events

__all__ = ["Metric"]

_SPELLED = {"nll": "NLL", "ks": "KS", "ece": "ECE", "brier": "Brier", "kuiper": "Kuiper"}


class Block(Memoized):
    """Weightings side by side: row weights (n, b), each column summing to 1."""

    def __init__(self, weights: Floats) -> None:
        self.weights = weights

    @classmethod
    def of(cls, rows: Rows | Scored) -> "Block":
        """Return the one column of the rows' own weights."""
        return cls(rows.weights[:, None])

    @property
    def single(self) -> bool:
        """Whether there is one column only, for which some metrics have a faster form."""
        return self.weights.shape[1] == 1


@dataclass(frozen=True)
class Metric:
    """One metric of the scorecard: everything that tables, intervals, tests and reports need to know about it.

    Attributes
    ----------
    name
        The key in `METRICS`, `Scorecard` and `Intervals`.
    label
        The name in tables. `{}` stands for `at_most`.
    evaluate
        A function of an event (`Scored`) and a `Block`, giving one value per column. Of a metric with `per_row`, a
        function of the event that gives one value per row; of one about "rows", the same of `Rows`.
    about
        "event": the metric is the value of one event. "ranks" and "classes": the mean over the events of the `at_most`
        highest ranks, or over those of all classes. "rows": the weighted mean of a value per row of `Rows`.
    per_row
        Whether the metric of an event is the weighted mean of a value per row. Streamed rows give such means exactly.
    unit
        "percent" if the value prints as a percentage, otherwise "plain".
    digits
        Decimal places in print.
    better
        Whether "lower" or "higher" values are better; None if neither.
    reference
        Where the metric was defined.
    at_most
        The number of ranks or classes it looks at, fewer where there are fewer classes.
    kind
        What decides about its interval: a calibration "error", a "loss", a "share" of rows, or a mean of "scores" that
        does not depend on labels.
    trusted_from
        How many standard errors above 0 an error must be for its interval to have a lower end.
    unreliable
        Why its interval should never be trusted; empty for most.
    lowest, highest
        The smallest and the largest value that any rows can give.
    over_classes
        A faster form for one weighting: a function of `Rows` and weights that gives the value of each class.
    """

    name: str
    label_template: str
    evaluate: Callable[..., Floats]
    reference: str
    about: Literal["event", "ranks", "classes", "rows"] = "event"
    per_row: bool = False
    unit: Literal["percent", "plain"] = "percent"
    digits: int = 2
    better: Literal["lower", "higher"] | None = "lower"
    at_most: int = 0
    kind: Literal["error", "loss", "share", "scores"] = "error"
    trusted_from: float = 3.0
    unreliable: str = ""
    lowest: float = 0.0
    highest: float = 1.0
    over_classes: Callable[..., Floats] | None = None

    @property
    def is_mean(self) -> bool:
        """Whether the metric is a weighted mean of one value per row."""
        return self.per_row or self.about == "rows"

    def row_values(self, rows: Rows | Scored) -> Floats:
        """Return the values per row whose mean the metric is."""
        subject = rows if self.about == "rows" else rows.top
        return subject.cached(self.evaluate)

    @property
    def label(self) -> str:
        """The name in tables, such as "ECE, 15 equal-width bins"."""
        return self.label_for(None)

    def label_for(self, n_classes: int | None) -> str:
        """Return the name in tables where there may be fewer classes than the metric looks at."""
        shown = self.at_most
        if n_classes is not None:
            shown = min(shown, n_classes)
        return self.label_template.format(shown)

    @property
    def short_label(self) -> str:
        """The name within a sentence, such as "mean top KS"."""
        return " ".join(_SPELLED.get(word, word) for word in self.name.split("_"))

    def format(self, value: float) -> str:
        """Return a value as people read it, such as "1.52 %" or "0.2341"."""
        if self.unit == "percent":
            return f"{100 * value:.{self.digits}f} %"
        return f"{value:.{self.digits}f}"

    def format_difference(self, value: float) -> str:
        """Return a difference with its sign, such as "+0.10 points" or "-0.0120"; zero has no sign."""
        scale, unit = self._scale()
        text = f"{scale * value:+.{self.digits}f}"
        if float(text) == 0:
            text = text[1:]
        return text + unit

    def format_change(self, value: float, low: float, high: float, error: float, level: float) -> str:
        """Return a difference with its interval, to the digits the standard error allows; percentages become points.

        >>> Metric("nll", "NLL", lambda: None, "", unit="plain").format_change(0.1052, 0.0931, 0.1168, 0.006, 0.95)
        '0.105 (95 % interval 0.093 to 0.117)'
        """
        scale, unit = self._scale()
        digits = 4
        if 0 < error < math.inf:
            magnitude = math.floor(math.log10(scale * error))
            digits = max(0, -magnitude)
            if scale * error / 10**magnitude < 2.95:  # rounding to a single 1 or 2 would change the error much
                digits = max(0, 1 - magnitude)
        number = f"{scale * value:.{digits}f}{unit}"
        return f"{number} ({100 * level:g} % interval {scale * low:.{digits}f} to {scale * high:.{digits}f})"

    def _scale(self) -> tuple[float, str]:
        """Return the factor and the unit of printed differences."""
        if self.unit == "percent":
            return 100.0, " points"
        return 1.0, ""


def score(evaluate: Callable[..., Floats], rows: Rows | Scored, *settings: object) -> float:
    """Return the value of a metric for the rows' own weights."""
    return float(evaluate(rows, Block.of(rows), *settings)[0])


def row_score(row_values: Callable[..., Floats], rows: Rows | Scored, *settings: object) -> float:
    """Return the mean of one value per row for the rows' own weights."""
    return float(mean(row_values(rows, *settings), Block.of(rows))[0])


def mean(values: Floats, block: Block) -> Floats:
    """Return weighted means of one value per row; infinite values count only where their weight is positive."""
    infinite = np.isinf(values)
    if not infinite.any():
        return values @ block.weights
    means = np.where(infinite, 0.0, values) @ block.weights
    return np.where(infinite @ block.weights > 0, np.inf, means)


def membership(place: Ints, n_places: int) -> Any:
    """Return the sparse matrix (places, rows) whose product adds up the rows of each place."""
    return sums_by_place(place[:, None], np.ones((len(place), 1)), n_places)


def weight_in(place: Ints, weights: Array, n_places: int = 0) -> tuple[Floats, Floats, Floats]:
    """Return the weight of the rows of each place, that of their squares, and the effective number of these rows."""
    total = np.bincount(place, weights, n_places).astype(np.float64)
    squares = np.bincount(place, weights**2, n_places).astype(np.float64)
    return total, squares, kish(total, squares)


def sums_by_place(place: Ints, values: Floats, n_places: int) -> Any:
    """Return the sparse matrix (places, rows) with each row's values (n, m) at their places (n, m)."""
    from scipy.sparse import csc_array  # on first use: importing it takes longer than importing glayers

    pointer = np.arange(0, place.size + 1, place.shape[1], dtype=np.int32)
    entries = (values.ravel(), place.astype(np.int32).ravel(), pointer)
    return csc_array(entries, shape=(n_places, len(place)))


def evaluate_once(rows: Rows | Scored, metrics: Iterable[Metric]) -> dict[str, float]:
    """Return each metric for the rows' own weights."""
    block = Block.of(rows)
    return {metric.name: float(_values(metric, rows, block)[0]) for metric in metrics}


def evaluate(
    rows: Rows | Scored,
    metrics: Sequence[Metric],
    blocks: Callable[[], Iterable[Block]],
    advance: Callable[[], None],
) -> dict[str, Floats]:
    """Return each metric for every column of the blocks, calling `advance` after each block of each pass.

    `blocks` is called for each of the `class_ranges` and must yield the same weights again.
    """
    found: dict[str, Floats] = {}
    evaluated = metrics
    for classes in class_ranges(rows, metrics):
        if isinstance(rows, Rows):
            rows = replace(rows, classes=classes)
        columns: dict[str, list[Floats]] = {metric.name: [] for metric in evaluated}
        for block in blocks():
            for metric in evaluated:
                columns[metric.name].append(_values(metric, rows, block))
            advance()
            del block  # with what it keeps, before the next is made
        for name, values in columns.items():
            found[name] = found.get(name, 0.0) + np.concatenate(values)
        evaluated = [metric for metric in metrics if metric.about == "classes"]
    return found


def class_ranges(rows: Rows | Scored, metrics: Iterable[Metric], entries: int = 2_000_000) -> list[range]:
    """Return the classes of each pass over the blocks: sorting more entries at once would take more than 56 MB."""
    if isinstance(rows, Scored) or all(metric.about != "classes" for metric in metrics):
        return [range(0)]
    at_once = max(1, entries // len(rows))
    return [range(first, min(first + at_once, rows.n_classes)) for first in range(0, rows.n_classes, at_once)]


def _values(metric: Metric, rows: Rows | Scored, block: Block) -> Floats:
    """Return a metric for each column; of some of the classes, their part of the mean over all classes."""
    if metric.is_mean:
        return np.minimum(mean(metric.row_values(rows), block), metric.highest)
    if isinstance(rows, Scored) or metric.about == "event":
        return metric.evaluate(rows.top, block)
    if metric.about == "ranks":
        events = rows.cached(rank_events, min(metric.at_most, rows.n_classes))
        return np.mean([metric.evaluate(event, block) for event in events], axis=0)
    if block.single and metric.over_classes is not None:
        return metric.over_classes(rows, block.weights[:, 0]).sum(keepdims=True) / rows.n_classes
    errors = [metric.evaluate(event, block) for event in rows.cached(class_events)]
    return np.sum(errors, axis=0) / rows.n_classes
