"""Predictions -> how outcomes depend on scores: slope, intercept, ratio, and the distance to an isotonic fit.

Slope and intercept come from the logistic regression of the outcome on the log-odds of the score. Cox, "Two Further
Applications of a Model for Binary Regression", Biometrika 1958; Van Calster et al., "Calibration: the Achilles heel of
predictive analytics", BMC Medicine 2019.
"""

import math
from functools import partial

import numpy as np

from glayers.arrays import Floats
from glayers.metrics.events import ROUNDING, Event, Scored, check_event, distinct_scores, top
from glayers.metrics.metric import Block, Metric, score
from glayers.metrics.selective import level_sums

__all__ = ["calibration_intercept", "calibration_slope", "integrated_calibration_index", "observed_over_expected"]

_RIDGE = 1e-8  # keeps coefficients finite where scores separate the outcomes; changes others by less than 1e-6
_CONVERGED = 1e-5  # of the log-odds: the error after the next step is the square of this


def calibration_slope(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event = top
) -> float:
    """Slope of the logistic regression of the outcome on the log-odds of the score.

    Parameters
    ----------
    probabilities
        Array (n, k), `Predictions` or `Confidences`.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    sample_weight
        Row weights (n,).
    event
        `top`, `rank(r)`, `within_top(r)`, `label(c)` or `one_of(classes)`.

    Returns
    -------
    float
        1 for a calibrated model; below 1 scores are too extreme, above 1 too moderate. Scores closer than 1e-12 to 0
        or 1 count as 1e-12 away. Scores that separate hits from misses give a large number. Van Calster et al., BMC
        Medicine 2019.

    Examples
    --------
    Scores of 4 : 1 come true at 2 : 1, and log(2) / log(4) = 1/2.

    >>> from glayers import Confidences
    >>> round(calibration_slope(Confidences([0.8, 0.8, 0.8, 0.2, 0.2, 0.2], [1, 1, 0, 1, 0, 0])), 6)
    0.5
    """
    return score(_slope, check_event(probabilities, labels, sample_weight, event=event))


def calibration_intercept(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event = top
) -> float:
    """Calibration in the large: what to add to the log-odds of all scores so that they are right on average.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `calibration_slope`.

    Returns
    -------
    float
        The intercept of that regression with its slope fixed at 1: 0 for a calibrated model; below 0 scores are too
        high, above 0 too low. Van Calster et al., BMC Medicine 2019.

    Examples
    --------
    >>> from glayers import Confidences
    >>> round(calibration_intercept(Confidences([0.5] * 4, [1, 1, 1, 0])), 6)  # log(3)
    1.098612
    """
    return score(_intercept, check_event(probabilities, labels, sample_weight, event=event))


def observed_over_expected(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event = top
) -> float:
    """Number of events that happened over the sum of their scores.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `calibration_slope`.

    Returns
    -------
    float
        1 for a calibrated model; below 1 scores are too high, above 1 too low. Van Calster et al., BMC Medicine 2019.

    Examples
    --------
    >>> from glayers import Confidences
    >>> observed_over_expected(Confidences([0.5, 0.75, 0.75], [1, 0, 0]))
    0.5
    """
    return score(_ratio, check_event(probabilities, labels, sample_weight, event=event))


def integrated_calibration_index(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event = top
) -> float:
    """Mean distance between the scores and what an isotonic regression makes of them.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `calibration_slope`.

    Returns
    -------
    float
        A number from 0 to 1. Austin and Steyerberg, Statistics in Medicine 2019, with an isotonic fit in the place of
        their loess curve: it has no settings, but follows noise, so few rows give too large a number.

    Examples
    --------
    >>> from glayers import Confidences
    >>> rows = Confidences([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1])
    >>> round(integrated_calibration_index(rows), 12)  # fitted as 0, 1/2, 1/2, 1
    0.15
    """
    return score(_integrated_index, check_event(probabilities, labels, sample_weight, event=event))


def _log_odds(event: Scored) -> Floats:
    scores = np.clip(event.scores, ROUNDING, 1 - ROUNDING)
    return np.log(scores) - np.log1p(-scores)


def _slope(event: Scored, block: Block) -> Floats:
    return 1 + _added(event, block, 2)[1]


def _intercept(event: Scored, block: Block) -> Floats:
    return _added(event, block, 1)[0]


def _added(event: Scored, block: Block, m: int) -> Floats:
    """Return the intercept, or intercept and slope, that logistic regression adds to the log-odds of scores, (m, b).

    Newton's method. Steps are shortened by log(1 + r) / r, where r is the largest change of any row's log-odds, so that
    each lowers the loss. Sun and Tran-Dinh, "Generalized self-concordant functions", Mathematical Programming 2019.
    """
    from scipy.special import expit  # on first use: importing it takes longer than importing glayers

    log_odds = event.cached(_log_odds)
    features = np.stack([np.ones_like(log_odds), log_odds])[:m]
    ends = features[:, [log_odds.argmin(), log_odds.argmax()]].T  # the largest change is at one of these
    products = (features[:, None] * features).reshape(m * m, -1)
    observed = (features * event.hits) @ block.weights
    coefficients = np.zeros((m, block.weights.shape[1]))
    if not block.single:
        coefficients += event.cached(_of_own_weights, m)  # resamples are near: half of the steps
    for _ in range(200):
        predicted = expit(features.T @ coefficients + log_odds[:, None])
        expected = block.weights * predicted
        slopes = observed - features @ expected - _RIDGE * coefficients
        predicted *= expected
        curvature = products @ (expected - predicted)
        hessians = curvature.T.reshape(-1, m, m) + _RIDGE * np.eye(m)
        step = np.linalg.solve(hessians, slopes.T[:, :, None])[:, :, 0].T
        reach = np.maximum(np.abs(ends @ step).max(axis=0), 1e-300)
        coefficients += step * np.log1p(reach) / reach
        if reach.max() < _CONVERGED:
            break
    return coefficients


def _of_own_weights(event: Scored, m: int) -> Floats:
    return _added(event, Block.of(event), m)


def _ratio(event: Scored, block: Block) -> Floats:
    observed = event.hits @ block.weights
    expected = np.maximum(event.scores @ block.weights, 0.0)
    unexpected = np.where(observed > 0, np.inf, 1.0)
    return np.divide(observed, expected, out=unexpected, where=expected > 0)


def _integrated_index(event: Scored, block: Block) -> Floats:
    from scipy.optimize import isotonic_regression

    weights, errors = block.cached(level_sums, event)
    ascending, _ = distinct_scores(event.scores)
    found = []
    for weight, hits in zip(weights.T, (weights - errors).T, strict=True):
        (held,) = np.nonzero(weight)
        held = held[::-1]  # the lowest score first
        fitted = isotonic_regression(hits[held] / weight[held], weights=weight[held]).x
        found.append(weight[held] @ np.abs(ascending[::-1][held] - fitted))
    return np.minimum(found, 1.0)


_VAN_CALSTER = "Van Calster et al., BMC Medicine 2019"
_AUSTIN = "Austin and Steyerberg, Statistics in Medicine 2019"
_neither = partial(Metric, unit="plain", digits=3, better=None, kind="loss", highest=math.inf)
METRICS = (
    _neither("calibration_slope", "calibration slope", _slope, _VAN_CALSTER, lowest=-math.inf),
    _neither("calibration_intercept", "calibration intercept", _intercept, _VAN_CALSTER, lowest=-math.inf),
    _neither("observed_over_expected", "observed / expected", _ratio, _VAN_CALSTER),
    Metric("integrated_calibration_index", "integrated calibration index", _integrated_index, _AUSTIN),
)
