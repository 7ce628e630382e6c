"""Rows, weights, groups and a seed -> the row weights of bootstrap resamples: the data itself is never copied.

A resample draws as many units as there are, with replacement. A unit is a row, or a whole group where groups are given.
Whole weights count rows (`checks.py`), so a row of weight 2 is two units that happen to be alike, and resampling it is
resampling the row written twice. Any other weights go along with their rows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints, check_weights
from glayers.errors import BadPredictions
from glayers.metrics.old.redrawing import group_numbers, written_out

_ENTRIES = 400_000  # of the weights of one batch: 3 MB, so that a batch and what is made of it stay in the cache
_MOST_BLOCKS = 100  # then the noise of an acceleration, 0.4 / blocks, moves an end by a sixtieth of a standard error


class Batch(NamedTuple):
    """Resamples side by side: the share of each row (n, b), columns summing to 1, and the rows each stands for (b,)."""

    shares: Floats
    totals: Floats


@dataclass(frozen=True)
class Resampling:
    """What to draw, how often and from which seed; every pass over `batches` gives the same bytes.

    Units stand in slots, sorted by stratum; `starts` and `sizes` say where a slot's stratum begins and how long it is.
    """

    factors: Floats
    groups: Ints | None  # None where each row is a unit
    slots: Ints
    starts: Ints
    sizes: Ints
    row_weights: Floats | None  # None where weights count rows
    n_resamples: int
    n_blocks: int
    seed: np.random.SeedSequence

    @property
    def n_columns(self) -> int:
        """The sample itself, then the jackknife's blocks, then the resamples."""
        return 1 + self.n_blocks + self.n_resamples

    @property
    def n_batches(self) -> int:
        """How many batches one pass yields."""
        return -(-self.n_columns // self._width)

    def batches(self) -> Iterator[Batch]:
        """Yield the columns in batches that fit the cache: the sample, each block left out, each resample."""
        columns = self._columns()
        for first in range(0, self.n_columns, self._width):
            counts = np.empty((self._n_units, min(self._width, self.n_columns - first)))
            for place in range(counts.shape[1]):
                counts[:, place] = next(columns)
            yield self._batch(counts)

    @property
    def _width(self) -> int:
        return max(4, _ENTRIES // len(self.factors))

    @property
    def _n_units(self) -> int:
        return len(self.factors) if self.groups is None else int(self.groups.max()) + 1

    def _columns(self) -> Iterator[Array]:
        """Yield how often each unit counts, column by column."""
        yield np.bincount(self.slots, minlength=self._n_units)
        rng = np.random.default_rng(self.seed)
        for kept in self._blocks(rng):
            yield np.bincount(self.slots, weights=kept, minlength=self._n_units)
        for _ in range(self.n_resamples):
            drawn = self.starts + (rng.random(len(self.slots)) * self.sizes).astype(np.int64)
            yield np.bincount(self.slots[drawn], minlength=self._n_units)

    def _blocks(self, rng: np.random.Generator) -> Iterator[Floats]:
        """Yield weights of the slots with one block left out; what is left of a stratum makes up for what is gone."""
        # Slots of one stratum in random order, dealt out like cards: every block has its share of every stratum.
        block = np.empty(len(self.slots), dtype=np.int64)
        shuffled = np.lexsort((rng.random(len(self.slots)), self.starts))
        block[shuffled] = np.arange(len(self.slots)) % max(1, self.n_blocks)
        for left_out in range(self.n_blocks):
            stays = block != left_out
            staying = np.bincount(self.starts, weights=stays, minlength=len(self.slots))[self.starts]
            yield np.where(staying > 0, stays * self.sizes / np.maximum(staying, 1), 1.0)

    def _batch(self, counts: Floats) -> Batch:
        """Turn counts of units (units, b), which are overwritten, into weights of rows."""
        raw = counts if self.groups is None else counts[self.groups]
        raw *= self.factors[:, None]
        sums = raw.sum(axis=0)
        totals = sums if self.row_weights is None else sums**2 / (self.row_weights @ raw)
        raw /= sums
        return Batch(raw, totals)


def plan_resampling(
    labels: Ints,
    weights: object,
    groups: object,
    *,
    n_resamples: int,
    jackknife: bool,
    stratify: bool,
    random_state: int | None,
) -> Resampling:
    """Decide what a unit is and where it may be drawn; `jackknife` adds the blocks that BCa intervals need.

    >>> settings = {"n_resamples": 3, "jackknife": False, "random_state": 0}
    >>> plan = plan_resampling(np.array([0, 1, 1]), None, None, stratify=True, **settings)
    >>> (3 * next(plan.batches()).shares).round().tolist()  # the sample, then three resamples; class 0 has one row
    [[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0], [1.0, 2.0, 2.0, 1.0]]
    """
    n_rows = len(labels)
    given = np.ones(n_rows) if weights is None else check_weights(weights, n_rows)
    whole = bool((given == np.floor(given)).all())
    if not whole:  # shares do not depend on it, and squares of tiny weights would vanish; a power of 2 rounds nothing
        given = np.ldexp(given, -np.frexp(given.max())[1])
    numbers = None if groups is None else group_numbers(groups, n_rows)
    if numbers is not None and stratify:
        raise BadPredictions("units are drawn by class or by group, not both; pass stratify=False, or groups=None")
    repeated = written_out(weights, n_rows) if numbers is None else None
    slots = np.flatnonzero(given if numbers is None else np.bincount(numbers, weights=given))
    slots = slots if repeated is None else repeated
    if len(slots) < 2:
        what = "rows" if numbers is None else "groups"
        raise BadPredictions(f"resampling needs at least 2 {what} of positive weight; got {len(slots)}")
    strata = labels[slots] if stratify else np.zeros(len(slots), dtype=np.int64)
    order = np.argsort(strata, kind="stable")
    _, first, size = np.unique(strata[order], return_index=True, return_counts=True)
    return Resampling(
        factors=np.ones(n_rows) if whole and numbers is None else given,
        groups=numbers,
        slots=slots[order],
        starts=np.repeat(first, size),
        sizes=np.repeat(size, size),
        row_weights=None if whole else given,
        n_resamples=n_resamples,
        n_blocks=min(len(slots), _MOST_BLOCKS) if jackknife else 0,
        seed=np.random.SeedSequence(random_state),
    )
