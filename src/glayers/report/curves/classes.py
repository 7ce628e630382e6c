"""Probabilities and labels -> gaps of classes and of pairs of classes, and how calibration changes probabilities."""

from dataclasses import dataclass

import numpy as np

from glayers.arrays import Floats, row_blocks, to_floats, two_dimensional
from glayers.errors import BadPredictions
from glayers.metrics.old import class_ks
from glayers.metrics.old.checks import check
from glayers.probabilities import check_probability_rows, refuse_outside_unit_interval
from glayers.settings import whole_number

_SPREAD = (0.1, 0.5, 0.9)  # quantiles that cover most rows, without outliers


@dataclass(frozen=True, eq=False)
class ClassGaps:
    """For each class: rows that have it, its mean probability, its frequency, the first minus the second, and KS."""

    counts: Floats
    confidence: Floats
    frequency: Floats
    gap: Floats
    ks: Floats


@dataclass(frozen=True, eq=False)
class ClassMatrix:
    """Where class i is predicted: rows (k,), mean p_j minus frequency of label j, and its chance deviation (k, k).

    A positive gap says that j is given more than it deserves there. Classes that are never predicted have NaN.
    """

    predicted: Floats
    gap: Floats
    deviation: Floats


@dataclass(frozen=True, eq=False)
class CalibrationMap:
    """One entry for every bin of probability that holds a row: the median before; after, median and 10 and 90 %."""

    before: Floats
    after: Floats
    low: Floats
    high: Floats
    count: Floats


def class_gaps(probabilities: object, labels: object, weights: object = None) -> ClassGaps:
    """Return what each class is given and what it deserves, over all rows.

    >>> found = class_gaps([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2])
    >>> found.gap.round(2).tolist(), found.counts.tolist()
    ([-0.1, 0.4, -0.3], [1.0, 0.0, 1.0])
    """
    checked = check(probabilities, labels, weights)
    ks = class_ks(probabilities, labels, weights)
    n_classes = checked.probabilities.shape[1]
    confidence = np.zeros(n_classes)
    for rows in row_blocks(*checked.probabilities.shape):
        confidence += checked.weights[rows] @ checked.probabilities[rows].astype(np.float64)
    frequency = np.bincount(checked.labels, weights=checked.weights, minlength=n_classes).astype(np.float64)
    return ClassGaps(frequency * checked.total, confidence, frequency, confidence - frequency, ks)


def class_matrix(probabilities: object, labels: object, weights: object = None) -> ClassMatrix:
    """Return over- and under-confidence class by class: rows by what was predicted, columns by what was meant.

    The deviation is the root of (sum w^2 p(1 - p), plus w^2 of one row) over sum w: a calibrated model's gaps are about
    this large. The one row is there because chance may well find a class once that was expected 0.01 times.

    >>> found = class_matrix([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.5, 0.4]], [0, 1, 2])
    >>> found.gap.round(2).tolist()[:2], found.predicted.tolist()
    ([[0.15, -0.25, 0.1], [0.1, 0.5, -0.6]], [2.0, 1.0, 0.0])
    """
    checked = check(probabilities, labels, weights)
    check_probability_rows(checked.probabilities)
    n_classes = checked.probabilities.shape[1]
    held, gap, variance = np.zeros(n_classes), np.zeros((n_classes, n_classes)), np.zeros((n_classes, n_classes))
    best = np.concatenate(
        [checked.probabilities[rows].argmax(axis=1) for rows in row_blocks(*checked.probabilities.shape)]
    )
    for predicted in np.unique(best):
        rows = np.flatnonzero(best == predicted)
        weight, given = checked.weights[rows], checked.probabilities[rows].astype(np.float64)
        held[predicted] = weight.sum()
        gap[predicted] = weight @ given - np.bincount(checked.labels[rows], weights=weight, minlength=n_classes)
        variance[predicted] = weight**2 @ np.clip(given * (1 - given), 0.0, None) + np.mean(weight**2)
    share = np.where(held > 0, held, np.nan)[:, None]
    return ClassMatrix(held * checked.total, gap / share, np.sqrt(variance) / share)


def calibration_map(before: object, after: object, class_: int | None = None, *, n_bins: int = 20) -> CalibrationMap:
    """Return what probabilities become, of one class or, if none is named, of the class on top before.

    >>> p = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3]])
    >>> calibration_map(p, (p + 1 / 3) / 2).after.round(3).tolist()
    [0.417, 0.617]
    """
    whole_number(n_bins, "n_bins", least=1)
    old, new = (two_dimensional(to_floats(p, name), name) for p, name in ((before, "before"), (after, "after")))
    if old.shape != new.shape:
        raise BadPredictions(f"before and after must have one shape; got {old.shape} and {new.shape}")
    if class_ is None:
        column = old.argmax(axis=1)
    else:
        column = np.full(len(old), whole_number(class_, "class_", 0, old.shape[1] - 1))
    rows = np.arange(len(old))
    x, y = old[rows, column].astype(np.float64), new[rows, column].astype(np.float64)
    refuse_outside_unit_interval(x, "before")
    refuse_outside_unit_interval(y, "after")
    place = np.minimum((x * n_bins).astype(np.int64), n_bins - 1)
    order = np.argsort(place, kind="stable")
    cuts = np.flatnonzero(np.diff(place[order])) + 1
    entries = [
        (np.median(xs), *np.quantile(ys, _SPREAD), len(xs))
        for xs, ys in zip(np.split(x[order], cuts), np.split(y[order], cuts), strict=True)
    ]
    middle_before, low, middle, high, count = np.array(entries, dtype=np.float64).T
    return CalibrationMap(middle_before, middle, low, high, count)
