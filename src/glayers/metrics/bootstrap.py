"""Rows, weights, groups and a seed -> row weights of bootstrap resamples, and intervals from what metrics make of them.

A resample draws as many units as there are, with replacement; the data itself is never copied. A unit is a row, or a
whole group where groups are given. Weights go along with their rows.

A percentile interval is the middle of what the resamples gave. A BCa interval ("bias-corrected and accelerated") moves
both ends, because the statistic may be off on average and its spread may change with its value. Efron, "Better
Bootstrap Confidence Intervals", Journal of the American Statistical Association, 1987.

Both are too narrow for few units, and where few rows or groups cause most of the variance. So they reach as far as
Student's t, with the degrees of freedom of the variance. Hesterberg, "What Teachers Should Know About the Bootstrap",
American Statistician, 2015. A share of rows needs no resamples: its interval is exact (Clopper and Pearson, Biometrika
1934), with an effective number of rows where rows have weights or groups (Korn and Graubard, Survey Methodology 1998).
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
from glayers.metrics.events import Rows, Scored, effective_number, own_weights
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
_NORMAL_FROM = 1e6  # degrees of freedom
_SAME = 1e-12  # a resample's accuracy may equal the sample's on paper and differ by rounding
_NEAR_POLE = 1e-3  # the smallest denominator of BCa's formula
_OUTWARDS = 1e-9  # a place that is whole on paper may differ by rounding
_FEW_GROUPS = 7.9  # effective number; 8 groups whose sizes differ by a row are enough
# These two and `Metric.trusted_from` were made from simulated models and checked on others: docs/intervals.md.
_FEW_ERRORS = 5
_MOST_BIAS = 1 / 5  # of a standard error


class Interval(NamedTuple):
    """A value, its confidence interval, its standard error, and the mean of the resamples minus the value.

    `unreliable` says in a few words why the interval should not be trusted; it is empty if nothing speaks against it.
    """

    value: float
    low: float
    high: float
    standard_error: float
    bias: float
    unreliable: str = ""


class Evidence(NamedTuple):
    """Effective numbers of rows, of units (rows or groups), and of units with the rarer outcome of the event.

    Weights count as Kish's effective number, (sum w)^2 / sum w^2.
    """

    n_rows: float = math.inf
    n_units: float = math.inf
    n_rarer: float = math.inf
    rarer: str = "errors"
    grouped: bool = False
    even: bool = True  # independent rows of equal weight

    @classmethod
    def of(cls, rows: Rows | Scored) -> "Evidence":
        """Count the rows, and the units that hold errors and hits."""
        hits = rows.top.hits
        units = np.arange(len(rows.weights))
        if rows.groups is not None:
            units = group_numbers(rows.groups)
        n_units = effective_number(np.bincount(units, rows.weights))
        n_errors = effective_number(np.bincount(units, rows.weights * (1 - hits)))
        n_hits = effective_number(np.bincount(units, rows.weights * hits))
        rarer = "errors" if n_errors <= n_hits else "hits"
        even = math.isclose(n_units, np.count_nonzero(rows.weights))
        return cls(rows.total, n_units, min(n_errors, n_hits), rarer, rows.groups is not None, even)


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
        evidence = Evidence.of(rows)
        return {
            metric.name: Bootstrapped.of(found[metric.name], plan.n_left_out, metric, evidence) for metric in metrics
        }


class Bootstrapped(NamedTuple):
    """One statistic at the sample, with each of the jackknife's blocks left out, and at each resample."""

    value: float
    left_out: Floats
    drawn: Floats
    metric: Metric
    evidence: Evidence = Evidence()
    is_difference: bool = False

    @classmethod
    def of(cls, columns: Floats, n_left_out: int, metric: Metric, evidence: Evidence) -> "Bootstrapped":
        """Take apart the columns of a resampling."""
        return cls(float(columns[0]), columns[1 : 1 + n_left_out], columns[1 + n_left_out :], metric, evidence)

    def minus(self, other: "Bootstrapped") -> "Bootstrapped":
        """Return the difference of two statistics on the same resamples."""
        evidence = min(self.evidence, other.evidence, key=lambda found: found.n_rarer)
        drawn = self.drawn - other.drawn
        drawn = np.where(np.abs(drawn) > _SAME, drawn, 0.0)
        left_out = self.left_out - other.left_out
        if self.metric.kind == "error":  # noise raises both errors, and BCa excludes 0 too often: docs/intervals.md
            left_out = left_out[:0]
        return Bootstrapped(self.value - other.value, left_out, drawn, self.metric, evidence, is_difference=True)

    def interval(self, level: float) -> Interval:
        """Return the exact interval of a share, else BCa where blocks were left out, else the percentile interval."""
        error = self._standard_error()
        bias = 0.0
        if np.isfinite(self.drawn).all():
            bias = float(self.drawn.mean()) - self.value
        if self.metric.kind == "share" and not self.is_difference:
            low, high = self._exact_ends(level, error)
        else:
            low, high = self._ends(level, error)
        return Interval(self.value, low, high, error, bias, self._unreliable_because(error, bias))

    def p_value(self) -> float:
        """Return the smallest 1 - level whose interval excludes 0."""
        error = self._standard_error()
        n_places = len(self.drawn) + 1
        bias, acceleration = self._correction()
        reached = [-math.inf]
        for side, sign in ((self.drawn <= 0, 1), (self.drawn >= 0, -1)):
            count = np.count_nonzero(side)
            share = min((count + 1) / n_places, _BELOW_1)
            moved = sign * _NORMAL.inv_cdf(share) - bias
            reached.append(sign * (bias - moved / max(1 + acceleration * moved, _NEAR_POLE)))
            if count == 0 and sign * self.value > 0:  # past the last resample, as in `_ends`
                reached.append(abs(self.value) / error if error else math.inf)
        return min(1.0, 2 * _upper_tail(max(reached), self._degrees_of_freedom()))

    def _standard_error(self) -> float:
        """Return the standard error; infinite if a resample is."""
        if not np.isfinite(self.drawn).all():
            return math.inf
        with np.errstate(over="ignore"):  # losses of 1e300 have a spread that float64 cannot hold
            error = float(self.drawn.std(ddof=1))
        return error if error > _SAME else 0.0

    def _ends(self, level: float, error: float) -> tuple[float, float]:
        """Return the ends of the BCa interval, or of the percentile interval."""
        z = _quantile(level, self._degrees_of_freedom())
        ordered = np.sort(self.drawn)
        last = len(ordered)
        # The j-th of R ordered resamples is the j / (R + 1) quantile; round outwards.
        first = (last + 1) * self._bca_probability(-z) + _OUTWARDS
        final = (last + 1) * self._bca_probability(z) - _OUTWARDS
        low = float(ordered[np.clip(math.floor(first), 1, last) - 1])
        high = float(ordered[np.clip(math.ceil(final), 1, last) - 1])
        # Beyond the last resample a normal distribution goes on.
        if error < math.inf and first < 1:
            low = min(low, self.value - z * error)
        if error < math.inf and final > last:
            high = max(high, self.value + z * error)
        if self.is_difference:
            return low, high
        return max(low, self.metric.lowest), min(high, self.metric.highest)

    def _exact_ends(self, level: float, error: float) -> tuple[float, float]:
        """Return the Clopper-Pearson interval of a share, by the rows it counts as."""
        from scipy.special import betaincinv  # on first use: importing it takes longer than glayers

        share = min(max(self.value, 0.0), 1.0)
        n_rows = self._rows_of_share(share, level, error)
        hits = share * n_rows
        misses = (1 - share) * n_rows
        low, high = 0.0, 1.0
        if hits > _SAME:
            low = float(betaincinv(hits, misses + 1, (1 - level) / 2))
        if misses > _SAME:
            high = float(betaincinv(hits + 1, misses, (1 + level) / 2))
        return min(low, self.value), max(high, self.value)

    def _rows_of_share(self, share: float, level: float, error: float) -> float:
        """Return how many independent rows of equal weight would have this standard error."""
        evidence = self.evidence
        if evidence.even:
            return evidence.n_rows
        if not error:
            return evidence.n_units
        few_units = _quantile(level, math.inf) / _quantile(level, max(evidence.n_units - 1, 1.0))
        return min(evidence.n_rows, share * (1 - share) / error**2) * few_units**2

    def _bca_probability(self, z: float) -> float:
        """Phi(z0 + (z0 + z) / (1 - a (z0 + z))) with the bias z0 and the acceleration a, both 0 without BCa."""
        bias, acceleration = self._correction()
        # Past the pole of the formula lies the far end of the distribution.
        return _NORMAL.cdf(bias + (bias + z) / max(1 - acceleration * (bias + z), _NEAR_POLE))

    def _correction(self) -> tuple[float, float]:
        """Return the bias z0 and the acceleration a of BCa."""
        if len(self.left_out) == 0 or not np.isfinite(self.drawn).all():
            return 0.0, 0.0
        n_resamples = len(self.drawn)
        below = np.count_nonzero(self.drawn < self.value - _SAME)
        above = np.count_nonzero(self.drawn > self.value + _SAME)
        # Ties count half. If all resamples lie on one side, the other side has a probability below 1 / 2R.
        rate_below = (n_resamples + below - above) / (2 * n_resamples)
        bias = _NORMAL.inv_cdf(min(max(rate_below, 0.5 / n_resamples), 1 - 0.5 / n_resamples))
        # A sixth of the skewness of the jackknife's values, over the root of their number.
        influences = self._influences()
        squares = max(float((influences**2).sum()), 1.0)
        return bias, float((influences**3).sum()) / (6 * squares**1.5)

    def _degrees_of_freedom(self) -> float:
        """Return the degrees of freedom of the variance: few if there are few units, or few cause most of it.

        With n units and kurtosis k a variance has a relative variance of 2 / n + (k - 3) / n. Blocks of units have the
        same second term.
        """
        influences = self._influences()
        squares = float((influences**2).sum())
        excess = 0.0
        if squares:
            excess = max(0.0, float((influences**4).sum()) / squares**2 - 3 / len(influences))
        relative_variance = 2 / self.evidence.n_units + excess
        if relative_variance == 0:
            return math.inf
        return max(1.0, min(self.evidence.n_units - 1, 2 / relative_variance))

    def _influences(self) -> Floats:
        """Return how far each block moves the statistic, over the largest, so that no power leaves float64."""
        if len(self.left_out) == 0 or not np.isfinite(self.left_out).all():
            return np.zeros(0)
        influences = self.left_out.mean() - self.left_out
        largest = float(np.abs(influences).max())
        if not _SAME < largest < math.inf:
            return np.zeros(0)
        return influences / largest

    def _unreliable_because(self, error: float, bias: float) -> str:
        """Return why not to trust the interval, or nothing."""
        kind = self.metric.kind
        evidence = self.evidence
        if evidence.grouped and evidence.n_units < _FEW_GROUPS:
            return f"too few groups: they count as {evidence.n_units:.1f}"
        if kind in ("loss", "error") and evidence.n_rarer < _FEW_ERRORS:
            return f"too few {evidence.rarer} seen: {evidence.n_rarer:.2g}"
        if kind == "error" and abs(bias) > max(error * _MOST_BIAS, _SAME):
            return "the resamples are biased"
        if kind == "error" and not self.is_difference and self.value < self.metric.trusted_from * error:
            return f"less than {self.metric.trusted_from:g} standard errors from 0"
        if self.is_difference:
            return ""
        return self.metric.unreliable


