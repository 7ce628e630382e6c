"""Logits and labels -> the inverse temperature b of least log loss, with or without a prior, by Halley's method.

The loss is convex in b: its slope is the mean of E_p[z] - z_label, its curvature the mean of Var_p[z], its third
derivative that of the third cumulant. With all three an error of d falls to about d^3, and a bracket keeps every step
safe. Some of the rows give a first guess without the prior, from which one or two passes over all rows are left.
"""

import math
from typing import NamedTuple, TypeAlias

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array, Floats, Ints, map_row_blocks
from glayers.fitting.folds import effective_rows

# Logits, labels, and weights that sum to 1.
Rows: TypeAlias = tuple[Array, Ints, Floats]

_SAMPLE = 2_000  # rows of the first guess: it errs by about 2 %, of which one step leaves 1e-5
_CLOSE = 3e-2  # the last relative step of the guess, and its square that of the fit: the cube of a step is left
_MOST_STEPS = 60  # ten times the usual number
# The prior of log b is Student's t with three degrees of freedom around 0, of scale 0.5: temperatures of 1/2 to 3 are
# usual, and its tails let many rows decide. From 0.3 to 0.8 the mean NLL of 13 sets changes by 0.001 with 50 rows.
_PRIOR_SPREAD = 3 * 0.5**2
_SMALLEST_SPREAD = 1e-290  # logits closer than this cannot be spread by any factor that float64 holds
_TINY = 1e-9  # a mean loss that no row with a wrong label allows, and a largest logit for which softmax is uniform

_EQUAL = "all logits of each row are equal: no temperature matters"
_FLAT = "the logits carry no information about the labels, so uniform probabilities are best"
_SEPARABLE = "every row is classified correctly by a margin, so no finite temperature is best"


class InverseTemperature(NamedTuple):
    """The factor on the logits, how it was found, and the mean log loss there. `reason` is empty if all went well.

    `curvature` is that of the mean loss by a relative change of the factor, if an optimum was found.
    """

    factor: float
    steps: int
    converged: bool
    reason: str
    loss: float
    curvature: float = 0.0

    def relative_error(self, n_rows: float) -> float:
        """Return the standard error of the factor as a part of it, given the effective number of rows; at most 1."""
        return 1 / math.sqrt(max(n_rows * self.curvature, 1.0))


