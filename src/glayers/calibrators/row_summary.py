"""Calibration rows -> a few counts that a calibrator keeps, so that new rows can be compared with them later.

The counts need no labels: how often each class is predicted, and histograms of the confidence and of the logits. Label
counts are kept too. No row is kept.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Floats, Ints
from glayers.errors import BadFile, shown
from glayers.predictions import Predictions

CONFIDENCE, HIGHEST, SPREAD = "confidence", "highest logit", "highest logit less mean logit"
_BINS = 10
_NEVER = -800.0  # stands for one logit of -inf: exp is exactly 0
_MOST_ROWS = 20_000  # the counts of more rows would hardly differ, and prediction takes time
_DIGITS = 12  # confidences that differ by rounding alone are equal


@dataclass(frozen=True)
class Histogram:
    """Counts of a number between edges; the first and last edge are the lowest and highest value."""

    edges: tuple[float, ...]
    counts: tuple[float, ...]

    def count(self, values: Floats, weights: Floats) -> Floats:
        """Return the weight of the values in each bin; the outer bins have no end."""
        places = np.searchsorted(self.edges[1:-1], values, side="right")
        return np.bincount(places, weights, len(self.counts)).astype(np.float64)

    def outside(self, values: Floats) -> int:
        """Return how many values are lower or higher than any that was counted."""
        return int(((values < self.edges[0]) | (values > self.edges[-1])).sum())


@dataclass(frozen=True)
class RowSummary:
    """What a calibrator keeps of its calibration rows.

    Attributes
    ----------
    labels, predicted
        How often each class is the label, and how often it is the most probable class after calibration.
    histograms
        By name: the calibrated confidence, and for the logits before calibration the highest one, and the highest one
        less their mean.

    All counts add up to the effective number of independent rows: one row counts per group, and importance weights
    count as Kish's effective number of rows.
    """

    labels: tuple[float, ...]
    predicted: tuple[float, ...]
    histograms: Mapping[str, Histogram]

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, ready for JSON."""
        shapes = {name: {"edges": list(h.edges), "counts": list(h.counts)} for name, h in self.histograms.items()}
        return {"labels": list(self.labels), "predicted": list(self.predicted), "histograms": shapes}

    @classmethod
    def from_dict(cls, facts: Any, n_classes: int) -> Self:
        """Return the record that `to_dict` wrote. Raise an error for anything else."""
        try:
            shapes = {
                str(name): (_numbers(h["edges"]), _numbers(h["counts"])) for name, h in facts["histograms"].items()
            }
            labels, predicted = _numbers(facts["labels"]), _numbers(facts["predicted"])
            names, sizes = set(shapes), {len(labels), len(predicted)}
            ordered = all(list(edges) == sorted(edges) and len(edges) == len(n) + 1 > 1 for edges, n in shapes.values())
            counts = [labels, predicted, *(n for _, n in shapes.values())]
            fits = names == {CONFIDENCE, HIGHEST, SPREAD} and sizes == {n_classes} and ordered
            if not fits or any(min(each) < 0 for each in counts) or facts.keys() != cls.__annotations__.keys():
                raise ValueError("counts and edges do not fit together")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadFile(f"the summary of the calibration rows is not one: {shown(facts)}") from error
        return cls(labels, predicted, {name: Histogram(*shape) for name, shape in shapes.items()})


@dataclass(frozen=True)
class Counted:
    """The independent rows among some rows: their features, predicted classes and weights."""

    rows: Ints
    features: dict[str, Floats]
    predicted: Ints
    weights: Floats

    def classes(self, numbers: Ints, n_classes: int) -> Floats:
        """Return the weight of each class."""
        return np.bincount(numbers, self.weights, n_classes).astype(np.float64)


def independent_rows(given: Predictions, most: int = _MOST_ROWS) -> Ints:
    """Return one row of each group, and no rows of weight 0; of many rows, a random part."""
    order = np.random.default_rng(0).permutation(len(given))
    if given.weights is not None:
        order = order[given.weights[order] > 0]
    if given.groups is not None:
        _, first = np.unique(given.groups[order], return_index=True)
        order = order[np.sort(first)]
    return np.sort(order[:most])


def count_rows(given: Predictions, rows: Ints, calibrated: Floats) -> Counted:
    """Return the features of these rows; `calibrated` are their logits after calibration."""
    logits = given.logits[rows].astype(np.float64)
    if logits.shape[1] == 1:
        logits = np.where(logits > -np.inf, logits, _NEVER)
    highest = logits.max(axis=1)
    confidence = softmax(calibrated).max(axis=1).round(_DIGITS)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.nan_to_num(highest - logits.mean(axis=1, where=logits > -np.inf))
    features = {CONFIDENCE: confidence, HIGHEST: highest, SPREAD: spread}
    weights = np.ones(len(rows)) if given.weights is None else given.weights[rows]
    if len(rows):  # they then add up to Kish's effective number
        weights = weights / weights.max()
        weights = weights * (weights.sum() / (weights @ weights))
    return Counted(rows, features, calibrated.argmax(axis=1), weights)


def summarise(given: Predictions, counted: Counted) -> RowSummary:
    """Return the counts of calibration rows."""
    n_classes = given.n_classes
    histograms = {}
    for name, values in counted.features.items():
        empty = Histogram(_edges(values), (0.0,) * (len(_edges(values)) - 1))
        histograms[name] = Histogram(empty.edges, _tuple(empty.count(values, counted.weights)))
    labels, predicted = (
        _tuple(counted.classes(each, n_classes)) for each in (given.labels[counted.rows], counted.predicted)
    )
    return RowSummary(labels, predicted, histograms)


def _edges(values: Floats) -> tuple[float, ...]:
    """Return edges between values, with about a tenth of the values in each bin; equal values share a bin."""
    ordered = np.sort(values)
    firsts = np.unique(np.searchsorted(ordered, ordered[len(ordered) * np.arange(1, _BINS) // _BINS]))
    between = [ordered[i - 1] / 2 + ordered[i] / 2 for i in firsts if i > 0]
    return _tuple(np.array([ordered[0], *between, ordered[-1]]))


def _tuple(values: Array) -> tuple[float, ...]:
    return tuple(values.tolist())


def _numbers(values: Any) -> tuple[float, ...]:
    if type(values) is not list or not all(type(each) is float and math.isfinite(each) for each in values):
        raise ValueError("not a list of numbers")
    return tuple(values)
