"""Rows, weights, groups and a seed -> row weights of bootstrap resamples, and intervals from what metrics make of them.

A resample draws as many units as there are, with replacement; the data itself is never copied. A unit is a row, or a
whole group where groups are given. Weights go along with their rows.

A percentile interval is the middle of what the resamples gave. A BCa interval ("bias-corrected and accelerated") moves
both ends, because the statistic may be off on average and its spread may change with its value. Efron, "Better
Bootstrap Confidence Intervals", Journal of the American Statistical Association, 1987.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import NormalDist
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from glayers.arrays import Array, Floats
from glayers.checks import check_choice, check_switch, number_between, whole_number
from glayers.errors import BadPredictions
from glayers.metrics.events import Rows, Scored
from glayers.metrics.metric import Block, Metric
from glayers.metrics.redrawing import check_seed, group_numbers
from glayers.metrics.registry import class_ranges, evaluate
from glayers.progress import progress_bar

__all__ = ["Interval"]

Method: TypeAlias = Literal["bca", "percentile"]
_ENTRIES = 400_000  # of the weights of one block: 3 MB, so that a block and what is made of it stay in the cache
_MOST_BLOCKS = 100  # left out: the noise of an acceleration, 0.4 / blocks, moves an end by 1/60 of a standard error
_NORMAL = NormalDist()
_BELOW_1 = math.nextafter(1.0, 0.0)  # 1 itself has no normal quantile
_SAME = 1e-12  # a resample's accuracy may equal the sample's on paper and differ by rounding


class Interval(NamedTuple):
    """A value, its confidence interval, its standard error, and the mean of the resamples minus the value.

    An interval is `unreliable` if the bias exceeds a quarter of the standard error. Efron and Tibshirani, "An
    Introduction to the Bootstrap", 1993, section 10.3.
    """

    value: float
    low: float
    high: float
    standard_error: float
    bias: float

    @property
    def unreliable(self) -> bool:
        """Whether the interval should not be trusted."""
        return abs(self.bias) > max(self.standard_error / 4, _SAME)


@dataclass(frozen=True)
class Bootstrap:
    """Settings of a bootstrap: how many resamples of what kind, and which intervals."""

    n_resamples: int = 1000
    level: float = 0.95
    method: Method = "bca"
    stratify: bool = False
    random_state: int | None = 0
    progress: bool | None = None

    def __post_init__(self) -> None:
        whole_number(self.n_resamples, "n_resamples", least=2)
        number_between(self.level, "level", 0, 1)
        check_choice(self.method, get_args(Method), "method")
        check_switch(self.stratify, "stratify")
        check_seed(self.random_state)

    def columns(self, rows: Rows | Scored, metrics: Sequence[Metric], what: str) -> dict[str, "Bootstrapped"]:
        """Evaluate metrics at the sample, with each block left out, and at each resample."""
        plan = Resampling(rows, self)
        with progress_bar(self.progress, what, len(class_ranges(rows, metrics)) * plan.n_batches) as advance:
            found = evaluate(rows, metrics, plan.blocks, advance)
        return {name: Bootstrapped.of(columns, plan.n_left_out) for name, columns in found.items()}


class Bootstrapped(NamedTuple):
    """One statistic at the sample, with each of the jackknife's blocks left out, and at each resample."""

    value: float
    left_out: Floats
    drawn: Floats

    @classmethod
    def of(cls, columns: Floats, n_left_out: int) -> "Bootstrapped":
        """Take apart the columns of a resampling."""
        return cls(float(columns[0]), *np.split(columns[1:], [n_left_out]))

    def minus(self, other: "Bootstrapped") -> "Bootstrapped":
        """Return the difference of two statistics on the same resamples."""
        return Bootstrapped(self.value - other.value, self.left_out - other.left_out, self.drawn - other.drawn)

    def interval(self, level: float) -> Interval:
        """Return the percentile interval, or BCa where blocks were left out and every resample is finite."""
        finite = bool(np.isfinite(self.drawn).all())
        with np.errstate(over="ignore"):  # losses of 1e300 have a spread that float64 cannot hold
            error = float(self.drawn.std(ddof=1)) if finite else math.inf
        quantiles = [(1 - level) / 2, min((1 + level) / 2, _BELOW_1)]
        if len(self.left_out) and finite:
            quantiles = [self._bca_quantile(q) for q in quantiles]
        ordered = np.sort(self.drawn)
        # The j-th of R ordered resamples is the j / (R + 1) quantile; round outwards.
        low, high = ((len(ordered) + 1) * q for q in quantiles)
        ends = np.clip([math.floor(low + 1e-9), math.ceil(high - 1e-9)], 1, len(ordered)) - 1
        bias = float(self.drawn.mean()) - self.value if finite else 0.0
        low, high = ordered[ends].tolist()
        return Interval(self.value, low, high, error if error > _SAME else 0.0, bias)

    def _bca_quantile(self, quantile: float) -> float:
        """Phi(z0 + (z0 + z) / (1 - a (z0 + z))) for the quantile Phi(z), with the bias z0 and the acceleration a."""
        n_resamples = len(self.drawn)
        below = np.count_nonzero(self.drawn < self.value - _SAME)
        above = np.count_nonzero(self.drawn > self.value + _SAME)
        # Ties count half. If all resamples lie on one side, the other side has a probability below 1 / 2R.
        rate_below = (n_resamples + below - above) / (2 * n_resamples)
        bias = _NORMAL.inv_cdf(min(max(rate_below, 0.5 / n_resamples), 1 - 0.5 / n_resamples))
        z = bias + _NORMAL.inv_cdf(quantile)
        # Past the pole of the formula lies the far end of the distribution.
        return _NORMAL.cdf(bias + z / max(1 - self._acceleration() * z, 1e-3))

    def _acceleration(self) -> float:
        """A sixth of the skewness of the jackknife's values, over the root of their number."""
        pulls = self.left_out.mean() - self.left_out
        largest = float(np.abs(pulls).max())
        if not _SAME < largest < math.inf:
            return 0.0
        pulls = pulls / largest  # so that no cube leaves what float64 can hold
        return float((pulls**3).sum()) / (6 * float((pulls**2).sum()) ** 1.5)


