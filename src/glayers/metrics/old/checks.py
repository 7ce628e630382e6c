"""Whatever the caller passed -> arrays a metric can trust; the one place where metrics complain.

Reading 25 million probabilities just to check them would cost more than the metric itself, so shapes and labels are
checked always, and values where a metric reads them anyway. `scorecard` checks everything.

Weights are shares of 1 inside. Where a metric needs the number of rows they stand for, whole weights count rows, so
that a weight of 2 is the row twice; any others count as Kish's effective size (sum w)^2 / sum w^2, which is n for equal
weights, whatever they add up to. Kish, "Survey Sampling", 1965.
"""

from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Bools, Floats, Ints, check_labels, check_weights, row_blocks, to_floats, to_numbers
from glayers.errors import BadPredictions
from glayers.probabilities import refuse_outside_unit_interval


class Checked(NamedTuple):
    """Probabilities (n, k), labels (n,), weights (n,) that sum to 1, and how many rows they stand for."""

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
    return Checked(given, check_labels(labels, *given.shape), *shares(weights, len(given)))


def check_scored(scores: object, hits: object, weights: object = None) -> Scored:
    """Check the scores of one event a row, and whether it happened (bools, or 0 and 1)."""
    given = to_floats(scores, "scores").astype(np.float64)
    happened = to_numbers(hits, "hits")
    if given.ndim != 1 or len(given) == 0 or happened.shape != given.shape:
        raise BadPredictions(f"scores and hits must be one number a row; got {given.shape} and {happened.shape}")
    if happened.dtype.kind not in "biuf" or not np.isin(happened, (0, 1)).all():
        raise BadPredictions("hits must be True or False (1 or 0) for each row")
    refuse_outside_unit_interval(given, "scores")
    return Scored(given, happened.astype(np.float64), *shares(weights, len(given)))


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


def shares(weights: object, n_rows: int) -> tuple[Floats, float]:
    """Return weights that sum to 1, and how many rows they stand for.

    >>> shares([2, 1, 1], 3)[1], shares([0.5, 0.5, 0.5], 3)[1]
    (4.0, 3.0)
    """
    if weights is None:
        return np.full(n_rows, 1.0 / n_rows), float(n_rows)
    checked = check_weights(weights, n_rows)
    total = float(checked.sum())
    share = checked / total
    counts = bool((checked == np.floor(checked)).all())
    return share, total if counts else 1 / float(share @ share)
