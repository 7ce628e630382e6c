"""Calibrated logits -> sets of classes that hold the label with a given probability.

Every class of a row has a score, and a set holds the classes whose score reaches a threshold. Two kinds of scores:

- "least ambiguous": the log-probability of the class. No other sets of this coverage are smaller on average. A set may
  be empty. Sadinle, Lei and Wasserman, Journal of the American Statistical Association, 2019.
- "adaptive": the logarithm of what the classes before this one leave, the most probable first. Rows that are hard get
  larger sets. Romano, Sesia and Candès, NeurIPS 2020, without their random numbers. Nothing comes before the predicted
  class, so its score would be the same in every row, and sets would cover at least the accuracy. Its score is therefore
  minus the logarithm of what it leaves itself, which is above all others: where the predicted class is right more often
  than the level asks for, the least confident rows get an empty set.

The threshold is a quantile of the scores of labels, in rows that the map was not fitted on. If the label of a new row
is exchangeable with these n, its score is among the k lowest of n + 1 with a probability of k / (n + 1).
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from glayers.activations import keep_impossible, log_softmax
from glayers.arrays import Bools, Floats, array_namespace, effective_units, in_row_blocks
from glayers.checks import check_choice, to_float
from glayers.errors import BadFile, BadPredictions, shown
from glayers.predictions import Predictions

KINDS = ("least ambiguous", "adaptive")
LEVELS = (*(np.arange(100, 200) / 200).tolist(), 0.999)
_EVERY_CLASS = -1e200  # a threshold below the score of every possible class
_CERTAIN = 1e-30  # what the surest predicted class leaves, so that scores are finite
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
        weights = np.ones(len(held_out)) if held_out.weights is None else held_out.weights
        n_rows = effective_units(weights, held_out.groups)
        joined = 1 - np.array(LEVELS) * (n_rows + 1) / n_rows  # the share of rows that a new one may lie below
        found = []
        for kind in KINDS:
            scores = _label_scores(held_out, kind)
            order = np.argsort(scores)
            before = (np.cumsum(weights[order]) - weights[order]) / weights.sum()
            places = np.searchsorted(before, joined + 1e-12, side="right") - 1
            thresholds = np.where(places < 0, _EVERY_CLASS, scores[order][places].astype(np.float64) - _ROUNDING)
            found.append(tuple(thresholds.round(9).tolist()))
        return cls(*found)

    def at(self, level: float, kind: str) -> float:
        """Return the threshold of the next level that is at least this one."""
        check_choice(kind, KINDS, "kind")
        number = to_float(level)
        if not LEVELS[0] <= number <= LEVELS[-1]:
            raise BadPredictions(f"level must be a number from {LEVELS[0]} to {LEVELS[-1]}; got {shown(level)}")
        thresholds = vars(self)[kind.replace(" ", "_")]
        return thresholds[int(np.searchsorted(LEVELS, number - _ROUNDING))]


@np.errstate(divide="ignore")  # the logarithm of a probability of 0
def class_scores(logits: Any, kind: str) -> Any:
    """Return the score of each class (n, classes), of an array of any library; -inf for impossible classes.

    >>> np.exp(class_scores(np.log([[0.2, 0.5, 0.3]]), "adaptive")).round(2).tolist()
    [[0.2, 2.0, 0.5]]
    """
    log_p = log_softmax(logits)
    if kind == "least ambiguous":
        return log_p
    xp = array_namespace(logits)
    order = xp.argsort(log_p, axis=-1, descending=True, stable=True)
    descending = xp.take_along_axis(log_p, order, axis=-1)
    p = xp.exp(descending)
    before = xp.cumulative_sum(p, axis=-1) - p
    left = xp.log(xp.maximum(1.0 - before, 0.0))
    left = xp.maximum(left, descending)  # rounding must not make it smaller than p
    of_others = xp.sum(p[..., 1:], axis=-1, keepdims=True)
    of_predicted = -xp.log(xp.maximum(of_others, _CERTAIN))
    scores = xp.concat([of_predicted, left[..., 1:]], axis=-1)
    rank = xp.argsort(order, axis=-1, stable=True)
    return keep_impossible(xp.take_along_axis(scores, rank, axis=-1), log_p)


def _label_scores(rows: Predictions, kind: str) -> Floats:
    """Return the score of the label of each row."""
    return in_row_blocks(lambda z, labels: class_scores(z, kind)[np.arange(len(z)), labels], rows.logits, rows.labels)


def classes_in_sets(logits: Floats, kind: str, threshold: float) -> Bools:
    """Return which classes are in the set of each row (n, classes), block by block."""
    return in_row_blocks(lambda block: class_scores(block, kind) >= threshold, logits)
