"""An objective -> parameters of low loss: Adam on minibatches for many members at once, and when each one stops.

All members see the same batches; each has its own learning rate and stops on its own. The parameters reported are
running averages over about fifty steps. Averaging smooths out the noise of minibatches, so a constant rate needs no
schedule and every epoch is a good place to stop.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Bools, Floats, Ints
from glayers.errors import GlayersError, shown
from glayers.fitting.folds import fold_fractions, fold_weights
from glayers.fitting.objective import Objective, row_loss
from glayers.maps import Chain, Floor
from glayers.predictions import Predictions
from glayers.progress import progress_bar

# (epoch, parameters, training loss, held-out loss) of all members -> which members continue.
OnEpoch: TypeAlias = Callable[[int, Floats, Floats, Floats], Bools]


def descend(
    objective: Objective,
    rates: Floats,
    on_epoch: OnEpoch,
    *,
    epochs: int,
    batch_size: int,
    seed: int,
    averaging: float = 0.98,
    training_loss: bool = True,
    progress: bool | None = False,
) -> Tensor:
    """Run Adam from the objective's start until no member continues; return the last parameters (members, size).

    `averaging` is the fraction of the running average that is kept at each step. Without `training_loss`, that loss is
    not measured, and is NaN.
    """
    generator = torch.Generator().manual_seed(seed)
    result = objective.start()
    members = _Members(objective, rates)
    train = np.full(len(result), np.nan)
    held_out = np.full(len(result), np.nan)
    # Within one block, as at 5,000 x 10, threads mostly wait for each other; at 5,000 x 100 they help.
    threads = 1 if len([*objective.blocks(len(objective.labels))]) == 1 else None
    with (
        threadpool_limits(limits=threads),
        progress_bar(progress, f"{len(result)} fits", epochs) as advance,
    ):
        for epoch in range(epochs + 1):
            if epoch:
                members.run_epoch(batch_size, averaging, generator)
                advance()
            active = members.active
            result[torch.as_tensor(active)] = members.average
            held_out[active] = members.objective.mean_losses(members.average, members.objective.held_out)
            if training_loss:
                train[active] = members.objective.mean_losses(members.average, members.objective.train)
            continues = on_epoch(epoch, result.cpu().numpy(), train, held_out)
            members.keep(continues[active])
            if not len(members.active):
                break
    return result


class _Members:
    """The members that continue: their objective, parameters, Adam's moments and the running average."""

    def __init__(self, objective: Objective, rates: Floats) -> None:
        self.objective = objective
        self.rates = objective.like(rates)
        self.point = objective.start()
        self.average = self.point.clone()
        self.mean = torch.zeros_like(self.point)
        self.square = torch.zeros_like(self.point)
        self.active = np.arange(len(self.point))
        self.steps = 0

    def keep(self, continues: Bools) -> None:
        if continues.all():
            return
        self.active = self.active[continues]
        kept = torch.as_tensor(continues)
        self.objective = self.objective.of(kept)
        for name in ("rates", "point", "average", "mean", "square"):
            setattr(self, name, getattr(self, name)[kept])

    def run_epoch(self, batch_size: int, averaging: float, generator: torch.Generator) -> None:
        """Take one step per batch, over all rows in random order."""
        n_rows = len(self.objective.labels)
        order = torch.randperm(n_rows, generator=generator).to(self.objective.labels.device)
        # Batches of nearly equal size: a last batch of one row would count as much as any other batch.
        edges = np.linspace(0, n_rows, math.ceil(n_rows / batch_size) + 1).astype(int)
        for rows in torch.tensor_split(order, edges[1:-1].tolist()):
            point = self.point.detach().requires_grad_()
            losses, weights = self.objective.batch_losses(point, rows, generator)
            # Scaled so that each batch is an unbiased estimate of the whole objective.
            cost = (losses * weights).sum() * (n_rows / len(rows))
            (gradient,) = torch.autograd.grad(cost, point)
            if self.objective.decay is not None:
                gradient += self.objective.decay * (self.point - self.objective.anchor)
            self._step(gradient)
            self.average.lerp_(self.point, 1 - averaging)

    def _step(self, gradient: Tensor) -> None:
        self.steps += 1
        rate = self.rates * (math.sqrt(1 - 0.99**self.steps) / (1 - 0.9**self.steps))
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
        self.point.sub_((self.mean / self.square.sqrt().add_(1e-8)).mul_(rate[:, None]))


