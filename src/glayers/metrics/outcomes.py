"""Predictions -> how outcomes depend on scores: for models that may abstain, and by regression.

Sort rows by confidence, the surest first. The risk at a coverage is the error rate of that share of rows. Rows of equal
confidence enter together, so the order of rows never matters. Geifman, Uziel and El-Yaniv, "Bias-Reduced Uncertainty
Estimation for Deep Neural Classifiers", ICLR 2019.

Slope and intercept come from the logistic regression of the outcome on the log-odds of the score. Cox, "Two Further
Applications of a Model for Binary Regression", Biometrika 1958; Van Calster et al., "Calibration: the Achilles heel of
predictive analytics", BMC Medicine 2019.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from glayers.arrays import Floats
from glayers.metrics.events import ROUNDING, Event, Scored, check_event, distinct_scores, top
from glayers.metrics.metric import Block, Metric, membership, score

__all__ = [
    "aurc",
    "auroc",
    "calibration_intercept",
    "calibration_slope",
    "excess_aurc",
    "integrated_calibration_index",
    "observed_over_expected",
]


_COVERAGE = 0.8  # the share of rows that are answered
_ACCURACY = 0.95  # that answers must have
_RIDGE = 1e-8  # keeps coefficients finite where scores separate the outcomes; changes others by less than 1e-6
_ROUNDED = 3e-14  # slopes of a loss that are rounding: over the ridge, coefficients are within 3e-6


def aurc(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
) -> float:
    """Area under the risk-coverage curve: the mean error rate over all coverages.

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
        A number from 0 to 1; lower is better. Geifman, Uziel and El-Yaniv, ICLR 2019.

    Examples
    --------
    The surest row is right, the other is wrong: (0 + 1/2) / 2.

    >>> aurc([[0.8, 0.2], [0.4, 0.6]], [0, 0])
    0.25
    """
    return score(_aurc, check_event(probabilities, labels, sample_weight, event=event))


def excess_aurc(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
) -> float:
    """AURC minus that of a perfect confidence on infinitely many rows, which puts every right answer first.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `aurc`.

    Returns
    -------
    float
        A number from 0 to 1; lower is better. Geifman, Uziel and El-Yaniv, ICLR 2019.

    Examples
    --------
    >>> round(excess_aurc([[0.8, 0.2], [0.4, 0.6]], [0, 0]), 4)  # 0.25 - (0.5 + 0.5 log 0.5)
    0.0966
    """
    return score(_excess_aurc, check_event(probabilities, labels, sample_weight, event=event))


def auroc(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
) -> float:
    """Probability that a right answer has a higher confidence than a wrong one; ties count half.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `aurc`.

    Returns
    -------
    float
        A number from 0 to 1; 0.5 where all answers are right, or all are wrong, because nothing can be ranked then.

    Examples
    --------
    >>> auroc([[0.8, 0.2], [0.4, 0.6]], [0, 0])
    1.0
    """
    return score(_auroc, check_event(probabilities, labels, sample_weight, event=event))


def level_sums(block: Block, event: Scored) -> tuple[Floats, Floats]:
    """Return the weight and the weight of errors at each distinct confidence, the highest first, (levels, b)."""
    levels = event.cached(_levels)
    return levels @ block.weights, levels @ ((1 - event.hits)[:, None] * block.weights)


def _levels(event: Scored) -> Any:
    """Return the sparse matrix whose product adds up the rows of each distinct confidence, the highest first."""
    distinct, which = distinct_scores(event.scores)
    return membership(len(distinct) - 1 - which, len(distinct))


def _risk_coverage(block: Block, event: Scored) -> tuple[Floats, Floats]:
    """Return coverage and error rate after each distinct confidence, the surest first, (levels, b)."""
    weight, errors = block.cached(level_sums, event)
    coverage = np.cumsum(weight, axis=0)
    wrong = np.cumsum(errors, axis=0)
    risk = np.divide(wrong, coverage, out=np.zeros_like(wrong), where=coverage > 0)
    return coverage, risk


def _aurc(event: Scored, block: Block) -> Floats:
    weight, _ = block.cached(level_sums, event)
    _, risk = block.cached(_risk_coverage, event)
    return np.einsum("ij,ij->j", weight, risk)


def _excess_aurc(event: Scored, block: Block) -> Floats:
    """The best possible AURC at an error rate e is e + (1 - e) log(1 - e)."""
    hit_rate = np.minimum(event.hits @ block.weights, 1.0)
    safe = np.where(hit_rate > 0, hit_rate, 1.0)
    best = 1 - hit_rate + hit_rate * np.log(safe)
    return np.maximum(_aurc(event, block) - best, 0.0)


def _auroc(event: Scored, block: Block) -> Floats:
    weight, errors = block.cached(level_sums, event)
    hits = weight - errors
    hits_above = np.cumsum(hits, axis=0) - hits / 2
    pairs = hits.sum(axis=0) * errors.sum(axis=0)
    ordered = np.einsum("ij,ij->j", hits_above, errors)
    share = np.divide(ordered, pairs, out=np.full_like(pairs, 0.5), where=pairs > 0)
    return np.minimum(share, 1.0)


def _accuracy_at_coverage(event: Scored, block: Block) -> Floats:
    """Accuracy of the surest rows; the next row of equal confidence is answered too."""
    covered, risk = block.cached(_risk_coverage, event)
    reached = np.argmax(covered >= _COVERAGE - ROUNDING, axis=0)  # sums of weights are rounded
    return 1 - np.take_along_axis(risk, reached[None, :], axis=0)[0]


def _coverage_at_accuracy(event: Scored, block: Block) -> Floats:
    """Largest share of the surest rows that are right often enough; `glayers.threshold` promises it for other rows."""
    covered, risk = block.cached(_risk_coverage, event)
    good = 1 - risk >= _ACCURACY - ROUNDING  # sums of weights are rounded
    return np.minimum(np.max(np.where(good, covered, 0.0), axis=0), 1.0)


def calibration_slope(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
) -> float:
    """Slope of the logistic regression of the outcome on the log-odds of the score.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `aurc`.

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
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
) -> float:
    """Calibration in the large: what to add to the log-odds of all scores so that they are right on average.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `aurc`.

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
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
) -> float:
    """Number of events that happened over the sum of their scores.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `aurc`.

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
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
) -> float:
    """Mean distance between the scores and what an isotonic regression makes of them.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `aurc`.

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
    for _ in range(2_000):  # scores that separate the outcomes take hundreds
        predicted = expit(features.T @ coefficients + log_odds[:, None])
        expected = block.weights * predicted
        slopes = observed - features @ expected - _RIDGE * coefficients
        predicted *= expected
        curvature = products @ (expected - predicted)
        hessians = curvature.T.reshape(-1, m, m) + _RIDGE * np.eye(m)
        step = np.linalg.solve(hessians, slopes.T[:, :, None])[:, :, 0].T
        reach = np.maximum(np.abs(ends @ step).max(axis=0), 1e-300)
        coefficients += step * np.log1p(reach) / reach
        moving = reach >= 1e-5  # of the log-odds: the error after the next step is the square of this
        # Where all scores are 1 and right, steps never shrink below rounding: 1,000 resamples took 25 s.
        if not (moving & (np.abs(slopes).max(axis=0) > _ROUNDED)).any():
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


_HANLEY = "Hanley and McNeil, Radiology 1982"
_GEIFMAN = "Geifman, Uziel and El-Yaniv, ICLR 2019"
_LARGEST = "a maximum over thresholds; use glayers.threshold"
_VAN_CALSTER = "Van Calster et al., BMC Medicine 2019"
_AUSTIN = "Austin and Steyerberg, Statistics in Medicine 2019"
_lower = partial(Metric, kind="loss")
_higher = partial(Metric, kind="loss", better="higher")
_neither = partial(Metric, unit="plain", digits=3, better=None, kind="loss", highest=math.inf)


METRICS = (
    _neither("calibration_slope", "calibration slope", _slope, _VAN_CALSTER, lowest=-math.inf),
    _neither("calibration_intercept", "calibration intercept", _intercept, _VAN_CALSTER, lowest=-math.inf),
    _neither("observed_over_expected", "observed / expected", _ratio, _VAN_CALSTER),
    Metric("integrated_calibration_index", "integrated calibration index", _integrated_index, _AUSTIN),
    _higher("auroc", "AUROC of the confidence", _auroc, _HANLEY),
    _lower("aurc", "AURC", _aurc, _GEIFMAN),
    _lower("excess_aurc", "AURC, excess", _excess_aurc, _GEIFMAN),
    _higher("accuracy_at_coverage", "accuracy of the surest 80 %", _accuracy_at_coverage, _GEIFMAN),
    _higher("coverage_at_accuracy", "coverage at 95 % accuracy", _coverage_at_accuracy, _GEIFMAN, unreliable=_LARGEST),
)
