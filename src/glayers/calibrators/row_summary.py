"""Calibration rows -> a few counts that a calibrator keeps, so that new rows can be compared with them later.

How often each class is predicted, histograms of the confidence and of the logits, and the mean probability of each
class by confidence, for class shift. Label counts are kept too. No row is kept.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Floats, Ints
from glayers.errors import BadFile
from glayers.fitting.folds import effective_rows
from glayers.maps import Chain
from glayers.predictions import Predictions
from glayers.serving.artifact import decoded
from glayers.serving.predictor import apply_map

CONFIDENCE = "confidence"
_FEATURES = (CONFIDENCE, "highest logit", "highest logit less mean logit")
_BINS = 10
_EDGE_ROWS = 1_000  # bins then hold a tenth of the rows, give or take 0.9 %
_MOST_ROWS = 20_000  # the counts of more rows would hardly differ, and prediction takes time
_MOST_ENTRIES = 4_000_000  # rows x classes: their probabilities take 32 MB


@dataclass(frozen=True)
class Histogram:
    """Counts of a number between edges; the first and last edge are the lowest and highest value."""

    edges: tuple[float, ...]
    counts: tuple[float, ...]

    def bins(self, values: Floats) -> Ints:
        """Return the bin of each value; the outer bins have no end."""
        return np.searchsorted(self.edges[1:-1], values, side="right")

    def largest_change(self, before: Floats, now: Floats, word: str) -> str:
        """Say at which edge two distributions over the bins differ most."""
        before = np.cumsum(before) / before.sum()
        now = np.cumsum(now) / now.sum()
        place = int(np.abs(now - before).argmax())
        return f"below {self.edges[place + 1]:.4g}: {100 * before[place]:.1f} % {word}, {100 * now[place]:.1f} % now"


@dataclass(frozen=True)
class RowSummary:
    """What a calibrator keeps of its calibration rows.

    Attributes
    ----------
    rows
        The effective number of independent rows, to which all counts add up: one row counts per group, and importance
        weights count as Kish's effective number of rows.
    predicted
        How often each class is the most probable one after calibration.
    histograms
        By name: the calibrated confidence, and for the logits before calibration the highest one, and the highest one
        less their mean.
    frequencies
        The frequency of each class among all labels; weights count.
    squares
        The mean square of the calibrated probability of each class.
    shares
        For each bin of the confidence and each class: the mean over all rows of the calibrated probability of the
        class, counted only where the confidence lies in the bin.
    """

    rows: float
    predicted: tuple[float, ...]
    histograms: Mapping[str, Histogram]
    frequencies: tuple[float, ...]
    squares: tuple[float, ...]
    shares: tuple[tuple[float, ...], ...]

    def means(self) -> Floats:
        """Return the mean calibrated probability of each class."""
        total = np.sum(self.shares, axis=0)
        return np.asarray(total / total.sum())

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: object) -> Self:
        """Return the record that a file holds. Raise an error for anything else."""
        what = "the summary of the calibration rows"
        record = decoded(cls, facts, what)
        columns = [record.predicted, record.frequencies, record.squares, *record.shares]
        valid = record.histograms.keys() == set(_FEATURES) and len(set(map(len, columns))) == 1
        for name, histogram in record.histograms.items():
            n_bins = len(record.shares) if name == CONFIDENCE else len(histogram.counts)
            columns.append(histogram.counts)
            valid &= len(histogram.counts) == n_bins > 0
            valid &= len(histogram.edges) == n_bins + 1
            valid &= bool(np.isfinite(histogram.edges).all() and (np.diff(histogram.edges) >= 0).all())
        numbers = np.concatenate([(record.rows,), *columns])
        if not valid or not np.isfinite(numbers).all() or numbers.min() < 0:
            raise BadFile(f"{what} has counts and edges that do not fit together")
        if not record.rows or not sum(record.frequencies) or not np.sum(record.shares):
            raise BadFile(f"{what} counts nothing")
        return record


class CountedRows(NamedTuple):
    """Some rows: their numbers, weights that add up to Kish's effective number of rows, probabilities and features."""

    rows: Ints
    weights: Floats
    p: Floats
    features: dict[str, Floats]

    def counts(self, classes: Ints) -> Floats:
        """Return the weight of the rows of each class."""
        return np.bincount(classes, self.weights, self.p.shape[1]).astype(np.float64)


