"""A map -> the same numbers by NumPy, several times as fast: fewer calls for one row, fewer passes over many rows.

The steps in `maps/` define what is computed, and tests compare. A kernel stands for one step and turns `StepRows` into
`StepRows`, which compute what several steps read, such as the highest classes, once. Where a probability underflows or
a class is impossible, the definition computes the block.
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Array, Floats
from glayers.maps.corrections import DEPTH, LOWEST, Centred, Corrected, Shared, TopProbabilities
from glayers.maps.mixtures import Blend, Stack, TemperedMixture, UniformShare
from glayers.maps.order import KeepOrder, in_order_of
from glayers.maps.steps import Centre, Chain, Dense, Floor, LogSoftmax, Reference, Scale, Step, arrays_of

_BLOCK = 32_768  # entries computed at once: with all that is kept of them, they stay in the second-level cache
_SMALL = 1e-290  # smaller probabilities are close to underflow, and their logarithms lose digits


class _lazy:  # noqa: N801  # a decorator
    """A property that is computed once; that of functools takes a lock, and longer than a step of one row."""

    def __init__(self, function: Callable[["StepRows"], Any]) -> None:
        self.function = function
        self.name = function.__name__

    def __get__(self, rows: "StepRows", _: type) -> Any:
        value = rows.__dict__[self.name] = self.function(rows)
        return value


class StepRows:
    """Rows between two steps: logits, log-probabilities `log_p`, or probabilities `p`, and what follows from them.

    `scores` are log-probabilities up to a constant per row that does not matter, and `logits` are what a step returns.
    """

    def __init__(self, **known: Floats) -> None:
        vars(self).update(known)

    @_lazy
    def logits(self) -> Floats:
        """What the step returned."""
        return self.log_p

    @_lazy
    def scores(self) -> Floats:
        """Log-probabilities up to a constant per row."""
        return self.logits

    @_lazy
    def log_p(self) -> Floats:
        """Log-probabilities."""
        if "p" in vars(self):
            if np.minimum.reduce(self.p, axis=None) < _SMALL:
                raise FloatingPointError
            return np.log(self.p)
        shifted = self.scores - np.maximum.reduce(self.scores, axis=-1, keepdims=True)
        self.powers = np.exp(shifted)
        self.total = np.add.reduce(self.powers, axis=-1, keepdims=True)
        return np.subtract(shifted, np.log(self.total), out=shifted)

    @_lazy
    def p(self) -> Floats:
        """Probabilities."""
        if "total" in vars(self):
            return self.powers / self.total
        if "log_p" in vars(self):
            return np.exp(self.log_p)
        shifted = self.scores - np.maximum.reduce(self.scores, axis=-1, keepdims=True)
        powers = np.exp(shifted, out=shifted)
        return np.divide(powers, np.add.reduce(powers, axis=-1, keepdims=True), out=powers)

    @_lazy
    def lowest(self) -> float:
        """The lowest of all log-probabilities."""
        return float(np.minimum.reduce(self.log_p, axis=None))

    @_lazy
    def places(self) -> Array | None:
        """Where the ten highest classes of each row are in the flat array, first the tenth; None for all of few."""
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
    def top_p(self) -> Floats:
        """The probabilities of the same classes."""
        return self.p if self.places is None else self.p.take(self.places)

    @_lazy
    def ordered(self) -> Floats:
        """The same, from the highest down."""
        return np.sort(self.top, axis=-1)[:, ::-1]

    @_lazy
    def clipped(self) -> Floats:
        """Log-probabilities, at least -15."""
        return self.log_p if self.lowest >= LOWEST else np.maximum(self.log_p, LOWEST)

    @_lazy
    def centred(self) -> Floats:
        """The same, less the mean of their row."""
        return self.clipped - np.add.reduce(self.clipped, axis=-1, keepdims=True) / self.clipped.shape[-1]

    @_lazy
    def context(self) -> Floats:
        """What the shared correction reads: the three highest log-probabilities and the entropy."""
        result = np.empty((4, len(self.log_p))).T  # each column in one piece of memory
        highest = self.ordered[:, :3]
        result[:, :2] = highest[:, :2]
        result[:, 2] = highest[:, -1]
        np.maximum(result, LOWEST, out=result)
        result[:, 3] = -np.einsum("nk,nk->n", self.p, self.log_p)
        return result


Kernel: TypeAlias = Callable[[StepRows], StepRows]


class Fast:
    """A map, compiled: logits (n, m) in float64 in, calibrated logits or probabilities (n, classes) out."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self.kernel = _compiled(chain)

    @classmethod
    def of(cls, chain: Chain) -> "Fast":
        """Return what was compiled before; it is kept with the chain."""
        held: Fast | None = vars(chain).get("_fast")
        if held is None:
            held = vars(chain)["_fast"] = cls(chain)
        return held

    def logits(self, rows: Floats) -> Floats:
        """Return what the chain returns."""
        try:
            return with_reference_class(self.kernel(StepRows(logits=rows)).logits)
        except FloatingPointError:
            return with_reference_class(self.chain(rows))

    def probabilities(self, rows: Floats) -> Floats:
        """Return softmax of what the chain returns."""
        try:
            return _of_classes(self.kernel(StepRows(logits=rows)))
        except FloatingPointError:
            return softmax(with_reference_class(self.chain(rows)))


