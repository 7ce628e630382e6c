"""Reliability curves -> Axes: accuracy against confidence, the band of a calibrated model, and row counts."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from glayers.checks import check_choice
from glayers.metrics import METRICS, Event, corp, ece, smooth_ece, top
from glayers.metrics.binned import Binning
from glayers.metrics.events import Scored, check_event
from glayers.report.curves import (
    Reliability,
    ReliabilityCurve,
    corp_reliability,
    ks_curves,
    reliability,
    smooth_reliability,
)
from glayers.report.plots.ks import draw_rates
from glayers.report.plots.style import (
    LIGHT,
    Methods,
    Palette,
    check_methods,
    dress,
    grid,
    side_by_side,
    style,
    tidy,
    title,
)

__all__ = ["draw_counts", "draw_reliability", "draw_reliability_curve", "overview_figure", "reliability_figure"]

_FEWEST_DRAWS = 19  # for the band at level 0.95, which the strip of counts does not show
ReliabilityKind: TypeAlias = Literal["equal_width", "equal_mass", "smooth", "corp"]


def reliability_figure(
    methods: Methods,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event | list[Event] = top,
    dark: bool = False,
    kind: ReliabilityKind = "equal_width",
    n_bins: int = 15,
) -> Figure:
    """Draw the reliability diagrams of one or more methods, with the number of rows below each.

    Parameters
    ----------
    methods
        Array (n, k), `Predictions` or `Confidences` by name; one panel per method and event.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    sample_weight
        Row weights (n,).
    event
        `top`, `rank(r)`, `within_top(r)`, `label(c)` or `one_of(classes)`, or a list of them.
    dark
        Whether to draw light lines on a dark ground.
    kind
        "equal_width" or "equal_mass" bins, "smooth" (kernel) or "corp" (isotonic).
    n_bins
        The number of bins.

    Returns
    -------
    Figure
        Save it with `figure.savefig(path)`.

    Examples
    --------
    >>> from glayers import Confidences
    >>> figure = reliability_figure({"model": Confidences([0.9, 0.6, 0.8], [True, False, True])}, n_bins=5)
    >>> len(figure.axes)  # the diagram, and the number of rows below it
    2
    """
    check_choice(kind, _KINDS, "kind")

    def draw(main: Axes, strip: Axes, given: object, event: Event, palette: Palette) -> str:
        scored = check_event(given, labels, sample_weight, event=event)
        draw_counts(strip, reliability(scored, n_bins=n_bins, n_resamples=_FEWEST_DRAWS), palette=palette)
        return _KINDS[kind](main, scored, n_bins, palette)

    return side_by_side(methods, draw, event, dark=dark, strip=True)


def overview_figure(
    methods: Methods,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event = top,
    dark: bool = False,
    n_bins: int = 15,
) -> Figure:
    """Draw for every method its reliability diagram, and beside it predicted and observed probability by fractile.

    Parameters
    ----------
    methods, labels, sample_weight, event, dark, n_bins
        As in `reliability_figure`.

    Returns
    -------
    Figure
        One row of two panels per method.

    Examples
    --------
    >>> from glayers import Confidences
    >>> figure = overview_figure({"model": Confidences([0.9, 0.6, 0.8], [True, False, True])}, n_bins=5)
    >>> len(figure.axes)
    2
    """
    check_methods(methods)
    with style(dark) as palette:
        figure, panels = grid(2 * len(methods), palette, columns=2)
        for (name, given), left, right in zip(methods.items(), panels[::2], panels[1::2], strict=True):
            scored = check_event(given, labels, sample_weight, event=event)
            draw_reliability(left.main, reliability(scored, n_bins=n_bins), palette=palette)
            title(left.main, name, f"ECE {METRICS['ece'].format(ece(scored, n_bins=n_bins))}")
            curves = ks_curves(scored)
            draw_rates(right.main, curves, palette=palette)
            title(right.main, name, f"KS {METRICS['ks'].format(curves.test.value)}")
        figure = tidy(figure, panels, columns=2)
        for panel in panels[1::2]:
            panel.main.set_ylabel("probability, %")
    return figure


def draw_reliability(axes: Axes, found: Reliability, *, palette: Palette = LIGHT) -> Axes:
    """Draw one bar for every bin that holds a row, its band, and its means: a diamond where they leave the band.

    Parameters
    ----------
    axes
        The Axes to draw on.
    found
        What `reliability` returned.
    palette
        `LIGHT` or `DARK`, as `style` gives it.

    Returns
    -------
    Axes
        The same Axes.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = reliability(Confidences([0.9, 0.6, 0.8], [True, False, True]), n_bins=5)
    >>> len(draw_reliability(Figure().add_subplot(), found).patches)  # a bar and a band for each of three bins
    6
    """
    bins: dict[str, Any] = {"x": found.low, "width": found.high - found.low, "align": "edge"}
    edges: dict[str, Any] = {"edgecolor": palette.background, "linewidth": 0.8}
    axes.bar(**bins, height=found.accuracy, color=palette.truth, alpha=0.35, label="accuracy per bin", **edges)
    axes.bar(**bins, height=found.band_high - found.band_low, bottom=found.band_low, **palette.shade(found.level))
    inside = (found.band_low <= found.accuracy) & (found.accuracy <= found.band_high)
    for chosen, marker, size, edge, label in (
        (inside, "o", 5.5, palette.background, "within the band"),
        (~inside, "D", 6.5, palette.ink, "outside the band"),
    ):
        if not chosen.any():
            continue
        x, y = found.confidence[chosen], found.accuracy[chosen]
        (points,) = axes.plot(x, y, marker, color=palette.truth, markersize=size, label=label, zorder=4, clip_on=False)
        points.set(markeredgecolor=edge, markeredgewidth=0.8)
        points.set_in_layout(False)  # a marker may cross the edge; no room is made for it
    return _unit_square(axes, palette)


def draw_reliability_curve(axes: Axes, found: ReliabilityCurve, *, palette: Palette = LIGHT) -> Axes:
    """Draw a smoothed or isotonic curve with its band; a smoothed curve is thin where rows are few.

    Parameters
    ----------
    axes
        The Axes to draw on.
    found
        What `smooth_reliability` or `corp_reliability` returned.
    palette
        `LIGHT` or `DARK`, as `style` gives it.

    Returns
    -------
    Axes
        The same Axes.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = corp_reliability(Confidences([0.9, 0.6, 0.8], [True, False, True]))
    >>> len(draw_reliability_curve(Figure().add_subplot(), found).lines)  # the curve and the diagonal
    2
    """
    axes.fill_between(found.x, found.low, found.high, **palette.shade(found.level))
    if found.density is None:
        axes.plot(found.x, found.accuracy, color=palette.truth, linewidth=2.2, label="accuracy, isotonic")
    else:
        axes.plot(found.x, found.accuracy, color=palette.truth, linewidth=1.4, label="accuracy, smoothed")
        thick = np.where(found.density >= np.quantile(found.density, 0.5), found.accuracy, np.nan)
        axes.plot(found.x, thick, color=palette.truth, linewidth=3.2, solid_capstyle="round")
    return _unit_square(axes, palette)


def draw_counts(axes: Axes, found: Reliability, *, palette: Palette = LIGHT) -> Axes:
    """Draw the number of rows per bin on a logarithmic scale.

    Parameters
    ----------
    axes
        The Axes to draw on.
    found
        What `reliability` returned.
    palette
        `LIGHT` or `DARK`, as `style` gives it.

    Returns
    -------
    Axes
        The same Axes.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = reliability(Confidences([0.9, 0.6, 0.8], [True, False, True]), n_bins=5)
    >>> len(draw_counts(Figure().add_subplot(), found).patches)
    3
    """
    axes.bar(found.low, found.count, found.high - found.low, align="edge", color=palette.band, linewidth=0.8)
    axes.set(yscale="log", ylim=(min(0.5, found.count.min() / 2), 3 * found.count.max()))
    axes.yaxis.set_major_locator(LogLocator(base=10.0, numticks=3))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    return dress(axes, palette, x="confidence, %", y="rows")


def short_count(value: float) -> str:
    """Return a number of rows in about four characters.

    >>> [short_count(n) for n in (7, 250, 10_000, 2_500_000)]
    ['7', '250', '10k', '2.5M']
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def _unit_square(axes: Axes, palette: Palette) -> Axes:
    """Draw the diagonal on axes from 0 to 100 %."""
    axes.plot([0, 1], [0, 1], color=palette.score, linestyle="--", linewidth=1.4, label="calibrated", zorder=3)
    return dress(axes, palette, x="confidence, %", y="accuracy, %")


def _draw_bins(axes: Axes, scored: Scored, n_bins: int, palette: Palette, *, binning: Binning) -> str:
    draw_reliability(axes, reliability(scored, n_bins=n_bins, binning=binning), palette=palette)
    return f"ECE {METRICS['ece'].format(ece(scored, n_bins=n_bins, binning=binning))}"


def _draw_smooth(axes: Axes, scored: Scored, _: int, palette: Palette) -> str:
    draw_reliability_curve(axes, smooth_reliability(scored), palette=palette)
    return f"smooth ECE {METRICS['smooth_ece'].format(smooth_ece(scored))}"


def _draw_corp(axes: Axes, scored: Scored, _: int, palette: Palette) -> str:
    draw_reliability_curve(axes, corp_reliability(scored), palette=palette)
    return f"miscalibration {corp(scored).miscalibration:.4f}"


_KINDS: dict[str, Callable[[Axes, Scored, int, Palette], str]] = {
    "equal_width": partial(_draw_bins, binning="equal_width"),
    "equal_mass": partial(_draw_bins, binning="equal_mass"),
    "smooth": _draw_smooth,
    "corp": _draw_corp,
}
