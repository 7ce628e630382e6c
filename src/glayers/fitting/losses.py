"""Calibrated logits and labels -> a proper loss per row in torch, with any leading members axis."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from glayers.activations import with_reference_class
from glayers.errors import GlayersError

RowLoss: TypeAlias = Callable[[Tensor, Tensor], Tensor]


def log_loss(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """-log p(label)."""
    return -_of(log_probabilities, labels)


def brier_loss(log_probabilities: Tensor, labels: Tensor) -> Tensor:
    """Squared distance between the probabilities and the one-hot label."""
    probabilities = log_probabilities.exp()
    return (probabilities**2).sum(dim=-1) - 2 * _of(probabilities, labels) + 1


LOSSES: dict[str, RowLoss] = {"log": log_loss, "brier": brier_loss}


# The mean of each loss over labels drawn uniformly.
_MEAN_OVER_LABELS: dict[str, Callable[[Tensor], Tensor]] = {
    "log": lambda log_p: -log_p.mean(dim=-1),
    "brier": lambda log_p: (log_p.exp() ** 2).sum(dim=-1) - 2 / log_p.shape[-1] + 1,
}


def row_loss(name: str, label_smoothing: float = 0.0) -> RowLoss:
    """Return the loss of that name as a function of logits and labels.

    With label smoothing s, the target puts weight 1 - s on the label and spreads s evenly over all classes.
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
