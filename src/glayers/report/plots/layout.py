"""How many panels -> a Figure with that many, each with a strip below it if wanted, and one legend for all."""

import textwrap
from typing import NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from glayers.report.names import shortened
from glayers.report.plots.style import Palette

PANEL = 3.0  # inches wide; letters are chosen for it
_DPI = 160
_TITLE_WIDTH = 24  # letters, as many as stand above a panel
_LONGEST_NAME = 3 * _TITLE_WIDTH


class Panel(NamedTuple):
    """An Axes and the strip below it, which is the Axes itself where there is none."""

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
    """Make a figure of panels, filled line by line."""
    across = min(columns, n_panels)
    lines = -(-n_panels // across)
    heights = [3.4, 1.0] if strip else [1.0]
    tall = size[1] * (1.25 if strip else 1.0)
    figure = Figure(
        figsize=(size[0] * across + 0.3, tall * lines + 0.6),
        dpi=_DPI,
        layout="constrained",
        facecolor=palette.background,
    )
    cells = figure.add_gridspec(lines * len(heights), across, height_ratios=heights * lines)
    panels: list[Panel] = []
    for place in range(n_panels):
        line, column = divmod(place, across)
        shared = panels[0].main if panels and share_y else None
        main = figure.add_subplot(cells[line * len(heights), column], sharey=shared)
        below = figure.add_subplot(cells[line * 2 + 1, column], sharex=main) if strip else main
        panels.append(Panel(main, below))
    return figure, panels


def tidy(figure: Figure, panels: list[Panel], palette: Palette, *, columns: int = 4) -> Figure:
    """Keep the labels of outer panels only, and put what the panels' artists are called into one legend below."""
    across = min(columns, len(panels))
    named: dict[str, Artist] = {}
    for place, panel in enumerate(panels):
        if place % across:
            panel.main.set_ylabel("")
            panel.strip.set_ylabel("")
        if panel.strip is not panel.main:
            panel.main.set_xlabel("")
            panel.main.tick_params(labelbottom=False)
        named.update(_bands(panel.strip))
        handles, labels = panel.main.get_legend_handles_labels()
        named.update(dict(zip(labels, handles, strict=True)))
    if named:
        legend = figure.legend(
            named.values(),
            named.keys(),
            loc="outside lower center",
            ncols=_legend_columns(list(named), figure.get_figwidth()),
            frameon=False,
            labelcolor=palette.ink,
            handlelength=1.8,
            columnspacing=1.2,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure


def _bands(strip: Axes) -> dict[str, Artist]:
    """What is shaded in a strip; its lines are named by its axis."""
    handles, labels = strip.get_legend_handles_labels()
    return {label: handle for label, handle in zip(labels, handles, strict=True) if isinstance(handle, Patch)}


def _legend_columns(labels: list[str], inches: float) -> int:
    """As many columns as have room side by side: letters, and the sample before them; filled column by column."""
    widths = [0.073 * len(label) + 0.5 for label in labels]
    for columns in range(len(labels), 1, -1):
        lines = -(-len(labels) // columns)
        if sum(max(widths[first : first + lines]) for first in range(0, len(labels), lines)) <= inches:
            return -(-len(labels) // lines)  # no column is left empty
    return 1


def title(axes: Axes, name: str, below: str = "") -> None:
    """Write whose panel it is, and a line of numbers; a name is text, never a formula."""
    lines = textwrap.wrap(shortened(name, _LONGEST_NAME), _TITLE_WIDTH) + ([below] if below else [])
    axes.set_title("\n".join(lines), parse_math=False)
