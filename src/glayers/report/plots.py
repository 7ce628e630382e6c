"""A name of `FIGURES` and predictions -> a matplotlib figure; or a spec and an Axes -> the Axes.

Predictions are blue and dashed, observations orange and solid, in every figure, so that it can be read without colours.
No global setting of matplotlib changes.

>>> p = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
>>> len(figure("reliability", {"uncalibrated": p}, labels=[0, 1, 0]).axes)  # the diagram, and the number of rows below
2
"""

import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

try:
    import matplotlib as mpl
except ModuleNotFoundError as problem:  # pragma: no cover
    raise ModuleNotFoundError("figures need matplotlib: pip install 'glayers[plots]'", name=problem.name) from problem
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.patheffects import AbstractPathEffect, withStroke
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from glayers.arrays import Array
from glayers.checks import check_choice, check_switch, number_between
from glayers.errors import BadPredictions, shown
from glayers.metrics import Event, paired_differences, top
from glayers.metrics.events import check_any, check_rows
from glayers.report.figures import FIGURES, MethodCurves
from glayers.report.spec import Axis, Kind, Mark, Spec, Unit
from glayers.report.words import shortened

__all__ = ["DARK", "LIGHT", "Palette", "draw", "figure", "style"]

TEXT = 11.0  # points, in panels three inches wide
SMALL = 9.5
PANEL = 3.0  # inches wide
_FONT = "DejaVu Sans"  # comes with matplotlib, so figures are the same on every machine
_TITLE_WIDTH = 24  # letters that fit above a panel
_MARGIN = 0.04  # of an axis, beyond the marks
_SIDES = {"start": "left", "middle": "center", "end": "right"}


@dataclass(frozen=True)
class Palette:
    """Colours by meaning, and the size of lines, marks and letters; `series` only need to differ from each other."""

    background: str
    ink: str
    quiet: str
    band: str
    score: str
    truth: str
    series: tuple[str, ...]
    scale: float = 1.0

    def letters(self, size: float) -> float:
        """Return a size of letters at this scale, at least the 7 points that most journals ask for."""
        return max(7.0, size * self.scale)


LIGHT = Palette(
    background="#ffffff",
    ink="#1d2530",
    quiet="#d9dee5",
    band="#aab4c0",
    score="#0a63b0",
    truth="#cf5a00",
    series=("#0a63b0", "#cf5a00", "#1d2530", "#4e8f5a", "#d06fa8", "#8a1a1a", "#3a22b8"),
)
DARK = Palette(
    background="#14181f",
    ink="#e8ecf1",
    quiet="#343c48",
    band="#5b6675",
    score="#62aef7",
    truth="#ff9a4d",
    series=("#62aef7", "#ff9a4d", "#e8ecf1", "#76885a", "#6d5ff2", "#f2dfa0", "#2b7b85"),
)


class Look(NamedTuple):
    """How a mark looks: its colour by its name in the palette, and its line or marker."""

    colour: str
    width: float = 1.8
    dash: str = "-"
    alpha: float = 1.0
    marker: str = "o"
    edge: str = "background"
    hollow: bool = False


LOOKS: dict[str, Look] = {
    "predicted": Look("score", dash="--"),
    "observed": Look("truth", width=2.2),
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
    "rows": Look("band"),
    "largest": Look("ink", width=2.4),
    "words": Look("ink"),
    "cell": Look("ink"),
}


