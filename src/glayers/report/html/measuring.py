"""A comparison -> what every method shows on the test rows: intervals, a test, curves of every event, classes.

Methods are taken one by one, so that 25,000 rows of 1,000 classes are never held more than twice.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.logits import probabilities_of
from glayers.metrics.old import CalibrationTest, Interval, Scorecard, ks_test, ks_test_of
from glayers.metrics.old.bootstrap import Bootstrapped, Settings
from glayers.metrics.old.reweighted import Rows, evaluate
from glayers.predictions import Predictions
from glayers.report.curves import (
    ClassGaps,
    ClassMatrix,
    calibration_map,
    class_gaps,
    class_matrix,
    corp_reliability,
    ks_curves,
    reliability,
    smooth_reliability,
)
from glayers.report.html.compared import Compared, class_names
from glayers.report.html.events import Event, class_events, classes_that_matter, rank_events
from glayers.report.html.numbers import plain

METRICS = ("accuracy", "confidence", "ks", "nll", "brier", "ece", "smooth_ece")
LEVEL = 0.95
_BAND_DRAWS = 200  # a band's edge is then known to a tenth of its width, thinner than its line


@dataclass(frozen=True, eq=False)
class Measured:
    """One method on the test rows; `curves` and `maps` are by the key of the event, as JSON has them."""

    name: str
    card: Scorecard
    intervals: dict[str, Interval]
    test: CalibrationTest
    gaps: ClassGaps
    matrix: ClassMatrix
    curves: dict[str, Any]
    maps: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Measurements:
    """All methods, the uncalibrated first; the events there are curves of; and the classes among these."""

    methods: list[Measured]
    events: list[Event]
    classes: Ints

    @property
    def before(self) -> Measured:
        """The uncalibrated."""
        return self.methods[0]

    def named(self, name: str) -> Measured:
        """Return a method by its name."""
        return next(method for method in self.methods if method.name == name)


def measure(compared: Compared, n_resamples: int, random_state: int) -> Measurements:
    """Measure every method of a comparison."""
    names = list(compared.scorecards)
    test = compared.test
    before = test.probabilities()
    by_rank = rank_events(test.n_classes)
    classes = classes_that_matter(class_gaps(before, test.labels, test.weights), len(names), len(by_rank))
    events = by_rank + class_events(classes, class_names(compared))
    settings = Settings(n_resamples, LEVEL, "bca", stratify=False, random_state=random_state, progress=False)
    methods = []
    for name in names:
        logits = compared.logits(name)
        after = probabilities_of(logits)
        methods.append(
            Measured(
                name=name,
                card=compared.scorecards[name],
                intervals=_intervals(logits, test, settings),
                test=top_class_test(after, test, random_state),
                gaps=class_gaps(after, test.labels, test.weights),
                matrix=class_matrix(after, test.labels, test.weights),
                curves={event.key: _curves(event, after, test, random_state) for event in events},
                maps=_maps(before, after, classes) if name != names[0] else {},
            )
        )
    return Measurements(methods, events, classes)


def top_class_test(probabilities: Array, test: Predictions, random_state: int) -> CalibrationTest:
    """Test whether the top class is calibrated; rows in groups flip together, which takes resamples."""
    if test.groups is None:
        return ks_test(probabilities, test.labels, test.weights)
    return ks_test(
        probabilities, test.labels, test.weights, test.groups, method="resampling", random_state=random_state
    )


def _intervals(logits: Array, test: Predictions, settings: Settings) -> dict[str, Interval]:
    """As `intervals_from_logits`, but of the metrics shown alone: those by class take minutes for 1,000 of them."""
    rows = Rows.of_logits(logits, test.labels, test.weights)
    resampling = settings.plan(rows.given.labels, test.weights, test.groups)
    columns = evaluate(rows, METRICS, resampling, advance=lambda: None)
    return {metric: Bootstrapped.of(columns[metric], resampling).interval(LEVEL) for metric in METRICS}


def _curves(event: Event, probabilities: Array, test: Predictions, random_state: int) -> dict[str, Any]:
    scores, hits = event.scores(probabilities, test.labels)
    ks = plain(ks_curves(scores, hits, test.weights, points=201 if event.is_top else 101))
    if test.groups is not None:
        found = ks_test_of(scores, hits, test.weights, test.groups, method="resampling", random_state=random_state)
        ks |= plain({"bound": found.bound, "p_value": found.p_value})
    return {
        "says": plain(float(np.average(scores, weights=test.weights))),
        "happened": plain(float(np.average(hits, weights=test.weights))),
        "ks": ks,
        "reliability": plain(_reliability(event, scores, hits, test.weights, random_state), 4),
    }


def _reliability(
    event: Event, scores: Floats, hits: Array, weights: Floats | None, random_state: int
) -> dict[str, Any]:
    """Every kind of diagram for the top class; the cheap ones for the many other events."""

    def bins(binning: Any) -> Any:
        return reliability(
            scores, hits, weights, binning=binning, level=LEVEL, n_resamples=_BAND_DRAWS, random_state=random_state
        )

    found = {"equal_width": bins("equal_width")}
    if "class_" not in event.choice:
        found["equal_mass"] = bins("equal_mass")
    if event.is_top:
        found["smooth"] = smooth_reliability(scores, hits, weights, points=101, level=LEVEL)
        found["corp"] = corp_reliability(scores, hits, weights, level=LEVEL, random_state=random_state)
    return found


def _maps(before: Array, after: Array, classes: Ints) -> dict[str, Any]:
    maps = {"rank-1": calibration_map(before, after)}
    maps |= {f"class-{c}": calibration_map(before, after, c) for c in classes.tolist()}
    return plain(maps, 4)
