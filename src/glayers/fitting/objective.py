"""A chain, rows and row weights -> the loss to minimise in torch, for many members at once.

Members are copies of one chain. They differ in the rows they train on (a fold is a row of 0/1 weights), in parameters
held fixed, and in the strength of their weight decay. Rows are processed in blocks, so that memory stays bounded and
small fits stay in the cache.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeAlias

import numpy as np
import torch
from torch import Tensor

from glayers.activations import with_reference_class
from glayers.arrays import Array
from glayers.fitting.curvature import smooth_loss
from glayers.maps import Chain, Relu

# Entries of the widest tensor in one block: about 8 MB in float32.
_BLOCK_ENTRIES = 2_000_000

# Logits and labels -> the loss of each row, with any leading members axis.
RowLoss: TypeAlias = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Objective:
    """Mean proper loss of the training rows plus weight decay, as a function of flat parameters (members, size).

    `train` and `held_out` are row weights (members, n) that sum to 1 per member. `fixed` holds parameters of the chain
    that are not learned, with a members axis. `lowered` (n, classes), if there is any, is added to what the chain
    returns: -inf for impossible classes. `decay` (members, size) is the strength with which each parameter is pulled
    toward its value in `anchor` (size,).
    """

    chain: Chain
    loss: RowLoss
    logits: Tensor
    labels: Tensor
    train: Tensor
    held_out: Tensor
    fixed: Mapping[str, Tensor] = field(default_factory=dict)
    lowered: Tensor | None = None
    decay: Tensor | None = None
    anchor: Tensor | float = 0.0

    def of(self, members: Tensor | slice) -> Self:
        """Return the same objective for some of the members only."""
        return replace(
            self,
            train=self.train[members],
            held_out=self.held_out[members],
            fixed={name: value[members] for name, value in self.fixed.items()},
            decay=None if self.decay is None else self.decay[members],
        )

    def like(self, values: Any) -> Tensor:
        """Return numbers as a tensor with the type and the device of the logits."""
        return torch.as_tensor(np.asarray(values)).to(self.logits)

    def start(self) -> Tensor:
        """Return the chain's own learned parameters once for every member, (members, size)."""
        flat = [self.like(value).reshape(-1) for value in self._learned().values()]
        return torch.cat(flat).expand(len(self.train), -1).clone()

    def chain_at(self, flat: Tensor) -> Chain:
        """Return the chain with these learned parameters and the fixed ones, all with a members axis."""
        learned = self._learned()
        parameters = dict(self.fixed)
        parts = torch.split(flat, [value.size for value in learned.values()], dim=1)
        for (name, value), part in zip(learned.items(), parts, strict=True):
            parameters[name] = part.view(len(flat), *value.shape)
        return self.chain.with_parameters(parameters)

    def fitted(self, setting: int, flat: Array) -> Chain:
        """Return the chain in NumPy, with learned parameters (folds, size) of one setting and its fixed ones."""
        own = slice(setting * len(flat), (setting + 1) * len(flat))
        chain = self.of(own).chain_at(torch.as_tensor(flat))
        return chain.map_parameters(lambda value: value.cpu().double().numpy())

    def __call__(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Return the objective (members,) and its gradient (members, size), each member at its own parameters."""
        flat = flat.detach().requires_grad_()
        value = torch.zeros(len(flat), dtype=flat.dtype)
        gradient = torch.zeros_like(flat)
        for rows in self.blocks(len(self.logits)):
            part = (self.row_losses(flat, rows) * self.train[:, rows]).sum(dim=1)
            gradient += torch.autograd.grad(part.sum(), flat)[0]
            value += part.detach()
        if self.decay is not None:
            away = flat.detach() - self.anchor
            value += (self.decay * away**2).sum(dim=1) / 2
            gradient += self.decay * away
        return value, gradient

    @torch.no_grad()
    def mean_losses(self, flat: Tensor, weights: Tensor) -> Array:
        """Return the loss of each member by row weights (members, n), such as `train` or `held_out`.

        Each member reads only the rows that count for it.
        """
        counted = weights > 0
        most = int(counted.sum(dim=1).max())
        # Members with fewer rows than others are padded with rows of weight zero.
        own = torch.argsort(counted.to(torch.int8), dim=1, descending=True, stable=True)[:, :most]
        total = np.zeros(len(flat))
        for columns in self.blocks(most):
            rows = own[:, columns]
            losses = self.row_losses(flat, rows) * weights.gather(1, rows)
            total += losses.cpu().double().sum(dim=1).numpy()
        return total

    def row_losses(self, flat: Tensor, rows: slice | Tensor) -> Tensor:
        """Return the loss of some rows under every member, (members, rows)."""
        steps = [_FastRelu() if isinstance(step, Relu) else step for step in self.chain_at(flat).steps]
        outputs = with_reference_class(Chain(tuple(steps))(self.logits[rows]))
        if self.lowered is not None:
            outputs = outputs + self.lowered[rows]
        return self.loss(outputs, self.labels[rows])

    def batch_losses(self, flat: Tensor, rows: Tensor, _: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the loss of each row of a batch and its weight, both (members, rows)."""
        return self.row_losses(flat, rows), self.train[:, rows]

    def blocks(self, n_rows: int) -> Iterator[slice]:
        """Yield slices of rows whose widest tensor stays small."""
        widths = [value.shape[-1] for value in self.chain.parameters().values() if value.ndim]
        widest = max([self.logits.shape[1], *widths])
        step = max(1, _BLOCK_ENTRIES // (len(self.train) * widest))
        for first in range(0, n_rows, step):
            yield slice(first, first + step)

    def _learned(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(v) for name, v in self.chain.parameters().items() if name not in self.fixed}


class _FastRelu(Relu):
    """The positive part, with the gradient of `Relu`, which is 1 at zero: fits take two thirds of the time."""

    def __call__(self, logits: Any) -> Any:
        return torch.nn.functional.threshold(logits, -2e-38, 0.0)  # just below zero, so that zero passes


def _log_loss(logits: Tensor, labels: Tensor) -> Tensor:
    return -_of(torch.log_softmax(logits, dim=-1), labels)


def _brier_loss(logits: Tensor, labels: Tensor) -> Tensor:
    probabilities = torch.log_softmax(logits, dim=-1).exp()
    return (probabilities**2).sum(dim=-1) - 2 * _of(probabilities, labels) + 1


_LOSSES: dict[str, RowLoss] = {"log": _log_loss, "brier": _brier_loss}


def row_loss(name: str) -> RowLoss:
    """Return the loss of that name as a function of logits, one per class, and labels."""
    smooth_loss(name)  # checks the name
    return _LOSSES[name]


def _of(values: Tensor, labels: Tensor) -> Tensor:
    index = labels.expand(values.shape[:-1]).unsqueeze(-1)
    return values.gather(-1, index).squeeze(-1)
