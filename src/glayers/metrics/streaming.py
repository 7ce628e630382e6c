"""Predictions in chunks -> the scorecard of all of them, in constant memory: `update`, `merge`, `result`.

Streaming is compression: the metrics are those of `METRICS`, evaluated on few rows that stand for many. Means of a
value per row are sums. Events become cells of scores (`cells.py`), which depend neither on the order of the chunks nor
on how rows are divided among them, but for rounding. The order of the scores inside a cell is lost, so metrics that
depend on it have a bound of their error.

Few rows are kept as they are, and `result` is that of `scorecard`. docs/design/0023-streaming.md gives the reasons.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import Any, Literal, Self

import numpy as np

from glayers.arrays import Array, Floats, to_floats, to_numpy
from glayers.checks import check_choice, number_between, whole_number
from glayers.errors import BadPredictions
from glayers.metrics.bootstrap import Bootstrapped, Evidence
from glayers.metrics.cells import CellGrid, Cells, CellValue, ClassCells
from glayers.metrics.events import Event, Rows, Scored, check_any, rank_events, top
from glayers.metrics.metric import Block, Metric, PlaceSums
from glayers.metrics.redrawing import check_seed
from glayers.metrics.registry import METRICS, chosen_metrics, evaluate_once
from glayers.metrics.row_draws import SmallestKeys, content_keys, group_keys, hash_bits, poisson_counts
from glayers.metrics.scorecard import Intervals, Scorecard
from glayers.predictions.predictions import Confidences, Predictions

__all__ = ["StreamingScorecard"]

_EXACT_ENTRIES = 2**21  # probabilities that are kept as they are: 16 MB in float64
_AT_ONCE = 2**23  # entries that are added up at once
_DRAWN_AT_ONCE = 2**18  # weights of resamples that are added up at once: 2 MB
_MIDDLING = 1e-140, 1e140  # the largest weight must lie between: squares of weights must be normal numbers
# Relative widths 1/4096 and 1/2048 keep the bounds of KS below 5e-5. Resamples need less: only the spread counts.
_EVENT_GRID = CellGrid(octaves=14, bits=12)
_RANK_GRID = CellGrid(octaves=12, bits=11)
_DRAWN_EVENT_GRID = CellGrid(octaves=10, bits=7)
_DRAWN_RANK_GRID = CellGrid(octaves=10, bits=6)


def _metrics_of(n_classes: int) -> list[Metric]:
    """Return the metrics that rows with this many classes allow; 0 stands for one event per row."""
    return [metric for metric in METRICS.values() if n_classes or metric.about == "event"]


def _grids(n_classes: int, event: CellGrid, other_ranks: CellGrid) -> list[CellGrid]:
    """Return the grid of each event: the one of the scorecard, and the other ranks that metrics look at."""
    most = max((metric.at_most for metric in METRICS.values() if metric.about == "ranks"), default=1)
    n_ranks = max(1, min(most, n_classes))
    return [event] + [other_ranks] * (n_ranks - 1)


def _events_of(rows: Rows | Scored, n_events: int) -> list[Scored]:
    if isinstance(rows, Scored):
        return [rows]
    return rank_events(rows, n_events)


class RowSums:
    """Weighted sums of the row values of each metric about rows, (2, b): of finite values, and of infinite ones."""

    def __init__(self, n_classes: int, n_columns: int) -> None:
        self.metrics = [metric for metric in _metrics_of(n_classes) if metric.about == "rows"]
        self.sums = {metric.name: np.zeros((2, n_columns)) for metric in self.metrics}

    def add(self, rows: Rows | Scored, weights: Floats) -> None:
        """Add rows with weights (n, b)."""
        for metric in self.metrics:
            values = metric.evaluate(rows)
            infinite = np.isinf(values)
            self.sums[metric.name][0] += np.where(infinite, 0.0, values) @ weights
            self.sums[metric.name][1] += infinite @ weights

    def merge(self, other: Self) -> None:
        """Add all rows of another."""
        for name, sums in other.sums.items():
            self.sums[name] += sums

    def means(self, total: Floats) -> dict[str, Floats]:
        """Return each metric, (b,), for rows of this total weight."""
        found = {}
        for metric in self.metrics:
            finite, infinite = self.sums[metric.name]
            values = np.where(infinite > 0, np.inf, finite / total)
            found[metric.name] = np.minimum(values, metric.highest)
        return found


class CompressedRows:
    """What is kept of rows that are too many to keep: sums of row values, and cells of events."""

    def __init__(self, n_classes: int) -> None:
        self.n_classes = n_classes
        self.weight = 0.0
        self.squared_weight = 0.0
        self.row_sums = RowSums(n_classes, 1)
        self.events = [Cells.empty(grid) for grid in _grids(n_classes, _EVENT_GRID, _RANK_GRID)]
        self.classes = ClassCells(n_classes) if n_classes else None

    def add(self, rows: Rows | Scored) -> None:
        """Add rows."""
        weights = _own_weights(rows)
        self.weight += float(weights.sum())
        self.squared_weight += float(weights @ weights)
        self.row_sums.add(rows, weights[:, None])
        for cells, event in zip(self.events, _events_of(rows, len(self.events)), strict=True):
            cells.add(event, weights)
        if self.classes is not None and isinstance(rows, Rows):
            self.classes.add(rows, weights)

    def merge(self, other: Self) -> None:
        """Add all rows of another."""
        self.weight += other.weight
        self.squared_weight += other.squared_weight
        self.row_sums.merge(other.row_sums)
        for cells, others in zip(self.events, other.events, strict=True):
            cells.merge(others)
        if self.classes is not None and other.classes is not None:
            self.classes.merge(other.classes)

    def evaluate(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return every metric, and how far it may lie from the exact value where that is known."""
        means = self.row_sums.means(np.array([self.weight]))
        values = {name: float(value[0]) for name, value in means.items()}
        bounds = dict.fromkeys(values, 0.0)
        families: dict[str, Iterable[Cells]] = {"event": self.events[:1], "ranks": self.events}
        if self.classes is not None:
            families["classes"] = self.classes.events(self.weight)
        for about, cells in families.items():
            metrics = [metric for metric in _metrics_of(self.n_classes) if metric.about == about]
            for name, (value, bound) in self._means(metrics, cells).items():
                values[name] = value
                if not math.isnan(bound):
                    bounds[name] = bound
        in_order = [name for name in METRICS if name in values]
        return {name: values[name] for name in in_order}, {name: bounds[name] for name in in_order if name in bounds}

    def _means(self, metrics: list[Metric], family: Iterable[Cells]) -> dict[str, tuple[float, float]]:
        """Return the mean value over events, and the mean bound: nan if none is known."""
        found: dict[str, list[tuple[float, float]]] = {metric.name: [] for metric in metrics}
        for place, cells in enumerate(family):
            event = cells.scored(self.weight**2 / self.squared_weight)
            block = Block.of(event)
            for metric in metrics:
                if metric.about == "ranks" and place >= metric.at_most:
                    continue
                value = float(metric.evaluate(event, block)[0])
                bound = math.nan
                if metric.cell_error is not None:
                    bound = metric.cell_error(CellValue(cells, event, value))
                found[metric.name].append((value, bound))
        return {name: tuple(np.mean(pairs, axis=0).tolist()) for name, pairs in found.items()}


