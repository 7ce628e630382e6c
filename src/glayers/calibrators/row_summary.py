"""Calibration rows -> a few counts that a calibrator keeps, so that new rows can be compared with them later.

How often each class is predicted, histograms of the confidence and of the logits, and how these histograms differ
between classes, for class shift. Label counts are kept too. No row is kept.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.errors import BadFile
from glayers.predictions import Predictions
from glayers.serving.artifact import decoded

CONFIDENCE, HIGHEST, SPREAD = "confidence", "highest logit", "highest logit less mean logit"
_BINS = 10
_NEVER = -800.0  # stands for one logit of -inf: exp is exactly 0
_EDGE_ROWS = 1_000  # bins then hold a tenth of the rows, give or take 0.9 %
_MOST_ROWS = 20_000  # the counts of more rows would hardly differ, and prediction takes time
_ROUNDING = 1e-5  # relative error of 1 - confidence in float32
_MOST_SHARES = 10_000  # numbers in the histograms by class: with many classes, they have fewer bins


@dataclass(frozen=True)
class Histogram:
    """Counts of a number between edges; the first and last edge are the lowest and highest value."""

    edges: tuple[float, ...]
    counts: tuple[float, ...]

    def count(self, values: Floats, weights: Floats) -> Floats:
        """Return the weight of the values in each bin; the outer bins have no end."""
        places = np.searchsorted(self.edges[1:-1], values, side="right")
        return np.bincount(places, weights, len(self.counts)).astype(np.float64)

    def outside(self, values: Floats) -> int:
        """Return how many values are lower or higher than any that was counted."""
        return int(((values < self.edges[0]) | (values > self.edges[-1])).sum())


@dataclass(frozen=True)
class ClassSummary:
    """What class shift needs of the calibration rows.

    Attributes
    ----------
    frequencies
        The frequency of each class among all labels; weights count.
    squares
        The mean square of the calibrated probability of each class.
    rows
        The effective number of independent rows behind `shares`, given weights and groups.
    shares
        By feature, for each bin and class: the mean over all rows of the calibrated probability of the class, counted
        only where the feature lies in the bin. Neighbouring bins of a histogram may form one bin here.
    """

    frequencies: tuple[float, ...]
    squares: tuple[float, ...]
    rows: float
    shares: Mapping[str, tuple[tuple[float, ...], ...]]

    def means(self) -> Floats:
        """Return the mean calibrated probability of each class."""
        total = np.array(self.shares[CONFIDENCE]).sum(axis=0)
        return np.asarray(total / total.sum())


@dataclass(frozen=True)
class RowSummary:
    """What a calibrator keeps of its calibration rows.

    Attributes
    ----------
    labels, predicted
        How often each class is the label, and how often it is the most probable class after calibration.
    histograms
        By name: the calibrated confidence, and for the logits before calibration the highest one, and the highest one
        less their mean.
    by_class
        What class shift needs.

    All counts add up to the effective number of independent rows: one row counts per group, and importance weights
    count as Kish's effective number of rows.
    """

    labels: tuple[float, ...]
    predicted: tuple[float, ...]
    histograms: Mapping[str, Histogram]
    by_class: ClassSummary

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: object) -> Self:
        """Return the record that a file holds. Raise an error for anything else."""
        what = "the summary of the calibration rows"
        record = decoded(cls, facts, what)
        by_class = record.by_class
        fits = record.histograms.keys() == {CONFIDENCE, HIGHEST, SPREAD} and CONFIDENCE in by_class.shares
        columns = [record.labels, record.predicted, by_class.frequencies, by_class.squares]
        counts = [(by_class.rows,), *columns]
        for histogram in record.histograms.values():
            counts.append(histogram.counts)
            fits &= len(histogram.edges) == len(histogram.counts) + 1 > 1
            fits &= bool(np.isfinite(histogram.edges).all() and (np.diff(histogram.edges) >= 0).all())
        for name, table in by_class.shares.items():
            columns += table
            fits &= name in record.histograms and 0 < len(table) <= len(record.histograms[name].counts)
        numbers = np.concatenate([*counts, *columns])
        fits &= len({len(column) for column in columns}) == 1
        if not fits or not np.isfinite(numbers).all() or numbers.min() < 0:
            raise BadFile(f"{what} has counts and edges that do not fit together")
        if not by_class.rows or not sum(by_class.frequencies) or not np.sum(by_class.shares[CONFIDENCE]):
            raise BadFile(f"{what} counts nothing")
        return record


@dataclass(frozen=True)
class Counted:
    """The independent rows among some rows: their features, predicted classes and weights."""

    rows: Ints
    features: dict[str, Floats]
    predicted: Ints
    weights: Floats

    def classes(self, numbers: Ints, n_classes: int) -> Floats:
        """Return the weight of each class."""
        return np.bincount(numbers, self.weights, n_classes).astype(np.float64)


def independent_rows(given: Predictions, most: int = _MOST_ROWS, one_per_group: bool = True) -> Ints:
    """Return one row of each group, or all, and no rows of weight 0; of many rows, a random part."""
    order = np.random.default_rng(0).permutation(len(given))
    if given.weights is not None:
        order = order[given.weights[order] > 0]
    if given.groups is not None and one_per_group:
        _, first = np.unique(given.groups[order], return_index=True)
        order = order[np.sort(first)]
    return np.sort(order[:most])


def count_rows(
    given: Predictions,
    rows: Ints,
    calibrate: Callable[[Ints], Floats],
    also: Callable[[slice, Array, Floats, dict[str, Floats]], None] | None = None,
) -> Counted:
    """Return the features of these rows, block by block; exponentials are taken in float32, four times as fast.

    `calibrate` returns the calibrated logits of some rows, in an array of its own. `also` is called for each block with
    its place, the exponentials of calibrated logits less the highest, their sums, and the features.
    """
    found = {name: np.empty(len(rows)) for name in (CONFIDENCE, HIGHEST, SPREAD)}
    predicted = np.empty(len(rows), np.int64)
    for some in row_blocks(len(rows), given.n_classes):
        z = calibrate(rows[some])
        predicted[some] = z.argmax(axis=1)
        top = np.arange(len(z)), predicted[some]
        z -= z[top][:, None]
        powers = z.astype(np.float32)
        np.exp(powers, out=powers)
        powers[top] = 0.0  # exp(0) = 1 is added in float64, so that confidences near 1 are exact too
        sums = 1.0 + powers.sum(axis=1).astype(np.float64)
        powers[top] = 1.0
        highest, mean = _highest_and_mean(given.logits[rows[some]])
        features = 1 / sums, highest, np.nan_to_num(highest - mean)
        block = dict(zip(found, features, strict=True))
        for name, values in block.items():
            found[name][some] = values
        if also is not None:
            also(some, powers, sums, block)
    return Counted(rows, found, predicted, _kish_weights(given, rows))


@np.errstate(over="ignore", invalid="ignore")
def _highest_and_mean(logits: Array) -> tuple[Floats, Floats]:
    """Return the highest logit of each row, and the mean of the possible ones."""
    if logits.shape[1] == 1:
        logits = np.where(logits > -np.inf, logits, _NEVER)
    mean = logits.mean(axis=1, dtype=np.float64)
    if np.isneginf(mean).any():
        mean = logits.mean(axis=1, dtype=np.float64, where=logits > -np.inf)
    return logits.max(axis=1).astype(np.float64), mean


def _kish_weights(given: Predictions, rows: Ints) -> Floats:
    """Return the weights of these rows, so scaled that they add up to Kish's effective number of rows."""
    if given.weights is None or not len(rows):
        return np.ones(len(rows))
    weights = given.weights[rows] / given.weights[rows].max()
    return np.asarray(weights * (weights.sum() / (weights @ weights)))


