"""Predictions in chunks -> the scorecard of all of them, in constant memory: `update`, `merge`, `result`.

Most metrics are sums over rows. They are added up with compensation, so that neither the order of the chunks nor how
rows are divided among them matters. Smooth ECE and equal-width bins are sums too, over a fixed grid. KS and equal-mass
bins depend on the order of all scores. They use a histogram of narrow cells (`stream_sums.Cells`). The running gap of
KS is exact at the ends of cells, and within a cell it can only rise by the misses and fall by the hits, so the error
has a bound.

Few rows are kept as they are, and `result` is that of `scorecard`. docs/design/0023-streaming.md gives the reasons.
"""

import math
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, Literal, Self

import numpy as np

from glayers.arrays import Array, Floats, to_floats, to_numpy
from glayers.checks import check_choice, number_between, whole_number
from glayers.errors import BadPredictions
from glayers.metrics.bootstrap import Bootstrapped, Evidence
from glayers.metrics.events import Event, Rows, Scored, check_any, top
from glayers.metrics.redrawing import check_seed
from glayers.metrics.registry import METRICS, chosen_metrics, evaluate_once
from glayers.metrics.row_draws import SmallestKeys, content_keys, group_keys, mixed, poisson_counts
from glayers.metrics.scorecard import Intervals, Scorecard
from glayers.metrics.stream_sums import (
    FINE,
    add_classes,
    add_extremes,
    bounds_of,
    class_changes,
    ks_with_bound,
    metrics_of,
    sums_of,
)
from glayers.predictions.predictions import Confidences, Predictions

__all__ = ["StreamingScorecard"]

