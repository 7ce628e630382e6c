"""Held-out logits and labels -> g: dense layers between logits and softmax, from temperature scaling.

All folds of all settings train as one batched run; the setting and the epoch of least cross-validated loss win. The
fold models are averaged and mixed with temperature scaling, with the weight that is best out of fold. Without a
significant gain the fit falls back to temperature scaling. The paper's own recipe is `PaperGLayers`.
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array, Floats
from glayers.calibrators.base import Calibrator, Fitted, Method, needs_torch
from glayers.calibrators.estimator import drawn_seed
from glayers.calibrators.temperature import tempered
from glayers.checks import one_or_several, whole_number
from glayers.errors import GlayersError, shown
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.floor import fit_floor
from glayers.fitting.folds import assign_folds, fold_fractions, fold_weights, format_gain, paired_gain
from glayers.fitting.selection import EpochSelection
from glayers.fitting.temperature import fit_with_prior
from glayers.maps import Blend, Centre, Chain, dense_layers
from glayers.predictions import Predictions

PAPER = "Rahimi et al., Post-hoc Calibration of Neural Networks by g-Layers, 2020"
LAST_EPOCH = ", the last one allowed: raise max_epochs to train longer"
_LARGE = 20_000_000  # rows x parameters: above this one fold shows first whether layers learn anything
_ROUNDING = 1e-12  # difference between mean losses of equal predictions


@dataclass(eq=False, repr=False)
class GLayers(Calibrator):
    """A small dense network between the logits and the softmax, fitted by a proper loss.

    The fit starts from temperature scaling, stops early by cross-validated loss, averages the fold models and mixes
    them with temperature scaling. It falls back to temperature scaling, with a warning, unless cross-validation shows a
    gain.

    Parameters
    ----------
    n_layers : int, default 2
        Number of dense layers.
    units_per_class : int, default 2
        Hidden units per class.
    loss : {"log", "brier"}
        The proper loss to minimise.
    learning_rate : float or list of float, optional
        Values to choose from by cross-validation; by default one or two that suit the number of classes.
    max_epochs : int, optional
        Longest run; by default 100, and fewer where an epoch takes long.
    batch_size : int, optional
        Rows per step; by default about a twentieth of them, between 16 and 250.
    n_folds : int, optional
        Folds of the cross-validation; by default 5, and 3 for the largest problems.
    random_state : int or None
        Seed of folds, batches and weights.
    device : str
        Torch device, such as "cpu" or "cuda".
    progress : bool, optional
        Whether to show a progress bar; None shows it at a terminal.

    Attributes
    ----------
    map_ : Chain
        The fitted map from logits to logits.
    diagnostics_ : Diagnostics
        Convergence, losses before and after, number of parameters, seconds.
    cv_results_ : dict of arrays
        Learning rate, whether inputs are centred, best epoch and held-out loss of every setting tried.
    out_of_fold_ : array (n, classes)
        Log-probabilities of every row by models that had not seen it. The temperature, the epoch and the mixture weight
        are chosen with all rows.
    history_ : dict of arrays
        Held-out loss by epoch.

    Examples
    --------
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> g = GLayers().fit(calibration.logits, calibration.labels)
    >>> bool(g.diagnostics_.loss_after < 0.6 * g.diagnostics_.loss_before)
    True
    """

    methods = (Method("g-layers", "Dense network between logits and softmax", "nothing", PAPER, torch="required"),)

    cv_results_: ClassVar[dict[str, Array]]
    history_: ClassVar[dict[str, Floats]]

    n_layers: int = 2
    units_per_class: int = 2
    _: KW_ONLY
    loss: Literal["log", "brier"] = "log"
    learning_rate: float | Iterable[float] | None = None
    max_epochs: int | None = None
    batch_size: int | None = None
    n_folds: int | None = None
    random_state: int | None = 0
    device: str = "cpu"
    progress: bool | None = None

    def _fit(self, given: Predictions) -> Fitted:
        with needs_torch("GLayers"):
            from glayers.fitting.layers import LayerTraining
        loss = smooth_loss(self.loss)
        seed = drawn_seed(self.random_state)
        layers = new_layers(given.n_classes, self.n_layers, self.units_per_class, seed)
        plan = self._plan(given, layers)
        logits = given.logits.astype(np.float64)
        temperature = fit_with_prior(given.logits, given.labels, given.weights)
        start = tempered(_start_factor(temperature.factor, given))
        inputs = start(logits)
        body = Chain((Centre(np.zeros(())), *layers.steps))
        floor = fit_floor(inputs, 1.0, given.weights)
        training = LayerTraining(body, inputs, given, floor, self.loss, self.device)
        selection, models, held_out = self._cross_validate(training, plan, seed)
        # Both sides use the same temperature, so that the gain measures what the layers learned.
        fallback = tempered(temperature.factor)
        plain = fallback(logits)
        share, gain, error = _best_share(self.loss, loss.rows(plain, given.labels), inputs, held_out, given)
        stop = int(selection.best_epoch[selection.winner])
        fitted = Fitted(
            start + Chain((Blend(np.asarray(share), training.behind_floor(models)),)),
            "g-layers",
            converged=temperature.converged and (stop < plan.epochs or self.max_epochs is None),
            reason=f"lowest cross-validated loss at epoch {stop}{LAST_EPOCH if stop == plan.epochs else ''}",
            iterations=len(selection.trace) - 1,
            n_parameters=layers.n_parameters,
            out_of_fold=_mixed(inputs, held_out, share),
            notes=(f"g-layers start from temperature scaling: {temperature.reason}",) if temperature.reason else (),
            attributes=_results(selection, plan),
        )
        if gain > error:
            return fitted
        note = (
            f"g-layers fall back to temperature scaling: no significant gain in cross-validated loss "
            f"({format_gain(gain, error)})"
        )
        return replace(
            fitted,
            map=fallback,
            converged=temperature.converged,
            reason="no significant gain over temperature scaling in cross-validation: falls back to it",
            n_parameters=1,
            out_of_fold=plain,
            notes=(*fitted.notes, note),
        )

    def _plan(self, given: Predictions, layers: Chain) -> "_Plan":
        """Return the settings of the training: fewer where a pass over the rows costs more."""
        # One step moves an output by the rate times its number of hidden units, which grows with the classes.
        unit = 1 / math.sqrt(given.n_classes)
        weights = sum(value.size for value in layers.parameters().values() if value.ndim > 1)
        work = len(given) * weights
        if work <= 2e7:
            plan = _Plan((0.01 * unit, 0.03 * unit), epochs=100, n_folds=5, patience=4)
        elif work <= 5e9:
            plan = _Plan((0.02 * unit,), epochs=12, n_folds=5, patience=3)
        else:
            plan = _Plan((0.01 * unit,), epochs=4, n_folds=3, patience=2)
        if self.learning_rate is not None:
            plan = plan._replace(rates=numbers_to_try(self.learning_rate, "learning_rate"))
        if self.max_epochs is not None:
            plan = plan._replace(epochs=whole_number(self.max_epochs, "max_epochs", 0))
        if self.n_folds is not None:
            plan = plan._replace(n_folds=whole_number(self.n_folds, "n_folds", 2))
        if self.batch_size is not None:
            return plan._replace(batch_size=whole_number(self.batch_size, "batch_size", 1))
        return plan._replace(batch_size=usual_batch_size(len(given)))

    def _cross_validate(self, training: Any, plan: "_Plan", seed: int) -> tuple[EpochSelection, Chain, Floats]:
        """Train every setting without each fold; return the losses, the best setting's models, and their held-out rows.

        The models are one chain with a members axis.
        """
        given = training.given
        folds = assign_folds(len(given), given.groups, plan.n_folds, seed)
        train, held_out = fold_weights(folds, given.weights)
        if len(given) * training.layers.n_parameters > _LARGE:
            brief = EpochSelection(len(plan.settings), np.ones(1), patience=2)
            self._train(training, plan._replace(epochs=2), train[:1], held_out[:1], brief, seed)
            if not brief.best_epoch.any():
                plan = plan._replace(epochs=0)
        selection = EpochSelection(len(plan.settings), fold_fractions(folds, given.weights), plan.patience)
        objective = self._train(training, plan, train, held_out, selection, seed)
        first = selection.winner * len(train)
        models = objective.fitted(selection.parameters[selection.winner], slice(first, first + len(train)))
        return selection, models, training.out_of_fold(models, folds)

    def _train(
        self, training: Any, plan: "_Plan", train: Floats, held_out: Floats, selection: EpochSelection, seed: int
    ) -> Any:
        from glayers.fitting.adam import descend

        objective = training.objective(len(plan.settings), train, held_out)
        rates, centred = np.repeat(plan.settings, len(train), axis=0).T
        objective = replace(objective, fixed={"0.share": objective.like(centred)})
        descend(
            objective,
            rates,
            selection,
            epochs=plan.epochs,
            batch_size=plan.batch_size,
            seed=seed,
            measure=type(objective).held_out_losses,
            progress=self.progress,
        )
        return objective


class _Plan(NamedTuple):
    """How to train: learning rates to try, and when to stop."""

    rates: tuple[float, ...]
    epochs: int
    n_folds: int
    patience: int
    batch_size: int = 0

    @property
    def settings(self) -> list[tuple[float, float]]:
        """Each learning rate with inputs as they are, and with centred ones."""
        return list(itertools.product(self.rates, (0.0, 1.0)))


def new_layers(n_logits: int, n_layers: Any, units_per_class: Any, seed: int, start: Any = "transparent") -> Chain:
    """Return the layers to start from, after checking their number and their width."""
    whole_number(n_layers, "n_layers", 1)
    whole_number(units_per_class, "units_per_class", 1)
    return dense_layers(n_logits, n_layers, units_per_class, seed, start=start)


def usual_batch_size(n_rows: int) -> int:
    """Return the rows per step: about twenty steps per epoch; with fewer, few rows would hardly leave the start."""
    return min(250, max(16, n_rows // 20))


def numbers_to_try(values: Any, name: str, above_zero: bool = True) -> tuple[float, ...]:
    """Return a setting that is one number or several, as a tuple."""
    numbers = one_or_several(values)
    if any(map(math.isnan, numbers)):
        raise GlayersError(f"settings to try must be a number or a list of numbers; got {shown(values)}")
    valid = [0 <= number < math.inf and (number > 0 or not above_zero) for number in numbers]
    if not numbers or not all(valid):
        wanted = "positive numbers" if above_zero else "numbers that are not negative"
        raise GlayersError(f"{name} must be one or more {wanted}; got {values!r}")
    return numbers


def _results(selection: EpochSelection, plan: _Plan) -> dict[str, Any]:
    rates, centred = np.array(plan.settings).T
    return {
        "cv_results_": {
            "learning_rate": rates,
            "centred": centred > 0,
            "epoch": selection.best_epoch,
            "held_out_loss": selection.best,
        },
        "history_": {"held_out_loss": np.array(selection.trace)[:, selection.winner]},
    }


def _start_factor(factor: float, given: Predictions) -> float:
    """Return the inverse temperature to start from, unless it flattens the logits so that nothing can be learned."""
    logits = with_reference_class(given.logits.astype(np.float64))
    possible = np.isfinite(logits)
    spread = float((logits - logits.mean(axis=1, keepdims=True, where=possible)).std(where=possible))
    return factor if factor * spread > 1e-3 or spread == 0 else 1 / spread


def _best_share(
    loss: str, base: Floats, plain: Floats, layers: Floats, given: Predictions
) -> tuple[float, float, float]:
    """Return the share of the layers that is best out of fold, its gain over the base losses, and the gain's error."""
    from scipy.optimize import minimize_scalar  # on first use: importing it takes longer than glayers

    own = np.arange(len(given)), given.labels

    def losses(share: float) -> Floats:
        if loss == "log":  # only the probability of the label matters
            return -_mixed(plain[own], layers[own], share)
        return smooth_loss(loss).rows(_mixed(plain, layers, share), given.labels)

    best = minimize_scalar(
        lambda share: float(np.average(losses(share), weights=given.weights)),
        bounds=(1e-6, 1 - 1e-6),
        method="bounded",
    )
    gain, error = paired_gain(base, losses(best.x), given.weights, given.groups)
    if abs(gain) < _ROUNDING:  # the layers never left their start
        return float(best.x), 0.0, 0.0
    return float(best.x), gain, error


def _mixed(plain: Floats, layers: Floats, share: float) -> Floats:
    """Log of the mixture."""
    return np.logaddexp(np.log1p(-share) + plain, np.log(share) + layers)