def summarise(given: Predictions, calibrate: Callable[[Ints], Floats]) -> RowSummary:
    """Return the counts of calibration rows; `calibrate` returns the calibrated logits of some of them.

    Edges come from some rows, counts from all independent ones: any edges serve the tests, and each row is then
    calibrated once.
    """
    rows = independent_rows(given)
    few = count_rows(given, independent_rows(given, _EDGE_ROWS), calibrate)
    rounding = {CONFIDENCE: _ROUNDING * (1 - few.features[CONFIDENCE])}
    shapes = {name: _edges(values, rounding.get(name, 0 * values)) for name, values in few.features.items()}
    empty = {name: Histogram(edges, (0.0,) * (len(edges) - 1)) for name, edges in shapes.items()}
    sums = _ClassSums(given, independent_rows(given, one_per_group=False), empty)
    if given.groups is None:
        counted = count_rows(given, rows, calibrate, sums.add)
    else:  # means over all rows of a group are more exact than one row of it
        counted = count_rows(given, rows, calibrate)
        count_rows(given, sums.rows, calibrate, sums.add)
    histograms = {}
    for name, values in counted.features.items():
        edges = (float(values.min()), *shapes[name][1:-1], float(values.max()))
        histograms[name] = Histogram(edges, _tuple(empty[name].count(values, counted.weights)))
    labels, predicted = (
        _tuple(counted.classes(each, given.n_classes)) for each in (given.labels[rows], counted.predicted)
    )
    return RowSummary(labels, predicted, histograms, sums.summary())


