"""A map -> the same numbers by NumPy, several times as fast: fewer calls for one row, fewer passes over many rows.

The steps in `maps/` define what is computed, and tests compare. A kernel stands for one step, or for a pair, and turns
`StepRows` into `StepRows`. Steps without a kernel are computed by their definition, and so are all steps of a block
where a class is impossible or a probability is close to underflow.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Array, Floats, row_blocks
from glayers.maps.corrections import DEPTH, LOWEST, Corrected, Shared, TopProbabilities, bends
from glayers.maps.mixtures import Stack, UniformShare
from glayers.maps.order import KeepOrder, in_order_of
from glayers.maps.steps import Chain, Dense, Floor, LogSoftmax, Reference, Scale, Step, arrays_of

_KEPT = 4  # arrays that are kept of a block of rows, which together stay in the second-level cache
_FAR_BELOW = -600.0  # a logit this much below the highest has a probability close to underflow


class _lazy:  # noqa: N801  # a decorator
    """A property that is computed once. The lock of functools' own would take a fifth of the time of one row."""

    def __init__(self, function: Callable[["StepRows"], Any]) -> None:
        self.function = function
        self.name = function.__name__

    def __get__(self, rows: "StepRows", _: type) -> Any:
        value = rows.__dict__[self.name] = self.function(rows)
        return value


class StepRows:
    """Rows between two steps, given by their `logits`, by `scores` or by probabilities `p`; the rest follows."""

    def __init__(self, **given: Floats) -> None:
        self.__dict__.update(given)

    @_lazy
    def logits(self) -> Floats:
        """What the step returned."""
        return self.log_p

    @_lazy
    def scores(self) -> Floats:
        """Log-probabilities up to a constant per row, the highest close to 0: their powers of e cannot overflow."""
        if "logits" not in self.__dict__:
            return self.log_p
        return self.logits - np.maximum.reduce(self.logits, axis=-1, keepdims=True)

    @_lazy
    def log_p(self) -> Floats:
        """Log-probabilities."""
        if "p" in self.__dict__:
            if np.minimum.reduce(self.p, axis=None) < math.exp(_FAR_BELOW):  # its logarithm may lose digits
                raise FloatingPointError
            return np.log(self.p)
        powers = np.exp(self.scores)
        total = np.add.reduce(powers, axis=-1, keepdims=True)
        self.p = np.divide(powers, total, out=powers)
        return self.scores - np.log(total)

    @_lazy
    def p(self) -> Floats:
        """Probabilities."""
        powers = np.exp(self.scores)
        return np.divide(powers, np.add.reduce(powers, axis=-1, keepdims=True), out=powers)

    @_lazy
    def places(self) -> Array | None:
        """Where the ten highest classes of each row are in the flat array, first the tenth; None for all of few."""
        if self.log_p.ndim > 2:
            raise FloatingPointError
        n, k = self.log_p.shape
        if k <= DEPTH:
            return None
        columns = self.log_p.argpartition(k - DEPTH, axis=-1)[:, k - DEPTH :]
        return columns + np.arange(0, n * k, k)[:, None]

    @_lazy
    def top(self) -> Floats:
        """The ten highest log-probabilities of each row, or all of few."""
        return self.log_p if self.places is None else self.log_p.take(self.places)

    @_lazy
    def ordered(self) -> Floats:
        """The ten highest log-probabilities from the highest down."""
        return np.sort(self.top, axis=-1)[:, ::-1]


Kernel: TypeAlias = Callable[[StepRows], StepRows]


