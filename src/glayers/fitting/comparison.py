"""Losses of the same rows before and after -> the mean gain and how sure it is."""

import math

import numpy as np

from glayers.arrays import Array, Floats


def paired_gain(before: Floats, after: Floats, weights: Floats | None, groups: Array | None) -> tuple[float, float]:
    """Mean fall of the loss, row by row, and its standard error; rows of one group count as one observation.

    >>> paired_gain(np.array([2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0]), None, None)
    (1.0, 0.0)
    """
    gains = before - after
    shares = np.ones(len(gains)) if weights is None else weights
    shares = shares / shares.sum()
    mean = float((shares * gains)[shares > 0].sum())
    deviations = np.where(shares > 0, shares * (gains - mean), 0.0)
    if groups is not None:
        _, members = np.unique(groups, return_inverse=True)
        deviations, shares = (np.bincount(members, weights=part).astype(np.float64) for part in (deviations, shares))
    # Kish's number of observations: what unequal shares are worth in equal ones.
    observations = 1.0 / float((shares**2).sum())
    if observations <= 1.0:
        return mean, math.inf
    return mean, math.sqrt(float((deviations**2).sum()) * observations / (observations - 1))