class _ClassSums:
    """Blocks of rows -> the histograms of each class; a row counts for a class with its calibrated probability."""

    def __init__(self, given: Predictions, rows: Ints, histograms: Mapping[str, Histogram]) -> None:
        n_bins = min(_BINS, _MOST_SHARES // (len(histograms) * given.n_classes))
        self.given, self.rows = given, rows
        weights = _kish_weights(given, rows)
        self.weights = weights / weights.sum()
        self.histograms = histograms if n_bins > 1 else {CONFIDENCE: histograms[CONFIDENCE]}
        self.sizes = [max(1, min(n_bins, len(each.counts))) for each in self.histograms.values()]
        self.table = np.zeros((sum(self.sizes), given.n_classes))  # of all features, one below the other
        self.squares = np.zeros(given.n_classes)
        self.probabilities = None if given.groups is None else np.empty((len(rows), given.n_classes))

    def add(self, some: slice, powers: Array, sums: Floats, features: dict[str, Floats]) -> None:
        """Add a block of rows whose probabilities are powers / sums; overwrites the powers."""
        scale = self.weights[some] / sums
        each = zip(self.histograms.items(), self.sizes, strict=True)
        bins = np.hstack([coarse_bins(histogram, features[name], size) for (name, histogram), size in each])
        self.table += (scale[:, None] * bins).astype(powers.dtype).T @ powers
        if self.probabilities is not None:
            np.divide(powers, sums[:, None], out=self.probabilities[some])
        self.squares += (scale / sums).astype(powers.dtype) @ np.square(powers, out=powers)

    def summary(self) -> ClassSummary:
        """Return the sums of all blocks."""
        given, n_equal = self.given, 1 / float(self.weights @ self.weights)
        if self.probabilities is not None and given.groups is not None:
            n_equal = effective_rows(self.probabilities, self.weights, given.groups[self.rows])
        frequencies = np.bincount(given.labels, given.weights, given.n_classes)
        tables = np.split(self.table, np.cumsum(self.sizes)[:-1])
        shares = {name: tuple(map(_short, each)) for name, each in zip(self.histograms, tables, strict=True)}
        return ClassSummary(_tuple(frequencies / frequencies.sum()), _short(self.squares), n_equal, shares)


def coarse_bins(histogram: Histogram, values: Floats, size: int) -> Floats:
    """Return rows (n, size) of 0 and a single 1 at the bin of each value; neighbouring bins are merged to `size`."""
    fine = np.searchsorted(histogram.edges[1:-1], values, side="right")
    return np.eye(size)[fine * size // len(histogram.counts)]


def effective_rows(values: Floats, weights: Floats, groups: Array | None) -> float:
    """Return how many independent rows of equal weight would give means of these values (n, k) the same precision."""
    n_equal = weights.sum() ** 2 / (weights @ weights)
    if groups is None:
        return float(n_equal)
    deviations = weights[:, None] * (values - weights @ values)
    together = sums_by_group(deviations, groups)
    apart, grouped = float((deviations**2).sum()), float((together**2).sum())
    if len(together) == 1 or not grouped > 0:  # nothing varies
        return float(len(together))
    return float(max(1.0, n_equal * min(1.0, apart / grouped)))


def sums_by_group(values: Floats, groups: Array | None) -> Floats:
    """Return the sum of the rows (n, k) of each group; without groups, the rows."""
    if groups is None:
        return values
    _, members = np.unique(groups, return_inverse=True)
    order = np.argsort(members, kind="stable")
    return np.add.reduceat(values[order], np.flatnonzero(np.diff(members[order], prepend=-1)), axis=0)


def _edges(values: Floats, rounding: Floats) -> tuple[float, ...]:
    """Return edges between values, with about a tenth of the values in each bin.

    Values that differ by less than `rounding` share a bin.
    """
    order = np.argsort(values)
    ordered = values[order]
    starts = np.append(0, np.flatnonzero(np.diff(ordered) > rounding[order][:-1]) + 1)  # where a bin may start
    tenths = len(ordered) * np.arange(1, _BINS) // _BINS
    firsts = np.unique(starts[np.searchsorted(starts, tenths, side="right") - 1])
    between = [ordered[i - 1] / 2 + ordered[i] / 2 for i in firsts if i > 0]
    return _tuple(np.array([ordered[0], *between, ordered[-1]]))


def _tuple(values: Array) -> tuple[float, ...]:
    return tuple(values.tolist())


def _short(values: Floats) -> tuple[float, ...]:
    """Return numbers with four digits, more exact than any sample and shorter in a file."""
    text = len(values) * "%.4g " % _tuple(values)  # quicker than one number after another
    return tuple(map(float, text.split()))
