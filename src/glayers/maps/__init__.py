"""Logits -> logits: small frozen steps in chains, written once for NumPy and torch.

Each module lists its public names in its own `__all__`.
"""

from glayers.maps.corrections import *
from glayers.maps.mixtures import *
from glayers.maps.order import *
from glayers.maps.steps import *
from glayers.maps.tables import *
