"""The contract of a calibrator: an estimator in the style of scikit-learn, logits in, calibrated probabilities out.

Settings go into the constructor, `fit` learns, and learned attributes end in `_`. A subclass writes one pure method:
`_fit` turns predictions into a `Fitted` record. The base class does the rest once: it checks the input, times the fit,
measures the loss before and after, fills `diagnostics_`, issues every warning and saves. `Predictor` predicts.
"""

import copy
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, Tags, TransformerTags, check_random_state
from sklearn.utils.validation import check_is_fitted

from glayers.arrays import Floats, row_blocks
from glayers.calibrators.class_shift import estimate_class_shift, given_frequencies
from glayers.calibrators.inputs import Inputs, checked_rows, rows_to_compare
from glayers.calibrators.row_summary import RowSummary, summarise
from glayers.checks import number_between
from glayers.errors import BadPredictions, GlayersError, GlayersWarning, shown
from glayers.fitting.curvature import SmoothLoss, smooth_loss
from glayers.fitting.floor import fit_log_probabilities
from glayers.maps import Chain, Diagonal, Reference, simplified
from glayers.predictions import Confidences, Predictions
from glayers.predictions.predictions import map_inputs, two_classes
from glayers.serving.predictor import CHECKS, Diagnostics, Predictor, apply_map, mask_notes


@dataclass(frozen=True, eq=False)
class Fitted:
    """What one fit found: the map, how the fit ended, and what the user should know.

    `method` names the method in messages. `reason` says in a few words why the fit ended as it did. `notes` are
    sentences that `fit` issues as warnings. `out_of_fold` holds log-probabilities of every row by fits that had not
    seen it. `attributes` are further learned attributes of the calibrator, such as `cv_results_`. `losses` are the mean
    losses before and after, for a fit that knows them already; otherwise the base class measures them. `n_parameters`
    defaults to the size of the map.
    """

    map: Chain
    method: str
    converged: bool = True
    reason: str = "solved exactly"
    iterations: int = 1
    n_parameters: int | None = None
    out_of_fold: Floats | None = None
    notes: tuple[str, ...] = ()
    losses: tuple[float, float] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Method:
    """One entry of `CALIBRATORS`: its name, the settings that make it, and its description for tables and guides."""

    name: str
    summary: str  # one line in standard terms, such as "One scale and one shift per class"
    keeps: str  # what calibration never changes: "ranking", "predicted class" or "nothing"
    reference: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    torch: Literal["no", "optional", "required"] = "no"  # for fitting; predicting never needs torch


