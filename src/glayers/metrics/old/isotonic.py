"""Values in order, with weights -> the nearest values that never fall, as blocks of equal value."""

from typing import NamedTuple

import numpy as np

from glayers.arrays import Floats, Ints


class Blocks(NamedTuple):
    """Where each block begins, its weight, and its value: the weighted mean of what it pools."""

    starts: Ints
    weights: Floats
    values: Floats


def pool_adjacent_violators(sums: Floats, weights: Floats) -> Blocks:
    """Isotonic regression of sums / weights, all weights positive. Ayer et al., Annals of Mathematical Statistics 1955.

    Wherever values fall, their mean takes their place. A run that falls all the way ends up in one block whatever the
    order of pooling, so each pass pools all runs at once.

    >>> pool_adjacent_violators(np.array([1.0, 3.0, 2.0, 1.0, 5.0]), np.ones(5)).values.tolist()
    [1.0, 2.0, 5.0]
    """
    starts = np.arange(len(sums))
    while True:
        values = sums / weights
        first = np.append(True, values[1:] > values[:-1])
        if first.all():
            return Blocks(starts, weights, values)
        kept = np.flatnonzero(first)
        starts, sums, weights = starts[kept], np.add.reduceat(sums, kept), np.add.reduceat(weights, kept)
