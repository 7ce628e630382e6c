"""Logits and labels -> one temperature for all logits, alone or in a mixture with plain and uniform probabilities."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Floats, row_blocks
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.simplex import fit_mixture_weights
from glayers.fitting.temperature import fit_with_prior, log_loss_at
from glayers.maps import Chain, LogSoftmax, Reference, Scale
from glayers.maps.mixtures import TemperedMixture
from glayers.predictions import Predictions


class TemperatureScaling(Calibrator):
    """Divide all logits by one temperature, fitted by the log loss. Guo et al., ICML 2017.

    Keeps the ranking of the classes in every row, and so accuracy and top-k accuracy.

    Parameters
    ----------
    inputs : {"logits", "probabilities"}, default "logits"
        As in `Calibrator`.

    Attributes
    ----------
    temperature_ : float
        The temperature; above 1 where the network was overconfident.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)  # z is calibrated, so 3 z is overconfident
    >>> round(TemperatureScaling().fit(3 * z, labels).temperature_, 1)
    3.0
    """

    methods = (Method("temperature", "Divides all logits by one temperature", "ranking", "Guo et al., ICML 2017"),)

    def _fit(self, given: Predictions) -> Fitted:
        found = fit_with_prior(given.logits, given.labels, given.weights)
        return Fitted(
            Chain((Scale(np.asarray(found.factor)),)),
            "temperature scaling",
            converged=found.converged,
            reason=found.reason or "converged",
            iterations=found.steps,
            notes=(f"temperature scaling: {found.reason}",) if found.reason else (),
            # Both are at hand: another pass over the rows would take as long as the fit.
            losses=(log_loss_at(given.logits, given.labels, given.weights, 1.0), found.loss),
        )

    @property
    def temperature_(self) -> float:
        """The temperature; above 1 where the network was overconfident."""
        return 1.0 / float(self._fitted_map.steps[-1].parameters()["factor"])


def tempered(factor: float) -> Chain:
    """Return the map from logits to log-probabilities at an inverse temperature."""
    return Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax()))


@dataclass(eq=False, repr=False)
class EnsembleTemperatureScaling(Calibrator):
    """Mix tempered, plain and uniform probabilities. Zhang, Kailkhura and Han, ICML 2020.

    The result is w0 softmax(z / T) + w1 softmax(z) + w2 / k, with weights w that sum to 1. T is that of
    `TemperatureScaling`; given T, either loss is convex in the weights. Keeps the ranking of the classes in every row.

    Parameters
    ----------
    loss : {"log", "brier"}, default "log"
        The loss that the weights minimise.

    Attributes
    ----------
    mixture_weights_ : ndarray of shape (3,)
        The weights of the tempered, the plain and the uniform probabilities.
    temperature_ : float
        The temperature of the first part.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = 4 * rng.normal(size=(20_000, 3))
    >>> guess = rng.random(20_000) < 0.2  # these labels do not depend on the logits
    >>> labels = np.where(guess, rng.integers(0, 3, 20_000), (z + rng.gumbel(size=z.shape)).argmax(axis=1))
    >>> round(float(EnsembleTemperatureScaling().fit(z, labels).mixture_weights_[2]), 1)
    0.2
    """

    methods = (
        Method("ensemble-temperature", "Mix of scaled, raw and uniform outputs", "ranking", "Zhang et al., ICML 2020"),
    )

    loss: Literal["log", "brier"] = "log"

    def _fit(self, given: Predictions) -> Fitted:
        smooth_loss(self.loss)  # checks the name
        temperature = fit_with_prior(given.logits, given.labels, given.weights)
        weights = np.ones(len(given)) if given.weights is None else given.weights
        weights = weights / weights.sum()
        own, products = np.empty((3, len(given))), np.zeros((3, 3))
        for rows in row_blocks(len(given), given.n_classes):
            plain = with_reference_class(given.logits[rows].astype(np.float64))
            possible = plain > -np.inf
            uniform = possible / possible.sum(axis=1, keepdims=True)
            parts = [softmax(plain * temperature.factor), softmax(plain), uniform]
            own[:, rows] = [part[np.arange(len(plain)), given.labels[rows]] for part in parts]
            products += np.einsum("ink,jnk,n->ij", parts, parts, weights[rows], optimize=True)
        # Start at temperature scaling with a little of the other two parts.
        found = fit_mixture_weights(self.loss, own, products, weights, np.array([0.98, 0.01, 0.01]))
        return Fitted(
            Chain((Reference(), TemperedMixture(found.point, np.asarray(temperature.factor)))),
            "ensemble temperature scaling",
            converged=found.converged and temperature.converged,
            reason=temperature.reason or ("converged" if found.converged else "the mixture weights did not converge"),
            iterations=temperature.steps + found.iterations,
            n_parameters=3,
            notes=(f"ensemble temperature scaling: {temperature.reason}",) if temperature.reason else (),
        )

    @property
    def mixture_weights_(self) -> Floats:
        """The weights of the tempered, the plain and the uniform probabilities."""
        return np.asarray(self._fitted_map.steps[-1].parameters()["shares"])

    @property
    def temperature_(self) -> float:
        """The temperature of the first part."""
        return 1.0 / float(self._fitted_map.steps[-1].parameters()["factor"])
