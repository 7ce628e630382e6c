"""Logits -> logits: small frozen steps, chained, written once for NumPy and torch."""

from glayers.maps.chain import Chain
from glayers.maps.steps import Centre, Dense, Diagonal, Dropout, LogSoftmax, Relu, Scale, Step
from glayers.maps.transparent import glorot_layers, transparent_layers

__all__ = [
    "Centre",
    "Chain",
    "Dense",
    "Diagonal",
    "Dropout",
    "LogSoftmax",
    "Relu",
    "Scale",
    "Step",
    "glorot_layers",
    "transparent_layers",
]
