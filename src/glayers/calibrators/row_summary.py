"""Calibration rows -> a few counts that a calibrator keeps, so that new rows can be compared with them later.

How often each class is predicted, histograms of the confidence and of the logits, and the mean probability of each
class by confidence, for class shift. Label counts are kept too. No row is kept. `count_rows` reads the calibration rows
and the new rows in the same way.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Floats, Ints
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
        return decoded(cls, facts, "the summary of the calibration rows")


class CountedRows(NamedTuple):
    """Independent rows: their places, weights that add up to Kish's effective number of rows, what the map says.

    `p` are calibrated probabilities (n, classes).
    """

    places: Ints
    weights: Floats
    p: Floats
    features: dict[str, Floats]

    @property
    def total(self) -> float:
        """The effective number of rows."""
        return float(self.weights.sum())

    def counts(self, bins: Ints, n_bins: int) -> Floats:
        """Return the weight of the rows in each bin."""
        return np.bincount(bins, self.weights, n_bins).astype(np.float64)

    def mean(self, values: Floats) -> Floats:
        """Return the weighted mean of values (n, k)."""
        return np.asarray(self.weights @ values / self.total)


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
def count_rows(given: Predictions, chain: Chain, all_rows: bool = False) -> CountedRows:
    """Return independent rows with their features, of many rows a part; `chain` is the fitted map of logits."""
    most = min(_MOST_ROWS, _MOST_ENTRIES // given.n_classes)
    if all_rows:
        most = len(given)
    places = independent_rows(given, most)
    weights = np.ones(len(places))
    if given.weights is not None:
        weights = given.weights[places] / given.weights[places].sum()
        weights = weights * effective_rows(weights)
    logits = given.logits[places]
    p = softmax(apply_map(chain, logits, given.n_classes))
    highest = logits.max(axis=1).astype(np.float64)
    mean = logits.mean(axis=1, dtype=np.float64, where=logits > -np.inf)
    values = (p.max(axis=1), highest, highest - mean)
    features = {name: np.nan_to_num(column) for name, column in zip(_FEATURES, values, strict=True)}
    return CountedRows(places, weights, p, features)


def summarise(given: Predictions, chain: Chain) -> RowSummary:
    """Return the counts of calibration rows; `chain` is the fitted map of logits."""
    counted = count_rows(given, chain)
    # Edges come from some rows: any edges serve the tests.
    some = independent_rows(given, min(_EDGE_ROWS, len(counted.places)))
    some = np.searchsorted(counted.places, some)
    histograms = {}
    for name, values in counted.features.items():
        edges = _edges(values[some])
        counts = counted.counts(np.searchsorted(edges, values, side="right"), len(edges) + 1)
        histograms[name] = Histogram((float(values.min()), *edges, float(values.max())), _tuple(counts))
    confidence = histograms[CONFIDENCE]
    weighted = counted.weights[:, None] * counted.p / counted.total
    shares = np.zeros((len(confidence.counts), given.n_classes))
    np.add.at(shares, confidence.bins(counted.features[CONFIDENCE]), weighted)
    frequencies = np.bincount(given.labels, given.weights, given.n_classes)
    return RowSummary(
        rows=counted.total,
        predicted=_tuple(counted.counts(counted.p.argmax(axis=1), given.n_classes)),
        histograms=histograms,
        frequencies=_tuple(frequencies / frequencies.sum()),
        squares=_four_digits((weighted * counted.p).sum(axis=0)),
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
