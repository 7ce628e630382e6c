"""Arrays -> `Predictions`: what a model said and what was true, checked once so that nothing after needs to.

Logits and probabilities are never told apart by guessing: the constructor takes logits, `from_probabilities` the other.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np

from glayers.arrays import Array, Floats, Ints, check_labels, check_weights, to_floats, to_numpy, two_dimensional
from glayers.errors import BadPredictions, GlayersWarning
from glayers.logits import check_logits, finite_logits, probabilities_of
from glayers.probabilities import check_probability_rows
from glayers.settings import number_between


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Predictions:
    """Logits (n, m) and labels (n,) of n rows, with optional weights, groups and class names.

    m is the number of classes, or 1 for a binary model with one logit, whose classes are 0 and 1. Logits and groups
    are shared with the caller, not copied: do not change them afterwards, since nothing is checked twice.

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
        self._set("logits", logits)
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
