"""Numbers and an Axes -> the Axes with a figure on it; whole figures by name. The only place that needs matplotlib.

Figures take `(methods, labels=None, *, sample_weight=None, dark=False, ...)` and return a matplotlib `Figure`, which
the caller saves. `FIGURES` names them for the command line.

>>> import numpy as np
>>> p = np.array([[0.7, 0.2, 0.1], [0.2, 0.6, 0.2], [0.1, 0.3, 0.6]])
>>> figure = FIGURES["reliability"]({"uncalibrated": p}, labels=[0, 1, 0])
>>> len(figure.axes)  # the diagram, and the number of rows below it
2
"""

from collections.abc import Callable
from functools import partial

try:
    from matplotlib.figure import Figure
except ModuleNotFoundError as problem:  # pragma: no cover
    raise ModuleNotFoundError("figures need matplotlib: pip install 'glayers[plots]'", name=problem.name) from problem

from glayers.report.plots.classes import calibration_map_figure as calibration_map_figure
from glayers.report.plots.classes import class_figure as class_figure
from glayers.report.plots.classes import draw_calibration_map as draw_calibration_map
from glayers.report.plots.classes import draw_class_matrix as draw_class_matrix
from glayers.report.plots.classes import matrix_norm as matrix_norm
from glayers.report.plots.comparison import critical_difference_figure as critical_difference_figure
from glayers.report.plots.comparison import differences_figure as differences_figure
from glayers.report.plots.comparison import draw_critical_difference as draw_critical_difference
from glayers.report.plots.comparison import draw_forest as draw_forest
from glayers.report.plots.comparison import forest_figure as forest_figure
from glayers.report.plots.ks import draw_cumulative as draw_cumulative
from glayers.report.plots.ks import draw_gap as draw_gap
from glayers.report.plots.ks import draw_rates as draw_rates
from glayers.report.plots.ks import ks_figure as ks_figure
from glayers.report.plots.ks import ks_panels as ks_panels
from glayers.report.plots.reliability import draw_counts as draw_counts
from glayers.report.plots.reliability import draw_reliability as draw_reliability
from glayers.report.plots.reliability import draw_reliability_curve as draw_reliability_curve
from glayers.report.plots.reliability import reliability_figure as reliability_figure
from glayers.report.plots.style import DARK as DARK
from glayers.report.plots.style import LIGHT as LIGHT
from glayers.report.plots.style import Palette as Palette
from glayers.report.plots.style import style as style

FIGURES: dict[str, Callable[..., Figure]] = {
    "reliability": reliability_figure,
    "reliability-equal-mass": partial(reliability_figure, kind="equal_mass"),
    "reliability-smooth": partial(reliability_figure, kind="smooth"),
    "reliability-corp": partial(reliability_figure, kind="corp"),
    "ks": ks_figure,
    "ks-fractile": partial(ks_figure, kind="fractile"),
    "ks-score": partial(ks_figure, kind="score"),
    "ks-ranks": ks_panels,
    "ks-within": partial(ks_panels, by="within_top"),
    "ks-classes": partial(ks_panels, by="label"),
    "map": calibration_map_figure,
    "classes": class_figure,
    "differences": differences_figure,
}
