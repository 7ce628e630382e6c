"""Convex objectives -> their optimum by Newton's method: dense for a few numbers, conjugate gradients for a matrix.

`newton` serves problems of a few numbers. `newton_cg` serves penalised linear maps, whose loss is smooth and, for the
log loss, convex: a handful of Newton steps converge where L-BFGS would need hundreds. Coefficients are (r, k), one
column per class. Only the curvature within one class is ever written down; it preconditions the conjugate gradients,
which see all of the curvature through products.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Bools, Floats, Ints, row_blocks
from glayers.fitting.curvature import SmoothLoss

_SUFFICIENT = 1e-4  # Armijo's constant
# A loss this small means that all rows are right: coefficients grow without end, and there is no optimum.
NOTHING_LEFT = 1e-9
_MOST_PRODUCTS = 60  # of the curvature with a direction, in one Newton step
_PRECONDITION_ROWS = 2_000
_PRECONDITION_CLASSES = 128  # beyond, one block per class would cost more than it saves


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


class LinearProblem(NamedTuple):
    """Mean loss of a linear map, plus half of strengths times squared distances from the anchor.

    Coefficients (2, k) are one scale and one shift per class, for inputs (n, k). Coefficients (k + 1, k) are a full
    matrix and, last, the intercept, for inputs (n, k + 1) that end in a column of ones. Weights sum to 1. `lowered`
    (n, k), if there is any, is added to the result: -inf for impossible classes.
    """

    inputs: Array
    labels: Ints
    weights: Floats
    loss: SmoothLoss
    strengths: Floats
    anchor: Floats
    lowered: Array | None = None

    def take(self, rows: Bools | slice) -> Self:
        """Return the problem of some of the rows."""
        lowered = None if self.lowered is None else self.lowered[rows]
        inputs, labels, weights = self.inputs[rows], self.labels[rows], self.weights[rows]
        return self._replace(inputs=inputs, labels=labels, weights=weights, lowered=lowered)

    def parts(self) -> list[Self]:
        """Return the problems of blocks of rows, views of this one: what is computed of a block stays in the cache."""
        return [self.take(rows) for rows in row_blocks(*self.inputs.shape)]

    def value(self, coefficients: Array) -> float:
        """Return the objective."""
        losses = (part.loss.rows(part.logits(coefficients), part.labels) @ part.weights for part in self.parts())
        return float(sum(losses)) + self.penalty(coefficients)

    def penalty(self, coefficients: Array) -> float:
        """Return the penalty alone."""
        return float((self.strengths * (coefficients - self.anchor) ** 2).sum()) / 2

    def logits(self, coefficients: Array) -> Array:
        """Return logits (n, k)."""
        return self.forward(coefficients) if self.lowered is None else self.forward(coefficients) + self.lowered

    def forward(self, coefficients: Array) -> Array:
        """Return the linear map of the inputs, (n, k)."""
        if len(self.anchor) == 2:
            scaled = self.inputs * coefficients[0]
            return np.add(scaled, coefficients[1], out=scaled)
        return self.inputs @ coefficients

    def adjoint(self, slopes: Array) -> Array:
        """Return the derivative by coefficients (r, k), given that by logits (n, k)."""
        if len(self.anchor) == 2:
            return np.stack([np.einsum("nk,nk->k", slopes, self.inputs), slopes.sum(axis=0)])
        return self.inputs.T @ slopes

    def blocks(self, curvature: Array) -> Array:
        """Return the curvature within each class, (k, r, r), or (k, r, 1) of diagonals alone for very many classes."""
        if len(self.anchor) == 2:
            scaled = curvature * self.inputs
            cross = scaled.sum(axis=0)
            square = np.einsum("nk,nk->k", scaled, self.inputs)
            both = np.stack([square, cross, cross, curvature.sum(axis=0)], axis=1)
            return both.reshape(-1, 2, 2)
        if curvature.shape[1] > _PRECONDITION_CLASSES:
            return ((self.inputs**2).T @ curvature).T[:, :, None]
        return np.stack([self.inputs.T @ (each[:, None] * self.inputs) for each in curvature.T])


class Preconditioner:
    """The curvature within each class at one point, inverted once for each strength of the penalty."""

    def __init__(self, problem: LinearProblem, at: Array) -> None:
        stride = max(1, len(problem.labels) // _PRECONDITION_ROWS)
        some = problem.take(slice(None, None, stride))
        weights = some.weights / (some.weights.sum() or 1.0)
        curvature = problem.loss.curve_diagonal(softmax(some.logits(at))) * weights[:, None]
        self.blocks = some.blocks(curvature.astype(at.dtype))

    def inverse(self, strengths: Floats) -> Array:
        """Return the inverse of each class's block with its penalty, (k, r, r), or (k, r, 1) of diagonals alone."""
        if self.blocks.shape[-1] == 1:
            curvature = self.blocks[:, :, 0] + strengths.T
            return 1 / np.maximum(curvature, 1e-8 * curvature.max())[:, :, None].astype(self.blocks.dtype)
        places = np.arange(self.blocks.shape[-1])
        penalised = self.blocks.astype(np.float64)
        penalised[:, places, places] += strengths.T
        # A class that is hardly ever predicted has almost no curvature: keep every block invertible.
        curvature = self.blocks[:, places, places]
        penalised[:, places, places] += 1e-8 * curvature.max() + 1e-6 * curvature + 1e-300
        return np.linalg.inv(penalised).astype(self.blocks.dtype)


