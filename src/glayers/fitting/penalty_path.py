"""Folds and a prior on the penalties -> how strong they should be, along a path from strong to weak.

Strengths are multiples of the prior, which needs no search to be sound: 1 is the default, and held-out rows move it
only as far as the gain exceeds its own standard error. Each fit starts where the stronger one before it ended.
"""

import math
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.fitting.comparison import paired_gain
from glayers.fitting.newton import LinearProblem, Optimum, Preconditioner, newton

# Held-out losses of two strengths differ by 1e-4 of themselves and more where the difference matters.
_WORTHWHILE = 1e-4
_PATH_TOLERANCE = 1e-5
_TOLERANCE = 1e-13
_TOLERANCE_SINGLE = 1e-6  # what float32 can see
_STRONGEST, _WEAKEST = 1e2, 1e-4
# Once all strengths are chosen alike, the last part's own is looked for this far around.
_AROUND = 1e1


class Prior(NamedTuple):
    """What holds coefficients (r, k) back: strengths times rows, in parts that may be scaled apart, and an anchor.

    `held` are strengths that no choice takes away.
    """

    parts: tuple[Floats, ...]
    anchor: Floats
    held: Floats | float = 0.0

    def strengths(self, multiples: tuple[float, ...], n_rows: float) -> Floats:
        """Return the strength of every coefficient for a mean over that many rows."""
        chosen = np.add.reduce([m * part for m, part in zip(multiples, self.parts, strict=True)])
        return (chosen + self.held) / n_rows


class Trial(NamedTuple):
    """One choice of strengths: what it is, coefficients of every fold, and the loss of each row when held out."""

    multiples: tuple[float, ...]
    folds: tuple[Array, ...]
    losses: Floats


class Gain(NamedTuple):
    """By how much a mean loss falls, and the standard error of that."""

    mean: float
    error: float


class Path:
    """The rows, their folds and where every fit starts; `search` finds the strengths, `fit` the coefficients."""

    def __init__(
        self, problem: LinearProblem, prior: Prior, start: Array, weights: Floats | None, groups: Array | None
    ) -> None:
        self.problem, self.prior, self.start = problem, prior, start
        self.weights = np.ones(len(problem.labels)) if weights is None else weights
        self.groups = groups
        self.preconditioner = Preconditioner(problem, start)

    def fit(self, multiples: tuple[float, ...], start: Array) -> Optimum:
        """Fit all rows at given strengths."""
        strengths = self.prior.strengths(multiples, counted_rows(self.weights))
        tolerance = _TOLERANCE if start.dtype == np.float64 else _TOLERANCE_SINGLE
        return newton(self.problem._replace(strengths=strengths), start, self.preconditioner, tolerance)

    def search(self, folds: Ints, train: Floats) -> tuple[Trial, list[Trial]]:
        """Return the trial to trust and all that were made: first all strengths alike, then the last part alone."""
        n_parts = len(self.prior.parts)
        path = [(step,) * n_parts for step in _steps(math.sqrt(10.0), _STRONGEST, _WEAKEST)]
        trials = self._walk(folds, train, path, 1.0, (self.start,) * len(train))
        chosen = self.choose(trials, (1.0,) * n_parts)
        if n_parts > 1:
            *others, last = chosen.multiples
            path = [(*others, last * step) for step in _steps(10.0, _AROUND, 1 / _AROUND)]
            again = self._walk(folds, train, path, last, chosen.folds)
            chosen, trials = self.choose(again, chosen.multiples), trials + again
        return chosen, trials

    def choose(self, trials: list[Trial], default: tuple[float, ...]) -> Trial:
        """Return the trial nearest to the default of all that the best does not beat by more than a standard error."""
        best = min(trials, key=lambda trial: self.mean(trial.losses))
        gains = [self.gain(trial.losses, best.losses) for trial in trials]
        good = [trial for trial, gain in zip(trials, gains, strict=True) if gain.mean <= gain.error]
        return min(good, key=lambda trial: abs(math.log(trial.multiples[-1] / default[-1])))

    def mean(self, losses: Floats) -> float:
        """Return the weighted mean over rows."""
        return float(np.average(losses, weights=self.weights))

    def gain(self, before: Floats, after: Floats) -> Gain:
        """Return the mean of paired differences; rows of one group count as one observation."""
        return Gain(*paired_gain(before, after, self.weights, self.groups))

    def _walk(
        self,
        folds: Ints,
        train: Floats,
        path: list[tuple[float, ...]],
        default: float,
        start: tuple[Array, ...],
    ) -> list[Trial]:
        trials: list[Trial] = []
        for multiples in path:
            trials.append(self._try(folds, train, multiples, start))
            start = trials[-1].folds
            # The default is always tried; below it, weaker still only while there is something to hope for.
            if multiples[-1] < default and self._hopeless(trials):
                break
        return trials

    def _hopeless(self, trials: list[Trial]) -> bool:
        """Whether the last trial is clearly worse than the best, or the last three are as good as the same."""
        means = [self.mean(trial.losses) for trial in trials]
        gain = self.gain(trials[-1].losses, trials[int(np.argmin(means))].losses)
        flat = len(means) > 2 and max(means[-3:]) - min(means[-3:]) < _WORTHWHILE * means[-1]
        return flat or gain.mean > 2 * gain.error

    def _try(self, folds: Ints, train: Floats, multiples: tuple[float, ...], start: tuple[Array, ...]) -> Trial:
        losses, fitted = np.empty(len(folds)), []
        for fold, (shares, from_here) in enumerate(zip(train, start, strict=True)):
            rows, mine = shares > 0, folds == fold
            problem = self.problem._replace(
                rows=self.problem.rows.take(rows),
                labels=self.problem.labels[rows],
                shares=shares[rows],
                strengths=self.prior.strengths(multiples, counted_rows(self.weights[rows])),
            )
            fitted.append(newton(problem, from_here, self.preconditioner, _PATH_TOLERANCE).coefficients)
            losses[mine] = held_out_losses(self.problem, fitted[-1], mine)
        return Trial(multiples, tuple(fitted), losses)


def held_out_losses(problem: LinearProblem, coefficients: Array, rows: Array) -> Floats:
    """Return the loss of some rows."""
    return problem.loss.rows(problem.rows.take(rows).forward(coefficients), problem.labels[rows])


def counted_rows(weights: Floats) -> float:
    """How many rows weights stand for: their sum, as whole numbers repeat rows, yet no fewer than their spread tells.

    >>> counted_rows(np.array([2.0, 1.0, 3.0])), round(counted_rows(np.array([0.25, 0.25])), 6)
    (6.0, 2.0)
    """
    total = float(weights.sum())
    return max(total, total / float((weights / weights.sum()) @ weights))


def ones_appended(inputs: Array) -> Array:
    """Return inputs with the column that an intercept multiplies."""
    return np.concatenate([inputs, np.ones((len(inputs), 1), dtype=inputs.dtype)], axis=1)


def _steps(ratio: float, strongest: float, weakest: float) -> list[float]:
    """Return multiples from strong to weak, 1 among them to the last digit."""
    upwards, downwards = round(math.log(strongest, ratio)), round(-math.log(weakest, ratio))
    return [ratio**place for place in range(upwards, -downwards - 1, -1)]