class Resampling:
    """What to draw, how often and from which seed; every pass over `blocks` gives the same bytes.

    Units stand in slots, sorted by stratum; `starts` and `sizes` say where a slot's stratum begins and how long it is.
    """

    def __init__(self, rows: Rows | Scored, settings: Bootstrap) -> None:
        n_rows = len(rows.weights)
        given = np.ones(n_rows) if rows.given_weights is None else rows.given_weights
        # A common factor changes nothing, and squares of tiny weights would vanish. Powers of 2 are exact.
        self.row_weights = given = np.ldexp(given, -np.frexp(given.max())[1])
        self.groups = None if rows.groups is None else group_numbers(rows.groups)
        if self.groups is not None and settings.stratify:
            raise BadPredictions("units are drawn by class or by group, not both; pass stratify=False, or groups=None")
        slots = np.flatnonzero(given if self.groups is None else np.bincount(self.groups, weights=given))
        if len(slots) < 2:
            what = "rows" if self.groups is None else "groups"
            raise BadPredictions(f"resampling needs at least 2 {what} of positive weight; got {len(slots)}")
        outcomes = rows.labels if isinstance(rows, Rows) else rows.hits.astype(np.int64)
        strata = outcomes[slots] if settings.stratify else np.zeros(len(slots), dtype=np.int64)
        order = np.argsort(strata, kind="stable")
        _, first, size = np.unique(strata[order], return_index=True, return_counts=True)
        self.slots, self.starts, self.sizes = slots[order], np.repeat(first, size), np.repeat(size, size)
        self.n_resamples = settings.n_resamples
        self.n_left_out = min(len(slots), _MOST_BLOCKS) if settings.method == "bca" else 0  # blocks of the jackknife
        self._width = max(4, _ENTRIES // n_rows)
        self.n_batches = -(-(1 + self.n_left_out + self.n_resamples) // self._width)  # blocks of weights in one pass
        self._n_units = n_rows if self.groups is None else int(self.groups.max()) + 1
        self.seed = np.random.SeedSequence(settings.random_state)

    def blocks(self) -> Iterator[Block]:
        """Yield the columns in blocks that fit the cache: the sample, each block left out, each resample."""
        columns = self._columns()
        while counts := list(islice(columns, self._width)):
            yield self._block(np.stack(counts, axis=1, dtype=np.float64))

    def _columns(self) -> Iterator[Array]:
        """Yield how often each unit counts, column by column."""
        yield np.bincount(self.slots, minlength=self._n_units)
        rng = np.random.default_rng(self.seed)
        for kept in self._jackknife(rng):
            yield np.bincount(self.slots, weights=kept, minlength=self._n_units)
        for _ in range(self.n_resamples):
            drawn = self.starts + (rng.random(len(self.slots)) * self.sizes).astype(np.int64)
            yield np.bincount(self.slots[drawn], minlength=self._n_units)

    def _jackknife(self, rng: np.random.Generator) -> Iterator[Floats]:
        """Yield weights of the slots with one block left out; the rest of its stratum is weighted up instead."""
        # Slots of one stratum in random order, dealt out like cards: every block has its part of every stratum.
        block = np.empty(len(self.slots), dtype=np.int64)
        shuffled = np.lexsort((rng.random(len(self.slots)), self.starts))
        block[shuffled] = np.arange(len(self.slots)) % max(1, self.n_left_out)
        for left_out in range(self.n_left_out):
            stays = block != left_out
            staying = np.bincount(self.starts, weights=stays, minlength=len(self.slots))[self.starts]
            yield np.where(staying > 0, stays * self.sizes / np.maximum(staying, 1), 1.0)

    def _block(self, counts: Floats) -> Block:
        """Turn counts of units (units, b), which are overwritten, into weights of rows."""
        raw = counts if self.groups is None else counts[self.groups]
        raw *= self.row_weights[:, None]
        sums = raw.sum(axis=0)
        totals = sums**2 / (self.row_weights @ raw)
        raw /= sums
        return Block(raw, totals)
