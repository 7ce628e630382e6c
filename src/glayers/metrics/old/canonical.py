"""Probabilities and labels -> the squared kernel calibration error (SKCE) and its test: all classes at once.

A model is calibrated in all its classes when the residual r = one-hot label - p has mean 0 given p. Two rows that got
alike predictions then have unrelated residuals, so the mean over pairs of h = k(p, p') r.r' is 0, and positive if the
model errs the same way on rows alike. Widmann, Lindsten and Zachariah, "Calibration Tests in Multi-Class
Classification", NeurIPS 2019.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.errors import BadPredictions
from glayers.metrics.old.checks import check
from glayers.metrics.old.kernels import Kernel, KernelName, make_kernel
from glayers.metrics.old.redrawing import few_surprises, group_numbers, random_signs, redrawn_labels, written_out
from glayers.metrics.old.verdicts import CalibrationTest, Draws, check_seed, judge_by_draws
from glayers.metrics.old.waiting import waiting_bar
from glayers.probabilities import check_probability_rows
from glayers.settings import whole_number

Estimator: TypeAlias = Literal["blocked", "quadratic"]
_ESTIMATORS: tuple[Estimator, ...] = ("blocked", "quadratic")
_TILE = 256  # rows of a tile of pairs: 512 kB in float64
_FEW_CLASSES = 8  # up to here a product of matrices for each class is faster than comparing the labels of every pair


def skce(
    probabilities: object,
    labels: object,
    weights: object = None,
    groups: object = None,
    *,
    kernel: KernelName = "gaussian",
    bandwidth: float | None = None,
    estimator: Estimator = "blocked",
    block_size: int = 1000,
    random_state: int | None = 0,
) -> float:
    """Squared kernel calibration error: 0 on average for a calibrated model, so that it may come out negative.

    Unbiased: the mean of h over pairs of different rows, and different groups. "quadratic" takes all n^2 / 2 of them,
    "blocked" those within blocks of rows put together at random: n * block_size / 2, at the price of noise. Kernels and
    bandwidth as in `skce_test`. Widmann et al., NeurIPS 2019.

    One pair, alike by exp(-0.3742), whose residuals (-0.1, 0.2, -0.1) and (-0.2, -0.5, 0.7) have the product -0.15:

    >>> round(skce([[0.1, 0.8, 0.1], [0.2, 0.5, 0.3]], [1, 2], kernel="laplacian", bandwidth=1), 6)
    -0.103179
    """
    rng = np.random.default_rng(check_seed(random_state))
    pairs = _Pairs.of(probabilities, labels, weights, groups, kernel, bandwidth, rng)
    blocks = pairs.blocks(estimator, block_size, rng)
    total = 0.0
    for block in blocks:
        for left, right, times in _tiles(len(block)):
            total += times * float(pairs.products(block[left], block[right]).sum())
    return total / pairs.mass(blocks)


def skce_test(
    probabilities: object,
    labels: object,
    weights: object = None,
    groups: object = None,
    *,
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

    Labels are drawn anew from the probabilities; with groups the residuals of whole groups change sign instead, which
    leaves each h its size (`redrawing.py` says when not). `kernel` is "gaussian", or the slower "laplacian" or
    "total_variation"; `bandwidth` is a quarter of the median distance of two rows unless given. Widmann et al., NeurIPS
    2019; with groups the wild bootstrap of Dehling and Mikosch, Journal of Multivariate Analysis 1994.

    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> skce_test(p, y).p_value < 0.01
    True
    """
    draws = Draws(n_resamples, level, random_state)
    rng = draws.generator()
    pairs = _Pairs.of(probabilities, labels, weights, groups, kernel, bandwidth, rng)
    blocks = pairs.blocks(estimator, block_size, rng)
    tiles = [list(_tiles(len(block))) for block in blocks]
    sums = np.zeros(1 + n_resamples)
    with waiting_bar(progress, "pairs of rows", sum(map(len, tiles))) as advance:
        for chance, its_tiles in zip(_chances(pairs, blocks, n_resamples, rng), tiles, strict=True):
            for left, right, times in its_tiles:
                sums += times * chance.of_tile(left, right, times)
                advance()
            sums += chance.rest()
    means = sums / pairs.mass(blocks)
    return judge_by_draws(float(means[0]), means[1:], level)


