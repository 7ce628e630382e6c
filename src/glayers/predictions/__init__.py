"""Files and arrays -> logits and labels."""

from glayers.predictions.predictions import Predictions

__all__ = ["Predictions"]
