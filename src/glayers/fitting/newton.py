"""A penalised linear map -> its optimum, by Newton's method with conjugate gradients inside.

The loss of a linear map is smooth and, for the log loss, convex: a handful of Newton steps end where L-BFGS is still on
its way. Coefficients are (r, k), a column a class. Only their curvature within one class is ever written down; it
preconditions the conjugate gradients, which see the whole of it through products.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Bools, Floats, Ints
from glayers.fitting.curvature import SmoothLoss

_SUFFICIENT = 1e-4  # Armijo's constant
# A loss this small belongs to rows that are all right: coefficients only grow, and no optimum is near.
_NOTHING_LEFT = 1e-9
_MOST_PRODUCTS = 60  # of the curvature with a direction, in one Newton step
_PRECONDITION_ROWS = 2_000
_PRECONDITION_CLASSES = 128  # beyond, a block a class would cost more than it saves


@dataclass(frozen=True)
class LinearRows(ABC):
    """Inputs (n, c) of a map that is linear in its coefficients (r, k)."""

    inputs: Array

    @abstractmethod
    def forward(self, coefficients: Array) -> Array:
        """Return logits (n, k)."""

    @abstractmethod
    def adjoint(self, slopes: Array) -> Array:
        """Return what slopes by logits (n, k) mean for coefficients (r, k)."""

    @abstractmethod
    def blocks(self, curvature: Array) -> Array:
        """Return the curvature within each class, (k, r, r), from that of its logits (n, k)."""

    def take(self, rows: Bools | slice) -> Self:
        """Return some of the rows."""
        return replace(self, inputs=self.inputs[rows])


@dataclass(frozen=True)
class DiagonalRows(LinearRows):
    """Coefficients (2, k): a scale and a shift for each class."""

    def forward(self, coefficients: Array) -> Array:
        """Scale and shift each column."""
        return self.inputs * coefficients[0] + coefficients[1]

    def adjoint(self, slopes: Array) -> Array:
        """Add up over rows."""
        return np.stack([(slopes * self.inputs).sum(axis=0), slopes.sum(axis=0)])

    def blocks(self, curvature: Array) -> Array:
        """Return a 2 x 2 block for each class."""
        scaled = curvature * self.inputs
        cross = scaled.sum(axis=0)
        both = np.stack([(scaled * self.inputs).sum(axis=0), cross, cross, curvature.sum(axis=0)], axis=1)
        return both.reshape(-1, 2, 2)


@dataclass(frozen=True)
class MatrixRows(LinearRows):
    """Coefficients (k + 1, k): a full matrix, and the intercept as its last row; inputs end in a column of ones."""

    def forward(self, coefficients: Array) -> Array:
        """Multiply by the matrix."""
        return self.inputs @ coefficients

    def adjoint(self, slopes: Array) -> Array:
        """Multiply by the inputs."""
        return self.inputs.T @ slopes

    def blocks(self, curvature: Array) -> Array:
        """Return a full block for each class, or for very many classes its diagonal."""
        n_coefficients, n_classes = self.inputs.shape[1], curvature.shape[1]
        if n_classes > _PRECONDITION_CLASSES:
            return ((self.inputs**2).T @ curvature).T[:, :, None]
        result = np.empty((n_classes, n_coefficients, n_coefficients), dtype=self.inputs.dtype)
        for of_class, each in enumerate(curvature.T):
            result[of_class] = self.inputs.T @ (each[:, None] * self.inputs)
        return result


class LinearProblem(NamedTuple):
    """Mean loss of weighted rows (shares sum to 1) plus half of strengths times squared distances from anchors."""

    rows: LinearRows
    labels: Ints
    shares: Floats
    loss: SmoothLoss
    strengths: Floats
    anchor: Floats

    def value(self, coefficients: Array) -> float:
        """Return the number to minimise."""
        losses = self.loss.rows(self.rows.forward(coefficients), self.labels)
        return float(losses @ self.shares + (self.strengths * (coefficients - self.anchor) ** 2).sum() / 2)


class Optimum(NamedTuple):
    """Where Newton's method ended, after how many steps, and whether there was next to nothing left to gain."""

    coefficients: Array
    iterations: int
    converged: bool


