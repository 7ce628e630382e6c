"""Folds and a prior on the penalties -> how strong they should be, along a path from strong to weak.

Strengths are multiples of the prior. The default is 1; cross-validation moves away from it only where the gain exceeds
its own standard error. Each fit starts where the stronger one before it ended.

Without folds, `Path.average` uses the evidence. With few rows, it weighs the fits of all strengths by their evidence;
with many, it takes the strengths of most evidence.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, TypeAlias

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
# The search for the strengths of most evidence ends at a gain of so many nats, or after so many rounds.
_SETTLED, _MOST_ROUNDS = 0.5, 8
_TINY = 1e-9
_MOST_RATIO, _FARTHEST = 0.75, 6.0  # of one step to the one before; of strengths from the prior, in powers of ten
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


# Strengths, one for each part of the prior: the logarithm, to base 10, of the multiple. The anchor has the key ().
Key: TypeAlias = tuple[float, ...]


class Weighed(NamedTuple):
    """The fit at some strengths, its log evidence, and the strengths to try next."""

    point: Array
    evidence: float
    towards: Key


class Average(NamedTuple):
    """Coefficients averaged over strengths by evidence, the log evidence of all, and each fit with its chance.

    `few` is whether all strengths were averaged, as for few rows.
    """

    point: Array
    evidence: float
    fits: Mapping[Key, Array]
    chances: Mapping[Key, float]
    few: bool


class Path:
    """The rows and where every fit starts. `search` finds the strengths, `fit` the coefficients."""

    def __init__(self, problem: LinearProblem, prior: Prior, weights: Floats, groups: Array | None) -> None:
        self.problem, self.prior, self.weights, self.groups = problem, prior, weights, groups
        self.start = prior.anchor.astype(problem.inputs.dtype)
        self.preconditioner = Preconditioner(problem, self.start)
        self.few = is_few(counted_rows(weights))

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

    def average(self) -> Average:
        """Average fits of several strengths, and the anchor, each by its evidence in Laplace's approximation.

        log evidence = -n loss - d' P d / 2 - log det(I + P^-1/2 H P^-1/2) / 2, with n the rows counted by weight, d the
        distance from the anchor, P the penalty and H the curvature of n loss, of which only the part within each class
        counts. With few rows, strengths spread from the prior itself, as long as they are not negligible. With many
        rows one strength, that of most evidence, stands for all.
        """
        n_rows = counted_rows(self.weights)
        if self.few:
            return self._averaged(self._spread(None, n_rows), n_rows)
        return self._averaged(self._climb(n_rows, (0.0,) * len(self.prior.parts), self._at_prior), n_rows)

    def average_without(self, whole: Average) -> Average:
        """Average these rows, given the average over these and more: the search starts from its strengths and fits.

        The strengths are found again. With those of all rows, held-out losses would be too low.
        """
        n_rows = counted_rows(self.weights)
        self.few = whole.few
        if self.few:
            return self._averaged(self._spread(whole, n_rows), n_rows)
        key = max((each for each in whole.fits if each), key=whole.chances.__getitem__)
        return self._averaged(self._climb(n_rows, key, self._weigh(key, whole.fits[key], n_rows)), n_rows)

    def evidence(self) -> float:
        """Return the log evidence at the strengths of the prior itself."""
        return self._at_prior.evidence

    @cached_property
    def _at_prior(self) -> Weighed:
        return self._weigh((0.0,) * len(self.prior.parts), self.start, counted_rows(self.weights))

    def _climb(self, n_rows: float, key: Key, first: Weighed) -> dict[Key, Weighed]:
        """Return the fit at the strengths of most evidence, from the fit at some strengths on."""
        return dict([most_evidence(key, first, lambda there, start: self._weigh(there, start, n_rows))])

    def _spread(self, whole: Average | None, n_rows: float) -> dict[Key, Weighed]:
        """Return the fits at the strengths of `whole`, or else at all that are not negligible around the prior."""
        tried: dict[Key, Weighed] = {}
        best = self._evidence_of_none(n_rows)
        waiting: dict[Key, Array] = {(0.0,) * len(self.prior.parts): self.start}
        if whole is not None:
            waiting = {key: whole.fits[key] for key, chance in whole.chances.items() if key and chance > _LEAST_CHANCE}
        while waiting:
            key = next(iter(waiting))
            tried[key] = found = self._weigh(key, waiting.pop(key), n_rows)
            best = max(best, found.evidence)
            if whole is None and found.evidence > best - _NEGLIGIBLE:
                waiting |= {each: found.point for each in _neighbours(key) if each not in tried}
        return tried

    def _averaged(self, tried: Mapping[Key, Weighed], n_rows: float) -> Average:
        """Average the fits, and the anchor, by their evidence."""
        fits: dict[Key, Array] = {(): self.start} | {key: found.point for key, found in tried.items()}
        evidence = np.array([self._evidence_of_none(n_rows), *(found.evidence for found in tried.values())])
        chances = softmax(evidence)
        point = np.tensordot(chances.astype(self.start.dtype), np.stack(list(fits.values())), 1)
        by_key = dict(zip(fits, chances.tolist(), strict=True))
        return Average(point, float(np.logaddexp.reduce(evidence)), fits, by_key, self.few)

    def _evidence_of_none(self, n_rows: float) -> float:
        return -n_rows * self.problem._replace(strengths=np.zeros_like(self.prior.anchor)).value(self.start)

    def _weigh(self, key: Key, start: Array, n_rows: float) -> Weighed:
        """Return the fit at these strengths, its log evidence, and strengths of more evidence."""
        precision = self.prior.strengths(tuple(10.0**place for place in key), n_rows)
        tolerance = 1e-3 / n_rows if start.dtype == np.float64 else _TOLERANCE_SINGLE
        found = newton_cg(self.problem._replace(strengths=precision), start, self.preconditioner, tolerance)
        blocks: Floats = np.add.reduce([self._blocks(part, found.point) for part in self.problem.parts()])
        scale = 1 / np.sqrt(precision.T)
        if blocks.shape[-1] == 1:  # diagonals alone
            penalised = 1 + scale**2 * blocks[:, :, 0]
            determinant, left = float(np.log(penalised).sum()), 1 / penalised
        else:
            whole = np.eye(len(precision)) + scale[:, :, None] * blocks * scale[:, None, :]
            determinant = float(np.linalg.slogdet(whole)[1].sum())
            left = np.diagonal(np.linalg.inv(whole), axis1=1, axis2=2)
        evidence = -n_rows * found.value - determinant / 2
        free = [part * (np.asarray(self.prior.held) == 0) for part in self.prior.parts]
        return Weighed(found.point, evidence, next_strengths(left.T, (found.point - self.prior.anchor) ** 2, free))

    @staticmethod
    def _blocks(problem: LinearProblem, point: Array) -> Floats:
        curvature = problem.loss.curve_diagonal(softmax(problem.logits(point))) * problem.weights[:, None]
        return problem.blocks(curvature.astype(point.dtype)).astype(np.float64)

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


def most_evidence(key: Key, first: Weighed, weigh: Callable[[Key, Array], Weighed]) -> tuple[Key, Weighed]:
    """Return the strengths of most evidence and their fit, by MacKay's fixed point; `first` is the fit at `key`.

    Each round sets the strength of a part to the number of its coefficients that the rows determine, divided by their
    squared distance from the anchor. MacKay, "Bayesian interpolation", 1992.
    """
    best, step = first, np.zeros(len(key))
    for _ in range(_MOST_ROUNDS):
        step, before = np.subtract(best.towards, key), step
        # Steps to a fixed point shrink by a constant ratio: go where they would end, or only one step if that is worse.
        ratio = np.divide(step, before, out=np.zeros(len(key)), where=before != 0).clip(0.0, _MOST_RATIO)
        for target in (key + step / (1 - ratio), key + step)[: 1 + bool(ratio.any())]:
            there = tuple(target.clip(-_FARTHEST, _FARTHEST).tolist())
            found = weigh(there, best.point)
            gain = found.evidence - best.evidence
            if gain > 0:
                key, best = there, found
                break
        if gain < _SETTLED:
            break
    return key, best


def next_strengths(left: Floats, squares: Floats, parts: Sequence[Floats]) -> Key:
    """Return the next strengths of MacKay's fixed point, as logarithms to base 10 of multiples of the prior's parts.

    `left` is the posterior variance of each coefficient as a fraction of its prior variance, and `squares` its squared
    distance from the anchor.

    >>> [round(each, 3) for each in next_strengths(np.array([0.1, 0.1]), np.array([0.5, 0.4]), [np.ones(2)])]
    [0.301]
    """
    determined = np.maximum(0.0, 1 - left)
    return tuple(
        math.log10(max(_TINY, float(determined[part > 0].sum())) / max(_TINY, float((part * squares).sum())))
        for part in parts
    )


def _neighbours(key: Key) -> list[Key]:
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


def is_few(n_rows: float) -> bool:
    """Whether several penalties are averaged, because the rows do not show which one is best."""
    return caution(n_rows) > 0
