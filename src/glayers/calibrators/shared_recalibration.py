"""Out-of-fold log-probabilities and labels -> the shared correction that held-out rows ask for, or none.

Several penalties are tried by cross-validation; the correction is kept only where it lowers the held-out loss by more
than the standard error of the difference.
"""

import math
from typing import NamedTuple

import numpy as np

from glayers.arrays import Floats, Ints
from glayers.fitting.comparison import paired_gain
from glayers.fitting.shared import SharedRows, fit_shared, shared_losses, shared_rows, shared_step
from glayers.maps import Chain
from glayers.predictions import Predictions

STRENGTHS = (1.0, 10.0, 100.0)


class Recalibration(NamedTuple):
    """The correction as a chain (empty where it does not pay), its held-out predictions, and what it gained."""

    chain: Chain
    out_of_fold: Floats
    strength: float
    gain: float
    error: float


def recalibrate(log_probabilities: Floats, given: Predictions, folds: Ints) -> Recalibration:
    """Fit the shared correction to predictions that were themselves made out of fold."""
    weights = np.ones(len(given)) if given.weights is None else np.asarray(given.weights)
    rows = shared_rows(log_probabilities, given.labels)
    plain = -log_probabilities[np.arange(len(given)), given.labels]
    tried = [_cross_fit(rows, weights, folds, strength) for strength in STRENGTHS]
    best = int(np.argmin([np.average(fit.losses, weights=weights) for fit in tried]))
    strength, kept, thetas = STRENGTHS[best], tried[best].losses, tried[best].thetas
    gain, error = paired_gain(plain, kept, given.weights, given.groups)
    if not gain > error:
        return Recalibration(Chain(()), log_probabilities, math.inf, gain, error)
    held_out = np.empty_like(log_probabilities)
    for fold, theta in enumerate(thetas):
        mine = folds == fold
        held_out[mine] = shared_step(rows, theta)(log_probabilities[mine])
    chain = Chain((shared_step(rows, fit_shared(rows, weights, strength)),))
    return Recalibration(chain, held_out, strength, gain, error)


class _CrossFit(NamedTuple):
    losses: Floats
    thetas: list[Floats]


def _cross_fit(rows: SharedRows, weights: Floats, folds: Ints, strength: float) -> _CrossFit:
    """Fit without each fold in turn; every row's loss comes from the fit that had not seen it."""
    thetas = [fit_shared(rows, weights * (folds != fold), strength) for fold in range(int(folds.max()) + 1)]
    losses = np.empty(len(folds))
    for fold, theta in enumerate(thetas):
        losses[folds == fold] = shared_losses(rows, theta)[folds == fold]
    return _CrossFit(losses, thetas)
