"""Logits -> the logarithm of mixtures of probabilities, on the log scale, where no probability underflows."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from glayers.activations import keep_impossible, log_softmax, with_reference_class
from glayers.arrays import array_namespace
from glayers.maps.steps import Chain, Numbers, Step

__all__ = ["Blend", "Stack", "UniformShare"]

_ROUNDING = 1e-9  # shares lie between 0 and 1, up to this


class Blend(Step):
    """Log of a mixture of the input's probabilities (1 - share) and the mean of a branch's members (share)."""

    share: Annotated[Any, Numbers(low=-_ROUNDING, high=1 + _ROUNDING)]
    branch: Chain

    def __call__(self, logits: Any) -> Any:
        """Return log((1 - share) softmax(logits) + share * mean over members of softmax(branch(logits)))."""
        xp = array_namespace(logits)
        plain = log_softmax(logits)
        members = log_softmax(self.branch(logits))
        if members.ndim > plain.ndim:
            limits = xp.finfo(members.dtype)
            highest = xp.max(members, axis=0)
            # An impossible class has no mean; both limits leave all others unchanged.
            below = members - xp.clip(highest, min=float(limits.min))[None, ...]
            mean = xp.mean(xp.exp(below), axis=0)
            members = xp.log(xp.clip(mean, min=float(limits.smallest_normal))) + highest
        return _log_sum([_log(1 - self.share) + plain, _log(self.share) + members])


class UniformShare(Step):
    """log((1 - share) softmax(z) + share / k), where k counts the classes that are possible in the row."""

    share: Annotated[Any, Numbers(low=-_ROUNDING, high=1 + _ROUNDING)]

    def __call__(self, logits: Any) -> Any:
        """Add a share of the uniform distribution."""
        xp = array_namespace(logits)
        n_possible = xp.sum(xp.astype(logits > -xp.inf, logits.dtype), axis=-1, keepdims=True)
        uniform = _log(self.share) - xp.log(n_possible)
        plain = _log(1 - self.share) + log_softmax(logits)
        return keep_impossible(_log_sum([plain, uniform]), logits)


class Stack(Step):
    """log(w_0 softmax(branch_0(z)) + w_1 softmax(branch_1(z)) + ...), for shares w that sum to 1."""

    shares: Annotated[Any, Numbers("branches", -_ROUNDING, 1 + _ROUNDING, learned="all but one")]
    branches: tuple[Chain, ...]
    completes: ClassVar[bool] = True

    def __call__(self, logits: Any) -> Any:
        """Add the branches."""
        log_shares = _log(self.shares)
        parts = []
        for place, branch in enumerate(self.branches):
            parts.append(log_shares[place] + log_softmax(with_reference_class(branch(logits))))
        return _log_sum(parts)


def _log_sum(parts: Sequence[Any]) -> Any:
    """Return log(exp(part) + exp(other part) + ...), -inf where all are; several times as fast as NumPy's logaddexp."""
    xp = array_namespace(parts[0])
    limits = xp.finfo(parts[0].dtype)
    highest = parts[0]
    for part in parts[1:]:
        highest = xp.maximum(highest, part)
    lowered = xp.clip(highest, min=float(limits.min))  # -inf - -inf would be no number
    total = xp.exp(parts[0] - lowered)
    for part in parts[1:]:
        total = total + xp.exp(part - lowered)
    return xp.log(xp.clip(total, min=float(limits.smallest_normal))) + highest


def _log(shares: Any) -> Any:
    """Return log shares; a share of 0, or slightly below by rounding, gives minus infinity: that part has no effect."""
    xp = array_namespace(shares)
    smallest = float(xp.finfo(shares.dtype).smallest_normal)
    return xp.where(shares >= smallest, xp.log(xp.clip(shares, min=smallest)), -xp.inf)
