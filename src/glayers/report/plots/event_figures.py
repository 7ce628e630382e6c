"""Probabilities of methods, labels and an event -> reliability diagrams and KS curves, methods side by side."""

from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from glayers.arrays import Bools, Floats
from glayers.metrics import class_ks, corp, ece_of, smooth_ece_of
from glayers.metrics.bins import Binning
from glayers.report.curves import (
    KsCurves,
    corp_reliability,
    event_name,
    event_scores,
    ks_curves,
    reliability,
    smooth_reliability,
)
from glayers.report.plots.choices import Methods, check_choice, check_methods
from glayers.report.plots.ks import draw_against_score, draw_cumulative, draw_gap, draw_rates
from glayers.report.plots.layout import Panel, grid, tidy, title
from glayers.report.plots.reliability import (
    draw_corp_reliability,
    draw_counts,
    draw_reliability,
    draw_smooth_reliability,
)
from glayers.report.plots.style import Palette, style

ReliabilityKind: TypeAlias = Literal["equal_width", "equal_mass", "smooth", "corp"]
KsKind: TypeAlias = Literal["cumulative", "gap", "fractile", "score"]
_KS_KINDS = {"cumulative": draw_cumulative, "gap": draw_gap, "fractile": draw_rates, "score": draw_against_score}
_WITH_GAP = ("cumulative", "fractile")  # have fractiles along the axis, as the gap below them


def reliability_figure(
    methods: Methods,
    labels: object,
    weights: object = None,
    *,
    dark: bool = False,
    kind: ReliabilityKind = "equal_width",
    n_bins: int = 15,
    rank: int | None = None,
    within: int | None = None,
    class_: int | None = None,
) -> Figure:
    """Reliability diagrams of the top class or of another event, with the number of rows below each."""
    check_methods(methods)
    check_choice(kind, _RELIABILITY_KINDS, "kind")
    draw = _RELIABILITY_KINDS[kind]
    with style(dark) as palette:
        figure, panels = grid(len(methods), palette, strip=True)
        for panel, (name, probabilities) in zip(panels, methods.items(), strict=True):
            scores, hits = event_scores(probabilities, labels, rank=rank, within=within, class_=class_)
            words = draw(panel.main, scores, hits, weights, n_bins, palette)
            draw_counts(panel.strip, reliability(scores, hits, weights, n_bins=n_bins), palette=palette)
            title(panel.main, _named(name, rank=rank, within=within, class_=class_), words)
        return tidy(figure, panels, palette)


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
    check_choice(kind, _KS_KINDS, "kind")
    with style(dark) as palette:
        figure, panels = grid(len(methods), palette, strip=kind in _WITH_GAP)
        for panel, (name, probabilities) in zip(panels, methods.items(), strict=True):
            scores, hits = event_scores(probabilities, labels, rank=rank, within=within, class_=class_)
            found = ks_curves(scores, hits, weights)
            _draw_ks(panel, found, kind, palette)
            title(panel.main, _named(name, rank=rank, within=within, class_=class_))
        return tidy(figure, panels, palette)


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
    """KS panels, one line a method: rank 1 to r, within the top 1 to r, or the r classes of the first's largest KS."""
    check_methods(methods)
    check_choice(kind, _KS_KINDS, "kind")
    check_choice(by, ("rank", "within", "class_"), "by")
    first = np.asarray(next(iter(methods.values())))
    r = min(r, first.shape[1])
    if by == "class_":
        worst = np.argsort(-class_ks(first, labels, weights), kind="stable")[:r]
        numbers = worst.tolist()
    else:
        numbers = list(range(1, r + 1))
    choices: list[dict[str, int]] = [{by: number} for number in numbers]
    with style(dark) as palette:
        figure, panels = grid(len(methods) * r, palette, columns=r, strip=kind in _WITH_GAP)
        places = iter(panels)
        for name, probabilities in methods.items():
            for choice in choices:
                panel = next(places)
                found = ks_curves(*event_scores(probabilities, labels, **choice), weights)
                _draw_ks(panel, found, kind, palette)
                title(panel.main, name, event_name(**choice))
        return tidy(figure, panels, palette, columns=r)


def _draw_ks(panel: Panel, found: KsCurves, kind: KsKind, palette: Palette) -> None:
    _KS_KINDS[kind](panel.main, found, palette=palette)
    if kind in _WITH_GAP:
        draw_gap(panel.strip, found, palette=palette)


def _named(name: str, **event: int | None) -> str:
    """The method, and the event where it is not the usual one."""
    words = event_name(**event)
    return name if words == "top class" else f"{name}, {words}"


def _draw_bins(
    axes: Axes, scores: Floats, hits: Bools, weights: object, n_bins: int, palette: Palette, *, binning: Binning
) -> str:
    draw_reliability(axes, reliability(scores, hits, weights, n_bins=n_bins, binning=binning), palette=palette)
    return f"ECE {100 * ece_of(scores, hits, weights, n_bins, binning):.2f} %"


def _draw_smooth(axes: Axes, scores: Floats, hits: Bools, weights: object, n_bins: int, palette: Palette) -> str:
    del n_bins  # there are none
    draw_smooth_reliability(axes, smooth_reliability(scores, hits, weights), palette=palette)
    return f"smooth ECE {100 * smooth_ece_of(scores, hits, weights):.2f} %"


def _draw_corp(axes: Axes, scores: Floats, hits: Bools, weights: object, n_bins: int, palette: Palette) -> str:
    del n_bins  # there are none
    draw_corp_reliability(axes, corp_reliability(scores, hits, weights), palette=palette)
    return f"miscalibration {corp(scores, hits, weights).miscalibration:.4f}"


_RELIABILITY_KINDS: dict[str, Callable[[Axes, Floats, Bools, object, int, Palette], str]] = {
    "equal_width": partial(_draw_bins, binning="equal_width"),
    "equal_mass": partial(_draw_bins, binning="equal_mass"),
    "smooth": _draw_smooth,
    "corp": _draw_corp,
}
