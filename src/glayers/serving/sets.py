"""Calibrated logits -> sets of classes that hold the label with a given probability.

Every class of a row has a score, and a set holds the classes whose score reaches a threshold. Two kinds of scores:

- "least ambiguous": the log-probability of the class. No other sets of this coverage are smaller on average. A set may
  be empty. Sadinle, Lei and Wasserman, Journal of the American Statistical Association, 2019.
- "adaptive": the logarithm of one minus the probability of all classes before this one, the most probable first. Rows
  that are hard get larger sets, and every set holds the predicted class. Romano, Sesia and Candès, NeurIPS 2020,
  without their random numbers.

The threshold is a quantile of the scores of labels, in rows that the map was not fitted on. If the label of a new row
is exchangeable with these n, its score is among the k lowest of n + 1 with a probability of k / (n + 1).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np

from glayers.activations import keep_impossible, log_softmax
from glayers.arrays import Bools, Floats, Ints, array_namespace, effective_rows, in_row_blocks, row_blocks
from glayers.checks import check_choice, to_float
from glayers.errors import BadFile, BadPredictions, shown
from glayers.predictions import Predictions

KINDS = ("least ambiguous", "adaptive")
LEVELS = (*(np.arange(100, 200) / 200).tolist(), 0.999)
_EVERY_CLASS = -1e200  # a threshold below the score of every possible class
_ROUNDING = 1e-6  # equal probabilities may differ by rounding


@dataclass(frozen=True)
class SetThresholds:
    """The least score of the classes in a set, for each of LEVELS."""

    least_ambiguous: tuple[float, ...]
    adaptive: tuple[float, ...]

    def __post_init__(self) -> None:
        for thresholds in (self.least_ambiguous, self.adaptive):
            if len(thresholds) != len(LEVELS) or not all(isinstance(each, float) for each in thresholds):
                raise BadFile(f"the thresholds of prediction sets must be {len(LEVELS)} numbers per kind")

    @classmethod
    def of(cls, held_out: Predictions) -> Self:
        """Return the thresholds from labelled rows that the map was not fitted on.

        Rows of one group count as copies of one row, and weights by Kish's effective number of rows.
        """
        if held_out.weights is not None:
            held_out = held_out.take(held_out.weights > 0)
        weights: Floats = np.ones(len(held_out)) if held_out.weights is None else held_out.weights
        units: Floats = weights
        if held_out.groups is not None:
            _, members = np.unique(held_out.groups, return_inverse=True)
            units = np.bincount(members, weights).astype(np.float64)
        n_rows = effective_rows(units)
        found = []
        for kind in KINDS:
            scores = in_row_blocks(partial(label_scores, kind=kind), held_out.logits, held_out.labels)
            order = np.argsort(scores)
            before = np.cumsum(weights[order]) - weights[order]
            found.append(_thresholds(scores[order], before / weights.sum(), n_rows))
        return cls(*found)

    def at(self, level: float, kind: str) -> float:
        """Return the threshold of the next level that is at least this one."""
        check_choice(kind, KINDS, "kind")
        number = to_float(level)
        if not LEVELS[0] <= number <= LEVELS[-1]:
            raise BadPredictions(f"level must be a number from {LEVELS[0]} to {LEVELS[-1]}; got {shown(level)}")
        thresholds = self.adaptive if kind == "adaptive" else self.least_ambiguous
        return thresholds[int(np.searchsorted(LEVELS, number - _ROUNDING))]


def _thresholds(ascending: Floats, before: Floats, n_rows: float) -> tuple[float, ...]:
    """Return the highest score below which so few rows lie that a new row joins them with probability 1 - level."""
    share = 1 - np.array(LEVELS) * (n_rows + 1) / n_rows
    places = np.searchsorted(before, share + 1e-12, side="right") - 1
    found = np.where(places < 0, _EVERY_CLASS, ascending[places].astype(np.float64) - _ROUNDING)
    return tuple(found.round(9).tolist())


@np.errstate(divide="ignore")  # the logarithm of a probability of 0
def class_scores(logits: Any, kind: str) -> Any:
    """Return the score of each class (n, classes), of an array of any library; -inf for impossible classes.

    >>> np.exp(class_scores(np.log([[0.2, 0.5, 0.3]]), "adaptive")).round(2).tolist()
    [[0.2, 1.0, 0.5]]
    """
    xp = array_namespace(logits)
    log_p = log_softmax(logits)
    if kind == "least ambiguous":
        return log_p
    order = xp.argsort(log_p, axis=-1, descending=True, stable=True)
    p = xp.exp(xp.take_along_axis(log_p, order, axis=-1))
    before = xp.cumulative_sum(p, axis=-1) - p
    left = xp.log(xp.maximum(1.0 - before, p))  # rounding must not make it smaller than p
    rank = xp.argsort(order, axis=-1, stable=True)
    left = xp.take_along_axis(left, rank, axis=-1)
    return keep_impossible(xp.maximum(left, log_p), log_p)  # p may be too small for float64


def label_scores(logits: Floats, labels: Ints, kind: str) -> Floats:
    """Return the score of the label of each row."""
    return np.take_along_axis(class_scores(logits, kind), labels[:, None], axis=1)[:, 0]


def classes_in_sets(logits: Floats, kind: str, threshold: float) -> Bools:
    """Return which classes are in the set of each row (n, classes), block by block."""
    found = np.empty(logits.shape, bool)
    for rows in row_blocks(*logits.shape):
        found[rows] = class_scores(logits[rows], kind) >= threshold
    return found
