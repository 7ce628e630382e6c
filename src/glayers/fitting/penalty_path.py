"""Folds and a prior on the penalties -> how strong they should be, along a path from strong to weak.

Strengths are multiples of the prior. The default is 1; cross-validation moves away from it only where the gain exceeds
its own standard error. Each fit starts where the stronger one before it ended.

With few rows, no strength need be chosen: `Path.average` weighs the fits of all strengths by their evidence.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Floats, Ints
from glayers.fitting.folds import paired_gain
from glayers.fitting.newton import LinearProblem, Optimum, Preconditioner, newton_cg

# Relative differences of held-out losses below this do not matter.
_WORTHWHILE = 1e-4
_PATH_TOLERANCE = 1e-5
_TOLERANCE = 1e-13
_TOLERANCE_SINGLE = 1e-6  # what float32 can see
# Averages over strengths: multiples 10^place of the prior, from 100 down to 0.001. Strengths this many nats of evidence
# behind the best count less than a hundredth of it; their neighbours are not tried.
_STRONGEST_PLACE, _WEAKEST_PLACE = 2, -3
_NEGLIGIBLE = 4.6
_LEAST_CHANCE = 1e-3  # strengths of less chance with all rows are not tried again without a fold


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


class Average(NamedTuple):
    """Coefficients averaged over strengths by evidence, the log evidence of all, and each fit with its chance.

    Fits have as key the logarithm, to base 10, of the multiples; the anchor has the key ().
    """

    point: Array
    evidence: float
    fits: Mapping[tuple[int, ...], Array]
    chances: Mapping[tuple[int, ...], float]


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

    def average(self, near: Average | None = None) -> Average:
        """Average the fits of all strengths, and the anchor, each by its evidence in Laplace's approximation.

        log evidence = -n loss - d' P d / 2 - log det(I + P^-1/2 H P^-1/2) / 2, with n the rows counted by weight, d the
        distance from the anchor, P the penalty and H the curvature of n loss, of which only the part within each class
        counts. Strengths spread from the prior itself, as long as they are not negligible. `near` is the average over
        these rows and more: only its strengths are tried, from where its fits ended.
        """
        n_rows = counted_rows(self.weights)
        fits: dict[tuple[int, ...], Array] = {(): self.start}
        unpenalised = self.problem._replace(strengths=np.zeros_like(self.prior.anchor))
        evidence: dict[tuple[int, ...], float] = {(): -n_rows * unpenalised.value(self.start)}
        waiting = {(0,) * len(self.prior.parts): self.start}
        if near is not None:
            waiting = {key: near.fits[key] for key, chance in near.chances.items() if key and chance > _LEAST_CHANCE}
        while waiting:
            key = next(iter(waiting))
            fits[key], evidence[key] = self._weigh(key, waiting.pop(key), n_rows)
            if near is None and evidence[key] > max(evidence.values()) - _NEGLIGIBLE:
                waiting |= {each: fits[key] for each in _neighbours(key) if each not in fits}
        log_chances = np.array(list(evidence.values()))
        chances = softmax(log_chances)
        point = np.tensordot(chances.astype(self.start.dtype), np.stack(list(fits.values())), 1)
        total = float(np.logaddexp.reduce(log_chances))
        return Average(point, total, fits, dict(zip(fits, chances.tolist(), strict=True)))

    def evidence(self) -> float:
        """Return the log evidence at the strengths of the prior itself."""
        return self._weigh((0,) * len(self.prior.parts), self.start, counted_rows(self.weights))[1]

    def _weigh(self, key: tuple[int, ...], start: Array, n_rows: float) -> tuple[Array, float]:
        """Return the fit at these strengths and its log evidence."""
        strengths = self.prior.strengths(tuple(10.0**place for place in key), n_rows)
        problem = self.problem._replace(strengths=strengths)
        tolerance = 1e-3 / n_rows if start.dtype == np.float64 else _TOLERANCE_SINGLE
        found = newton_cg(problem, start, self.preconditioner, tolerance)
        weights = self.problem.weights[:, None]
        curvature = problem.loss.curve_diagonal(softmax(problem.logits(found.point))) * weights
        blocks = problem.blocks(curvature.astype(start.dtype)).astype(np.float64)
        scale = 1 / np.sqrt(strengths.T)
        penalised = np.eye(len(strengths)) + scale[:, :, None] * blocks * scale[:, None, :]
        return found.point, -n_rows * found.value - float(np.linalg.slogdet(penalised)[1].sum()) / 2

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


def _neighbours(key: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return the strengths ten times as strong or weak in one part.

    >>> _neighbours((2, 0))
    [(1, 0), (2, 1), (2, -1)]
    """
    moved = [(*key[:i], key[i] + step, *key[i + 1 :]) for i in range(len(key)) for step in (1, -1)]
    return [each for each in moved if min(each) >= _WEAKEST_PLACE and max(each) <= _STRONGEST_PLACE]


def counted_rows(weights: Floats) -> float:
    """Return the effective number of rows, (sum w)^2 / sum w^2. Kish, "Survey Sampling", 1965.

    >>> counted_rows(np.array([2.0, 2.0])), round(counted_rows(np.array([1.0, 10.0])), 3)
    (2.0, 1.198)
    """
    shares = weights / weights.sum()
    return 1 / float(shares @ shares)


def caution(n_rows: float) -> float:
    """Return how much priors against chance findings count: fully up to 1,000 rows, not at all from 2,000 on.

    >>> caution(500), caution(1_200), caution(5_000)
    (1.0, 0.8, 0.0)
    """
    return min(1.0, max(0.0, 2 - n_rows / 1_000))
