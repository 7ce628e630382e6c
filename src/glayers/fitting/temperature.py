"""Logits and labels -> the inverse temperature of least log loss, by Newton's method on 1/T.

The loss is convex in b = 1/T: its slope is the mean of E_p[z] - z_label, its curvature the mean of Var_p[z]. A bracket
keeps every step safe. Newton starts from the optimum of a sample of the rows, so the full set is read a few times only.
"""

import math
from typing import NamedTuple

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array, Floats, Ints, row_blocks

_SAMPLE = 2_000
_MOST_STEPS = 60
_PRECISION = 1e-9  # relative, of b; Newton's next step would be its square


class InverseTemperature(NamedTuple):
    """The factor on the logits, and how it was found; `reason` says what stood in the way, if anything did."""

    factor: float
    steps: int
    converged: bool
    reason: str


def fit_inverse_temperature(
    logits: Array, labels: Ints, weights: Floats | None, start: float | None = None
) -> InverseTemperature:
    """Minimise the log loss of softmax(b * logits) over b > 0, from a near guess if there is one."""
    shares = np.full(len(labels), 1.0) if weights is None else weights
    shares = shares / shares.sum()
    spread = _spread(logits)
    if spread == 0.0:
        return InverseTemperature(1.0, 0, True, "all logits of each row are equal: no temperature matters")
    # Softmax of the widest row is flat below `least`; above `most` that of a row with the typical lead of its first
    # class is 0 and 1, to float64's last digit. The widest row must not decide that: a masked class makes it wide.
    least, most = 1e-9 / spread, 1e4 / _typical_lead(logits, spread)
    if start is None:
        start = 1.0 if least < 1.0 < most else math.sqrt(least * most)
        stride = max(1, len(labels) // _SAMPLE)
        if stride > 1 and shares[::stride].sum() > 0:
            sample = shares[::stride] / shares[::stride].sum()
            start = _newton(logits[::stride], labels[::stride], sample, start, least, most).factor
    return _newton(logits, labels, shares, min(max(start, 2 * least), most / 2), least, most)


def _newton(logits: Array, labels: Ints, shares: Floats, start: float, least: float, most: float) -> InverseTemperature:
    low, high, b, step = least, most, start, 0
    while step < _MOST_STEPS:
        step += 1
        slope, curvature = _slope_and_curvature(logits, labels, shares, b)
        # A slope of exactly 0 without curvature is underflow: every row is right, and more would be no worse.
        low, high = (b, high) if slope <= 0 else (low, b)
        following = b - slope / curvature if curvature > 0 else np.inf
        if abs(following - b) <= _PRECISION * b:
            break
        # Outside the bracket, or no curvature to go by: halve on the log scale, as both ends may be far.
        b = following if low < following < high else math.sqrt(low * high)
    # Where every row is right, Newton adds about 1 / margin a step and never comes to a bracket.
    if b > most / 2 or (step == _MOST_STEPS and high == most):
        return InverseTemperature(b, step, False, "every row is right by a margin: no finite temperature is best")
    if b < 2 * least:
        return InverseTemperature(b, step, False, "the logits tell nothing about the labels: the best is a flat guess")
    return InverseTemperature(b, step, step < _MOST_STEPS, "")


def _slope_and_curvature(logits: Array, labels: Ints, shares: Floats, b: float) -> tuple[float, float]:
    slope = curvature = 0.0
    for rows in row_blocks(*logits.shape):
        z = with_reference_class(logits[rows].astype(np.float64))
        z -= z.max(axis=1, keepdims=True)
        own = z[np.arange(len(z)), labels[rows]]
        p = np.exp(b * z)
        total = p.sum(axis=1)
        p *= z
        mean = p.sum(axis=1) / total
        square = np.vecdot(p, z) / total
        slope += float((shares[rows] * (mean - own)).sum())
        curvature += float((shares[rows] * (square - mean**2)).sum())
    return slope, curvature


def _spread(logits: Array) -> float:
    """The largest difference between two logits of one row."""
    widest = 0.0
    for rows in row_blocks(*logits.shape):
        block = with_reference_class(logits[rows].astype(np.float64))
        widest = max(widest, float(np.ptp(block, axis=1).max()))
    return widest


def _typical_lead(logits: Array, spread: float) -> float:
    """The median lead of the highest logit over the next, among rows that have one."""
    leads = []
    for rows in row_blocks(*logits.shape):
        block = np.partition(with_reference_class(logits[rows].astype(np.float64)), -2, axis=1)
        leads.append(block[:, -1] - block[:, -2])
    each = np.concatenate(leads)
    return float(np.median(each[each > 0])) if (each > 0).any() else spread