class DrawnCells:
    """The weight of each cell's misses and hits in each resample, and their scores in the sample."""

    def __init__(self, grid: CellGrid, n_columns: int) -> None:
        self.grid = grid
        self.weight = np.zeros((2 * grid.number, n_columns))
        self.score = np.zeros(2 * grid.number)

    def add(self, event: Scored, weights: Floats) -> None:
        """Add rows with weights (n, b), of which the first column is the sample's."""
        place = self.grid.of(event.scores) + self.grid.number * event.hits.astype(np.int64)
        sums = PlaceSums(place[:, None], np.ones((len(place), 1)), len(self.score))
        self.weight += sums.of(Block(weights, np.ones(weights.shape[1])))
        np.add.at(self.score, place, weights[:, 0] * event.scores)

    def merge(self, other: Self) -> None:
        """Add all rows of another."""
        self.weight += other.weight
        self.score += other.score

    def event(self, columns: Array, totals: Floats) -> tuple[Scored, Block]:
        """Return the cells as rows, and their weights in these columns with their effective numbers of rows."""
        used = np.flatnonzero(self.weight[:, 0] > 0)
        weights = self.weight[used][:, columns]
        shares = weights / weights.sum(axis=0)
        scores = self.score[used] / self.weight[used, 0]
        hits = (used >= self.grid.number).astype(np.float64)
        return Scored(scores, hits, shares[:, 0], float(totals[0])), Block(shares, totals)


