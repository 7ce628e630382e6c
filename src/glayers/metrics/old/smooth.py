"""Scores and hits -> smooth calibration error (smECE), which has no bins to choose.

Residuals (hit - score) are spread over [0, 1] by a Gaussian kernel reflected at both ends; smECE at bandwidth s is the
area under their absolute value, and the bandwidth is the one equal to the error itself. Blasiok and Nakkiran, "Smooth
ECE: Principled Reliability Diagrams via Kernel Smoothing", ICLR 2024.
"""

import numpy as np

from glayers.arrays import Floats
from glayers.metrics.old.checks import Scored, check, check_scored, top

_GRID = 4096  # cells of [0, 1]: well below any bandwidth that 1e6 rows can resolve


def smooth_ece(probabilities: object, labels: object, weights: object = None) -> float:
    """Smooth calibration error of the top class. Blasiok and Nakkiran, ICLR 2024.

    >>> round(smooth_ece([[0.75, 0.25]] * 4, [0, 0, 0, 1]), 6)
    0.0
    """
    return _smooth_ece(top(check(probabilities, labels, weights)))


def smooth_ece_of(scores: object, hits: object, weights: object = None) -> float:
    """Smooth calibration error of any event, from its scores and whether it happened.

    Blasiok and Nakkiran, ICLR 2024.
    """
    return _smooth_ece(check_scored(scores, hits, weights))


def _smooth_ece(event: Scored) -> float:
    density = _residual_density(event)
    # Smoothing with reflection at both ends multiplies the cosine transform; the mirrored signal has it as its FFT.
    spectrum = np.fft.rfft(np.concatenate([density, density[::-1]]))
    frequency = np.pi * np.arange(len(spectrum))

    def area(bandwidth: float) -> float:
        smoothed = np.fft.irfft(spectrum * np.exp(-((frequency * bandwidth) ** 2) / 2), n=2 * _GRID)
        return float(np.abs(smoothed[:_GRID]).mean())

    # area falls as the bandwidth grows, so area(s) = s has one solution, and it lies below area(0).
    low, high = 0.0, max(area(0.0), 1e-12)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if area(middle) > middle else (low, middle)
    return high


def _residual_density(event: Scored) -> Floats:
    """Each residual, shared between the two nearest cell centres; cells beyond an end are the mirrored first cell."""
    position = np.clip(event.scores, 0.0, 1.0) * _GRID - 0.5
    left = np.floor(position).astype(np.int64)
    residual = event.weights * (event.hits - event.scores)
    to_right = position - left
    density = np.zeros(_GRID)
    for cell, share in ((left, 1 - to_right), (left + 1, to_right)):
        density += np.bincount(np.clip(cell, 0, _GRID - 1), weights=residual * share, minlength=_GRID)
    return density * _GRID
