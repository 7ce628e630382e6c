"""Held-out logits and labels -> a fitted map that makes probabilities true.

No class needs torch to be imported, to be loaded from a file or to predict; some need it to fit.
"""

from glayers.calibrators.auto import AutoCalibrator
from glayers.calibrators.base import Calibrator
from glayers.calibrators.binary import BetaCalibration, PlattScaling
from glayers.calibrators.catalogue import CALIBRATORS, load
from glayers.calibrators.ensemble_temperature import EnsembleTemperatureScaling
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
from glayers.calibrators.scaling import TemperatureScaling
from glayers.calibrators.shared_g_layers import SharedGLayers

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
