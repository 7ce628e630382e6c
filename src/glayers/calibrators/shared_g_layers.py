"""Held-out logits and labels -> a class-wise part for what differs between classes, then one correction they all share.

Symmetry counters the overfitting that the paper leaves open: after the class-wise part, the same small function acts on
every class, so that rows x classes observations determine thirty weights. The correction is fitted to out-of-fold
predictions of the class-wise part, which show its errors on new rows.

Every step here returns a `Fitted` record with out-of-fold log-probabilities, and the next step extends it.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Floats, Ints, row_blocks
from glayers.calibrators.base import Calibrator, Fitted, Method, drawn_seed
from glayers.calibrators.g_layers import GLayers
from glayers.calibrators.linear import LinearScaling, MatrixScaling, VectorScaling
from glayers.calibrators.temperature import TemperatureScaling, tempered
from glayers.checks import check_switch, whole_number
from glayers.errors import GlayersError
from glayers.fitting.folds import assign_folds, fold_weights, format_gain, paired_gain
from glayers.fitting.penalty_path import counted_rows
from glayers.fitting.shared import average_shared, average_without, shared_rows, shared_step
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps import Blend, Chain, LogSoftmax
from glayers.maps.layouts import n_learned
from glayers.maps.mixtures import mixed
from glayers.maps.order import KeepOrder, in_order_of
from glayers.predictions import Predictions
from glayers.serving.predictor import apply_map

# The correction is left out if it raises the held-out log loss by more than this, or by more than a standard error.
_TOLERATED_LOSS = 1e-3
# With few rows, chance alone gives large gains: one of (20 / rows)^2 nats mixes the correction half and half with none.
# That is 0.04 with 100 rows and 0.0004 with 1,000. A correction of more than 99 % stands alone.
_FEW, _FULL = 20, 0.99
_LARGE = 5_000_000  # number of logits above which a fit takes seconds, and vector scaling uses three folds
# Up to this many weights x rows of g-layers, folds are drawn twice; above it, that takes a minute or more.
_REPEATED, _REPEATS = 1e9, 2


class Task(NamedTuple):
    """The rows to calibrate, and how: loss, whether to keep the order of classes, folds, seed, `GLayers` settings.

    `all_rows` are more rows than these, if these are a sample: what needs only sums over rows is fitted to them.
    """

    given: Predictions
    loss: Any = "log"
    keep_order: bool = False
    n_folds: int = 5
    seed: int = 0
    settings: Mapping[str, Any] = {}
    all_rows: Predictions | None = None


@dataclass(eq=False, repr=False)
class SharedGLayers(Calibrator):
    """A class-wise part, then a correction shared by all classes.

    Parameters
    ----------
    class_part : {"g-layers", "matrix", "vector", "temperature"}
        The class-wise part. "g-layers" needs torch to fit; the others are faster and do not.
    keep_order : bool
        Keep the order of the classes in every row, and so accuracy and every top-k accuracy. Only logits that differ in
        their last digits may become ties.
    n_folds : int
        Folds of the cross-validation.
    random_state : int or None
        Seed of the folds and of g-layers.
    settings : dict, optional
        Settings of `GLayers`, such as ``{"max_epochs": 20}``; the other class-wise parts take none.

    Attributes
    ----------
    map_ : Chain
        The fitted map from logits to log-probabilities.
    diagnostics_ : Diagnostics
        Convergence, losses before and after, number of parameters, seconds.
    out_of_fold_ : array (n, classes)
        Log-probabilities of every row by fits that had not seen it.
    gain_, gain_error_ : float
        How much the shared correction lowers the cross-validated log loss, and the standard error of that gain.

    Examples
    --------
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> fitted = SharedGLayers("temperature").fit(calibration.logits, calibration.labels)
    >>> bool(fitted.gain_ > 2 * fitted.gain_error_)
    True
    """

    methods = (Method("shared-g-layers", "G-layers, then a shared correction", "nothing", "glayers", torch="required"),)
    _kept: ClassVar[tuple[str, ...]] = ("gain_", "gain_error_")

    gain_: ClassVar[float]
    gain_error_: ClassVar[float]

    class_part: Literal["g-layers", "matrix", "vector", "temperature"] = "g-layers"
    _: KW_ONLY
    keep_order: bool = False
    n_folds: int = 5
    random_state: int | None = 0
    settings: dict[str, Any] | None = None

    def _fit(self, given: Predictions) -> Fitted:
        n_folds, settings = whole_number(self.n_folds, "n_folds", least=2), self._part_settings()
        seed = drawn_seed(self.random_state)
        keep_order = check_switch(self.keep_order, "keep_order")
        task = Task(given, "log", keep_order, n_folds, seed, {"n_folds": n_folds} | settings)
        part = CLASS_PARTS[self.class_part](task)
        fitted, correction = corrected(task, part)
        return replace(
            fitted,
            method=f"shared g-layers after {self.class_part}",
            reason=f"{correction.reason}; {self.class_part}: {part.reason}",
            iterations=correction.iterations,
            notes=(*part.notes, *correction.notes),
            attributes=correction.attributes,
        )

    def _part_settings(self) -> dict[str, Any]:
        """Return the settings for the class-wise part, checked."""
        if not isinstance(self.class_part, str) or self.class_part not in CLASS_PARTS:
            raise GlayersError(f"class_part must be one of {sorted(CLASS_PARTS)}; got {self.class_part!r}")
        own = {} if self.settings is None else self.settings
        if not isinstance(own, dict):
            raise GlayersError(f"settings must be a dict, such as {{'max_epochs': 20}}; got {own!r:.60}")
        known = sorted(GLayers().get_params().keys() - {"inputs"}) if self.class_part == "g-layers" else []
        unknown = [name for name in own if name not in known]
        if unknown:
            raise GlayersError(
                f"class_part={self.class_part!r} has no setting {', '.join(map(repr, unknown))}; "
                f"known are {', '.join(known) or 'none'}"
            )
        return own


def shared_correction(log_probabilities: Any, given: Predictions, n_folds: int, seed: int) -> Fitted:
    """Fit the shared correction to out-of-fold predictions; the map is empty where the correction does harm.

    How far to correct is decided by the evidence (see `fitting.shared`). Cross-validation then measures the gain.
    """
    folds = assign_folds(len(given), given.groups, n_folds, seed)
    fold_weights(folds, given.weights)  # raises if a fold has no weight to train on
    step, held_out = _correct(log_probabilities, given, folds)
    own = np.arange(len(given)), given.labels
    gain, error = paired_gain(-log_probabilities[own], -held_out[own], given.weights, given.groups)
    kept = gain > -min(error, _TOLERATED_LOSS) and np.isfinite(error)
    n_rows = counted_rows(np.ones(len(given)) if given.weights is None else given.weights)
    trust = (gain + _TOLERATED_LOSS) / (gain + _TOLERATED_LOSS + (_FEW / n_rows) ** 2) if kept else 0.0
    if kept and trust < _FULL:
        step = Blend(np.asarray(trust), Chain((step,)))
        held_out = mixed(np.array([1 - trust, trust]), [log_probabilities, held_out])
        gain, error = paired_gain(-log_probabilities[own], -held_out[own], given.weights, given.groups)
    change = f"lowers the cross-validated log loss by {format_gain(gain, error)}"
    if gain < 0:
        change = f"raises the cross-validated log loss by {format_gain(-gain, error)}"
    return Fitted(
        Chain((step,) if kept else ()),
        "shared correction",
        reason=f"the shared correction {change}" + ("" if kept else " and is left out"),
        iterations=1 + int(folds.max()),
        n_parameters=n_learned(Chain((step,))) if kept else 0,
        out_of_fold=held_out if kept else log_probabilities,
        notes=() if kept else (f"the shared correction is left out: it {change}",),
        attributes={"gain_": gain, "gain_error_": error},
    )


def _correct(log_probabilities: Floats, given: Predictions, folds: Ints) -> tuple[Any, Floats]:
    """Return the correction fitted to all rows, and what those fitted without each fold make of its rows."""
    weights = np.ones(len(given)) if given.weights is None else np.asarray(given.weights)
    rows = shared_rows(log_probabilities, given.labels, given.weights)
    held_out = np.empty_like(log_probabilities)
    # Matrix products this thin gain nothing from threads, which would only wait for each other.
    with _thread_pools().limit(limits=1, user_api="blas"):
        whole = average_shared(rows, weights)
        for fold, found in enumerate(average_without(rows, weights, folds, whole)):
            own, step = np.flatnonzero(folds == fold), shared_step(rows, found.theta, found.share)
            for block in row_blocks(len(own), log_probabilities.shape[1]):
                held_out[own[block]] = step(log_probabilities[own[block]])
    return shared_step(rows, whole.theta, whole.share), held_out


@cache
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()  # it looks at every library that is loaded, so once is enough


def corrected(task: Task, part: Fitted) -> tuple[Fitted, Fitted]:
    """Return the part with the shared correction behind it, in the order of the logits if asked for; the correction."""
    given = task.given
    # Other folds than the class-wise part has, so that the rows of a fold do not share the errors of one model.
    correction = shared_correction(part.out_of_fold, given, task.n_folds, task.seed + 1)
    chain, held_out = part.map + correction.map, correction.out_of_fold
    if task.keep_order:
        kept = KeepOrder.of(chain, fit_inverse_temperature(given.logits, given.labels, given.weights).factor)
        chain = Chain((kept,))
        held_out = log_softmax(in_order_of(given.logits.astype(np.float64), held_out, kept.slope))
    n_parameters = (part.n_parameters or 0) + (correction.n_parameters or 0)
    return replace(part, map=chain, out_of_fold=held_out, n_parameters=n_parameters), correction


def temperature_part(task: Task) -> Fitted:
    """Temperature scaling, with out-of-fold predictions."""
    given = task.given
    whole = TemperatureScaling()._fit(given if task.all_rows is None else task.all_rows)
    factor = float(whole.map.parameters()["0.factor"])
    result = log_softmax(with_reference_class(given.logits.astype(np.float64)) * _held_out_factors(task, factor))
    return replace(whole, map=tempered(factor), n_parameters=1, out_of_fold=result, losses=None)


def _held_out_factors(task: Task, factor: float) -> Floats:
    """Return the inverse temperature (n, 1) of each row by the rows of the other folds."""
    given = task.given
    folds = assign_folds(len(given), given.groups, task.n_folds, task.seed)
    result = np.full((len(given), 1), factor)
    for fold in range(int(folds.max()) + 1):
        own = folds == fold
        # If one fold has all the weight, the other rows determine no temperature.
        if given.weights is None or given.weights[~own].any():
            rest = given.take(~own)
            result[own] = fit_inverse_temperature(rest.logits, rest.labels, rest.weights, factor).factor
    return result


def linear_part(scaling: type[LinearScaling], task: Task) -> Fitted:
    """Vector or matrix scaling; the penalty is averaged by evidence with few rows, and searched for with many."""
    given = task.given
    n_folds = task.n_folds if given.logits.size <= _LARGE else min(3, task.n_folds)
    folds = assign_folds(len(given), given.groups, n_folds, task.seed)
    made = scaling(loss=task.loss)
    whole, result = made.average(given), np.empty((len(given), given.n_classes))
    for fold in range(int(folds.max()) + 1):
        own, chain = folds == fold, whole.map
        if given.weights is None or given.weights[~own].any():
            chain = made.average_without(given.take(~own), whole)
        result[own] = log_softmax(apply_map(chain, given.logits[own]))
    notes = (f"{made.methods[0].name} scaling, starting from temperature scaling: {whole.reason}",) * bool(whole.reason)
    chain = whole.map + Chain((LogSoftmax(),))
    size = sum(fit.size for fit in whole.average.fits.values()) // len(whole.average.fits)
    return Fitted(chain, made.methods[0].name, n_parameters=size, out_of_fold=result, notes=notes)


def g_layers_part(task: Task) -> Fitted:
    """The paper's dense layers."""
    chosen: dict[str, Any] = {"loss": task.loss, "random_state": task.seed, "progress": False}
    chosen["correct_confidence"] = False  # the shared correction follows
    if task.settings.get("recipe", "default") == "default":
        chosen["n_repeats"] = n_repeats(len(task.given), task.given.n_classes)
    fitted = GLayers(**chosen | dict(task.settings))._fit(task.given)
    if fitted.out_of_fold is None:
        raise GlayersError("these settings leave GLayers without cross-validation, which the shared correction needs")
    # The layers start from a temperature fitted to all rows. With few rows that is an advantage over other families.
    factor = fit_inverse_temperature(task.given.logits, task.given.labels, task.given.weights).factor
    return _as_part(fitted, log_softmax(fitted.out_of_fold * (_held_out_factors(task, factor) / factor)))


def n_repeats(rows: int, classes: int) -> int:
    """Return how often g-layers draw their folds.

    >>> n_repeats(5_000, 200), n_repeats(25_000, 1_000)
    (2, 1)
    """
    return _REPEATS if 4 * rows * classes**2 <= _REPEATED else 1


# What may come before the shared correction. Each returns a map to log-probabilities, with out-of-fold predictions.
CLASS_PARTS: dict[str, Callable[[Task], Fitted]] = {
    "temperature": temperature_part,
    "vector": partial(linear_part, VectorScaling),
    "matrix": partial(linear_part, MatrixScaling),
    "g-layers": g_layers_part,
}


def _as_part(fitted: Fitted, out_of_fold: Any) -> Fitted:
    n_parameters = fitted.map.n_parameters if fitted.n_parameters is None else fitted.n_parameters
    chain = fitted.map + Chain((LogSoftmax(),))
    return replace(fitted, map=chain, n_parameters=n_parameters, out_of_fold=out_of_fold, losses=None)
