"""Held-out logits and labels -> g: dense layers between logits and softmax. Two recipes share one training.

`GLayers` starts from temperature scaling. All folds of all settings train as one batched run; the setting and the epoch
of least cross-validated loss win. The fold models are averaged and mixed with temperature scaling, with the weight that
is best out of fold. Without a significant gain the fit falls back to temperature scaling.

`PaperGLayers` is the paper's own recipe: raw logits, a cross-validated search of learning rate and weight decay, one
fit on all rows. Every fit stops early on the loss of the rows it trains on. The paper does not say which values it
tried: the search here moves on as long as the best setting lies on the edge of what was tried.
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import KW_ONLY, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from glayers.arrays import Floats, Ints
from glayers.calibrators.base import Calibrator, Fitted, Method
from glayers.calibrators.estimator import drawn_seed
from glayers.calibrators.temperature import tempered
from glayers.checks import check_choice, one_or_several, whole_number
from glayers.errors import GlayersError, needs_extra, shown
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.floor import floor_of
from glayers.fitting.folds import assign_folds, format_gain, paired_gain, row_weights
from glayers.fitting.simplex import held_out_weights
from glayers.fitting.temperature import fit_inverse_temperature, fit_with_prior
from glayers.maps import Centre, Chain, Stack, dense_layers
from glayers.predictions import Predictions

_PAPER = "Rahimi et al., Post-hoc Calibration of Neural Networks by g-Layers, 2020"

# The default training: rows x weights up to which it holds, learning rates in units of 1 / sqrt(classes), epochs, folds
# and patience. A large problem gets less of everything.
_TRAININGS = (
    (2e7, (0.01, 0.03), 100, 5, 4),
    (5e9, (0.02,), 12, 5, 3),
    (math.inf, (0.01,), 4, 3, 2),
)

# Where the paper's search begins; it moves on from the best.
_FIRST_RATES = (3e-3, 1e-3)
_FIRST_DECAYS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)

# A learning rate, and whether inputs are centred (0 or 1) or, in the paper's recipe, the weight decay.
Setting: TypeAlias = tuple[float, float]


class LayerCalibrator(Calibrator):
    """The settings that both recipes share."""

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

    @abstractmethod
    def _objective(self, objective: Any, values: Floats) -> Any:
        """Return the objective with the second value of the setting of each member."""

    def _training(self, layers: Chain, inputs: Floats, given: Predictions, factor: float, seed: int) -> Any:
        """Return layers and the rows that train them; inputs are nats after multiplication by `factor`."""
        with needs_extra("fit"):
            from glayers.fitting.adam import LayerTraining
        return LayerTraining(layers, inputs, given, floor_of(factor), self, seed)

    def _check_settings(self) -> None:
        smooth_loss(self.loss)
        whole_number(self.n_layers, "n_layers", 1)
        whole_number(self.units_per_class, "units_per_class", 1)
        for name, least in (("max_epochs", 0), ("batch_size", 1), ("n_folds", 2)):
            if getattr(self, name) is not None:
                whole_number(getattr(self, name), name, least)


class GLayers(LayerCalibrator):
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
    out_of_fold_ : array (n, classes)
        Log-probabilities of every row by models that had not seen it. The temperature, the epoch and the mixture weight
        are chosen with all rows.

    Examples
    --------
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> g = GLayers().fit(calibration.logits, calibration.labels)
    >>> bool(g.diagnostics_.loss_after < 0.6 * g.diagnostics_.loss_before)
    True
    """

    methods = (Method("g-layers", "Dense network between logits and softmax", "nothing", _PAPER, torch="required"),)

    def _fit(self, given: Predictions) -> Fitted:
        self._check_settings()
        seed = drawn_seed(self.random_state)
        temperature = fit_with_prior(given.logits, given.labels, given.weights)
        start = tempered(temperature.factor)
        inputs = start(given.logits.astype(np.float64))
        layers = dense_layers(given.n_classes, self.n_layers, self.units_per_class, seed)
        training = self._training(Chain((Centre(np.zeros(())), *layers.steps)), inputs, given, 1.0, seed)
        settings, epochs, patience, folds = self._plan(training)
        losses, models, held_out, course = training.cross_validate(settings, folds, epochs, patience, False)
        winner = losses.argmin()
        notes = []
        if temperature.reason:
            notes.append(f"g-layers start from temperature scaling: {temperature.reason}")
        fitted = Fitted(start, "g-layers", iterations=len(course.trace) - 1)
        shares, mixed, gain, error = _best_mixture(self.loss, inputs, held_out, given)
        if not gain > error:
            why = f"no significant gain in cross-validated loss ({format_gain(gain, error)})"
            return replace(
                fitted,
                converged=temperature.converged,
                reason="no significant gain over temperature scaling in cross-validation: falls back to it",
                n_parameters=1,
                out_of_fold=inputs,
                notes=[*notes, f"g-layers fall back to temperature scaling: {why}"],
            )
        stop = int(course.best_epoch[winner])
        return replace(
            fitted,
            map=start + Chain((Stack(shares, (Chain(()), training.behind_floor(models))),)),
            converged=temperature.converged and (stop < epochs or self.max_epochs is None),
            reason=f"lowest cross-validated loss at epoch {stop} of at most {epochs} (max_epochs)",
            n_parameters=layers.n_parameters,
            out_of_fold=mixed,
            notes=notes,
        )

    def _plan(self, training: Any) -> tuple[list[Setting], int, int, Ints]:
        """Return the settings to try, the longest run, the patience and the folds: less where an epoch takes long."""
        given = training.given
        n_weights = sum(value.size for value in training.layers.parameters().values() if value.ndim > 1)
        work = len(given) * n_weights
        _, relative_rates, epochs, n_folds, patience = next(usual for usual in _TRAININGS if work <= usual[0])
        # One step moves an output by the rate times its number of hidden units, which grows with the classes.
        usual_rates = tuple(rate / math.sqrt(given.n_classes) for rate in relative_rates)
        rates = _numbers_to_try(self.learning_rate, "learning_rate", usual_rates)
        if self.max_epochs is not None:
            epochs = self.max_epochs
        folds = assign_folds(len(given), given.groups, self.n_folds or n_folds, training.seed)
        return list(itertools.product(rates, (0.0, 1.0))), epochs, patience, folds

    def _objective(self, objective: Any, values: Floats) -> Any:
        return replace(objective, fixed={"0.share": objective.like(values)})


