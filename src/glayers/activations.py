"""Logits -> probabilities by softmax or sigmoid, applied last: everything before stays on the log scale.

Written against the array API, so the same lines serve NumPy in prediction and torch in fitting.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from glayers.arrays import Array, Floats, Ints, array_namespace, device_of, row_blocks


def log_softmax(logits: Any) -> Any:
    """Log-probabilities along the last axis, finite for any finite logits; -inf stays -inf.

    >>> log_softmax(np.array([[0.0, 1e4, -np.inf]])).tolist()
    [[-10000.0, 0.0, -inf]]
    """
    xp = array_namespace(logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    log_total = xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
    shifted -= log_total
    return shifted


def softmax(logits: Any) -> Any:
    """Probabilities along the last axis; each row sums to 1.

    >>> softmax(np.array([[0.0, 0.0, -1e4, 0.0]])).round(3).tolist()
    [[0.333, 0.333, 0.0, 0.333]]
    """
    xp = array_namespace(logits)
    powers = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def sigmoid(logits: Any) -> Any:
    """Probabilities of labels that do not exclude each other.

    >>> sigmoid(np.array([[0.0, -1e4, -np.inf]])).tolist()
    [[0.5, 0.0, 0.0]]
    """
    xp = array_namespace(logits)
    top = xp.exp(xp.clip(logits, max=0.0))  # no power of e can overflow
    return top / (1.0 + xp.exp(-xp.abs(logits)))


def log_sigmoid(logits: Any) -> Any:
    """Logarithms of `sigmoid`, to full precision: log_sigmoid(-x) is the log-probability of the absence.

    >>> log_sigmoid(np.array([[0.0, -1e4]])).round(4).tolist()
    [[-0.6931, -10000.0]]
    """
    xp = array_namespace(logits)
    return xp.clip(logits, max=0.0) - xp.log1p(xp.exp(-xp.abs(logits)))


LINKS: dict[str, Callable[[Any], Any]] = {"softmax": softmax, "sigmoid": sigmoid}


def is_top(logits: Any) -> Any:
    """Mark the first of the highest logits of each row, as argmax does."""
    xp = array_namespace(logits)
    classes = xp.arange(logits.shape[-1], device=device_of(logits))
    return classes == xp.argmax(logits, axis=-1, keepdims=True)


def keep_impossible(results: Any, logits: Any) -> Any:
    """Return the results with -inf wherever a logit is -inf: the class is impossible in that row.

    >>> keep_impossible(np.array([[1.0, 2.0]]), np.array([[0.0, -np.inf]])).tolist()
    [[1.0, -inf]]
    """
    xp = array_namespace(logits)
    return xp.where(logits == -xp.inf, -xp.inf, results)


def with_reference_class(logits: Any) -> Any:
    """Turn the one logit of a binary model into two, so that softmax gives (1 - sigmoid, sigmoid).

    >>> with_reference_class(np.array([[2.0]])).tolist()
    [[0.0, 2.0]]
    """
    if logits.shape[-1] != 1:
        return logits
    xp = array_namespace(logits)
    return xp.concat([xp.zeros_like(logits), logits], axis=-1)


def as_one_logit(logits: Any) -> Any:
    """Turn the two logits of a binary model into one, whose sigmoid is the probability of class 1; one stays one.

    >>> as_one_logit(np.array([[1.0, 3.0]])).tolist(), as_one_logit(np.array([[2.0]])).tolist()
    ([[2.0]], [[2.0]])
    """
    if logits.shape[-1] == 1:
        return logits
    return logits[..., 1:] - logits[..., :1]


def probabilities_of(logits: Array, dtype: Any = None) -> Array:
    """Softmax (n, classes), block by block, as `dtype`: by default float64 for float64 logits, else float32.

    >>> probabilities_of(np.array([[0.0], [np.log(3)]])).round(2).tolist()
    [[0.5, 0.5], [0.25, 0.75]]
    """
    return probabilities_and_losses(logits, np.zeros(len(logits), np.int64), dtype)[0]


def probabilities_and_losses(logits: Array, labels: Ints, dtype: Any = None) -> tuple[Array, Floats]:
    """Return `probabilities_of` and -log softmax of the label of each row, in one pass over the logits.

    If the result is float32, so are the powers of e, which takes a third of the time. Differences of logits and sums
    have the full precision, so that probabilities and mean losses are within 2e-7 of those computed in float64.

    >>> probabilities_and_losses(np.array([[0.0], [np.log(3)]]), np.array([0, 1]))[1].round(4).tolist()
    [0.6931, 0.2877]
    """
    wide = np.float64 if logits.dtype == np.float64 else np.float32
    result = np.empty((len(logits), max(2, logits.shape[1])), dtype=dtype or wide)
    losses = np.empty(len(logits))
    with np.errstate(over="ignore"):  # logits too far apart differ by infinity, and exp(-inf) = 0 is right
        for rows in row_blocks(*result.shape):
            block = with_reference_class(logits[rows]).astype(wide, copy=False)
            highest = block.max(axis=1)
            below = block - highest[:, None]
            powers = np.exp(below.astype(result.dtype, copy=False))
            sums = powers.sum(axis=1, dtype=np.float64)
            result[rows] = powers / sums[:, None].astype(result.dtype)
            own = block[np.arange(len(block)), labels[rows]]
            losses[rows] = np.log(sums) - np.subtract(own, highest, dtype=np.float64)
    return result, losses
