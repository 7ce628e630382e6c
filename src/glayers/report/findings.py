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
from glayers.errors import GlayersError, GlayersWarning, listed
from glayers.metrics.differences import normal_p_value
from glayers.metrics.events import Rows, Scored, check_any
from glayers.predictions import Confidences, Predictions
from glayers.report.curves import LEVEL, PredictedGaps, predicted_gaps, sums_by
from glayers.report.words import p_text, percent

if TYPE_CHECKING:
    from glayers.comparison import Comparison

FEW = 20  # rows of a class: its frequency then has a relative standard error of a fifth or more
_NAMED = 5  # classes in a sentence
BOTH_SETS = "Rows in both sets"
SHIFT = "Shift between calibration and test rows"
CLASS_SHIFT = f"{SHIFT}: class frequencies"
_CAUSES_FIRST = (BOTH_SETS, CLASS_SHIFT, f"{SHIFT}: accuracy")
_REFIT = "Fit again on rows like those the model will see"
_ADAPT = "Adapt the calibrator to the new frequencies with glayers adapt, or fit again on such rows"
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
        counts = {"test": test.label_counts()}
        of_calibration = calibration_counts(compared, calibration)
        if of_calibration is not None:
            counts = {"calibration": of_calibration} | counts
        checks = [_class_gap_check(compared, names, gaps), *_class_checks(counts, names)]
    if calibration is None:
        found = "not tested, because the report was written without the calibration rows"
        checks.append(Check(SHIFT, found, "not tested", advice="Pass the calibration rows as well"))
    else:
        if isinstance(test, Predictions) and isinstance(calibration, Predictions):
            checks.append(_overlap_check(rows_in_both(calibration, test), len(test)))
        checks += shifts(calibration, test, compared)
    if test.groups is not None:
        checks.append(_group_check(compared, len(np.unique(test.groups))))
    if test.weights is not None:
        checks.append(Check("Weights", "rows are weighted, and so are all numbers of this report", "fine"))
    causes_first = {name: place for place, name in enumerate(_CAUSES_FIRST)}
    return sorted(checks, key=lambda check: (check.status == "fine", causes_first.get(check.subject, len(checks))))


def banners(checks: list[Check]) -> list[Check]:
    """Return the findings for the first screen: what needs attention, but shift and rare classes once.

    Of shifts, the first is the likeliest cause. Rare calibration rows matter more than rare test rows.
    """
    shown: dict[str, Check] = {}
    for check in checks:
        if check.status == "attention":
            topics = [topic for topic in (SHIFT, "Rare classes") if check.subject.startswith(topic)]
            shown.setdefault("".join(topics) or check.subject, check)
    return list(shown.values())


def advises_adapting(check: Check | None) -> bool:
    """Return whether a check of the class frequencies advises to adapt the calibrator."""
    return check is not None and check.advice.startswith("Adapt")


def finding(checks: list[Check], subject: str) -> Check | None:
    """Return the check of a subject if it needs attention."""
    return next((check for check in checks if check.subject == subject and check.status == "attention"), None)


def _overlap_check(same: int, rows: int) -> Check:
    if same == 0:
        return Check(BOTH_SETS, "no test row is a calibration row", "fine")
    found = f"{same:,} of {rows:,} test rows are also calibration rows: scores on them are too optimistic"
    return Check(BOTH_SETS, found, "attention", advice="Leave these rows out of one of the two sets")


def _group_check(compared: "Comparison", groups: int) -> Check:
    found = (
        f"test rows come in {groups:,} groups; intervals and KS tests account for groups, but the bands of the "
        f"reliability diagrams treat rows as independent and are too narrow"
    )
    if compared.calibration_tests[compared.recommended].verdict == "too few groups":
        return Check("Too few groups to tell", found, "attention", advice="Collect rows from more groups")
    return Check("Groups", found, "attention", advice="Read the tests and intervals rather than the bands")


def _class_gap_check(compared: "Comparison", names: list[str], gaps: PredictedGaps | None) -> Check:
    """Look for classes whose confidence is off where they are predicted, after the recommended method."""
    method = compared.recommended
    gaps = gaps or predicted_gaps(compared.rows(method))
    rejecting = compared.calibration_tests[method].rejecting
    if gaps.off:
        worst, *others = gaps.off
        words = (
            f"where {names[worst]} is predicted ({gaps.rows[worst]:,.0f} rows), mean confidence is "
            f"{percent(gaps.confidence[worst])} and accuracy {percent(gaps.accuracy[worst])}"
        )
        if others:
            words += f" ({len(others)} more: {listed([names[c] for c in others], _NAMED)})"
        advice = "Treat single probabilities of such classes with care; where calibration rows are few, collect more"
        return Check(f"Single classes, {method}", words, "attention", float(gaps.p_value[worst]), advice)
    if "classwise_ks" in rejecting or "rank_2_ks" in rejecting:
        words = (
            "over all classes together, probabilities differ from frequencies by more than chance, but no single class "
            "stands out where it is predicted"
        )
        advice = "Rely on the probability of the top class; look at the matrix of classes before you use the others"
        return Check(f"Classes together, {method}", words, "attention", advice=advice)
    return Check(f"Single classes, {method}", "no class has a significant gap where it is predicted", "fine")


