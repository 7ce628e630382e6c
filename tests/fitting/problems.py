"""Small objectives that several tests of the engine share."""

from dataclasses import replace

import numpy as np
import torch
from scipy.optimize import minimize

from glayers.fitting.objective import Objective, row_loss
from glayers.maps import Chain, Dense, dense_layers

ROWS, CLASSES = 40, 3


def make_objective(chain: Chain | None = None, members: int = 1, loss: str = "log") -> Objective:
    """A few members that each hold other rows out, in float64."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(ROWS, CLASSES)) * 2
    labels = (np.tanh(z) + rng.gumbel(size=z.shape)).argmax(axis=1)
    out = torch.as_tensor(rng.random((members, ROWS)) < 0.3)
    weights = torch.as_tensor(rng.uniform(0.5, 2, (members, ROWS)))
    train, held_out = weights * ~out, weights * out
    return Objective(
        chain=dense_layers(CLASSES, 2) if chain is None else chain,
        loss=row_loss(loss),
        logits=torch.as_tensor(z),
        labels=torch.as_tensor(labels),
        train=train / train.sum(dim=1, keepdim=True),
        held_out=held_out / held_out.sum(dim=1, keepdim=True),
    )


def penalised(objective: Objective, strengths: list[float], toward_start: bool) -> Objective:
    """The same objective with every weight held back, each member by its own strength."""
    parameters = objective.chain.parameters().items()
    decayed = np.concatenate([np.full(value.size, name.endswith("weight")) for name, value in parameters])
    anchor = objective.start()[0] * toward_start
    return replace(objective, decay=objective.like(np.outer(strengths, decayed)), anchor=anchor)


def dense_chain(n_in: int, n_out: int) -> Chain:
    """One linear layer from zero."""
    return Chain((Dense(np.zeros((n_in, n_out)), np.zeros(n_out)),))


def optimum(objective: Objective) -> torch.Tensor:
    """Parameters of least objective for every member, by SciPy."""
    start = objective.start()

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = objective(torch.as_tensor(flat).reshape(start.shape))
        return float(value.sum()), gradient.numpy().ravel()

    options = {"maxiter": 500, "ftol": 1e-14, "gtol": 1e-9}
    found = minimize(value_and_gradient, start.numpy().ravel(), jac=True, method="L-BFGS-B", options=options)
    return torch.as_tensor(found.x).reshape(start.shape)