class Resamples:
    """The rows of each bootstrap resample, added up; column 0 counts every row once."""

    def __init__(self, n_classes: int, n_resamples: int, seed: int) -> None:
        self.n_classes = n_classes
        self.n_resamples = n_resamples
        self.seed = seed
        n_columns = 1 + n_resamples
        self.sums = np.zeros((4, n_columns))  # weights of all rows and of hits, then squared weights of both
        self.row_sums = RowSums(n_classes, n_columns)
        grids = _grids(n_classes, _DRAWN_EVENT_GRID, _DRAWN_RANK_GRID)
        self.events = [DrawnCells(grid, n_columns) for grid in grids]
        self.groups: SmallestKeys | None = None

    def add(self, rows: Rows | Scored, keys: Array) -> None:
        """Add the rows to every resample, as often as the key of each says."""
        if rows.groups is not None:
            self._add_groups(SmallestKeys(np.unique(keys)))
        start = 0
        for part in _parts(rows, _DRAWN_AT_ONCE, self.n_resamples + 1):
            stop = start + len(part.weights)
            counts = poisson_counts(keys[start:stop], self.n_resamples, self.seed)
            start = stop
            own = _own_weights(part)
            weights = np.concatenate([np.ones((len(own), 1)), counts], axis=1) * own[:, None]
            events = _events_of(part, len(self.events))
            hits = events[0].hits
            self.sums += np.stack([np.ones(len(own)), hits, own, own * hits]) @ weights
            self.row_sums.add(part, weights)
            for cells, event in zip(self.events, events, strict=True):
                cells.add(event, weights)

    def merge(self, other: Self) -> None:
        """Add all rows of another."""
        self.sums += other.sums
        self.row_sums.merge(other.row_sums)
        for cells, others in zip(self.events, other.events, strict=True):
            cells.merge(others)
        if other.groups is not None:
            self._add_groups(other.groups)

    def values(self) -> dict[str, Floats]:
        """Return the metrics of the sample and of each resample that has rows, but for those of classes."""
        total = self.sums[0]
        columns = np.flatnonzero(total > 0)  # in few rows a resample may have none
        n_rows = total[columns] ** 2 / self.sums[2, columns]
        with np.errstate(invalid="ignore"):
            found = {name: value[columns] for name, value in self.row_sums.means(total).items()}
        views = [cells.event(columns, n_rows) for cells in self.events]
        for metric in _metrics_of(self.n_classes):
            if metric.about == "event":
                found[metric.name] = metric.evaluate(*views[0])
            if metric.about == "ranks":
                values = [metric.evaluate(*view) for view in views[: metric.at_most]]
                found[metric.name] = np.mean(values, axis=0)
        return {name: found[name] for name in METRICS if name in found}

    def evidence(self, n_rows: int) -> Evidence:
        """Return the effective numbers of rows, of units, and of units with the rarer outcome."""
        weight, hits, squared, squared_hits = self.sums[:, 0]
        rows = _effective(weight, squared)
        errors_seen = _effective(weight - hits, squared - squared_hits)
        hits_seen = _effective(hits, squared_hits)
        rarer = "errors" if errors_seen <= hits_seen else "hits"
        units = rows
        if self.groups is not None:
            units = min(rows, self.groups.estimated_number())
        even = self.groups is None and math.isclose(rows, n_rows)
        return Evidence(rows, units, min(errors_seen, hits_seen, units), rarer, self.groups is not None, even)

    def _add_groups(self, keys: SmallestKeys) -> None:
        self.groups = keys if self.groups is None else self.groups.merge(keys)


