"""Logits and labels -> the inverse temperature of least log loss, by Halley's method on 1/T.

The loss is convex in b = 1/T: its slope is the mean of E_p[z] - z_label, its curvature the mean of Var_p[z], its third
derivative that of the third cumulant. With all three an error of d falls to about d^3, and a bracket keeps every step
safe. A sample of the rows gives the first guess, a pass in float32 a near one, and a last pass in float64 is exact.
"""

import math
import threading
from typing import NamedTuple, Self

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array, Floats, Ints, map_row_blocks, rows_in_a_block

_SAMPLE = 2_000
_MOST_STEPS = 60
# A relative step this small ends the search; its cube is what is left. Float32 sees no more than 1e-6 anyway.
_CLOSE: dict[type, float] = {np.float32: 3e-2, np.float64: 1e-4}
# exp is exactly 0 from here on: whatever lies below adds nothing, and its powers must not overflow.
_NOTHING: dict[type, float] = {np.float32: -150.0, np.float64: -800.0}
# Factors on logits of such a spread, and their products, are numbers in float32.
_LEAST_IN_SINGLE, _MOST_IN_SINGLE = 1e-15, 1e15
# A mean loss this small belongs to rows that are all right: a single wrong one costs log 2.
_NOTHING_LEFT = 1e-9


class InverseTemperature(NamedTuple):
    """The factor on the logits, how it was found, and the mean log loss there; `reason` is what stood in the way."""

    factor: float
    steps: int
    converged: bool
    reason: str
    loss: float


class _Rows(NamedTuple):
    """Logits, labels and shares that sum to 1."""

    logits: Array
    labels: Ints
    shares: Floats

    def every(self, stride: int) -> Self:
        """Return one row in so many; not all of them may have a share of 0."""
        shares = self.shares[::stride]
        return self._replace(logits=self.logits[::stride], labels=self.labels[::stride], shares=shares / shares.sum())


class _Bracket(NamedTuple):
    """Factors between which an optimum can be told from a flat guess below and from certainty above."""

    least: float
    most: float

    def inside(self, factor: float) -> float:
        """Return the factor, moved inside if need be."""
        return min(max(factor, 2 * self.least), self.most / 2)


class _Loss(NamedTuple):
    """The mean log loss at a factor b (1 + d), and its derivatives by the relative step d, all at d = 0."""

    value: float
    slope: float
    curvature: float
    third: float

    def step(self) -> float:
        """Return Halley's step, or Newton's where that would turn back; infinite without curvature."""
        if not self.curvature > 0:
            return math.inf
        newton = -self.slope / self.curvature
        bend = 1 + newton * self.third / (2 * self.curvature)
        return newton / bend if bend > 0 else newton

    def after(self, step: float) -> float:
        """Return the loss a small step further."""
        return self.value + step * (self.slope + step * (self.curvature / 2 + step * self.third / 6))


