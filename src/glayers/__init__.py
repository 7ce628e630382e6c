"""Make a trained classifier's probabilities true, and prove that they are."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from glayers import datasets, metrics
from glayers.errors import BadFile, BadPredictions, GlayersError, GlayersWarning
from glayers.predictions import Confidences, Predictions, read_confidences, read_parts, read_predictions

if TYPE_CHECKING:
    from glayers.calibrators import (
        CALIBRATORS,
        AutoCalibrator,
        BayesianBinning,
        BetaCalibration,
        Calibrator,
        DirichletCalibration,
        EnsembleTemperatureScaling,
        GLayers,
        HistogramBinning,
        IsotonicCalibration,
        MatrixScaling,
        OrderPreserving,
        PlattScaling,
        ScalingBinning,
        SharedGLayers,
        SplineCalibration,
        TemperatureScaling,
        VectorScaling,
        load,
    )
    from glayers.comparison import compare
    from glayers.gap import calibration_gap

__version__ = version("glayers")

__all__ = [
    "CALIBRATORS",
    "AutoCalibrator",
    "BadFile",
    "BadPredictions",
    "BayesianBinning",
    "BetaCalibration",
    "Calibrator",
    "Confidences",
    "DirichletCalibration",
    "EnsembleTemperatureScaling",
    "GLayers",
    "GlayersError",
    "GlayersWarning",
    "HistogramBinning",
    "IsotonicCalibration",
    "MatrixScaling",
    "OrderPreserving",
    "PlattScaling",
    "Predictions",
    "ScalingBinning",
    "SharedGLayers",
    "SplineCalibration",
    "TemperatureScaling",
    "VectorScaling",
    "__version__",
    "calibration_gap",
    "compare",
    "datasets",
    "load",
    "metrics",
    "read_confidences",
    "read_parts",
    "read_predictions",
]

_ABOVE = {"compare": "glayers.comparison", "calibration_gap": "glayers.gap"}


def __getattr__(name: str) -> Any:
    # Calibrators bring scikit-learn and SciPy along, so they are imported when first asked for.
    if name in _ABOVE:
        return getattr(import_module(_ABOVE[name]), name)
    if name in __all__:
        return getattr(import_module("glayers.calibrators"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
