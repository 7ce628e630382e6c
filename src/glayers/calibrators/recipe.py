"""What the recipes of g-layers share: rows as tensors, the objective of many members, and the way back to NumPy."""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Floats, Ints
from glayers.calibrators.plan import Plan
from glayers.errors import GlayersError
from glayers.fitting.losses import row_loss
from glayers.fitting.objective import Objective, Penalty
from glayers.maps import Chain

# Below this many rows x parameters a fit takes a moment even in float64.
_SMALL = 300_000


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