def figure(
    kind: str,
    methods: Mapping[str, Any],
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event | list[Event] = top,
    n_bins: int = 15,
    metrics: Sequence[str] | None = None,
    n_resamples: int = 1000,
    random_state: int = 0,
    dark: bool = False,
    width: float | None = None,
) -> Figure:
    """Draw one of the figures that `FIGURES` describes.

    Parameters
    ----------
    kind
        A name in `glayers.report.figures.FIGURES`, such as "reliability".
    methods
        Array (n, k), `Predictions` or `Confidences` by name, the uncalibrated first.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    sample_weight
        Row weights (n,).
    event
        `top`, `rank(r)`, `within_top(r)`, `label(c)` or `one_of(classes)`, or a list of them: one row of panels each.
    n_bins
        The number of bins of a reliability diagram.
    metrics, n_resamples, random_state
        For "differences": the metrics, the number of resamples and their seed.
    dark
        Whether to draw light lines on a dark ground.
    width
        The width in inches. Letters shrink with it, but not below 7 points.

    Returns
    -------
    Figure
        Save it with `figure.savefig(path)`.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = figure("ks", {"model": Confidences([0.9, 0.6, 0.8], [True, False, True])}, dark=True)
    >>> found.axes[0].get_ylabel()
    'cumulative'
    """
    check_choice(kind, FIGURES, "kind")
    described = FIGURES[kind]
    if not isinstance(methods, Mapping) or len(methods) < described.least:
        raise BadPredictions(
            f"methods must be {described.least} or more sets of probabilities by name, such as "
            f"{{'uncalibrated': p, 'calibrated': q}}; got {shown(methods)}"
        )
    events = event if isinstance(event, list) else [event]
    if not events:
        raise BadPredictions("event must be one event or a list of events; the list is empty")
    checked = {name: check_any(given, labels, sample_weight, strict=True) for name, given in methods.items()}
    if described.needs_classes:
        checked = {name: check_rows(rows) for name, rows in checked.items()}
    settings: dict[str, Any] = {"n_bins": n_bins, "random_state": random_state}
    if kind == "differences":
        draws: dict[str, Any] = {"n_resamples": n_resamples, "random_state": random_state}
        settings["differences"] = paired_differences(checked, metrics=metrics, **draws)
    specs: list[Spec] = []
    for each in events:
        about = ""
        if isinstance(each, Event) and (len(events) > 1 or each != top):
            about = each.name
        curves = [MethodCurves(name, partial(checked.__getitem__, name), each, about, **settings) for name in checked]
        specs += described.specs(curves)
    across = 4 if len(events) == 1 else len(specs) // len(events)
    return _figure_of(specs, dark, across, width)


def _figure_of(specs: Sequence[Spec], dark: bool, columns: int, width: float | None) -> Figure:
    """Draw specs side by side, each with its strip below, and collect their legends into one."""
    view = specs[0].view
    strip = specs[0].strip
    listed = bool(view.y.names) and not view.x.names
    size = (PANEL, PANEL)
    if listed:
        size = (PANEL if len(specs) > 1 else 1.6 * PANEL, 0.3 * len(view.y.names) + 1.3)
    scale = 1.0
    if width is not None:
        natural = size[0] * min(columns, len(specs)) + 0.3
        scale = number_between(width, "width", 0, 100) / natural
    height = 0.0 if strip is None else strip.view.height
    with style(dark, scale) as palette:
        drawn, panels = grid(len(specs), palette, columns=columns, strip=height, size=size)
        for panel, spec in zip(panels, specs, strict=True):
            draw(panel.main, spec, palette=palette)
            if spec.strip is not None:
                draw(panel.strip, spec.strip, palette=palette)
            title(panel.main, spec.title, spec.note)
            if listed:
                panel.main.tick_params(labelleft=panel is panels[0])
        return tidy(drawn, panels, palette, columns=columns)


@contextmanager
def style(dark: bool = False, scale: float = 1.0) -> Iterator[Palette]:
    """Draw in one style and get its colours; matplotlib's settings are restored afterwards.

    Parameters
    ----------
    dark
        Whether to draw light lines on a dark ground.
    scale
        The size of lines, marks and letters.

    Yields
    ------
    Palette
        `LIGHT` or `DARK`, for `draw`.

    Examples
    --------
    >>> with style(dark=True) as palette:
    ...     palette == DARK
    True
    """
    palette = replace(DARK if check_switch(dark, "dark") else LIGHT, scale=scale)
    settings: dict[Any, Any] = {  # matplotlib's own type lists the names of all its settings
        "font.family": _FONT,
        "font.size": palette.letters(TEXT),
        "axes.titlesize": palette.letters(TEXT),
        "text.color": palette.ink,
        "axes.labelcolor": palette.ink,
        "lines.linewidth": 1.8 * scale,
        "lines.markersize": 5.0 * scale,
        "text.usetex": False,
        "text.parse_math": False,  # a name is text, never a formula
    }
    with mpl.rc_context(settings):
        yield palette


class PaperFigure(Figure):
    """A figure whose PDF holds TrueType fonts, which publishers ask for, and whose SVG is the same in every run."""

    def savefig(self, *args: Any, **settings: Any) -> None:
        """Save the figure as matplotlib does, with these two settings."""
        with mpl.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42, "svg.hashsalt": "glayers"}):
            super().savefig(*args, **settings)


