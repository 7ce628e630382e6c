"""Logits -> logits by functions of one probability: of each class against the rest, or of the most probable class.

A table is a piecewise linear function through knots (x, y), constant beyond its ends. Two knots at one x make a jump,
so piecewise constant functions are tables too. Tables are not fitted by gradients, so they carry no members axis.

The shared correction adds d(l_i, c) to the log-probability l_i of class i: a sum of six fixed functions of l_i, whose
coefficients are linear in the row's context c (its three highest log-probabilities and its entropy). It has thirty
parameters, whatever the number of classes, and permuting classes permutes the output. Classes below the `depth` highest
get the correction of the last of these.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, NamedTuple, Self

import numpy as np

from glayers.activations import is_top, keep_impossible, log_softmax, softmax
from glayers.arrays import NUMPY, Floats, Ints, array_namespace, device_of, is_torch
from glayers.maps.steps import SMALLEST, Numbers, Step

# Tables return at least this, and at most 1 minus this for the top class: a wrong row costs at most about 14 nats.
FLOOR = 1e-6

_NOTHING = -800.0  # exp is exactly 0 below
_MANY_CLASSES = 50  # from here on, most classes are below the `depth` highest
N_SHAPES = 6
N_HIGHEST = 3
N_CONTEXT = 1 + N_HIGHEST + 1  # a constant, the highest log-probabilities, the entropy


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
        log_p, log_rest = (xp.clip(each, min=lowest) for each in one_versus_rest(logits))
        score = self.power * log_p - self.rest_power * log_rest + self.shift
        return keep_impossible(xp.clip(score, max=0.0) - xp.log1p(xp.exp(-xp.abs(score))), logits)


class EachClass(Step):
    """One table per class, knots and values (classes, knots), read at the class's probability; softmax normalises."""

    knots: Annotated[Any, Numbers("in knots")]
    values: Annotated[Any, Numbers("in knots", low=FLOOR, high=1.0)]

    def __call__(self, logits: Any) -> Any:
        """Return the logarithm of each table's value."""
        xp = array_namespace(logits)
        return keep_impossible(xp.log(look_up(self.knots, self.values, xp.exp(one_versus_rest(logits)[0]))), logits)

    @classmethod
    def of(cls, tables: Sequence[Table]) -> Self:
        """Return the step for tables of any lengths, clipped to the floor; shorter ones repeat their last knot."""
        length = max(len(table.knots) for table in tables)
        knots, values = (
            np.stack([np.pad(line, (0, length - len(line)), mode="edge") for line in lines])
            for lines in zip(*tables, strict=True)
        )
        return cls(knots, np.clip(values, FLOOR, 1.0))


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
        log_p, log_rest = one_versus_rest(logits)
        top = is_top(logits)
        confidence = xp.exp(xp.max(log_p, axis=-1, keepdims=True))
        new = look_up(self.knots[None, :], self.values[None, :], confidence)
        old_rest = xp.max(xp.where(top, log_rest, -xp.inf), axis=-1, keepdims=True)
        # If no other class is possible, the rest is -inf, and so are all others.
        others = log_p - xp.clip(old_rest, min=float(xp.finfo(log_p.dtype).min)) + xp.log1p(-new)
        runner_up = xp.max(xp.where(top, -xp.inf, others), axis=-1, keepdims=True)
        # A thousand rounding errors: enough to survive softmax, too few to matter.
        least = runner_up + 1e3 * float(xp.finfo(log_p.dtype).eps)
        return xp.where(top, xp.maximum(xp.log(new), least), others)

    @classmethod
    def of(cls, table: Table) -> Self:
        """Return the step for a table, clipped away from 0 and 1 by the floor."""
        return cls(table.knots, np.clip(table.values, FLOOR, 1.0 - FLOOR))


