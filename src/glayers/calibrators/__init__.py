"""Held-out logits and labels -> a fitted map that makes probabilities true.

`GLayers` and `OrderPreserving` need the `fit` extra (torch), so they are imported when they are first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from glayers.calibrators.base import Calibrator
from glayers.calibrators.binary import BetaCalibration, PlattScaling
from glayers.calibrators.ensemble_temperature import EnsembleTemperatureScaling
from glayers.calibrators.linear import DirichletCalibration, MatrixScaling, VectorScaling
from glayers.calibrators.nonparametric import (
    BayesianBinning,
    HistogramBinning,
    IsotonicCalibration,
    ScalingBinning,
    SplineCalibration,
)
from glayers.calibrators.scaling import TemperatureScaling
from glayers.calibrators.shared_g_layers import SharedGLayers

if TYPE_CHECKING:
    from glayers.calibrators.g_layers import GLayers
    from glayers.calibrators.order_preserving import OrderPreserving

__all__ = [
    "BayesianBinning",
    "BetaCalibration",
    "Calibrator",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "GLayers",
    "HistogramBinning",
    "IsotonicCalibration",
    "MatrixScaling",
    "OrderPreserving",
    "PlattScaling",
    "ScalingBinning",
    "SharedGLayers",
    "SplineCalibration",
    "TemperatureScaling",
    "VectorScaling",
]

_NEED_TORCH = {"GLayers": "g_layers", "OrderPreserving": "order_preserving"}


def __getattr__(name: str) -> Any:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"glayers.calibrators.{_NEED_TORCH[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(f'{name} needs torch: pip install "glayers[fit]"', name="torch") from error
