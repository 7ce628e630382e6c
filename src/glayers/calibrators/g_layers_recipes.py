"""The two recipes that fit g-layers in torch: the one we recommend, and the paper's own.

The default recipe starts from temperature scaling. All folds of all settings train as one batched run; the setting and
the epoch of least cross-validated loss win. The fold models are averaged and mixed with temperature scaling, with the
weight that is best out of fold. Without a significant gain the recipe falls back to temperature scaling.

An average of models predicts more accurately than each of them, but not with more confidence. With one draw of the
folds this cannot be measured: each row has one model that did not see it. With R draws each row has R such models, and
the gain from one to R models predicts the gain of averaging them all.

The paper's recipe takes raw logits, chooses learning rate and weight decay by cross-validation, and then fits g once on
all rows. Every fit stops early on the NLL of the rows it trains on. The paper does not say which values it tried: the
search here moves on as long as the best setting lies on the edge of what was tried.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Floats, Ints
from glayers.calibrators.base import Fitted, mean_loss
from glayers.calibrators.temperature import tempered
from glayers.errors import GlayersError, shown
from glayers.fitting.adam import Measure, OnEpoch, Schedule, descend
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.floor import fit_floor
from glayers.fitting.folds import assign_folds, fold_fractions, fold_weights, format_gain, paired_gain
from glayers.fitting.objective import Objective, Penalty, row_loss
from glayers.fitting.selection import EpochSelection
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Blend, Centre, Chain, Floor
from glayers.predictions import Predictions

_SMALL = 300_000  # rows x parameters: below this a fit is quick even in float64
_LARGE = 20_000_000  # rows x parameters: above this one fold shows first whether layers learn anything
_ROUNDING = 1e-12  # difference between mean losses of equal predictions
_SETTINGS = ("learning_rate", "weight_decay")  # what the paper's recipe chooses by cross-validation
# The search moves on for a larger gain only: very large weight decays act alike, and would lead it ever further.
_TIE = 1e-4
_LAST_EPOCH = ", the last one allowed: raise max_epochs to train longer"
_MOST_SETTINGS, _MOST_PARAMETERS = 60, 40_000_000  # where its search ends (15 to 30 are usual); fitted together
Setting: TypeAlias = tuple[float, float]


def fit_default(plan: Any, given: Predictions, own_epochs: bool) -> Fitted:  # the recipe's own limit is one of time
    """Fit by cross-validated early stopping, from temperature scaling; `plan` is `GLayers` with all settings given."""
    temperature = fit_inverse_temperature(given.logits, given.labels, given.weights)
    fallback = tempered(temperature.factor)
    prefix = tempered(_start_factor(temperature.factor, given))
    inputs = prefix(given.logits.astype(np.float64))
    body = Chain((Centre(np.zeros(())), *plan._layers(given.n_classes).steps))
    settings = list(itertools.product(plan.learning_rate, plan.weight_decay, (0.0, 1.0)))
    training = _Training(plan, body, inputs, given, fit_floor(inputs, 1.0, given.weights))
    if len(given) * body.n_parameters > _LARGE and not training.learns(settings, plan.random_state):
        training = replace(training, plan=type(plan)(**plan.get_params() | {"max_epochs": 0}))
    runs = [training.cross_validate(settings, plan.random_state)]
    selection, winner = runs[0][0], runs[0][0].winner
    # Both sides use the same temperature, so that the gain measures what the layers learned.
    plain = fallback(given.logits.astype(np.float64))
    base = smooth_loss(plan.loss).rows(plain, given.labels)
    _, gain, error = _best_weight(plan.loss, base, inputs, runs[0][2], given)
    repeats = plan.n_repeats if gain > error + _ROUNDING else 1  # where one draw learns nothing, neither do more
    for seed in np.random.default_rng(plan.random_state).integers(2**31, size=repeats - 1).tolist():
        folds = assign_folds(len(given), given.groups, plan.n_folds, seed)
        if given.weights is None or (np.bincount(folds, given.weights) > 0).all():  # else a fold has no weight
            runs.append(training.cross_validate([settings[winner]], seed))
    selections, models, alone = zip(*runs, strict=True)
    branch = body.with_parameters(
        {name: np.concatenate([each.parameters()[name] for each in models]) for name in models[0].parameters()}
    )
    layers = _mean(alone)
    weight, gain, error = _best_weight(plan.loss, base, inputs, layers, given)
    if abs(gain) < _ROUNDING:  # the layers never left their start
        gain = error = 0.0
    notes = [f"g-layers start from temperature scaling: {temperature.reason}"] if temperature.reason else []
    stops = [int(each.best_epoch[each.winner]) for each in selections]  # one for each draw of the folds
    reason = f"lowest cross-validated loss at epoch {' and '.join(map(str, stops))}"
    reason += _LAST_EPOCH * (max(stops) == plan.max_epochs)
    if gain <= error:
        weight, reason = 0.0, "no significant gain of class-wise layers over temperature scaling in cross-validation"
    held_out = _mixed(inputs if weight else plain, layers, weight)
    if not weight:
        reason += ": falls back to it"
        notes.append(
            f"g-layers fall back to temperature scaling: no significant gain in cross-validated loss "
            f"({format_gain(gain, error)})"
        )
    is_winner = np.arange(len(settings)) == winner
    rates, decays, centred = np.array(settings).T
    chain = fallback
    if weight:
        sharper = _sharper(alone, inputs, weight, given, selection.n_folds)
        chain = prefix + Chain((Blend(np.asarray(weight), training.behind_floor(branch)),)) + sharper
    return Fitted(
        chain,
        "g-layers, default recipe",
        converged=(max(stops) < plan.max_epochs or not own_epochs or not weight) and temperature.converged,
        reason=reason,
        iterations=sum(len(each.trace) - 1 for each in selections),
        n_parameters=body.n_parameters - 1 if weight else 1,
        out_of_fold=held_out,
        notes=tuple(notes),
        attributes={
            "cv_results_": {
                "learning_rate": rates,
                "weight_decay": decays,
                "centred": centred > 0,
                "epoch": selection.best_epoch.numpy(),
                "held_out_loss": selection.best.numpy(),
                "temperature_loss": np.full(len(settings), float(np.average(base, weights=given.weights))),
                "mixture_weight": np.where(is_winner, weight, 0.0),
                "gain": np.where(is_winner, gain, np.nan),
                "gain_error": np.where(is_winner, error, np.nan),
            },
            "history_": {"held_out_loss": torch.stack(selection.trace)[:, winner].numpy()},
        },
    )


def fit_paper(plan: Any, given: Predictions, searched: Collection[str]) -> Fitted:
    """Choose settings by cross-validation, then fit once on all rows; `searched` names those without given values."""
    layers = plan._layers(given.logits.shape[1])
    inputs, floor = given.logits.astype(np.float64), None
    # Features are no logits: q alone is where the loss starts, and none of them is far below the others.
    features = given.n_classes != max(2, given.logits.shape[1])
    if not features:
        factor = fit_inverse_temperature(given.logits, given.labels, given.weights).factor
        floor = fit_floor(inputs, factor, given.weights)
    training = _Training(plan, layers, inputs, given, floor)
    losses: dict[Setting, float] = {}
    new = list(itertools.product(plan.learning_rate, plan.weight_decay))
    best, held_out = new[0], None
    if searched or len(new) > 1:
        folds = assign_folds(len(given), given.groups, plan.n_folds, plan.random_state)
        together = max(1, _MOST_PARAMETERS // (layers.n_parameters * (int(folds.max()) + 1)))  # bounds the memory
        while new:
            now, new = new[:together], new[together:]
            found, models = training.search(now, folds, min(losses.values(), default=np.inf))
            losses |= dict(zip(now, found, strict=True))
            if models is not None:
                best, held_out = now[int(np.argmin(found))], training.out_of_fold(models, folds)
            if not new and len(losses) < _MOST_SETTINGS:
                new = [each for each in _neighbours(best, searched) if each not in losses]
    whole = np.ones((1, len(given))) if given.weights is None else given.weights[None, :]
    whole = whole / whole.sum()
    stopping = EpochSelection(1, np.ones(1), plan.patience, by_training_loss=True)
    final = training.run([best], whole, whole, stopping, Objective.losses, plan.random_state, averaging=0)
    stopped = int(stopping.best_epoch[0])
    learned = {name: value[0] for name, value in final.unflatten(stopping.parameters[0]).items()}
    fitted = training.behind_floor(_in_numpy(layers, learned))
    before = Chain(layers.steps[-1:]) if features else Chain(())
    return Fitted(
        fitted,
        "g-layers, paper recipe",
        converged=stopped < plan.max_epochs,
        reason=f"lowest training loss at epoch {stopped}" + _LAST_EPOCH * (stopped == plan.max_epochs),
        iterations=len(stopping.trace) - 1,
        n_parameters=layers.n_parameters,
        out_of_fold=held_out,
        notes=tuple(_edge_notes(best, list(losses))),
        losses=(mean_loss(smooth_loss(plan.loss), before, given), mean_loss(smooth_loss(plan.loss), fitted, given)),
        attributes={
            "cv_results_": {
                **dict(zip(_SETTINGS, np.array(list(losses) or [best]).T, strict=True)),
                "held_out_loss": np.array(list(losses.values()) or [np.nan]),
                "chosen": np.array([each == best for each in losses or [best]]),
            },
            "history_": {"train_loss": torch.stack(stopping.trace)[:, 0].numpy()},
        },
    )


def _neighbours(best: Setting, searched: Collection[str]) -> list[Setting]:
    """Return the settings one step around the best: learning rates by half powers of ten, weight decays by powers."""

    def around(name: str, value: float, steps: int) -> list[float]:
        if name not in searched:
            return [value]
        place = round(steps * np.log10(value))
        return [float(f"{10 ** (each / steps):.0e}") for each in (place - 1, place, place + 1)]

    return list(itertools.product(around("learning_rate", best[0], 2), around("weight_decay", best[1], 1)))


def _edge_notes(best: Setting, tried: list[Setting]) -> Iterator[str]:
    """Yield a sentence for each setting whose best value is the smallest or the largest of several; 0 is no edge."""
    for name, value, values in zip(_SETTINGS, best, zip(*tried, strict=True), strict=False):
        if len(set(values)) > 1 and value and value in (min(values), max(values)):
            end = "smallest" if value == min(values) else "largest"
            yield f"g-layers: the best {name} of the search, {value:g}, is the {end} of those tried; try more values"


@dataclass(frozen=True)
class _Training:
    """What to train on: `GLayers` with all settings, its layers, their inputs, the rows, and what keeps -inf away."""

    plan: Any
    layers: Chain
    inputs: Floats
    given: Predictions
    floor: Floor | None

    def behind_floor(self, layers: Chain) -> Chain:
        """Return the layers as they see rows: behind the floor, if there is one."""
        return layers if self.floor is None else Chain((replace(self.floor, branch=layers),))

    def out_of_fold(self, models: Chain, folds: Ints) -> Floats:
        """Return log-probabilities of every row by the model that was trained without its fold."""
        result = np.empty((len(self.inputs), self.given.n_classes))
        for fold in range(int(folds.max()) + 1):
            own = folds == fold
            result[own] = log_softmax(with_reference_class(self.behind_floor(models.member(fold))(self.inputs[own])))
        return result

    def cross_validate(self, settings: list[Any], seed: int) -> tuple[EpochSelection, Chain, Floats]:
        """Train every setting without each fold; return the losses, the best setting's models, and their held-out rows.

        The seed draws folds and batches. The models are one chain with a members axis.
        """
        weights, groups = self.given.weights, self.given.groups
        folds = assign_folds(len(self.given), groups, self.plan.n_folds, seed)
        selection = EpochSelection(len(settings), fold_fractions(folds, weights), self.plan.patience)
        measure = Objective.held_out_losses
        objective = self.run(settings, *fold_weights(folds, weights), selection, measure, seed)
        own = slice(selection.winner * selection.n_folds, (selection.winner + 1) * selection.n_folds)
        learned = objective.unflatten(selection.parameters[selection.winner])
        models = _in_numpy(self.layers, learned | {name: value[own] for name, value in objective.fixed.items()})
        return selection, models, self.out_of_fold(models, folds)

    def learns(self, settings: list[Any], seed: int) -> bool:
        """Train the first fold for at most two epochs; return whether any setting lowers its held-out loss."""
        folds = assign_folds(len(self.given), self.given.groups, self.plan.n_folds, seed)
        train, held_out = (weights[:1] for weights in fold_weights(folds, self.given.weights))
        selection = EpochSelection(len(settings), np.ones(1), patience=2)
        brief = replace(self, plan=type(self.plan)(**self.plan.get_params() | {"max_epochs": 2}))
        brief.run(settings, train, held_out, selection, Objective.held_out_losses, seed)
        return bool(selection.best_epoch.any())

    def search(self, settings: list[Setting], folds: Ints, best: float) -> tuple[Floats, Chain | None]:
        """Return the held-out loss of every setting, and the fold models of the best one if it beats `best`."""
        race = _Race(len(settings), fold_fractions(folds, self.given.weights), self.plan, best)
        weights = fold_weights(folds, self.given.weights)
        objective = self.run(settings, *weights, race, Objective.losses, self.plan.random_state, averaging=0.0)
        losses = race.means(race.held_out).numpy()
        winner, n_folds = int(losses.argmin()), len(race.fractions)
        if not losses[winner] < best - _TIE:
            return losses, None
        flat = torch.cat(race.parameters[winner * n_folds : (winner + 1) * n_folds])
        return losses, _in_numpy(self.layers, objective.unflatten(flat))

    def run(
        self,
        settings: list[Any],
        train: Floats,
        held_out: Floats,
        on_epoch: OnEpoch,
        measure: Measure,
        seed: int,
        averaging: float = Schedule.averaging,
    ) -> Objective:
        """Run Adam on settings x folds members, given row weights (folds, n) for training and for held-out rows.

        A setting is a learning rate, a weight decay and, in the default recipe, whether the centring step is on.
        """
        plan, parameters = self.plan, self.layers.parameters()
        raised, lowered = (self.inputs, np.zeros(0)) if self.floor is None else self.floor.split(self.inputs)
        small = len(self.given) * self.layers.n_parameters <= _SMALL and plan.device != "mps"
        try:
            device = torch.device(plan.device)
            logits = torch.as_tensor(raised, dtype=torch.float64 if small else torch.float32).to(device)
        except (AssertionError, RuntimeError, TypeError, ValueError) as error:
            raise GlayersError(f"device {shown(plan.device)} cannot be used here: {error}") from error

        def like(values: Any) -> torch.Tensor:
            return torch.as_tensor(np.asarray(values)).to(logits)

        rates, decays, *centred = np.repeat(np.array(settings), len(train), axis=0).T
        objective = Objective(
            chain=self.layers,
            loss=row_loss(plan.loss, plan.label_smoothing),
            measured=row_loss(plan.loss),
            logits=logits,
            labels=torch.as_tensor(np.array(self.given.labels)).to(device),
            train=like(np.tile(train, (len(settings), 1))),
            held_out=like(np.tile(held_out, (len(settings), 1))),
            # Strength times the squared distance of every weight from zero or from its start.
            penalties={
                name: Penalty(like(2 * decays).reshape(-1, *[1] * value.ndim), like(value * (plan.decay_to == "start")))
                for name, value in parameters.items()
                if name.endswith("weight") and decays.any()
            },
            fixed=dict(zip(("0.share",), map(like, centred), strict=False)),
            lowered=like(lowered) if lowered.any() else None,
        )
        schedule = Schedule(plan.max_epochs, plan.batch_size, averaging, plan.dropout, plan.mixup, plan.progress)
        descend(objective, like(rates), schedule, on_epoch, measure, seed)
        return objective


class _Race(EpochSelection):
    """Early stopping of every fold by its training loss; settings that can no longer win stop too.

    A setting can no longer win if its held-out loss is above that of a setting that has finished, and would still be
    after the last epoch if it went on falling as it did in the last `patience` epochs.
    """

    def __init__(self, n_settings: int, fractions: Floats, plan: Any, best: float) -> None:
        super().__init__(n_settings * len(fractions), np.ones(1), plan.patience, by_training_loss=True)
        self.fractions, self.last, self.to_beat = torch.as_tensor(fractions), plan.max_epochs, best
        self.means_by_epoch: list[Tensor] = []

    def __call__(self, epoch: int, parameters: Tensor, train_loss: Tensor, held_out_loss: Tensor) -> Tensor:
        """Record the epoch and return which members continue."""
        super().__call__(epoch, parameters, train_loss, held_out_loss)
        self.means_by_epoch.append(self.means(self.held_out).clone())
        now, running = self.means_by_epoch[-1], self.running.reshape(-1, len(self.fractions))
        self.to_beat = min([self.to_beat, *now[~running.any(dim=1)].tolist()])
        if epoch >= self.patience:
            fall = (self.means_by_epoch[-1 - self.patience] - now) / self.patience
            running[(now > self.to_beat) & (now - fall * (self.last - epoch) > self.to_beat)] = False
        return self.running

    def means(self, by_fold: Tensor) -> Tensor:
        """Return the mean over folds of each setting."""
        return by_fold.reshape(-1, len(self.fractions)) @ self.fractions


def _in_numpy(chain: Chain, parameters: dict[str, torch.Tensor]) -> Chain:
    return chain.with_parameters({name: v.detach().cpu().double().numpy() for name, v in parameters.items()})


def _sharper(alone: Sequence[Floats], inputs: Floats, weight: float, given: Predictions, n_folds: int) -> Chain:
    """Return the temperature that restores the confidence of an average of all models; no step for one draw of folds.

    The inverse temperature 1 / T of an average of m models grows as 1 - 1/m, like the fall in variance of a mean. It
    minimises the log loss, whatever loss the layers minimise.
    """
    if len(alone) == 1:
        return Chain(())
    mixed = [_mixed(inputs, each, weight) for each in alone]
    found = [fit_inverse_temperature(each, given.labels, given.weights) for each in (*mixed, _mean(mixed))]
    if not all(each.converged for each in found):
        return Chain(())  # rows that are all correct, or uninformative, determine no temperature
    one, several = float(np.mean([each.factor for each in found[:-1]])), found[-1].factor
    ratio = (1 - 1 / (n_folds * len(mixed))) / (1 - 1 / len(mixed))
    # An average is never more confident than its members: a factor below 1 is noise.
    return tempered(max(1.0, (one + (several - one) * ratio) / several))


def _mean(log_probabilities: Sequence[Floats]) -> Floats:
    """Log of the mean probability."""
    return np.logaddexp.reduce(log_probabilities) - np.log(len(log_probabilities))


def _start_factor(factor: float, given: Predictions) -> float:
    """Return the inverse temperature to start from, unless it flattens the logits so that nothing can be learned."""
    logits = with_reference_class(given.logits.astype(np.float64))
    possible = np.isfinite(logits)
    spread = float((logits - logits.mean(axis=1, keepdims=True, where=possible)).std(where=possible))
    return factor if factor * spread > 1e-3 or spread == 0 else 1 / spread


def _best_weight(
    loss: str, base: Floats, plain: Floats, layers: Floats, given: Predictions
) -> tuple[float, float, float]:
    """Return the weight of the layers that is best out of fold, its gain over the base losses, and the gain's error."""
    own = np.arange(len(given)), given.labels

    def losses(weight: float) -> Floats:
        if loss == "log":  # only the probability of the label matters
            return -np.logaddexp(np.log1p(-weight) + plain[own], np.log(weight) + layers[own])
        return smooth_loss(loss).rows(_mixed(plain, layers, weight), given.labels)

    best = minimize_scalar(
        lambda weight: float(np.average(losses(weight), weights=given.weights)),
        bounds=(1e-6, 1 - 1e-6),
        method="bounded",
    )
    return float(best.x), *paired_gain(base, losses(float(best.x)), given.weights, given.groups)


def _mixed(plain: Floats, layers: Floats, weight: float) -> Floats:
    """Log of the mixture; a weight of 0 returns the plain side unchanged."""
    return np.logaddexp(np.log1p(-weight) + plain, np.log(weight) + layers) if weight else plain
