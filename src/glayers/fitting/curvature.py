"""Calibrated logits and labels -> a proper loss for each row, its slope, and a curvature that is never negative.

What Newton's method needs, in NumPy. The log loss is convex in the logits and its curvature exact; for the Brier score
it is Gauss and Newton's.
"""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from glayers.activations import log_softmax, softmax
from glayers.arrays import Array, Floats, Ints
from glayers.errors import GlayersError


class SmoothLoss(ABC):
    """A proper loss of logits (n, k), row by row."""

    @abstractmethod
    def rows(self, logits: Array, labels: Ints) -> Floats:
        """Return the loss of each row."""

    @abstractmethod
    def slope(self, probabilities: Array, labels: Ints) -> Array:
        """Return the derivative of each row's loss by its logits."""

    @abstractmethod
    def curve(self, probabilities: Array, direction: Array) -> Array:
        """Return each row's curvature times a direction in its logits."""

    @abstractmethod
    def curve_diagonal(self, probabilities: Array) -> Array:
        """Return the diagonal of each row's curvature."""


class SmoothLogLoss(SmoothLoss):
    """-log p(label), of curvature diag(p) - p p'."""

    def rows(self, logits: Array, labels: Ints) -> Floats:
        """Return the loss of each row."""
        own = log_softmax(logits)[np.arange(len(labels)), labels]
        return -own.astype(np.float64)

    def slope(self, probabilities: Array, labels: Ints) -> Array:
        """Return p minus the one-hot label."""
        slope = probabilities.copy()
        slope[np.arange(len(labels)), labels] -= 1
        return slope

    def curve(self, probabilities: Array, direction: Array) -> Array:
        """Return (diag(p) - p p') v."""
        return _jacobian(probabilities, direction)

    def curve_diagonal(self, probabilities: Array) -> Array:
        """Return p (1 - p)."""
        return probabilities * (1 - probabilities)


class SmoothBrier(SmoothLoss):
    """Squared distance between p and the one-hot label, of Gauss-Newton curvature 2 J J with J = diag(p) - p p'."""

    def rows(self, logits: Array, labels: Ints) -> Floats:
        """Return the loss of each row."""
        distance = SmoothLogLoss().slope(softmax(logits), labels)
        return np.vecdot(distance, distance).astype(np.float64)

    def slope(self, probabilities: Array, labels: Ints) -> Array:
        """Return 2 J (p - one-hot)."""
        return 2 * _jacobian(probabilities, SmoothLogLoss().slope(probabilities, labels))

    def curve(self, probabilities: Array, direction: Array) -> Array:
        """Return 2 J J v."""
        return 2 * _jacobian(probabilities, _jacobian(probabilities, direction))

    def curve_diagonal(self, probabilities: Array) -> Array:
        """Return 2 sum_i J_ij^2 = 2 p_j^2 (1 - 2 p_j + sum_i p_i^2)."""
        squares = np.vecdot(probabilities, probabilities)[:, None]
        return 2 * probabilities**2 * (1 - 2 * probabilities + squares)


SMOOTH_LOSSES: dict[str, SmoothLoss] = {"log": SmoothLogLoss(), "brier": SmoothBrier()}


def smooth_loss(name: Any) -> SmoothLoss:
    """Return the loss of that name."""
    if not isinstance(name, str) or name not in SMOOTH_LOSSES:
        raise GlayersError(f"loss must be one of {sorted(SMOOTH_LOSSES)}; got {name!r}")
    return SMOOTH_LOSSES[name]


def _jacobian(probabilities: Array, direction: Array) -> Array:
    return probabilities * (direction - np.vecdot(probabilities, direction)[:, None])
