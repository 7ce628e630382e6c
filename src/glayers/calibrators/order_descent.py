"""Rows and an order-preserving step -> the step fitted by L-BFGS, stopped early by cross-validated loss."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import OptimizeResult, minimize

from glayers.activations import with_reference_class
from glayers.arrays import Floats
from glayers.fitting.folds import assign_folds, fold_fractions, fold_weights
from glayers.fitting.losses import row_loss
from glayers.fitting.objective import Objective
from glayers.fitting.selection import HeldOutSelection
from glayers.maps import Chain
from glayers.maps.order import Learning, OrderPreservingStep
from glayers.predictions import Predictions

_PATIENCE = 8
_TOLERANCE = 1e-7  # of the loss, an iteration: what a gain out of fold could never show


class Descent(NamedTuple):
    """The step that was found, after how many iterations, and the out-of-fold loss there and at the start."""

    step: OrderPreservingStep
    iterations: int
    held_out: float
    held_out_start: float

    @property
    def gain(self) -> float:
        """What the loss falls by out of fold; 0 where the start is what comes back."""
        return self.held_out_start - self.held_out


def descend_in_order(
    given: Predictions,
    start: OrderPreservingStep,
    learned: tuple[str, ...],
    *,
    loss: str,
    n_folds: int,
    max_iterations: int,
    seed: int,
) -> Descent:
    """Choose the number of iterations by cross-validation, then fit all rows once for as many."""
    folds = assign_folds(len(given), given.groups, n_folds, seed)
    train, held_out = fold_weights(folds, given.weights)
    tensors = start.with_parameters({name: torch.as_tensor(value) for name, value in start.parameters().items()})
    objective = Objective(
        chain=Chain((Learning(tensors, learned),)),
        loss=row_loss(loss),
        logits=torch.as_tensor(with_reference_class(given.logits.astype(np.float64))),
        labels=torch.as_tensor(np.array(given.labels)),
        train=torch.as_tensor(train),
        held_out=torch.as_tensor(held_out),
    )
    selection = HeldOutSelection(1, fold_fractions(folds, given.weights), _PATIENCE)
    _minimise(objective, max_iterations, selection)
    best, first = float(selection.best[0]), float(selection.trace[0][0])
    iterations = int(selection.best_epoch[0])
    if not best < first:
        return Descent(start, 0, first, first)
    weights = np.ones(len(given)) if given.weights is None else given.weights
    whole = torch.as_tensor((weights / weights.sum())[None, :])
    objective = replace(objective, train=whole, held_out=whole)
    final = objective.chain_at(_minimise(objective, iterations)).member(0)
    found = {name.removeprefix("0."): value.numpy() for name, value in final.parameters().items()}
    return Descent(start.with_parameters(start.parameters() | found), iterations, best, first)


def _minimise(objective: Objective, max_iterations: int, selection: HeldOutSelection | None = None) -> torch.Tensor:
    """Minimise the mean objective of all members by SciPy's L-BFGS, for as long as the selection lets them continue.

    Folds have nearly the same objective, so one run over all of them takes the path that each would take alone.
    """
    start = objective.start()

    def value_and_gradient(flat: Floats) -> tuple[float, Floats]:
        value = objective(torch.as_tensor(flat).reshape(start.shape))
        return float(value.objective.mean()), value.gradient.numpy().ravel() / len(start)

    def on_iteration(intermediate_result: OptimizeResult) -> None:
        point = torch.as_tensor(intermediate_result.x).reshape(start.shape)
        if (
            selection is not None
            and not selection(len(selection.trace), point, *objective.held_out_losses(point)).any()
        ):
            raise StopIteration

    if selection:
        selection(0, start, *objective.held_out_losses(start))
    options = {"maxiter": max_iterations, "maxfun": 20 * max_iterations, "ftol": _TOLERANCE, "gtol": 0.0}
    found = minimize(
        value_and_gradient, start.numpy().ravel(), jac=True, method="L-BFGS-B", callback=on_iteration, options=options
    )
    return torch.as_tensor(found.x).reshape(start.shape)
