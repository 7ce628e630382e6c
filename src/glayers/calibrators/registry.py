"""All calibrators by name, each with its description. Both come from `methods` on the classes listed here.

A new calibrator is one module and one entry in `CLASSES`.
"""

from collections.abc import Callable
from functools import partial

from glayers.calibrators.auto import AutoCalibrator
from glayers.calibrators.base import Calibrator, Method
from glayers.calibrators.binary import BetaCalibration, PlattScaling
from glayers.calibrators.g_layers import GLayers
from glayers.calibrators.linear import DirichletCalibration, MatrixScaling, VectorScaling
from glayers.calibrators.nonparametric import (
    BayesianBinning,
    HistogramBinning,
    IsotonicCalibration,
    ScalingBinning,
    SplineCalibration,
)
from glayers.calibrators.order_preserving import OrderPreserving
from glayers.calibrators.shared_g_layers import SharedGLayers
from glayers.calibrators.temperature import EnsembleTemperatureScaling, TemperatureScaling

# The classes by name, in the order of tables. A saved file may name only these.
CLASSES: dict[str, type[Calibrator]] = {
    each.__name__: each
    for each in (
        AutoCalibrator,
        TemperatureScaling,
        EnsembleTemperatureScaling,
        VectorScaling,
        MatrixScaling,
        DirichletCalibration,
        GLayers,
        SharedGLayers,
        OrderPreserving,
        PlattScaling,
        BetaCalibration,
        IsotonicCalibration,
        HistogramBinning,
        BayesianBinning,
        ScalingBinning,
        SplineCalibration,
    )
}
METHODS: dict[str, Method] = {method.name: method for each in CLASSES.values() for method in each.methods}
# Call an entry for an unfitted calibrator, with further settings if needed: CALIBRATORS["g-layers"](n_layers=1).
CALIBRATORS: dict[str, Callable[..., Calibrator]] = {
    method.name: partial(each, **method.settings) if method.settings else each
    for each in CLASSES.values()
    for method in each.methods
}
