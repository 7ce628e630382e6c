"""Logits and labels -> one factor for all of them: the simplest calibrator, and the one to beat."""

import numpy as np

from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.fitting.temperature import fit_inverse_temperature, log_loss_at
from glayers.maps import Chain, Scale
from glayers.predictions import Predictions


class TemperatureScaling(Calibrator):
    """Divide all logits by one temperature. Guo et al., ICML 2017. Keeps every ranking; needs no torch.

    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)  # z is calibrated, so 3 z is overconfident
    >>> round(TemperatureScaling().fit(3 * z, labels).temperature_, 1)
    3.0
    """

    methods = (
        Method(
            "temperature",
            "Divides all logits by one temperature",
            keeps="ranking",
            reference="Guo et al., On Calibration of Modern Neural Networks, ICML 2017",
        ),
    )

    def _fit(self, given: Predictions) -> Fitted:
        found = fit_inverse_temperature(given.logits, given.labels, given.weights)
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
        return 1.0 / float(self.map_.parameters()["0.factor"])
