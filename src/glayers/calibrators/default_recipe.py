"""The recipe we recommend: start from temperature, stop where held-out rows say, average the folds, and blend.

All folds of all settings train as one batched run on log-probabilities of z / T. The winner is the setting and the
epoch of least out-of-fold loss. Its fold models are averaged, and mixed with temperature scaling by the share that is
best out of fold; where that gains less than its own standard error, temperature scaling is what comes back.
"""

import itertools
import math
import warnings

import numpy as np
import torch
from scipy.optimize import minimize_scalar

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Array, Floats, Ints
from glayers.calibrators.recipe import Fitted, Plan, decay_penalties, member_chain, out_of_fold, rows_on
from glayers.errors import GlayersWarning
from glayers.fitting.adam import Schedule, descend
from glayers.fitting.folds import assign_folds, fold_weights
from glayers.fitting.losses import row_loss
from glayers.fitting.objective import Objective
from glayers.fitting.selection import HeldOutSelection
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Blend, Centre, Chain, LogSoftmax, Reference, Scale
from glayers.predictions import Predictions


def fit_default(plan: Plan, given: Predictions) -> Fitted:
    """Fit g-layers by cross-validated early stopping, from temperature."""
    factor = fit_inverse_temperature(given.logits, given.labels, given.weights).factor
    prefix = Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax()))
    inputs = prefix(given.logits.astype(np.float64))
    body = Chain((Centre(np.zeros(())), *plan.layers(given.n_classes).steps))
    folds = assign_folds(given.labels, given.groups, plan.n_folds, plan.seed)
    train, held_out = fold_weights(folds, given.weights)
    settings = list(itertools.product(plan.learning_rates, plan.weight_decays, (0.0, 1.0)))
    objective = _objective(plan, body, inputs, given.labels, train, held_out, settings)
    selection = HeldOutSelection(len(settings), len(train), plan.patience)
    rates = objective.logits.new_tensor([rate for rate, _, _ in settings]).repeat_interleave(len(train))
    schedule = Schedule(
        plan.max_epochs, plan.batch_size, dropout=plan.dropout, mixup=plan.mixup, progress=plan.progress
    )
    descend(objective, objective.start(), rates, schedule, selection, Objective.held_out_losses, plan.seed)

    winner = selection.winner
    stopped = int(selection.best_iteration[winner])
    branch = member_chain(body, _winning_parameters(objective, selection))
    plain = _temperature_out_of_fold(given, folds, train, factor)
    layers = out_of_fold(branch, inputs, folds)
    share, gain, error = _best_share(plan.loss, plain, layers, given)
    if gain <= error:
        share = 0.0
        warnings.warn(
            f"g-layers gained {gain:.2g} +- {error:.2g} out of fold over temperature scaling, which is no gain "
            f"to rely on: temperature scaling is returned",
            GlayersWarning,
            stacklevel=5,
        )
    mixed = np.log((1 - share) * np.exp(plain) + share * np.exp(layers) + 1e-300)
    return Fitted(
        chain=prefix + Chain((Blend(np.asarray(share), branch),)) if share else prefix,
        converged=stopped < plan.max_epochs,
        reason=f"least out-of-fold loss at epoch {stopped}"
        + ("" if stopped < plan.max_epochs else ", the last one allowed: max_epochs may be raised"),
        iterations=len(selection.trace) - 1,
        n_parameters=body.n_parameters - 1 if share else 1,
        cv_results={
            "learning_rate": np.array([rate for rate, _, _ in settings]),
            "weight_decay": np.array([decay for _, decay, _ in settings]),
            "centred": np.array([bool(centred) for _, _, centred in settings]),
            "epoch": selection.best_iteration.numpy(),
            "held_out_loss": selection.best.numpy(),
            "temperature_loss": np.full(
                len(settings), float(np.average(_losses(plan.loss, plain, given.labels), weights=given.weights))
            ),
            "share": np.where(np.arange(len(settings)) == winner, share, 0.0),
            "gain": np.where(np.arange(len(settings)) == winner, gain, np.nan),
            "gain_error": np.where(np.arange(len(settings)) == winner, error, np.nan),
        },
        out_of_fold=mixed,
        history={"held_out_loss": torch.stack(selection.trace)[:, winner].numpy()},
    )


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
    return Objective(
        chain=body,
        loss=row_loss(plan.loss, plan.label_smoothing),
        logits=rows.logits,
        labels=rows.labels,
        train=rows.like(np.tile(train, (len(settings), 1))),
        held_out=rows.like(np.tile(held_out, (len(settings), 1))),
        penalties=decay_penalties(plan, body, rows, decays),
        fixed={"0.share": rows.like(centred)},
    )


def _winning_parameters(objective: Objective, selection: HeldOutSelection) -> dict[str, torch.Tensor]:
    members = slice(selection.winner * selection.n_folds, (selection.winner + 1) * selection.n_folds)
    learned = objective.unflatten(selection.parameters[selection.winner])
    return learned | {name: value[members] for name, value in objective.fixed.items()}


def _temperature_out_of_fold(given: Predictions, folds: Ints, train: Floats, start: float) -> Floats:
    """Log-probabilities of every row by a temperature fitted without its fold."""
    result = np.empty((len(given), given.n_classes))
    for fold, weights in enumerate(train):
        rows = weights > 0
        factor = fit_inverse_temperature(given.logits[rows], given.labels[rows], weights[rows], start).factor
        mine = folds == fold
        result[mine] = log_softmax(with_reference_class(given.logits[mine].astype(np.float64)) * factor)
    return result


def _losses(loss: str, log_probabilities: Floats, labels: Ints) -> Floats:
    own = log_probabilities[np.arange(len(labels)), labels]
    if loss == "log":
        return -own
    return (np.exp(log_probabilities) ** 2).sum(axis=1) - 2 * np.exp(own) + 1


def _best_share(loss: str, plain: Floats, layers: Floats, given: Predictions) -> tuple[float, float, float]:
    """The share of the layers that is best out of fold, its gain over none of them, and the gain's standard error."""
    weights = np.ones(len(given)) if given.weights is None else given.weights
    base = _losses(loss, plain, given.labels)

    def gains(share: float) -> Array:
        if loss == "log":
            own = np.arange(len(given)), given.labels
            return np.logaddexp(math.log1p(-share) + plain[own], math.log(share) + layers[own]) + base
        mixed = (1 - share) * np.exp(plain) + share * np.exp(layers)
        return base - _losses(loss, np.log(mixed + 1e-300), given.labels)

    best = minimize_scalar(
        lambda share: -float(np.average(gains(share), weights=weights)), bounds=(1e-6, 1 - 1e-6), method="bounded"
    )
    each = gains(float(best.x))
    mean = float(np.average(each, weights=weights))
    variance = float(np.average((each - mean) ** 2, weights=weights))
    return float(best.x), mean, math.sqrt(variance / max(1, len(given) - 1))
