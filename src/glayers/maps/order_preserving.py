"""Old place of these names, until every import has moved to glayers.maps.order."""

from glayers.maps.order import GapNetwork, General, Invariant, Learning, OrderPreservingStep, SharedCurve

__all__ = ["GapNetwork", "General", "Invariant", "Learning", "OrderPreservingStep", "SharedCurve"]
