"""A watched run of settings x folds -> the setting and the moment of least held-out loss.

Members are ordered setting by setting, fold by fold within. Settings that fall behind are dropped on the way, so the
run spends its time on those that may win.
"""

import torch
from torch import Tensor

from glayers.arrays import Floats
from glayers.fitting.watching import Sight


class HeldOutSelection:
    """Remembers for each setting the iteration of least held-out loss and the parameters of all its folds then.

    After iteration 3, 6, 12, ... only the half that promises most goes on; a setting also ends when it has not improved
    for `patience` iterations.
    """

    def __init__(self, n_settings: int, fold_shares: Floats, patience: int) -> None:
        self.n_settings, self.n_folds, self.patience = n_settings, len(fold_shares), patience
        self.fold_shares = torch.as_tensor(fold_shares, dtype=torch.float64)
        self.trace: list[Tensor] = []
        self.best = torch.full((n_settings,), torch.inf, dtype=torch.float64)
        self.best_iteration = torch.zeros(n_settings, dtype=torch.int64)
        self.parameters: list[Tensor] = [torch.empty(0)] * n_settings
        self.going_on = torch.ones(n_settings, dtype=torch.bool)

    def __call__(self, sight: Sight) -> Tensor:
        """Take note, and say who goes on."""
        losses = sight.held_out.cpu().double().reshape(self.n_settings, self.n_folds) @ self.fold_shares
        losses = torch.where(torch.isfinite(losses), losses, torch.inf)
        self.trace.append(losses)
        for setting in torch.nonzero(self.going_on & (losses < self.best))[:, 0].tolist():
            self.best[setting], self.best_iteration[setting] = losses[setting], sight.iteration
            members = slice(setting * self.n_folds, (setting + 1) * self.n_folds)
            self.parameters[setting] = sight.parameters[members].clone()
        self.going_on &= sight.iteration - self.best_iteration < self.patience
        if sight.iteration in (3, 6, 12, 24, 48, 96):
            contenders = torch.nonzero(self.going_on)[:, 0]
            ranking = contenders[torch.argsort(self.promise()[contenders], stable=True)]
            self.going_on[ranking[(len(ranking) + 1) // 2 :]] = False
        return self.going_on.repeat_interleave(self.n_folds)

    def promise(self) -> Tensor:
        """The loss each setting heads for if its gains go on shrinking as the last two did: a geometric series.

        The latest loss alone would favour whoever is quick at first, not whoever ends lowest.
        """
        before, then, now = self.trace[-3:]
        gain = (then - now).clamp(min=0)
        ratio = (gain / (before - then).clamp(min=1e-12)).clamp(max=0.95)
        return torch.minimum(now - gain * ratio / (1 - ratio), self.best)

    @property
    def winner(self) -> int:
        """The setting of least held-out loss."""
        return int(torch.argmin(self.best))


class EarlyStopping:
    """Remembers for each member the iteration of least training loss; ends it when that has stopped falling."""

    def __init__(self, n_members: int, patience: int) -> None:
        self.patience = patience
        self.best = torch.full((n_members,), torch.inf, dtype=torch.float64)
        self.best_iteration = torch.zeros(n_members, dtype=torch.int64)
        self.held_out = torch.full((n_members,), torch.inf, dtype=torch.float64)
        self.parameters = torch.empty(0)
        self.history: list[Sight] = []

    def __call__(self, sight: Sight) -> Tensor:
        """Take note, and say who goes on."""
        if not self.history:
            self.parameters = sight.parameters.clone()
        self.history.append(Sight(sight.iteration, torch.empty(0), sight.train.clone(), sight.held_out.clone()))
        train = sight.train.cpu()
        better = train < self.best
        self.best[better], self.best_iteration[better] = train[better], sight.iteration
        self.held_out[better] = sight.held_out.cpu()[better]
        self.parameters[better] = sight.parameters[better]
        return sight.iteration - self.best_iteration < self.patience
