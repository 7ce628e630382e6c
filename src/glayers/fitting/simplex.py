"""Several predictions of the same rows -> the weights of their mixture; either loss is convex in them."""

from collections.abc import Sequence

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Floats, Ints, effective_rows, row_blocks
from glayers.fitting.newton import Optimum

# Exponent of the prior of `uniform_share`: spread over orders of magnitude below 1 / n, with a mean of 0.1 / n.
_EXPONENT = 0.1


def held_out_weights(
    loss: str, parts: Sequence[Floats], labels: Ints, row_weights: Floats, extra_rows: Sequence[float]
) -> Floats:
    """Return the weights of least held-out loss, given log-probabilities (n, classes) of each part.

    The prior adds, for each part, `extra_rows` rows that only this part explains. The Brier score has no prior.
    """
    own = np.array([part[np.arange(len(labels)), labels] for part in parts])
    of_rows = row_weights / row_weights.sum()
    start = np.full(len(parts), 1 / len(parts))
    if loss == "brier":
        return fit_mixture_weights(loss, np.exp(own), _products(parts, of_rows), of_rows, start).point
    # A common factor per row changes no weight under log loss, and keeps tiny probabilities above 0.
    own = np.concatenate([np.exp(own - own.max(axis=0)), np.eye(len(parts))], axis=1)
    of_rows = np.append(of_rows, np.array(extra_rows) / effective_rows(row_weights))
    return fit_mixture_weights(loss, own, np.zeros((0, 0)), of_rows / of_rows.sum(), start).point


def _products(parts: Sequence[Floats], of_rows: Floats) -> Floats:
    """Return the mean over rows of sum_k p_ik p_jk, for every pair of parts i, j."""
    products = np.zeros((len(parts), len(parts)))
    for rows in row_blocks(*parts[0].shape):
        p = np.exp([part[rows] for part in parts])
        products += np.einsum("ink,jnk,n->ij", p, p, of_rows[rows], optimize=True)
    return products


def fit_mixture_weights(loss: str, own: Floats, products: Floats, row_weights: Floats, start: Floats) -> Optimum:
    """Minimise the loss of a mixture over weights w that are not negative and sum to 1.

    `own` (parts, n) holds the probabilities q that the parts give each label, so the log loss is the mean of
    -log(w . q). `products` (parts, parts) holds A, the weighted mean of sums over classes of p_i p_j, so the Brier
    score is w' A w - 2 b . w + 1, with b the mean of q; the log loss does not use it. Row weights sum to 1.

    >>> sure, unsure = [0.9, 0.9, 0.1], [0.5, 0.5, 0.5]
    >>> found = fit_mixture_weights("log", np.array([sure, unsure]), np.eye(2), np.full(3, 1 / 3), np.array([0.5, 0.5]))
    >>> found.point.round(3).tolist()  # 2 / (w + 1.25) = 1 / (1.25 - w)
    [0.417, 0.583]
    """
    from scipy.optimize import minimize  # on first use: importing it takes longer than glayers

    mean = own @ row_weights

    def value_and_slope(w: Array) -> tuple[float, Array]:
        if loss == "log":
            mixed = np.maximum(w @ own, 1e-300)
            return -float(row_weights @ np.log(mixed)), -(own / mixed) @ row_weights
        curved = products @ w
        return float(w @ curved - 2 * mean @ w + 1), 2 * (curved - mean)

    found = minimize(
        value_and_slope,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(start),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        options={"maxiter": 200, "ftol": 1e-15},
    )
    weights = np.clip(found.x, 0.0, 1.0)
    weights /= weights.sum()
    if loss == "log":
        weights = _improved(weights, own, row_weights)
    value, slope = value_and_slope(weights)
    # A weight whose slope is below the mean slope could still grow: at the optimum there is none.
    converged = bool(weights @ slope - slope.min() <= 1e-5 * max(1.0, abs(value)))
    # Each part alone is a mixture too.
    point, value = min(((w, value_and_slope(w)[0]) for w in (weights, *np.eye(len(start)))), key=lambda each: each[1])
    return Optimum(point, value, int(found.nit), converged)


def _improved(weights: Floats, own: Floats, row_weights: Floats) -> Floats:
    """Take steps of the EM algorithm, which each lower the log loss: SLSQP may stop up to 0.01 above the optimum."""
    weights = 0.99 * weights + 0.01 / len(weights)  # the steps cannot raise a weight of 0
    for _ in range(200):
        growth = (own / np.maximum(weights @ own, 1e-300)) @ row_weights
        if growth.max() <= 1 + 1e-5:  # the loss is at most this far above the optimum
            break
        weights = weights * growth
    return weights / weights.sum()


def uniform_share(log_ratios: Floats, weights: Floats) -> float:
    """Return the mean of the share s of a uniform part, given log(u / p) of each label: its uniform probability over p.

    The likelihood of s is the product of 1 - s + s u / p over n rows. Its prior, s^-0.9 (1 - s)^(n - 1), is what n rows
    cannot rule out. If all rows are certain and right, s is about 0.05 / n. One label of probability 0 raises it to
    about 0.5 / n.

    >>> right, wrong = np.full(100, -2.3), np.append(np.full(99, -2.3), 60.0)
    >>> [round(uniform_share(ratios, np.ones(100)), 4) for ratios in (right, wrong)]
    [0.0005, 0.0058]
    """
    n_rows = effective_rows(weights)
    fractions = weights / weights.sum()
    # s = t^10 has this prior if t is uniform, apart from the last factor. Beyond 50 / n, nothing is left.
    t = min(1.0, 50 / n_rows) ** _EXPONENT * (np.arange(50) + 0.5) / 50
    log_s = np.log(t) / _EXPONENT
    log_rest = np.log1p(-(t ** (1 / _EXPONENT)))
    logs = np.array([fractions @ np.logaddexp(rest, s + log_ratios) for s, rest in zip(log_s, log_rest, strict=True)])
    return float(softmax(n_rows * logs + (n_rows - 1) * log_rest) @ np.exp(log_s))
