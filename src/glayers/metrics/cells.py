"""Events -> weights and scores added up over narrow cells of scores, and the few rows that stand for all of them.

A cell becomes two rows: its hits and its misses, each with their weight and their mean score. So metrics of many rows
are evaluated on few, by the same code. Cells add up over chunks and machines, and no cell crosses an edge of the 15
equal-width bins.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from glayers.arrays import Array, Bools, Floats, Ints, row_blocks
from glayers.checks import HIGHEST, LOWEST
from glayers.metrics.events import N_BINS, SAME_SCORE, Rows, Scored, bin_of
from glayers.metrics.metric import Block, PlaceSums

_BIN_EDGES = np.arange(1, N_BINS) / N_BINS
_CLASS_CELLS = 2**20  # of all classes together, about: 8 MB for each of four sums


@dataclass(frozen=True)
class CellGrid:
    """Cells of [0, 1] whose width is a power of 2 times the score: `octaves` of 2**`bits` cells, cut at the bins.

    The cell of a score is read off its leading bits. The first cell also holds all smaller scores, the last 1 itself.
    """

    octaves: int
    bits: int

    @property
    def number(self) -> int:
        """The number of cells."""
        return self.octaves * 2**self.bits + N_BINS

    def of(self, scores: Array) -> Ints:
        """Return the cell of each score.

        >>> CellGrid(3, 1).of(np.array([0.0, 0.126, 0.25, 0.3, 0.5, 0.75 - 1e-15, 0.9, 1.0])).tolist()
        [0, 1, 5, 6, 11, 16, 18, 20]
        """
        integer = np.int32 if scores.dtype == np.float32 else np.int64
        shift = np.finfo(scores.dtype).nmant - self.bits
        first = scores.dtype.type(2.0**-self.octaves).view(integer) >> shift
        leading = np.clip(scores + scores.dtype.type(SAME_SCORE), 0, 1).view(integer) >> shift
        # Both terms grow with the score, so two scores have the same sum only if they share the cell and the bin.
        return np.maximum(leading - first, 0) + bin_of(scores, _BIN_EDGES)

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """The smallest and the largest score of each cell."""
        steps = 1 + np.arange(2**self.bits) / 2**self.bits
        starts = np.outer(2.0 ** np.arange(-self.octaves, 0), steps).ravel()
        starts = np.append(starts[1:], 1.0)
        breaks = np.sort(np.concatenate([starts - SAME_SCORE, _BIN_EDGES + SAME_SCORE]))
        low = np.append(LOWEST, np.nextafter(breaks, 1.0))
        high = np.append(breaks, HIGHEST)
        return low, high


@dataclass(eq=False)
class Cells:
    """One event: the weight of each cell's misses and hits, their scores, and the range of all scores in the cell.

    Weights may have several columns, one per weighting of the rows. Scores are those of the first column.
    """

    grid: CellGrid
    weight: Floats  # (2 * cells, b): misses, then hits
    score: Floats  # (2 * cells,): sums of weight * score
    low: Floats
    high: Floats

    @classmethod
    def empty(cls, grid: CellGrid, n_columns: int) -> Self:
        """Return cells without rows."""
        size = 2 * grid.number
        nothing = np.full(grid.number, np.inf)
        return cls(grid, np.zeros((size, n_columns)), np.zeros(size), nothing, -nothing)

    def add(self, event: Scored, weights: Floats) -> None:
        """Add rows with weights (n, b)."""
        cell = self.grid.of(event.scores)
        place = cell + self.grid.number * event.hits.astype(np.int64)
        sums = PlaceSums(place[:, None], np.ones((len(place), 1)), len(self.score))
        self.weight += sums.of(Block(weights, np.ones(weights.shape[1])))
        self.score += np.bincount(place, weights[:, 0] * event.scores, len(self.score))
        np.minimum.at(self.low, cell, event.scores)
        np.maximum.at(self.high, cell, event.scores)

    def merge(self, other: Self) -> None:
        """Add all rows of other cells."""
        self.weight += other.weight
        self.score += other.score
        np.minimum(self.low, other.low, out=self.low)
        np.maximum(self.high, other.high, out=self.high)

    def as_rows(self, n_rows: Floats) -> tuple[Scored, Block]:
        """Return a row for the misses and a row for the hits of each cell, and its weight in each column.

        `n_rows` are the effective numbers of rows, (b,); columns without rows are left out.
        """
        used = np.flatnonzero(self.weight[:, 0] > 0)
        cell = used % self.grid.number
        means = self.score[used] / self.weight[used, 0]
        scores = np.clip(means, self.low[cell], self.high[cell])
        hits = (used >= self.grid.number).astype(np.float64)
        seen = n_rows > 0
        weights = self.weight[used][:, seen]
        shares = weights / weights.sum(axis=0)
        event = Scored(scores, hits, shares[:, 0], float(n_rows[0]))
        return event, Block(shares, n_rows[seen])

    @property
    def total(self) -> float:
        """The weight of all rows."""
        return float(self.weight[:, 0].sum())

    @property
    def share(self) -> Floats:
        """The share of the weight that each cell holds."""
        return self.weight[:, 0].reshape(2, -1).sum(axis=0) / self.total

    @property
    def varied(self) -> Bools:
        """Whether a cell holds different scores, so that the order of its rows is not known."""
        return self.high - self.low > SAME_SCORE

    @property
    def changes(self) -> Floats:
        """What each cell adds to the running gap of scores and hits."""
        hits = self.weight[self.grid.number :, 0]
        return (self.score.reshape(2, -1).sum(axis=0) - hits) / self.total

    @property
    def rises(self) -> Floats:
        """How far the running gap may rise inside each cell: by its misses."""
        misses = self.score[: self.grid.number]
        return np.where(self.varied, misses / self.total, np.maximum(self.changes, 0.0))

    @property
    def falls(self) -> Floats:
        """How far the running gap may fall inside each cell: by its hits."""
        return self.rises - self.changes


class CellValue(NamedTuple):
    """What a metric is for cells: these, the event that stands for their rows, and its value."""

    cells: Cells
    event: Scored
    value: float


class ClassCells:
    """The events "the label is this class" of all classes.

    In a wide row most probabilities are in the first cell. These misses are not added up one by one: they are what the
    other cells leave of all misses.
    """

    def __init__(self, n_classes: int) -> None:
        octaves = math.ceil(math.log2(n_classes)) + 4  # a sixteenth of an even share
        cells = max(1.0, _CLASS_CELLS / (n_classes * octaves))
        self.grid = CellGrid(octaves, min(11, max(2, math.floor(math.log2(cells)))))
        self.weight = np.zeros((2, n_classes, self.grid.number))  # misses, hits
        self.score = np.zeros((2, n_classes, self.grid.number))
        self.missed_scores = np.zeros(n_classes)  # of all misses, those in the first cell too

    def add(self, rows: Rows, weights: Floats) -> None:
        """Add rows with these weights."""
        shape = rows.probabilities.shape
        for some in row_blocks(*shape):
            p = rows.probabilities[some].astype(np.promote_types(rows.probabilities.dtype, np.float32))
            weight = weights[some]
            labels = rows.labels[some]
            own = np.arange(len(labels)), labels
            self._add(1, labels, p[own], weight)
            p[own] = 0.0
            self.missed_scores += column_sums(p, weight)
            beyond = np.flatnonzero(p > p.dtype.type(2.0**-self.grid.octaves))
            row, column = np.divmod(beyond, shape[1])
            self._add(0, column, p.reshape(-1)[beyond], weight[row])

    def _add(self, hit: int, classes: Ints, scores: Array, weights: Floats) -> None:
        place = classes * self.grid.number + self.grid.of(scores)
        np.add.at(self.weight[hit].reshape(-1), place, weights)
        np.add.at(self.score[hit].reshape(-1), place, weights * scores)

    def merge(self, other: Self) -> None:
        """Add all rows of other cells."""
        self.weight += other.weight
        self.score += other.score
        self.missed_scores += other.missed_scores

    def events(self, total: float) -> Iterator[Cells]:
        """Yield the cells of each class; `total` is the weight of all rows."""
        for c in range(self.weight.shape[1]):
            weight = self.weight[:, c].copy()
            score = self.score[:, c].copy()
            others = weight[1].sum() + weight[0, 1:].sum()
            weight[0, 0] = max(0.0, total - others)
            score[0, 0] = self.missed_scores[c] - score[0, 1:].sum()
            yield Cells(self.grid, weight.reshape(-1, 1), score.reshape(-1), *self.grid.ends)


def column_sums(p: Array, weights: Floats) -> Floats:
    """Return the weighted sum of each column."""
    if np.ptp(weights) == 0:  # summing first halves the work where all rows weigh the same
        return p.sum(axis=0, dtype=np.float64) * weights[0]
    return weights @ p.astype(np.float64)
