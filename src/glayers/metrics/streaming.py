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
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np

from glayers.arrays import Array, Bools, Floats, Ints, row_blocks, to_floats
from glayers.checks import HIGHEST, LOWEST, check_choice, number_between, whole_number
from glayers.errors import BadPredictions
from glayers.metrics.bootstrap import Bootstrapped, Evidence
from glayers.metrics.events import (
    N_BINS,
    SAME_SCORE,
    Event,
    Rows,
    Scored,
    bin_of,
    check_any,
    check_seed,
    rank_events,
    top,
)
from glayers.metrics.metric import Block, Metric, PlaceSums, column_sums, evaluate_once
from glayers.metrics.row_draws import estimated_number, hash_bits, poisson_counts, row_keys, smallest_keys
from glayers.metrics.scorecard import METRICS, Intervals, Scorecard, chosen_metrics
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
    n_resamples
        The number of bootstrap resamples for `intervals`; 0 for none. Every resample costs time and memory.
    random_state
        Seed of the resamples.
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
        n_resamples: int = 0,
        random_state: int = 0,
        exact_entries: int = _EXACT_ENTRIES,
    ) -> None:
        check_choice(inputs, ("probabilities", "logits"), "inputs")
        self.inputs = inputs
        self.event = event
        self.n_resamples = whole_number(n_resamples, "n_resamples", least=0)
        self.random_state = check_seed(random_state) or 0
        self.exact_entries = whole_number(exact_entries, "exact_entries", least=0)
        self.n_rows = 0
        self.n_classes: int | None = None  # not known yet; 0 for one event per row
        self._kept: list[Rows | Scored] = []
        self._compressed: CompressedRows | None = None
        self._resampled: CompressedRows | None = None  # column 0 counts every row once
        self._group_keys: Array | None = None

    def update(
        self,
        scores: object,
        labels: object = None,
        *,
        sample_weight: object = None,
        groups: object = None,
        row_ids: object = None,
    ) -> Self:
        """Add rows.

        Parameters
        ----------
        scores
            Array (n, k) of what `inputs` says, `Predictions` or `Confidences`.
        labels, sample_weight, groups
            As in `intervals`; left out with `Predictions` and `Confidences`.
        row_ids
            A different whole number for each row (n,), for the resamples. By default a row is known by its contents,
            so that equal rows are drawn together. Rows with groups need none.

        Returns
        -------
        StreamingScorecard
            This one.
        """
        given: Any = scores
        if not isinstance(scores, Predictions | Confidences):
            given = to_floats(scores, self.inputs)
            if len(given) == 0 or (sample_weight is not None and not to_floats(sample_weight, "sample_weight").any()):
                self.n_rows += len(given)
                return self
            if self.inputs == "logits":  # rows of a chunk may look like probabilities by chance
                given = Predictions._of_logits(given, labels, sample_weight, groups)
                labels = sample_weight = groups = None
        if len(given) == 0:
            return self
        rows = check_any(given, labels, sample_weight, groups, strict=True)
        if isinstance(rows, Rows) and self.event != top:  # a copy from another process is not the same object
            rows = self.event.of(rows)
        if not 1e-140 < rows.own_weights.max() < 1e140:
            raise BadPredictions(
                f"sample_weight up to {rows.own_weights.max():g} cannot be squared and added up; "
                f"divide all weights by a common factor"
            )
        self._check_classes(rows.n_classes)
        if self.n_resamples:
            self._resample(rows, row_keys(rows, row_ids, getattr(given, "counts", None)))
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
        names = ("inputs", "event", "n_resamples", "random_state", "exact_entries")
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
            self._fold()
            self._cells().merge(other._compressed)
        if other._resampled is not None:
            self._resamples().merge(other._resampled)
        if other._group_keys is not None:
            self._add_groups(other._group_keys)
        self._keep(other._kept)
        return self

    def result(self) -> Scorecard:
        """Return the scorecard of all rows so far.

        Returns
        -------
        Scorecard
            With the metrics of `scorecard`. SKCE compares pairs of rows and has no accumulator.
        """
        self._refuse_without_rows()
        if self._compressed is not None:
            values = {name: float(value[0]) for name, (value, _) in self._compressed.evaluated().items()}
        else:
            rows = _concatenated(self._kept)
            values = evaluate_once(rows, chosen_metrics(rows))
        return Scorecard(values, self.n_rows, self.n_classes or None)

    def error_bounds(self) -> dict[str, float]:
        """Return how far each metric may lie from its exact value, beyond rounding.

        Returns
        -------
        dict
            Empty while all rows are kept. A metric that is missing has no known bound.
        """
        self._refuse_without_rows()
        if self._compressed is None:
            return {}
        bounds = {name: bound for name, (_, bound) in self._compressed.evaluated().items()}
        return {name: bound for name, bound in bounds.items() if not math.isnan(bound)}

    def intervals(self, level: float = 0.95) -> Intervals:
        """Return intervals from a Poisson bootstrap, in which each row or group counts 0, 1, 2, ... times.

        How often depends only on the seed and on the row's id or group, so the intervals are the same for any order
        and any division into chunks.

        Parameters
        ----------
        level
            The probability with which an interval should cover.

        Returns
        -------
        Intervals
            Percentile intervals of all metrics but class-wise ones, whose resamples would take too much memory. Those
            of accuracies are exact. Chamandy et al., "Estimating Uncertainty for Massive Data Streams", 2012.
        """
        if self.n_resamples < 2:
            raise BadPredictions("there are no resamples; make the accumulator with n_resamples=200 or more")
        number_between(level, "level", 0, 1)
        card = self.result()
        evidence = self._evidence()
        ends = {}
        for name, (values, _) in self._resamples().evaluated().items():
            drawn = values[1:]
            if math.isfinite(values[0]):  # cells of resamples are wide: take only the spread from them
                drawn = drawn + (card[name] - values[0])
            ends[name] = Bootstrapped(card[name], np.zeros(0), drawn, METRICS[name], evidence).interval(level)
        return Intervals(ends, card, level, "percentile", self.n_resamples)

    def _check_classes(self, n_classes: int) -> None:
        if self.n_classes is None:
            self.n_classes = n_classes
        if n_classes != self.n_classes:
            earlier, these = (f"{n} classes" if n else "one event per row" for n in (self.n_classes, n_classes))
            raise BadPredictions(f"earlier rows had {earlier}, these have {these}; score them apart")

    def _refuse_without_rows(self) -> None:
        if self.n_classes is None:
            raise BadPredictions("there are no rows of positive weight yet; call update first")

    def _cells(self) -> "CompressedRows":
        if self._compressed is None:  # relative widths of 1/4096 keep the bounds of KS below 5e-5
            self._compressed = CompressedRows(self.n_classes or 0, 1, CellGrid(octaves=14, bits=12))
        return self._compressed

    def _resamples(self) -> "CompressedRows":
        if self._resampled is None:  # wider cells suffice: only the spread counts
            self._resampled = CompressedRows(self.n_classes or 0, 1 + self.n_resamples, CellGrid(octaves=10, bits=6))
        return self._resampled

    def _keep(self, rows: list[Rows | Scored]) -> None:
        """Add rows, and compress all of them if they are too many to keep."""
        self._kept = self._kept + rows
        n_entries = sum(len(kept) for kept in self._kept) * max(1, self.n_classes or 0)
        if self._compressed is not None or n_entries > self.exact_entries:
            self._fold()

    def _fold(self) -> None:
        """Compress the rows that are kept."""
        for rows in self._kept:
            for part in _parts(rows, 2**23 // max(1, rows.n_classes)):
                self._cells().add(part, part.own_weights[:, None])
        self._kept = []

    def _resample(self, rows: Rows | Scored, keys: Array) -> None:
        """Add the rows to every resample, as often as the key of each says."""
        if rows.groups is not None:
            self._add_groups(hash_bits(keys))
        start = 0
        for part in _parts(rows, 2**18 // max(self.n_resamples + 1, rows.n_classes)):  # 2 MB of weights
            stop = start + len(part)
            counts = poisson_counts(keys[start:stop], self.n_resamples, self.random_state)
            start = stop
            times = np.insert(counts.astype(np.float64), 0, 1.0, axis=1)
            self._resamples().add(part, times * part.own_weights[:, None])

    def _add_groups(self, keys: Array) -> None:
        if self._group_keys is not None:
            keys = np.append(keys, self._group_keys)
        self._group_keys = smallest_keys(keys)

    def _evidence(self) -> Evidence:
        weight, hits, squared, squared_hits = self._resamples().sums[:, 0].tolist()
        n_rows = _effective(weight, squared)
        n_errors = _effective(weight - hits, squared - squared_hits)
        n_hits = _effective(hits, squared_hits)
        rarer = "errors" if n_errors <= n_hits else "hits"
        if self._group_keys is None:
            even = math.isclose(n_rows, self.n_rows)
            return Evidence(n_rows, n_rows, min(n_errors, n_hits), rarer, even=even)
        n_units = min(n_rows, estimated_number(self._group_keys))
        return Evidence(n_rows, n_units, min(n_errors, n_hits, n_units), rarer, grouped=True, even=False)


def _effective(weight: float, squared: float) -> float:
    """Return Kish's effective number of rows; 0 where there are none."""
    return weight**2 / squared if squared > 0 else 0.0


def _parts(rows: Rows | Scored, step: int) -> Iterator[Rows | Scored]:
    """Yield some rows at a time."""
    for first in range(0, len(rows), max(1, step)):
        parts: dict[str, Any] = {}
        for field in fields(rows):
            value = getattr(rows, field.name)
            if isinstance(value, np.ndarray):
                parts[field.name] = value[first : first + max(1, step)]
        yield replace(rows, **parts)


def _concatenated(parts: list[Rows | Scored]) -> Rows | Scored:
    """Return all rows as one record, without groups."""
    whole: dict[str, Any] = {"groups": None}
    for field in fields(parts[0]):
        if isinstance(getattr(parts[0], field.name), np.ndarray):
            whole[field.name] = np.concatenate([getattr(part, field.name) for part in parts])
    if any(part.given_weights is not None for part in parts):
        whole["given_weights"] = np.concatenate([part.own_weights for part in parts])
    return replace(parts[0], **(whole | {"groups": None}))


class CompressedRows:
    """What is kept of rows that are too many to keep: sums of row values, and cells of events.

    Weights have one column per weighting of the rows; the first is the sample's own. The cells of classes have only
    that one, and are left out where there are more.
    """

    def __init__(self, n_classes: int, n_columns: int, grid: "CellGrid") -> None:
        self.n_classes = n_classes
        self.sums = np.zeros((4, n_columns))  # weights of all rows and of hits, then squared weights of both
        by_row = [metric.name for about in ("rows", "event") for metric in self._metrics(about) if _is_mean(metric)]
        self.row_sums = {name: np.zeros((2, n_columns)) for name in by_row}  # of finite values, and of infinite ones
        n_ranks = max([1] + [min(metric.at_most, n_classes) for metric in self._metrics("ranks")])
        self.events = [Cells(grid, n_columns) for _ in range(n_ranks)]
        self.classes = None
        if n_classes and n_columns == 1:
            self.classes = ClassCells(n_classes)

    def add(self, rows: Rows | Scored, weights: Floats) -> None:
        """Add rows with weights (n, b)."""
        own = weights[:, 0]
        events = [rows] if isinstance(rows, Scored) else rank_events(rows, len(self.events))
        hits = events[0].hits
        self.sums += np.stack([np.ones(len(own)), hits, own, own * hits]) @ weights
        for name, sums in self.row_sums.items():
            row_values = METRICS[name].row_values
            values = METRICS[name].evaluate(rows) if row_values is None else row_values(events[0])
            infinite = np.isinf(values)
            sums += np.stack([np.where(infinite, 0.0, values), infinite]) @ weights
        for cells, event in zip(self.events, events, strict=True):
            cells.add(event, weights)
        if self.classes is not None and isinstance(rows, Rows):
            self.classes.add(rows, own)

    def merge(self, other: Self) -> None:
        """Add all rows of another."""
        self.sums += other.sums
        for name, sums in other.row_sums.items():
            self.row_sums[name] += sums
        for cells, others in zip(self.events, other.events, strict=True):
            cells.merge(others)
        if self.classes is not None and other.classes is not None:
            self.classes.merge(other.classes)

    def evaluated(self) -> dict[str, tuple[Floats, float]]:
        """Return each metric for each column that has rows, and how far it may be off: nan if no bound is known."""
        total = self.sums[0]
        seen = total > 0
        found = {}
        for name, (finite, infinite) in self.row_sums.items():
            values = np.where(infinite[seen] > 0, np.inf, finite[seen] / total[seen])
            found[name] = np.minimum(values, METRICS[name].highest), 0.0
        families: dict[str, Iterable[Cells]] = {"event": self.events[:1], "ranks": self.events}
        if self.classes is not None:
            families["classes"] = self.classes.events(total[0])
        for about, family in families.items():
            metrics = [metric for metric in self._metrics(about) if not _is_mean(metric)]
            found |= self._means(metrics, family)
        return {name: found[name] for name in METRICS if name in found}

    def _metrics(self, about: str) -> list[Metric]:
        """Return the metrics about rows, events, ranks or classes that these rows allow."""
        if self.n_classes == 0 and about != "event":
            return []
        return [metric for metric in METRICS.values() if metric.about == about]

    def _means(self, metrics: list[Metric], family: Iterable["Cells"]) -> dict[str, tuple[Floats, float]]:
        """Return the means over events of values and bounds."""
        seen = self.sums[0] > 0
        n_rows = self.sums[0, seen] ** 2 / self.sums[2, seen]
        values: dict[str, list[Floats]] = {metric.name: [] for metric in metrics}
        bounds: dict[str, list[float]] = {metric.name: [] for metric in metrics}
        for place, cells in enumerate(family):
            event, block = cells.as_rows(seen, n_rows)
            unbounded = any(metric.cell_error is None for metric in metrics)
            tied = cells.as_rows(seen, n_rows, tied=True) if unbounded else (event, block)
            for metric in metrics:
                if metric.about == "ranks" and place >= metric.at_most:
                    continue
                if metric.cell_error is None:
                    value = metric.evaluate(*tied)
                    bound = math.nan
                else:
                    value = metric.evaluate(event, block)
                    bound = metric.cell_error(cells, event, block, float(value[0]))
                values[metric.name].append(value)
                bounds[metric.name].append(bound)
        return {name: (np.mean(values[name], axis=0), float(np.mean(bounds[name]))) for name in values}


def _is_mean(metric: Metric) -> bool:
    """Return whether a metric is a mean over rows, so that sums give it exactly."""
    return metric.about == "rows" or metric.row_values is not None


@dataclass(frozen=True)
class CellGrid:
    """Cells of [0, 1] whose width is a power of 2 times the score: `octaves` of 2**`bits` cells, cut at the bins.

    The cell of a score is read off its leading bits. The first cell also holds all smaller scores, the last 1 itself.
    """

    octaves: int
    bits: int

    @property
    def number(self) -> int:
        """The number of cells."""
        return self.octaves * 2**self.bits + N_BINS

    def of(self, scores: Array) -> Ints:
        """Return the cell of each score.

        >>> CellGrid(3, 1).of(np.array([0.0, 0.126, 0.25, 0.3, 0.5, 0.75 - 1e-15, 0.9, 1.0])).tolist()
        [0, 1, 5, 6, 11, 16, 18, 20]
        """
        integer = np.int32 if scores.dtype == np.float32 else np.int64
        shift = np.finfo(scores.dtype).nmant - self.bits
        first = scores.dtype.type(2.0**-self.octaves).view(integer) >> shift
        leading = np.clip(scores + scores.dtype.type(SAME_SCORE), 0, 1).view(integer) >> shift
        # Both terms grow with the score, so two scores have the same sum only if they share the cell and the bin.
        return np.maximum(leading - first, 0) + bin_of(scores, _BIN_EDGES)

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """The smallest and the largest score of each cell."""
        steps = 1 + np.arange(2**self.bits) / 2**self.bits
        starts = np.outer(2.0 ** np.arange(-self.octaves, 0), steps).ravel()
        starts = np.append(starts[1:], 1.0)
        breaks = np.sort(np.concatenate([starts - SAME_SCORE, _BIN_EDGES + SAME_SCORE]))
        low = np.append(LOWEST, np.nextafter(breaks, 1.0))
        high = np.append(breaks, HIGHEST)
        return low, high


class Cells:
    """One event: the weight of each cell's misses and hits, their scores, and the range of all scores in the cell.

    Weights may have several columns, one per weighting of the rows. Scores are those of the first column.
    """

    def __init__(self, grid: CellGrid, n_columns: int = 1) -> None:
        self.grid = grid
        self.weight = np.zeros((2 * grid.number, n_columns))  # misses, then hits
        self.score = np.zeros(2 * grid.number)  # sums of weight * score
        self.low = np.full(grid.number, np.inf)
        self.high = np.full(grid.number, -np.inf)

    def add(self, event: Scored, weights: Floats) -> None:
        """Add rows with weights (n, b)."""
        cell = self.grid.of(event.scores)
        place = cell + self.grid.number * event.hits.astype(np.int64)
        sums = PlaceSums(place[:, None], np.ones((len(place), 1)), len(self.score))
        self.weight += sums.of(Block(weights, np.ones(weights.shape[1])))
        self.score += np.bincount(place, weights[:, 0] * event.scores, len(self.score))
        np.minimum.at(self.low, cell, event.scores)
        np.maximum.at(self.high, cell, event.scores)

    def merge(self, other: Self) -> None:
        """Add all rows of other cells."""
        self.weight += other.weight
        self.score += other.score
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)

    def as_rows(self, columns: Bools, n_rows: Floats, tied: bool = False) -> tuple[Scored, Block]:
        """Return a row for the misses and a row for the hits of each cell, and its weight in the chosen columns.

        `n_rows` are the effective numbers of rows of these columns. If `tied`, both rows of a cell have one score:
        scores of their own would order rows whose order is not known.
        """
        used = np.flatnonzero(self.weight[:, 0] > 0)
        cell = used % self.grid.number
        means = self.score[used] / self.weight[used, 0]
        if tied:
            score, weight = (sums.reshape(2, -1).sum(axis=0) for sums in (self.score, self.weight[:, 0]))
            means = score[cell] / weight[cell]
        scores = np.clip(means, self.low[cell], self.high[cell])
        hits = (used >= self.grid.number).astype(np.float64)
        weights = self.weight[used][:, columns]
        shares = weights / weights.sum(axis=0)
        return Scored(scores, hits, given_weights=shares[:, 0]), Block(shares, n_rows)

    @property
    def total(self) -> float:
        """The weight of all rows."""
        return float(self.weight[:, 0].sum())

    @property
    def share(self) -> Floats:
        """The share of the weight that each cell holds."""
        return self.weight[:, 0].reshape(2, -1).sum(axis=0) / self.total

    @property
    def varied(self) -> Bools:
        """Whether a cell holds different scores, so that the order of its rows is not known."""
        return self.high - self.low > SAME_SCORE

    @property
    def changes(self) -> Floats:
        """What each cell adds to the running gap of scores and hits."""
        hits = self.weight[self.grid.number :, 0]
        return (self.score.reshape(2, -1).sum(axis=0) - hits) / self.total

    @property
    def rises(self) -> Floats:
        """How far the running gap may rise inside each cell: by its misses."""
        misses = self.score[: self.grid.number]
        return np.where(self.varied, misses / self.total, np.maximum(self.changes, 0.0))

    @property
    def falls(self) -> Floats:
        """How far the running gap may fall inside each cell: by its hits."""
        return self.rises - self.changes


class ClassCells:
    """The events "the label is this class" of all classes.

    In a wide row most probabilities are in the first cell. These misses are not added up one by one: they are what the
    other cells leave of all misses.
    """

    def __init__(self, n_classes: int) -> None:
        octaves = math.ceil(math.log2(n_classes)) + 4  # a sixteenth of an even share
        cells = max(1.0, 2**20 / (n_classes * octaves))  # about 8 MB for each of four sums
        self.grid = CellGrid(octaves, min(11, max(2, math.floor(math.log2(cells)))))
        self.weight = np.zeros((2, n_classes, self.grid.number))  # misses, hits
        self.score = np.zeros((2, n_classes, self.grid.number))
        self.missed_scores = np.zeros(n_classes)  # of all misses, those in the first cell too

    def add(self, rows: Rows, weights: Floats) -> None:
        """Add rows with these weights."""
        shape = rows.probabilities.shape
        for some in row_blocks(*shape):
            p = rows.probabilities[some].astype(np.promote_types(rows.probabilities.dtype, np.float32))
            weight = weights[some]
            labels = rows.labels[some]
            own = np.arange(len(labels)), labels
            self._add(1, labels, p[own], weight)
            p[own] = 0.0
            self.missed_scores += column_sums(p, weight)
            beyond = np.flatnonzero(p > p.dtype.type(2.0**-self.grid.octaves))
            row, column = np.divmod(beyond, shape[1])
            self._add(0, column, p.reshape(-1)[beyond], weight[row])

    def _add(self, hit: int, classes: Ints, scores: Array, weights: Floats) -> None:
        place = classes * self.grid.number + self.grid.of(scores)
        np.add.at(self.weight[hit].reshape(-1), place, weights)
        np.add.at(self.score[hit].reshape(-1), place, weights * scores)

    def merge(self, other: Self) -> None:
        """Add all rows of other cells."""
        self.weight += other.weight
        self.score += other.score
        self.missed_scores += other.missed_scores

    def events(self, total: float) -> Iterator[Cells]:
        """Yield the cells of each class; `total` is the weight of all rows."""
        for c in range(self.weight.shape[1]):
            cells = Cells(self.grid)
            cells.low, cells.high = self.grid.ends
            cells.weight[:, 0] = self.weight[:, c].ravel()
            cells.score[:] = self.score[:, c].ravel()
            cells.weight[0] = max(0.0, total - cells.weight[1:].sum())
            cells.score[0] = self.missed_scores[c] - self.score[0, c, 1:].sum()
            yield cells
