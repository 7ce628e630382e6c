"""Make a trained classifier's probabilities true, and prove that they are."""

from importlib.metadata import version

from glayers import datasets, metrics
from glayers.errors import BadFile, BadPredictions, GlayersError, GlayersWarning
from glayers.predictions import Predictions, read_parts, read_predictions

__version__ = version("glayers")

__all__ = [
    "BadFile",
    "BadPredictions",
    "GlayersError",
    "GlayersWarning",
    "Predictions",
    "__version__",
    "datasets",
    "metrics",
    "read_parts",
    "read_predictions",
]
