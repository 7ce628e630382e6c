"""Files and arrays -> logits and labels, or confidences of answers that were right or wrong.

`source` reads files. It is not imported here: a server that loads a calibrator reads no other files.
"""

from glayers.predictions.predictions import Confidences, Predictions
from glayers.predictions.several_labels import MultiLabelPredictions

__all__ = ["Confidences", "MultiLabelPredictions", "Predictions"]
