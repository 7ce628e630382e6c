"""An `.npz` file with the keys logits_val, y_val, logits_test and y_test -> its calibration and test rows."""

from pathlib import Path

from glayers import Predictions, read_predictions


def read_both(file: Path) -> tuple[Predictions, Predictions]:
    """Return the calibration rows, whose keys have the word val, and the test rows."""
    return read_predictions(file, "val"), read_predictions(file, "test")
