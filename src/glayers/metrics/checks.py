"""Whatever the caller passed -> arrays a metric can trust; the one place where metrics complain.

Reading 25 million probabilities just to check them would cost more than the metric itself, so shapes and labels are
checked always, and values where a metric reads them anyway. `scorecard` checks everything.
"""

from typing import NamedTuple

import numpy as np

from glayers.arrays import (
    Array,
    Bools,
    Floats,
    Ints,
    check_labels,
    check_weights,
    row_blocks,
    to_floats,
    to_numpy,
)
from glayers.errors import BadPredictions

_ROUNDING = 1e-2  # float16 probabilities of many classes stray this far from a sum of 1


class Checked(NamedTuple):
    """Probabilities (n, k), labels (n,), weights (n,) that sum to 1, and what they summed to: the number of rows."""

    probabilities: Array
    labels: Ints
    weights: Floats
    total: float

    def event(self, scores: Floats, hits: Bools) -> "Scored":
        """One event a row of these predictions."""
        return Scored(scores, hits.astype(np.float64), self.weights, self.total)


class Scored(NamedTuple):
    """One event a row: the score it was given, whether it happened (1 or 0), and weights as above."""

    scores: Floats
    hits: Floats
    weights: Floats
    total: float


def check(probabilities: object, labels: object, weights: object = None) -> Checked:
    """Check shapes, labels and weights, but not yet the values of the probabilities."""
    given = to_floats(probabilities, "probabilities")
    if given.ndim != 2 or given.shape[1] < 2 or len(given) == 0:
        raise BadPredictions(
            f"probabilities must have shape (rows, classes) with at least 1 row and 2 classes; got {given.shape}. "
            f"For p of class 1 alone, pass np.column_stack([1 - p, p])"
        )
    return Checked(given, check_labels(labels, *given.shape), *_shares(weights, len(given)))


def check_scored(scores: object, hits: object, weights: object = None) -> Scored:
    """Check the scores of one event a row, and whether it happened (bools, or 0 and 1)."""
    given = to_floats(scores, "scores").astype(np.float64)
    happened = to_numpy(hits, "hits")
    if given.ndim != 1 or len(given) == 0 or happened.shape != given.shape:
        raise BadPredictions(f"scores and hits must be one number a row; got {given.shape} and {happened.shape}")
    if happened.dtype.kind not in "biuf" or not np.isin(happened, (0, 1)).all():
        raise BadPredictions("hits must be True or False (1 or 0) for each row")
    refuse_outside_unit_interval(given, "scores")
    return Scored(given, happened.astype(np.float64), *_shares(weights, len(given)))


def check_values(probabilities: Array) -> None:
    """Refuse probabilities that are not finite, lie outside 0..1, or whose rows do not sum to 1."""
    for rows in row_blocks(*probabilities.shape):
        block = probabilities[rows].astype(np.float64)
        refuse_outside_unit_interval(block, "probabilities", first_row=rows.start)
        sums = block.sum(axis=1)
        bad = np.flatnonzero(np.abs(sums - 1) > _ROUNDING)
        if bad.size:
            raise BadPredictions(
                f"each row of probabilities must sum to 1; row {rows.start + bad[0]} sums to {sums[bad[0]]:g}. "
                f"If these are logits, use the function whose name ends in _from_logits, or softmax them first"
            )


def refuse_outside_unit_interval(values: Array, name: str, first_row: int = 0) -> None:
    """Refuse values that are not numbers between 0 and 1, give or take the rounding of a sum."""
    bad = np.argwhere(~((values >= -1e-6) & (values <= 1 + _ROUNDING)))
    if len(bad):
        value = values[tuple(bad[0])]
        raise BadPredictions(
            f"{name} must lie between 0 and 1; row {first_row + bad[0][0]} has {value:g}. "
            f"If these are logits, softmax them first"
        )


def top(checked: Checked) -> Scored:
    """Score of the highest class of each row, and whether it is the label; of equal classes the first counts."""
    best = np.empty(len(checked.labels), dtype=np.int64)
    scores = np.empty(len(checked.labels))
    for rows in row_blocks(*checked.probabilities.shape):  # picked while the block is still in the cache
        block = checked.probabilities[rows]
        best[rows] = block.argmax(axis=1)
        scores[rows] = block[np.arange(len(block)), best[rows]]
    refuse_outside_unit_interval(scores, "probabilities")
    return checked.event(scores, best == checked.labels)


def _shares(weights: object, n_rows: int) -> tuple[Floats, float]:
    if weights is None:
        return np.full(n_rows, 1.0 / n_rows), float(n_rows)
    checked = check_weights(weights, n_rows)
    total = float(checked.sum())
    return checked / total, total