def _quantile(level: float, freedom: float) -> float:
    """Return how many standard errors an interval extends to each side, with this many degrees of freedom."""
    probability = min((1 + level) / 2, _BELOW_1)
    if freedom > _NORMAL_FROM:
        return _NORMAL.inv_cdf(probability)
    from scipy.special import stdtrit  # on first use: importing it takes longer than glayers

    # The bootstrap's variance is that of a sample, too small by n / (n - 1).
    return float(stdtrit(freedom, probability)) * math.sqrt(1 + 1 / freedom)


def _upper_tail(z: float, freedom: float) -> float:
    """Return the probability beyond so many standard errors: the inverse of `_quantile`."""
    if freedom > _NORMAL_FROM:
        return math.erfc(z / math.sqrt(2)) / 2
    from scipy.special import stdtr

    return float(stdtr(freedom, -z / math.sqrt(1 + 1 / freedom)))


class Resampling:
    """What to draw, how often and from which seed; every pass over `blocks` gives the same bytes.

    Units stand in slots, sorted by stratum; `starts` and `sizes` say where a slot's stratum begins and how long it is.
    """

    def __init__(self, rows: Rows | Scored, settings: Bootstrap) -> None:
        n_rows = len(rows.weights)
        given = own_weights(rows)
        # A common factor changes nothing, and squares of tiny weights would vanish. Powers of 2 are exact.
        self.row_weights = np.ldexp(given, -np.frexp(given.max())[1])
        self.groups = None
        unit_weights = self.row_weights
        if rows.groups is not None:
            if settings.stratify:
                raise BadPredictions(
                    "units are drawn by class or by group, not both; pass stratify=False, or groups=None"
                )
            self.groups = group_numbers(rows.groups)
            unit_weights = np.bincount(self.groups, self.row_weights)
        self._n_units = len(unit_weights)
        slots = np.flatnonzero(unit_weights)
        if len(slots) < 2:
            what = "rows" if self.groups is None else "groups"
            raise BadPredictions(f"resampling needs at least 2 {what} of positive weight; got {len(slots)}")
        strata = np.zeros(len(slots), dtype=np.int64)
        if settings.stratify:
            strata = rows.labels[slots] if isinstance(rows, Rows) else rows.hits[slots].astype(np.int64)
        order = np.argsort(strata, kind="stable")
        _, first, size = np.unique(strata[order], return_index=True, return_counts=True)
        self.slots = slots[order]
        self.starts = np.repeat(first, size)
        self.sizes = np.repeat(size, size)
        self.n_resamples = settings.n_resamples
        self.n_left_out = 0  # blocks of the jackknife
        if settings.method == "bca":
            self.n_left_out = min(len(slots), _MOST_BLOCKS)
        self._width = max(4, _ENTRIES // n_rows)
        self.n_batches = math.ceil((1 + self.n_left_out + self.n_resamples) / self._width)  # blocks in one pass
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
        raw = counts
        if self.groups is not None:
            raw = counts[self.groups]
        raw *= self.row_weights[:, None]
        sums = raw.sum(axis=0)
        totals = sums**2 / (self.row_weights @ raw)
        raw /= sums
        return Block(raw, totals)
