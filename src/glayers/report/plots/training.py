"""Curves over seeds -> Axes: errors against the number of weights, and through training."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from glayers.report.curves import SeedCurve
from glayers.report.plots.reliability import short_count
from glayers.report.plots.style import DASHES, LIGHT, MARKERS, Palette, dress

_WIDE = 30  # times its least value: from here on powers of ten are ticks enough, and a linear scale hides the small end


def draw_sizes(axes: Axes, curves: Sequence[SeedCurve], *, ylabel: str, palette: Palette = LIGHT) -> Axes:
    """Draw a metric against the number of weights, one colour and marker for each depth, bars from seed to seed."""
    for place, found in enumerate(sorted(curves, key=lambda curve: str(curve.name))):
        axes.errorbar(
            found.x,
            found.mean,
            yerr=[found.mean - found.low, found.high - found.mean],
            color=palette.series[place % len(palette.series)],
            marker=MARKERS[place % len(MARKERS)],
            linewidth=1.4,
            capsize=3,
            label=" ".join(map(str, found.name)) + (" layer" if found.name == (1,) else " layers"),
        )
    axes.set_xscale("log")
    least, most = (float(end(np.concatenate([found.x for found in curves]))) for end in (np.min, np.max))
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if most < _WIDE * least else (1.0,)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("weights")
    axes.set_ylabel(ylabel)
    return dress(axes, palette)


def draw_training(axes: Axes, curves: Sequence[SeedCurve], *, ylabel: str, palette: Palette = LIGHT) -> Axes:
    """Draw a metric from 0 to 100 percent of training: colours are starts, dashes are sets, shades go seed to seed."""
    starts = list(dict.fromkeys(found.name[0] for found in curves))
    sets = list(dict.fromkeys(found.name[1] for found in curves))
    for found in curves:
        colour = palette.series[starts.index(found.name[0]) % len(palette.series)]
        dash = DASHES[sets.index(found.name[1]) % len(DASHES)]
        axes.fill_between(found.x, found.low, found.high, color=colour, alpha=0.2, linewidth=0)
        label = f"{found.name[0]} start, {found.name[1]}"
        axes.plot(found.x, found.mean, color=colour, linestyle=dash, label=label)
    lowest, highest = (end([end(found.mean) for found in curves]) for end in (np.min, np.max))
    if 0 < _WIDE * lowest < highest:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(0, 100)
    axes.set_xlabel("training, %")
    axes.set_ylabel(ylabel)
    return dress(axes, palette)
