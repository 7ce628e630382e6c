"""Differences between two samples of rows -> whether sampling error explains them: the chi-square test of shift."""

import math

import numpy as np

from glayers.arrays import Floats, Ints

LEAST_EXPECTED = 5.0  # rows per bin and sample; bins with fewer are merged, as the chi-square approximation needs


def chi_square(
    difference: Floats, covariance: Floats, scale: Floats, rows: float, level: float = 0.95
) -> tuple[float, float]:
    """Compare the sum of scale * difference^2 with its distribution by chance (Satterthwaite, 1946).

    By chance it is a sum of chi-square numbers with weights, which one of the same mean and variance replaces. No
    covariance is inverted, so the test keeps its power with many classes. The sum of the squares of a covariance that
    was estimated from `rows` is larger by chance, which is subtracted.

    Return the p-value, nan if nothing can differ, and how far the sum exceeds what chance exceeds with probability
    1 - level.
    """
    from scipy.stats import chi2  # on first use: importing it takes longer than glayers

    root = np.sqrt(scale)
    scaled = root[:, None] * covariance * root
    mean = float(np.trace(scaled))
    if not mean > 0:
        return math.nan, math.nan
    squares = float((scaled**2).sum()) - mean**2 / rows
    unit = max(squares, mean**2 / len(scale)) / mean
    chance = chi2(mean / unit, scale=unit)
    statistic = float(scale @ difference**2)
    return float(chance.sf(statistic)), statistic - float(chance.ppf(level))


def same_frequencies(before: Floats, now: Floats) -> float:
    """Return the p-value of Pearson's test that two samples of counts have the same distribution.

    Neighbouring bins are merged until both samples can be expected to have enough rows in each; nan if fewer than two
    bins are left.

    >>> round(same_frequencies(np.array([50.0, 30.0, 20.0]), np.array([30.0, 40.0, 30.0])), 4)  # 8.43, 2 degrees
    0.0148
    """
    counts = np.stack([before, now])
    totals = counts.sum(axis=1)
    if not totals.all():
        return math.nan
    if np.count_nonzero(counts.sum(axis=0)) == 1:
        return 1.0
    parts = merge_neighbours(counts.sum(axis=0), LEAST_EXPECTED * totals.sum() / totals.min())
    if parts.max() == 0:
        return math.nan
    shares = np.stack([np.bincount(parts, row) for row in counts]) / totals[:, None]
    pooled = totals @ shares / totals.sum()
    covariance = (np.diag(pooled) - np.outer(pooled, pooled)) * (1 / totals).sum()
    return chi_square(shares[1] - shares[0], covariance, 1 / pooled, math.inf)[0]


def same_class_frequencies(before: Floats, now: Floats) -> float:
    """Return the p-value of Pearson's test for counts of classes: rare classes are merged with rare ones."""
    order = np.argsort(before + now)
    return same_frequencies(before[order], now[order])


def merge_neighbours(amounts: Floats, least: float) -> Ints:
    """Return the part of each bin: neighbours are merged until every part has at least this amount.

    >>> merge_neighbours(np.array([3.0, 1.0, 2.0, 5.0, 1.0]), 3.0).tolist()  # the last joins the part before
    [0, 1, 1, 2, 2]
    """
    parts = []
    number = 0
    held = 0.0
    for amount in amounts.tolist():
        parts.append(number)
        held += amount
        if held >= least:
            number += 1
            held = 0.0
    return np.minimum(parts, max(0, number - 1))
