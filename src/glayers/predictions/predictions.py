"""Arrays -> `Predictions`: what a model said and what was true, checked once so that nothing after needs to.

Logits and probabilities are never told apart by guessing: the constructor takes logits, `from_probabilities` the other.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Array, Floats, Ints, check_labels, check_weights, row_blocks, to_floats, to_numpy
from glayers.errors import BadPredictions, GlayersWarning

_ROW_SUM_TOLERANCE = 1e-3  # rounded to four decimals, ten classes still sum to 1 within this


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Predictions:
    """Logits (n, m) and labels (n,) of n rows, with optional weights, groups and class names.

    m is the number of classes, or 1 for a binary model with one logit, whose classes are 0 and 1.

    >>> Predictions(logits=[[2.0, 0.0, 1.0], [0.5, 1.5, 0.0]], labels=[0, 2])
    Predictions(2 rows, 3 classes, float64)
    """

    logits: Array
    labels: Ints
    weights: Floats | None
    groups: Array | None
    class_names: tuple[str, ...] | None

    def __init__(
        self,
        logits: object,
        labels: object,
        weights: object = None,
        groups: object = None,
        class_names: Iterable[str] | None = None,
    ) -> None:
        checked = check_logits(logits)
        n_rows, n_classes = len(checked), max(2, checked.shape[1])
        self._set("logits", checked)
        self._set("labels", check_labels(labels, n_rows, n_classes))
        self._set("weights", None if weights is None else check_weights(weights, n_rows))
        self._set("groups", None if groups is None else _check_groups(groups, n_rows))
        object.__setattr__(self, "class_names", _check_class_names(class_names, n_classes))

    def _set(self, name: str, array: Array | None) -> None:
        """Keep a view that nobody can write through; the caller's own array stays as it was."""
        if array is not None:
            array = array.view()
            array.flags.writeable = False
        object.__setattr__(self, name, array)

    @classmethod
    def from_probabilities(
        cls,
        probabilities: object,
        labels: object,
        weights: object = None,
        groups: object = None,
        class_names: Iterable[str] | None = None,
        floor: float = 1e-12,
    ) -> Self:
        """Take the logarithm of probabilities; anything below `floor` is raised to it first.

        One column is the probability of class 1. Exact zeros are counted in a warning: they carry no logit.

        >>> Predictions.from_probabilities([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], [0, 2]).logits.round(2).tolist()
        [[-0.36, -1.61, -2.3], [-2.3, -2.3, -0.22]]
        """
        given = check_probability_rows(probabilities)
        if not 0.0 < floor < 0.5:
            raise BadPredictions(f"floor must lie between 0 and 0.5; got {floor}")
        zeros = int((given == 0).sum()) + (int((given == 1).sum()) if given.shape[1] == 1 else 0)
        if zeros:
            warnings.warn(
                f"{zeros} of {given.size} probabilities are exactly 0 and were raised to {floor:g}; "
                f"pass the logits instead if you have them",
                GlayersWarning,
                stacklevel=2,
            )
        wide = given.astype(np.float64)
        logits = np.log(np.maximum(wide, floor))
        if given.shape[1] == 1:
            logits -= np.log(np.maximum(1.0 - wide, floor))
        return cls(
            logits=logits if given.dtype == np.float64 else logits.astype(np.float32),
            labels=labels,
            weights=weights,
            groups=groups,
            class_names=class_names,
        )

    def __len__(self) -> int:
        return len(self.logits)

    def __repr__(self) -> str:
        extras = [name for name in ("weights", "groups", "class_names") if getattr(self, name) is not None]
        facts = [f"{len(self):,} rows", f"{self.n_classes:,} classes", str(self.logits.dtype), *extras]
        return f"Predictions({', '.join(facts)})"

    @property
    def n_classes(self) -> int:
        """The number of classes: the width of the logits, or 2 for one logit."""
        return max(2, self.logits.shape[1])

    def probabilities(self) -> Array:
        """What the model claims, (n, n_classes): float64 for float64 logits, else float32.

        >>> Predictions(logits=[[0.0], [np.log(3)]], labels=[0, 1]).probabilities().round(2).tolist()
        [[0.5, 0.5], [0.25, 0.75]]
        """
        dtype = np.float64 if self.logits.dtype == np.float64 else np.float32
        result = np.empty((len(self), self.n_classes), dtype=dtype)
        for rows in row_blocks(*result.shape):
            result[rows] = softmax(with_reference_class(self.logits[rows].astype(np.float64)))
        return result

    def label_counts(self) -> Ints:
        """How many rows carry each label.

        >>> Predictions(logits=[[2.0, 0.0, 1.0], [0.5, 1.5, 0.0]], labels=[0, 2]).label_counts().tolist()
        [1, 0, 1]
        """
        return np.bincount(self.labels, minlength=self.n_classes)

    def take(self, rows: Array) -> Self:
        """Return the given rows, by index or by mask, as predictions of their own."""
        return type(self)(
            logits=self.logits[rows],
            labels=self.labels[rows],
            weights=None if self.weights is None else self.weights[rows],
            groups=None if self.groups is None else self.groups[rows],
            class_names=self.class_names,
        )


