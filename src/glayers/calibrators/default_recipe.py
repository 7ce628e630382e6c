"""The recipe we recommend: start from temperature, stop where held-out rows say, average the folds, and blend.

All folds of all settings train as one batched run on log-probabilities of z / T. The winner is the setting and the
epoch of least out-of-fold loss. Its fold models are averaged, and mixed with temperature scaling by the share that is
best out of fold; where that gains less than a standard error, temperature scaling is what comes back.

An average is right more often than its members, and no surer. With one draw of the folds nothing shows that: a row has
one member that did not see it. With R draws it has R, and the surplus of their average over one tells that of all.
"""

import itertools
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from glayers.activations import with_reference_class
from glayers.arrays import Floats, Ints
from glayers.calibrators.plan import Fitted, Plan
from glayers.calibrators.recipe import member_chain, member_objective, out_of_fold, rows_on
from glayers.errors import GlayersWarning
from glayers.fitting.adam import Schedule, descend
from glayers.fitting.comparison import gain_in_words, paired_gain
from glayers.fitting.folds import assign_folds, fold_shares, fold_weights
from glayers.fitting.objective import Objective
from glayers.fitting.selection import HeldOutSelection
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Blend, Centre, Chain, LogSoftmax, Reference, Scale
from glayers.predictions import Predictions

_ROUNDING = 1e-12  # of a mean loss: what equal predictions may differ by


def fit_default(plan: Plan, given: Predictions) -> Fitted:
    """Fit g-layers by cross-validated early stopping, from temperature."""
    temperature = fit_inverse_temperature(given.logits, given.labels, given.weights)
    if temperature.reason:
        warnings.warn(f"the temperature that g-layers start from: {temperature.reason}", GlayersWarning, stacklevel=4)
    fallback = _scaled(temperature.factor)
    prefix = _scaled(_start_factor(temperature.factor, given))
    inputs = prefix(given.logits.astype(np.float64))
    body = Chain((Centre(np.zeros(())), *plan.layers(given.n_classes).steps))
    settings = list(itertools.product(plan.learning_rates, plan.weight_decays, (0.0, 1.0)))
    first = _search(plan, body, inputs, given, settings, plan.seed)
    selection, winner = first.selection, first.selection.winner
    stopped = int(selection.best_iteration[winner])
    runs = [first, *_repeats(plan, body, inputs, given, settings[winner])]
    learned = [_winning_parameters(run) for run in runs]
    branch = member_chain(body, {name: torch.cat([each[name] for each in learned]) for name in learned[0]})
    alone = [out_of_fold(member_chain(body, own), inputs, run.folds) for own, run in zip(learned, runs, strict=True)]
    layers = _mean(alone)
    # Both sides start from the same temperature, so that only what the layers learned can make a difference.
    base = _losses(plan.loss, fallback(given.logits.astype(np.float64)), given.labels)
    share, gain, error = _best_share(plan.loss, base, inputs, layers, given)
    if abs(gain) < _ROUNDING:  # the layers never left their start
        gain = error = 0.0
    reason = f"least out-of-fold loss at epoch {stopped}"
    if stopped == plan.max_epochs:
        reason += ", the last one allowed: max_epochs may be raised"
    if gain <= error:
        share, reason = 0.0, "no gain over temperature scaling to rely on: it is returned"
        warnings.warn(
            f"g-layers gained {gain_in_words(gain, error)} out of fold over temperature scaling, which is no gain "
            f"to rely on: temperature scaling is returned",
            GlayersWarning,
            stacklevel=4,
        )
    sharper = (
        _sharper([_mixed(inputs, each, share) for each in alone], given, selection.n_folds) if share else Chain(())
    )
    return Fitted(
        chain=prefix + Chain((Blend(np.asarray(share), branch),)) + sharper if share else fallback,
        converged=stopped < plan.max_epochs and temperature.converged,
        reason=reason,
        iterations=len(selection.trace) - 1,
        n_parameters=body.n_parameters - 1 if share else 1,
        cv_results={
            "learning_rate": np.array([rate for rate, _, _ in settings]),
            "weight_decay": np.array([decay for _, decay, _ in settings]),
            "centred": np.array([bool(centred) for _, _, centred in settings]),
            "epoch": selection.best_iteration.numpy(),
            "held_out_loss": selection.best.numpy(),
            "temperature_loss": np.full(len(settings), float(np.average(base, weights=given.weights))),
            "share": np.where(np.arange(len(settings)) == winner, share, 0.0),
            "gain": np.where(np.arange(len(settings)) == winner, gain, np.nan),
            "gain_error": np.where(np.arange(len(settings)) == winner, error, np.nan),
        },
        out_of_fold=_mixed(inputs, layers, share),
        history={"held_out_loss": torch.stack(selection.trace)[:, winner].numpy()},
    )


class _Run(NamedTuple):
    """Settings x folds as they were trained, what held-out rows said on the way, and the folds."""

    objective: Objective
    selection: HeldOutSelection
    folds: Ints