def fit_inverse_temperature(
    logits: Array, labels: Ints, weights: Floats | None, start: float | None = None
) -> InverseTemperature:
    """Minimise the log loss of softmax(b * logits) over b > 0, from a near guess if there is one."""
    rows = _Rows(logits, labels, _shares(weights, len(labels)))
    spread = _spread(logits)
    if spread == 0.0:
        reason = "all logits of each row are equal: no temperature matters"
        return InverseTemperature(1.0, 0, True, reason, math.log(max(2, logits.shape[1])))
    stride = max(1, len(labels) // _SAMPLE)
    # Softmax of the widest row is flat below the bracket; above it that of a row with the typical lead of its first
    # class is 0 and 1, to float64's last digit. The widest row must not decide that: a masked class makes it wide.
    bracket = _Bracket(1e-9 / spread, 1e4 / _typical_lead(logits[::stride], spread))
    rough = np.float32 if _LEAST_IN_SINGLE < spread < _MOST_IN_SINGLE else np.float64
    if start is None:
        start = 1.0 if bracket.least < 1.0 < bracket.most else math.sqrt(bracket.least * bracket.most)
        if stride > 1 and rows.shares[::stride].sum() > 0:
            guess = _search(rows.every(stride), start, bracket, rough)
            start = guess.factor if guess.converged else start
    near = _search(rows, start, bracket, rough)
    exact = _search(rows, near.factor, bracket, np.float64)
    return exact._replace(steps=near.steps + exact.steps)


def log_loss_at(logits: Array, labels: Ints, weights: Floats | None, factor: float) -> float:
    """Return the mean log loss of softmax(factor * logits), in the precision that the logits have.

    >>> round(log_loss_at(np.array([[0.0, 0.5, 0.0]]), np.array([1]), None, 2.0), 6)
    0.551445
    """
    scratch = _Scratch(logits, np.float64 if logits.dtype == np.float64 else np.float32)
    shares = _shares(weights, len(labels))

    def of(block: slice) -> float:
        x, own = scratch.exponents(logits[block], labels[block], factor)
        return float(shares[block] @ (np.log(np.exp(x, out=x).sum(axis=1, dtype=np.float64)) - own))

    return math.fsum(map_row_blocks(of, *logits.shape))


def _search(rows: _Rows, start: float, bracket: _Bracket, dtype: type) -> InverseTemperature:
    (low, high), b, step = bracket, bracket.inside(start), 0
    while True:
        step += 1
        loss = _loss(rows, b, dtype)
        if loss.value < _NOTHING_LEFT or b > bracket.most / 2:
            reason = "every row is right by a margin: no finite temperature is best"
            return InverseTemperature(b, step, False, reason, loss.value)
        if b < 2 * bracket.least:
            reason = "the logits tell nothing about the labels: the best is a flat guess"
            return InverseTemperature(b, step, False, reason, loss.value)
        # A slope of exactly 0 without curvature is underflow: every row is right, and more would be no worse.
        low, high = (b, high) if loss.slope <= 0 else (low, b)
        relative = loss.step()
        following = b * (1 + relative)
        if abs(relative) <= _CLOSE[dtype]:
            return InverseTemperature(following, step, True, "", loss.after(relative))
        if step == _MOST_STEPS:
            return InverseTemperature(b, step, False, f"no optimum in {step} steps", loss.value)
        # Outside the bracket, or no curvature to go by: halve on the log scale, as both ends may be far.
        b = following if low < following < high else math.sqrt(low * high)


def _loss(rows: _Rows, b: float, dtype: type) -> _Loss:
    scratch = _Scratch(rows.logits, dtype)

    def of(block: slice) -> Floats:
        x, own = scratch.exponents(rows.logits[block], rows.labels[block], b)
        p = np.exp(x, out=scratch.powers[: len(x)])
        total = p.sum(axis=1, dtype=np.float64)
        mean = np.vecdot(p, x) / total
        p *= x
        square = np.vecdot(p, x) / total
        p *= x
        cube = np.vecdot(p, x) / total
        third = cube - 3 * mean * square + 2 * mean**3
        return np.stack([np.log(total) - own, mean - own, square - mean**2, third]) @ rows.shares[block]

    # Added up in the order of the rows, whichever block was ready first.
    return _Loss(*np.sum(map_row_blocks(of, *rows.logits.shape), axis=0).tolist())


class _Scratch(threading.local):
    """Memory for the work on one block of rows, of each thread its own: asking for it anew costs more than the work."""

    def __init__(self, logits: Array, dtype: type) -> None:
        shape = (rows_in_a_block(*logits.shape), max(2, logits.shape[1]))
        self.dtype = dtype
        self.differences, self.powers = np.empty((2, *shape), dtype=dtype)

    def exponents(self, logits: Array, labels: Ints, b: float) -> tuple[Array, Floats]:
        """Return b (z - max z) of each class, no lower than matters, and that of the label in float64, however low."""
        z = with_reference_class(logits)
        top = z.max(axis=1)
        own = b * (z[np.arange(len(z)), labels].astype(np.float64) - top)
        x = self.differences[: len(z)]
        if z.dtype.itemsize < x.dtype.itemsize:  # widened first: a difference across types takes three times as long
            np.copyto(x, z)
            z, top = x, top.astype(x.dtype)
        with np.errstate(over="ignore"):
            np.subtract(z, top[:, None], out=x, casting="same_kind")
            x *= b
        return np.maximum(x, _NOTHING[self.dtype], out=x), own


def _shares(weights: Floats | None, n_rows: int) -> Floats:
    return np.full(n_rows, 1 / n_rows) if weights is None else weights / weights.sum()


def _spread(logits: Array) -> float:
    """The largest difference between two logits of one row."""

    def of(block: slice) -> float:
        z = with_reference_class(logits[block])
        return float((z.max(axis=1).astype(np.float64) - z.min(axis=1)).max())

    return max(map_row_blocks(of, *logits.shape))


def _typical_lead(logits: Array, spread: float) -> float:
    """The median lead of the highest logit over the next, among rows that have one."""

    def of(block: slice) -> Floats:
        z = np.partition(with_reference_class(logits[block]), -2, axis=1)[:, -2:].astype(np.float64)
        return z[:, 1] - z[:, 0]

    leads = np.concatenate(map_row_blocks(of, *logits.shape))
    return float(np.median(leads[leads > 0])) if (leads > 0).any() else spread
