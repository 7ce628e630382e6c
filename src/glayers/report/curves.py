"""Predictions -> the numbers behind a figure: small frozen records that matplotlib and the page draw.

A reliability diagram shows how often an event happens, against its score. Each has a consistency band around the
diagonal: where the points of a calibrated model with the same scores would lie. A point outside its band shows
miscalibration; one inside may be chance. Broecker and Smith, "Increasing the Reliability of Reliability Diagrams",
Weather and Forecasting 2007. Bands treat rows as independent, also where there are groups.

KS curves are drawn against the fractile of rows. Rows are sorted by score; fractile t holds the fraction t of them with
the lowest scores. Up to there, scores and hits add up to the two cumulative curves, and their slopes at t are the score
and the probability of a hit. Gupta et al., "Calibration of Neural Networks using Splines", ICLR 2021.
"""

from dataclasses import dataclass

import numpy as np

from glayers.arrays import Bools, Floats, Ints, row_blocks
from glayers.checks import whole_number
from glayers.errors import BadPredictions
from glayers.metrics import CalibrationTest, Event, adjust, ks_test, top
from glayers.metrics.binned import Binning, bin_edges
from glayers.metrics.events import Rows, bin_of, check_event, check_rows, last_of_ties

__all__ = [
    "CalibrationMap",
    "ClassMatrix",
    "KsCurves",
    "PredictedGaps",
    "Reliability",
    "calibration_map",
    "class_matrix",
    "ks_curves",
    "predicted_gaps",
    "reliability",
]

LEVEL = 0.95  # of all bands, intervals and tests
_ROUNDING = 1e-9
_TINY = 1e-300  # the beta distribution needs positive parameters


@dataclass(frozen=True, eq=False)
class Reliability:
    """One entry for every bin that holds a row: its edges, means, number of rows, and band of the accuracy."""

    low: Floats
    high: Floats
    confidence: Floats
    accuracy: Floats
    count: Floats
    band_low: Floats
    band_high: Floats

    @property
    def outside(self) -> Bools:
        """Which accuracies leave their band, by more than rounding."""
        return (self.accuracy < self.band_low - _ROUNDING) | (self.accuracy > self.band_high + _ROUNDING)


@dataclass(frozen=True, eq=False)
class KsCurves:
    """Curves from fractile 0 to 1; the gap at index `where` is the KS error, `test.value`."""

    fractile: Floats
    cumulative_score: Floats
    cumulative_hits: Floats
    score: Floats
    hit_rate: Floats
    where: int
    test: CalibrationTest


@dataclass(frozen=True, eq=False)
class PredictedGaps:
    """For each class, the rows that are predicted as it: their number, mean confidence and accuracy.

    `gap` is confidence minus accuracy, with the ends `low` and `high` of its interval. `p_value` tests that it is zero,
    and is adjusted for the number of classes by Holm's method. Classes that are never predicted have NaN.
    """

    rows: Floats
    confidence: Floats
    accuracy: Floats
    gap: Floats
    low: Floats
    high: Floats
    p_value: Floats

    @property
    def significant(self) -> Bools:
        """Which classes have a significant gap."""
        return self.p_value <= 1 - LEVEL

    @property
    def off(self) -> list[int]:
        """The classes with a significant gap, the largest gap first."""
        worst_first = np.argsort(-np.nan_to_num(np.abs(self.gap)), kind="stable")
        classes: list[int] = worst_first[self.significant[worst_first]].tolist()
        return classes

    @property
    def certain(self) -> Floats:
        """How far each class is off for certain: the near end of its interval, 0 where that may be zero."""
        return np.nan_to_num(np.maximum(np.maximum(self.low, -self.high), 0.0))


@dataclass(frozen=True, eq=False)
class ClassMatrix:
    """Rows predicted as class i (k,), and for them the mean of p_j minus the frequency of label j (k, k).

    A positive gap means that the probability of j is too high there. `deviation` is the standard deviation of the gap
    for a calibrated model. Classes that are never predicted have NaN.
    """

    predicted: Floats
    gap: Floats
    deviation: Floats


