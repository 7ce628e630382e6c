"""A comparison -> what deserves attention before anyone trusts its numbers, with a cause and a remedy.

Checks without findings are listed too, so that readers know what was checked. A calibrator is valid for rows like those
it was fitted on, so the test rows are compared with what it remembers of them.
"""

import math
import re
import warnings
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from glayers import metrics
from glayers.arrays import Floats, Ints
from glayers.calibrators import Calibrator
from glayers.errors import GlayersError, GlayersWarning, listed
from glayers.metrics.events import Rows
from glayers.predictions import Confidences, Predictions
from glayers.report.curves import LEVEL, PredictedGaps, predicted_gaps, sums_by
from glayers.report.words import percent
from glayers.shift import shift_test

if TYPE_CHECKING:
    from glayers.comparison import Comparison

FEW = 20  # rows of a class: its frequency then has a relative standard error of a fifth or more
_NAMED = 5  # classes in a sentence
BOTH_SETS = "Rows in both sets"
SHIFT = "Calibration and test rows"
ADAPT = "Adapt the calibrator with glayers adapt"
_REFIT = "Fit again on rows like those the model will see"
# Unicode marks for right-to-left writing: they would also turn the text around a class name.
_TURNING = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Check(NamedTuple):
    """What was checked, what was found, whether it needs attention, the p-value of a test, and what to do about it."""

    subject: str
    found: str
    status: Literal["attention", "fine", "not tested"]
    p_value: float | None = None
    advice: str = ""


def class_names(test: Predictions) -> list[str]:
    """Return the name of each class, with marks for right-to-left writing escaped, or its number."""
    if test.class_names is None:
        return [f"class {c}" for c in range(test.n_classes)]
    return [_TURNING.sub(lambda found: found[0].encode("unicode_escape").decode(), name) for name in test.class_names]


def data_checks(
    compared: "Comparison", calibration: Predictions | Confidences | None, gaps: PredictedGaps | None = None
) -> list[Check]:
    """Look for missing and rare classes, rows in both sets, shift between the sets, groups, weights, and classes off.

    `gaps` are those of the recommended method, if they are known already.
    """
    test = compared.test
    checks: list[Check] = []
    if isinstance(test, Predictions):
        names = class_names(test)
        checks.append(_class_gap_check(compared, names, gaps))
        counts = {"calibration": calibration_counts(compared, calibration), "test": test.label_counts()}
        checks += _class_checks({part: rows for part, rows in counts.items() if rows is not None}, names)
    if isinstance(test, Predictions) and isinstance(calibration, Predictions):
        checks.append(_overlap_check(calibration, test))
    if compared.calibrators:
        checks.append(_shift_check(compared, compared.calibrators[compared.recommended]))
    if test.groups is not None:
        checks.append(_group_check(len(np.unique(test.groups))))
    if test.weights is not None:
        checks.append(Check("Weights", "rows are weighted, and so are all numbers of this report", "fine"))

    return sorted(checks, key=lambda check: (check.status == "fine", check.subject not in (BOTH_SETS, SHIFT)))


def banners(checks: list[Check]) -> list[Check]:
    """Return the findings for the first screen: what needs attention, but rare classes once.

    Rare calibration rows, which come first, matter more than rare test rows.
    """
    shown: dict[str, Check] = {}
    for check in checks:
        if check.status == "attention":
            shown.setdefault(check.subject.removesuffix(", test rows").removesuffix(", calibration rows"), check)
    return list(shown.values())


def finding(checks: list[Check], subject: str) -> Check | None:
    """Return the check of a subject if it needs attention."""
    return next((check for check in checks if check.subject == subject and check.status == "attention"), None)


def _overlap_check(calibration: Predictions, test: Predictions) -> Check:
    same = rows_in_both(calibration, test)
    if same == 0:
        return Check(BOTH_SETS, "no test row is a calibration row", "fine")
    found = f"{same:,} of {len(test):,} test rows are also calibration rows: scores on them are too optimistic"
    return Check(BOTH_SETS, found, "attention", advice="Leave these rows out of one of the two sets")


def _group_check(n_groups: int) -> Check:
    found = (
        f"test rows come in {n_groups:,} groups; intervals and KS tests account for groups, but the "
        f"bands of the reliability diagrams treat rows as independent and are too narrow"
    )
    return Check("Groups", found, "attention", advice="Read the tests and intervals rather than the bands")


