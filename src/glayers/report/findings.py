"""A comparison -> what deserves attention before anyone trusts its numbers, with a cause and a remedy.

Checks without findings are listed too, so that readers know what was checked. A calibrator is valid for rows like those
it was fitted on, so both sets are compared in class frequencies, mean confidence and accuracy.
"""

import math
import re
import warnings
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from glayers import metrics
from glayers.arrays import Array, Floats, Ints
from glayers.calibrators.shift_tests import same_class_frequencies
from glayers.errors import GlayersError, GlayersWarning
from glayers.metrics import METRICS
from glayers.metrics.differences import normal_p_value
from glayers.metrics.events import Rows, Scored, check_any, check_event
from glayers.predictions import Confidences, Predictions
from glayers.predictions.contents import listed
from glayers.report.curves import PredictedGaps, predicted_gaps
from glayers.report.words import p_text

if TYPE_CHECKING:
    from glayers.comparison import Comparison

LEVEL = 0.95
FEW = 20  # rows of a class: its frequency then has a relative standard error of a fifth or more
_NAMED = 5  # classes in a sentence
_SHIFT = "Shift between calibration and test rows"
_REFIT = "Fit again on rows like those the model will see"
_ADAPT = "Adapt the calibrator to the new frequencies with glayers adapt, or fit again on such rows"
_AFTER_SHIFT = {"mean confidence": _REFIT, "accuracy": _REFIT, "class frequencies": _ADAPT}
_CAUSES_FIRST = ("Rows in both sets", *(f"{_SHIFT}: {each}" for each in ("class frequencies", "accuracy")))
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
    compared: "Comparison",
    calibration: Predictions | Confidences | None,
    gaps: PredictedGaps | None = None,
) -> list[Check]:
    """Look for missing and rare classes, rows in both sets, shift between the sets, groups, weights, and classes off.

    `gaps` are those of the recommended method on the test rows, if they are known already.
    """
    test = compared.test
    checks: list[Check] = []
    if isinstance(test, Predictions):
        names = class_names(test)
        counts = {"test": test.label_counts()}
        of_calibration = calibration_counts(compared, calibration)
        if of_calibration is not None:
            counts = {"calibration": of_calibration} | counts
        checks = [class_gap_check(compared, names, gaps), *_class_checks(counts, names)]
    if calibration is None:
        found = "not tested, because the report was written without the calibration rows"
        checks.append(Check(_SHIFT, found, "not tested", advice="Pass the calibration rows as well"))
    else:
        checks += _checks_between(compared, calibration)
    if test.groups is not None:
        checks.append(_group_check(compared, len(np.unique(test.groups))))
    if test.weights is not None:
        checks.append(Check("Weights", "rows are weighted, and so are all numbers of this report", "fine"))
    causes_first = {name: place for place, name in enumerate(_CAUSES_FIRST)}
    return sorted(checks, key=lambda check: (check.status == "fine", causes_first.get(check.subject, len(checks))))


def _checks_between(compared: "Comparison", calibration: Predictions | Confidences) -> list[Check]:
    """Look for rows in both sets and for shift between them."""
    test = compared.test
    if not (isinstance(test, Predictions) and isinstance(calibration, Predictions)):
        return shifts(calibration, test, [])
    checks = [_overlap_check(rows_in_both(calibration, test), len(test))]
    for check in shifts(calibration, test, class_names(test)):
        if check.advice == _ADAPT:
            check = check._replace(advice=_after_class_shift(compared))
        checks.append(check)
    return checks


def _overlap_check(same: int, rows: int) -> Check:
    if same == 0:
        return Check("Rows in both sets", "no test row is a calibration row", "fine")
    found = f"{same:,} of {rows:,} test rows are also calibration rows: scores on them are too optimistic"
    advice = "Leave these rows out of one of the two sets"
    return Check("Rows in both sets", found, "attention", advice=advice)


