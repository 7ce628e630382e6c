"""Packaged files -> `Predictions`: real logits to try the library on, without a download.

README.md in this folder describes where they come from.
"""

from importlib.resources import as_file, files
from typing import NamedTuple

import numpy as np

from glayers.predictions import Predictions

__all__ = ["CalibrationAndTest", "load_fashion_mnist"]


class CalibrationAndTest(NamedTuple):
    """Rows to fit a calibrator on, and rows to test it on."""

    calibration: Predictions
    test: Predictions


def load_fashion_mnist() -> CalibrationAndTest:
    """Return logits of a small overconfident network for images of clothing that it was not trained on.

    Returns
    -------
    CalibrationAndTest
        5,000 rows to fit on and 10,000 rows to test on, with ten classes.

    Examples
    --------
    >>> calibration, test = load_fashion_mnist()
    >>> calibration
    Predictions(5,000 rows, 10 classes, float32, class_names)
    >>> test
    Predictions(10,000 rows, 10 classes, float32, class_names)
    """
    with as_file(files("glayers.datasets") / "fashion_mnist.npz") as path, np.load(path, allow_pickle=False) as stored:
        calibration, test = (
            Predictions(
                logits=stored[f"logits_{part}"].astype(np.float32),  # stored as float16
                labels=stored[f"labels_{part}"],
                class_names=stored["class_names"].tolist(),
            )
            for part in ("calibration", "test")
        )
    return CalibrationAndTest(calibration, test)
