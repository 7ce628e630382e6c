"""Predictions -> accuracy and proper scores.

A proper score is lowest, on average, when the probabilities are true. The log loss (NLL) and the Brier score are the
two that post-hoc calibration minimises.
"""

import math
from functools import partial
from operator import attrgetter

import numpy as np

from glayers.arrays import Floats, row_blocks
from glayers.checks import refuse_outside_unit_interval, whole_number
from glayers.metrics.events import Event, Rows, Scored, check_event, check_rows, top
from glayers.metrics.metric import Metric, row_score

__all__ = [
    "accuracy",
    "brier",
    "brier_sum",
    "confidence_brier",
    "confidence_nll",
    "mean_confidence",
    "nll",
    "top_k_accuracy",
]

TOP_K = 5


def accuracy(probabilities: object, labels: object = None, *, sample_weight: object = None) -> float:
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
    share = row_score(_hits, check_event(probabilities, labels, sample_weight))
    return min(share, 1.0)  # weights sum to 1 only up to rounding


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
    return min(row_score(_label_within_top, rows, whole_number(k, "k", 1, rows.n_classes)), 1.0)


def mean_confidence(probabilities: object, labels: object = None, *, sample_weight: object = None) -> float:
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
    return min(row_score(_scores, check_event(probabilities, labels, sample_weight)), 1.0)


def nll(probabilities: object, labels: object = None, *, sample_weight: object = None) -> float:
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
    return row_score(row_losses, check_rows(probabilities, labels, sample_weight))


def brier(probabilities: object, labels: object = None, *, sample_weight: object = None) -> float:
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
    return row_score(_row_briers, check_rows(probabilities, labels, sample_weight))


def brier_sum(probabilities: object, labels: object = None, *, sample_weight: object = None) -> float:
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
    return row_score(_row_brier_sums, check_rows(probabilities, labels, sample_weight))


def confidence_nll(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
) -> float:
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
    return row_score(_confidence_losses, check_event(probabilities, labels, sample_weight, event=event))


def confidence_brier(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
) -> float:
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
    return row_score(_confidence_squares, check_event(probabilities, labels, sample_weight, event=event))


_hits = attrgetter("hits")
_scores = attrgetter("scores")


def _confidence_losses(event: Scored) -> Floats:
    """Return each row's log loss of "the answer is right", which confidences alone can give."""
    return _log_losses(np.where(event.hits > 0.5, event.scores, 1 - event.scores))


def _confidence_squares(event: Scored) -> Floats:
    return (event.scores - event.hits) ** 2


def _label_within_top(rows: Rows, k: int = TOP_K) -> Floats:
    """Return for each row 1 if its label is among the k most probable classes, else 0."""
    if rows.losses is None:
        _ = rows.top  # refuses values that are not probabilities
    highest = rows.top_classes(min(k, rows.n_classes))
    return (highest == rows.labels[:, None]).any(axis=1).astype(np.float64)


def _log_losses(probabilities: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return -np.log(np.maximum(probabilities, 0.0))  # rounding may have left a zero just below 0


def row_losses(rows: Rows) -> Floats:
    """Return the log loss of each row."""
    if rows.losses is not None:
        return rows.losses
    refuse_outside_unit_interval(rows.of_label, "probabilities")
    return _log_losses(rows.of_label)


def _row_briers(rows: Rows) -> Floats:
    return rows.cached(_row_brier_sums) / rows.n_classes


def _row_brier_sums(rows: Rows) -> Floats:
    """Return the squared distance of each row to its one-hot label.

    Within a row squares add up in the array's own precision, float32 at least: within 1e-6.
    """
    squares = np.empty(len(rows))
    for some in row_blocks(*rows.probabilities.shape):
        block = rows.probabilities[some]
        wide = block.astype(np.float32) if block.dtype == np.float16 else block
        squares[some] = np.vecdot(wide, wide)
    # No distribution has squares that sum to more than 1; logits and NaN do.
    refuse_outside_unit_interval(squares, "sums of squared probabilities")
    refuse_outside_unit_interval(rows.of_label, "probabilities")
    return squares - 2 * rows.of_label + 1


_GOOD = "Good, J. Royal Statistical Society B 1952"
_BRIER = "Brier, Monthly Weather Review 1950"
_RUSSAKOVSKY = "Russakovsky et al., IJCV 2015"
_share = partial(Metric, better="higher", kind="share")
_row_loss = partial(Metric, about="rows", unit="plain", kind="loss")
_confidence_loss = partial(Metric, per_row=True, unit="plain", kind="loss")
METRICS = (
    _share("accuracy", "accuracy", _hits, "standard", per_row=True),
    _share("top_5_accuracy", "accuracy, top {}", _label_within_top, _RUSSAKOVSKY, about="rows", at_most=TOP_K),
    Metric("confidence", "mean confidence", _scores, "standard", per_row=True, better=None, kind="scores"),
    _row_loss("nll", "NLL", row_losses, _GOOD, digits=4, highest=math.inf),
    _row_loss("brier", "Brier, mean over classes", _row_briers, _BRIER, digits=5),
    _row_loss("brier_sum", "Brier, sum over classes", _row_brier_sums, _BRIER, digits=4, highest=2.0),
    _confidence_loss("confidence_nll", "NLL of the confidence", _confidence_losses, _GOOD, digits=4, highest=math.inf),
    _confidence_loss("confidence_brier", "Brier of the confidence", _confidence_squares, _BRIER, digits=5),
)
