"""Logits -> probabilities: q comes last, and everything before it stays on the log scale.

Written against the array API, so the same lines serve NumPy when predicting and torch when fitting.
"""

from typing import Any, Protocol

import numpy as np
from array_api_compat import array_namespace

from glayers.errors import GlayersError


def log_softmax(logits: Any) -> Any:
    """Log-probabilities along the last axis, finite for any finite logits.

    >>> import numpy as np
    >>> log_softmax(np.array([[0.0, 1e4]])).tolist()
    [[-10000.0, 0.0]]
    """
    xp = array_namespace(logits)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    return shifted - xp.log(xp.sum(xp.exp(shifted), axis=-1, keepdims=True))


def softmax(logits: Any) -> Any:
    """Probabilities along the last axis; each row sums to 1.

    >>> import numpy as np
    >>> softmax(np.array([[0.0, 0.0, -1e4, 0.0]])).round(3).tolist()
    [[0.333, 0.333, 0.0, 0.333]]
    """
    xp = array_namespace(logits)
    powers = xp.exp(logits - xp.max(logits, axis=-1, keepdims=True))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def with_reference_class(logits: Any) -> Any:
    """Turn the one logit of a binary model into two, so that softmax gives (1 - sigmoid, sigmoid).

    >>> import numpy as np
    >>> with_reference_class(np.array([[2.0]])).tolist()
    [[0.0, 2.0]]
    """
    xp = array_namespace(logits)
    return xp.concat([xp.zeros_like(logits), logits], axis=-1) if logits.shape[-1] == 1 else logits


class Activation(Protocol):
    """Any q that turns logits into probabilities: a submersion, so that g can reach every distribution."""

    def log_probabilities(self, logits: Any) -> Any:
        """Return log q(logits), (..., n, n_classes), written against the array API."""


class Softmax:
    """The usual q: one logit a class, or one logit for two classes, where it is the sigmoid."""

    def log_probabilities(self, logits: Any) -> Any:
        """Return log softmax, after giving a lone logit its reference class."""
        return log_softmax(with_reference_class(logits))


def check_submersion(activation: Activation, n_logits: int, random_state: int = 0, points: int = 16) -> None:
    """Raise unless the probabilities can move in every direction at each of some sampled points.

    At a point z the Jacobian of q must have rank n_classes - 1, the dimension of the simplex; the theorem that a
    minimiser over g is calibrated needs just this.

    >>> check_submersion(Softmax(), n_logits=5)
    >>> check_submersion(Softmax(), n_logits=1)
    """
    rng = np.random.default_rng(random_state)
    width = 1e-5
    for z in rng.normal(size=(points, n_logits)):
        moves = np.concatenate([z + width * np.eye(n_logits), z - width * np.eye(n_logits)])
        q = np.exp(np.asarray(activation.log_probabilities(moves)))
        if not np.allclose(q.sum(axis=1), 1):
            raise GlayersError(f"{type(activation).__name__} is no activation: at {z.round(3)} it does not sum to 1")
        jacobian = (q[:n_logits] - q[n_logits:]) / (2 * width)
        rank = int(np.linalg.matrix_rank(jacobian, tol=1e-7))
        if rank < q.shape[1] - 1:
            raise GlayersError(
                f"{type(activation).__name__} is no submersion: at {z.round(3)} its Jacobian has rank {rank}, "
                f"and {q.shape[1]} classes need {q.shape[1] - 1}"
            )
