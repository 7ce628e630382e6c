"""An objective -> parameters of low loss: Adam on minibatches, for many members at once.

All members see the same batches; each has its own learning rate and stops on its own. The parameters reported are
running averages over about fifty steps. Averaging smooths out the noise of minibatches, so a constant rate needs no
schedule and every epoch is a good place to stop.
"""

import math
from collections.abc import Callable
from functools import cache
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

# Number of logits: at 5,000 x 10 threads mostly wait for each other; at 5,000 x 100 they help.
_MANY = 200_000


def descend(
    objective: Objective,
    rates: Floats,
    on_epoch: OnEpoch,
    *,
    epochs: int,
    batch_size: int,
    seed: int,
    averaging: float = 0.98,
    training_loss: bool = True,
    progress: bool | None = False,
) -> Tensor:
    """Run Adam from the objective's start until no member continues; return the last parameters (members, size).

    `averaging` is the fraction of the running average that is kept at each step. Without `training_loss`, that loss is
    not measured, and is NaN.
    """
    generator = torch.Generator().manual_seed(seed)
    result = objective.start()
    members = _Members(objective, rates)
    train = np.full(len(result), np.nan)
    held_out = np.full(len(result), np.nan)
    threads = 1 if objective.logits.numel() < _MANY else None
    with (
        _thread_pools().limit(limits=threads),
        progress_bar(progress, f"{len(result)} fits", epochs) as advance,
    ):
        for epoch in range(epochs + 1):
            if epoch:
                members.run_epoch(batch_size, averaging, generator)
                advance()
            active = members.active
            result[torch.as_tensor(active)] = members.average
            held_out[active] = members.objective.mean_losses(members.average, members.objective.held_out)
            if training_loss:
                train[active] = members.objective.mean_losses(members.average, members.objective.train)
            continues = on_epoch(epoch, result.cpu().numpy(), train, held_out)
            members.keep(continues[active])
            if not len(members.active):
                break
    return result


class _Members:
    """The members that continue: their objective, parameters, Adam's moments and the running average."""

    def __init__(self, objective: Objective, rates: Floats) -> None:
        self.objective = objective
        self.rates = objective.like(rates)
        self.point = objective.start()
        self.average = self.point.clone()
        self.mean = torch.zeros_like(self.point)
        self.square = torch.zeros_like(self.point)
        self.active = np.arange(len(self.point))
        self.steps = 0

    def keep(self, continues: Bools) -> None:
        if continues.all():
            return
        self.active = self.active[continues]
        kept = torch.as_tensor(continues)
        self.objective = self.objective.of(kept)
        for name in ("rates", "point", "average", "mean", "square"):
            setattr(self, name, getattr(self, name)[kept])

    def run_epoch(self, batch_size: int, averaging: float, generator: torch.Generator) -> None:
        """Take one step per batch, over all rows in random order."""
        n_rows = len(self.objective.labels)
        order = torch.randperm(n_rows, generator=generator).to(self.objective.labels.device)
        # Batches of nearly equal size: a last batch of one row would count as much as any other batch.
        edges = np.linspace(0, n_rows, math.ceil(n_rows / batch_size) + 1).astype(int)
        for rows in torch.tensor_split(order, edges[1:-1].tolist()):
            point = self.point.detach().requires_grad_()
            losses, weights = self.objective.batch_losses(point, rows, generator)
            # Scaled so that each batch is an unbiased estimate of the whole objective.
            cost = (losses * weights).sum() * (n_rows / len(rows))
            (gradient,) = torch.autograd.grad(cost, point)
            if self.objective.decay is not None:
                gradient += self.objective.decay * (self.point - self.objective.anchor)
            self._step(gradient)
            self.average.lerp_(self.point, 1 - averaging)

    def _step(self, gradient: Tensor) -> None:
        self.steps += 1
        rate = self.rates * (math.sqrt(1 - 0.99**self.steps) / (1 - 0.9**self.steps))
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
        self.point.sub_((self.mean / self.square.sqrt().add_(1e-8)).mul_(rate[:, None]))


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()  # it looks at every library that is loaded, so once is enough
