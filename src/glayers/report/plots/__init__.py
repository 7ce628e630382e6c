"""Numbers and an Axes -> the Axes with a figure on it; and whole figures by name. The only place that needs matplotlib.

>>> import numpy as np
>>> p = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
>>> figure = FIGURES["reliability"]({"uncalibrated": p}, labels=[0, 1, 0])
>>> len(figure.axes)  # the diagram, and the number of rows below it
2
"""

try:
    import matplotlib as _matplotlib  # noqa: F401  (asked for here, to say in one sentence what is missing)
except ModuleNotFoundError as problem:  # pragma: no cover
    raise ModuleNotFoundError("figures need matplotlib: pip install 'glayers[plots]'", name=problem.name) from problem

from glayers.report.plots.classes import draw_calibration_map, draw_class_matrix, matrix_norm
from glayers.report.plots.comparison import draw_critical_difference, draw_forest
from glayers.report.plots.event_figures import ks_figure, ks_panels, reliability_figure
from glayers.report.plots.figures import (
    FIGURES,
    calibration_map_figure,
    class_figure,
    differences_figure,
)
from glayers.report.plots.ks import draw_against_score, draw_cumulative, draw_gap, draw_rates
from glayers.report.plots.reliability import (
    draw_corp_reliability,
    draw_counts,
    draw_reliability,
    draw_smooth_reliability,
)
from glayers.report.plots.results import critical_difference_figure, forest_figure, sizes_figure, training_figure
from glayers.report.plots.style import DARK, LIGHT, Palette, style
from glayers.report.plots.training import draw_sizes, draw_training

__all__ = [
    "DARK",
    "FIGURES",
    "LIGHT",
    "Palette",
    "calibration_map_figure",
    "class_figure",
    "critical_difference_figure",
    "differences_figure",
    "draw_against_score",
    "draw_calibration_map",
    "draw_class_matrix",
    "draw_corp_reliability",
    "draw_counts",
    "draw_critical_difference",
    "draw_cumulative",
    "draw_forest",
    "draw_gap",
    "draw_rates",
    "draw_reliability",
    "draw_sizes",
    "draw_smooth_reliability",
    "draw_training",
    "forest_figure",
    "ks_figure",
    "ks_panels",
    "matrix_norm",
    "reliability_figure",
    "sizes_figure",
    "style",
    "training_figure",
]
