"""Light or dark -> colours, sizes, panels and legend of all figures.

Predictions are blue and dashed, observations orange and solid, in every figure, so that it can be read without colours.
Letters are large for the size of a panel: two panels side by side can be shrunk to half a page. No global setting of
matplotlib changes.
"""

import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter

from glayers.checks import check_switch
from glayers.errors import BadPredictions
from glayers.metrics import Event, top
from glayers.report import shortened

__all__ = ["DARK", "LIGHT", "Palette", "style"]

Methods: TypeAlias = Mapping[str, Any]
TEXT = 11.0  # points, in panels three inches wide
SMALL = 9.5
PANEL = 3.0  # inches wide
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

    def shade(self, level: float) -> dict[str, Any]:
        """Return how the band of a calibrated model is drawn, and its name in the legend."""
        return {"color": self.band, "alpha": 0.6, "linewidth": 0, "label": f"{100 * level:g} % of calibrated models"}


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
    """Give an Axes its colours and labels; an axis whose label ends in % is written in percent, from 0 to 100."""
    axes.set_facecolor(palette.background)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(palette.ink)
    # Also for the ticks that matplotlib creates only when it draws.
    axes.tick_params(which="both", color=palette.ink, labelcolor=palette.ink, labelsize=SMALL, labelfontfamily=_FONT)
    axes.tick_params(which="minor", length=0)
    # Room for a line along the upper edge.
    for axis, label, limit, most in ((axes.xaxis, x, axes.set_xlim, 1.0), (axes.yaxis, y, axes.set_ylim, 1.02)):
        axis.set_label_text(label or axis.label.get_text(), color=palette.ink)
        if label.endswith("%"):
            axis.set_major_formatter(FuncFormatter(lambda fraction, _: percent(fraction)))
            limit(0.0, most)
    axes.title.set_color(palette.ink)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(visible=True, color=palette.quiet, linewidth=0.8)
    return axes


def percent(fraction: float) -> str:
    """Return a fraction in percent, without the sign.

    >>> percent(0.07), percent(-0.0025), percent(-0.0)
    ('7', '−0.25', '0')
    """
    return f"{round(100 * fraction, 6) + 0.0:g}".replace("-", "\N{MINUS SIGN}")


class PaperFigure(Figure):
    """A figure whose PDF holds TrueType fonts, which publishers ask for, and whose SVG is the same in every run."""

    def savefig(self, *args: Any, **settings: Any) -> None:
        """Save the figure as matplotlib does, with these two settings."""
        with mpl.rc_context({"pdf.fonttype": 42, "ps.fonttype": 42, "svg.hashsalt": "glayers"}):
            super().savefig(*args, **settings)


def fit_width(figure: Figure, inches: float) -> Figure:
    """Scale a figure to a width, with its letters, lines and marks."""
    factor = inches / figure.get_figwidth()
    figure.set_size_inches(inches, figure.get_figheight() * factor)
    for axes in figure.axes:
        axes.tick_params(
            which="major", labelsize=SMALL * factor, length=3.5 * factor, width=0.8 * factor, pad=3.5 * factor
        )
    figure.draw_without_rendering()  # which makes the ticks
    ticks = {tick for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for tick in axis.get_ticklabels()}
    sized: list[Any] = [text for text in figure.findobj(Text) if text not in ticks]
    for text in sized:
        text.set_fontsize(text.get_fontsize() * factor)
    for artist in figure.findobj(lambda one: hasattr(one, "set_linewidth") and hasattr(one, "get_linewidth")):
        widths: Any = artist
        widths.set_linewidth(np.asarray(widths.get_linewidth()) * factor)
    for line in figure.findobj(Line2D):
        line.set_markersize(line.get_markersize() * factor)
    return figure


class Panel(NamedTuple):
    """An Axes and the strip below it; without a strip both are the same Axes."""

    main: Axes
    strip: Axes


