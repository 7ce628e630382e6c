"""Several predictions of the same rows -> the shares of their mixture; either loss is convex in them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from glayers.arrays import Floats


class Parts(NamedTuple):
    """All that the shares depend on: of each part the probability of the label (parts, n), and mean products of parts.

    The products (parts, parts) matter to the Brier score only: sums over classes of p_i p_j, averaged over rows.
    """

    own: Floats
    products: Floats


class Shares(NamedTuple):
    """The shares of the mixture, and how they were found."""

    shares: Floats
    iterations: int
    converged: bool


def log_shares(parts: Parts, row_shares: Floats, start: Floats) -> Shares:
    """Minimise the mean of -log(w . q), with q the probabilities that the parts give the label.

    >>> sure, unsure = [0.9, 0.9, 0.1], [0.5, 0.5, 0.5]
    >>> found = log_shares(Parts(np.array([sure, unsure]), np.eye(2)), np.full(3, 1 / 3), np.array([0.5, 0.5]))
    >>> found.shares.round(3).tolist()  # 2 / (w + 1.25) = 1 / (1.25 - w)
    [0.417, 0.583]
    """

    def value_and_slope(shares: Floats) -> tuple[float, Floats]:
        mixed = np.maximum(shares @ parts.own, 1e-300)
        return -float(row_shares @ np.log(mixed)), -(parts.own / mixed) @ row_shares

    return _on_the_simplex(value_and_slope, start)


def brier_shares(parts: Parts, row_shares: Floats, start: Floats) -> Shares:
    """Minimise the mean of |w . P - one-hot|^2 = w' A w - 2 b . w + 1."""
    linear = parts.own @ row_shares

    def value_and_slope(shares: Floats) -> tuple[float, Floats]:
        curved = parts.products @ shares
        return float(shares @ curved - 2 * linear @ shares + 1), 2 * (curved - linear)

    return _on_the_simplex(value_and_slope, start)


SHARES: dict[str, Callable[[Parts, Floats, Floats], Shares]] = {"log": log_shares, "brier": brier_shares}


def _on_the_simplex(value_and_slope: Callable[[Floats], tuple[float, Floats]], start: Floats) -> Shares:
    found = minimize(
        value_and_slope,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(start),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like},
        options={"maxiter": 200, "ftol": 1e-15},
    )
    shares = np.clip(found.x, 0.0, 1.0)
    shares /= shares.sum()
    value, slope = value_and_slope(shares)
    # A share with a slope below the mean slope could still grow: at the optimum there is none.
    converged = bool(shares @ slope - slope.min() <= 1e-5 * max(1.0, abs(value)))
    corners = np.eye(len(start))
    values = [value_and_slope(corner)[0] for corner in corners]
    best = int(np.argmin(values))
    return Shares(shares if value <= values[best] else corners[best], int(found.nit), converged)
