"""Scores and hits -> the smooth calibration error as a function of row weights, for many resamples at once.

The same error on the same grid as `smooth.py`, with no approximation: only the bandwidth equal to the error is found
faster. On a logarithmic scale the error is nearly a straight line of the bandwidth (slope -1/2 for pure noise, 0 for a
gap of one sign), so a secant finds in half a dozen steps what halving finds in fifty.
"""

from collections.abc import Callable

import numpy as np

from glayers.arrays import Array, Floats
from glayers.metrics.old.checks import Scored
from glayers.metrics.old.smooth import _GRID

_SMALLEST, _LARGEST = np.log(1e-15), np.log(2.0)  # no error is larger than 1, and none is told from 0 below the first
_FIRST_GUESS = np.log(0.03)  # in the middle of what trained networks have
_ENOUGH = 1e-13  # relative error of the bandwidth
_MOST_STEPS = 100
_DAMPED_AWAY = 45.0  # e^-45 of a frequency is lost in the rounding of the others
_AT_ONCE = 16  # resamples transformed together: 1 MB


def smooth_ece_of_shares(event: Scored) -> Callable[[Floats], Floats]:
    """Return the function from row shares (n, b) to smooth calibration errors (b,)."""
    spread = _spread(event)

    def errors(shares: Floats) -> Floats:
        densities = np.ascontiguousarray((spread @ shares).T)
        return np.concatenate([_errors(densities[i : i + _AT_ONCE]) for i in range(0, len(densities), _AT_ONCE)])

    return errors


def _errors(densities: Floats) -> Floats:
    """Smooth calibration errors of residual densities (b, cells)."""
    from scipy.fft import dct, idct  # on first use: it takes longer to import than all of glayers

    spectrum = dct(densities)  # smoothing with reflection at both ends multiplies the cosine transform
    exponent = -((np.pi * np.arange(_GRID)) ** 2) / 2

    def excess(log_bandwidth: Floats) -> Floats:
        """How far the logarithm of the error lies above that of the bandwidth: it falls with slope -1 or steeper."""
        variance = np.exp(2 * log_bandwidth)[:, None]
        kept = np.searchsorted(-exponent, _DAMPED_AWAY / variance.min())
        smoothed = idct(spectrum[:, :kept] * np.exp(variance * exponent[:kept]), n=_GRID)
        return np.log(np.maximum(np.abs(smoothed).mean(axis=1), 1e-300)) - log_bandwidth

    # Smoothing takes area away; below the width of a cell the grid's rounding may add a little.
    return np.minimum(np.exp(_root(excess, len(densities))), np.abs(densities).mean(axis=1))


def _root(excess: Callable[[Floats], Floats], width: int) -> Floats:
    """Where a falling function is 0, entry by entry: secant steps, halving where one would leave the bracket."""
    low, high = np.full(width, _SMALLEST), np.full(width, _LARGEST)
    at = np.full(width, _FIRST_GUESS)
    value = excess(at)
    slope = np.full(width, -1.25)
    for _ in range(_MOST_STEPS):
        low, high = np.where(value > 0, at, low), np.where(value > 0, high, at)
        wanted = at - value / slope
        step_to = np.where((wanted > low) & (wanted < high), wanted, (low + high) / 2)
        step_to = np.where(np.abs(value) < _ENOUGH, wanted, step_to)
        step = step_to - at
        at, before = step_to, value
        if np.abs(step).max() < _ENOUGH:
            break
        value = excess(at)
        slope = np.minimum(-1.0, (value - before) / np.where(step == 0, 1.0, step))
    return at


def _spread(event: Scored) -> Array:
    """The matrix (cells, rows) that shares each residual between the two nearest cell centres, as `smooth.py` does."""
    from scipy.sparse import csc_array  # on first use: it takes longer to import than all of glayers

    position = np.clip(event.scores, 0.0, 1.0) * _GRID - 0.5
    left = np.floor(position).astype(np.int64)
    residual = (event.hits - event.scores) * _GRID
    to_right = position - left
    cells = np.clip(np.stack([left, left + 1], axis=1), 0, _GRID - 1).astype(np.int32)
    entries = np.stack([residual * (1 - to_right), residual * to_right], axis=1)
    pointer = np.arange(0, 2 * len(residual) + 1, 2, dtype=np.int32)
    return csc_array((entries.ravel(), cells.ravel(), pointer), shape=(_GRID, len(residual)))