def _search(
    plan: Plan, body: Chain, inputs: Floats, given: Predictions, settings: list[tuple[float, float, float]], seed: int
) -> _Run:
    """Train every setting on every fold but one, folds and order of rows by the seed."""
    folds = assign_folds(len(given), given.groups, plan.n_folds, seed)
    train, held_out = fold_weights(folds, given.weights)
    objective = _objective(plan, body, inputs, given.labels, train, held_out, settings)
    selection = HeldOutSelection(len(settings), fold_shares(folds, given.weights), plan.patience)
    rates = objective.logits.new_tensor([rate for rate, _, _ in settings]).repeat_interleave(len(train))
    schedule = Schedule(
        plan.max_epochs, plan.batch_size, dropout=plan.dropout, mixup=plan.mixup, progress=plan.progress
    )
    descend(objective, objective.start(), rates, schedule, selection, Objective.held_out_losses, seed)
    return _Run(objective, selection, folds)


def _repeats(
    plan: Plan, body: Chain, inputs: Floats, given: Predictions, setting: tuple[float, float, float]
) -> Iterator[_Run]:
    """Yield the winner trained on other draws of the folds, but for draws that leave a fold without weight."""
    for seed in np.random.default_rng(plan.seed).integers(2**31, size=plan.n_repeats - 1).tolist():
        folds = assign_folds(len(given), given.groups, plan.n_folds, seed)
        if given.weights is None or (np.bincount(folds, given.weights) > 0).all():
            yield _search(plan, body, inputs, given, [setting], seed)


def _objective(
    plan: Plan,
    body: Chain,
    inputs: Floats,
    labels: Ints,
    train: Floats,
    held_out: Floats,
    settings: list[tuple[float, float, float]],
) -> Objective:
    rows = rows_on(plan.device, inputs, labels, body.n_parameters)
    decays, centred = (np.repeat([setting[i] for setting in settings], len(train)) for i in (1, 2))
    objective = member_objective(plan, body, rows, train, held_out, decays)
    return replace(objective, fixed={"0.share": rows.like(centred)})


def _winning_parameters(run: _Run) -> dict[str, torch.Tensor]:
    winner, n_folds = run.selection.winner, run.selection.n_folds
    members = slice(winner * n_folds, (winner + 1) * n_folds)
    learned = run.objective.unflatten(run.selection.parameters[winner])
    return learned | {name: value[members] for name, value in run.objective.fixed.items()}


def _sharper(alone: list[Floats], given: Predictions, n_folds: int) -> Chain:
    """What makes an average of all members as sure as it should be, if an average of one a draw is; no step for one.

    The inverse temperature 1 / T of an average of m members grows as 1 - 1/m does, as the variance of a mean falls. It
    is that of least log loss, whatever loss the layers were fitted by.
    """
    if len(alone) == 1:
        return Chain(())
    found = [fit_inverse_temperature(each, given.labels, given.weights) for each in (*alone, _mean(alone))]
    if not all(each.converged for each in found):
        return Chain(())  # rows that are all right, or that tell nothing, do not say how sure to be
    one, several = float(np.mean([each.factor for each in found[:-1]])), found[-1].factor
    share_of_all = (1 - 1 / (n_folds * len(alone))) / (1 - 1 / len(alone))
    everything = one + (several - one) * share_of_all
    # An average is never surer than its members: below 1 is noise.
    return _scaled(max(1.0, everything / several))


def _mean(log_probabilities: list[Floats]) -> Floats:
    """Log of the mean probability."""
    return np.logaddexp.reduce(log_probabilities) - np.log(len(log_probabilities))


def _losses(loss: str, log_probabilities: Floats, labels: Ints) -> Floats:
    own = log_probabilities[np.arange(len(labels)), labels]
    if loss == "log":
        return -own
    return (np.exp(log_probabilities) ** 2).sum(axis=1) - 2 * np.exp(own) + 1


def _scaled(factor: float) -> Chain:
    return Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax()))


def _start_factor(factor: float, given: Predictions) -> float:
    """The inverse temperature to start from, unless it flattens the logits and leaves nothing to learn from."""
    logits = with_reference_class(given.logits.astype(np.float64))
    spread = float((logits - logits.mean(axis=1, keepdims=True)).std())
    return factor if factor * spread > 1e-3 or spread == 0 else 1 / spread


def _best_share(
    loss: str, base: Floats, plain: Floats, layers: Floats, given: Predictions
) -> tuple[float, float, float]:
    """The share of the layers that is best out of fold, its gain over the base losses, and that gain's error."""
    weights = np.ones(len(given)) if given.weights is None else given.weights

    own = np.arange(len(given)), given.labels

    def losses(share: float) -> Floats:
        if loss == "log":  # only the label's own probability matters
            return -np.logaddexp(np.log1p(-share) + plain[own], np.log(share) + layers[own])
        return _losses(loss, _mixed(plain, layers, share), given.labels)

    best = minimize_scalar(
        lambda share: float(np.average(losses(share), weights=weights)), bounds=(1e-6, 1 - 1e-6), method="bounded"
    )
    return float(best.x), *paired_gain(base, losses(float(best.x)), given.weights, given.groups)


def _mixed(plain: Floats, layers: Floats, share: float) -> Floats:
    """Log of the mixture; none of the layers leaves the plain side exactly as it is."""
    return np.logaddexp(np.log1p(-share) + plain, np.log(share) + layers) if share else plain
