"""The paper's g-layers with dropout, mixup or label smoothing: what the study of regularisation compares."""

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glayers import PaperGLayers
from glayers.activations import with_reference_class
from glayers.arrays import Floats
from glayers.fitting.objective import Objective
from glayers.maps import Chain, Dense, Relu


@dataclass(eq=False, repr=False)
class RegularisedGLayers(PaperGLayers):
    """The paper's recipe with further regularisation.

    Parameters
    ----------
    dropout : float
        The fraction of hidden units that a step drops.
    mixup : float
        The shape of the Beta distribution that mixes pairs of rows; 0 mixes none.
    label_smoothing : float
        The weight s of a target that is spread evenly over all possible classes; the label keeps 1 - s.
    """

    _: KW_ONLY
    dropout: float = 0.0
    mixup: float = 0.0
    label_smoothing: float = 0.0

    def _objective(self, objective: Objective, values: Floats) -> "RegularisedObjective":
        plain = super()._objective(objective, values)
        return RegularisedObjective(**vars(plain), regularisation=self)


@dataclass(frozen=True)
class RegularisedObjective(Objective):
    """An objective whose batches are regularised; what is measured between epochs is the plain loss."""

    regularisation: Any = None

    def batch_losses(self, flat: Tensor, rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the loss of each row, or of each mixed pair of rows, and its weight."""
        chain, dropout, mixup = self.chain_at(flat), self.regularisation.dropout, self.regularisation.mixup
        logits, labels, weights = self.logits[rows], self.labels[rows], self.train[:, rows]
        lowered = torch.zeros(len(logits), 1).to(logits) if self.lowered is None else self.lowered[rows]
        masks = _masks(chain, logits, dropout, generator)
        if not mixup:
            outputs = with_reference_class(_dropped(chain, logits, masks)) + lowered
            return self._smoothed(outputs, labels), weights
        first = _beta(mixup, generator)  # weight of the first row in each mixed pair
        partner = torch.randperm(len(labels), generator=generator).to(labels.device)
        mixed = first * logits + (1 - first) * logits[partner]
        # What is possible in one of the two is possible in the pair.
        outputs = with_reference_class(_dropped(chain, mixed, masks)) + torch.maximum(lowered, lowered[partner])
        losses = first * self._smoothed(outputs, labels) + (1 - first) * self._smoothed(outputs, labels[partner])
        # A held-out row must not be trained on as a partner either.
        return losses, weights * (weights[:, partner] > 0)

    def _smoothed(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return the expected loss of a label that is the given one, or any possible one with probability s."""
        plain = self.loss(logits, labels)
        smoothing = self.regularisation.label_smoothing
        if not smoothing:
            return plain
        log_p = torch.log_softmax(logits, dim=-1)
        n_possible = (log_p > -torch.inf).sum(dim=-1)
        if self.regularisation.loss == "log":
            over_labels = -log_p.nan_to_num(neginf=0.0).sum(dim=-1) / n_possible
        else:
            over_labels = (log_p.exp() ** 2).sum(dim=-1) - 2 / n_possible + 1
        return (1 - smoothing) * plain + smoothing * over_labels


def _masks(chain: Chain, logits: Tensor, rate: float, generator: torch.Generator) -> list[Tensor]:
    """Draw which hidden units of each row stay; they are scaled up so that the expected sum stays the same."""
    widths = [step.bias.shape[-1] for step in chain.steps[:-1] if isinstance(step, Dense)]
    drawn = [torch.rand(len(logits), width, generator=generator) >= rate for width in widths if rate]
    return [(kept / (1 - rate)).to(logits) for kept in drawn]


def _dropped(chain: Chain, logits: Tensor, masks: list[Tensor]) -> Tensor:
    """Apply the layers, with a mask behind each hidden layer if there are any."""
    remaining = list(masks)
    for step in chain.steps:
        logits = step(logits)
        if remaining and isinstance(step, Relu):
            logits = logits * remaining.pop(0)
    return logits


def _beta(shape: float, generator: Any) -> float:
    """Draw from Beta(shape, shape), seeded by the generator of the run."""
    seed = int(torch.randint(2**31, (), generator=generator))
    return float(np.random.default_rng(seed).beta(shape, shape))
