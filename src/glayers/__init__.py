"""Make a trained classifier's probabilities true, and prove that they are."""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from glayers import calibrators, datasets, metrics
from glayers.calibrators import TemperatureScaling
from glayers.errors import BadFile, BadPredictions, GlayersError, GlayersWarning
from glayers.predictions import Predictions, read_parts, read_predictions

if TYPE_CHECKING:
    from glayers.calibrators import GLayers

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
    if name == "GLayers":  # needs torch, which `import glayers` must not
        return calibrators.GLayers
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