def _effective(weight: float, squared: float) -> float:
    """Return Kish's effective number of rows."""
    return weight**2 / squared if squared > 0 else 0.0


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
        self.inputs, self.event = inputs, event
        self.n_resamples = whole_number(n_resamples, "n_resamples", least=0)
        self.random_state = check_seed(random_state) or 0
        self.exact_entries = whole_number(exact_entries, "exact_entries", least=0)
        self.n_rows = 0
        self.n_classes = 0  # not known yet, or one event per row
        self.about_classes: bool | None = None
        self._entries = 0
        self._kept: list[Rows | Scored] = []
        self._compressed: CompressedRows | None = None
        self._resamples: Resamples | None = None

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
        if isinstance(scores, Predictions | Confidences):
            given: Any = scores
        else:
            array = to_floats(scores, self.inputs)
            if len(array) == 0 or _all_zero(sample_weight):
                self.n_rows += len(array)
                return self
            given = array
            if self.inputs == "logits":  # rows of a chunk may look like probabilities by chance
                given = Predictions._trusted(array, labels, sample_weight, groups, None, None)
                labels = sample_weight = groups = None
        if len(given) == 0:
            return self
        rows = check_any(given, labels, sample_weight, groups, strict=True)
        if isinstance(rows, Rows) and self.event != top:  # a copy from another process is not the same object
            rows = self.event.of(rows)
        self._same_kind(rows)
        if rows.given_weights is not None and not _MIDDLING[0] < rows.given_weights.max() < _MIDDLING[1]:
            raise BadPredictions(
                f"sample_weight up to {rows.given_weights.max():g} cannot be squared and added up; "
                f"divide all weights by a common factor"
            )
        if self.n_resamples:
            keys = _keys(given, rows, row_ids)
            self._into_resamples().add(rows, keys)
        self.n_rows += len(rows.weights)
        self._entries += len(rows.weights) * max(1, self.n_classes)
        self._kept.append(rows)
        if self._entries > self.exact_entries:
            self._fold()
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
        if other.about_classes is not None:
            self._same_kind(other)
        self.n_rows += other.n_rows
        self._entries += other._entries
        self._kept += other._kept
        if other._compressed is not None:
            self._into_cells().merge(other._compressed)
        if other._resamples is not None:
            self._into_resamples().merge(other._resamples)
        if self._entries > self.exact_entries:
            self._fold()
        return self

    def alike(self) -> Self:
        """Return an empty accumulator with the same settings."""
        settings: dict[str, Any] = {"n_resamples": self.n_resamples, "random_state": self.random_state}
        return type(self)(self.inputs, event=self.event, exact_entries=self.exact_entries, **settings)

    @property
    def exact(self) -> bool:
        """Whether all rows are still kept, so that every metric is exact."""
        return self._entries <= self.exact_entries

    def result(self) -> Scorecard:
        """Return the scorecard of all rows so far.

        Returns
        -------
        Scorecard
            With the metrics of `scorecard`. SKCE compares pairs of rows and has no accumulator.
        """
        values, _ = self._evaluate()
        return Scorecard(values, self.n_rows, self.n_classes or None)

    def error_bounds(self) -> dict[str, float]:
        """Return how far each metric may lie from its exact value, beyond rounding.

        Returns
        -------
        dict
            Empty while all rows are kept. A metric that is missing has no known bound.
        """
        return self._evaluate()[1]

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
        resamples = self._into_resamples()
        evidence = resamples.evidence(self.n_rows)
        ends = {}
        for name, values in resamples.values().items():
            at_sample = values[0]
            drawn = values[1:]
            if math.isfinite(at_sample):  # cells of resamples are wide: take only the spread from them
                drawn = drawn + (card[name] - at_sample)
            ends[name] = Bootstrapped(card[name], np.zeros(0), drawn, METRICS[name], evidence).interval(level)
        return Intervals(ends, card, level, "percentile", self.n_resamples)

    def rows_kept(self) -> Rows | Scored | None:
        """Return all rows while they are kept, in the order they came; None after that."""
        return _together(self._kept) if self.exact and self._kept else None

    def _same_kind(self, rows: Any) -> None:
        about_classes = rows.about_classes if isinstance(rows, StreamingScorecard) else isinstance(rows, Rows)
        n_classes = rows.n_classes if about_classes else 0
        if self.about_classes is None:
            self.about_classes, self.n_classes = about_classes, n_classes
        elif (about_classes, n_classes) != (self.about_classes, self.n_classes):
            said = [f"{n} classes" if n else "one event per row" for n in (self.n_classes, n_classes)]
            raise BadPredictions(f"earlier rows had {said[0]}, these have {said[1]}; score them apart")

    def _evaluate(self) -> tuple[dict[str, float], dict[str, float]]:
        if self.about_classes is None:
            raise BadPredictions("there are no rows of positive weight yet; call update first")
        rows = self.rows_kept()
        if rows is not None:
            return evaluate_once(rows, chosen_metrics(rows)), {}
        return self._into_cells().evaluate()

    def _into_cells(self) -> CompressedRows:
        if self._compressed is None:
            self._compressed = CompressedRows(self.n_classes)
        return self._compressed

    def _into_resamples(self) -> Resamples:
        if self._resamples is None:
            self._resamples = Resamples(self.n_classes, self.n_resamples, self.random_state)
        return self._resamples

    def _fold(self) -> None:
        """Compress the rows that are kept."""
        kept = self._kept
        self._kept = []
        for rows in kept:
            for part in _parts(rows, _AT_ONCE):
                self._into_cells().add(part)