class Panel(NamedTuple):
    """An Axes and the strip below it; without a strip both are the same Axes."""

    main: Axes
    strip: Axes


def grid(
    n_panels: int,
    palette: Palette,
    *,
    columns: int = 4,
    strip: float = 0.0,
    size: tuple[float, float] = (PANEL, PANEL),
    share_y: bool = False,
) -> tuple[Figure, list[Panel]]:
    """Make a figure of panels, filled row by row; a strip has a fraction of the height of the panel above it."""
    across = min(columns, n_panels)
    lines = math.ceil(n_panels / across)
    heights = [1.0, strip] if strip else [1.0]
    # Letters shrink less than the panels: titles, labels and the legend need about a quarter of the height.
    height = size[1] * min(1.25, sum(heights)) * lines + 0.6
    height *= palette.scale + (palette.letters(SMALL) / SMALL - palette.scale) / 4
    inches = (palette.scale * (size[0] * across + 0.3), height)
    drawn = PaperFigure(figsize=inches, dpi=160, layout="constrained", facecolor=palette.background)
    cells = drawn.add_gridspec(lines * len(heights), across, height_ratios=heights * lines)
    panels: list[Panel] = []
    for place in range(n_panels):
        line, column = divmod(place, across)
        first = panels[0].main if share_y and panels else None
        main = drawn.add_subplot(cells[line * len(heights), column], sharey=first)
        below = drawn.add_subplot(cells[line * 2 + 1, column]) if strip else main
        panels.append(Panel(main, below))
    return drawn, panels


def tidy(drawn: Figure, panels: list[Panel], palette: Palette = LIGHT, *, columns: int = 4) -> Figure:
    """Write each axis label once per row or column, and collect the legends of all panels into one below them."""
    across = min(columns, len(panels))
    named: dict[str, Any] = {}
    for place, panel in enumerate(panels):
        if place % across and panel.main.get_ylabel() == panels[place - 1].main.get_ylabel():
            for axes in panel:
                axes.yaxis.label.set_visible(False)
        if panel.strip is not panel.main and panel.main.get_xlabel() == panel.strip.get_xlabel():
            panel.main.set_xlabel("")
            panel.main.tick_params(labelbottom=False)
        for axes in panel:
            handles, labels = axes.get_legend_handles_labels()
            named.update(zip(labels, handles, strict=True))
    if named:
        letters = palette.letters(SMALL)
        widest = (0.073 * max(map(len, named)) + 0.5) * letters / SMALL  # inches of the longest label and its sample
        n_columns = max(1, min(len(named), int(drawn.get_figwidth() / widest)))
        n_lines = math.ceil(len(named) / n_columns)
        look: dict[str, Any] = {"frameon": False, "handlelength": 1.8, "columnspacing": 1.2, "fontsize": letters}
        look["labelcolor"] = drawn.axes[0].title.get_color()
        look["ncols"] = math.ceil(len(named) / n_lines)
        drawn.legend(named.values(), named.keys(), loc="outside lower center", **look)
    return drawn


def title(axes: Axes, name: str, below: str = "") -> None:
    """Write the name of a panel and a line below it."""
    lines = textwrap.wrap(shortened(name, 3 * _TITLE_WIDTH), _TITLE_WIDTH)
    axes.set_title("\n".join([*lines, below]).strip())


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
            _MARKS[mark.kind](axes, mark, palette, *values)
    x = spec.view.x
    y = spec.view.y
    axes.margins(_MARGIN)
    axes.set(xlabel=x.label, ylabel=y.label)
    dress(axes, palette, grid=not x.names)
    _set_scale(axes.xaxis, x, longest=16)
    _set_scale(axes.yaxis, y, longest=16 if x.names else 24)
    if x.names and max(map(len, x.names)) > 3:
        axes.tick_params(axis="x", labelrotation=90)
    if y.names:
        axes.tick_params(axis="y", length=0)
        axes.yaxis.set_inverted(True)
    return axes


def dress(axes: Axes, palette: Palette, *, grid: bool = True) -> Axes:
    """Give an Axes its colours."""
    axes.set_facecolor(palette.background)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(palette.ink)
    # Also for the ticks that matplotlib creates only when it draws.
    ticks: dict[str, Any] = {"color": palette.ink, "labelcolor": palette.ink, "labelfontfamily": _FONT}
    axes.tick_params(which="both", labelsize=palette.letters(SMALL), **ticks)
    axes.tick_params(which="minor", length=0)
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(palette.ink)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(visible=True, color=palette.quiet, linewidth=0.8)
    return axes


