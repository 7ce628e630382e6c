"""Held-out logits and labels -> a fitted map that calibrates probabilities. All calibrators by name.

Importing, loading and predicting never need torch; some methods need it to fit. A new calibrator is one module with
`methods` on its class, an import and an entry in `__all__` here, and one in the `__all__` of the package.
"""

from collections.abc import Callable
from functools import partial

from glayers.calibrators.artifact import load
from glayers.calibrators.auto import AutoCalibrator
from glayers.calibrators.base import Calibrator, Method
from glayers.calibrators.binary import BetaCalibration, PlattScaling
from glayers.calibrators.g_layers import GLayers
from glayers.calibrators.groups import GroupCorrection
from glayers.calibrators.linear import DirichletCalibration, MatrixScaling, VectorScaling
from glayers.calibrators.multi_label import MultiLabelCalibrator as MultiLabelCalibrator
from glayers.calibrators.nonparametric import (
    BayesianBinning,
    HistogramBinning,
    IsotonicCalibration,
    ScalingBinning,
    SplineCalibration,
)
from glayers.calibrators.order_preserving import OrderPreserving
from glayers.calibrators.paper import PaperGLayers
from glayers.calibrators.shared_g_layers import SharedGLayers
from glayers.calibrators.temperature import EnsembleTemperatureScaling, TemperatureScaling

__all__ = ["CALIBRATORS", "Calibrator", "load"]
# The classes, in the order in which tables list their methods.
__all__ += ["AutoCalibrator", "TemperatureScaling", "EnsembleTemperatureScaling"]  # noqa: RUF022
__all__ += ["VectorScaling", "MatrixScaling", "DirichletCalibration"]  # noqa: RUF022
__all__ += ["GLayers", "PaperGLayers", "SharedGLayers", "OrderPreserving", "PlattScaling", "BetaCalibration"]  # noqa: RUF022
__all__ += ["IsotonicCalibration", "HistogramBinning", "BayesianBinning"]  # noqa: RUF022
__all__ += ["ScalingBinning", "SplineCalibration"]

# The classes by name; a saved file may name only these.
CLASSES: dict[str, type[Calibrator]] = {name: globals()[name] for name in __all__[3:]}
CLASSES["GroupCorrection"] = GroupCorrection  # part of `GroupCalibrator`, and no method of its own
METHODS: dict[str, Method] = {method.name: method for each in CLASSES.values() for method in each.methods}
# Call an entry for an unfitted calibrator, with further settings if needed: CALIBRATORS["g-layers"](n_layers=1).
CALIBRATORS: dict[str, Callable[..., Calibrator]] = {
    method.name: partial(each, **method.settings) if method.settings else each
    for each in CLASSES.values()
    for method in each.methods
}
