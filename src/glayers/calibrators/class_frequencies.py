"""A fitted calibrator and new rows without labels -> their class frequencies, and whether class shift explains them.

Under class shift, the rows of each class look as before, but classes have other frequencies. With the ratio w of new
to old frequencies, the calibrated probabilities p(y | x) become p(y | x) w(y), normalised. The new rows have the
density of the calibration rows times s(x) = sum_y w(y) p(y | x). Maximum likelihood therefore maximises the mean of
log s(x) over the new rows, such that the mean of s over the calibration rows is 1: sum_y w(y) m(y) = 1, where m is the
mean calibrated probability. EM finds the maximum (Saerens, Latinne and Decaestecker, 2002). Taking m, and not the
frequencies of the labels, keeps a calibrator with biased class probabilities from seeing a shift where there is none.

The density ratio s also tells what any mean over calibration rows would be, so the sampling error of the calibration
rows can be estimated from the new rows: it is part of the standard errors and of both tests.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats
from glayers.calibrators.row_summary import ClassSummary, Histogram, coarse_bins, count_rows, sums_by_group
from glayers.calibrators.shift_tests import LEAST_EXPECTED, merge_neighbours, no_difference
from glayers.predictions import Predictions

_MOST_STEPS = 2_000  # of EM; with acceleration a hundred are usually enough
_CLOSE = 1e-3  # of the log-likelihood of all rows: far below its sampling error
_TINY = 1e-300  # nothing is divided by 0


class Sample(NamedTuple):
    """New rows: calibrated probabilities, weights that sum to 1, groups, and the effective number of rows."""

    p: Floats
    weights: Floats
    groups: Array | None
    rows: float

    def mean(self, values: Floats) -> Floats:
        """Return the weighted mean of values (n, k)."""
        return np.asarray(self.weights @ values)

    def covariance_of_mean(self, values: Floats) -> Floats:
        """Return the covariance of the weighted mean of values (n, k); a group counts as one observation."""
        sums = sums_by_group(self.weights[:, None] * (values - self.mean(values)), self.groups)
        return np.asarray(sums.T @ sums * (len(sums) / max(1, len(sums) - 1)))

    @property
    def observations(self) -> float:
        """How many independent rows or groups there are, of equal weight."""
        shares = sums_by_group(self.weights[:, None], self.groups)
        return float(1 / (shares**2).sum())


def likely_ratios(sample: Sample, m: Floats, prior_rows: float = 0.0) -> Floats:
    """Return the ratios w that maximise the likelihood, the mean of log(p . w) such that m . w = 1, by accelerated EM.

    One step multiplies each ratio by the mean of p / (p . w) over m. The largest of these factors, less 1, bounds how
    far the likelihood lies below its maximum, so it tells when to stop. A Dirichlet prior adds rows with the old
    frequencies to each step; with it, w is the posterior mode. Each cycle extrapolates two steps (Varadhan and Roland,
    2008) and keeps the result only if it is no worse.
    """
    w = np.ones(len(m))
    close = _CLOSE / sample.rows
    prior = prior_rows / sample.rows

    def step(w: Floats) -> tuple[Floats, float, float]:
        """Return the next ratios, the likelihood of these, and how far they are from the maximum."""
        density = np.maximum(sample.p @ w, _TINY)
        factors = (sample.weights / density) @ sample.p / m
        new = w * factors + prior
        value = sample.weights @ np.log(density) + prior * (m @ np.log(np.maximum(w, _TINY)))
        gap = factors.max() - 1
        if prior:
            gap = np.abs(new / (1 + prior) - w).max()
        return new / (m @ new), float(value), float(gap)

    for _ in range(_MOST_STEPS):
        first, value, gap = step(w)
        if gap < close:
            break
        second, _, _ = step(first)
        move = first - w
        curvature = second - 2 * first + w
        length = math.sqrt(float(move @ move) / max(float(curvature @ curvature), _TINY))
        far = w + 2 * length * move + length**2 * curvature
        w = second
        if length > 1 and (far >= 0).all():
            tried, far_value, _ = step(far / (m @ far))
            if far_value >= value:
                w = tried
    return w


def inverse_information(sample: Sample, r: Floats, m: Floats) -> Floats:
    """Return the inverse of the observed information per row about w, the mean of r r', with its eigenvalues bounded.

    Divided by m, eigenvalues are 1 for classes that are never confused, and smaller for others. An eigenvalue below
    1 / n belongs to a direction about which n rows say nothing.
    """
    scale = 1 / np.sqrt(m)
    scaled = r * scale
    values, vectors = np.linalg.eigh((scaled * sample.weights[:, None]).T @ scaled)
    return np.asarray(scale[:, None] * (vectors / np.maximum(values, 1 / sample.rows)) @ vectors.T * scale)


def standard_errors(
    sample: Sample, r: Floats, m: Floats, w: Floats, inverse: Floats, before: Floats, calibration_rows: float
) -> Floats:
    """Return the standard errors of w * before, from the new rows and the calibration rows.

    A new row moves w by inverse (r - m). A calibration row moves m by p - m, and so w by -inverse (p - m); it also
    moves the old frequency by its label less the frequency.
    """
    moved = before * ((r - m) @ inverse)
    new = (sums_by_group(sample.weights[:, None] * moved, sample.groups) ** 2).sum(axis=0)
    as_before = sample.weights * (sample.p @ w)  # weights that make calibration rows of the new rows
    spread = (r * as_before[:, None]).T @ r - np.outer(m, m)  # of p over calibration rows
    by_mean = before**2 * np.einsum("ij,jk,ki->i", inverse, spread, inverse)
    by_both = before * w * (inverse * spread).sum(axis=1)
    by_labels = w**2 * m * (1 - m)
    old = by_mean - 2 * by_both + by_labels
    return np.sqrt(np.maximum(new + np.maximum(old, 0) / calibration_rows, 0))


class Change(NamedTuple):
    """The p-value of the test that all ratios are 1, and how many rows a prior in favour of this should be worth."""

    p_value: float
    prior_rows: float


def change_test(sample: Sample, m: Floats, summary: ClassSummary, level: float) -> Change:
    """Test whether class frequencies differ, from the differences d of the mean probabilities of the two samples.

    d is the score of the hypothesis that all ratios are 1. The statistic adds up d^2 / m over the classes, as Pearson's
    does, and needs no inverse of a covariance, so it keeps its power with many classes. By chance it is a sum of
    chi-square numbers with weights, which one of the same mean and variance replaces (Satterthwaite, 1946). Variances
    are pooled over both samples. Covariances are those of the new rows; the sum of their squares is larger by chance,
    which is subtracted.

    Ratios with a Dirichlet prior worth a rows, centred at 1, add spread / a to the statistic. Solving for a gives the
    prior. The critical value stands in for the mean, so that chance alone hardly ever moves a ratio.
    """
    from scipy.stats import chi2  # on first use: importing it takes longer than glayers

    rows, before = sample.rows, summary.rows
    if min(rows, before) < 2 * LEAST_EXPECTED:
        return Change(math.nan, math.inf)
    mean = sample.mean(sample.p)
    spread = (sample.p * sample.weights[:, None]).T @ sample.p
    covariance = spread - np.outer(mean, mean)
    pooled = (rows * np.diag(covariance) + before * (np.array(summary.squares) - m**2)) / (rows + before)
    scale = 1 / (m + 1 / min(rows, before))
    both = 1 / rows + 1 / before
    statistic = float(scale @ (mean - m) ** 2)
    expected = both * float(scale @ np.maximum(pooled, 0))
    if not expected > 0:
        return Change(math.nan, math.inf)
    root = np.sqrt(scale)
    scaled = root[:, None] * covariance * root
    squares = both**2 * (float((scaled**2).sum()) - float(np.trace(scaled)) ** 2 / rows)
    unit = max(squares, expected**2 / len(m)) / expected
    freedom = expected / unit
    p_value = float(chi2.sf(statistic / unit, freedom))
    critical = unit * float(chi2.ppf(level, freedom))
    if not statistic > critical:
        return Change(p_value, math.inf)
    moved = scale @ (np.square(spread) @ (1 / m) - mean**2)  # what ratios that vary add to the statistic
    return Change(p_value, max(1.0, float(moved) / (statistic - critical)))


def fit_test(
    sample: Sample,
    r: Floats,
    m: Floats,
    w: Floats,
    summary: ClassSummary,
    histograms: Mapping[str, Histogram],
    given: Predictions,
    calibrated: Floats,
) -> tuple[float, str]:
    """Return the p-value of the test that bins of the features are as frequent as class shift predicts, and in words.

    The prediction is shares @ w. The residual of a row is its bins less what it adds to the prediction through w.
    """
    if sample.rows < 2 * len(m) or len(summary.shares) < 2:
        return math.nan, ""
    features = count_rows(given, np.arange(len(given)), calibrated.__getitem__).features
    least = LEAST_EXPECTED / min(sample.rows, summary.rows)
    free = r * (w > 0)  # a ratio of 0 is at its limit
    influence = free @ inverse_information(sample, free, m)
    differences = []
    residuals = []
    largest = 0.0
    misfit = ""
    for name, shares in summary.shares.items():
        table = np.array(shares)
        bins = coarse_bins(histograms[name], features[name], len(table))
        now = sample.mean(bins)
        expected = table @ w
        gaps = np.abs(now - expected)
        if gaps.max() > largest:
            largest = float(gaps.max())
            place = int(gaps.argmax())
            interval = _interval(histograms[name], place, len(table))
            misfit = f"{name} {interval}: {100 * expected[place]:.1f} % expected, {100 * now[place]:.1f} % now"
        parts = merge_neighbours(np.minimum(expected, table.sum(axis=1)), least)
        merged = np.eye(int(parts.max()) + 1)[parts][:, :-1]  # the last part is what the others leave
        differences.append((now - expected) @ merged)
        residuals.append(bins @ merged - influence @ (merged.T @ table).T)
    e = np.hstack(residuals)
    centred = e - sample.mean(e)
    as_before = (centred * (sample.weights * (sample.p @ w))[:, None]).T @ centred  # over calibration rows
    covariance = sample.covariance_of_mean(e) + as_before / summary.rows
    fewer_rows = min(sample.rows, summary.rows)
    return no_difference(np.hstack(differences), covariance, sample.observations, fewer_rows), misfit


def _interval(histogram: Histogram, place: int, size: int) -> str:
    """Return a bin in words; the outer bins have no end."""
    of_fine = np.arange(len(histogram.counts)) * size // len(histogram.counts)
    low, high = (int(np.searchsorted(of_fine, place, side=side)) for side in ("left", "right"))
    if place == 0:
        return f"below {histogram.edges[high]:.3g}"
    if place == size - 1:
        return f"above {histogram.edges[low]:.3g}"
    return f"from {histogram.edges[low]:.3g} to {histogram.edges[high]:.3g}"
