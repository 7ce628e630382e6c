"""Curves -> specs: what each figure shows, apart from how it is drawn.

A `Spec` holds axes, numbers, and marks that name the columns they draw. matplotlib (`report.plots`) and the script of
the page draw the same specs. `FIGURES` is the only list of figures: page, paper and command line read it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Array, Ints
from glayers.decisions.costs import Measured, net_benefit
from glayers.decisions.watch import Watch
from glayers.metrics import METRICS, Event, top
from glayers.metrics.events import Rows, Scored, check_event
from glayers.report import curves
from glayers.report.verdict import ks_sentence
from glayers.text_tables import percent, plural, points, shortened

Value: TypeAlias = str | float  # the name of a column, or one number for all entries
Kind: TypeAlias = Literal["line", "boxes", "segments", "dots"]
Unit: TypeAlias = Literal["percent", "points", "number", "rows", "text"]

# The heading of a column of numbers; other columns stand under their own names.
HEADINGS = {
    "when": "series",
    "low": "from",
    "high": "to",
    "count": "rows",
    "confidence": "predicted",
    "accuracy": "observed",
    "fractile": "fraction of rows",
    "cumulative_score": "predicted, cumulative",
    "cumulative_hits": "observed, cumulative",
    "difference": "gap",
    "gap": "gap in points",
    "gap_low": "from",
    "gap_high": "to",
    "threshold": "confidence above",
    "coverage": "automated",
    "promised": "errors promised",
    "actual": "errors made",
    "treat_from": "treat from",
    "benefit": "net benefit of the model",
    "benefit_low": "from",
    "benefit_high": "to",
    "of_all": "of treating all",
    "batch": "batch",
    "wealth": "evidence, powers of 10",
}
# Of columns of numbers that are not fractions in percent
UNITS: dict[str, Unit] = {"count": "rows", "batch": "rows", "wealth": "number"}
UNITS |= dict.fromkeys(["gap", "gap_low", "gap_high"], "points")
_MOST_CLASSES = 15  # in the figure of the classes
_IN_THE_BAND = "95 % of calibrated models"


@dataclass(frozen=True)
class Axis:
    """A label and the ends; an end that is None lies where the marks end. `names` stand at the places 0, 1, 2, ...

    Percent and points are written in hundredths.
    """

    label: str = ""
    low: float | None = None
    high: float | None = None
    unit: Unit = "percent"
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Mark:
    """One kind of mark in one look, drawn from columns.

    With `label` it stands in the legend. `only` names a column and the value of the entries to draw. The values of each
    kind, in this order:

    - line: x, y
    - boxes: left, bottom, right, top
    - segments: x, y, x of the end, y of the end
    - dots: x, y, and a radius in pixels if it varies
    """

    kind: Kind
    look: str
    values: tuple[Value, ...]
    label: str = ""
    only: tuple[str, str] | None = None


@dataclass(frozen=True, eq=False)
class Spec:
    """One panel: axes, marks and numbers, with a title, a short note, and a sentence that says what is seen.

    Columns are arrays or lists of text; those of one mark are equally long, or hold one entry. `table` names the
    columns of the table of numbers. `height` is that of the panel, as a fraction of its width.
    """

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    columns: Mapping[str, Any]
    table: tuple[str, ...]
    title: str = ""
    note: str = ""
    summary: str = ""
    height: float = 1.0

    def values(self, mark: Mark) -> list[Array]:
        """Return what a mark is drawn from, equally long; empty where nothing is to be drawn.

        >>> mark = Mark("dots", "observed", ("x", 0.5), only=("where", "inside"))
        >>> spec = Spec(Axis(), Axis(), (mark,), {"x": [1.0, 2.0], "where": ["inside", "outside"]}, ("x",))
        >>> spec.values(mark)
        [array([1.]), array([0.5])]
        """
        columns: Mapping[Any, Any] = self.columns
        read = [np.atleast_1d(np.asarray(columns.get(value, value))) for value in mark.values]
        if mark.only is None:
            return list(np.broadcast_arrays(*read))
        column, accepted = mark.only
        drawn = np.asarray(columns[column]) == accepted
        return [np.broadcast_to(value, drawn.shape)[drawn] for value in read]

    def legend(self) -> list[Mark]:
        """Return the marks with a label that draw something."""
        return [mark for mark in self.marks if mark.label and self.values(mark)[0].size]

    def cells(self) -> list[list[str]]:
        """Return the table of numbers as text, with the headings first."""
        columns = []
        for name in self.table:
            unit = UNITS.get(name, "percent")
            columns.append([HEADINGS.get(name, name), *(written(value, unit) for value in self.columns[name])])
        return [list(line) for line in zip(*columns, strict=True)]


@dataclass(frozen=True, eq=False)
class Shown:
    """What one method shows of one event; a curve is computed when a figure first asks for it."""

    name: str
    rows: Rows | Scored
    event: Event = top
    random_state: int | None = 0

    @property
    def title(self) -> str:
        """The name of the method, and of the event unless it is the usual one."""
        if self.event == top:
            return self.name
        return f"{self.name}, {self.event.name}".removeprefix(", ")

    @cached_property
    def scored(self) -> Scored:
        """The event of each row."""
        return check_event(self.rows, event=self.event)

    @cached_property
    def predicted(self) -> curves.PredictedGaps:
        """Confidence and accuracy by predicted class."""
        return curves.predicted_gaps(self.rows)


Methods: TypeAlias = Sequence[Shown]


class FigureKind(NamedTuple):
    """One kind of figure.

    `title` and `caption` say what it shows and how to read it. `specs` describes its panels, given the methods to show
    together, the first method first. `needs_classes` says whether it needs the probabilities of all classes; `on_page`
    whether the report shows it.
    """

    title: str
    caption: str
    specs: Callable[[Methods], list[Spec]]
    needs_classes: bool = False
    on_page: bool = True


def _before_and_after(methods: Methods) -> dict[str, Shown]:
    """Return the first method, and the last if it is another."""
    pair = {"before": methods[0]}
    if len(methods) > 1:
        pair["after"] = methods[-1]
    return pair


def _stacked(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the columns of several parts one below the other; "when" names the part of each entry."""
    first = next(iter(parts.values()))
    columns = {name: np.concatenate([part[name] for part in parts.values()]) for name in first}
    columns["when"] = np.repeat(list(parts), [len(next(iter(part.values()))) for part in parts.values()])
    return columns


