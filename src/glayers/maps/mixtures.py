"""Logits -> the logarithm of mixtures of probabilities."""

from collections.abc import Sequence
from functools import cached_property, partial, reduce
from typing import Annotated, Any, ClassVar

import numpy as np

from glayers.activations import keep_impossible, log_softmax, softmax, with_reference_class
from glayers.arrays import NUMPY, Floats, array_namespace, row_blocks
from glayers.maps.steps import Chain, Numbers, Step

__all__ = ["Blend", "Stack", "TemperedMixture"]

# Between 0 and 1, up to rounding.
_share = partial(Numbers, low=-1e-9, high=1 + 1e-9)
_SMALL = 1e-290  # smaller numbers are close to underflow


class Blend(Step):
    """Log of a mixture of the input's probabilities (1 - share) and the mean of a branch's members (share)."""

    share: Annotated[Any, _share()]
    branch: Chain

    def __call__(self, logits: Any) -> Any:
        """Return log((1 - share) softmax(logits) + share * mean over members of softmax(branch(logits)))."""
        xp = array_namespace(logits)
        if xp is NUMPY and (logs := _logs(self.probabilities(logits))) is not None:
            return logs
        plain, members = log_softmax(logits), log_softmax(self.branch(logits))
        if members.ndim > plain.ndim:
            limits, highest = xp.finfo(members.dtype), xp.max(members, axis=0)
            # An impossible class has no mean; both limits leave all others unchanged.
            mean = xp.mean(xp.exp(members - xp.clip(highest, min=float(limits.min))[None, ...]), axis=0)
            members = xp.log(xp.clip(mean, min=float(limits.smallest_normal))) + highest
        return _log_sum([_log(1 - self.share) + plain, _log(self.share) + members])

    def probabilities(self, logits: Any) -> Any:
        """Return the mixture itself."""
        share, branch = self._share_and_branch
        members = branch.probabilities(logits)
        if members.ndim > logits.ndim:
            members = array_namespace(logits).mean(members, axis=0)
        members *= share
        result = softmax(logits)
        result *= 1.0 - share
        result += members
        return result

    @cached_property
    def _share_and_branch(self) -> tuple[float, Chain]:
        """Return both. A branch that only blends the same logits again has a share of this share."""
        (share,), branch = _clipped(self.share), self.branch
        while len(branch.steps) == 1 and isinstance(inner := branch.steps[0], Blend):
            share, branch = share * _clipped(inner.share)[0], inner.branch
        return share, branch


class TemperedMixture(Step):
    """log(w0 softmax(factor z) + w1 softmax(z) + w2 / k), for shares w (..., 3) that sum to 1. Keeps every ranking.

    k counts the classes that are possible in the row.
    """

    shares: Annotated[Any, _share("3", learned="all but one")]  # they sum to 1
    factor: Annotated[Any, Numbers()]

    def __call__(self, logits: Any) -> Any:
        """Add the three parts on the log scale, where no probability underflows."""
        xp = array_namespace(logits)
        if xp is NUMPY and self.shares.ndim == 1 and (logs := _logs(self.probabilities(logits))) is not None:
            return logs
        tempered, plain, uniform = (_log(self.shares)[..., part, None, None] for part in range(3))
        mixed = xp.logaddexp(tempered + log_softmax(logits * self.factor[..., None, None]), plain + log_softmax(logits))
        possible = xp.sum(xp.astype(logits > -xp.inf, logits.dtype), axis=-1, keepdims=True)
        return keep_impossible(xp.logaddexp(mixed, uniform - xp.log(possible)), logits)

    def probabilities(self, logits: Any) -> Any:
        """Return the mixture itself."""
        tempered, plain, uniform = _clipped(self.shares)
        possible = logits > -np.inf
        result = uniform * (possible / possible.sum(axis=-1, keepdims=True))
        result += tempered * softmax(logits * self.factor)
        result += plain * softmax(logits)
        return result

    def probabilities_after(self, before: Chain, logits: Any) -> Any:
        """With a temperature of 1, which is common, mix the probabilities before this step as they are."""
        if self.factor == 1.0 and (result := before.probabilities(logits)).min() > 0:
            tempered, plain, uniform = _clipped(self.shares)
            result *= tempered + plain
            result += uniform / result.shape[-1]
            return result
        return self.probabilities(before(logits))


class Stack(Step):
    """log(w_0 softmax(branch_0(z)) + w_1 softmax(branch_1(z)) + ...), for shares w that sum to 1."""

    shares: Annotated[Any, _share("branches", learned="all but one")]
    branches: tuple[Chain, ...]
    completes: ClassVar[bool] = True

    def __call__(self, logits: Any) -> Any:
        """Add the branches on the log scale, where no probability underflows."""
        if array_namespace(logits) is NUMPY and (logs := _logs(self.probabilities(logits))) is not None:
            return logs
        log_shares = _log(self.shares)
        return _log_sum(
            [
                log_shares[place] + log_softmax(with_reference_class(branch(logits)))
                for place, branch in enumerate(self.branches)
            ]
        )

    def probabilities(self, logits: Any) -> Any:
        """Return the mixture itself."""
        each = zip(_clipped(self.shares), self.branches, strict=True)
        parts = [np.multiply(p := branch.probabilities(logits), share, out=p) for share, branch in each]
        return reduce(lambda one, other: np.add(one, other, out=one), parts)


def mixed(shares: Floats, parts: Sequence[Floats]) -> Floats:
    """Return the log of a mixture from the log-probabilities (n, classes) of each part, computed block by block.

    >>> mixed(np.array([0.5, 0.5]), [np.log([[0.2, 0.8]]), np.log([[0.4, 0.6]])]).round(3).tolist()
    [[-1.204, -0.357]]
    """
    result = np.empty_like(parts[0])
    for rows in row_blocks(*result.shape):
        result[rows] = _log_sum([s + part[rows] for s, part in zip(_log(shares), parts, strict=True)])
    return result


def _logs(probabilities: Floats) -> Floats | None:
    """Return the logarithms, in place of the probabilities; None if one of them has lost digits to underflow."""
    return np.log(probabilities, out=probabilities) if probabilities.min() > _SMALL else None


def _clipped(shares: Floats) -> list[float]:
    """Return shares without what rounding adds beyond 0 and 1."""
    return [min(max(share, 0.0), 1.0) for share in shares.reshape(-1).tolist()]


def _log_sum(parts: Sequence[Any]) -> Any:
    """Return log(exp(part) + exp(other part) + ...), -inf where all are; several times as fast as NumPy's logaddexp."""
    xp = array_namespace(parts[0])
    highest, limits = reduce(xp.maximum, parts), xp.finfo(parts[0].dtype)
    lowered = xp.clip(highest, min=float(limits.min))  # -inf - -inf would be no number
    total = reduce(lambda one, other: one + other, [xp.exp(part - lowered) for part in parts])
    return xp.log(xp.clip(total, min=float(limits.smallest_normal))) + highest


def _log(shares: Any) -> Any:
    """Return log shares; a share of 0, or slightly below by rounding, gives minus infinity: that part has no effect."""
    xp = array_namespace(shares)
    smallest = float(xp.finfo(shares.dtype).smallest_normal)
    return xp.where(shares >= smallest, xp.log(xp.clip(shares, min=smallest)), -xp.inf)