@dataclass(frozen=True, eq=False)
class CalibrationMap:
    """One entry for every bin of scores that holds a row: the median before; after, median and 10 and 90 %."""

    before: Floats
    after: Floats
    low: Floats
    high: Floats
    count: Floats


def reliability(rows: object, *, event: Event = top, n_bins: int = 15, binning: Binning = "equal_width") -> Reliability:
    """Return the binned reliability diagram of an event.

    The number of hits of a calibrated model varies at most as much as a binomial number with the mean score of the bin
    (Hoeffding, 1956), which gives the band. Weights count by Kish's effective size.

    Parameters
    ----------
    rows
        `Predictions` or `Confidences`.
    event
        `top`, `rank(r)`, `within_top(r)`, `label(c)` or `one_of(classes)`.
    n_bins, binning
        The number of bins, of "equal_width" or of "equal_mass". The edges of an equal-mass bin are the lowest and the
        highest score in it.

    Returns
    -------
    Reliability
        One entry per bin that holds a row.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = reliability(Confidences([0.62, 0.58, 0.97, 0.93], [1, 0, 1, 1]), n_bins=5)
    >>> found.low.tolist(), found.accuracy.tolist(), found.count.tolist()
    ([0.4, 0.6, 0.8], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0])
    """
    from scipy.special import bdtrik  # slow to import

    scored = check_event(rows, event=event)
    edges = bin_edges(scored, n_bins, binning)
    kept = scored.weights > 0
    scores = scored.scores[kept]
    weights = scored.weights[kept]
    numbers, place = np.unique(bin_of(scores, edges), return_inverse=True)
    n_held = len(numbers)
    held = sums_by(place, weights, n_held)
    confidence = sums_by(place, weights * scores, n_held) / held
    accuracy = np.clip(sums_by(place, weights * scored.hits[kept], n_held) / held, 0.0, 1.0)
    n_effective = held**2 / sums_by(place, weights**2, n_held)
    ends = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
    uncertain = np.clip(confidence, _ROUNDING, 1 - _ROUNDING)
    hits = [np.ceil(bdtrik(end, n_effective, uncertain) - _ROUNDING) for end in ends]
    band_low, band_high = np.clip(hits / n_effective, 0.0, 1.0)
    low = numbers / n_bins
    high = (numbers + 1) / n_bins
    if binning == "equal_mass":
        members = [scores[place == number] for number in range(n_held)]
        low = np.array([member.min() for member in members])
        high = np.array([member.max() for member in members])
    return Reliability(low, high, confidence, accuracy, held * scored.total, band_low, band_high)


def ks_curves(rows: object, *, event: Event = top, points: int = 201, random_state: int | None = 0) -> KsCurves:
    """Return the KS curves of an event and the KS test.

    Parameters
    ----------
    rows, event
        As in `reliability`. With groups the test uses resampling.
    points
        About how many fractiles the curves have; that of the largest gap is always among them.
    random_state
        The seed of the test's draws if there are groups.

    Returns
    -------
    KsCurves
        `hit_rate` is the score plus the slope of a cubic spline through the gap, cumulative hits minus score.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = ks_curves(Confidences([0.8, 0.6, 0.7], [True, True, False]))
    >>> found.fractile.round(2).tolist(), round(found.test.value, 12), found.where  # gaps 0, -0.4/3, 0.3/3, 0.1/3
    ([0.0, 0.33, 0.67, 1.0], 0.133333333333, 1)
    """
    whole_number(points, "points", least=2)
    scored = check_event(rows, event=event)
    test = ks_test(scored, level=LEVEL, random_state=random_state)
    order = np.argsort(scored.scores, kind="stable")
    order = order[scored.weights[order] > 0]
    scores = scored.scores[order]
    weights = scored.weights[order]
    ends = np.flatnonzero(last_of_ties(scores))  # rows of equal score enter together
    fractile = np.append(0.0, np.cumsum(weights)[ends])
    score_sum = np.append(0.0, np.cumsum(weights * scores)[ends])
    hit_sum = np.append(0.0, np.cumsum(weights * scored.hits[order])[ends])
    largest = int(np.abs(score_sum - hit_sum).argmax())
    # The fractiles next above an even grid, both ends, and the largest gap.
    spread = np.searchsorted(fractile, np.linspace(0, fractile[-1], points) - 1e-12)
    shown = np.unique(np.append(spread, [0, largest, len(fractile) - 1]))
    score = scores[ends][np.maximum(shown - 1, 0)]
    slope = _smooth_slope(fractile[shown], hit_sum[shown] - score_sum[shown])
    hit_rate = np.clip(score + slope, 0.0, 1.0)
    where = int(np.searchsorted(shown, largest))
    return KsCurves(fractile[shown], score_sum[shown], hit_sum[shown], score, hit_rate, where, test)