def _columns_of(record: Any) -> dict[str, Any]:
    """Return the arrays of a record by the names of their fields."""
    return {name: values for name, values in vars(record).items() if isinstance(values, np.ndarray)}


def _errors_above(methods: Methods) -> list[Spec]:
    """Describe the errors promised and made above each threshold, for the first and the last method."""
    pair = _before_and_after(methods)
    parts = {}
    marks = []
    told = []
    for when, method in pair.items():
        found = curves.errors_above(method.scored)
        said = [_said_of_errors(found, place, len(method.scored.scores)) for place in range(len(found.threshold))]
        parts[when] = _columns_of(found) | {"said": said}
        told.append(f"{method.name} at 90 %: {said[int(np.abs(found.threshold - 0.9).argmin())]}")
        for what in ("promised", "actual"):
            label = f"{when}: {what} errors"
            marks.append(Mark("line", f"{when} {what}", ("threshold", what), label, ("when", when)))
    title = " and ".join(method.title for method in pair.values())
    x = Axis("confidence threshold", 0.5, 1.0)
    y = Axis("errors above it", 0.0)
    table = ("when", "threshold", "coverage", "promised", "actual")
    return [Spec(x, y, tuple(marks), _stacked(parts), table, title, summary=" ".join(told), height=0.6)]


def _said_of_errors(found: curves.ErrorsAbove, place: int, n_rows: int) -> str:
    """Say how many rows lie above a threshold, and which errors were promised and made there."""
    said = f"automates {percent(found.coverage[place], 0)}"
    if not found.coverage[place]:
        return f"{said}."
    promised = round(1000 * found.promised[place])
    made = round(1000 * found.actual[place])
    said += f", promised {promised} errors per 1,000, made {made}"
    if found.kept[place]:
        said += f": within sampling error of {plural(n_rows * found.coverage[place], 'row')}"
    elif made > promised > 0:
        said += f", {made / promised:.2g} times as many"
    return f"{said}."


def _reliability(methods: Methods) -> list[Spec]:
    return [bins_spec(curves.reliability(method.scored), method.title) for method in methods]


