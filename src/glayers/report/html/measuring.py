"""A comparison -> what every method shows on the test rows.

Methods are measured one by one, so that 25,000 rows of 1,000 classes are in memory at most twice.
"""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glayers import metrics
from glayers.arrays import Array, Ints
from glayers.metrics.events import Rows, Scored, check_any, check_event
from glayers.predictions import Confidences, Predictions
from glayers.progress import progress_bar
from glayers.report import curves
from glayers.report.figures import EVENT_FIGURES, EventCurves, calibration_map_spec
from glayers.report.findings import LEVEL, Check, calibration_counts, class_names, data_checks, mean_and_variance
from glayers.report.spec import Spec
from glayers.report.words import shortened

if TYPE_CHECKING:
    from glayers.comparison import Comparison

SHOWN_METRICS = ("accuracy", "confidence", "ks", "nll", "brier", "ece", "smooth_ece")
DIFFERENCE_METRICS = ("nll", "brier", "ks", "accuracy")
MENU = {"rank": "By rank", "within top": "Within the top", "class": "By class"}  # by kind of event
_RANKS, _WITHIN = 5, (2, 3, 5)
_CLASSES, _FEWEST_CLASSES = 50, 5
_CURVES = 320  # of all methods together: at 6 kB each, 2 MB
_TOP_POINTS, _POINTS = 201, 51  # of the KS curves of the top class, and of those of many other events
_BAND_DRAWS = 200  # enough to know the edge of a band to a tenth of its width


@dataclass(frozen=True, eq=False)
class Measured:
    """One method on the test rows.

    `test` is the KS test and `bins` the reliability of the top class. `specs` has the figures of events by figure,
    event and way to draw; `maps` has the calibration maps by event. `gap` is mean confidence minus accuracy, and its
    standard error. `predicted` has both means by predicted class. `example` has those of the rows of `example_rows`.
    Confidences have no classes, so no gaps, no matrix and no `predicted`.
    """

    name: str
    card: metrics.Scorecard
    intervals: metrics.Intervals
    test: metrics.CalibrationTest
    gap: tuple[float, float]
    example: tuple[float, float]
    bins: curves.Reliability
    specs: dict[str, dict[str, dict[str, Spec]]]
    maps: dict[str, Spec] = field(default_factory=dict)
    gaps: curves.ClassGaps | None = None
    matrix: curves.ClassMatrix | None = None
    predicted: curves.PredictedGaps | None = None


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
    def compared_methods(self) -> dict[str, list[Measured]]:
        """The methods beside each other in figures: for each calibrated one the uncalibrated and itself."""
        first, *others = self.methods.values()
        if not others:
            return {first.name: [first]}
        return {method.name: [first, method] for method in others}

    @property
    def shown_metrics(self) -> list[str]:
        """The metrics of the table of methods: those of an event, and of all classes where they are known."""
        return [name for name in SHOWN_METRICS if name in self.before.intervals]

    @property
    def difference_metrics(self) -> list[str]:
        """The metrics that methods are compared by; calibrating a confidence changes no answer, so no accuracy."""
        shown = [name for name in DIFFERENCE_METRICS if name in self.shown_metrics]
        if not self.names:
            shown.remove("accuracy")
        return shown


