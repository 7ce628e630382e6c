"""Probabilities and labels -> which classes a model is too sure of and too unsure of, one by one and two by two."""

from dataclasses import dataclass

import numpy as np

from glayers.arrays import Floats, row_blocks
from glayers.metrics import class_ks
from glayers.metrics.checks import Checked, check
from glayers.probabilities import check_probability_rows


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
    best = np.concatenate([checked.probabilities[rows].argmax(axis=1) for rows in row_blocks(*_shape(checked))])
    for predicted in np.unique(best):
        rows = np.flatnonzero(best == predicted)
        weight, given = checked.weights[rows], checked.probabilities[rows].astype(np.float64)
        held[predicted] = weight.sum()
        gap[predicted] = weight @ given - np.bincount(checked.labels[rows], weights=weight, minlength=n_classes)
        variance[predicted] = weight**2 @ np.clip(given * (1 - given), 0.0, None) + np.mean(weight**2)
    share = np.where(held > 0, held, np.nan)[:, None]
    return ClassMatrix(held * checked.total, gap / share, np.sqrt(variance) / share)


def _shape(checked: Checked) -> tuple[int, int]:
    return checked.probabilities.shape[0], checked.probabilities.shape[1]
