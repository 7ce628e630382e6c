"""A comparison -> what every method shows on the test rows, and the panels of every figure.

Methods are measured one by one, so that 25,000 rows of 1,000 classes are in memory at most a few times.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from glayers import metrics
from glayers.arrays import Floats, Ints
from glayers.metrics import Event, label, rank, top, within_top
from glayers.metrics.events import Rows
from glayers.predictions import Confidences, Predictions
from glayers.progress import progress_bar
from glayers.report.curves import LEVEL
from glayers.report.figures import FIGURES, MethodCurves
from glayers.report.findings import Check, calibration_counts, class_names, data_checks, mean_and_variance
from glayers.report.words import shortened

if TYPE_CHECKING:
    from glayers.comparison import Comparison

SHOWN_METRICS = ("accuracy", "confidence", "ks", "nll", "brier", "ece", "smooth_ece")
DIFFERENCE_METRICS = ("nll", "brier", "ks", "accuracy")
# Of a confidence alone, the proper scores are those of "the answer is correct".
_OF_CONFIDENCE = {"nll": "confidence_nll", "brier": "confidence_brier"}


def possible_metrics(names: tuple[str, ...], card: metrics.Scorecard) -> list[str]:
    """Return these metrics, or what takes their place where only a confidence is known."""
    if "nll" in card:
        return list(names)
    return [_OF_CONFIDENCE.get(name, name) for name in names]


@dataclass(frozen=True, eq=False)
class Measured:
    """One method on the test rows: curves of the top class, scores with intervals, mean confidence minus accuracy.

    `gap` has a standard error too. `class_ks` is the KS error of each class; confidences have none.
    """

    curves: MethodCurves
    card: metrics.Scorecard
    intervals: metrics.Intervals
    gap: tuple[float, float]
    class_ks: Floats

    @property
    def name(self) -> str:
        """The name of the method."""
        return self.curves.name

    @property
    def off(self) -> list[int]:
        """The classes that are off where they are predicted, the largest gap first."""
        return self.curves.predicted.off if self.class_ks.size else []


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
    names, calibration_counts
        Of all classes: the name, and the number of calibration rows if it is known.
    panels
        The panels of each figure: by method, and by event if the figure is about events.
    checks
        Findings about the data.
    """

    compared: "Comparison"
    methods: dict[str, Measured]
    differences: metrics.PairedDifferences | None
    events: dict[Event, str]
    names: list[str]
    calibration_counts: Ints | None
    panels: dict[str, Any]
    checks: list[Check]

    @property
    def before(self) -> Measured:
        """The uncalibrated."""
        return next(iter(self.methods.values()))

    @property
    def shown_metrics(self) -> list[str]:
        """The metrics of the table of methods: those of an event, and of all classes where they are known."""
        return possible_metrics(SHOWN_METRICS, self.before.card)

    @property
    def difference_metrics(self) -> list[str]:
        """The metrics that methods are compared by; calibrating a confidence changes no answer, so no accuracy."""
        if not self.names:
            return ["confidence_nll", "confidence_brier", "ks"]
        return list(DIFFERENCE_METRICS)


def measure(
    compared: "Comparison",
    n_resamples: int,
    random_state: int,
    calibration: Predictions | Confidences | None = None,
    progress: bool | None = False,
) -> Measurements:
    """Measure every method of a comparison, and check the data."""
    test = compared.test
    names = class_names(test) if isinstance(test, Predictions) else []
    first = next(iter(compared.scorecards))
    events = _events(compared.rows(first), names, len(compared.scorecards))
    draws: dict[str, Any] = {"n_resamples": n_resamples, "random_state": random_state}
    methods: dict[str, Measured] = {}
    panels: dict[str, Any] = {}
    before: dict[Event, MethodCurves] = {}
    with progress_bar(progress, "measuring methods", len(compared.scorecards)) as advance:
        for name, card in compared.scorecards.items():
            advance(0, f"measuring {name}")
            curves = MethodCurves(name, partial(compared.rows, name), class_names=names, random_state=random_state)
            mine = {event: replace(curves, event=event, about=about, points=51) for event, about in events.items()}
            mine[top] = replace(mine[top], points=201)
            methods[name] = _measured(mine[top], card, draws)
            before = before or mine
            if name != first or len(compared.scorecards) == 1:
                _add_panels(panels, name, before, mine)
            advance()
    counts = calibration_counts(compared, calibration)
    gaps = methods[compared.recommended].curves.predicted if names else None
    checks = data_checks(compared, calibration, gaps)
    found = Measurements(compared, methods, None, events, names, counts, panels, checks)
    if len(methods) == 1:
        return found
    between = compared.differences(found.difference_metrics, **draws)
    compared_curves = [replace(method.curves, differences=between) for method in methods.values()]
    panels["differences"] = FIGURES["differences"].specs(compared_curves)
    return replace(found, differences=between)


def _measured(curves: MethodCurves, card: metrics.Scorecard, draws: dict[str, Any]) -> Measured:
    rows = curves.read()
    shown = possible_metrics(SHOWN_METRICS, card)
    intervals = metrics.intervals(rows, metrics=shown, level=LEVEL, progress=False, **draws)
    gap, variance = mean_and_variance(rows.top, rows.top.scores - rows.top.hits)
    class_ks = metrics.ks_per_class(rows) if isinstance(rows, Rows) else np.zeros(0)
    return Measured(curves, card, intervals, (gap, math.sqrt(variance)), class_ks)


def _add_panels(
    panels: dict[str, Any], name: str, before: dict[Event, MethodCurves], mine: dict[Event, MethodCurves]
) -> None:
    """Add the panels of a method, beside the uncalibrated, to every figure that can be drawn."""
    beside = {event: list(dict.fromkeys([before[event], mine[event]])) for event in mine}
    for kind, figure in FIGURES.items():
        possible = len(beside[top]) >= figure.least and not (figure.needs_classes and not mine[top].class_names)
        if not figure.on_page or kind == "differences" or not possible:
            continue
        panels.setdefault(kind, {})
        if figure.by_event:
            panels[kind][name] = {event.name: figure.specs(shown) for event, shown in beside.items()}
        else:
            panels[kind][name] = figure.specs(beside[top])


def _events(rows: Any, names: list[str], n_methods: int) -> dict[Event, str]:
    """Return the events with curves, and their names in the menu: ranks, within the top, and classes."""
    if not names:
        return {top: "the answer is correct"}
    events = [rank(r) for r in range(1, min(5, len(names)) + 1)]
    events += [within_top(r) for r in (2, 3, 5) if r < len(names)]
    named = {event: event.name for event in events}
    # At 6 kB a curve, 320 of them make 2 MB.
    most = min(50, max(5, 320 // n_methods - len(events)))
    return named | {label(c): shortened(names[c]) for c in _classes_to_show(rows, most).tolist()}


def _classes_to_show(rows: Rows, most: int) -> Ints:
    """Return the classes to draw: all if few, else half the most frequent and half the most miscalibrated.

    A class's KS is compared with its sampling error: with frequency f and n rows, about the root of f / n.
    """
    frequency = np.bincount(rows.labels, rows.weights, rows.n_classes)
    if rows.n_classes <= most:
        return np.arange(rows.n_classes)
    by_rows = np.argsort(-frequency, kind="stable")
    by_error = np.argsort(-metrics.ks_per_class(rows) / np.sqrt(frequency + 1 / rows.total), kind="stable")
    frequent = by_rows[: most // 2]
    others = by_error[~np.isin(by_error, frequent)][: most - len(frequent)]
    return np.sort(np.concatenate([frequent, others]))
