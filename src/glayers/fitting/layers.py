"""Dense layers and the rows they train on -> layers trained by Adam, and what they make of held-out rows."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Floats, Ints
from glayers.errors import GlayersError, shown
from glayers.fitting.adam import descend
from glayers.fitting.objective import Objective, row_loss
from glayers.fitting.selection import EpochSelection
from glayers.maps import Chain, Floor
from glayers.predictions import Predictions

_SMALL = 300_000  # rows x parameters: below this a fit is quick even in float64


@dataclass(frozen=True)
class LayerTraining:
    """Layers, their inputs, the rows, the floor that keeps -inf away from the layers, and a calibrator's settings."""

    layers: Chain
    inputs: Floats
    given: Predictions
    floor: Floor | None
    calibrator: Any
    seed: int

    def run(
        self,
        settings: list[tuple[float, float]],
        weights: tuple[Floats, Floats],
        selection: EpochSelection,
        epochs: int,
    ) -> Objective:
        """Run Adam on settings x folds members, and return their objective.

        A setting is a learning rate and a value for `_objective` of the calibrator. `weights` (folds, n) are those of
        the rows to train on, and of those to hold out.
        """
        rates, values = np.repeat(settings, len(weights[0]), axis=0).T
        objective = self.calibrator._objective(self._objective(len(settings), *weights), values)
        batch_size = self.calibrator.batch_size
        if batch_size is None:  # about twenty steps per epoch: with fewer, few rows would hardly leave the start
            batch_size = min(250, max(16, len(self.given) // 20))
        descend(
            objective,
            rates,
            selection,
            epochs=epochs,
            batch_size=batch_size,
            seed=self.seed,
            averaging=0.0 if selection.by_training_loss else 0.98,
            training_loss=selection.by_training_loss,
            progress=self.calibrator.progress,
        )
        return objective

    def _objective(self, n_settings: int, train: Floats, held_out: Floats) -> Objective:
        raised = self.inputs
        lowered = np.zeros(0)
        if self.floor is not None:
            raised, lowered = self.floor.split(self.inputs)
        device = self.calibrator.device
        small = len(self.given) * self.layers.n_parameters <= _SMALL and device != "mps"
        try:
            logits = torch.as_tensor(raised, dtype=torch.float64 if small else torch.float32).to(torch.device(device))
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            raise GlayersError(f"device {shown(device)} cannot be used here: {error}") from error
        return Objective(
            chain=self.layers,
            loss=row_loss(self.calibrator.loss),
            logits=logits,
            labels=torch.as_tensor(np.array(self.given.labels)).to(logits.device),
            train=torch.as_tensor(np.tile(train, (n_settings, 1))).to(logits),
            held_out=torch.as_tensor(np.tile(held_out, (n_settings, 1))).to(logits),
            lowered=torch.as_tensor(lowered).to(logits) if lowered.any() else None,
        )

    def behind_floor(self, layers: Chain) -> Chain:
        """Return the layers as they see rows: behind the floor, if there is one."""
        if self.floor is None:
            return layers
        return Chain((replace(self.floor, branch=layers),))

    def out_of_fold(self, models: Chain, folds: Ints) -> Floats:
        """Return log-probabilities of every row by the model that was trained without its fold."""
        result = np.empty((len(self.inputs), self.given.n_classes))
        for fold in range(int(folds.max()) + 1):
            own = folds == fold
            model = self.behind_floor(models.member(fold))
            result[own] = log_softmax(with_reference_class(model(self.inputs[own])))
        return result
