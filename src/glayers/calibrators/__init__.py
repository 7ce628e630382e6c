"""Held-out logits and labels -> a fitted map that makes probabilities true."""

from glayers.calibrators.base import Calibrator
from glayers.calibrators.scaling import TemperatureScaling

__all__ = ["Calibrator", "TemperatureScaling"]
