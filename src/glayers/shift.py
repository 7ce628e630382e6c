"""A fitted calibrator and new rows -> whether these rows look like the calibration rows. Labels are not needed.

Calibrated probabilities hold for rows like those of the fit. Each feature that the calibrator remembers (predicted
classes, confidence, logits, and labels where there are any) is compared by Pearson's chi-square test of two samples;
Holm's correction combines the tests.
"""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from glayers.arrays import Floats
from glayers.calibrators import Calibrator
from glayers.calibrators.row_summary import Histogram, count_rows, independent_rows
from glayers.calibrators.shift_tests import same_class_frequencies, same_frequencies
from glayers.checks import number_between
from glayers.metrics.differences import adjust
from glayers.serving.predictor import apply_map
from glayers.text_tables import p_text

__all__ = ["FeatureShift", "ShiftTest", "shift_test"]


@dataclass(frozen=True)
class FeatureShift:
    """How one feature of the new rows differs from the calibration rows.

    Attributes
    ----------
    p_value, adjusted
        The p-value of this feature alone, and corrected for the number of features; nan for too few rows.
    change
        The largest change in words.
    outside
        How many of the new rows are outside the range of the calibration rows.
    """

    p_value: float
    adjusted: float
    change: str
    outside: int = 0


@dataclass(frozen=True)
class ShiftTest:
    """Whether new rows look like the calibration rows, feature by feature; it prints as a sentence.

    Attributes
    ----------
    features
        The result of each feature by name.
    rows, calibration_rows
        The effective numbers of independent rows that were compared: one per group.
    level
        The level of all features together: rows like the calibration rows pass with this probability.
    """

    features: dict[str, FeatureShift]
    rows: float
    calibration_rows: float
    level: float

    @property
    def p_value(self) -> float:
        """The smallest adjusted p-value; nan if there are too few rows to tell."""
        found = [each.adjusted for each in self.features.values() if not math.isnan(each.adjusted)]
        return min(found, default=math.nan)

    @property
    def shifted(self) -> bool:
        """Whether the rows differ significantly."""
        return self.p_value <= 1 - self.level

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, ready for JSON."""
        return {**asdict(self), "p_value": self.p_value, "shifted": self.shifted}

    def __str__(self) -> str:
        if math.isnan(self.p_value):
            return f"too few rows ({self.rows:.0f}) to tell whether they look like the calibration rows"
        if not self.shifted:
            return f"no significant shift: these rows look like the calibration rows ({p_text(self.p_value)})"
        found = sorted(self.features.items(), key=lambda each: each[1].adjusted)
        parts = [f"{name} ({p_text(f.adjusted)}; {f.change})" for name, f in found if f.adjusted <= 1 - self.level]
        return f"shift: these rows differ from the calibration rows in {', '.join(parts)}"


def shift_test(
    calibrator: Calibrator, logits: Any, labels: Any = None, *, groups: Any = None, level: float = 0.95
) -> ShiftTest:
    """Test whether new rows look like the rows that a calibrator was fitted on.

    Parameters
    ----------
    calibrator
        A fitted or loaded calibrator.
    logits
        Logits (n, m) of the new rows, or `Predictions`.
    labels
        Class numbers (n,), if they are known.
    groups
        Group of each row (n,): rows of a group depend on each other, so that one of them counts.
    level
        The probability with which rows like the calibration rows pass. A scheduler that tests many batches needs a
        higher level: of 1,000 such batches, 50 fail at 0.95, and 1 at 0.999.

    Returns
    -------
    ShiftTest
        The result by feature: "predicted classes", "confidence" and the logits, and "labels" if they are given.

    Examples
    --------
    >>> from glayers import TemperatureScaling
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> fitted = TemperatureScaling().fit_predictions(calibration)
    >>> shift_test(fitted, test.logits[:1000]).shifted, shift_test(fitted, 1.5 * test.logits[:1000]).shifted
    (False, True)
    """
    number_between(level, "level", 0, 1)
    calibrator._check_fitted()
    given, labelled = calibrator._new_rows(logits, labels, groups)
    chain = calibrator._map_of_logits
    rows, summary = independent_rows(given), calibrator.calibration_rows_
    counted = count_rows(given, rows, lambda some: apply_map(chain, given.logits[some], given.n_classes))
    names = calibrator.class_names_ or tuple(map(str, range(given.n_classes)))
    predicted = np.bincount(counted.predicted, counted.weights, given.n_classes).astype(np.float64)
    features = {"predicted classes": _compare_classes(np.array(summary.predicted), predicted, names)}
    for name, histogram in summary.histograms.items():
        features[name] = _compare_values(histogram, counted.features[name], counted.weights)
    if labelled:
        now = np.bincount(given.labels[rows], counted.weights, given.n_classes).astype(np.float64)
        features["labels"] = _compare_classes(np.array(summary.labels), now, names)
    tested = [name for name, feature in features.items() if not math.isnan(feature.p_value)]
    adjusted = adjust([features[name].p_value for name in tested]).tolist()
    for name, p_value in zip(tested, adjusted, strict=True):
        features[name] = replace(features[name], adjusted=p_value)
    return ShiftTest(features, float(counted.weights.sum()), float(sum(summary.predicted)), level)


def _compare_classes(before: Floats, now: Floats, names: tuple[str, ...]) -> FeatureShift:
    shares_before = before / max(before.sum(), 1)
    shares_now = now / max(now.sum(), 1)
    worst = int(np.abs(shares_now - shares_before).argmax())
    change = f"{names[worst]}: {_percent(shares_before[worst])} before, {_percent(shares_now[worst])} now"
    return FeatureShift(same_class_frequencies(before, now), math.nan, change)


def _compare_values(histogram: Histogram, values: Floats, weights: Floats) -> FeatureShift:
    now = histogram.count(values, weights)
    p_value = same_frequencies(np.array(histogram.counts), now)
    return FeatureShift(p_value, math.nan, _largest_step(histogram, now), histogram.outside(values))


def _largest_step(histogram: Histogram, now: Floats) -> str:
    """Say where the two distribution functions differ most."""
    before = np.array(histogram.counts)
    below = [np.cumsum(each)[:-1] / max(each.sum(), 1) for each in (before, now)]
    if not len(below[0]):
        return f"always {histogram.edges[0]:.4g} before"
    worst = int(np.abs(below[1] - below[0]).argmax())
    edge = histogram.edges[worst + 1]
    return f"below {edge:.4g}: {_percent(below[0][worst])} before, {_percent(below[1][worst])} now"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
