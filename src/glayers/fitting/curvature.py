"""Calibrated logits and labels -> a proper loss for each row, its slope, and a curvature that is never negative.

This is what Newton's method needs, in NumPy. The log loss is convex in the logits and its curvature is exact; for the
Brier score it is the Gauss-Newton curvature. J = diag(p) - p p' is the derivative of softmax.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from glayers.activations import log_softmax, softmax
from glayers.arrays import Array, Floats, Ints
from glayers.errors import GlayersError


class SmoothLoss(NamedTuple):
    """A proper loss of logits (n, k), row by row, as four functions."""

    rows: Callable[[Array, Ints], Floats]  # logits, labels -> the loss of each row
    both: Callable[[Array, Ints], tuple[Floats, Array]]  # logits, labels -> the loss of each row, the probabilities
    slope: Callable[[Array, Ints], Array]  # probabilities, labels -> its derivative by the logits
    curve: Callable[[Array, Array], Array]  # probabilities, direction -> its curvature times a direction in the logits


def _log_losses(logits: Array, labels: Ints) -> Floats:
    return -log_softmax(logits)[np.arange(len(labels)), labels].astype(np.float64)


def _log_losses_and_probabilities(logits: Array, labels: Ints) -> tuple[Floats, Array]:
    shifted = logits - logits.max(axis=1, keepdims=True)
    own = shifted[np.arange(len(labels)), labels]
    powers = np.exp(shifted, out=shifted)
    total = powers.sum(axis=1)
    powers /= total[:, None]
    return (np.log(total) - own).astype(np.float64), powers


def _minus_one_hot(probabilities: Array, labels: Ints) -> Array:
    slope = probabilities.copy()
    slope[np.arange(len(labels)), labels] -= 1
    return slope


def _times_jacobian(probabilities: Array, direction: Array) -> Array:
    return probabilities * (direction - np.vecdot(probabilities, direction)[:, None])


def _distances_and_probabilities(logits: Array, labels: Ints) -> tuple[Floats, Array]:
    probabilities = softmax(logits)
    distance = _minus_one_hot(probabilities, labels)
    return np.vecdot(distance, distance).astype(np.float64), probabilities


SMOOTH_LOSSES: dict[str, SmoothLoss] = {
    "log": SmoothLoss(_log_losses, _log_losses_and_probabilities, _minus_one_hot, _times_jacobian),
    "brier": SmoothLoss(
        lambda logits, labels: _distances_and_probabilities(logits, labels)[0],
        _distances_and_probabilities,
        lambda p, labels: 2 * _times_jacobian(p, _minus_one_hot(p, labels)),
        lambda p, direction: 2 * _times_jacobian(p, _times_jacobian(p, direction)),
    ),
}


def smooth_loss(name: Any) -> SmoothLoss:
    """Return the loss of that name, "log" or "brier"."""
    if not isinstance(name, str) or name not in SMOOTH_LOSSES:
        raise GlayersError(f"loss must be one of {sorted(SMOOTH_LOSSES)}; got {name!r}")
    return SMOOTH_LOSSES[name]
