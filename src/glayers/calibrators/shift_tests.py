"""Differences between two samples of rows -> whether sampling error explains them: the chi-square test of shift."""

import math
from typing import NamedTuple

import numpy as np

from glayers.arrays import Floats, Ints

LEAST_EXPECTED = 5.0  # rows per bin and sample; bins with fewer are merged, as the chi-square approximation needs


class ChiSquare(NamedTuple):
    """A weighted sum of squares, and the chi-square distribution that it has by chance: `unit` times chi2(freedom)."""

    statistic: float
    unit: float
    freedom: float

    @property
    def p_value(self) -> float:
        """The probability of a statistic this large by chance; nan if nothing can differ."""
        from scipy.stats import chi2  # on first use: importing it takes longer than glayers

        if not self.unit > 0:
            return math.nan
        return float(chi2.sf(self.statistic / self.unit, self.freedom))

    def critical(self, level: float) -> float:
        """Return the statistic that chance exceeds with probability 1 - level."""
        from scipy.stats import chi2

        return self.unit * float(chi2.ppf(level, self.freedom))


def chi_square(difference: Floats, covariance: Floats, scale: Floats, rows: float) -> ChiSquare:
    """Compare the sum of scale * difference^2 with its distribution by chance (Satterthwaite, 1946).

    By chance it is a sum of chi-square numbers with weights, which one of the same mean and variance replaces. No
    covariance is inverted, so the test keeps its power with many classes. The sum of the squares of a covariance that
    was estimated from `rows` is larger by chance, which is subtracted.
    """
    root = np.sqrt(scale)
    scaled = root[:, None] * covariance * root
    mean = float(np.trace(scaled))
    statistic = float(scale @ difference**2)
    if not mean > 0:
        return ChiSquare(statistic, 0.0, 1.0)
    squares = float((scaled**2).sum()) - mean**2 / rows
    unit = max(squares, mean**2 / len(scale)) / mean
    return ChiSquare(statistic, unit, mean / unit)


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
    return chi_square(shares[1] - shares[0], covariance, 1 / pooled, math.inf).p_value


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
