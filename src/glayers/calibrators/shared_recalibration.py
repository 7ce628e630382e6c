"""Out-of-fold log-probabilities and labels -> the shared correction that the rows ask for, and what it gains.

How far to move is settled by evidence (see `fitting.shared`); held-out rows then say what that is worth. Where they
find it worse by more than a standard error, or than a thousandth, it is left out.
"""

from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from glayers.arrays import Floats, Ints, row_blocks
from glayers.fitting.comparison import paired_gain
from glayers.fitting.folds import fold_weights
from glayers.fitting.shared import average_shared, shared_rows, shared_step
from glayers.maps import Chain
from glayers.predictions import Predictions

# Of log loss: what evidence asks for is kept against a doubt of the held-out rows, never against a finding.
_FORGIVEN = 1e-3


class Recalibration(NamedTuple):
    """The correction as a chain (empty where it does harm), its held-out predictions, and what it gained there."""

    chain: Chain
    out_of_fold: Floats
    gain: float
    error: float


def recalibrate(log_probabilities: Floats, given: Predictions, folds: Ints) -> Recalibration:
    """Fit the shared correction to predictions that were themselves made out of fold."""
    weights = np.ones(len(given)) if given.weights is None else np.asarray(given.weights)
    fold_weights(folds, given.weights)  # complains where a fold leaves nothing to learn from
    rows = shared_rows(log_probabilities, given.labels, given.weights)
    held_out = np.empty_like(log_probabilities)
    # Products this thin gain nothing from threads, and beside other work they wait for each other.
    with threadpool_limits(limits=1, user_api="blas"):
        whole = average_shared(rows, weights)
        for fold in range(int(folds.max()) + 1):
            mine = np.flatnonzero(folds == fold)
            step = shared_step(rows, average_shared(rows, weights * (folds != fold), whole).theta)
            for block in row_blocks(len(mine), log_probabilities.shape[1]):
                held_out[mine[block]] = step(log_probabilities[mine[block]])
    own = np.arange(len(given)), given.labels
    gain, error = paired_gain(-log_probabilities[own], -held_out[own], given.weights, given.groups)
    if not (gain > -min(error, _FORGIVEN) and np.isfinite(error)):
        return Recalibration(Chain(()), log_probabilities, gain, error)
    return Recalibration(Chain((shared_step(rows, whole.theta),)), held_out, gain, error)
