"""Arrays -> `Predictions` or `Confidences`: what a model said and what was true, checked once at the edge.

Nothing guesses whether numbers are logits or probabilities: the constructor takes logits, `from_probabilities` takes
probabilities.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from glayers.activations import probabilities_of
from glayers.arrays import Array, Bools, Floats, Ints, to_floats, to_numbers, to_numpy
from glayers.checks import (
    check_labels,
    check_logits,
    check_probability_rows,
    check_weights,
    finite_logits,
    number_between,
    refuse_outside_unit_interval,
    two_dimensional,
)
from glayers.errors import BadPredictions, GlayersWarning


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Predictions:
    """Logits and labels of n rows, with optional weights, groups and class names.

    The record is frozen and checked once. Logits and groups are shared with the caller, not copied, so do not change
    them afterwards.

    Parameters
    ----------
    logits
        Array (n, m). m is the number of classes, or 1 for a binary model with one logit, whose classes are 0 and 1.
    labels
        Array (n,) of class numbers in 0..classes-1.
    weights
        Array (n,) of non-negative row weights.
    groups
        Array (n,) of numbers or names: rows of the same group depend on each other.
    class_names
        One name per class.

    Raises
    ------
    BadPredictions
        If an array has the wrong shape or impossible values, or if all rows of `logits` look like probabilities.

    Examples
    --------
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
        self._hold(check_logits(logits), labels, weights, groups, class_names)

    @classmethod
    def _trusted(
        cls,
        logits: Array,
        labels: object,
        weights: object = None,
        groups: object = None,
        class_names: Iterable[str] | None = None,
    ) -> Self:
        """Hold logits that we made or checked ourselves: a few rows of them may well look like probabilities."""
        new = cls.__new__(cls)
        new._hold(finite_logits(logits), labels, weights, groups, class_names)
        return new

    def _hold(
        self, logits: Array, labels: object, weights: object, groups: object, class_names: Iterable[str] | None
    ) -> None:
        n_rows, n_classes = len(logits), max(2, logits.shape[1])
        _freeze(self, "logits", logits)
        _freeze(self, "labels", check_labels(labels, n_rows, n_classes))
        _freeze(self, "weights", None if weights is None else check_weights(weights, n_rows))
        _freeze(self, "groups", None if groups is None else _check_groups(groups, n_rows))
        object.__setattr__(self, "class_names", _check_class_names(class_names, n_classes))

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
        given = two_dimensional(to_floats(probabilities, "probabilities"), "probabilities")
        check_probability_rows(given)
        floor = number_between(floor, "floor", 0.0, 0.5)
        wide = np.clip(given.astype(np.float64), 0.0, 1.0)
        _warn_of_certainty(wide, floor)
        logits = np.log(np.maximum(wide, floor))
        if given.shape[1] == 1:
            logits -= np.log(np.maximum(1.0 - wide, floor))
        return cls._trusted(
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
        return probabilities_of(self.logits)

    def label_counts(self) -> Ints:
        """How many rows carry each label.

        >>> Predictions(logits=[[2.0, 0.0, 1.0], [0.5, 1.5, 0.0]], labels=[0, 2]).label_counts().tolist()
        [1, 0, 1]
        """
        return np.bincount(self.labels, minlength=self.n_classes)

    def take(self, rows: Array) -> Self:
        """Return the given rows, by index or by mask, as predictions of their own."""
        return self._trusted(
            logits=self.logits[rows],
            labels=self.labels[rows],
            weights=None if self.weights is None else self.weights[rows],
            groups=None if self.groups is None else self.groups[rows],
            class_names=self.class_names,
        )

    def with_logits(self, logits: Array) -> Self:
        """Return the same rows with other logits, such as what a map made of these."""
        return self._trusted(logits, self.labels, self.weights, self.groups, self.class_names)


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Confidences:
    """The confidence of each answer and whether it was correct, when nothing else is known.

    Use it where the model gives no probability for every class, as with language models. It takes the place of
    probabilities and labels in every metric, test, interval and figure for the top class. Calibrators need logits,
    so they take `Predictions` only.

    Parameters
    ----------
    confidence
        Array (n,) of numbers in [0, 1].
    correct
        Array (n,) of True and False, or of 1 and 0.
    weights
        Array (n,) of non-negative row weights.
    groups
        Array (n,) of numbers or names: rows of the same group depend on each other.

    Raises
    ------
    BadPredictions
        If an array has the wrong shape or impossible values.

    Examples
    --------
    >>> Confidences(confidence=[0.9, 0.6, 0.8], correct=[True, False, True])
    Confidences(3 rows)
    """

    confidence: Floats
    correct: Bools
    weights: Floats | None
    groups: Array | None

    def __init__(self, confidence: object, correct: object, weights: object = None, groups: object = None) -> None:
        given = _check_confidence(confidence)
        _freeze(self, "confidence", given)
        _freeze(self, "correct", _check_correct(correct, len(given)))
        _freeze(self, "weights", None if weights is None else check_weights(weights, len(given)))
        _freeze(self, "groups", None if groups is None else _check_groups(groups, len(given)))

    def __len__(self) -> int:
        return len(self.confidence)

    def __repr__(self) -> str:
        extras = [name for name in ("weights", "groups") if getattr(self, name) is not None]
        return f"Confidences({', '.join([f'{len(self):,} rows', *extras])})"

    def take(self, rows: Array) -> Self:
        """Return the given rows, by index or by mask.

        Examples
        --------
        >>> Confidences([0.9, 0.6, 0.8], [1, 0, 1]).take(np.array([2, 0])).confidence.tolist()
        [0.8, 0.9]
        """
        return type(self)(
            self.confidence[rows],
            self.correct[rows],
            None if self.weights is None else self.weights[rows],
            None if self.groups is None else self.groups[rows],
        )


def _freeze(record: object, name: str, array: Array | None) -> None:
    """Set a read-only view of the array; the caller's own array stays writable."""
    if array is not None:
        array = array.view()
        array.flags.writeable = False
    object.__setattr__(record, name, array)


def _check_confidence(values: object) -> Floats:
    confidence = to_floats(values, "confidence").astype(np.float64)
    if confidence.ndim != 1:
        raise BadPredictions(
            f"confidence must have shape (rows,), one number per row; got {confidence.shape}. "
            f"For probabilities of every class, use Predictions.from_probabilities"
        )
    if confidence.size == 0:
        raise BadPredictions("confidence is empty; give at least one row")
    refuse_outside_unit_interval(confidence, "confidence", way_out="Divide percentages by 100; apply sigmoid to logits")
    return confidence


def _check_correct(values: object, n_rows: int) -> Bools:
    correct = to_numbers(values, "correct")
    if correct.shape != (n_rows,):
        raise BadPredictions(f"correct must have shape ({n_rows},), one value per row; got {correct.shape}")
    if correct.dtype.kind not in "biuf":
        raise BadPredictions(
            f"correct must be True or False (1 or 0) for each row; got an array of {correct.dtype}. "
            f"Compare the answers first, such as answers == truth"
        )
    bad = np.flatnonzero((correct != 0) & (correct != 1))
    if bad.size:
        raise BadPredictions(
            f"correct must be True or False (1 or 0) for each row; row {bad[0]} has {correct[bad[0]]}. "
            f"Pass predicted == labels if these are labels"
        )
    return correct.astype(np.bool_)


def _warn_of_certainty(probabilities: Floats, floor: float) -> None:
    """Count the probabilities that have no logit: 0, and where one column speaks for two classes also 1."""
    lone = probabilities.shape[1] == 1
    certain = int((probabilities == 0).sum()) + (int((probabilities == 1).sum()) if lone else 0)
    if certain:
        what = (
            f"exactly 0 or 1 and were moved inside by {floor:g}" if lone else f"exactly 0 and were raised to {floor:g}"
        )
        warnings.warn(
            f"{certain} of {probabilities.size} probabilities are {what}; pass the logits instead if you have them",
            GlayersWarning,
            stacklevel=3,  # whoever called from_probabilities
        )


def _check_groups(values: object, n_rows: int) -> Array:
    groups = to_numpy(values, "groups")
    if groups.shape != (n_rows,):
        raise BadPredictions(f"groups must have shape ({n_rows},), one a row; got {groups.shape}")
    try:
        np.unique(groups)
    except TypeError as error:
        raise BadPredictions(f"groups must be all numbers or all names, to be told apart; {error}") from None
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
