"""A watched run of settings x folds -> the setting and the moment of least held-out loss.

Members are ordered setting by setting, fold by fold within. Settings that fall behind are dropped on the way, so the run
spends its time on those that may win.
"""

import torch
from torch import Tensor

from glayers.fitting.watching import Sight


class HeldOutSelection:
    """Remembers for each setting the iteration of least held-out loss and the parameters of all its folds then.

    After iteration 2, 4, 8, ... only the better half goes on; a setting also ends when it has not improved for
    `patience` iterations.
    """

    def __init__(self, n_settings: int, n_folds: int, patience: int) -> None:
        self.n_settings, self.n_folds, self.patience = n_settings, n_folds, patience
        self.trace: list[Tensor] = []
        self.best = torch.full((n_settings,), torch.inf, dtype=torch.float64)
        self.best_iteration = torch.zeros(n_settings, dtype=torch.int64)
        self.parameters: list[Tensor] = [torch.empty(0)] * n_settings
        self.going_on = torch.ones(n_settings, dtype=torch.bool)

    def __call__(self, sight: Sight) -> Tensor:
        """Take note, and say who goes on."""
        losses = sight.held_out.reshape(self.n_settings, self.n_folds).mean(dim=1).cpu()
        losses = torch.where(torch.isfinite(losses), losses, torch.inf)
        self.trace.append(losses)
        for setting in torch.nonzero(self.going_on & (losses < self.best))[:, 0].tolist():
            self.best[setting], self.best_iteration[setting] = losses[setting], sight.iteration
            members = slice(setting * self.n_folds, (setting + 1) * self.n_folds)
            self.parameters[setting] = sight.parameters[members].clone()
        self.going_on &= sight.iteration - self.best_iteration < self.patience
        if sight.iteration >= 2 and sight.iteration & (sight.iteration - 1) == 0:
            contenders = torch.nonzero(self.going_on)[:, 0]
            ranking = contenders[torch.argsort(self.best[contenders], stable=True)]
            self.going_on[ranking[(len(ranking) + 1) // 2 :]] = False
        return self.going_on.repeat_interleave(self.n_folds)

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
        self.history.append(sight._replace(parameters=torch.empty(0), train=sight.train.clone()))
        train = sight.train.cpu()
        better = train < self.best
        self.best[better], self.best_iteration[better] = train[better], sight.iteration
        self.held_out[better] = sight.held_out.cpu()[better]
        self.parameters[better] = sight.parameters[better]
        return sight.iteration - self.best_iteration < self.patience
