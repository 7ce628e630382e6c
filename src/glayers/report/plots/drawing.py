"""A spec and an Axes -> the Axes with the spec's marks and axes on it: every figure is drawn here."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patheffects import AbstractPathEffect, withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from glayers.arrays import Array
from glayers.report.plots.style import LIGHT, SMALL, Palette, dress
from glayers.report.spec import Axis, Kind, Mark, Spec, Unit, View
from glayers.report.words import shortened

__all__ = ["draw"]

Values: TypeAlias = list[Array]
_MARGIN = 0.04  # of an axis, beyond the marks
_PIXELS = 1.5  # of the page per point
_NARROWEST = 0.004  # box: a bin of equal scores has no width
_MOST_NAMES = 20  # beside an axis
_LONGEST_NAME = 24  # letters
_LONGEST_OF_BOTH = 16  # where names stand along both axes
_FEW_NAMES = 8  # of more than these, so many are written
_SIDES = {"start": "left", "middle": "center", "end": "right"}


@dataclass(frozen=True)
class Look:
    """How a mark looks: its colour by its name in the palette, and its line or marker."""

    colour: str
    width: float = 1.8
    dash: str = "-"
    alpha: float = 1.0
    marker: str = "o"
    radius: float = 2.8
    edge: str = "background"
    hollow: bool = False


LOOKS: dict[str, Look] = {
    "predicted": Look("score", dash="--"),
    "predicted solid": Look("score", width=2.0),
    "observed": Look("truth", width=2.2),
    "observed thin": Look("truth", width=1.0),
    "outside": Look("truth", marker="D", edge="ink"),
    "before": Look("truth"),
    "after": Look("score"),
    "before open": Look("truth", hollow=True),
    "after open": Look("score", hollow=True),
    "before whisker": Look("truth", width=2.0, alpha=0.7),
    "after whisker": Look("score", width=2.0, alpha=0.7),
    "ideal": Look("ink", width=1.2, dash="--"),
    "band": Look("band", alpha=0.6),
    "bar": Look("truth", alpha=0.3),
    "difference": Look("truth", alpha=0.2),
    "rows": Look("band"),
    "spread": Look("score", width=4.0, alpha=0.35),
    "class": Look("truth", width=0.8, alpha=0.35),
    "largest": Look("ink", width=2.4),
    "ink": Look("ink", width=1.2),
    "group": Look("truth", width=4.0),
    "number": Look("ink"),
    "side": Look("ink"),
    "rank": Look("ink"),
    "cell": Look("ink"),
}


def draw(axes: Axes, spec: Spec, *, palette: Palette = LIGHT) -> Axes:
    """Draw a spec on an Axes; its strip, if any, is a spec of its own.

    Parameters
    ----------
    axes
        The Axes to draw on.
    spec
        What one of the `*_spec` functions returned.
    palette
        `LIGHT` or `DARK`, as `style` gives it.

    Returns
    -------
    Axes
        The same Axes.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from glayers import Confidences
    >>> from glayers.report.curves import ks_curves
    >>> from glayers.report.figures import gap_spec
    >>> found = ks_curves(Confidences([0.9, 0.6, 0.8], [True, False, True]))
    >>> draw(Figure().add_subplot(), gap_spec(found)).get_ylabel()
    'predicted minus observed'
    """
    for mark in spec.view.marks:
        values = spec.values(mark)
        if values[0].size:
            _MARKS[mark.kind](axes, values, mark, palette)
    dress(axes, palette, x=spec.view.x.label, y=spec.view.y.label, grid=not _has_cells(spec.view))
    longest = _LONGEST_NAME
    if spec.view.x.names:
        longest = _LONGEST_OF_BOTH
    _set_scale(axes.xaxis, spec.view.x, longest)
    _set_scale(axes.yaxis, spec.view.y, longest)
    if spec.view.x.names and max(map(len, spec.view.x.names)) > 3:
        axes.tick_params(axis="x", labelrotation=90)
    if spec.view.y.names:
        axes.tick_params(axis="y", length=0)
        axes.yaxis.set_inverted(True)
    if spec.view.bare:
        axes.set_axis_off()
    return axes


def _line(axes: Axes, values: Values, mark: Mark, palette: Palette) -> None:
    look = LOOKS[mark.look]
    axes.plot(*values, look.dash, label=mark.label, solid_capstyle="round", **_stroke(look, palette))


def _band(axes: Axes, values: Values, mark: Mark, palette: Palette) -> None:
    x, low, high = values
    axes.fill_between(x, low, high, label=mark.label, **_fill(LOOKS[mark.look], palette))


def _boxes(axes: Axes, values: Values, mark: Mark, palette: Palette) -> None:
    left, bottom, right, top = values
    bars: dict[str, Any] = {"bottom": bottom, "align": "edge", "label": mark.label}
    width = np.maximum(right - left, _NARROWEST)
    axes.bar(left, top - bottom, width, **bars, **_fill(LOOKS[mark.look], palette))


def _segments(axes: Axes, values: Values, mark: Mark, palette: Palette) -> None:
    look = LOOKS[mark.look]
    x, y, x_end, y_end = values
    nothing = np.full(len(x), np.nan)
    xs, ys = (np.column_stack([one, end, nothing]).ravel() for one, end in ((x, x_end), (y, y_end)))
    axes.plot(xs, ys, look.dash, label=mark.label, solid_capstyle="butt", **_stroke(look, palette))


def _dots(axes: Axes, values: Values, mark: Mark, palette: Palette) -> None:
    look = LOOKS[mark.look]
    radius = np.full(len(values[0]), look.radius)
    if len(values) == 3:
        radius = values[2] / _PIXELS
    fill = getattr(palette, look.colour)
    edge = getattr(palette, look.edge)
    if look.hollow:
        fill, edge = edge, fill
    # A marker may cross the edge of the Axes, and no room is made for it.
    place: dict[str, Any] = {"zorder": 4, "clip_on": False, "label": mark.label}
    points = axes.scatter(values[0], values[1], (2 * radius) ** 2, fill, marker=look.marker, **place)
    points.set(edgecolor=edge, linewidth=1.0)
    points.set_in_layout(False)


def _cells(axes: Axes, values: Values, mark: Mark, palette: Palette) -> None:
    column, row = (place.astype(np.int64) for place in values[:2])
    image = np.full((row.max() + 1, column.max() + 1), np.nan)
    image[row, column] = values[2]
    colours = LinearSegmentedColormap.from_list("gap", [palette.under, palette.even, palette.over])
    axes.imshow(image, colours.with_extremes(bad=palette.background), vmin=-1, vmax=1, alpha=LOOKS[mark.look].alpha)
    if len(image) == 1:
        axes.set_aspect("auto")


def _words(axes: Axes, values: Values, mark: Mark, palette: Palette) -> None:
    colour = getattr(palette, LOOKS[mark.look].colour)
    rim: list[AbstractPathEffect] = [withStroke(linewidth=2.0, foreground=palette.background)]
    for x, y, text, side in zip(*values, strict=True):
        place: dict[str, Any] = {"ha": _SIDES[side], "va": "center", "fontsize": SMALL, "color": colour}
        axes.text(x, y, text, parse_math=False, **place).set_path_effects(rim)


_MARKS: dict[Kind, Callable[[Axes, Values, Mark, Palette], None]] = {
    "line": _line,
    "band": _band,
    "boxes": _boxes,
    "segments": _segments,
    "dots": _dots,
    "cells": _cells,
    "words": _words,
}


def _stroke(look: Look, palette: Palette) -> dict[str, Any]:
    return {"color": getattr(palette, look.colour), "linewidth": look.width, "alpha": look.alpha}


def _fill(look: Look, palette: Palette) -> dict[str, Any]:
    return {"color": getattr(palette, look.colour), "alpha": look.alpha, "linewidth": 0}


def _has_cells(view: View) -> bool:
    return any(mark.kind == "cells" for mark in view.marks)


def _set_scale(axis: Any, wanted: Axis, longest: int) -> None:
    """Set the ends, the direction and the ticks of a matplotlib axis."""
    low, high = axis.get_data_interval()
    margin = _MARGIN * (high - low) or _MARGIN
    ends = [low - margin, high + margin]
    if wanted.log:
        axis.axes.set_yscale("log")
        axis.set_major_locator(LogLocator(base=10.0, numticks=3))
        axis.set_minor_locator(NullLocator())
        ends = [low, 3 * high]
    if wanted.low is not None:
        ends[0] = wanted.low
    if wanted.high is not None:
        ends[1] = wanted.high
    axis.axes.set(**{f"{axis.axis_name}lim": ends})
    if wanted.names:
        every = 1
        if len(wanted.names) > _MOST_NAMES:
            every = math.ceil(len(wanted.names) / _FEW_NAMES)
        names = [shortened(name, longest) for name in wanted.names[::every]]
        axis.set_ticks(range(0, len(wanted.names), every), names, parse_math=False)
    else:
        axis.set_major_formatter(FuncFormatter(lambda value, _: tick_text(value, wanted.unit)))
    if wanted.turned:
        axis.set_inverted(True)


def tick_text(value: float, unit: Unit) -> str:
    """Return a number beside an axis.

    >>> [tick_text(*tick) for tick in ((0.07, "percent"), (-0.0025, "points"), (2_500.0, "rows"), (-0.0, "number"))]
    ['7%', '−0.25', '2.5k', '0']
    """
    if unit == "rows":
        return short_count(value)
    if unit in ("percent", "points"):
        value = 100 * value
    text = f"{round(value, 6) + 0.0:g}".replace("-", "\N{MINUS SIGN}")
    if unit == "percent":
        text += "%"
    return text


def short_count(value: float) -> str:
    """Return a number of rows in about four characters.

    >>> [short_count(n) for n in (7, 250, 10_000, 2_500_000)]
    ['7', '250', '10k', '2.5M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
