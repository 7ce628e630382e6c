"""Held-out logits and labels -> the calibrator we recommend: several families, cross-validated, and their mixture.

Every family that suits the rows and classes is fitted with out-of-fold predictions. Each is averaged with simpler ones,
down to temperature scaling, by its evidence, so that it is safe with few rows. The mixture of least cross-validated
loss gets one more correction, shared by all classes, and a little room for labels that no row has shown.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from itertools import compress
from typing import Any, ClassVar, Literal

import numpy as np

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Floats, row_blocks
from glayers.calibrators.auto_families import affordable, enough_rows, fit_families, needs, one_by_one
from glayers.calibrators.auto_selection import AutoSelection, FamilyResult, LastCorrection
from glayers.calibrators.base import Calibrator, Fitted, Method, drawn_seed, mean_loss
from glayers.calibrators.shared_g_layers import Task, shared_correction
from glayers.checks import check_switch, to_float, whole_number
from glayers.errors import GlayersError, shown
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.folds import draw_rows, format_gain, paired_gain
from glayers.fitting.penalty_path import caution, counted_rows
from glayers.fitting.simplex import fit_mixture_weights, share_of_room
from glayers.maps import Chain, Reference
from glayers.maps.layouts import n_learned
from glayers.maps.mixtures import Stack, TemperedMixture, mixed
from glayers.maps.order import KeepOrder, in_order_of
from glayers.predictions import Predictions
from glayers.progress import progress_bar
from glayers.serving.predictor import apply_map

_LEAST_WEIGHT = 0.01  # families with less weight in the mixture are dropped
MOST_KEPT = 5_000_000  # entries of out-of-fold predictions that a fitted calibrator keeps
# With few rows, the prior of the mixture weights counts as this many rows that only temperature scaling explains.
_EXTRA_ROWS = 0.5
_NO_EVIDENCE = 0.1  # nats over all rows
_ROUNDING = 1e-12  # relative difference between losses of equal predictions


@dataclass(eq=False, repr=False)
class AutoCalibrator(Calibrator):
    """Fits several families, compares them by cross-validation, and mixes the best: the calibrator to start with.

    Falls back to temperature scaling, or to no calibration, if cross-validation shows no gain. No possible class gets a
    probability near 0, because n rows cannot rule out what happens once in n.

    Parameters
    ----------
    loss : {"log", "brier"}
        The loss that families are compared by and, where they can be, fitted by.
    keep_accuracy : bool
        Keep the order of the classes in every row, and so accuracy and every top-k accuracy.
    time_budget : float
        Seconds on a machine with two cores, estimated from rows and classes. Families that would exceed it are left
        out, and `selection_` says so. The same rows give the same calibrator on any machine. The progress bar shows
        what the fit will need. Beyond 100,000 rows or 25 million logits, the families learn from a random sample of
        the rows, in whole groups, and temperature scaling from all rows.
    n_folds : int
        Folds of the cross-validation, except for g-layers, which choose their own.
    random_state : int or None
        Seed of the folds and of all families.
    progress : bool, optional
        Whether to show a progress bar; None shows it at a terminal.

    Attributes
    ----------
    map_ : Chain
        The fitted map from logits to log-probabilities.
    diagnostics_ : Diagnostics
        Convergence, losses before and after, number of parameters, seconds.
    selection_ : AutoSelection
        What was tried, what was kept and why; it prints.
    mixture_weights_ : dict
        Weight of each family in what was kept.
    out_of_fold_ : array (n, classes) or None
        Log-probabilities of every row by fits that had not seen it. A few numbers are chosen with all rows: penalties,
        epochs, mixture weights, and the temperature that fits start from. If the families learn from a sample of the
        rows (`selection_` says so), of its rows, in their order. None for more than 5 million logits: it would mostly
        fill memory.

    Examples
    --------
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> auto = AutoCalibrator(time_budget=2).fit(calibration.logits[:1000], calibration.labels[:1000])
    >>> print(auto.selection_.summary)
    1,000 rows, 10 classes (100 rows per class); compared by 5-fold cross-validated log loss.
    """

    methods = (Method("auto", "Cross-validated mixture of methods", "nothing", "glayers", torch="optional"),)
    _kept: ClassVar[tuple[str, ...]] = ("selection_",)
    _records: ClassVar = {"selection_": AutoSelection}
    _run: ClassVar[Callable[..., Iterable[Any]]] = staticmethod(one_by_one)  # on a cluster, as tasks

    selection_: ClassVar[AutoSelection]

    _: KW_ONLY
    loss: Literal["log", "brier"] = "log"
    keep_accuracy: bool = False
    time_budget: float = 120.0
    n_folds: int = 5
    random_state: int | None = 0
    progress: bool | None = None

    @property
    def mixture_weights_(self) -> dict[str, float]:
        """Weight of each family in what was kept, which sum to 1."""
        return self.selection_.weights

    def _fit(self, given: Predictions) -> Fitted:
        loss = smooth_loss(self.loss)
        task, budget = self._task(given), _seconds(self.time_budget)
        n_rows, given = len(given), task.given
        chosen, left_out = affordable(len(given), given.n_classes, budget, task.n_folds)
        with progress_bar(self.progress, needs(chosen, len(given), given.n_classes), len(chosen) + 1) as advance:
            families = fit_families(task, chosen, left_out, advance, self._run)
            mixture, weights, correction = mixture_of(families, task)
            advance()
        raw = log_softmax(apply_map(Chain(()), given.logits))
        tried = {"uncalibrated": Fitted(Chain(()), "", out_of_fold=raw, attributes={"seconds": 0.0}), **families}
        losses = {name: _losses(self.loss, _held_out(fitted), given) for name, fitted in tried.items()}
        # Some families start from temperature scaling on all rows, so that is what they have to beat.
        temperature = _losses(self.loss, apply_map(families["temperature"].map, given.logits), given)
        mixture_losses = _losses(self.loss, _held_out(mixture), given)
        found = families["temperature"].converged
        kept, reason = choose(losses, temperature, mixture_losses, weights, given, found)
        used = weights if kept == "mixture" else {kept: 1.0}
        fitted, room = with_room(tried.get(kept, mixture), task)
        if kept == "mixture":
            mixture_losses = _losses(self.loss, _held_out(fitted), given)
        failed = tuple(f"auto: {name}: {tried[name].reason}" for name in used if not tried[name].converged)
        results = []
        for name, values in losses.items():
            gain, error = (None, None) if name == "temperature" else _gain(temperature, values, given)
            size, seconds = n_learned(tried[name].map), tried[name].attributes["seconds"]
            weight, note = used.get(name, 0.0), _note(tried[name])
            results.append(FamilyResult(name, _mean(values, given), gain, error, weight, size, seconds, note))
        selection = AutoSelection(
            rows=n_rows,
            classes=given.n_classes,
            n_folds=task.n_folds,
            loss=self.loss,
            keep_accuracy=task.keep_order,
            families=tuple(results),
            left_out=left_out,
            mixture=weights,
            mixture_loss=_mean(mixture_losses, given),
            correction=correction,
            kept=kept,
            reason=reason,
            sample=len(given),
            room=room,
        )
        sampled = task.all_rows is not None
        return Fitted(
            fitted.map,
            f"auto: {' + '.join(used)}",
            converged=not failed,
            reason=reason,
            iterations=len(families),
            n_parameters=n_learned(fitted.map),
            out_of_fold=fitted.out_of_fold if given.logits.size <= MOST_KEPT else None,
            losses=(mean_loss(loss, Chain(()), given), mean_loss(loss, fitted.map, given)) if sampled else None,
            notes=((f"auto: {reason}",) if kept == "uncalibrated" else ()) + failed,
            attributes={"selection_": selection},
        )

    def _task(self, given: Predictions) -> Task:
        seed, all_rows = drawn_seed(self.random_state), None
        most = enough_rows(given.n_classes)
        if len(given) > most:
            sample = given.take(draw_rows(len(given), given.groups, given.weights, most, seed))
            given, all_rows = sample, given
        units = len(given) if given.groups is None else len(np.unique(given.groups))
        n_folds = min(whole_number(self.n_folds, "n_folds", least=2), max(2, units))
        keep_order = check_switch(self.keep_accuracy, "keep_accuracy")
        return Task(given, self.loss, keep_order, n_folds, seed, all_rows=all_rows)


def _seconds(given: object) -> float:
    if not to_float(given) >= 0:
        raise GlayersError(f"time_budget must be a number of seconds, 0 or more; got {shown(given)}")
    return to_float(given)


def mixture_of(families: Mapping[str, Fitted], task: Task) -> tuple[Fitted, dict[str, float], LastCorrection | None]:
    """Return the mixture of least held-out loss with a last correction, the weight of each family, and the correction.

    Families of little weight are dropped until all count. A family alone comes back as it is.
    """
    names, parts, given = list(families), list(families.values()), task.given
    weights = _weights(families, task)
    if weights.min() < _LEAST_WEIGHT:
        return mixture_of(dict(compress(families.items(), weights >= _LEAST_WEIGHT)), task)
    if len(parts) == 1:
        return parts[0], {names[0]: 1.0}, None
    held_out = mixed(weights, [_held_out(part) for part in parts])
    found = shared_correction(held_out, given, task.n_folds, task.seed + 3)
    last, corrected, measured_by = found.map, _held_out(found), "log"
    # A mixture of maps that keep the order keeps it too; the correction may not.
    if task.keep_order and last.steps:
        ordered = KeepOrder.of(last)
        last, corrected = Chain((ordered,)), log_softmax(in_order_of(held_out, corrected, ordered.slope))
    gain, error = found.attributes["gain_"], found.attributes["gain_error_"]
    if last.steps:
        measured_by = task.loss
        before, after = (_losses(task.loss, each, given) for each in (held_out, corrected))
        gain, error = paired_gain(before, after, given.weights, given.groups)
    chain = Chain((Stack(weights, tuple(part.map for part in parts)),)) + last
    correction = LastCorrection(bool(last.steps), measured_by, gain, error)
    return Fitted(chain, "", out_of_fold=corrected), dict(zip(names, weights.tolist(), strict=True)), correction


def choose(
    losses: Mapping[str, Floats],
    temperature: Floats,
    mixture: Floats,
    weights: Mapping[str, float],
    given: Predictions,
    found_temperature: bool = True,
) -> tuple[str, str]:
    """Return what to keep and why: the mixture, unless no calibration has a cross-validated loss as low.

    `losses` are cross-validated losses per row, by family; `temperature` are those of temperature scaling on the rows
    it was fitted to, and `found_temperature` is whether there is one of least loss.
    """
    raw = losses["uncalibrated"]
    # Networks are seldom calibrated, so a temperature with the least evidence, in nats, beats none.
    no_evidence = len(given) * (_mean(raw, given) - _mean(temperature, given)) <= _NO_EVIDENCE or not found_temperature
    falls_back = no_evidence and _mean(raw, given) <= _mean(mixture, given) * (1 + _ROUNDING)
    before = raw if falls_back or _mean(raw, given) < _mean(temperature, given) else temperature
    baseline = "temperature scaling" if before is temperature else "no calibration"
    gain, error = _gain(before, mixture, given)
    size = f"{'lower' if gain > 0 else 'higher'} than that of {baseline} by {format_gain(abs(gain), error)}"
    if abs(gain) <= _ROUNDING * abs(_mean(mixture, given)):
        size = f"equal to that of {baseline}"
    if falls_back:
        return "uncalibrated", f"No gain, as the mixture's cross-validated loss is {size}: falls back to {baseline}."
    if weights.keys() == {"temperature"}:
        return "temperature", "No other family has any weight in the best mixture: falls back to temperature scaling."
    return "mixture", f"Its cross-validated loss is {size}."


def with_room(fitted: Fitted, task: Task) -> tuple[Fitted, float]:
    """Give every possible class of a row an equal part of a small share, and return the share.

    Rows cannot rule out what happens once in as many rows, and a label of probability 1e-30 would cost 69 nats.
    """
    given, held_out = task.given, _held_out(fitted)
    possible = np.isfinite(with_reference_class(given.logits)).sum(axis=1)
    own = held_out[np.arange(len(given)), given.labels]
    weights = np.ones(len(given)) if given.weights is None else np.asarray(given.weights)
    share = share_of_room(-np.log(possible) - own, weights)
    room = Chain((TemperedMixture(np.array([1 - share, 0.0, share]), np.ones(())),))
    if task.keep_order:  # classes far below the share would become ties
        room = Chain((KeepOrder.of(room),))
    complete = fitted.map if fitted.map.steps else Chain((Reference(),))
    return replace(fitted, map=complete + room, out_of_fold=log_softmax(room(held_out))), share


def _weights(families: Mapping[str, Fitted], task: Task) -> Floats:
    """Return the mixture weights of least held-out loss; with few rows and log loss, a prior favours temperature."""
    parts, n_rows = list(families.values()), len(task.given)
    weights = np.ones(n_rows) if task.given.weights is None else np.asarray(task.given.weights)
    weights = weights / weights.sum()
    own = np.arange(n_rows), task.given.labels
    logs = np.array([_held_out(part)[own] for part in parts])
    # A common factor per row changes no weight under log loss, and keeps tiny probabilities above 0.
    held_out = np.exp(logs - logs.max(axis=0) if task.loss == "log" else logs)
    products = _products(parts, weights) if task.loss == "brier" else np.zeros((0, 0))
    if task.loss == "log" and "temperature" in families:  # a share w of it has the prior w^_EXTRA_ROWS
        explained = np.array([[float(name == "temperature")] for name in families])
        held_out = np.concatenate([held_out, explained], axis=1)
        counted = counted_rows(weights)
        weights = np.append(weights, _EXTRA_ROWS * caution(counted) / counted)
        weights /= weights.sum()
    return fit_mixture_weights(task.loss, held_out, products, weights, np.full(len(parts), 1 / len(parts))).point


def _products(parts: list[Fitted], row_weights: Floats) -> Floats:
    """Return the mean over rows of sum_k p_ik p_jk, for every pair of families i, j."""
    products = np.zeros((len(parts), len(parts)))
    for rows in row_blocks(*_held_out(parts[0]).shape):
        p = np.exp([_held_out(part)[rows] for part in parts])
        products += np.einsum("ink,jnk,n->ij", p, p, row_weights[rows], optimize=True)
    return products


def _held_out(fitted: Fitted) -> Floats:
    return np.asarray(fitted.out_of_fold)  # every family has it


def _losses(loss: str, log_probabilities: Floats, given: Predictions) -> Floats:
    """Return the loss of each row; log loss needs no more than the label's own entry."""
    if loss == "log":
        return -np.asarray(log_probabilities[np.arange(len(given)), given.labels], dtype=np.float64)
    return smooth_loss(loss).rows(log_probabilities, given.labels)


def _note(fitted: Fitted) -> str:
    unconverged = () if fitted.converged or fitted.notes else (f"not converged: {fitted.reason}",)
    return "; ".join((*fitted.notes, *unconverged))


def _mean(values: Floats, given: Predictions) -> float:
    return float(np.average(values, weights=given.weights))


def _gain(before: Floats, after: Floats, given: Predictions) -> tuple[float, float]:
    return paired_gain(before, after, given.weights, given.groups)
