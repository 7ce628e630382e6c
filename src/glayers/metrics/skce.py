"""Predictions -> the squared kernel calibration error (SKCE) and its test: all classes at once.

A model is calibrated in all its classes when the residual r = one-hot label - p has mean 0 given p. Two rows with
similar predictions then have unrelated residuals, so the mean over pairs of h = k(p, p') r.r' is 0; it is positive if
the model errs the same way on similar rows. Widmann, Lindsten and Zachariah, "Calibration Tests in Multi-Class
Classification", NeurIPS 2019.
"""

from collections.abc import Callable

import numpy as np

from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.checks import number_between, whole_number
from glayers.errors import BadPredictions
from glayers.metrics.calibration_tests import CalibrationTest, compare_with_draws
from glayers.metrics.events import Rows, check_rows, check_seed
from glayers.metrics.redrawing import Draws, redraw

__all__ = ["skce", "skce_test"]


def skce(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    bandwidth: float | None = None,
    block_size: int = 1000,
    random_state: int | None = 0,
) -> float:
    """Squared kernel calibration error: 0 on average for a calibrated model, so it may come out negative.

    Parameters
    ----------
    probabilities
        Array (n, k) or `Predictions`.
    labels
        Class numbers (n,); left out with `Predictions`.
    sample_weight
        Row weights (n,).
    groups
        Group of each row (n,); rows of the same group are not compared.
    bandwidth
        Width h of the kernel exp(-d^2 / 2h^2) of the Euclidean distance d; by default a quarter of the median distance
        of two rows.
    block_size
        Rows per random block: only pairs within a block are compared. A block of all rows takes longest and is the
        least noisy.
    random_state
        Seed of the blocks.

    Returns
    -------
    float
        The mean of h over pairs of different rows, an unbiased estimate. Widmann et al., NeurIPS 2019.

    Examples
    --------
    One pair, with kernel exp(-0.07), whose residuals (-0.1, 0.2, -0.1) and (-0.2, -0.5, 0.7) have the product -0.15:

    >>> round(skce([[0.1, 0.8, 0.1], [0.2, 0.5, 0.3]], [1, 2], bandwidth=1), 6)
    -0.139859
    """
    rng = np.random.default_rng(check_seed(random_state))
    rows = _rows_to_compare(probabilities, labels, sample_weight, groups)
    return float(_error_of_labels(rows, bandwidth, block_size, rng)(rows.labels[None])[0])


