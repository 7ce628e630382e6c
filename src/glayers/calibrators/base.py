"""The contract of a calibrator: an estimator in the style of scikit-learn, logits in, calibrated probabilities out.

Settings go into the constructor, `fit` learns, and learned attributes end in `_`. A subclass writes one pure method:
`_fit` turns predictions into a `Fitted` record. The base class does the rest once: it checks the input, times the fit,
measures the loss before and after, fills `diagnostics_`, issues every warning and saves. `Predictor` predicts.

A calibrator is told once what its inputs are, in the setting `inputs`, and a file keeps it.
"""

import copy
import logging
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cache, cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Array, Floats, few_rows_note, row_blocks, to_numbers
from glayers.calibrators.class_shift import (
    LEAST_EXPECTED,
    ClassShift,
    RowSummary,
    count_rows,
    estimate_class_shift,
    given_frequencies,
    same_frequencies,
    summarise,
    with_bias,
)
from glayers.calibrators.estimator import Estimator, drawn_seed
from glayers.checks import check_choice, check_probabilities, number_between, whole_number
from glayers.errors import WITHOUT_GROUPS, BadFile, BadPredictions, GlayersError, GlayersWarning, listed, shown
from glayers.fitting.curvature import SmoothLoss, smooth_loss
from glayers.fitting.evidence import FittedParts
from glayers.fitting.floor import fit_log_probabilities
from glayers.fitting.posterior import Posterior
from glayers.maps import Chain, Diagonal, Reference, simplified
from glayers.predictions import Confidences, Predictions
from glayers.predictions.predictions import map_inputs, two_classes
from glayers.serving.artifact import POSTERIOR
from glayers.serving.predictor import CHECKS, Diagnostics, Predictor, apply_map, class_names_of
from glayers.serving.sets import SetThresholds
from glayers.text_tables import plural

_LOGGER = logging.getLogger(__name__)
_OTHER_FREQUENCIES = 0.01  # the p-value from which on class frequencies differ: 1 of 100 good sets of rows


@dataclass(frozen=True, eq=False)
class Fitted:
    """What one fit found: the map, how the fit ended, and what the user should know.

    `method` names the method in messages. `reason` says in a few words why the fit ended as it did. `notes` are
    sentences that `fit` issues as warnings. `out_of_fold` holds log-probabilities of every row by fits that had not
    seen it. `attributes` are further learned attributes of the calibrator, such as `cv_results_`. `losses` are the mean
    losses before and after, for a fit that knows them already; otherwise the base class measures them. `n_parameters`
    defaults to the size of the map. `effective` counts the coefficients that the rows determine, if there is a
    posterior.
    """

    map: Chain
    method: str
    converged: bool = True
    reason: str = "solved exactly"
    iterations: int = 1
    n_parameters: int | None = None
    out_of_fold: Floats | None = None
    notes: Sequence[str] = ()
    losses: tuple[float, float] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    posterior: Posterior | None = None
    effective: float = 0.0

    @classmethod
    def of_parts(cls, found: FittedParts, method: str, reason: str, **others: Any) -> "Fitted":
        """Return the fit of parts by evidence, with what else is known about it."""
        fitted = cls(found.map, method, found.converged, reason, found.iterations, len(found.posterior.point))
        effective = sum(found.effective.values())
        kept = {"out_of_fold": found.out_of_fold, "posterior": found.posterior, "effective": effective}
        return replace(fitted, **kept | others)


