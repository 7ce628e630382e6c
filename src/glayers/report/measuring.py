"""A comparison -> what every method shows on the test rows, and the panels of every figure.

Methods are measured one by one, so that 25,000 rows of 1,000 classes are in memory at most a few times.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from glayers import metrics
from glayers.metrics import Event, label, rank, top, within_top
from glayers.metrics.events import check_seed
from glayers.predictions import Confidences, Predictions
from glayers.progress import progress_bar
from glayers.report.curves import LEVEL
from glayers.report.figures import FIGURES, MethodCurves
from glayers.report.findings import Check, class_names, data_checks
from glayers.report.words import shortened

if TYPE_CHECKING:
    from glayers.comparison import Comparison

SHOWN_METRICS = ("accuracy", "confidence", "ks", "nll", "brier", "ece", "smooth_ece")
# Of a confidence alone, the proper scores are those of "the answer is correct".
_OF_CONFIDENCE = ("accuracy", "confidence", "ks", "confidence_nll", "confidence_brier", "ece", "smooth_ece")
_MOST_CURVES = 320  # of events, over all methods: at 6 kB each they make 2 MB
_MOST_CLASSES = 50  # with curves of their own


@dataclass(frozen=True, eq=False)
class Measurements:
    """Everything the page shows.

    Attributes
    ----------
    curves
        The curves of the top class by method, the uncalibrated first.
    intervals
        The scores of each method with intervals.
    differences
        Between every two methods; None if no method could be fitted.
    events
        Events with curves, and their labels in the menu.
    names
        The names of all classes; of confidences there are none.
    panels
        The panels of each figure: by method, and by event if the figure is about events.
    checks
        Findings about the data.
    """

    compared: "Comparison"
    curves: dict[str, MethodCurves]
    intervals: dict[str, metrics.Intervals]
    differences: metrics.PairedDifferences | None
    events: dict[Event, str]
    names: list[str]
    panels: dict[str, Any]
    checks: list[Check]

    @property
    def before(self) -> str:
        """The name of the uncalibrated."""
        return next(iter(self.curves))

    def off(self, method: str) -> list[int]:
        """The classes that are off where they are predicted, the largest gap first."""
        return self.curves[method].predicted.off if self.names else []


def shown_metrics(names: list[str]) -> tuple[str, ...]:
    """Return the metrics of the table of methods, given the names of the classes, if any."""
    return SHOWN_METRICS if names else _OF_CONFIDENCE


def measure(
    compared: "Comparison",
    n_resamples: int,
    random_state: int,
    calibration: Predictions | Confidences | None = None,
    progress: bool | None = False,
) -> Measurements:
    """Measure every method of a comparison, and check the data."""
    names = class_names(compared.test) if isinstance(compared.test, Predictions) else []
    methods = list(compared.scorecards)
    events = _events(compared.rows(methods[0]), names, len(methods))
    seed = check_seed(random_state)
    draws: dict[str, Any] = {"n_resamples": n_resamples, "random_state": seed}
    curves: dict[str, MethodCurves] = {}
    intervals: dict[str, metrics.Intervals] = {}
    panels: dict[str, Any] = {}
    before: dict[Event, MethodCurves] = {}
    with progress_bar(progress, "measuring methods", len(methods)) as advance:
        for name in methods:
            advance(0, f"measuring {name}")
            curves[name] = MethodCurves(
                name, partial(compared.rows, name), about=events[top], class_names=names, random_state=seed
            )
            mine = {event: replace(curves[name], event=event, about=events[event], points=51) for event in events}
            mine[top] = curves[name]
            before = before or mine
            if name != methods[0] or len(methods) == 1:
                _add_panels(panels, name, before, mine)
            settings: dict[str, Any] = {"metrics": shown_metrics(names), "level": LEVEL, "progress": False}
            intervals[name] = metrics.intervals(compared.rows(name), **settings, **draws)
            advance()
    between = None
    if len(methods) > 1:
        # Calibrating a confidence changes no answer, so no accuracy.
        scores = ("nll", "brier", "ks", "accuracy") if names else ("confidence_nll", "confidence_brier", "ks")
        between = compared.differences(scores, **draws)
        panels["differences"] = _forests([replace(each, differences=between) for each in curves.values()])
    checks = data_checks(compared, calibration, curves[compared.recommended].predicted if names else None)
    return Measurements(compared, curves, intervals, between, events, names, panels, checks)


def _forests(curves: list[MethodCurves]) -> Any:
    """Return the panels of the differences from the uncalibrated and, where others were fitted, from temperature."""
    specs = FIGURES["differences"].specs(curves)
    simplest = [each for each in curves if each.name == "temperature"]
    if simplest and len(curves) > 2:
        others = [each for each in curves[1:] if each.name != "temperature"]
        specs += FIGURES["differences"].specs([*simplest, *others])
    return specs


def _add_panels(
    panels: dict[str, Any], name: str, before: dict[Event, MethodCurves], mine: dict[Event, MethodCurves]
) -> None:
    """Add the panels of a method, beside the uncalibrated, to every figure that can be drawn."""
    beside = {event: list(dict.fromkeys([before[event], mine[event]])) for event in mine}
    for kind, figure in FIGURES.items():
        possible = len(beside[top]) >= figure.least and (bool(mine[top].class_names) or not figure.needs_classes)
        if kind == "differences" or not possible:
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
    most = min(_MOST_CLASSES, max(5, _MOST_CURVES // n_methods - len(events)))
    frequency = np.bincount(rows.labels, rows.weights, rows.n_classes)
    frequent = np.sort(np.argsort(-frequency, kind="stable")[:most])
    return named | {label(c): shortened(names[c]) for c in frequent.tolist()}
