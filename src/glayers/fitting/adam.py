"""An objective -> low loss by Adam on minibatches, all members on the same batches, each with its own rate and end.

Parameters are shown as running averages over some fifty steps: an average forgives a step that is too long, so a
constant rate needs no schedule, and any epoch is a sound place to stop.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from glayers.fitting.objective import Objective
from glayers.fitting.watching import Sight, Watcher
from glayers.maps import Chain, Dense, Dropout
from glayers.progress import progress_bar

# What the watcher is shown of each member: its loss on training rows and on held-out rows.
Measure: TypeAlias = Callable[[Objective, Tensor], tuple[Tensor, Tensor]]

# Logits: at 5,000 x 10 threads wait for each other, beside other work for most of the time; at 5,000 x 100 they help.
_MANY = 200_000
_CHUNK = 200_000  # parameters updated together: what fits into the second-level cache


@dataclass(frozen=True)
class Schedule:
    """How long and how roughly to descend; `averaging` is the share of the running average kept at each step."""

    epochs: int = 16
    batch_size: int = 250
    averaging: float = 0.98
    dropout: float = 0.0
    mixup: float = 0.0
    progress: bool = False


class _State:
    """Adam's moments and the running average, for the members still going on."""

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


def descend(
    objective: Objective,
    start: Tensor,
    rates: Tensor,
    schedule: Schedule,
    watcher: Watcher,
    measure: Measure,
    seed: int,
) -> Tensor:
    """Run Adam from `start` (members, size) until the watcher lets nobody go on; return where everyone ended."""
    with threadpool_limits(limits=1 if objective.logits.numel() < _MANY else None):
        return _descend(objective, start, rates, schedule, watcher, measure, seed)


def _descend(
    objective: Objective,
    start: Tensor,
    rates: Tensor,
    schedule: Schedule,
    watcher: Watcher,
    measure: Measure,
    seed: int,
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    ended = start.clone()
    active = torch.arange(len(start))
    current, state = objective, _State(start.clone(), rates.clone())
    train, held_out = measure(objective, start)
    step = 0
    with progress_bar(schedule.progress, f"{len(start)} fits", schedule.epochs) as advance:
        for epoch in range(schedule.epochs + 1):
            if epoch:
                step = _epoch(current, state, schedule, generator, step)
                ended[active] = state.average
                train[active], held_out[active] = measure(current, state.average)
                advance()
            goes_on = watcher(Sight(epoch, ended, train, held_out))[active]
            if not goes_on.all():
                active = active[goes_on]
                state.keep(goes_on)
                current = objective.of(active)
            if not len(active):
                break
    return ended


def _epoch(objective: Objective, state: _State, schedule: Schedule, generator: torch.Generator, step: int) -> int:
    n_rows = len(objective.labels)
    order = torch.randperm(n_rows, generator=generator).to(objective.labels.device)
    shuffled = replace(objective, logits=objective.logits[order], labels=objective.labels[order])
    weights = objective.train[:, order]
    for rows in _batches(n_rows, schedule.batch_size):
        point = state.point.detach().requires_grad_()
        losses, counted = _batch_losses(shuffled, point, weights[:, rows], rows, schedule, generator)
        # Scaled so that a batch estimates the whole objective.
        cost = (losses * counted).sum() * (n_rows / (rows.stop - rows.start))
        if objective.penalties:
            cost = cost + objective.penalty(point).sum()
        step += 1
        state.update(torch.autograd.grad(cost, point)[0], step, schedule.averaging)
    return step


def _batches(n_rows: int, size: int) -> Iterator[slice]:
    """Yield slices of nearly equal size: a last batch of one row would weigh as much as all others."""
    edges = np.linspace(0, n_rows, math.ceil(n_rows / size) + 1).astype(int).tolist()
    return (slice(first, last) for first, last in pairwise(edges))


def _batch_losses(
    objective: Objective, point: Tensor, weights: Tensor, rows: slice, schedule: Schedule, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return the loss of each row, or each mixed pair of rows, and what it counts."""
    chain, logits, labels = objective.chain_at(point), objective.logits[rows], objective.labels[rows]
    if schedule.dropout:
        chain = _dropped(chain, len(labels), schedule.dropout, logits, generator)
    if not schedule.mixup:
        return objective.loss(chain(logits), labels), weights
    share = _beta(schedule.mixup, generator)
    partner = torch.randperm(len(labels), generator=generator).to(labels.device)
    outputs = chain(share * logits + (1 - share) * logits[partner])
    losses = share * objective.loss(outputs, labels) + (1 - share) * objective.loss(outputs, labels[partner])
    # A row that a member holds out must not teach it as a partner either.
    return losses, weights * (weights[:, partner] > 0)


def _dropped(chain: Chain, n_rows: int, rate: float, like: Tensor, generator: torch.Generator) -> Chain:
    """Draw a fresh mask for every place that drops; kept units are scaled up so that their sum is expected to stay."""
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
    """A draw from Beta(shape, shape), seeded by the generator that everything else here uses."""
    seed = int(torch.randint(2**31, (), generator=generator))
    return float(np.random.default_rng(seed).beta(shape, shape))
