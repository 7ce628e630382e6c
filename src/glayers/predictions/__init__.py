"""Files and arrays -> logits and labels, or confidences of answers that were right or wrong."""

from typing import TYPE_CHECKING, Any

from glayers.predictions.predictions import Confidences, Predictions

if TYPE_CHECKING:
    from glayers.predictions.source import read_confidences, read_predictions

__all__ = ["Confidences", "Predictions", "read_confidences", "read_predictions"]


def __getattr__(name: str) -> Any:
    # Imported on first use: a server that loads a calibrator reads no other files.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from glayers.predictions import source

    return getattr(source, name)
