"""Calibration and test rows -> findings about the data that the rest of the page depends on.

Checks without findings are listed too, so that readers know what was checked. A calibrator is valid for rows like
those it was fitted on, so both sets are compared in class frequencies, mean confidence and accuracy.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.metrics import METRICS, adjust
from glayers.metrics.events import Rows, Scored, check_rows
from glayers.predictions import Predictions
from glayers.report import p_text
from glayers.report.html.measuring import LEVEL, Compared, class_names

FEW = 20  # rows of a class: its frequency then has a relative standard error of a fifth or more
_NAMED = 5
_SHIFT = "Shift between calibration and test rows"
_LEAST_EXPECTED = 5.0  # rows per cell: the chi-squared approximation needs as many


@dataclass(frozen=True)
class Check:
    """What was checked, what was found, whether it needs attention, and the p-value of a test."""

    subject: str
    found: str
    status: Literal["attention", "fine", "not tested"]
    p_value: float | None = None


def data_checks(compared: Compared, calibration: Predictions | None) -> list[Check]:
    """Look for missing and rare classes, rows in both sets, shift between the sets, groups and weights."""
    names, test = class_names(compared), compared.test
    counts = calibration_counts(compared, calibration)
    checks = [] if counts is None else _class_checks("calibration", counts, names)
    checks += _class_checks("test", test.label_counts(), names)
    checks += _shift_checks(test, calibration, names)
    if test.groups is not None:
        found = (
            f"test rows come in {len(np.unique(test.groups)):,} groups; intervals and KS tests account for groups, but "
            f"the bands of the reliability diagrams treat rows as independent and are too narrow"
        )
        checks.append(Check("Groups", found, "attention"))
    if test.weights is not None:
        checks.append(Check("Weights", "rows are weighted, and so are all numbers of this report", "fine"))
    return sorted(checks, key=lambda check: check.status == "fine")


def calibration_counts(compared: Compared, calibration: Predictions | None) -> Ints | None:
    """Return how many calibration rows each class has: from the rows or, without them, from a fit's diagnostics."""
    if calibration is not None:
        return calibration.label_counts()
    fitted = list(compared.calibrators.values())
    return np.array(fitted[0].diagnostics_.labels_per_class) if fitted else None


def shifts(calibration: Predictions, test: Predictions, names: list[str]) -> list[Check]:
    """Compare two sets of rows in mean confidence, accuracy and class frequencies, with Holm's correction.

    Rows of a group count as one unit. Pearson's test of the frequencies needs independent rows, so groups exclude it.
    """
    parts = [check_rows(rows) for rows in (calibration, test)]
    asked = []
    for metric, means in (
        ("confidence", [mean_and_variance(rows.top, rows.top.scores) for rows in parts]),
        ("accuracy", [mean_and_variance(rows.top, rows.top.hits) for rows in parts]),
    ):
        first, second = (METRICS[metric].format(mean) for mean, _ in means)
        subject = "mean confidence" if metric == "confidence" else metric
        asked.append((subject, f"{first} on calibration rows, {second} on test rows", two_means(*means)))
    if calibration.groups is None and test.groups is None:
        counts = np.array([class_counts(rows) for rows in parts])
        asked.append(("class frequencies", _most_changed(counts, names), two_frequencies(counts)))
    adjusted = adjust([p for _, _, p in asked], "holm").tolist()
    checks = []
    for (subject, found, _), p in zip(asked, adjusted, strict=True):
        shifted = p <= 1 - LEVEL
        words = f"{'' if shifted else 'no '}significant difference: {found}, {p_text(p)}"
        checks.append(Check(f"{_SHIFT}: {subject}", words, "attention" if shifted else "fine", p))
    return checks


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
    """Return the p-value of Pearson's test that two rows of counts have the same distribution; rare classes are pooled.

    >>> round(two_frequencies(np.array([[50.0, 30.0, 20.0], [30.0, 40.0, 30.0]])), 4)  # chi-squared 8.43, 2 degrees
    0.0148
    """
    from scipy.stats import chi2_contingency  # slow to import

    expected = counts.sum(axis=0) * counts.sum(axis=1).min() / counts.sum()
    rare = expected < _LEAST_EXPECTED
    pooled = np.column_stack([counts[:, ~rare], counts[:, rare].sum(axis=1)])
    pooled = pooled[:, pooled.sum(axis=0) > 0]
    return float(chi2_contingency(pooled, correction=False).pvalue) if pooled.shape[1] > 1 else 1.0


def class_counts(rows: Rows) -> Floats:
    """Return how many rows each class has; weighted rows count as the number they stand for."""
    return np.bincount(rows.labels, weights=rows.weights, minlength=rows.n_classes).astype(np.float64) * rows.total


def mean_and_variance(event: Scored, values: Floats) -> tuple[float, float]:
    """Return a weighted mean and its variance; rows of a group count as one unit."""
    mean = float(event.weights @ values)
    parts = event.weights * (values - mean)
    if event.groups is not None:
        parts = np.bincount(np.unique(event.groups, return_inverse=True)[1], weights=parts).astype(np.float64)
    return mean, float((parts**2).sum()) * len(parts) / max(1, len(parts) - 1)


def rows_in_both(calibration: Predictions, test: Predictions) -> int:
    """Return how many test rows have exactly the logits and the label of some calibration row."""
    if calibration.logits.dtype != test.logits.dtype:
        return 0
    known = set(_keys(calibration))
    return sum(key in known for key in _keys(test))


def _keys(rows: Predictions) -> list[tuple[bytes, int]]:
    return [(logits.tobytes(), label) for logits, label in zip(rows.logits, rows.labels.tolist(), strict=True)]


def _class_checks(part: str, counts: Ints, names: list[str]) -> list[Check]:
    missing, few = np.flatnonzero(counts == 0), np.flatnonzero((counts > 0) & (counts < FEW))
    checks = []
    if missing.size:
        found = f"no {part} row has the label {_some(missing, names)}"
        checks.append(Check(f"Missing classes, {part} rows", found, "attention"))
    if few.size:
        them = "it" if len(few) == 1 else "them"
        found = f"fewer than {FEW} {part} rows have the label {_some(few, names)}: estimates for {them} are imprecise"
        checks.append(Check(f"Rare classes, {part} rows", found, "attention"))
    if not checks:
        found = f"every class has at least {FEW} rows; the smallest is {names[counts.argmin()]} with {counts.min():,}"
        checks.append(Check(f"Classes, {part} rows", found, "fine"))
    return checks


def _shift_checks(test: Predictions, calibration: Predictions | None, names: list[str]) -> list[Check]:
    if calibration is None:
        return [Check(_SHIFT, "not tested, because the report was written without the calibration rows", "not tested")]
    same = rows_in_both(calibration, test)
    found = f"{same:,} of {len(test):,} test rows are also calibration rows: scores on them are too optimistic"
    if not same:
        found = "no test row is a calibration row"
    both = Check("Rows in both sets", found, "attention" if same else "fine")
    return [both, *shifts(calibration, test, names)]


def _some(classes: Ints, names: list[str]) -> str:
    named = ", ".join(names[c] for c in classes[:_NAMED].tolist())
    return named if len(classes) <= _NAMED else f"{named} and {len(classes) - _NAMED:,} others"


def _most_changed(counts: Array, names: list[str]) -> str:
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    most = int(np.abs(frequencies[0] - frequencies[1]).argmax())
    first, second = (METRICS["confidence"].format(frequency) for frequency in frequencies[:, most])
    return f"the largest change is in {names[most]}, {first} of calibration rows and {second} of test rows"
