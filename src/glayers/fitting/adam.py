"""An objective -> parameters of low loss: Adam on minibatches, for many members at once.

All members see the same batches; each has its own learning rate and stops on its own. The parameters reported are
running averages over about fifty steps. Averaging smooths out the noise of minibatches, so a constant rate needs no
schedule and every epoch is a good place to stop.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from glayers.arrays import Bools, Floats
from glayers.fitting.objective import Objective
from glayers.progress import progress_bar

# (epoch, parameters, training loss, held-out loss) of all members -> which members continue.
OnEpoch: TypeAlias = Callable[[int, Floats, Floats, Floats], Bools]
# The objective at some parameters -> training loss and held-out loss of each member.
Measure: TypeAlias = Callable[[Objective, Tensor], tuple[Tensor, Tensor]]

# Number of logits: at 5,000 x 10 threads mostly wait for each other; at 5,000 x 100 they help.
_MANY = 200_000


class _Members:
    """Parameters, Adam's moments and the running average of the members that continue."""

    def __init__(self, point: Tensor, rates: Tensor) -> None:
        self.point = point
        self.rates = rates
        self.mean = torch.zeros_like(point)
        self.square = torch.zeros_like(point)
        self.average = point.clone()
        self.steps = 0

    def keep(self, members: Tensor) -> None:
        for name in ("point", "rates", "mean", "square", "average"):
            setattr(self, name, getattr(self, name)[members])

    def step(self, gradient: Tensor, averaging: float) -> None:
        self.steps += 1
        rate = self.rates * (math.sqrt(1 - 0.99**self.steps) / (1 - 0.9**self.steps))
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
        self.point.sub_((self.mean / self.square.sqrt().add_(1e-8)).mul_(rate[:, None]))
        self.average.lerp_(self.point, 1 - averaging)


def descend(
    objective: Objective,
    rates: Floats,
    on_epoch: OnEpoch,
    *,
    epochs: int,
    batch_size: int,
    seed: int,
    averaging: float = 0.98,
    measure: Measure = Objective.losses,
    progress: bool | None = False,
) -> Tensor:
    """Run Adam from the objective's start until no member continues; return the last parameters (members, size).

    `averaging` is the fraction of the running average that is kept at each step.
    """
    generator = torch.Generator().manual_seed(seed)
    result = objective.start()
    active = torch.arange(len(result))
    current = objective
    members = _Members(result.clone(), objective.like(rates))
    threads = 1 if objective.logits.numel() < _MANY else None
    with (
        _thread_pools().limit(limits=threads),
        progress_bar(progress, f"{len(result)} fits", epochs) as advance,
    ):
        train, held_out = measure(objective, result)
        for epoch in range(epochs + 1):
            if epoch:
                _epoch(current, members, batch_size, averaging, generator)
                result[active] = members.average
                train[active], held_out[active] = measure(current, members.average)
                advance()
            continues = torch.as_tensor(on_epoch(epoch, *(each.cpu().numpy() for each in (result, train, held_out))))
            continues = continues[active]
            if not continues.all():
                active = active[continues]
                members.keep(continues)
                current = objective.of(active)
            if not len(active):
                break
    return result


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()  # it looks at every library that is loaded, so once is enough


def _epoch(
    objective: Objective,
    members: _Members,
    batch_size: int,
    averaging: float,
    generator: torch.Generator,
) -> None:
    n_rows = len(objective.labels)
    order = torch.randperm(n_rows, generator=generator).to(objective.labels.device)
    shuffled = replace(
        objective,
        logits=objective.logits[order],
        labels=objective.labels[order],
        train=objective.train[:, order],
        lowered=None if objective.lowered is None else objective.lowered[order],
    )
    # Batches of nearly equal size: a last batch of one row would count as much as any other batch.
    edges = np.linspace(0, n_rows, math.ceil(n_rows / batch_size) + 1).astype(int).tolist()
    for first, last in pairwise(edges):
        point = members.point.detach().requires_grad_()
        losses, weights = shuffled.batch_losses(point, slice(first, last), generator)
        # Scaled so that each batch is an unbiased estimate of the whole objective.
        cost = (losses * weights).sum() * (n_rows / (last - first))
        (gradient,) = torch.autograd.grad(cost, point)
        if objective.decay is not None:
            gradient += objective.decay * (members.point - objective.anchor)
        members.step(gradient, averaging)
