"""Old place of these names, until every import has moved to glayers.maps.order."""

from glayers.maps.order import LEAST_SLOPE, KeepOrder, in_order_of

__all__ = ["LEAST_SLOPE", "KeepOrder", "in_order_of"]