class PaperGLayers(LayerCalibrator):
    """Dense layers between the logits and the softmax, fitted as in the paper.

    Parameters
    ----------
    n_layers : int, default 3
        Number of dense layers.
    units_per_class : int, default 3
        Hidden units per class.
    start : {"transparent", "glorot"}
        Start from the identity, or from random weights.
    loss : {"log", "brier"}
        The proper loss to minimise.
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

    methods = (Method("g-layers-paper", "As g-layers, fitted as in the paper", "nothing", _PAPER, torch="required"),)

    n_layers: int = 3
    units_per_class: int = 3
    _: KW_ONLY
    n_folds: int = 5
    max_epochs: int = 200
    patience: int = 5
    start: Literal["transparent", "glorot"] = "transparent"
    weight_decay: float | Iterable[float] | None = None
    decay_to: Literal["zero", "start"] = "zero"

    def _fit(self, given: Predictions) -> Fitted:
        self._check_settings()
        seed = drawn_seed(self.random_state)
        layers = dense_layers(given.logits.shape[1], self.n_layers, self.units_per_class, seed, start=self.start)
        factor = fit_inverse_temperature(given.logits, given.labels, given.weights).factor
        training = self._training(layers, given.logits.astype(np.float64), given, factor, seed)
        best, tried, held_out = self._search(training)
        whole = (row_weights(given) / row_weights(given).sum())[None, :]
        course, objective = training.run([best], (whole, 0 * whole), self.max_epochs, self.patience)
        stop = int(course.best_epoch[0])
        settings = list(tried)
        rates, decays = np.array(settings).T
        results = {
            "learning_rate": rates,
            "weight_decay": decays,
            "held_out_loss": np.array(list(tried.values())),
            "chosen": np.array([setting == best for setting in settings]),
        }
        return Fitted(
            training.behind_floor(objective.fitted(0, course.parameters[0]).member(0)),
            "g-layers, paper recipe",
            converged=stop < self.max_epochs,
            reason=f"lowest training loss at epoch {stop} of at most {self.max_epochs} (max_epochs)",
            iterations=len(course.trace) - 1,
            n_parameters=layers.n_parameters,
            out_of_fold=held_out,
            notes=[*_edge_notes(best, settings)],
            attributes={"cv_results_": results, "history_": {"train_loss": np.array(course.trace)[:, 0]}},
        )

    def _search(self, training: Any) -> tuple[Setting, dict[Setting, float], Floats | None]:
        """Return the best setting, the held-out loss of all that were tried, and the best one's held-out rows."""
        given = training.given
        new = self._first_settings()
        best = new[0]
        if len(new) == 1:
            return best, {best: math.nan}, None
        folds = assign_folds(len(given), given.groups, self.n_folds, training.seed)
        # Parameters that are fitted together take memory.
        together = max(1, 40_000_000 // (training.layers.n_parameters * (int(folds.max()) + 1)))
        tried: dict[Setting, float] = {}
        lowest = math.inf
        held_out = None
        while new:
            now = new[:together]
            new = new[together:]
            losses, _, now_held_out, _ = training.cross_validate(now, folds, self.max_epochs, self.patience, True)
            tried |= dict(zip(now, losses.tolist(), strict=True))
            # Very large weight decays act alike: a smaller gain would lead the search ever further.
            if losses.min() < lowest - 1e-4:
                lowest = losses.min()
                best = now[losses.argmin()]
                held_out = now_held_out
            if not new and len(tried) < 60:  # 15 to 30 are usual
                new = [setting for setting in self._neighbours(best) if setting not in tried]
        return best, tried, held_out

    def _first_settings(self) -> list[Setting]:
        rates = _numbers_to_try(self.learning_rate, "learning_rate", _FIRST_RATES)
        decays = _numbers_to_try(self.weight_decay, "weight_decay", _FIRST_DECAYS)
        return list(itertools.product(rates, decays))

    def _neighbours(self, best: Setting) -> list[Setting]:
        """Return the settings around the best: learning rates by half powers of ten, weight decays by powers."""
        rate, decay = best
        rates = [rate] if self.learning_rate is not None else _around(rate, steps_per_power=2)
        decays = [decay] if self.weight_decay is not None else _around(decay, steps_per_power=1)
        return list(itertools.product(rates, decays))

    def _objective(self, objective: Any, values: Floats) -> Any:
        """Add the weight decay: its strength times the squared distance of every weight from zero or from its start."""
        if not values.any():
            return objective
        parameters = objective.chain.parameters()
        decayed = np.concatenate([np.full(value.size, name.endswith("weight")) for name, value in parameters.items()])
        anchor = 0.0 if self.decay_to == "zero" else objective.start()[0]
        return replace(objective, decay=objective.like(2 * values[:, None] * decayed), anchor=anchor)

    def _check_settings(self) -> None:
        super()._check_settings()
        check_choice(self.start, ("glorot", "transparent"), "start")
        check_choice(self.decay_to, ("start", "zero"), "decay_to")
        whole_number(self.max_epochs, "max_epochs", 0)  # None has a meaning in `GLayers` alone
        whole_number(self.patience, "patience", 1)


def _numbers_to_try(values: Any, name: str, usual: tuple[float, ...]) -> tuple[float, ...]:
    """Return a setting that is one number or several, each once; None stands for the usual ones."""
    if values is None:
        return usual
    numbers = one_or_several(values)
    if not numbers or not all(0 <= number < math.inf for number in numbers):
        raise GlayersError(
            f"{name} must be a number or a list of numbers, each finite and not negative; got {shown(values)}"
        )
    return tuple(dict.fromkeys(numbers))


def _around(value: float, steps_per_power: int) -> list[float]:
    """Return a value and its neighbours on a grid of powers of ten, with one digit each."""
    place = round(steps_per_power * np.log10(value))
    return [float(f"{10 ** (near / steps_per_power):.0e}") for near in (place - 1, place, place + 1)]


def _edge_notes(best: Setting, tried: list[Setting]) -> Iterator[str]:
    """Yield a sentence for each setting whose best value is the smallest or the largest of several; 0 is no edge."""
    for place, name in enumerate(("learning_rate", "weight_decay")):
        values = {setting[place] for setting in tried}
        value = best[place]
        if len(values) > 1 and value and value in (min(values), max(values)):
            end = "smallest" if value == min(values) else "largest"
            yield f"g-layers: the best {name} of the search, {value:g}, is the {end} of those tried; try more values"


def _best_mixture(loss: str, plain: Floats, layers: Floats, given: Predictions) -> tuple[Floats, Floats, float, float]:
    """Mix `plain` with the layers out of fold.

    Return both weights, the log-probabilities of the mixture, its gain over `plain` and the error of the gain.
    """
    parts = [np.exp(plain), np.exp(layers)]
    shares = held_out_weights(parts, given.labels, row_weights(given), [0.0, 0.0])
    with np.errstate(divide="ignore"):  # impossible classes
        mixed = np.log(shares[0] * parts[0] + shares[1] * parts[1])
    row_losses = smooth_loss(loss).rows
    before = row_losses(plain, given.labels)
    gain, error = paired_gain(before, row_losses(mixed, given.labels), given.weights, given.groups)
    if abs(gain) < 1e-12:  # rounding alone: the layers never left their start
        gain = error = 0.0
    return shares, mixed, gain, error
