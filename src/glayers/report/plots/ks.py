"""KS curves -> Axes: what a model predicts and what is observed, against the fractile of rows or against the score."""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from glayers.checks import check_choice, whole_number
from glayers.metrics import METRICS, Event, ks_per_class, label, rank, top, within_top
from glayers.metrics.events import check_rows
from glayers.report.curves import KsCurves, ks_curves
from glayers.report.plots.style import LIGHT, SMALL, Methods, Palette, check_methods, dress, side_by_side

__all__ = ["draw_cumulative", "draw_gap", "draw_rates", "ks_figure", "ks_panels"]

KsKind: TypeAlias = Literal["cumulative", "gap", "fractile", "score"]
_LEAST_REACH = 1e-4  # of an axis, for a model that is always certain and always right
_PREDICTED, _OBSERVED = "predicted", "observed"
_EVENTS: dict[str, Callable[[Any], Event]] = {"rank": rank, "within_top": within_top, "label": label}


def ks_figure(
    methods: Methods,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event | list[Event] = top,
    dark: bool = False,
    kind: KsKind = "cumulative",
) -> Figure:
    """Draw the KS curves of one or more methods, with the gap between them below.

    Parameters
    ----------
    methods, labels, sample_weight, event, dark
        As in `reliability_figure`.
    kind
        "cumulative" curves, their "gap", or score and smoothed probability against "fractile" or "score".

    Returns
    -------
    Figure
        One panel per method.

    Examples
    --------
    >>> from glayers import Confidences
    >>> figure = ks_figure({"model": Confidences([0.9, 0.6, 0.8], [True, False, True])})
    >>> len(figure.axes)  # the curves, and the gap below them
    2
    """
    check_choice(kind, _KINDS, "kind")

    def draw(main: Axes, strip: Axes, given: object, event: Event, palette: Palette) -> None:
        found = ks_curves(given, labels, sample_weight=sample_weight, event=event)
        _KINDS[kind](main, found, palette=palette)
        if kind in _WITH_GAP:
            draw_gap(strip, found, palette=palette)

    return side_by_side(methods, draw, event, dark=dark, strip=kind in _WITH_GAP)


def ks_panels(
    methods: Methods,
    labels: object = None,
    *,
    sample_weight: object = None,
    dark: bool = False,
    kind: KsKind = "cumulative",
    by: Literal["rank", "within_top", "label"] = "rank",
    r: int = 4,
) -> Figure:
    """Draw the KS curves of several events, with one row of panels per method.

    Parameters
    ----------
    methods, labels, sample_weight, dark, kind
        As in `ks_figure`; `Confidences` do not suffice.
    by
        "rank": ranks 1 to r; "within_top": within the top 1 to r; "label": the r classes with the largest KS error of
        the first method.
    r
        The number of events.

    Returns
    -------
    Figure
        r panels per method.

    Examples
    --------
    >>> p = [[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]]
    >>> len(ks_panels({"model": p}, [0, 1, 0], kind="gap", r=2).axes)
    2
    """
    check_methods(methods)
    check_choice(by, _EVENTS, "by")
    first = check_rows(next(iter(methods.values())), labels, sample_weight)
    r = min(whole_number(r, "r", least=1), first.n_classes)
    chosen: list[int | str] = list(range(1, r + 1))
    if by == "label":
        worst = np.argsort(-ks_per_class(first), kind="stable")[:r].tolist()
        chosen = worst if first.class_names is None else [first.class_names[c] for c in worst]
    events = [_EVENTS[by](number) for number in chosen]
    return ks_figure(methods, labels, sample_weight=sample_weight, event=events, dark=dark, kind=kind)


def draw_cumulative(axes: Axes, found: KsCurves, *, palette: Palette = LIGHT) -> Axes:
    """Draw cumulative score and cumulative hits against fractile, with a bar at the KS error.

    Parameters
    ----------
    axes
        The Axes to draw on.
    found
        What `ks_curves` returned.
    palette
        `LIGHT` or `DARK`, as `style` gives it.

    Returns
    -------
    Axes
        The same Axes.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = ks_curves(Confidences([0.9, 0.6, 0.8], [True, False, True]))
    >>> len(draw_cumulative(Figure().add_subplot(), found).lines)
    3
    """
    low, high = found.cumulative_score - found.test.bound, found.cumulative_score + found.test.bound
    axes.fill_between(found.fractile, low, high, **palette.shade(found.test.level))
    axes.plot(found.fractile, found.cumulative_score, "--", color=palette.score, label=_PREDICTED)
    axes.plot(found.fractile, found.cumulative_hits, color=palette.truth, label=_OBSERVED)
    at = found.fractile[found.where]
    ends = found.cumulative_score[found.where], found.cumulative_hits[found.where]
    axes.plot([at, at], ends, color=palette.ink, linewidth=2.4, zorder=4, clip_on=False)
    _write_ks(axes, found, palette)
    dress(axes, palette, x="fractile, %", y="cumulative, %")
    axes.set_ylim(0, 1.05 * max(*high, *found.cumulative_hits, _LEAST_REACH))
    return axes