class EpochSelection:
    """An `on_epoch` callback that keeps the epoch of least loss of each setting, and the parameters of its folds then.

    Members are ordered by setting, then by fold; `fold_fractions` says how much of the weight each fold holds out. A
    setting stops when it has not improved for `patience` epochs. By held-out loss, only the better half of the settings
    continues after epochs 3, 6, 12, ..., and none after two epochs without any gain. With `by_training_loss` every
    setting runs until its training loss stops falling.
    """

    def __init__(self, n_settings: int, fold_fractions: Floats, patience: int, by_training_loss: bool = False) -> None:
        self.n_settings = n_settings
        self.fold_fractions = np.asarray(fold_fractions)
        self.patience = patience
        self.by_training_loss = by_training_loss
        self.trace: list[Floats] = []
        self.best = np.full(n_settings, np.inf)
        self.held_out = self.best.copy()
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
        better = self.running & (losses < self.best)
        self.best[better] = losses[better]
        self.best_epoch[better] = epoch
        self.held_out[better] = held_out[better]
        for setting in np.flatnonzero(better):
            self.parameters[setting] = by_setting[setting].copy()
        self.running &= epoch - self.best_epoch < self.patience
        if not self.by_training_loss:
            if epoch == 2 and not self.best_epoch.any():
                self.running[:] = False  # nothing was learned: more epochs take as long again, and seldom find more
            # After 3, 6, 12, ... epochs, so that most time goes to the likely winners.
            if epoch % 3 == 0 and (epoch // 3).bit_count() == 1:
                ranking = np.argsort(np.where(self.running, self.best, np.inf), kind="stable")
                self.running[ranking[(np.count_nonzero(self.running) + 1) // 2 :]] = False
        return np.repeat(self.running, len(self.fold_fractions))

    def _by_setting(self, losses: Floats) -> Floats:
        by_fold = losses.astype(np.float64).reshape(self.n_settings, -1)
        means = by_fold @ self.fold_fractions
        return np.where(np.isfinite(means), means, np.inf)


@dataclass(frozen=True)
class LayerTraining:
    """Layers, their inputs, the rows, the floor that keeps -inf away from the layers, and a calibrator's settings."""

    layers: Chain
    inputs: Floats
    given: Predictions
    floor: Floor
    calibrator: Any
    seed: int

    def cross_validate(
        self, settings: list[tuple[float, float]], folds: Ints, epochs: int, patience: int, by_training_loss: bool
    ) -> tuple[Floats, Chain, Floats, EpochSelection]:
        """Train every setting without each fold.

        Return the held-out loss of each setting, the models of the best one as a chain with a members axis, their
        log-probabilities of the rows that they held out, and the course of the training.
        """
        fractions = fold_fractions(folds, self.given.weights)
        weights = fold_weights(folds, self.given.weights)
        selection, objective = self.run(settings, weights, epochs, patience, None if by_training_loss else fractions)
        losses = selection.held_out
        if by_training_loss:  # of each member
            losses = losses.reshape(len(settings), -1) @ fractions
        winner = int(losses.argmin())
        parameters = np.reshape(selection.parameters, (len(settings), len(fractions), -1))
        models = objective.fitted(winner, parameters[winner])
        return losses, models, self._out_of_fold(models, folds), selection

    def run(
        self,
        settings: list[tuple[float, float]],
        weights: tuple[Floats, Floats],
        epochs: int,
        patience: int,
        fractions: Floats | None = None,
    ) -> tuple[EpochSelection, Objective]:
        """Run Adam on settings x folds members, and return its course and the objective.

        A setting is a learning rate and a value for `_objective` of the calibrator. `weights` (folds, n) are those of
        the rows to train on, and of those to hold out. With the fraction of the weight in each fold, settings stop by
        their held-out loss; without, each member stops by its own training loss.
        """
        rates, values = np.repeat(settings, len(weights[0]), axis=0).T
        objective = self.calibrator._objective(self._objective(len(settings), *weights), values)
        selection = EpochSelection(len(rates), np.ones(1), patience, by_training_loss=True)
        if fractions is not None:
            selection = EpochSelection(len(settings), fractions, patience)
        batch_size = self.calibrator.batch_size
        if batch_size is None:  # about twenty steps per epoch: with fewer, few rows would hardly leave the start
            batch_size = min(250, max(16, len(self.given) // 20))
        descend(
            objective,
            rates,
            selection,
            epochs=epochs,
            batch_size=batch_size,
            seed=self.seed,
            averaging=0.0 if selection.by_training_loss else 0.98,
            training_loss=selection.by_training_loss,
            progress=self.calibrator.progress,
        )
        return selection, objective

    def _objective(self, n_settings: int, train: Floats, held_out: Floats) -> Objective:
        raised, lowered = self.floor.split(self.inputs)
        device = self.calibrator.device
        try:
            logits = torch.as_tensor(raised, dtype=torch.float32).to(torch.device(device))
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            raise GlayersError(f"device {shown(device)} cannot be used here: {error}") from error
        return Objective(
            chain=self.layers,
            loss=row_loss(self.calibrator.loss),
            logits=logits,
            labels=torch.as_tensor(np.array(self.given.labels)).to(logits.device),
            train=torch.as_tensor(np.tile(train, (n_settings, 1))).to(logits),
            held_out=torch.as_tensor(np.tile(held_out, (n_settings, 1))).to(logits),
            lowered=torch.as_tensor(lowered).to(logits) if lowered.any() else None,
        )

    def behind_floor(self, layers: Chain) -> Chain:
        """Return the layers as they see rows: behind the floor."""
        return Chain((replace(self.floor, branches=(layers,)),))

    def _out_of_fold(self, models: Chain, folds: Ints) -> Floats:
        """Return log-probabilities of every row by the model that was trained without its fold."""
        result = np.empty((len(self.inputs), self.given.n_classes))
        for fold in range(int(folds.max()) + 1):
            own = folds == fold
            model = self.behind_floor(models.member(fold))
            result[own] = log_softmax(with_reference_class(model(self.inputs[own])))
        return result
