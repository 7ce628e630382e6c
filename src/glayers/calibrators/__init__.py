"""Held-out logits and labels -> a fitted map that makes probabilities true.

No class needs torch to be imported, to be loaded from a file or to predict; some need it to fit.
"""

from glayers.calibrators.artifact import load
from glayers.calibrators.auto import AutoCalibrator
from glayers.calibrators.base import Calibrator
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
from glayers.calibrators.registry import CALIBRATORS
from glayers.calibrators.registry import METHODS as METHODS
from glayers.calibrators.shared_g_layers import SharedGLayers
from glayers.calibrators.temperature import EnsembleTemperatureScaling, TemperatureScaling

__all__ = [
    "CALIBRATORS",
    "AutoCalibrator",
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
    "load",
]
