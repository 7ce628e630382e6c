"""Curves -> specs: every figure once, for matplotlib and for the page.

`EVENT_FIGURES` lists the figures of one event. An entry there is all that the page and `glayers plot` need.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from glayers.arrays import Floats, Ints
from glayers.checks import items_of
from glayers.errors import BadPredictions
from glayers.metrics import METRICS, Difference, Event, top
from glayers.metrics.binned import Binning
from glayers.metrics.events import Scored
from glayers.report.curves import (
    CalibrationMap,
    ClassMatrix,
    KsCurves,
    PredictedGaps,
    Reliability,
    ReliabilityCurve,
    corp_reliability,
    ks_curves,
    reliability,
    smooth_reliability,
)
from glayers.report.spec import Axis, Mark, Spec, View, columns_of, diagonal, names_on_axis
from glayers.report.words import outcome_of, p_text, percent, plural, shortened, signed, significance, typeset

__all__ = [
    "calibration_map_spec",
    "class_matrix_spec",
    "counts_spec",
    "cumulative_spec",
    "forest_spec",
    "fractile_spec",
    "gap_spec",
    "reliability_curve_spec",
    "reliability_spec",
    "score_spec",
    "strongest_gap",
]

CALIBRATED = "95 % of calibrated models"
_PROBABILITY = Axis("predicted probability", 0.0, 1.0)
_FREQUENCY = Axis("observed frequency", 0.0, 1.0)
_FRACTION = Axis("fraction of rows", 0.0, 1.0)
_WIDEST_BAND = 0.5  # a bin of so few rows that a calibrated model could show almost any frequency tells nothing
_FEWEST_ROWS = 5  # fewer give no reliable median
_CHANCE = 2.0  # standard deviations: a smaller gap of two classes is left blank
_SOFT = 0.01  # a gap up to one point is drawn in proportion, a larger one by its logarithm
_SCALE = (-0.3, -0.1, -0.03, -0.01, 0.0, 0.01, 0.03, 0.1, 0.3)  # gaps on the scale of colours
_FEW_NUMBERS = 10  # classes: in smaller cells numbers have no room
_LONGEST_NAME = 24  # letters beside an axis
_WHEN = ("before", "after")
_BESIDE = {"before": -0.16, "after": 0.16}  # of a line, so that the two stand apart


def reliability_spec(found: Reliability) -> Spec:
    """Describe a binned reliability diagram.

    Parameters
    ----------
    found
        What `reliability` returned.

    Returns
    -------
    Spec
        A bar for every bin that holds a row, its band, and its means: a diamond where they leave the band.

    Examples
    --------
    >>> from glayers import Confidences
    >>> reliability_spec(reliability(Confidences([0.9, 0.6, 0.8], [True, False, True]), n_bins=5)).note
    'ECE 30.00 %'
    """
    outside = found.outside
    error = found.count @ np.abs(found.confidence - found.accuracy) / found.count.sum()
    means = [percent(found.count @ values / found.count.sum()) for values in (found.confidence, found.accuracy)]
    summary = (
        f"Mean prediction {means[0]}, observed {means[1]}; outside the band: {outside.sum()} of {len(outside)} bins."
    )
    return Spec(_BINS, _bin_columns(found), f"ECE {METRICS['ece'].format(error)}", summary)


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


def counts_spec(found: Reliability) -> Spec:
    """Describe the number of rows per bin, on a logarithmic scale.

    Parameters
    ----------
    found
        What `reliability` returned.

    Returns
    -------
    Spec
        A strip to go below a reliability diagram.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = reliability(Confidences([0.9, 0.6, 0.8], [True, False, True]), n_bins=5)
    >>> counts_spec(found).columns["count"].tolist()
    [1.0, 1.0, 1.0]
    """
    return Spec(_COUNTS, _bin_columns(found))


_COUNTS = View(
    _PROBABILITY,
    Axis("rows", 0.5, unit="rows", log=True),
    (Mark("boxes", "rows", ("low", 0.5, "high", "count")),),
    height=0.3,
)


def _bin_columns(found: Reliability) -> dict[str, Any]:
    return columns_of(found) | {"where": np.where(found.outside, "out", "in")}


def reliability_curve_spec(found: ReliabilityCurve) -> Spec:
    """Describe a smoothed or isotonic reliability diagram.

    Parameters
    ----------
    found
        What `smooth_reliability` or `corp_reliability` returned.

    Returns
    -------
    Spec
        The curve and its band; a smoothed curve is thin where rows are few.

    Examples
    --------
    >>> from glayers import Confidences
    >>> reliability_curve_spec(corp_reliability(Confidences([0.9, 0.6, 0.8], [True, False, True]))).note
    'miscalibration 0.1367'
    """
    outside = np.mean((found.accuracy < found.low) | (found.accuracy > found.high))
    summary = f"{percent(float(outside))} of the curve lies outside the band."
    columns = columns_of(found)
    density = columns.pop("density", None)
    if density is None:
        return Spec(_CURVE, columns, f"miscalibration {found.error:.4f}", summary)
    columns["dense"] = np.where(density >= np.median(density), found.accuracy, np.nan)
    return Spec(_SMOOTH_CURVE, columns, f"smooth ECE {METRICS['smooth_ece'].format(found.error)}", summary)


_CURVE = View(
    _PROBABILITY,
    _FREQUENCY,
    (
        Mark("band", "band", ("x", "low", "high"), CALIBRATED),
        diagonal("calibrated"),
        Mark("line", "observed", ("x", "accuracy"), "observed"),
    ),
    ("x", "accuracy"),
    ("x", "accuracy", "low", "high"),
    height=1.0,
)
_SMOOTH_CURVE = replace(
    _CURVE,
    marks=(
        *_CURVE.marks[:2],
        Mark("line", "observed", ("x", "dense"), "observed"),
        Mark("line", "observed thin", ("x", "accuracy"), "observed, few rows"),
    ),
)


def cumulative_spec(found: KsCurves) -> Spec:
    """Describe cumulative score and cumulative hits against the fraction of rows, with a bar at the KS error.

    Parameters
    ----------
    found
        What `ks_curves` returned.

    Returns
    -------
    Spec
        Both curves, with the band of a calibrated model.

    Examples
    --------
    >>> from glayers import Confidences
    >>> cumulative_spec(ks_curves(Confidences([0.9, 0.6, 0.8], [True, False, True]))).view.y.label
    'cumulative probability'
    """
    return Spec(_CUMULATIVE, _ks_columns(found), _ks_note(found), _ks_summary(found))


def gap_spec(found: KsCurves) -> Spec:
    """Describe cumulative score minus cumulative hits; a calibrated model stays within the band.

    Parameters
    ----------
    found
        What `ks_curves` returned.

    Returns
    -------
    Spec
        The gap against the fraction of rows.

    Examples
    --------
    >>> from glayers import Confidences
    >>> gap_spec(ks_curves(Confidences([0.9, 0.6, 0.8], [True, False, True]))).view.y.label
    'predicted minus observed'
    """
    return Spec(_GAP, _ks_columns(found), _ks_note(found), _ks_summary(found))


def fractile_spec(found: KsCurves) -> Spec:
    """Describe score and spline-smoothed probability against the fraction of rows.

    Parameters
    ----------
    found
        What `ks_curves` returned.

    Returns
    -------
    Spec
        The slopes of the cumulative curves.

    Examples
    --------
    >>> from glayers import Confidences
    >>> fractile_spec(ks_curves(Confidences([0.9, 0.6, 0.8], [True, False, True]))).view.x.label
    'fraction of rows'
    """
    return Spec(_FRACTILE, _ks_columns(found), _ks_note(found), _slope_summary(found))


def score_spec(found: KsCurves) -> Spec:
    """Describe spline-smoothed probability against score.

    Parameters
    ----------
    found
        What `ks_curves` returned.

    Returns
    -------
    Spec
        The same curves as those of `fractile_spec`.

    Examples
    --------
    >>> from glayers import Confidences
    >>> score_spec(ks_curves(Confidences([0.9, 0.6, 0.8], [True, False, True]))).view.x.label
    'predicted probability'
    """
    return Spec(_SCORE, _ks_columns(found), _ks_note(found), _slope_summary(found))


_CUMULATIVE = View(
    _FRACTION,
    Axis("cumulative probability", 0.0),
    (
        Mark("band", "band", ("fractile", "band_low", "band_high"), CALIBRATED),
        Mark("line", "predicted", ("fractile", "cumulative_score"), "predicted"),
        Mark("line", "observed", ("fractile", "cumulative_hits"), "observed"),
        Mark("segments", "largest", ("at", "score_at", "at", "hits_at"), "KS error"),
    ),
    ("fractile", "cumulative_hits"),
    ("fractile", "cumulative_score", "cumulative_hits", "difference"),
    derived=(
        ("difference", "cumulative_score", -1.0, "cumulative_hits"),
        ("largest", "score_at", -1.0, "hits_at"),
        ("band_low", "cumulative_score", -1.0, "bound"),
        ("band_high", "cumulative_score", 1.0, "bound"),
    ),
)
_GAP = replace(
    _CUMULATIVE,
    y=Axis("predicted minus observed"),
    marks=(
        Mark("boxes", "band", (0.0, "minus_bound", 1.0, "bound"), CALIBRATED),
        Mark("segments", "ideal", (0.0, 0.0, 1.0, 0.0)),
        Mark("line", "observed", ("fractile", "difference"), "predicted minus observed"),
        Mark("segments", "largest", ("at", 0.0, "at", "largest"), "KS error"),
    ),
    point=("fractile", "difference"),
)
_GAP_STRIP = replace(_GAP, y=Axis("gap"), marks=tuple(replace(mark, label="") for mark in _GAP.marks), height=0.3)
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
_SCORE = replace(
    _FRACTILE,
    x=Axis("predicted probability", 0.0),
    marks=(
        Mark("band", "difference", ("score", "score", "hit_rate")),
        Mark("line", "predicted", ("score", "score"), "predicted"),
        Mark("line", "observed", ("score", "hit_rate"), "observed, smoothed"),
    ),
    point=("score", "hit_rate"),
)


def _ks_columns(found: KsCurves) -> dict[str, Any]:
    """Return the curves, the bound of a calibrated model, and the ends of the largest gap."""
    at = slice(found.where, found.where + 1)
    return columns_of(found) | {
        "bound": np.array([found.test.bound]),
        "minus_bound": np.array([-found.test.bound]),
        "at": found.fractile[at],
        "score_at": found.cumulative_score[at],
        "hits_at": found.cumulative_hits[at],
    }


def _ks_note(found: KsCurves) -> str:
    value, bound = (METRICS["ks"].format(number) for number in (found.test.value, found.test.bound))
    outcome = outcome_of(found.test)
    if not outcome.decided:
        return f"KS {value}\n{outcome.word}"
    return f"KS {value}\ncalibrated ≤ {bound}"


def _ks_summary(found: KsCurves) -> str:
    test = found.test
    outcome = outcome_of(test)
    if not outcome.decided:
        return f"KS {percent(test.value)}: {outcome.word} whether this is sampling error."
    others = f"a calibrated model stays below {percent(test.bound)} in {100 * test.level:g} % of samples"
    return f"KS {percent(test.value)}, {p_text(test.p_value)}; {others}."


def _slope_summary(found: KsCurves) -> str:
    widest = np.abs(found.score - found.hit_rate).argmax()
    place = f"at {percent(found.fractile[widest])} of the rows"
    predicted, observed = percent(found.score[widest]), percent(found.hit_rate[widest])
    return f"Largest difference {place}: predicted {predicted}, observed about {observed}."


def calibration_map_spec(top_class: CalibrationMap, classes: Sequence[CalibrationMap] = ()) -> Spec:
    """Describe how calibration changes probabilities.

    Parameters
    ----------
    top_class, classes
        What `calibration_map` returned for the top class, and for each class if its line is wanted too.

    Returns
    -------
    Spec
        The median after calibration, with the middle 80 % of rows.

    Examples
    --------
    >>> from glayers.report.curves import calibration_map
    >>> p = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2]])
    >>> calibration_map_spec(calibration_map(p, (p + 1) / 4)).summary
    'Largest change: 70.00 % becomes 42.50 %.'
    """
    found = top_class
    columns = columns_of(found)
    widest = np.abs(found.after - found.before).argmax()
    summary = f"Largest change: {percent(found.before[widest])} becomes {percent(found.after[widest])}."
    lines = []
    for place, one in enumerate(classes):
        enough = one.count >= _FEWEST_ROWS
        columns |= {f"x {place}": one.before[enough], f"y {place}": one.after[enough]}
        lines.append(Mark("line", "class", (f"x {place}", f"y {place}"), "each class"))
    return Spec(replace(_MAP, marks=(*lines, *_MAP.marks)), columns, summary=summary)


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


def strongest_gap(matrices: Sequence[ClassMatrix]) -> float:
    """Return the largest gap beyond chance of several matrices, for one scale of colours.

    Parameters
    ----------
    matrices
        What `class_matrix` returned for each method.

    Returns
    -------
    float
        At least 0.02.

    Examples
    --------
    >>> from glayers.report.curves import class_matrix
    >>> strongest_gap([class_matrix([[0.7, 0.3], [0.4, 0.6]], [0, 1])])
    0.02
    """
    return max(2 * _SOFT, *(float(np.nanmax(np.abs(found.beyond(_CHANCE)), initial=0.0)) for found in matrices))


def class_matrix_spec(
    found: ClassMatrix, names: Sequence[str] | None = None, *, strongest: float | None = None
) -> Spec:
    """Describe over- and under-prediction by class; gaps within two standard deviations are left blank.

    Parameters
    ----------
    found
        What `class_matrix` returned.
    names
        The names of the classes.
    strongest
        The gap with the strongest colour; by default the largest of this matrix.

    Returns
    -------
    Spec
        One cell for every two classes, and the scale of colours as a strip.

    Examples
    --------
    >>> from glayers.report.curves import class_matrix
    >>> class_matrix_spec(class_matrix([[0.7, 0.3], [0.4, 0.6]], [0, 1]), ["cat", "dog"]).view.y.names
    ('cat', 'dog')
    """
    n_classes = len(found.predicted)
    if names is not None and len(items_of(names) or ()) != n_classes:
        raise BadPredictions(f"names must be one per class, {n_classes} of them; got {len(items_of(names) or ())}")
    labels = [shortened(name, _LONGEST_NAME) for name in names or map(str, range(n_classes))]
    reach = strongest_gap([found]) if strongest is None else strongest
    row, column = np.nonzero(np.isfinite(found.gap))
    gap = found.gap[row, column]
    shown = found.beyond(_CHANCE)[row, column]
    columns: dict[str, Any] = {"row": row, "column": column, "gap": gap, "strength": _strength(shown, reach)}
    columns |= {"deviations": np.abs(gap) / found.deviation[row, column], "count": found.predicted[row]}
    view = replace(_MATRIX, x=names_on_axis(labels, "label"), y=names_on_axis(labels, "predicted class"))
    if n_classes <= _FEW_NUMBERS:
        columns["number"] = [signed(round(100 * value)) if abs(value) >= 0.005 else "" for value in shown]
        view = replace(view, marks=(*view.marks, Mark("words", "number", ("column", "row", "number", "middle"))))
    return Spec(view, columns, summary=_matrix_summary(found, labels), strip=_colour_scale(reach))


_MATRIX = View(
    Axis(),
    Axis(),
    (Mark("cells", "cell", ("column", "row", "strength")),),
    ("column", "row"),
    ("row", "column", "gap", "deviations", "count"),
    nearest=(1.0, 1.0),
    height=1.0,
)


def _strength(gap: Floats, strongest: float) -> Floats:
    """Return colours from -1 to 1: in proportion to small gaps, and to the logarithm of large ones."""
    scaled = np.log1p(np.abs(gap) / _SOFT) / np.log1p(strongest / _SOFT)
    return np.sign(gap) * np.clip(scaled, 0.0, 1.0)


def _colour_scale(strongest: float) -> Spec:
    """Return the scale of the colours of a matrix: gaps in points."""
    steps = np.array([step for step in _SCALE if abs(step) <= strongest])
    columns = {"place": np.arange(len(steps)), "strength": _strength(steps, strongest)}
    x = names_on_axis([signed(100 * step) for step in steps], "points too low or too high")
    return Spec(View(x, names_on_axis([""]), (Mark("cells", "cell", ("place", 0, "strength")),), height=0.06), columns)


def _matrix_summary(found: ClassMatrix, names: Sequence[str]) -> str:
    row, column = divmod(int(np.nanargmax(np.abs(found.gap))), len(names))
    direction = "high" if found.gap[row, column] > 0 else "low"
    where = f"{names[row]} is predicted ({plural(found.predicted[row], 'row')})"
    return (
        f"Largest: where {where}, the probability of {names[column]} is "
        f"{100 * abs(found.gap[row, column]):.1f} points too {direction}."
    )


def forest_spec(differences: Sequence[Difference]) -> Spec:
    """Describe differences in one metric with their intervals, the first at the top.

    Parameters
    ----------
    differences
        As `paired_differences` returns them, all in the same metric and from the same method.

    Returns
    -------
    Spec
        One line per method, filled where significant; better methods are on the left.

    Examples
    --------
    >>> from glayers.metrics import paired_differences
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]] * 5
    >>> q = [[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]] * 5
    >>> found = paired_differences({"p": p, "q": q}, [0, 1, 0] * 5, metrics=["nll"], n_resamples=99)
    >>> forest_spec(found.differences).view.x.label
    'NLL'
    """
    metric = METRICS[differences[0].metric]
    lines = []
    for place, found in enumerate(differences):
        change, low, high = (typeset(metric.format_difference(number)) for number in found.interval[:3])
        line: dict[str, Any] = {"place": place, "value": found.interval.value}
        line |= {"end": found.interval.low, "other": found.interval.high}
        line |= {"method": found.method, "change": change, "interval": f"{low} to {high}", "p": p_text(found.p_value)}
        lines.append(line | {"significant": significance(found.significant)})
    names = [shortened(found.method, _LONGEST_NAME) for found in differences]
    x = Axis(metric.short_label, unit="number", turned=metric.better == "higher")
    if metric.unit == "percent":
        x = replace(x, label=f"{metric.short_label}, points", unit="points")
    sure = sum(found.significant for found in differences)
    summary = f"Significant differences: {sure} of {len(names)}."
    return Spec(_listed(_FOREST, names, x), _transposed(lines), summary=summary)


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


def before_after_spec(bins: dict[str, Reliability]) -> Spec:
    """Describe the reliability of one method, or of two: before and after calibration."""
    telling = [_telling(found) for found in bins.values()]
    most = max(found.count.max() for found in telling)
    parts = []
    for method, when, found in zip(bins, _WHEN, telling, strict=False):
        same = {"method": [method] * len(found.count), "when": [when] * len(found.count)}
        parts.append(columns_of(found) | same | {"radius": 3 + 8 * np.sqrt(found.count / most)})
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    band = replace(_BINS.marks[1], only=("when", _WHEN[len(bins) - 1]))
    view = replace(_BEFORE_AFTER, marks=(band, *_BEFORE_AFTER.marks))
    return Spec(view, columns, title=" and ".join(bins))


def _telling(found: Reliability) -> Reliability:
    """Return the bins with enough rows to tell something, or all if there are none."""
    telling = found.band_high - found.band_low <= _WIDEST_BAND
    if not telling.any():
        return found
    return replace(found, **{name: values[telling] for name, values in columns_of(found).items()})


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


def class_gaps_spec(methods: dict[str, PredictedGaps], classes: Ints, names: Sequence[str], level: float) -> Spec:
    """Describe confidence minus accuracy where each class is predicted, of one method or before and after."""
    lines = []
    for when, (method, gaps) in zip(_WHEN, methods.items(), strict=False):
        beside = _BESIDE[when] if len(methods) > 1 else 0.0
        for place, c in enumerate(classes.tolist()):
            sure = bool(gaps.p_value[c] <= 1 - level)
            line = {"class": names[c], "method": method, "place": place + beside, "when": when}
            line |= {"gap": gaps.gap[c], "gap_low": gaps.low[c], "gap_high": gaps.high[c], "count": gaps.rows[c]}
            line |= {"confidence": gaps.confidence[c], "accuracy": gaps.accuracy[c], "significant": significance(sure)}
            if np.isfinite(gaps.gap[c]):
                lines.append(line | {"look": f"{when} {line['significant']}"})
    x = Axis("← underconfident, points, overconfident →", unit="points")
    return Spec(_listed(_CLASS_GAPS, [shortened(names[c], _LONGEST_NAME) for c in classes], x), _transposed(lines))


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


def _listed(view: View, names: Sequence[str], x: Axis) -> View:
    """Return a view with one line per name, and a line at zero."""
    zero = Mark("segments", "ideal", (0.0, -0.5, 0.0, len(names) - 0.5))
    return replace(view, x=x, y=names_on_axis(names), marks=(zero, *view.marks))


def _transposed(lines: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: np.array([line[name] for line in lines]) for name in lines[0]}


@dataclass(frozen=True, eq=False)
class EventCurves:
    """The curves of one event, each computed when a figure first asks for it."""

    scored: Scored
    n_bins: int = 15
    level: float = 0.95
    n_resamples: int = 1000
    points: int = 201
    random_state: int = 0

    @cached_property
    def ks(self) -> KsCurves:
        """The KS curves."""
        return ks_curves(self.scored, points=self.points, level=self.level, random_state=self.random_state)

    @cached_property
    def equal_width(self) -> Reliability:
        """The reliability in bins of equal width."""
        return self.bins("equal_width")

    def bins(self, binning: Binning) -> Reliability:
        """Return the binned reliability."""
        draws: Any = {"level": self.level, "n_resamples": self.n_resamples, "random_state": self.random_state}
        return reliability(self.scored, n_bins=self.n_bins, binning=binning, **draws)

    def with_counts(self, spec: Spec) -> Spec:
        """Return a spec with the number of rows per bin as its strip."""
        return replace(spec, strip=counts_spec(self.equal_width))

    def with_gap(self, spec: Spec) -> Spec:
        """Return a spec of the KS curves with their gap as its strip."""
        return replace(spec, strip=Spec(_GAP_STRIP, spec.columns))


class Choice(NamedTuple):
    """One way to draw a figure: its name in the menu, its spec, and for which events the page offers it."""

    label: str
    spec: Callable[[EventCurves], Spec]
    offered: Callable[[Event], bool] = lambda _: True


class EventFigure(NamedTuple):
    """A figure of one event: its heading, how to read it, the name of its menu, and the ways to draw it.

    A way to draw is known by its name, on the page and on paper.
    """

    title: str
    caption: str
    menu: str
    choices: dict[str, Choice]


def _equal_mass(curves: EventCurves) -> Spec:
    return curves.with_counts(reliability_spec(curves.bins("equal_mass")))


def _smooth(curves: EventCurves) -> Spec:
    return curves.with_counts(reliability_curve_spec(smooth_reliability(curves.scored, level=curves.level)))


def _corp(curves: EventCurves) -> Spec:
    found = corp_reliability(curves.scored, level=curves.level, random_state=curves.random_state)
    return curves.with_counts(reliability_curve_spec(found))


EVENT_FIGURES: dict[str, EventFigure] = {
    "reliability": EventFigure(
        "Reliability diagram",
        "Observed frequency against predicted probability. A calibrated model lies on the diagonal; points below it "
        "show overconfidence. Points outside the shaded band are significant.",
        "Drawn with",
        {
            "reliability": Choice(
                "bins of equal width", lambda curves: curves.with_counts(reliability_spec(curves.equal_width))
            ),
            "reliability-equal-mass": Choice(
                "bins with equal numbers of rows", _equal_mass, lambda event: event.kind != "class"
            ),
            "reliability-smooth": Choice("a smooth curve", _smooth, lambda event: event == top),
            "reliability-corp": Choice("isotonic regression (CORP)", _corp, lambda event: event == top),
        },
    ),
    "cumulative": EventFigure(
        "KS: cumulative curves",
        "Rows are sorted from the lowest to the highest probability. The KS error is the largest gap between the "
        "cumulative predicted and observed curves.",
        "Show",
        {
            "ks": Choice("both curves", lambda curves: curves.with_gap(cumulative_spec(curves.ks))),
            "ks-gap": Choice("their gap and its bound", lambda curves: gap_spec(curves.ks)),
        },
    ),
    "density": EventFigure(
        "KS: predicted and observed probability",
        "The slopes of the cumulative curves: the predicted probability of a row, and the observed frequency there, "
        "smoothed by a spline.",
        "Against",
        {
            "ks-fractile": Choice(
                "fraction of rows, lowest first", lambda curves: curves.with_gap(fractile_spec(curves.ks))
            ),
            "ks-score": Choice("predicted probability", lambda curves: score_spec(curves.ks)),
        },
    ),
}
EVENT_KINDS = {kind: choice for figure in EVENT_FIGURES.values() for kind, choice in figure.choices.items()}
