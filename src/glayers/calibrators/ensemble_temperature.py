"""Logits and labels -> a mixture of tempered, plain and flat probabilities: temperature with two more shares."""

import time
import warnings
from typing import Literal

import numpy as np

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Floats, row_blocks
from glayers.calibrators.base import Calibrator, apply_map
from glayers.errors import GlayersWarning
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.diagnostics import Diagnostics, label_facts
from glayers.fitting.simplex import SHARES, Parts
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Chain, Reference
from glayers.maps.mixture import TemperedMixture
from glayers.predictions import Predictions


class EnsembleTemperatureScaling(Calibrator):
    """w0 softmax(z / T) + w1 softmax(z) + w2 / k, with shares on the simplex. Zhang, Kailkhura and Han, ICML 2020.

    Keeps every ranking. T minimises the log loss alone; given T, either loss is convex in the shares.

    >>> rng = np.random.default_rng(0)
    >>> z = 4 * rng.normal(size=(20_000, 3))
    >>> guess = rng.random(20_000) < 0.2  # these labels have nothing to do with the logits
    >>> labels = np.where(guess, rng.integers(0, 3, 20_000), (z + rng.gumbel(size=z.shape)).argmax(axis=1))
    >>> round(float(EnsembleTemperatureScaling().fit(z, labels).shares_[2]), 1)
    0.2
    """

    def __init__(self, loss: Literal["log", "brier"] = "log") -> None:
        self.loss = loss

    def _fit(self, given: Predictions) -> None:
        began = time.perf_counter()
        loss = smooth_loss(self.loss)
        temperature = fit_inverse_temperature(given.logits, given.labels, given.weights)
        weights = np.ones(len(given)) if given.weights is None else given.weights
        row_shares = weights / weights.sum()
        # From temperature scaling, with a little of the rest.
        start = np.array([0.98, 0.01, 0.01])
        found = SHARES[self.loss](_parts(given, temperature.factor, row_shares), row_shares, start)
        self.map_ = Chain((Reference(), TemperedMixture(found.shares, np.asarray(temperature.factor))))
        before, after = (
            float(np.average(loss.rows(logits, given.labels), weights=weights))
            for logits in (apply_map(Chain(()), given.logits), apply_map(self.map_, given.logits))
        )
        converged = found.converged and temperature.converged
        reason = temperature.reason or ("converged" if converged else "the shares have not settled")
        self.diagnostics_ = Diagnostics(
            method="ensemble temperature scaling",
            converged=converged,
            reason=reason,
            iterations=temperature.steps + found.iterations,
            loss_before=before,
            loss_after=after,
            moved=after != before,
            n_parameters=3,
            seconds=time.perf_counter() - began,
            **label_facts(given),
        )
        if not converged or temperature.reason:
            warnings.warn(f"ensemble temperature scaling: {reason}", GlayersWarning, stacklevel=3)
        if not after < before:
            warnings.warn(
                f"ensemble temperature scaling did not lower the loss of the rows it was fitted on: {before:.6g} "
                f"before, {after:.6g} after",
                GlayersWarning,
                stacklevel=3,
            )

    @property
    def shares_(self) -> Floats:
        """The shares of the tempered, the plain and the flat probabilities."""
        return np.asarray(self.map_.parameters()["1.shares"])

    @property
    def temperature_(self) -> float:
        """The temperature of the first part."""
        return 1.0 / float(self.map_.parameters()["1.factor"])


def _parts(given: Predictions, factor: float, row_shares: Floats) -> Parts:
    own, products = np.empty((3, len(given))), np.zeros((3, 3))
    for rows in row_blocks(len(given), given.n_classes):
        plain = with_reference_class(given.logits[rows].astype(np.float64))
        parts = np.stack([softmax(plain * factor), softmax(plain), np.full_like(plain, 1 / given.n_classes)])
        own[:, rows] = parts[:, np.arange(len(plain)), given.labels[rows]]
        products += np.einsum("ink,jnk,n->ij", parts, parts, row_shares[rows], optimize=True)
    return Parts(own, products)
