"""Predictions -> the squared kernel calibration error (SKCE) and its test: all classes at once.

A model is calibrated in all its classes when the residual r = one-hot label - p has mean 0 given p. Two rows with
similar predictions then have unrelated residuals, so the mean over pairs of h = k(p, p') r.r' is 0; it is positive if
the model errs the same way on similar rows. Widmann, Lindsten and Zachariah, "Calibration Tests in Multi-Class
Classification", NeurIPS 2019.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.random import Generator

from glayers.arrays import Array, Floats, Ints
from glayers.checks import check_choice, number_between, whole_number
from glayers.errors import BadPredictions
from glayers.metrics.calibration_tests import CalibrationTest, allow_for, compare_with_draws
from glayers.metrics.dependence import UnseenFailures
from glayers.metrics.events import Rows, check_rows
from glayers.metrics.redrawing import (
    Draws,
    Outcomes,
    check_seed,
    group_numbers,
    label_outcomes,
    redraw,
    redrawn_labels,
)
from glayers.progress import progress_bar

__all__ = ["skce", "skce_test"]

KernelName: TypeAlias = Literal["gaussian", "laplacian", "total_variation"]
Kernel: TypeAlias = Callable[[Floats, Floats], Floats]
Estimator: TypeAlias = Literal["blocked", "quadratic"]
_TILE = 256  # rows of a tile of pairs: 512 kB in float64
_FEW_CLASSES = 8  # up to here one matrix product per class is faster than comparing the labels of every pair
_FAR = 1000.0  # bandwidths: every kernel is 0 there in float64, and no bandwidth is too small to divide by
_SAMPLE = 500  # rows whose distances give the bandwidth: over a hundred thousand pairs
# The median distance itself, the usual choice, is that between two unlike predictions: a kernel so wide hardly tells
# rows apart. A quarter gave the most power, or nearly, at 2, 10 and 100 classes: experiments/level_and_power.py.
_PART_OF_MEDIAN = 0.25


def skce(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    kernel: KernelName = "gaussian",
    bandwidth: float | None = None,
    estimator: Estimator = "blocked",
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
    kernel
        "gaussian", or the slower "laplacian" and "total_variation".
    bandwidth
        Width of the kernel; by default a quarter of the median distance of two rows.
    estimator
        "quadratic" takes all n^2 / 2 pairs of rows. "blocked" takes the pairs within random blocks of rows, n *
        block_size / 2 of them, which is faster and noisier.
    block_size
        Rows per block.
    random_state
        Seed of the blocks.

    Returns
    -------
    float
        The mean of h over pairs of different rows, an unbiased estimate. Widmann et al., NeurIPS 2019.

    Examples
    --------
    One pair, with kernel exp(-0.3742), whose residuals (-0.1, 0.2, -0.1) and (-0.2, -0.5, 0.7) have the product -0.15:

    >>> round(skce([[0.1, 0.8, 0.1], [0.2, 0.5, 0.3]], [1, 2], kernel="laplacian", bandwidth=1), 6)
    -0.103179
    """
    rng = np.random.default_rng(check_seed(random_state))
    rows = check_rows(probabilities, labels, sample_weight, groups, strict=True)
    pairs = _Pairs.of(rows, kernel, bandwidth, rng)
    blocks = pairs.blocks(estimator, block_size, rng)
    return float(_sums_of_blocks(pairs, blocks, pairs.labels[None])[0, 0]) / pairs.mass(blocks)


