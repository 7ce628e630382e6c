"""Logits and labels of rows that may have several labels -> one calibrator per label, each present or not.

Labels are not classes that exclude each other: their probabilities do not sum to 1, and a softmax would be wrong. Each
label is a problem of its own, with one logit.
"""

import os
import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from glayers.arrays import column_names, to_floats
from glayers.calibrators.base import Calibrator
from glayers.calibrators.binary import BetaCalibration
from glayers.checks import check_label_matrix, two_dimensional
from glayers.errors import BadPredictions, GlayersError, GlayersWarning, shown
from glayers.serving.predictor import LabelPredictor


@dataclass(eq=False, repr=False)
class MultiLabelCalibrator(LabelPredictor, BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
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
    label_names_ : tuple of str or None
        The columns of the data frame of logits that it was fitted on.

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
        truth, names = check_label_matrix(labels, scores.shape), column_names(logits)
        if method.inputs == "logits" and len(scores) > 1 and scores.min() >= 0 and scores.max() <= 1:
            warnings.warn(
                "all logits lie between 0 and 1: if they are probabilities, fit "
                'MultiLabelCalibrator(BetaCalibration(inputs="probabilities"))',
                GlayersWarning,
                stacklevel=2,
            )
        fits = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GlayersWarning)  # each label has its notes; they are counted below
            for column, present in zip(scores.T, truth.T, strict=True):
                fits.append(clone(method).fit(column[:, None], present, sample_weight, groups))
        self._set_fits(tuple(fits), names)
        noted = [number for number, each in enumerate(fits) if each.diagnostics_.notes]
        if noted:
            first = names[noted[0]] if names else noted[0]
            warnings.warn(
                f"{len(noted)} of {len(fits)} labels have notes in calibrators_[i].diagnostics_.notes; the first is "
                f"label {first}: {fits[noted[0]].diagnostics_.notes[0]}",
                GlayersWarning,
                stacklevel=2,
            )
        return self

    def _set_fits(self, fits: tuple[Calibrator, ...], names: tuple[str, ...] | None) -> None:
        self.calibrators_, self.label_names_, self.n_features_in_ = fits, names, len(fits)

    def adapt(self, logits: Any = None, *, frequencies: Any = None, groups: Any = None) -> Self:
        """Return a copy with each label adapted by itself to another frequency, as by `Calibrator.adapt`.

        Parameters
        ----------
        logits : array-like of shape (n_rows, n_labels), optional
            New rows, from which the frequency of each label is estimated.
        frequencies : array-like of shape (n_labels,), optional
            Known frequencies instead.
        groups : array-like of shape (n_rows,), optional
            Groups of new rows that depend on each other.

        Returns
        -------
        Self
            The adapted copy; each of its `calibrators_` has an `adaptation_`.
        """
        check_is_fitted(self)
        if (logits is None) == (frequencies is None):
            raise BadPredictions("adapt takes either logits of new rows, or frequencies=; give one of them")
        each: Any
        if frequencies is None:
            each = ({"logits": column, "groups": groups} for column in self._columns(logits))
        else:
            given = to_floats(frequencies, "frequencies").astype(np.float64)
            if given.shape != (len(self.calibrators_),) or not ((given > 0) & (given < 1)).all():
                raise BadPredictions(f"give one frequency per label, between 0 and 1; got {shown(frequencies)}")
            each = ({"frequencies": (1 - frequency, frequency)} for frequency in given.tolist())
        new = clone(self)
        fits: Any = self.calibrators_  # those of an estimator, and not only predictors
        adapted = (fitted.adapt(**settings) for fitted, settings in zip(fits, each, strict=True))
        new._set_fits(tuple(adapted), self.label_names_)
        return new

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibrators of all labels to one `.safetensors` file that `glayers.load` reads."""
        from glayers.calibrators.artifact import write_multi_label  # which imports every calibrator, this one too

        self._check_fitted()
        write_multi_label(self, path)

    def _check_fitted(self) -> None:
        check_is_fitted(self)
