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
from dataclasses import dataclass
from typing import Self

import numpy as np

from glayers.arrays import Array, Floats
from glayers.calibrators.row_summary import ClassSummary, Histogram
from glayers.calibrators.shift_tests import LEAST_EXPECTED, ChiSquare, chi_square

_MOST_STEPS = 2_000  # of EM; with acceleration a hundred are usually enough
_CLOSE = 1e-3  # of the log-likelihood of all rows: far below its sampling error
_TINY = 1e-300  # nothing is divided by 0


@dataclass(frozen=True)
class Sample:
    """New rows: calibrated probabilities, weights that sum to 1, the group of each row, and the effective rows.

    `rows` is the number of independent rows that would give mean probabilities the same precision.
    """

    p: Floats
    weights: Floats
    group: Array
    rows: float

    @classmethod
    def of(cls, p: Floats, weights: Floats | None, groups: Array | None) -> Self:
        """Return new rows; without groups, each row is one."""
        weights = np.ones(len(p)) if weights is None else weights
        weights = weights / weights.sum()
        _, group = np.unique(np.arange(len(p)) if groups is None else groups, return_inverse=True)
        sample = cls(p, weights, group, 1 / float(weights @ weights))
        deviations = weights[:, None] * (p - weights @ p)
        together = sample._sums(deviations)
        apart = float((deviations**2).sum())
        grouped = float((together**2).sum())
        rows = min(sample.rows, float(len(together)))
        if len(together) > 1 and grouped > 0:
            rows = max(1.0, sample.rows * min(1.0, apart / grouped))
        return cls(p, weights, group, rows)

    def _sums(self, values: Floats) -> Floats:
        """Return the sum of the values (n, k) of each group."""
        sums = np.zeros((self.group.max() + 1, values.shape[1]))
        np.add.at(sums, self.group, values)
        return sums

    def covariance_of_mean(self, values: Floats) -> Floats:
        """Return the covariance of the weighted mean of values (n, k); a group counts as one observation."""
        sums = self._sums(self.weights[:, None] * (values - self.weights @ values))
        return np.asarray(sums.T @ sums * (len(sums) / max(1, len(sums) - 1)))

    def covariance_as_before(self, values: Floats, w: Floats) -> Floats:
        """Return the covariance of values (n, k) over calibration rows, which new rows over s(x) stand for."""
        weights = self.weights / np.maximum(self.p @ w, _TINY)
        centred = values - weights @ values / weights.sum()
        return np.asarray((centred * weights[:, None]).T @ centred)


def likely_ratios(sample: Sample, m: Floats, prior_rows: float = 0.0) -> Floats:
    """Return the ratios w that maximise the likelihood, the mean of log(p . w) such that m . w = 1, by accelerated EM.

    One step multiplies each ratio by the mean of p / (p . w) over m. The largest of these factors, less 1, bounds how
    far the likelihood lies below its maximum, so it tells when to stop. A Dirichlet prior adds rows with the old
    frequencies to each step; with it, w is the posterior mode. Each cycle extrapolates two steps (Varadhan and Roland,
    2008) and keeps the result only if it is no worse.
    """
    w = np.ones(len(m))
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
        if gap < _CLOSE / sample.rows:
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


def influence_of_rows(sample: Sample, m: Floats, w: Floats) -> tuple[Floats, Floats]:
    """Return r = p / s(x), and the inverse of the information per row about w, the mean of r r'.

    A new row moves w by inverse (r - m). Divided by m, eigenvalues of the information are 1 for classes that are never
    confused, and smaller for others. One below 1 / n belongs to a direction about which n rows say nothing: it is
    raised to 1 / n.
    """
    r = sample.p / np.maximum(sample.p @ w, _TINY)[:, None]
    scale = 1 / np.sqrt(m)
    scaled = r * scale
    values, vectors = np.linalg.eigh((scaled * sample.weights[:, None]).T @ scaled)
    inverse = scale[:, None] * (vectors / np.maximum(values, 1 / sample.rows)) @ vectors.T * scale
    return r, np.asarray(inverse)


