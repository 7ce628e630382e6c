"""A composed map -> the same function in fewer steps, up to rounding."""

from dataclasses import replace

import numpy as np

from glayers.maps.corrections import Corrected
from glayers.maps.mixtures import Blend, Stack, UniformShare
from glayers.maps.steps import Chain, LogSoftmax, Reference, Scale, Step, with_branches

_NORMALISED = (Blend, Corrected, LogSoftmax, Stack, UniformShare)  # return log-probabilities


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
    if not earlier or not isinstance(earlier[-1], _NORMALISED):
        return False
    return isinstance(step, LogSoftmax) or (isinstance(step, Scale) and bool(np.all(step.factor == 1.0)))


def _parts(step: Step) -> list[Step]:
    """Return a step with simpler branches, after the steps with which all branches of a mixture begin."""
    branches = [simplified(branch) for branch in step.chains().values()]
    common: list[Step] = []
    if isinstance(step, Stack):
        for heads in zip(*(branch.steps for branch in branches), strict=False):
            if not all(_same(heads[0], head) for head in heads):
                break
            common.append(heads[0])
    rest = [Chain(branch.steps[len(common) :]) for branch in branches]
    return [*common, replace(step, **with_branches(type(step), rest))]


def _same(one: Step, other: Step) -> bool:
    """Return whether two steps without branches have equal parameters."""
    if type(one) is not type(other) or one.chains():
        return False
    parameters = other.parameters()
    return all(np.array_equal(value, parameters[name]) for name, value in one.parameters().items())
