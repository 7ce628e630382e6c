"""Predictions in chunks -> the scorecard of all of them, in constant memory: `update`, `merge`, `result`.

Streaming is compression: the metrics are those of `METRICS`, evaluated on few rows that stand for many. Means of a
value per row are sums. Events become narrow cells of scores, which depend neither on the order of the chunks nor on how
rows are divided among them, but for rounding. A cell becomes two rows: its hits and its misses, each with their weight
and their mean score. No cell crosses an edge of the 15 equal-width bins. The order of the scores inside a cell is lost,
so metrics that depend on it have a bound of their error.

Few rows are kept as they are, and `result` is that of `scorecard`. docs/design/0011-streaming.md gives the reasons.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from glayers.arrays import Array, Bools, Floats, Ints, kish, row_blocks, to_floats
from glayers.checks import LOWEST, check_choice, whole_number
from glayers.errors import BadPredictions
from glayers.metrics.events import (
    N_BINS,
    SAME_SCORE,
    Event,
    Rows,
    Scored,
    bin_of,
    check_any,
    rank_events,
    refuse_no_event,
    top,
)
from glayers.metrics.metric import Block, Metric, column_sums, evaluate_once
from glayers.metrics.scorecard import METRICS, Scorecard, chosen_metrics
from glayers.predictions.predictions import Confidences, Predictions

__all__ = ["StreamingScorecard"]

_EXACT_ENTRIES = 2**21  # probabilities that are kept as they are: 16 MB in float64
_BIN_EDGES = np.arange(1, N_BINS) / N_BINS


class StreamingScorecard:
    """The scorecard of rows that arrive in chunks. Chunks may come in any order, and on several machines.

    Parameters
    ----------
    inputs
        What arrays hold: "probabilities" or "logits". `Predictions` and `Confidences` may be passed instead of arrays.
    event
        As in `scorecard`: an event other than `top` gives the metrics of that event alone.
    exact_entries
        Up to this many probabilities all rows are kept, and every metric is exact. The default takes 16 MB.

    Examples
    --------
    >>> p, y = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]], [0, 2, 1]
    >>> first = StreamingScorecard().update(p[:1], y[:1])
    >>> second = StreamingScorecard().update(p[1:], y[1:])
    >>> round(first.merge(second).result()["accuracy"], 12)
    0.333333333333
    """

    def __init__(
        self,
        inputs: Literal["probabilities", "logits"] = "probabilities",
        *,
        event: Event = top,
        exact_entries: int = _EXACT_ENTRIES,
    ) -> None:
        check_choice(inputs, ("probabilities", "logits"), "inputs")
        refuse_no_event(event)
        self.inputs = inputs
        self.event = event
        self.exact_entries = whole_number(exact_entries, "exact_entries", least=0)
        self.n_rows = 0
        self.n_classes: int | None = None  # not known yet; 0 for one event per row
        self._kept: list[Rows | Scored] = []
        self._compressed: CompressedRows | None = None

    def update(self, scores: object, labels: object = None, *, sample_weight: object = None) -> Self:
        """Add rows.

        Parameters
        ----------
        scores
            Array (n, k) of what `inputs` says, `Predictions` or `Confidences`.
        labels, sample_weight
            As in `scorecard`; left out with `Predictions` and `Confidences`.

        Returns
        -------
        StreamingScorecard
            This one.
        """
        given: Any = scores
        if not isinstance(scores, Predictions | Confidences):
            given = to_floats(scores, self.inputs)
            if given.ndim == 0:
                raise BadPredictions(f"{self.inputs} must be an array of rows; got {given}")
            if sample_weight is not None and not to_floats(sample_weight, "sample_weight").any():
                self.n_rows += len(given)
                return self
            if self.inputs == "logits" and len(given) > 0:  # rows of a chunk may look like probabilities by chance
                given = Predictions._of_logits(given, labels, sample_weight)
                labels = sample_weight = None
        if len(given) == 0:
            return self
        rows = check_any(given, labels, sample_weight, strict=True)
        if isinstance(rows, Rows) and self.event != top:  # a copy from another process is not the same object
            rows = self.event.of(rows)
        if not 1e-140 < rows.own_weights.max() < 1e140:
            raise BadPredictions(
                f"sample_weight up to {rows.own_weights.max():g} cannot be squared and added up; "
                f"divide all weights by a common factor"
            )
        self._check_classes(rows.n_classes)
        self.n_rows += len(rows)
        self._keep([rows])
        return self

    def merge(self, other: Self) -> Self:
        """Add all rows of another accumulator, which stays as it is.

        Parameters
        ----------
        other
            One with the same settings.

        Returns
        -------
        StreamingScorecard
            This one.
        """
        names = ("inputs", "event", "exact_entries")
        different = [name for name in names if getattr(self, name) != getattr(other, name)]
        if different:
            raise BadPredictions(
                f"these accumulators differ in {', '.join(different)}; make both with the same settings"
            )
        self.n_rows += other.n_rows
        if other.n_classes is None:
            return self
        self._check_classes(other.n_classes)
        if other._compressed is not None:
            self._compress().merge(other._compressed)
        self._keep(other._kept)
        return self

    def result(self) -> Scorecard:
        """Return the scorecard of all rows so far.

        Returns
        -------
        Scorecard
            With the metrics of `scorecard`.
        """
        values = {name: value for name, (value, _) in self._evaluated().items()}
        return Scorecard(values, self.n_rows, self.n_classes or None)

    def error_bounds(self) -> dict[str, float]:
        """Return how far each metric may lie from its exact value, beyond rounding.

        Returns
        -------
        dict
            Empty while all rows are kept. A metric that is missing has no known bound.
        """
        bounds = {name: bound for name, (_, bound) in self._evaluated().items()}
        return {name: bound for name, bound in bounds.items() if not math.isnan(bound)}

    def _evaluated(self) -> dict[str, tuple[float, float]]:
        """Return each metric, and how far it may be off: nan if no bound is known, or needed."""
        if self.n_classes is None:
            raise BadPredictions("there are no rows of positive weight yet; call update first")
        if self._compressed is not None:
            return self._compressed.evaluated()
        rows = _concatenated(self._kept)
        return {name: (value, math.nan) for name, value in evaluate_once(rows, chosen_metrics(rows)).items()}

    def _check_classes(self, n_classes: int) -> None:
        if self.n_classes is None:
            self.n_classes = n_classes
        if n_classes != self.n_classes:
            earlier, these = (f"{n} classes" if n else "one event per row" for n in (self.n_classes, n_classes))
            raise BadPredictions(f"earlier rows had {earlier}, these have {these}; score them apart")

    def _keep(self, rows: list[Rows | Scored]) -> None:
        """Add rows, and compress all of them if they are too many to keep."""
        self._kept = self._kept + rows
        n_entries = sum(len(kept) for kept in self._kept) * max(1, self.n_classes or 0)
        if self._compressed is not None or n_entries > self.exact_entries:
            self._compress()

    def _compress(self) -> "CompressedRows":
        """Compress the rows that are kept, and return all that are compressed."""
        if self._compressed is None:
            self._compressed = CompressedRows(self.n_classes or 0)
        for rows in self._kept:
            self._compressed.add(rows)
        self._kept = []
        return self._compressed


def _concatenated(parts: list[Rows | Scored]) -> Rows | Scored:
    """Return all rows as one record, without groups."""
    whole: dict[str, Any] = {}
    for field in fields(parts[0]):
        if isinstance(getattr(parts[0], field.name), np.ndarray):
            whole[field.name] = np.concatenate([getattr(part, field.name) for part in parts])
    whole["given_weights"] = np.concatenate([part.own_weights for part in parts])
    whole["groups"] = None
    return replace(parts[0], **whole)


class CompressedRows:
    """What is kept of rows that are too many to keep: sums of values per row, and cells of events."""

    def __init__(self, n_classes: int) -> None:
        possible = [metric for metric in METRICS.values() if n_classes or metric.about == "event"]
        self.metrics = {metric.name: metric for metric in possible}
        self.weight = 0.0
        self.squares = 0.0  # of the weights
        self.sums = {metric.name: 0.0 for metric in possible if metric.is_mean}
        n_ranks = max([1] + [min(metric.at_most, n_classes) for metric in possible if metric.about == "ranks"])
        # Relative widths of 1/4096 keep the bounds of KS below 5e-5.
        self.ranks = Cells(n_ranks, octaves=14, bits=12)
        self.classes = ClassCells(n_classes) if n_classes else None

    def add(self, rows: Rows | Scored) -> None:
        """Add rows."""
        weights = rows.own_weights
        counted = weights > 0  # the loss of other rows may be infinite
        self.weight += float(weights.sum())
        self.squares += float(weights @ weights)
        for name in self.sums:
            values = self.metrics[name].row_values(rows)
            self.sums[name] += float(values[counted] @ weights[counted])
        events = [rows] if isinstance(rows, Scored) else rank_events(rows, self.ranks.n_events)
        for place, event in enumerate(events):
            for hit in (0, 1):
                chosen = np.flatnonzero(event.hits == hit)
                self.ranks.add(hit, place, event.scores[chosen], weights[chosen])
        if self.classes is not None and isinstance(rows, Rows):
            self.classes.add_rows(rows)

    def merge(self, other: Self) -> None:
        """Add all rows of another."""
        self.weight += other.weight
        self.squares += other.squares
        for name, value in other.sums.items():
            self.sums[name] += value
        self.ranks.merge(other.ranks)
        if self.classes is not None and other.classes is not None:
            self.classes.merge(other.classes)

    def evaluated(self) -> dict[str, tuple[float, float]]:
        """Return each metric, and how far it may be off: nan if no bound is known."""
        found = {}
        for name, value in self.sums.items():
            found[name] = min(value / self.weight, METRICS[name].highest), 0.0
        ranks = [self.ranks.event(r) for r in range(self.ranks.n_events)]
        families: dict[str, Iterable[EventCells]] = {"event": ranks[:1], "ranks": ranks}
        if self.classes is not None:
            families["classes"] = self.classes.events(self.weight)
        for about, family in families.items():
            chosen = [metric for metric in self.metrics.values() if metric.about == about and not metric.is_mean]
            found |= self._means(chosen, family)
        return {name: found[name] for name in self.metrics}

    def _means(self, metrics: list[Metric], family: Iterable["EventCells"]) -> dict[str, tuple[float, float]]:
        """Return the means over events of values and bounds."""
        n_rows = kish(np.array([self.weight]), np.array([self.squares]))
        found: dict[str, list[tuple[float, float]]] = {metric.name: [] for metric in metrics}
        for place, cells in enumerate(family):
            event = cells.rows()
            block = Block(event.weights[:, None], n_rows)
            for metric in metrics:
                if metric.about == "ranks" and place >= metric.at_most:
                    continue
                bound = math.nan
                if metric.cell_error is None:
                    # Scores of their own would order hits and misses of a cell, whose order is not known.
                    value = float(metric.evaluate(cells.rows(tied=True), block)[0])
                else:
                    value = float(metric.evaluate(event, block)[0])
                    bound = metric.cell_error(cells, value)
                found[metric.name].append((value, bound))
        means = {name: np.mean(pairs, axis=0).tolist() for name, pairs in found.items()}
        return {name: (value, bound) for name, (value, bound) in means.items()}


def cell_of(scores: Array, octaves: int, bits: int) -> Ints:
    """Return the cell of each score: `octaves` of 2**`bits` cells, cut at the edges of the bins.

    The width of a cell is a power of 2 times the score, so the cell is read off the leading bits of the score. The
    first cell also holds all smaller scores, the last 1 itself.

    >>> cell_of(np.array([0.0, 0.126, 0.25, 0.3, 0.5, 0.75 - 1e-15, 0.9, 1.0]), octaves=3, bits=1).tolist()
    [0, 1, 5, 6, 11, 16, 18, 20]
    """
    integer = np.int32 if scores.dtype == np.float32 else np.int64
    shift = np.finfo(scores.dtype).nmant - bits
    first = scores.dtype.type(2.0**-octaves).view(integer) >> shift
    leading = np.clip(scores + scores.dtype.type(SAME_SCORE), 0, 1).view(integer) >> shift
    # Both terms grow with the score, so two scores have the same sum only if they share the cell and the bin.
    return np.maximum(leading - first, 0) + bin_of(scores, _BIN_EDGES)


class Cells:
    """Cells of several events: the weight of each cell's misses and hits, the sums of their scores, and its range."""

    def __init__(self, n_events: int, octaves: int, bits: int) -> None:
        self.n_events = n_events
        self.octaves = octaves
        self.bits = bits
        self.n_cells = octaves * 2**bits + N_BINS
        self.weight = np.zeros((2, n_events, self.n_cells))  # misses, hits
        self.score = np.zeros((2, n_events, self.n_cells))  # sums of weight * score
        self.low = np.full((n_events, self.n_cells), np.inf)
        self.high = np.full((n_events, self.n_cells), -np.inf)

    def add(self, hit: int, events: Ints | int, scores: Array, weights: Floats) -> None:
        """Add rows that all hit or all miss, each of its own event."""
        place = events * self.n_cells + cell_of(scores, self.octaves, self.bits)
        scores = scores.astype(np.float64)  # ten times as fast below
        np.add.at(self.weight[hit].reshape(-1), place, weights)
        np.add.at(self.score[hit].reshape(-1), place, weights * scores)
        np.minimum.at(self.low.reshape(-1), place, scores)
        np.maximum.at(self.high.reshape(-1), place, scores)

    def merge(self, other: Self) -> None:
        """Add all rows of other cells."""
        self.weight += other.weight
        self.score += other.score
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)

    def event(self, number: int) -> "EventCells":
        """Return the cells of one event that hold rows."""
        weight = self.weight[:, number]
        used = weight.any(axis=0)
        return EventCells(weight[:, used], self.score[:, number, used], self.low[number, used], self.high[number, used])


