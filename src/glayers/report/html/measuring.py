"""A comparison -> what every method shows on the test rows, and findings about the data the page depends on.

Methods are measured one by one, so that 25,000 rows of 1,000 classes are in memory at most twice.

Checks of the data without findings are listed too, so that readers know what was checked. A calibrator is valid for
rows like those it was fitted on, so both sets are compared in class frequencies, mean confidence and accuracy.
"""

import math
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from glayers import metrics
from glayers.arrays import Array, Floats, Ints
from glayers.metrics import METRICS
from glayers.metrics.differences import normal_p_value
from glayers.metrics.events import Rows, Scored, check_any, check_event
from glayers.predictions import Confidences, Predictions
from glayers.predictions.contents import listed
from glayers.report import curves, p_text, shortened

if TYPE_CHECKING:
    from glayers.comparison import Comparison

SHOWN_METRICS = ("accuracy", "confidence", "ks", "nll", "brier", "ece", "smooth_ece")
DIFFERENCE_METRICS = ("nll", "brier", "ks", "accuracy")
LEVEL = 0.95
MENU = {"rank": "By rank", "within top": "Within the top", "class": "By class"}  # by kind of event
FEW = 20  # rows of a class: its frequency then has a relative standard error of a fifth or more
_RANKS, _WITHIN = 5, (2, 3, 5)
_CLASSES, _FEWEST_CLASSES = 50, 5
_CURVES = 320  # of all methods together: at 6 kB each, 2 MB
_BAND_DRAWS = 200  # enough to know the edge of a band to a tenth of its width
_NAMED = 5  # classes in a sentence
_SHIFT = "Shift between calibration and test rows"
_LEAST_EXPECTED = 5.0  # rows per cell: the chi-squared approximation needs as many
# Unicode marks for right-to-left writing: they would also turn the text around a class name.
_TURNING = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, eq=False)
class Measured:
    """One method on the test rows; `test` is the KS test of the top class, `events` and `maps` are by name of event.

    Confidences have no classes, so no gaps and no matrix.
    """

    name: str
    card: metrics.Scorecard
    intervals: metrics.Intervals
    test: metrics.CalibrationTest
    gaps: curves.ClassGaps | None
    matrix: curves.ClassMatrix | None
    events: dict[str, dict[str, Any]]
    maps: dict[str, curves.CalibrationMap]


class Check(NamedTuple):
    """What was checked, what was found, whether it needs attention, and the p-value of a test."""

    subject: str
    found: str
    status: Literal["attention", "fine", "not tested"]
    p_value: float | None = None


@dataclass(frozen=True, eq=False)
class Measurements:
    """Everything the page shows.

    Attributes
    ----------
    methods
        What was measured of each method, the uncalibrated first.
    differences
        Between every two methods; None if no method could be fitted.
    events
        Events with curves, and their labels in the menu.
    classes
        The classes among these events.
    names, calibration_counts
        Of all classes: the name, and the number of calibration rows if it is known.
    checks
        Findings about the data.
    """

    compared: "Comparison"
    methods: dict[str, Measured]
    differences: metrics.PairedDifferences | None
    events: dict[metrics.Event, str]
    classes: Ints
    names: list[str]
    calibration_counts: Ints | None
    checks: list[Check]

    @property
    def before(self) -> Measured:
        """The uncalibrated."""
        return next(iter(self.methods.values()))

    @property
    def shown_metrics(self) -> list[str]:
        """The metrics of the table of methods: those of an event, and of all classes where they are known."""
        return [name for name in SHOWN_METRICS if name in self.before.intervals]

    @property
    def difference_metrics(self) -> list[str]:
        """The metrics that methods are compared by; calibrating a confidence changes no answer, so no accuracy."""
        return [
            name for name in DIFFERENCE_METRICS if name in self.shown_metrics and (self.names or name != "accuracy")
        ]


