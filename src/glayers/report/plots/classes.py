"""Calibration maps and class matrices -> Axes: how probabilities change, and which classes are over-predicted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, SymLogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from glayers.arrays import Floats
from glayers.checks import items_of
from glayers.errors import BadPredictions
from glayers.metrics import Event
from glayers.report import shortened
from glayers.report.curves import CalibrationMap, ClassMatrix, calibration_map, class_matrix
from glayers.report.curves.classes import class_probabilities
from glayers.report.plots.style import LIGHT, SMALL, Methods, Palette, check_methods, dress, side_by_side, style

__all__ = ["calibration_map_figure", "class_figure", "draw_calibration_map", "draw_class_matrix", "matrix_norm"]

_FEW_CLASSES = 20  # more leave no room for names and numbers
_LONGEST_NAME = 16  # letters; longer names leave the matrix no room
_FEWEST_ROWS = 5  # fewer give no reliable median
_CHANCE = 2.0  # deviations: a smaller gap is not significant
_TICKS = (0.01, 0.03, 0.1, 0.3)  # of the colour bar, on both sides of 0


def calibration_map_figure(
    methods: Methods, labels: object = None, *, sample_weight: object = None, dark: bool = False
) -> Figure:
    """Draw how each of the other methods changes the probabilities of the first, for the top class and every class.

    Parameters
    ----------
    methods
        Array (n, k) or `Predictions` by name, the uncalibrated first.
    labels, sample_weight
        Not used; all figures are called alike.
    dark
        Whether to draw light lines on a dark ground.

    Returns
    -------
    Figure
        One panel for each method but the first.

    Examples
    --------
    >>> p = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2]])
    >>> len(calibration_map_figure({"before": p, "after": (p + 1) / 4}).axes)
    1
    """
    del labels, sample_weight
    check_methods(methods, least=2)
    (_, before), *others = methods.items()
    old = class_probabilities(before, "methods")

    def draw(main: Axes, _: Axes, after: object, __: Event, palette: Palette) -> None:
        new = class_probabilities(after, "methods")
        classes = [calibration_map(old, new, c) for c in range(old.shape[1])]
        draw_calibration_map(main, calibration_map(old, new), classes, palette=palette)

    return side_by_side(dict(others), draw, dark=dark)


def class_figure(
    methods: Methods,
    labels: object = None,
    *,
    sample_weight: object = None,
    dark: bool = False,
    names: tuple[str, ...] | None = None,
) -> Figure:
    """Draw by predicted class how much the mean probability of each class exceeds its frequency.

    Parameters
    ----------
    methods, labels, sample_weight, dark
        As in `reliability_figure`; `Confidences` do not suffice.
    names
        The names of the classes.

    Returns
    -------
    Figure
        One matrix per method, with one colour bar.

    Examples
    --------
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]]
    >>> len(class_figure({"model": p}, [0, 1, 0], names=("a", "b", "c")).axes)  # the matrix and the colour bar
    2
    """
    check_methods(methods)
    found = {name: class_matrix(given, labels, sample_weight=sample_weight) for name, given in methods.items()}
    norm = matrix_norm(list(found.values()))

    def draw(main: Axes, _: Axes, matrix: ClassMatrix, __: Event, palette: Palette) -> None:
        draw_class_matrix(main, matrix, names, norm=norm, palette=palette)

    figure = side_by_side(found, draw, dark=dark, size=(3.6, 3.0))
    with style(dark) as palette:
        bar = figure.colorbar(figure.axes[-1].images[-1], ax=figure.axes, shrink=0.8)
        bar.set_label("points too high or low, log scale")
        ticks = [sign * tick for sign in (-1, 1) for tick in _TICKS if tick < (norm.vmax or 1.0)]
        bar.set_ticks([0.0, *ticks], labels=["0", *(_signed(100 * tick) for tick in ticks)])
        bar.ax.minorticks_off()
        bar.ax.tick_params(color=palette.ink, labelcolor=palette.ink)
    return figure


def draw_calibration_map(
    axes: Axes, top: CalibrationMap, classes: Sequence[CalibrationMap] = (), *, palette: Palette = LIGHT
) -> Axes:
    """Draw the map of the top class with the middle 80 % of rows, and thin lines for each class.

    Parameters
    ----------
    axes
        The Axes to draw on.
    top, classes
        What `calibration_map` returned for the top class and for each class.
    palette
        `LIGHT` or `DARK`, as `style` gives it.

    Returns
    -------
    Axes
        The same Axes.

    Examples
    --------
    >>> p = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2]])
    >>> draw_calibration_map(Figure().add_subplot(), calibration_map(p, (p + 1) / 4)).get_ylabel()
    'after, %'
    """
    for place, found in enumerate(classes):
        x, y = found.before[found.count >= _FEWEST_ROWS], found.after[found.count >= _FEWEST_ROWS]
        label = "each class" if place == 0 else None
        axes.plot(x, y, color=palette.score, linewidth=1.0, alpha=max(0.1, min(0.7, 6 / len(classes))), label=label)
    shade: dict[str, Any] = {"color": palette.truth, "alpha": 0.3, "linewidth": 0, "label": "middle 80 % of rows"}
    axes.fill_between(top.before, top.low, top.high, **shade)
    axes.plot([0, 1], [0, 1], "--", color=palette.ink, linewidth=1.2, label="unchanged")
    axes.plot(top.before, top.after, color=palette.truth, linewidth=2.4, label="top class")
    return dress(axes, palette, x="before, %", y="after, %")


def matrix_norm(matrices: Sequence[ClassMatrix]) -> Normalize:
    """Return one colour scale for several matrices: linear up to 1 point, logarithmic beyond.

    Parameters
    ----------
    matrices
        What `class_matrix` returned for each method.

    Returns
    -------
    Normalize
        The scale, for `draw_class_matrix`.

    Examples
    --------
    >>> matrix_norm([class_matrix([[0.7, 0.3], [0.4, 0.6]], [0, 1])]).vmax
    0.02
    """
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
    """Draw over- and under-prediction by class; gaps within two standard deviations are drawn as zero.

    Parameters
    ----------
    axes
        The Axes to draw on; the image is the last of its `images`, for a colour bar.
    found
        What `class_matrix` returned.
    names
        The names of the classes.
    norm
        The colour scale; by default that of this matrix alone.
    palette
        `LIGHT` or `DARK`, as `style` gives it.

    Returns
    -------
    Axes
        The same Axes.

    Examples
    --------
    >>> found = class_matrix([[0.7, 0.3], [0.4, 0.6]], [0, 1])
    >>> draw_class_matrix(Figure().add_subplot(), found, ["cat", "dog"]).get_ylabel()
    'predicted class'
    """
    n_classes = len(found.predicted)
    if names is not None and len(items_of(names) or ()) != n_classes:
        raise BadPredictions(f"names must be one per class, {n_classes} of them; got {len(items_of(names) or ())}")
    shown = _beyond_chance(found)
    colours: Colormap = LinearSegmentedColormap.from_list("gap", [palette.under, palette.even, palette.over])
    colours = colours.with_extremes(bad=palette.background)
    scale = matrix_norm([found]) if norm is None else norm
    axes.imshow(shown, cmap=colours, norm=scale, aspect="equal", interpolation="nearest")
    dress(axes, palette, x="class", y="predicted class", grid=False)
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
    """Return the gaps, 0 within two standard deviations, NaN where a class is never predicted."""
    return np.where(np.abs(found.gap) <= _CHANCE * found.deviation, 0.0, found.gap)


def _signed(number: float) -> str:
    """Return a number with its sign; a minus as wide as the plus.

    >>> _signed(-3.0)
    '\N{MINUS SIGN}3'
    """
    return f"{number:+g}".replace("-", "\N{MINUS SIGN}")


def _write_gaps(axes: Axes, shown: Floats, scale: Normalize, colours: Colormap) -> None:
    for (row, column), gap in np.ndenumerate(shown):
        if np.isfinite(gap) and abs(gap) >= 0.005:
            red, green, blue, _ = colours(np.asarray(scale(gap)).item())
            light = 0.3 * red + 0.59 * green + 0.11 * blue > 0.5
            colour = "#111111" if light else "#ffffff"
            axes.text(
                column, row, _signed(round(100 * gap)), ha="center", va="center", fontsize=SMALL - 1.5, color=colour
            )
