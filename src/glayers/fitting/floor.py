"""Logits of held-out rows -> how far below the highest class an ordinary class lies: the `Floor` before dense layers.

Also probabilities of held-out rows -> what stands for a probability of 0, which has no finite logit.

A dense layer reads every class, so one class of -1e4, or an impossible one, would decide the result of all others. What
counts as far depends on the data: distances are measured in nats, after temperature scaling, and compared with those of
the other rows.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from glayers.activations import with_reference_class
from glayers.arrays import Array, Floats, map_row_blocks
from glayers.maps import Chain, Floor, LogProbabilities

_LARGEST = float(np.finfo(np.float64).max)  # of numbers that a file holds
_LIKELY = 20.0  # nats below the highest class: up to here a class may be the label of one row in many millions
_GAP = 3.0  # a distance this many times the next smaller one is that of a masked class
_MARGIN = 5.0  # nats, on top of a quarter: new rows may have larger distances than these
# Probabilities up to here count as 0: `Predictions.from_probabilities` raises zeros to 1e-12, and rows that sum to 0.99
# are normalised afterwards.
_ZERO = 1.02e-12


def fit_log_probabilities(probabilities: Floats, weights: Floats | None = None) -> tuple[LogProbabilities, str]:
    """Return the step from probabilities to logits, and a note for the user that counts the probabilities it raises.

    Zeros are raised to half the smallest other probability: a forest of 100 trees that says 0 means less than 1 %, and
    not 1e-12. Where that is more than half of 1 / classes, as for a single tree that says 0 or 1, the latter is used.

    >>> fit_log_probabilities(np.array([[0.9, 0.1, 0.0], [0.02, 0.98, 0.0]]))[1]
    '2 of 6 probabilities are 0 and were raised to 0.01, half the smallest other one'
    """
    if weights is not None:
        probabilities = probabilities[weights > 0]
    if probabilities.shape[1] == 1:
        probabilities = np.concatenate([1.0 - probabilities, probabilities], axis=1)
    zeros = probabilities <= _ZERO
    floor = min(probabilities[~zeros].min() / 2, 0.5 / probabilities.shape[1])
    note = ""
    if zeros.any():
        counted = f"{zeros.sum()} of {zeros.size} probabilities"
        note = f"{counted} are 0 and were raised to {floor:.3g}, half the smallest other one"
    return LogProbabilities(np.asarray(floor)), note


def fit_floor(logits: Array, factor: float, weights: Floats | None) -> Floor:
    """Return the floor, with an empty branch, for logits that are nats after multiplication by `factor`.

    The depth is twice the largest ordinary distance, and the reach is what distances have beyond twice the lead, with a
    margin for new rows.

    >>> z = np.array([[0.0, -5.0, -9.0], [0.0, -4.0, -7.0], [-8.0, 0.0, -1e4], [-9.0, -4.0, 0.0]])
    >>> floor = fit_floor(z, 1.0, None)
    >>> floor.depth.item(), floor.reach.item()  # 9 - 2 * 4 = 1 is the most beyond twice the lead
    (18.0, 6.25)
    """
    each = with_reference_class(logits if weights is None else logits[weights > 0])
    leads = np.concatenate(_over_blocks(each, lambda far: np.partition(far, 1, axis=1)[:, 1]))
    finite = leads[np.isfinite(leads)]
    near = max(_LIKELY / factor, float(np.median(finite)) if finite.size else 0.0)
    following = near
    while following:  # up to the largest distance before the first gap
        largest, following = following, _largest_within(each, following, _GAP * following)
    lowest = np.concatenate(_over_blocks(each, lambda far: far.max(axis=1, where=far <= largest, initial=0.0)))
    several = lowest > 0
    if not several.any():  # one possible class in each row, or all equal
        return Floor(np.asarray(2 * near), np.asarray(near), (Chain(()),))
    reach = max(0.0, float((lowest - 2 * leads)[several].max()))
    depth, reach = (min(each, _LARGEST) for each in (2 * float(lowest.max()), 1.25 * reach + _MARGIN / factor))
    return Floor(np.asarray(depth), np.asarray(reach), (Chain(()),))


def _largest_within(logits: Array, start: float, end: float) -> float:
    """Return the largest distance above `start` and up to `end`, or 0."""
    return max(_over_blocks(logits, lambda far: far.max(where=(far > start) & (far <= end), initial=0.0)))


def _over_blocks(logits: Array, function: Callable[[Floats], Any]) -> list[Any]:
    """Return a function of the distances below the highest class, for each block of rows."""

    def of_block(rows: slice) -> Any:
        block = logits[rows].astype(np.float64)
        return function(block.max(axis=1, keepdims=True) - block)

    return map_row_blocks(of_block, *logits.shape)
