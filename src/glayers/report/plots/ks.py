"""KS curves -> Axes: what a model predicts and what is observed, against the fractile of rows or against the score."""

from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from glayers.metrics.old import class_ks
from glayers.report.curves import KsCurves, event_name, event_scores, ks_curves
from glayers.report.plots.style import (
    LIGHT,
    SMALL,
    Methods,
    Palette,
    Panel,
    check_choice,
    check_methods,
    dress,
    side_by_side,
)

KsKind: TypeAlias = Literal["cumulative", "gap", "fractile", "score"]
_LEAST_REACH = 1e-4  # of an axis, for a model that is always certain and always right
_PREDICTED, _OBSERVED = "predicted", "observed"


def ks_figure(
    methods: Methods,
    labels: object,
    weights: object = None,
    *,
    dark: bool = False,
    kind: KsKind = "cumulative",
    rank: int | None = None,
    within: int | None = None,
    class_: int | None = None,
) -> Figure:
    """KS curves of the top class or of another event, with the gap between them below."""
    check_methods(methods)
    check_choice(kind, _KINDS, "kind")

    def draw(panel: Panel, probabilities: object, palette: Palette) -> str:
        scores, hits = event_scores(probabilities, labels, rank=rank, within=within, class_=class_)
        _draw(panel, ks_curves(scores, hits, weights), kind, palette)
        return ""

    words = event_name(rank=rank, within=within, class_=class_)
    named = {(name if words == "top class" else f"{name}, {words}"): given for name, given in methods.items()}
    return side_by_side(list(named.items()), draw, dark=dark, strip=kind in _WITH_GAP)


def ks_panels(
    methods: Methods,
    labels: object,
    weights: object = None,
    *,
    dark: bool = False,
    kind: KsKind = "cumulative",
    by: Literal["rank", "within", "class_"] = "rank",
    r: int = 4,
) -> Figure:
    """KS panels, one row per method: ranks 1 to r, top 1 to top r, or the r classes of the first's largest KS."""
    check_methods(methods)
    check_choice(kind, _KINDS, "kind")
    check_choice(by, ("rank", "within", "class_"), "by")
    first = np.asarray(next(iter(methods.values())))
    r = min(r, first.shape[1])
    numbers = list(range(1, r + 1))
    if by == "class_":
        numbers = np.argsort(-class_ks(first, labels, weights), kind="stable")[:r].tolist()

    def draw(panel: Panel, given: tuple[object, dict[str, int]], palette: Palette) -> str:
        probabilities, choice = given
        _draw(panel, ks_curves(*event_scores(probabilities, labels, **choice), weights), kind, palette)
        return event_name(**choice)

    shown: list[tuple[str, Any]] = [(name, (given, {by: n})) for name, given in methods.items() for n in numbers]
    return side_by_side(shown, draw, dark=dark, strip=kind in _WITH_GAP, columns=r)


def draw_cumulative(axes: Axes, found: KsCurves, *, palette: Palette = LIGHT) -> Axes:
    """Draw cumulative score and cumulative hits against fractile, with a bar at the KS error."""
    low, high = found.cumulative_score - found.bound, found.cumulative_score + found.bound
    axes.fill_between(found.fractile, low, high, **palette.shade(found.level))
    axes.plot(found.fractile, found.cumulative_score, "--", color=palette.score, label=_PREDICTED)
    axes.plot(found.fractile, found.cumulative_hits, color=palette.truth, label=_OBSERVED)
    at = found.fractile[found.where]
    ends = found.cumulative_score[found.where], found.cumulative_hits[found.where]
    axes.plot([at, at], ends, color=palette.ink, linewidth=2.4, zorder=4, clip_on=False)
    axes.set_ylim(0, 1.05 * max(*high, *found.cumulative_hits, _LEAST_REACH))
    _write_ks(axes, found, palette)
    return _dressed(axes, palette, "cumulative, %")


def draw_gap(axes: Axes, found: KsCurves, *, palette: Palette = LIGHT) -> Axes:
    """Draw cumulative hits minus cumulative score against fractile; a calibrated model stays within the band."""
    axes.axhspan(-found.bound, found.bound, **palette.shade(found.level))
    axes.axhline(0, color=palette.score, linestyle="--", linewidth=1.4)
    gap = found.cumulative_hits - found.cumulative_score
    axes.plot(found.fractile, gap, color=palette.truth, label="observed minus predicted")
    at = found.fractile[found.where]
    axes.plot([at, at], [0, gap[found.where]], color=palette.ink, linewidth=2.4, zorder=4, clip_on=False)
    reach = 1.15 * max(found.ks, found.bound, _LEAST_REACH)
    axes.set_ylim(-reach, reach)
    return _dressed(axes, palette, "gap, %")


def draw_rates(axes: Axes, found: KsCurves, *, palette: Palette = LIGHT) -> Axes:
    """Draw score and spline-smoothed probability against fractile."""
    _draw_rates(axes, found.fractile, found, palette)
    _write_ks(axes, found, palette, low=float(found.score.mean()) > 0.5)
    return _dressed(axes, palette, "probability, %")


def draw_against_score(axes: Axes, found: KsCurves, *, palette: Palette = LIGHT) -> Axes:
    """Draw score and spline-smoothed probability against score."""
    _draw_rates(axes, found.score, found, palette)
    _write_ks(axes, found, palette, low=float((found.hit_rate - found.score).mean()) > 0.05)
    return _dressed(axes, palette, "probability, %", x="score, %")


_KINDS = {"cumulative": draw_cumulative, "gap": draw_gap, "fractile": draw_rates, "score": draw_against_score}
_WITH_GAP = ("cumulative", "fractile")  # kinds with the fractile along the axis, so that the gap fits below


def _draw(panel: Panel, found: KsCurves, kind: KsKind, palette: Palette) -> None:
    _KINDS[kind](panel.main, found, palette=palette)
    if kind in _WITH_GAP:
        draw_gap(panel.strip, found, palette=palette)


def _draw_rates(axes: Axes, x: Any, found: KsCurves, palette: Palette) -> None:
    axes.plot(x, found.score, "--", color=palette.score, label=_PREDICTED)
    axes.plot(x, found.hit_rate, color=palette.truth, label=_OBSERVED)
    axes.fill_between(x, found.score, found.hit_rate, color=palette.truth, alpha=0.2, linewidth=0)
    axes.set_ylim(0, 1.02)


def _write_ks(axes: Axes, found: KsCurves, palette: Palette, *, low: bool = False) -> None:
    """Write KS and its bound into the upper left corner, or into the lower right where curves take the other."""
    x, y = (0.97, 0.04) if low else (0.04, 0.96)
    axes.text(
        x,
        y,
        f"KS {100 * found.ks:.2f} %\ncalibrated ≤ {100 * found.bound:.2f} %",
        transform=axes.transAxes,
        ha="right" if low else "left",
        va="bottom" if low else "top",
        fontsize=SMALL,
        color=palette.ink,
        bbox={"facecolor": palette.background, "edgecolor": "none", "alpha": 0.75, "pad": 1.5},
    )


def _dressed(axes: Axes, palette: Palette, y: str, x: str = "fractile, %") -> Axes:
    axes.set_xlim(0, 1)
    return dress(axes, palette, x=x, y=y, percent_axes="xy")
