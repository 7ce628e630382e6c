"""The settings of g-layers -> a plan with nothing left open, and what a recipe hands back; neither needs torch."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from glayers.activations import Activation
from glayers.arrays import Array, Floats
from glayers.errors import GlayersError
from glayers.maps import Activate, Chain, Dropout, Relu, Step, glorot_layers, transparent_layers


@dataclass(frozen=True)
class Plan:
    """The settings of `GLayers`, with everything left to the recipe filled in."""

    n_layers: int
    units_per_class: int
    width: int | None
    start: Literal["transparent", "glorot"]
    initial_layers: Chain | None
    loss: str
    activation: Activation | None
    learning_rates: tuple[float, ...]
    weight_decays: tuple[float, ...]
    decay_to: Literal["zero", "start"]
    dropout: float
    label_smoothing: float
    mixup: float
    n_folds: int
    n_repeats: int
    max_epochs: int
    patience: int
    batch_size: int
    seed: int
    device: str
    progress: bool

    def layers(self, n_logits: int) -> Chain:
        """Return the layers to start from: those given, or new ones."""
        if self.initial_layers is None:
            make = {"transparent": transparent_layers, "glorot": glorot_layers}[self.start]
            layers = make(n_logits, self.n_layers, self.units_per_class, self.seed, width=self.width)
        else:
            _check_size(self.initial_layers, n_logits)
            layers = self.initial_layers
        steps: list[Step] = []
        for step in layers.steps:
            steps += [step, Dropout()] if isinstance(step, Relu) and self.dropout else [step]
        return Chain((*steps, *([] if self.activation is None else [Activate(self.activation)])))


class Fitted(NamedTuple):
    """What a recipe found: the map, how it went, what was tried, and predictions for rows no fit had seen."""

    chain: Chain
    converged: bool
    reason: str
    iterations: int
    n_parameters: int
    cv_results: dict[str, Array]
    out_of_fold: Floats
    history: dict[str, Floats]


def _check_size(layers: Chain, n_logits: int) -> None:
    try:
        n_out = layers(np.zeros((1, n_logits))).shape[-1]
    except ValueError as error:
        raise GlayersError(f"initial_layers do not take {n_logits} logits: {error}") from error
    if n_out != n_logits:
        raise GlayersError(f"initial_layers must turn {n_logits} logits into as many; they give {n_out}")
