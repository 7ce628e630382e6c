"""Scores and weights of one event a row -> how far the running sum of weight * (hit - score) strays by chance.

Brownian motion gives the shape, and two corrections the rest. The walk has steps, and oversteps a line where Brownian
motion would touch it. And sums of uneven coin flips lean to one side: far out, their chance is many times that of the
normal distribution, ten times at p = 0.001 and two expected hits. A saddlepoint sees that: tilt all coins by one factor
until the sum is expected where it was found, and ask what that cost. Lugannani and Rice, Advances in Applied
Probability 1980.
"""

import math
from typing import NamedTuple

import numpy as np

from glayers.arrays import Floats
from glayers.metrics.old.brownian import MEAN_LARGEST, chance_of_leaving, height_left_with_chance, overshoot

_FAR_OUT = 1.5  # deviations, from where on flips lean noticeably; nearer, a saddlepoint of few coins is no help
_NEVER = 1e-15  # surprises expected in all rows: none will be seen
_NEGLIGIBLE = 1e-4  # of the mean variance of a row: all such rows together move nothing
_NEWTON_STEPS = 60  # five or so are needed; halving, the fallback, gets there in these
_CLOSE = 1e-9


class CoinWalk(NamedTuple):
    """Rows whose flips matter, with weights in units of the deviation of their sum; the mean overstep in the same."""

    scores: Floats
    weights: Floats
    deviation: float
    beyond: float

    @classmethod
    def of(cls, scores: Floats, weights: Floats, step_variances: Floats) -> "CoinWalk":
        """Take rows and the variance of each step of the walk: rows of equal score are one step."""
        flips = scores * (1 - scores)
        if flips.sum() < _NEVER:
            return cls(scores[:0], weights[:0], 0.0, 0.0)
        variances = weights**2 * flips
        deviation = math.sqrt(float(variances.sum()))
        matter = variances > _NEGLIGIBLE * variances.mean()
        return cls(scores[matter], weights[matter] / deviation, deviation, overshoot(step_variances))

    def chance_of_reaching(self, value: float) -> float:
        """P(largest size of the running sum >= value).

        >>> coins = CoinWalk.of(np.full(400, 0.5), np.full(400, 1 / 400), np.full(400, 0.25 / 400**2))
        >>> round(coins.chance_of_reaching(0.05), 3)
        0.085
        """
        if value <= _CLOSE:
            return 1.0
        if self.deviation == 0:  # every score is all but 0 or 1: a calibrated model makes no error at all
            return 0.0
        height = value / self.deviation + self.beyond
        if height <= _FAR_OUT:
            return chance_of_leaving(height)
        at_the_end = self._chance_at_the_end(self.scores, height) + self._chance_at_the_end(1 - self.scores, height)
        # How much likelier it is to be outside at some time than to be outside at the end: twice, far out.
        ever = chance_of_leaving(height) / math.erfc(height / math.sqrt(2)) if height < 8 else 2.0
        return min(chance_of_leaving(_FAR_OUT), ever * at_the_end)

    def reached_with_chance(self, chance: float) -> float:
        """The value that the largest size of the running sum exceeds with this chance."""
        value = self._brownian_value(chance)
        for _ in range(2):  # the correction changes slowly
            corrected = self.chance_of_reaching(value)
            if not 0 < corrected < 1:
                break
            ratio = corrected / chance_of_leaving(value / self.deviation + self.beyond)
            value = self._brownian_value(min(1.0, chance / ratio))
        return min(value, self.deviation * max(self._most(self.scores), self._most(1 - self.scores)))

    def mean_largest(self) -> float:
        """The largest size of the running sum, on average."""
        return self.deviation * max(0.0, MEAN_LARGEST - self.beyond)

    def _brownian_value(self, chance: float) -> float:
        return self.deviation * max(0.0, height_left_with_chance(chance) - self.beyond)

    def _most(self, scores: Floats) -> float:
        """The sum of weight * (hit - score) if every row hits."""
        return float(self.weights @ (1 - scores))

    def _chance_at_the_end(self, scores: Floats, height: float) -> float:
        most = self._most(scores)
        return chance_of_sum(scores, self.weights, min(height, most)) if height - self.beyond <= most else 0.0


def chance_of_sum(scores: Floats, weights: Floats, at_least: float) -> float:
    """P(sum of weight * (hit - score) >= at_least), for scores strictly between 0 and 1 and a sum that can be reached.

    Of 100 fair coins 61 or more show heads with a chance of 0.0176. The method knows no steps, so ask for 60.5:

    >>> round(chance_of_sum(np.full(100, 0.5), np.ones(100), at_least=10.5), 4)
    0.0178
    """
    log_hit, log_miss = np.log(scores), np.log1p(-scores)
    all_hit = float(np.exp(log_hit.sum()))
    if at_least >= float(weights @ (1 - scores)) * (1 - _CLOSE):
        return all_hit
    tilt = _tilt(scores, weights, at_least)
    log_moment = float(np.logaddexp(log_miss, log_hit + tilt * weights).sum() - tilt * (weights @ scores))
    cost = math.sqrt(2 * (tilt * at_least - log_moment))
    spread = tilt * math.sqrt(_variance(_expit(log_hit - log_miss + tilt * weights), weights))
    density = math.exp(-(cost**2) / 2) / math.sqrt(2 * math.pi)
    return max(all_hit, math.erfc(cost / math.sqrt(2)) / 2 + density * (1 / spread - 1 / cost))


def _tilt(scores: Floats, weights: Floats, at_least: float) -> float:
    """The factor at which coins of log-odds + factor * weight add up to this much above the mean."""
    odds = np.log(scores) - np.log1p(-scores)
    wanted = float(weights @ scores) + at_least
    low, high, tilt = 0.0, math.inf, at_least / _variance(scores, weights)
    for _ in range(_NEWTON_STEPS):
        tilted = _expit(odds + tilt * weights)
        beyond = float(weights @ tilted) - wanted
        if abs(beyond) <= _CLOSE * at_least:
            break
        low, high = (low, tilt) if beyond > 0 else (tilt, high)
        step = tilt - beyond / max(_variance(tilted, weights), 1e-300)
        tilt = step if low < step < min(high, 4 * tilt) else min(4 * tilt, (low + high) / 2)
    return tilt


def _expit(odds: Floats) -> Floats:
    with np.errstate(over="ignore"):  # exp(1000) is infinite, and 1 / (1 + infinity) the 0 that is meant
        return 1 / (1 + np.exp(-odds))


def _variance(scores: Floats, weights: Floats) -> float:
    return float(weights**2 @ (scores * (1 - scores)))
