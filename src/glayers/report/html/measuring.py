"""A comparison -> what every method shows on the test rows.

Methods are measured one by one, so that 25,000 rows of 1,000 classes are in memory at most twice.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from glayers import metrics
from glayers.arrays import Array, Ints
from glayers.metrics.events import Rows, Scored, check_any, check_event
from glayers.predictions import Confidences, Predictions
from glayers.progress import progress_bar
from glayers.report import curves, shortened
from glayers.report.findings import LEVEL, Check, calibration_counts, class_names, data_checks, mean_and_variance

if TYPE_CHECKING:
    from glayers.comparison import Comparison

SHOWN_METRICS = ("accuracy", "confidence", "ks", "nll", "brier", "ece", "smooth_ece")
DIFFERENCE_METRICS = ("nll", "brier", "ks", "accuracy")
MENU = {"rank": "By rank", "within top": "Within the top", "class": "By class"}  # by kind of event
_RANKS, _WITHIN = 5, (2, 3, 5)
_CLASSES, _FEWEST_CLASSES = 50, 5
_CURVES = 320  # of all methods together: at 6 kB each, 2 MB
_BAND_DRAWS = 200  # enough to know the edge of a band to a tenth of its width


@dataclass(frozen=True, eq=False)
class Measured:
    """One method on the test rows; `test` is the KS test of the top class, `events` and `maps` are by name of event.

    `gap` is mean confidence minus accuracy, and its standard error. `predicted` has both means by predicted class.
    `example` has those of the rows of `example_rows`. Confidences have no classes, so no gaps, no matrix and no
    `predicted`.
    """

    name: str
    card: metrics.Scorecard
    intervals: metrics.Intervals
    test: metrics.CalibrationTest
    gap: tuple[float, float]
    gaps: curves.ClassGaps | None
    matrix: curves.ClassMatrix | None
    predicted: curves.PredictedGaps | None
    example: tuple[float, float]
    events: dict[str, dict[str, Any]]
    maps: dict[str, curves.CalibrationMap]


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
    compared: "Comparison",
    n_resamples: int,
    random_state: int,
    calibration: Predictions | Confidences | None = None,
    progress: bool | None = False,
) -> Measurements:
    """Measure every method of a comparison, and check the data."""
    rows, n_methods = compared.test, len(compared.scorecards)
    names = class_names(rows) if isinstance(rows, Predictions) else []
    draws: dict[str, Any] = {"n_resamples": n_resamples, "random_state": random_state}
    ranks = [metrics.rank(r) for r in range(2, min(_RANKS, len(names)) + 1)]
    ranks += [metrics.within_top(r) for r in _WITHIN if r < len(names)]
    labels = {metrics.top: metrics.top.name if names else "the answer is correct"}
    labels |= {event: event.name for event in ranks}
    before = check_any(rows)
    classes = _classes_to_show(curves.class_gaps(before), _CURVES // n_methods - len(labels)) if names else np.arange(0)
    labels |= {metrics.label(c): shortened(names[c]) for c in classes.tolist()}
    methods: dict[str, Measured] = {}
    example = example_rows(check_event(before))
    with progress_bar(progress, "measuring methods", n_methods) as advance:
        for name, card in compared.scorecards.items():
            advance(0, f"measuring {name}")
            after = before if not methods else check_any(compared.predictions(name))
            shown = [metric for metric in SHOWN_METRICS if metric in card]
            found = metrics.intervals(after, metrics=shown, level=LEVEL, progress=False, **draws)
            events = {event.name: _curves(event, check_event(after, event=event), random_state) for event in labels}
            maps = _maps(_columns(before), _columns(after), classes) if methods else {}
            gaps, matrix = (curves.class_gaps(after), curves.class_matrix(after)) if names else (None, None)
            predicted = curves.predicted_gaps(after) if names else None
            test, top = events[metrics.top.name]["ks"].test, check_event(after)
            weights = top.weights[example] / top.weights[example].sum()
            shown_by = float(weights @ top.scores[example]), float(weights @ top.hits[example])
            gap, variance = mean_and_variance(top, top.scores - top.hits)
            off = gap, math.sqrt(variance)
            methods[name] = Measured(name, card, found, test, off, gaps, matrix, predicted, shown_by, events, maps)
            advance()
    counts = calibration_counts(compared, calibration)
    checks = data_checks(compared, calibration, methods[compared.recommended].predicted)
    found_all = Measurements(compared, methods, None, labels, classes, names, counts, checks)
    if n_methods == 1:
        return found_all
    return replace(found_all, differences=compared.differences(found_all.difference_metrics, **draws))


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
    return rows.probabilities if isinstance(rows, Rows) else rows.scores[:, None]


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
        "ks": curves.ks_curves(scored, points=201 if is_top else 81, **draws),
        "reliability": diagrams,
    }


def _maps(before: Array, after: Array, classes: Ints) -> dict[str, curves.CalibrationMap]:
    maps = {metrics.label(c).name: curves.calibration_map(before, after, c) for c in classes.tolist()}
    return {metrics.top.name: curves.calibration_map(before, after)} | maps
