"""Logits and labels -> the inverse temperature of least log loss, by Halley's method on b = 1/T.

The loss is convex in b: its slope is the mean of E_p[z] - z_label, its curvature the mean of Var_p[z], its third
derivative that of the third cumulant. With all three an error of d falls to about d^3, and a bracket keeps every step
safe. A sample of the rows gives the first guess, float32 a close one, and a last pass in float64 is exact.
"""

import math
import threading
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array, Floats, Ints, map_row_blocks, rows_in_a_block
from glayers.fitting.folds import effective_rows

_SAMPLE = 2_000
_MOST_STEPS = 60
# A relative step this small ends the search; its cube is what is left. Float32 resolves no more than 1e-6.
_CLOSE: dict[type, float] = {np.float32: 3e-2, np.float64: 1e-4}
# exp is exactly 0 below: such classes add nothing, and the powers of their exponents must not overflow.
_NOTHING: dict[type, float] = {np.float32: -150.0, np.float64: -800.0}
# A mean loss this small means that all rows are right: a single wrong one costs log 2.
_NOTHING_LEFT = 1e-9

# Logits this close cannot be spread by any factor that float64 holds.
_SMALLEST_SPREAD = 1e-290

# Inverse temperature b and type of numbers -> mean log loss at b (1 + d), and three derivatives by d.
Derivatives: TypeAlias = Callable[[float, type], list[float]]
# Of log b from 0: the scale of its prior. From 0.3 to 0.8 the mean NLL of 13 sets changes by 0.001 with 50 rows.
_USUAL_DISTANCE = 0.5
_SPREAD = 3 * _USUAL_DISTANCE**2
_ONE_STEP = 1e-2  # of log b, up to which one step of Newton's method reaches the optimum with the prior
_SEPARABLE = "every row is classified correctly by a margin, so no finite temperature is best"


class InverseTemperature(NamedTuple):
    """The factor on the logits, how it was found, and the mean log loss there. `reason` is empty if all went well.

    `curvature` is the second derivative of the mean loss by the logarithm of the factor.
    """

    factor: float
    steps: int
    converged: bool
    reason: str
    loss: float
    curvature: float = 0.0


