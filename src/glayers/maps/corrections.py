"""Log-probabilities -> log-probabilities plus corrections, each linear in its coefficients: the model that `auto` fits.

`Corrected` adds the results of its branches to the log-probabilities of a row. A branch turns them into features and
multiplies these by its coefficients. The evidence fit (`fitting/evidence.py`) learns the coefficients and reads the
same functions, so that a fit and its map cannot disagree.

The shared correction adds d(l_i, c) to the log-probability l_i of class i: a sum of seven fixed functions of l_i, whose
coefficients are linear in the row's context c (its three highest log-probabilities and its entropy). It has 35
coefficients, whatever the number of classes, and permuting classes permutes the output. The first function is l_i
itself. The six others matter for probable classes only: below the tenth highest class of a row they are constant.
"""

import math
from typing import Annotated, Any

from glayers.activations import log_softmax
from glayers.arrays import NUMPY, array_namespace, is_torch
from glayers.maps.steps import Chain, Numbers, Step

__all__ = ["Centred", "Corrected", "HingeLayer", "Shared"]

LOWEST = -15.0  # log-probabilities below this are all equally impossible: exp(-15) is one in three million
DEPTH = 10  # classes of a row whose probabilities matter beyond their logits; the rest of the mass is small
N_SHAPES = 7
N_CONTEXT = 5  # a constant, the three highest log-probabilities, the entropy


class Corrected(Step):
    """log softmax(l + branch_0(l) + branch_1(l) + ...), with l = log softmax(z)."""

    branches: tuple[Chain, ...]
    normalises = True

    def __call__(self, logits: Any) -> Any:
        """Add what each branch returns."""
        log_p = log_softmax(logits)
        finite = array_namespace(log_p).clip(log_p, min=-1e9)  # an infinite one times a weight of 0 would be no number
        result = log_p
        for branch in self.branches:
            result = result + branch(finite)
        return log_softmax(result)


class Centred(Step):
    """Log-probabilities, at least -15, less the mean of their row."""

    def __call__(self, logits: Any) -> Any:
        """Return centred log-probabilities."""
        return centred(logits)


class HingeLayer(Step):
    """Sum over knots of relu(x - knot) @ weight: each class may bend where another class passes a knot."""

    knots: Annotated[Any, Numbers("knots in", learned="none")]
    weight: Annotated[Any, Numbers("knots in out")]

    def __call__(self, logits: Any) -> Any:
        """Return the sum for centred log-probabilities (n, in)."""
        xp = array_namespace(logits)
        result = 0.0
        for place in range(self.knots.shape[0]):
            bends = xp.clip(logits - self.knots[place, ...], min=0)
            result = result + xp.matmul(bends, self.weight[place, ...])
        return result


class Shared(Step):
    """The shared correction alone; `weight` is (7, 5), functions x context, and the context is centred and scaled."""

    weight: Annotated[Any, Numbers(f"{N_SHAPES} {N_CONTEXT}")]
    centre: Annotated[Any, Numbers(f"{N_CONTEXT - 1}", learned="none")]
    spread: Annotated[Any, Numbers(f"{N_CONTEXT - 1}", learned="none")]

    def __call__(self, logits: Any) -> Any:
        """Return what is added to log-probabilities (n, classes)."""
        xp = array_namespace(logits)
        ordered = descending(logits)
        seen = context(raw_context(logits, ordered), self.centre, self.spread)
        sizes = xp.matmul(seen, xp.matrix_transpose(self.weight))
        moves = sizes[..., :1] * xp.clip(logits, min=LOWEST)
        for place, bend in enumerate(bends(xp.maximum(logits, tenth(ordered)))):
            moves = moves + sizes[..., place + 1 : place + 2] * bend
        return moves


def centred(log_p: Any) -> Any:
    """Return log-probabilities, at least -15, less the mean of their row.

    >>> import numpy as np
    >>> centred(np.array([[-1.0, -2.0, -99.0]])).tolist()
    [[5.0, 4.0, -9.0]]
    """
    xp = array_namespace(log_p)
    clipped = xp.clip(log_p, min=LOWEST)
    return clipped - xp.sum(clipped, axis=-1, keepdims=True) / clipped.shape[-1]


def tenth(ordered: Any) -> Any:
    """Return the tenth highest of each row (the last of fewer), given each row from the highest down."""
    place = min(DEPTH, ordered.shape[-1]) - 1
    return ordered[..., place : place + 1]


def descending(values: Any) -> Any:
    """Return the highest entries of each row from the highest down: all of few, at least ten of many."""
    if is_torch(values):  # by the only sort that its exporter to ONNX translates
        return values.sort(dim=-1, descending=True).values
    xp = array_namespace(values)
    if xp is NUMPY and values.shape[-1] > 4 * DEPTH:
        values = xp.partition(values, -DEPTH, axis=-1)[..., -DEPTH:]
    return xp.sort(values, axis=-1, descending=True, stable=False)


def bends(log_p: Any) -> list[Any]:
    """Return six functions of a log-probability, on the scale of logits, on that of probabilities, and in between."""
    xp = array_namespace(log_p)
    miss = xp.log(-xp.expm1(xp.clip(log_p, max=-1e-9)))  # log(1 - p)
    root = xp.exp(log_p / 2)
    p = root * root
    # tanh(x) = 1 - 2 / (exp(2 x) + 1), of x = l + 2.3 and of (l + 5) / 2: exp(2 x) is a multiple of p^2 or of p.
    steep = 1.0 - 2.0 / (math.exp(4.6) * p * p + 1.0)
    flat = 1.0 - 2.0 / (math.exp(5.0) * p + 1.0)
    return [xp.clip(log_p, min=LOWEST), p, root, xp.clip(miss, min=LOWEST) / 5, steep, flat]


def raw_context(log_p: Any, ordered: Any) -> Any:
    """Return the three highest log-probabilities of each row and its entropy, (n, 4); two classes repeat the second."""
    xp = array_namespace(log_p)
    highest = []
    for rank in range(3):
        place = min(rank, ordered.shape[-1] - 1)
        highest.append(xp.clip(ordered[..., place : place + 1], min=LOWEST))
    entropy = -xp.sum(xp.exp(log_p) * xp.clip(log_p, min=4 * LOWEST), axis=-1, keepdims=True)
    return xp.concat([*highest, entropy], axis=-1)


def context(raw: Any, centre: Any, spread: Any) -> Any:
    """Return a constant and the standardised context, clipped to four spreads so that no row is extrapolated far."""
    xp = array_namespace(raw)
    standard = xp.clip((raw - centre) / spread, min=-4, max=4)
    return xp.concat([xp.ones_like(standard[..., :1]), standard], axis=-1)
