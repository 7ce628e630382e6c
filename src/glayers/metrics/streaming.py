"""Predictions in chunks -> the scorecard of all of them, and a random sample, in constant memory.

Streaming is compression: the metrics are those of `METRICS`, evaluated on few rows that stand for many. Means of a
value per row are sums. Scores of events are rounded to the mean of a narrow cell: the weight of its hits and of its
misses is all that stays. Cells depend neither on the order of the chunks nor on how rows are divided among them, but
for rounding, and no cell crosses an edge of the 15 equal-width bins.

Few rows are kept as they are, and `result` is that of `scorecard`. docs/design/0011-streaming.md gives the reasons.

A random sample (`RowSample`) depends on a seed and on each row's place alone. So every machine that sees a row decides
the same for it, in any order. Rows of a group are drawn together.
"""

import math
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, replace
from typing import Any, Literal, Self

import numpy as np

from glayers.arrays import Array, Floats, Ints, row_blocks, to_floats
from glayers.checks import check_choice
from glayers.errors import BadPredictions, GlayersWarning, listed
from glayers.metrics.events import (
    BIN_EDGES,
    N_BINS,
    ROUNDING,
    Event,
    Rows,
    Scored,
    as_event,
    bin_of,
    check_part,
    rank_events,
    top,
    warn_of_few_rows,
)
from glayers.metrics.metric import METRICS, Metric
from glayers.metrics.scorecard import Scorecard, card_of
from glayers.predictions.predictions import Confidences, Predictions