def skce_test(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    bandwidth: float | None = None,
    block_size: int = 1000,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> CalibrationTest:
    """Test calibration in all classes at once.

    Labels are redrawn from the probabilities, with the dependence that groups seem to have.

    Parameters
    ----------
    probabilities, labels, sample_weight, groups, bandwidth, block_size
        As in `skce`.
    n_resamples, random_state
        The number of draws and the seed.
    level
        The level of the bound and of `rejected`.
    progress
        Whether to show a progress bar; None shows it at a terminal.

    Returns
    -------
    CalibrationTest
        Widmann et al., NeurIPS 2019.

    Examples
    --------
    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> skce_test(p, y).p_value < 0.01
    True
    """
    rng = Draws(n_resamples, level, random_state).generator()
    rows = _rows_to_compare(probabilities, labels, sample_weight, groups)
    error = _error_of_labels(rows, bandwidth, block_size, rng)

    def signed_roots(batch: Array) -> Floats:
        """Dependence in groups scales an error; this one is a square."""
        errors = error(batch)[:, None]
        return np.sign(errors) * np.sqrt(np.abs(errors))

    value, drawn = redraw(rows, signed_roots, n_resamples, rng, progress)
    drawn *= np.abs(drawn)
    return compare_with_draws(float(value[0] * abs(value[0])), drawn[:, 0], level)


def _rows_to_compare(probabilities: object, labels: object, sample_weight: object, groups: object) -> Rows:
    """Return the rows of positive weight."""
    rows = check_rows(probabilities, labels, sample_weight, groups, strict=True)
    counted = np.flatnonzero(rows.weights)
    if len(counted) < 2:
        raise BadPredictions("pairs of rows need at least 2 rows; got 1")
    numbers = None
    if rows.groups is not None:
        numbers = rows.group_numbers[counted]
    p = rows.probabilities[counted].astype(np.float64)
    return Rows(p, rows.labels[counted], given_weights=rows.own_weights[counted], groups=numbers)


def _error_of_labels(
    rows: Rows, bandwidth: float | None, block_size: int, rng: np.random.Generator
) -> Callable[[Array], Floats]:
    """Return the function from labels (b, n) to the mean of h over pairs of different rows, or groups, (b,)."""
    if bandwidth is None:
        bandwidth = _bandwidth(rows.probabilities, rng)
    width = number_between(bandwidth, "bandwidth", 0, np.inf)
    size = whole_number(block_size, "block_size", least=2)
    # Random blocks: a file sorted by class must not give blocks of one class.
    blocks = np.array_split(rng.permutation(len(rows)), max(1, len(rows) // size))
    mass = 0.0
    for block in blocks:
        within = np.bincount(rows.group_numbers[block], rows.weights[block])
        mass += float(within.sum()) ** 2 - float(within @ within)
    if mass <= 0:
        raise BadPredictions("no block holds rows of two different groups; pass a larger block_size")
    return lambda labels: np.sum([_block_sums(rows, block, labels[:, block], width) for block in blocks], axis=0) / mass


def _block_sums(rows: Rows, block: Ints, labels: Array, width: float) -> Floats:
    """Return the sum of w w' h over the pairs of a block, for labels (b, rows), (b,).

    r.r' is 1 for equal labels, less p(label') and p'(label), plus p.p'.
    """
    p = rows.probabilities[block]
    weights = rows.weights[block]
    groups = rows.group_numbers[block]
    sums = np.zeros(len(labels))
    for some in row_blocks(len(block), len(block)):
        scaled = np.minimum(_distances(p[some], p), 1000 * width) / width  # further away the kernel is 0 in float64
        similar = np.exp(-(scaled**2) / 2) * np.outer(weights[some], weights)
        similar[groups[some, None] == groups] = 0.0
        expected = similar @ p
        own = np.arange(len(expected))
        sums += _sums_of_equal_labels(similar, labels[:, some], labels, p.shape[1])
        sums -= 2 * expected[own, labels[:, some]].sum(axis=1)
        sums += float((expected * p[some]).sum())
    return sums


def _sums_of_equal_labels(similar: Floats, left: Array, right: Array, n_classes: int) -> Floats:
    """Return the sum of similar (rows, others) over pairs with equal labels, for labels (b, rows) and (b, others)."""
    sums = np.zeros(len(left))
    if n_classes <= 8:  # up to here one product per class is faster than comparing the labels of every pair
        for c in range(n_classes):
            alike = (right == c).astype(np.float64) @ similar.T
            sums += (alike * (left == c)).sum(axis=1)
        return sums
    for place in range(len(left)):
        sums[place] = similar[left[place, :, None] == right[place]].sum()
    return sums


def _bandwidth(p: Floats, rng: np.random.Generator) -> float:
    """Return a quarter of the median distance of two rows, from 500 rows.

    The median itself, the usual choice, is the distance of two unlike predictions: a kernel so wide hardly tells rows
    apart. A quarter gave the most power, or nearly, at 2, 10 and 100 classes: experiments/level_and_power.py.
    """
    some = p[np.sort(rng.permutation(len(p))[:500])]
    distances = _distances(some, some)[np.triu_indices(len(some), 1)]
    apart = distances[distances > 1e-6]  # equal rows, as saturated models have, carry no scale
    if len(apart) == 0:
        return 0.25
    return float(np.median(apart)) / 4


def _distances(left: Floats, right: Floats) -> Floats:
    """One product of matrices; for equal rows rounding leaves a distance of 1e-8, which squaring makes harmless."""
    squares = np.add.outer((left**2).sum(axis=1), (right**2).sum(axis=1))
    squares -= 2 * left @ right.T
    return np.sqrt(np.maximum(squares, 0.0))
