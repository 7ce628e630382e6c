"""Predictions in chunks -> the scorecard of all of them, in constant memory: `update`, `merge`, `result`.

Streaming is compression: the metrics are those of `METRICS`, evaluated on few rows that stand for many. Means of a
value per row are sums. Events become cells of scores (`cells.py`), which depend neither on the order of the chunks nor
on how rows are divided among them, but for rounding. The order of the scores inside a cell is lost, so metrics that
depend on it have a bound of their error.

Few rows are kept as they are, and `result` is that of `scorecard`. docs/design/0011-streaming.md gives the reasons.
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
from glayers.metrics.events import Event, Rows, Scored, check_any, effective_number, own_weights, rank_events, top
from glayers.metrics.metric import Metric
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


class CompressedRows:
    """What is kept of rows that are too many to keep: sums of row values, and cells of events.

    Weights have one column per weighting of the rows; the first is the sample's own. The cells of classes have only
    that one, and are left out where there are more.
    """

    def __init__(self, n_classes: int, n_columns: int, event_grid: CellGrid, rank_grid: CellGrid) -> None:
        self.n_classes = n_classes
        self.sums = np.zeros((4, n_columns))  # weights of all rows and of hits, then squared weights of both
        by_row = [metric.name for metric in self._metrics("rows")]
        self.row_sums = {name: np.zeros((2, n_columns)) for name in by_row}  # of finite values, and of infinite ones
        n_ranks = max([1] + [min(metric.at_most, n_classes) for metric in self._metrics("ranks")])
        self.events = [Cells.empty(event_grid, n_columns)]
        self.events += [Cells.empty(rank_grid, n_columns) for _ in range(1, n_ranks)]
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
            values = METRICS[name].evaluate(rows)
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

    def values(self) -> dict[str, Floats]:
        """Return every metric for each column that has rows."""
        return {name: values for name, (values, _) in self._evaluated().items()}

    def bounds(self) -> dict[str, float]:
        """Return how far each metric may lie from its exact value, where that is known."""
        bounds = {name: bound for name, (_, bound) in self._evaluated().items()}
        return {name: bound for name, bound in bounds.items() if not math.isnan(bound)}

    def _metrics(self, about: str) -> list[Metric]:
        """Return the metrics about rows, events, ranks or classes that these rows allow."""
        if self.n_classes == 0 and about != "event":
            return []
        return [metric for metric in METRICS.values() if metric.about == about]

    def _evaluated(self) -> dict[str, tuple[Floats, float]]:
        """Return the value of each metric, and its bound: nan if none is known."""
        total = self.sums[0]
        found = {}
        for name, (finite, infinite) in self.row_sums.items():
            seen = total > 0
            values = np.where(infinite[seen] > 0, np.inf, finite[seen] / total[seen])
            found[name] = np.minimum(values, METRICS[name].highest), 0.0
        families: dict[str, Iterable[Cells]] = {"event": self.events[:1], "ranks": self.events}
        if self.classes is not None:
            families["classes"] = self.classes.events(total[0])
        for about, family in families.items():
            found |= self._means(self._metrics(about), family)
        return {name: found[name] for name in METRICS if name in found}

    def _means(self, metrics: list[Metric], family: Iterable[Cells]) -> dict[str, tuple[Floats, float]]:
        """Return the means over events of values and bounds."""
        n_rows = _effective(self.sums[0], self.sums[2])
        values: dict[str, list[Floats]] = {metric.name: [] for metric in metrics}
        bounds: dict[str, list[float]] = {metric.name: [] for metric in metrics}
        for place, cells in enumerate(family):
            event, block = cells.as_rows(n_rows)
            for metric in metrics:
                if metric.about == "ranks" and place >= metric.at_most:
                    continue
                value = metric.evaluate(event, block)
                bound = math.nan
                if metric.cell_error is not None:
                    bound = metric.cell_error(CellValue(cells, event, float(value[0])))
                values[metric.name].append(value)
                bounds[metric.name].append(bound)
        found = {}
        for name in values:
            found[name] = np.mean(values[name], axis=0), float(np.mean(bounds[name]))
        return found


def _effective(weight: Floats, squared: Floats) -> Floats:
    """Return Kish's effective number of rows; 0 where there are none."""
    return np.where(squared > 0, weight**2 / np.where(squared > 0, squared, 1.0), 0.0)


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
        self.n_classes = 0  # not known yet, or one event per row
        self.started = False  # no rows of positive weight yet
        self._entries = 0
        self._kept: list[Rows | Scored] = []
        self._compressed: CompressedRows | None = None
        self._resampled: CompressedRows | None = None  # column 0 counts every row once
        self._groups: SmallestKeys | None = None

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
            self._resample(rows, _keys(given, rows, row_ids))
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
        if other.started:
            self._same_kind(other)
        self.n_rows += other.n_rows
        self._entries += other._entries
        self._kept += other._kept
        if other._compressed is not None:
            self._cells().merge(other._compressed)
        if other._resampled is not None:
            self._resamples().merge(other._resampled)
        if other._groups is not None:
            self._add_groups(other._groups)
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
        rows = self._rows_seen()
        if rows is not None:
            values = evaluate_once(rows, chosen_metrics(rows))
        else:
            values = {name: float(value[0]) for name, value in self._cells().values().items()}
        return Scorecard(values, self.n_rows, self.n_classes or None)

    def error_bounds(self) -> dict[str, float]:
        """Return how far each metric may lie from its exact value, beyond rounding.

        Returns
        -------
        dict
            Empty while all rows are kept. A metric that is missing has no known bound.
        """
        if self._rows_seen() is not None:
            return {}
        return self._cells().bounds()

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
        for name, values in self._resamples().values().items():
            at_sample = values[0]
            drawn = values[1:]
            if math.isfinite(at_sample):  # cells of resamples are wide: take only the spread from them
                drawn = drawn + (card[name] - at_sample)
            ends[name] = Bootstrapped(card[name], np.zeros(0), drawn, METRICS[name], evidence).interval(level)
        return Intervals(ends, card, level, "percentile", self.n_resamples)

    def rows_kept(self) -> Rows | Scored | None:
        """Return all rows while they are kept, in the order they came; None after that."""
        if not self.exact or not self._kept:
            return None
        return _together(self._kept)

    def _same_kind(self, rows: Any) -> None:
        if not self.started:
            self.started = True
            self.n_classes = rows.n_classes
        elif rows.n_classes != self.n_classes:
            earlier, these = (f"{n} classes" if n else "one event per row" for n in (self.n_classes, rows.n_classes))
            raise BadPredictions(f"earlier rows had {earlier}, these have {these}; score them apart")

    def _rows_seen(self) -> Rows | Scored | None:
        """Return all rows while they are kept, and refuse to go on without any."""
        if not self.started:
            raise BadPredictions("there are no rows of positive weight yet; call update first")
        return self.rows_kept()

    def _cells(self) -> CompressedRows:
        if self._compressed is None:
            self._compressed = CompressedRows(self.n_classes, 1, _EVENT_GRID, _RANK_GRID)
        return self._compressed

    def _resamples(self) -> CompressedRows:
        if self._resampled is None:
            n_columns = 1 + self.n_resamples
            self._resampled = CompressedRows(self.n_classes, n_columns, _DRAWN_EVENT_GRID, _DRAWN_RANK_GRID)
        return self._resampled

    def _fold(self) -> None:
        """Compress the rows that are kept."""
        kept = self._kept
        self._kept = []
        for rows in kept:
            for part in _parts(rows, _AT_ONCE):
                self._cells().add(part, own_weights(part)[:, None])

    def _resample(self, rows: Rows | Scored, keys: Array) -> None:
        """Add the rows to every resample, as often as the key of each says."""
        if rows.groups is not None:
            self._add_groups(SmallestKeys(np.unique(keys)))
        start = 0
        for part in _parts(rows, _DRAWN_AT_ONCE, self.n_resamples + 1):
            stop = start + len(part.weights)
            counts = poisson_counts(keys[start:stop], self.n_resamples, self.random_state)
            start = stop
            times = np.insert(counts.astype(np.float64), 0, 1.0, axis=1)
            self._resamples().add(part, times * own_weights(part)[:, None])

    def _add_groups(self, keys: SmallestKeys) -> None:
        if self._groups is not None:
            keys = self._groups.merge(keys)
        self._groups = keys

    def _evidence(self) -> Evidence:
        weight, hits, squared, squared_hits = self._resamples().sums[:, :1]
        (rows,) = _effective(weight, squared).tolist()
        (errors_seen,) = _effective(weight - hits, squared - squared_hits).tolist()
        (hits_seen,) = _effective(hits, squared_hits).tolist()
        rarer = "errors" if errors_seen <= hits_seen else "hits"
        units = rows
        if self._groups is not None:
            units = min(rows, self._groups.estimated_number())
        even = self._groups is None and math.isclose(rows, self.n_rows)
        return Evidence(rows, units, min(errors_seen, hits_seen, units), rarer, self._groups is not None, even)


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
        if counts is not None:
            keys = np.repeat(keys, counts)
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
    width = max(columns, rows.n_classes)
    step = max(1, entries // width)
    for first in range(0, len(rows.weights), step):
        parts: dict[str, Any] = {}
        for field in fields(rows):
            value = getattr(rows, field.name)
            if isinstance(value, np.ndarray):
                parts[field.name] = value[first : first + step]
        yield replace(rows, **parts)


def _together(parts: list[Rows | Scored]) -> Rows | Scored:
    """Return all rows as one record, with weights that sum to 1."""
    weights = np.concatenate([own_weights(part) for part in parts])
    given = None if all(part.given_weights is None for part in parts) else weights
    shares = weights / weights.sum()
    total = effective_number(shares)
    whole: dict[str, Any] = {"weights": shares, "total": total, "given_weights": given, "groups": None}
    names = ["scores", "hits"]
    if isinstance(parts[0], Rows):
        names = ["probabilities", "labels", "logits", "losses"]
    for name in names:
        if getattr(parts[0], name) is not None:
            whole[name] = np.concatenate([getattr(part, name) for part in parts])
    return replace(parts[0], **whole)
