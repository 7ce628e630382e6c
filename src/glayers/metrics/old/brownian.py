"""A height -> the chance that Brownian motion on [0, 1] leaves the strip of that height, and back.

Under calibration the running sum of w (hit - score), rows sorted by score, has independent steps of mean 0 and variance
w^2 s(1 - s). Run on the clock of that variance it becomes Brownian motion; nothing pulls it back to 0 at the end, so it
is no bridge. Arrieta-Ibarra et al., "Metrics of Calibration for Probabilistic Predictions", JMLR 2022.
"""

import math

import numpy as np

from glayers.arrays import Floats

MEAN_LARGEST = math.sqrt(math.pi / 2)  # expected max |B(t)|
_TERMS = 8  # either series has converged to float64 by then on its side of height 1
# A walk that steps past a line overshoots it, by this many standard deviations of a step on average: -zeta(1/2) over
# the root of 2 pi. Chernoff, Sankhya 1965; Siegmund, Advances in Applied Probability 1979.
_OVERSHOOT = 0.5826
# With fewer steps than this the average says little of the last one; a smaller correction errs on the safe side.
_FEWEST_STEPS = 20


def chance_of_leaving(height: float) -> float:
    """P(max |B(t)| > height, t in [0, 1]) for Brownian motion B.

    >>> round(chance_of_leaving(2.2414), 4)
    0.05
    """
    if height <= 0:
        return 1.0
    odd = range(1, 2 * _TERMS, 2)
    if height < 1:
        staying = sum(math.sin(m * math.pi / 2) / m * math.exp(-((m * math.pi / height) ** 2) / 8) for m in odd)
        return 1 - 4 / math.pi * staying
    return 2 * sum(math.sin(m * math.pi / 2) * math.erfc(m * height / math.sqrt(2)) for m in odd)


def height_left_with_chance(chance: float) -> float:
    """The height that max |B(t)| exceeds with this chance.

    >>> round(height_left_with_chance(0.05), 4)
    2.2414
    """
    low, high = 0.0, 40.0  # erfc is 0 in float64 before 40
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if chance_of_leaving(middle) > chance else (low, middle)
    return high


def overshoot(variances: Floats) -> float:
    """How far a walk with steps of these variances passes a line on average, in units of its own final deviation.

    The walk itself stays inside the strip with the chance of Brownian motion in a strip wider by this much.
    """
    total = float(variances.sum())
    typical = float(np.sqrt(variances) @ variances) / total  # a step weighs by its share of the clock
    return _OVERSHOOT * min(typical / math.sqrt(total), 1 / math.sqrt(_FEWEST_STEPS))
