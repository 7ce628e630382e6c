"""Several predictions of the same rows -> the weights of their mixture, in which the log loss is convex."""

from collections.abc import Sequence

import numpy as np

from glayers.arrays import Floats, Ints, effective_rows

_SMALLEST = np.finfo(np.float64).tiny  # stands for a probability of 0, whose logarithm is not finite


def held_out_weights(parts: Sequence[Floats], labels: Ints, row_weights: Floats, extra_rows: Sequence[float]) -> Floats:
    """Return the weights of least held-out log loss, given probabilities (n, classes) of each part.

    The prior adds, for each part, `extra_rows` rows that only this part explains.

    >>> sure, unsure = np.array([[0.9, 0.1]] * 3), np.full((3, 2), 0.5)
    >>> labels = np.array([0, 0, 1])
    >>> held_out_weights([sure, unsure], labels, np.ones(3), [0, 0]).round(3).tolist()
    [0.417, 0.583]
    """
    own = np.array([part[np.arange(len(labels)), labels] for part in parts])
    of_rows = row_weights / row_weights.sum()
    own = np.concatenate([own, np.eye(len(parts))], axis=1)
    of_rows = np.append(of_rows, np.array(extra_rows) / effective_rows(row_weights))
    return _least_log_loss(own, of_rows / of_rows.sum())


def _least_square(products: Floats, means: Floats) -> Floats:
    """Minimise w' A w - 2 b . w over weights that are not negative and sum to 1."""
    from scipy.optimize import nnls  # on first use: importing it takes longer than glayers

    n_parts = len(means)
    scale = np.trace(products) / n_parts
    root = np.linalg.cholesky(products / scale + 1e-12 * np.eye(n_parts))
    sums = np.full((1, n_parts), 1e4)  # a strong row that says that the weights sum to 1
    target = np.append(np.linalg.solve(root, means / scale), 1e4)
    found, _ = nnls(np.concatenate([root.T, sums]), target)
    return np.asarray(found / found.sum())


def _least_log_loss(own: Floats, of_rows: Floats) -> Floats:
    """Minimise the mean of -log(w . q) over weights by Newton's method, each step on the simplex."""
    weights = np.full(len(own), 1 / len(own))

    def loss(w: Floats) -> float:
        return -float(of_rows @ np.log(np.maximum(w @ own, _SMALLEST)))

    now = loss(weights)
    for _ in range(50):
        ratios = own / np.maximum(weights @ own, _SMALLEST)
        growth = ratios @ of_rows
        if growth.max() <= weights @ growth + 1e-7:  # the loss is at most this far above the optimum
            break
        curvature = (ratios * of_rows) @ ratios.T
        towards = _least_square(curvature, curvature @ weights + growth) - weights
        length = 1.0
        while length > 1e-6:
            # Near 0, the loss of a row that only this part explains is far from a parabola.
            reached = np.maximum(weights + length * towards, weights / 10)
            reached /= reached.sum()
            there = loss(reached)
            if there < now:
                break
            length /= 2
        else:
            break
        weights = reached
        now = there
    return weights


def uniform_share(p: Floats, uniform: Floats, labels: Ints, weights: Floats) -> float:
    """Return the share of uniform probabilities that n rows cannot rule out: as many rows again speak against it.

    If all rows are certain and right, it is about 0.05 / n. One label of probability 0 raises it to about 0.5 / n.

    >>> labels = np.zeros(100, int)
    >>> right, uniform = np.eye(10)[labels], np.full((100, 10), 0.1)
    >>> [round(uniform_share(right, uniform, y, np.ones(100)), 4) for y in (labels, np.append(labels[1:], 1))]
    [0.0005, 0.0058]
    """
    extra_rows = [effective_rows(weights), 0.1]
    return float(held_out_weights([p, uniform], labels, weights, extra_rows)[1])
