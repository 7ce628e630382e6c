"""Logits -> logits: small frozen steps, chained, written once for NumPy and torch."""

from glayers.maps.chain import Chain
from glayers.maps.steps import (
    Activate,
    Blend,
    Centre,
    Dense,
    Diagonal,
    Dropout,
    LogSoftmax,
    Reference,
    Relu,
    Scale,
    Step,
)
from glayers.maps.transparent import glorot_layers, transparent_layers

__all__ = [
    "Activate",
    "Blend",
    "Centre",
    "Chain",
    "Dense",
    "Diagonal",
    "Dropout",
    "LogSoftmax",
    "Reference",
    "Relu",
    "Scale",
    "Step",
    "glorot_layers",
    "transparent_layers",
]
