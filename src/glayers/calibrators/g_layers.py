"""Held-out logits and labels -> the paper's g: dense layers that start as the identity and learn to tell the truth."""

import math
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from numbers import Real
from typing import Any, Literal, NamedTuple

import numpy as np
from sklearn.utils import check_random_state

from glayers.activations import Activation, check_submersion
from glayers.arrays import Array
from glayers.calibrators.base import Calibrator, Method, apply_map, needs_torch
from glayers.calibrators.plan import Fitted, Plan
from glayers.errors import GlayersError, GlayersWarning
from glayers.fitting.diagnostics import Diagnostics, label_facts
from glayers.logits import probabilities_of
from glayers.maps import Chain
from glayers.maps.transparent import hidden_width, layer_shapes
from glayers.metrics.old import brier_sum, nll_from_logits
from glayers.predictions import Predictions


class GLayers(Calibrator):
    """A small dense network between the logits and the softmax, fitted by a proper loss.

    Whatever is None is left to the recipe. `recipe="default"` starts from temperature scaling, stops where held-out
    rows say, averages the fold models and blends them with temperature scaling by the share that is best out of fold.
    `n_repeats` draws the folds so many times: more models to average, and out-of-fold predictions that are averages
    too. `recipe="paper"` does what the paper did: raw logits, settings by cross-validation, one fit on all rows.

    Learned: `map_`, `diagnostics_`, `cv_results_` (one entry a setting), `out_of_fold_` (log-probabilities of every row
    by fits that had not seen it, but for the temperature they start from), `history_` (loss by epoch), `n_parameters_`
    (weights and biases of one g).

    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> g = GLayers(random_state=0).fit(calibration.logits, calibration.labels)
    >>> bool(g.diagnostics_.loss_after < 0.6 * g.diagnostics_.loss_before)
    True
    """

    methods = (
        Method(
            "g-layers",
            "Dense network between logits and softmax",
            keeps="nothing",
            reference="Rahimi et al., Post-hoc Calibration of Neural Networks by g-Layers, 2020",
            torch="required",
        ),
        Method(
            "g-layers-paper",
            "The same network, fitted as in the paper",
            keeps="nothing",
            reference="Rahimi et al., Post-hoc Calibration of Neural Networks by g-Layers, 2020",
            settings={"recipe": "paper"},
            torch="required",
        ),
    )

    def __init__(
        self,
        n_layers: int | None = None,
        units_per_class: int | None = None,
        *,
        width: int | None = None,
        recipe: Literal["default", "paper"] = "default",
        start: Literal["transparent", "glorot"] = "transparent",
        initial_layers: Chain | None = None,
        loss: Literal["log", "brier"] = "log",
        activation: Activation | None = None,
        learning_rate: float | Iterable[float] | None = None,
        weight_decay: float | Iterable[float] | None = None,
        decay_to: Literal["zero", "start"] | None = None,
        dropout: float = 0.0,
        label_smoothing: float = 0.0,
        mixup: float = 0.0,
        n_folds: int | None = None,
        n_repeats: int | None = None,
        max_epochs: int | None = None,
        patience: int | None = None,
        batch_size: int | None = None,
        random_state: int | None = None,
        device: str = "cpu",
        progress: bool | None = None,
    ) -> None:
        self.n_layers = n_layers
        self.units_per_class = units_per_class
        self.width = width
        self.recipe = recipe
        self.start = start
        self.initial_layers = initial_layers
        self.loss = loss
        self.activation = activation
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.decay_to = decay_to
        self.dropout = dropout
        self.label_smoothing = label_smoothing
        self.mixup = mixup
        self.n_folds = n_folds
        self.n_repeats = n_repeats
        self.max_epochs = max_epochs
        self.patience = patience
        self.batch_size = batch_size
        self.random_state = random_state
        self.device = device
        self.progress = progress

    def _fit(self, given: Predictions) -> None:
        began = time.perf_counter()
        self._check_settings()
        if self.activation is not None:
            check_submersion(self.activation, given.n_classes)
        fitted = _recipes()[self.recipe](self._plan(given), given)
        self.map_, self.cv_results_, self.out_of_fold_, self.history_ = (
            fitted.chain,
            fitted.cv_results,
            fitted.out_of_fold,
            fitted.history,
        )
        score = nll_from_logits if self.loss == "log" else _brier_from_logits
        before, after = (
            score(logits, given.labels, given.weights) for logits in (given.logits, apply_map(self.map_, given.logits))
        )
        self.diagnostics_ = Diagnostics(
            method=f"g-layers, {self.recipe} recipe",
            converged=fitted.converged,
            reason=fitted.reason,
            iterations=fitted.iterations,
            loss_before=before,
            loss_after=after,
            moved=after != before,
            n_parameters=fitted.n_parameters,
            seconds=time.perf_counter() - began,
            **label_facts(given),
        )
        if not after < before:
            warnings.warn(
                f"g-layers did not lower the loss of the rows they were fitted on: {before:.6g} before, "
                f"{after:.6g} after",
                GlayersWarning,
                stacklevel=3,
            )

    def _check_settings(self) -> None:
        choices: dict[str, list[str | None]] = {
            "recipe": ["default", "paper"],
            "start": ["glorot", "transparent"],
            "decay_to": [None, "start", "zero"],
        }
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise GlayersError(f"{name} must be one of {allowed}; got {getattr(self, name)!r}")
        for name in ("dropout", "label_smoothing"):
            if not _within(getattr(self, name), 1.0):
                raise GlayersError(f"{name} must lie in [0, 1); got {getattr(self, name)!r}")
        if not _within(self.mixup, math.inf):
            raise GlayersError(f"mixup is the shape of a Beta distribution, or 0 for none; got {self.mixup!r}")
        least = {"n_layers": 1, "units_per_class": 1, "width": 1, "n_folds": 2, "n_repeats": 1}
        for name, smallest in (least | {"max_epochs": 0, "patience": 1, "batch_size": 1}).items():
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int | np.integer) or value < smallest):
                raise GlayersError(f"{name} must be a whole number of at least {smallest}; got {value!r}")
        if self.recipe == "paper" and _or(self.n_repeats, 1) > 1:
            raise GlayersError(
                "n_repeats draws the folds of recipe='default' anew; the paper's recipe fits all rows once"
            )
        for name, above_zero in (("learning_rate", True), ("weight_decay", False)):
            values = _several(getattr(self, name), (1.0,))
            if not values or not all(math.isfinite(v) and (v > 0 or (v == 0 and not above_zero)) for v in values):
                wanted = "positive numbers" if above_zero else "numbers that are not negative"
                raise GlayersError(f"{name} must be one or more {wanted}; got {getattr(self, name)!r}")

    def _plan(self, given: Predictions) -> Plan:
        n_layers = _or(self.n_layers, 2 if self.recipe == "default" else 3)
        units = _or(self.units_per_class, 2 if self.recipe == "default" else 3)
        n_classes = given.n_classes
        hidden = hidden_width(n_classes, units, self.width)
        weights = sum(n_in * n_out for n_in, n_out in layer_shapes(n_classes, n_layers, hidden))
        search = _search(self.recipe, n_classes, work=len(given) * weights)
        return Plan(
            n_layers=n_layers,
            units_per_class=units,
            width=self.width,
            start=self.start,
            initial_layers=self.initial_layers,
            loss=self.loss,
            activation=self.activation,
            learning_rates=_several(self.learning_rate, search.learning_rates),
            weight_decays=_several(self.weight_decay, search.weight_decays),
            decay_to=_or(self.decay_to, "start" if self.recipe == "default" else "zero"),
            dropout=self.dropout,
            label_smoothing=self.label_smoothing,
            mixup=self.mixup,
            n_folds=_or(self.n_folds, search.n_folds),
            n_repeats=_or(self.n_repeats, 1),
            max_epochs=_or(self.max_epochs, search.max_epochs),
            patience=_or(self.patience, search.patience),
            # Some twenty steps an epoch, or few rows would hardly leave the start.
            batch_size=_or(self.batch_size, min(250, max(16, len(given) // 20))),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            device=self.device,
            progress=sys.stderr.isatty() if self.progress is None else self.progress,
        )


def _recipes() -> dict[str, Callable[[Plan, Predictions], Fitted]]:
    """Return the recipes by name; from here on torch is needed."""
    with needs_torch("GLayers"):
        from glayers.calibrators.default_recipe import fit_default
        from glayers.calibrators.paper_recipe import fit_paper
    return {"default": fit_default, "paper": fit_paper}


class _Search(NamedTuple):
    """How much a recipe tries when the user leaves it to it."""

    learning_rates: tuple[float, ...]
    weight_decays: tuple[float, ...]
    n_folds: int
    max_epochs: int
    patience: int


def _search(recipe: str, n_classes: int, work: int) -> _Search:
    """Try less where a pass over the rows (`work` = rows x weights) costs more."""
    if recipe == "paper":
        return _Search((3e-3, 1e-3), (1e-3, 1e-2, 3e-2, 1e-1), n_folds=5, max_epochs=100, patience=5)
    # A step moves an output by its rate times the hidden units that feed it, and these grow with the classes.
    unit = 1 / math.sqrt(n_classes)
    if work <= 2e7:
        return _Search((0.01 * unit, 0.03 * unit), (0.0,), n_folds=5, max_epochs=100, patience=4)
    if work <= 5e9:
        return _Search((0.02 * unit,), (0.0,), n_folds=5, max_epochs=12, patience=3)
    return _Search((0.01 * unit,), (0.0,), n_folds=3, max_epochs=4, patience=2)


def _brier_from_logits(logits: Array, labels: object, weights: object) -> float:
    return brier_sum(probabilities_of(logits), labels, weights)


def _within(value: object, end: float) -> bool:
    return isinstance(value, Real) and 0 <= float(value) < end


def _or(given: Any, otherwise: Any) -> Any:
    return otherwise if given is None else given


def _several(given: float | Iterable[float] | None, otherwise: tuple[float, ...]) -> tuple[float, ...]:
    if given is None:
        return otherwise
    if isinstance(given, str | Iterator):
        raise GlayersError(f"settings to try must be a number or a list of numbers; got {given!r}")
    values = tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(value, Real) for value in values):
        raise GlayersError(f"settings to try must be a number or a list of numbers; got {given!r}")
    return tuple(float(value) for value in values)
