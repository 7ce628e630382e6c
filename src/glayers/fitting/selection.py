"""Losses of many fits, epoch by epoch -> when each one stops, and which setting and epoch to keep."""

import torch
from torch import Tensor

from glayers.arrays import Floats


class EpochSelection:
    """An `on_epoch` callback that keeps the epoch of least loss of each setting, and the parameters of its folds then.

    Members are ordered by setting, then by fold; `fold_fractions` says how much of the weight each fold holds out. A
    setting stops when it has not improved for `patience` epochs. By held-out loss, only the more promising half of the
    settings continues after epochs 3, 6, 12, ..., so that most time goes to the likely winners. If no setting is better
    than its start after one epoch, only the best one continues, and if it is not after two, none. With
    `by_training_loss` every setting runs until its training loss stops falling.
    """

    def __init__(self, n_settings: int, fold_fractions: Floats, patience: int, by_training_loss: bool = False) -> None:
        self.n_settings, self.n_folds, self.patience = n_settings, len(fold_fractions), patience
        self.fold_fractions = torch.as_tensor(fold_fractions, dtype=torch.float64)
        self.by_training_loss = by_training_loss
        self.trace: list[Tensor] = []
        self.best, self.held_out = torch.full((2, n_settings), torch.inf, dtype=torch.float64)
        self.best_epoch = torch.zeros(n_settings, dtype=torch.int64)
        self.parameters: list[Tensor] = []
        self.running = torch.ones(n_settings, dtype=torch.bool)

    def __call__(self, epoch: int, parameters: Tensor, train_loss: Tensor, held_out_loss: Tensor) -> Tensor:
        """Record the epoch and return which members continue."""
        train, held_out = (self._by_setting(each) for each in (train_loss, held_out_loss))
        losses = train if self.by_training_loss else held_out
        by_setting = parameters.reshape(self.n_settings, self.n_folds, -1)
        if not self.trace:
            self.parameters = [each.clone() for each in by_setting]
        self.trace.append(losses)
        for setting in torch.nonzero(self.running & (losses < self.best))[:, 0].tolist():
            self.best[setting], self.best_epoch[setting] = losses[setting], epoch
            self.held_out[setting], self.parameters[setting] = held_out[setting], by_setting[setting].clone()
        self.running &= epoch - self.best_epoch < self.patience
        if epoch in (1, 2) and not self.by_training_loss and not self.best_epoch.any():
            # Nothing learned so far: one more epoch shows whether the most promising setting learns anything at all.
            self.running &= (losses == losses.min()) if epoch == 1 else torch.zeros(1, dtype=torch.bool)
        if epoch in (3, 6, 12, 24, 48, 96) and not self.by_training_loss:
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
        """The setting of least loss."""
        return int(torch.argmin(self.best))

    def _by_setting(self, losses: Tensor) -> Tensor:
        means = losses.cpu().double().reshape(self.n_settings, self.n_folds) @ self.fold_fractions
        return torch.where(torch.isfinite(means), means, torch.inf)