class Fast:
    """A map, compiled: logits (n, m) in float64 in, calibrated logits or probabilities (n, classes) out."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.completes = bool(chain.steps) and isinstance(chain.steps[0], Reference)
        self.kernel = _compiled(chain.steps[1:] if self.completes else chain.steps)

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
        rows = StepRows(logits=with_reference_class(logits) if self.completes else logits)
        if rows.logits.shape[-1] == 1 or np.minimum.reduce(rows.scores, axis=None) < _FAR_BELOW:
            raise FloatingPointError
        return self.kernel(rows)


def applied(function: Callable[[Floats], Floats], logits: Array, n_classes: int) -> Floats:
    """Return what a function gives for rows of any type, block by block."""
    # With few classes, one class after another: sums over short rows are slow.
    order: Any = "F" if n_classes <= DEPTH else "C"
    result = np.empty((len(logits), n_classes))
    for rows in row_blocks(len(logits), _KEPT * n_classes):
        result[rows] = function(np.array(logits[rows], np.float64, order=order))
    return result


def _compiled(steps: tuple[Step, ...]) -> Kernel:
    kernels: list[Kernel] = []
    before: Step | None = None
    for step in steps:
        pair = _PAIRS.get((type(before), type(step)))
        if pair is not None:
            kernels[-1] = pair(before, step)
        else:
            kernels.append(_kernel(step))
        before = step

    def run(rows: StepRows) -> StepRows:
        for kernel in kernels:
            rows = kernel(rows)
        return rows

    return run


def _kernel(step: Step) -> Kernel:
    make = _KERNELS.get(type(step))
    if make is None or (_has_members(step) and not isinstance(step, Dense)):
        return lambda rows: StepRows(logits=step(rows.logits))
    return make(step, *(_compiled(branch.steps) for branch in step.chains()))


def _has_members(step: Step) -> bool:
    return any(np.ndim(getattr(step, name)) > layout.n_axes for name, layout in arrays_of(type(step)).items())


def _tempered(scale: Scale, step: LogSoftmax) -> Kernel:
    if np.any(scale.factor <= 0.0):  # the highest score would not stay the highest
        return lambda rows: StepRows(logits=step(scale(rows.logits)))
    factor = scale.factor[..., None, None]
    name = f"tempered by {factor.tobytes().hex()}"

    def run(rows: StepRows) -> StepRows:
        if name not in rows.__dict__:  # several branches of a mixture begin with the same temperature
            rows.__dict__[name] = StepRows(scores=rows.scores * factor)
        return rows.__dict__[name]

    return run


def _dense(step: Dense) -> Kernel:
    bias = step.bias[..., None, :]

    def run(rows: StepRows) -> StepRows:
        result = _product(rows.logits, step.weight)
        result += bias
        return StepRows(logits=result)

    return run


def _product(x: Floats, weight: Floats) -> Floats:
    """Return x @ weight in the memory order of x."""
    if x.strides[-1] > x.strides[-2]:
        return (weight.mT @ x.mT).mT
    return x @ weight


def _stack(step: Stack, *branches: Kernel) -> Kernel:
    shares = step.shares.reshape(-1, 1, 1)  # arrays (1, 1) are the quickest factors of rows

    def run(rows: StepRows) -> StepRows:
        result: Any = None
        for share, branch in zip(shares, branches, strict=True):
            p = branch(rows).p
            if p.ndim > 2:
                p = np.add.reduce(p, axis=0) / len(p)
            result = share * p if result is None else np.add(result, share * p, out=result)
        return StepRows(p=result)

    return run


def _uniform_share(step: UniformShare) -> Kernel:
    share = step.share.reshape(1, 1)
    rest = 1.0 - share
    return lambda rows: StepRows(p=rest * rows.p + share / rows.p.shape[-1])


def _floor(step: Floor, branch: Kernel) -> Kernel:
    depth = float(step.depth)
    reach = float(step.reach)

    def run(rows: StepRows) -> StepRows:
        if _none_far(rows, depth, reach):
            return branch(rows)
        raised, lowered = step.split(rows.logits)
        return StepRows(logits=branch(StepRows(logits=raised)).logits + lowered)

    return run


def _none_far(rows: StepRows, depth: float, reach: float) -> bool:
    if np.minimum.reduce(rows.log_p, axis=None) >= -min(depth, reach):  # the highest log-probability is at most 0
        return True
    highest = rows.ordered[:, 0]
    lead = highest - rows.ordered[:, 1]
    lowest = np.minimum.reduce(rows.log_p, axis=-1)
    return bool((highest - lowest <= np.minimum(depth, reach + 2 * lead)).all())


def _keep_order(step: KeepOrder, branch: Kernel) -> Kernel:
    return lambda rows: StepRows(logits=in_order_of(rows.logits, branch(rows).logits, step.slope))


def _corrected(_: Corrected, *branches: Kernel) -> Kernel:
    def run(rows: StepRows) -> StepRows:
        if "logits" in rows.__dict__:
            rows = StepRows(scores=rows.scores)
        total = rows.log_p.copy(order="K")
        for branch in branches:
            total += branch(rows).logits
        total -= np.maximum.reduce(total, axis=-1, keepdims=True)
        return StepRows(scores=total)

    return run


def _confusion(_: TopProbabilities, dense: Dense) -> Kernel:
    """Multiply the probabilities of the ten highest classes by their rows of the matrix."""

    def run(rows: StepRows) -> StepRows:
        if rows.places is None:
            return StepRows(logits=_product(rows.p, dense.weight) + dense.bias)
        high = rows.log_p >= rows.top[:, :1]
        if np.count_nonzero(high) > rows.places.size:  # more than ten, because the tenth is a tie
            raise FloatingPointError
        columns = rows.places % rows.p.shape[-1]
        p = rows.p.take(rows.places)
        result = np.tile(dense.bias, (len(columns), 1))
        for place in range(DEPTH):
            result += p[:, place : place + 1] * dense.weight[columns[:, place]]
        return StepRows(logits=result)

    return run


def _shared(step: Shared) -> Kernel:
    """Compute the functions of a log-probability for the ten highest classes only: all others have the tenth's."""
    weight = step.weight.T.copy()

    def run(rows: StepRows) -> StepRows:
        seen = (_context(rows) - step.centre) / step.spread
        np.maximum(seen, -4.0, out=seen)
        np.minimum(seen, 4.0, out=seen)
        sizes = _product(seen, weight[1:])
        sizes += weight[0]
        functions = np.array([function.T for function in bends(rows.top)])
        bent = np.einsum("nj,jdn->dn", sizes[:, 1:], functions).T
        result = sizes[:, :1] * np.maximum(rows.log_p, LOWEST)
        if rows.places is None:
            result += bent
        else:
            tenth = bent[:, :1]
            result += tenth
            result.reshape(-1)[rows.places] += bent - tenth
        return StepRows(logits=result)

    return run


def _context(rows: StepRows) -> Floats:
    """Return what the shared correction reads: the three highest log-probabilities and the entropy."""
    result = np.empty((4, len(rows.log_p))).T  # each column in one piece of memory
    highest = rows.ordered[:, :3]
    result[:, :2] = highest[:, :2]
    result[:, 2] = highest[:, -1]
    np.maximum(result, LOWEST, out=result)
    result[:, 3] = -np.add.reduce(rows.p * rows.log_p, axis=-1)
    return result


_KERNELS: dict[type[Step], Callable[..., Kernel]] = {
    Corrected: _corrected,
    Dense: _dense,
    Floor: _floor,
    KeepOrder: _keep_order,
    Shared: _shared,
    Stack: _stack,
    UniformShare: _uniform_share,
}
# Of steps that come one after the other.
_PAIRS: dict[tuple[type[Any], type[Step]], Callable[[Any, Any], Kernel]] = {
    (Scale, LogSoftmax): _tempered,
    (TopProbabilities, Dense): _confusion,
}
