"""The paper's own recipe, step by step: raw logits in, cross-validation, one fit on everything, early stopping.

Learning rate and weight decay are chosen by cross-validation on the calibration set; then g is fitted once on all of
it. Every fit stops early on the NLL of the very rows it trains on.
"""

import itertools

import numpy as np

from glayers.arrays import Floats
from glayers.calibrators.plan import Fitted, Plan
from glayers.calibrators.recipe import Rows, member_chain, member_objective, out_of_fold, rows_on
from glayers.fitting.adam import Schedule, descend
from glayers.fitting.folds import assign_folds, fold_shares, fold_weights
from glayers.fitting.objective import Objective
from glayers.fitting.selection import EarlyStopping
from glayers.maps import Chain
from glayers.predictions import Predictions


def fit_paper(plan: Plan, given: Predictions) -> Fitted:
    """Choose settings by cross-validation, then fit once on every row."""
    layers = plan.layers(given.logits.shape[1])
    rows = rows_on(plan.device, given.logits.astype(np.float64), given.labels, layers.n_parameters)
    settings = list(itertools.product(plan.learning_rates, plan.weight_decays))
    if len(settings) > 1:
        folds = assign_folds(len(given), given.groups, plan.n_folds, plan.seed)
        train, held_out = fold_weights(folds, given.weights)
        run, objective = _train(plan, layers, rows, train, held_out, settings)
        losses = run.held_out.numpy().reshape(len(settings), len(train)) @ fold_shares(folds, given.weights)
        winner = int(np.argmin(losses))
        mine = slice(winner * len(train), (winner + 1) * len(train))
        members = member_chain(layers, objective.unflatten(run.parameters[mine]))
        held_out_predictions = out_of_fold(members, given.logits.astype(np.float64), folds)
    else:
        losses, winner, held_out_predictions = np.full(1, np.nan), 0, np.empty((0, given.n_classes))

    whole = np.ones((1, len(given))) if given.weights is None else given.weights[None, :]
    final, objective = _train(plan, layers, rows, whole / whole.sum(), whole / whole.sum(), [settings[winner]])
    stopped = int(final.best_iteration[0])
    return Fitted(
        chain=member_chain(layers, {n: v[0] for n, v in objective.unflatten(final.parameters).items()}),
        converged=stopped < plan.max_epochs,
        reason=f"least training loss at epoch {stopped} of at most {plan.max_epochs}",
        iterations=len(final.history) - 1,
        n_parameters=layers.n_parameters,
        cv_results={
            "learning_rate": np.array([rate for rate, _ in settings]),
            "weight_decay": np.array([decay for _, decay in settings]),
            "held_out_loss": losses,
        },
        out_of_fold=held_out_predictions,
        history={"train_loss": np.array([float(sight.train[0]) for sight in final.history])},
    )


def _train(
    plan: Plan, layers: Chain, rows: Rows, train: Floats, held_out: Floats, settings: list[tuple[float, float]]
) -> tuple[EarlyStopping, Objective]:
    rates, decays = (np.repeat([setting[i] for setting in settings], len(train)) for i in (0, 1))
    objective = member_objective(plan, layers, rows, train, held_out, decays)
    stopping = EarlyStopping(len(rates), plan.patience)
    schedule = Schedule(
        plan.max_epochs, plan.batch_size, averaging=0.0, dropout=plan.dropout, mixup=plan.mixup, progress=plan.progress
    )
    descend(objective, objective.start(), rows.like(rates), schedule, stopping, Objective.losses, plan.seed)
    return stopping, objective