__all__ = ["StreamingScorecard"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio, of Steele, Lea and Flood, OOPSLA 2014


class StreamingScorecard:
    """The scorecard of rows that arrive in chunks. Chunks may come in any order, and on several machines.

    Parameters
    ----------
    inputs
        What arrays hold: "probabilities" or "logits". `Predictions` and `Confidences` may be passed instead of arrays.
    event
        As in `scorecard`: an event other than `top` gives the metrics of that event alone.

    Attributes
    ----------
    exact_entries
        Up to this many probabilities all rows are kept, 16 MB in float64, and every metric is exact.

    Examples
    --------
    >>> p, y = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.3, 0.3, 0.4]], [0, 2, 1]
    >>> first = StreamingScorecard().update(p[:1], y[:1])
    >>> second = StreamingScorecard().update(p[1:], y[1:])
    >>> round(first.merge(second).result()["accuracy"], 12)
    0.333333333333
    """

    exact_entries = 2**21

    def __init__(
        self, inputs: Literal["probabilities", "logits"] = "probabilities", *, event: Event | str = top
    ) -> None:
        check_choice(inputs, ("probabilities", "logits"), "inputs")
        self.inputs = inputs
        self.event = as_event(event)
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
                given = Predictions._of_logits(given, labels, weights=sample_weight)
                labels = sample_weight = None
        if len(given) == 0:
            return self
        rows = check_part(given, labels, sample_weight)
        if isinstance(rows, Rows) and self.event != top:  # a copy from another process is not the same object
            rows = self.event.of(rows)
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
        different = [name for name in ("inputs", "event") if getattr(self, name) != getattr(other, name)]
        if different:
            raise BadPredictions(f"these accumulators differ in {', '.join(different)}; make both with the same")
        self.n_rows += other.n_rows
        if other.n_classes is None:
            return self
        self._check_classes(other.n_classes)
        if other._compressed is not None:
            self._compress().merge(other._compressed)
        self._keep(other._kept)
        return self

    def result(self, metrics: Collection[str] = METRICS) -> Scorecard:
        """Return the scorecard of all rows so far.

        Parameters
        ----------
        metrics
            Names of the metrics to compute, as far as the rows allow; all by default.

        Returns
        -------
        Scorecard
            With the metrics of `scorecard`. If there are more rows than are kept, the metrics of events are those of
            scores rounded by at most 1/4096 of their size, and class-wise ones of coarser scores.
        """
        if self.n_classes is None:
            raise BadPredictions("there are no rows of positive weight yet; call update first")
        unknown = set(metrics) - METRICS.keys()
        if unknown:
            raise BadPredictions(f"no metrics are called {listed(sorted(unknown))}; choose from {', '.join(METRICS)}")
        if self._compressed is not None:
            values = self._compressed.evaluated(metrics)
        else:
            rows = _concatenated(self._kept)
            warn_of_few_rows(rows)
            values = card_of(rows, metrics).by_name
        return Scorecard(values, self.n_rows, self.n_classes or None)

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
    weights = np.concatenate([part.own_weights for part in parts])
    whole = _joined_arrays(parts, [field.name for field in fields(parts[0])])
    return replace(parts[0], **whole | {"given_weights": weights, "groups": None})


class CompressedRows:
    """What is kept of rows that are too many to keep: sums of values per row, and cells of events."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes = n_classes
        self.weight = 0.0
        self.sums = {metric.name: 0.0 for metric in self._metrics() if metric.per_row}
        n_ranks = max([1] + [min(metric.at_most, n_classes) for metric in self._metrics() if metric.about == "ranks"])
        # Relative widths of 1/4096 keep the bounds of KS below 5e-5.
        self.ranks = Cells(n_ranks, octaves=14, bits=12)
        # Events of classes get cells from a sixteenth of an even share on; 32 MB in all.
        octaves = math.ceil(math.log2(max(n_classes, 2))) + 4
        cells = max(1.0, 2**20 / (n_classes * octaves or 1))
        self.classes = Cells(n_classes, octaves, bits=min(11, max(2, math.floor(math.log2(cells)))))

    def _metrics(self) -> list[Metric]:
        return [metric for metric in METRICS.values() if self.n_classes or metric.about == "event"]

    def add(self, rows: Rows | Scored) -> None:
        """Add rows."""
        weights = rows.own_weights
        counted = weights > 0  # the loss of other rows may be infinite
        self.weight += float(weights.sum())
        for name in self.sums:
            values = METRICS[name].row_values(rows)
            self.sums[name] += float(values[counted] @ weights[counted])
        events = [rows] if isinstance(rows, Scored) else rank_events(rows, self.ranks.n_events)
        for place, event in enumerate(events):
            self.ranks.add(place, event.scores, event.hits, weights)
        if isinstance(rows, Rows):
            self._add_classes(rows)

    def merge(self, other: Self) -> None:
        """Add all rows of another."""
        if self.sums.keys() != other.sums.keys():
            different = ", ".join(self.sums.keys() ^ other.sums.keys())
            raise BadPredictions(
                f"only one of these accumulators knows {different}; register it wherever rows are added"
            )
        self.weight += other.weight
        for name, value in other.sums.items():
            self.sums[name] += value
        self.ranks.merge(other.ranks)
        self.classes.merge(other.classes)

    def evaluated(self, names: Collection[str]) -> dict[str, float]:
        """Return each of these metrics; those that need the rows themselves are left out, with a warning."""
        found = {}
        left_out = []
        ranks = [self.ranks.event(r) for r in range(self.ranks.n_events)]
        for metric in self._metrics():
            if metric.name not in names:
                continue
            if metric.name in self.sums:
                found[metric.name] = float(np.clip(self.sums[metric.name] / self.weight, metric.lowest, metric.highest))
            elif metric.per_row or metric.about == "rows":
                left_out.append(metric.name)
            else:
                events: Iterable[Scored] = ranks[: max(1, metric.at_most)]
                if metric.about == "classes":
                    events = map(self.classes.event, range(self.classes.n_events))
                found[metric.name] = float(np.mean([metric.score(event) for event in events]))
        if left_out:
            warnings.warn(
                f"{', '.join(left_out)}: left out, as the rows are too many to keep. Such a metric needs "
                f"about='event', or per_row=True from the first row on",
                GlayersWarning,
                stacklevel=3,
            )
        return found

    def _add_classes(self, rows: Rows) -> None:
        """Add the events "the label is this class" of all classes."""
        for some in row_blocks(*rows.probabilities.shape):
            block = rows.probabilities[some]
            p = block.astype(np.promote_types(block.dtype, np.float32))
            classes = np.broadcast_to(np.arange(rows.n_classes), p.shape)
            weights = np.broadcast_to(rows.own_weights[some, None], p.shape)
            self.classes.add(classes, p, classes == rows.labels[some, None], weights)


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
    leading = np.clip(scores + scores.dtype.type(ROUNDING), 0, 1).view(integer) >> shift
    # Both terms grow with the score, so two scores have the same sum only if they share the cell and the bin.
    return np.maximum(leading - first, 0) + bin_of(scores, BIN_EDGES)


class Cells:
    """Cells of several events: the weight of each cell's misses and hits, and the sums of their scores."""

    def __init__(self, n_events: int, octaves: int, bits: int) -> None:
        self.n_events = n_events
        self.octaves = octaves
        self.bits = bits
        self.n_cells = octaves * 2**bits + N_BINS
        self.weight = np.zeros((2, n_events, self.n_cells))  # misses, hits
        self.score = np.zeros((2, n_events, self.n_cells))  # sums of weight * score

    def add(self, events: Ints | int, scores: Array, hits: Array, weights: Floats) -> None:
        """Add rows, each of its own event."""
        places = np.where(hits, self.n_events + events, events) * self.n_cells
        places = (places + cell_of(scores, self.octaves, self.bits)).reshape(-1)
        np.add.at(self.weight.reshape(-1), places, weights.reshape(-1))
        np.add.at(self.score.reshape(-1), places, (weights * scores).reshape(-1))

    def merge(self, other: Self) -> None:
        """Add all rows of other cells."""
        self.weight += other.weight
        self.score += other.score

    def event(self, number: int) -> Scored:
        """Return one event: a row for the misses and one for the hits of each cell, both at its mean score."""
        weight = self.weight[:, number]
        hit, cell = np.nonzero(weight)
        means = self.score[:, number].sum(axis=0)[cell] / weight.sum(axis=0)[cell]
        return Scored(means, hit.astype(np.float64), given_weights=weight[hit, cell])


class RowSample:
    """A random subset of rows that arrive in chunks: those with the smallest keys.

    Parameters
    ----------
    most
        The number of rows at most.
    random_state
        The seed: another seed gives other rows.

    Examples
    --------
    >>> rows = Predictions(np.arange(60.0).reshape(20, 3) + 5, np.arange(20) % 3)
    >>> first = RowSample(5).update(rows.take(slice(0, 8)), row_places(0, 8))
    >>> second = RowSample(5).update(rows.take(slice(8, 20)), row_places(8, 12))
    >>> len(first.merge(second).result())
    5
    """

    def __init__(self, most: int, random_state: int = 0) -> None:
        self.most = most
        self.random_state = random_state
        self.n_seen = 0
        self._parts: list[tuple[Any, Array, Array]] = []  # rows with their keys and places
        self._below = np.uint64(2**64 - 1)  # only rows with smaller keys may still be drawn

    def update(self, rows: Predictions | Confidences, places: Array) -> Self:
        """Add rows with their places, which decide whether they are drawn."""
        self.n_seen += len(rows)
        with np.errstate(over="ignore"):
            keys = _hash_bits(_hash_bits(places + _GOLDEN) + np.uint64(self.random_state))
        kept = np.flatnonzero(keys < self._below)  # none of most chunks of a long file
        if len(kept):
            self._add([(rows.take(kept), keys[kept], places[kept])])
        return self

    def merge(self, other: Self) -> Self:
        """Add the rows of another sample with the same settings."""
        self.n_seen += other.n_seen
        self._below = min(self._below, other._below)
        self._add(other._parts)
        return self

    def result(self) -> Predictions | Confidences:
        """Return the rows that were drawn, in the order of their places."""
        if not self._parts:
            raise BadPredictions("there are no rows to draw from")
        self._cut()
        [(rows, _, places)] = self._parts
        return rows.take(np.argsort(places, kind="stable"))

    def _add(self, parts: list[tuple[Any, Array, Array]]) -> None:
        self._parts = self._parts + parts  # a new list: the other sample keeps its own
        if sum(len(keys) for _, keys, _ in self._parts) > 1.5 * self.most:  # seldom, as it copies all rows
            self._cut()

    def _cut(self) -> None:
        """Keep the smallest keys."""
        parts = [rows for rows, _, _ in self._parts]
        keys = np.concatenate([keys for _, keys, _ in self._parts])
        places = np.concatenate([places for _, _, places in self._parts])
        if len(keys) > self.most:
            self._below = min(self._below, np.partition(keys, self.most)[self.most])
        kept = np.flatnonzero(keys < self._below)
        whole = vars(parts[0]) | _joined_arrays(parts, vars(parts[0]))
        self._parts = [(type(parts[0])._trusted(**whole).take(kept), keys[kept], places[kept])]


def row_places(first: int, number: int, file: int = 0) -> Array:
    """Return a different number for each of consecutive rows of a file, in ascending order."""
    return np.arange(first, first + number, dtype=np.uint64) + (np.uint64(file) << np.uint64(40))


def _hash_bits(keys: Array) -> Array:
    """Return well mixed bits of each key: the output function of SplitMix64."""
    with np.errstate(over="ignore"):
        x = keys.astype(np.uint64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def _joined_arrays(parts: Sequence[Any], names: Iterable[str]) -> dict[str, Any]:
    """Return those of the named fields of several records that are arrays, each of all rows."""
    arrays = [name for name in names if isinstance(getattr(parts[0], name), np.ndarray)]
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays}