_EXACT_ENTRIES = 2**21  # probabilities that are kept as they are: 16 MB in float64
_AT_ONCE = 2**23  # entries that are added up at once
_MIDDLING = 1e-140, 1e140  # the largest weight must lie between: squares of weights must be normal numbers


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
        self.n_rows, self.n_classes = 0, 0  # 0 classes: not known yet
        self.about_classes: bool | None = None  # or about one event
        self._entries = 0
        self._kept: list[Rows | Scored] = []
        self._sums: dict[str, Floats] = {}
        self._cut_off: dict[str, Floats] = {}  # what rounding has cut off from some of the sums
        self._class_sums: dict[str, Floats] = {}
        self._extremes = np.full((2, FINE.number), np.inf)  # the smallest score, and the smallest -score, in each cell
        self._drawn: dict[str, Floats] = {}  # (..., 1 + n_resamples): the sample first
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
            self._draw(rows, _keys(given, rows, row_ids))
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
        for name, value in (*other._sums.items(), *other._cut_off.items()):
            self._add(name, value)
        for own, others in ((self._class_sums, other._class_sums), (self._drawn, other._drawn)):
            for name, value in others.items():
                own[name] = own[name] + value if name in own else value.copy()
        self._extremes = np.minimum(self._extremes, other._extremes)
        if other._groups is not None:
            self._groups = other._groups if self._groups is None else self._groups.merge(other._groups)
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
        """Return how far the metrics that use cells may lie from their exact values; all others agree to 1e-12.

        Returns
        -------
        dict
            Empty while all rows are kept. KS errors are never above the exact value, and at most this far below.
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
        values, _ = self._evaluate()
        seen = self._drawn["means"][0] > 0  # in few rows a resample may have none
        drawn = metrics_of({name: value[..., seen] for name, value in self._drawn.items()}, self.n_classes)
        evidence, ends = self._evidence(), {}
        for name in (name for name in METRICS if name in drawn):
            at_sample, resamples = drawn[name][0], drawn[name][1:]
            moved = resamples + (values[name] - at_sample) if math.isfinite(at_sample) else resamples
            ends[name] = Bootstrapped(values[name], np.zeros(0), moved, METRICS[name], evidence).interval(level)
        if "mce" in ends:
            ends["mce"] = ends["mce"]._replace(unreliable=ends["mce"].unreliable or "the largest of many bins")
        return Intervals(ends, self.result(), level, "percentile", self.n_resamples)

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
        sums = {name: value + self._cut_off.get(name, 0.0) for name, value in self._sums.items()}
        total = float(sums["means"][0, 0])
        found = {name: float(value[0]) for name, value in metrics_of(sums, self.n_classes).items()}
        bounds = bounds_of(sums, self._extremes, found["debiased_rms_calibration_error"])
        if self.n_classes:
            per_class = np.array(
                [ks_with_bound(*pair) for pair in class_changes(self._class_sums, self.n_classes, total)]
            )
            found["classwise_ks"], bounds["classwise_ks"] = per_class.mean(axis=0).tolist()
            found["classwise_ece"] = float(np.abs(sums["class_gaps"] / total).sum(axis=1).mean())
        return {name: found[name] for name in METRICS if name in found}, bounds

    def _evidence(self) -> Evidence:
        (w, hits, *_), (w2, hits2) = self._drawn["means"][:, 0], self._drawn["squared"][:, 0]
        sizes = [a**2 / b if b > 0 else 0.0 for a, b in ((w, w2), (w - hits, w2 - hits2), (hits, hits2))]
        rarer = "errors" if sizes[1] <= sizes[2] else "hits"
        units = sizes[0] if self._groups is None else min(sizes[0], self._groups.estimated_number())
        even = self._groups is None and math.isclose(sizes[0], self.n_rows)
        return Evidence(sizes[0], units, min(sizes[1], sizes[2], units), rarer, self._groups is not None, even)

    def _fold(self) -> None:
        """Add up the rows that are kept."""
        kept, self._kept = self._kept, []
        for rows in kept:
            for part in _parts(rows, _AT_ONCE):
                weights = _own_weights(part)[:, None]
                event = part.top if isinstance(part, Rows) else part
                for name, value in sums_of(part, event, weights).items():
                    self._add(name, value)
                add_extremes(event.scores, self._extremes)
                if isinstance(part, Rows):
                    self._add("class_gaps", add_classes(part, weights[:, 0], self._class_sums))

    def _add(self, name: str, value: Floats) -> None:
        """Add to a sum; where sums are exact, keep what rounding cuts off (Knuth's TwoSum)."""
        if name not in self._sums:
            self._sums[name] = value.copy()
            return
        held = self._sums[name]
        if name.startswith(("cell", "rank")):
            held += value
            return
        total = held + value
        back = total - held
        self._cut_off[name] = self._cut_off.get(name, 0.0) + ((held - (total - back)) + (value - back))
        self._sums[name] = total

    def _draw(self, rows: Rows | Scored, keys: Array) -> None:
        """Add the rows to every resample, as often as each counts in it; column 0 counts every row once."""
        if rows.groups is not None:
            distinct = np.unique(keys)
            self._groups = (self._groups or SmallestKeys()).merge(SmallestKeys(distinct))
        at = 0
        for part in _parts(rows, _AT_ONCE // 32, self.n_resamples + 1):
            some = keys[at : (at := at + len(part.weights))]
            counts = poisson_counts(some, self.n_resamples, self.random_state)
            weights = np.concatenate([np.ones((len(some), 1)), counts], axis=1) * _own_weights(part)[:, None]
            event = part.top if isinstance(part, Rows) else part
            for name, value in sums_of(part, event, weights, drawn=True).items():
                self._drawn[name] = self._drawn[name] + value if name in self._drawn else value


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
        keys = mixed(to_numpy(row_ids, "row_ids").astype(np.uint64))
        if counts is None and keys.shape != rows.weights.shape:
            raise BadPredictions(f"row_ids must have shape {rows.weights.shape}, one per row; got {keys.shape}")
        keys = keys if counts is None else np.repeat(keys, counts)
    elif isinstance(rows, Rows):
        keys = content_keys(rows.probabilities if rows.logits is None else rows.logits, rows.labels)
    else:
        keys = content_keys(rows.scores, rows.hits)
    if counts is not None:
        copy = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
        keys = mixed(keys + copy.astype(np.uint64))
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
