"""Losses of the same rows before and after -> the mean gain and how sure it is."""

import math

import numpy as np

from glayers.arrays import Array, Floats

# From 8 observations, a gain that is none exceeds two standard errors one time in 23 (Student's t with 7 degrees of
# freedom), from many one time in 44. From 3 it is one in 11 already, and one far row is enough to bring it about.
LEAST_OBSERVATIONS = 8


def paired_gain(before: Floats, after: Floats, weights: Floats | None, groups: Array | None) -> tuple[float, float]:
    """Mean fall of the loss, row by row, and its standard error; rows of one group count as one observation.

    Groups of unequal weights w are worth (sum w)^2 / sum w^2 equal ones (Kish). Where that is less than 8, as with one
    group of nearly all rows, the error is infinite: their spread would be too uncertain to judge a gain by.

    >>> paired_gain(np.arange(2.0, 12.0), np.arange(1.0, 11.0), None, None)
    (1.0, 0.0)
    >>> paired_gain(np.array([2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0]), None, None)
    (1.0, inf)
    """
    shares = np.ones(len(before)) if weights is None else weights
    used = shares > 0
    shares = shares[used] / shares.sum()
    with np.errstate(over="ignore", invalid="ignore"):
        gains = before[used] - after[used]
        mean = float((shares * gains).sum())
        deviations = shares * (gains - mean)
    if not np.isfinite(deviations).all():
        return 0.0, math.inf  # losses too large to be subtracted say nothing
    if groups is not None:
        _, members = np.unique(groups[used], return_inverse=True)
        deviations, shares = (np.bincount(members, weights=part).astype(np.float64) for part in (deviations, shares))
    observations = 1.0 / float((shares**2).sum())
    if observations < LEAST_OBSERVATIONS * (1 - 1e-12):  # shares of 1/8 may add up to a little more
        return mean, math.inf
    largest = float(np.abs(deviations).max())
    unit = largest if largest > 1e100 else 1.0  # squares that float64 can hold
    return mean, unit * math.sqrt(float(((deviations / unit) ** 2).sum()) * observations / (observations - 1))


def gain_in_words(gain: float, error: float) -> str:
    """Return a gain with its error, or with the reason why there is none to be had.

    >>> gain_in_words(0.0123, 0.004), gain_in_words(0.0123, math.inf)
    ('0.012 +- 0.004', '0.012 (from too few rows or groups to tell it from chance)')
    """
    if math.isfinite(error):
        return f"{gain:.2g} +- {error:.2g}"
    return f"{gain:.2g} (from too few rows or groups to tell it from chance)"
