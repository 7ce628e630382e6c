"""Files and arrays -> logits and labels."""

from glayers.predictions.predictions import Predictions
from glayers.predictions.readers import read_parts, read_predictions

__all__ = ["Predictions", "read_parts", "read_predictions"]