class Preconditioner:
    """The curvature within each class at one point, inverted once for each strength of the penalty."""

    def __init__(self, problem: LinearProblem, at: Array) -> None:
        stride = max(1, len(problem.labels) // _PRECONDITION_ROWS)
        some, shares = problem.rows.take(slice(None, None, stride)), problem.shares[::stride]
        total = shares.sum() or 1.0
        curvature = problem.loss.curve_diagonal(softmax(some.forward(at))) * (shares / total)[:, None]
        self.blocks = some.blocks(curvature.astype(at.dtype))

    def inverse(self, strengths: Floats) -> Array:
        """Return the inverse of each class's block with its penalty, (k, r, r), or (k, r, 1) of diagonals alone."""
        if self.blocks.shape[-1] == 1:
            curvature = self.blocks[:, :, 0] + strengths.T
            return 1 / np.maximum(curvature, 1e-8 * curvature.max())[:, :, None].astype(self.blocks.dtype)
        places = np.arange(self.blocks.shape[-1])
        penalised = self.blocks.astype(np.float64)
        penalised[:, places, places] += strengths.T
        # A class hardly ever predicted has next to no curvature of its own: keep every block invertible.
        curvature = self.blocks[:, places, places]
        penalised[:, places, places] += 1e-8 * curvature.max() + 1e-6 * curvature + 1e-300
        return np.linalg.inv(penalised).astype(self.blocks.dtype)


def newton(
    problem: LinearProblem,
    start: Array,
    preconditioner: Preconditioner,
    tolerance: float,
    max_iterations: int = 100,
) -> Optimum:
    """Step until the next step promises less than `tolerance` of the objective."""
    inverse = preconditioner.inverse(problem.strengths)
    shares = problem.shares.astype(start.dtype)[:, None]
    here, value = start, problem.value(start)
    for iteration in range(max_iterations):
        if value < _NOTHING_LEFT:
            return Optimum(here, iteration, False)
        probabilities = softmax(problem.rows.forward(here))
        slope = problem.rows.adjoint(shares * problem.loss.slope(probabilities, problem.labels))
        slope = (slope + problem.strengths * (here - problem.anchor)).astype(start.dtype)
        step = _solve(problem, probabilities, shares, slope, inverse)
        promised = -float(np.vdot(slope, step))
        if promised <= 2 * tolerance * abs(value):
            return Optimum(here, iteration, True)
        length, there, new_value = _line_search(problem, here, value, step, promised)
        if length == 0.0:
            # Rounding hides a gain this small; in float32 that is as far as one can see.
            return Optimum(here, iteration, promised <= 100 * float(np.finfo(start.dtype).eps) * abs(value))
        here, value = there, new_value
    return Optimum(here, max_iterations, False)


def _solve(problem: LinearProblem, probabilities: Array, shares: Array, slope: Array, inverse: Array) -> Array:
    """Conjugate gradients for curvature @ step = -slope, to a precision that grows as the slope falls."""
    step = np.zeros_like(slope)
    residual = -slope
    towards = ready = _precondition(inverse, residual)
    size = first = float(np.vdot(residual, ready))
    # Loose far from the optimum, where the curvature will change anyway; near it Newton's own speed.
    target = min(0.01, first) * first
    for _ in range(_MOST_PRODUCTS):
        if not size > target:
            break
        curved = problem.rows.adjoint(shares * problem.loss.curve(probabilities, problem.rows.forward(towards)))
        curved = (curved + problem.strengths * towards).astype(slope.dtype)
        bend = float(np.vdot(towards, curved))
        if not bend > 0:
            break
        step = step + (size / bend) * towards
        residual = residual - (size / bend) * curved
        ready = _precondition(inverse, residual)
        size, before = float(np.vdot(residual, ready)), size
        towards = ready + (size / before) * towards
    return step


def _precondition(inverse: Array, residual: Array) -> Array:
    columns = residual.T[:, :, None]
    return (inverse * columns if inverse.shape[-1] == 1 else inverse @ columns)[:, :, 0].T


def _line_search(
    problem: LinearProblem, here: Array, value: float, step: Array, promised: float
) -> tuple[float, Array, float]:
    """Halve the step until the objective falls enough; a length of 0 if it never does."""
    length = 1.0
    while length > 2.0**-20:
        there = here + np.asarray(length, dtype=here.dtype) * step
        new_value = problem.value(there)
        if new_value <= value - _SUFFICIENT * length * promised:
            return length, there, new_value
        length /= 2
    return 0.0, here, value
