"""Calibration and test rows -> what to know about them before believing the rest of the page.

What was looked at and found in order is said too: silence would not tell it from what nobody looked at.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from glayers.arrays import Ints
from glayers.predictions import Predictions
from glayers.report.html.compared import Compared, class_names
from glayers.report.html.shift import rows_in_both, shifts

FEW = 20  # rows a class: its frequency is then known to a fifth of itself at best
_NAMED = 5


@dataclass(frozen=True)
class Check:
    """What was looked at, what was found, and whether it needs attention."""

    subject: str
    found: str
    status: Literal["attention", "fine", "not tested"]


def data_checks(compared: Compared, calibration: Predictions | None) -> list[Check]:
    """Look for missing and rare classes, rows in both sets, shift between the sets, and rows that are not alike."""
    names = class_names(compared)
    checks = [check for part, counts in _label_counts(compared, calibration) for check in _classes(part, counts, names)]
    checks += _between(compared.test, calibration, names)
    if compared.test.groups is not None:
        checks.append(_groups(compared.test))
    if compared.test.weights is not None:
        told = "rows are weighted: every number here is of the weighted rows"
        checks.append(Check("Weights", told, "fine"))
    # What needs attention first; the order is otherwise kept.
    return sorted(checks, key=lambda check: check.status == "fine")


def calibration_counts(compared: Compared, calibration: Predictions | None) -> Ints | None:
    """Return how many calibration rows each class has: from the rows or, failing them, from what a fit remembers."""
    if calibration is not None:
        return calibration.label_counts()
    remembered = [calibrator.diagnostics_.labels_per_class for calibrator in compared.calibrators.values()]
    return np.array(remembered[0]) if remembered else None


def _label_counts(compared: Compared, calibration: Predictions | None) -> list[tuple[str, Ints]]:
    counts = calibration_counts(compared, calibration)
    known = [] if counts is None else [("calibration", counts)]
    return [*known, ("test", compared.test.label_counts())]


def _classes(part: str, counts: Ints, names: list[str]) -> list[Check]:
    missing, few = np.flatnonzero(counts == 0), np.flatnonzero((counts > 0) & (counts < FEW))
    checks = []
    if missing.size:
        told = f"no {part} row is labelled {_some(missing, names)}: nothing is known about {_it(missing)}"
        checks.append(Check(f"Missing classes, {part} rows", told, "attention"))
    if few.size:
        told = f"fewer than {FEW} {part} rows are labelled {_some(few, names)}: little is known about {_it(few)}"
        checks.append(Check(f"Rare classes, {part} rows", told, "attention"))
    if not checks:
        told = f"every class has {FEW} rows or more; the fewest are {counts.min():,}, of {names[counts.argmin()]}"
        checks.append(Check(f"Classes, {part} rows", told, "fine"))
    return checks


def _between(test: Predictions, calibration: Predictions | None, names: list[str]) -> list[Check]:
    subject = "Shift between calibration and test rows"
    if calibration is None:
        return [Check(subject, "not tested: the report was written without the calibration rows", "not tested")]
    same = rows_in_both(calibration, test)
    told = f"{same:,} of {len(test):,} test rows are calibration rows too: they cannot judge what was fitted to them"
    checks = [
        Check("Rows in both sets", told, "attention")
        if same
        else Check("Rows in both sets", "no test row is a calibration row", "fine")
    ]
    for shift in shifts(calibration, test, names):
        told = f"{'they differ' if shift.shifted else 'no sign of a difference'}: {shift.found}"
        checks.append(Check(f"{subject}: {shift.subject}", told, "attention" if shift.shifted else "fine"))
    return checks


def _groups(test: Predictions) -> Check:
    n_groups = len(np.unique(np.asarray(test.groups)))
    told = (
        f"test rows come in {n_groups:,} groups; intervals and KS tests count by group, but the bands of the "
        f"reliability diagrams take rows as independent and are too narrow"
    )
    return Check("Groups", told, "attention")


def _some(classes: Ints, names: list[str]) -> str:
    told = ", ".join(names[c] for c in classes[:_NAMED].tolist())
    return told if len(classes) <= _NAMED else f"{told} and {len(classes) - _NAMED:,} others"


def _it(classes: Ints) -> str:
    return "it" if len(classes) == 1 else "them"