def _group_check(compared: "Comparison", groups: int) -> Check:
    found = (
        f"test rows come in {groups:,} groups; intervals and KS tests account for groups, but the bands of the "
        f"reliability diagrams treat rows as independent and are too narrow"
    )
    if compared.calibration_tests[compared.recommended].verdict == "too few groups":
        return Check("Too few groups to tell", found, "attention", advice="Collect rows from more groups")
    return Check("Groups", found, "attention", advice="Read the tests and intervals rather than the bands")


def banners(checks: list[Check]) -> list[Check]:
    """Return the findings for the first screen: what needs attention, but shift and rare classes once.

    Of shifts, the first is the likeliest cause. Rare calibration rows matter more than rare test rows.
    """
    shown: list[Check] = []
    for check in checks:
        if check.status != "attention":
            continue
        topics = [topic for topic in (_SHIFT, "Rare classes") if check.subject.startswith(topic)]
        if not any(other.subject.startswith(topic) for topic in topics for other in shown):
            shown.append(check)
    return shown


def class_shift_found(checks: list[Check]) -> Check | None:
    """Return the finding that the class frequencies differ between the sets, if they do."""
    shifted = (check for check in checks if check.subject == f"{_SHIFT}: class frequencies" and check.advice)
    return next(shifted, None)


def _after_class_shift(compared: "Comparison") -> str:
    """Say what adapting the recommended calibrator to the test rows, without their labels, would achieve."""
    test = compared.test
    if compared.recommended not in compared.calibrators or not isinstance(test, Predictions):
        return _ADAPT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GlayersWarning)  # what it would warn of, the p-value below shows
            adapted = compared.calibrators[compared.recommended].adapt(test)
    except GlayersError:
        return _ADAPT
    after = check_any(adapted.apply(test))
    confidence = METRICS["confidence"].format(metrics.mean_confidence(after))
    accuracy = METRICS["accuracy"].format(metrics.accuracy(after))
    words = (
        f"Adapt the calibrator (glayers adapt). This needs no labels and gives mean confidence {confidence} and "
        f"accuracy {accuracy} here"
    )
    if metrics.ks_test(after).rejected:
        return f"{words}. The shift explains only part of the error, so fit again on such rows if you can"
    return f"{words}: the shift explains the rest of the error"


def class_gap_check(compared: "Comparison", names: list[str], gaps: PredictedGaps | None = None) -> Check:
    """Look for classes whose confidence is off where they are predicted, after the recommended method."""
    method = compared.recommended
    if gaps is None:
        gaps = predicted_gaps(compared.predictions(method))
    off = gaps.significant(LEVEL).tolist()
    rejecting = compared.calibration_tests[method].rejecting
    if not off and ("classwise_ks" in rejecting or "rank_2_ks" in rejecting):
        words = (
            "over all classes together, probabilities differ from frequencies by more than chance, but no single class "
            "stands out where it is predicted"
        )
        advice = "Rely on the probability of the top class; look at the matrix of classes before you use the others"
        return Check(f"Classes together, {method}", words, "attention", advice=advice)
    if not off:
        return Check(f"Single classes, {method}", "no class has a significant gap where it is predicted", "fine")
    worst, *others = off
    confidence, accuracy = (METRICS["accuracy"].format(mean[worst]) for mean in (gaps.confidence, gaps.accuracy))
    words = (
        f"where {names[worst]} is predicted ({gaps.rows[worst]:,.0f} rows), "
        f"mean confidence is {confidence} and accuracy {accuracy}"
    )
    if others:
        words += f" ({len(others)} more: {listed([names[c] for c in others], _NAMED)})"
    advice = "Treat single probabilities of such classes with care; where calibration rows are few, collect more"
    return Check(f"Single classes, {method}", words, "attention", float(gaps.p_value[worst]), advice)


def calibration_counts(compared: "Comparison", calibration: Predictions | Confidences | None) -> Ints | None:
    """Return how many calibration rows each class has: from the rows or, without them, from a fit's diagnostics."""
    if isinstance(calibration, Predictions):
        return calibration.label_counts()
    for fitted in compared.calibrators.values():
        return np.array(fitted.diagnostics_.labels_per_class)
    return None