def measure(
    compared: "Comparison",
    n_resamples: int,
    random_state: int,
    calibration: Predictions | Confidences | None = None,
    progress: bool | None = False,
) -> Measurements:
    """Measure every method of a comparison, and check the data."""
    test = compared.test
    n_methods = len(compared.scorecards)
    names: list[str] = []
    if isinstance(test, Predictions):
        names = class_names(test)
    draws: dict[str, Any] = {"n_resamples": n_resamples, "random_state": random_state}
    before = check_any(test)
    events = _events_to_show(names)
    classes = np.arange(0)
    if isinstance(before, Rows):
        classes = _classes_to_show(curves.class_gaps(before), _CURVES // n_methods - len(events))
    events |= {metrics.label(c): shortened(names[c]) for c in classes.tolist()}
    methods: dict[str, Measured] = {}
    with progress_bar(progress, "measuring methods", n_methods) as advance:
        for name, card in compared.scorecards.items():
            advance(0, f"measuring {name}")
            after = before
            if methods:
                after = check_any(compared.predictions(name))
            methods[name] = _measured(name, card, before, after, events, draws)
            advance()
    counts = calibration_counts(compared, calibration)
    checks = data_checks(compared, calibration, methods[compared.recommended].predicted)
    found = Measurements(compared, methods, None, events, classes, names, counts, checks)
    if n_methods == 1:
        return found
    return replace(found, differences=compared.differences(found.difference_metrics, **draws))


def _events_to_show(names: list[str]) -> dict[metrics.Event, str]:
    """Return the events that are no single classes, with their labels."""
    if not names:
        return {metrics.top: "the answer is correct"}
    ranks = [metrics.rank(r) for r in range(2, min(_RANKS, len(names)) + 1)]
    ranks += [metrics.within_top(r) for r in _WITHIN if r < len(names)]
    return {event: event.name for event in (metrics.top, *ranks)}


def _measured(
    name: str,
    card: metrics.Scorecard,
    before: Rows | Scored,
    after: Rows | Scored,
    events: dict[metrics.Event, str],
    draws: dict[str, Any],
) -> Measured:
    """Measure one method, given the rows before and after it."""
    shown = [metric for metric in SHOWN_METRICS if metric in card]
    curves_of = {event: _event_curves(after, event, draws["random_state"]) for event in events}
    top = check_event(after)
    example = example_rows(check_event(before))
    weights = top.weights[example] / top.weights[example].sum()
    gap, variance = mean_and_variance(top, top.scores - top.hits)
    measured = Measured(
        name,
        card,
        metrics.intervals(after, metrics=shown, level=LEVEL, progress=False, **draws),
        test=curves_of[metrics.top].ks.test,
        gap=(gap, math.sqrt(variance)),
        example=(float(weights @ top.scores[example]), float(weights @ top.hits[example])),
        bins=curves_of[metrics.top].equal_width,
        specs=_event_specs(name, events, curves_of),
    )
    if after is not before:
        measured = replace(measured, maps=_maps(name, _columns(before), _columns(after), events))
    if not isinstance(after, Rows):
        return measured
    classes: dict[str, Any] = {"gaps": curves.class_gaps(after), "matrix": curves.class_matrix(after)}
    return replace(measured, predicted=curves.predicted_gaps(after), **classes)


def _event_curves(rows: Rows | Scored, event: metrics.Event, random_state: int) -> EventCurves:
    points = _POINTS
    if event == metrics.top:
        points = _TOP_POINTS
    draws: dict[str, Any] = {"n_resamples": _BAND_DRAWS, "random_state": random_state}
    return EventCurves(check_event(rows, event=event), level=LEVEL, points=points, **draws)


def _event_specs(
    name: str, events: dict[metrics.Event, str], curves_of: dict[metrics.Event, EventCurves]
) -> dict[str, dict[str, dict[str, Spec]]]:
    """Return the figures of events: by figure, event and way to draw."""
    return {
        figure: {
            event.name: {
                view: replace(choice.spec(curves_of[event]), title=f"{name}, {label}")
                for view, choice in described.choices.items()
                if choice.offered(event)
            }
            for event, label in events.items()
        }
        for figure, described in EVENT_FIGURES.items()
    }


def example_rows(top: Scored) -> Ints:
    """Return the rows that show best how far the confidence is off: of ten equal parts by confidence, the worst.

    The worst has the largest sum of confidence minus correct, so that few rows with a large gap do not count more than
    many rows. Equal confidences stay together.
    """
    edges = np.unique(np.quantile(top.scores, np.linspace(0, 1, 11)[1:-1]))
    part = np.searchsorted(edges, top.scores, side="left")
    sums = np.bincount(part, weights=top.weights * (top.scores - top.hits))
    return np.flatnonzero(part == np.abs(sums).argmax())


def _columns(rows: Rows | Scored) -> Array:
    """Return the probabilities of all classes; of a confidence, itself as the only column."""
    if isinstance(rows, Rows):
        return rows.probabilities
    return rows.scores[:, None]


def _classes_to_show(gaps: curves.ClassGaps, most: int) -> Ints:
    """Return the classes to draw: all if few, else half the most frequent and half the most miscalibrated.

    A class's KS is compared with its sampling error: with frequency f and n rows, about the root of f / n.
    """
    most = min(_CLASSES, max(_FEWEST_CLASSES, most))
    if len(gaps.counts) <= most:
        return np.arange(len(gaps.counts))
    by_rows = np.argsort(-gaps.counts, kind="stable")
    by_error = np.argsort(-gaps.ks / np.sqrt(np.maximum(gaps.confidence, 1e-12)), kind="stable")
    frequent = by_rows[: most // 2]
    others = by_error[~np.isin(by_error, frequent)][: most - len(frequent)]
    return np.sort(np.concatenate([frequent, others]))


def _maps(name: str, before: Array, after: Array, events: dict[metrics.Event, str]) -> dict[str, Spec]:
    """Return how calibration changes the probability of the top class and of each class."""
    maps = {}
    for event, label in events.items():
        class_number: Any = None
        if event.kind == "class":
            class_number = event.which
        elif event != metrics.top:
            continue
        spec = calibration_map_spec(curves.calibration_map(before, after, class_number))
        maps[event.name] = replace(spec, title=f"{name}, {label}")
    return maps
