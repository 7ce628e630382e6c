"""Parts of a correction -> their coefficients and strengths, found from the rows.

Each part has a Gaussian prior whose precision is learned by MacKay's fixed point ("Bayesian interpolation", 1992):

    precision = (g + 1) / (|w - w0|^2 + 1 / usual)

w are the coefficients of the part, w0 their prior means, and g counts the coefficients that the rows determine. The
ones are a hyperprior worth one coefficient at the usual precision. A part that the rows do not support stays near w0.

Newton's method with conjugate gradients needs only products with features (`parts.py`), never a matrix of
coefficients x coefficients.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.fitting.curvature import SmoothLoss, smooth_loss
from glayers.fitting.parts import Curvature, Design, curvature_of, sample_rows

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
_SETTLED = 0.1  # relative change of every precision that ends the search
_MOST_RATIO = 0.75  # of one step of the search to the one before
_TOLERANCE = 1e-3  # nats over all rows that the last Newton step may promise
_MOST_STEPS = 30  # of Newton's method
_MOST_PRODUCTS = 60  # of the curvature with a direction, in one Newton step
_ARMIJO = 1e-4  # the part of the promised fall that a step must reach
_SHORTEST = 1e-3  # of a Newton step, before the search along it ends
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


@dataclass(frozen=True, eq=False)
class Model:
    """Rows to fit by a loss; `means` are the prior means of the coefficients, `usual` the usual precisions."""

    design: Design
    loss: SmoothLoss
    means: Floats
    usual: Mapping[str, float] = field(default_factory=lambda: USUAL)

    def fit(self) -> Fit:
        """Find the precisions, then the coefficients."""
        precisions, start = self._search()
        return self.at(precisions, start)

    def at(self, precisions: Mapping[str, float], start: Floats) -> Fit:
        """Fit all rows at given precisions."""
        flat = self._of_each(precisions)
        state = self._evaluate(self.design, self.loss, start)
        curvature = curvature_of(self.design, state.probabilities, flat)
        descent = _Descent(self, self.design, self.loss, flat, curvature)
        state, steps, converged = descent.run(state, _MOST_STEPS, 0.03)
        counted = np.bincount(self.design.owners, 1 - flat * curvature.variances())
        effective = dict(zip(self.design.names, counted.tolist(), strict=True))
        return Fit(state, dict(precisions), effective, curvature, steps, converged)

    def without(self, fit: Fit, rows: Any) -> Floats:
        """Return the coefficients for some of the rows, at the same precisions, from the fit to all rows.

        Two steps suffice: more change the held-out loss by less than 0.0002.
        """
        some = self.design.take(rows)
        state = self._evaluate(some, self.loss, fit.state.point)
        descent = _Descent(self, some, self.loss, self._of_each(fit.precisions), fit.curvature)
        return descent.run(state, 2, 0.1)[0].point

    def _search(self) -> tuple[dict[str, float], Floats]:
        """MacKay's fixed point by the log loss, one Newton step per round; of very many rows, a sample."""
        loss = smooth_loss("log")
        design = self.design.take(sample_rows(*self.design.base.shape))
        owners = design.owners
        usual = np.array([self.usual[name] for name in design.names])
        precisions = usual
        state = self._evaluate(design, loss, self.means)
        step = np.zeros(len(usual))
        for _ in range(_MOST_ROUNDS):
            flat = precisions[owners]
            curvature = curvature_of(design, state.probabilities, flat)
            state = _Descent(self, design, loss, flat, curvature).run(state, 1, 0.1)[0]
            determined = np.bincount(owners, 1 - flat * curvature.variances())
            squares = np.bincount(owners, (state.point - self.means) ** 2)
            before = step
            step = np.log((determined + 1) / (squares + 1 / usual) / precisions)
            # Steps to a fixed point shrink by a constant ratio: go where they would end.
            ratio = np.divide(step, before, out=np.zeros_like(step), where=before != 0).clip(0.0, _MOST_RATIO)
            change = step / (1 - ratio)
            precisions = precisions * np.exp(change)
            if np.abs(change).max() < _SETTLED:
                break
        return dict(zip(design.names, precisions.tolist(), strict=True)), state.point

    def _of_each(self, precisions: Mapping[str, float]) -> Floats:
        """Return the precision of every coefficient."""
        return np.array([precisions[name] for name in self.design.names])[self.design.owners]

    @staticmethod
    def _evaluate(design: Design, loss: SmoothLoss, point: Floats) -> State:
        losses, probabilities = loss.both(design.base + design.scores(point), design.labels)
        return State(point, float(design.weights @ losses), probabilities)


class _Descent(NamedTuple):
    """Newton's method on some rows."""

    model: Model
    design: Design
    loss: SmoothLoss
    precisions: Floats
    curvature: Curvature

    def run(self, state: State, most_steps: int, enough: float) -> tuple[State, int, bool]:
        """Take steps until one promises less than the tolerance; return the state, the steps, and whether it did.

        Conjugate gradients end when the residual has fallen to the fraction `enough`.
        """
        for step in range(1, most_steps + 1):
            slope = self._slope(state)
            direction = _conjugate_gradients(self._curved(state), slope, self.curvature.solve, enough)
            promised = -float(slope @ direction)
            reached = self._line_search(state, direction, promised)
            if reached is None:
                return state, step, promised < _ARMIJO * abs(self._objective(state))
            state = reached
            if promised < _TOLERANCE:
                return state, step, True
        return state, most_steps, False

    def _objective(self, state: State) -> float:
        return state.loss + float(self.precisions @ (state.point - self.model.means) ** 2) / 2

    def _slope(self, state: State) -> Floats:
        by_score = self._weighted(self.loss.slope(state.probabilities, self.design.labels))
        return self.design.slopes(by_score) + self.precisions * (state.point - self.model.means)

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
        while length > _SHORTEST:
            reached = self.model._evaluate(self.design, self.loss, state.point + length * direction)
            if self._objective(reached) <= value - _ARMIJO * length * promised + _ROUNDING * abs(value):
                return reached
            length /= 2
        return None


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
    for _ in range(_MOST_PRODUCTS):
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


def held_out_scores(model: Model, fit: Fit, folds: Ints) -> Array:
    """Return the corrected scores of every row by a fit that has not seen its fold; rows of fold -1 are left empty."""
    result = np.empty_like(model.design.base)
    for fold in range(int(folds.max()) + 1):
        own = folds == fold
        point = model.without(fit, ~own)
        rows = model.design.take(own)
        result[own] = rows.base + rows.scores(point)
    return result
