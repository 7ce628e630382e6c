"""Losses of many fits, epoch by epoch -> when each one stops, and which setting and epoch to keep.

Both classes are `on_epoch` callbacks of `fitting.adam`: they see the parameters and losses of all members after each
epoch, and return which members continue.
"""

import torch
from torch import Tensor

from glayers.arrays import Floats


class HeldOutSelection:
    """Keeps, for each setting, the epoch of least cross-validated loss and the parameters of all its folds then.

    Members are ordered by setting, then by fold. A setting stops when it has not improved for `patience` epochs. After
    epochs 3, 6, 12, ... only the more promising half of the settings continues, so that most time goes to the likely
    winners. `fold_fractions` says how much of the weight each fold holds out.
    """

    def __init__(self, n_settings: int, fold_fractions: Floats, patience: int) -> None:
        self.n_settings, self.n_folds, self.patience = n_settings, len(fold_fractions), patience
        self.fold_fractions = torch.as_tensor(fold_fractions, dtype=torch.float64)
        self.trace: list[Tensor] = []
        self.best = torch.full((n_settings,), torch.inf, dtype=torch.float64)
        self.best_epoch = torch.zeros(n_settings, dtype=torch.int64)
        self.parameters: list[Tensor] = [torch.empty(0)] * n_settings
        self.running = torch.ones(n_settings, dtype=torch.bool)

    def __call__(self, epoch: int, parameters: Tensor, train_loss: Tensor, held_out_loss: Tensor) -> Tensor:  # noqa: ARG002
        """Record the epoch and return which members continue."""
        losses = held_out_loss.cpu().double().reshape(self.n_settings, self.n_folds) @ self.fold_fractions
        losses = torch.where(torch.isfinite(losses), losses, torch.inf)
        self.trace.append(losses)
        for setting in torch.nonzero(self.running & (losses < self.best))[:, 0].tolist():
            self.best[setting], self.best_epoch[setting] = losses[setting], epoch
            members = slice(setting * self.n_folds, (setting + 1) * self.n_folds)
            self.parameters[setting] = parameters[members].clone()
        self.running &= epoch - self.best_epoch < self.patience
        if epoch in (3, 6, 12, 24, 48, 96):
            contenders = torch.nonzero(self.running)[:, 0]
            ranking = contenders[torch.argsort(self.expected_final_loss()[contenders], stable=True)]
            self.running[ranking[(len(ranking) + 1) // 2 :]] = False
        return self.running.repeat_interleave(self.n_folds)

    def expected_final_loss(self) -> Tensor:
        """Extrapolate the loss of each setting: gains keep shrinking by the ratio of the last two, a geometric series.

        Ranking by the latest loss alone would favour settings that start fast, not those that end lowest.
        """
        before, then, now = self.trace[-3:]
        gain = (then - now).clamp(min=0)
        ratio = (gain / (before - then).clamp(min=1e-12)).clamp(max=0.95)
        return torch.minimum(now - gain * ratio / (1 - ratio), self.best)

    @property
    def winner(self) -> int:
        """The setting of least cross-validated loss."""
        return int(torch.argmin(self.best))


class EarlyStopping:
    """Keeps, for each member, the epoch of least training loss; stops it `patience` epochs later."""

    def __init__(self, n_members: int, patience: int) -> None:
        self.patience = patience
        self.best = torch.full((n_members,), torch.inf, dtype=torch.float64)
        self.best_epoch = torch.zeros(n_members, dtype=torch.int64)
        self.held_out = torch.full((n_members,), torch.inf, dtype=torch.float64)
        self.parameters = torch.empty(0)
        self.trace: list[Tensor] = []

    def __call__(self, epoch: int, parameters: Tensor, train_loss: Tensor, held_out_loss: Tensor) -> Tensor:
        """Record the epoch and return which members continue."""
        if not self.trace:
            self.parameters = parameters.clone()
        train = train_loss.cpu()
        self.trace.append(train.clone())
        better = train < self.best
        self.best[better], self.best_epoch[better] = train[better], epoch
        self.held_out[better] = held_out_loss.cpu()[better]
        self.parameters[better] = parameters[better]
        return epoch - self.best_epoch < self.patience
