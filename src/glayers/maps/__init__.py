"""Logits -> logits: small frozen steps in chains, written once for NumPy and torch."""

from glayers.maps.chain import Chain, Step
from glayers.maps.mixtures import Blend, Stack, TemperedMixture
from glayers.maps.order import KeepOrder
from glayers.maps.steps import (
    Activate,
    Centre,
    Dense,
    Diagonal,
    Dropout,
    LogSoftmax,
    Reference,
    Relu,
    Scale,
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
    "KeepOrder",
    "LogSoftmax",
    "Reference",
    "Relu",
    "Scale",
    "Stack",
    "Step",
    "TemperedMixture",
    "glorot_layers",
    "transparent_layers",
]
