"""A fitted calibrator and new rows -> whether these rows look like the calibration rows. Labels are not needed.

Calibrated probabilities hold for rows like those of the fit. Each feature that the calibrator remembers (predicted
classes, confidence, logits, and labels where there are any) is compared by Pearson's chi-square test of two samples;
Holm's correction combines the tests.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glayers.arrays import Floats
from glayers.calibrators import Calibrator, MultiLabelCalibrator
from glayers.calibrators.base import check_calibrator
from glayers.calibrators.class_shift import CountedRows, RowSummary, count_rows, same_frequencies
from glayers.checks import number_between
from glayers.errors import WITHOUT_GROUPS, BadPredictions
from glayers.metrics import adjust
from glayers.predictions import MultiLabelPredictions, Predictions
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
    in_groups
        Whether the rows had groups, each of which counts as one row.
    """

    p_values: dict[str, float]
    changes: dict[str, str]
    rows: float
    calibration_rows: float
    level: float
    in_groups: bool = False

    @property
    def p_value(self) -> float:
        """The smallest p-value; nan if there are too few rows to tell."""
        known = [value for value in self.p_values.values() if not math.isnan(value)]
        return min(known, default=math.nan)

    @property
    def shifted(self) -> bool:
        """Whether the rows differ significantly."""
        return self.p_value <= 1 - self.level

    @property
    def most_changed(self) -> str:
        """The feature that changed most: labels if they did, as their change is the easiest to correct."""
        changed = {name: p for name, p in self.p_values.items() if p <= 1 - self.level}
        if "labels" in changed:
            return "labels"
        return min(changed, key=changed.__getitem__, default="")

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, ready for JSON."""
        return json_ready(asdict(self) | {"p_value": self.p_value, "shifted": self.shifted})

    def __str__(self) -> str:
        units = "groups" if self.in_groups else "rows"
        if math.isnan(self.p_value):
            advice = f": each group counts as one row. {WITHOUT_GROUPS}" if self.in_groups else ""
            return f"too few {units} ({self.rows:.0f}) to tell whether they look like the calibration rows{advice}"
        if not self.shifted:
            p = p_text(self.p_value)
            return f"no significant shift between {self.rows:,.0f} {units} and the calibration rows ({p})"
        name = self.most_changed
        p = p_text(self.p_values[name])
        return f"shift: these rows differ from the calibration rows in {name}, where {self.changes[name]} ({p})"


def shift_test(
    calibrator: Calibrator | MultiLabelCalibrator,
    logits: Any,
    labels: Any = None,
    *,
    groups: Any = None,
    level: float = 0.95,
) -> ShiftTest:
    """Test whether new rows look like the rows that a calibrator was fitted on.

    Parameters
    ----------
    calibrator
        A fitted or loaded calibrator; one of several labels tests each of them.
    logits
        Logits (n, m) of the new rows, or `Predictions`.
    labels
        Class numbers (n,), if they are known, or the matrix of several labels.
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
    rows = 0.0
    calibration_rows = 0.0
    in_groups = False
    p_values = {}
    changes = {}
    for part, fitted, values, truth, units in _parts(calibrator, logits, labels, groups):
        given, labelled = fitted._as_fitted_on(values, truth, units)
        in_groups = in_groups or given.groups is not None
        now = count_rows(given, fitted._map_of_logits)
        before = fitted.calibration_rows_
        rows = max(rows, now.total)
        calibration_rows = max(calibration_rows, before.rows)
        for name, p_value, change in _compared(before, now, given if labelled else None, fitted.class_names_):
            p_values[part + name] = p_value
            changes[part + name] = change
    adjusted = adjust(list(p_values.values())).tolist()
    return ShiftTest(dict(zip(p_values, adjusted, strict=True)), changes, rows, calibration_rows, level, in_groups)


def _parts(calibrator: Any, logits: Any, labels: Any, groups: Any) -> Iterator[tuple[str, Calibrator, Any, Any, Any]]:
    """Yield what to compare: a calibrator and its rows, or those of each of several labels, with a prefix."""
    if not isinstance(calibrator, MultiLabelCalibrator):
        check_calibrator(calibrator)
        yield "", calibrator, logits, labels, groups
        return
    if isinstance(logits, MultiLabelPredictions):
        if labels is not None or groups is not None:
            raise BadPredictions("MultiLabelPredictions have their own labels; leave labels= and groups= out")
    elif labels is not None:
        logits = calibrator.record(logits, labels, None, groups)
    if isinstance(logits, MultiLabelPredictions):
        for number, rows in calibrator.rows_of_labels(logits).items():
            yield f"{calibrator.names[number]}: ", calibrator.calibrators_[number], rows, None, None
        return
    for number, column in enumerate(calibrator._checked(logits).T):
        yield f"{calibrator.names[number]}: ", calibrator.calibrators_[number], column[:, None], None, groups


def _compared(
    before: RowSummary, now: CountedRows, labelled: Predictions | None, names: Sequence[str] | None
) -> Iterator[tuple[str, float, str]]:
    """Yield each feature, its p-value and its largest change, in words."""
    n_classes = len(before.predicted)
    names = names or [f"class {c}" for c in range(n_classes)]
    predicted = now.counts(now.p.argmax(axis=1), n_classes)
    yield "predicted classes", *_compare_classes(np.array(before.predicted), predicted, names)
    for name, histogram in before.histograms.items():
        old = np.array(histogram.counts)
        new = now.counts(histogram.bins(now.features[name]), len(old))
        change = histogram.largest_change(old, new, "of the calibration rows", "of these")
        yield name, same_frequencies(old, new), change
    if labelled is not None:
        known = now.counts(labelled.labels[now.places], n_classes)
        yield "labels", *_compare_classes(before.rows * np.array(before.frequencies), known, names)


def _compare_classes(before: Floats, now: Floats, names: Sequence[str]) -> tuple[float, str]:
    """Return the p-value of the same class frequencies, and the class that changed most."""
    order = np.argsort(before + now)  # rare classes are merged with rare ones
    p_value = same_frequencies(before[order], now[order])
    old = 100 * before / before.sum()
    new = 100 * now / now.sum()
    place = int(np.abs(new - old).argmax())
    return p_value, f"{names[place]} is {old[place]:.1f} % of the calibration rows but {new[place]:.1f} % of these"
