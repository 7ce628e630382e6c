"""An `.npz` file with the keys logits_val, y_val, logits_test and y_test -> its calibration and test rows."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from glayers import Predictions, read_predictions


def read_both(file: Path) -> tuple[Predictions, Predictions]:
    """Return the calibration rows, whose keys have the word val, and the test rows."""
    return read_predictions(file, "val"), read_predictions(file, "test")


def checksum(parts: Iterable[Predictions]) -> str:
    """Return the SHA-256 of the logits (float32) and labels (int64) of each part, one after another."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(np.ascontiguousarray(part.logits, np.float32).tobytes())
        digest.update(np.ascontiguousarray(part.labels, np.int64).tobytes())
    return digest.hexdigest()
