"""Two samples of rows -> whether sampling error explains their difference: the chi-square tests of shift."""

import math

import numpy as np

from glayers.arrays import Floats, Ints

LEAST_EXPECTED = 5.0  # rows per bin and sample; bins with fewer are merged, as the chi-square approximation needs


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


def same_frequencies(before: Floats, now: Floats) -> float:
    """Return the p-value of Pearson's test that two samples of counts have the same distribution.

    Neighbouring bins are merged until both samples can be expected to have enough rows in each; nan if fewer than two
    bins are left.

    >>> round(same_frequencies(np.array([50.0, 30.0, 20.0]), np.array([30.0, 40.0, 30.0])), 4)  # 8.43, 2 degrees
    0.0148
    """
    from scipy.stats import chi2  # on first use: importing it takes longer than glayers

    counts = np.stack([before, now])
    totals = counts.sum(axis=1)
    if not totals.all():
        return math.nan
    if np.count_nonzero(counts.sum(axis=0)) == 1:
        return 1.0
    parts = merge_neighbours(counts.sum(axis=0), LEAST_EXPECTED * totals.sum() / totals.min())
    n_parts = int(parts.max()) + 1
    if n_parts < 2:
        return math.nan
    table = np.stack([np.bincount(parts, row, n_parts) for row in counts])
    expected = np.outer(totals, table.sum(axis=0)) / totals.sum()
    statistic = ((table - expected) ** 2 / expected).sum()
    return float(chi2.sf(statistic, n_parts - 1))


def same_class_frequencies(before: Floats, now: Floats) -> float:
    """Return the p-value of Pearson's test for counts of classes: rare classes are merged with rare ones."""
    order = np.argsort(before + now)
    return same_frequencies(before[order], now[order])


def no_difference(difference: Floats, covariance: Floats, observations: float, rows: float) -> float:
    """Return the p-value of Hotelling's test that a difference with an estimated covariance is 0.

    The covariance comes from this number of independent observations. Directions in which fewer than about five of
    the `rows` differ are left out.
    """
    from scipy.stats import f  # on first use: importing it takes longer than glayers

    scale = np.sqrt(np.diag(covariance))
    used = scale > 0
    if not used.any():
        return math.nan
    scale = scale[used]
    values, vectors = np.linalg.eigh(covariance[np.ix_(used, used)] / np.outer(scale, scale))
    kept = values > 5 * LEAST_EXPECTED / rows
    freedom = float(kept.sum())
    left = observations - freedom
    if left < 1 or not freedom:
        return math.nan
    turned = ((difference[used] / scale) @ vectors)[kept]
    statistic = float((turned**2 / values[kept]).sum())
    return float(f.sf(statistic * left / (observations - 1) / freedom, freedom, left))
