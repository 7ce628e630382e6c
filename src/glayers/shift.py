"""A fitted calibrator and new rows -> whether these rows look like the calibration rows. Labels are not needed.

Calibrated probabilities hold for rows like those of the fit. Each feature that the calibrator remembers (predicted
classes, confidence, logits, and labels where there are any) is compared by Pearson's chi-square test of two samples;
Holm's correction combines the tests.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glayers.arrays import Floats
from glayers.calibrators import Calibrator
from glayers.calibrators.base import check_calibrator
from glayers.calibrators.class_shift import count_rows, same_frequencies
from glayers.checks import number_between
from glayers.metrics import adjust
from glayers.text_tables import json_ready, p_text

__all__ = ["ShiftTest", "shift_test"]


@dataclass(frozen=True)
class ShiftTest:
    """Whether new rows look like the calibration rows, feature by feature; it prints as a sentence.

    Attributes
    ----------
    p_values
        The p-value of each feature by name, corrected for the number of features; nan for too few rows.
    changes
        The largest change of each feature, in words.
    rows, calibration_rows
        The effective numbers of independent rows that were compared: one per group.
    level
        The level of all features together: rows like the calibration rows pass with this probability.
    """

    p_values: dict[str, float]
    changes: dict[str, str]
    rows: float
    calibration_rows: float
    level: float

    @property
    def p_value(self) -> float:
        """The smallest p-value; nan if there are too few rows to tell."""
        known = [value for value in self.p_values.values() if not math.isnan(value)]
        return min(known, default=math.nan)

    @property
    def shifted(self) -> bool:
        """Whether the rows differ significantly."""
        return self.p_value <= 1 - self.level

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, ready for JSON."""
        return json_ready(asdict(self) | {"p_value": self.p_value, "shifted": self.shifted})

    def __str__(self) -> str:
        if math.isnan(self.p_value):
            return f"too few rows ({self.rows:.0f}) to tell whether they look like the calibration rows"
        if not self.shifted:
            p = p_text(self.p_value)
            return f"no significant shift between {self.rows:,.0f} rows and the calibration rows ({p})"
        parts = []
        for name, p_value in sorted(self.p_values.items(), key=lambda feature: feature[1]):
            if p_value <= 1 - self.level:
                parts.append(f"{name} ({p_text(p_value)}; {self.changes[name]})")
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
    check_calibrator(calibrator)
    given, labelled = calibrator._as_fitted_on(logits, labels, groups)
    now = count_rows(given, calibrator._map_of_logits)
    before = calibrator.calibration_rows_
    names = calibrator.class_names_ or tuple(map(str, range(given.n_classes)))
    predicted = now.counts(now.p.argmax(axis=1), given.n_classes)
    tests = {"predicted classes": _compare_classes(np.array(before.predicted), predicted, names)}
    for name, histogram in before.histograms.items():
        old = np.array(histogram.counts)
        new = now.counts(histogram.bins(now.features[name]), len(old))
        tests[name] = (same_frequencies(old, new), histogram.largest_change(old, new, "before"))
    if labelled:
        known = now.counts(given.labels[now.places], given.n_classes)
        tests["labels"] = _compare_classes(before.rows * np.array(before.frequencies), known, names)
    p_values = {name: p_value for name, (p_value, _) in tests.items()}
    tested = [name for name, p_value in p_values.items() if not math.isnan(p_value)]
    adjusted = adjust([p_values[name] for name in tested]).tolist()
    p_values |= dict(zip(tested, adjusted, strict=True))
    changes = {name: change for name, (_, change) in tests.items()}
    return ShiftTest(p_values, changes, now.total, before.rows, level)


def _compare_classes(before: Floats, now: Floats, names: Sequence[str]) -> tuple[float, str]:
    """Return the p-value of the same class frequencies, and the class that changed most."""
    order = np.argsort(before + now)  # rare classes are merged with rare ones
    p_value = same_frequencies(before[order], now[order])
    old = 100 * before / before.sum()
    new = 100 * now / now.sum()
    place = int(np.abs(new - old).argmax())
    return p_value, f"{names[place]}: {old[place]:.1f} % before, {new[place]:.1f} % now"
