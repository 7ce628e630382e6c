"""Convex functions of a few numbers -> their minimum by Newton's method."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats


class Optimum(NamedTuple):
    """Where Newton's method ended, the objective there, after how many steps, and whether it converged."""

    point: Array
    value: float
    iterations: int
    converged: bool


def newton(
    value: Callable[[Floats], float],
    derivatives: Callable[[Floats], tuple[Floats, Floats]],
    start: Floats,
    *,
    tolerance: float,
    max_iterations: int = 100,
) -> Optimum:
    """Minimise a convex function of a few numbers, given its value and its gradient with the full Hessian.

    The last step is the one that promises to lower the value by less than `tolerance`.

    >>> newton(lambda x: float((x - 1) @ (x - 1)), lambda x: (2 * (x - 1), 2 * np.eye(2)), np.zeros(2), tolerance=1e-9)
    Optimum(point=array([1., 1.]), value=0.0, iterations=2, converged=True)
    """
    here = start
    now = value(start)
    for iteration in range(1, max_iterations + 1):
        gradient, hessian = derivatives(here)
        step = -np.linalg.solve(hessian, gradient)
        promised = -float(gradient @ step)
        # Near the minimum values differ by rounding only, and the full step is right.
        rounding = 1e-13 * max(1.0, abs(now))
        length = 1.0
        while length > 1e-6 and value(here + length * step) > now - 1e-4 * length * promised + rounding:
            length /= 2
        here = here + length * step
        now = value(here)
        if promised < 2 * tolerance:
            return Optimum(here, now, iteration, True)
    return Optimum(here, now, max_iterations, promised <= rounding)
