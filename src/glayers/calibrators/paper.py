"""Held-out logits and labels -> g as the paper fits it: raw logits, a cross-validated search, one fit on all rows.

Every fit stops early on the loss of the rows it trains on; the search chooses learning rate and weight decay. The paper
does not say which values it tried: the search here moves on as long as the best setting lies on the edge of what was
tried.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np

from glayers.activations import Activation, check_submersion
from glayers.arrays import Array, Floats
from glayers.calibrators.base import Calibrator, Fitted, Method, mean_loss, needs_torch
from glayers.calibrators.estimator import drawn_seed
from glayers.calibrators.g_layers import LAST_EPOCH, PAPER, new_layers, numbers_to_try, usual_batch_size
from glayers.checks import check_choice, check_labels, finite_features, possible_logits, whole_number
from glayers.errors import GlayersError, shown
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.floor import fit_floor
from glayers.fitting.folds import assign_folds, fold_fractions, fold_weights
from glayers.fitting.selection import EpochSelection
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Activate, Chain
from glayers.predictions import Predictions

Setting: TypeAlias = tuple[float, float]  # learning rate, weight decay
_SETTINGS = ("learning_rate", "weight_decay")
# Where the search begins; it moves on from the best.
_FIRST_TRIED: dict[str, tuple[float, ...]] = {
    "learning_rate": (3e-3, 1e-3),
    "weight_decay": (1e-3, 1e-2, 1e-1, 1.0, 10.0),
}
# The search moves on for a larger gain only: very large weight decays act alike, and would lead it ever further.
_TIE = 1e-4
_MOST_SETTINGS = 60  # where the search ends; 15 to 30 are usual
_MOST_PARAMETERS = 40_000_000  # fitted together, which bounds the memory


@dataclass(eq=False, repr=False)
class PaperGLayers(Calibrator):
    """Dense layers between the logits and the softmax, fitted as in the paper.

    Parameters
    ----------
    n_layers : int, default 3
        Number of dense layers.
    units_per_class : int, default 3
        Hidden units per class.
    start : {"transparent", "glorot"}
        Start from the identity, or from random weights.
    initial_layers : Chain, optional
        Layers to start from, instead of `start`.
    loss : {"log", "brier"}
        The proper loss to minimise.
    activation : Activation, optional
        Final activation q in place of softmax. It may turn m features into another number of classes; `fit` then takes
        features (n, m).
    learning_rate, weight_decay : float or list of float, optional
        Values to choose from by cross-validation; by default a search that moves on from the best.
    decay_to : {"zero", "start"}
        Where weight decay pulls the weights.
    n_folds : int, default 5
        Folds of the cross-validation.
    max_epochs, patience : int
        Longest run, and epochs without improvement before stopping.
    batch_size : int, optional
        Rows per step.
    random_state : int or None
        Seed of folds, batches and weights.
    device : str
        Torch device, such as "cpu" or "cuda".
    progress : bool, optional
        Whether to show a progress bar; None shows it at a terminal.

    Attributes
    ----------
    cv_results_ : dict of arrays
        Learning rate, weight decay and held-out loss of every setting tried, and which one was chosen.
    out_of_fold_ : array (n, classes) or None
        Log-probabilities of every row by models that had not seen it; None if there was nothing to choose.
    history_ : dict of arrays
        Training loss by epoch.

    Examples
    --------
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> g = PaperGLayers(1, learning_rate=1e-3, weight_decay=0.1, max_epochs=200)
    >>> g = g.fit(calibration.logits[:1000], calibration.labels[:1000])
    >>> bool(g.diagnostics_.loss_after < g.diagnostics_.loss_before)
    True
    """

    methods = (Method("g-layers-paper", "As g-layers, fitted as in the paper", "nothing", PAPER, torch="required"),)

    cv_results_: ClassVar[dict[str, Array]]
    history_: ClassVar[dict[str, Floats]]

    n_layers: int = 3
    units_per_class: int = 3
    _: KW_ONLY
    start: Literal["transparent", "glorot"] = "transparent"
    initial_layers: Chain | None = None
    loss: Literal["log", "brier"] = "log"
    activation: Activation | None = None
    learning_rate: float | Iterable[float] | None = None
    weight_decay: float | Iterable[float] | None = None
    decay_to: Literal["zero", "start"] = "zero"
    n_folds: int = 5
    max_epochs: int = 200
    patience: int = 5
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
        with needs_torch("PaperGLayers"):
            from glayers.fitting.layers import LayerTraining
        loss = smooth_loss(self.loss)
        seed = drawn_seed(self.random_state)
        layers = self._layers(given.logits.shape[1], seed)
        inputs = given.logits.astype(np.float64)
        before = Chain(())
        floor = None
        if isinstance(given, _Features):  # q alone is where the loss starts, and no feature is far below the others
            before = Chain(layers.steps[-1:])
        else:
            factor = fit_inverse_temperature(given.logits, given.labels, given.weights).factor
            floor = fit_floor(inputs, factor, given.weights)
        training = LayerTraining(layers, inputs, given, floor, self.loss, self.device)
        best, losses, held_out = self._search(training, seed)
        weights = np.ones(len(given)) if given.weights is None else given.weights
        whole = (weights / weights.sum())[None, :]
        stopping, objective = self._train(training, [best], whole, whole, seed)
        stop = int(stopping.best_epoch[0])
        fitted = training.behind_floor(objective.fitted(stopping.parameters[0]).member(0))
        return Fitted(
            fitted,
            "g-layers, paper recipe",
            converged=stop < self.max_epochs,
            reason=f"lowest training loss at epoch {stop}{LAST_EPOCH if stop == self.max_epochs else ''}",
            iterations=len(stopping.trace) - 1,
            n_parameters=layers.n_parameters,
            out_of_fold=held_out,
            notes=tuple(_edge_notes(best, list(losses))),
            losses=(mean_loss(loss, before, given), mean_loss(loss, fitted, given)),
            attributes={
                "cv_results_": _results(best, losses or {best: np.nan}),
                "history_": {"train_loss": np.array(stopping.trace)[:, 0]},
            },
        )

    def _search(self, training: Any, seed: int) -> tuple[Setting, dict[Setting, float], Floats | None]:
        """Return the best setting, the held-out loss of all that were tried, and the best one's held-out rows."""
        given = training.given
        searched = [name for name in _SETTINGS if getattr(self, name) is None]
        rates, decays = map(self._first_tried, _SETTINGS)
        new: list[Setting] = list(itertools.product(rates, decays))
        best = new[0]
        losses: dict[Setting, float] = {}
        held_out = None
        if not searched and len(new) == 1:
            return best, losses, held_out
        folds = assign_folds(len(given), given.groups, self.n_folds, seed)
        weights = fold_weights(folds, given.weights)
        fractions = fold_fractions(folds, given.weights)
        together = max(1, _MOST_PARAMETERS // (training.layers.n_parameters * len(fractions)))
        lowest = np.inf
        while new:
            now, new = new[:together], new[together:]
            stopping, objective = self._train(training, now, *weights, seed)
            found = stopping.held_out.reshape(len(now), -1) @ fractions
            losses |= dict(zip(now, found.tolist(), strict=True))
            winner = int(found.argmin())
            if found[winner] < lowest - _TIE:
                lowest = found[winner]
                best = now[winner]
                flat = stopping.parameters[winner * len(fractions) : (winner + 1) * len(fractions)]
                held_out = training.out_of_fold(objective.fitted(np.concatenate(flat)), folds)
            if not new and len(losses) < _MOST_SETTINGS:
                new = [setting for setting in _neighbours(best, searched) if setting not in losses]
        return best, losses, held_out

    def _train(
        self, training: Any, settings: list[Setting], train: Floats, held_out: Floats, seed: int
    ) -> tuple[EpochSelection, Any]:
        """Run Adam on settings x folds members, each of which stops by its own training loss."""
        from glayers.fitting.adam import descend

        rates, decays = np.repeat(settings, len(train), axis=0).T
        objective = self._objective(training.objective(len(settings), train, held_out), decays)
        stopping = EpochSelection(len(rates), np.ones(1), self.patience, by_training_loss=True)
        descend(
            objective,
            rates,
            stopping,
            epochs=self.max_epochs,
            batch_size=self.batch_size or usual_batch_size(len(training.given)),
            seed=seed,
            averaging=0.0,
            progress=self.progress,
        )
        return stopping, objective

    def _objective(self, objective: Any, decays: Floats) -> Any:
        """Add the weight decay: its strength times the squared distance of every weight from zero or from its start."""
        if not decays.any():
            return objective
        parameters = objective.chain.parameters()
        decayed = np.concatenate([np.full(value.size, name.endswith("weight")) for name, value in parameters.items()])
        anchor = objective.start()[0]
        if self.decay_to == "zero":
            anchor = 0.0 * anchor
        return replace(objective, decay=objective.like(2 * decays[:, None] * decayed), anchor=anchor)

    def _layers(self, n_logits: int, seed: int) -> Chain:
        """Return the layers to start from, those given or new ones, and q behind them."""
        layers = self.initial_layers
        if layers is None:
            layers = new_layers(n_logits, self.n_layers, self.units_per_class, seed, self.start)
        else:
            _check_size(layers, n_logits)
        if self.activation is None:
            return layers
        check_submersion(self.activation, n_logits)
        return layers + Chain((Activate(self.activation),))

    def _first_tried(self, name: str) -> tuple[float, ...]:
        values = getattr(self, name)
        return _FIRST_TRIED[name] if values is None else numbers_to_try(values, name, name == "learning_rate")

    def _check_settings(self) -> None:
        check_choice(self.start, ("glorot", "transparent"), "start")
        check_choice(self.decay_to, ("start", "zero"), "decay_to")
        for name, kind in (("activation", Activation), ("initial_layers", Chain)):
            if not isinstance(getattr(self, name), kind | None):
                raise GlayersError(f"{name} must be a {kind.__name__} or None; got {shown(getattr(self, name))}")
        whole_number(self.max_epochs, "max_epochs", 0)
        whole_number(self.patience, "patience", 1)
        if self.batch_size is not None:
            whole_number(self.batch_size, "batch_size", 1)


class _Features(Predictions):
    """Rows of m features and labels of n classes, for an activation from R^m to n classes."""

    def __init__(self, features: Array, labels: Any, weights: Any, groups: Any, n_classes: int) -> None:
        labels = check_labels(labels, len(features), n_classes)
        self._set(len(features), weights, groups, logits=features, labels=labels, class_names=None, _classes=n_classes)

    @property
    def n_classes(self) -> int:
        """The number of classes of the activation."""
        return int(vars(self)["_classes"])


def _neighbours(best: Setting, searched: list[str]) -> Iterator[Setting]:
    """Yield the settings one step around the best: learning rates by half powers of ten, weight decays by powers."""
    around = []
    for name, value, steps in zip(_SETTINGS, best, (2, 1), strict=True):
        place = round(steps * np.log10(value)) if name in searched else 0
        values = [float(f"{10 ** (each / steps):.0e}") for each in (place - 1, place, place + 1)]
        around.append(values if name in searched else [value])
    yield from itertools.product(*around)


def _results(best: Setting, losses: Mapping[Setting, float]) -> dict[str, Array]:
    """Return one column per setting and result, with one entry for each that was tried."""
    return {
        **dict(zip(_SETTINGS, np.array(list(losses)).T, strict=True)),
        "held_out_loss": np.array(list(losses.values())),
        "chosen": np.array([setting == best for setting in losses]),
    }


def _edge_notes(best: Setting, tried: list[Setting]) -> Iterator[str]:
    """Yield a sentence for each setting whose best value is the smallest or the largest of several; 0 is no edge."""
    for name, value, values in zip(_SETTINGS, best, zip(*tried, strict=True), strict=False):
        if len(set(values)) > 1 and value and value in (min(values), max(values)):
            end = "smallest" if value == min(values) else "largest"
            yield f"g-layers: the best {name} of the search, {value:g}, is the {end} of those tried; try more values"


def _check_size(layers: Chain, n_logits: int) -> None:
    try:
        n_out = layers(np.zeros((1, n_logits))).shape[-1]
    except ValueError as error:
        raise GlayersError(f"initial_layers do not take {n_logits} logits: {error}") from error
    if n_out != n_logits:
        raise GlayersError(f"initial_layers must turn {n_logits} logits into as many; they give {n_out}")