def calibration_counts(compared: "Comparison", calibration: Predictions | Confidences | None) -> Ints | None:
    """Return how many calibration rows each class has: from the rows or, without them, from a fit's diagnostics."""
    if isinstance(calibration, Predictions):
        return calibration.label_counts()
    for fitted in compared.calibrators.values():
        return np.array(fitted.diagnostics_.labels_per_class)
    return None


def shifts(
    calibration: Predictions | Confidences, test: Predictions | Confidences, compared: "Comparison | None" = None
) -> list[Check]:
    """Compare two sets of rows in mean confidence, accuracy and class frequencies, with Holm's correction.

    Rows of a group count as one unit. Pearson's test of the frequencies needs independent rows, so groups exclude it.
    With the comparison, the advice says what adapting its recommended calibrator would achieve.
    """
    old = check_any(calibration)
    new = check_any(test)
    asked = {
        "mean confidence": _mean_shift(*(mean_and_variance(rows.top, rows.top.scores) for rows in (old, new))),
        "accuracy": _mean_shift(*(mean_and_variance(rows.top, rows.top.hits) for rows in (old, new))),
    }
    checks: list[Check] = []
    if isinstance(old, Rows) and isinstance(new, Rows) and old.groups is None and new.groups is None:
        counts = np.array([class_counts(old), class_counts(new)])
        p_value = same_class_frequencies(*counts)
        if math.isnan(p_value):
            few = "not tested, because there are too few rows to compare class frequencies"
            checks.append(Check(CLASS_SHIFT, few, "not tested"))
        else:
            asked["class frequencies"] = (_most_changed(counts, test), p_value)
    adjusted = metrics.adjust([p for _, p in asked.values()]).tolist()
    for (subject, (found, _)), p in zip(asked.items(), adjusted, strict=True):
        words = f"significant difference: {found}, {p_text(p)}"
        check = Check(f"{SHIFT}: {subject}", words, "attention", p, _REFIT)
        if p > 1 - LEVEL:
            check = Check(check.subject, f"no {words}", "fine", p)
        elif subject == "class frequencies":
            check = check._replace(advice=_after_class_shift(compared, test))
        checks.append(check)
    return checks


def _after_class_shift(compared: "Comparison | None", test: Predictions | Confidences) -> str:
    """Say what adapting the recommended calibrator to the test rows, without their labels, would achieve."""
    if compared is None or compared.recommended not in compared.calibrators or not isinstance(test, Predictions):
        return _ADAPT
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GlayersWarning)  # what it would warn of, the p-value below shows
            adapted = compared.calibrators[compared.recommended].adapt(test)
    except GlayersError:
        return _ADAPT
    after = check_any(adapted.apply(test))
    losses = [metrics.nll(rows) for rows in (compared.rows(compared.recommended), after)]
    if not losses[1] < losses[0]:
        without, adapted_to = map(metrics.METRICS["nll"].format, losses)
        return f"{_REFIT}: adapting the calibrator does not help here (NLL {without} without, {adapted_to} with it)"
    words = (
        f"Adapt the calibrator (glayers adapt). This needs no labels and gives mean confidence "
        f"{percent(metrics.mean_confidence(after))} and accuracy {percent(metrics.accuracy(after))} here"
    )
    if metrics.ks_test(after).rejected:
        return f"{words}. The shift explains only part of the error, so fit again on such rows if you can"
    return f"{words}: the shift explains the rest of the error"


def _mean_shift(first: tuple[float, float], second: tuple[float, float]) -> tuple[str, float]:
    """Return two means in words, and the p-value that they are equal, given each with its variance."""
    p_value = normal_p_value(first[0] - second[0], math.sqrt(first[1] + second[1]))
    return f"{percent(first[0])} on calibration rows, {percent(second[0])} on test rows", p_value


def class_counts(rows: Rows) -> Floats:
    """Return how many rows each class has; weighted rows count as the number they stand for."""
    return sums_by(rows.labels, rows.weights, rows.n_classes) * rows.total


def mean_and_variance(event: Scored, values: Floats) -> tuple[float, float]:
    """Return a weighted mean and its variance; rows of a group count as one unit."""
    mean = float(event.weights @ values)
    parts = event.weights * (values - mean)
    if event.groups is not None:
        groups, group = np.unique(event.groups, return_inverse=True)
        parts = sums_by(group, parts, len(groups))
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
        few = [names[c] for c in np.flatnonzero((counts > 0) & (counts < FEW))]
        if few:
            them = "it" if len(few) == 1 else "them"
            found = (
                f"fewer than {FEW} {part} rows have the label {listed(few, _NAMED)}: estimates for {them} are imprecise"
            )
            advice = "Collect more rows of these classes"
            checks.append(Check(f"Rare classes, {part} rows", found, "attention", advice=advice))
        elif counts.min() > 0:
            smallest = f"the smallest is {names[counts.argmin()]} with {counts.min():,}"
            checks.append(Check(f"Classes, {part} rows", f"every class has at least {FEW} rows; {smallest}", "fine"))
    return checks


def _most_changed(counts: Array, test: Predictions | Confidences) -> str:
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    most = int(np.abs(frequencies[0] - frequencies[1]).argmax())
    name = class_names(test)[most] if isinstance(test, Predictions) else str(most)
    first, second = (percent(frequency) for frequency in frequencies[:, most])
    return f"the largest change is in {name}, {first} of calibration rows and {second} of test rows"
