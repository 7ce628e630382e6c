"""Scores and weights of an event -> the distribution of its KS error under calibration, without drawing anything.

Under calibration the running sum of w (hit - score), rows sorted by score, has independent steps of mean 0 and variance
w^2 s(1 - s). Measured on the clock of that variance it becomes Brownian motion on [0, 1]; nothing pulls it back to 0 at
the end, so it is not a bridge. Arrieta-Ibarra et al., "Metrics of Calibration for Probabilistic Predictions", JMLR
2022. Two corrections make this accurate for finite samples:

- The sum moves in steps, and passes a line by some distance where Brownian motion would touch it.
- Sums of uneven coin flips are skewed: far out, their tail probability is many times that of the normal distribution
  (ten times at p = 0.001 and two expected hits). A saddlepoint approximation accounts for it: tilt all coins by one
  factor until the expected sum is the observed one. Lugannani and Rice, Advances in Applied Probability 1980.
"""

import math
from typing import NamedTuple

import numpy as np

from glayers.arrays import Floats

MEAN_LARGEST = math.sqrt(math.pi / 2)  # expected max |B(t)|
_TERMS = 8  # either series has converged to float64 by then on its side of height 1
# The mean distance by which a sum steps past a line, in standard deviations of a step: -zeta(1/2) over the root of
# 2 pi. Chernoff, Sankhya 1965; Siegmund, Advances in Applied Probability 1979.
_OVERSHOOT = 0.5826
_FEWEST_STEPS = 20  # with fewer steps the mean says little about the last one; a smaller correction is conservative
_FAR_OUT = 1.5  # standard deviations from where on skewness matters; nearer, a saddlepoint of few coins does not help
_VERY_FAR = 8.0  # standard deviations from where on the limit holds to float64
_FEW = 20  # expected hits, or misses: with 10, 6.2 % of calibrated models are rejected at 5 %, and with 2, up to 9 %
_NEVER = 1e-15  # misses expected in all rows: none will be seen
_NEGLIGIBLE = 1e-4  # of the mean variance of a row: all such rows together change nothing
_HIGHEST = 40.0  # standard deviations, which no float64 probability exceeds
_CLOSE = 1e-9


class KSNullDistribution(NamedTuple):
    """Distribution of the largest size of the running sum.

    Holds the rows whose outcome is uncertain, with weights in units of the sum's standard deviation, and the mean
    `overshoot` in the same units.
    """

    scores: Floats
    weights: Floats
    deviation: float
    overshoot: float

    @classmethod
    def of(cls, scores: Floats, weights: Floats, step_variances: Floats) -> "KSNullDistribution":
        """Take rows, and the variance of each step of the sum: rows of equal score are one step."""
        flips = scores * (1 - scores)
        variances = weights**2 * flips
        if flips.sum() < _NEVER or not variances.any():  # the square of a weight may be 0
            return cls(scores[:0], weights[:0], 0.0, 0.0)
        deviation = math.sqrt(float(variances.sum()))
        matter = variances > _NEGLIGIBLE * variances.mean()
        return cls(scores[matter], weights[matter] / deviation, deviation, mean_overshoot(step_variances))

    @property
    def too_few_uncertain_rows(self) -> bool:
        """Whether so few rows have an uncertain outcome that the approximations are off by more than a tenth."""
        flips = self.scores * (1 - self.scores)
        return self.deviation > 0 and float(self.weights**4 @ flips) * _FEW > 1  # weights^2 @ flips is 1

    def p_value(self, value: float) -> float:
        """P(largest size of the running sum >= value).

        >>> null = KSNullDistribution.of(np.full(400, 0.5), np.full(400, 1 / 400), np.full(400, 0.25 / 400**2))
        >>> round(null.p_value(0.05), 3)
        0.085
        """
        if value <= _CLOSE:
            return 1.0
        if self.deviation == 0:  # every score is practically 0 or 1: a calibrated model makes no error at all
            return 0.0
        height = value / self.deviation + self.overshoot
        if height <= _FAR_OUT:
            return brownian_exit_probability(height)
        at_the_end = self._tail_at_the_end(self.scores, height) + self._tail_at_the_end(1 - self.scores, height)
        # How much likelier the sum is outside at some time than outside at the end: twice, far out.
        ratio = 2.0
        if height < _VERY_FAR:
            ratio = brownian_exit_probability(height) / math.erfc(height / math.sqrt(2))
        return min(brownian_exit_probability(_FAR_OUT), ratio * at_the_end)

    def quantile_above(self, probability: float) -> float:
        """Return the value that the largest size of the running sum exceeds with this probability."""
        value = self._brownian_value(probability)
        for _ in range(2):  # the correction changes slowly
            corrected = self.p_value(value)
            if not 0 < corrected < 1:
                break
            ratio = corrected / brownian_exit_probability(value / self.deviation + self.overshoot)
            value = self._brownian_value(min(1.0, probability / ratio))
        largest_sum = max(self._largest_sum(self.scores), self._largest_sum(1 - self.scores))
        return min(value, self.deviation * largest_sum)

    def mean(self) -> float:
        """Return the expected largest size of the running sum."""
        return self.deviation * max(0.0, MEAN_LARGEST - self.overshoot)

    def _brownian_value(self, probability: float) -> float:
        return self.deviation * max(0.0, brownian_height(probability) - self.overshoot)

    def _largest_sum(self, scores: Floats) -> float:
        """The sum of weight * (hit - score) if every row hits."""
        return float(self.weights @ (1 - scores))

    def _tail_at_the_end(self, scores: Floats, height: float) -> float:
        most = self._largest_sum(scores)
        if height - self.overshoot > most:
            return 0.0
        return tail_of_sum(scores, self.weights, min(height, most))


