"""Files and arrays -> logits and labels."""

from glayers.predictions.predictions import Confidences, Predictions
from glayers.predictions.readers import read_parts, read_predictions

__all__ = ["Confidences", "Predictions", "read_parts", "read_predictions"]
