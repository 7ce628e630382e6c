"""Rows of probabilities -> how alike any two of them are: kernels that fall from 1 to 0 with distance."""

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.errors import BadPredictions
from glayers.settings import number_between

KernelName: TypeAlias = Literal["gaussian", "laplacian", "total_variation"]
Kernel: TypeAlias = Callable[[Floats, Floats], Floats]

_FAR = 1000.0  # bandwidths: every kernel is 0 there in float64, and no bandwidth is too small to be divided by
_SAMPLE = 500  # rows whose distances give the bandwidth: over a hundred thousand pairs
# The median distance itself, the usual choice, is that between two unlike predictions: a kernel so wide hardly tells
# rows apart. A quarter gave the most power, or nearly, at 2, 10 and 100 classes: experiments/level_and_power.py.
_SHARE_OF_MEDIAN = 0.25


def make_kernel(
    name: KernelName, bandwidth: float | None, probabilities: Array, rows: Ints, rng: np.random.Generator
) -> Kernel:
    """Return the function from rows (a, k) and (b, k) to their likeness (a, b).

    "gaussian" is exp(-d^2 / 2h^2) and "laplacian" exp(-d / h) of the Euclidean distance d; "total_variation" is
    exp(-d / h) of half the sum of absolute differences; h is the bandwidth.
    """
    if name not in _SHAPES:
        raise BadPredictions(f"kernel must be one of {', '.join(map(repr, _SHAPES))}; got {name!r}")
    distance, shape = _SHAPES[name]
    if bandwidth is None:
        width = _SHARE_OF_MEDIAN * _median_distance(distance, probabilities, rows, rng)
    else:
        width = number_between(bandwidth, "bandwidth", 0, np.inf)
    return lambda left, right: shape(np.minimum(distance(left, right), _FAR * width) / width)


def _median_distance(distance: Kernel, probabilities: Array, rows: Ints, rng: np.random.Generator) -> float:
    some = probabilities[rows[np.sort(rng.permutation(len(rows))[:_SAMPLE])]].astype(np.float64)
    between = distance(some, some)[np.triu_indices(len(some), 1)]
    apart = between[between > 1e-6]  # equal rows, as saturated models have, say nothing of scale
    return float(np.median(apart)) if apart.size else 1.0


def _euclidean(left: Floats, right: Floats) -> Floats:
    """One product of matrices; where rows are equal, rounding leaves 1e-8 of distance, which the square forgives."""
    squares = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    return np.sqrt(np.maximum(squares, 0.0))


def _exact_euclidean(left: Floats, right: Floats) -> Floats:
    return np.sqrt(_summed_over_classes(left, right, np.square))


def _total_variation(left: Floats, right: Floats) -> Floats:
    return _summed_over_classes(left, right, np.abs) / 2


def _summed_over_classes(left: Floats, right: Floats, size: Callable[[Floats], Floats]) -> Floats:
    """Add one class at a time: all at once would need k times the room."""
    total = np.zeros((len(left), len(right)))
    for c in range(left.shape[1]):
        total += size(left[:, c, None] - right[:, c])
    return total


_SHAPES: dict[str, tuple[Kernel, Callable[[Floats], Floats]]] = {
    "gaussian": (_euclidean, lambda d: np.exp(-(d**2) / 2)),
    "laplacian": (_exact_euclidean, lambda d: np.exp(-d)),
    "total_variation": (_total_variation, lambda d: np.exp(-d)),
}
