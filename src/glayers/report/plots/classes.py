"""Calibration maps and class matrices -> Axes: what probabilities become, and which classes get more than is right."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize, SymLogNorm
from matplotlib.ticker import MaxNLocator

from glayers.arrays import Floats
from glayers.report.curves import CalibrationMap, ClassMatrix
from glayers.report.names import shortened
from glayers.report.plots.style import LIGHT, SMALL, Palette, dress, percent_axis

_FEW_CLASSES = 20  # up to here names and numbers have room
_LONGEST_NAME = 16  # letters; twice as many would leave the matrix no room
_FEWEST_ROWS = 5  # whose median is worth a point of a line
_CHANCE = 2.0  # deviations: a cell within them says nothing


def draw_calibration_map(
    axes: Axes, top: CalibrationMap, classes: Sequence[CalibrationMap] = (), *, palette: Palette = LIGHT
) -> Axes:
    """Draw what the top class's probability becomes, with the middle 80 % of rows, and thinly that of each class."""
    for place, found in enumerate(classes):
        shown = found.count >= _FEWEST_ROWS
        axes.plot(
            found.before[shown],
            found.after[shown],
            color=palette.score,
            linewidth=1.0,
            alpha=max(0.1, min(0.7, 6 / len(classes))),
            label="each class" if place == 0 else None,
        )
    axes.fill_between(
        top.before, top.low, top.high, color=palette.truth, alpha=0.3, linewidth=0, label="middle 80 % of rows"
    )
    axes.plot([0, 1], [0, 1], "--", color=palette.ink, linewidth=1.2, label="unchanged")
    axes.plot(top.before, top.after, color=palette.truth, linewidth=2.4, label="top class")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("before, %")
    axes.set_ylabel("after, %")
    dress(axes, palette)
    percent_axis(axes, "x")
    return percent_axis(axes, "y")


def matrix_norm(matrices: Sequence[ClassMatrix]) -> Normalize:
    """Return one scale for several matrices: even up to 1 point, by powers of ten beyond, to the largest gap."""
    largest = max(float(np.nanmax(np.abs(_beyond_chance(found)), initial=0.0)) for found in matrices)
    reach = max(largest, 0.02)
    return SymLogNorm(linthresh=0.01, vmin=-reach, vmax=reach, base=10)


def draw_class_matrix(
    axes: Axes,
    found: ClassMatrix,
    names: Sequence[str] | None = None,
    *,
    norm: Normalize | None = None,
    palette: Palette = LIGHT,
) -> Axes:
    """Draw over- and under-confidence class by class; gaps that chance explains are drawn as none.

    The image is the last of `axes.images`, for a colour bar.
    """
    shown = _beyond_chance(found)
    colours = palette.diverging().with_extremes(bad=palette.background)
    scale = matrix_norm([found]) if norm is None else norm
    axes.imshow(shown, cmap=colours, norm=scale, aspect="equal", interpolation="nearest")
    axes.set_xlabel("class")
    axes.set_ylabel("predicted")
    dress(axes, palette, grid=False)
    n_classes = len(found.predicted)
    if n_classes <= _FEW_CLASSES:
        labels = [shortened(name, _LONGEST_NAME) for name in names or map(str, range(n_classes))]
        rotation = 90 if max(map(len, labels)) > 2 else 0
        axes.set_xticks(range(n_classes), labels, rotation=rotation, parse_math=False)
        axes.set_yticks(range(n_classes), labels, parse_math=False)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    if n_classes <= _FEW_CLASSES // 2:
        _write_gaps(axes, shown, scale, colours)
    return axes


def _beyond_chance(found: ClassMatrix) -> Floats:
    """The gaps, 0 where chance explains them, NaN where a class is never predicted."""
    return np.where(np.abs(found.gap) <= _CHANCE * found.deviation, 0.0, found.gap)


def _write_gaps(axes: Axes, shown: Floats, scale: Normalize, colours: Colormap) -> None:
    for (row, column), gap in np.ndenumerate(shown):
        if np.isfinite(gap) and abs(gap) >= 0.005:
            red, green, blue, _ = colours(np.asarray(scale(gap)).item())
            light = 0.3 * red + 0.59 * green + 0.11 * blue > 0.5
            axes.text(
                column,
                row,
                f"{100 * gap:+.0f}",
                ha="center",
                va="center",
                fontsize=SMALL - 1.5,
                color="#111111" if light else "#ffffff",
            )
