"""Held-out logits and labels -> the calibrator we recommend: one model, g-layers, and their mixture.

The model adds corrections to temperature scaling whose strengths the rows determine (`fitting/evidence.py`). G-layers
bend what the model cannot. Temperature scaling and no calibration are the anchors. All of them predict rows that they
have not seen, and the mixture has the weights of least held-out log loss: the one guard. It has a small uniform share.
The mixture's own held-out predictions then show what is left to correct in its confidence and in single classes.
"""

import math
import time
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from glayers.activations import log_softmax, softmax, with_reference_class
from glayers.arrays import Array, Floats, Ints, in_row_blocks
from glayers.calibrators.auto_selection import AutoSelection, PartResult
from glayers.calibrators.base import Calibrator, Fitted, Method, weighted_mean
from glayers.calibrators.estimator import drawn_seed
from glayers.calibrators.g_layers import GLayers
from glayers.calibrators.temperature import tempered
from glayers.checks import check_switch, to_float, whole_number
from glayers.errors import GlayersError, shown
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.evidence import SMALL_MODEL, FittedParts, fit_parts, full_model, working_logits
from glayers.fitting.folds import assign_folds, draw_rows, paired_gain, row_weights
from glayers.fitting.simplex import held_out_weights, uniform_share
from glayers.fitting.temperature import InverseTemperature, fit_with_prior, held_out_factors
from glayers.maps import Chain, KeepOrder, Reference, Stack, UniformShare, n_learned
from glayers.maps.order import in_order_of
from glayers.predictions import Predictions
from glayers.progress import progress_bar
from glayers.serving.predictor import apply_map
from glayers.serving.sets import SetThresholds

MOST_KEPT = 5_000_000  # entries of out-of-fold predictions that a fitted calibrator keeps
# With this many rows the loss on new ones is within 0.0005 of the best (`experiments/accuracy/enough_rows.py`).
_ENOUGH_ROWS, _MOST_LOGITS = 100_000, 25_000_000
_SMALLEST = np.finfo(np.float64).tiny  # stands for a probability of 0, whose logarithm is not finite
_LEAST_WEIGHT = 0.01  # parts with less weight in the mixture are dropped
# The prior of the mixture weights: so many rows that only this part explains. With 100 rows, half as many for
# temperature scaling lower the mean loss of 13 sets by 0.002, but raise that of one set by 0.003.
_EXTRA_ROWS, _EXTRA_ROWS_OF_OTHERS = 2.0, 1.0
# With many classes, g-layers gain where pairs of classes do: by 0.002 to 0.015 on four of five sets of 100 and 200
# classes, with factors from 0.7 to 1.2, and nothing on the fifth, with 0.4.
_PAIRS_MATTER = 0.5