def check_logits(values: object) -> Array:
    """Return finite logits (n, m), or say which row is not, and refuse rows that are probabilities."""
    logits = _two_dimensional(to_floats(values, "logits"), "logits")
    _refuse_non_finite(logits, "logits", "remove those rows, or clip masked classes to a finite value such as -1e4")
    if logits.shape[1] > 1 and _rows_look_like_probabilities(logits):
        raise BadPredictions(
            "these logits are non-negative and every row sums to 1: they look like probabilities. "
            "Pass them to Predictions.from_probabilities; if they truly are logits, "
            "subtract 1 from all of them, which changes no probability"
        )
    if logits.shape[1] == 1 and len(logits) > 1 and logits.min() >= 0 and logits.max() <= 1:
        warnings.warn(
            "all one-column logits lie between 0 and 1: if they are probabilities of class 1, "
            "pass them to Predictions.from_probabilities",
            GlayersWarning,
            stacklevel=4,
        )
    return logits


def check_probability_rows(values: object) -> Array:
    """Return probabilities (n, k), or (n, 1) for class 1 of a binary model, or say which row is none."""
    given = _two_dimensional(to_floats(values, "probabilities"), "probabilities")
    _refuse_non_finite(given, "probabilities", "remove those rows")
    bad = np.flatnonzero(((given < 0) | (given > 1)).any(axis=1))
    if bad.size:
        raise BadPredictions(
            f"probabilities must lie between 0 and 1; row {bad[0]} has {given[bad[0]].min():g} to "
            f"{given[bad[0]].max():g}. If these are logits, pass them to Predictions(logits=...)"
        )
    if given.shape[1] > 1:
        totals = given.sum(axis=1, dtype=np.float64)
        bad = np.flatnonzero(np.abs(totals - 1) > _row_sum_tolerance(given))
        if bad.size:
            raise BadPredictions(
                f"each row of probabilities must sum to 1; row {bad[0]} sums to {totals[bad[0]]:g}. "
                f"Divide each row by its sum if that is what you mean"
            )
    return given


def _check_groups(values: object, n_rows: int) -> Array:
    groups = to_numpy(values, "groups")
    if groups.shape != (n_rows,):
        raise BadPredictions(f"groups must have shape ({n_rows},), one a row; got {groups.shape}")
    return groups


def _check_class_names(names: Iterable[str] | None, n_classes: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    result = tuple(str(name) for name in names)
    if len(result) != n_classes or len(set(result)) != n_classes:
        raise BadPredictions(
            f"class_names must be {n_classes} different names; got {len(result)}, {len(set(result))} different"
        )
    return result


def _two_dimensional(array: Array, name: str) -> Array:
    if array.ndim != 2:
        way_out = "; for one column, reshape(-1, 1)" if array.ndim == 1 else ""
        raise BadPredictions(f"{name} must have shape (rows, classes); got {array.shape}{way_out}")
    if array.size == 0:
        raise BadPredictions(f"{name} are empty: shape {array.shape}")
    return array


def _refuse_non_finite(array: Array, name: str, way_out: str) -> None:
    for rows in row_blocks(*array.shape):
        finite = np.isfinite(array[rows])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            value = array[rows][row, column]
            raise BadPredictions(
                f"{name} must be finite; row {rows.start + row}, column {column} has {value}. {way_out}"
            )


def _rows_look_like_probabilities(logits: Array) -> bool:
    tolerance = _row_sum_tolerance(logits)
    for rows in row_blocks(*logits.shape):
        block = logits[rows].astype(np.float64)
        if (block < 0).any() or (np.abs(block.sum(axis=1) - 1) > tolerance).any():
            return False
    return True


def _row_sum_tolerance(array: Array) -> float:
    return max(_ROW_SUM_TOLERANCE, array.shape[1] * float(np.finfo(array.dtype).eps) / 2)