def _own_weights(rows: Rows | Scored) -> Floats:
    return np.ones(len(rows.weights)) if rows.given_weights is None else rows.given_weights


def _all_zero(weights: object) -> bool:
    if weights is None:
        return False
    array = to_numpy(weights, "sample_weight")
    return array.ndim == 1 and array.dtype.kind in "biuf" and not array.any()


def _keys(given: Any, rows: Rows | Scored, row_ids: object) -> Array:
    """Return the key of each row, or of its group; the copies that counts make differ."""
    if rows.groups is not None:
        return group_keys(rows.groups)
    counts = getattr(given, "counts", None)
    if row_ids is not None:
        keys = hash_bits(to_numpy(row_ids, "row_ids").astype(np.uint64))
        if counts is None and keys.shape != rows.weights.shape:
            raise BadPredictions(f"row_ids must have shape {rows.weights.shape}, one per row; got {keys.shape}")
        keys = keys if counts is None else np.repeat(keys, counts)
    elif isinstance(rows, Rows):
        keys = content_keys(rows.probabilities if rows.logits is None else rows.logits, rows.labels)
    else:
        keys = content_keys(rows.scores, rows.hits)
    if counts is not None:
        copy = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
        keys = hash_bits(keys + copy.astype(np.uint64))
    return keys


def _parts(rows: Rows | Scored, entries: int, columns: int = 1) -> Iterator[Rows | Scored]:
    """Yield some rows at a time."""
    width = max(columns, rows.n_classes if isinstance(rows, Rows) else 1)
    step = max(1, entries // width)
    for first in range(0, len(rows.weights), step):
        some = slice(first, first + step)
        arrays: dict[str, Any] = {each.name: getattr(rows, each.name) for each in fields(rows)}
        parts: dict[str, Any] = {name: v[some] for name, v in arrays.items() if isinstance(v, np.ndarray)}
        yield replace(rows, **parts)


def _together(parts: list[Rows | Scored]) -> Rows | Scored:
    """Return all rows as one record, with weights that sum to 1."""
    weights = np.concatenate([_own_weights(part) for part in parts])
    given = None if all(part.given_weights is None for part in parts) else weights
    shares = weights / weights.sum()
    whole: dict[str, Any] = {
        "weights": shares,
        "total": 1 / float(shares @ shares),
        "given_weights": given,
        "groups": None,
    }
    names = ("probabilities", "labels", "logits", "losses") if isinstance(parts[0], Rows) else ("scores", "hits")
    for name in names:
        if getattr(parts[0], name) is not None:
            whole[name] = np.concatenate([getattr(part, name) for part in parts])
    return replace(parts[0], **whole)
