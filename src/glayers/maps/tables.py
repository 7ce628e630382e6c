"""Logits -> logits by functions of one probability: of each class against the rest, or of the most probable class.

A table is a piecewise linear function through knots (x, y), constant beyond its ends. Two knots at one x make a jump,
so piecewise constant functions are tables too. Tables are not fitted by gradients, so they carry no members axis.
"""

from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from glayers.activations import is_top, keep_impossible
from glayers.arrays import Floats, array_namespace, device_of
from glayers.maps.steps import Numbers, Step

# Tables return at least this, and at most 1 minus this for the top class: a wrong row costs at most about 14 nats.
FLOOR = 1e-6


class Table(NamedTuple):
    """One piecewise linear function: knots in ascending order, and the value at each."""

    knots: Floats
    values: Floats

    @classmethod
    def of_bins(cls, edges: Floats, values: Floats) -> Self:
        """Return the function that is values[i] from edges[i - 1] up to, not including, edges[i].

        >>> Table.of_bins(np.array([0.5]), np.array([0.2, 0.9])).knots.tolist()
        [0.5, 0.5]
        """
        if not len(edges):
            return cls(np.zeros(1), values)
        return cls(np.repeat(edges, 2), np.repeat(values, 2)[1:-1])


class OneVersusRest(Step):
    """Each class against the rest: log sigmoid(power log p - rest_power log(1 - p) + shift).

    Equal powers give Platt's sigmoid of the log-odds; free powers give the beta family.
    """

    power: Annotated[Any, Numbers("in")]
    rest_power: Annotated[Any, Numbers("in")]
    shift: Annotated[Any, Numbers("in")]

    def __call__(self, logits: Any) -> Any:
        """Return log-probabilities that softmax makes sum to 1."""
        xp = array_namespace(logits)
        # Infinite log-odds times a power of 0 would be no number.
        lowest = -(float(xp.finfo(logits.dtype).max) ** 0.5)
        log_p, log_rest = one_versus_rest(logits)
        log_p = xp.clip(log_p, min=lowest)
        log_rest = xp.clip(log_rest, min=lowest)
        score = self.power * log_p - self.rest_power * log_rest + self.shift
        log_sigmoid = xp.clip(score, max=0.0) - xp.log1p(xp.exp(-xp.abs(score)))
        return keep_impossible(log_sigmoid, logits)


class EachClass(Step):
    """One table per class, knots and values (classes, knots), read at the class's probability; softmax normalises."""

    knots: Annotated[Any, Numbers("in knots")]
    values: Annotated[Any, Numbers("in knots", low=FLOOR, high=1.0)]

    def __call__(self, logits: Any) -> Any:
        """Return the logarithm of each table's value."""
        xp = array_namespace(logits)
        log_p, _ = one_versus_rest(logits)
        values = look_up(self.knots, self.values, xp.exp(log_p))
        return keep_impossible(xp.log(values), logits)

    @classmethod
    def of(cls, tables: Sequence[Table]) -> Self:
        """Return the step for tables of any lengths, clipped to the floor; shorter ones repeat their last knot."""
        length = max(len(table.knots) for table in tables)
        knots = []
        values = []
        for table in tables:
            more = (0, length - len(table.knots))
            knots.append(np.pad(table.knots, more, mode="edge"))
            values.append(np.pad(table.values, more, mode="edge"))
        return cls(np.array(knots), np.clip(values, FLOOR, 1.0))


