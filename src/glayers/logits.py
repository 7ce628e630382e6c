"""Old place of these names, until every import has moved to glayers.checks."""

from glayers.activations import probabilities_of
from glayers.checks import check_logits, finite_logits

__all__ = ["check_logits", "finite_logits", "probabilities_of"]
