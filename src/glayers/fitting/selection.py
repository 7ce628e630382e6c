"""Losses of many fits, epoch by epoch -> when each one stops, and which setting and epoch to keep."""

import numpy as np

from glayers.arrays import Bools, Floats

_HALVED_AFTER = (3, 6, 12, 24, 48, 96)  # epochs; successive halving, so that most time goes to the likely winners


class EpochSelection:
    """An `on_epoch` callback that keeps the epoch of least loss of each setting, and the parameters of its folds then.

    Members are ordered by setting, then by fold; `fold_fractions` says how much of the weight each fold holds out. A
    setting stops when it has not improved for `patience` epochs. By held-out loss, only the more promising half of the
    settings continues after epochs 3, 6, 12, ... If no setting is better than its start after one epoch, only the best
    one continues, and if it is not after two, none. With `by_training_loss` every setting runs until its training loss
    stops falling.
    """

    def __init__(self, n_settings: int, fold_fractions: Floats, patience: int, by_training_loss: bool = False) -> None:
        self.n_settings = n_settings
        self.fold_fractions = np.asarray(fold_fractions)
        self.patience = patience
        self.by_training_loss = by_training_loss
        self.trace: list[Floats] = []
        self.best = np.full(n_settings, np.inf)
        self.held_out = np.full(n_settings, np.inf)
        self.best_epoch = np.zeros(n_settings, dtype=int)
        self.parameters: list[Floats] = []
        self.running = np.ones(n_settings, dtype=bool)

    def __call__(self, epoch: int, parameters: Floats, train_loss: Floats, held_out_loss: Floats) -> Bools:
        """Record the epoch and return which members continue."""
        held_out = self._by_setting(held_out_loss)
        losses = self._by_setting(train_loss) if self.by_training_loss else held_out
        by_setting = parameters.reshape(self.n_settings, len(self.fold_fractions), -1)
        if not self.trace:
            self.parameters = list(by_setting.copy())
        self.trace.append(losses)
        for setting in np.flatnonzero(self.running & (losses < self.best)):
            self.best[setting] = losses[setting]
            self.best_epoch[setting] = epoch
            self.held_out[setting] = held_out[setting]
            self.parameters[setting] = by_setting[setting].copy()
        self.running &= epoch - self.best_epoch < self.patience
        if not self.by_training_loss:
            self._drop_settings(epoch, losses)
        return np.repeat(self.running, len(self.fold_fractions))

    @property
    def winner(self) -> int:
        """The setting of least loss."""
        return int(np.argmin(self.best))

    def _drop_settings(self, epoch: int, losses: Floats) -> None:
        """Stop settings that are unlikely to win."""
        nothing_learned = not self.best_epoch.any()
        if epoch == 1 and nothing_learned:
            # One more epoch shows whether the most promising setting learns anything at all.
            self.running &= losses == losses.min()
        if epoch == 2 and nothing_learned:
            self.running[:] = False
        if epoch in _HALVED_AFTER:
            contenders = np.flatnonzero(self.running)
            ranking = contenders[np.argsort(self._expected_final_loss()[contenders], kind="stable")]
            n_kept = (len(ranking) + 1) // 2
            self.running[ranking[n_kept:]] = False

    def _expected_final_loss(self) -> Floats:
        """Extrapolate the loss of each setting: gains keep shrinking by the ratio of the last two, a geometric series.

        Ranking by the latest loss alone would favour settings that start fast, not those that end lowest.
        """
        before, then, now = self.trace[-3:]
        with np.errstate(invalid="ignore"):  # of losses that are infinite
            gain = np.maximum(then - now, 0.0)
            ratio = np.minimum(gain / np.maximum(before - then, 1e-12), 0.95)
            return np.minimum(now - gain * ratio / (1 - ratio), self.best)

    def _by_setting(self, losses: Floats) -> Floats:
        by_fold = losses.astype(np.float64).reshape(self.n_settings, -1)
        means = by_fold @ self.fold_fractions
        return np.where(np.isfinite(means), means, np.inf)
