"""Old place of these names, until every import has moved to glayers.maps.mixtures."""

from glayers.maps.mixtures import Stack, mixed

__all__ = ["Stack", "mixed"]
