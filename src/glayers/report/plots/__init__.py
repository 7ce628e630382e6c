"""Methods -> figures by name, or a spec and an Axes -> the Axes. The only place that needs matplotlib.

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

from glayers.report.figures import EVENT_KINDS
from glayers.report.plots.drawing import *
from glayers.report.plots.figures import *
from glayers.report.plots.style import *

FIGURES: dict[str, Callable[..., Figure]] = {
    **{kind: partial(event_figure, kind=kind) for kind in EVENT_KINDS},
    "overview": overview_figure,
    "ks-ranks": ks_panels,
    "ks-within": partial(ks_panels, by="within_top"),
    "ks-classes": partial(ks_panels, by="label"),
    "map": calibration_map_figure,
    "classes": class_figure,
    "differences": differences_figure,
}
