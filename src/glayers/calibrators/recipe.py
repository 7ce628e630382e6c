"""What every recipe of g-layers is told and what it hands back, and the rows as tensors."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glayers.activations import Activation, log_softmax, with_reference_class
from glayers.arrays import Array, Floats, Ints
from glayers.errors import GlayersError
from glayers.fitting.losses import row_loss
from glayers.fitting.objective import Objective, Penalty
from glayers.maps import Activate, Chain, Dropout, Relu, Step, glorot_layers, transparent_layers

# Below this many rows x parameters a fit takes a moment even in float64.
_SMALL = 300_000


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


def _check_size(layers: Chain, n_logits: int) -> None:
    try:
        n_out = layers(np.zeros((1, n_logits))).shape[-1]
    except ValueError as error:
        raise GlayersError(f"initial_layers do not take {n_logits} logits: {error}") from error
    if n_out != n_logits:
        raise GlayersError(f"initial_layers must turn {n_logits} logits into as many; they give {n_out}")


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


class Rows(NamedTuple):
    """Logits and labels on the device that fits them."""

    logits: Tensor
    labels: Tensor

    def like(self, values: Any) -> Tensor:
        """Return other numbers in the same precision on the same device."""
        return torch.as_tensor(np.asarray(values)).to(self.logits)


def rows_on(device: str, logits: Floats, labels: Ints, n_parameters: int) -> Rows:
    """Put rows on a device: float64 for small problems, else float32."""
    small = len(labels) * n_parameters <= _SMALL and device != "mps"
    try:
        place = torch.device(device)
        values = torch.as_tensor(logits, dtype=torch.float64 if small else torch.float32).to(place)
    except (RuntimeError, AssertionError) as error:
        raise GlayersError(f"device {device!r} cannot be used here: {error}") from error
    return Rows(values, torch.as_tensor(np.array(labels)).to(place))


def member_chain(chain: Chain, parameters: dict[str, Tensor]) -> Chain:
    """Return a chain with fitted parameters back in NumPy float64."""
    return chain.with_parameters({name: v.detach().cpu().double().numpy() for name, v in parameters.items()})


def out_of_fold(members: Chain, inputs: Floats, folds: Ints) -> Floats:
    """Log-probabilities of every row by the member that was trained without its fold."""
    result = np.empty((len(inputs), max(2, inputs.shape[1])))
    for fold in range(int(folds.max()) + 1):
        mine = folds == fold
        result[mine] = log_softmax(with_reference_class(members.member(fold)(inputs[mine])))
    return result


def member_objective(
    plan: Plan, chain: Chain, rows: Rows, train: Floats, held_out: Floats, decays: Floats
) -> Objective:
    """The objective of settings x folds members: all folds (folds, n) once a setting, with the decay of each member."""
    n_settings = len(decays) // len(train)
    return Objective(
        chain=chain,
        loss=row_loss(plan.loss, plan.label_smoothing),
        measured=row_loss(plan.loss),
        logits=rows.logits,
        labels=rows.labels,
        train=rows.like(np.tile(train, (n_settings, 1))),
        held_out=rows.like(np.tile(held_out, (n_settings, 1))),
        penalties=_decay_penalties(plan, chain, rows, decays),
    )


def _decay_penalties(plan: Plan, layers: Chain, rows: Rows, strengths: Floats) -> dict[str, Penalty]:
    """Decay every weight toward zero or toward its start: strength (members,) times its squared distance."""
    return {
        name: Penalty(
            rows.like(2 * strengths).reshape(-1, *[1] * value.ndim), rows.like(value * (plan.decay_to == "start"))
        )
        for name, value in layers.parameters().items()
        if name.endswith("weight") and strengths.any()
    }
