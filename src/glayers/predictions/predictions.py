"""Arrays -> `Predictions` or `Confidences`: what a model said and what was true, checked once at the edge.

Nothing guesses whether numbers are logits or probabilities: the constructor takes logits, `from_probabilities` takes
probabilities.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from glayers import checks
from glayers.activations import probabilities_of
from glayers.arrays import Array, Bools, Floats, Ints
from glayers.errors import BadPredictions, GlayersWarning, shown
from glayers.text_tables import plural


class _Rows:
    """What both records share: optional weights and groups, and read-only views of all arrays."""

    weights: Floats | None
    groups: Array | None

    def __len__(self) -> int:
        return len(next(value for value in vars(self).values() if isinstance(value, np.ndarray)))

    def _described(self, *facts: str) -> str:
        optional = ("weights", "groups", "class_names")
        extras = [name for name in optional if getattr(self, name, None) is not None]
        return f"{type(self).__name__}({', '.join([plural(len(self), 'row'), *facts, *extras])})"

    def _set(self, fields: dict[str, Any]) -> None:
        """Set all fields; arrays become read-only here, and stay writable for the caller."""
        for name, value in fields.items():
            field = value
            if isinstance(value, np.ndarray):
                field = value.view()
                field.flags.writeable = False
            object.__setattr__(self, name, field)

    def _set_checked(self, weights: Any = None, groups: Any = None, counts: Any = None, **fields: Any) -> None:
        """Set fields that were checked, and the optional ones after a check; repeat rows as often as counts say."""
        scores, *_ = fields.values()
        n_rows = len(scores)
        if weights is not None:
            weights = checks.check_weights(weights, n_rows)
        if groups is not None:
            groups = checks.check_groups(groups, n_rows)
        self._set({**fields, "weights": weights, "groups": groups})
        if counts is not None:
            if weights is not None:
                raise BadPredictions(
                    "rows have weights (importance) or counts (how often they occurred); pass one of them"
                )
            times = checks.check_counts(counts, n_rows, scores[:1].size)
            self._set(vars(self.take(np.repeat(np.arange(n_rows), times))))

    @classmethod
    def _trusted(cls, **fields: Any) -> Self:
        """Return a record of all its fields, which have been checked before."""
        record = cls.__new__(cls)
        record._set(fields)
        return record

    def take(self, rows: Array | slice) -> Self:
        """Return the given rows, by index, mask or slice.

        Examples
        --------
        >>> Confidences([0.9, 0.6, 0.8], [1, 0, 1]).take(np.array([2, 0])).confidence.tolist()
        [0.8, 0.9]
        """
        if not isinstance(rows, slice):
            rows = checks.check_places(rows, len(self))
        fields = {name: value[rows] if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}
        taken = self._trusted(**fields)
        if not len(taken):
            raise BadPredictions("the rows to take are empty; take at least one")
        return taken


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Predictions(_Rows):
    """Logits and labels of n rows, with optional weights, groups and class names.

    The record is frozen and checked once. Logits and groups are shared with the caller, not copied, so do not change
    them afterwards.

    Parameters
    ----------
    logits
        Array (n, m). m is the number of classes, or 1 for a binary model with one logit, whose classes are 0 and 1; its
        logits may also be an array (n,).
        -inf means that the class is impossible in that row: its probability is exactly 0.
    labels
        Array (n,) of class numbers in 0..classes-1, or of class names if `class_names` are given. For two classes, -1
        and 1 stand for 0 and 1. Or soft labels (n, classes), a distribution per row: the record then holds a row for
        each class that a row may have, with the probabilities as weights and the copies as one group.
    weights
        Array (n,) of importance weights, not negative; a common factor changes nothing.
    groups
        Array (n,) of numbers or names: rows of the same group depend on each other.
    class_names
        One name per class.
    counts
        Array (n,) of whole numbers, instead of weights: how often each row occurred. The record holds each row so many
        times.

    Raises
    ------
    BadPredictions
        If an array has the wrong shape or impossible values, or if all rows of `logits` look like probabilities.

    Examples
    --------
    >>> Predictions(logits=[[2.0, 0.0, 1.0], [0.5, 1.5, 0.0]], labels=[0, 2])
    Predictions(2 rows, 3 classes, float64)
    >>> Predictions(logits=[[2.0, 0.0, 1.0], [0.5, 1.5, 0.0]], labels=[0, 2], counts=[1, 3]).labels.tolist()
    [0, 2, 2, 2]
    >>> soft = Predictions(logits=[[2.0, 0.0, 1.0], [0.5, 1.5, 0.0]], labels=[[0.75, 0.0, 0.25], [0, 1, 0]])
    >>> soft.labels.tolist(), soft.weights.tolist(), soft.groups.tolist()
    ([0, 2, 1], [0.75, 0.25, 1.0], [0, 0, 1])
    """

    logits: Array
    labels: Ints
    class_names: tuple[str, ...] | None
    has_several_labels: ClassVar[bool] = False  # those of `MultiLabelPredictions`, of which each needs its own map

    def __init__(
        self,
        logits: object,
        labels: object,
        weights: object = None,
        groups: object = None,
        class_names: Iterable[str] | None = None,
        counts: object = None,
    ) -> None:
        checked = checks.check_logits(logits)
        self._check(checked, labels, class_names, weights=weights, groups=groups, counts=counts)

    @classmethod
    def _of_logits(cls, logits: object, labels: object, class_names: Any = None, **extras: Any) -> Self:
        """Return checked predictions of logits that may look like probabilities: some rows of many, or made here."""
        record = cls.__new__(cls)
        record._check(checks.possible_logits(logits), labels, class_names, **extras)
        return record

    def _check(self, logits: Array, labels: object, class_names: Any, **extras: Any) -> None:
        n_classes = max(2, logits.shape[1])
        names = checks.check_class_names(class_names, n_classes)
        soft = checks.label_distributions(labels)
        if soft is not None and soft.shape == (len(logits), n_classes):
            logits, labels, extras = _row_per_class(logits, soft, **extras)
        numbers = checks.check_labels(labels, len(logits), n_classes, names)
        checks.refuse_impossible_labels(logits, numbers)
        checks.warn_of_labels_from_1(logits, numbers)
        self._set_checked(logits=logits, labels=numbers, class_names=names, **extras)

    @classmethod
    def from_probabilities(
        cls,
        probabilities: object,
        labels: object,
        weights: object = None,
        groups: object = None,
        class_names: Iterable[str] | None = None,
        floor: float = 1e-12,
        counts: object = None,
    ) -> Self:
        """Return predictions whose logits are the logarithms of probabilities.

        Probabilities below `floor` are raised to it first. A warning counts exact zeros, which have no finite logit.

        Parameters
        ----------
        probabilities
            Array (n, classes) whose rows sum to 1, or (n, 1) with the probability of class 1.
        labels, weights, groups, class_names, counts
            As for `Predictions`.
        floor
            The smallest probability, between 0 and 0.5. With 0, a probability of exactly 0 means that the class is
            impossible in that row, and stays 0.

        Returns
        -------
        Predictions

        Examples
        --------
        >>> Predictions.from_probabilities([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]], [0, 2]).logits.round(2).tolist()
        [[-0.36, -1.61, -2.3], [-2.3, -2.3, -0.22]]
        """
        checked = checks.check_probabilities(probabilities)
        one_column = checked.shape[1] == 1
        if not (isinstance(floor, int | float) and floor == 0):
            floor = checks.number_between(floor, "floor", 0.0, 0.5)
            what = "probabilities are exactly 0 (pass floor=0 if these classes are impossible)"
            if one_column:
                what = "probabilities are exactly 0 or 1"
            warn_of_certainty((checked <= 0) | (one_column & (checked >= 1)), what, floor)
        elif one_column and (checked >= 1).any():
            raise BadPredictions("class 0 cannot be impossible in one column; pass the probabilities of both classes")
        extras = {"weights": weights, "groups": groups, "class_names": class_names, "counts": counts}
        return cls._of_probabilities(checked, labels, floor, **extras)

    @classmethod
    def _of_probabilities(cls, probabilities: Array, labels: object, floor: float = 1e-12, **extras: Any) -> Self:
        """Return predictions from checked probabilities."""
        wide = np.clip(probabilities.astype(np.float64), 0.0, 1.0)
        with np.errstate(divide="ignore"):  # log 0 = -inf
            logits = np.log(np.maximum(wide, floor))
            if probabilities.shape[1] == 1:
                logits -= np.log(np.maximum(1.0 - wide, floor))
        if probabilities.dtype != np.float64:
            logits = logits.astype(np.float32)
        return cls._of_logits(logits, labels, **extras)

    def __repr__(self) -> str:
        return self._described(f"{self.n_classes:,} classes", str(self.logits.dtype))

    @property
    def n_classes(self) -> int:
        """The number of classes: the number of logits, or 2 for one logit."""
        return max(2, self.logits.shape[1])

    def probabilities(self) -> Array:
        """Return the softmax of the logits, (n, n_classes): float64 for float64 logits, else float32, within 2e-7.

        Examples
        --------
        >>> Predictions(logits=[[0.0], [np.log(3)]], labels=[0, 1]).probabilities().round(2).tolist()
        [[0.5, 0.5], [0.25, 0.75]]
        """
        return probabilities_of(self.logits)

    def label_counts(self) -> Ints:
        """Return the number of rows with each label.

        Examples
        --------
        >>> Predictions(logits=[[2.0, 0.0, 1.0], [0.5, 1.5, 0.0]], labels=[0, 2]).label_counts().tolist()
        [1, 0, 1]
        """
        return np.bincount(self.labels, minlength=self.n_classes)

    def with_logits(self, logits: Array) -> Self:
        """Return the same rows with other logits, such as the output of a map."""
        checked = checks.possible_logits(logits)
        checks.one_per_row(checked[:, 0], len(self), "logits")
        return self._trusted(**(vars(self) | {"logits": checked}))


@dataclass(frozen=True, eq=False, init=False, repr=False)
class Confidences(_Rows):
    """The confidence of each answer and whether it was correct, when nothing else is known.

    Use it where the model gives no probability for every class, as with language models. It takes the place of
    probabilities and labels in every metric, test, interval and figure for the top class. Calibrators with
    `inputs="confidence"` are fitted on it and applied to it.

    Parameters
    ----------
    confidence
        Array (n,) of numbers in [0, 1].
    correct
        Array (n,) of True and False, or of 1 and 0.
    weights
        Array (n,) of importance weights, not negative; a common factor changes nothing.
    groups
        Array (n,) of numbers or names: rows of the same group depend on each other.
    counts
        As for `Predictions`.

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

    def __init__(
        self,
        confidence: object,
        correct: object,
        weights: object = None,
        groups: object = None,
        counts: object = None,
    ) -> None:
        checked = checks.check_confidence(confidence)
        answers = checks.check_correct(correct, len(checked))
        self._set_checked(weights, groups, counts, confidence=checked, correct=answers)

    def with_confidence(self, confidence: Array) -> Self:
        """Return the same rows with another confidence, such as a calibrated one."""
        return type(self)(**(vars(self) | {"confidence": confidence}))

    def __repr__(self) -> str:
        return self._described()