def fit_inverse_temperature(
    logits: Array, labels: Ints, weights: Floats | None, start: float | None = None
) -> InverseTemperature:
    """Minimise the log loss of softmax(b * logits) over b > 0, from a close guess if there is one."""
    rows = logits, labels, _normalised(weights, len(labels))
    spread = max(map_row_blocks(lambda block: _largest_spread(logits[block]), *logits.shape))
    if spread <= _SMALLEST_SPREAD:
        reason = "all logits of each row are equal: no temperature matters"
        return InverseTemperature(1.0, 0, True, reason, math.log(max(2, logits.shape[1])))
    stride = max(1, len(labels) // _SAMPLE)
    # Below the bracket, softmax of the widest row is uniform. Above it, softmax of a row with the typical lead is 0 and
    # 1 to the last digit. The widest row must not set the upper end: one masked class makes a row wide.
    leads = np.concatenate(map_row_blocks(lambda block: _leads(logits[::stride][block]), *logits[::stride].shape))
    leads = leads[(leads > 0) & (leads < np.inf)]
    bracket = 1e-9 / spread, 1e4 / (max(float(np.median(leads)), _SMALLEST_SPREAD) if leads.size else spread)
    rough = np.float32 if 1e-15 < spread < 1e15 else np.float64  # float32 must hold factors and their products
    if start is None:
        start = 1.0 if bracket[0] < 1.0 < bracket[1] else _between(*bracket)
        sample = logits[::stride], labels[::stride], rows[2][::stride]
        if stride > 1 and sample[2].sum() > 0:
            guess = _search(_derivatives_of(*sample[:2], sample[2] / sample[2].sum()), start, bracket, rough)
            start = guess.factor if guess.converged else start
    near = _search(_derivatives_of(*rows), start, bracket, rough)
    exact = _search(_derivatives_of(*rows), near.factor, bracket, np.float64)
    return exact._replace(steps=near.steps + exact.steps)


def fit_with_prior(
    logits: Array, labels: Ints, weights: Floats | None, start: float | None = None
) -> InverseTemperature:
    """Minimise the log loss plus the prior of an inverse temperature, which holds it near 1 where rows say little."""
    found = fit_inverse_temperature(logits, labels, weights, start)
    n_rows = len(labels) if weights is None else effective_rows(weights)
    return shrunk(found, _derivatives_of(logits, labels, _normalised(weights, len(labels))), n_rows)


def shrunk(found: InverseTemperature, derivatives: Derivatives, n_rows: float) -> InverseTemperature:
    """Move an inverse temperature of least mean loss to where loss and prior together are least.

    The prior of log b is Student's t with three degrees of freedom around 0: temperatures of 1/2 to 3 are usual, and
    its tails let many rows decide. The optimum lies between the two.
    """
    if found.reason not in ("", _SEPARABLE):
        return found
    distance = math.log(found.factor)
    pull, bend = (each / n_rows for each in _prior_derivatives(distance))
    if found.converged and abs(pull) < _ONE_STEP * (found.curvature + bend):
        move = -pull / (found.curvature + bend)
        loss = found.loss + found.curvature * move**2 / 2
        return found._replace(factor=found.factor * math.exp(move), loss=loss)

    def value(x: float) -> float:
        return derivatives(math.exp(x), np.float64)[0] + 2 * math.log1p(x**2 / _SPREAD) / n_rows

    from scipy.optimize import minimize_scalar  # on first use: importing it takes longer than glayers

    ends = sorted([0.0, distance])
    best = minimize_scalar(value, bounds=ends, method="bounded", options={"xatol": 1e-6}).x
    # A comparison of losses resolves half of their digits; one step of Newton's method finds the others.
    _, slope, curvature, _ = derivatives(math.exp(best), np.float64)
    pull, bend = (each / n_rows for each in _prior_derivatives(best))
    if abs(slope + pull) < _ONE_STEP * (curvature + slope + bend):
        best = min(max(best - (slope + pull) / (curvature + slope + bend), ends[0]), ends[1])
    factor = math.exp(best)
    return InverseTemperature(factor, found.steps, True, "", derivatives(factor, np.float64)[0])


def _prior_derivatives(log_b: float) -> tuple[float, float]:
    """Return two derivatives of minus the log prior, 2 log(1 + log_b^2 / spread)."""
    whole = _SPREAD + log_b**2
    return 4 * log_b / whole, 4 * (_SPREAD - log_b**2) / whole**2


def held_out_factors(logits: Array, labels: Ints, weights: Floats | None, folds: Ints, factor: float) -> Floats:
    """Return the inverse temperature of each row (n, 1) without its fold, by one step from that of all rows."""
    given = np.ones(len(labels)) if weights is None else weights / weights.sum() * effective_rows(weights)
    sums = []
    for fold in range(int(folds.max()) + 1):
        own = folds == fold
        sums.append(loss_and_derivatives(logits[own], labels[own], given[own], factor, np.float64))
    _, slopes, curvatures, _ = (np.sum(sums, axis=0) - sums).T
    pull, bend = _prior_derivatives(math.log(factor))
    slopes = slopes + pull
    steps = -slopes / np.maximum(curvatures + slopes + bend, _SMALLEST_SPREAD)
    return np.asarray(factor * np.exp(steps.clip(-0.5, 0.5)))[folds][:, None]


def log_loss_at(logits: Array, labels: Ints, weights: Floats | None, factor: float) -> float:
    """Return the mean log loss of softmax(factor * logits), in the precision of the logits.

    >>> round(log_loss_at(np.array([[0.0, 0.5, 0.0]]), np.array([1]), None, 2.0), 6)
    0.551445
    """
    scratch = _Scratch(logits, np.float64 if logits.dtype == np.float64 else np.float32)
    weights = _normalised(weights, len(labels))

    def of(block: slice) -> float:
        x, own = scratch.exponents(logits[block], labels[block], factor)
        return float(weights[block] @ (np.log(np.exp(x, out=x).sum(axis=1).astype(np.float64)) - own))

    return math.fsum(map_row_blocks(of, *logits.shape))


def _search(derivatives: Derivatives, start: float, bracket: tuple[float, float], dtype: type) -> InverseTemperature:
    low, high = least, most = bracket
    b, step = min(max(start, 2 * least), most / 2), 0
    while True:
        step += 1
        value, slope, curvature, third = derivatives(b, dtype)
        if value < _NOTHING_LEFT or b > most / 2:
            return InverseTemperature(b, step, False, _SEPARABLE, value)
        if b < 2 * least:
            reason = "the logits carry no information about the labels, so uniform probabilities are best"
            return InverseTemperature(b, step, False, reason, value)
        # A slope of exactly 0 without curvature is underflow: every row is right, and a larger b is no worse.
        low, high = (b, high) if slope <= 0 else (low, b)
        # Halley's step, relative to b, or Newton's where Halley's would turn back.
        d = -slope / curvature if curvature > 0 else math.inf
        if curvature > 0 and (bend := 1 + d * third / (2 * curvature)) > 0:
            d /= bend
        if abs(d) <= _CLOSE[dtype]:
            loss = value + d * (slope + d * (curvature / 2 + d * third / 6))
            return InverseTemperature(b * (1 + d), step, True, "", loss, curvature)
        if step == _MOST_STEPS:
            return InverseTemperature(b, step, False, f"no optimum in {step} steps", value)
        # Outside the bracket, or without curvature: halve on the log scale, as both ends may be far.
        b = b * (1 + d) if low < b * (1 + d) < high else _between(low, high)


def loss_and_derivatives(logits: Array, labels: Ints, weights: Floats, b: float, dtype: type) -> list[float]:
    """Return the weighted sum of the log losses at b (1 + d) and of its first three derivatives by d, at d = 0."""
    scratch = _Scratch(logits, dtype)

    def of(block: slice) -> Floats:
        x, own = scratch.exponents(logits[block], labels[block], b)
        if x.min() < _NOTHING[dtype]:  # looked up first: most often nothing is to do
            np.maximum(x, _NOTHING[dtype], out=x)
        p = np.exp(x, out=scratch.powers[: len(x)])
        total = p.sum(axis=1).astype(np.float64)
        mean = np.vecdot(p, x) / total
        p *= x
        square = np.vecdot(p, x) / total
        p *= x
        cube = np.vecdot(p, x) / total
        third = cube - 3 * mean * square + 2 * mean**3
        return np.stack([np.log(total) - own, mean - own, square - mean**2, third]) @ weights[block]

    # Summed in the order of the rows, whichever block was ready first.
    return [float(each) for each in np.sum(map_row_blocks(of, *logits.shape), axis=0)]


def _derivatives_of(logits: Array, labels: Ints, weights: Floats) -> Derivatives:
    return partial(loss_and_derivatives, logits, labels, weights)


class _Scratch(threading.local):
    """Each thread's memory for one block of rows: allocating it for every block would take longer than the work."""

    def __init__(self, logits: Array, dtype: type) -> None:
        self.dtype = dtype
        shape = (2, rows_in_a_block(*logits.shape), max(2, logits.shape[1]))
        self.differences, self.powers = np.empty(shape, dtype=dtype)

    def exponents(self, logits: Array, labels: Ints, b: float) -> tuple[Array, Floats]:
        """Return b (z - max z), and that of the label in float64."""
        z = with_reference_class(logits)
        top = z.max(axis=1)
        own = b * (z[np.arange(len(z)), labels].astype(np.float64) - top)
        x = self.differences[: len(z)]
        if z.dtype.itemsize < x.dtype.itemsize:  # widen first: a difference across types takes three times as long
            np.copyto(x, z)
            z, top = x, top.astype(x.dtype)
        with np.errstate(over="ignore"):
            np.subtract(z, top[:, None], out=x, casting="same_kind")
            x *= b
        return x, own


def _between(low: float, high: float) -> float:
    """Return the geometric mean; the product could overflow."""
    return math.sqrt(low) * math.sqrt(high)


def _normalised(weights: Floats | None, n_rows: int) -> Floats:
    return np.full(n_rows, 1 / n_rows) if weights is None else weights / weights.sum()


def _largest_spread(logits: Array) -> float:
    """Return the largest difference between two possible logits of one row."""
    z = with_reference_class(logits)
    least = z.min(axis=1)
    if np.isneginf(least).any():
        least = np.where(np.isneginf(z), np.inf, z).min(axis=1)
    return float((z.max(axis=1).astype(np.float64) - least).max())


def _leads(logits: Array) -> Floats:
    """Return the lead of the highest logit over the second of each row."""
    z = np.partition(with_reference_class(logits), -2, axis=1)[:, -2:].astype(np.float64)
    return z[:, 1] - z[:, 0]
