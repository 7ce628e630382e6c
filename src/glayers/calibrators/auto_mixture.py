"""Candidates -> their convex mixture of least held-out loss, corrected once more by what all classes share."""

from typing import NamedTuple

import numpy as np

from glayers.activations import log_softmax
from glayers.arrays import Floats, row_blocks
from glayers.calibrators.auto_families import Candidate, Task
from glayers.calibrators.shared_recalibration import recalibrate
from glayers.fitting.comparison import paired_gain
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.folds import assign_folds
from glayers.fitting.simplex import SHARES, Parts
from glayers.maps import Chain
from glayers.maps.keep_order import KeepOrder, in_order_of
from glayers.maps.stack import Stack, mixed

# A family that would count for less is not worth carrying along.
_LEAST_SHARE = 0.01


class Mixture(NamedTuple):
    """The map, its predictions out of fold, shares by name, and whether it ends in a last correction.

    `gain` is what that one takes off the held-out loss (NaN for a family alone, which has its own), or would take off
    the log loss where it is left out.
    """

    chain: Chain
    out_of_fold: Floats
    shares: dict[str, float]
    corrected: bool
    gain: float
    error: float


def mixture_of(candidates: list[Candidate], task: Task) -> Mixture:
    """Mix, leave out what hardly counts, mix again until all count, and correct."""
    kept, shares = candidates, _shares(candidates, task)
    while shares.min() < _LEAST_SHARE:
        kept = [candidate for candidate, share in zip(kept, shares, strict=True) if share >= _LEAST_SHARE]
        shares = _shares(kept, task)
    if len(kept) == 1:
        # It carries its own correction, or is temperature scaling.
        return Mixture(kept[0].chain, kept[0].out_of_fold, {kept[0].name: 1.0}, False, np.nan, np.nan)
    held_out = mixed(shares, [candidate.out_of_fold for candidate in kept])
    folds = assign_folds(len(task.given), task.given.groups, task.n_folds, task.seed + 3)
    found = recalibrate(held_out, task.given, folds)
    last, corrected, gain, error = found
    # A mixture of maps that keep the order keeps it too; the correction might not.
    if task.keep_order and last.steps:
        bent = KeepOrder.of(last)
        last, corrected = Chain((bent,)), log_softmax(in_order_of(held_out, corrected, bent.slope))
    if last.steps:
        before, after = (smooth_loss(task.loss).rows(each, task.given.labels) for each in (held_out, corrected))
        gain, error = paired_gain(before, after, task.given.weights, task.given.groups)
    stack = Stack(shares, tuple(candidate.chain for candidate in kept))
    return Mixture(
        Chain((stack,)) + last,
        corrected,
        {candidate.name: float(share) for candidate, share in zip(kept, shares, strict=True)},
        bool(last.steps),
        gain,
        error,
    )


def _shares(candidates: list[Candidate], task: Task) -> Floats:
    weights = np.ones(len(task.given)) if task.given.weights is None else np.asarray(task.given.weights)
    own = np.arange(len(task.given)), task.given.labels
    logs = np.array([candidate.out_of_fold[own] for candidate in candidates])
    # A factor common to a row's candidates changes no share by log loss, and keeps the least likely labels above 0.
    parts = Parts(
        np.exp(logs - logs.max(axis=0) if task.loss == "log" else logs),
        _products(candidates, weights / weights.sum()) if task.loss == "brier" else np.zeros((0, 0)),
    )
    start = np.full(len(candidates), 1 / len(candidates))
    return SHARES[task.loss](parts, weights / weights.sum(), start).shares


def _products(candidates: list[Candidate], row_shares: Floats) -> Floats:
    """Mean over rows of the sums over classes of p_i p_j, for every pair of candidates."""
    products = np.zeros((len(candidates), len(candidates)))
    for rows in row_blocks(*candidates[0].out_of_fold.shape):
        p = np.exp([candidate.out_of_fold[rows] for candidate in candidates])
        products += np.einsum("ink,jnk,n->ij", p, p, row_shares[rows], optimize=True)
    return products