def newton_cg(
    problem: LinearProblem, start: Array, preconditioner: Preconditioner, tolerance: float, max_iterations: int = 100
) -> Optimum:
    """Minimise a penalised linear problem, until the next step promises less than `tolerance` of the objective."""
    inverse = preconditioner.inverse(problem.strengths)
    parts = [(part, part.weights.astype(start.dtype)[:, None]) for part in problem.parts()]
    blocks: list[_Block] = []  # of rows, at the point that was evaluated last

    def value_at(point: Array) -> float:
        blocks.clear()
        losses = 0.0
        for part, weights in parts:
            of_rows, probabilities = part.loss.both(part.logits(point), part.labels)
            blocks.append(_Block(part, weights, probabilities))
            losses += float(of_rows @ part.weights)
        return losses + problem.penalty(point)

    here, value = start, value_at(start)
    for iteration in range(max_iterations):
        if value < NOTHING_LEFT:
            return Optimum(here, value, iteration, False)
        slope = sum(each.slope() for each in blocks)
        slope = (slope + problem.strengths * (here - problem.anchor)).astype(start.dtype)
        step = _solve(problem.strengths, blocks, slope, inverse, 0.1 * tolerance * abs(value))
        promised = -float(np.vdot(slope, step))
        if promised <= 2 * tolerance * abs(value):
            return Optimum(here, value, iteration, True)
        length, here, value = _line_search(value_at, here, value, step, promised)
        if length == 0.0:
            return Optimum(here, value, iteration, _is_rounding(promised, value, start.dtype))
    return Optimum(here, value, max_iterations, False)


class _Block(NamedTuple):
    """A block of rows at one point: its problem, its weights (n, 1), and the probabilities there."""

    problem: LinearProblem
    weights: Array
    probabilities: Array

    def slope(self) -> Array:
        problem = self.problem
        return problem.adjoint(self.weights * problem.loss.slope(self.probabilities, problem.labels))

    def curved(self, direction: Array) -> Array:
        problem = self.problem
        return problem.adjoint(self.weights * problem.loss.curve(self.probabilities, problem.forward(direction)))


def _solve(strengths: Floats, blocks: list[_Block], slope: Array, inverse: Array, enough: float) -> Array:
    """Conjugate gradients for curvature @ step = -slope, to a precision that grows as the slope falls.

    They also end when the rest of the step would lower the objective by about `enough` or less.
    """

    def precondition(residual: Array) -> Array:
        columns = residual.T[:, :, None]
        return (inverse * columns if inverse.shape[-1] == 1 else inverse @ columns)[:, :, 0].T

    step, residual = np.zeros_like(slope), -slope
    towards = ready = precondition(residual)
    size = first = float(np.vdot(residual, ready))
    # Loose far from the optimum, where the curvature will change anyway; near it Newton's own speed.
    target = max(min(0.01, first) * first, enough)
    for _ in range(_MOST_PRODUCTS):
        if not size > target:
            break
        curved = sum(each.curved(towards) for each in blocks)
        curved = (curved + strengths * towards).astype(slope.dtype)
        bend = float(np.vdot(towards, curved))
        if not bend > 0:
            break
        step = step + (size / bend) * towards
        residual = residual - (size / bend) * curved
        ready = precondition(residual)
        size, before = float(np.vdot(residual, ready)), size
        towards = ready + (size / before) * towards
    return step


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