@dataclass(frozen=True)
class Method:
    """One entry of `CALIBRATORS`: a name, its description for tables and guides, and the settings that make it.

    Call it to get an unfitted calibrator: `CALIBRATORS["g-layers"](n_layers=1)`.

    Parameters
    ----------
    name : str
        Lower-case words joined by hyphens.
    summary : str
        One line in standard terms, such as "One scale and one shift per class".
    keeps : str
        What calibration never changes: "ranking", "predicted class" or "nothing".
    reference : str
        Where the method was published.
    settings : mapping, optional
        Settings of the calibrator that differ from its defaults.
    torch : {"no", "optional", "required"}, default "no"
        Whether fitting needs torch; predicting never does.

    Examples
    --------
    >>> from glayers import CALIBRATORS
    >>> CALIBRATORS["vector"].summary, CALIBRATORS["vector"](strength=0.5)
    ('One scale and one shift per class', VectorScaling(strength=0.5))
    """

    name: str
    summary: str
    keeps: str = "nothing"
    reference: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    torch: Literal["no", "optional", "required"] = "no"
    kind: Any = None  # the class, once it is registered

    def __call__(self, **settings: Any) -> Any:
        """Return an unfitted calibrator."""
        return self.kind(**{**self.settings, **settings})

    def to_dict(self) -> dict[str, Any]:
        """Return the description, ready for JSON."""
        return vars(self) | {"kind": self.kind.__name__}


