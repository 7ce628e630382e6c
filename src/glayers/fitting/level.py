"""Log-probabilities and the level of the logits -> a temperature and one shift per class that depend on the level.

Logits say more than their probabilities: a constant that is added to a row changes no probability, but it may tell how
far the row can be trusted. The level is log sum exp(z), and z = log softmax(z) + level, so that a function of both is a
function of z. The correction is piecewise linear in the level.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from glayers.activations import keep_impossible, log_softmax
from glayers.arrays import Array, Floats, Ints
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.folds import assign_folds, paired_gain
from glayers.fitting.penalty_path import counted_rows

_QUANTILES = (0.05, 0.35, 0.65, 0.95)  # of the levels, where the knots lie
_DEEPEST = -800.0  # exp is exactly 0 below
# A gain of this many standard errors is needed: a level that tells nothing gains as much once in 44 times.
_ERRORS = 2.0


@dataclass(frozen=True, eq=False)
class LevelCorrection:
    """At each knot of the level: by how much log-probabilities are scaled, and what is added to each class."""

    knots: Floats
    scale: Floats  # (knots,)
    shift: Floats  # (knots, classes)

    def __call__(self, log_p: Floats, level: Floats) -> Floats:
        """Return corrected log-probabilities."""
        near = _hats(level, self.knots)
        moved = np.maximum(log_p, _DEEPEST) * (1 + near @ self.scale)[:, None] + near @ self.shift
        return np.asarray(log_softmax(keep_impossible(moved, log_p)))


def level_of(logits: Array) -> Floats:
    """Return log sum exp(z) of each row, or 0 for one logit, which has no level.

    >>> level_of(np.log([[1.0, 2.0, 5.0], [0.1, 0.2, 0.7]])).round(3).tolist()
    [2.079, 0.0]
    """
    if logits.shape[1] == 1:
        return np.zeros(len(logits))
    return np.asarray(logsumexp(logits.astype(np.float64), axis=1))


def fit_level(
    log_p: Floats, level: Floats, labels: Ints, weights: Floats | None, groups: Array | None, seed: int
) -> LevelCorrection | None:
    """Return the correction of least cross-validated log loss, or None if the level does not lower it significantly."""
    knots = np.quantile(level, _QUANTILES)
    if not (np.diff(knots) > 1e-9 * np.abs(knots).max()).all():
        return None
    given = np.ones(len(labels)) if weights is None else weights
    folds, loss = assign_folds(len(labels), groups, 5, seed), smooth_loss("log")
    before = loss.rows(log_p, labels)
    best, most = None, 0.0
    for with_shifts in (False, True):
        after = before.copy()
        for fold in range(int(folds.max()) + 1):
            own = folds == fold
            if given[~own].any():
                found = _fit(log_p, level, labels, given * ~own, knots, with_shifts)
                after[own] = loss.rows(found(log_p[own], level[own]), labels[own])
        gain, error = paired_gain(before, after, weights, groups)
        if gain > max(most, _ERRORS * error):
            best, most = with_shifts, gain
    return None if best is None else _fit(log_p, level, labels, given, knots, best)


def _fit(
    log_p: Floats, level: Floats, labels: Ints, weights: Floats, knots: Floats, with_shifts: bool
) -> LevelCorrection:
    """Minimise the mean log loss under a standard normal prior on every coefficient."""
    used = weights > 0
    plain, labels, weights = np.maximum(log_p[used], _DEEPEST), labels[used], weights[used]
    possible, near = log_p[used] > -np.inf, _hats(level[used], knots)
    fractions, prior = weights / weights.sum(), 1 / counted_rows(weights)
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
    return LevelCorrection(knots, found[:, 0], shift)


def _hats(level: Floats, knots: Floats) -> Floats:
    """Return how much each knot counts at each level, (n, knots): linear between knots, constant beyond the ends.

    >>> _hats(np.array([0.0, 1.5, 9.0]), np.array([1.0, 2.0, 3.0])).tolist()
    [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    return np.stack([np.interp(level, knots, each) for each in np.eye(len(knots))], axis=1)