def bins_spec(found: curves.Reliability, title: str = "") -> Spec:
    """Describe a binned reliability diagram: a bar, a band and a point per bin, larger where there are more rows."""
    outside = found.outside
    share = found.count / found.count.sum()
    error = METRICS["ece"].format(float(share @ np.abs(found.confidence - found.accuracy)))
    predicted = percent(float(share @ found.confidence))
    observed = percent(float(share @ found.accuracy))
    summary = f"Mean prediction {predicted}, observed {observed}; "
    summary += f"outside the band: {outside.sum()} of {len(outside)} bins."
    columns = _columns_of(found)
    columns["where"] = np.where(outside, "out", "in")
    columns["radius"] = 3 + 6 * np.sqrt(found.count / found.count.max())  # the area grows with the number of rows
    place = ("confidence", "accuracy", "radius")
    marks = (
        Mark("boxes", "bar", ("low", 0.0, "high", "accuracy")),
        Mark("boxes", "band", ("low", "band_low", "high", "band_high"), _IN_THE_BAND),
        Mark("segments", "ideal", (0.0, 0.0, 1.0, 1.0), "calibrated"),
        Mark("dots", "observed", place, "observed", ("where", "in")),
        Mark("dots", "outside", place, "observed, outside the band", ("where", "out")),
    )
    x = Axis("predicted probability", 0.0, 1.0)
    y = Axis("observed frequency", 0.0, 1.0)
    table = ("low", "high", "count", "confidence", "accuracy")
    return Spec(x, y, marks, columns, table, title, f"ECE {error}", summary)


def _ks(methods: Methods) -> list[Spec]:
    found = [curves.ks_curves(method.scored, random_state=method.random_state) for method in methods]
    return [gap_spec(ks, method.title) for ks, method in zip(found, methods, strict=True)]


def gap_spec(found: curves.KsCurves, title: str = "") -> Spec:
    """Describe cumulative score minus cumulative hits; a calibrated model stays within the band."""
    difference = found.cumulative_score - found.cumulative_hits
    columns = _columns_of(found) | {"difference": difference}
    bound = found.test.bound
    at = float(found.fractile[found.where])
    marks = (
        Mark("boxes", "band", (0.0, -bound, 1.0, bound), _IN_THE_BAND),
        Mark("segments", "ideal", (0.0, 0.0, 1.0, 0.0)),
        Mark("line", "observed", ("fractile", "difference"), "predicted minus observed"),
        Mark("segments", "largest", (at, 0.0, at, float(difference[found.where])), "KS error"),
    )
    table = ("fractile", "cumulative_score", "cumulative_hits", "difference")
    note = f"KS {METRICS['ks'].format(found.test.value)}"
    x = Axis("fraction of rows", 0.0, 1.0)
    y = Axis("predicted minus observed")
    return Spec(x, y, marks, columns, table, title, note, f"{ks_sentence(found.test)}.", height=0.8)


def _classes(methods: Methods) -> list[Spec]:
    """Describe confidence minus accuracy by predicted class, for the first and the last method; the worst first."""
    pair = _before_and_after(methods)
    found = [method.predicted for method in pair.values()]
    classes = worst_classes(found)[:_MOST_CLASSES]
    parts = {}
    for when, part, beside in zip(pair, found, (-0.16, 0.16), strict=False):  # before above, after below the middle
        columns = {name: values[classes] for name, values in _columns_of(part).items()}
        parts[when] = columns | {"place": np.arange(len(classes)) + beside, "class": np.array(part.names)[classes]}
    columns = _stacked(parts)
    columns["significant"] = np.where(columns["p_value"] <= 1 - curves.LEVEL, "significant", "not significant")
    marks = [Mark("segments", "ideal", (0.0, -0.5, 0.0, len(classes) - 0.5))]
    for when in pair:
        ends = ("gap_low", "place", "gap_high", "place")
        marks.append(Mark("segments", f"{when} whisker", ends, "", ("when", when)))
        marks.append(Mark("dots", when, ("gap", "place"), f"{when} calibration", ("when", when)))
    off = [f"{method.name} {len(method.predicted.off) or 'none'}" for method in pair.values()]
    summary = f"Classes significantly off: {', '.join(off)}."
    title = f"{len(classes)} of {plural(len(found[0].names), 'class')}"
    x = Axis("confidence minus accuracy, points", unit="points")
    table = ("class", "when", "gap", "gap_low", "gap_high", "count", "significant")
    names = tuple(shortened(" ".join(found[0].names[c].split()), 24) for c in classes)
    y = Axis("", -0.5, len(names) - 0.5, "text", names)
    return [Spec(x, y, tuple(marks), columns, table, title, summary=summary)]


def worst_classes(gaps: Sequence[curves.PredictedGaps]) -> Ints:
    """Return the classes that any method predicts: those first that are furthest off for certain."""
    # By the near ends of the intervals, and among classes that may be right by the gap itself.
    near_ends = [np.maximum(found.gap_low, -found.gap_high).clip(min=0.0) + 1e-6 * np.abs(found.gap) for found in gaps]
    order = np.argsort(-np.nansum(near_ends, axis=0), kind="stable")
    predicted = np.any([found.count > 0 for found in gaps], axis=0)
    return order[predicted[order]]


