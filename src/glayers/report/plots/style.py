"""Light or dark -> colours, sizes, panels and legend of all figures.

Predictions are blue and dashed, observations orange and solid, in every figure, so that it can be read without colours.
Letters are large for the size of a panel: two panels side by side can be shrunk to half a page. No global setting of
matplotlib changes.
"""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.text import Text

from glayers.checks import check_switch
from glayers.report.words import shortened

__all__ = ["DARK", "LIGHT", "Palette", "style"]

TEXT = 11.0  # points, in panels three inches wide
SMALL = 9.5
PANEL = 3.0  # inches wide
_LEAST_LETTERS = 7.0  # points, as most journals ask for
_DPI = 160
_FONT = "DejaVu Sans"  # comes with matplotlib, so figures are the same on every machine
_TITLE_WIDTH = 24  # letters that fit above a panel
_LONGEST_TITLE = 3 * _TITLE_WIDTH


@dataclass(frozen=True)
class Palette:
    """Colours by meaning; `series` only need to differ from each other."""

    background: str
    ink: str
    quiet: str
    band: str
    score: str
    truth: str
    series: tuple[str, ...]
    under: str
    even: str
    over: str


_COLOURS: dict[str, tuple[Any, Any]] = {  # on a light ground, and on a dark one
    "background": ("#ffffff", "#14181f"),
    "ink": ("#1d2530", "#e8ecf1"),
    "quiet": ("#d9dee5", "#343c48"),
    "band": ("#aab4c0", "#5b6675"),
    "score": ("#0a63b0", "#62aef7"),
    "truth": ("#cf5a00", "#ff9a4d"),
    "series": (
        ("#0a63b0", "#cf5a00", "#1d2530", "#4e8f5a", "#d06fa8", "#8a1a1a", "#3a22b8"),
        ("#62aef7", "#ff9a4d", "#e8ecf1", "#76885a", "#6d5ff2", "#f2dfa0", "#2b7b85"),
    ),
    "under": ("#0a4f94", "#7cc0ff"),
    "even": ("#f6f6f4", "#20262f"),
    "over": ("#b34200", "#ffa35c"),
}
LIGHT = Palette(**{name: light for name, (light, _) in _COLOURS.items()})
DARK = Palette(**{name: dark for name, (_, dark) in _COLOURS.items()})


@contextmanager
def style(dark: bool = False) -> Iterator[Palette]:
    """Draw in one style and get its colours; matplotlib's settings are restored afterwards.

    Parameters
    ----------
    dark
        Whether to draw light lines on a dark ground.

    Yields
    ------
    Palette
        `LIGHT` or `DARK`, for the `draw_*` functions.

    Examples
    --------
    >>> with style(dark=True) as palette:
    ...     palette is DARK
    True
    """
    palette = DARK if check_switch(dark, "dark") else LIGHT
    settings: dict[Any, Any] = {  # matplotlib's own type lists the names of all its settings
        "font.family": _FONT,
        "font.size": TEXT,
        "axes.titlesize": TEXT,
        "ytick.labelsize": SMALL,
        "legend.fontsize": SMALL,
        "text.color": palette.ink,
        "axes.labelcolor": palette.ink,
        "lines.linewidth": 1.8,
        "lines.markersize": 5.0,
        "text.usetex": False,
        "text.parse_math": False,  # a name is text, never a formula
    }
    with mpl.rc_context(settings):
        yield palette


def dress(axes: Axes, palette: Palette, *, x: str = "", y: str = "", grid: bool = True) -> Axes:
    """Give an Axes its colours and labels."""
    axes.set_facecolor(palette.background)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(palette.ink)
    # Also for the ticks that matplotlib creates only when it draws.
    axes.tick_params(which="both", color=palette.ink, labelcolor=palette.ink, labelsize=SMALL, labelfontfamily=_FONT)
    axes.tick_params(which="minor", length=0)
    for axis, label in ((axes.xaxis, x), (axes.yaxis, y)):
        axis.set_label_text(label or axis.label.get_text(), color=palette.ink)
    axes.title.set_color(palette.ink)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(visible=True, color=palette.quiet, linewidth=0.8)
    return axes


class PaperFigure(Figure):
    """A figure whose PDF holds TrueType fonts, which publishers ask for, and whose SVG is the same in every run."""

    def savefig(self, *args: Any, **settings: Any) -> None:
        """Save the figure as matplotlib does, with these two settings."""
        with mpl.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42, "svg.hashsalt": "glayers"}):
            super().savefig(*args, **settings)


