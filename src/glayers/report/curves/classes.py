"""Probabilities and labels -> gaps of classes and of pairs of classes, and how calibration changes probabilities."""

from dataclasses import dataclass

import numpy as np

from glayers.arrays import Array, Floats, Ints, row_blocks, to_floats
from glayers.checks import refuse_outside_unit_interval, two_dimensional, whole_number
from glayers.errors import BadPredictions
from glayers.metrics import adjust, ks_per_class
from glayers.metrics.events import Rows, check_rows
from glayers.predictions import Confidences, Predictions

__all__ = [
    "CalibrationMap",
    "ClassGaps",
    "ClassMatrix",
    "PredictedGaps",
    "calibration_map",
    "class_gaps",
    "class_matrix",
    "predicted_gaps",
]

_TINY = 1e-300  # the beta distribution needs positive parameters
_SPREAD = (0.5, 0.1, 0.9)  # the median, and quantiles that cover most rows, without outliers


@dataclass(frozen=True, eq=False)
class ClassGaps:
    """For each class: its rows, its mean probability, its frequency, the first minus the second, and its KS error."""

    counts: Floats
    confidence: Floats
    frequency: Floats
    gap: Floats
    ks: Floats


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

    def significant(self, level: float = 0.95) -> Ints:
        """Return the classes with a significant gap, the largest gap first."""
        found = np.flatnonzero(self.p_value <= 1 - level)
        return found[np.argsort(-np.abs(self.gap[found]), kind="stable")]


@dataclass(frozen=True, eq=False)
class ClassMatrix:
    """Rows predicted as class i (k,), and for them the mean of p_j minus the frequency of label j (k, k).

    A positive gap means that the probability of j is too high there. `deviation` is the standard deviation of the gap
    for a calibrated model. Classes that are never predicted have NaN.
    """

    predicted: Floats
    gap: Floats
    deviation: Floats

    def beyond(self, deviations: float) -> Floats:
        """Return the gaps, 0 within so many standard deviations."""
        return np.where(np.abs(self.gap) <= deviations * self.deviation, 0.0, self.gap)

    def part(self, classes: Ints) -> "ClassMatrix":
        """Return the matrix of some classes."""
        square = np.ix_(classes, classes)
        return ClassMatrix(self.predicted[classes], self.gap[square], self.deviation[square])


@dataclass(frozen=True, eq=False)
class CalibrationMap:
    """One entry for every bin of probability that holds a row: the median before; after, median and 10 and 90 %."""

    before: Floats
    after: Floats
    low: Floats
    high: Floats
    count: Floats


def class_gaps(probabilities: object, labels: object = None, *, sample_weight: object = None) -> ClassGaps:
    """Return mean probability and frequency of each class.

    Parameters
    ----------
    probabilities
        Array (n, k) or `Predictions`.
    labels
        Class numbers (n,); left out with `Predictions`.
    sample_weight
        Row weights (n,).

    Returns
    -------
    ClassGaps
        One entry per class.

    Examples
    --------
    >>> found = class_gaps([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2])
    >>> found.gap.round(2).tolist(), found.counts.tolist()
    ([-0.1, 0.4, -0.3], [1.0, 0.0, 1.0])
    """
    rows = check_rows(probabilities, labels, sample_weight)
    ks = ks_per_class(rows)
    confidence = np.zeros(rows.n_classes)
    for block in row_blocks(*rows.probabilities.shape):
        confidence += rows.weights[block] @ rows.probabilities[block].astype(np.float64)
    frequency = np.bincount(rows.labels, weights=rows.weights, minlength=rows.n_classes).astype(np.float64)
    return ClassGaps(frequency * rows.total, confidence, frequency, confidence - frequency, ks)


def predicted_gaps(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    level: float = 0.95,
) -> PredictedGaps:
    """Return confidence and accuracy by predicted class, with exact binomial intervals and tests.

    The sum of independent events with different probabilities varies less than a binomial number with their mean
    (Hoeffding, 1956), so these tests reject a calibrated model no more often than they say. Rows of a group count as
    one; weights count by Kish's effective size.

    Parameters
    ----------
    probabilities, labels, sample_weight, groups
        As in `class_gaps`; rows of a group may depend on each other.
    level
        The level of the intervals.

    Returns
    -------
    PredictedGaps
        One entry per class.

    Examples
    --------
    >>> p = np.tile([0.9, 0.1], (40, 1))
    >>> found = predicted_gaps(p, np.repeat([0, 1], [20, 20]))
    >>> found.gap.round(2).tolist(), bool(found.p_value[0] < 1e-6)
    ([0.4, nan], True)
    """
    from scipy.special import betainc, betaincinv  # slow to import

    rows = check_rows(probabilities, labels, sample_weight, groups)
    best = _predicted(rows)
    total = _class_sums(best, rows.weights, rows)
    known = total > 0
    of_class = np.where(known, total, np.nan)
    confidence = _class_sums(best, rows.weights * rows.top.scores, rows) / of_class
    accuracy = _class_sums(best, rows.weights * rows.top.hits, rows) / of_class
    n = np.where(known, _effective_counts(rows), np.nan)
    hits = np.clip(accuracy, 0.0, 1.0) * n
    misses = n - hits
    some_hits = np.maximum(hits, _TINY)
    some_misses = np.maximum(misses, _TINY)
    # Clopper and Pearson's interval of the accuracy, and the binomial tails at the confidence.
    tail = (1 - level) / 2
    low = np.where(hits > 0, betaincinv(some_hits, misses + 1, tail), 0.0)
    high = np.where(misses > 0, betaincinv(hits + 1, some_misses, 1 - tail), 1.0)
    said = np.clip(confidence, 0.0, 1.0)
    above = np.where(hits > 0, betainc(some_hits, misses + 1, said), 1.0)
    below = np.where(misses > 0, 1 - betainc(hits + 1, some_misses, said), 1.0)
    p_value = np.full(rows.n_classes, np.nan)
    p_value[known] = adjust(np.minimum(1.0, 2 * np.minimum(above, below))[known])
    return PredictedGaps(
        rows=total * rows.total,
        confidence=confidence,
        accuracy=accuracy,
        gap=confidence - accuracy,
        low=np.where(known, confidence - high, np.nan),
        high=np.where(known, confidence - low, np.nan),
        p_value=p_value,
    )