def _line(axes: Axes, mark: Mark, palette: Palette, x: Array, y: Array) -> None:
    axes.plot(x, y, label=mark.label, solid_capstyle="round", **_stroke(mark, palette))


def _boxes(axes: Axes, mark: Mark, palette: Palette, left: Array, bottom: Array, right: Array, top: Array) -> None:
    look = LOOKS[mark.look]
    fill: dict[str, Any] = {"color": getattr(palette, look.colour), "alpha": look.alpha, "linewidth": 0}
    axes.bar(left, top - bottom, right - left, bottom, align="edge", label=mark.label, **fill)


def _segments(axes: Axes, mark: Mark, palette: Palette, x: Array, y: Array, x_end: Array, y_end: Array) -> None:
    nothing = np.full(len(x), np.nan)  # ends the pen's stroke
    xs = np.column_stack([x, x_end, nothing]).ravel()
    ys = np.column_stack([y, y_end, nothing]).ravel()
    axes.plot(xs, ys, label=mark.label, solid_capstyle="butt", **_stroke(mark, palette))


def _stroke(mark: Mark, palette: Palette) -> dict[str, Any]:
    look = LOOKS[mark.look]
    stroke = {"color": getattr(palette, look.colour), "linewidth": palette.scale * look.width}
    return stroke | {"linestyle": look.dash, "alpha": look.alpha}


def _dots(axes: Axes, mark: Mark, palette: Palette, x: Array, y: Array, radius: Array | None = None) -> None:
    look = LOOKS[mark.look]
    diameter = np.full(len(x), 5.6)
    if radius is not None:
        diameter = 2 * radius / 1.5  # pixels of the page per point
    colours = [getattr(palette, look.colour), getattr(palette, look.edge)]
    if look.hollow:
        colours.reverse()
    # A marker may cross the edge of the Axes, and no room is made for it.
    place: dict[str, Any] = {"zorder": 4, "clip_on": False, "label": mark.label}
    sizes = (palette.scale * diameter) ** 2
    points = axes.scatter(x, y, sizes, colours[0], marker=look.marker, **place)
    points.set(edgecolor=colours[1], linewidth=palette.scale)
    points.set_in_layout(False)


def _cells(axes: Axes, _: Mark, palette: Palette, column: Array, row: Array, strength: Array) -> None:
    image = np.full((int(row.max()) + 1, int(column.max()) + 1), np.nan)
    image[row.astype(np.int64), column.astype(np.int64)] = strength
    ends: Any = [palette.score, to_rgba(palette.quiet, 0.4), palette.truth]
    colours = LinearSegmentedColormap.from_list("gap", ends)
    axes.imshow(image, colours.with_extremes(bad=palette.background), vmin=-1, vmax=1)
    if len(image) == 1:
        axes.set_aspect("auto")


def _words(axes: Axes, _: Mark, palette: Palette, *values: Array) -> None:
    rim: list[AbstractPathEffect] = [withStroke(linewidth=2.0, foreground=palette.background)]
    look: dict[str, Any] = {"fontsize": palette.letters(SMALL), "color": palette.ink, "path_effects": rim}
    for x, y, text, side in zip(*values, strict=True):
        axes.text(x, y, text, parse_math=False, ha=_SIDES[side], va="center", **look)


_MARKS: dict[Kind, Callable[..., None]] = {
    "line": _line,
    "boxes": _boxes,
    "segments": _segments,
    "dots": _dots,
    "cells": _cells,
    "words": _words,
}


def _set_scale(axis: Any, wanted: Axis, longest: int) -> None:
    """Set the ends, the direction and the ticks of a matplotlib axis."""
    limits = {f"{axis.axis_name}lim": (wanted.low, wanted.high)}  # where there is none, the marks and the margin decide
    if wanted.log:
        axis.axes.set_yscale("log")
        axis.set_major_locator(LogLocator(base=10.0, numticks=3))
        axis.set_minor_locator(NullLocator())
    axis.axes.set(**limits)
    if wanted.names:
        # All names of up to 20, and 8 of more.
        every = 1
        if len(wanted.names) > 20:
            every = math.ceil(len(wanted.names) / 8)
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
