"""An objective -> parameters of low loss: Adam on minibatches, for many members at once.

All members see the same batches; each has its own learning rate and stops on its own. The parameters reported are
running averages over about fifty steps. Averaging smooths out the noise of minibatches, so a constant rate needs no
schedule and every epoch is a good place to stop.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor

from glayers.activations import with_reference_class
from glayers.fitting.objective import Objective
from glayers.maps import Chain, Dense, Dropout
from glayers.progress import progress_bar

# (epoch, parameters, training loss, held-out loss) of all members -> which members continue.
OnEpoch: TypeAlias = Callable[[int, Tensor, Tensor, Tensor], Tensor]
# The objective at some parameters -> training loss and held-out loss of each member.
Measure: TypeAlias = Callable[[Objective, Tensor], tuple[Tensor, Tensor]]

# Number of logits: at 5,000 x 10 threads mostly wait for each other; at 5,000 x 100 they help.
_MANY = 200_000
_CHUNK = 200_000  # parameters updated together, so that they fit into the second-level cache


@dataclass(frozen=True)
class Schedule:
    """Settings of a run; `averaging` is the fraction of the running average kept at each step."""

    epochs: int = 16
    batch_size: int = 250
    averaging: float = 0.98
    dropout: float = 0.0
    mixup: float = 0.0
    progress: bool | None = False


class _State:
    """Adam's moments and the running average, for the members that continue."""

    def __init__(self, point: Tensor, rate: Tensor) -> None:
        self.point, self.rate = point, rate
        self.mean, self.square, self.average = torch.zeros_like(point), torch.zeros_like(point), point.clone()

    def keep(self, members: Tensor) -> None:
        for name in ("point", "rate", "mean", "square", "average"):
            setattr(self, name, getattr(self, name)[members])

    def update(self, gradient: Tensor, step: int, averaging: float) -> None:
        rate = self.rate * (math.sqrt(1 - 0.99**step) / (1 - 0.9**step))
        size = max(1, _CHUNK // gradient.shape[1])
        for first in range(0, len(gradient), size):
            rows = slice(first, first + size)
            g = gradient[rows]
            mean = self.mean[rows].lerp_(g, 0.1)
            square = self.square[rows].mul_(0.99).addcmul_(g, g, value=0.01)
            self.point[rows].sub_((mean / square.sqrt().add_(1e-8)).mul_(rate[rows, None]))
            self.average[rows].lerp_(self.point[rows], 1 - averaging)


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()  # it looks at every library that is loaded, so once is enough


def descend(
    objective: Objective, rates: Tensor, schedule: Schedule, on_epoch: OnEpoch, measure: Measure, seed: int
) -> Tensor:
    """Run Adam from the objective's start until no member continues; return the last parameters (members, size)."""
    generator = torch.Generator().manual_seed(seed)
    result = objective.start()
    active = torch.arange(len(result))
    current, state, step = objective, _State(result.clone(), rates.clone()), 0
    with (
        _thread_pools().limit(limits=1 if objective.logits.numel() < _MANY else None),
        progress_bar(schedule.progress, f"{len(result)} fits", schedule.epochs) as advance,
    ):
        train, held_out = measure(objective, result)
        for epoch in range(schedule.epochs + 1):
            if epoch:
                step = _epoch(current, state, schedule, generator, step)
                result[active] = state.average
                train[active], held_out[active] = measure(current, state.average)
                advance()
            continues = on_epoch(epoch, result, train, held_out)[active]
            if not continues.all():
                active = active[continues]
                state.keep(continues)
                current = objective.of(active)
            if not len(active):
                break
    return result


def _epoch(objective: Objective, state: _State, schedule: Schedule, generator: torch.Generator, step: int) -> int:
    n_rows = len(objective.labels)
    order = torch.randperm(n_rows, generator=generator).to(objective.labels.device)
    lowered = None if objective.lowered is None else objective.lowered[order]
    shuffled = replace(objective, logits=objective.logits[order], labels=objective.labels[order], lowered=lowered)
    weights = objective.train[:, order]
    for rows in _batches(n_rows, schedule.batch_size):
        point = state.point.detach().requires_grad_()
        losses, counted = _batch_losses(shuffled, point, weights[:, rows], rows, schedule, generator)
        # Scaled so that each batch is an unbiased estimate of the whole objective.
        cost = (losses * counted).sum() * (n_rows / (rows.stop - rows.start))
        (gradient,) = torch.autograd.grad(cost, point)
        objective.add_penalty_slope(point.detach(), gradient)
        step += 1
        state.update(gradient, step, schedule.averaging)
    return step


def _batches(n_rows: int, size: int) -> Iterator[slice]:
    """Yield slices of nearly equal size: a last batch of one row would count as much as any other batch."""
    edges = np.linspace(0, n_rows, math.ceil(n_rows / size) + 1).astype(int).tolist()
    return (slice(first, last) for first, last in pairwise(edges))


def _batch_losses(
    objective: Objective, point: Tensor, weights: Tensor, rows: slice, schedule: Schedule, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the loss of each row, or of each mixed pair of rows, and its weight."""
    chain, logits, labels = objective.chain_at(point), objective.logits[rows], objective.labels[rows]
    if schedule.dropout:
        chain = _dropped(chain, len(labels), schedule.dropout, logits, generator)
    if not schedule.mixup:
        return objective.loss(objective.outputs(chain, rows), labels), weights
    first = _beta(schedule.mixup, generator)  # weight of the first row in each mixed pair
    partner = torch.randperm(len(labels), generator=generator).to(labels.device)
    outputs = chain(first * logits + (1 - first) * logits[partner])
    if objective.lowered is not None:  # what is possible in one of the two is possible in the pair
        lowered = objective.lowered[rows]
        outputs = with_reference_class(outputs) + torch.maximum(lowered, lowered[partner])
    losses = first * objective.loss(outputs, labels) + (1 - first) * objective.loss(outputs, labels[partner])
    # A held-out row must not be trained on as a partner either.
    return losses, weights * (weights[:, partner] > 0)


def _dropped(chain: Chain, n_rows: int, rate: float, like: Tensor, generator: torch.Generator) -> Chain:
    """Draw a new mask for every dropout step; kept units are scaled up so that the expected sum stays the same."""
    steps, width = [], 0
    for part in chain.steps:
        if isinstance(part, Dense):
            width = part.bias.shape[-1]
        if isinstance(part, Dropout):
            kept = torch.rand(n_rows, width, generator=generator) >= rate
            part = Dropout((kept / (1 - rate)).to(like))
        steps.append(part)
    return Chain(tuple(steps))


def _beta(shape: float, generator: torch.Generator) -> float:
    """Draw from Beta(shape, shape), seeded by the generator of the run."""
    seed = int(torch.randint(2**31, (), generator=generator))
    return float(np.random.default_rng(seed).beta(shape, shape))