def independent_rows(given: Predictions, most: int) -> Ints:
    """Return one row of each group, and no rows of weight 0; of many rows, a random part."""
    order = np.random.default_rng(0).permutation(len(given))
    if given.weights is not None:
        order = order[given.weights[order] > 0]
    if given.groups is not None:
        _, first = np.unique(given.groups[order], return_index=True)
        order = order[np.sort(first)]
    return np.sort(order[:most])


@np.errstate(over="ignore", invalid="ignore")
def count_rows(given: Predictions, chain: Chain) -> CountedRows:
    """Return independent rows with their features; `chain` is the fitted map of logits."""
    rows = independent_rows(given, min(_MOST_ROWS, _MOST_ENTRIES // given.n_classes))
    weights = np.ones(len(rows))
    if given.weights is not None:
        weights = given.weights[rows] / given.weights[rows].sum()
        weights = weights * effective_rows(weights)
    logits = given.logits[rows]
    p = softmax(apply_map(chain, logits, given.n_classes))
    highest = logits.max(axis=1).astype(np.float64)
    mean = logits.mean(axis=1, dtype=np.float64, where=logits > -np.inf)
    values = (p.max(axis=1), highest, highest - mean)
    features = {name: np.nan_to_num(column) for name, column in zip(_FEATURES, values, strict=True)}
    return CountedRows(rows, weights, p, features)


def summarise(given: Predictions, chain: Chain) -> RowSummary:
    """Return the counts of calibration rows; `chain` is the fitted map of logits."""
    found = count_rows(given, chain)
    # Edges come from some rows: any edges serve the tests.
    some = np.searchsorted(found.rows, independent_rows(given, min(_EDGE_ROWS, len(found.rows))))
    histograms = {}
    for name, values in found.features.items():
        edges = _edges(values[some])
        counts = np.bincount(np.searchsorted(edges, values, side="right"), found.weights, len(edges) + 1)
        histograms[name] = Histogram((float(values.min()), *edges, float(values.max())), _tuple(counts))
    total = float(found.weights.sum())
    weighted = found.weights[:, None] * found.p / total
    shares = np.zeros((len(histograms[CONFIDENCE].counts), given.n_classes))
    np.add.at(shares, histograms[CONFIDENCE].bins(found.features[CONFIDENCE]), weighted)
    frequencies = np.bincount(given.labels, given.weights, given.n_classes)
    return RowSummary(
        rows=total,
        predicted=_tuple(found.counts(found.p.argmax(axis=1))),
        histograms=histograms,
        frequencies=_tuple(frequencies / frequencies.sum()),
        squares=_four_digits((weighted * found.p).sum(axis=0)),
        shares=tuple(map(_four_digits, shares)),
    )


def _edges(values: Floats) -> tuple[float, ...]:
    """Return inner edges between values, with about a tenth of the values in each bin.

    Values that differ by rounding only share a bin.
    """
    ordered = np.sort(values)
    steps = np.diff(ordered) > 1e-12 * np.maximum(1.0, np.abs(ordered[1:]))
    starts = np.append(0, np.flatnonzero(steps) + 1)  # where a bin may start
    tenths = len(ordered) * np.arange(1, _BINS) // _BINS
    firsts = np.unique(starts[np.searchsorted(starts, tenths, side="right") - 1])
    return tuple(float(ordered[i - 1] / 2 + ordered[i] / 2) for i in firsts if i > 0)


def _tuple(values: Array) -> tuple[float, ...]:
    return tuple(values.astype(np.float64).tolist())


def _four_digits(values: Floats) -> tuple[float, ...]:
    """Return numbers with four digits, more exact than any sample and shorter in a file."""
    return tuple(float(f"{value:.4g}") for value in values)
