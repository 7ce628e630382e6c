"""Reliability curves -> Axes: accuracy against confidence, the band of a calibrated model, and row counts."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from glayers.arrays import Bools, Floats
from glayers.metrics.old import corp, ece_of, smooth_ece_of
from glayers.metrics.old.bins import Binning
from glayers.report.curves import (
    CorpReliability,
    Reliability,
    SmoothReliability,
    corp_reliability,
    event_name,
    event_scores,
    reliability,
    smooth_reliability,
)
from glayers.report.plots.style import (
    LIGHT,
    Methods,
    Palette,
    Panel,
    check_choice,
    check_methods,
    dress,
    side_by_side,
)

ReliabilityKind: TypeAlias = Literal["equal_width", "equal_mass", "smooth", "corp"]


def reliability_figure(
    methods: Methods,
    labels: object,
    weights: object = None,
    *,
    dark: bool = False,
    kind: ReliabilityKind = "equal_width",
    n_bins: int = 15,
    rank: int | None = None,
    within: int | None = None,
    class_: int | None = None,
) -> Figure:
    """Reliability diagrams of the top class or of another event, with the number of rows below each."""
    check_methods(methods)
    check_choice(kind, _KINDS, "kind")

    def draw(panel: Panel, probabilities: object, palette: Palette) -> str:
        scores, hits = event_scores(probabilities, labels, rank=rank, within=within, class_=class_)
        draw_counts(panel.strip, reliability(scores, hits, weights, n_bins=n_bins), palette=palette)
        return _KINDS[kind](panel.main, scores, hits, weights, n_bins, palette)

    words = event_name(rank=rank, within=within, class_=class_)
    named = {(name if words == "top class" else f"{name}, {words}"): given for name, given in methods.items()}
    return side_by_side(list(named.items()), draw, dark=dark, strip=True)


def draw_reliability(axes: Axes, found: Reliability, *, palette: Palette = LIGHT) -> Axes:
    """Draw one bar for every bin that holds a row, its band, and its means: a diamond where they leave the band."""
    bins: dict[str, Any] = {"x": found.low, "width": found.high - found.low, "align": "edge"}
    edges = {"edgecolor": palette.background, "linewidth": 0.8}
    axes.bar(**bins, height=found.accuracy, color=palette.truth, alpha=0.35, label="accuracy per bin", **edges)
    axes.bar(**bins, height=found.band_high - found.band_low, bottom=found.band_low, **palette.shade(found.level))
    inside = (found.band_low <= found.accuracy) & (found.accuracy <= found.band_high)
    for chosen, marker, label in ((inside, "o", "within the band"), (~inside, "D", "outside the band")):
        if not chosen.any():
            continue
        (points,) = axes.plot(
            found.confidence[chosen],
            found.accuracy[chosen],
            marker,
            color=palette.truth,
            markeredgecolor=palette.ink if marker == "D" else palette.background,
            markeredgewidth=0.8,
            markersize=6.5 if marker == "D" else 5.5,
            label=label,
            zorder=4,
            clip_on=False,
        )
        points.set_in_layout(False)  # a marker may cross the edge; no room is made for it
    return _unit_square(axes, palette)


def draw_smooth_reliability(axes: Axes, found: SmoothReliability, *, palette: Palette = LIGHT) -> Axes:
    """Draw kernel-smoothed accuracy with the band of a calibrated model; the line is thin where rows are few."""
    axes.fill_between(found.x, found.low, found.high, **palette.shade(found.level))
    axes.plot(found.x, found.accuracy, color=palette.truth, linewidth=1.4, label="accuracy, smoothed")
    thick = np.where(found.density >= np.quantile(found.density, 0.5), found.accuracy, np.nan)
    axes.plot(found.x, thick, color=palette.truth, linewidth=3.2, solid_capstyle="round")
    return _unit_square(axes, palette)


def draw_corp_reliability(axes: Axes, found: CorpReliability, *, palette: Palette = LIGHT) -> Axes:
    """Draw the isotonic accuracy with the band of a calibrated model."""
    axes.fill_between(found.x, found.low, found.high, **palette.shade(found.level))
    axes.plot(found.x, found.accuracy, color=palette.truth, linewidth=2.2, label="accuracy, isotonic")
    return _unit_square(axes, palette)


def draw_counts(axes: Axes, found: Reliability, *, palette: Palette = LIGHT) -> Axes:
    """Draw the number of rows per bin on a logarithmic scale."""
    axes.bar(found.low, found.count, found.high - found.low, align="edge", color=palette.band, linewidth=0.8)
    axes.set_yscale("log")
    axes.set_ylim(min(0.5, float(found.count.min()) / 2), float(found.count.max()) * 3)
    axes.yaxis.set_major_locator(LogLocator(base=10.0, numticks=3))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    axes.set_xlim(0, 1)
    return dress(axes, palette, x="confidence, %", y="rows", percent_axes="x")


def short_count(value: float) -> str:
    """Return a number of rows in about four characters.

    >>> [short_count(n) for n in (7, 250, 10_000, 2_500_000)]
    ['7', '250', '10k', '2.5M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _unit_square(axes: Axes, palette: Palette) -> Axes:
    """Draw the diagonal on axes from 0 to 100 %."""
    axes.plot([0, 1], [0, 1], color=palette.score, linestyle="--", linewidth=1.4, label="calibrated", zorder=3)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    return dress(axes, palette, x="confidence, %", y="accuracy, %", percent_axes="xy")


def _draw_bins(
    axes: Axes, scores: Floats, hits: Bools, weights: object, n_bins: int, palette: Palette, *, binning: Binning
) -> str:
    draw_reliability(axes, reliability(scores, hits, weights, n_bins=n_bins, binning=binning), palette=palette)
    return f"ECE {100 * ece_of(scores, hits, weights, n_bins, binning):.2f} %"


def _draw_smooth(axes: Axes, scores: Floats, hits: Bools, weights: object, _: int, palette: Palette) -> str:
    draw_smooth_reliability(axes, smooth_reliability(scores, hits, weights), palette=palette)
    return f"smooth ECE {100 * smooth_ece_of(scores, hits, weights):.2f} %"


def _draw_corp(axes: Axes, scores: Floats, hits: Bools, weights: object, _: int, palette: Palette) -> str:
    draw_corp_reliability(axes, corp_reliability(scores, hits, weights), palette=palette)
    return f"miscalibration {corp(scores, hits, weights).miscalibration:.4f}"


_KINDS: dict[str, Callable[[Axes, Floats, Bools, object, int, Palette], str]] = {
    "equal_width": partial(_draw_bins, binning="equal_width"),
    "equal_mass": partial(_draw_bins, binning="equal_mass"),
    "smooth": _draw_smooth,
    "corp": _draw_corp,
}
