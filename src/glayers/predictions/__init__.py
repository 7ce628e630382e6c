"""Files and arrays -> logits and labels, or confidences of answers that were right or wrong."""

from glayers.predictions.formats import read_confidences, read_parts, read_predictions
from glayers.predictions.predictions import Confidences, Predictions

__all__ = ["Confidences", "Predictions", "read_confidences", "read_parts", "read_predictions"]