def _of_classes(rows: StepRows) -> Floats:
    """Return probabilities, those of two classes for a single logit."""
    if rows.p.shape[-1] == 1:
        return StepRows(logits=with_reference_class(rows.logits)).p
    return rows.p


def applied(function: Callable[[Floats], Floats], logits: Array, n_classes: int) -> Floats:
    """Return what a function gives for rows of any type, block by block."""
    n = len(logits)
    # With few classes, one class after another: sums over short rows are slow.
    order: Any = "F" if n_classes <= DEPTH else "C"
    size = max(1, _BLOCK // n_classes)
    if n <= size:
        return function(np.array(logits, np.float64, order=order))
    result = np.empty((n, n_classes))
    for start in range(0, n, size):
        result[start : start + size] = function(np.array(logits[start : start + size], np.float64, order=order))
    return result


def _compiled(chain: Chain) -> Kernel:
    kernels = [_kernel(step) for step in _joined(chain)]

    def run(rows: StepRows) -> StepRows:
        for kernel in kernels:
            rows = kernel(rows)
        return rows

    return run


def _kernel(step: Step) -> Kernel:
    if isinstance(step, Dense | Scale) or _is_single(step):
        return _KERNELS.get(type(step), _by_definition)(step)
    return _by_definition(step)


def _is_single(step: Step) -> bool:
    """Return whether the step's own arrays have no members axis."""
    layouts = arrays_of(type(step)).items()
    return all(np.ndim(getattr(step, name)) == len(layout.axes.split()) for name, layout in layouts)


def _joined(chain: Chain) -> list[Step]:
    """Return the steps with `Centre` as a part of the dense layer behind it."""
    steps: list[Step] = []
    for step in chain.steps:
        last = steps[-1] if steps else None
        if isinstance(step, Dense) and isinstance(last, Centre):
            steps.pop()
            share = last.share[..., None, None]
            step = Dense(step.weight - share * step.weight.mean(axis=-2, keepdims=True), step.bias)
        steps.append(step)
    return steps


def _by_definition(step: Step) -> Kernel:
    return lambda rows: StepRows(logits=step(rows.logits))


def _reference(step: Step) -> Kernel:
    def run(rows: StepRows) -> StepRows:
        if "logits" in vars(rows) and rows.logits.shape[-1] == 1:
            return StepRows(logits=step(rows.logits))
        return rows

    return run


def _log_softmax(_: Step) -> Kernel:
    def run(rows: StepRows) -> StepRows:
        known = vars(rows)
        if "p" not in known:
            rows.log_p  # noqa: B018  # computes it, with more that later steps read
        return StepRows(**{name: value for name, value in known.items() if name not in ("logits", "scores")})

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


def _blend(step: Blend) -> Kernel:
    share = _clipped(step.share)
    branch = _compiled(step.branch)

    def run(rows: StepRows) -> StepRows:
        members = branch(rows).p
        weight = share
        if members.ndim > rows.p.ndim:
            weight /= len(members)
            members = np.add.reduce(members, axis=0)
        result = members * weight
        result += (1.0 - share) * rows.p
        return StepRows(p=result)

    return run


def _stack(step: Stack) -> Kernel:
    shares = [_clipped(share) for share in step.shares]
    branches = [_compiled(branch) for branch in step.branches]

    def run(rows: StepRows) -> StepRows:
        result = shares[0] * _of_classes(branches[0](rows))
        for share, branch in zip(shares[1:], branches[1:], strict=True):
            result += share * _of_classes(branch(rows))
        return StepRows(p=result)

    return run


def _uniform_share(step: UniformShare) -> Kernel:
    share = _clipped(step.share)

    def run(rows: StepRows) -> StepRows:
        _refuse_impossible(rows)
        result = (1.0 - share) * rows.p
        result += share / result.shape[-1]
        return StepRows(p=result)

    return run


def _tempered_mixture(step: TemperedMixture) -> Kernel:
    tempered, plain, uniform = (_clipped(share) for share in step.shares)
    factor = float(step.factor)

    def run(rows: StepRows) -> StepRows:
        _refuse_impossible(rows)
        result = tempered * StepRows(logits=rows.logits * factor).p
        result += plain * rows.p
        result += uniform / result.shape[-1]
        return StepRows(p=result)

    return run


def _refuse_impossible(rows: StepRows) -> None:
    """Leave rows with a class of probability 0 to the definition: the class may be impossible."""
    if np.minimum.reduce(rows.p, axis=None) == 0.0:
        raise FloatingPointError


def _clipped(share: Floats) -> float:
    """Return a share without what rounding adds beyond 0 and 1."""
    return min(max(float(share), 0.0), 1.0)


def _floor(step: Floor) -> Kernel:
    depth = float(step.depth)
    reach = float(step.reach)
    branch = _compiled(step.branch)

    def run(rows: StepRows) -> StepRows:
        if rows.logits.ndim == 2 and rows.logits.shape[-1] > 1 and _none_far(rows, depth, reach):
            return branch(rows)
        raised, lowered = step.split(rows.logits)
        return StepRows(logits=with_reference_class(branch(StepRows(logits=raised)).logits) + lowered)

    return run


def _none_far(rows: StepRows, depth: float, reach: float) -> bool:
    if rows.lowest >= -min(depth, reach):  # the highest log-probability is at most 0
        return True
    highest = rows.ordered[:, 0]
    lead = highest - rows.ordered[:, 1]
    lowest = np.minimum.reduce(rows.log_p, axis=-1)
    return bool((highest - lowest <= np.minimum(depth, reach + 2 * lead)).all())


def _keep_order(step: KeepOrder) -> Kernel:
    branch = _compiled(step.branch)

    def run(rows: StepRows) -> StepRows:
        outputs = with_reference_class(branch(rows).logits)
        return StepRows(logits=in_order_of(rows.logits, outputs, step.slope))

    return run


def _corrected(step: Corrected) -> Kernel:
    if not all(_is_single(inner) for branch in step.branches for inner in branch.steps):
        return _by_definition(step)
    corrections = [_correction(branch) for branch in step.branches]

    def run(rows: StepRows) -> StepRows:
        if rows.log_p.ndim > 2 or rows.lowest == -np.inf:
            raise FloatingPointError
        total = rows.log_p.copy(order="K")
        for correction in corrections:
            correction(rows, total)
        return StepRows(scores=total)

    return run


Correction: TypeAlias = Callable[[StepRows, Floats], None]


def _correction(branch: Chain) -> Correction:
    """Return the function that adds the result of a branch to log-probabilities."""
    kinds = [type(step) for step in branch.steps]
    if kinds == [Shared]:
        return _shared(branch.steps[0])
    if kinds == [TopProbabilities, Dense]:
        return _confusion(branch.steps[1])
    if kinds[:1] == [Centred]:
        rest = _compiled(Chain(branch.steps[1:]))

        def add_centred(rows: StepRows, total: Floats) -> None:
            total += rest(StepRows(logits=rows.centred)).logits

        return add_centred

    def add(rows: StepRows, total: Floats) -> None:
        total += branch(rows.log_p)

    return add


def _shared(step: Any) -> Correction:
    """Compute the functions of a log-probability for the ten highest classes only: all others have the tenth's."""
    scaled = step.weight * np.array([1.0, 1.0, 1.0, 1.0, 0.2, -2.0, -2.0])[:, None]
    constant = step.weight[5:].sum(axis=0, keepdims=True)  # 1 - 2 / (...) of the last two functions
    weight = np.concatenate([scaled, constant]).T.copy()

    def add(rows: StepRows, total: Floats) -> None:
        seen = (rows.context - step.centre) / step.spread
        np.maximum(seen, -4.0, out=seen)
        np.minimum(seen, 4.0, out=seen)
        sizes = _product(seen, weight[1:])
        sizes += weight[0]
        total += sizes[:, :1] * rows.clipped
        bent = _bent(rows.top, rows.top_p, sizes)
        if rows.places is None:
            total += bent
        else:
            tenth = bent[:, :1]
            total += tenth
            total.reshape(-1)[rows.places] += bent - tenth

    return add


def _bent(log_p: Floats, p: Floats, sizes: Floats) -> Floats:
    """Return the sum of the six functions `bends` times their sizes."""
    order: Any = "F" if log_p.flags.f_contiguous else "C"
    functions = np.empty((6, *log_p.shape[::-1])).mT if order == "F" else np.empty((6, *log_p.shape))
    line, linear, root, miss, steep, flat = functions
    np.maximum(log_p, LOWEST, out=line)
    linear[...] = p
    np.sqrt(p, out=root)
    np.minimum(log_p, -1e-9, out=miss)
    np.expm1(miss, out=miss)
    np.negative(miss, out=miss)
    np.log(miss, out=miss)
    np.maximum(miss, LOWEST, out=miss)
    np.multiply(p, p, out=steep)
    steep += math.exp(-4.6)
    np.divide(math.exp(-4.6), steep, out=steep)
    np.add(p, math.exp(-5.0), out=flat)
    np.divide(math.exp(-5.0), flat, out=flat)
    result = np.einsum("nj,jnd->nd", sizes[:, 1:7], functions, order=order)
    result += sizes[:, 7:]
    return result


def _confusion(step: Any) -> Correction:
    """Multiply the probabilities of the ten highest classes by their rows of the matrix."""

    def add(rows: StepRows, total: Floats) -> None:
        total += step.bias
        if rows.places is None:
            total += _product(rows.p, step.weight)
            return
        high = rows.log_p >= rows.top[:, :1]
        if np.count_nonzero(high) > rows.places.size:  # more than ten, because the tenth is a tie
            total += np.where(high, rows.p, 0.0) @ step.weight
            return
        columns = rows.places % total.shape[-1]
        for place in range(DEPTH):
            total += rows.top_p[:, place : place + 1] * step.weight[columns[:, place]]

    return add


_KERNELS: dict[type[Step], Callable[[Any], Kernel]] = {
    Blend: _blend,
    Corrected: _corrected,
    Dense: _dense,
    Floor: _floor,
    KeepOrder: _keep_order,
    LogSoftmax: _log_softmax,
    Reference: _reference,
    Stack: _stack,
    TemperedMixture: _tempered_mixture,
    UniformShare: _uniform_share,
}
