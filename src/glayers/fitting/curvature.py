"""Calibrated logits and labels -> a proper loss for each row, its slope, and a curvature that is never negative.

This is what Newton's method needs, in NumPy. The log loss is convex in the logits and its curvature is exact; for the
Brier score it is the Gauss-Newton curvature. J = diag(p) - p p' is the derivative of softmax.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Floats, Ints
from glayers.errors import GlayersError


class SmoothLoss(NamedTuple):
    """A proper loss of logits (n, k), row by row."""

    both: Callable[[Array, Ints], tuple[Floats, Array]]  # logits, labels -> the loss of each row, the probabilities
    slope: Callable[[Array, Ints], Array]  # probabilities, labels -> its derivative by the logits
    curve: Callable[[Array, Array], Array]  # probabilities, direction -> its curvature times a direction in the logits

    def rows(self, logits: Array, labels: Ints) -> Floats:
        """Return the loss of each row."""
        return self.both(logits, labels)[0]


def _log_losses_and_probabilities(logits: Array, labels: Ints) -> tuple[Floats, Array]:
    shifted = logits - logits.max(axis=1, keepdims=True)
    own = shifted[np.arange(len(labels)), labels]
    powers = np.exp(shifted, out=shifted)
    total = powers.sum(axis=1)
    powers /= total[:, None]
    return (np.log(total) - own).astype(np.float64), powers


def _brier_scores_and_probabilities(logits: Array, labels: Ints) -> tuple[Floats, Array]:
    probabilities = softmax(logits)
    distance = _minus_one_hot(probabilities, labels)
    return np.vecdot(distance, distance).astype(np.float64), probabilities


def _minus_one_hot(probabilities: Array, labels: Ints) -> Array:
    slope = probabilities.copy()
    slope[np.arange(len(labels)), labels] -= 1
    return slope


def _times_jacobian(probabilities: Array, direction: Array) -> Array:
    return probabilities * (direction - np.vecdot(probabilities, direction)[:, None])


def _brier_slope(probabilities: Array, labels: Ints) -> Array:
    return 2 * _times_jacobian(probabilities, _minus_one_hot(probabilities, labels))


def _brier_curve(probabilities: Array, direction: Array) -> Array:
    return 2 * _times_jacobian(probabilities, _times_jacobian(probabilities, direction))


SMOOTH_LOSSES: dict[str, SmoothLoss] = {
    "log": SmoothLoss(_log_losses_and_probabilities, _minus_one_hot, _times_jacobian),
    "brier": SmoothLoss(_brier_scores_and_probabilities, _brier_slope, _brier_curve),
}


def smooth_loss(name: Any) -> SmoothLoss:
    """Return the loss of that name, "log" or "brier"."""
    if not isinstance(name, str) or name not in SMOOTH_LOSSES:
        raise GlayersError(f"loss must be one of {sorted(SMOOTH_LOSSES)}; got {name!r}")
    return SMOOTH_LOSSES[name]
