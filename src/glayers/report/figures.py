"""Curves -> specs: every figure once. `FIGURES` is the only list of figures: page, paper and command line read it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Floats
from glayers.metrics import METRICS, Difference, Event, PairedDifferences, top
from glayers.metrics.events import Rows, Scored, check_event, check_rows
from glayers.report.curves import (
    ClassMatrix,
    KsCurves,
    PredictedGaps,
    Reliability,
    calibration_map,
    class_matrix,
    ks_curves,
    predicted_gaps,
    reliability,
)
from glayers.report.spec import Axis, Mark, Spec, View, columns_of, diagonal, names_on_axis
from glayers.report.words import ks_sentence, p_text, percent, plural, signed, significance, typeset

CALIBRATED = "95 % of calibrated models"
_PROBABILITY = Axis("predicted probability", 0.0, 1.0)
_FREQUENCY = Axis("observed frequency", 0.0, 1.0)
_FRACTION = Axis("fraction of rows", 0.0, 1.0)
_STRONGEST = 0.3  # gaps from here on have the strongest colour
_SCALE = (-0.3, -0.1, -0.03, 0.0, 0.03, 0.1, 0.3)  # gaps on the scale of colours
_WHEN = ("before", "after")


@dataclass(frozen=True, eq=False)
class MethodCurves:
    """What one method shows of one event; a curve is computed when a figure first asks for it.

    Attributes
    ----------
    name
        The name of the method.
    read
        Returns its rows.
    event, about
        The event, and its name in titles; "" if it need not be named.
    class_names
        The names of all classes, if they are not those of the rows.
    differences
        Between every two methods, for the figure of differences.
    """

    name: str
    read: Callable[[], Rows | Scored]
    event: Event = top
    about: str = ""
    class_names: Sequence[str] = ()
    n_bins: int = 15
    points: int = 201
    random_state: int = 0
    differences: PairedDifferences | None = None

    @property
    def title(self) -> str:
        """The name of the method and of the event."""
        if not self.about:
            return self.name
        return f"{self.name}, {self.about}"

    @cached_property
    def scored(self) -> Scored:
        """The event of each row."""
        return check_event(self.read(), event=self.event)

    @cached_property
    def ks(self) -> KsCurves:
        """The KS curves."""
        return ks_curves(self.scored, points=self.points, random_state=self.random_state)

    @cached_property
    def bins(self) -> Reliability:
        """The reliability in bins of equal width."""
        return reliability(self.scored, n_bins=self.n_bins)

    @cached_property
    def predicted(self) -> PredictedGaps:
        """Confidence and accuracy by predicted class."""
        return predicted_gaps(self.read())

    @cached_property
    def matrix(self) -> ClassMatrix:
        """Gaps by predicted class and label."""
        return class_matrix(self.read())


Methods: TypeAlias = Sequence[MethodCurves]


class FigureKind(NamedTuple):
    """One kind of figure.

    `title` and `caption` say what it shows and how to read it. `specs` describes its panels, given the curves of the
    methods to show together, the first method first. `by_event` says whether it is about one event; `needs_classes`
    whether it needs the probabilities of all classes; `least` how many methods it needs. Some are drawn on paper only.
    """

    title: str
    caption: str
    specs: Callable[[Methods], list[Spec]]
    by_event: bool = True
    needs_classes: bool = False
    least: int = 1
    on_page: bool = True


def _each(describe: Callable[[MethodCurves], Spec]) -> Callable[[Methods], list[Spec]]:
    """Return a figure with one panel per method."""

    def describe_each(methods: Methods) -> list[Spec]:
        specs = [describe(curves) for curves in methods]
        return [replace(spec, title=curves.title) for spec, curves in zip(specs, methods, strict=True)]

    return describe_each


def _reliability(curves: MethodCurves) -> Spec:
    return bins_spec(curves.bins)


def _equal_mass(curves: MethodCurves) -> Spec:
    return bins_spec(reliability(curves.scored, n_bins=curves.n_bins, binning="equal_mass"))


def bins_spec(found: Reliability) -> Spec:
    """Describe a binned reliability diagram: a bar, a band and a point per bin, with the number of rows below."""
    outside = found.outside
    share = found.count / found.count.sum()
    error = METRICS["ece"].format(float(share @ np.abs(found.confidence - found.accuracy)))
    predicted = percent(float(share @ found.confidence))
    observed = percent(float(share @ found.accuracy))
    summary = f"Mean prediction {predicted}, observed {observed}; "
    summary += f"outside the band: {outside.sum()} of {len(outside)} bins."
    columns = columns_of(found) | {"where": np.where(outside, "out", "in")}
    return Spec(_BINS, columns, f"ECE {error}", summary, strip=Spec(_COUNTS, columns))


_BINS = View(
    _PROBABILITY,
    _FREQUENCY,
    (
        Mark("boxes", "bar", ("low", 0.0, "high", "accuracy")),
        Mark("boxes", "band", ("low", "band_low", "high", "band_high"), CALIBRATED),
        diagonal("calibrated"),
        Mark("dots", "observed", ("confidence", "accuracy"), "observed", ("where", "in")),
        Mark("dots", "outside", ("confidence", "accuracy"), "observed, outside the band", ("where", "out")),
    ),
    ("confidence", "accuracy"),
    ("low", "high", "count", "confidence", "accuracy", "band_low", "band_high"),
    height=1.0,
)
_COUNTS = View(
    _PROBABILITY,
    Axis("rows", 0.5, unit="rows", log=True),
    (Mark("boxes", "rows", ("low", 0.5, "high", "count")),),
    height=0.3,
)


def cumulative_spec(found: KsCurves) -> Spec:
    """Describe cumulative score and hits against the fraction of rows, with a bar at the KS error; the gap is below."""
    gap = gap_spec(found)
    return replace(gap, view=_CUMULATIVE, strip=replace(gap, view=_GAP_STRIP))


def gap_spec(found: KsCurves) -> Spec:
    """Describe cumulative score minus cumulative hits; a calibrated model stays within the band."""
    difference = found.cumulative_score - found.cumulative_hits
    largest = slice(found.where, found.where + 1)
    columns = columns_of(found) | {
        "difference": difference,
        "bound": np.array([found.test.bound]),
        "minus_bound": np.array([-found.test.bound]),
        "at": found.fractile[largest],
        "score_at": found.cumulative_score[largest],
        "hits_at": found.cumulative_hits[largest],
        "largest": difference[largest],
    }
    note = METRICS["ks"].format(found.test.value)
    return Spec(_GAP, columns, f"KS {note}", f"{ks_sentence(found.test)}.")


_GAP = View(
    _FRACTION,
    Axis("predicted minus observed"),
    (
        Mark("boxes", "band", (0.0, "minus_bound", 1.0, "bound"), CALIBRATED),
        Mark("segments", "ideal", (0.0, 0.0, 1.0, 0.0)),
        Mark("line", "observed", ("fractile", "difference"), "predicted minus observed"),
        Mark("segments", "largest", ("at", 0.0, "at", "largest"), "KS error"),
    ),
    ("fractile", "difference"),
    ("fractile", "cumulative_score", "cumulative_hits", "difference"),
)
_GAP_STRIP = replace(
    _GAP, y=Axis("gap"), marks=(_GAP.marks[0], *(replace(mark, label="") for mark in _GAP.marks[1:])), height=0.3
)
_CUMULATIVE = replace(
    _GAP,
    y=Axis("cumulative probability", 0.0),
    marks=(
        Mark("line", "predicted", ("fractile", "cumulative_score"), "predicted"),
        Mark("line", "observed", ("fractile", "cumulative_hits"), "observed"),
        Mark("segments", "largest", ("at", "score_at", "at", "hits_at"), "KS error"),
    ),
    point=("fractile", "cumulative_hits"),
)


def _fractile(curves: MethodCurves) -> Spec:
    found = curves.ks
    widest = np.abs(found.score - found.hit_rate).argmax()
    place = f"at {percent(found.fractile[widest])} of the rows"
    predicted = percent(found.score[widest])
    observed = percent(found.hit_rate[widest])
    summary = f"Largest difference {place}: predicted {predicted}, observed about {observed}."
    gap = gap_spec(found)
    return replace(gap, view=_FRACTILE, summary=summary, strip=replace(gap, view=_GAP_STRIP))


_FRACTILE = View(
    _FRACTION,
    Axis("probability", 0.0),
    (
        Mark("band", "difference", ("fractile", "score", "hit_rate")),
        Mark("line", "predicted", ("fractile", "score"), "predicted"),
        Mark("line", "observed", ("fractile", "hit_rate"), "observed, smoothed"),
    ),
    ("fractile", "hit_rate"),
    ("fractile", "score", "hit_rate"),
)


def _maps(methods: Methods) -> list[Spec]:
    """Describe how each of the other methods changes the scores of the first."""
    first, *others = methods
    specs = []
    for curves in others:
        found = calibration_map(first.scored, curves.scored)
        widest = np.abs(found.after - found.before).argmax()
        summary = f"Largest change: {percent(found.before[widest])} becomes {percent(found.after[widest])}."
        specs.append(Spec(_MAP, columns_of(found), summary=summary, title=curves.title))
    return specs


_MAP = View(
    Axis("probability before", 0.0, 1.0),
    Axis("probability after", 0.0, 1.0),
    (
        Mark("segments", "spread", ("before", "low", "before", "high"), "middle 80 % of rows"),
        diagonal("unchanged"),
        Mark("line", "predicted solid", ("before", "after"), "median after calibration"),
        Mark("dots", "after", ("before", "after")),
    ),
    ("before", "after"),
    ("before", "after", "low", "high", "count"),
    height=1.0,
)


def _matrices(methods: Methods) -> list[Spec]:
    return [replace(_matrix(curves), title=curves.name) for curves in methods]


def _matrix(curves: MethodCurves, most: int = 30, most_with_numbers: int = 10) -> Spec:
    """Describe over- and under-prediction by class; gaps within two standard deviations are left blank.

    The classes that are predicted most are shown: smaller cells are hard to point at.
    """
    found = curves.matrix
    classes = np.sort(np.argsort(-found.predicted, kind="stable")[:most])
    square = np.ix_(classes, classes)
    deviation = found.deviation[square]
    row, column = np.nonzero(np.isfinite(found.gap[square]))
    gap = found.gap[square][row, column]
    deviations = np.abs(gap) / deviation[row, column]
    shown = np.where(deviations <= 2, 0.0, gap)
    names = _names_of(curves, classes.tolist())
    columns: dict[str, Any] = {"row": row, "column": column, "gap": gap, "strength": _strength(shown)}
    columns |= {"deviations": deviations, "count": found.predicted[classes][row]}
    view = replace(_MATRIX, x=names_on_axis(names, "label"), y=names_on_axis(names, "predicted class"))
    if len(classes) <= most_with_numbers:
        columns["number"] = [signed(round(100 * value)) if abs(value) >= 0.005 else "" for value in shown]
        view = replace(view, marks=(*view.marks, Mark("words", "number", ("column", "row", "number", "middle"))))
    worst = int(np.abs(gap).argmax())
    where = f"{names[row[worst]]} is predicted ({plural(columns['count'][worst], 'row')})"
    direction = "high" if gap[worst] > 0 else "low"
    amount = f"{100 * abs(gap[worst]):.1f} points too {direction}"
    summary = f"Largest: where {where}, the probability of {names[column[worst]]} is {amount}."
    if len(classes) < len(found.predicted):
        summary = f"{len(classes)} of {len(found.predicted):,} classes, those predicted most often. {summary}"
    return Spec(view, columns, summary=summary, strip=_COLOUR_SCALE)


def _names_of(curves: MethodCurves, classes: Sequence[int]) -> list[str]:
    names = curves.class_names or check_rows(curves.read()).class_names
    return [names[c] if names else str(c) for c in classes]


def _strength(gap: Floats) -> Floats:
    """Return colours from -1 to 1: in proportion to gaps up to a point, and to the logarithm of larger ones."""
    scaled = np.log1p(np.abs(gap) / 0.01) / np.log1p(_STRONGEST / 0.01)
    return np.sign(gap) * np.clip(scaled, 0.0, 1.0)


_MATRIX = View(
    Axis(),
    Axis(),
    (Mark("cells", "cell", ("column", "row", "strength")),),
    ("column", "row"),
    ("row", "column", "gap", "deviations", "count"),
    nearest=(1.0, 1.0),
    height=1.0,
)
_COLOUR_SCALE = Spec(
    View(
        names_on_axis([signed(100 * step) for step in _SCALE], "gap in points"),
        names_on_axis([""]),
        (Mark("cells", "cell", ("place", 0, "strength")),),
        height=0.06,
    ),
    {"place": np.arange(len(_SCALE)), "strength": _strength(np.array(_SCALE))},
)


def _forests(methods: Methods) -> list[Spec]:
    """Describe the differences from the first method, one panel per metric."""
    first, *others = methods
    between = first.differences
    if between is None:
        return []
    metrics = dict.fromkeys(difference.metric for difference in between.differences)
    return [forest_spec([between.between(metric, one.name, first.name) for one in others]) for metric in metrics]


def forest_spec(differences: Sequence[Difference]) -> Spec:
    """Describe differences in one metric from the same method; the better methods are on the left."""
    metric = METRICS[differences[0].metric]
    lines = []
    for place, found in enumerate(differences):
        change, low, high = (typeset(metric.format_difference(number)) for number in found.interval[:3])
        line: dict[str, Any] = {"place": place, "value": found.interval.value, "method": found.method}
        line |= {"end": found.interval.low, "other": found.interval.high, "change": change}
        line |= {"interval": f"{low} to {high}", "p": p_text(found.p_value)}
        lines.append(line | {"significant": significance(found.significant)})
    x = Axis(metric.short_label, unit="number", turned=metric.better == "higher")
    if metric.unit == "percent":
        x = replace(x, label=f"{metric.short_label}, points", unit="points")
    n_significant = sum(found.significant for found in differences)
    summary = f"Significant differences: {n_significant} of {len(differences)}."
    names = [found.method for found in differences]
    title = f"{metric.short_label}, method minus {differences[0].against}"
    return Spec(_listed(_FOREST, names, x), _transposed(lines), summary=summary, title=title)


_FOREST = View(
    Axis(),
    Axis(),
    (
        Mark("segments", "after whisker", ("end", "place", "other", "place")),
        Mark("dots", "after", ("value", "place"), "significant", ("significant", "significant")),
        Mark("dots", "after open", ("value", "place"), "not significant", ("significant", "not significant")),
    ),
    ("value", "place"),
    ("method", "change", "interval", "p", "significant"),
    nearest=(0.0, 1.0),
)


def _listed(view: View, names: Sequence[str], x: Axis) -> View:
    """Return a view with one line per name, and a line at zero."""
    zero = Mark("segments", "ideal", (0.0, -0.5, 0.0, len(names) - 0.5))
    return replace(view, x=x, y=names_on_axis(names), marks=(zero, *view.marks))


def _transposed(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.array([line[name] for line in lines]) for name in lines[0]}


def _before_after(methods: Methods) -> list[Spec]:
    """Describe the reliability of the first and the last method on the same axes."""
    shown = list(dict.fromkeys([methods[0], methods[-1]]))
    parts = []
    for when, curves in zip(_WHEN, shown, strict=False):
        # A bin of so few rows that a calibrated model could show almost any frequency tells nothing.
        wide = curves.bins.band_high - curves.bins.band_low > 0.5
        telling = ~wide if not wide.all() else wide
        part = {name: values[telling] for name, values in columns_of(curves.bins).items()}
        n_bins = len(part["count"])
        parts.append(part | {"method": np.repeat(curves.name, n_bins), "when": np.repeat(when, n_bins)})
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns["radius"] = 3 + 8 * np.sqrt(columns["count"] / columns["count"].max())
    band = replace(_BINS.marks[1], only=("when", _WHEN[len(shown) - 1]))
    view = replace(_BEFORE_AFTER, marks=(band, *_BEFORE_AFTER.marks))
    said = []
    for curves in shown:
        share = curves.bins.count / curves.bins.count.sum()
        confidence = percent(float(share @ curves.bins.confidence))
        accuracy = percent(float(share @ curves.bins.accuracy))
        said.append(f"{curves.name}: says {confidence}, right {accuracy}")
    title = " and ".join(curves.name for curves in shown)
    return [Spec(view, columns, summary=f"{'; '.join(said)}.", title=title)]


_BEFORE_AFTER = replace(
    _BINS,
    x=Axis("what the model says", 0.0, 1.0),
    y=Axis("how often it is right", 0.0, 1.0),
    marks=(
        diagonal("calibrated"),
        Mark("words", "side", (0.03, 0.95, "underconfident", "start")),
        Mark("words", "side", (0.97, 0.04, "overconfident", "end")),
        Mark("dots", "before", ("confidence", "accuracy", "radius"), "before calibration", ("when", "before")),
        Mark("dots", "after", ("confidence", "accuracy", "radius"), "after calibration", ("when", "after")),
    ),
    table=("method", *_BINS.table),
    nearest=(1.0, 1.0),
)


def _class_gaps(methods: Methods, most: int = 15) -> list[Spec]:
    """Describe confidence minus accuracy by predicted class, for the first and the last method; the worst first."""
    shown = list(dict.fromkeys([methods[0], methods[-1]]))
    worth = sum(curves.predicted.certain + 1e-6 * np.nan_to_num(np.abs(curves.predicted.gap)) for curves in shown)
    known = np.any([np.isfinite(curves.predicted.gap) for curves in shown], axis=0)
    order = np.argsort(-np.asarray(worth), kind="stable")
    classes = order[known[order]][:most].tolist()
    names = _names_of(shown[0], classes)
    lines = []
    for curves, when, beside in zip(shown, _WHEN, (-0.16, 0.16), strict=False):
        gaps = curves.predicted
        for place, c in enumerate(classes):
            found = significance(bool(gaps.significant[c]))
            line = {"class": names[place], "method": curves.name, "place": place + beside, "when": when}
            line |= {"gap": gaps.gap[c], "gap_low": gaps.low[c], "gap_high": gaps.high[c], "count": gaps.rows[c]}
            line |= {"confidence": gaps.confidence[c], "accuracy": gaps.accuracy[c], "significant": found}
            if np.isfinite(gaps.gap[c]):
                lines.append(line | {"look": f"{when} {found}"})
    view = _listed(_CLASS_GAPS, names, Axis("confidence minus accuracy, points", unit="points"))
    title = f"{len(classes)} of {plural(len(known), 'class')}"
    off = [f"{curves.name} {len(curves.predicted.off) or 'none'}" for curves in shown]
    return [Spec(view, _transposed(lines), summary=f"Classes significantly off: {', '.join(off)}.", title=title)]


_WHISKER = ("gap_low", "place", "gap_high", "place")
_CLASS_GAPS = View(
    Axis(),
    Axis(),
    (
        Mark("segments", "before whisker", _WHISKER, "before calibration", ("when", "before")),
        Mark("segments", "after whisker", _WHISKER, "after calibration", ("when", "after")),
        Mark("dots", "before", ("gap", "place"), "significant", ("look", "before significant")),
        Mark("dots", "before open", ("gap", "place"), "may be chance", ("look", "before not significant")),
        Mark("dots", "after", ("gap", "place"), "significant", ("look", "after significant")),
        Mark("dots", "after open", ("gap", "place"), "may be chance", ("look", "after not significant")),
    ),
    ("gap", "place"),
    ("class", "method", "gap", "gap_low", "gap_high", "count", "confidence", "accuracy", "significant"),
    nearest=(0.05, 1.0),
)

_RELIABILITY = (
    "Observed frequency against predicted probability. A calibrated model lies on the diagonal; points below it show "
    "overconfidence. Points outside the shaded band are significant."
)
_SORTED = "Rows are sorted from the lowest to the highest probability."
FIGURES: dict[str, FigureKind] = {
    "before-after": FigureKind(
        "Before and after",
        "Each dot is a group of predictions: what the model says, and how often it is right. Larger dots are more "
        "rows; groups of too few rows to tell are left out.",
        _before_after,
        by_event=False,
    ),
    "class-gaps": FigureKind(
        "Classes with the largest gaps",
        "For the rows predicted as each class: mean confidence minus accuracy, with 95 % intervals. The order is by "
        "the near end of the interval: how far a class is off for certain.",
        _class_gaps,
        by_event=False,
        needs_classes=True,
    ),
    "classes": FigureKind(
        "Over- and under-prediction by class",
        "For rows with the predicted class on the left: how much the mean probability of the class below exceeds its "
        "frequency. Cells within two standard deviations are left blank.",
        _matrices,
        by_event=False,
        needs_classes=True,
    ),
    "differences": FigureKind(
        "Differences between methods",
        "Each method compared with the first on the same rows, with 95 % intervals: better on the left, worse on the "
        "right.",
        _forests,
        by_event=False,
        least=2,
    ),
    "reliability": FigureKind("Reliability diagram", _RELIABILITY, _each(_reliability)),
    "reliability-equal-mass": FigureKind(
        "Reliability diagram, equal-mass bins", _RELIABILITY, _each(_equal_mass), on_page=False
    ),
    "ks": FigureKind(
        "KS: cumulative curves",
        f"{_SORTED} The KS error is the largest gap between the cumulative predicted and observed curves.",
        _each(lambda curves: cumulative_spec(curves.ks)),
    ),
    "ks-gap": FigureKind(
        "KS: the gap between the cumulative curves",
        f"{_SORTED} The KS error is the largest gap between cumulative predictions and observations.",
        _each(lambda curves: gap_spec(curves.ks)),
        on_page=False,
    ),
    "ks-fractile": FigureKind(
        "KS: predicted and observed probability",
        "The slopes of the cumulative curves: the predicted probability of a row, and the observed frequency there, "
        "smoothed by a spline.",
        _each(_fractile),
    ),
    "map": FigureKind(
        "Calibration map",
        "How calibration changes a probability: the median in each of 20 bins, and the range of the middle 80 % of its "
        "rows. On the diagonal nothing changes.",
        _maps,
        least=2,
    ),
}
