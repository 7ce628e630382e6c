"""Probabilities and labels -> the sorted top of each row, and the rank of its label.

Of equal probabilities the class with the lower number ranks first, as `argmax` has it.
"""

import numpy as np

from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.metrics.old.checks import Checked
from glayers.probabilities import refuse_outside_unit_interval


def top_scores(checked: Checked, ranks: int) -> Floats:
    """Return the `ranks` highest probabilities of each row, highest first, (n, ranks)."""
    n_rows, n_classes = checked.probabilities.shape
    result = np.empty((n_rows, ranks))
    for rows in row_blocks(n_rows, n_classes):
        block = np.partition(checked.probabilities[rows], n_classes - ranks, axis=1)[:, n_classes - ranks :]
        result[rows] = np.sort(block, axis=1)[:, ::-1]
    refuse_outside_unit_interval(result, "probabilities")
    return result


def label_ranks(probabilities: Array, labels: Ints) -> Ints:
    """Return the place of the label among the classes of its row, 0 for the highest."""
    ranks = np.empty(len(labels), dtype=np.int64)
    for rows in row_blocks(*probabilities.shape):
        ranks[rows] = _block_ranks(probabilities[rows], labels[rows])
    return ranks


def label_ranks_within(checked: Checked, scores: Floats) -> Ints:
    """Return the place of the label where it is among `scores`, and that width or more where it is not."""
    own = checked.probabilities[np.arange(len(checked.labels)), checked.labels].astype(np.float64)
    ranks = np.count_nonzero(scores > own[:, None], axis=1)
    # Only where the label ties with another class, perhaps one beyond the last score, must the row be read again.
    tied = (np.count_nonzero(scores == own[:, None], axis=1) > 1) | (scores[:, -1] == own)
    if tied.any():
        rows = np.flatnonzero(tied)
        ranks[rows] = label_ranks(checked.probabilities[rows], checked.labels[rows])
    return ranks


def _block_ranks(block: Array, labels: Ints) -> Ints:
    own = block[np.arange(len(block)), labels][:, None]
    higher = np.count_nonzero(block > own, axis=1)
    equal_before = np.count_nonzero((block == own) & (np.arange(block.shape[1]) < labels[:, None]), axis=1)
    return higher + equal_before
