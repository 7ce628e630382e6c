"""Log-probabilities and the level of the logits -> a temperature and one shift per class that depend on the level.

Logits say more than their probabilities: a constant that is added to a row changes no probability, but it may tell how
far the row can be trusted. Its level is log sum exp(z) or the mean of z, whichever lowers the held-out loss more. With
either one, z = log softmax(z) + constant of the row is known, so a function of both is a function of z. The correction
is piecewise linear in the level.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from glayers.activations import keep_impossible, log_softmax
from glayers.arrays import Array, Floats
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.folds import assign_folds, effective_rows, paired_gain
from glayers.predictions import Predictions

Level = Callable[[Array], Floats]

_QUANTILES = (0.05, 0.35, 0.65, 0.95)  # of the levels, where the knots lie
_DEEPEST = -800.0  # exp is exactly 0 below
_ERRORS = 2.0  # a gain of more standard errors is needed
_ROWS_PER_SHIFT = 5  # with fewer rows for each of its numbers, a shift per class costs more than it gains
_MOST_ENTRIES = 5_000_000  # rows x classes to learn four numbers from: more would only take longer


@dataclass(frozen=True, eq=False)
class LevelCorrection:
    """At each knot of the level: by how much log-probabilities are scaled, and what is added to each class."""

    level: Level
    knots: Floats
    scale: Floats  # (knots,)
    shift: Floats  # (knots, classes)

    def __call__(self, log_p: Floats, logits: Array) -> Floats:
        """Return corrected log-probabilities."""
        near = _hats(self.level(logits), self.knots)
        moved = np.maximum(log_p, _DEEPEST) * (1 + near @ self.scale)[:, None] + near @ self.shift
        return np.asarray(log_softmax(keep_impossible(moved, log_p)))


def highest_level(logits: Array) -> Floats:
    """Return log sum exp(z) of each row, which is close to its highest logit.

    >>> highest_level(np.log([[1.0, 2.0, 5.0], [0.1, 0.2, 0.7]])).round(3).tolist()
    [2.079, 0.0]
    """
    from scipy.special import logsumexp  # on first use: importing it takes longer than glayers

    return np.asarray(logsumexp(logits.astype(np.float64), axis=1))


def mean_level(logits: Array) -> Floats:
    """Return the mean of the possible logits of each row.

    >>> mean_level(np.array([[1.0, 2.0, 6.0], [1.0, 2.0, -np.inf]])).tolist()
    [3.0, 1.5]
    """
    return np.asarray(logits.astype(np.float64).mean(axis=1, where=logits > -np.inf))


def fit_level(log_p: Floats, given: Predictions, seed: int) -> LevelCorrection | None:
    """Return the correction of least cross-validated log loss, or None if the level does not lower it significantly.

    `log_p` are the log-probabilities to correct. One logit has no level.
    """
    if given.logits.shape[1] == 1:
        return None
    if len(given) * log_p.shape[1] > _MOST_ENTRIES:
        some = np.random.default_rng(seed).permutation(len(given))[: _MOST_ENTRIES // log_p.shape[1]]
        log_p, given = log_p[some], given.take(some)
    weights = np.ones(len(given)) if given.weights is None else given.weights
    folds, loss = assign_folds(len(given), given.groups, 3, seed), smooth_loss("log")
    before = loss.rows(log_p, given.labels)
    rounding = 1e-9 * np.abs(given.logits[given.logits > -np.inf]).max()
    best, most = None, 0.0
    enough = effective_rows(weights) >= _ROWS_PER_SHIFT * len(_QUANTILES) * log_p.shape[1]
    for level, with_shifts in itertools.product((highest_level, mean_level), (False, True)[: 1 + enough]):
        knots = np.quantile(level(given.logits), _QUANTILES)
        if not (np.diff(knots) > rounding).all():
            continue  # the same level in many rows
        fit = partial(_fit, log_p, given, level, knots, with_shifts)
        after = before.copy()
        for fold in range(int(folds.max()) + 1):
            own = folds == fold
            if weights[~own].any():
                after[own] = loss.rows(fit(weights * ~own)(log_p[own], given.logits[own]), given.labels[own])
        gain, error = paired_gain(before, after, given.weights, given.groups)
        if gain > max(most, _ERRORS * error):
            best, most = fit, gain
    return None if best is None else best(weights)


def _fit(
    log_p: Floats, given: Predictions, level: Level, knots: Floats, with_shifts: bool, weights: Floats
) -> LevelCorrection:
    """Return the correction of least mean log loss, under a standard normal prior on every coefficient."""
    from scipy.optimize import minimize  # on first use: importing it takes longer than glayers

    used = weights > 0
    plain, labels, weights = np.maximum(log_p[used], _DEEPEST), given.labels[used], weights[used]
    possible, near = log_p[used] > -np.inf, _hats(level(given.logits[used]), knots)
    fractions, prior = weights / weights.sum(), 1 / effective_rows(weights)
    rows, shape = np.arange(len(labels)), (len(knots), 1 + log_p.shape[1] * with_shifts)

    def value_and_slope(flat: Floats) -> tuple[float, Floats]:
        scale, shift = np.split(flat.reshape(shape), [1], axis=1)
        moved = plain * (1 + near @ scale) + (near @ shift if with_shifts else 0.0)
        new = log_softmax(np.where(possible, moved, -np.inf))
        slope = np.exp(new) * fractions[:, None]
        slope[rows, labels] -= fractions
        by_scale = near.T @ (slope * plain).sum(axis=1, keepdims=True)
        gradient = np.hstack([by_scale, near.T @ slope]) if with_shifts else by_scale
        return float(-fractions @ new[rows, labels] + prior * flat @ flat / 2), gradient.ravel() + prior * flat

    found = minimize(value_and_slope, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B").x.reshape(shape)
    shift = found[:, 1:] if with_shifts else np.zeros((len(knots), log_p.shape[1]))
    return LevelCorrection(level, knots, found[:, 0], shift)


def _hats(level: Floats, knots: Floats) -> Floats:
    """Return how much each knot counts at each level, (n, knots): linear between knots, constant beyond the ends.

    >>> _hats(np.array([0.0, 1.5, 9.0]), np.array([1.0, 2.0, 3.0])).tolist()
    [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    return np.stack([np.interp(level, knots, each) for each in np.eye(len(knots))], axis=1)