def grid(
    n_panels: int,
    palette: Palette,
    *,
    columns: int = 4,
    strip: bool = False,
    size: tuple[float, float] = (PANEL, PANEL),
    share_y: bool = False,
) -> tuple[Figure, list[Panel]]:
    """Make a figure of panels, filled row by row."""
    across = min(columns, n_panels)
    lines = -(-n_panels // across)
    heights = [3.4, 1.0] if strip else [1.0]
    inches = (size[0] * across + 0.3, size[1] * (1.25 if strip else 1.0) * lines + 0.6)
    figure = PaperFigure(figsize=inches, dpi=_DPI, layout="constrained", facecolor=palette.background)
    cells = figure.add_gridspec(lines * len(heights), across, height_ratios=heights * lines)
    panels: list[Panel] = []
    for place in range(n_panels):
        line, column = divmod(place, across)
        shared = panels[0].main if panels and share_y else None
        main = figure.add_subplot(cells[line * len(heights), column], sharey=shared)
        below = figure.add_subplot(cells[line * 2 + 1, column], sharex=main) if strip else main
        panels.append(Panel(main, below))
    return figure, panels


def tidy(figure: Figure, panels: list[Panel], *, columns: int = 4) -> Figure:
    """Keep the axis labels of outer panels only, and collect the legends of all panels into one below them."""
    across = min(columns, len(panels))
    named: dict[str, Any] = {}
    for place, panel in enumerate(panels):
        if place % across:
            for axes in panel:
                axes.set_ylabel("")
        if panel.strip is not panel.main:
            panel.main.set_xlabel("")
            panel.main.tick_params(labelbottom=False)
        handles, labels = panel.strip.get_legend_handles_labels()
        # Of a strip, only shaded bands: its axis label names its lines.
        named.update({label: drawn for label, drawn in zip(labels, handles, strict=True) if isinstance(drawn, Patch)})
        handles, labels = panel.main.get_legend_handles_labels()
        named.update(zip(labels, handles, strict=True))
    if named:
        columns = _legend_columns(list(named), figure.get_figwidth())
        look: dict[str, Any] = {"frameon": False, "handlelength": 1.8, "columnspacing": 1.2}
        figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=columns, **look)
    return figure


def title(axes: Axes, name: str, *below: str) -> None:
    """Write the name of a panel and lines below it."""
    lines = textwrap.wrap(shortened(name, _LONGEST_TITLE), _TITLE_WIDTH) + [line for line in below if line]
    axes.set_title("\n".join(lines))


def side_by_side(
    methods: Methods,
    draw: Callable[[Axes, Axes, Any, Event, Palette], str | None],
    event: Event | list[Event] = top,
    *,
    dark: bool = False,
    strip: bool = False,
    size: tuple[float, float] = (PANEL, PANEL),
) -> Figure:
    """Draw one panel per method and event, several events of a method in one row.

    `draw` takes a panel's Axes, the Axes of the strip below it, the method's data, the event and the palette, and
    returns a line for the title, if any.
    """
    check_methods(methods)
    events = event if isinstance(event, list) else [event]
    if not events:
        raise BadPredictions("event must be one event or a list of events; the list is empty")
    columns = len(events) if len(events) > 1 else 4
    shown = [(name, given, each) for name, given in methods.items() for each in events]
    with style(dark) as palette:
        figure, panels = grid(len(shown), palette, columns=columns, strip=strip, size=size)
        for panel, (name, given, each) in zip(panels, shown, strict=True):
            line = draw(*panel, given, each, palette)
            title(panel.main, name, "" if events == [top] else each.name, line or "")
        return tidy(figure, panels, columns=columns)


def check_methods(methods: Methods, least: int = 1) -> None:
    """Refuse too few methods; the first curve computed from them checks their numbers."""
    if not isinstance(methods, Mapping) or len(methods) < least:
        came = list(methods) if isinstance(methods, Mapping) else type(methods).__name__
        raise BadPredictions(
            f"methods must be {least} or more sets of probabilities by name, such as "
            f"{{'uncalibrated': p, 'calibrated': q}}; got {came}"
        )


def _legend_columns(labels: list[str], inches: float) -> int:
    """Return how many legend columns fit: letters and the sample before them; filled column by column."""
    widths = [0.073 * len(label) + 0.5 for label in labels]
    for columns in range(len(labels), 1, -1):
        lines = -(-len(labels) // columns)
        if sum(max(widths[first : first + lines]) for first in range(0, len(labels), lines)) <= inches:
            return -(-len(labels) // lines)  # no column is left empty
    return 1
