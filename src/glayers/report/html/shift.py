"""Calibration and test rows -> whether they look like rows of one kind: their classes, confidence and accuracy.

A calibrator is true for rows like those it learned from. Each test assumes nothing else; rows in groups count by group.
"""

import math
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats
from glayers.metrics.old import adjust
from glayers.metrics.old.checks import check, shares, top
from glayers.metrics.old.verdicts import rejects
from glayers.predictions import Predictions
from glayers.report.html.numbers import p_text, percent

_LEAST_EXPECTED = 5.0  # rows a cell: below, the chi-squared distribution is no guide
_LEVEL = 0.95


class Shift(NamedTuple):
    """What was compared, what came out, the p-value corrected for asking several times, and whether it is too small."""

    subject: str
    found: str
    p_value: float
    shifted: bool


def shifts(calibration: Predictions, test: Predictions, names: list[str]) -> list[Shift]:
    """Compare two sets of rows in class frequencies, mean confidence and accuracy, with Holm's correction."""
    events = [top(check(rows.probabilities(), rows.labels, rows.weights)) for rows in (calibration, test)]
    confidence = [_mean(event.scores, rows) for event, rows in zip(events, (calibration, test), strict=True)]
    accuracy = [_mean(event.hits, rows) for event, rows in zip(events, (calibration, test), strict=True)]
    asked = [
        ("mean confidence", _against(confidence), two_means(*confidence)),
        ("accuracy", _against(accuracy), two_means(*accuracy)),
    ]
    if calibration.groups is None and test.groups is None:
        counts = np.array([class_counts(calibration), class_counts(test)])
        asked.append(("class frequencies", _most_changed(counts, names), two_frequencies(counts)))
    adjusted = adjust([p for _, _, p in asked], "holm")
    return [
        Shift(subject, f"{found}, {p_text(p)}", p, rejects(p, _LEVEL))
        for (subject, found, _), p in zip(asked, adjusted.tolist(), strict=True)
    ]


def two_means(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Return the two-sided p-value of two means, each with its variance, by the normal distribution.

    >>> round(two_means((0.50, 0.01**2), (0.53, 0.01**2)), 4)  # 0.03 is 2.12 of its standard errors
    0.0339
    """
    gap, variance = abs(first[0] - second[0]), first[1] + second[1]
    if variance == 0:
        return 1.0 if gap < 1e-12 else 0.0
    return math.erfc(gap / math.sqrt(2 * variance))


def two_frequencies(counts: Floats) -> float:
    """Return the p-value of Pearson's test that two rows of counts are draws of one kind; rare classes are pooled.

    >>> round(two_frequencies(np.array([[50.0, 30.0, 20.0], [30.0, 40.0, 30.0]])), 4)  # chi-squared 8.43, 2 degrees
    0.0148
    """
    from scipy.stats import chi2_contingency

    expected = counts.sum(axis=0) * counts.sum(axis=1).min() / counts.sum()
    rare = expected < _LEAST_EXPECTED
    pooled = np.column_stack([counts[:, ~rare], counts[:, rare].sum(axis=1)])
    pooled = pooled[:, pooled.sum(axis=0) > 0]
    return float(chi2_contingency(pooled, correction=False).pvalue) if pooled.shape[1] > 1 else 1.0


def class_counts(rows: Predictions) -> Floats:
    """Return how many rows each class has, weighted rows by what they stand for."""
    share, total = shares(rows.weights, len(rows))
    return np.bincount(rows.labels, weights=share, minlength=rows.n_classes).astype(np.float64) * total


def rows_in_both(calibration: Predictions, test: Predictions) -> int:
    """Return how many test rows have exactly the logits and the label of some calibration row."""
    if calibration.logits.dtype != test.logits.dtype:
        return 0
    known = set(_keys(calibration))
    return sum(key in known for key in _keys(test))


def _keys(rows: Predictions) -> list[tuple[bytes, int]]:
    return [(logits.tobytes(), label) for logits, label in zip(rows.logits, rows.labels.tolist(), strict=True)]


def _mean(values: Floats, rows: Predictions) -> tuple[float, float]:
    """Return a mean and its variance; rows of a group count as one."""
    share, _ = shares(rows.weights, len(values))
    mean = float(share @ values)
    parts = share * (values - mean)
    if rows.groups is not None:
        parts = np.bincount(np.unique(rows.groups, return_inverse=True)[1], weights=parts).astype(np.float64)
    n = len(parts)
    return mean, float((parts**2).sum()) * n / max(1, n - 1)


def _against(means: list[tuple[float, float]]) -> str:
    return f"{percent(means[0][0])} on calibration rows, {percent(means[1][0])} on test rows"


def _most_changed(counts: Array, names: list[str]) -> str:
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    most = int(np.abs(frequencies[0] - frequencies[1]).argmax())
    return (
        f"furthest apart is {names[most]}, {percent(frequencies[0, most])} of calibration rows and "
        f"{percent(frequencies[1, most])} of test rows"
    )
