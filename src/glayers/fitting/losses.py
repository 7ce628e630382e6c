"""Log-probabilities and labels -> a proper loss for each row, with any leading members axis."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from glayers.errors import GlayersError

RowLoss: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def log_loss(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """-log p(label)."""
    index = labels.expand(*log_probabilities.shape[:-1]).unsqueeze(-1)
    return -log_probabilities.gather(-1, index).squeeze(-1)


def brier_loss(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """Squared distance between the probabilities and the one-hot label."""
    index = labels.expand(*log_probabilities.shape[:-1]).unsqueeze(-1)
    probabilities = log_probabilities.exp()
    return (probabilities**2).sum(dim=-1) - 2 * probabilities.gather(-1, index).squeeze(-1) + 1


def smoothed(loss: RowLoss, smoothing: float) -> RowLoss:
    """Expect the label with probability 1 - smoothing and any class alike with the rest."""

    def smoothed_loss(log_probabilities: Tensor, labels: Tensor) -> Tensor:
        n_classes = log_probabilities.shape[-1]
        each = torch.stack([loss(log_probabilities, torch.full_like(labels, c)) for c in range(n_classes)])
        return (1 - smoothing) * loss(log_probabilities, labels) + smoothing * each.mean(dim=0)

    return smoothed_loss


LOSSES: dict[str, RowLoss] = {"log": log_loss, "brier": brier_loss}


def row_loss(name: str, label_smoothing: float = 0.0) -> RowLoss:
    """Return the loss of that name, smoothed if asked for."""
    if name not in LOSSES:
        raise GlayersError(f"loss must be one of {sorted(LOSSES)}; got {name!r}")
    if not 0 <= label_smoothing < 1:
        raise GlayersError(f"label_smoothing must lie in [0, 1); got {label_smoothing}")
    return smoothed(LOSSES[name], label_smoothing) if label_smoothing else LOSSES[name]
