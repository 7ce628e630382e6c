"""Logits -> the logarithm of a mixture: tempered probabilities, the probabilities as they came, and a flat guess."""

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from glayers.activations import log_softmax
from glayers.maps.steps import Step


@dataclass(frozen=True)
class TemperedMixture(Step):
    """log(w0 softmax(factor z) + w1 softmax(z) + w2 / k), for shares w (..., 3) that sum to 1. Keeps every ranking."""

    shares: Any
    factor: Any

    def __call__(self, logits: Any) -> Any:
        """Add the three up on the log scale, where no probability is too small to count."""
        xp = array_namespace(logits)
        # A share of 0 has no logarithm; the smallest number stands in, and no sum will notice.
        log_shares = xp.log(xp.clip(self.shares, min=float(xp.finfo(self.shares.dtype).smallest_normal)))
        tempered, plain, flat = (log_shares[..., i][..., None, None] for i in range(3))
        first = tempered + log_softmax(logits * self.factor[..., None, None])
        second = plain + log_softmax(logits)
        third = flat - xp.log(xp.asarray(float(logits.shape[-1]), dtype=logits.dtype))
        top = xp.maximum(xp.maximum(first, second), third)
        return top + xp.log(xp.exp(first - top) + xp.exp(second - top) + xp.exp(third - top))
