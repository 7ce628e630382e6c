"""Logits -> the logarithm of mixtures of probabilities."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
from array_api_compat import array_namespace

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Floats, row_blocks
from glayers.maps.steps import Chain, Numbers, Step

__all__ = ["Blend", "Stack", "TemperedMixture"]

# Between 0 and 1, up to rounding.
_share = partial(Numbers, low=-1e-9, high=1 + 1e-9)


class Blend(Step):
    """Log of a mixture of the input's probabilities (1 - share) and the mean of a branch's members (share)."""

    share: Annotated[Any, _share()]
    branch: Chain

    def __call__(self, logits: Any) -> Any:
        """Return log((1 - share) softmax(logits) + share * mean over members of softmax(branch(logits)))."""
        xp = array_namespace(logits)
        plain, members = log_softmax(logits), log_softmax(self.branch(logits))
        if members.ndim > plain.ndim:
            highest = xp.max(members, axis=0)
            members = xp.log(xp.mean(xp.exp(members - highest[None, ...]), axis=0)) + highest
        # On the log scale no class underflows; clipping keeps the logarithm of a share of 0 finite.
        least = float(xp.finfo(plain.dtype).smallest_normal)
        rest, share = (xp.log(xp.clip(part, min=least)) for part in (1 - self.share, self.share))
        return xp.logaddexp(rest + plain, share + members)


class TemperedMixture(Step):
    """log(w0 softmax(factor z) + w1 softmax(z) + w2 / k), for shares w (..., 3) that sum to 1. Keeps every ranking."""

    shares: Annotated[Any, _share("3", learned="all but one")]  # they sum to 1
    factor: Annotated[Any, Numbers()]

    def __call__(self, logits: Any) -> Any:
        """Add the three parts on the log scale, where no probability underflows."""
        xp = array_namespace(logits)
        # Zero has no logarithm; the smallest positive number in its place changes no sum.
        log_shares = xp.log(xp.clip(self.shares, min=float(xp.finfo(self.shares.dtype).smallest_normal)))
        tempered, plain, flat = (log_shares[..., i][..., None, None] for i in range(3))
        first = tempered + log_softmax(logits * self.factor[..., None, None])
        second = plain + log_softmax(logits)
        third = flat - xp.log(xp.asarray(float(logits.shape[-1]), dtype=logits.dtype))
        top = xp.maximum(xp.maximum(first, second), third)
        return top + xp.log(xp.exp(first - top) + xp.exp(second - top) + xp.exp(third - top))


class Stack(Step):
    """log(w_0 softmax(branch_0(z)) + w_1 softmax(branch_1(z)) + ...), for shares w that sum to 1."""

    shares: Annotated[Any, _share("branches", learned="all but one")]
    branches: tuple[Chain, ...]
    completes: ClassVar[bool] = True

    def __call__(self, logits: Any) -> Any:
        """Add the branches on the log scale, where no probability underflows."""
        xp = array_namespace(logits)
        log_shares = _log(self.shares)
        first, *others = (
            log_shares[place] + log_softmax(with_reference_class(branch(logits)))
            for place, branch in enumerate(self.branches)
        )
        for other in others:
            first = xp.logaddexp(first, other)
        return first


def mixed(shares: Floats, parts: Sequence[Floats]) -> Floats:
    """Return the log of a mixture from the log-probabilities (n, classes) of each part, computed block by block.

    >>> mixed(np.array([0.5, 0.5]), [np.log([[0.2, 0.8]]), np.log([[0.4, 0.6]])]).round(3).tolist()
    [[-1.204, -0.357]]
    """
    result = np.empty_like(parts[0])
    for rows in row_blocks(*result.shape):
        result[rows] = np.logaddexp.reduce([s + part[rows] for s, part in zip(_log(shares), parts, strict=True)])
    return result


def _log(shares: Any) -> Any:
    """Return log shares; a share of 0, or slightly below by rounding, gives minus infinity: that part has no effect."""
    xp = array_namespace(shares)
    smallest = float(xp.finfo(shares.dtype).smallest_normal)
    return xp.where(shares >= smallest, xp.log(xp.clip(shares, min=smallest)), -xp.inf)