def skce_test(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    kernel: KernelName = "gaussian",
    bandwidth: float | None = None,
    estimator: Estimator = "blocked",
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
    probabilities, labels, sample_weight, groups, kernel, bandwidth, estimator, block_size
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
    rows = check_rows(probabilities, labels, sample_weight, groups, strict=True)
    pairs = _Pairs.of(rows, kernel, bandwidth, rng)
    blocks = pairs.blocks(estimator, block_size, rng)
    total = pairs.mass(blocks)
    if pairs.groups is not None:
        found = redraw(pairs.outcomes(), partial(_sums_of_blocks, pairs, blocks), n_resamples, rng)
        test = compare_with_draws(float(found.values[0] / total), found.drawn[:, 0] / total, level)
        if test.too_few_groups:
            return test
        return allow_for(pairs.unseen_failures(blocks, pairs.groups), test, power=2)
    value = 0.0
    drawn = np.zeros(n_resamples)
    with progress_bar(progress, "blocks of rows", len(blocks)) as advance:
        for block in blocks:  # labels of one block at a time, which bounds the memory
            outcomes = Outcomes(pairs.labels[block], partial(redrawn_labels, pairs.probabilities_at(block)))
            found = redraw(outcomes, partial(pairs.sums_of_block, block), n_resamples, rng)
            value += float(found.values[0])
            drawn += found.drawn[:, 0]
            advance()
    return compare_with_draws(value / total, drawn / total, level)


def _sums_of_blocks(pairs: "_Pairs", blocks: list[Ints], labels: Array) -> Floats:
    """Return the sum of w w' h over all pairs compared, for labels (b, n), (b, 1)."""
    return np.sum([pairs.sums_of_block(block, labels[:, block]) for block in blocks], axis=0)


class _Pairs(NamedTuple):
    """What is known of each row of positive weight; rows of the same group are not compared."""

    probabilities: Array  # as given: `rows` says which of them stands where
    rows: Ints
    labels: Ints
    weights: Floats
    groups: Ints | None  # None where every row is its own
    kernel: Kernel

    @classmethod
    def of(cls, given: Rows, kernel: KernelName, bandwidth: float | None, rng: Generator) -> "_Pairs":
        rows = np.flatnonzero(given.weights)
        numbers = None if given.groups is None else group_numbers(given.groups)[rows]
        if len(rows) < 2:
            raise BadPredictions("pairs of rows need at least 2 rows; got 1")
        made = make_kernel(kernel, bandwidth, given.probabilities, rows, rng)
        return cls(given.probabilities, rows, given.labels[rows], given.weights[rows], numbers, made)

    def blocks(self, estimator: Estimator, block_size: int, rng: Generator) -> list[Ints]:
        """Divide the rows into random blocks: a file sorted by class must not give blocks of one class."""
        size = whole_number(block_size, "block_size", least=2)
        check_choice(estimator, get_args(Estimator), "estimator")
        n_blocks = 1 if estimator == "quadratic" else max(1, len(self.rows) // size)
        return np.array_split(rng.permutation(len(self.rows)), n_blocks)

    def probabilities_at(self, places: Ints) -> Floats:
        """Return the probabilities of rows."""
        return self.probabilities[self.rows[places]].astype(np.float64)

    def similarity(self, left: Ints, right: Ints) -> Floats:
        """Return w w' k(p, p') of each pair of two lists of places, 0 within a group."""
        weights = np.outer(self.weights[left], self.weights[right])
        if self.groups is None:
            counted = left[:, None] != right
        else:
            counted = self.groups[left][:, None] != self.groups[right]
        return self.kernel(self.probabilities_at(left), self.probabilities_at(right)) * (counted * weights)

    def outcomes(self) -> Outcomes:
        """Return labels that depend on each other within groups: all resamples at once, as pairs are read only once.

        A factor for an error is squared: this error is a square.
        """
        p = self.probabilities_at(np.arange(len(self.rows)))
        rows = Rows(p, self.labels, self.weights, float(len(p)), groups=self.groups)
        outcomes = label_outcomes(rows)

        def draw(n_resamples: int, rng: Generator) -> Iterator[tuple[Array, Floats]]:
            batches = list(outcomes.draw(n_resamples, rng))
            labels = np.concatenate([labels for labels, _ in batches])
            factors = np.concatenate([factors for _, factors in batches])
            yield labels, factors**2

        return outcomes._replace(draw=draw)

    def sums_of_block(self, block: Ints, labels: Array) -> Floats:
        """Return the sum of w w' h over the pairs of a block, for labels (b, rows), (b, 1)."""
        small = labels.astype(np.min_scalar_type(self.probabilities.shape[1]))
        redrawn = _Relabelled(self, block, small, np.zeros((len(block), self.probabilities.shape[1])))
        sums = np.zeros(len(labels))
        for left, right, times in _tiles(len(block)):
            sums += times * redrawn.of_tile(left, right, times)
        return (sums + redrawn.rest())[:, None]

    def unseen_failures(self, blocks: list[Ints], groups: Ints) -> UnseenFailures:
        """Return what groups whose top class is never right, or always, could explain of the root of the error.

        The mean of h is the mean product of a row's residual and the residuals similar to it. A failing group would
        have another residual: its top class lacks hits, which the other classes have in proportion to p.
        """
        sizes = np.bincount(groups)
        shown = fewer = more = 0.0
        for block in blocks:
            p = self.probabilities_at(block)
            rows = np.arange(len(block))
            residuals = -p
            residuals[rows, self.labels[block]] += 1
            similar = np.zeros_like(p)  # the sum of w w' k(p, p') r' over the other rows
            for left, right, times in _tiles(len(block)):
                tile = self.similarity(block[left], block[right])
                similar[left] += tile @ residuals[right]
                if times == 2:
                    similar[right] += tile.T @ residuals[left]
            best = p.argmax(axis=1)
            confidence = p[rows, best]
            others = np.einsum("ij,ij->i", p, similar) - confidence * similar[rows, best]
            others /= np.maximum(1 - confidence, 1e-9)
            counted = sizes[groups[block]] > 1
            gain = (similar[rows, best] - others) * counted  # by a hit of the top class
            shown += float(np.einsum("ij,ij->i", similar, residuals) @ counted)
            fewer += float(gain @ confidence)
            more -= float(gain @ (1 - confidence))
        root = max(shown / self.mass(blocks), 0.0) ** 0.5
        lost = max(fewer, more, 0.0) / self.mass(blocks)
        return UnseenFailures(root, lost / (root or 1.0), int((sizes > 1).sum()))

    def mass(self, blocks: list[Ints]) -> float:
        """Return the sum of w w' over the pairs compared: all pairs of a block less those within its groups."""
        total = 0.0
        for block in blocks:
            weights = self.weights[block]
            pairs = float(weights.sum()) ** 2
            if self.groups is None:
                total += pairs - float(weights @ weights)
            else:
                within = np.bincount(self.groups[block], weights)
                total += pairs - float(within @ within)
        if total <= 0:
            raise BadPredictions("no block holds rows of two different groups; pass a larger block_size")
        return total


class _Relabelled(NamedTuple):
    """The sum of w w' h over a block for many labels: only the labels' part of h changes."""

    pairs: _Pairs
    block: Ints
    labels: Array  # (b, rows)
    expected: Floats  # the sum of w w' k(p, p') p' over the other rows, (rows, classes): filled tile by tile

    def of_tile(self, left: slice, right: slice, times: int) -> Floats:
        """Return the sum of w w' k(p, p') over the pairs of a tile whose labels are equal, (b,)."""
        similar = self.pairs.similarity(self.block[left], self.block[right])
        self.expected[left] += similar @ self.pairs.probabilities_at(self.block[right])
        if times == 2:
            self.expected[right] += similar.T @ self.pairs.probabilities_at(self.block[left])
        n_classes = self.expected.shape[1]
        sums = np.zeros(len(self.labels))
        if n_classes <= _FEW_CLASSES:
            mine = self.labels[:, left].T
            theirs = self.labels[:, right].T
            for c in range(n_classes):
                alike = similar @ (theirs == c).astype(np.float64)
                sums += (alike * (mine == c)).sum(axis=0)
            return sums
        flat = similar.ravel()
        equal = np.empty(similar.shape)
        for place, row in enumerate(self.labels):
            np.equal(row[left, None], row[right], out=equal)
            sums[place] = flat @ equal.ravel()
        return sums

    def rest(self) -> Floats:
        """Return what p.p' - p(label') - p'(label) adds, once every tile is in."""
        rows = np.arange(len(self.block))
        of_labels = np.array([self.expected[rows, row].sum() for row in self.labels])
        return float(np.einsum("ij,ij->", self.expected, self.pairs.probabilities_at(self.block))) - 2 * of_labels


def _tiles(n_rows: int) -> Iterator[tuple[slice, slice, int]]:
    """Yield the upper triangle of a square of pairs in tiles, and how often each counts."""
    starts = range(0, n_rows, _TILE)
    for top in starts:
        for left in starts[top // _TILE :]:
            yield slice(top, top + _TILE), slice(left, left + _TILE), 1 if top == left else 2


def make_kernel(name: KernelName, bandwidth: float | None, probabilities: Array, rows: Ints, rng: Generator) -> Kernel:
    """Return the function from rows (a, k) and (b, k) to their similarity (a, b).

    "gaussian" is exp(-d^2 / 2h^2) and "laplacian" exp(-d / h) of the Euclidean distance d; "total_variation" is
    exp(-d / h) of half the sum of absolute differences; h is the bandwidth.
    """
    check_choice(name, _DISTANCES, "kernel")
    distance = _DISTANCES[name]
    if bandwidth is None:
        sampled = np.sort(rng.permutation(len(rows))[:_SAMPLE])
        some = probabilities[rows[sampled]].astype(np.float64)
        between = distance(some, some)[np.triu_indices(len(some), 1)]
        apart = between[between > 1e-6]  # equal rows, as saturated models have, carry no scale
        typical = float(np.median(apart)) if apart.size else 1.0
        width = _PART_OF_MEDIAN * typical
    else:
        width = number_between(bandwidth, "bandwidth", 0, np.inf)

    def kernel(left: Floats, right: Floats) -> Floats:
        scaled = np.minimum(distance(left, right), _FAR * width) / width
        return np.exp(-(scaled**2) / 2 if name == "gaussian" else -scaled)

    return kernel


def _fast_euclidean(left: Floats, right: Floats) -> Floats:
    """One product of matrices; for equal rows rounding leaves a distance of 1e-8, which squaring makes harmless."""
    squares = np.add.outer((left**2).sum(axis=1), (right**2).sum(axis=1))
    squares -= 2 * left @ right.T
    return np.sqrt(np.maximum(squares, 0.0))


def _distances(left: Floats, right: Floats, metric: str) -> Floats:
    from scipy.spatial.distance import cdist  # on first use: importing it takes longer than importing glayers

    return np.asarray(cdist(left, right, metric))


_DISTANCES: dict[str, Kernel] = {
    "gaussian": _fast_euclidean,
    "laplacian": partial(_distances, metric="euclidean"),
    "total_variation": lambda left, right: _distances(left, right, "cityblock") / 2,
}
