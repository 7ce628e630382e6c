"""Logits and labels -> one temperature for all logits."""

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Floats, in_row_blocks
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.errors import BadFile
from glayers.fitting.folds import design_effect, effective_rows, row_weights
from glayers.fitting.posterior import Posterior
from glayers.fitting.temperature import fit_with_prior, held_out_factors, log_loss_at, row_derivatives
from glayers.maps import Chain, LogSoftmax, Reference, Scale
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
        notes = [f"temperature scaling: {found.reason}"] if found.reason else []
        posterior = None
        if found.curvature > 0:
            n_rows = effective_rows(row_weights(given))
            if given.groups is not None:
                factor = found.factor
                slopes = in_row_blocks(lambda z, y: row_derivatives(z, y, factor)[1], given.logits, given.labels)
                n_rows /= design_effect(row_weights(given) * slopes, given.groups)
            posterior = Posterior.of_factor(found.factor, found.relative_error(n_rows), given.n_classes)
        return Fitted(
            Chain((Scale(np.asarray(found.factor)),)),
            "temperature scaling",
            converged=found.converged,
            reason=found.reason or "converged",
            iterations=found.steps,
            notes=tuple(notes),
            # Both are at hand: another pass over the rows would take as long as the fit.
            losses=(log_loss_at(given.logits, given.labels, given.weights, 1.0), found.loss),
            posterior=posterior,
            effective=1.0,
        )

    def _held_out(self, given: Predictions, found: Chain) -> Floats | None:
        units = np.arange(len(given))
        if given.groups is not None:
            _, units = np.unique(given.groups, return_inverse=True)
        factor = float(found.steps[-1].parameters()["factor"])
        factors = held_out_factors(given.logits, given.labels, given.weights, units % 5, factor)
        return np.asarray(with_reference_class(given.logits.astype(np.float64)) * factors)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        last = self._fitted_map.steps[-1:]
        if not any(isinstance(step, Scale) and step.factor > 0 for step in last):
            raise BadFile("the map of a temperature must end with a positive factor; save the calibrator again")

    @property
    def temperature_(self) -> float:
        """The temperature; above 1 where the network was overconfident."""
        return 1.0 / float(self._fitted_map.steps[-1].parameters()["factor"])


def tempered(factor: float) -> Chain:
    """Return the map from logits to log-probabilities at an inverse temperature."""
    return Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax()))
