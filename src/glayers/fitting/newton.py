"""Convex functions of a few numbers -> their minimum by Newton's method."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from glayers.arrays import Array, Floats

_SUFFICIENT = 1e-4  # Armijo's constant


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
    here, now = start, value(start)
    for iteration in range(1, max_iterations + 1):
        gradient, hessian = derivatives(here)
        step = -np.linalg.solve(hessian, gradient)
        promised = -float(gradient @ step)
        # Near the minimum values differ by rounding only, and the full step is right.
        length, here, now = _line_search(value, here, now, step, promised, slack=1e-13)
        if length == 0.0 or promised < 2 * tolerance:
            return Optimum(here, now, iteration, length > 0.0 or _is_rounding(promised, now, here.dtype))
    # Where features are nearly collinear, rounding keeps the promise just above the tolerance.
    return Optimum(here, now, max_iterations, _is_rounding(promised, now, here.dtype))


def _line_search(
    objective: Callable[[Array], float], here: Array, value: float, step: Array, promised: float, slack: float = 0.0
) -> tuple[float, Array, float]:
    """Halve the step until the objective falls enough. Return a length of 0 and the old point if it never does."""
    length = 1.0
    while length > 2.0**-20:
        there = here + np.asarray(length, dtype=here.dtype) * step
        new_value = objective(there)
        if new_value <= value - _SUFFICIENT * length * promised + slack:
            return length, there, new_value
        length /= 2
    return 0.0, here, value


def _is_rounding(promised: float, value: float, dtype: np.dtype[Any]) -> bool:
    """Whether a gain is too small for this type to show, which counts as converged."""
    return promised <= 100 * float(np.finfo(dtype).eps) * abs(value)