def draw_gap(axes: Axes, found: KsCurves, *, palette: Palette = LIGHT) -> Axes:
    """Draw cumulative score minus cumulative hits against fractile; a calibrated model stays within the band.

    Parameters
    ----------
    axes
        The Axes to draw on.
    found
        What `ks_curves` returned.
    palette
        `LIGHT` or `DARK`, as `style` gives it.

    Returns
    -------
    Axes
        The same Axes.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = ks_curves(Confidences([0.9, 0.6, 0.8], [True, False, True]))
    >>> draw_gap(Figure().add_subplot(), found).get_ylabel()
    'gap, %'
    """
    axes.axhspan(-found.test.bound, found.test.bound, **palette.shade(found.test.level))
    axes.axhline(0, color=palette.score, linestyle="--", linewidth=1.4)
    gap = found.cumulative_score - found.cumulative_hits
    axes.plot(found.fractile, gap, color=palette.truth, label="predicted minus observed")
    at = found.fractile[found.where]
    axes.plot([at, at], [0, gap[found.where]], color=palette.ink, linewidth=2.4, zorder=4, clip_on=False)
    dress(axes, palette, x="fractile, %", y="gap, %")
    reach = 1.15 * max(found.test.value, found.test.bound, _LEAST_REACH)
    axes.set_ylim(-reach, reach)
    return axes


def draw_rates(
    axes: Axes, found: KsCurves, *, against: Literal["fractile", "score"] = "fractile", palette: Palette = LIGHT
) -> Axes:
    """Draw score and spline-smoothed probability against fractile or against score.

    Parameters
    ----------
    axes
        The Axes to draw on.
    found
        What `ks_curves` returned.
    against
        "fractile" or "score": what stands along the axis.
    palette
        `LIGHT` or `DARK`, as `style` gives it.

    Returns
    -------
    Axes
        The same Axes.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = ks_curves(Confidences([0.9, 0.6, 0.8], [True, False, True]))
    >>> draw_rates(Figure().add_subplot(), found, against="score").get_xlabel()
    'score, %'
    """
    x = found.fractile if against == "fractile" else found.score
    axes.plot(x, found.score, "--", color=palette.score, label=_PREDICTED)
    axes.plot(x, found.hit_rate, color=palette.truth, label=_OBSERVED)
    axes.fill_between(x, found.score, found.hit_rate, color=palette.truth, alpha=0.2, linewidth=0)
    high = found.score.mean() > 0.5 if against == "fractile" else (found.hit_rate - found.score).mean() > 0.05
    _write_ks(axes, found, palette, low=bool(high))
    return dress(axes, palette, x=f"{against}, %", y="probability, %")


_KINDS: dict[str, Callable[..., Axes]] = {
    "cumulative": draw_cumulative,
    "gap": draw_gap,
    "fractile": draw_rates,
    "score": partial(draw_rates, against="score"),
}
_WITH_GAP = ("cumulative", "fractile")  # kinds with the fractile along the axis, so that the gap fits below


def _write_ks(axes: Axes, found: KsCurves, palette: Palette, *, low: bool = False) -> None:
    """Write KS and its bound into the upper left corner, or into the lower right where curves take the other."""
    x, y, side, edge = (0.97, 0.04, "right", "bottom") if low else (0.04, 0.96, "left", "top")
    value, bound = (METRICS["ks"].format(number) for number in (found.test.value, found.test.bound))
    below = "too few groups to tell" if found.test.too_few_groups else f"calibrated ≤ {bound}"
    text = axes.text(x, y, f"KS {value}\n{below}", ha=side, va=edge, transform=axes.transAxes)
    text.set(fontsize=SMALL, color=palette.ink)
    text.set_bbox({"facecolor": palette.background, "edgecolor": "none", "alpha": 0.75, "pad": 1.5})
