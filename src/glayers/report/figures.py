"""Curves -> specs: every figure once. `FIGURES` is the only list of figures: page, paper and command line read it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Floats
from glayers.metrics import METRICS, Difference, Event, PairedDifferences, top
from glayers.metrics.events import Rows, Scored, check_event, check_rows
from glayers.report import curves
from glayers.report.spec import Axis, Mark, Spec, View, columns_of, diagonal, names_on_axis
from glayers.report.words import from_to, ks_sentence, percent, plural, signed, significance, typeset
from glayers.text_tables import p_text

_PROBABILITY = Axis("predicted probability", 0.0, 1.0)
_FRACTION = Axis("fraction of rows", 0.0, 1.0)
_STRONGEST = 0.3  # gaps from here on have the strongest colour
_SCALE = (-0.3, -0.1, -0.03, 0.0, 0.03, 0.1, 0.3)  # gaps on the scale of colours
_WIDE = 0.5  # a bin whose band is wider has too few rows to show anything
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
    random_state: int | None = 0
    differences: PairedDifferences | None = None

    @property
    def title(self) -> str:
        """The name of the method and of the event."""
        return f"{self.name}, {self.about}" if self.about else self.name

    @cached_property
    def scored(self) -> Scored:
        """The event of each row."""
        return check_event(self.read(), event=self.event)

    @cached_property
    def ks(self) -> curves.KsCurves:
        """The KS curves."""
        return curves.ks_curves(self.scored, points=self.points, random_state=self.random_state)

    @cached_property
    def bins(self) -> curves.Reliability:
        """The reliability in bins of equal width."""
        return curves.reliability(self.scored, n_bins=self.n_bins)

    @cached_property
    def predicted(self) -> curves.PredictedGaps:
        """Confidence and accuracy by predicted class."""
        return curves.predicted_gaps(self.read())

    @cached_property
    def matrix(self) -> curves.ClassMatrix:
        """Gaps by predicted class and label."""
        return curves.class_matrix(self.read())


Methods: TypeAlias = Sequence[MethodCurves]


class FigureKind(NamedTuple):
    """One kind of figure.

    `title` and `caption` say what it shows and how to read it. `specs` describes its panels, given the curves of the
    methods to show together, the first method first. `by_event` says whether it is about one event; `needs_classes`
    whether it needs the probabilities of all classes; `least` how many methods it needs.
    """

    title: str
    caption: str
    specs: Callable[[Methods], list[Spec]]
    by_event: bool = False
    needs_classes: bool = False
    least: int = 1


def _reliability(methods: Methods) -> list[Spec]:
    return [replace(bins_spec(method.bins), title=method.title) for method in methods]


def bins_spec(found: curves.Reliability) -> Spec:
    """Describe a binned reliability diagram: a bar, a band and a point per bin, with the number of rows below."""
    outside = found.outside
    share = found.count / found.count.sum()
    error = METRICS["ece"].format(float(share @ np.abs(found.confidence - found.accuracy)))
    predicted, observed = _means(found)
    summary = f"Mean prediction {predicted}, observed {observed}; "
    summary += f"outside the band: {outside.sum()} of {len(outside)} bins."
    columns = columns_of(found) | {"where": np.where(outside, "out", "in")}
    return Spec(_BINS, columns, f"ECE {error}", summary, strip=Spec(_COUNTS, columns))


def _means(found: curves.Reliability) -> tuple[str, str]:
    """Return the mean confidence and the accuracy of all rows, in words."""
    share = found.count / found.count.sum()
    return percent(float(share @ found.confidence)), percent(float(share @ found.accuracy))


_BAND = Mark("boxes", "band", ("low", "band_low", "high", "band_high"), "95 % of calibrated models")
_BINS = View(
    _PROBABILITY,
    Axis("observed frequency", 0.0, 1.0),
    (
        Mark("boxes", "bar", ("low", 0.0, "high", "accuracy")),
        _BAND,
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


def _before_after(methods: Methods) -> list[Spec]:
    """Describe the reliability of the first and the last method on the same axes."""
    shown = _first_and_last(methods)
    parts = []
    said = []
    for when, method in zip(_WHEN, shown, strict=False):
        telling = method.bins.band_high - method.bins.band_low <= _WIDE
        if not telling.any():
            telling[:] = True
        part = {name: values[telling] for name, values in columns_of(method.bins).items()}
        n_bins = len(part["count"])
        parts.append(part | {"method": [method.name] * n_bins, "when": [when] * n_bins})
        confidence, accuracy = _means(method.bins)
        said.append(f"{method.name}: says {confidence}, right {accuracy}")
    columns = _stacked(parts)
    columns["radius"] = 3 + 8 * np.sqrt(columns["count"] / columns["count"].max())
    band = replace(_BAND, only=("when", _WHEN[len(shown) - 1]))
    view = replace(_BEFORE_AFTER, marks=(band, *_BEFORE_AFTER.marks))
    title = " and ".join(method.name for method in shown)
    return [Spec(view, columns, summary=f"{'; '.join(said)}.", title=title)]


def _first_and_last(methods: Methods) -> Methods:
    return methods if len(methods) == 1 else [methods[0], methods[-1]]


def _stacked(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the columns of several parts, one part below the other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


_BEFORE_AFTER = replace(
    _BINS,
    x=Axis("what the model says", 0.0, 1.0),
    y=Axis("how often it is right", 0.0, 1.0),
    marks=(
        diagonal("calibrated"),
        Mark("words", "words", (0.03, 0.95, "underconfident", "start")),
        Mark("words", "words", (0.97, 0.04, "overconfident", "end")),
        Mark("dots", "before", ("confidence", "accuracy", "radius"), "before calibration", ("when", "before")),
        Mark("dots", "after", ("confidence", "accuracy", "radius"), "after calibration", ("when", "after")),
    ),
    table=("method", *_BINS.table),
    nearest=(1.0, 1.0),
)


def _ks(methods: Methods) -> list[Spec]:
    return [replace(cumulative_spec(method.ks), title=method.title) for method in methods]


def cumulative_spec(found: curves.KsCurves) -> Spec:
    """Describe cumulative score and hits against the fraction of rows, with a bar at the KS error; the gap is below."""
    gap = gap_spec(found)
    strip = replace(gap, view=replace(_GAP, y=Axis("gap"), height=0.3))
    return replace(gap, view=_CUMULATIVE, strip=strip)


def gap_spec(found: curves.KsCurves) -> Spec:
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
        Mark("boxes", "band", (0.0, "minus_bound", 1.0, "bound"), _BAND.label),
        Mark("segments", "ideal", (0.0, 0.0, 1.0, 0.0)),
        Mark("line", "observed", ("fractile", "difference")),
        Mark("segments", "largest", ("at", 0.0, "at", "largest"), "KS error"),
    ),
    ("fractile", "difference"),
    ("fractile", "cumulative_score", "cumulative_hits", "difference"),
)
_CUMULATIVE = replace(
    _GAP,
    y=Axis("cumulative", 0.0),
    marks=(
        Mark("line", "predicted", ("fractile", "cumulative_score"), "predicted"),
        Mark("line", "observed", ("fractile", "cumulative_hits"), "observed"),
        Mark("segments", "largest", ("at", "score_at", "at", "hits_at"), "KS error"),
    ),
    point=("fractile", "cumulative_hits"),
)


def _matrices(methods: Methods) -> list[Spec]:
    return [replace(_matrix(method), title=method.name) for method in methods]


def _matrix(method: MethodCurves, most: int = 30, most_with_numbers: int = 10) -> Spec:
    """Describe over- and under-prediction by class; gaps within two standard deviations are left blank.

    The classes that are predicted most are shown: smaller cells are hard to point at.
    """
    found = method.matrix
    classes = np.sort(np.argsort(-found.predicted, kind="stable")[:most])
    square = np.ix_(classes, classes)
    row, column = np.nonzero(np.isfinite(found.gap[square]))
    gap = found.gap[square][row, column]
    deviations = np.abs(gap) / found.deviation[square][row, column]
    shown = np.where(deviations <= 2, 0.0, gap)
    count = found.predicted[classes][row]
    columns: dict[str, Any] = {"row": row, "column": column, "gap": gap, "strength": _strength(shown)}
    columns |= {"deviations": deviations, "count": count}
    names = _names_of(method, classes.tolist())
    view = replace(_MATRIX, x=names_on_axis(names, "label"), y=names_on_axis(names, "predicted class"))
    if len(classes) <= most_with_numbers:
        columns["number"] = [signed(round(100 * value)) if abs(value) >= 0.005 else "" for value in shown]
        view = replace(view, marks=(*view.marks, Mark("words", "words", ("column", "row", "number", "middle"))))
    worst = int(np.abs(gap).argmax())
    direction = "high" if gap[worst] > 0 else "low"
    summary = (
        f"Largest: where {names[row[worst]]} is predicted ({plural(count[worst], 'row')}), the probability of "
        f"{names[column[worst]]} is {100 * abs(gap[worst]):.1f} points too {direction}."
    )
    if len(classes) < len(found.predicted):
        summary = f"{len(classes)} of {len(found.predicted):,} classes, those predicted most often. {summary}"
    return Spec(view, columns, summary=summary, strip=_COLOUR_SCALE)


def _names_of(method: MethodCurves, classes: Sequence[int]) -> list[str]:
    names = method.class_names or check_rows(method.read()).class_names
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
    return [_forest([between.between(metric, one.name, first.name) for one in others]) for metric in metrics]


def _forest(differences: Sequence[Difference]) -> Spec:
    """Describe differences in one metric from the same method; the better methods are on the left."""
    metric = METRICS[differences[0].metric]
    intervals = [found.interval for found in differences]
    columns: dict[str, Any] = {
        "method": [found.method for found in differences],
        "place": np.arange(len(differences)),
        "value": np.array([interval.value for interval in intervals]),
        "end": np.array([interval.low for interval in intervals]),
        "other": np.array([interval.high for interval in intervals]),
        "change": [typeset(metric.format_difference(interval.value)) for interval in intervals],
        "interval": [typeset(from_to(metric.format_difference, interval)) for interval in intervals],
        "p": [p_text(found.p_value) for found in differences],
        "significant": [significance(found.significant) for found in differences],
    }
    x = Axis(metric.short_label, unit="number", turned=metric.better == "higher")
    if metric.unit == "percent":
        x = replace(x, label=f"{metric.short_label}, points", unit="points")
    n_significant = sum(found.significant for found in differences)
    summary = f"Significant differences: {n_significant} of {len(differences)}."
    title = f"{metric.short_label}, method minus {differences[0].against}"
    return Spec(_listed(_FOREST, columns["method"], x), columns, summary=summary, title=title)


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


def _class_gaps(methods: Methods, most: int = 15) -> list[Spec]:
    """Describe confidence minus accuracy by predicted class, for the first and the last method; the worst first."""
    shown = _first_and_last(methods)
    gaps = [method.predicted for method in shown]
    # By the near ends of the intervals, and among classes that may be right by the gap itself.
    worth = sum(found.certain + 1e-6 * np.nan_to_num(np.abs(found.gap)) for found in gaps)
    order = np.argsort(-np.asarray(worth), kind="stable")
    known = np.any([found.count > 0 for found in gaps], axis=0)
    classes = order[known[order]][:most]
    names = _names_of(shown[0], classes.tolist())
    parts = []
    for method, when, beside in zip(shown, _WHEN, (-0.16, 0.16), strict=False):
        n_lines = len(classes)
        words = [significance(bool(significant)) for significant in method.predicted.significant[classes]]
        part: dict[str, Any] = {name: values[classes] for name, values in columns_of(method.predicted).items()}
        part |= {"class": names, "method": [method.name] * n_lines, "place": np.arange(n_lines) + beside}
        part |= {"when": [when] * n_lines, "significant": words, "look": [f"{when} {word}" for word in words]}
        parts.append(part)
    columns = _stacked(parts)
    predicted = columns["count"] > 0
    columns = {name: values[predicted] for name, values in columns.items()}
    view = _listed(_CLASS_GAPS, names, Axis("confidence minus accuracy, points", unit="points"))
    off = [f"{method.name} {len(method.predicted.off) or 'none'}" for method in shown]
    summary = f"Classes significantly off: {', '.join(off)}."
    return [Spec(view, columns, summary=summary, title=f"{len(classes)} of {plural(len(known), 'class')}")]


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

FIGURES: dict[str, FigureKind] = {
    "before-after": FigureKind(
        "Before and after",
        "Each dot is a group of predictions: what the model says, and how often it is right. Larger dots are more "
        "rows; groups of too few rows to tell are left out.",
        _before_after,
    ),
    "class-gaps": FigureKind(
        "Classes with the largest gaps",
        "For the rows predicted as each class: mean confidence minus accuracy, with 95 % intervals. The order is by "
        "the near end of the interval: how far a class is off for certain.",
        _class_gaps,
        needs_classes=True,
    ),
    "classes": FigureKind(
        "Over- and under-prediction by class",
        "For rows with the predicted class on the left: how much the mean probability of the class below exceeds its "
        "frequency. Cells within two standard deviations are left blank.",
        _matrices,
        needs_classes=True,
    ),
    "differences": FigureKind(
        "Differences between methods",
        "Each method compared with another on the same rows, with 95 % intervals: better on the left, worse on the "
        "right.",
        _forests,
        least=2,
    ),
    "reliability": FigureKind(
        "Reliability diagram",
        "Observed frequency against predicted probability. A calibrated model lies on the diagonal; points below it "
        "show overconfidence. Points outside the shaded band are significant.",
        _reliability,
        by_event=True,
    ),
    "ks": FigureKind(
        "KS: cumulative curves",
        "Rows are sorted from the lowest to the highest probability. The KS error is the largest gap between the "
        "cumulative predicted and observed curves.",
        _ks,
        by_event=True,
    ),
}
