"""Any object with `fit` and `predict_proba`, or a function of probabilities -> a calibrator of this library.

Its map has one step, which calls the object. So everything that takes a calibrator takes it too. Only a file, torch
and ONNX need steps of this library, and refuse it.
"""

import copy
import inspect
from typing import Any, Literal

import numpy as np

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Floats
from glayers.calibrators.base import Calibrator, Fitted
from glayers.calibrators.estimator import Estimator
from glayers.checks import check_choice
from glayers.errors import GlayersError, shown
from glayers.maps import Chain, Step
from glayers.predictions import Predictions


class OutsideStep(Step):
    """What an object outside of this library predicts, as log-probabilities (n, classes)."""

    predict: Any  # a function: an array (n, classes) in, probabilities out
    takes: str
    n_classes: int
    classes: tuple[int, ...]  # those of the columns that `predict` returns

    completes = True
    normalises = True

    def __call__(self, logits: Any) -> Any:
        """Call the object with NumPy arrays."""
        if not isinstance(logits, np.ndarray):
            raise GlayersError(
                "a calibrator from outside of glayers computes with NumPy alone: pass NumPy arrays. It cannot be "
                "exported or become part of a network"
            )
        wide = with_reference_class(logits)
        given = np.ascontiguousarray(softmax(wide) if self.takes == "probabilities" else logits)
        try:
            found = np.asarray(self.predict(given))
            found = found.astype(np.float64, casting="unsafe" if found.dtype == object else "same_kind")
        except Exception as problem:
            raise GlayersError(f"predicting failed, {type(problem).__name__}: {problem}") from problem
        probabilities = self._checked(found, len(given))
        with np.errstate(divide="ignore"):  # log 0 = -inf
            return np.log(np.where(np.isneginf(wide), 0.0, probabilities))

    def _checked(self, found: Floats, n_rows: int) -> Floats:
        """Return probabilities of all classes: 0 for those that the object has never seen."""
        expected = n_rows, len(self.classes)
        if found.shape != expected:
            raise GlayersError(f"probabilities must have shape (rows, classes), {expected}; got {found.shape}")
        sums = found.sum(axis=1)
        bad = ~((found >= 0).all(axis=1) & (np.abs(sums - 1) < 1e-3))
        if bad.any():
            row = int(bad.argmax())
            raise GlayersError(f"probabilities must not be negative and sum to 1; row {row} is {shown(found[row])}")
        result = np.zeros((n_rows, self.n_classes))
        result[:, self.classes] = found / sums[:, None]
        return result


class OutsideCalibrator(Calibrator):
    """Use a calibrator of another library, or a function of probabilities, like one of glayers.

    `compare`, `CalibratedClassifier` and all others that take a calibrator make one of what they are given. Make it
    yourself for an object that takes logits. It is not saved or exported, because a file holds no code.

    Parameters
    ----------
    calibrator : object
        With `fit(X, y)` and `predict_proba(X)`; a copy of it is fitted. Or a function of probabilities
        (n_rows, n_classes) that returns probabilities of the same shape; nothing is fitted then.
    takes : {"probabilities", "logits"}, default "probabilities"
        What it is given: probabilities (n_rows, n_classes), or the logits as they are.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(5000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> fitted = OutsideCalibrator(LogisticRegression(), takes="logits").fit(3 * z, labels)
    >>> fitted.predict_proba([[6.0, 0.0, 0.0]]).round(1).tolist()
    [[0.8, 0.1, 0.1]]
    """

    calibrator: Any = None
    takes: Literal["probabilities", "logits"] = "probabilities"

    _warns_if_loss_rises = False

    def _fit(self, given: Predictions) -> Fitted:
        check_choice(self.takes, ("probabilities", "logits"), "takes")
        if not is_outside(self.calibrator):
            raise GlayersError(
                f"calibrator must have fit and predict_proba, or be a function of probabilities; got "
                f"{shown(self.calibrator)}"
            )
        name = getattr(self.calibrator, "__name__", type(self.calibrator).__name__)
        if not _is_fitted_on_rows(self.calibrator):
            every = tuple(range(given.n_classes))
            step = OutsideStep(self.calibrator, self.takes, given.n_classes, every)
            return Fitted(Chain((step,)), name, reason="a function: nothing was fitted", iterations=0)
        rows = given.logits if self.takes == "logits" else given.probabilities()
        weights = {}
        notes = []
        if given.weights is not None:
            if "sample_weight" in inspect.signature(self.calibrator.fit).parameters:
                weights = {"sample_weight": given.weights / given.weights.mean()}  # a common factor changes nothing
            else:
                notes = [f"{name} takes no sample_weight: it was fitted without weights"]
        try:
            fitted = copy.deepcopy(self.calibrator)
            fitted.fit(rows, given.labels, **weights)
        except Exception as problem:
            raise GlayersError(f"{name} could not be fitted, {type(problem).__name__}: {problem}") from problem
        labels = range(given.n_classes)
        classes = np.asarray(getattr(fitted, "classes_", labels)).tolist()
        if len(set(classes)) != len(classes) or not set(classes) <= set(labels):
            raise GlayersError(f"{name}: classes_ must be different labels that it was given; got {shown(classes)}")
        step = OutsideStep(fitted.predict_proba, self.takes, given.n_classes, tuple(classes))
        return Fitted(Chain((step,)), name, reason=f"as {name} says", notes=notes)


def is_outside(value: object) -> bool:
    """Return whether a value is a calibrator from outside: an object to fit, or a function of probabilities."""
    if isinstance(value, type | Estimator):
        return False
    return _is_fitted_on_rows(value) or callable(value)


def _is_fitted_on_rows(value: object) -> bool:
    return hasattr(value, "fit") and hasattr(value, "predict_proba")