class _Pairs(NamedTuple):
    """What is known of each row, whole weights written out; a row is never compared with its own group."""

    probabilities: Array  # as given: `rows` says which of them stands where
    rows: Ints
    labels: Ints
    weights: Floats
    groups: Ints | None  # None where every row is its own
    kernel: Kernel

    @classmethod
    def of(
        cls,
        probabilities: object,
        labels: object,
        weights: object,
        groups: object,
        kernel: KernelName,
        bandwidth: float | None,
        rng: np.random.Generator,
    ) -> "_Pairs":
        checked = check(probabilities, labels, weights)
        check_probability_rows(checked.probabilities)
        n_rows = len(checked.labels)
        written = written_out(weights, n_rows)
        rows = np.arange(n_rows) if written is None else written
        share = checked.weights if written is None else np.full(len(rows), 1 / len(rows))
        numbers = None if groups is None else group_numbers(groups, n_rows)[rows]
        if len(rows) < 2:
            raise BadPredictions("pairs of rows need at least 2 rows; got 1")
        made = make_kernel(kernel, bandwidth, checked.probabilities, rows, rng)
        return cls(checked.probabilities, rows, checked.labels[rows], share, numbers, made)

    def blocks(self, estimator: Estimator, block_size: int, rng: np.random.Generator) -> list[Ints]:
        """Deal the rows out to blocks at random: a file sorted by class must not make blocks of one class."""
        size = whole_number(block_size, "block_size", least=2)
        if estimator not in _ESTIMATORS:
            raise BadPredictions(f"estimator must be 'blocked' or 'quadratic'; got {estimator!r}")
        n_blocks = 1 if estimator == "quadratic" else max(1, len(self.rows) // size)
        return np.array_split(rng.permutation(len(self.rows)), n_blocks)

    def said(self, places: Ints) -> Floats:
        """The probabilities of rows."""
        return self.probabilities[self.rows[places]].astype(np.float64)

    def expected_misses(self) -> float:
        """How often the likeliest class is expected to be wrong."""
        return float((1 - self.probabilities.max(axis=1).astype(np.float64))[self.rows].sum())

    def alike(self, left: Ints, right: Ints) -> Floats:
        """Return w w' k(p, p') of each pair of two lists of places, 0 within a group."""
        units = (left, right) if self.groups is None else (self.groups[left], self.groups[right])
        counted = (units[0][:, None] != units[1]) * (self.weights[left][:, None] * self.weights[right])
        return self.kernel(self.said(left), self.said(right)) * counted

    def products(self, left: Ints, right: Ints) -> Floats:
        """Return w w' h of each pair of two lists of places, 0 within a group."""
        # r.r' = p.p' - p(label') - p'(label) + [label = label']: no one-hot arrays needed
        p, q, mine, theirs = self.said(left), self.said(right), self.labels[left], self.labels[right]
        return self.alike(left, right) * (p @ q.T - p[:, theirs] - q[:, mine].T + (mine[:, None] == theirs))

    def mass(self, blocks: list[Ints]) -> float:
        """The sum of w w' over the pairs that are compared: all pairs of a block less those within its groups."""
        total = 0.0
        for block in blocks:
            share = self.weights[block]
            within = share if self.groups is None else np.bincount(self.groups[block], weights=share)
            total += float(share.sum() ** 2 - within @ within)
        if total <= 0:
            raise BadPredictions("no two rows of different groups share a block; pass a larger block_size")
        return total


class _Signs(NamedTuple):
    """The sum of w w' h over a block, as it is and where the residuals of groups change sign."""

    pairs: _Pairs
    block: Ints
    signs: Array  # (rows, 1 + resamples)

    def of_tile(self, left: slice, right: slice, _times: int) -> Floats:
        products = self.pairs.products(self.block[left], self.block[right])
        return (products @ self.signs[right].astype(np.float64) * self.signs[left]).sum(axis=0)

    def rest(self) -> float:
        return 0.0


class _Redrawn(NamedTuple):
    """The sum of w w' h over a block, for labels as they are and drawn anew: only the labels' part of h changes."""

    pairs: _Pairs
    block: Ints
    labels: Array  # (1 + resamples, rows)
    likely: Floats  # the sum of w w' k(p, p') p' over the other rows, (rows, classes): filled tile by tile

    def of_tile(self, left: slice, right: slice, times: int) -> Floats:
        """The sum of w w' k(p, p') over the pairs of a tile whose labels are equal, (1 + resamples,)."""
        alike = self.pairs.alike(self.block[left], self.block[right])
        self.likely[left] += alike @ self.pairs.said(self.block[right])
        if times == 2:
            self.likely[right] += alike.T @ self.pairs.said(self.block[left])
        n_classes = self.likely.shape[1]
        if n_classes <= _FEW_CLASSES:
            mine, theirs = self.labels[:, left].T, self.labels[:, right].T
            each = ((alike @ (theirs == c).astype(np.float64) * (mine == c)).sum(axis=0) for c in range(n_classes))
            return np.sum(list(each), axis=0)
        flat, equal = alike.ravel(), np.empty(alike.shape)
        return np.array([flat @ np.equal(row[left, None], row[right], out=equal).ravel() for row in self.labels])

    def rest(self) -> Floats:
        """What p.p' - p(label') - p'(label) adds, once every tile is in."""
        rows = np.arange(len(self.block))
        of_labels = np.array([self.likely[rows, row].sum() for row in self.labels])
        return float(np.einsum("ij,ij->", self.likely, self.pairs.said(self.block))) - 2 * of_labels


def _chances(
    pairs: _Pairs, blocks: list[Ints], n_resamples: int, rng: np.random.Generator
) -> Iterator[_Signs | _Redrawn]:
    """Yield each block as it is and by chance; a group keeps its sign, or its draw, in every block."""
    groups, kind = pairs.groups, np.min_scalar_type(pairs.probabilities.shape[1])
    if groups is not None and not few_surprises(pairs.expected_misses(), groups):
        signs = random_signs(rng, int(groups.max()) + 1, n_resamples)
        for block in blocks:
            yield _Signs(pairs, block, np.column_stack([np.ones(len(block), dtype=np.int8), signs[groups[block]]]))
        return
    if groups is None:  # a block at a time: all rows at once would need n * resamples
        drawn = (_stacked(redrawn_labels(pairs.said(block), n_resamples, rng), kind) for block in blocks)
    else:
        all_rows = _stacked(redrawn_labels(pairs.said(np.arange(len(groups))), n_resamples, rng, groups), kind)
        drawn = (all_rows[:, block] for block in blocks)
    for block, labels in zip(blocks, drawn, strict=True):
        observed = pairs.labels[block].astype(kind)
        shape = (len(block), pairs.probabilities.shape[1])
        yield _Redrawn(pairs, block, np.vstack([observed, labels]), np.zeros(shape))


def _stacked(resamples: Iterator[Ints], kind: np.dtype[np.generic]) -> Array:
    return np.stack([labels.astype(kind) for labels in resamples])


def _tiles(n_rows: int) -> Iterator[tuple[slice, slice, int]]:
    """Yield the upper triangle of a square of pairs in tiles, and how often each counts."""
    starts = range(0, n_rows, _TILE)
    for top in starts:
        for left in starts[top // _TILE :]:
            yield slice(top, top + _TILE), slice(left, left + _TILE), 1 if top == left else 2