def _smooth_slope(fractile: Floats, gap: Floats, n_knots: int = 6) -> Floats:
    """Return the slope of the cubic spline from (0, 0) nearest to the gap, its knots spread evenly over the points.

    It has as many knots as the splines of Gupta et al. A natural spline, flat at the ends, would vary less there but be
    biased: most rows of a good model lie at the upper end.
    """
    from scipy.interpolate import CubicSpline  # on first use: importing it takes longer than importing glayers

    knots = fractile[np.unique(np.linspace(0, len(fractile) - 1, n_knots).round().astype(np.int64))]
    if len(knots) == 2:  # all rows have the same score: a line
        return np.full_like(fractile, gap[-1] / fractile[-1])
    cardinal = CubicSpline(knots, np.eye(len(knots)), bc_type="not-a-knot")
    heights = np.linalg.lstsq(cardinal(fractile)[:, 1:], gap, rcond=None)[0]
    return cardinal(fractile, 1)[:, 1:] @ heights


def predicted_gaps(rows: object) -> PredictedGaps:
    """Return confidence and accuracy by predicted class, with exact binomial intervals and tests.

    The sum of independent events with different probabilities varies less than a binomial number with their mean
    (Hoeffding, 1956), so these tests reject a calibrated model no more often than they say. Rows of a group count as
    one; weights count by Kish's effective size.

    Parameters
    ----------
    rows
        `Predictions`; rows of a group may depend on each other.

    Returns
    -------
    PredictedGaps
        One entry per class.

    Examples
    --------
    >>> from glayers import Predictions
    >>> rows = Predictions.from_probabilities(np.tile([0.9, 0.1], (40, 1)), np.repeat([0, 1], [20, 20]))
    >>> found = predicted_gaps(rows)
    >>> found.gap.round(2).tolist(), bool(found.p_value[0] < 1e-6)
    ([0.4, nan], True)
    """
    from scipy.special import betainc, betaincinv  # slow to import

    checked = check_rows(rows)
    best = _predicted(checked)
    k = checked.n_classes
    total = sums_by(best, checked.weights, k)
    known = total > 0
    of_class = np.where(known, total, np.nan)
    confidence = sums_by(best, checked.weights * checked.top.scores, k) / of_class
    accuracy = sums_by(best, checked.weights * checked.top.hits, k) / of_class
    n = _effective_counts(checked, best)
    hits = np.clip(accuracy, 0.0, 1.0) * n
    misses = n - hits
    some_hits = np.maximum(hits, _TINY)
    some_misses = np.maximum(misses, _TINY)
    # Clopper and Pearson's interval of the accuracy, and the binomial tails at the confidence.
    tail = (1 - LEVEL) / 2
    low = np.where(hits > 0, betaincinv(some_hits, misses + 1, tail), 0.0)
    high = np.where(misses > 0, betaincinv(hits + 1, some_misses, 1 - tail), 1.0)
    said = np.clip(confidence, 0.0, 1.0)
    above = np.where(hits > 0, betainc(some_hits, misses + 1, said), 1.0)
    below = np.where(misses > 0, 1 - betainc(hits + 1, some_misses, said), 1.0)
    p_value = np.full(k, np.nan)
    p_value[known] = adjust(np.minimum(1.0, 2 * np.minimum(above, below))[known])
    count = total * checked.total
    return PredictedGaps(
        count, confidence, accuracy, confidence - accuracy, confidence - high, confidence - low, p_value
    )


