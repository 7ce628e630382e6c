"""A map -> the same numbers by NumPy, about twice as fast: fewer calls for one row, fewer passes over many rows.

The steps in `maps/` define what is computed, and tests compare. A kernel stands for a step and turns `StepRows` into
`StepRows`. Steps without a kernel are computed by their definition, and so are all steps of a block with a logit beyond
300, such as -inf of an impossible class, or with a probability close to underflow.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Array, Floats, row_blocks
from glayers.maps.corrections import DEPTH, Corrected
from glayers.maps.mixtures import Stack, UniformShare
from glayers.maps.steps import Chain, Floor, LogSoftmax, Reference, Step, arrays_of

_FAR = 300.0  # logits that differ by twice this much have probabilities close to underflow


class _lazy:  # noqa: N801  # a decorator
    """A property that is computed once. The lock of functools' own would take a fifth of the time of one row."""

    def __init__(self, function: Callable[["StepRows"], Any]) -> None:
        self.function = function
        self.name = function.__name__

    def __get__(self, rows: "StepRows", _: type) -> Any:
        value = rows.__dict__[self.name] = self.function(rows)
        return value


class StepRows:
    """Rows between two steps, given by their `logits`, by log-probabilities or by probabilities; the rest follows."""

    def __init__(self, **given: Floats) -> None:
        self.__dict__.update(given)

    @_lazy
    def logits(self) -> Floats:
        """What the step returned."""
        return self.log_p

    @_lazy
    def scores(self) -> Floats:
        """Logits less the highest of their row: their powers of e cannot overflow."""
        return self.logits - np.maximum.reduce(self.logits, axis=-1, keepdims=True)

    @_lazy
    def log_p(self) -> Floats:
        """Log-probabilities."""
        if "p" not in self.__dict__:
            powers = np.exp(self.scores)
            total = np.add.reduce(powers, axis=-1, keepdims=True)
            self.p = np.divide(powers, total, out=powers)
            return self.scores - np.log(total)
        if np.minimum.reduce(self.p, axis=None) < math.exp(-2 * _FAR):  # its logarithm may lose digits
            raise FloatingPointError
        return np.log(self.p)

    @_lazy
    def p(self) -> Floats:
        """Probabilities."""
        powers = np.exp(self.scores)
        return np.divide(powers, np.add.reduce(powers, axis=-1, keepdims=True), out=powers)

    @_lazy
    def normal(self) -> "StepRows":
        """The same rows with log-probabilities as logits."""
        if self.logits is self.log_p:
            return self
        return StepRows(log_p=self.log_p, p=self.p)


Kernel: TypeAlias = Callable[[StepRows], StepRows]


class Fast:
    """A map, compiled: logits (n, m) in float64 in, calibrated logits or probabilities (n, classes) out."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.completes = bool(chain.steps) and isinstance(chain.steps[0], Reference)
        self.kernel = _compiled(chain)

    @classmethod
    def of(cls, chain: Chain) -> "Fast":
        """Return what was compiled before; it is kept with the chain."""
        held: Fast | None = chain.__dict__.get("_fast")
        if held is None:
            held = chain.__dict__["_fast"] = cls(chain)
        return held

    def logits(self, rows: Floats) -> Floats:
        """Return what the chain returns."""
        try:
            return self._run(rows).logits
        except FloatingPointError:
            return with_reference_class(self.chain(rows))

    def probabilities(self, rows: Floats) -> Floats:
        """Return softmax of what the chain returns."""
        try:
            return self._run(rows).p
        except FloatingPointError:
            return softmax(with_reference_class(self.chain(rows)))

    def _run(self, logits: Floats) -> StepRows:
        if logits.shape[-1] == 1 and not self.completes:
            raise FloatingPointError
        lowest = np.minimum.reduce(logits, axis=None)
        highest = np.maximum.reduce(logits, axis=None)
        if lowest < -_FAR or highest > _FAR:
            raise FloatingPointError
        return self.kernel(StepRows(logits=logits))


def applied(function: Callable[[Floats], Floats], logits: Array, n_classes: int) -> Floats:
    """Return what a function gives for rows of any type, block by block."""
    # With few classes, one class after another: sums over short rows are slow.
    order: Any = "F" if n_classes <= DEPTH else "C"
    result = np.empty((len(logits), n_classes))
    for rows in row_blocks(len(logits), 4 * n_classes):  # about four arrays of a block are kept at a time
        result[rows] = function(np.array(logits[rows], np.float64, order=order))
    return result


def _compiled(chain: Chain) -> Kernel:
    kernels = [_kernel(step) for step in chain.steps]

    def run(rows: StepRows) -> StepRows:
        for kernel in kernels:
            rows = kernel(rows)
        return rows

    return run


def _kernel(step: Step) -> Kernel:
    make = _KERNELS.get(type(step))
    if make is None or _has_members(step):
        return lambda rows: StepRows(logits=step(rows.logits))
    return make(step, *map(_compiled, step.chains()))


def _has_members(step: Step) -> bool:
    return any(np.ndim(getattr(step, name)) > layout.n_axes for name, layout in arrays_of(type(step)).items())


def _stack(step: Stack, *branches: Kernel) -> Kernel:
    shares = step.shares.reshape(-1, 1, 1)  # arrays (1, 1) are the quickest factors of rows

    def run(rows: StepRows) -> StepRows:
        total: Any = 0.0
        for share, branch in zip(shares, branches, strict=True):
            p = branch(rows).p
            if p.ndim > 2:
                p = np.add.reduce(p, axis=0) / len(p)
            total = total + share * p
        return StepRows(p=total)

    return run


def _uniform_share(step: UniformShare) -> Kernel:
    share = step.share.reshape(1, 1)
    rest = 1.0 - share
    return lambda rows: StepRows(p=rest * rows.p + share / rows.p.shape[-1])


def _floor(step: Floor, branch: Kernel) -> Kernel:
    depth = float(step.depth)
    reach = float(step.reach)

    def run(rows: StepRows) -> StepRows:
        near = branch(rows)
        if np.minimum.reduce(rows.log_p, axis=None) >= -min(depth, reach):  # the highest log-probability is at most 0
            return near
        if rows.log_p.ndim > 2:  # several members, whose far rows differ
            raise FloatingPointError
        second, highest = np.partition(rows.log_p, [-2, -1], axis=-1)[..., -2:].T
        lowest = np.minimum.reduce(rows.log_p, axis=-1)
        far = np.flatnonzero(lowest < highest - np.minimum(depth, reach + 2 * (highest - second)))
        if not far.size:
            return near
        raised, lowered = step.split(rows.logits[far])
        result = near.logits.copy(order="K")
        result[..., far, :] = branch(StepRows(logits=raised)).logits + lowered
        return StepRows(logits=result)

    return run


def _corrected(_: Corrected, *branches: Kernel) -> Kernel:
    def run(rows: StepRows) -> StepRows:
        total = rows.log_p
        for branch in branches:
            total = total + branch(rows.normal).logits
        return StepRows(scores=total - np.maximum.reduce(total, axis=-1, keepdims=True))

    return run


_KERNELS: dict[type[Step], Callable[..., Kernel]] = {
    Corrected: _corrected,
    Floor: _floor,
    LogSoftmax: lambda _: lambda rows: rows.normal,
    Stack: _stack,
    UniformShare: _uniform_share,
}
