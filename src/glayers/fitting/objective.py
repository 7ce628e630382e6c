"""A chain, rows and penalties -> the function to minimise in torch, for many members at once; and its proper losses.

Members are copies of one chain. They differ in the rows they train on (a fold is a row of 0/1 weights), in parameters
held fixed, and in the strength of their penalties. Rows are processed in blocks, so that memory stays bounded and small
fits stay in the cache.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from glayers.activations import with_reference_class
from glayers.errors import GlayersError
from glayers.maps import Chain, Relu

# Entries of the widest tensor in one block: about 8 MB in float32.
_BLOCK_ENTRIES = 2_000_000

# Logits and labels -> the loss of each row, with any leading members axis.
RowLoss: TypeAlias = Callable[[Tensor, Tensor], Tensor]


class Penalty(NamedTuple):
    """Half of strength times the squared distance from an anchor, for one parameter, broadcast to (members, ...)."""

    strength: Tensor
    anchor: Tensor


@dataclass(frozen=True)
class Objective:
    """Mean proper loss of the training rows plus penalties, as a function of flat parameters (members, size).

    `loss` is minimised and `measured` is reported; `measured=None` reports `loss`. `train` and `held_out` are row
    weights (members, n) that sum to 1 per member. `fixed` holds parameters of the chain that are not learned, with a
    members axis. `lowered` (n, classes), if there is any, is added to what the chain returns: -inf for impossible
    classes.
    """

    chain: Chain
    loss: RowLoss
    logits: Tensor
    labels: Tensor
    train: Tensor
    held_out: Tensor
    penalties: Mapping[str, Penalty] = field(default_factory=dict)
    fixed: Mapping[str, Tensor] = field(default_factory=dict)
    measured: RowLoss | None = None
    lowered: Tensor | None = None

    def of(self, members: Tensor) -> "Objective":
        """Return the same objective for some of the members only."""
        return replace(
            self,
            train=self.train[members],
            held_out=self.held_out[members],
            penalties={name: Penalty(p.strength[members], p.anchor) for name, p in self.penalties.items()},
            fixed={name: value[members] for name, value in self.fixed.items()},
        )

    def start(self) -> Tensor:
        """Return the chain's own learned parameters once for every member, (members, size)."""
        flat = [torch.as_tensor(value).to(self.logits).reshape(-1) for value in self._learned().values()]
        return torch.cat(flat).expand(len(self.train), -1).clone()

    def unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        """Return learned parameters by name, each (members, *shape), as views of flat ones."""
        learned = self._learned()
        parts = torch.split(flat, [value.size for value in learned.values()], dim=1)
        return {n: part.view(len(flat), *v.shape) for (n, v), part in zip(learned.items(), parts, strict=True)}

    def chain_at(self, flat: Tensor) -> Chain:
        """Return the chain with these learned parameters and the fixed ones, all with a members axis."""
        chain = self.chain.with_parameters(self.unflatten(flat) | dict(self.fixed))
        return Chain(tuple(_FastRelu() if isinstance(step, Relu) else step for step in chain.steps))

    def __call__(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Return the objective (members,) and its gradient (members, size), each member at its own parameters."""
        flat = flat.detach().requires_grad_()
        value, gradient = self._zeros(), torch.zeros_like(flat)
        for rows in self.blocks():
            part = (self.row_losses(self.loss, flat, rows) * self.train[:, rows]).sum(dim=1, dtype=self._wide)
            gradient += torch.autograd.grad(part.sum(), flat)[0]
            value += part.detach()
        if self.penalties:
            value += self.penalty(flat.detach())
            self.add_penalty_slope(flat.detach(), gradient)
        return value, gradient

    @torch.no_grad()
    def losses(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss of every member on its training rows and on its held-out rows, without a gradient."""
        train, held_out = self._zeros(), self._zeros()
        for rows in self.blocks():
            losses = self.row_losses(self.measured or self.loss, flat, rows)
            train += (losses * self.train[:, rows]).sum(dim=1, dtype=self._wide)
            held_out += (losses * self.held_out[:, rows]).sum(dim=1, dtype=self._wide)
        return train, held_out

    @torch.no_grad()
    def held_out_losses(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Return NaN for the training loss and the held-out loss; each member reads only the rows it holds out."""
        counted = self.held_out > 0
        # Members that hold out fewer rows than others are padded with rows of weight zero.
        rows = torch.argsort(counted.to(torch.int8), dim=1, descending=True, stable=True)[
            :, : int(counted.sum(dim=1).max())
        ]
        held_out = self._zeros()
        chain = self.chain_at(flat)
        step = max(1, _BLOCK_ENTRIES // (len(rows) * self._widest()))
        for first in range(0, rows.shape[1], step):
            some = rows[:, first : first + step]
            losses = (self.measured or self.loss)(self.outputs(chain, some), self.labels[some])
            held_out += (losses * self.held_out.gather(1, some)).sum(dim=1, dtype=self._wide)
        return torch.full_like(held_out, torch.nan), held_out

    def row_losses(self, loss: RowLoss, flat: Tensor, rows: slice) -> Tensor:
        """Return a loss of some rows under every member, (members, rows)."""
        return loss(self.outputs(self.chain_at(flat), rows), self.labels[rows])

    def outputs(self, chain: Chain, rows: slice | Tensor) -> Tensor:
        """Return what a chain makes of some rows, lowered where a class is far below the others or impossible."""
        result = with_reference_class(chain(self.logits[rows]))
        return result if self.lowered is None else result + self.lowered[rows]

    def penalty(self, flat: Tensor) -> Tensor:
        """Return the penalty of each member: half of strength times its squared distance from the anchors."""
        named = self.unflatten(flat)
        costs = [
            (p.strength * (named[name] - p.anchor) ** 2).reshape(len(flat), -1).sum(dim=1, dtype=self._wide)
            for name, p in self.penalties.items()
        ]
        return torch.stack(costs).sum(dim=0) / 2

    def add_penalty_slope(self, flat: Tensor, gradient: Tensor) -> None:
        """Add the gradient of the penalties to one of the loss, in place."""
        named, slopes = self.unflatten(flat), self.unflatten(gradient)
        for name, p in self.penalties.items():
            slopes[name] += p.strength * (named[name] - p.anchor)

    def blocks(self) -> Iterator[slice]:
        """Yield slices of rows whose widest tensor stays small."""
        step = max(1, _BLOCK_ENTRIES // (len(self.train) * self._widest()))
        for first in range(0, len(self.logits), step):
            yield slice(first, min(first + step, len(self.logits)))

    def _widest(self) -> int:
        widths = [value.shape[-1] for value in self.chain.parameters().values() if value.ndim]
        return max([self.logits.shape[1], *widths])

    def _learned(self) -> dict[str, np.ndarray]:
        return {name: np.asarray(v) for name, v in self.chain.parameters().items() if name not in self.fixed}

    @property
    def _wide(self) -> torch.dtype:
        """Dtype of sums: float64, except on Apple's devices, which lack it."""
        return torch.float32 if self.logits.device.type == "mps" else torch.float64

    def _zeros(self) -> Tensor:
        return torch.zeros(len(self.train), dtype=self._wide, device=self.logits.device)


class _FastRelu(Relu):
    """The positive part, with the gradient of `Relu`, which is 1 at zero, in a fifth of its time."""

    def __call__(self, logits: Any) -> Any:
        if not isinstance(logits, Tensor):
            return Relu()(logits)
        return torch.nn.functional.threshold(logits, -2e-38, 0.0)  # just below zero, so that zero passes


def log_loss(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return -log p(label)."""
    return -_of(log_probabilities, labels)


def brier_loss(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """Return the squared distance between the probabilities and the one-hot label."""
    probabilities = log_probabilities.exp()
    return (probabilities**2).sum(dim=-1) - 2 * _of(probabilities, labels) + 1


LOSSES: dict[str, RowLoss] = {"log": log_loss, "brier": brier_loss}


# The mean of each loss over labels drawn uniformly from the possible classes.
_MEAN_OVER_LABELS: dict[str, Callable[[Tensor], Tensor]] = {
    "log": lambda log_p: -log_p.nan_to_num(neginf=0.0).sum(dim=-1) / (log_p > -torch.inf).sum(dim=-1),
    "brier": lambda log_p: (log_p.exp() ** 2).sum(dim=-1) - 2 / (log_p > -torch.inf).sum(dim=-1) + 1,
}


def row_loss(name: str, label_smoothing: float = 0.0) -> RowLoss:
    """Return the loss of that name as a function of logits and labels.

    With label smoothing s, the target puts weight 1 - s on the label and spreads s evenly over all possible classes.
    """
    if not isinstance(name, str) or name not in LOSSES:
        raise GlayersError(f"loss must be one of {sorted(LOSSES)}; got {name!r}")
    if not 0 <= label_smoothing < 1:
        raise GlayersError(f"label_smoothing must lie in [0, 1); got {label_smoothing}")
    loss = LOSSES[name]

    def of_logits(logits: Tensor, labels: Tensor) -> Tensor:
        log_probabilities = torch.log_softmax(with_reference_class(logits), dim=-1)
        plain = loss(log_probabilities, labels)
        if not label_smoothing:
            return plain
        return (1 - label_smoothing) * plain + label_smoothing * _MEAN_OVER_LABELS[name](log_probabilities)

    return of_logits


def _of(values: Tensor, labels: Tensor) -> Tensor:
    index = labels.expand(values.shape[:-1]).unsqueeze(-1)
    return values.gather(-1, index).squeeze(-1)