def standard_errors(sample: Sample, m: Floats, w: Floats, before: Floats, calibration_rows: float) -> Floats:
    """Return the standard errors of the frequencies w * before, normalised, from new and from calibration rows.

    A calibration row moves m by p - m, and so w by -inverse (p - m); it also moves the old frequency by its label less
    the frequency. Labels have the covariance diag(m) - m m', and that of the probabilities with the probabilities.
    """
    r, inverse = influence_of_rows(sample, m, w)
    total = float(w @ before)
    # The derivative of normalised frequencies by w * before.
    slope = (np.eye(len(m)) - (w * before / total)[:, None]) / total
    by_ratio = slope @ (before[:, None] * inverse)
    by_label = slope * w
    new = by_ratio @ sample.covariance_of_mean(r) @ by_ratio.T
    of_p = sample.covariance_as_before(sample.p, w)
    of_labels = np.diag(m) - np.outer(m, m)
    crossed = by_ratio @ of_p @ by_label.T
    old = by_ratio @ of_p @ by_ratio.T - crossed - crossed.T + by_label @ of_labels @ by_label.T
    return np.sqrt(np.maximum(np.diag(new) + np.maximum(np.diag(old), 0) / calibration_rows, 0))


def change_test(sample: Sample, m: Floats, summary: ClassSummary, level: float) -> tuple[float, float]:
    """Test whether class frequencies differ, from the differences d of the mean probabilities of the two samples.

    d is the score of the hypothesis that all ratios are 1. The statistic adds up d^2 / m over the classes, as Pearson's
    does. Variances are pooled over both samples; covariances are those of the new rows.

    Return the p-value, and how many rows a prior in favour of the old frequencies should be worth. Ratios with a
    Dirichlet prior worth a rows, centred at 1, add spread / a to the statistic. Solving for a gives the prior. The
    critical value stands in for the mean, so that chance alone hardly ever moves a ratio.
    """
    fewer = min(sample.rows, summary.rows)
    if fewer < 2 * LEAST_EXPECTED:
        return math.nan, math.inf
    mean = sample.weights @ sample.p
    spread = (sample.p * sample.weights[:, None]).T @ sample.p
    covariance = spread - np.outer(mean, mean)
    of_both = sample.rows * np.diag(covariance) + summary.rows * (np.array(summary.squares) - m**2)
    np.fill_diagonal(covariance, np.maximum(of_both / (sample.rows + summary.rows), 0))
    scale = 1 / (m + 1 / fewer)
    test = chi_square(mean - m, covariance * (1 / sample.rows + 1 / summary.rows), scale, sample.rows)
    excess = test.statistic - test.critical(level)
    if math.isnan(test.p_value) or not excess > 0:
        return test.p_value, math.inf
    moved = scale @ (np.square(spread) @ (1 / m) - mean**2)  # what ratios that vary add to the statistic
    return test.p_value, max(1.0, float(moved) / excess)


def fit_test(sample: Sample, m: Floats, w: Floats, summary: ClassSummary, histogram: Histogram) -> tuple[float, str]:
    """Return the p-value of the test that confidences are distributed as class shift predicts, and the largest gap.

    The prediction is shares @ w. The residual of a row is its bin less what it adds to the prediction through w.
    """
    if sample.rows < 2 * len(m):
        return math.nan, ""
    shares = np.array(summary.shares)
    bins = np.eye(len(shares))[histogram.bins(sample.p.max(axis=1))]
    now = sample.weights @ bins
    expected = shares @ w
    free = w > 0  # a ratio of 0 is at its limit
    r, inverse = influence_of_rows(sample, m, w)
    residuals = bins - (r * free) @ inverse @ shares.T
    covariance = sample.covariance_of_mean(residuals)
    covariance += sample.covariance_as_before(residuals * (sample.p @ w)[:, None], w) / summary.rows
    fewer = min(sample.rows, summary.rows)
    test = chi_square(now - expected, covariance, 1 / (expected + 1 / fewer), sample.rows)
    place = int(np.abs(now - expected).argmax())
    change = f"{100 * expected[place]:.1f} % expected, {100 * now[place]:.1f} % now"
    return test.p_value, f"confidence {histogram.bin_name(place)}: {change}"


def class_bias(summary: ClassSummary) -> tuple[Floats, ChiSquare]:
    """Return the log-odds that each class lacks on the calibration rows, and the test that it lacks none.

    Labels of calibrated rows have the variance p (1 - p). A shift b of the log-odds moves the mean probability of a
    class by b times the mean of p (1 - p).
    """
    means = summary.means()
    variances = np.maximum(means - np.array(summary.squares), 0) + 1 / summary.rows
    difference = np.array(summary.frequencies) - means
    lacking = difference / variances
    freedom = len(means) - 1  # differences add up to 0
    unit = len(means) / (freedom * summary.rows)
    return lacking, ChiSquare(float(difference @ lacking), unit, freedom)