class Calibrator(Inputs, Predictor, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn ships no types
    """Base class of all calibrators: a map on logits, fitted by a proper loss.

    Parameters
    ----------
    inputs : {"logits", "probabilities", "confidence"}, default "logits"
        What `fit`, `transform` and `predict_proba` take. With "probabilities", rows must sum to 1, and zeros are raised
        to half the smallest other probability of the calibration rows; `diagnostics_.notes` counts them. With
        "confidence", each row is one number, and its label is whether the answer was correct; the second column of
        `predict_proba` is the calibrated confidence.

    Attributes
    ----------
    map_ : Chain
        The learned map from logits, or from probabilities, to calibrated logits.
    diagnostics_ : Diagnostics
        How the fit went: losses before and after, convergence, label counts, seconds.
    classes_ : ndarray of shape (n_classes,)
        The class numbers 0..n_classes-1.
    class_names_ : tuple of str or None
        The names in the `Predictions`, or the columns of the data frame, that the calibrator was fitted on.
    out_of_fold_ : ndarray of shape (n_rows, n_classes) or None
        Log-probabilities of every row by fits that had not seen it, where the method makes them. Not saved.
    calibration_rows_ : RowSummary
        Counts of the calibration rows, with which `glayers.shift_test` compares new rows.
    adaptation_ : ClassShift or None
        The class frequencies that `adapt` has adapted the calibrator to.
    versions_ : dict
        The versions of glayers and NumPy at the time of the fit.
    """

    out_of_fold_: Any  # Floats or None
    adaptation_: Any = None  # ClassShift or None
    methods: ClassVar[tuple[Method, ...]] = ()
    # Settings that only a fit needs: a file keeps None in their place.
    _only_for_fits: ClassVar[tuple[str, ...]] = ()
    # Learned attributes beyond the map that a file keeps too; their values must be JSON.
    _kept: ClassVar[tuple[str, ...]] = ()
    # Of these, the records and their classes, which have `to_dict` and `from_dict`.
    _records: ClassVar[Mapping[str, Any]] = {}
    # Methods that do not minimise the loss may raise it a little without anything being wrong.
    _warns_if_loss_rises: ClassVar[bool] = True

    def fit(self, logits: Any, labels: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit the calibrator on rows that the network was not trained on.

        Parameters
        ----------
        logits : array-like of shape (n_rows, n_logits)
            Outputs of the network before the softmax. One column is the logit of class 1 of two. With
            `inputs="probabilities"`, probabilities instead.
        labels : array-like of shape (n_rows,)
            Class numbers from 0.
        sample_weight : array-like of shape (n_rows,), optional
            Importance weights of the rows; a common factor changes nothing. For rows that occurred several times, pass
            `Predictions` with counts to `fit_predictions`.
        groups : array-like of shape (n_rows,), optional
            Rows of one group, such as one patient, are never split by cross-validation.

        Returns
        -------
        Self
            The fitted calibrator.
        """
        return self._learn(self._given(logits, labels, sample_weight, groups))._warned()

    def fit_predictions(self, predictions: Predictions | Confidences) -> Self:
        """Fit the calibrator on `Predictions`, and keep their class names; on `Confidences` if those are its inputs."""
        return self._learn(two_classes(self.inputs, predictions))._warned()

    def adapt(
        self,
        logits: Any = None,
        *,
        frequencies: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        level: float = 0.95,
    ) -> Self:
        """Return a copy that is adapted to other class frequencies, given or estimated from rows without labels.

        Under class shift, classes have other frequencies than in the calibration rows, but the rows of each class look
        the same. The copy multiplies the odds of each class by its new over its old frequency. A calibrator that is
        adapted already is adapted anew, not twice.

        Parameters
        ----------
        logits : array-like of shape (n_rows, n_logits) or Predictions, optional
            New rows, whose labels are not used. If their frequencies do not differ significantly from the old ones, the
            copy keeps the old ones.
        frequencies : array-like of shape (n_classes,) or dict, optional
            Known frequencies or counts instead; a dict has class names as keys.
        sample_weight, groups : array-like of shape (n_rows,), optional
            Weights of the new rows, and groups of rows that depend on each other.
        level : float, default 0.95
            The level of the two tests in `adaptation_`.

        Returns
        -------
        Self
            The adapted calibrator; its `adaptation_` has the frequencies, their standard errors and the tests.

        Warns
        -----
        GlayersWarning
            If class shift does not explain the new rows, or if a class has no calibration rows.

        Examples
        --------
        >>> from glayers import TemperatureScaling
        >>> from glayers.datasets import load_fashion_mnist
        >>> calibration, test = load_fashion_mnist()
        >>> fitted = TemperatureScaling().fit_predictions(calibration)
        >>> shoes = test.take(test.labels >= 5)  # "Sandal" to "Ankle boot": half of the classes are missing
        >>> adapted = fitted.adapt(shoes.logits)
        >>> float(sum(adapted.adaptation_.after[5:])) > 0.98, adapted.adaptation_.shifted
        (True, True)
        """
        self._check_fitted()
        summary = self.calibration_rows_.by_class
        if self.inputs == "confidence":
            raise GlayersError("a confidence has no classes to adapt: fit on logits or probabilities of all classes")
        if (logits is None) == (frequencies is None):
            raise BadPredictions("adapt takes either logits of new rows, or frequencies=; give one of them")
        new = copy.copy(self)
        if frequencies is not None:
            new.adaptation_ = given_frequencies(summary, frequencies, self.class_names_)
        else:
            number_between(level, "level", 0, 1)
            given, _ = rows_to_compare(self, logits, None, groups, sample_weight)
            given, chain = self._seen(given)
            calibrated = apply_map(chain, given.logits, given.n_classes)
            histograms, names = self.calibration_rows_.histograms, self.class_names_
            new.adaptation_ = estimate_class_shift(summary, histograms, given, calibrated, level, names)
        shift = np.log(new.adaptation_.ratio)
        new.map_ = self._fitted_map + Chain((Reference(), Diagonal(np.ones(len(shift)), shift)))
        for note in new.adaptation_.notes(self.diagnostics_.classes_never_seen):
            warnings.warn(note, GlayersWarning, stacklevel=2)
        return new

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted calibrator to one `.safetensors` file that `glayers.load` reads.

        The file appears complete or not at all. It holds numbers and text, never code.
        """
        from glayers.calibrators.artifact import write_calibrator  # which imports every calibrator, this one too

        self._check_fitted()
        write_calibrator(self, path)

    def _check_fitted(self) -> None:
        if not hasattr(self, "map_"):  # quick; scikit-learn's own check takes longer than predicting a row
            check_is_fitted(self)

    def _seen(self, given: Predictions) -> tuple[Predictions, Chain]:
        """Return rows with logits as the fit saw them, those of raised probabilities, and the map that follows."""
        chain = self._fitted_map
        if self.inputs == "logits":
            return given, chain
        values = CHECKS[self.inputs](map_inputs(self.inputs, given)).astype(np.float64)
        return given.with_logits(chain.steps[0](values)), Chain(chain.steps[1:])

    @property
    def calibration_rows_(self) -> RowSummary:
        """Counts of the calibration rows, made when they are first asked for."""
        if "_counts" not in vars(self):
            if "_uncounted" not in vars(self):
                raise AttributeError("calibration_rows_")
            given, found = self._uncounted
            self._counts = summarise(given, lambda rows: apply_map(found, given.logits[rows], given.n_classes))
            del self._uncounted
        return self._counts

    @calibration_rows_.setter
    def calibration_rows_(self, counts: RowSummary) -> None:
        self._counts = counts

    def __getstate__(self) -> dict[str, Any]:
        """Count the calibration rows rather than keep them."""
        if "_uncounted" in vars(self):
            self.calibration_rows_  # noqa: B018 (makes the counts)
        return dict(super().__getstate__())

    @property
    def _fitted_map(self) -> Chain:
        """The map as it was fitted, without the two steps of `adapt`."""
        return self.map_ if self.adaptation_ is None else Chain(self.map_.steps[:-2])

    def _given(self, logits: Any, labels: Any, weights: Any, groups: Any) -> Predictions:
        """Return the checked input of `fit`."""
        return checked_rows(self.inputs, logits, labels, weights, groups)

    @abstractmethod
    def _fit(self, given: Predictions) -> Fitted:
        """Return what the fit found. Sets nothing and warns of nothing, so that other calibrators can build on it."""

    @np.errstate(over="ignore", invalid="ignore")  # of logits near 1e300; `transform` checks the result
    def _learn(self, given: Predictions) -> Self:
        """Fit, and keep what was learned. Warnings are in `diagnostics_.notes`; `fit` issues them."""
        began = time.perf_counter()
        given, first, raised = given.repeated(), Chain(()), ""
        if self.inputs != "logits":
            probabilities = CHECKS[self.inputs](map_inputs(self.inputs, given)).astype(np.float64)
            step, raised = fit_log_probabilities(probabilities, given.weights)
            given, first = given.with_logits(step(probabilities)), Chain((step,))
        fitted = self._fit(given)
        # One memory order and type, as a file gives them back: the last digit of a sum depends on it.
        found = simplified(fitted.map).map_parameters(lambda value: np.asarray(value, np.float64, order="C"))
        self.map_, self.adaptation_ = first + found, None
        self.out_of_fold_ = fitted.out_of_fold
        for name, value in fitted.attributes.items():
            setattr(self, name, value)
        self.__dict__.pop("_counts", None)
        self._uncounted = given, found
        loss = smooth_loss(getattr(self, "loss", "log"))
        if fitted.losses is None:
            before, after = mean_loss(loss, Chain(()), given), mean_loss(loss, found, given)
        else:
            before, after = fitted.losses
        # Rows of weight 0 do not count.
        counts = np.bincount(given.labels, None if given.weights is None else given.weights > 0, given.n_classes)
        facts = Diagnostics(
            method=fitted.method,
            converged=fitted.converged,
            reason=fitted.reason,
            iterations=fitted.iterations,
            loss_before=before,
            loss_after=after,
            moved=after != before,
            rows=int(counts.sum()),
            labels_per_class=tuple(counts.astype(int).tolist()),
            classes_never_seen=tuple(np.flatnonzero(counts == 0).tolist()),
            n_parameters=found.n_parameters if fitted.n_parameters is None else fitted.n_parameters,
            seconds=time.perf_counter() - began,
        )
        notes = (*fitted.notes, *self._remarks(facts, noted=bool(fitted.notes)), *([raised] if raised else []))
        self.diagnostics_ = replace(facts, notes=(*notes, *mask_notes(self.inputs, given.logits)))
        self._set_facts(given.logits.shape[1], given.class_names, _versions())
        self.classes_ = np.arange(given.n_classes)
        return self

    def _warned(self) -> Self:
        """Issue the warnings of a fit; called by `fit` and `fit_predictions` themselves, so `stacklevel` is right."""
        for note in self.diagnostics_.notes:
            warnings.warn(note, GlayersWarning, stacklevel=3)
        return self

    def __sklearn_tags__(self) -> Tags:
        # Classes and probabilities make a classifier: without the tag scikit-learn scores and splits as for regression.
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier"
        tags.classifier_tags = ClassifierTags()
        tags.transformer_tags = TransformerTags(preserves_dtype=["float64"])
        tags.target_tags.required = True
        return tags

    def _remarks(self, facts: Diagnostics, noted: bool) -> list[str]:
        """Return the warnings that apply to every method: no convergence, no gain, classes without a row."""
        remarks = []
        if not noted and not facts.converged:
            remarks.append(f"{facts.method}: {facts.reason}")
        changed = facts.converged or facts.moved
        if changed and self._warns_if_loss_rises and not noted and not facts.loss_after < facts.loss_before:
            losses = f"{facts.loss_before:.6g} before, {facts.loss_after:.6g} after"
            remarks.append(f"{facts.method} did not lower the loss of the calibration rows: {losses}")
        if unseen := facts.classes_never_seen:
            names = ", ".join(map(str, unseen[:5])) + (f" and {len(unseen) - 5} others" if len(unseen) > 5 else "")
            remarks.append(f"no row is labelled {names}: their probabilities cannot be calibrated from these rows")
        return remarks

    def _set_facts(self, n_logits: int, class_names: tuple[str, ...] | None, versions: dict[str, str]) -> None:
        self.n_features_in_ = n_logits
        self.classes_ = np.arange(max(2, n_logits))
        self.class_names_ = class_names
        self.versions_ = versions


@cache
def _versions() -> dict[str, str]:
    return {"glayers": version("glayers"), "numpy": np.__version__}


def mean_loss(loss: SmoothLoss, chain: Chain, given: Predictions) -> float:
    """Return the weighted mean loss of the logits that a map gives, block by block."""
    losses = np.empty(len(given))
    for rows in row_blocks(len(given), given.n_classes):
        losses[rows] = loss.rows(apply_map(chain, given.logits[rows], given.n_classes), given.labels[rows])
    return weighted_mean(losses, given)


def weighted_mean(losses: Floats, given: Predictions) -> float:
    """Return the weighted mean of the losses of all rows; one of weight 0 may have an infinite loss."""
    if given.weights is None:
        return float(losses.mean())
    counted = given.weights > 0
    return float(np.average(losses[counted], weights=given.weights[counted]))


def drawn_seed(random_state: Any) -> int:
    """Return a seed drawn from a setting of scikit-learn's kind: a whole number, a RandomState, or None."""
    try:
        return int(check_random_state(random_state).randint(2**31 - 10))  # a fit may add a small number to it
    except (TypeError, ValueError) as error:
        raise BadPredictions(
            f"random_state must be a whole number in 0..{2**32 - 1}, a RandomState or None; got {shown(random_state)}"
        ) from error


@contextmanager
def needs_torch(who: str) -> Iterator[None]:
    """Name the extra to install if an import inside finds no torch; only fits need it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(f'{who} needs torch to fit: pip install "glayers[fit]"', name="torch") from error
