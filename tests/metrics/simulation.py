"""Models whose logits are known multiples of the true ones: calibrated at 1, overconfident above."""

import numpy as np

from tests.strategies import Numbers


def sample(seed: int, n: int, k: int, sharpness: float = 1.0, scale: float = 2.0) -> tuple[Numbers, Numbers]:
    """Probabilities of a model whose logits are `sharpness` times the true ones, and true labels."""
    rng = np.random.default_rng(seed)
    logits = scale * rng.normal(size=(n, k))
    truth, claimed = np.exp(logits), np.exp(sharpness * logits)
    reached = truth.cumsum(axis=1)
    labels = (reached < rng.random((n, 1)) * reached[:, -1:]).sum(axis=1)
    return claimed / claimed.sum(axis=1, keepdims=True), labels
