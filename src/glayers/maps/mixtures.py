"""Branches -> one map: the logarithm of a mixture of their probabilities.

Mixtures are computed on the log scale, where no probability underflows.

`simplified` turns a composed map into the same function in fewer steps, up to rounding.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from glayers.activations import keep_impossible, log_softmax, with_reference_class
from glayers.arrays import array_namespace
from glayers.maps.steps import Chain, LogSoftmax, Numbers, Reference, Scalar, Scale, Step

__all__ = ["Stack", "UniformShare", "simplified"]


class UniformShare(Step):
    """log((1 - share) softmax(z) + share / k), where k counts the classes that are possible in the row."""

    share: Scalar
    normalises = True

    def __call__(self, logits: Any) -> Any:
        """Add a share of the uniform distribution."""
        xp = array_namespace(logits)
        plain = _log(1 - self.share) + log_softmax(logits)
        n_possible = xp.sum(xp.astype(logits > -xp.inf, logits.dtype), axis=-1, keepdims=True)
        uniform = _log(self.share) - xp.log(n_possible) + xp.zeros_like(plain)
        mixed = _log_sum([plain[None, ...], uniform[None, ...]])
        return keep_impossible(mixed, logits)


class Stack(Step):
    """log(w_0 softmax(branch_0(z)) + w_1 softmax(branch_1(z)) + ...), for shares w that sum to 1.

    A branch with several members stands for the mean of their probabilities.
    """

    shares: Annotated[Any, Numbers("branches", learned="all but one")]
    branches: tuple[Chain, ...]
    completes = True
    normalises = True

    def __call__(self, logits: Any) -> Any:
        """Add the branches."""
        log_shares = _log(self.shares)
        parts = []
        for place, branch in enumerate(self.branches):
            log_p = log_softmax(with_reference_class(branch(logits)))
            if log_p.ndim == logits.ndim:
                log_p = log_p[None, ...]
            n_members = log_p.shape[0]
            parts.append(log_shares[place] - math.log(n_members) + log_p)
        return _log_sum(parts)


def _log_sum(parts: Sequence[Any]) -> Any:
    """Return the log of the sum of exp(part) over the first axis of all parts, -inf where all are."""
    xp = array_namespace(parts[0])
    every = xp.concat(parts, axis=0)
    limits = xp.finfo(every.dtype)
    highest = xp.max(every, axis=0)
    finite = xp.clip(highest, min=float(limits.min))  # -inf - -inf would be no number
    total = xp.sum(xp.exp(every - finite[None, ...]), axis=0)
    return xp.log(xp.clip(total, min=float(limits.smallest_normal))) + highest


def _log(shares: Any) -> Any:
    """Return log shares; a share of 0 gives minus infinity: that part has no effect."""
    xp = array_namespace(shares)
    smallest = float(xp.finfo(shares.dtype).smallest_normal)
    logs = xp.log(xp.clip(shares, min=smallest))
    return xp.where(shares > 0, logs, -xp.inf)


def simplified(chain: Chain) -> Chain:
    """Drop steps that change nothing, join those that are one, and move what all branches begin with before them.

    >>> tempered = Chain((Reference(), Scale(np.asarray(2.0)), LogSoftmax()))
    >>> len(simplified(tempered + tempered).steps)
    5
    >>> unchanged = Chain((Reference(), Scale(np.asarray(1.0)), LogSoftmax()))
    >>> len(simplified(tempered + unchanged).steps)
    3
    """
    steps: list[Step] = []
    for step in chain.steps:
        for part in _parts(step):
            if _changes_nothing(part, steps):
                continue
            last = steps[-1] if steps else None
            if isinstance(part, Scale) and isinstance(last, Scale):
                steps[-1] = Scale(np.asarray(last.factor * part.factor))
            else:
                steps.append(part)
    return Chain(tuple(steps))


def _changes_nothing(step: Step, earlier: list[Step]) -> bool:
    """Return whether a step changes nothing after these: a second reference class, softmax or a factor of 1."""
    if isinstance(step, Reference):
        return any(each.completes for each in earlier)
    if not earlier or not earlier[-1].normalises:
        return False
    if isinstance(step, Scale):
        return bool(np.all(step.factor == 1.0))
    return isinstance(step, LogSoftmax)


def _parts(step: Step) -> list[Step]:
    """Return a step with simpler branches, after the steps with which all branches of a mixture begin."""
    branches = [simplified(branch) for branch in step.chains()]
    common: list[Step] = []
    if isinstance(step, Stack):
        for heads in zip(*(branch.steps for branch in branches), strict=False):
            if not all(_same(heads[0], head) for head in heads):
                break
            common.append(heads[0])
    rest = [Chain(branch.steps[len(common) :]) for branch in branches]
    return [*common, step.with_chains(rest)]


def _same(one: Step, other: Step) -> bool:
    """Return whether two steps without branches have equal parameters."""
    if type(one) is not type(other) or one.chains():
        return False
    parameters = other.parameters()
    return all(np.array_equal(value, parameters[name]) for name, value in one.parameters().items())
