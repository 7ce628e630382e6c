"""Predictions -> how well the confidence tells right answers from wrong ones, for models that may abstain.

Sort rows by confidence, the surest first. The risk at a coverage is the error rate of that share of rows. Rows of equal
confidence enter together, so the order of rows never matters. Geifman, Uziel and El-Yaniv, "Bias-Reduced Uncertainty
Estimation for Deep Neural Classifiers", ICLR 2019.
"""

from functools import partial

import numpy as np

from glayers.arrays import Floats
from glayers.checks import number_between
from glayers.metrics.events import Event, Scored, check_event, distinct_scores, top
from glayers.metrics.metric import Block, Metric, PlaceSums, score

__all__ = ["accuracy_at_coverage", "aurc", "auroc", "coverage_at_accuracy", "excess_aurc"]

_COVERAGE = 0.8
_ACCURACY = 0.95
_HANLEY = "Hanley and McNeil, Radiology 1982"
_GEIFMAN = "Geifman, Uziel and El-Yaniv, ICLR 2019"


def aurc(probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event = top) -> float:
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
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event = top
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


def auroc(probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event = top) -> float:
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


def accuracy_at_coverage(
    probabilities: object,
    labels: object = None,
    *,
    coverage: float = _COVERAGE,
    sample_weight: object = None,
    event: Event = top,
) -> float:
    """Accuracy of the surest rows.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `aurc`.
    coverage
        The share of rows that are answered. The next row of equal confidence is answered too.

    Returns
    -------
    float
        A number from 0 to 1.

    Examples
    --------
    >>> accuracy_at_coverage([[0.8, 0.2], [0.4, 0.6]], [0, 0], coverage=0.5)
    1.0
    """
    share = number_between(coverage, "coverage", 0, 1)
    return score(_accuracy_at_coverage, check_event(probabilities, labels, sample_weight, event=event), share)


def coverage_at_accuracy(
    probabilities: object,
    labels: object = None,
    *,
    accuracy: float = _ACCURACY,
    sample_weight: object = None,
    event: Event = top,
) -> float:
    """Largest share of the surest rows whose accuracy is at least `accuracy`.

    The share is measured on these rows and promises nothing about others: `glayers.threshold` does.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `aurc`.
    accuracy
        The accuracy that answers must have.

    Returns
    -------
    float
        A number from 0 to 1.

    Examples
    --------
    >>> coverage_at_accuracy([[0.8, 0.2], [0.4, 0.6]], [0, 0], accuracy=0.9)
    0.5
    """
    least = number_between(accuracy, "accuracy", 0, 1)
    return score(_coverage_at_accuracy, check_event(probabilities, labels, sample_weight, event=event), least)


def level_sums(block: Block, event: Scored) -> tuple[Floats, Floats]:
    """Return the weight and the weight of errors at each distinct confidence, the highest first, (levels, b)."""
    all_rows, errors = event.cached(_levels)
    return all_rows.of(block), errors.of(block)


def _levels(event: Scored) -> tuple[PlaceSums, PlaceSums]:
    distinct, which = distinct_scores(event.scores)
    place = (len(distinct) - 1 - which)[:, None]
    errors = (1 - event.hits)[:, None]
    return PlaceSums(place, np.ones_like(errors), len(distinct)), PlaceSums(place, errors, len(distinct))


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


def _accuracy_at_coverage(event: Scored, block: Block, coverage: float = _COVERAGE) -> Floats:
    covered, risk = block.cached(_risk_coverage, event)
    reached = np.argmax(covered >= coverage - 1e-12, axis=0)  # sums of weights are rounded
    return 1 - np.take_along_axis(risk, reached[None, :], axis=0)[0]


def _coverage_at_accuracy(event: Scored, block: Block, accuracy: float = _ACCURACY) -> Floats:
    covered, risk = block.cached(_risk_coverage, event)
    good = 1 - risk >= accuracy - 1e-12  # sums of weights are rounded
    return np.minimum(np.max(np.where(good, covered, 0.0), axis=0), 1.0)


_LARGEST = "a maximum over thresholds; use glayers.threshold"
_lower = partial(Metric, kind="loss")
_higher = partial(Metric, kind="loss", better="higher")
METRICS = (
    _higher("auroc", "AUROC of the confidence", _auroc, _HANLEY),
    _lower("aurc", "AURC", _aurc, _GEIFMAN),
    _lower("excess_aurc", "AURC, excess", _excess_aurc, _GEIFMAN),
    _higher("accuracy_at_coverage", "accuracy of the surest 80 %", _accuracy_at_coverage, _GEIFMAN),
    _higher("coverage_at_accuracy", "coverage at 95 % accuracy", _coverage_at_accuracy, _GEIFMAN, unreliable=_LARGEST),
)
