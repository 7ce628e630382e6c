"""Probabilities and labels -> accuracy and proper scores.

A proper score is lowest, on average, when the probabilities are true; the log loss (NLL) and the Brier score are the
two that post-hoc calibration minimises.
"""

from dataclasses import dataclass

import numpy as np

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Array, Floats, check_labels, row_blocks
from glayers.logits import check_logits
from glayers.metrics.old.checks import Checked, check, shares, top
from glayers.metrics.old.ranking import label_ranks
from glayers.probabilities import refuse_outside_unit_interval
from glayers.settings import whole_number


@dataclass(frozen=True)
class ProperScores:
    """The proper scores of one set of predictions; lower is better."""

    nll: float
    brier: float
    brier_sum: float
    spherical: float


def accuracy(probabilities: object, labels: object, weights: object = None) -> float:
    """Share of rows whose highest class is the label; of equal classes the first counts.

    >>> accuracy([[0.7, 0.2, 0.1], [0.4, 0.5, 0.1]], [0, 2])
    0.5
    """
    checked = check(probabilities, labels, weights)
    event = top(checked)
    return _weighted(event.hits, event.weights)


def top_k_accuracy(probabilities: object, labels: object, weights: object = None, k: int = 5) -> float:
    """Share of rows whose label is among the k highest classes; k must not exceed their number.

    Top-5 accuracy is that of the ImageNet challenge: Russakovsky et al., IJCV 2015.

    >>> top_k_accuracy([[0.7, 0.2, 0.1], [0.4, 0.5, 0.1]], [1, 2], k=2)
    0.5
    """
    checked = check(probabilities, labels, weights)
    k = whole_number(k, "k", 1, checked.probabilities.shape[1])
    top(checked)  # refuses what are no probabilities
    hits = label_ranks(checked.probabilities, checked.labels) < k
    return _weighted(hits.astype(np.float64), checked.weights)


def nll(probabilities: object, labels: object, weights: object = None) -> float:
    """Mean of -log p(label): the log loss. Infinite if a label was given probability 0; nothing is clipped.

    Good, "Rational Decisions", Journal of the Royal Statistical Society B, 1952.

    >>> round(nll([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]], [0, 1]), 6) == round(1.5 * float(np.log(2)), 6)
    True
    """
    checked = check(probabilities, labels, weights)
    of_label = checked.probabilities[np.arange(len(checked.labels)), checked.labels].astype(np.float64)
    refuse_outside_unit_interval(of_label, "probabilities")
    with np.errstate(divide="ignore"):
        losses = -np.log(of_label)
    return _weighted(losses, checked.weights)


def nll_from_logits(logits: object, labels: object, weights: object = None) -> float:
    """Mean log loss of softmax(logits), in float64 whatever the precision of the logits.

    Good, "Rational Decisions", Journal of the Royal Statistical Society B, 1952.

    >>> nll_from_logits([[0.0, 1e4], [1e4, 0.0]], [0, 0])
    5000.0
    """
    return mean_log_loss(check_logits(logits), labels, weights)


def brier(probabilities: object, labels: object, weights: object = None) -> float:
    """Squared distance to the one-hot label, averaged over rows and classes, as in the g-layers paper.

    Brier, Monthly Weather Review, 1950, who adds over classes instead.

    >>> round(brier([[0.5, 0.5, 0.0]], [0]), 6) == round((0.25 + 0.25) / 3, 6)
    True
    """
    checked = check(probabilities, labels, weights)
    return _brier_sum(checked) / checked.probabilities.shape[1]


def brier_sum(probabilities: object, labels: object, weights: object = None) -> float:
    """Squared distance to the one-hot label, summed over classes and averaged over rows: Brier's own form.

    Brier, Monthly Weather Review, 1950.

    >>> brier_sum([[0.5, 0.5, 0.0]], [0])
    0.5
    """
    return _brier_sum(check(probabilities, labels, weights))


def proper_scores(probabilities: object, labels: object, weights: object = None) -> ProperScores:
    """All proper scores at once; the spherical score is 1 - p(label) / |p|.

    Gneiting and Raftery, "Strictly Proper Scoring Rules", Journal of the American Statistical Association, 2007.

    >>> proper_scores([[0.6, 0.0, 0.8]], [2]).brier_sum.__round__(3)
    0.4
    """
    checked = check(probabilities, labels, weights)
    squares, own = _squares_and_own(checked)
    total = _weighted(squares - 2 * own + 1, checked.weights)
    return ProperScores(
        nll=nll(probabilities, labels, weights),
        brier=total / checked.probabilities.shape[1],
        brier_sum=total,
        spherical=_weighted(1 - own / np.sqrt(squares), checked.weights),
    )


def mean_log_loss(logits: Array, labels: object, weights: object) -> float:
    """Mean log loss of softmax(logits), for logits that are known to be finite."""
    truth = check_labels(labels, len(logits), max(2, logits.shape[1]))
    share, _ = shares(weights, len(logits))
    losses = np.empty(len(logits))
    with np.errstate(over="ignore"):  # logits 1e308 apart differ by infinity, and so does the loss
        for rows in row_blocks(*logits.shape):
            block = log_softmax(with_reference_class(logits[rows].astype(np.float64)))
            losses[rows] = -block[np.arange(len(block)), truth[rows]]
        return _weighted(losses, share)


def _brier_sum(checked: Checked) -> float:
    squares, own = _squares_and_own(checked)
    return _weighted(squares - 2 * own + 1, checked.weights)


def _squares_and_own(checked: Checked) -> tuple[Floats, Floats]:
    """Sum of squares and probability of the label, row by row.

    Within a row squares add up in the array's own precision, float32 at least: within 1e-6. All else is float64.
    """
    squares, own = np.empty(len(checked.labels)), np.empty(len(checked.labels))
    for rows in row_blocks(*checked.probabilities.shape):  # picked while the block is still in the cache
        block = checked.probabilities[rows]
        wide = block.astype(np.float32) if block.dtype == np.float16 else block
        squares[rows] = np.vecdot(wide, wide)
        own[rows] = block[np.arange(len(block)), checked.labels[rows]]
    # No distribution has squares that sum to more than 1; logits and NaN do.
    refuse_outside_unit_interval(squares, "sums of squared probabilities")
    refuse_outside_unit_interval(own, "probabilities")
    return squares, own


def _weighted(losses: Floats, weights: Floats) -> float:
    counted = weights > 0  # a row of weight 0 may have an infinite loss
    return float((losses[counted] * weights[counted]).sum())
