"""Predictions -> smooth calibration error (smECE), which has no bins to choose.

Residuals (hit - score) are spread over [0, 1] by a Gaussian kernel reflected at both ends. smECE at bandwidth s is the
area under their absolute value, and the bandwidth is the one equal to the error itself. Blasiok and Nakkiran, "Smooth
ECE: Principled Reliability Diagrams via Kernel Smoothing", ICLR 2024.

On a logarithmic scale the error is nearly a straight line of the bandwidth (slope -1/2 for pure noise, 0 for a gap of
one sign), so a secant finds the bandwidth in half a dozen steps.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from glayers.arrays import Floats
from glayers.metrics.events import Event, Scored, check_event, top
from glayers.metrics.metric import Block, Metric, PlaceSums, score

__all__ = ["smooth_ece"]

_GRID = 4096  # cells of [0, 1]: well below any bandwidth that 1e6 rows can resolve
_ENOUGH = 1e-13  # relative error of the bandwidth


def smooth_ece(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event = top
) -> float:
    """Smooth calibration error of an event.

    Parameters
    ----------
    probabilities
        Array (n, k), `Predictions` or `Confidences`.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    sample_weight
        Row weights (n,).
    event
        `top`, `rank(r)`, `within_top(r)`, `label(c)` or `one_of(classes)`.

    Returns
    -------
    float
        A number from 0 to 1. Blasiok and Nakkiran, ICLR 2024.

    Examples
    --------
    >>> round(smooth_ece([[0.75, 0.25]] * 4, [0, 0, 0, 1]), 6)
    0.0
    """
    return score(_smooth_ece, check_event(probabilities, labels, sample_weight, event=event))


def _smooth_ece(event: Scored, block: Block) -> Floats:
    densities = np.ascontiguousarray(event.cached(_residual_sums).of(block).T)
    some_at_once = [densities[first : first + 16] for first in range(0, len(densities), 16)]  # 1 MB
    return np.concatenate([_errors(some) for some in some_at_once])


def _cell_error(cells: Any, value: float) -> float:
    """Bound what changes when all hits of a cell move to their mean score, and all misses to theirs.

    Means stay, so only the second derivative of the kernel counts. The area under it is below 1 / s^2 at bandwidth s,
    and that under the first derivative below 1 / s. The error is a bandwidth at which the area equals the bandwidth,
    and the area falls with the bandwidth, so the error moves at most as far as the area at the bandwidth found.
    """
    varied = cells.varied
    most = 2 * (cells.rises + cells.falls)[varied]  # all residuals there vanish, and come back elsewhere
    if value == 0:
        return float(most.sum())
    low = cells.low[varied]
    high = cells.high[varied]
    spread = cells.share[varied] * (high - low) * (high - low + 1 / _GRID) / 4
    curved = spread * (np.maximum(high, 1 - low) / value**2 + 2 / value)
    return float(np.minimum(curved, most).sum())


def _residual_sums(event: Scored) -> PlaceSums:
    """Share each residual between the two nearest cell centres; cells beyond an end are the mirrored end cell."""
    position = np.clip(event.scores, 0.0, 1.0) * _GRID - 0.5
    left = np.floor(position).astype(np.int64)
    residual = (event.hits - event.scores) * _GRID
    to_right = position - left
    cells = np.clip(np.stack([left, left + 1], axis=1), 0, _GRID - 1)
    return PlaceSums(cells, np.stack([residual * (1 - to_right), residual * to_right], axis=1), _GRID)


def _errors(densities: Floats) -> Floats:
    """Return smooth calibration errors of residual densities (b, cells)."""
    from scipy.fft import dct, idct  # on first use: importing it takes longer than importing glayers

    spectrum = dct(densities)  # smoothing with reflection at both ends multiplies the cosine transform
    exponent = -((np.pi * np.arange(_GRID)) ** 2) / 2

    def excess(log_bandwidth: Floats) -> Floats:
        """How far log(error) lies above log(bandwidth): it falls with slope -1 or steeper."""
        variance = np.exp(2 * log_bandwidth)[:, None]
        kept = np.searchsorted(-exponent, 45.0 / variance.min())  # e^-45 is lost in rounding
        smoothed = idct(spectrum[:, :kept] * np.exp(variance * exponent[:kept]), n=_GRID)
        return np.log(np.maximum(np.abs(smoothed).mean(axis=1), 1e-300)) - log_bandwidth

    # Smoothing takes area away; below the width of a cell the grid's rounding may add a little.
    return np.minimum(np.exp(_root(excess, len(densities))), np.abs(densities).mean(axis=1))


def _root(excess: Callable[[Floats], Floats], width: int) -> Floats:
    """Return where a falling function is 0, entry by entry: secant steps, halving where one would leave the bracket."""
    low = np.full(width, np.log(1e-15))  # a smaller error is 0
    high = np.full(width, np.log(2.0))  # no error exceeds 1
    at = np.full(width, np.log(0.03))  # in the middle of what trained networks have
    value = excess(at)
    slope = np.full(width, -1.25)
    for _ in range(100):  # half a dozen are usual
        low = np.where(value > 0, at, low)
        high = np.where(value > 0, high, at)
        wanted = at - value / slope
        inside = (wanted > low) & (wanted < high) | (np.abs(value) < _ENOUGH)
        step = np.where(inside, wanted, (low + high) / 2) - at
        at = at + step
        if np.abs(step).max() < _ENOUGH:
            break
        before = value
        value = excess(at)
        slope = np.minimum(-1.0, (value - before) / np.where(step == 0, 1.0, step))
    return at


_BLASIOK = "Blasiok and Nakkiran, ICLR 2024"
METRICS = (Metric("smooth_ece", "ECE, smooth", _smooth_ece, _BLASIOK, trusted_from=6.0, cell_error=_cell_error),)
