"""A fitted map and logits of any array library -> calibrated logits and probabilities in the same library.

Everything here needs NumPy alone, so that a server can load a calibrator and predict without scikit-learn and SciPy.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
from array_api_compat import is_array_api_obj, is_numpy_array

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Array, Floats, Ints, array_namespace, column_names, device_of, is_dask, to_floats
from glayers.checks import check_confidence, check_probabilities, finite_features, isolated_lowest, possible_logits
from glayers.errors import BadPredictions, GlayersWarning, listed, shown
from glayers.maps import Chain
from glayers.serving.fast import Fast, applied

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
    """What predicts: a fitted map and the facts about it. Every calibrator is one."""

    inputs: Literal["logits", "probabilities", "confidence"] = "logits"
    map_: Chain
    diagnostics_: Diagnostics
    n_features_in_: int
    classes_: Ints
    class_names_: tuple[str, ...] | None
    versions_: dict[str, str]

    def predict_proba(self, logits: Any) -> Any:
        """Return calibrated probabilities (n_rows, n_classes), each row summing to 1.

        Parameters
        ----------
        logits : array of shape (n_rows, n_logits)
            Logits, or what the setting `inputs` names. NumPy arrays, and what NumPy can read, give NumPy arrays in
            float64. Arrays of torch, JAX or CuPy give arrays of that library, in the precision of the logits and at
            least float32. Then values are not checked, so that the function can be traced: a row with NaN or +inf gives
            NaN. A dask array gives a dask array, whose blocks are computed as NumPy arrays when they are needed.

        Returns
        -------
        array of shape (n_rows, n_classes)
        """
        if is_dask(logits):
            return self._lazily(self.predict_proba, logits)
        if is_array_api_obj(logits) and not is_numpy_array(logits):
            return softmax(self.transform(logits))
        self._check_fitted()
        return self._computed(Fast.of(self.map_).probabilities, logits)

    def transform(self, logits: Any) -> Any:
        """Return calibrated logits (n_rows, n_classes). Their softmax is `predict_proba`, which describes `logits`."""
        self._check_fitted()
        if is_dask(logits):
            return self._lazily(self.transform, logits)
        if is_array_api_obj(logits) and not is_numpy_array(logits):
            return calibrated_logits(self.map_, self._rows(logits))
        return self._computed(Fast.of(self.map_).logits, logits)

    def _computed(self, function: Callable[[Floats], Floats], logits: Any) -> Floats:
        """Return what a function gives for checked logits, block by block."""
        self._check_names(class_names_of(logits))
        if getattr(logits, "shape", None) == (0, self.n_features_in_):  # an empty batch; `fit` and metrics refuse it
            return np.empty((0, len(self.classes_)))
        given = CHECKS[self.inputs](logits)
        for note in mask_notes(self.inputs, given):
            warnings.warn(note, GlayersWarning, stacklevel=3)
        if given.shape[1] != self.n_features_in_:
            raise BadPredictions(f"fitted on {self.n_features_in_} logits per row; got {given.shape[1]}")
        if len(self.classes_) != max(2, given.shape[1]):
            finite_features(given)
        with np.errstate(over="ignore", invalid="ignore"):  # the check below names the row
            result = applied(function, given, len(self.classes_))
        bad = ~np.isfinite(result.max(axis=1))  # NaN or infinity; -inf below a finite maximum is a masked class
        if bad.any():
            raise BadPredictions(
                f"the map has no result for row {bad.argmax()}: its logits are too large, or the calibrator was loaded "
                f"from a forged file"
            )
        return result

    def _rows(self, array: Any) -> Any:
        """Return an array (rows, logits) of any library; one number per row may have one axis."""
        rows = array[:, None] if array.ndim == 1 == self.n_features_in_ else array
        if rows.ndim != 2 or rows.shape[1] != self.n_features_in_:
            raise BadPredictions(f"logits must have shape (rows, {self.n_features_in_}); got {tuple(array.shape)}")
        return rows

    def _lazily(self, function: Callable[[Any], Any], array: Any) -> Any:
        """Return a dask array whose blocks are those of another, put through a function."""
        self._check_fitted()
        whole = self._rows(array).rechunk({1: -1})  # a block needs all classes of its rows
        chunks = (whole.chunks[0], (len(self.classes_),))
        return whole.map_blocks(function, chunks=chunks, dtype=np.float64, meta=np.empty((0, 0)))

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

    def to_onnx(
        self,
        path: str | os.PathLike[str],
        dtype: Literal["float32", "float64"] = "float32",
        compute_dtype: Literal["float64", "float32"] = "float64",
    ) -> None:
        """Write the fitted calibrator to an ONNX file, after comparing its results with those of NumPy.

        The input `uncalibrated_logits` has shape (rows, n_logits), and the outputs `logits` and `probabilities` have
        shape (rows, n_classes), for any number of rows. A logit of -inf marks an impossible class. A row with NaN or
        +inf gives NaN. The opset is 18, and the metadata hold the class names as JSON.

        Parameters
        ----------
        path : str or path-like
            Where to write. The file appears complete or not at all.
        dtype : {"float32", "float64"}, default "float32"
            The type of input and outputs.
        compute_dtype : {"float64", "float32"}, default "float64"
            The precision of the computation. Choose "float32" only for hardware without float64.

        Raises
        ------
        GlayersError
            If the results differ from those of NumPy, for logits up to 1e4. Nothing is written.
        """
        self._check_fitted()
        with needs_onnx():
            from glayers.serving import onnx
        onnx.export(self, path, dtype, compute_dtype)

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


class LabelPredictor:
    """What predicts rows that may have several labels: one predictor of one logit per label."""

    calibrators_: tuple[Predictor, ...]
    label_names_: tuple[str, ...] | None
    n_features_in_: int

    def predict_proba(self, logits: Any) -> Floats:
        """Return the calibrated probability of each label (n_rows, n_labels). Rows do not sum to 1."""
        return self._of_each_label(logits, lambda fitted, column: fitted.predict_proba(column)[:, 1])

    def transform(self, logits: Any) -> Floats:
        """Return one calibrated logit per label (n_rows, n_labels), whose sigmoid is `predict_proba`."""
        return self._of_each_label(logits, lambda fitted, column: np.diff(fitted.transform(column))[:, 0])

    def predict(self, logits: Any) -> Ints:
        """Return 1 where a label is more likely than not, and 0 elsewhere (n_rows, n_labels)."""
        return (self.predict_proba(logits) > 0.5).astype(np.int64)

    def to_onnx(
        self,
        path: str | os.PathLike[str],
        dtype: Literal["float32", "float64"] = "float32",
        compute_dtype: Literal["float64", "float32"] = "float64",
    ) -> None:
        """Write the calibrators of all labels to one ONNX file, after comparing its results with those of NumPy.

        The input is `uncalibrated_logits`, and the outputs are `logits` and `probabilities`, all of shape (rows,
        n_labels). Settings are those of `Calibrator.to_onnx`. The metadata hold the label names as JSON.
        """
        self._check_fitted()
        with needs_onnx():
            from glayers.serving import onnx
        onnx.export(self, path, dtype, compute_dtype)

    def check_names(self, names: tuple[str, ...] | None) -> None:
        """Refuse the names of other labels, or of the same ones in another order."""
        if None not in (names, self.label_names_) and names != self.label_names_:
            raise BadPredictions(
                f"fitted on the labels {shown(self.label_names_)}; got {shown(names)}. Give the columns in the order "
                f"of `label_names_`, or an array without names"
            )

    def _of_each_label(self, logits: Any, predict: Callable[[Predictor, Array], Array]) -> Floats:
        each = zip(self.calibrators_, self._columns(logits), strict=True)
        return np.column_stack([predict(fitted, column) for fitted, column in each])

    def _columns(self, logits: Any) -> list[Array]:
        """Return the checked logits of each label, (n_rows, 1)."""
        self._check_fitted()
        self.check_names(column_names(logits))
        scores = to_floats(logits, "logits")
        if scores.ndim != 2 or scores.shape[1] != len(self.calibrators_):
            raise BadPredictions(f"fitted on {len(self.calibrators_)} labels; got an array of shape {scores.shape}")
        return [column[:, None] for column in scores.T]

    def _check_fitted(self) -> None:
        """Raise an error if there are no calibrators yet; one that was loaded always has them."""


def class_names_of(scores: object) -> tuple[str, ...] | None:
    """Return the columns of a data frame with one column per class; a single column names class 1 of two only."""
    names = column_names(scores)
    return names if names is not None and len(names) > 1 else None


def mask_notes(inputs: str, logits: Array) -> list[str]:
    """Return a warning if a finite logit seems to mark masked classes."""
    lowest = isolated_lowest(logits) if inputs == "logits" else None
    if lowest is None:
        return []
    return [
        f"the lowest logit, {lowest:.6g}, occurs several times, well below all others. If it marks impossible classes, "
        f"use -inf instead: a finite value may change the probabilities of the other classes"
    ]


def apply_map(chain: Chain, logits: Array, n_classes: int | None = None) -> Floats:
    """Return calibrated logits (n, classes) in float64, block by block."""
    return applied(Fast.of(chain).logits, logits, n_classes or max(2, logits.shape[1]))


def calibrated_logits(chain: Chain, logits: Any) -> Any:
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
    below = xp.sum(xp.astype(wide < xp.inf, wide.dtype), axis=-1, keepdims=True) == wide.shape[-1]
    possible = below & (xp.max(wide, axis=-1, keepdims=True) > -xp.inf) if wide.shape[-1] > 1 else below
    return xp.where(possible, with_reference_class(held(wide)), xp.nan)


@contextmanager
def needs_onnx() -> Iterator[None]:
    """Name the extra to install if an import inside finds no library for ONNX."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f'{error.name} is missing: pip install "glayers[onnx]"', name=error.name) from error
