"""Predictions -> accuracy and proper scores.

A proper score is lowest, on average, when the probabilities are true. The log loss (NLL) and the Brier score are the
two that post-hoc calibration minimises.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from glayers.arrays import Floats, row_blocks
from glayers.checks import whole_number
from glayers.metrics.events import Rows, Scored, check_rows
from glayers.metrics.metric import Metric, defined_by, in_table

__all__ = ["accuracy", "brier", "brier_sum", "confidence_brier", "confidence_nll", "mean_confidence", "nll"]
__all__ += ["top_k_accuracy"]

TOP_K = 5
_GOOD = "Good, J. Royal Statistical Society B 1952"
_BRIER = "Brier, Monthly Weather Review 1950"
_row_mean = partial(defined_by, about="rows", per_row=True, unit="plain", kind="loss")
_confidence_loss = partial(defined_by, per_row=True, unit="plain", kind="loss")


@defined_by("accuracy", "standard", per_row=True, better="higher", kind="share")
def accuracy(event: Scored) -> Floats:
    """Share of rows whose top class is the label; of equal classes the first counts.

    Parameters
    ----------
    probabilities
        Array (n, k), `Predictions` or `Confidences`.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    sample_weight
        Row weights (n,).

    Returns
    -------
    float
        A number from 0 to 1.

    Examples
    --------
    >>> accuracy([[0.7, 0.2, 0.1], [0.4, 0.5, 0.1]], [0, 2])
    0.5
    """
    return event.hits


def _label_within_top(rows: Rows, k: int = TOP_K) -> Floats:
    """Return for each row 1 if its label is among the k most probable classes, else 0."""
    highest = rows.top_classes(min(k, rows.n_classes))
    return (highest == rows.labels[:, None]).any(axis=1).astype(np.float64)


def top_k_accuracy(
    probabilities: object, labels: object = None, *, sample_weight: object = None, k: int = TOP_K
) -> float:
    """Share of rows whose label is among the k classes with the highest probabilities.

    Parameters
    ----------
    probabilities, labels, sample_weight
        As in `accuracy`; `Confidences` do not suffice.
    k
        The number of classes, at most all of them.

    Returns
    -------
    float
        A number from 0 to 1. Top-5 accuracy is that of the ImageNet challenge: Russakovsky et al., IJCV 2015.

    Examples
    --------
    >>> top_k_accuracy([[0.7, 0.2, 0.1], [0.4, 0.5, 0.1]], [1, 2], k=2)
    0.5
    """
    rows = check_rows(probabilities, labels, sample_weight)
    k = whole_number(k, "k", 1, rows.n_classes)
    return replace(_TOP_5, evaluate=partial(_label_within_top, k=k)).score(rows)


_TOP_5 = in_table(
    Metric(
        "top_5_accuracy",
        "accuracy, top {}",
        _label_within_top,
        "Russakovsky et al., IJCV 2015",
        about="rows",
        per_row=True,
        better="higher",
        kind="share",
        at_most=TOP_K,
        function=top_k_accuracy,
    )
)


@defined_by("mean confidence", "standard", name="confidence", per_row=True, better=None, kind="scores")
def mean_confidence(event: Scored) -> Floats:
    """Mean probability of the top class; a calibrated model has the same accuracy.

    Parameters
    ----------
    probabilities, labels, sample_weight
        As in `accuracy`.

    Returns
    -------
    float
        A number from 0 to 1.

    Examples
    --------
    >>> round(mean_confidence([[0.7, 0.2, 0.1], [0.4, 0.5, 0.1]], [0, 2]), 12)
    0.6
    """
    return event.scores


@_row_mean("NLL", _GOOD, digits=4, highest=math.inf)
def nll(rows: Rows) -> Floats:
    """Mean of -log p(label): the log loss, or negative log-likelihood.

    Parameters
    ----------
    probabilities, labels, sample_weight
        As in `accuracy`; `Confidences` do not suffice. With `Predictions` the loss comes from the logits, so that no
        probability rounds to 0.

    Returns
    -------
    float
        Infinite if a label was given probability 0; nothing is clipped. Good, "Rational Decisions", Journal of the
        Royal Statistical Society B, 1952.

    Examples
    --------
    >>> round(nll([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]], [0, 1]), 6) == round(1.5 * float(np.log(2)), 6)
    True
    >>> from glayers import Predictions
    >>> nll(Predictions([[0.0, 1e4], [1e4, 0.0]], [0, 0]))
    5000.0
    """
    return row_losses(rows)


@_row_mean("Brier, mean over classes", _BRIER, digits=5)
def brier(rows: Rows) -> Floats:
    """Squared distance to the one-hot label, averaged over rows and classes.

    Parameters
    ----------
    probabilities, labels, sample_weight
        As in `accuracy`; `Confidences` do not suffice.

    Returns
    -------
    float
        `brier_sum` divided by the number of classes, as in the g-layers paper.

    Examples
    --------
    >>> round(brier([[0.5, 0.5, 0.0]], [0]), 6) == round((0.25 + 0.25) / 3, 6)
    True
    """
    return rows.cached(_row_brier_sums) / rows.n_classes


@_row_mean("Brier, sum over classes", _BRIER, digits=4, highest=2.0)
def brier_sum(rows: Rows) -> Floats:
    """Squared distance to the one-hot label, summed over classes and averaged over rows: Brier's own form.

    Parameters
    ----------
    probabilities, labels, sample_weight
        As in `accuracy`; `Confidences` do not suffice.

    Returns
    -------
    float
        A number from 0 to 2. Brier, Monthly Weather Review, 1950.

    Examples
    --------
    >>> brier_sum([[0.5, 0.5, 0.0]], [0])
    0.5
    """
    return rows.cached(_row_brier_sums)


@_confidence_loss("NLL of the confidence", _GOOD, digits=4, highest=math.inf)
def confidence_nll(event: Scored) -> Floats:
    """Mean log loss of the confidence: of "the answer is right", which is all that `Confidences` know.

    Parameters
    ----------
    probabilities, labels, sample_weight
        As in `accuracy`.
    event
        `top`, `rank(r)`, `within_top(r)`, `label(c)` or `one_of(classes)`.

    Returns
    -------
    float
        At least 0; infinite if an answer of full confidence is wrong. Good, Journal of the Royal Statistical Society B,
        1952.

    Examples
    --------
    >>> round(confidence_nll([[0.8, 0.2], [0.4, 0.6]], [0, 0]), 4)  # -(log 0.8 + log 0.4) / 2
    0.5697
    """
    return _log_losses(np.where(event.hits > 0.5, event.scores, 1 - event.scores))


@_confidence_loss("Brier of the confidence", _BRIER, digits=5)
def confidence_brier(event: Scored) -> Floats:
    """Mean squared difference between the confidence and whether the answer is right.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `confidence_nll`.

    Returns
    -------
    float
        A number from 0 to 1. Brier, Monthly Weather Review, 1950.

    Examples
    --------
    >>> round(confidence_brier([[0.8, 0.2], [0.4, 0.6]], [0, 0]), 4)  # (0.04 + 0.36) / 2
    0.2
    """
    return (event.scores - event.hits) ** 2


def _log_losses(probabilities: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return -np.log(np.maximum(probabilities, 0.0))  # rounding may have left a zero just below 0


def row_losses(rows: Rows) -> Floats:
    """Return the log loss of each row."""
    if rows.losses is not None:
        return rows.losses
    return _log_losses(rows.of_label)


def _row_brier_sums(rows: Rows) -> Floats:
    """Return the squared distance of each row to its one-hot label.

    Within a row squares add up in the array's own precision, float32 at least: within 1e-6.
    """
    squares = np.empty(len(rows))
    for some in row_blocks(*rows.probabilities.shape):
        block = rows.probabilities[some]
        wide = block.astype(np.float32) if block.dtype == np.float16 else block
        squares[some] = np.vecdot(wide, wide)
    return squares - 2 * rows.of_label + 1
