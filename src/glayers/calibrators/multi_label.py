"""Logits and labels of rows that may have several labels -> one calibrator per label, each present or not.

Labels are not classes that exclude each other: their probabilities do not sum to 1, and a softmax would be wrong. Each
label is a problem of its own, with one logit.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from glayers.activations import as_one_logit, sigmoid
from glayers.arrays import Array, Floats, Ints, to_floats
from glayers.calibrators.auto import AutoCalibrator
from glayers.calibrators.base import Calibrator
from glayers.calibrators.estimator import Estimator, clone
from glayers.calibrators.label_curve import LabelCurve
from glayers.checks import two_dimensional
from glayers.errors import BadFile, BadPredictions, GlayersError, GlayersWarning, listed, shown
from glayers.maps import Chain
from glayers.maps.steps import EachColumn
from glayers.predictions import Predictions
from glayers.predictions.several_labels import MultiLabelPredictions
from glayers.serving.predictor import CHECKS, Diagnostics, Predictor


class MultiLabelCalibrator(Estimator, Predictor):
    """Calibrate every label of rows that may have several labels, or none.

    Parameters
    ----------
    calibrator : Calibrator, optional
        The method; a copy of it is fitted for each label. By default `LabelCurve()`: a label with few positive rows
        borrows strength from the other labels. With `inputs="probabilities"`, `fit` and the predictions take a
        probability per label instead of a logit.

    Attributes
    ----------
    calibrators_ : tuple of Calibrator
        The fitted calibrator of each label.
    class_names_ : tuple of str or None
        The names of the labels: the columns of the data frame of logits that it was fitted on.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(5000, 3)) * 2
    >>> labels = (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(float)  # z is calibrated: 3 z is overconfident
    >>> labels[:1000, 0] = np.nan  # missing
    >>> fitted = MultiLabelCalibrator().fit(3 * z, labels)
    >>> fitted.predict_proba([[3.0, 0.0, -3.0]]).round(1).tolist()
    [[0.7, 0.5, 0.3]]
    """

    calibrator: Any = None

    link = "sigmoid"
    of_parts = True

    @classmethod
    def by(cls, method: "Calibrator | MultiLabelCalibrator") -> "MultiLabelCalibrator":
        """Return the calibrator of several labels by a method: `auto` of several labels is the default."""
        if isinstance(method, MultiLabelCalibrator):
            return method
        if isinstance(method, AutoCalibrator):
            method = LabelCurve(inputs=method.inputs)
        return cls(method)

    @property
    def is_default(self) -> bool:
        """Whether labels share what they learn."""
        return isinstance(self.method, LabelCurve)

    @property
    def method(self) -> Calibrator:
        """The checked setting, or the default."""
        method = LabelCurve() if self.calibrator is None else self.calibrator
        if not isinstance(method, Calibrator) or method.inputs == "confidence":
            raise GlayersError(
                f"calibrator must be a calibrator of logits or probabilities, such as BetaCalibration(); got "
                f"{shown(self.calibrator)}"
            )
        return method

    def fit(self, logits: Any, labels: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit one calibrator per label, on rows that the network was not trained on.

        Parameters
        ----------
        logits : array-like of shape (n_rows, n_labels)
            One logit per label, whose sigmoid is the probability that the row has the label.
        labels : array-like of shape (n_rows, n_labels)
            1 where the row has the label, 0 where it does not, and NaN where nobody knows: such a row is left out of
            the fit of this label.
        sample_weight, groups : array-like of shape (n_rows,), optional
            As for `Calibrator.fit`.

        Returns
        -------
        Self
            The fitted calibrator.
        """
        return self._fit_and_keep(self.record(logits, labels, sample_weight, groups))._issue_warnings()

    def fit_predictions(self, predictions: MultiLabelPredictions) -> Self:
        """Fit on `MultiLabelPredictions`, and keep the names of their labels."""
        return self._fit_and_keep(predictions)._issue_warnings()

    def record(self, logits: Any, labels: Any, sample_weight: Any = None, groups: Any = None) -> MultiLabelPredictions:
        """Return rows as `MultiLabelPredictions`; with `inputs="probabilities"`, of probabilities."""
        if self.method.inputs == "probabilities":
            return MultiLabelPredictions.from_probabilities(logits, labels, sample_weight, groups)
        return MultiLabelPredictions(logits, labels, sample_weight, groups)

    def _fit_and_keep(self, given: MultiLabelPredictions) -> Self:
        """Fit, and keep what was learned, without warnings."""
        _check_record(given)
        by_label = given.by_label()
        missing = [name for name in given.names if name not in by_label]
        if missing:
            raise BadPredictions(f"labels {listed(missing)} are missing in every row; leave out their columns")
        method = self.method._with_prior_of(list(by_label.values()))
        self._set_fits([clone(method)._fit_and_keep(rows) for rows in by_label.values()], given.label_names)
        return self

    def _issue_warnings(self) -> Self:
        notes = self.diagnostics_.notes
        if notes:
            warnings.warn(
                f"{len(notes)} notes on {len(self.calibrators_)} labels are in diagnostics_.notes; the first is about "
                f"{notes[0]}",
                GlayersWarning,
                stacklevel=3,
            )
        return self

    def apply(self, predictions: MultiLabelPredictions) -> MultiLabelPredictions:  # type: ignore[override]
        """Return `MultiLabelPredictions` with calibrated logits."""
        logits = np.empty((len(predictions), 1))
        for number, rows in self.rows_of_labels(predictions).items():
            logits[predictions.columns == number] = as_one_logit(self.calibrators_[number].apply(rows).logits)
        return predictions.with_logits(logits)

    def rows_of_labels(self, predictions: MultiLabelPredictions) -> dict[int, Predictions]:
        """Return the rows of each label that has some, by its number, after checking that the labels are the same."""
        self._check_fitted()
        _check_record(predictions)
        if predictions.n_labels != self.n_features_in_:
            raise BadPredictions(f"fitted on {self.n_features_in_} labels; got {predictions.n_labels}")
        self._check_names(predictions.label_names)
        return {predictions.names.index(name): rows for name, rows in predictions.by_label().items()}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the labels, or their numbers as text."""
        return self.class_names_ or tuple(map(str, range(self.n_features_in_)))

    def predict(self, logits: Any) -> Ints:
        """Return 1 where a label is more likely than not, and 0 elsewhere (n_rows, n_labels)."""
        return (self.predict_proba(logits) > 0.5).astype(np.int64)

    @property
    def diagnostics_(self) -> Diagnostics:  # type: ignore[override]
        """The facts of all fits together: losses are means over the labels, and rows are those of the largest label."""
        fits = [fit.diagnostics_ for fit in self.calibrators_]
        present = [fit.labels_per_class[1] for fit in fits]
        return replace(
            fits[0],
            method=f"{fits[0].method} of each label",
            converged=all(fit.converged for fit in fits),
            iterations=max(fit.iterations for fit in fits),
            loss_before=float(np.mean([fit.loss_before for fit in fits])),
            loss_after=float(np.mean([fit.loss_after for fit in fits])),
            moved=any(fit.moved for fit in fits),
            rows=max(fit.rows for fit in fits),
            labels_per_class=tuple(present),
            classes_never_seen=tuple(np.flatnonzero(np.array(present) == 0).tolist()),
            n_parameters=sum(fit.n_parameters for fit in fits),
            seconds=sum(fit.seconds or 0.0 for fit in fits),
            notes=tuple(
                f"label {name}: {note}" for name, fit in zip(self.names, fits, strict=True) for note in fit.notes
            ),
        )

    def _probabilities(self, logits: Floats) -> Floats:
        return np.asarray(sigmoid(self.map_(logits)))

    def _checked(self, values: Any) -> Array:
        """Return what was passed as an array (n_rows, n_labels), of which each column can be calibrated."""
        scores = two_dimensional(to_floats(values, "logits"), "logits")
        self._check_width(scores)
        return np.concatenate([CHECKS[self.inputs](column[:, None]) for column in scores.T], axis=1)

    def _set_fits(self, fits: Sequence[Calibrator], names: tuple[str, ...] | None) -> None:
        self.calibrators_ = tuple(fits)
        self.class_names_ = names
        self.inputs = fits[0].inputs
        self.n_features_in_ = len(fits)
        self.classes_ = np.arange(len(fits))
        self.versions_ = fits[0].versions_
        self.map_ = Chain((EachColumn(tuple(each.map_ for each in fits)),))

    def _posterior_arrays(self) -> dict[str, Floats]:
        return {}

    def _fitted_parts(self) -> dict[str, Calibrator]:
        return {str(number): each for number, each in enumerate(self.calibrators_)}

    @classmethod
    def _from_parts(cls, parts: Mapping[str, Calibrator]) -> Self:
        fits = list(parts.values())
        if any(fit.n_features_in_ != 1 or fit.inputs != fits[0].inputs for fit in fits):
            raise BadFile("the calibrator of a label must take one logit, or one probability, as all others do")
        new = cls(clone(fits[0]))
        new._set_fits(fits, None)
        return new


def _check_record(record: object) -> None:
    if not isinstance(record, MultiLabelPredictions):
        raise BadPredictions(f"needs MultiLabelPredictions(logits, labels); got {shown(record)}")
