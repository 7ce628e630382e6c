"""Logits and labels -> one factor for all of them: the simplest calibrator, and the one to beat."""

import time
import warnings

import numpy as np

from glayers.calibrators.base import Calibrator
from glayers.errors import GlayersWarning
from glayers.fitting.diagnostics import Diagnostics, label_facts
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

    def _fit(self, given: Predictions) -> None:
        began = time.perf_counter()
        found = fit_inverse_temperature(given.logits, given.labels, given.weights)
        if found.reason:
            warnings.warn(f"temperature scaling: {found.reason}", GlayersWarning, stacklevel=3)
        self.map_ = Chain((Scale(np.asarray(found.factor)),))
        self.diagnostics_ = Diagnostics(
            method="temperature scaling",
            converged=found.converged,
            reason=found.reason or "converged",
            iterations=found.steps,
            loss_before=log_loss_at(given.logits, given.labels, given.weights, 1.0),
            loss_after=found.loss,
            moved=found.factor != 1.0,
            n_parameters=1,
            seconds=time.perf_counter() - began,
            **label_facts(given),
        )

    @property
    def temperature_(self) -> float:
        """The temperature; above 1 where the network was overconfident."""
        return 1.0 / float(self.map_.parameters()["0.factor"])
