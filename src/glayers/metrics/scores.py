"""Probabilities and labels -> accuracy and proper scores.

A proper score is lowest, on average, when the probabilities are true; the log loss (NLL) and the Brier score are the
two that post-hoc calibration minimises.
"""

from dataclasses import dataclass

import numpy as np

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Floats, check_labels, check_weights, row_blocks, to_floats
from glayers.errors import BadPredictions
from glayers.metrics.checks import Checked, check, refuse_outside_unit_interval, top
from glayers.metrics.ranking import label_ranks


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
    """Share of rows whose label is among the k highest classes.

    >>> top_k_accuracy([[0.7, 0.2, 0.1], [0.4, 0.5, 0.1]], [1, 2], k=2)
    0.5
    """
    checked = check(probabilities, labels, weights)
    if not 1 <= k <= checked.probabilities.shape[1]:
        raise BadPredictions(f"k must lie in 1..{checked.probabilities.shape[1]}; got {k}")
    top(checked)  # refuses what are no probabilities
    hits = label_ranks(checked.probabilities, checked.labels) < k
    return _weighted(hits.astype(np.float64), checked.weights)


def nll(probabilities: object, labels: object, weights: object = None) -> float:
    """Mean of -log p(label): the log loss. Infinite if a label was given probability 0; nothing is clipped.

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

    >>> nll_from_logits([[0.0, 1e4], [1e4, 0.0]], [0, 0])
    5000.0
    """
    given = to_floats(logits, "logits")
    if given.ndim != 2 or given.size == 0:
        raise BadPredictions(f"logits must have shape (rows, classes); got {given.shape}")
    n_classes = max(2, given.shape[1])
    truth = check_labels(labels, len(given), n_classes)
    losses = np.empty(len(given))
    for rows in row_blocks(*given.shape):
        block = log_softmax(with_reference_class(given[rows].astype(np.float64)))
        losses[rows] = -block[np.arange(len(block)), truth[rows]]
    if np.isnan(losses).any():
        raise BadPredictions(f"logits must be finite; row {np.flatnonzero(np.isnan(losses))[0]} is not")
    return float(losses.mean() if weights is None else np.average(losses, weights=check_weights(weights, len(given))))


def brier(probabilities: object, labels: object, weights: object = None) -> float:
    """Squared distance to the one-hot label, averaged over rows and classes, as in the g-layers paper.

    >>> round(brier([[0.5, 0.5, 0.0]], [0]), 6) == round((0.25 + 0.25) / 3, 6)
    True
    """
    checked = check(probabilities, labels, weights)
    return _brier_sum(checked) / checked.probabilities.shape[1]


def brier_sum(probabilities: object, labels: object, weights: object = None) -> float:
    """Squared distance to the one-hot label, summed over classes and averaged over rows: Brier's own form.

    >>> brier_sum([[0.5, 0.5, 0.0]], [0])
    0.5
    """
    return _brier_sum(check(probabilities, labels, weights))


def proper_scores(probabilities: object, labels: object, weights: object = None) -> ProperScores:
    """All proper scores at once; the spherical score is 1 - p(label) / |p|.

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