def _class_sums(classes: Ints, values: Floats, rows: Rows) -> Floats:
    """Return the sum of the values of each class."""
    return np.bincount(classes, weights=values, minlength=rows.n_classes).astype(np.float64)


def _predicted(rows: Rows) -> Ints:
    return np.concatenate([rows.probabilities[block].argmax(axis=1) for block in row_blocks(*rows.probabilities.shape)])


def _effective_counts(rows: Rows) -> Floats:
    """Return for each predicted class how many independent rows its rows are worth."""
    best = _predicted(rows)
    weights = rows.weights
    if rows.groups is not None:
        group = np.unique(rows.groups, return_inverse=True)[1]
        units, unit_of = np.unique(np.column_stack([best, group]), axis=0, return_inverse=True)
        best = units[:, 0]
        weights = np.bincount(unit_of.reshape(-1), weights=weights).astype(np.float64)
    sums = _class_sums(best, weights, rows)
    squares = _class_sums(best, weights**2, rows)
    return sums**2 / np.where(squares > 0, squares, np.nan)


def class_matrix(probabilities: object, labels: object = None, *, sample_weight: object = None) -> ClassMatrix:
    """Return over- and under-prediction by class: rows of the matrix by predicted class, columns by label.

    The deviation is the root of (sum w^2 p(1 - p), plus w^2 of one row) over sum w. Without the one row, a single label
    of a class that was expected 0.01 times would count as significant.

    Parameters
    ----------
    probabilities, labels, sample_weight
        As in `class_gaps`.

    Returns
    -------
    ClassMatrix
        The gaps and their standard deviations.

    Examples
    --------
    >>> found = class_matrix([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.5, 0.4]], [0, 1, 2])
    >>> found.gap.round(2).tolist()[:2], found.predicted.tolist()
    ([[0.15, -0.25, 0.1], [0.1, 0.5, -0.6]], [2.0, 1.0, 0.0])
    """
    rows = check_rows(probabilities, labels, sample_weight, strict=True)
    k = rows.n_classes
    held = np.zeros(k)
    gap = np.zeros((k, k))
    variance = np.zeros((k, k))
    best = _predicted(rows)
    for predicted in np.unique(best):
        mine = np.flatnonzero(best == predicted)
        weight = rows.weights[mine]
        probability = rows.probabilities[mine].astype(np.float64)
        held[predicted] = weight.sum()
        gap[predicted] = weight @ probability - _class_sums(rows.labels[mine], weight, rows)
        variance[predicted] = weight**2 @ np.clip(probability * (1 - probability), 0.0, None) + np.mean(weight**2)
    per_row = np.where(held > 0, held, np.nan)[:, None]
    return ClassMatrix(held * rows.total, gap / per_row, np.sqrt(variance) / per_row)


def calibration_map(
    before: object, after: object, class_number: int | None = None, *, n_bins: int = 20
) -> CalibrationMap:
    """Return how calibration changes probabilities; one probability may become many, so the map has a spread.

    Parameters
    ----------
    before, after
        Arrays (n, k) or `Predictions` of the same rows.
    class_number
        The class; by default the class with the highest probability before.
    n_bins
        The number of bins of the probability before.

    Returns
    -------
    CalibrationMap
        One entry per bin that holds a row.

    Examples
    --------
    >>> p = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3]])
    >>> calibration_map(p, (p + 1 / 3) / 2).after.round(3).tolist()
    [0.417, 0.617]
    """
    whole_number(n_bins, "n_bins", least=1)
    old = class_probabilities(before, "before")
    new = class_probabilities(after, "after")
    if old.shape != new.shape:
        raise BadPredictions(f"before and after must have the same shape; got {old.shape} and {new.shape}")
    column = old.argmax(axis=1)
    if class_number is not None:
        column[:] = whole_number(class_number, "class_number", 0, old.shape[1] - 1)
    rows = np.arange(len(old))
    x = old[rows, column].astype(np.float64)
    y = new[rows, column].astype(np.float64)
    refuse_outside_unit_interval(x, "before")
    refuse_outside_unit_interval(y, "after")
    place = np.minimum((x * n_bins).astype(np.int64), n_bins - 1)
    bins = [place == each for each in np.unique(place)]
    entries = [(np.median(x[inside]), *np.quantile(y[inside], _SPREAD), inside.sum()) for inside in bins]
    return CalibrationMap(*np.array(entries, dtype=np.float64).T)


def class_probabilities(given: object, name: str) -> Array:
    """Return the probabilities (n, k) of an array or of `Predictions`."""
    if isinstance(given, Confidences):
        raise BadPredictions(f"{name} must hold the probabilities of all classes; Confidences hold one number per row")
    if isinstance(given, Predictions):
        return given.probabilities()
    return two_dimensional(to_floats(given, name), name)
