"""A fitted calibrator and new rows -> whether these rows look like the calibration rows. Labels are not needed.

Calibrated probabilities hold for rows like those of the fit. Each feature that the calibrator remembers (predicted
classes, confidence, logits, and labels where there are any) is compared by Pearson's chi-square test of two samples;
Holm's correction combines the tests.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from glayers.arrays import Floats
from glayers.calibrators import Calibrator
from glayers.calibrators.row_summary import count_rows
from glayers.calibrators.shift_tests import same_class_frequencies, same_frequencies
from glayers.checks import number_between
from glayers.errors import GlayersError, shown
from glayers.metrics.differences import adjust
from glayers.text_tables import json_ready, p_text

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
        found: dict[str, Any] = json_ready({**asdict(self), "p_value": self.p_value, "shifted": self.shifted})
        return found

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
    if not isinstance(calibrator, Calibrator):
        raise GlayersError(f"pass a fitted calibrator, or glayers.load(path); got {shown(calibrator)}")
    calibrator._check_fitted()
    given, labelled = calibrator._as_fitted_on(logits, labels, groups)
    now = count_rows(given, calibrator._map_of_logits)
    before = calibrator.calibration_rows_
    names = calibrator.class_names_ or tuple(map(str, range(given.n_classes)))
    features = {"predicted classes": _of_classes(before.predicted, now.counts(now.p.argmax(axis=1)), names)}
    for name, histogram in before.histograms.items():
        values = now.features[name]
        old = np.array(histogram.counts)
        new = np.bincount(histogram.bins(values), now.weights, len(old)).astype(np.float64)
        outside = (values < histogram.edges[0]) | (values > histogram.edges[-1])
        change = histogram.largest_change(old, new, "before")
        features[name] = FeatureShift(same_frequencies(old, new), math.nan, change, int(outside.sum()))
    if labelled:
        labels = before.rows * np.array(before.frequencies)
        features["labels"] = _of_classes(labels, now.counts(given.labels[now.rows]), names)
    tested = [name for name, feature in features.items() if not math.isnan(feature.p_value)]
    adjusted = adjust([features[name].p_value for name in tested]).tolist()
    for name, p_value in zip(tested, adjusted, strict=True):
        features[name] = replace(features[name], adjusted=p_value)
    return ShiftTest(features, float(now.weights.sum()), before.rows, level)


def _of_classes(before: Sequence[float] | Floats, now: Floats, names: Sequence[str]) -> FeatureShift:
    """Test counts of classes against those of the calibration rows, and name the class that changed most."""
    old = np.array(before)
    shares = np.array([old / old.sum(), now / now.sum()])
    place = int(np.abs(shares[1] - shares[0]).argmax())
    change = f"{names[place]}: {100 * shares[0, place]:.1f} % before, {100 * shares[1, place]:.1f} % now"
    return FeatureShift(same_class_frequencies(old, now), math.nan, change)
