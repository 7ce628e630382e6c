"""Predictions -> what a calibrated model would have shown on the same rows: labels drawn from its own probabilities.

Whole weights count rows (`checks.py`), so a row of weight 2 is written out twice and drawn twice; any other weights go
along with their rows. Rows of one group may depend on each other in a way no model states, so with groups nothing is
drawn: each group's residuals, hit - score, keep together and change sign at random. Their mean is 0 under calibration
and stays 0, and what they owe to each other stays as it was. Liu, Annals of Statistics 1988. But signs do not know the
chance of what was not seen: a model that is sure and never missed would look wrong. Where surprises are few, groups are
drawn anew after all, as if their rows were copies of each other, which is the worst that can be.
"""

from collections.abc import Iterator

import numpy as np

from glayers.arrays import Array, Floats, Ints, check_weights, row_blocks, to_numpy
from glayers.errors import BadPredictions
from glayers.metrics.old.checks import Scored

_ENTRIES = 131_072  # of one batch: 1 MB in float64, so that what is made of it stays in the cache
_LABELS = 1 << 24  # drawn at a time: 64 MB
_MOST_ROWS = 10**8
_FEW_SURPRISES = 20  # groups in which a surprise is expected: with 10, signs reject 7 of 100 calibrated models, not 5


def written_out(weights: object, n_rows: int) -> Ints | None:
    """Which row stands at each place once whole weights are rows; None where every row stands for itself.

    >>> written_out([2, 0, 1], 3).tolist(), written_out([0.5, 0.2, 0.3], 3)
    ([0, 0, 2], None)
    """
    if weights is None:
        return None
    checked = check_weights(weights, n_rows)
    if (checked != np.floor(checked)).any() or (checked == 1).all():
        return None
    if checked.sum() > _MOST_ROWS:
        raise BadPredictions(
            f"weights are whole numbers, which count rows, and add up to {checked.sum():g} of them; a test writes out "
            f"{_MOST_ROWS:g} at most. If they are shares, divide them by their sum"
        )
    return np.repeat(np.arange(n_rows), checked.astype(np.int64))


def write_out(event: Scored, rows: Ints | None) -> Scored:
    """The event with its rows written out, all of one weight."""
    if rows is None:
        return event
    return Scored(event.scores[rows], event.hits[rows], np.full(len(rows), 1 / len(rows)), float(len(rows)))


def group_numbers(groups: object, n_rows: int) -> Ints:
    """Number the groups from 0; at least two are needed to tell noise from error.

    >>> group_numbers(["b", "a", "b"], 3).tolist()
    [1, 0, 1]
    """
    values = to_numpy(groups, "groups")
    if values.shape != (n_rows,):
        raise BadPredictions(f"groups must have shape ({n_rows},), one a row; got {values.shape}")
    try:
        names, numbers = np.unique(values, return_inverse=True, equal_nan=False)
    except TypeError as error:
        raise BadPredictions(f"groups must be all numbers or all text, to be told apart ({error})") from error
    if len(names) < 2:
        raise BadPredictions("groups must hold at least 2 different values; one group says nothing about chance")
    return numbers


def redrawn_residuals(
    event: Scored, groups: Ints | None, n_resamples: int, rng: np.random.Generator
) -> Iterator[Floats]:
    """Yield weight * (hit - score) of each row under calibration, (resamples, n), a batch at a time."""
    n_rows = len(event.scores)
    residuals = event.weights * (event.hits - event.scores)
    step = max(1, _ENTRIES // n_rows)
    hits = float(event.scores.sum())
    by_signs = groups is not None and not few_surprises(min(hits, n_rows - hits), groups)
    for first in range(0, n_resamples, step):
        size = min(step, n_resamples - first)
        if groups is not None and by_signs:
            yield residuals * random_signs(rng, size, int(groups.max()) + 1)[:, groups]
        else:
            yield event.weights * ((_uniform(rng, size, n_rows, groups) < event.scores) - event.scores)


def few_surprises(expected: float, groups: Ints) -> bool:
    """Whether so many hits that are rare, or misses that are, leave signs of groups too little to go by.

    >>> few_surprises(30.0, np.arange(1000)), few_surprises(30.0, np.arange(1000) // 2)
    (False, True)
    """
    return expected * (int(groups.max()) + 1) / len(groups) < _FEW_SURPRISES


def _uniform(rng: np.random.Generator, size: int, n_rows: int, groups: Ints | None) -> Floats:
    """Numbers from 0 to 1, (size, rows): one for each row, or one for each group."""
    return rng.random((size, n_rows)) if groups is None else rng.random((size, int(groups.max()) + 1))[:, groups]


def random_signs(rng: np.random.Generator, *shape: int) -> Array:
    """Return -1 and 1 at random, one byte each."""
    return 2 * rng.integers(0, 2, shape, dtype=np.int8) - 1


def redrawn_labels(
    probabilities: Array, n_resamples: int, rng: np.random.Generator, groups: Ints | None = None
) -> Iterator[Ints]:
    """Yield labels (n,) drawn from probabilities (n, k), one resample after the other; one draw a group if given."""
    n_rows = len(probabilities)
    step = max(1, _LABELS // n_rows)
    for first in range(0, n_resamples, step):
        labels = np.empty((min(step, n_resamples - first), n_rows), dtype=np.int32)
        of_group = None if groups is None else rng.random((int(groups.max()) + 1, len(labels)))
        for rows in row_blocks(n_rows, max(probabilities.shape[1], len(labels))):
            uniform = (
                rng.random((rows.stop - rows.start, len(labels)))
                if groups is None or of_group is None
                else of_group[groups[rows]]
            )
            labels[:, rows] = _draw(probabilities[rows], uniform).T
        for drawn in labels:
            yield drawn.astype(np.int64)


def _draw(block: Array, uniform: Floats) -> Ints:
    """The class where each row's cumulative probability passes its uniform numbers (rows, resamples)."""
    width = block.shape[1]
    reached = np.cumsum(np.maximum(block.astype(np.float64), 0.0), axis=1)
    reached /= reached[:, -1:]
    # Row i lies in i..i+1: end to end they make one ascending list, and one search serves all rows. The factor keeps
    # a number just below 1 from rounding into the next row.
    row = np.arange(len(block))[:, None]
    wanted = uniform * (1 - 1e-9) + row
    return np.searchsorted((reached + row).ravel(), wanted.ravel(), side="right").reshape(wanted.shape) - row * width