def fit_inverse_temperature(
    logits: Array, labels: Ints, weights: Floats | None, prior_rows: float = 0.0
) -> InverseTemperature:
    """Minimise the log loss of softmax(b * logits) over b > 0, minus `prior_rows` times the log prior of b."""
    weights = _normalised(weights, len(labels))
    spread = max(map_row_blocks(lambda block: _largest_spread(logits[block]), *logits.shape))
    if spread <= _SMALLEST_SPREAD:
        return InverseTemperature(1.0, 0, True, _EQUAL, math.log(max(2, logits.shape[1])))
    narrow: type = np.float64
    if 1e-15 < spread < 1e15:  # float32 holds factors up to 1e20 and their products with the logits, exact to 1e-7
        narrow = np.float32
    rows = logits, labels, weights
    start = max(1.0, 1 / spread)
    guess = InverseTemperature(start, 0, True, "", 0.0)
    some = slice(None, None, max(1, len(labels) // _SAMPLE))
    if weights[some].any():
        sample = (logits[some], labels[some], weights[some] / weights[some].sum())
        guess = _search(sample, start, 0.0, spread, _CLOSE, narrow)
    if guess.reason == _FLAT:  # with the prior there is an optimum near 0, but the user should know
        guess = _search(rows, start, 0.0, spread, _CLOSE, narrow)
    if guess.reason == _FLAT:
        return guess
    prior = prior_rows / effective_rows(weights)
    return _search(rows, guess.factor, prior, spread, _CLOSE**2, np.float64 if logits.dtype == np.float64 else narrow)


def fit_with_prior(logits: Array, labels: Ints, weights: Floats | None) -> InverseTemperature:
    """Minimise the log loss plus the prior of an inverse temperature, which holds it near 1 where rows say little."""
    return fit_inverse_temperature(logits, labels, weights, prior_rows=1.0)


def _search(rows: Rows, b: float, prior: float, spread: float, last_step: float, dtype: type) -> InverseTemperature:
    """Take steps of Halley's method from b up to a small one; one that leaves the bracket goes to its middle."""
    uniform = _TINY / spread
    low = uniform
    high = 1e20 if dtype is np.float32 else 1e300
    for step in range(1, _MOST_STEPS + 1):
        loss, slope, curvature, third = loss_and_derivatives(*rows, b, dtype)
        if b < 2 * uniform:
            return InverseTemperature(b, step, False, _FLAT, loss)
        if loss < _TINY and not prior:
            return InverseTemperature(b, step, False, _SEPARABLE, loss)
        pull, bend = _prior_derivatives(b)
        d = _halley_step(slope + prior * pull, curvature + prior * bend, third)
        if abs(d) <= last_step:
            loss += d * (slope + d * (curvature / 2 + d * third / 6))
            return InverseTemperature(b * (1 + d), step, True, "", loss, curvature + prior * bend)
        # A slope of exactly 0 without curvature is underflow: every row is right, and a larger b is no worse.
        low, high = (b, high) if slope + prior * pull <= 0 else (low, b)
        b *= 1 + d
        if not low < b < high:
            b = math.sqrt(low) * math.sqrt(high)
    return InverseTemperature(b, step, False, f"no optimum in {step} steps", loss)


def _halley_step(slope: float, curvature: float, third: float) -> float:
    """Return Halley's relative step, or Newton's where the two differ by far; infinity without curvature."""
    if not curvature > 0:
        return math.inf
    d = -slope / curvature
    bend = 1 + d * third / (2 * curvature)
    if 0 < bend < 2:
        d /= bend
    return d


def _prior_derivatives(b: float) -> tuple[float, float]:
    """Return two derivatives of 2 log(1 + log(b)^2 / spread), minus the log prior, at b (1 + d) by d, at d = 0."""
    log_b = math.log(b)
    whole = _PRIOR_SPREAD + log_b**2
    slope = 4 * log_b / whole
    return slope, 4 * (_PRIOR_SPREAD - log_b**2) / whole**2 - slope


def held_out_factors(logits: Array, labels: Ints, weights: Floats | None, folds: Ints, factor: float) -> Floats:
    """Return the inverse temperature of each row (n, 1) without its fold, by one step from that of all rows."""
    weights = _normalised(weights, len(labels))
    sums = []
    for fold in range(int(folds.max()) + 1):
        own = folds == fold
        sums.append(loss_and_derivatives(logits[own], labels[own], weights[own], factor, np.float64))
    pull, bend = np.divide(_prior_derivatives(factor), effective_rows(weights))
    _, slopes, curvatures, _ = (np.sum(sums, axis=0) - sums).T
    slopes = slopes + pull
    # A step in log b, of which half is the most that one step may be trusted with.
    steps = -slopes / np.maximum(curvatures + bend + slopes, _SMALLEST_SPREAD)
    return np.asarray(factor * np.exp(steps.clip(-0.5, 0.5)))[folds][:, None]


def log_loss_at(logits: Array, labels: Ints, weights: Floats | None, factor: float) -> float:
    """Return the mean log loss of softmax(factor * logits), in the precision of the logits.

    >>> round(log_loss_at(np.array([[0.0, 0.5, 0.0]]), np.array([1]), None, 2.0), 6)
    0.551445
    """
    dtype = np.float64 if logits.dtype == np.float64 else np.float32
    return loss_and_derivatives(logits, labels, _normalised(weights, len(labels)), factor, dtype)[0]


def loss_and_derivatives(logits: Array, labels: Ints, weights: Floats, b: float, dtype: type) -> list[float]:
    """Return the weighted sum of the log losses at b (1 + d) and of its first three derivatives by d, at d = 0."""

    def of(block: slice) -> Floats:
        return row_derivatives(logits[block], labels[block], b, dtype) @ weights[block]

    # Summed in the order of the rows, whichever block was ready first.
    return [float(each) for each in np.sum(map_row_blocks(of, *logits.shape), axis=0)]


def row_derivatives(logits: Array, labels: Ints, b: float, dtype: type = np.float64) -> Floats:
    """Return the log loss of each row at b (1 + d) and its first three derivatives by d, at d = 0: (4, n)."""
    x, own = _exponents(logits, labels, b, dtype)
    p = np.exp(x)
    total = p.sum(axis=1).astype(np.float64)
    mean = np.vecdot(p, x) / total
    p *= x
    square = np.vecdot(p, x) / total
    p *= x
    cube = np.vecdot(p, x) / total
    third = cube - 3 * mean * square + 2 * mean**3
    return np.stack([np.log(total) - own, mean - own, square - mean**2, third])


def _exponents(logits: Array, labels: Ints, b: float, dtype: type) -> tuple[Array, Floats]:
    """Return b (z - max z), and that of the label in float64."""
    z = with_reference_class(logits)
    top = z.max(axis=1, keepdims=True)
    own = b * (z[np.arange(len(z)), labels].astype(np.float64) - top[:, 0])
    with np.errstate(over="ignore"):
        x = (z.astype(np.promote_types(z.dtype, dtype), copy=False) - top).astype(dtype, copy=False)
        x *= b
    # exp is exactly 0 here and below, where exponents need not be infinite.
    return np.maximum(x, -750.0, out=x), own


def _normalised(weights: Floats | None, n_rows: int) -> Floats:
    return np.full(n_rows, 1 / n_rows) if weights is None else weights / weights.sum()


def _largest_spread(logits: Array) -> float:
    """Return the largest difference between two possible logits of one row."""
    z = with_reference_class(logits)
    least = z.min(axis=1)
    if np.isneginf(least).any():
        least = np.where(np.isneginf(z), np.inf, z).min(axis=1)
    return float((z.max(axis=1).astype(np.float64) - least).max())
