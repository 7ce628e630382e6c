"""Parts of a correction -> their coefficients and strengths, found from the rows.

Each part has a Gaussian prior around zero whose precision is learned by MacKay's fixed point ("Bayesian interpolation",
1992):

    precision = (g + 1) / (|w|^2 + 1 / usual)

w are the coefficients of the part, and g counts those that the rows determine. The ones are a hyperprior worth one
coefficient at the usual precision. A part that the rows do not support stays near zero.

Newton's method with conjugate gradients needs only products with features (`parts.py`), never a matrix of
coefficients x coefficients.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.fitting.curvature import SmoothLoss, smooth_loss
from glayers.fitting.parts import Curvature, Design, curvature_of

# Usual precisions, chosen on halves of calibration rows (docs/design/0016-evidence.md). Factors of two or three change
# the mean held-out loss by less than 0.0005.
USUAL: Mapping[str, float] = {
    "shared": 10.0,
    "context": 200.0,
    "scale": 150.0,
    "shift": 30.0,
    "matrix": 800.0,
    "confusion": 1000.0,
    "hinges": 2000.0,
}
_MOST_ROUNDS = 10
_MANY_ROWS = 2_000  # from here on one fold changes a fit so little that one Newton step follows it
_SETTLED = 0.1  # relative change of every precision that ends the search
_MOST_RATIO = 0.75  # of one step of the search to the one before
_TOLERANCE = 1e-3  # nats over all rows that the last Newton step may promise
_ARMIJO = 1e-4  # the part of the promised fall that a step must reach
_ROUNDING = 1e-7  # relative difference of objectives in float32 that means nothing


class State(NamedTuple):
    """Coefficients, the loss of all rows there (without the penalty), and the probabilities."""

    point: Floats
    loss: float
    probabilities: Array


class Fit(NamedTuple):
    """What one fit found: coefficients, the precision and the effective number of coefficients of each part."""

    state: State
    precisions: dict[str, float]
    effective: dict[str, float]
    curvature: Curvature
    iterations: int
    converged: bool


class PenalisedLoss(NamedTuple):
    """The loss of rows, and the precision of each coefficient."""

    design: Design
    loss: SmoothLoss
    precisions: Floats

    def at(self, point: Floats) -> State:
        """Return the loss and the probabilities at some coefficients."""
        losses, probabilities = self.loss.both(self.design.base + self.design.scores(point), self.design.labels)
        return State(point, float(self.design.weights @ losses), probabilities)

    def minimise(
        self, state: State, curvature: Curvature, most_steps: int = 30, enough: float = 0.03
    ) -> tuple[State, int, bool]:
        """Take Newton steps until one promises less than the tolerance; return the state, the steps, whether it did.

        Conjugate gradients end when the residual has fallen to the fraction `enough`.
        """
        for step in range(1, most_steps + 1):
            direction, promised = self.newton_step(state, curvature, enough)
            reached = self._line_search(state, direction, promised)
            if reached is None:
                return state, step, promised < _ARMIJO * abs(self._objective(state))
            state = reached
            if promised < _TOLERANCE:
                return state, step, True
        return state, most_steps, False

    def newton_step(self, state: State, curvature: Curvature, enough: float) -> tuple[Floats, float]:
        """Return the change of the coefficients, and twice the fall of the objective that it promises."""
        by_score = self._weighted(self.loss.slope(state.probabilities, self.design.labels))
        slope = self.design.slopes(by_score) + self.precisions * state.point
        direction = _conjugate_gradients(self._curved(state), slope, curvature.solve, enough)
        return direction, -float(slope @ direction)

    def _objective(self, state: State) -> float:
        return state.loss + float(self.precisions @ state.point**2) / 2

    def _curved(self, state: State) -> Callable[[Floats], Floats]:
        """Return the function that multiplies a direction by the curvature."""

        def curved(direction: Floats) -> Floats:
            moved = self.loss.curve(state.probabilities, self.design.scores(direction))
            return self.design.slopes(self._weighted(moved)) + self.precisions * direction

        return curved

    def _weighted(self, by_score: Array) -> Array:
        by_score *= self.design.weights.astype(by_score.dtype)[:, None]
        return by_score

    def _line_search(self, state: State, direction: Floats, promised: float) -> State | None:
        """Halve the step until the objective falls enough; None if it never does."""
        value = self._objective(state)
        length = 1.0
        while length > 1e-3:
            reached = self.at(state.point + length * direction)
            if self._objective(reached) <= value - _ARMIJO * length * promised + _ROUNDING * abs(value):
                return reached
            length /= 2
        return None


def fit_at(design: Design, loss: SmoothLoss, precisions: Mapping[str, float], start: Floats) -> Fit:
    """Fit all rows at given precisions."""
    flat = _of_each(design, precisions)
    problem = PenalisedLoss(design, loss, flat)
    state = problem.at(start)
    curvature = curvature_of(design, state.probabilities, flat)
    state, steps, converged = problem.minimise(state, curvature)
    counted = np.bincount(design.owners, 1 - flat * curvature.variances())
    effective = dict(zip(design.names, counted.tolist(), strict=True))
    return Fit(state, dict(precisions), effective, curvature, steps, converged)


def find_precisions(
    design: Design,
    usual: Mapping[str, float] = USUAL,
    start: Mapping[str, float] | None = None,
    point: Floats | None = None,
) -> tuple[dict[str, float], Floats]:
    """Return precisions by MacKay's fixed point, one Newton step on the log loss per round, and the coefficients.

    The search begins at the usual precisions and at 0, or at a `start` and a `point` of the coefficients.
    """
    owners = design.owners
    at_first = np.array([usual[name] for name in design.names])
    precisions = at_first if start is None else np.array([start[name] for name in design.names])
    step = np.zeros(len(at_first))
    loss = smooth_loss("log")
    state = PenalisedLoss(design, loss, at_first).at(np.zeros(len(owners)) if point is None else point)
    for _ in range(_MOST_ROUNDS):
        flat = precisions[owners]
        problem = PenalisedLoss(design, loss, flat)
        curvature = curvature_of(design, state.probabilities, flat)
        state, _, _ = problem.minimise(state, curvature, most_steps=1, enough=0.1)
        determined = np.bincount(owners, 1 - flat * curvature.variances())
        squares = np.bincount(owners, state.point**2)
        before = step
        step = np.log((determined + 1) / (squares + 1 / at_first) / precisions)
        # Steps to a fixed point shrink by a constant ratio: go where they would end.
        ratio = np.divide(step, before, out=np.zeros_like(step), where=before != 0).clip(0.0, _MOST_RATIO)
        change = step / (1 - ratio)
        precisions = precisions * np.exp(change)
        if np.abs(change).max() < _SETTLED:
            break
    return dict(zip(design.names, precisions.tolist(), strict=True)), state.point


def held_out_scores(design: Design, loss: SmoothLoss, fit: Fit, folds: Ints) -> Array:
    """Return the corrected scores of every row by a fit that has not seen its fold, at the same precisions.

    Each starts from the fit to all rows. With few rows it takes two Newton steps: more change the held-out loss by less
    than 0.0002. With many rows one step suffices: a second one changes it by 0.0005, and takes three times as long.
    """
    result = np.empty_like(design.base)
    flat = _of_each(design, fit.precisions)
    for fold in range(int(folds.max()) + 1):
        own = folds == fold
        rest = PenalisedLoss(design.take(~own), loss, flat)
        if len(folds) < _MANY_ROWS:
            state, _, _ = rest.minimise(rest.at(fit.state.point), fit.curvature, most_steps=2, enough=0.1)
            point = state.point
        else:
            state = fit.state._replace(probabilities=fit.state.probabilities[~own])
            direction, _ = rest.newton_step(state, fit.curvature, enough=0.1)
            point = state.point + direction
        rows = design.take(own)
        result[own] = rows.base + rows.scores(point)
    return result


def _of_each(design: Design, precisions: Mapping[str, float]) -> Floats:
    """Return the precision of every coefficient."""
    return np.array([precisions[name] for name in design.names])[design.owners]


def _conjugate_gradients(
    curved: Callable[[Floats], Floats], slope: Floats, precondition: Callable[[Floats], Floats], enough: float
) -> Floats:
    """Solve curvature @ step = -slope until the preconditioned residual falls to this fraction."""
    step = np.zeros_like(slope)
    residual = -slope
    ready = precondition(residual)
    towards = ready
    size = float(residual @ ready)
    target = max(enough**2 * size, 1e-3 * _TOLERANCE)
    for _ in range(60):
        if not size > target:
            break
        bent = curved(towards)
        bend = float(towards @ bent)
        if not bend > 0:
            break
        step = step + (size / bend) * towards
        residual = residual - (size / bend) * bent
        ready = precondition(residual)
        before = size
        size = float(residual @ ready)
        towards = ready + (size / before) * towards
    return step
