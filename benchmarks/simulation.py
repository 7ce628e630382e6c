"""Rows, classes and a seed -> logits and labels whose best possible loss is known.

Inputs come from a Gaussian mixture with one component per class, close enough together that the best classifier is
right for about 76 % of the rows. Its exact log-posterior is the oracle. The logits of the "network" are the oracle's,
sharpened by 1.6 and shifted per class, so that one scale and one shift per class would calibrate them perfectly.
"""

from typing import NamedTuple

import numpy as np

SHARPENED = 1.6
ACCURACY = 0.76


class Simulated(NamedTuple):
    """Logits (n, k) in float32, labels, and the loss of each row under the true probabilities."""

    logits: np.ndarray
    labels: np.ndarray
    oracle_losses: np.ndarray


def gaussian_mixture(rows: int, classes: int, seed: int = 0) -> Simulated:
    """Draw rows. The mixture and the shifts depend on the number of classes alone: other seeds give fresh rows.

    >>> made = gaussian_mixture(2_000, 10)
    >>> made.logits.shape, bool(0.6 < made.oracle_losses.mean() < 0.8)
    ((2000, 10), True)
    """
    fixed = np.random.default_rng(classes)
    means = fixed.normal(size=(classes, min(classes, 32)))
    shifts = fixed.normal(size=classes) / 2
    means *= _spread(means)
    rng = np.random.default_rng((classes, seed))
    logits, labels = np.empty((rows, classes), dtype=np.float32), np.empty(rows, dtype=np.int64)
    losses = np.empty(rows)
    for first in range(0, rows, 100_000):
        part = slice(first, min(first + 100_000, rows))
        labels[part] = rng.integers(0, classes, part.stop - part.start)
        exact = _log_posterior(means, labels[part], rng)
        losses[part] = -exact[np.arange(len(exact)), labels[part]]
        logits[part] = SHARPENED * exact + shifts
    return Simulated(logits, labels, losses)


def _log_posterior(means: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw one input of each class label around its mean; return log p(class | input)."""
    inputs = means[labels] + rng.normal(size=(len(labels), means.shape[1]))
    scores = inputs @ means.T - (means**2).sum(axis=1) / 2
    scores -= scores.max(axis=1, keepdims=True)
    return np.asarray(scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)))


def _spread(means: np.ndarray) -> float:
    """Return the factor on the means at which the best classifier is right as often as it should be, by bisection."""
    low, high = 0.0, 10.0
    for _ in range(20):
        middle = (low + high) / 2
        rng = np.random.default_rng(1)
        labels = rng.integers(0, len(means), 4_000)
        right = (_log_posterior(middle * means, labels, rng).argmax(axis=1) == labels).mean()
        low, high = (middle, high) if right < ACCURACY else (low, middle)
    return high
