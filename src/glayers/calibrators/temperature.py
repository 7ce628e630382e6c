"""Logits and labels -> one temperature for all logits, alone or in a mixture with plain and uniform probabilities."""

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Floats
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
            notes=_notes("temperature scaling", found.reason),
            # Both are at hand: another pass over the rows would take as long as the fit.
            losses=(log_loss_at(given.logits, given.labels, given.weights, 1.0), found.loss),
        )

    @property
    def temperature_(self) -> float:
        """The temperature; above 1 where the network was overconfident."""
        return 1.0 / float(self._fitted_map.steps[-1].parameters()["factor"])


def _notes(method: str, reason: str) -> tuple[str, ...]:
    return (f"{method}: {reason}",) if reason else ()


def tempered(factor: float) -> Chain:
    """Return the map from logits to log-probabilities at an inverse temperature."""
    return Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax()))


class EnsembleTemperatureScaling(Calibrator):
    """Mix tempered, plain and uniform probabilities. Zhang, Kailkhura and Han, ICML 2020.

    The result is w0 softmax(z / T) + w1 softmax(z) + w2 / k, with weights w that sum to 1. T is that of
    `TemperatureScaling`; given T, the log loss is convex in the weights. Keeps the ranking of the classes in every row.

    Parameters
    ----------
    inputs : {"logits", "probabilities", "confidence"}, default "logits"
        As in `Calibrator`.

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

    def _fit(self, given: Predictions) -> Fitted:
        temperature = fit_with_prior(given.logits, given.labels, given.weights)
        weights = np.ones(len(given)) if given.weights is None else given.weights
        plain = with_reference_class(given.logits.astype(np.float64))
        losses = smooth_loss("log").rows
        # The probability that each part gives to each label.
        scaled = np.exp(-losses(plain * temperature.factor, given.labels))
        raw = np.exp(-losses(plain, given.labels))
        uniform = 1 / (plain > -np.inf).sum(axis=1)
        own = np.stack([scaled, raw, uniform])
        # Start at temperature scaling with a little of the other two parts.
        start = np.array([0.98, 0.01, 0.01])
        found = fit_mixture_weights("log", own, np.zeros((0, 0)), weights / weights.sum(), start)
        reason = "converged" if found.converged else "the mixture weights did not converge"
        return Fitted(
            Chain((Reference(), TemperedMixture(found.point, np.asarray(temperature.factor)))),
            "ensemble temperature scaling",
            converged=found.converged and temperature.converged,
            reason=temperature.reason or reason,
            iterations=temperature.steps + found.iterations,
            n_parameters=3,
            notes=_notes("ensemble temperature scaling", temperature.reason),
        )

    @property
    def mixture_weights_(self) -> Floats:
        """The weights of the tempered, the plain and the uniform probabilities."""
        return np.asarray(self._fitted_map.steps[-1].parameters()["shares"])

    @property
    def temperature_(self) -> float:
        """The temperature of the first part."""
        return 1.0 / float(self._fitted_map.steps[-1].parameters()["factor"])
