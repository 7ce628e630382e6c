"""Log-probabilities and the level of the logits -> a temperature and one shift per class that depend on the level.

Logits say more than their probabilities: a constant that is added to a row changes no probability, but it may tell how
far the row can be trusted. Its level is log sum exp(z) or the mean of z, whichever lowers the held-out loss more. With
either one, z = log softmax(z) + constant of the row is known, so a function of both is a function of z. The correction
is piecewise linear in the level, and its strength comes from the rows (`evidence.py`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from glayers.activations import log_softmax
from glayers.arrays import Array, Floats, Ints
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.evidence import find_precisions, fit_at, held_out_scores
from glayers.fitting.folds import assign_folds, effective_rows, paired_gain
from glayers.fitting.parts import Design, LinearPart, SharedPart
from glayers.maps.corrections import LOWEST
from glayers.predictions import Predictions

Level = Callable[[Array], Floats]

_USUAL = {"scale by level": 10.0, "shift by level": 30.0}  # precisions, as of corrections without a level
_QUANTILES = (0.05, 0.35, 0.65, 0.95)  # of the levels, where the knots lie
_ERRORS = 2.0  # a gain of more standard errors is needed
_MOST_ENTRIES = 5_000_000  # rows x classes to learn from: more would only take longer


class LevelCorrection(NamedTuple):
    """The coefficients of each knot of the level: by how much log-probabilities are scaled, and one shift per class."""

    level: Level
    knots: Floats
    coefficients: Floats

    def __call__(self, log_p: Floats, logits: Array) -> Floats:
        """Return corrected log-probabilities."""
        design = _design(log_p, self.level(logits), self.knots, np.zeros(len(log_p), np.int64), np.ones(len(log_p)))
        return np.asarray(log_softmax(log_p + design.scores(self.coefficients)))


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
    if log_p.size > _MOST_ENTRIES:
        some = np.random.default_rng(seed).permutation(len(given))[: _MOST_ENTRIES // log_p.shape[1]]
        log_p, given = log_p[some], given.take(some)
    weights = np.ones(len(given)) if given.weights is None else given.weights
    weights = weights / weights.sum() * effective_rows(weights)
    folds = assign_folds(len(given), given.groups, 3, seed)
    loss = smooth_loss("log")
    before = loss.rows(log_p, given.labels)
    rounding = 1e-9 * np.abs(given.logits[given.logits > -np.inf]).max()
    best = None
    most = 0.0
    for level in (highest_level, mean_level):
        levels = level(given.logits)
        knots = np.quantile(levels, _QUANTILES)
        if not (np.diff(knots) > rounding).all():
            continue  # the same level in many rows
        design = _design(log_p, levels, knots, given.labels, weights)
        fit = fit_at(design, loss, *find_precisions(design, _USUAL))
        after = loss.rows(held_out_scores(design, loss, fit, folds), given.labels)
        gain, error = paired_gain(before, after, given.weights, given.groups)
        if gain > max(most, _ERRORS * error):
            most = gain
            best = LevelCorrection(level, knots, fit.state.point)
    return best


def _design(log_p: Floats, levels: Floats, knots: Floats, labels: Ints, weights: Floats) -> Design:
    """Return the rows with a scale and one shift per class at each knot."""
    near = _hats(levels, knots)
    shape = len(knots), log_p.shape[1]
    no_bends = np.zeros((0, *log_p.shape))
    owners = np.zeros((len(knots), 1), np.int64)
    scale = SharedPart(np.maximum(log_p, LOWEST), no_bends, near, None, ("scale by level",), owners)
    shift = LinearPart(near, np.zeros(shape), ("shift by level",), np.zeros(shape, np.int64))
    return Design(log_p, labels, weights, (scale, shift))


def _hats(level: Floats, knots: Floats) -> Floats:
    """Return how much each knot counts at each level, (n, knots): linear between knots, constant beyond the ends.

    >>> _hats(np.array([0.0, 1.5, 9.0]), np.array([1.0, 2.0, 3.0])).tolist()
    [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    return np.stack([np.interp(level, knots, each) for each in np.eye(len(knots))], axis=1)
