"""A comparison -> what deserves attention before anyone trusts its numbers, with a remedy.

A calibrator is valid for rows like those it was fitted on: the test rows are compared with what it remembers of them.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glayers.arrays import Ints
from glayers.calibrators import Calibrator
from glayers.errors import listed
from glayers.predictions import Confidences, Predictions
from glayers.report.curves import LEVEL
from glayers.report.words import class_names
from glayers.shift import shift_test

if TYPE_CHECKING:
    from glayers.comparison import Comparison

FEW = 20  # rows of a class: its frequency then has a relative standard error of a fifth or more
_NAMED = 5  # classes in a sentence
BOTH_SETS = "Rows in both sets"


class Finding(NamedTuple):
    """A problem that the scores do not show: what it is about, what was found, and what to do about it."""

    subject: str
    found: str
    advice: str


def findings(compared: "Comparison", calibration: Predictions | Confidences | None) -> list[Finding]:
    """Look for rows in both sets, shift between the sets, missing and rare classes, and groups."""
    test = compared.test
    found: list[Finding] = []
    if isinstance(test, Predictions) and isinstance(calibration, Predictions):
        found += _shared_rows(calibration, test)
    if compared.calibrators:
        found += _shift(compared.calibrators[compared.recommended], test)
    if isinstance(test, Predictions):
        names = class_names(test.class_names, test.n_classes)
        for fitted in list(compared.calibrators.values())[:1]:
            found += _rare_classes("calibration", np.array(fitted.diagnostics_.labels_per_class), names)
        found += _rare_classes("test", test.label_counts(), names)
    if test.groups is not None:
        n_groups = len(np.unique(test.groups))
        words = f"test rows come in {n_groups:,} groups; bands of figures treat rows as independent and are too narrow"
        found.append(Finding("Groups", words, "Read the tests and intervals, which account for groups"))
    return found


def _shared_rows(calibration: Predictions, test: Predictions) -> list[Finding]:
    same = rows_in_both(calibration, test)
    if same == 0:
        return []
    words = f"{same:,} of {len(test):,} test rows are also calibration rows: scores on them are too optimistic"
    return [Finding(BOTH_SETS, words, "Leave these rows out of one of the two sets")]


def rows_in_both(calibration: Predictions, test: Predictions) -> int:
    """Return how many test rows have exactly the logits and the label of some calibration row."""
    known = set(_keys(calibration))
    return sum(key in known for key in _keys(test))


def _keys(rows: Predictions) -> list[tuple[bytes, int]]:
    return [(logits.tobytes(), label) for logits, label in zip(rows.logits, rows.labels.tolist(), strict=True)]


def _shift(calibrator: Calibrator, test: Predictions | Confidences) -> list[Finding]:
    """Compare the test rows with the calibration rows that a calibrator remembers."""
    found = shift_test(calibrator, test, level=LEVEL)
    if not found.shifted:
        return []
    advice = "Fit again on rows like those the model will see"
    changed = {name for name, p_value in found.p_values.items() if p_value <= 1 - LEVEL}
    if {"labels"} <= changed <= {"labels", "predicted classes"}:
        advice = "Adapt the calibrator to the new class frequencies with glayers adapt"
    return [Finding("Calibration and test rows", str(found), advice)]


def _rare_classes(part: str, counts: Ints, names: list[str]) -> list[Finding]:
    missing = [names[c] for c in np.flatnonzero(counts == 0)]
    few = [names[c] for c in np.flatnonzero((counts > 0) & (counts < FEW))]
    words = []
    if missing:
        words.append(f"no {part} row has the label {listed(missing, _NAMED)}")
    if few:
        rare = f"fewer than {FEW} {part} rows have the label {listed(few, _NAMED)}"
        words.append(f"{rare}: estimates for such classes are imprecise")
    if not words:
        return []
    return [Finding(f"Rare classes, {part} rows", "; ".join(words), "Collect more labelled rows of these classes")]
