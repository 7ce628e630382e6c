"""Old place of these names, until every import has moved to glayers.maps.layouts."""

from glayers.maps.layouts import chain_of, structure_of

__all__ = ["chain_of", "structure_of"]