class Shared(Step):
    """Add the shared correction; `weight` is (6, 5), functions x context, and the context is centred and scaled."""

    weight: Annotated[Any, Numbers(f"{N_SHAPES} {N_CONTEXT}")]
    centre: Annotated[Any, Numbers(f"{N_CONTEXT - 1}", learned="none")]
    spread: Annotated[Any, Numbers(f"{N_CONTEXT - 1}", low=SMALLEST, learned="none")]
    depth: Annotated[Any, Numbers(low=1.0, learned="none")]

    def __call__(self, logits: Any) -> Any:
        """Return corrected log-probabilities."""
        if array_namespace(logits) is NUMPY and logits.shape[-1] >= _MANY_CLASSES:
            return self._of_many_classes(logits)
        return log_softmax(self._corrected(logits))

    def _corrected(self, logits: Any) -> Any:
        """Return log-probabilities plus the correction, not yet normalised."""
        xp = array_namespace(logits)
        plain = log_softmax(logits)
        ordered = _descending(plain)
        seen = context(raw_context(plain, ordered), self.centre, self.spread)
        sizes, reached = xp.matmul(seen, xp.matrix_transpose(self.weight)), plain
        if xp is not NUMPY or self.depth < plain.shape[-1]:
            # The lowest of the `depth` highest. A mask, as an index taken from an array could not be traced.
            within = xp.arange(plain.shape[-1], dtype=plain.dtype, device=device_of(plain)) < self.depth
            reached = xp.maximum(plain, xp.min(xp.where(within, ordered, xp.inf), axis=-1, keepdims=True))
        parts = [sizes[..., i : i + 1] * shape for i, shape in enumerate(shapes(reached))]
        return plain + sum(parts)

    def probabilities(self, logits: Any) -> Any:
        """Return softmax of the result."""
        if logits.shape[-1] < _MANY_CLASSES:
            return softmax(self._corrected(logits))
        _, powers, _, _ = self._moved(logits)
        powers /= powers.sum(axis=-1, keepdims=True)
        return powers

    def _of_many_classes(self, logits: Floats) -> Floats:
        shifted, powers, high, moves = self._moved(logits)
        shifted -= np.log(powers.sum(axis=-1, keepdims=True))
        shifted.reshape(-1)[high] += moves
        return shifted

    def _moved(self, logits: Floats) -> tuple[Floats, Floats, Ints, Floats]:
        """Compute the same in one pass: all classes but the highest move by the same amount, which softmax ignores.

        Return logits less the highest, their exponentials after the moves, the places of the moved classes in the flat
        array, and the moves.
        """
        shifted = logits - logits.max(axis=-1, keepdims=True)
        powers = np.exp(shifted)
        total = powers.sum(axis=-1, keepdims=True)
        log_total, n_classes = np.log(total), shifted.shape[-1]
        depth = min(math.ceil(self.depth), n_classes)
        n_highest = min(max(depth, N_HIGHEST), n_classes)
        highest = np.sort(np.partition(shifted, -n_highest, axis=-1)[..., -n_highest:], axis=-1)[..., ::-1]
        finite = shifted if shifted.min() > _NOTHING else np.maximum(shifted, _NOTHING)
        entropy = log_total - np.vecdot(powers, finite)[..., None] / total
        seen = context(_raw_context(highest - log_total, entropy), self.centre, self.spread)
        sizes, lowest = seen @ self.weight.T, highest[..., depth - 1 : depth]
        if lowest.min() == -np.inf:  # of an impossible class: the lowest possible one takes its place
            possible = np.where(highest > -np.inf, highest, np.inf)
            lowest = possible[..., :depth].min(axis=-1, keepdims=True)
        high = np.flatnonzero(shifted > lowest)
        rows = high // n_classes
        plain = shifted.reshape(-1)[high] - log_total.reshape(-1)[rows]
        moved, rest = (np.stack(shapes(values), axis=-1) for values in (plain, (lowest - log_total).reshape(-1)))
        moves = np.vecdot(sizes.reshape(-1, N_SHAPES)[rows], moved - rest[rows])
        powers.reshape(-1)[high] *= np.exp(moves)
        return shifted, powers, high, moves


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
    left, right, before, after = (entries(table, place) for table in (knots, values) for place in (low - 1, low))
    width = right - left
    inside = width > 0
    share = xp.where(inside, (at - left) / xp.where(inside, width, 1.0), 0.0)
    return before + xp.clip(share, min=0.0, max=1.0) * (after - before)


def shapes(l: Any) -> list[Any]:  # noqa: E741 (the l of the formulas)
    """Return six functions of a log-probability, on the scale of logits, on that of probabilities, and in between."""
    xp = array_namespace(l)
    miss = xp.log(-xp.expm1(xp.clip(l, max=-1e-9)))  # log(1 - p)
    root = xp.exp(l / 2)
    p = root * root
    # tanh(x) = 1 - 2 / (exp(2 x) + 1), of x = l + 2.3 and of (l + 5) / 2: exp(2 x) is a multiple of p^2 or of p.
    bends = [1.0 - 2.0 / (math.exp(4.6) * p * p + 1.0), 1.0 - 2.0 / (math.exp(5.0) * p + 1.0)]
    return [xp.clip(l, min=_NOTHING), p, root, xp.clip(miss, min=-15) / 5, *bends]


def raw_context(plain: Any, ordered: Any) -> Any:
    """Return the three highest log-probabilities of each row and its entropy, (n, 4); two classes repeat the second."""
    xp = array_namespace(plain)
    return _raw_context(ordered, -xp.sum(xp.exp(plain) * xp.clip(plain, min=_NOTHING), axis=-1, keepdims=True))


def _raw_context(ordered: Any, entropy: Any) -> Any:
    xp = array_namespace(ordered)
    last = ordered.shape[-1] - 1
    if xp is NUMPY and last + 1 >= N_HIGHEST and ordered[..., N_HIGHEST - 1].min() > -np.inf:
        return np.concatenate([ordered[..., :N_HIGHEST], entropy], axis=-1)
    highest = [ordered[..., min(i, last) : min(i, last) + 1] for i in range(N_HIGHEST)]
    for i in range(1, N_HIGHEST):
        highest[i] = xp.where(highest[i] > -xp.inf, highest[i], highest[i - 1])
    return xp.concat([*highest, entropy], axis=-1)


def _descending(values: Any) -> Any:
    """Sort each row from the highest down. For torch, by the only sort that its exporter to ONNX translates."""
    if is_torch(values):
        return values.sort(dim=-1, descending=True).values
    return array_namespace(values).sort(values, axis=-1, descending=True, stable=False)


def context(raw: Any, centre: Any, spread: Any) -> Any:
    """Return a constant and the standardised context, clipped to four spreads so that no row is extrapolated far."""
    xp = array_namespace(raw)
    standard = xp.clip((raw - centre) / spread, min=-4, max=4)
    return xp.concat([xp.ones_like(standard[..., :1]), standard], axis=-1)