def brownian_exit_probability(height: float) -> float:
    """P(max |B(t)| > height, t in [0, 1]) for Brownian motion B.

    >>> round(brownian_exit_probability(2.2414), 4)
    0.05
    """
    if height <= 0:
        return 1.0
    odd = range(1, 2 * _TERMS, 2)  # with signs + - + -
    if height < 1:
        staying = sum((-1) ** (m // 2) / m * math.exp(-((m * math.pi / height) ** 2) / 8) for m in odd)
        return 1 - 4 / math.pi * staying
    return 2 * sum((-1) ** (m // 2) * math.erfc(m * height / math.sqrt(2)) for m in odd)


def brownian_height(probability: float) -> float:
    """Return the height that max |B(t)| exceeds with this probability.

    >>> round(brownian_height(0.05), 4)
    2.2414
    """
    from scipy.optimize import brentq  # on first use: importing it takes longer than importing glayers

    def excess(height: float) -> float:
        return brownian_exit_probability(height) - probability

    return float(brentq(excess, 0.0, _HIGHEST, xtol=1e-14))


def mean_overshoot(variances: Floats) -> float:
    """Return how far a sum with steps of these variances passes a line, in units of its final standard deviation.

    The sum stays between two lines with the probability of Brownian motion between lines further out by this much.
    """
    total = float(variances.sum())
    typical = float(np.sqrt(variances) @ variances) / total  # steps weighted by their variance
    return _OVERSHOOT * min(typical / math.sqrt(total), 1 / math.sqrt(_FEWEST_STEPS))


def tail_of_sum(scores: Floats, weights: Floats, at_least: float) -> float:
    """P(sum of weight * (hit - score) >= at_least), for scores strictly between 0 and 1 and a sum that can be reached.

    Of 100 fair coins 61 or more show heads with probability 0.0176. The method ignores steps, so ask for 60.5:

    >>> round(tail_of_sum(np.full(100, 0.5), np.ones(100), at_least=10.5), 4)
    0.0178
    """
    from scipy.special import expit

    log_hit = np.log(scores)
    log_miss = np.log1p(-scores)
    all_hit = float(np.exp(log_hit.sum()))
    if at_least >= float(weights @ (1 - scores)) * (1 - _CLOSE):
        return all_hit
    tilt = _tilt(scores, weights, at_least)
    log_moment = float(np.logaddexp(log_miss, log_hit + tilt * weights).sum() - tilt * (weights @ scores))
    cost = math.sqrt(2 * (tilt * at_least - log_moment))
    tilted = expit(log_hit - log_miss + tilt * weights)
    spread = tilt * math.sqrt(float(weights**2 @ (tilted * (1 - tilted))))
    density = math.exp(-(cost**2) / 2) / math.sqrt(2 * math.pi)
    return max(all_hit, math.erfc(cost / math.sqrt(2)) / 2 + density * (1 / spread - 1 / cost))


def _tilt(scores: Floats, weights: Floats, at_least: float) -> float:
    """Return the factor at which coins of log-odds + factor * weight sum to this much above the mean, as expected."""
    from scipy.optimize import brentq
    from scipy.special import expit, logit

    odds = logit(scores)

    def excess(tilt: float) -> float:
        return float(weights @ (expit(odds + tilt * weights) - scores)) - at_least

    high = 1.0
    while excess(high) < 0:
        high *= 4
    return float(brentq(excess, 0.0, high))
