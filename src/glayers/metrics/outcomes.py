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
from glayers.metrics.events import ROUNDING, Scored, distinct_scores
from glayers.metrics.metric import METRICS, Block, defined_by, membership

__all__ = ["aurc", "auroc", "calibration_intercept", "calibration_slope", "excess_aurc"]
__all__ += ["integrated_calibration_index", "observed_over_expected"]


_COVERAGE = 0.8  # the share of rows that are answered
_ACCURACY = 0.95  # that answers must have
_RIDGE = 1e-8  # keeps coefficients finite where scores separate the outcomes; changes others by less than 1e-6
_ROUNDED = 3e-14  # slopes of a loss that are rounding: over the ridge, coefficients are within 3e-6
_GEIFMAN = "Geifman, Uziel and El-Yaniv, ICLR 2019"
_VAN_CALSTER = "Van Calster et al., BMC Medicine 2019"
_higher = partial(defined_by, kind="loss", better="higher")
_neither = partial(defined_by, unit="plain", digits=3, better=None, kind="loss", highest=math.inf)


@_neither("calibration slope", _VAN_CALSTER, lowest=-math.inf)
def calibration_slope(event: Scored, block: Block) -> Floats:
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
    return 1 + _added(event, block, 2)[1]


@_neither("calibration intercept", _VAN_CALSTER, lowest=-math.inf)
def calibration_intercept(event: Scored, block: Block) -> Floats:
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
    return _added(event, block, 1)[0]


@_neither("observed / expected", _VAN_CALSTER)
def observed_over_expected(event: Scored, block: Block) -> Floats:
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
    observed = event.hits @ block.weights
    expected = np.maximum(event.scores @ block.weights, 0.0)
    unexpected = np.where(observed > 0, np.inf, 1.0)
    return np.divide(observed, expected, out=unexpected, where=expected > 0)


@defined_by("integrated calibration index", "Austin and Steyerberg, Statistics in Medicine 2019")
def integrated_calibration_index(event: Scored, block: Block) -> Floats:
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
    from scipy.optimize import isotonic_regression

    descending = distinct_scores(event.scores)[0][::-1]
    found = []
    for weight, errors in zip(*map(np.transpose, block.cached(level_sums, event)), strict=True):
        held = weight > 0
        fitted = isotonic_regression(errors[held] / weight[held], weights=weight[held]).x  # it rises as scores fall
        found.append(weight[held] @ np.abs(1 - fitted - descending[held]))
    return np.minimum(found, 1.0)


@_higher("AUROC of the confidence", "Hanley and McNeil, Radiology 1982")
def auroc(event: Scored, block: Block) -> Floats:
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
    weight, errors = block.cached(level_sums, event)
    hits = weight - errors
    hits_above = np.cumsum(hits, axis=0) - hits / 2
    pairs = hits.sum(axis=0) * errors.sum(axis=0)
    ordered = np.einsum("ij,ij->j", hits_above, errors)
    share = np.divide(ordered, pairs, out=np.full_like(pairs, 0.5), where=pairs > 0)
    return np.minimum(share, 1.0)


@defined_by("AURC", _GEIFMAN, kind="loss")
def aurc(event: Scored, block: Block) -> Floats:
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
    weight, _ = block.cached(level_sums, event)
    _, risk = block.cached(_risk_coverage, event)
    return np.einsum("ij,ij->j", weight, risk)


@defined_by("AURC, excess", _GEIFMAN, kind="loss")
def excess_aurc(event: Scored, block: Block) -> Floats:
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
    from scipy.special import xlogy  # on first use: importing it takes longer than importing glayers

    # The best possible AURC at an error rate e is e + (1 - e) log(1 - e).
    hit_rate = np.minimum(event.hits @ block.weights, 1.0)
    best = 1 - hit_rate + xlogy(hit_rate, hit_rate)
    return np.maximum(METRICS["aurc"].evaluate(event, block) - best, 0.0)


@_higher("accuracy of the surest 80 %", _GEIFMAN)
def accuracy_at_coverage(event: Scored, block: Block) -> Floats:
    """Accuracy of the surest rows; the next row of equal confidence is answered too."""
    covered, risk = block.cached(_risk_coverage, event)
    reached = (covered >= _COVERAGE - ROUNDING).argmax(axis=0)  # sums of weights are rounded
    return 1 - risk[reached, np.arange(len(reached))]


@_higher("coverage at 95 % accuracy", _GEIFMAN, unreliable="a maximum over thresholds; use glayers.threshold")
def coverage_at_accuracy(event: Scored, block: Block) -> Floats:
    """Largest share of the surest rows that are right often enough; `glayers.threshold` promises it for other rows."""
    covered, risk = block.cached(_risk_coverage, event)
    good = 1 - risk >= _ACCURACY - ROUNDING  # sums of weights are rounded
    return np.minimum((good * covered).max(axis=0), 1.0)


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
    coverage, wrong = (np.cumsum(sums, axis=0) for sums in block.cached(level_sums, event))
    risk = np.divide(wrong, coverage, out=np.zeros_like(wrong), where=coverage > 0)
    return coverage, risk


def _log_odds(event: Scored) -> Floats:
    scores = np.clip(event.scores, ROUNDING, 1 - ROUNDING)
    return np.log(scores) - np.log1p(-scores)


def _added(event: Scored, block: Block, m: int) -> Floats:
    """Return the intercept, or intercept and slope, that logistic regression adds to the log-odds of scores, (m, b)."""
    start = np.zeros((block.weights.shape[1], m))
    if not block.single:
        start += _added(event, Block.of(event), m).T  # resamples are near: half of the steps
    rows = event.cached(_log_odds)[None], event.hits[None], np.ascontiguousarray(block.weights.T)
    return recalibration(*rows, np.zeros_like(start), _RIDGE * np.eye(m), start)[0].T


def recalibration(
    x: Floats, hits: Floats, weights: Floats, before: Floats, precision: Floats, point: Floats
) -> tuple[Floats, Floats]:
    """Return what to add to log-odds x (b, n), a or a + b x, with the highest posterior density, and its curvature.

    The coefficients (b, m) have a normal prior around `before`. Newton's method, from `point`: steps are shortened by
    log(1 + r) / r, where r is the largest change of any row's log-odds, so that each raises the density. Sun and
    Tran-Dinh, "Generalized self-concordant functions", Mathematical Programming 2019.
    """
    from scipy.special import expit  # on first use: importing it takes longer than importing glayers

    features = np.stack([np.ones_like(x), x][: point.shape[1]], axis=1)
    by_row = features.swapaxes(1, 2)
    for _ in range(2_000):  # scores that separate the outcomes take hundreds
        p = expit(x + (point[:, None] @ features)[:, 0])
        slope = ((weights * (hits - p))[:, None] @ by_row - (point - before)[:, None] @ precision)[:, 0]
        curvature = (features * (weights * p * (1 - p))[:, None]) @ by_row + precision
        step = np.linalg.solve(curvature, slope[:, :, None])[:, :, 0]
        reach = np.maximum(np.abs(step[:, None] @ features).max(axis=2), 1e-300)
        point = point + step * np.log1p(reach) / reach
        # The error of the log-odds after the next step is the square of its reach. Where all scores are 1 and right,
        # steps never shrink below rounding: 1,000 resamples took 25 s.
        if not ((reach >= 1e-5) & (np.abs(slope) > _ROUNDED)).any():
            break
    return point, curvature
