"""Logits and labels of rows that may have several labels -> one calibrator per label, each present or not.

Labels are not classes that exclude each other: their probabilities do not sum to 1, and a softmax would be wrong. Each
label is a problem of its own, with one logit.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from glayers.activations import sigmoid
from glayers.arrays import Array, Floats, Ints, to_floats
from glayers.calibrators.base import Calibrator
from glayers.calibrators.estimator import Estimator, clone
from glayers.calibrators.one_versus_rest import BetaCalibration
from glayers.checks import check_label_matrix, two_dimensional
from glayers.errors import BadFile, GlayersError, GlayersWarning, shown
from glayers.maps import Chain
from glayers.maps.steps import EachColumn
from glayers.serving.predictor import CHECKS, Diagnostics, Predictor, class_names_of


class MultiLabelCalibrator(Estimator, Predictor):
    """Calibrate every label of rows that may have several labels, or none.

    Parameters
    ----------
    calibrator : Calibrator, optional
        The method; a copy of it is fitted for each label. By default `BetaCalibration()`. With
        `inputs="probabilities"`, `fit` and the predictions take a probability per label instead of a logit.

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
    >>> labels = (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(int)  # z is calibrated, so 3 z is overconfident
    >>> fitted = MultiLabelCalibrator().fit(3 * z, labels)
    >>> fitted.predict_proba([[3.0, 0.0, -3.0]]).round(1).tolist()
    [[0.7, 0.5, 0.3]]
    """

    calibrator: Any = None

    link: ClassVar[Literal["softmax", "sigmoid"]] = "sigmoid"
    of_parts: ClassVar[bool] = True

    def fit(self, logits: Any, labels: Any, sample_weight: Any = None, groups: Any = None) -> Self:
        """Fit one calibrator per label, on rows that the network was not trained on.

        Parameters
        ----------
        logits : array-like of shape (n_rows, n_labels)
            One logit per label, whose sigmoid is the probability that the row has the label.
        labels : array-like of shape (n_rows, n_labels)
            1 where the row has the label, and 0 where it does not.
        sample_weight, groups : array-like of shape (n_rows,), optional
            As for `Calibrator.fit`.

        Returns
        -------
        Self
            The fitted calibrator.
        """
        method = BetaCalibration() if self.calibrator is None else self.calibrator
        if not isinstance(method, Calibrator) or method.inputs == "confidence":
            raise GlayersError(
                f"calibrator must be a calibrator of logits or probabilities, such as BetaCalibration(); got "
                f"{shown(self.calibrator)}"
            )
        scores = two_dimensional(to_floats(logits, "logits"), "logits")
        truth = check_label_matrix(labels, scores.shape)
        if method.inputs == "logits" and len(scores) > 1 and scores.min() >= 0 and scores.max() <= 1:
            warnings.warn(
                "all logits lie between 0 and 1: if they are probabilities, fit "
                'MultiLabelCalibrator(BetaCalibration(inputs="probabilities"))',
                GlayersWarning,
                stacklevel=2,
            )
        fits = []
        with warnings.catch_warnings(action="ignore", category=GlayersWarning):  # the notes are counted below
            for column, present in zip(scores.T, truth.T, strict=True):
                fits.append(clone(method).fit(column[:, None], present, sample_weight, groups))
        self._set_fits(fits, class_names_of(logits))
        notes = self.diagnostics_.notes
        if notes:
            warnings.warn(
                f"{len(notes)} notes on {len(fits)} labels are in diagnostics_.notes; the first is about {notes[0]}",
                GlayersWarning,
                stacklevel=2,
            )
        return self

    def predict(self, logits: Any) -> Ints:
        """Return 1 where a label is more likely than not, and 0 elsewhere (n_rows, n_labels)."""
        return (self.predict_proba(logits) > 0.5).astype(np.int64)

    @property
    def diagnostics_(self) -> Diagnostics:  # type: ignore[override]
        """The facts of all fits together: losses are means over the labels, and rows are counted per label."""
        fits = [fit.diagnostics_ for fit in self.calibrators_]
        names = self.class_names_ or range(len(fits))
        present = [fit.labels_per_class[1] for fit in fits]
        return replace(
            fits[0],
            method=f"{fits[0].method} of each label",
            converged=all(fit.converged for fit in fits),
            iterations=max(fit.iterations for fit in fits),
            loss_before=float(np.mean([fit.loss_before for fit in fits])),
            loss_after=float(np.mean([fit.loss_after for fit in fits])),
            moved=any(fit.moved for fit in fits),
            labels_per_class=tuple(present),
            classes_never_seen=tuple(np.flatnonzero(np.array(present) == 0).tolist()),
            n_parameters=sum(fit.n_parameters for fit in fits),
            seconds=sum(fit.seconds or 0.0 for fit in fits),
            notes=tuple(f"label {name}: {note}" for name, fit in zip(names, fits, strict=True) for note in fit.notes),
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