def sums_by(places: Ints, values: Floats, n_places: int) -> Floats:
    """Return the sum of the values at each place."""
    return np.bincount(places, values, n_places).astype(np.float64)


def _predicted(rows: Rows) -> Ints:
    return np.concatenate([rows.probabilities[block].argmax(axis=1) for block in row_blocks(*rows.probabilities.shape)])


def _effective_counts(rows: Rows, best: Ints) -> Floats:
    """Return for each predicted class how many independent rows its rows are worth; NaN where there are none."""
    weights = rows.weights
    if rows.groups is not None:
        group = np.unique(rows.groups, return_inverse=True)[1]
        units, unit_of = np.unique(np.column_stack([best, group]), axis=0, return_inverse=True)
        best = units[:, 0]
        weights = sums_by(unit_of.reshape(-1), weights, len(units))
    sums = sums_by(best, weights, rows.n_classes)
    squares = sums_by(best, weights**2, rows.n_classes)
    return sums**2 / np.where(squares > 0, squares, np.nan)


def class_matrix(rows: object) -> ClassMatrix:
    """Return over- and under-prediction by class: rows of the matrix by predicted class, columns by label.

    The deviation is the root of (sum w^2 p(1 - p), plus w^2 of one row) over sum w. Without the one row, a single label
    of a class that was expected 0.01 times would count as significant.

    Parameters
    ----------
    rows
        `Predictions`.

    Returns
    -------
    ClassMatrix
        The gaps and their standard deviations.

    Examples
    --------
    >>> from glayers import Predictions
    >>> p = [[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.5, 0.4]]
    >>> found = class_matrix(Predictions.from_probabilities(p, [0, 1, 2]))
    >>> found.gap.round(2).tolist()[:2], found.predicted.tolist()
    ([[0.15, -0.25, 0.1], [0.1, 0.5, -0.6]], [2.0, 1.0, 0.0])
    """
    checked = check_rows(rows)
    k = checked.n_classes
    held = np.zeros(k)
    gap = np.zeros((k, k))
    variance = np.zeros((k, k))
    best = _predicted(checked)
    for predicted in np.unique(best):
        mine = np.flatnonzero(best == predicted)
        weight = checked.weights[mine]
        probability = checked.probabilities[mine].astype(np.float64)
        held[predicted] = weight.sum()
        gap[predicted] = weight @ probability - sums_by(checked.labels[mine], weight, k)
        variance[predicted] = weight**2 @ np.clip(probability * (1 - probability), 0.0, None) + np.mean(weight**2)
    per_row = np.where(held > 0, held, np.nan)[:, None]
    return ClassMatrix(held * checked.total, gap / per_row, np.sqrt(variance) / per_row)


def calibration_map(before: object, after: object, *, event: Event = top, n_bins: int = 20) -> CalibrationMap:
    """Return how calibration changes the scores of an event; one score may become many, so the map has a spread.

    Parameters
    ----------
    before, after
        `Predictions` or `Confidences` of the same rows.
    event
        As in `reliability`.
    n_bins
        The number of bins of the score before.

    Returns
    -------
    CalibrationMap
        One entry per bin that holds a row.

    Examples
    --------
    >>> from glayers import Confidences
    >>> calibration_map(Confidences([0.9, 0.5], [1, 0]), Confidences([0.7, 0.4], [1, 0])).after.tolist()
    [0.4, 0.7]
    """
    whole_number(n_bins, "n_bins", least=1)
    x = check_event(before, event=event).scores
    y = check_event(after, event=event).scores
    if len(x) != len(y):
        raise BadPredictions(f"before and after must hold the same rows; got {len(x):,} and {len(y):,}")
    place = np.minimum((x * n_bins).astype(np.int64), n_bins - 1)
    entries = []
    for number in np.unique(place):
        inside = place == number
        # The median, and quantiles that cover most rows, without outliers.
        entries.append((np.median(x[inside]), *np.quantile(y[inside], (0.5, 0.1, 0.9)), inside.sum()))
    return CalibrationMap(*np.array(entries, dtype=np.float64).T)
