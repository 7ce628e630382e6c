"""Probabilities before and after calibration -> what a probability becomes.

A calibrator that looks at all classes sends one probability to many, so the map is a middle and a spread.
"""

from dataclasses import dataclass

import numpy as np

from glayers.arrays import Floats, to_floats, two_dimensional
from glayers.errors import BadPredictions
from glayers.probabilities import refuse_outside_unit_interval
from glayers.settings import whole_number

_SPREAD = (0.1, 0.5, 0.9)  # quantiles: most rows, without the odd ones


@dataclass(frozen=True, eq=False)
class CalibrationMap:
    """One entry for every bin of probability that holds a row: the median before; after, median and 10 and 90 %."""

    before: Floats
    after: Floats
    low: Floats
    high: Floats
    count: Floats


def calibration_map(before: object, after: object, class_: int | None = None, *, n_bins: int = 20) -> CalibrationMap:
    """Return what probabilities become, of one class or, if none is named, of the class on top before.

    >>> p = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3]])
    >>> calibration_map(p, (p + 1 / 3) / 2).after.round(3).tolist()
    [0.417, 0.617]
    """
    whole_number(n_bins, "n_bins", least=1)
    old, new = (two_dimensional(to_floats(p, name), name) for p, name in ((before, "before"), (after, "after")))
    if old.shape != new.shape:
        raise BadPredictions(f"before and after must have one shape; got {old.shape} and {new.shape}")
    if class_ is None:
        column = old.argmax(axis=1)
    else:
        column = np.full(len(old), whole_number(class_, "class_", 0, old.shape[1] - 1))
    rows = np.arange(len(old))
    x, y = old[rows, column].astype(np.float64), new[rows, column].astype(np.float64)
    refuse_outside_unit_interval(x, "before")
    refuse_outside_unit_interval(y, "after")
    place = np.minimum((x * n_bins).astype(np.int64), n_bins - 1)
    order = np.argsort(place, kind="stable")
    cuts = np.flatnonzero(np.diff(place[order])) + 1
    entries = [
        (np.median(xs), *np.quantile(ys, _SPREAD), len(xs))
        for xs, ys in zip(np.split(x[order], cuts), np.split(y[order], cuts), strict=True)
    ]
    middle_before, low, middle, high, count = np.array(entries, dtype=np.float64).T
    return CalibrationMap(middle_before, middle, low, high, count)