def _row_per_class(
    logits: Array, soft: Floats, weights: Any = None, groups: Any = None, counts: Any = None
) -> tuple[Array, Ints, dict[str, Any]]:
    """Return a row for each class that a row may have: the log loss of both is the same."""
    if counts is not None:
        raise BadPredictions("rows with a distribution over labels have no counts; repeat the rows, or pass weights")
    rows, labels = np.nonzero(soft)
    shares = soft[rows, labels]
    if weights is not None:
        shares = shares * checks.check_weights(weights, len(soft))[rows]
    units = rows
    if groups is not None:
        units = checks.check_groups(groups, len(soft))[rows]
    return logits[rows], labels, {"weights": shares, "groups": units}


def two_classes(inputs: str, record: Predictions | Confidences) -> Predictions:
    """Return predictions as they are, and confidences as predictions of the classes wrong and correct."""
    checks.check_choice(inputs, ("logits", "probabilities", "confidence"), "inputs")
    if not isinstance(record, Predictions | Confidences):
        raise BadPredictions(f"needs Predictions or Confidences; got {shown(record)}. Pass arrays to fit and transform")
    wanted = "confidence" if isinstance(record, Confidences) else "logits"
    if (inputs == "confidence") != (wanted == "confidence"):
        raise BadPredictions(
            f"{type(record).__name__} do not fit a calibrator with inputs={inputs!r}; fit one with inputs={wanted!r}"
        )
    if isinstance(record, Predictions):
        if record.has_several_labels:
            raise BadPredictions(
                "rows with several labels need MultiLabelCalibrator(method); for one label, pass by_label()[name]"
            )
        return record
    return Predictions._of_probabilities(
        record.confidence[:, None],
        record.correct,
        class_names=("wrong", "correct"),
        weights=record.weights,
        groups=record.groups,
    )


def map_inputs(inputs: str, predictions: Predictions) -> Array:
    """Return what `transform` takes: logits, probabilities, or the probability of class 1 of two."""
    if inputs == "logits":
        return predictions.logits
    if np.isneginf(predictions.logits).any():
        raise BadPredictions('a class is impossible in some rows, which probabilities cannot say: use inputs="logits"')
    probabilities = predictions.probabilities()
    if inputs == "confidence":
        return probabilities[:, 1]
    return probabilities[:, 1:] if predictions.logits.shape[1] == 1 else probabilities


def warn_of_certainty(certain: Bools, what: str, floor: float = 1e-12) -> None:
    """Count the probabilities that have no logit."""
    if certain.any():
        warnings.warn(
            f"{certain.sum()} of {certain.size} {what} and were moved by {floor:g}; use the logits if you have them",
            GlayersWarning,
            stacklevel=3,  # the caller of from_probabilities
        )