def _class_gap_check(compared: "Comparison", names: list[str], gaps: PredictedGaps | None) -> Check:
    """Look for classes whose confidence is off where they are predicted, after the recommended method."""
    subject = f"Single classes, {compared.recommended}"
    gaps = gaps or predicted_gaps(compared.rows(compared.recommended))
    if not gaps.off:
        return Check(subject, "no class has a significant gap where it is predicted", "fine")
    worst, *others = gaps.off
    words = (
        f"where {names[worst]} is predicted ({gaps.count[worst]:,.0f} rows), mean confidence is "
        f"{percent(gaps.confidence[worst])} and accuracy {percent(gaps.accuracy[worst])}"
    )
    if others:
        words += f" ({len(others)} more: {listed([names[c] for c in others], _NAMED)})"
    advice = "Treat single probabilities of such classes with care; where calibration rows are few, collect more"
    return Check(subject, words, "attention", float(gaps.p_value[worst]), advice)


def calibration_counts(compared: "Comparison", calibration: Predictions | Confidences | None) -> Ints | None:
    """Return how many calibration rows each class has: from the rows or, without them, from a fit's diagnostics."""
    if isinstance(calibration, Predictions):
        return calibration.label_counts()
    for fitted in compared.calibrators.values():
        return np.array(fitted.diagnostics_.labels_per_class)
    return None


def _shift_check(compared: "Comparison", calibrator: Calibrator) -> Check:
    """Compare the test rows with the calibration rows that the recommended calibrator remembers."""
    found = shift_test(calibrator, compared.test, level=LEVEL)
    if math.isnan(found.p_value):
        return Check(SHIFT, str(found), "not tested")
    if not found.shifted:
        return Check(SHIFT, str(found), "fine", found.p_value)
    advice = _REFIT
    if found.p_values["labels"] <= 1 - LEVEL:
        advice = _after_class_shift(compared, calibrator)
    return Check(SHIFT, str(found), "attention", found.p_value, advice)


def _after_class_shift(compared: "Comparison", calibrator: Calibrator) -> str:
    """Say what adapting the calibrator to the test rows, without their labels, would achieve."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GlayersWarning)  # of what the numbers below show
            after = calibrator.adapt(compared.test).apply(compared.test)
    except GlayersError:
        return _REFIT
    written = metrics.METRICS["nll"].format
    loss = compared.scorecards[compared.recommended]["nll"]
    numbers = f"NLL {written(loss)} without, {written(metrics.nll(after))} with it"
    if metrics.nll(after) < loss:
        return f"{ADAPT}, which needs no labels: {numbers}"
    return f"{_REFIT}: adapting the calibrator does not help here ({numbers})"


def class_counts(rows: Rows) -> Floats:
    """Return how many rows each class has; weighted rows count as the number they stand for."""
    return sums_by(rows.labels, rows.weights, rows.n_classes) * rows.total


def rows_in_both(calibration: Predictions, test: Predictions) -> int:
    """Return how many test rows have exactly the logits and the label of some calibration row."""
    if calibration.logits.dtype != test.logits.dtype:
        return 0
    known = set(_keys(calibration))
    return sum(key in known for key in _keys(test))


def _keys(rows: Predictions) -> list[tuple[bytes, int]]:
    return [(logits.tobytes(), label) for logits, label in zip(rows.logits, rows.labels.tolist(), strict=True)]


def _class_checks(parts: dict[str, Ints], names: list[str]) -> list[Check]:
    """Look for missing and rare classes; classes that are missing in all parts are one finding."""
    missing = {part: np.flatnonzero(counts == 0).tolist() for part, counts in parts.items()}
    if len(parts) > 1 and missing["calibration"] == missing["test"]:
        missing = {"calibration or test": missing["test"]}
    checks = []
    for part, classes in missing.items():
        if classes:
            found = f"no {part} row has the label {listed([names[c] for c in classes], _NAMED)}"
            advice = "Collect labelled rows of these classes, or take the classes out of the model"
            checks.append(Check(f"Missing classes, {part} rows", found, "attention", advice=advice))
    for part, counts in parts.items():
        few = [names[c] for c in np.flatnonzero((counts > 0) & (counts < FEW))]
        if few:
            them = "it" if len(few) == 1 else "them"
            found = f"fewer than {FEW} {part} rows have the label {listed(few, _NAMED)}"
            found += f": estimates for {them} are imprecise"
            advice = "Collect more rows of these classes"
            checks.append(Check(f"Rare classes, {part} rows", found, "attention", advice=advice))
        elif counts.min() > 0:
            smallest = f"the smallest is {names[counts.argmin()]} with {counts.min():,}"
            checks.append(Check(f"Classes, {part} rows", f"every class has at least {FEW} rows; {smallest}", "fine"))
    return checks
