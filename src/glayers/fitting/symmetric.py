"""Out-of-fold log-probabilities and labels -> two dense layers that treat all classes alike, and so correct confidence.

The layers add a bend at each of six fixed log-probabilities. The log loss is convex in the six weights, so Newton's
method finds its one minimum in a few steps. A Gaussian prior pulls every weight toward 0, where the layers are
transparent.
"""

import numpy as np

from glayers.activations import log_softmax
from glayers.arrays import Floats, Ints, row_blocks
from glayers.fitting.newton import newton
from glayers.maps import SymmetricLayers

# Log-probabilities of bends; a class below the lowest one keeps its logit.
_KNOTS = (-16.0, -7.0, -4.0, -2.0, -1.0, -0.5)
_SPREAD = 0.3  # standard deviation of the prior of each change of slope; 0.1 corrects too little, 1 overfits 1,200 rows
_TOLERANCE = 1e-8  # of a mean over rows


def fit_symmetric(
    log_probabilities: Floats, labels: Ints, weights: Floats | None, folds: Ints
) -> tuple[SymmetricLayers, Floats]:
    """Return the layers fitted to all rows, and what those fitted without each fold make of its rows.

    A fit without a fold is one Newton step from the fit to all rows. The two differ by little, so one step suffices.
    """
    given = np.ones(len(labels)) if weights is None else weights
    knots, fractions = np.array(_KNOTS), given / given.sum()
    # The loss is a mean over rows, so their number divides the penalty; weights are worth 1 / sum(fractions^2) rows.
    penalty = np.full(len(knots), float(fractions @ fractions) / _SPREAD**2)
    every = np.arange(len(labels))

    def value(weight: Floats) -> float:
        step, loss = SymmetricLayers(weight, knots), 0.0
        for block in row_blocks(len(every), log_probabilities.shape[1]):
            corrected = step(log_probabilities[block])
            loss -= float(fractions[block] @ corrected[np.arange(len(corrected)), labels[block]])
        return loss + float(penalty @ weight**2) / 2

    def derivatives(weight: Floats, rows: Ints) -> tuple[Floats, Floats]:
        """Gradient and curvature of the loss of some rows, without the penalty."""
        gradient, curvature = np.zeros(len(knots)), np.zeros((len(knots), len(knots)))
        for block in row_blocks(len(rows), log_probabilities.shape[1] * len(knots)):
            own = rows[block]
            bends = np.maximum(log_softmax(log_probabilities[own])[..., None] - knots, 0.0)
            p = np.exp(SymmetricLayers(weight, knots)(log_probabilities[own])) * fractions[own, None]
            mean = np.einsum("nc,nck->nk", p, bends)
            gradient += mean.sum(axis=0) - fractions[own] @ bends[np.arange(len(own)), labels[own]]
            flat = bends.reshape(-1, len(knots))
            curvature += flat.T @ (p.reshape(-1, 1) * flat)
            curvature -= mean.T @ (mean / np.maximum(fractions[own, None], 1e-300))
        return gradient, curvature

    def penalised(weight: Floats) -> tuple[Floats, Floats]:
        gradient, curvature = derivatives(weight, every)
        return gradient + penalty * weight, curvature + np.diag(penalty)

    weight = newton(value, penalised, np.zeros(len(knots)), tolerance=_TOLERANCE).point
    gradient, curvature = penalised(weight)
    held_out = np.empty_like(log_probabilities)
    for fold in range(int(folds.max()) + 1):
        own = np.flatnonzero(folds == fold)
        without, bent = derivatives(weight, own)
        other = weight - np.linalg.solve(curvature - bent, gradient - without)
        held_out[own] = SymmetricLayers(other, knots)(log_probabilities[own])
    return SymmetricLayers(weight, knots), held_out
