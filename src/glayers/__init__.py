"""Post-hoc calibration: make the probabilities of a trained classifier match reality, and test that they do."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from glayers.errors import BadFile, BadPredictions, GlayersError, GlayersWarning

if TYPE_CHECKING:
    from glayers import datasets, metrics
    from glayers.bridges.sklearn import CalibratedClassifier
    from glayers.calibrators import *
    from glayers.comparison import compare
    from glayers.decisions.costs import decide, net_benefit, realised_costs
    from glayers.decisions.estimate import estimate
    from glayers.decisions.threshold import threshold
    from glayers.decisions.watch import watch
    from glayers.gap import calibration_gap
    from glayers.learning_curve import rows_needed
    from glayers.predictions import Confidences, Predictions, read_confidences, read_predictions
    from glayers.report.card import model_card
    from glayers.shift import shift_test

    __version__: str

__all__ = ["__version__", "calibration_gap", "compare", "datasets", "load", "metrics", "rows_needed"]
__all__ += ["shift_test"]
__all__ += ["decide", "estimate", "model_card", "net_benefit", "realised_costs", "threshold", "watch"]
__all__ += ["Confidences", "Predictions", "read_confidences", "read_predictions"]
__all__ += ["BadFile", "BadPredictions", "GlayersError", "GlayersWarning"]
# The calibrators, which are those of `glayers.calibrators`.
__all__ += ["CALIBRATORS", "AutoCalibrator", "BayesianBinning", "BetaCalibration", "Calibrator", "DirichletCalibration"]
__all__ += ["EnsembleTemperatureScaling", "GLayers", "GroupCalibrator", "HistogramBinning", "IsotonicCalibration"]
__all__ += ["MatrixScaling", "MultiLabelCalibrator", "OrderPreserving", "PaperGLayers", "PlattScaling"]
__all__ += ["ScalingBinning", "SharedGLayers", "SplineCalibration"]
__all__ += ["TemperatureScaling", "VectorScaling"]
__all__ += ["CalibratedClassifier"]

# Where the other names are defined.
_LAZY = {"compare": "glayers.comparison", "calibration_gap": "glayers.gap", "shift_test": "glayers.shift"}
_LAZY |= dict.fromkeys(["decide", "net_benefit", "realised_costs"], "glayers.decisions.costs")
_LAZY["estimate"] = "glayers.decisions.estimate"
_LAZY |= {"threshold": "glayers.decisions.threshold", "watch": "glayers.decisions.watch"}
_LAZY |= {"rows_needed": "glayers.learning_curve", "model_card": "glayers.report.card"}
_LAZY["CalibratedClassifier"] = "glayers.bridges.sklearn"
_LAZY |= dict.fromkeys(["Confidences", "Predictions", "read_confidences", "read_predictions"], "glayers.predictions")


def __getattr__(name: str) -> Any:
    # Imported on first use: a server that loads a calibrator and predicts needs little of the library.
    if name == "__version__":
        from importlib.metadata import version

        return version("glayers")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in ("datasets", "metrics"):
        return import_module(f"glayers.{name}")
    return getattr(import_module(_LAZY.get(name, "glayers.calibrators")), name)


def __dir__() -> list[str]:
    return sorted(__all__)
