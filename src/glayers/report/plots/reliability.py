"""Reliability curves -> Axes: bars where there are rows and only there, the band of calibrated models, counts."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from glayers.report.curves import CorpReliability, Reliability, SmoothReliability
from glayers.report.plots.style import LIGHT, Palette, band_words, dress, percent_axis


def draw_reliability(axes: Axes, found: Reliability, *, palette: Palette = LIGHT) -> Axes:
    """Draw one bar for every bin that holds a row, its band, and its means: a diamond where they leave the band."""
    width = found.high - found.low
    axes.bar(
        found.low,
        found.accuracy,
        width,
        align="edge",
        color=palette.truth,
        alpha=0.35,
        edgecolor=palette.background,
        linewidth=0.8,
        label="right, by bin",
    )
    _band_of_bins(axes, found, palette)
    _diagonal(axes, palette)
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
    """Draw accuracy by kernel smoothing, with the band of a calibrated model; thin where rows are few."""
    _band(axes, found, palette)
    _diagonal(axes, palette)
    crowded = found.density >= np.quantile(found.density, 0.5)
    axes.plot(found.x, found.accuracy, color=palette.truth, linewidth=1.4, label="right, smoothed")
    thick = np.where(crowded, found.accuracy, np.nan)
    axes.plot(found.x, thick, color=palette.truth, linewidth=3.2, solid_capstyle="round")
    return _unit_square(axes, palette)


def draw_corp_reliability(axes: Axes, found: CorpReliability, *, palette: Palette = LIGHT) -> Axes:
    """Draw the accuracy that never falls, with the band of a calibrated model."""
    _band(axes, found, palette)
    _diagonal(axes, palette)
    axes.plot(found.x, found.accuracy, color=palette.truth, linewidth=2.2, label="right, isotonic")
    return _unit_square(axes, palette)


def draw_counts(axes: Axes, found: Reliability, *, palette: Palette = LIGHT) -> Axes:
    """Draw how many rows each bin holds, on a scale of powers of ten."""
    axes.bar(found.low, found.count, found.high - found.low, align="edge", color=palette.band, linewidth=0.8)
    axes.set_yscale("log")
    most = float(found.count.max())
    axes.set_ylim(min(0.5, float(found.count.min()) / 2), most * 3)
    axes.yaxis.set_major_locator(LogLocator(base=10.0, numticks=3))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    axes.set_xlim(0, 1)
    axes.set_xlabel("confidence, %")
    axes.set_ylabel("rows")
    dress(axes, palette)
    return percent_axis(axes, "x")


def short_count(value: float) -> str:
    """Return a number of rows in four letters or so.

    >>> [short_count(n) for n in (7, 250, 10_000, 2_500_000)]
    ['7', '250', '10k', '2.5M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _unit_square(axes: Axes, palette: Palette) -> Axes:
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("confidence, %")
    axes.set_ylabel("right, %")
    dress(axes, palette)
    percent_axis(axes, "x")
    return percent_axis(axes, "y")


def _diagonal(axes: Axes, palette: Palette) -> None:
    axes.plot([0, 1], [0, 1], color=palette.score, linestyle="--", linewidth=1.4, label="says", zorder=3)


def _band_of_bins(axes: Axes, found: Reliability, palette: Palette) -> None:
    axes.bar(
        found.low,
        found.band_high - found.band_low,
        found.high - found.low,
        bottom=found.band_low,
        align="edge",
        color=palette.band,
        alpha=0.6,
        linewidth=0,
        label=band_words(found.level),
    )


def _band(axes: Axes, found: SmoothReliability | CorpReliability, palette: Palette) -> None:
    words = band_words(found.level)
    axes.fill_between(found.x, found.low, found.high, color=palette.band, alpha=0.6, linewidth=0, label=words)
