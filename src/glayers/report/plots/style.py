"""Light or dark -> colours, sizes and dress of all figures, for as long as a `with` lasts.

What a model says is blue and what happens is orange, everywhere; a line's dash or marker says the same again, for those
who see no colours and for printers that have none. Letters are large for the size of a panel: two of them side by side
can be shrunk to half a page. Nothing global is changed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.ticker import FuncFormatter

TEXT = 11.0  # points, in panels three inches wide
SMALL = 9.5
_FONT = "DejaVu Sans"  # comes with matplotlib, so figures are the same on every machine


@dataclass(frozen=True)
class Palette:
    """Colours by what they mean; `series` are for things that have no meaning but to differ."""

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

    def diverging(self) -> LinearSegmentedColormap:
        """From under- to overconfident, through the colour of agreement."""
        return LinearSegmentedColormap.from_list("gap", [self.under, self.even, self.over])


LIGHT = Palette(
    background="#ffffff",
    ink="#1d2530",
    quiet="#d9dee5",
    band="#aab4c0",
    score="#0a63b0",
    truth="#cf5a00",
    series=("#0a63b0", "#cf5a00", "#1d2530", "#4e8f5a", "#d06fa8", "#8a1a1a", "#3a22b8"),
    under="#0a4f94",
    even="#f6f6f4",
    over="#b34200",
)
DARK = Palette(
    background="#14181f",
    ink="#e8ecf1",
    quiet="#343c48",
    band="#5b6675",
    score="#62aef7",
    truth="#ff9a4d",
    series=("#62aef7", "#ff9a4d", "#e8ecf1", "#76885a", "#6d5ff2", "#f2dfa0", "#2b7b85"),
    under="#7cc0ff",
    even="#20262f",
    over="#ffa35c",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (2, 1)))


@contextmanager
def style(dark: bool = False) -> Iterator[Palette]:
    """Draw in one style and get its colours; afterwards matplotlib is as it was.

    >>> with style(dark=True) as palette:
    ...     palette is DARK
    True
    """
    palette = DARK if dark else LIGHT
    settings: dict[Any, Any] = {  # matplotlib's own type lists the names of all its settings
        "font.family": _FONT,
        "font.size": TEXT,
        "axes.titlesize": TEXT,
        "axes.labelsize": TEXT,
        "xtick.labelsize": SMALL,
        "ytick.labelsize": SMALL,
        "legend.fontsize": SMALL,
        "text.color": palette.ink,
        "axes.labelcolor": palette.ink,
        "figure.facecolor": palette.background,
        "axes.facecolor": palette.background,
        "lines.linewidth": 1.8,
        "lines.markersize": 5.0,
        "text.usetex": False,
    }
    with mpl.rc_context(settings):
        yield palette


def dress(axes: Axes, palette: Palette, *, grid: bool = True) -> Axes:
    """Give an Axes its colours, now and for the ticks that matplotlib makes only when it draws."""
    axes.set_facecolor(palette.background)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(palette.ink)
    axes.tick_params(which="both", color=palette.ink, labelcolor=palette.ink, labelsize=SMALL, labelfontfamily=_FONT)
    axes.tick_params(which="minor", length=0)
    axes.xaxis.label.set_color(palette.ink)
    axes.yaxis.label.set_color(palette.ink)
    axes.title.set_color(palette.ink)
    axes.set_axisbelow(True)
    if grid:
        axes.grid(visible=True, color=palette.quiet, linewidth=0.8)
    return axes


def percent_axis(axes: Axes, which: Literal["x", "y"]) -> Axes:
    """Write an axis of shares in percent, with as many digits as they need."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda share, _: percent(share)))
    return axes


def percent(share: float) -> str:
    """Return a share in percent, without the sign.

    >>> percent(0.07), percent(-0.0025), percent(-0.0)
    ('7', '−0.25', '0')
    """
    return f"{round(100 * share, 6) + 0.0:g}".replace("-", "\N{MINUS SIGN}")


def band_words(level: float) -> str:
    """Return what a band is called in a legend.

    >>> band_words(0.95)
    '95 % of calibrated models'
    """
    return f"{100 * level:g} % of calibrated models"
