"""Make a trained classifier's probabilities true, and prove that they are."""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from glayers import datasets, metrics
from glayers.errors import BadFile, BadPredictions, GlayersError, GlayersWarning
from glayers.predictions import Predictions, read_parts, read_predictions

if TYPE_CHECKING:
    from glayers.calibrators import GLayers, TemperatureScaling

__version__ = version("glayers")

__all__ = [
    "BadFile",
    "BadPredictions",
    "GLayers",
    "GlayersError",
    "GlayersWarning",
    "Predictions",
    "TemperatureScaling",
    "__version__",
    "datasets",
    "metrics",
    "read_parts",
    "read_predictions",
]


def __getattr__(name: str) -> Any:
    # Calibrators bring scikit-learn and perhaps torch along, so they are imported when first asked for.
    if name in ("GLayers", "TemperatureScaling"):
        return getattr(import_module("glayers.calibrators"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
