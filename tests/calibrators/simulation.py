"""Logits whose true P(y | z) is known and is not their softmax: what the theorem is tested on."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from glayers import metrics
from glayers.activations import softmax
from tests.strategies import Numbers


class Sample(NamedTuple):
    logits: Numbers
    truth: Numbers
    labels: Numbers


def crossed(z: Numbers) -> Numbers:
    """Flattened, and each class also moved by its neighbour's logit."""
    centred = z - z.mean(axis=1, keepdims=True)
    return 1.5 * np.tanh(centred) + 0.6 * np.roll(centred, 1, axis=1)


def by_class(z: Numbers) -> Numbers:
    """Another monotone curve for odd classes than for even ones, and another prior for each."""
    centred, k = z - z.mean(axis=1, keepdims=True), np.arange(z.shape[1])
    flattened, sharpened = 2.5 * np.arctan(1.5 * centred), np.sign(centred) * np.abs(centred) ** 1.5 / 2
    return np.where(k % 2, flattened, sharpened) + 0.4 * (k - k.mean())


def lone(z: Numbers) -> Numbers:
    """One logit, two classes: not even monotone."""
    return np.hstack([np.zeros_like(z), 2 * np.tanh(z) + 0.8 * np.sin(2 * z) - 0.5])


def sample(distortion: Callable[[Numbers], Numbers], n_logits: int, rows: int, seed: int) -> Sample:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, n_logits)) * 2
    truth = softmax(distortion(z))
    return Sample(z, truth, draw(truth, rng))


def draw(probabilities: Numbers, rng: np.random.Generator) -> Numbers:
    return (probabilities.cumsum(axis=1) > rng.random((len(probabilities), 1))).argmax(axis=1)


def divergence(truth: Numbers, claimed: Numbers) -> float:
    """Mean KL divergence of what is claimed from the truth."""
    return float((truth * (np.log(truth) - np.log(claimed))).sum(axis=1).mean())


def ks_in_bounds(p: Numbers, labels: Numbers) -> dict[str, float]:
    """KS errors of every kind, each as a multiple of the bound that a calibrated model passes 95 times in 100.

    The running sum is then a random walk of variance mean s (1 - s) / n, and its largest value exceeds 2.24 standard
    deviations one time in twenty.
    """
    ranked = -np.sort(-p, axis=1)
    classes = p.shape[1]
    result = {}
    for r in range(1, min(4, classes) + 1):
        result[f"rank {r}"] = metrics.ks(p, labels, event=metrics.rank(r)) / _bound(ranked[:, r - 1])
    for r in range(2, min(4, classes)):
        result[f"within top {r}"] = metrics.ks(p, labels, event=metrics.within_top(r)) / _bound(
            ranked[:, :r].sum(axis=1)
        )
    for c, error in enumerate(metrics.ks_per_class(p, labels)):
        result[f"class {c}"] = float(error) / _bound(p[:, c])
    for subset in ([0, 1], [0, 2], list(range(classes - 1))) if classes > 2 else []:
        result[f"subset {subset}"] = metrics.ks(p, labels, event=metrics.one_of(subset)) / _bound(
            p[:, subset].sum(axis=1)
        )
    return result


def _bound(scores: Numbers) -> float:
    return 2.24 * float(np.sqrt((scores * (1 - scores)).mean() / len(scores)))