def measure(
    compared: "Comparison", n_resamples: int, random_state: int, calibration: Predictions | Confidences | None = None
) -> Measurements:
    """Measure every method of a comparison, and check the data."""
    rows, n_methods = compared.test, len(compared.scorecards)
    names = class_names(rows) if isinstance(rows, Predictions) else []
    draws: dict[str, Any] = {"n_resamples": n_resamples, "random_state": random_state}
    ranks = [metrics.rank(r) for r in range(2, min(_RANKS, len(names)) + 1)]
    ranks += [metrics.within_top(r) for r in _WITHIN if r < len(names)]
    labels = {metrics.top: metrics.top.name if names else "the answer is correct"}
    labels |= {event: event.name for event in ranks}
    classes = _classes_to_show(curves.class_gaps(rows), _CURVES // n_methods - len(labels)) if names else np.arange(0)
    labels |= {metrics.label(c): shortened(names[c]) for c in classes.tolist()}
    methods: dict[str, Measured] = {}
    for name, card in compared.scorecards.items():
        predictions = compared.predictions(name)
        after = check_any(predictions)
        shown = [metric for metric in SHOWN_METRICS if metric in card]
        found = metrics.intervals(predictions, metrics=shown, level=LEVEL, progress=False, **draws)
        events = {event.name: _curves(event, check_event(after, event=event), random_state) for event in labels}
        maps = _maps(_columns(rows), _columns(predictions), classes) if methods else {}
        gaps, matrix = (curves.class_gaps(after), curves.class_matrix(after)) if names else (None, None)
        test = events[metrics.top.name]["ks"].test
        methods[name] = Measured(name, card, found, test, gaps, matrix, events, maps)
    counts, checks = calibration_counts(compared, calibration), data_checks(compared, calibration)
    found_all = Measurements(compared, methods, None, labels, classes, names, counts, checks)
    if n_methods == 1:
        return found_all
    return replace(found_all, differences=compared.differences(found_all.difference_metrics, **draws))


def _columns(rows: Predictions | Confidences) -> Array:
    """Return the probabilities of all classes; of a confidence, itself as the only column."""
    return rows.probabilities() if isinstance(rows, Predictions) else rows.confidence[:, None]


def class_names(test: Predictions) -> list[str]:
    """Return the name of each class, with marks for right-to-left writing escaped, or its number."""
    if test.class_names is None:
        return [f"class {c}" for c in range(test.n_classes)]
    return [_TURNING.sub(lambda found: found[0].encode("unicode_escape").decode(), name) for name in test.class_names]


def _classes_to_show(gaps: curves.ClassGaps, room: int) -> Ints:
    """Return the classes to draw: all if few, else half the most frequent and half the most miscalibrated.

    A class's KS is compared with its sampling error: with frequency f and n rows, about the root of f / n.
    """
    room = min(_CLASSES, max(_FEWEST_CLASSES, room))
    if len(gaps.counts) <= room:
        return np.arange(len(gaps.counts))
    by_rows = np.argsort(-gaps.counts, kind="stable")
    by_error = np.argsort(-gaps.ks / np.sqrt(np.maximum(gaps.confidence, 1e-12)), kind="stable")
    frequent = by_rows[: room // 2]
    others = by_error[~np.isin(by_error, frequent)][: room - len(frequent)]
    return np.sort(np.concatenate([frequent, others]))


def _curves(event: metrics.Event, scored: Scored, random_state: int) -> dict[str, Any]:
    """Return the KS curves and, for the top class, all reliability diagrams; only quick ones for many other events."""
    is_top = event == metrics.top
    draws: dict[str, Any] = {"level": LEVEL, "random_state": random_state}
    bins = partial(curves.reliability, scored, n_resamples=_BAND_DRAWS, **draws)
    diagrams: dict[str, Any] = {"equal_width": bins()}
    if event.kind != "class":
        diagrams["equal_mass"] = bins(binning="equal_mass")
    if is_top:
        diagrams["smooth"] = curves.smooth_reliability(scored, level=LEVEL)
        diagrams["corp"] = curves.corp_reliability(scored, **draws)
    return {
        "predicted": float(scored.weights @ scored.scores),
        "observed": float(scored.weights @ scored.hits),
        "ks": curves.ks_curves(scored, points=201 if is_top else 101, **draws),
        "reliability": diagrams,
    }


def _maps(before: Array, after: Array, classes: Ints) -> dict[str, curves.CalibrationMap]:
    maps = {metrics.label(c).name: curves.calibration_map(before, after, c) for c in classes.tolist()}
    return {metrics.top.name: curves.calibration_map(before, after)} | maps


def data_checks(compared: "Comparison", calibration: Predictions | Confidences | None) -> list[Check]:
    """Look for missing and rare classes, rows in both sets, shift between the sets, groups and weights."""
    test, checks = compared.test, []
    names = class_names(test) if isinstance(test, Predictions) else []
    if isinstance(test, Predictions):
        counts = calibration_counts(compared, calibration)
        checks = [] if counts is None else _class_checks("calibration", counts, names)
        checks += _class_checks("test", test.label_counts(), names)
    if calibration is None:
        found = "not tested, because the report was written without the calibration rows"
        checks.append(Check(_SHIFT, found, "not tested"))
    else:
        if isinstance(test, Predictions) and isinstance(calibration, Predictions):
            same = rows_in_both(calibration, test)
            found = f"{same:,} of {len(test):,} test rows are also calibration rows: scores on them are too optimistic"
            found = found if same else "no test row is a calibration row"
            checks.append(Check("Rows in both sets", found, "attention" if same else "fine"))
        checks += shifts(calibration, test, names)
    if test.groups is not None:
        found = (
            f"test rows come in {len(np.unique(test.groups)):,} groups; intervals and KS tests account for groups, but "
            f"the bands of the reliability diagrams treat rows as independent and are too narrow"
        )
        checks.append(Check("Groups", found, "attention"))
    if test.weights is not None:
        checks.append(Check("Weights", "rows are weighted, and so are all numbers of this report", "fine"))
    return sorted(checks, key=lambda check: check.status == "fine")


def calibration_counts(compared: "Comparison", calibration: Predictions | Confidences | None) -> Ints | None:
    """Return how many calibration rows each class has: from the rows or, without them, from a fit's diagnostics."""
    if isinstance(calibration, Predictions):
        return calibration.label_counts()
    fitted = list(compared.calibrators.values())
    return np.array(fitted[0].diagnostics_.labels_per_class) if fitted else None


def shifts(calibration: Predictions | Confidences, test: Predictions | Confidences, names: list[str]) -> list[Check]:
    """Compare two sets of rows in mean confidence, accuracy and class frequencies, with Holm's correction.

    Rows of a group count as one unit. Pearson's test of the frequencies needs independent rows, so groups exclude it.
    """
    parts = [check_any(rows) for rows in (calibration, test)]
    scored = [check_event(rows) for rows in parts]
    asked = []
    for subject, values in (("mean confidence", "scores"), ("accuracy", "hits")):
        means, variances = zip(*(mean_and_variance(each, getattr(each, values)) for each in scored), strict=True)
        first, second = map(METRICS["accuracy"].format, means)
        p_value = normal_p_value(means[0] - means[1], math.sqrt(sum(variances)))
        asked.append((subject, f"{first} on calibration rows, {second} on test rows", p_value))
    by_class = [rows for rows in parts if isinstance(rows, Rows)]
    if by_class and calibration.groups is None and test.groups is None:
        counts = np.array([class_counts(rows) for rows in by_class])
        asked.append(("class frequencies", _most_changed(counts, names), two_frequencies(counts)))
    adjusted = metrics.adjust([p for _, _, p in asked], "holm").tolist()
    checks = []
    for (subject, found, _), p in zip(asked, adjusted, strict=True):
        shifted = p <= 1 - LEVEL
        words = f"{'' if shifted else 'no '}significant difference: {found}, {p_text(p)}"
        checks.append(Check(f"{_SHIFT}: {subject}", words, "attention" if shifted else "fine", p))
    return checks


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
    missing, few = ([names[c] for c in np.flatnonzero(which)] for which in (counts == 0, (counts > 0) & (counts < FEW)))
    checks = []
    if missing:
        found = f"no {part} row has the label {listed(missing, _NAMED)}"
        checks.append(Check(f"Missing classes, {part} rows", found, "attention"))
    if few:
        them = "it" if len(few) == 1 else "them"
        found = f"fewer than {FEW} {part} rows have the label {listed(few, _NAMED)}: estimates for {them} are imprecise"
        checks.append(Check(f"Rare classes, {part} rows", found, "attention"))
    if not checks:
        found = f"every class has at least {FEW} rows; the smallest is {names[counts.argmin()]} with {counts.min():,}"
        checks.append(Check(f"Classes, {part} rows", found, "fine"))
    return checks


def _most_changed(counts: Array, names: list[str]) -> str:
    frequencies = counts / counts.sum(axis=1, keepdims=True)
    most = int(np.abs(frequencies[0] - frequencies[1]).argmax())
    first, second = (METRICS["confidence"].format(frequency) for frequency in frequencies[:, most])
    return f"the largest change is in {names[most]}, {first} of calibration rows and {second} of test rows"
