"""Dense layers and the rows they train on -> an objective in torch, and what trained layers make of held-out rows."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Floats, Ints
from glayers.errors import GlayersError, shown
from glayers.fitting.objective import Objective, row_loss
from glayers.maps import Chain, Floor
from glayers.predictions import Predictions

_SMALL = 300_000  # rows x parameters: below this a fit is quick even in float64


@dataclass(frozen=True)
class LayerTraining:
    """Layers, their inputs, the rows, the floor that keeps -inf away from the layers, the loss and the torch device."""

    layers: Chain
    inputs: Floats
    given: Predictions
    floor: Floor | None
    loss: str
    device: Any

    def objective(self, n_settings: int, train: Floats, held_out: Floats) -> Objective:
        """Return the objective of settings x folds members, given row weights (folds, n)."""
        raised = self.inputs
        lowered = np.zeros(0)
        if self.floor is not None:
            raised, lowered = self.floor.split(self.inputs)
        small = len(self.given) * self.layers.n_parameters <= _SMALL and self.device != "mps"
        try:
            device = torch.device(self.device)
            logits = torch.as_tensor(raised, dtype=torch.float64 if small else torch.float32).to(device)
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            raise GlayersError(f"device {shown(self.device)} cannot be used here: {error}") from error
        return Objective(
            chain=self.layers,
            loss=row_loss(self.loss),
            logits=logits,
            labels=torch.as_tensor(np.array(self.given.labels)).to(device),
            train=torch.as_tensor(np.tile(train, (n_settings, 1))).to(logits),
            held_out=torch.as_tensor(np.tile(held_out, (n_settings, 1))).to(logits),
            lowered=torch.as_tensor(lowered).to(logits) if lowered.any() else None,
        )

    def behind_floor(self, layers: Chain) -> Chain:
        """Return the layers as they see rows: behind the floor, if there is one."""
        return layers if self.floor is None else Chain((replace(self.floor, branch=layers),))

    def out_of_fold(self, models: Chain, folds: Ints) -> Floats:
        """Return log-probabilities of every row by the model that was trained without its fold."""
        result = np.empty((len(self.inputs), self.given.n_classes))
        for fold in range(int(folds.max()) + 1):
            own = folds == fold
            model = self.behind_floor(models.member(fold))
            result[own] = log_softmax(with_reference_class(model(self.inputs[own])))
        return result
