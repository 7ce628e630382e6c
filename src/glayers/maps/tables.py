"""Logits -> logits by functions of one probability: that of each class against the rest.

A table is a piecewise linear function through knots (x, y), constant beyond its ends. Two knots at one x make a jump,
so piecewise constant functions are tables too. Tables are not fitted by gradients, so they carry no members axis.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Self, TypeAlias

import numpy as np

from glayers.activations import is_top, keep_impossible, log_sigmoid, log_softmax
from glayers.arrays import Floats, array_namespace, device_of
from glayers.maps.steps import Numbers, PerClass, Step

__all__ = ["EachClass", "OneVersusRest", "QuadraticVersusRest"]

# One piecewise linear function: knots in ascending order, and the value at each.
Table: TypeAlias = tuple[Floats, Floats]


def table_of_bins(edges: Floats, values: Floats) -> Table:
    """Return the function that is values[i] from edges[i - 1] up to, not including, edges[i].

    >>> table_of_bins(np.array([0.5]), np.array([0.2, 0.9]))[0].tolist()
    [0.5, 0.5]
    """
    if not len(edges):
        return np.zeros(1), values
    return np.repeat(edges, 2), np.repeat(values, 2)[1:-1]


class OneVersusRest(Step):
    """Each class against the rest: log sigmoid(power log p - rest_power log(1 - p) + shift).

    Equal powers give Platt's sigmoid of the log-odds; free powers give the beta family.
    """

    power: PerClass
    rest_power: PerClass
    shift: PerClass

    def __call__(self, logits: Any) -> Any:
        """Return log-probabilities that softmax makes sum to 1."""
        log_p, log_rest = one_versus_rest(logits)
        score = self.power * log_p - self.rest_power * log_rest + self.shift
        return keep_impossible(log_sigmoid(score), logits)


class QuadraticVersusRest(Step):
    """Each class against the rest: log sigmoid of a function of the log-odds x whose slope changes with x.

    The slope goes from `low_slope` at `low` to `high_slope` at `high` on a straight line, and is constant beyond, so
    that the function is quadratic between the two and never decreases.
    """

    low_slope: PerClass
    high_slope: PerClass
    shift: PerClass
    low: Annotated[Any, Numbers("in", learned="none")]
    high: Annotated[Any, Numbers("in", learned="none")]

    def __call__(self, logits: Any) -> Any:
        """Return log-probabilities that softmax makes sum to 1."""
        log_p, log_rest = one_versus_rest(logits)
        falling, rising = slope_features(log_p - log_rest, self.low, self.high)
        score = self.low_slope * falling + self.high_slope * rising + self.shift
        return keep_impossible(log_sigmoid(score), logits)


def slope_features(x: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Return the functions of x whose slopes fall from 1 to 0, and rise from 0 to 1, between `low` and `high`.

    >>> [feature.tolist() for feature in slope_features(np.array([0.0, 1.0, 2.0]), np.array(0.0), np.array(1.0))]
    [[0.0, 0.5, 0.5], [0.0, 0.5, 1.5]]
    """
    xp = array_namespace(x)
    above = xp.minimum(xp.maximum(x, low), high) - low
    rising = above * (above / (high - low)) / 2 + xp.clip(x - high, min=0.0)
    return x - rising, rising


class EachClass(Step):
    """One table per class, knots and values (classes, knots), read at the class's probability; softmax normalises."""

    knots: Annotated[Any, Numbers("in knots")]
    values: Annotated[Any, Numbers("in knots")]

    def __call__(self, logits: Any) -> Any:
        """Return the logarithm of each table's value."""
        xp = array_namespace(logits)
        log_p, _ = one_versus_rest(logits)
        values = look_up(self.knots, self.values, xp.exp(log_p))
        return keep_impossible(xp.log(values), logits)

    @classmethod
    def of(cls, tables: Sequence[Table]) -> Self:
        """Return the step for tables of any lengths, clipped to the floor; shorter ones repeat their last knot."""
        length = max(len(knots) for knots, _ in tables)
        padded = [np.pad(table, ((0, 0), (0, length - len(table[0]))), mode="edge") for table in tables]
        every_knot, every_value = np.stack(padded, axis=1)
        return cls(every_knot, np.clip(every_value, 1e-6, 1.0))  # so that a wrong row costs at most about 14 nats


def one_versus_rest(logits: Any) -> tuple[Any, Any]:
    """Return log p and log(1 - p) of every class, both to full precision however close p is to 0 or 1.

    Both are raised to a finite lowest number, because an infinite one times a slope of 0 would be no number.

    >>> log_p, log_rest = one_versus_rest(np.array([[0.0, 1e4]]))
    >>> log_p.tolist(), abs(log_rest).tolist()
    ([[-10000.0, 0.0]], [[0.0, 10000.0]])
    """
    xp = array_namespace(logits)
    limits = xp.finfo(logits.dtype)
    log_p = log_softmax(logits)
    top = is_top(logits)
    # For the top class 1 - p would lose digits, so sum the others. Every other class has p <= 1/2.
    others = xp.where(top, -xp.inf, log_p)
    highest = xp.max(others, axis=-1, keepdims=True)
    # The limits keep -inf - -inf and log 0 away if no other class is possible.
    powers = xp.exp(others - xp.clip(highest, min=float(limits.min)))
    total = xp.sum(powers, axis=-1, keepdims=True)
    log_others = highest + xp.log(xp.clip(total, min=float(limits.smallest_normal)))
    at_most_half = xp.where(top, 0.0, xp.exp(log_p))
    log_rest = xp.where(top, log_others, xp.log1p(-at_most_half))
    lowest = -(float(limits.max) ** 0.5)
    return xp.clip(log_p, min=lowest), xp.clip(log_rest, min=lowest)


def look_up(knots: Any, values: Any, at: Any) -> Any:
    """Evaluate tables (tables, knots) at numbers (..., n, tables), one table per column; a jump takes its right side.

    >>> look_up(np.array([[0.0, 0.5, 0.5, 1.0]]), np.array([[0.0, 0.2, 0.6, 1.0]]), np.array([[0.25], [0.5]])).tolist()
    [[0.1], [0.6]]
    """
    xp = array_namespace(at)
    n_tables, length = knots.shape
    first = xp.arange(n_tables, device=device_of(at)) * length

    def entries(table: Any, place: Any) -> Any:
        place = first + xp.clip(place, min=0, max=length - 1)
        flat = xp.reshape(table, (-1,))
        read = xp.take(flat, xp.reshape(place, (-1,)))
        return xp.reshape(read, (*at.shape[:-2], -1, n_tables))  # not at.shape: a traced number of rows is unknown

    # How many knots lie at or below the number, bit by bit, in all columns at once.
    passed = xp.zeros_like(at, dtype=first.dtype)
    for bit in reversed(range(int(length).bit_length())):
        further = passed + 2**bit
        reached = (further <= length) & (entries(knots, further - 1) <= at)
        passed = xp.where(reached, further, passed)
    left = entries(knots, passed - 1)
    width = entries(knots, passed) - left
    inside = width > 0
    divisor = xp.where(inside, width, 1.0)
    share = xp.where(inside, (at - left) / divisor, 0.0)
    share = xp.clip(share, min=0.0, max=1.0)
    before = entries(values, passed - 1)
    after = entries(values, passed)
    return before + share * (after - before)
