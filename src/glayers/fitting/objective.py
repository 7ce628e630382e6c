"""A chain, rows and penalties -> the number to minimise, for many members at once.

Members are copies of one chain that differ in the rows they train on (a fold is a 0/1 column of weights) and in how
strongly they are penalised. Rows are visited in blocks, so that memory stays bounded and small fits stay in the cache.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from glayers.activations import Activation
from glayers.fitting.losses import RowLoss
from glayers.maps import Chain

# Entries of the widest hidden tensor in one block: about 8 MB in float32.
_BLOCK_ENTRIES = 2_000_000


class Penalty(NamedTuple):
    """Half of strength times the squared distance from an anchor, for one parameter, broadcast to (members, ...)."""

    strength: Tensor
    anchor: Tensor


class Value(NamedTuple):
    """What one evaluation tells of each member: the objective, its gradient, and the loss on held-out rows."""

    objective: Tensor
    gradient: Tensor
    held_out: Tensor


@dataclass(frozen=True)
class Objective:
    """Mean proper loss of the training rows plus penalties, as a function of flat parameters (members, size)."""

    chain: Chain
    activation: Activation
    loss: RowLoss
    logits: Tensor
    labels: Tensor
    train: Tensor
    held_out: Tensor
    penalties: Mapping[str, Penalty] = field(default_factory=dict)

    @property
    def n_members(self) -> int:
        """How many fits run side by side."""
        return len(self.train)

    def of(self, members: Tensor) -> "Objective":
        """Return the same objective for some of the members only."""
        return replace(
            self,
            train=self.train[members],
            held_out=self.held_out[members],
            penalties={name: Penalty(p.strength[members], p.anchor) for name, p in self.penalties.items()},
        )

    def start(self) -> Tensor:
        """Return the chain's own parameters once for every member, (members, size)."""
        flat = [
            torch.as_tensor(value, dtype=self.logits.dtype).reshape(-1) for value in self.chain.parameters().values()
        ]
        return torch.cat(flat).expand(self.n_members, -1).clone()

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Return views of flat parameters by name, each (members, *shape)."""
        named, first = {}, 0
        for name, value in self.chain.parameters().items():
            size = int(torch.as_tensor(value).numel())
            named[name] = flat[:, first : first + size].reshape(len(flat), *value.shape)
            first += size
        return named

    def __call__(self, flat: Tensor) -> Value:
        """Evaluate every member at its own parameters."""
        flat = flat.detach().requires_grad_()
        objective = torch.zeros(len(flat), dtype=torch.float64)
        held_out = torch.zeros(len(flat), dtype=torch.float64)
        gradient = torch.zeros_like(flat)
        for rows in self.blocks(len(flat)):
            losses = self.row_losses(flat, rows)
            part = (losses * self.train[:, rows]).sum(dim=1, dtype=torch.float64)
            gradient += torch.autograd.grad(part.sum(), flat)[0]
            objective += part.detach()
            held_out += (losses.detach() * self.held_out[:, rows]).sum(dim=1, dtype=torch.float64)
        if self.penalties:
            cost = self.penalty(flat)
            gradient += torch.autograd.grad(cost.sum(), flat)[0]
            objective += cost.detach()
        return Value(objective, gradient, held_out)

    def row_losses(self, flat: Tensor, rows: slice) -> Tensor:
        """Return the loss of some rows under every member, (members, rows)."""
        outputs = self.chain.with_parameters(self.unflatten(flat))(self.logits[rows])
        losses = self.loss(self.activation.log_probabilities(outputs), self.labels[rows])
        return losses.expand(len(flat), -1)

    def penalty(self, flat: Tensor) -> Tensor:
        """Return what each member pays for its distance from the anchors."""
        named = self.unflatten(flat)
        costs = [
            (p.strength * (named[name] - p.anchor) ** 2).reshape(len(flat), -1).sum(dim=1, dtype=torch.float64)
            for name, p in self.penalties.items()
        ]
        return torch.stack(costs).sum(dim=0) / 2

    def blocks(self, n_members: int) -> Iterator[slice]:
        """Yield slices of rows whose widest hidden tensor stays small."""
        widest = max([self.logits.shape[1], *(v.shape[-1] for v in self.chain.parameters().values() if v.ndim)])
        step = max(1, _BLOCK_ENTRIES // (n_members * widest))
        for first in range(0, len(self.logits), step):
            yield slice(first, min(first + step, len(self.logits)))
