"""A composed map -> the same function in fewer steps, up to rounding."""

from dataclasses import replace

import numpy as np

from glayers.maps.corrections import Corrected
from glayers.maps.mixtures import Blend, Stack, TemperedMixture, UniformShare
from glayers.maps.steps import Chain, LogSoftmax, Reference, Scale, Step, with_branches

_NORMALISED = (Blend, Corrected, LogSoftmax, Stack, TemperedMixture, UniformShare)  # return log-probabilities


def simplified(chain: Chain) -> Chain:
    """Drop steps that change nothing, join those that are one, and move what all branches begin with before them.

    >>> tempered = Chain((Reference(), Scale(np.asarray(2.0)), LogSoftmax()))
    >>> len(simplified(tempered + tempered).steps)
    5
    """
    steps: list[Step] = []
    for step in chain.steps:
        for part in _parts(step):
            _append(steps, part)
    return Chain(tuple(steps))


def _append(steps: list[Step], step: Step) -> None:
    """Add a step to others, unless it changes nothing after them."""
    last = steps[-1] if steps else None
    if isinstance(step, Reference) and any(each.completes for each in steps):
        return
    if isinstance(step, LogSoftmax) and isinstance(last, _NORMALISED):
        return
    if isinstance(step, Scale) and isinstance(last, Scale):
        steps[-1] = Scale(np.asarray(last.factor * step.factor))
        return
    steps.append(step)


def _parts(step: Step) -> list[Step]:
    """Return a step with simpler branches, after the steps with which all branches of a mixture begin."""
    branches = [simplified(branch) for branch in step.chains().values()]
    if not branches:
        return [step]
    if isinstance(step, Blend):
        return [_joined(step, branches[0])]
    common: list[Step] = []
    if isinstance(step, Stack):
        for heads in zip(*(branch.steps for branch in branches), strict=False):
            if not all(_same(heads[0], head) for head in heads):
                break
            common.append(heads[0])
    rest = [Chain(branch.steps[len(common) :]) for branch in branches]
    return [*common, replace(step, **with_branches(type(step), rest))]


def _joined(step: Blend, branch: Chain) -> Blend:
    """Return one blend: a branch that only blends the same logits again has a share of this share."""
    if len(branch.steps) == 1 and isinstance(inner := branch.steps[0], Blend):
        return Blend(np.asarray(step.share * inner.share), inner.branch)
    return Blend(step.share, branch)


def _same(one: Step, other: Step) -> bool:
    """Return whether two steps without branches have equal parameters."""
    if type(one) is not type(other) or one.chains():
        return False
    both = other.parameters()
    return all(np.array_equal(value, both[name]) for name, value in one.parameters().items())