class ClassCells(Cells):
    """The events "the label is this class" of all classes.

    In a wide row most probabilities are in the first cell. These misses are not added up one by one: they are what the
    other cells leave of all misses.
    """

    def __init__(self, n_classes: int) -> None:
        octaves = math.ceil(math.log2(n_classes)) + 4  # a sixteenth of an even share
        cells = max(1.0, 2**20 / (n_classes * octaves))  # about 8 MB for each of six arrays
        super().__init__(n_classes, octaves, bits=min(11, max(2, math.floor(math.log2(cells)))))
        self.missed_scores = np.zeros(n_classes)  # of all misses, those in the first cell too

    def add_rows(self, rows: Rows) -> None:
        """Add rows with their own weights."""
        for some in row_blocks(*rows.probabilities.shape):
            p = rows.probabilities[some].astype(np.promote_types(rows.probabilities.dtype, np.float32))
            weights = rows.own_weights[some]
            labels = rows.labels[some]
            own = np.arange(len(labels)), labels
            self.add(1, labels, p[own], weights)
            p[own] = 0.0
            self.missed_scores += column_sums(p, weights)
            row, column = np.nonzero(p > p.dtype.type(2.0**-self.octaves))
            self.add(0, column, p[row, column], weights[row])

    def merge(self, other: Self) -> None:
        """Add all rows of other cells."""
        super().merge(other)
        self.missed_scores += other.missed_scores

    def events(self, total: float) -> Iterator["EventCells"]:
        """Yield the cells of each class; `total` is the weight of all rows."""
        for c in range(self.n_events):
            self.weight[0, c, 0] = 0.0
            self.score[0, c, 0] = 0.0
            self.weight[0, c, 0] = max(0.0, total - self.weight[:, c].sum())
            self.score[0, c, 0] = self.missed_scores[c] - self.score[0, c].sum()
            self.low[c, 0] = LOWEST
            self.high[c, 0] = max(self.high[c, 0], 2.0**-self.octaves)
            yield self.event(c)