def shifts(calibration: Predictions | Confidences, test: Predictions | Confidences, names: list[str]) -> list[Check]:
    """Compare two sets of rows in mean confidence, accuracy and class frequencies, with Holm's correction.

    Rows of a group count as one unit. Pearson's test of the frequencies needs independent rows, so groups exclude it.
    """
    parts = [check_any(rows) for rows in (calibration, test)]
    scored = [check_event(rows) for rows in parts]
    confidence = [mean_and_variance(event, event.scores) for event in scored]
    accuracy = [mean_and_variance(event, event.hits) for event in scored]
    asked = {"mean confidence": _mean_shift(*confidence), "accuracy": _mean_shift(*accuracy)}
    checks: list[Check] = []
    by_class = [rows for rows in parts if isinstance(rows, Rows)]
    if by_class and calibration.groups is None and test.groups is None:
        counts = np.array([class_counts(rows) for rows in by_class])
        p_value = same_class_frequencies(*counts)
        if math.isnan(p_value):
            few = "not tested, because there are too few rows to compare class frequencies"
            checks.append(Check(f"{_SHIFT}: class frequencies", few, "not tested"))
        else:
            asked["class frequencies"] = (_most_changed(counts, names), p_value)
    adjusted = metrics.adjust([p for _, p in asked.values()]).tolist()
    for (subject, (found, _)), p in zip(asked.items(), adjusted, strict=True):
        words = f"significant difference: {found}, {p_text(p)}"
        check = Check(f"{_SHIFT}: {subject}", words, "attention", p, _AFTER_SHIFT[subject])
        if p > 1 - LEVEL:
            check = Check(check.subject, f"no {words}", "fine", p)
        checks.append(check)
    return checks


def _mean_shift(first: tuple[float, float], second: tuple[float, float]) -> tuple[str, float]:
    """Return two means in words, and the p-value that they are equal, given each with its variance."""
    before, after = (METRICS["accuracy"].format(mean) for mean, _ in (first, second))
    p_value = normal_p_value(first[0] - second[0], math.sqrt(first[1] + second[1]))
    return f"{before} on calibration rows, {after} on test rows", p_value


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


def _class_checks(parts: dict[str, Ints], names: list[str]) -> list[Check]:
    """Look for missing and rare classes; classes that are missing in all parts are one finding."""
    missing = {part: tuple(np.flatnonzero(counts == 0).tolist()) for part, counts in parts.items()}
    if len(parts) > 1 and len(set(missing.values())) == 1:
        missing = {" or ".join(parts): missing["test"]}
    checks = []
    for part, classes in missing.items():
        if classes:
            found = f"no {part} row has the label {listed([names[c] for c in classes], _NAMED)}"
            advice = "Collect labelled rows of these classes, or take the classes out of the model"
            checks.append(Check(f"Missing classes, {part} rows", found, "attention", advice=advice))
    for part, counts in parts.items():
        checks += _rare_classes(part, counts, names)
    return checks


def _rare_classes(part: str, counts: Ints, names: list[str]) -> list[Check]:
    few = [names[c] for c in np.flatnonzero((counts > 0) & (counts < FEW))]
    if few:
        them = "it" if len(few) == 1 else "them"
        found = f"fewer than {FEW} {part} rows have the label {listed(few, _NAMED)}: estimates for {them} are imprecise"
        return [Check(f"Rare classes, {part} rows", found, "attention", advice="Collect more rows of these classes")]
    if counts.min() == 0:
        return []
    found = f"every class has at least {FEW} rows; the smallest is {names[counts.argmin()]} with {counts.min():,}"
    return [Check(f"Classes, {part} rows", found, "fine")]


def _most_changed(counts: Array, names: list[str]) -> str:
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    most = int(np.abs(frequencies[0] - frequencies[1]).argmax())
    first, second = (METRICS["accuracy"].format(frequency) for frequency in frequencies[:, most])
    return f"the largest change is in {names[most]}, {first} of calibration rows and {second} of test rows"
