"""Probabilities of one or more methods, and labels -> whole figures, methods side by side.

Each function takes `(methods, labels, weights=None, *, dark=False, ...)` and returns a matplotlib `Figure`, which the
caller saves: `figure.savefig("ks.svg")`. `FIGURES` names them for the command line.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from matplotlib.figure import Figure

from glayers.errors import BadPredictions
from glayers.metrics import paired_differences
from glayers.report.curves import calibration_map, class_matrix
from glayers.report.plots.choices import Methods, check_methods
from glayers.report.plots.classes import draw_calibration_map, draw_class_matrix, matrix_norm
from glayers.report.plots.event_figures import ks_figure, ks_panels, reliability_figure
from glayers.report.plots.layout import grid, tidy, title
from glayers.report.plots.results import forest_figure
from glayers.report.plots.style import style

_TICKS = (0.01, 0.03, 0.1, 0.3)  # of the class matrix's scale, on both sides of 0


def calibration_map_figure(
    methods: Methods,
    labels: object = None,
    weights: object = None,
    *,
    dark: bool = False,
) -> Figure:
    """What the first method's probabilities become by each of the others: of the top class, and of every class."""
    del labels, weights  # a map is what it is, whatever is true; they are taken so that all figures are called alike
    check_methods(methods, least=2)
    (_, before), *others = methods.items()
    with style(dark) as palette:
        figure, panels = grid(len(others), palette)
        for panel, (name, after) in zip(panels, others, strict=True):
            classes = [calibration_map(before, after, c) for c in range(np.asarray(before).shape[1])]
            draw_calibration_map(panel.main, calibration_map(before, after), classes, palette=palette)
            title(panel.main, name)
        return tidy(figure, panels, palette)


def class_figure(
    methods: Methods,
    labels: object,
    weights: object = None,
    *,
    dark: bool = False,
    names: tuple[str, ...] | None = None,
) -> Figure:
    """Class by class, where a class is predicted: how much more each class gets than it deserves."""
    check_methods(methods)
    found = {name: class_matrix(probabilities, labels, weights) for name, probabilities in methods.items()}
    n_classes = {len(matrix.predicted) for matrix in found.values()}
    if names is not None and n_classes != {len(names)}:
        raise BadPredictions(
            f"names must be one a class; got {len(names)} for {' and '.join(map(str, n_classes))} classes"
        )
    norm = matrix_norm(list(found.values()))
    with style(dark) as palette:
        figure, panels = grid(len(methods), palette, size=(3.6, 3.0))
        for panel, (name, matrix) in zip(panels, found.items(), strict=True):
            draw_class_matrix(panel.main, matrix, names, norm=norm, palette=palette)
            title(panel.main, name)
        bar = figure.colorbar(panels[-1].main.images[-1], ax=[panel.main for panel in panels], shrink=0.8)
        bar.set_label("points too much (+) or too little (-)")
        ticks = [sign * tick for sign in (-1, 1) for tick in _TICKS if tick < (norm.vmax or 1.0)]
        bar.set_ticks([0.0, *ticks], labels=["0", *(f"{100 * tick:+g}" for tick in ticks)])
        bar.ax.minorticks_off()
        bar.ax.tick_params(color=palette.ink, labelcolor=palette.ink)
        return tidy(figure, panels, palette)


def differences_figure(
    methods: Methods,
    labels: object,
    weights: object = None,
    *,
    dark: bool = False,
    metrics: tuple[str, ...] = ("nll", "ks", "accuracy"),
    n_resamples: int = 1000,
    random_state: int = 0,
) -> Figure:
    """How each method differs from the first, with paired bootstrap intervals."""
    check_methods(methods, least=2)
    found = paired_differences(
        methods, labels, weights, metrics=metrics, n_resamples=n_resamples, random_state=random_state
    )
    return forest_figure(found, against=next(iter(methods)), dark=dark)


FIGURES: dict[str, Callable[..., Figure]] = {
    "reliability": reliability_figure,
    "reliability-equal-mass": partial(reliability_figure, kind="equal_mass"),
    "reliability-smooth": partial(reliability_figure, kind="smooth"),
    "reliability-corp": partial(reliability_figure, kind="corp"),
    "ks": ks_figure,
    "ks-fractile": partial(ks_figure, kind="fractile"),
    "ks-score": partial(ks_figure, kind="score"),
    "ks-ranks": ks_panels,
    "ks-within": partial(ks_panels, by="within"),
    "ks-classes": partial(ks_panels, by="class_"),
    "map": calibration_map_figure,
    "classes": class_figure,
    "differences": differences_figure,
}