class TopClass(Step):
    """One table for the most probable class, whichever it is; the other classes keep their proportions.

    The predicted class never changes: if the table gives the top class less than the second class would then have, the
    top class gets as much as the second, plus a rounding error. Such a row is more confident than its table says.
    """

    knots: Annotated[Any, Numbers("knots")]
    values: Annotated[Any, Numbers("knots", low=FLOOR, high=1.0 - FLOOR)]

    def __call__(self, logits: Any) -> Any:
        """Return log-probabilities with the new probability of the top class."""
        xp = array_namespace(logits)
        limits = xp.finfo(logits.dtype)
        log_p, log_rest = one_versus_rest(logits)
        top = is_top(logits)
        confidence = xp.exp(xp.max(log_p, axis=-1, keepdims=True))
        new = look_up(self.knots[None, :], self.values[None, :], confidence)
        old_rest = xp.max(xp.where(top, log_rest, -xp.inf), axis=-1, keepdims=True)
        # If no other class is possible, the rest is -inf, and so are all others.
        old_rest = xp.clip(old_rest, min=float(limits.min))
        others = log_p - old_rest + xp.log1p(-new)
        runner_up = xp.max(xp.where(top, -xp.inf, others), axis=-1, keepdims=True)
        # A thousand rounding errors: enough to survive softmax, too few to matter.
        least = runner_up + 1e3 * float(limits.eps)
        return xp.where(top, xp.maximum(xp.log(new), least), others)

    @classmethod
    def of(cls, table: Table) -> Self:
        """Return the step for a table, clipped away from 0 and 1 by the floor."""
        return cls(table.knots, np.clip(table.values, FLOOR, 1.0 - FLOOR))


def one_versus_rest(logits: Any) -> tuple[Any, Any]:
    """Return log p and log(1 - p) of every class, both to full precision however close p is to 0 or 1.

    Log p of an impossible class is -inf, and so is log(1 - p) of the only possible one.

    >>> log_p, log_rest = one_versus_rest(np.array([[0.0, 1e4]]))
    >>> log_p.tolist(), abs(log_rest).tolist()
    ([[-10000.0, 0.0]], [[0.0, 10000.0]])
    """
    xp = array_namespace(logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    log_total = xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
    log_p = shifted - log_total
    top = is_top(logits)
    others = xp.where(top, -xp.inf, shifted)
    highest = xp.max(others, axis=-1, keepdims=True)
    # For the top class 1 - p would lose digits, so sum the others. Every other class has p <= 1/2. The limits keep
    # -inf - -inf and log 0 away if no other class is possible; otherwise the sum is at least 1.
    limits = xp.finfo(logits.dtype)
    total = xp.sum(xp.exp(others - xp.clip(highest, min=float(limits.min))), axis=-1, keepdims=True)
    log_others = highest + xp.log(xp.clip(total, min=float(limits.smallest_normal)))
    half = xp.where(top, 0.0, xp.exp(log_p))
    return log_p, xp.where(top, log_others - log_total, xp.log1p(-half))


def look_up(knots: Any, values: Any, at: Any) -> Any:
    """Evaluate tables (tables, knots) at numbers (..., n, tables), one table per column; a jump takes its right side.

    >>> look_up(np.array([[0.0, 0.5, 0.5, 1.0]]), np.array([[0.0, 0.2, 0.6, 1.0]]), np.array([[0.25], [0.5]])).tolist()
    [[0.1], [0.6]]
    """
    xp = array_namespace(at)
    n_tables, length = knots.shape
    first = xp.arange(n_tables, device=device_of(at)) * length

    def entries(table: Any, place: Any) -> Any:
        place = xp.clip(place, min=0, max=length - 1)
        read = xp.take(xp.reshape(table, (-1,)), xp.reshape(first + place, (-1,)))
        return xp.reshape(read, (*at.shape[:-2], -1, n_tables))  # not at.shape: a traced number of rows is unknown

    # Bisection for the number of knots at or below the number, in all columns at once.
    low = xp.zeros_like(at, dtype=first.dtype)
    high = low + length
    for _ in range(int(length).bit_length()):
        middle = (low + high) // 2
        below = entries(knots, middle) <= at
        searching = low < high
        low = xp.where(searching & below, middle + 1, low)
        high = xp.where(searching & ~below, middle, high)
    left = entries(knots, low - 1)
    width = entries(knots, low) - left
    inside = width > 0
    share = xp.where(inside, (at - left) / xp.where(inside, width, 1.0), 0.0)
    before = entries(values, low - 1)
    return before + xp.clip(share, min=0.0, max=1.0) * (entries(values, low) - before)
