"""A fitted map and logits of any array library -> calibrated logits and probabilities in the same library.

Everything here needs NumPy alone, so that a server can load a calibrator and predict without scikit-learn and SciPy.
"""

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array

from glayers.activations import LINKS, with_reference_class
from glayers.arrays import Array, Floats, Ints, array_namespace, column_names, device_of
from glayers.checks import check_confidence, check_probabilities, possible_logits
from glayers.errors import BadPredictions, GlayersError, listed, needs_extra
from glayers.maps import Chain
from glayers.serving.fast import Fast, applied
from glayers.serving.sets import class_scores, classes_in_sets

if TYPE_CHECKING:
    from glayers.predictions import Confidences, Predictions

_Record = TypeVar("_Record", bound="Predictions | Confidences")

# How `transform` checks each kind of input, and makes an array (n, m) of it.
CHECKS: Mapping[str, Callable[[object], Array]] = {
    "logits": possible_logits,
    "probabilities": check_probabilities,
    "confidence": lambda values: check_confidence(values)[:, None],
}


@dataclass(frozen=True)
class Diagnostics:
    """The facts of one fit. Losses are means over the calibration rows; `notes` are the warnings that `fit` issues."""

    method: str
    converged: bool
    reason: str
    iterations: int
    loss_before: float
    loss_after: float
    moved: bool
    rows: int
    labels_per_class: tuple[int, ...]
    classes_never_seen: tuple[int, ...]
    n_parameters: int
    seconds: float | None = None  # not in a file: the same fit gives the same bytes
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the facts by name, ready for JSON."""
        return asdict(self)


class Predictor:
    """What predicts: a fitted map and the facts about it. Every calibrator is one.

    Its `link` turns calibrated logits into probabilities: of classes by softmax, of several labels by sigmoid.
    """

    link: ClassVar[Literal["softmax", "sigmoid"]] = "softmax"
    inputs: Literal["logits", "probabilities", "confidence"] = "logits"
    map_: Chain
    diagnostics_: Diagnostics
    n_features_in_: int
    classes_: Ints
    class_names_: tuple[str, ...] | None
    versions_: dict[str, str]
    set_thresholds_: Any = None  # or SetThresholds

    def predict_proba(self, logits: Any) -> Any:
        """Return calibrated probabilities (n_rows, n_classes), each row summing to 1.

        Parameters
        ----------
        logits : array of shape (n_rows, n_logits)
            Logits, or what the setting `inputs` names. NumPy arrays, and what NumPy can read, give NumPy arrays in
            float64. Arrays of torch, JAX or CuPy give arrays of that library, in the precision of the logits and at
            least float32. Then values are not checked, so that the function can be traced: a row with NaN or +inf gives
            NaN.

        Returns
        -------
        array of shape (n_rows, n_classes)
        """
        self._check_fitted()
        if _is_foreign(logits):
            return LINKS[self.link](self.transform(logits))
        return self._computed(self._probabilities, logits)

    def transform(self, logits: Any) -> Any:
        """Return calibrated logits (n_rows, n_classes). Their softmax is `predict_proba`, which describes `logits`."""
        self._check_fitted()
        if _is_foreign(logits):
            return calibrated_logits(self.map_, self._as_rows(logits), self.link)
        if self.link == "sigmoid":  # a single label has no reference class
            return self._computed(self.map_, logits)
        return self._computed(Fast.of(self.map_).logits, logits)

    def _probabilities(self, logits: Floats) -> Floats:
        """Return the probabilities of checked logits."""
        return Fast.of(self.map_).probabilities(logits)

    def _checked(self, values: Any) -> Array:
        """Return what was passed as an array (n, n_features_in_)."""
        given = CHECKS[self.inputs](values)
        self._check_width(given)
        return given

    def _check_width(self, given: Array) -> None:
        if given.shape[1] != self.n_features_in_:
            raise BadPredictions(f"fitted on {self.n_features_in_} logits per row; got {given.shape[1]}")

    def _as_rows(self, array: Any) -> Any:
        """Return an array of another library as (n, n_features_in_)."""
        rows = array[:, None] if array.ndim == 1 == self.n_features_in_ else array  # one number per row
        if rows.ndim != 2 or rows.shape[1] != self.n_features_in_:
            raise BadPredictions(f"logits must have shape (rows, {self.n_features_in_}); got {tuple(array.shape)}")
        return rows

    def _computed(self, function: Callable[[Floats], Floats], logits: Any) -> Floats:
        """Return what a function gives for checked logits, block by block."""
        self._check_names(class_names_of(logits))
        if getattr(logits, "shape", None) == (0, self.n_features_in_):  # an empty batch; `fit` and metrics refuse it
            return np.empty((0, len(self.classes_)))
        given = self._checked(logits)
        with np.errstate(over="ignore", invalid="ignore"):  # the check below names the row
            result = applied(function, given, len(self.classes_))
        if not math.isfinite(np.add.reduce(result, axis=None)):
            self._refuse_rows_without_result(result)
        return result

    def _refuse_rows_without_result(self, result: Floats) -> None:
        bad = np.isnan(result).any(axis=1)
        if self.link == "softmax":
            bad = ~np.isfinite(result.max(axis=1))  # -inf below a finite maximum is a masked class
        if bad.any():
            raise BadPredictions(
                f"the map has no result for row {bad.argmax()}: its logits are too large, or the calibrator was loaded "
                f"from a forged file"
            )

    def apply(self, predictions: _Record) -> _Record:
        """Return `Predictions` or `Confidences` with calibrated logits or a calibrated confidence.

        Other than `transform`, it takes `Predictions` whether the calibrator's `inputs` are logits or probabilities.
        """
        from glayers.predictions.predictions import (  # predicting needs none of them
            Confidences,
            map_inputs,
            two_classes,
        )

        given = two_classes(self.inputs, predictions)
        if isinstance(predictions, Confidences):
            return predictions.with_confidence(self.predict_proba(predictions.confidence)[:, 1])
        self._check_names(given.class_names)
        return predictions.with_logits(self.transform(map_inputs(self.inputs, given)))

    def predict(self, logits: Any) -> Any:
        """Return the most probable class of each row."""
        calibrated = self.transform(logits)  # first, as it raises if nothing is fitted
        places = array_namespace(calibrated).argmax(calibrated, axis=1)
        return self.classes_[places] if isinstance(places, np.ndarray) else places

    def predict_set(self, logits: Any, level: float = 0.9, kind: str = "least ambiguous") -> Any:
        """Return sets of classes that hold the label of a new row with a probability of about `level`.

        No second set of labelled rows is needed: thresholds come from the scores of the calibration rows, each by a fit
        that had not seen it. In theory, such cross-conformal sets may cover less than `level`; measured, they
        cover `level` within sampling error. Thresholds from `conform` cover at least `level`, whatever the map.

        Parameters
        ----------
        logits : array of shape (n_rows, n_logits)
            As for `predict_proba`.
        level : float, default 0.9
            The share of rows whose set holds the label, from 0.5 to 0.999; rounded up to half a percent, from 0.995 on
            to 0.999. With too few calibration rows for a level, every possible class is in the set.
        kind : {"least ambiguous", "adaptive"}, default "least ambiguous"
            "least ambiguous" sets hold the classes above one probability. They are smallest on average. "adaptive" sets
            hold the most probable classes up to one sum of probabilities: hard rows get more classes. Sets may be
            empty; adaptive ones only if the predicted class is right more often than `level`.

        Returns
        -------
        array of bool, of shape (n_rows, n_classes)
            Whether each class is in the set of the row.

        Raises
        ------
        GlayersError
            If there are no held-out scores: see `conform`. For several labels, groups and confidences.

        Examples
        --------
        >>> from glayers import VectorScaling
        >>> from glayers.datasets import load_fashion_mnist
        >>> calibration, test = load_fashion_mnist()
        >>> sets = VectorScaling().fit_predictions(calibration).predict_set(test.logits, level=0.95)
        >>> round(float(sets[np.arange(len(test)), test.labels].mean()), 2), round(float(sets.sum(axis=1).mean()), 1)
        (0.95, 1.1)
        """
        threshold = self._set_threshold(level, kind)
        calibrated = self.transform(logits)
        if _is_foreign(calibrated):
            return class_scores(calibrated, kind) >= threshold
        return classes_in_sets(calibrated, kind, threshold)

    def _set_threshold(self, level: float, kind: str) -> float:
        """Return the least score of classes in a set, or say why there is none."""
        self._check_fitted()
        if self.set_thresholds_ is None or self.inputs == "confidence":
            raise GlayersError(
                f"{type(self).__name__} of {self.inputs} has no held-out scores for prediction sets. Auto, "
                f"temperature, vector, matrix, Dirichlet and g-layers have them, of classes that exclude each other. "
                f"Others, and adapted ones, need labelled rows that they were not fitted on: conform(predictions)"
            )
        found: float = self.set_thresholds_.at(level, kind)
        return found

    def to_onnx(
        self,
        path: str | os.PathLike[str],
        set_level: float | None = None,
        set_kind: str = "least ambiguous",
    ) -> None:
        """Write the fitted calibrator to an ONNX file, after comparing its results with those of NumPy.

        The input `uncalibrated_logits` and the output `logits` have shape (rows, n_logits), and `probabilities` has
        shape (rows, n_classes), for any number of rows; all are float32. A single logit stays one. A logit of -inf
        marks an impossible class. A row with NaN or +inf gives NaN. The computation is in float64. The opset is 18, and
        the metadata hold the class names as JSON.

        Parameters
        ----------
        path : str or path-like
            Where to write. The file appears complete or not at all.
        set_level : float, optional
            Adds an output `set` of bool (rows, n_classes): `predict_set` at this level.
        set_kind : {"least ambiguous", "adaptive"}, default "least ambiguous"
            The kind of these sets.

        Raises
        ------
        GlayersError
            If the results differ from those of NumPy, for logits up to 1e4. Nothing is written.
        """
        self._check_fitted()
        with needs_extra("onnx"):
            from glayers.serving import onnx
        sets = None
        if set_level is not None:
            sets = set_kind, self._set_threshold(set_level, set_kind)
        onnx.export(self, path, sets)

    @property
    def n_parameters_(self) -> int:
        """The number of learned parameters."""
        return self.diagnostics_.n_parameters

    def _check_names(self, names: tuple[str, ...] | None) -> None:
        if None not in (names, self.class_names_) and names != self.class_names_:
            raise BadPredictions(
                f"the model was fitted on the classes {listed(self.class_names_ or ())}, but these rows have "
                f"{listed(names or ())}; give the columns in the model's order, or an array without names"
            )

    def _check_fitted(self) -> None:
        """Raise an error if there is no map yet; one that was loaded always has one."""


def _is_foreign(array: Any) -> bool:
    """Return whether an array belongs to another library than NumPy."""
    return type(array) is not np.ndarray and is_array_api_obj(array) and not is_numpy_array(array)


def class_names_of(scores: object) -> tuple[str, ...] | None:
    """Return the columns of a data frame with one column per class; a single column names class 1 of two only."""
    names = column_names(scores)
    return names if names is not None and len(names) > 1 else None


def apply_map(chain: Chain, logits: Array, n_classes: int | None = None) -> Floats:
    """Return calibrated logits (n, classes) in float64, block by block."""
    return applied(Fast.of(chain).logits, logits, n_classes or max(2, logits.shape[1]))


def calibrated_logits(chain: Chain, logits: Any, link: str = "softmax") -> Any:
    """Return calibrated logits (n, classes) of an array (n, m) of any library, as a pure function that can be traced.

    The computation has the precision of the logits, or float32 if theirs is lower. A traced array has no values to
    check, so a row that NumPy would refuse becomes NaN: one with NaN, +inf, or -inf for every class.

    >>> from glayers.maps import Scale
    >>> calibrated_logits(Chain((Scale(np.array(0.5)),)), np.array([[2.0, -np.inf], [0.0, np.nan]])).tolist()
    [[1.0, -inf], [nan, nan]]
    """
    xp = array_namespace(logits)
    wide = logits if logits.dtype == xp.float64 else xp.astype(logits, xp.float32)
    held = chain.map_parameters(lambda value: xp.asarray(np.asarray(value), dtype=wide.dtype, device=device_of(wide)))
    if link == "sigmoid":
        return xp.where(wide < xp.inf, held(wide), xp.nan)
    below = xp.sum(xp.astype(wide < xp.inf, wide.dtype), axis=-1, keepdims=True) == wide.shape[-1]
    possible = below & (xp.max(wide, axis=-1, keepdims=True) > -xp.inf) if wide.shape[-1] > 1 else below
    return xp.where(possible, with_reference_class(held(wide)), xp.nan)