def _decision_curves(methods: Methods) -> list[Spec]:
    """Describe net benefits on the same scale."""
    found = [net_benefit(method.scored, event=top, random_state=method.random_state) for method in methods]
    highest = max(0.01, *(benefits["model"].high for curve in found for benefits in curve.lines.values()))
    y = Axis("net benefit per row", -0.2 * highest, 1.05 * highest)  # treating all falls without end
    return [_decision_curve(curve, y, method.title) for curve, method in zip(found, methods, strict=True)]


def _decision_curve(found: Measured, y: Axis, title: str) -> Spec:
    """Describe what treating by the model gains at each threshold, beside treating all and none."""
    thresholds = np.array(list(found.lines), dtype=np.float64)
    benefit, low, high = np.array([benefits["model"][:3] for benefits in found.lines.values()]).T
    of_all, least_gain = np.array([(line["treat all"].value, line["gain"].low) for line in found.lines.values()]).T
    columns = {"treat_from": thresholds, "benefit": benefit, "benefit_low": low, "benefit_high": high, "of_all": of_all}
    marks = (
        Mark("segments", "ideal", (0.0, 0.0, 1.0, 0.0), "treat none"),
        Mark("line", "before promised", ("treat_from", "of_all"), "treat all"),
        Mark("segments", "after whisker", ("treat_from", "benefit_low", "treat_from", "benefit_high")),
        Mark("line", "after actual", ("treat_from", "benefit"), "treat by the model, with 95 % intervals"),
    )
    pays = (low > 0) & (least_gain > 0)
    summary = f"The model is worth using at {pays.sum()} of {len(pays)} thresholds."
    x = Axis("treatment threshold", 0.0, 1.0)
    return Spec(x, y, marks, columns, tuple(columns), title, summary=summary, height=0.8)


def wealth_spec(watched: Watch) -> Spec:
    """Describe the evidence against a model after each batch, and the line at which it is an alarm."""
    nats = math.log(10)
    history = [{"evidence": batch["log_evidence"], **batch["log_wealths"]} for batch in watched.batches]
    numbers = np.arange(1, len(history) + 1)
    parts = {}
    marks = []
    for question, look in zip(history[-1], ("observed", "after", "after promised", "before promised"), strict=False):
        wealth = np.array([batch[question] for batch in history]) / nats
        parts[question] = {"batch": numbers, "wealth": wealth}
        marks.append(Mark("line", look, ("batch", "wealth"), question, ("when", question)))
    alarm = -math.log(watched.alpha) / nats
    last = max(2, len(numbers))
    marks.append(Mark("segments", "ideal", (1, alarm, last, alarm), f"alarm: 1 / {watched.alpha:g}"))
    x = Axis("batch", 1, last, "rows")
    y = Axis("wealth, powers of 10", unit="number")
    return Spec(x, y, tuple(marks), _stacked(parts), ("when", "batch", "wealth"), summary=str(watched), height=0.6)


def written(value: Any, unit: Unit) -> str:
    """Return a value of a column by its unit.

    >>> written(0.25, "percent"), written(1200.0, "rows"), written(math.nan, "points")
    ('25.00 %', '1,200', '–')
    """
    if isinstance(value, str):
        return value
    if math.isnan(value):
        return "\N{EN DASH}"
    if unit == "percent":
        return percent(value)
    if unit == "points":
        return points(value)
    if unit == "rows":
        return f"{value:,.0f}"
    return f"{value:.4g}"


FIGURES: dict[str, FigureKind] = {
    "errors": FigureKind(
        "Errors above a threshold",
        "If only predictions above a confidence are used: the errors that the model promises, and those it makes.",
        _errors_above,
    ),
    "reliability": FigureKind(
        "Reliability diagram",
        "Observed frequency against predicted probability. Points below the line are overconfident. Of a calibrated "
        "model, about 1 point in 20 lies outside the band. Larger points are more rows.",
        _reliability,
    ),
    "ks": FigureKind(
        "KS: the cumulative gap",
        "From the lowest to the highest probability, predicted minus observed is added up. The KS error is the largest "
        "sum. Above zero the model is overconfident.",
        _ks,
    ),
    "classes": FigureKind(
        "Classes with the largest gaps",
        "Mean confidence minus accuracy of the rows predicted as each class, with 95 % intervals. The classes that are "
        "furthest off for certain come first.",
        _classes,
        needs_classes=True,
    ),
    "decision-curve": FigureKind(
        "Decision curve",
        "If rows are treated from a probability on: what the model gains per row, beside treating all and none. Where "
        "the model lies above both, it is worth using.",
        _decision_curves,
        on_page=False,
    ),
}
