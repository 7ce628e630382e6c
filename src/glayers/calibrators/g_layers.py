"""Held-out logits and labels -> the paper's g: dense layers that start as the identity and are fitted by a proper loss.

`GLayers` fills in the settings left at None, from the recipe and the size of the problem; `g_layers_recipes` fits in
torch.
"""

import math
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from glayers.activations import Activation, check_submersion
from glayers.arrays import Array, Floats
from glayers.calibrators.base import Calibrator, Fitted, Method, needs_torch
from glayers.calibrators.estimator import drawn_seed
from glayers.checks import (
    check_choice,
    check_labels,
    finite_features,
    one_or_several,
    possible_logits,
    to_float,
    whole_number,
)
from glayers.errors import GlayersError, shown
from glayers.maps import Activate, Chain, Dropout, Relu, Step, dense_layers
from glayers.maps.steps import layer_shapes
from glayers.predictions import Predictions

_PAPER = "Rahimi et al., Post-hoc Calibration of Neural Networks by g-Layers, 2020"


@dataclass(eq=False, repr=False)
class GLayers(Calibrator):
    """A small dense network between the logits and the softmax, fitted by a proper loss.

    `recipe="default"` starts from temperature scaling, stops early by cross-validated loss, averages the fold models
    and mixes them with temperature scaling. It falls back to temperature scaling, with a warning, unless
    cross-validation shows a gain. `recipe="paper"` is the paper's procedure: raw logits, settings chosen by
    cross-validation, one fit on all rows.

    Parameters
    ----------
    n_layers : int, optional
        Number of dense layers; 2 in the default recipe, 3 in the paper's.
    units_per_class : int, optional
        Hidden units per class; 2 in the default recipe, 3 in the paper's.
    width : int, optional
        Hidden units in all, instead of `units_per_class`.
    recipe : {"default", "paper"}
        How to fit; it also fills in every setting left at None.
    start : {"transparent", "glorot"}
        Start from the identity, or from random weights.
    initial_layers : Chain, optional
        Layers to start from, instead of `start`.
    loss : {"log", "brier"}
        The proper loss to minimise.
    activation : Activation, optional
        Final activation q in place of softmax. In the paper's recipe, q may turn m features into another number of
        classes; `fit` then takes features (n, m).
    learning_rate, weight_decay : float or list of float, optional
        Values to choose from by cross-validation.
    decay_to : {"start", "zero"}, optional
        Where weight decay pulls the weights.
    dropout, label_smoothing, mixup : float
        Further regularisation; 0 turns each one off.
    n_folds, n_repeats : int, optional
        Folds of the cross-validation, and how many times to draw them (default recipe only). More draws average more
        models, and out-of-fold predictions become averages too. If the first draw gains nothing, there is no other.
    max_epochs, patience, batch_size : int, optional
        Longest run, epochs without improvement before stopping, and rows per step.
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
        One entry per setting tried, such as its learning rate and held-out loss.
    out_of_fold_ : array (n, classes) or None
        Log-probabilities of every row by models that had not seen it. The temperature, the epoch and the mixture weight
        are chosen with all rows.
    history_ : dict of arrays
        Loss by epoch.

    Examples
    --------
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> g = GLayers().fit(calibration.logits, calibration.labels)
    >>> bool(g.diagnostics_.loss_after < 0.6 * g.diagnostics_.loss_before)
    True
    """

    methods = (
        Method("g-layers", "Dense network between logits and softmax", "nothing", _PAPER, torch="required"),
        Method(
            *("g-layers-paper", "As g-layers, fitted as in the paper", "nothing", _PAPER),
            settings={"recipe": "paper"},
            torch="required",
        ),
    )

    cv_results_: ClassVar[dict[str, Array]]
    history_: ClassVar[dict[str, Floats]]

    n_layers: int | None = None
    units_per_class: int | None = None
    _: KW_ONLY
    width: int | None = None
    recipe: Literal["default", "paper"] = "default"
    start: Literal["transparent", "glorot"] = "transparent"
    initial_layers: Chain | None = None
    loss: Literal["log", "brier"] = "log"
    activation: Activation | None = None
    learning_rate: float | Iterable[float] | None = None
    weight_decay: float | Iterable[float] | None = None
    decay_to: Literal["zero", "start"] | None = None
    dropout: float = 0.0
    label_smoothing: float = 0.0
    mixup: float = 0.0
    n_folds: int | None = None
    n_repeats: int | None = None
    max_epochs: int | None = None
    patience: int | None = None
    batch_size: int | None = None
    random_state: int | None = 0
    device: str = "cpu"
    progress: bool | None = None

    def _given(self, logits: Any, labels: Any, weights: Any, groups: Any) -> Predictions:
        """Return the checked input of `fit`; with q from m features to n classes, the labels are those of q."""
        self._check_settings()
        if self.activation is not None and self.inputs == "logits":
            features = possible_logits(logits)
            n_classes = self.activation.log_probabilities(np.zeros((1, features.shape[1]))).shape[-1]
            if n_classes != max(2, features.shape[1]):
                return _Features(finite_features(features), labels, weights, groups, n_classes)
        return super()._given(logits, labels, weights, groups)

    def _fit(self, given: Predictions) -> Fitted:
        self._check_settings()
        if self.activation is not None:
            if self.recipe == "default" and isinstance(given, _Features):
                raise GlayersError(
                    f"{given.logits.shape[1]} features for {given.n_classes} classes have no temperature, where the "
                    f"default recipe starts; use GLayers(recipe='paper', activation=...)"
                )
            # The default recipe gives g the log-probabilities, the paper's the logits.
            check_submersion(self.activation, given.n_classes if self.recipe == "default" else given.logits.shape[1])
        with needs_torch("GLayers"):
            from glayers.calibrators.g_layers_recipes import fit_default, fit_paper
        plan = self._filled(given)
        if self.recipe == "default":
            return fit_default(plan, given, own_epochs=self.max_epochs is not None)
        return fit_paper(plan, given, [n for n in ("learning_rate", "weight_decay") if getattr(self, n) is None])

    def _check_settings(self) -> None:
        check_choice(self.recipe, ("default", "paper"), "recipe")
        check_choice(self.start, ("glorot", "transparent"), "start")
        if self.decay_to is not None:
            check_choice(self.decay_to, ("start", "zero"), "decay_to")
        for name, kind in (("activation", Activation), ("initial_layers", Chain)):
            if not isinstance(getattr(self, name), kind | None):
                raise GlayersError(f"{name} must be a {kind.__name__} or None; got {shown(getattr(self, name))}")
        for name in ("dropout", "label_smoothing"):
            if not _within(getattr(self, name), 1.0):
                raise GlayersError(f"{name} must lie in [0, 1); got {getattr(self, name)!r}")
        if not _within(self.mixup, math.inf):
            raise GlayersError(f"mixup must be the shape of a Beta distribution, or 0 for none; got {self.mixup!r}")
        ones = ("n_layers", "units_per_class", "width", "n_repeats", "patience", "batch_size")
        for name, least in {**dict.fromkeys(ones, 1), "n_folds": 2, "max_epochs": 0}.items():
            if getattr(self, name) is not None:
                whole_number(getattr(self, name), name, least)
        if self.recipe == "paper" and (self.n_repeats or 1) > 1:
            raise GlayersError("n_repeats needs recipe='default'; the paper's recipe fits all rows once")
        for name, above_zero in (("learning_rate", True), ("weight_decay", False)):
            values = _several(1.0 if getattr(self, name) is None else getattr(self, name))
            if not values or not all(math.isfinite(v) and (v > 0 or (v == 0 and not above_zero)) for v in values):
                wanted = "positive numbers" if above_zero else "numbers that are not negative"
                raise GlayersError(f"{name} must be one or more {wanted}; got {getattr(self, name)!r}")

    def _filled(self, given: Predictions) -> "GLayers":
        """Return the same settings with everything left to the recipe filled in."""
        usual: dict[str, Any] = dict.fromkeys(("n_layers", "units_per_class"), 2 if self.recipe == "default" else 3)
        settings = self.get_params(deep=False)
        n_layers, units = (settings[name] or value for name, value in usual.items())
        n_inputs = given.logits.shape[1] if isinstance(given, _Features) else given.n_classes
        shapes = layer_shapes(n_inputs, n_layers, units, self.width)
        weights = sum(n_in * n_out for n_in, n_out in shapes)
        usual |= _recipe_settings(self.recipe, given.n_classes, work=len(given) * weights)
        # About twenty steps per epoch: with fewer, few rows would hardly leave the start.
        usual |= {"n_repeats": 1, "batch_size": min(250, max(16, len(given) // 20))}
        filled: dict[str, Any] = {name: usual.get(name) if value is None else value for name, value in settings.items()}
        several = {name: _several(filled[name]) for name in ("learning_rate", "weight_decay")}
        seed = drawn_seed(self.random_state)
        return GLayers(**filled | several | {"random_state": seed})

    def _layers(self, n_logits: int) -> Chain:
        """Return the layers to start from: those given, or new ones."""
        layers = self.initial_layers
        if layers is None:
            settings: Any = (self.n_layers, self.units_per_class, self.random_state, self.width, self.start)
            layers = dense_layers(n_logits, *settings)
        else:
            _check_size(layers, n_logits)
        steps: list[Step] = []
        for step in layers.steps:
            steps += [step, Dropout()] if isinstance(step, Relu) and self.dropout else [step]
        return Chain((*steps, *([] if self.activation is None else [Activate(self.activation)])))


class _Features(Predictions):
    """Rows of m features and labels of n classes, for an activation from R^m to n classes."""

    def __init__(self, features: Array, labels: Any, weights: Any, groups: Any, n_classes: int) -> None:
        labels = check_labels(labels, len(features), n_classes)
        self._set(len(features), weights, groups, logits=features, labels=labels, class_names=None, _classes=n_classes)

    @property
    def n_classes(self) -> int:
        """The number of classes of the activation."""
        return int(vars(self)["_classes"])


def _recipe_settings(recipe: str, n_classes: int, work: int) -> dict[str, Any]:
    """Return what a recipe tries by default: less where a pass over the rows (`work` = rows x weights) costs more."""
    if recipe == "paper":
        # Where the search begins; it moves on from the best.
        tried: dict[str, Any] = {"learning_rate": (3e-3, 1e-3), "weight_decay": (1e-3, 1e-2, 1e-1, 1.0, 10.0)}
        return tried | {"decay_to": "zero", "n_folds": 5, "max_epochs": 200, "patience": 5}
    # One step moves an output by the rate times its number of hidden units, which grows with the classes.
    unit = 1 / math.sqrt(n_classes)
    if work <= 2e7:
        tried = {"learning_rate": (0.01 * unit, 0.03 * unit), "n_folds": 5, "max_epochs": 100, "patience": 4}
    elif work <= 5e9:
        tried = {"learning_rate": (0.02 * unit,), "n_folds": 5, "max_epochs": 12, "patience": 3}
    else:
        tried = {"learning_rate": (0.01 * unit,), "n_folds": 3, "max_epochs": 4, "patience": 2}
    return tried | {"weight_decay": (0.0,), "decay_to": "start"}


def _check_size(layers: Chain, n_logits: int) -> None:
    try:
        n_out = layers(np.zeros((1, n_logits))).shape[-1]
    except ValueError as error:
        raise GlayersError(f"initial_layers do not take {n_logits} logits: {error}") from error
    if n_out != n_logits:
        raise GlayersError(f"initial_layers must turn {n_logits} logits into as many; they give {n_out}")


def _within(value: object, end: float) -> bool:
    return 0 <= to_float(value) < end


def _several(given: Any) -> tuple[float, ...]:
    values = one_or_several(given)
    if any(map(math.isnan, values)):
        raise GlayersError(f"settings to try must be a number or a list of numbers; got {shown(given)}")
    return values
