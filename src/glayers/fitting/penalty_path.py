"""Folds and a prior on the penalties -> how strong they should be, along a path from strong to weak.

Strengths are multiples of the prior. The default is 1; cross-validation moves away from it only where the gain exceeds
its own standard error. Each fit starts where the stronger one before it ended.
"""

import math
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.fitting.folds import paired_gain
from glayers.fitting.newton import LinearProblem, Optimum, Preconditioner, newton_cg

# Relative differences of held-out losses below this do not matter.
_WORTHWHILE = 1e-4
_PATH_TOLERANCE = 1e-5
_TOLERANCE = 1e-13
_TOLERANCE_SINGLE = 1e-6  # what float32 can see


class Prior(NamedTuple):
    """A penalty on coefficients (r, k): strengths times rows, in parts that may be scaled apart, and an anchor.

    `held` are strengths that stay whatever multiple is chosen.
    """

    parts: tuple[Floats, ...]
    anchor: Floats
    held: Floats | float = 0.0

    def strengths(self, multiples: tuple[float, ...], n_rows: float) -> Floats:
        """Return the strength of every coefficient for a mean over that many rows."""
        chosen = np.add.reduce([m * part for m, part in zip(multiples, self.parts, strict=True)])
        return (chosen + self.held) / n_rows


class Trial(NamedTuple):
    """One choice of strengths, the coefficients of every fold, and the held-out loss of each row."""

    multiples: tuple[float, ...]
    folds: tuple[Array, ...]
    losses: Floats


class Path:
    """The rows and where every fit starts. `search` finds the strengths, `fit` the coefficients."""

    def __init__(self, problem: LinearProblem, prior: Prior, weights: Floats, groups: Array | None) -> None:
        self.problem, self.prior, self.weights, self.groups = problem, prior, weights, groups
        self.start = prior.anchor.astype(problem.inputs.dtype)
        self.preconditioner = Preconditioner(problem, self.start)

    def fit(self, multiples: tuple[float, ...], start: Array) -> Optimum:
        """Fit all rows at given strengths."""
        strengths = self.prior.strengths(multiples, counted_rows(self.weights))
        tolerance = _TOLERANCE if start.dtype == np.float64 else _TOLERANCE_SINGLE
        return newton_cg(self.problem._replace(strengths=strengths), start, self.preconditioner, tolerance)

    def search(self, folds: Ints, train: Floats) -> tuple[Trial, list[Trial]]:
        """Return the chosen trial and all trials: one strength for all parts, then that of the last part alone."""
        n_parts = len(self.prior.parts)
        path = [(math.sqrt(10.0) ** place,) * n_parts for place in range(4, -9, -1)]
        trials = self._follow(folds, train, path, 1.0, (self.start,) * len(train))
        chosen = self.choose(trials, (1.0,) * n_parts)
        if n_parts > 1:
            *others, last = chosen.multiples
            path = [(*others, last * step) for step in (10.0, 1.0, 0.1)]
            again = self._follow(folds, train, path, last, chosen.folds)
            chosen, trials = self.choose(again, chosen.multiples), trials + again
        return chosen, trials

    def choose(self, trials: list[Trial], default: tuple[float, ...]) -> Trial:
        """Of the trials within a standard error of the best, return the one nearest to the default."""
        best = min(trials, key=lambda trial: self.mean(trial.losses))
        gains = [self.gain(trial.losses, best.losses) for trial in trials]
        good = [trial for trial, (gain, error) in zip(trials, gains, strict=True) if gain <= error]
        return min(good, key=lambda trial: abs(math.log(trial.multiples[-1] / default[-1])))

    def mean(self, losses: Floats) -> float:
        """Return the weighted mean over rows."""
        return float(np.average(losses, weights=self.weights))

    def gain(self, before: Floats, after: Floats) -> tuple[float, float]:
        """Return the mean gain and its standard error; rows of one group count as one observation."""
        return paired_gain(before, after, self.weights, self.groups)

    def _follow(
        self, folds: Ints, train: Floats, path: list[tuple[float, ...]], default: float, start: tuple[Array, ...]
    ) -> list[Trial]:
        trials: list[Trial] = []
        for multiples in path:
            trials.append(self._try(folds, train, multiples, start))
            start, means = trials[-1].folds, [self.mean(trial.losses) for trial in trials]
            gain, error = self.gain(trials[-1].losses, trials[int(np.argmin(means))].losses)
            flat = len(means) > 2 and max(means[-3:]) - min(means[-3:]) < _WORTHWHILE * means[-1]
            # The default is always tried; weaker penalties only while they may still improve the loss.
            if multiples[-1] < default and (flat or gain > 2 * error):
                break
        return trials

    def _try(self, folds: Ints, train: Floats, multiples: tuple[float, ...], start: tuple[Array, ...]) -> Trial:
        losses, fitted = np.empty(len(folds)), []
        for fold, (weights, from_here) in enumerate(zip(train, start, strict=True)):
            rows, mine = weights > 0, folds == fold
            strengths = self.prior.strengths(multiples, counted_rows(self.weights[rows]))
            problem = self.problem._replace(weights=weights, strengths=strengths).take(rows)
            fitted.append(newton_cg(problem, from_here, self.preconditioner, _PATH_TOLERANCE).point)
            held_out = self.problem.take(mine)
            losses[mine] = self.problem.loss.rows(held_out.logits(fitted[-1]), held_out.labels)
        return Trial(multiples, tuple(fitted), losses)


def counted_rows(weights: Floats) -> float:
    """Return the effective number of rows, (sum w)^2 / sum w^2. Kish, "Survey Sampling", 1965.

    >>> counted_rows(np.array([2.0, 2.0])), round(counted_rows(np.array([1.0, 10.0])), 3)
    (2.0, 1.198)
    """
    shares = weights / weights.sum()
    return 1 / float(shares @ shares)