def fit_width(figure: Figure, inches: float) -> Figure:
    """Scale a figure to a width, with its lines and marks; its letters too, but not below 7 points."""
    factor = inches / figure.get_figwidth()
    figure.draw_without_rendering()  # which lays it out and makes the ticks
    plots = sum(axes.get_position(original=True).height for axes in figure.axes if _column(axes) == 0)
    ticks = {tick for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for tick in axis.get_ticklabels()}
    small = _scaled_letters(SMALL, factor)
    for axes in figure.axes:
        axes.tick_params(which="major", length=3.5 * factor, width=0.8 * factor, pad=3.5 * factor, labelsize=small)
    sized: list[Any] = [text for text in figure.findobj(Text) if text not in ticks]
    for text in sized:
        text.set_fontsize(_scaled_letters(text.get_fontsize(), factor))
    for artist in figure.findobj(lambda one: hasattr(one, "set_linewidth") and hasattr(one, "get_linewidth")):
        widths: Any = artist
        widths.set_linewidth(np.asarray(widths.get_linewidth()) * factor)
    for dots in figure.findobj(PathCollection):
        dots.set_sizes(dots.get_sizes() * factor**2)
    figure.set_size_inches(inches, figure.get_figheight() * (plots * factor + (1 - plots) * small / SMALL))
    for legend in figure.legends:
        named = {text.get_text(): drawn for text, drawn in zip(legend.get_texts(), legend.legend_handles, strict=True)}
        legend.remove()
        _add_legend(figure, named, small)
    return figure


def _column(axes: Axes) -> int:
    place: Any = axes.get_subplotspec()
    column: int = place.colspan.start
    return column


def _scaled_letters(size: float, factor: float) -> float:
    return max(size * factor, min(size, _LEAST_LETTERS))


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
    share_x: bool = True,
    share_y: bool = False,
) -> tuple[Figure, list[Panel]]:
    """Make a figure of panels, filled row by row.

    A strip has a fraction of the height of the panel above it, and with `share_x` the same x axis.
    """
    across = min(columns, n_panels)
    lines = -(-n_panels // across)
    heights = [1.0]
    if strip:
        heights.append(strip)
    inches = (size[0] * across + 0.3, size[1] * min(1.25, sum(heights)) * lines + 0.6)
    figure = PaperFigure(figsize=inches, dpi=_DPI, layout="constrained", facecolor=palette.background)
    cells = figure.add_gridspec(lines * len(heights), across, height_ratios=heights * lines)
    panels: list[Panel] = []
    for place in range(n_panels):
        line, column = divmod(place, across)
        main = figure.add_subplot(cells[line * len(heights), column])
        if share_y and panels:
            main.sharey(panels[0].main)
        below = main
        if strip:
            below = figure.add_subplot(cells[line * 2 + 1, column])
        if strip and share_x:
            below.sharex(main)
        panels.append(Panel(main, below))
    return figure, panels


def tidy(figure: Figure, panels: list[Panel], *, columns: int = 4) -> Figure:
    """Write each axis label once per row, and collect the legends of all panels into one below them."""
    across = min(columns, len(panels))
    named: dict[str, Any] = {}
    for place, panel in enumerate(panels):
        if place % across and panel.main.get_ylabel() == panels[place - 1].main.get_ylabel():
            for axes in panel:
                axes.yaxis.label.set_visible(False)
        if panel.strip is not panel.main and panel.main.get_shared_x_axes().joined(panel.main, panel.strip):
            panel.main.set_xlabel("")
            panel.main.tick_params(labelbottom=False)
        for axes in panel:
            handles, labels = axes.get_legend_handles_labels()
            named.update(zip(labels, handles, strict=True))
    if named:
        _add_legend(figure, named, SMALL)
    return figure


def _add_legend(figure: Figure, named: dict[str, Any], size: float) -> None:
    columns = _legend_columns(list(named), figure.get_figwidth() * SMALL / size)
    look: dict[str, Any] = {"frameon": False, "handlelength": 1.8, "columnspacing": 1.2, "fontsize": size}
    look["labelcolor"] = figure.axes[0].title.get_color()
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=columns, **look)


def title(axes: Axes, name: str, *below: str) -> None:
    """Write the name of a panel and lines below it."""
    lines = textwrap.wrap(shortened(name, _LONGEST_TITLE), _TITLE_WIDTH) + [line for line in below if line]
    axes.set_title("\n".join(lines))


def _legend_columns(labels: list[str], inches: float) -> int:
    """Return how many legend columns fit: letters and the sample before them; filled column by column."""
    widths = [0.073 * len(label) + 0.5 for label in labels]
    for columns in range(len(labels), 1, -1):
        lines = -(-len(labels) // columns)
        if sum(max(widths[first : first + lines]) for first in range(0, len(labels), lines)) <= inches:
            return -(-len(labels) // lines)  # no column is left empty
    return 1
