"""A comparison -> what every method shows on the test rows: intervals, a test, curves of every event, classes.

Methods are measured one by one, so that 25,000 rows of 1,000 classes are in memory at most twice.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from glayers import metrics
from glayers.arrays import Array, Ints
from glayers.calibrators import Calibrator
from glayers.metrics.events import Rows, Scored, check_rows
from glayers.predictions import Predictions
from glayers.report import curves, shortened

SHOWN_METRICS = ("accuracy", "confidence", "ks", "nll", "brier", "ece", "smooth_ece")
LEVEL = 0.95
_BY_CLASS = "By class"
_RANKS, _WITHIN = 5, (2, 3, 5)
_CLASSES, _FEWEST_CLASSES = 50, 5
_CURVES = 320  # of all methods together: at 6 kB each, 2 MB
_BAND_DRAWS = 200  # enough to know the edge of a band to a tenth of its width
# Unicode marks for right-to-left writing: they would also turn the text around a class name.
_TURNING = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Compared(Protocol):
    """Methods by name, the uncalibrated first in `scorecards`: `glayers.compare` returns one."""

    @property
    def test(self) -> Predictions:
        """The rows all methods were scored on."""

    @property
    def calibrators(self) -> Mapping[str, Calibrator]:
        """The fitted calibrators."""

    @property
    def scorecards(self) -> Mapping[str, metrics.Scorecard]:
        """The scorecards, including that of the uncalibrated."""

    @property
    def notes(self) -> Mapping[str, Sequence[str]]:
        """The warnings of each fit."""

    @property
    def failed(self) -> Mapping[str, str]:
        """Why a method could not be fitted."""

    def logits(self, method: str) -> Array:
        """The calibrated logits of the test rows."""

    def differences(
        self, metrics: Sequence[str], *, n_resamples: int = 1000, random_state: int = 0
    ) -> metrics.PairedDifferences:
        """The differences between every two methods on the same rows."""


class Choice(NamedTuple):
    """An event that readers can choose, and its place in the menu; `event.name` is its key in the page's data."""

    event: metrics.Event
    group: str
    label: str


@dataclass(frozen=True, eq=False)
class Measured:
    """One method on the test rows; `events` holds its curves and `maps` its maps, by the name of the event."""

    name: str
    card: metrics.Scorecard
    intervals: metrics.Intervals
    gaps: curves.ClassGaps
    matrix: curves.ClassMatrix
    events: dict[str, dict[str, Any]]
    maps: dict[str, curves.CalibrationMap]

    @property
    def test(self) -> metrics.CalibrationTest:
        """The KS test of the top class."""
        found: metrics.CalibrationTest = self.events[metrics.top.name]["ks"].test
        return found


@dataclass(frozen=True, eq=False)
class Measurements:
    """All methods, the uncalibrated first; the events with curves; and the classes among these."""

    methods: dict[str, Measured]
    choices: list[Choice]
    classes: Ints

    @property
    def before(self) -> Measured:
        """The uncalibrated."""
        return next(iter(self.methods.values()))


def measure(compared: Compared, n_resamples: int, random_state: int) -> Measurements:
    """Measure every method of a comparison."""
    test, n_methods = compared.test, len(compared.scorecards)
    before = test.probabilities()
    choices = _rank_choices(test.n_classes)
    classes = _classes_to_show(curves.class_gaps(test), _CURVES // n_methods - len(choices))
    names = class_names(compared)
    choices += [Choice(metrics.label(c), _BY_CLASS, shortened(names[c])) for c in classes.tolist()]
    methods: dict[str, Measured] = {}
    for name, card in compared.scorecards.items():
        after = test.with_logits(compared.logits(name))
        rows = check_rows(after)
        found = metrics.intervals(
            after,
            metrics=SHOWN_METRICS,
            n_resamples=n_resamples,
            level=LEVEL,
            random_state=random_state,
            progress=False,
        )
        events = {choice.event.name: _curves(choice, rows, random_state) for choice in choices}
        maps = _maps(before, rows.probabilities, classes) if methods else {}
        methods[name] = Measured(name, card, found, curves.class_gaps(rows), curves.class_matrix(rows), events, maps)
    return Measurements(methods, choices, classes)


def class_names(compared: Compared) -> list[str]:
    """Return the name of each class, with marks for right-to-left writing escaped, or its number."""
    names = compared.test.class_names
    if names is None:
        return [f"class {c}" for c in range(compared.test.n_classes)]
    return [_TURNING.sub(lambda found: found[0].encode("unicode_escape").decode(), name) for name in names]


def _rank_choices(n_classes: int) -> list[Choice]:
    ranks = [metrics.rank(r) for r in range(1, min(_RANKS, n_classes) + 1)]
    within = [metrics.within_top(r) for r in _WITHIN if r < n_classes]
    groups = (("By rank", ranks), ("Within the top", within))
    return [Choice(event, group, event.name) for group, events in groups for event in events]


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


def _curves(choice: Choice, rows: Rows, random_state: int) -> dict[str, Any]:
    event = choice.event.of(rows)
    points = 201 if choice.event == metrics.top else 101
    return {
        "predicted": float(event.weights @ event.scores),
        "observed": float(event.weights @ event.hits),
        "ks": curves.ks_curves(event, points=points, level=LEVEL, random_state=random_state),
        "reliability": _diagrams(choice, event, random_state),
    }


def _diagrams(choice: Choice, event: Scored, random_state: int) -> dict[str, Any]:
    """Return every kind of reliability diagram for the top class, and the quick ones for the many other events."""

    def bins(binning: Any) -> Any:
        return curves.reliability(
            event, binning=binning, level=LEVEL, n_resamples=_BAND_DRAWS, random_state=random_state
        )

    found = {"equal_width": bins("equal_width")}
    if choice.group != _BY_CLASS:
        found["equal_mass"] = bins("equal_mass")
    if choice.event == metrics.top:
        found["smooth"] = curves.smooth_reliability(event, points=101, level=LEVEL)
        found["corp"] = curves.corp_reliability(event, level=LEVEL, random_state=random_state)
    return found


def _maps(before: Array, after: Array, classes: Ints) -> dict[str, curves.CalibrationMap]:
    maps = {metrics.label(c).name: curves.calibration_map(before, after, c) for c in classes.tolist()}
    return {metrics.top.name: curves.calibration_map(before, after)} | maps
