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
    from glayers.decisions.sets import set_report
    from glayers.decisions.threshold import threshold
    from glayers.decisions.watch import watch
    from glayers.gap import calibration_gap, rows_needed
    from glayers.predictions import Confidences, MultiLabelPredictions, Predictions
    from glayers.predictions.source import read_confidences, read_predictions
    from glayers.report.card import model_card
    from glayers.shift import shift_test

    __version__: str

__all__ = ["__version__", "calibration_gap", "compare", "datasets", "load", "metrics", "rows_needed"]
__all__ += ["set_report", "shift_test"]
__all__ += ["decide", "estimate", "model_card", "net_benefit", "realised_costs", "threshold", "watch"]
__all__ += ["Confidences", "MultiLabelPredictions", "Predictions", "read_confidences", "read_predictions"]
__all__ += ["BadFile", "BadPredictions", "CalibratedClassifier", "GlayersError", "GlayersWarning"]

# Where these names are defined. All other public names are those of `glayers.calibrators`.
_LAZY = {"compare": "glayers.comparison", "shift_test": "glayers.shift", "model_card": "glayers.report.card"}
_LAZY |= dict.fromkeys(["calibration_gap", "rows_needed"], "glayers.gap")
_LAZY |= dict.fromkeys(["decide", "net_benefit", "realised_costs"], "glayers.decisions.costs")
_LAZY |= {"estimate": "glayers.decisions.estimate", "set_report": "glayers.decisions.sets"}
_LAZY |= {"threshold": "glayers.decisions.threshold", "watch": "glayers.decisions.watch"}
_LAZY |= {"CalibratedClassifier": "glayers.bridges.sklearn"}
_LAZY |= dict.fromkeys(["load", "register"], "glayers.calibrators")
_LAZY |= dict.fromkeys(["Confidences", "MultiLabelPredictions", "Predictions"], "glayers.predictions")
_LAZY |= dict.fromkeys(["read_confidences", "read_predictions"], "glayers.predictions.source")


def __getattr__(name: str) -> Any:
    # Imported on first use: a server that loads a calibrator and predicts needs little of the library.
    if name == "__version__":
        from importlib.metadata import version

        return version("glayers")
    if name in ("datasets", "metrics"):
        return import_module(f"glayers.{name}")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    # Modules import each other while calibrators are not there yet; their names have no capital.
    if name[0].isupper() and name in __dir__():
        return getattr(import_module("glayers.calibrators"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *import_module("glayers.calibrators").__all__})