def enough_rows(classes: int) -> int:
    """Return how many rows the parts learn from; of more, a random sample. Temperature scaling uses all rows.

    >>> enough_rows(10), enough_rows(1_000)
    (100000, 25000)
    """
    return min(_ENOUGH_ROWS, _MOST_LOGITS // classes)


class MixturePart(NamedTuple):
    """One part of the mixture: its map to log-probabilities, and the probabilities of rows that it has not seen.

    `share` is the uniform share that those of the whole mixture have, and which its map gets last.
    """

    map: Chain
    held_out: Floats
    n_parameters: int = 0
    seconds: float = 0.0
    share: float = 0.0


@dataclass(eq=False, repr=False)
class AutoCalibrator(Calibrator):
    """Mix one model, g-layers, temperature scaling and no calibration by their held-out loss: where to start.

    Falls back to temperature scaling, or to no calibration, unless held-out rows show a gain. No possible class gets a
    probability near 0, because n rows cannot rule out what happens once in n.

    Parameters
    ----------
    loss : {"log", "brier"}
        The loss that parts are fitted and compared by; they are mixed by the log loss.
    keep_accuracy : bool
        Keep the order of the classes in every row, and so accuracy and every top-k accuracy.
    prior : fitted AutoCalibrator, or a list of them, optional
        Earlier calibrators for the same classes, such as last month's. A small model is fitted to the
        output of each, and held-out rows decide how much that counts: an unrelated one does no harm. They must not have
        been fitted on these rows.
    time_budget : float
        Seconds on a machine with two cores. G-layers are left out if they would take longer, as estimated from rows and
        classes, and `selection_` says so. The same rows give the same calibrator on any machine. Beyond 100,000 rows or
        25 million logits, all parts but temperature scaling learn from a random sample of the rows.
    n_folds : int
        Folds of the cross-validation.
    random_state : int or None
        Seed of the folds and of g-layers.
    progress : bool, optional
        Whether to show a progress bar; None shows it at a terminal.

    Attributes
    ----------
    map_ : Chain
        The fitted map from logits to log-probabilities.
    diagnostics_ : Diagnostics
        Convergence, losses before and after, number of parameters, seconds.
    selection_ : AutoSelection
        What the rows support, what was kept and why; it prints.
    mixture_weights_ : dict
        Weight of each part in what was kept.
    out_of_fold_ : array (n, classes) or None
        Log-probabilities of every row by fits that had not seen it; precisions, mixture weights and the temperature
        that fits start from were found with all rows. If the parts learn from a sample of the rows, of its rows, in
        their order; rows of weight 0 are left out. None for more than 5 million logits: it would mostly fill memory.

    Examples
    --------
    >>> from glayers.datasets import load_fashion_mnist
    >>> calibration, test = load_fashion_mnist()
    >>> auto = AutoCalibrator(time_budget=0).fit(calibration.logits[:1000], calibration.labels[:1000])
    >>> print(auto.selection_.summary)
    1,000 rows, 10 classes (100 rows per class); compared by 5-fold cross-validated log loss.
    """

    methods = (Method("auto", "Cross-validated mixture of methods", "nothing", "glayers", torch="optional"),)
    _records: ClassVar = {**Calibrator._records, "selection_": AutoSelection}
    _only_for_fits: ClassVar[tuple[str, ...]] = ("prior",)

    selection_: ClassVar[AutoSelection]

    _: KW_ONLY
    loss: Literal["log", "brier"] = "log"
    keep_accuracy: bool = False
    prior: Any = None
    time_budget: float = 120.0
    n_folds: int = 5
    random_state: int | None = 0
    progress: bool | None = None

    @property
    def mixture_weights_(self) -> dict[str, float]:
        """Weight of each part in what was kept, which sum to 1."""
        return self.selection_.weights

    def _fit(self, given: Predictions) -> Fitted:
        task = self._task(given)
        left_out = self._left_out(task.given)
        with progress_bar(self.progress, "fitting", 3) as advance:
            parts = task.anchors()
            model = task.add_model(parts)
            advance()
            for place, prior in enumerate(self._earlier(given), start=1):
                parts[f"prior {place}"] = task.around(prior)
            task.add_layers(parts, model, left_out)
            advance()
            weights, mixture, fallback = task.chosen(parts)
            advance()
        n_rows = int(np.count_nonzero(row_weights(given)))
        selection = task.selection(n_rows, parts, weights, mixture, model, left_out, fallback)
        with np.errstate(divide="ignore"):  # impossible classes
            held_out = np.log(mixture.held_out.astype(np.float64))
        attributes: dict[str, Any] = {"selection_": selection}
        is_kept = held_out.size <= MOST_KEPT
        if len(task.given) < len(given) or not is_kept:  # otherwise they are made when they are asked for
            attributes["set_thresholds_"] = SetThresholds.of(task.given.with_logits(held_out))
        return Fitted(
            mixture.map,
            f"auto: {' + '.join(weights)}",
            converged=model.converged,
            reason=selection.reason,
            iterations=model.iterations,
            n_parameters=n_learned(mixture.map),
            out_of_fold=held_out if is_kept else None,
            notes=(f"auto: {selection.reason}",) if selection.fallback == "uncalibrated" else (),
            attributes=attributes,
            posterior=model.posterior,
            effective=sum(model.effective.values()),
        )

    def _task(self, given: Predictions) -> "_Task":
        """Return the checked settings, a sample of the rows if there are very many, and the temperature of all."""
        smooth_loss(self.loss)  # checks the name
        keep_order = check_switch(self.keep_accuracy, "keep_accuracy")
        seed = drawn_seed(self.random_state)
        n_folds = whole_number(self.n_folds, "n_folds", least=2)
        drawn = draw_rows(len(given), given.weights, enough_rows(given.n_classes), seed)
        sample = given.take(drawn) if len(drawn) < len(given) else given
        folds = assign_folds(len(sample), sample.groups, n_folds, seed)
        temperature = fit_with_prior(given.logits, given.labels, given.weights)
        factors = held_out_factors(sample.logits, sample.labels, sample.weights, folds, temperature.factor)
        return _Task(sample, self.loss, keep_order, folds, seed, temperature, factors / temperature.factor)

    def _earlier(self, given: Predictions) -> list[Chain]:
        """Return the maps of logits of the setting `prior`, checked."""
        if self.prior is None:
            return []
        several = self.prior if isinstance(self.prior, list | tuple) else [self.prior]
        for each in several:
            if not isinstance(each, Calibrator) or not hasattr(each, "map_"):
                raise GlayersError(
                    f"prior must be a fitted calibrator, or several in a list; got {shown(each)}. scikit-learn's clone "
                    f"returns unfitted ones: set prior on the clone"
                )
            if each.n_features_in_ != given.logits.shape[1] or each.inputs != self.inputs:
                raise GlayersError(
                    f"prior was fitted on {each.n_features_in_} columns of {each.inputs}; these rows have "
                    f"{given.logits.shape[1]} of {self.inputs}"
                )
        return [each._of_logits(each.map_) for each in several]

    def _left_out(self, given: Predictions) -> dict[str, str]:
        """Return why g-layers are not fitted, if they are not."""
        budget = to_float(self.time_budget)
        if not budget >= 0:
            raise GlayersError(f"time_budget must be a number of seconds, 0 or more; got {shown(self.time_budget)}")
        seconds = g_layers_seconds(len(given), given.n_classes)
        if find_spec("torch") is None:
            return {"g-layers": 'Torch is not installed: pip install "glayers[fit]"'}
        if seconds > budget:
            return {"g-layers": f"It would take about {seconds:.3g} s, more than time_budget={budget:g}"}
        return {}


def g_layers_seconds(rows: int, classes: int) -> float:
    """Return the estimated seconds of the g-layers fit, whose number of weights is a multiple of classes^2."""
    return 0.3 + 1e-7 * rows * classes**2


class _Task(NamedTuple):
    """The rows to calibrate, and how."""

    given: Predictions
    loss: str
    keep_order: bool
    folds: Ints
    seed: int
    temperature: InverseTemperature  # of all rows
    ratios: Floats  # (n, 1) the inverse temperature without the fold of each row, over that of all rows

    def anchors(self) -> dict[str, MixturePart]:
        """Return no calibration and temperature scaling."""
        raw = working_logits(self.given.logits)
        tempering = tempered(self.temperature.factor)
        return {
            "uncalibrated": self.part(Chain((Reference(),)), raw, 0, time.perf_counter()),
            "temperature": self.part(tempering, self.cooled(tempering(raw)), 1, time.perf_counter()),
        }

    def add_model(self, parts: dict[str, MixturePart]) -> FittedParts:
        """Add the model, and return its fit."""
        began = time.perf_counter()
        names = full_model(len(self.given), self.given.n_classes)
        model = fit_parts(self.given, self.temperature.factor, names, self.folds, loss=self.loss)
        parts["model"] = self.part(model.map, self.cooled(model.out_of_fold), len(model.posterior.point), began)
        return model

    def around(self, earlier: Chain) -> MixturePart:
        """Fit the small model to the output of an earlier calibrator, so that its priors hold it there."""
        began = time.perf_counter()
        moved = self.given.with_logits(apply_map(earlier, self.given.logits))
        model = fit_parts(moved, 1.0, SMALL_MODEL, self.folds, loss=self.loss)
        return self.part(earlier + model.map, model.out_of_fold, len(model.posterior.point), began)

    def add_layers(self, parts: dict[str, MixturePart], model: FittedParts, left_out: dict[str, str]) -> None:
        """Add g-layers unless there is a reason to leave them out, or they learn nothing."""
        # Above a second, g-layers take longer than all other parts.
        small = g_layers_seconds(len(self.given), self.given.n_classes) < 1
        if not small and model.factor_of_pairs < _PAIRS_MATTER:
            reason = "Held-out rows show little that pairs of classes have in common"
            if set(model.effective) <= set(SMALL_MODEL):
                reason = "With so many classes it needs more rows per class, or would take too long"
            left_out.setdefault("g-layers", reason)
        if left_out:
            return
        began = time.perf_counter()
        settings: dict[str, Any] = {"loss": self.loss, "random_state": self.seed, "progress": False}
        if small:
            # A second learning rate, more folds and smaller batches gain 0.0005 of the loss, for twice the time. With
            # 100 rows, two more folds gain 0.008, and take little.
            settings["learning_rate"] = 0.03 / math.sqrt(self.given.n_classes)
            settings |= {"max_epochs": 30, "batch_size": min(1_000, max(16, len(self.given) // 8))}
            settings["n_folds"] = 5 if len(self.given) < 1_000 else 3
        layers = GLayers(**settings)._fit(self.given)
        if layers.n_parameters == 1:
            left_out["g-layers"] = "In cross-validation it showed no significant gain over temperature scaling"
            return
        held_out = self.cooled(log_softmax(layers.out_of_fold))
        parts["g-layers"] = self.part(layers.map, held_out, n_learned(layers.map), began)

    def cooled(self, held_out: Floats) -> Floats:
        """Return held-out log-probabilities as if the temperature before them had not seen the fold of the row.

        Otherwise `prior`, which has not seen the rows at all, looks worse than it is.
        """
        return held_out * self.ratios.astype(held_out.dtype)

    def part(self, chain: Chain, held_out: Floats, size: int, began: float) -> MixturePart:
        """Return a part, given log-probabilities of rows that it has not seen."""
        return MixturePart(chain, in_row_blocks(softmax, held_out), size, time.perf_counter() - began)

    def weights(self, parts: Mapping[str, MixturePart]) -> dict[str, float]:
        """Return the weights of least held-out loss, without parts below 1 %."""
        extra = dict.fromkeys(parts, _EXTRA_ROWS_OF_OTHERS) | {"temperature": _EXTRA_ROWS, "uncalibrated": 0.0}
        held_out = [part.held_out for part in parts.values()]
        extra_rows = [extra[name] for name in parts]
        found = held_out_weights(held_out, self.given.labels, row_weights(self.given), extra_rows)
        found = np.where(found < _LEAST_WEIGHT, 0.0, found)
        found /= found.sum()
        return {name: float(weight) for name, weight in zip(parts, found, strict=True) if weight}

    def chosen(self, parts: Mapping[str, MixturePart]) -> tuple[dict[str, float], MixturePart, str]:
        """Return the weights and the corrected mixture, or an anchor alone if that has no higher held-out loss.

        Also the name of the anchor in the latter case.
        """
        weights = self.weights(parts)
        # Without a finite temperature of least loss, the logits as they are come next.
        anchor = "uncalibrated" if self.temperature.reason else "temperature"
        mixed = self.mixture(parts, weights)
        alone = self.finished(self.mixture(parts, {anchor: 1.0}))
        # In this order: taking the least held-out loss of the three raised the loss of new rows by 0.0002 to 0.0012.
        for best in (self.corrected(mixed), mixed):
            finished = self.finished(best)
            if self.mean_loss(finished) < self.mean_loss(alone):
                return weights, finished, ""
        return {anchor: 1.0}, alone, anchor

    def mixture(self, parts: Mapping[str, MixturePart], weights: Mapping[str, float]) -> MixturePart:
        """Return the mixture. Its held-out predictions have a uniform share, its map not yet."""
        given = self.given
        used = [(parts[name], weight) for name, weight in weights.items()]
        chain = used[0][0].map
        if len(used) > 1:
            chain = Chain((Stack(np.array([*weights.values()]), tuple(part.map for part, _ in used)),))
        mixed = in_row_blocks(
            lambda *each: sum(weight * p for (_, weight), p in zip(used, each, strict=True)),
            *(part.held_out for part, _ in used),
        )
        uniform = in_row_blocks(_uniform, given.logits)
        share = uniform_share(mixed, uniform, given.labels, row_weights(given))
        return MixturePart(chain, ((1 - share) * mixed + share * uniform).astype(mixed.dtype), share=share)

    def finished(self, mixture: MixturePart) -> MixturePart:
        """Add the uniform share to the map, and keep the order of the classes if asked for."""
        chain = mixture.map + Chain((UniformShare(np.asarray(mixture.share)),))
        if not self.keep_order:
            return mixture._replace(map=chain)
        kept = KeepOrder.of(chain, self.temperature.factor)
        with np.errstate(divide="ignore"):  # impossible classes
            ordered = in_order_of(self.given.logits.astype(np.float64), np.log(mixture.held_out), kept.slope)
        return mixture._replace(map=Chain((kept,)), held_out=np.asarray(softmax(ordered)))

    def corrected(self, mixture: MixturePart) -> MixturePart:
        """Correct confidence and class frequencies of the mixture, as its held-out predictions show them.

        They are less sure than fits, and what the mixture keeps of temperature scaling has no shifts of classes.
        """
        with np.errstate(divide="ignore"):  # impossible classes
            log_p = in_row_blocks(np.log, mixture.held_out)
        found = fit_parts(self.given.with_logits(log_p), 1.0, ("shared", "shift"), self.folds, loss=self.loss)
        return mixture._replace(map=mixture.map + found.map, held_out=in_row_blocks(np.exp, found.out_of_fold))

    def selection(
        self,
        n_rows: int,
        parts: Mapping[str, MixturePart],
        weights: Mapping[str, float],
        mixture: MixturePart,
        model: FittedParts,
        left_out: Mapping[str, str],
        fallback: str,
    ) -> AutoSelection:
        """Return the record of what was tried and kept: each part has the loss that it would have alone."""
        temperature = self.mixture(parts, {"temperature": 1.0})
        results = []
        for name, part in parts.items():
            alone = self.mixture(parts, {name: 1.0})
            gain, error = self.gain(temperature, alone)
            note = self.temperature.reason if name == "temperature" else ""
            weight = weights.get(name, 0.0)
            facts = part.n_parameters, part.seconds, note
            results.append(PartResult(name, self.mean_loss(alone), gain, error, weight, *facts))
        gain, error = self.gain(temperature, mixture)
        return AutoSelection(
            rows=n_rows,
            sample=len(self.given),
            classes=self.given.n_classes,
            n_folds=int(self.folds.max()) + 1,
            loss=self.loss,
            keep_accuracy=self.keep_order,
            parts=tuple(results),
            effective=model.effective,
            left_out=left_out,
            kept_loss=self.mean_loss(mixture),
            gain=gain,
            gain_error=error,
            uniform_share=mixture.share,
            fallback=fallback,
        )

    def losses(self, part: MixturePart) -> Floats:
        """Return the held-out loss of each row."""
        own = part.held_out[np.arange(len(self.given)), self.given.labels].astype(np.float64)
        if self.loss == "log":
            return np.asarray(-np.log(np.maximum(own, _SMALLEST)))
        return np.vecdot(part.held_out, part.held_out) - 2 * own + 1

    def mean_loss(self, part: MixturePart) -> float:
        """Return the held-out loss of a part."""
        return weighted_mean(self.losses(part), self.given)

    def gain(self, temperature: MixturePart, part: MixturePart) -> tuple[float, float]:
        """Return the mean gain of a part over temperature scaling, and its standard error."""
        return paired_gain(self.losses(temperature), self.losses(part), self.given.weights, self.given.groups)


def _uniform(logits: Array) -> Floats:
    """Return probabilities that are equal for all possible classes of a row."""
    possible = np.isfinite(with_reference_class(logits))
    return np.asarray(possible / possible.sum(axis=1, keepdims=True))