class EventCells(NamedTuple):
    """One event in cells of ascending score: weights and sums of scores of misses and hits (2, cells), and ranges."""

    weight: Floats
    score: Floats
    low: Floats
    high: Floats

    def rows(self, tied: bool = False) -> Scored:
        """Return a row for the misses and a row for the hits of each cell; if `tied`, both have the same score."""
        hit, cell = np.nonzero(self.weight)
        if tied:
            means = (self.score.sum(axis=0) / self.weight.sum(axis=0))[cell]
        else:
            means = self.score[hit, cell] / self.weight[hit, cell]
        scores = np.clip(means, self.low[cell], self.high[cell])
        return Scored(scores, hit.astype(np.float64), given_weights=self.weight[hit, cell])

    @property
    def share(self) -> Floats:
        """The share of the weight that each cell holds."""
        return self.weight.sum(axis=0) / self.weight.sum()

    @property
    def varied(self) -> Bools:
        """Whether a cell holds different scores, so that the order of its rows is not known."""
        return self.high - self.low > SAME_SCORE

    @property
    def changes(self) -> Floats:
        """What each cell adds to the running gap of scores and hits."""
        return (self.score.sum(axis=0) - self.weight[1]) / self.weight.sum()

    @property
    def rises(self) -> Floats:
        """How far the running gap may rise inside each cell: by its misses."""
        misses = self.score[0] / self.weight.sum()
        return np.where(self.varied, misses, np.maximum(self.changes, 0.0))

    @property
    def falls(self) -> Floats:
        """How far the running gap may fall inside each cell: by its hits."""
        return self.rises - self.changes
