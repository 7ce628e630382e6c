"""An event and its test -> the smallest error that these rows would most likely have shown.

A test that does not reject says little if it could hardly have rejected. Suppose that the model is off by the same
amount everywhere. The running sum then ends about as far from 0 as this KS error, give or take its standard deviation.
The test rejects with the stated power if the error exceeds the critical value by a quantile of that deviation. Other
errors of the same size are harder or easier to find; this is a yardstick, not a bound.
"""

import math
from statistics import NormalDist

import numpy as np

from glayers.metrics.calibration_tests import CalibrationTest
from glayers.metrics.events import Scored, effective_number
from glayers.metrics.null_distribution import MEAN_LARGEST, brownian_height
from glayers.metrics.redrawing import group_numbers

POWER = 0.8  # with which an error would have been found: the usual choice in planning a study
TOLERANCE = 0.02  # an error of 2 points of confidence: most uses of probabilities tolerate as much
_STEPS = 20  # of a fixed point whose error falls by half or more in each


def detectable_error(event: Scored, test: CalibrationTest, n_tests: int) -> float:
    """Return the KS error of the event that the joint test of `n_tests` would find with probability `POWER`.

    `test` is the KS test of the event alone. The error is nan if groups are too few to tell.
    """
    if test.too_few_groups:
        return math.nan
    allowed = 1 - test.level
    critical = test.bound * brownian_height(allowed / n_tests) / brownian_height(allowed)
    wider = _inflation(event, test)
    error = critical
    for _ in range(_STEPS):  # the larger the error, the more uncertain are the outcomes of a sure model
        error = critical + NormalDist().inv_cdf(POWER) * wider * _deviation(event, error)
    # Even a model that is always sure must have had the chance to be wrong.
    once_seen = 1 - (1 - POWER) ** (1 / _effective_units(event))
    return min(1.0, max(error, once_seen))


def _deviation(event: Scored, error: float) -> float:
    """Return the standard deviation of the sum of weight * hit if all scores are too high, or too low, by an error."""
    variances = []
    for shift in (-error, error):
        rates = np.clip(event.scores + shift, 0.0, 1.0)
        variances.append(float(event.weights**2 @ (rates * (1 - rates))))
    return math.sqrt(max(variances))


def _inflation(event: Scored, test: CalibrationTest) -> float:
    """Return how much larger the deviation is because rows of a group depend on each other."""
    independent = _deviation(event, 0.0)
    if event.groups is None or independent == 0:
        return 1.0
    return max(1.0, test.expected / (MEAN_LARGEST * independent))


def _effective_units(event: Scored) -> float:
    """Return Kish's effective number of rows, or of groups."""
    if event.groups is None:
        return event.total
    return effective_number(np.bincount(group_numbers(event.groups), event.weights))
