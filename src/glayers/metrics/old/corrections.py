"""Many p-values -> p-values that may be read together: of a hundred classes, five look bad at 5 percent by chance."""

from typing import Literal, TypeAlias

import numpy as np

from glayers.arrays import Floats, to_floats
from glayers.errors import BadPredictions

Correction: TypeAlias = Literal["holm", "benjamini_hochberg"]


def adjust(p_values: object, method: Correction = "holm") -> Floats:
    """Corrected p-values: reject those that are at most the level.

    "holm" keeps the chance of any false alarm at the level, whatever the tests owe to each other: the i-th smallest of
    m is multiplied by m - i + 1. "benjamini_hochberg" keeps the share of false alarms among all alarms there, for tests
    that are independent or err together: it is multiplied by m / i. Holm, Scandinavian Journal of Statistics 1979;
    Benjamini and Hochberg, Journal of the Royal Statistical Society B 1995.

    >>> adjust([0.01, 0.04, 0.03]).round(4).tolist()
    [0.03, 0.06, 0.06]
    >>> adjust([0.01, 0.04, 0.03], method="benjamini_hochberg").round(4).tolist()
    [0.03, 0.04, 0.04]
    """
    given = to_floats(p_values, "p_values").astype(np.float64)
    if given.ndim != 1 or not ((given >= 0) & (given <= 1)).all():
        raise BadPredictions(f"p_values must be one number between 0 and 1 for each test; got {p_values!r}")
    if method not in _STEPS:
        raise BadPredictions(f"method must be one of {', '.join(map(repr, _STEPS))}; got {method!r}")
    order = np.argsort(given, kind="stable")
    adjusted = np.empty(len(given))
    adjusted[order] = np.minimum(_STEPS[method](given[order]), 1.0)
    return adjusted


def _holm(ascending: Floats) -> Floats:
    left = np.arange(len(ascending), 0, -1)
    return np.maximum.accumulate(ascending * left)


def _benjamini_hochberg(ascending: Floats) -> Floats:
    rank = np.arange(1, len(ascending) + 1)
    return np.minimum.accumulate((ascending * len(ascending) / rank)[::-1])[::-1]


_STEPS = {"holm": _holm, "benjamini_hochberg": _benjamini_hochberg}
