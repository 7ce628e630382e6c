"""Logits -> probabilities: q comes last, and everything before it stays on the log scale.

Written against the array API, so the same lines serve NumPy when predicting and torch when fitting.
"""

from typing import Any

from array_api_compat import array_namespace


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