class Calibrator(Estimator, Predictor, ABC):
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
        What `predict` returns: class numbers 0..n_classes-1, or class names if `fit` was given names.
    class_names_ : tuple of str or None
        The names in the `Predictions`, or the columns of the data frame, that the calibrator was fitted on.
    out_of_fold_ : ndarray of shape (n_rows, n_classes) or None
        Log-probabilities of every row by fits that had not seen it, where the method makes them. Not saved.
    calibration_rows_ : RowSummary
        Counts of the calibration rows, with which `glayers.shift_test` compares new rows.
    set_thresholds_ : SetThresholds or None
        What `predict_set` needs, made when first asked for or saved; None if the method makes no out-of-fold
        predictions, and after `adapt`.
    adaptation_ : ClassShift or None
        The class frequencies that `adapt` has adapted the calibrator to.
    versions_ : dict
        The versions of glayers and NumPy at the time of the fit.
    """

    _: KW_ONLY
    inputs: Literal["logits", "probabilities", "confidence"] = "logits"

    # Settings that only a fit needs: a file keeps None in their place.
    _only_for_fits: ClassVar[tuple[str, ...]] = ()
    # Learned attributes beyond the map that a file keeps too; their values must be JSON.
    _kept: ClassVar[tuple[str, ...]] = ()
    # Learned attributes that are records, and their classes.
    _records: ClassVar = {"calibration_rows_": RowSummary, "set_thresholds_": SetThresholds, "adaptation_": ClassShift}
    # Methods that do not minimise the loss may raise it a little without anything being wrong.
    _warns_if_loss_rises = True

    def fit(self, logits: Any, labels: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit the calibrator on rows that the network was not trained on.

        Parameters
        ----------
        logits : array-like of shape (n_rows, n_logits)
            Outputs of the network before the softmax. One column is the logit of class 1 of two. With
            `inputs="probabilities"`, probabilities instead.
        labels : array-like of shape (n_rows,)
            Class numbers from 0; or the names of the columns of a data frame of logits, which `predict` then returns.
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
        given = self._check_input(logits, labels, sample_weight, groups)
        self._fit_and_keep(given)._name_classes(labels)
        return self._issue_warnings()

    def fit_predictions(self, predictions: Predictions | Confidences) -> Self:
        """Fit the calibrator on `Predictions`, and keep their class names; on `Confidences` if those are its inputs."""
        return self._fit_and_keep(two_classes(self.inputs, predictions))._issue_warnings()

    def adapt(
        self,
        logits: Any = None,
        *,
        frequencies: Any = None,
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
        frequencies : array-like of shape (n_classes,), optional
            Known frequencies or counts instead.
        groups : array-like of shape (n_rows,), optional
            Rows of one group depend on each other, so one row of each is used.
        level : float, default 0.95
            The level of the two tests in `adaptation_`.

        Returns
        -------
        Self
            The adapted calibrator; its `adaptation_` has the frequencies, their standard errors and the tests.

        Warns
        -----
        GlayersWarning
            If class shift does not explain the new rows, or if adapting is likely to make predictions worse.

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
        if self.inputs == "confidence":
            raise GlayersError("a confidence has no classes to adapt: fit on logits or probabilities of all classes")
        if (logits is None) == (frequencies is None):
            raise BadPredictions("adapt takes either logits of new rows, or frequencies=; give one of them")
        if frequencies is not None:
            shift = given_frequencies(self.calibration_rows_, frequencies)
        else:
            number_between(level, "level", 0, 1)
            given, _ = self._as_fitted_on(logits, None, groups)
            sample = count_rows(given, self._map_of_logits, all_rows=True)
            if given.groups is not None and sample.total < 2 * LEAST_EXPECTED:
                reason = f"too few groups ({sample.total:.0f}) to tell whether the class frequencies differ"
                raise BadPredictions(f"{reason}: each group counts as one row. {WITHOUT_GROUPS}")
            shift = estimate_class_shift(self.calibration_rows_, sample, level)
        shift = with_bias(replace(shift, class_names=self.class_names_), self.calibration_rows_)
        new = copy.copy(self)
        factors = Diagonal(np.ones(len(shift.ratio)), np.log(shift.ratio))
        new.map_ = self._fitted_map + Chain((Reference(), factors))
        new.adaptation_ = shift
        new.set_thresholds_ = None  # they are about rows with the old frequencies
        for note in shift.notes():
            warnings.warn(note, GlayersWarning, stacklevel=2)
        return new

    def predict_interval(self, logits: Any, level: float = 0.9) -> tuple[Floats, Floats]:
        """Return an interval for each probability: what the calibration rows leave open about it.

        Of `auto`, temperature, vector, matrix and Dirichlet scaling, also after loading. The interval surrounds
        `predict_proba`. Its width comes from the posterior of the coefficients. It does not count that the model may be
        too simple, nor that new rows may be of another kind. Rows much surer than all calibration rows get intervals
        that are too narrow. Rows of a group may depend on each other.

        Parameters
        ----------
        logits : array-like of shape (n_rows, n_logits)
            As for `predict_proba`.
        level : float, default 0.9
            The probability that an interval holds the true probability.

        Returns
        -------
        low, high : ndarray of shape (n_rows, n_classes)
            The ends of the intervals.

        Examples
        --------
        >>> from glayers import VectorScaling
        >>> from glayers.datasets import load_fashion_mnist
        >>> calibration, test = load_fashion_mnist()
        >>> fitted = VectorScaling().fit_predictions(calibration)
        >>> low, high = fitted.predict_interval(test.logits[:3])
        >>> bool((low < fitted.predict_proba(test.logits[:3])).all() and (low < high).all())
        True
        """
        from scipy.special import expit, ndtri  # on first use: importing it takes longer than glayers

        number_between(level, "level", 0, 1)
        given, calibrated = self._logits_and_calibrated(logits)
        p = softmax(calibrated)
        reach = ndtri((1 + level) / 2) * self.posterior_.log_odds_errors(given)
        with np.errstate(divide="ignore"):
            log_odds = np.log(p) - np.log1p(-p)
        return expit(log_odds - reach), expit(log_odds + reach)

    def plausible(self, rows: Any, n_draws: int, random_state: int | None = 0) -> Iterator[Floats]:
        """Yield probabilities (n_rows, n_classes) that may be the true ones, as far as the calibration rows can tell.

        Each is what `predict_proba` gives, moved by a draw of the coefficients from their posterior. `rows` are
        `Predictions`, or what `predict_proba` takes.
        """
        whole_number(n_draws, "n_draws", least=1)
        logits, calibrated = self._logits_and_calibrated(rows)
        for change in self.posterior_.changes(logits, n_draws, np.random.default_rng(drawn_seed(random_state))):
            yield softmax(calibrated + change)

    def expects(self, label_counts: Floats) -> bool:
        """Return whether labels are as frequent as in the calibration rows, or as what the calibrator was adapted to.

        True unless they differ by more than chance explains 99 times in 100. `label_counts` (n_classes,) add up to the
        number of independent rows.
        """
        summary = self.calibration_rows_
        frequencies = summary.frequencies if self.adaptation_ is None else self.adaptation_.after
        known = summary.rows * np.array(frequencies)
        rare_first = np.argsort(known + label_counts)  # rare classes are merged with rare ones
        return not same_frequencies(known[rare_first], label_counts[rare_first]) <= _OTHER_FREQUENCIES

    def _logits_and_calibrated(self, rows: Any) -> tuple[Array, Floats]:
        """Return rows as the fit saw them, and their calibrated logits; refuse methods without a posterior."""
        self._check_fitted()
        if self.posterior_ is None:
            raise GlayersError(
                f"{type(self).__name__} knows no posterior of its coefficients; auto, temperature, vector, matrix and "
                f"dirichlet do"
            )
        given, _ = self._as_fitted_on(rows, None, None)
        return given.logits, apply_map(self._of_logits(self.map_), given.logits)

    def _posterior_arrays(self) -> dict[str, Floats]:
        """Return the arrays of the posterior, if there is one, as a file names them."""
        if self.posterior_ is None:
            return {}
        return {POSTERIOR + name: array for name, array in self.posterior_.arrays().items()}

    def _set_posterior(self, arrays: Mapping[str, Floats]) -> None:
        """Set the posterior of a file, if it has one, and try it on a row."""
        self.posterior_: Any = None  # or a Posterior
        if arrays:
            try:
                of_file = {name.removeprefix(POSTERIOR): array for name, array in arrays.items()}
                self.posterior_ = Posterior.from_arrays(of_file, len(self.classes_))
            except (IndexError, KeyError, TypeError, ValueError) as problem:
                raise BadFile(f"the posterior of its coefficients does not fit together: {problem}") from problem

    @cached_property
    def calibration_rows_(self) -> RowSummary:
        """Counts of the calibration rows, made when they are first asked for: it takes as long as a temperature fit."""
        self._check_fitted()
        return summarise(*self._rows_to_count)

    @cached_property
    def set_thresholds_(self) -> SetThresholds | None:
        """Thresholds of `predict_set` from out-of-fold predictions, made when they are first asked for."""
        self._check_fitted()
        given, found = self._rows_to_count
        held_out = self._held_out(given, found)
        return None if held_out is None else SetThresholds.of(given.with_logits(held_out))

    def _held_out(self, given: Predictions, found: Chain) -> Floats | None:  # noqa: ARG002 (for subclasses)
        """Return log-probabilities of the calibration rows by fits that had not seen them, if there are any."""
        return self.out_of_fold_

    def conform(self, predictions: Predictions) -> Self:
        """Return a copy whose prediction sets come from labelled rows that it was not fitted on.

        For methods without out-of-fold predictions, after `adapt`, and where the exact guarantee matters.

        Parameters
        ----------
        predictions : Predictions
            Uncalibrated rows with labels.

        Returns
        -------
        Self
            A new row that is exchangeable with these has its label in `predict_set` with a probability of `level`.

        Examples
        --------
        >>> from glayers import IsotonicCalibration
        >>> from glayers.datasets import load_fashion_mnist
        >>> calibration, test = load_fashion_mnist()
        >>> fitted = IsotonicCalibration().fit_predictions(calibration.take(slice(2000)))
        >>> sets = fitted.conform(calibration.take(slice(2000, 5000))).predict_set(test.logits)
        >>> round(float(sets[np.arange(len(test)), test.labels].mean()), 2)
        0.9
        """
        self._check_fitted()
        calibrated = self.apply(predictions)
        if isinstance(calibrated, Confidences):
            raise GlayersError("a confidence has no classes for prediction sets: fit on logits or probabilities")
        new = copy.copy(self)
        new.set_thresholds_ = SetThresholds.of(calibrated)
        return new

    def __getstate__(self) -> dict[str, Any]:
        """Count the calibration rows rather than keep them."""
        if "_rows_to_count" in vars(self):
            self.calibration_rows_  # noqa: B018 (makes the counts)
            self.set_thresholds_  # noqa: B018
        return {name: value for name, value in vars(self).items() if name != "_rows_to_count"}

    @property
    def _fitted_map(self) -> Chain:
        """The map as it was fitted, without the two steps of `adapt`."""
        return self.map_ if self.adaptation_ is None else Chain(self.map_.steps[:-2])

    @property
    def _map_of_logits(self) -> Chain:
        """The fitted map after the step that turns probabilities into logits."""
        return self._of_logits(self._fitted_map)

    def _of_logits(self, chain: Chain) -> Chain:
        """Return a map without the step that turns probabilities into logits."""
        first = 0 if self.inputs == "logits" else 1
        return Chain(chain.steps[first:])

    def _check_input(self, logits: Any, labels: Any, weights: Any, groups: Any) -> Predictions:
        """Return the checked input of `fit`."""
        check_choice(self.inputs, CHECKS, "inputs")
        if self.inputs == "confidence":
            return two_classes(self.inputs, Confidences(logits, labels, weights, groups))
        names = class_names_of(logits)
        if self.inputs == "probabilities":
            p = check_probabilities(logits)
            return Predictions._of_probabilities(p, labels, weights=weights, groups=groups, class_names=names)
        return Predictions(logits, labels, weights, groups, names)

    def _name_classes(self, labels: Any) -> None:
        """Predict names of classes where the labels of the fit were names."""
        if self.class_names_ is not None and to_numbers(labels, "labels").dtype.kind in "UO":
            self.classes_ = np.array(self.class_names_)

    def _as_fitted_on(self, values: Any, labels: Any, groups: Any) -> tuple[Predictions, bool]:
        """Return new rows with logits as the fit saw them, and whether they have labels.

        Without labels, each label is a possible class.
        """
        labelled = True
        if isinstance(values, Predictions | Confidences):
            if labels is not None or groups is not None:
                raise BadPredictions("Predictions have their own labels and weights; leave labels= and groups= out")
            given = two_classes(self.inputs, values)
        else:
            if labels is None:
                labelled = False
                labels = CHECKS[self.inputs](values).argmax(axis=1)
            given = self._check_input(values, labels, None, groups)
        self._check_names(given.class_names)
        self._check_width(given.logits)
        if self.inputs != "logits":
            given = given.with_logits(self.map_.steps[0](_probabilities(self.inputs, given)))
        return given, labelled

    @abstractmethod
    def _fit(self, given: Predictions) -> Fitted:
        """Return what the fit found. Sets nothing and warns of nothing, so that other calibrators can build on it."""

    def _with_prior_of(self, labels: Sequence[Predictions]) -> Self:  # noqa: ARG002 (for subclasses)
        """Return the calibrator to fit to each of several labels; one may learn from all of them first."""
        return self

    @np.errstate(over="ignore", invalid="ignore")  # of logits near 1e300; `transform` checks the result
    def _fit_and_keep(self, given: Predictions) -> Self:
        """Fit, and keep what was learned. Warnings are in `diagnostics_.notes`; `fit` issues them."""
        began = time.perf_counter()
        first = Chain(())
        raised = ""
        if self.inputs != "logits":
            probabilities = _probabilities(self.inputs, given)
            step, raised = fit_log_probabilities(probabilities, given.weights)
            given = given.with_logits(step(probabilities))
            first = Chain((step,))
        fitted = self._fit(given) if _is_ours(type(self)) else self._fit_from_outside(given)
        # One memory order and type, as a file gives them back: the last digit of a sum depends on it.
        found = simplified(fitted.map).map_parameters(lambda value: np.asarray(value, np.float64, order="C"))
        self.map_ = first + found
        self.adaptation_: Any = None  # or a ClassShift
        self.out_of_fold_: Any = fitted.out_of_fold  # or None
        self.posterior_ = fitted.posterior
        if self.posterior_ is not None and not self.posterior_.is_finite:  # of numbers near the largest
            self.posterior_ = None
        for name in ("calibration_rows_", "set_thresholds_"):
            vars(self).pop(name, None)
        for name, value in fitted.attributes.items():
            setattr(self, name, value)
        self._rows_to_count = given, found
        facts = self._measured(fitted, found, given)
        input_notes = filter(None, [raised, few_rows_note(given.weights)])
        notes = (*fitted.notes, *self._general_notes(facts, noted=bool(fitted.notes)), *input_notes)
        self.diagnostics_ = replace(facts, notes=notes, seconds=time.perf_counter() - began)
        self.n_features_in_ = given.logits.shape[1]
        self.classes_ = np.arange(given.n_classes)
        self.class_names_ = given.class_names
        self.versions_ = _versions()
        return self

    def _fit_from_outside(self, given: Predictions) -> Fitted:
        """Fit by a class of another package; refuse in words what it raises, and a map that does not fit the rows."""
        name = type(self).__name__
        try:
            fitted = self._fit(given)
            if not isinstance(fitted.map, Chain):
                raise TypeError(f"the map of Fitted must be a Chain of steps; got {shown(fitted.map)}")
            result = with_reference_class(fitted.map(given.logits[:1].astype(np.float64)))
        except GlayersError:
            raise
        except Exception as problem:
            raise GlayersError(f"{name} could not be fitted, {type(problem).__name__}: {problem}") from problem
        if result.shape != (1, given.n_classes) or np.isnan(result).any():
            raise GlayersError(f"{name}: its map must give {given.n_classes} logits per row; got {shown(result)}")
        return fitted

    def _measured(self, fitted: Fitted, found: Chain, given: Predictions) -> Diagnostics:
        """Return the facts of a fit, without its notes and its time."""
        loss = smooth_loss(getattr(self, "loss", "log"))
        before, after = fitted.losses or (mean_loss(loss, Chain(()), given), mean_loss(loss, found, given))
        # Rows of weight 0 do not count.
        counts = np.bincount(given.labels, None if given.weights is None else given.weights > 0, given.n_classes)
        return Diagnostics(
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
        )

    def _general_notes(self, facts: Diagnostics, noted: bool) -> list[str]:
        """Return the warnings that apply to every method: no convergence, no gain, classes without a row."""
        notes = []
        if not noted and not facts.converged:
            notes.append(f"{facts.method}: {facts.reason}")
        changed = facts.converged or facts.moved
        if changed and self._warns_if_loss_rises and not noted and not facts.loss_after < facts.loss_before:
            losses = f"{facts.loss_before:.6g} before, {facts.loss_after:.6g} after"
            notes.append(f"{facts.method} did not lower the loss of the calibration rows: {losses}")
        if facts.classes_never_seen:
            names = listed(map(str, facts.classes_never_seen), at_most=5)
            hint = " (are the labels numbered from 1?)" if facts.classes_never_seen == (0,) else ""
            notes.append(f"no row is labelled {names}{hint}: their probabilities cannot be calibrated from these rows")
        return notes

    def _issue_warnings(self) -> Self:
        """Issue the warnings of a fit; called by `fit` and `fit_predictions` themselves, so `stacklevel` is right."""
        facts = self.diagnostics_
        for note in facts.notes:
            warnings.warn(note, GlayersWarning, stacklevel=3)
        rows = plural(facts.rows, "row")
        losses = f"mean loss {facts.loss_before:.4f} before, {facts.loss_after:.4f} after"
        _LOGGER.info("fitted %s on %s in %.2f s: %s; %s", facts.method, rows, facts.seconds, facts.reason, losses)
        return self

    def _check_loaded(self) -> None:
        """Refuse what a file says if it is about another number of classes; a subclass may check more."""
        if len(self.calibration_rows_.predicted) != len(self.classes_):
            raise BadFile(f"its counts are about {len(self.calibration_rows_.predicted)} classes")


def check_calibrator(value: object) -> None:
    """Refuse what is no fitted calibrator."""
    if not isinstance(value, Calibrator):
        raise GlayersError(f"pass a fitted calibrator, or glayers.load(path); got {shown(value)}")
    value._check_fitted()


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == __package__.partition(".")[0]


def _probabilities(inputs: str, given: Predictions) -> Floats:
    """Return the checked probabilities that the first step of a map takes."""
    return CHECKS[inputs](map_inputs(inputs, given)).astype(np.float64)


@cache
def _versions() -> dict[str, str]:
    from importlib.metadata import version  # on first use: loading a calibrator does not need it

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
