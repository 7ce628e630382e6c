"""Logits -> probabilities by the activation q, which is applied last: everything before it stays on the log scale.

Written against the array API, so the same lines serve NumPy in prediction and torch in fitting.
"""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from glayers.arrays import NUMPY, Array, Floats, Ints, array_namespace, device_of, row_blocks
from glayers.errors import GlayersError


def log_softmax(logits: Any) -> Any:
    """Log-probabilities along the last axis, finite for any finite logits; -inf stays -inf.

    >>> log_softmax(np.array([[0.0, 1e4, -np.inf]])).tolist()
    [[-10000.0, 0.0, -inf]]
    """
    xp = array_namespace(logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    log_total = xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))
    return np.subtract(shifted, log_total, out=shifted) if xp is NUMPY else shifted - log_total


def softmax(logits: Any) -> Any:
    """Probabilities along the last axis; each row sums to 1.

    >>> softmax(np.array([[0.0, 0.0, -1e4, 0.0]])).round(3).tolist()
    [[0.333, 0.333, 0.0, 0.333]]
    """
    xp = array_namespace(logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    powers = np.exp(shifted, out=shifted) if xp is NUMPY else xp.exp(shifted)
    total = xp.sum(powers, axis=-1, keepdims=True)
    return np.divide(powers, total, out=powers) if xp is NUMPY else powers / total


def sigmoid(logits: Any) -> Any:
    """Probabilities of labels that do not exclude each other.

    >>> sigmoid(np.array([[0.0, -1e4, -np.inf]])).tolist()
    [[0.5, 0.0, 0.0]]
    """
    xp = array_namespace(logits)
    return xp.exp(-xp.logaddexp(xp.zeros_like(logits), -logits))


LINKS: dict[str, Callable[[Any], Any]] = {"softmax": softmax, "sigmoid": sigmoid}


def is_top(logits: Any) -> Any:
    """Mark the first of the highest logits of each row, as argmax does."""
    xp = array_namespace(logits)
    return xp.arange(logits.shape[-1], device=device_of(logits)) == xp.argmax(logits, axis=-1, keepdims=True)


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
    xp = array_namespace(logits)
    return xp.concat([xp.zeros_like(logits), logits], axis=-1) if logits.shape[-1] == 1 else logits


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
    kind = np.float64 if logits.dtype == np.float64 else np.float32
    result = np.empty((len(logits), max(2, logits.shape[1])), dtype=dtype or kind)
    losses = np.empty(len(logits))
    with np.errstate(over="ignore"):  # logits too far apart differ by infinity, and exp(-inf) = 0 is right
        for rows in row_blocks(*result.shape):
            block, powers = with_reference_class(logits[rows]), result[rows]
            highest = block.max(axis=1, keepdims=True)
            own = block[np.arange(len(block)), labels[rows]].astype(np.float64) - highest[:, 0]
            np.exp(np.subtract(block, highest, dtype=kind).astype(powers.dtype, copy=False), out=powers)
            sums = powers.sum(axis=1, dtype=np.float64)
            losses[rows] = np.log(sums) - own
            powers /= sums[:, None].astype(powers.dtype)
    return result, losses


@runtime_checkable
class Activation(Protocol):
    """A function q from logits to probabilities that is a submersion, so that g can reach every distribution."""

    def log_probabilities(self, logits: Any) -> Any:
        """Return log q(logits), (..., n, n_classes), written against the array API."""


class Softmax:
    """The usual q: softmax of one logit per class, or sigmoid of one logit for two classes."""

    def log_probabilities(self, logits: Any) -> Any:
        """Return log softmax, after adding the reference class to a single logit."""
        return log_softmax(with_reference_class(logits))


def check_submersion(activation: Activation, n_logits: int, random_state: int = 0, points: int = 16) -> None:
    """Raise an error unless the probabilities can move in every direction at each sampled point.

    At a point z the Jacobian of q must have rank n_classes - 1, the dimension of the simplex. The theorem that a
    minimiser over g is calibrated needs exactly this.

    >>> check_submersion(Softmax(), n_logits=5)
    >>> check_submersion(Softmax(), n_logits=1)
    """
    rng = np.random.default_rng(random_state)
    width = 1e-5
    for z in rng.normal(size=(points, n_logits)):
        moves = np.concatenate([z + width * np.eye(n_logits), z - width * np.eye(n_logits)])
        q = np.exp(np.asarray(activation.log_probabilities(moves)))
        if not np.allclose(q.sum(axis=1), 1):
            raise GlayersError(
                f"{type(activation).__name__} is not an activation: at {z.round(3)} its values do not sum to 1"
            )
        jacobian = (q[:n_logits] - q[n_logits:]) / (2 * width)
        rank = int(np.linalg.matrix_rank(jacobian, tol=1e-7))
        if rank < q.shape[1] - 1:
            raise GlayersError(
                f"{type(activation).__name__} is not a submersion: at {z.round(3)} its Jacobian has rank {rank}, "
                f"but {q.shape[1]} classes need rank {q.shape[1] - 1}"
            )
