"""Curves -> specs: every figure once. `FIGURES` is the only list of figures: page, paper and command line read it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Floats, Ints
from glayers.metrics import METRICS, Event, PairedDifferences, top
from glayers.metrics.events import Rows, Scored, check_event, check_rows
from glayers.report import curves
from glayers.report.spec import Axis, Mark, Spec, columns_of, names_on_axis
from glayers.report.words import class_names, ks_sentence, percent, plural, significance

_PROBABILITY = Axis("predicted probability", 0.0, 1.0)
_FRACTION = Axis("fraction of rows", 0.0, 1.0)
_MOST_CLASSES = 15  # in the figure of the classes
_DIAGONAL = Mark("segments", "ideal", (0.0, 0.0, 1.0, 1.0), "calibrated")
_BEFORE = ("when", "before")
_AFTER = ("when", "after")
_POINTS = ("confidence", "accuracy", "radius")


@dataclass(frozen=True, eq=False)
class Shown:
    """What one method shows of one event; a curve is computed when a figure first asks for it.

    `read` returns the rows of the method. `differences` are those between every two methods, the loss first, for
    figures that need two methods.
    """

    name: str
    read: Callable[[], Rows | Scored]
    event: Event = top
    n_bins: int = 15
    random_state: int | None = 0
    differences: PairedDifferences | None = None

    @property
    def title(self) -> str:
        """The name of the method, and of the event unless it is the usual one."""
        return self.name if self.event == top else f"{self.name}, {self.event.name}"

    @cached_property
    def scored(self) -> Scored:
        """The event of each row."""
        return check_event(self.read(), event=self.event)

    @cached_property
    def bins(self) -> curves.Reliability:
        """The reliability in bins of equal width."""
        return curves.reliability(self.scored, n_bins=self.n_bins)

    @cached_property
    def above(self) -> curves.ErrorsAbove:
        """The errors above each threshold."""
        return curves.errors_above(self.scored)

    @cached_property
    def predicted(self) -> curves.PredictedGaps:
        """Confidence and accuracy by predicted class."""
        return curves.predicted_gaps(self.read())


Methods: TypeAlias = Sequence[Shown]


class FigureKind(NamedTuple):
    """One kind of figure.

    `title` and `caption` say what it shows and how to read it. `specs` describes its panels, given the methods to show
    together, the first method first. `by_event` says whether it is about one event; `needs_classes` whether it needs
    the probabilities of all classes; `least` how many methods it needs.
    """

    title: str
    caption: str
    specs: Callable[[Methods], list[Spec]]
    by_event: bool = False
    needs_classes: bool = False
    least: int = 1


def _first_and_last(methods: Methods) -> Methods:
    return methods if len(methods) == 1 else [methods[0], methods[-1]]


def _before_and_after(methods: Methods, curve: Callable[[Shown], Any]) -> dict[str, Any]:
    """Return the columns of a curve of the first and of the last method, one below the other."""
    parts = []
    for when, method in zip(("before", "after"), _first_and_last(methods), strict=False):
        part = columns_of(curve(method))
        n_entries = len(next(iter(part.values())))
        parts.append(part | {"method": [method.name] * n_entries, "when": [when] * n_entries})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _both_titles(methods: Methods) -> str:
    return " and ".join(method.title for method in _first_and_last(methods))


def _errors_above(methods: Methods) -> list[Spec]:
    """Describe the errors promised and made above each threshold, for the first and the last method."""
    columns = _before_and_after(methods, lambda method: method.above)
    marks = []
    for when in ("before", "after"):
        for what in ("promised", "actual"):
            label = f"{when}: {what} errors"
            marks.append(Mark("line", f"{when} {what}", ("threshold", what), label, ("when", when)))
    x = Axis("confidence threshold", 0.5, 1.0)
    y = Axis("errors above it", 0.0)
    table = ("method", "threshold", "coverage", "promised", "actual")
    columns["said"] = []
    for method in _first_and_last(methods):
        columns["said"] += [_said_of_errors(method.above, place) for place in range(len(method.above.threshold))]
    summary = " ".join(
        f"{method.name} at 90 %: {_said_of_errors(method.above, 40)}" for method in _first_and_last(methods)
    )
    return [Spec(x, y, tuple(marks), columns, table, _both_titles(methods), summary=summary, height=0.6)]


def _said_of_errors(found: curves.ErrorsAbove, place: int) -> str:
    """Say how many rows lie above a threshold, and which errors were promised and made there."""
    said = f"automates {percent(found.coverage[place], 0)}"
    if not found.coverage[place]:
        return f"{said}."
    promised = round(1000 * found.promised[place])
    made = round(1000 * found.actual[place])
    said += f", promised {promised} errors per 1,000, made {made}"
    if found.kept[place]:
        said += ": as promised"
    elif made > promised > 0:
        said += f": {made / promised:.2g} times as many"
    return f"{said}."


def _reliability(methods: Methods) -> list[Spec]:
    return [bins_spec(method.bins, method.title) for method in methods]


def bins_spec(found: curves.Reliability, title: str = "") -> Spec:
    """Describe a binned reliability diagram: a bar, a band and a point per bin, larger where there are more rows."""
    outside = found.outside
    share = found.count / found.count.sum()
    error = METRICS["ece"].format(float(share @ np.abs(found.confidence - found.accuracy)))
    predicted, observed = _means(found)
    summary = f"Mean prediction {predicted}, observed {observed}; "
    summary += f"outside the band: {outside.sum()} of {len(outside)} bins."
    columns = columns_of(found) | {"where": np.where(outside, "out", "in"), "radius": _radius(found.count)}
    marks = (
        Mark("boxes", "bar", ("low", 0.0, "high", "accuracy")),
        _BAND,
        _DIAGONAL,
        Mark("dots", "observed", _POINTS, "observed", ("where", "in")),
        Mark("dots", "outside", _POINTS, "observed, outside the band", ("where", "out")),
    )
    y = Axis("observed frequency", 0.0, 1.0)
    return Spec(_PROBABILITY, y, marks, columns, _BINS_TABLE, title, f"ECE {error}", summary)


_BAND = Mark("boxes", "band", ("low", "band_low", "high", "band_high"), "95 % of calibrated models")
_BINS_TABLE = ("low", "high", "count", "confidence", "accuracy")


def _radius(count: Floats) -> Floats:
    """Return the radius of dots whose area grows with the number of rows."""
    return 3 + 6 * np.sqrt(count / count.max())


def _means(found: curves.Reliability) -> tuple[str, str]:
    """Return the mean confidence and the accuracy of all rows, in words."""
    share = found.count / found.count.sum()
    return percent(float(share @ found.confidence)), percent(float(share @ found.accuracy))


def _before_after(methods: Methods) -> list[Spec]:
    """Describe the reliability of the first and the last method on the same axes."""
    columns = _before_and_after(methods, lambda method: method.bins)
    columns["radius"] = _radius(columns["count"])
    marks = (
        _DIAGONAL,
        Mark("dots", "before", _POINTS, "before calibration", _BEFORE),
        Mark("dots", "after", _POINTS, "after calibration", _AFTER),
    )
    x = Axis("what the model says", 0.0, 1.0)
    y = Axis("how often it is right", 0.0, 1.0)
    means = [(method.name, *_means(method.bins)) for method in _first_and_last(methods)]
    said = [f"{name}: says {predicted}, right {observed}" for name, predicted, observed in means]
    table = ("method", *_BINS_TABLE)
    return [Spec(x, y, marks, columns, table, _both_titles(methods), summary=f"{'; '.join(said)}.")]


def _ks(methods: Methods) -> list[Spec]:
    found = [curves.ks_curves(method.scored, random_state=method.random_state) for method in methods]
    return [gap_spec(ks, method.title) for ks, method in zip(found, methods, strict=True)]


def gap_spec(found: curves.KsCurves, title: str = "") -> Spec:
    """Describe cumulative score minus cumulative hits; a calibrated model stays within the band."""
    difference = found.cumulative_score - found.cumulative_hits
    columns = columns_of(found) | {"difference": difference}
    bound = found.test.bound
    at = float(found.fractile[found.where])
    marks = (
        Mark("boxes", "band", (0.0, -bound, 1.0, bound), _BAND.label),
        Mark("segments", "ideal", (0.0, 0.0, 1.0, 0.0)),
        Mark("line", "observed", ("fractile", "difference"), "predicted minus observed"),
        Mark("segments", "largest", (at, 0.0, at, float(difference[found.where])), "KS error"),
    )
    table = ("fractile", "cumulative_score", "cumulative_hits", "difference")
    note = METRICS["ks"].format(found.test.value)
    y = Axis("predicted minus observed")
    summary = f"{ks_sentence(found.test)}."
    return Spec(_FRACTION, y, marks, columns, table, title, f"KS {note}", summary, height=0.8)


def _loss_differences(methods: Methods) -> list[Spec]:
    """Describe how far the loss of each method lies below that of the first; lower is on the left."""
    first, *others = methods
    between = first.differences
    if between is None:
        return []
    metric = METRICS[between.differences[0].metric]
    found = [between.between(metric.name, other.name, first.name) for other in others]
    columns: dict[str, Any] = {
        "method": [other.name for other in others],
        "place": np.arange(len(others)),
        "change": np.array([each.interval.value for each in found]),
        "change_low": np.array([each.interval.low for each in found]),
        "change_high": np.array([each.interval.high for each in found]),
        "significant": [significance(difference.significant) for difference in found],
    }
    marks = (
        _line_at_zero(len(others)),
        Mark("segments", "after whisker", ("change_low", "place", "change_high", "place")),
        Mark("dots", "after", ("change", "place"), "difference, with 95 % interval"),
    )
    n_significant = sum(difference.significant for difference in found)
    summary = f"Significant differences: {n_significant} of {len(found)}."
    title = f"{metric.short_label}, method minus {first.name}"
    x = Axis(metric.short_label, unit="number")
    table = ("method", "change", "change_low", "change_high", "significant")
    return [Spec(x, names_on_axis(columns["method"]), marks, columns, table, title, summary=summary)]


def _line_at_zero(n_lines: int) -> Mark:
    return Mark("segments", "ideal", (0.0, -0.5, 0.0, n_lines - 0.5))


def _classes(methods: Methods) -> list[Spec]:
    """Describe confidence minus accuracy by predicted class, for the first and the last method; the worst first."""
    shown = _first_and_last(methods)
    rows = check_rows(shown[0].read())
    classes = worst_classes(shown)[:_MOST_CLASSES]
    every_name = class_names(rows.class_names, rows.n_classes)
    names = [every_name[c] for c in classes]
    columns = _before_and_after(methods, lambda method: method.predicted)
    which = np.concatenate([classes + part * rows.n_classes for part in range(len(shown))])
    columns = {name: values[which] for name, values in columns.items()}
    # Before above, after below the middle of a line.
    columns["place"] = np.concatenate([np.arange(len(classes)) + beside for beside in (-0.16, 0.16)])[: len(which)]
    columns["class"] = names * len(shown)
    columns["significant"] = [significance(p <= 1 - curves.LEVEL) for p in columns["p_value"].tolist()]
    ends = ("gap_low", "place", "gap_high", "place")
    marks = (
        _line_at_zero(len(classes)),
        Mark("segments", "before whisker", ends, "", _BEFORE),
        Mark("segments", "after whisker", ends, "", _AFTER),
        Mark("dots", "before", ("gap", "place"), "before calibration", _BEFORE),
        Mark("dots", "after", ("gap", "place"), "after calibration", _AFTER),
    )
    x = Axis("confidence minus accuracy, points", unit="points")
    off = [f"{method.name} {len(method.predicted.off) or 'none'}" for method in shown]
    summary = f"Classes significantly off: {', '.join(off)}."
    title = f"{len(classes)} of {plural(rows.n_classes, 'class')}"
    table = ("class", "method", "gap", "gap_low", "gap_high", "count", "significant")
    return [Spec(x, names_on_axis(names), marks, columns, table, title, summary=summary)]


def worst_classes(shown: Methods) -> Ints:
    """Return the classes that any method predicts: those first that are furthest off for certain."""
    gaps = [method.predicted for method in shown]
    # By the near ends of the intervals, and among classes that may be right by the gap itself.
    worth = sum(found.certain + 1e-6 * np.nan_to_num(np.abs(found.gap)) for found in gaps)
    order = np.argsort(-np.asarray(worth), kind="stable")
    known = np.any([found.count > 0 for found in gaps], axis=0)
    return order[known[order]]


FIGURES: dict[str, FigureKind] = {
    "errors": FigureKind(
        "Errors above a threshold",
        "If only predictions above a confidence are used: the errors that the model promises, and those it makes.",
        _errors_above,
        by_event=True,
    ),
    "before-after": FigureKind(
        "Before and after",
        "What the model says and how often it is right, in groups of rows. Dots below the line are overconfident.",
        _before_after,
    ),
    "reliability": FigureKind(
        "Reliability diagram",
        "Observed frequency against predicted probability. Points below the line are overconfident, points outside "
        "the band significantly off. Larger points are more rows.",
        _reliability,
        by_event=True,
    ),
    "ks": FigureKind(
        "KS: the cumulative gap",
        "From the lowest to the highest probability, predicted minus observed is added up. The KS error is the largest "
        "sum. Above zero the model is overconfident.",
        _ks,
        by_event=True,
    ),
    "classes": FigureKind(
        "Classes with the largest gaps",
        "Mean confidence minus accuracy of the rows predicted as each class, with 95 % intervals. The classes that are "
        "furthest off for certain come first.",
        _classes,
        needs_classes=True,
    ),
    "methods": FigureKind(
        "Difference in loss",
        "Each method compared with the first on the same rows, with 95 % intervals: better on the left.",
        _loss_differences,
        least=2,
    ),
}
