"""Rows, weights, groups and a seed -> row weights of bootstrap resamples, and intervals from what metrics make of them.

A resample draws as many units as there are, with replacement; the data itself is never copied. A unit is a row, or a
whole group where groups are given. Weights go along with their rows.

A percentile interval is the middle of what the resamples gave. A BCa interval ("bias-corrected and accelerated") moves
both ends, because the statistic may be off on average and its spread may change with its value. Efron, "Better
Bootstrap Confidence Intervals", Journal of the American Statistical Association, 1987.

Both are too narrow for few units, and where few rows or groups cause most of the variance. So they reach as far as
Student's t, with the degrees of freedom of the variance. Hesterberg, "What Teachers Should Know About the Bootstrap",
American Statistician, 2015.

Near 0, no two-sided interval of a calibration error is right, and an upper bound takes its place: a quantile of the
resamples, without a correction of bias. It covers at least as often as it says. Errors are norms of gaps, so the rows
whose error stays below the true one form a convex set, and a plane touches that set at the truth. Resamples beyond the
plane have at least the true error, and where they lie is as for a mean. Only errors far from 0 have a lower end, and
chance helps to get so far; `_lower_end` makes up for that. Lee, Sun, Sun and Taylor, "Exact Post-Selection Inference",
Annals of Statistics 2016.

A share of rows needs no resamples: its interval is exact (Clopper and Pearson, Biometrika
1934), with an effective number of rows where rows have weights or groups (Korn and Graubard, Survey Methodology 1998).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, effective_rows
from glayers.checks import number_between, whole_number
from glayers.errors import BadPredictions
from glayers.metrics.events import ROUNDING, Rows, Scored, check_seed, distinct_scores
from glayers.metrics.metric import Block, Metric, evaluate
from glayers.progress import progress_bar

__all__ = ["Interval"]

_ENTRIES = 400_000  # of the weights of one block: 3 MB, so that a block and what is made of it stay in the cache
_MOST_BLOCKS = 100  # left out: the noise of an acceleration, 0.4 / blocks, moves an end by 1/60 of a standard error
_NEAR_POLE = 1e-3  # the smallest denominator of BCa's formula


class Interval(NamedTuple):
    """A value, its confidence interval, its standard error, and the mean of the resamples minus the value.

    `unreliable` says in a few words why the interval should not be trusted; it is empty if nothing speaks against it.
    `one_sided` says why there is only an upper bound, which is `high`; `low` is then the lowest possible value.
    """

    value: float
    low: float
    high: float
    standard_error: float
    bias: float
    unreliable: str = ""
    one_sided: str = ""


class Evidence(NamedTuple):
    """Effective numbers of rows and of units (rows or groups), and what makes too little of them.

    Weights count as Kish's effective number, (sum w)^2 / sum w^2. The last three say in a few words what is wrong: with
    every interval, with those of losses and errors, and with two-sided ones of errors.
    """

    n_rows: float = math.inf
    n_units: float = math.inf
    n_rarer: float = math.inf  # units with the rarer outcome of the event
    even: bool = True  # independent rows of equal weight
    binary: bool = False  # whether there are two classes
    few_groups: str = ""
    few_outcomes: str = ""
    few_scores: str = ""

    @classmethod
    def of(cls, rows: Rows | Scored) -> "Evidence":
        """Count the rows, and the units that hold errors and hits."""
        hits = rows.top.hits
        n_errors = effective_rows(np.bincount(rows.group_numbers, rows.weights * (1 - hits)))
        n_hits = effective_rows(np.bincount(rows.group_numbers, rows.weights * hits))
        n_rarer, rarer = min((n_errors, "errors"), (n_hits, "hits"))
        even = math.isclose(rows.n_units, np.count_nonzero(rows.weights))
        few_groups = ""
        if rows.groups is not None and rows.n_units < 7.9:  # 8 groups whose sizes differ by a row are enough
            few_groups = f"too few groups: they count as {rows.n_units:.1f}"
        few_outcomes = ""
        if n_rarer < 5:
            few_outcomes = f"too few {rarer} seen: {n_rarer:.2g}"
        binary = rows.n_classes == 2
        return cls(rows.total, rows.n_units, n_rarer, even, binary, few_groups, few_outcomes, _few_scores(rows))


def _few_scores(rows: Rows | Scored) -> str:
    """Say whether scores repeat so often that the error is the larger of few numbers."""
    scores, which = distinct_scores(rows.top.scores)
    if len(scores) <= 10:  # with ties in tenths, 23 of 28 unflagged intervals of KS covered: docs/how-to/intervals.md
        return f"few different scores: {len(scores)}"
    in_groups = np.unique(rows.group_numbers * len(scores) + which)
    if 2 * len(in_groups) <= len(rows):  # with 20 copies, 4 of 7 intervals covered
        return "rows of a group are copies"
    return ""


class Bootstrap:
    """Settings of a bootstrap."""

    def __init__(
        self,
        n_resamples: int = 1000,
        level: float = 0.95,
        random_state: int | None = 0,
        progress: bool | None = None,
    ) -> None:
        self.n_resamples = whole_number(n_resamples, "n_resamples", least=2)
        self.level = number_between(level, "level", 0, 1)
        self.random_state = check_seed(random_state)
        self.progress = progress

    def columns(self, rows: Rows | Scored, metrics: Sequence[Metric], what: str) -> dict[str, "Bootstrapped"]:
        """Evaluate metrics at the sample, with each block left out, and at each resample."""
        plan = Resampling(rows, self)
        with progress_bar(self.progress, what, plan.n_batches) as advance:
            found = evaluate(rows, metrics, plan.blocks(advance))
        evidence = Evidence.of(rows)
        columns = {}
        for metric in metrics:
            values = found[metric.name]
            left_out, drawn = np.split(values[1:], [plan.n_left_out])
            columns[metric.name] = Bootstrapped(float(values[0]), left_out, drawn, metric, evidence)
        return columns


@dataclass(frozen=True, eq=False)
class Bootstrapped:
    """One statistic at the sample, with each of the jackknife's blocks left out, and at each resample."""

    value: float
    left_out: Floats
    drawn: Floats
    metric: Metric
    evidence: Evidence = field(default_factory=Evidence)
    is_difference: bool = False

    @cached_property
    def standard_error(self) -> float:
        """The standard error; infinite if a resample is."""
        if not np.isfinite(self.drawn).all():
            return math.inf
        with np.errstate(over="ignore"):  # losses of 1e300 have a spread that float64 cannot hold
            error = float(self.drawn.std(ddof=1))
        if error <= ROUNDING:
            return 0.0
        return error

    @cached_property
    def bias(self) -> float:
        """The mean of the resamples minus the value."""
        if self.standard_error == math.inf:
            return 0.0
        return float(self.drawn.mean()) - self.value

    def minus(self, other: "Bootstrapped") -> "Bootstrapped":
        """Return the difference of two statistics on the same resamples."""
        evidence = min(self.evidence, other.evidence, key=lambda found: found.n_rarer)
        drawn = self.drawn - other.drawn
        drawn = np.where(np.abs(drawn) > ROUNDING, drawn, 0.0)
        left_out = self.left_out - other.left_out
        if self.metric.kind == "error":  # noise raises both errors, and BCa excludes 0 too often: docs/intervals.md
            left_out = left_out[:0]
        return Bootstrapped(self.value - other.value, left_out, drawn, self.metric, evidence, is_difference=True)

    def interval(self, level: float) -> Interval:
        """Return the exact interval of a share, the percentile interval of a difference of errors, else BCa.

        A calibration error that is too small for two ends has an upper bound alone.
        """
        unreliable = self._unreliable_because()
        one_sided = ""
        low, high = self._ends(level)
        if self.metric.kind == "error" and not self.is_difference and not unreliable:
            low = min(low, self._lower_end(level))
            one_sided = self._one_sided_because(low)
        if one_sided:
            # Skewness may only raise it, and it is as far out as the upper of two ends, because rows that show a small
            # error by chance choose the bound.
            low = self.metric.lowest
            z = _quantile((1 + level) / 2, self._degrees_of_freedom)
            high = max(self.value, self._end(z, 0.0, max(self._correction[1], 0.0)))
        if not self.is_difference:
            low = max(low, self.metric.lowest)
            high = min(high, self.metric.highest)
        return Interval(self.value, low, high, self.standard_error, self.bias, unreliable, one_sided)

    def p_value(self) -> float:
        """Return the smallest 1 - level whose interval excludes 0, within a millionth of itself."""
        excluding, including = 1.0, 1e-17
        if self._excludes_zero(1.0):
            return 0.0
        while excluding > including * (1 + 1e-6):
            middle = math.sqrt(excluding * including)
            if self._excludes_zero(1 - middle):
                excluding = middle
            else:
                including = middle
        return excluding

    def _excludes_zero(self, level: float) -> bool:
        low, high = self._ends(level)
        return low > 0 or high < 0

    def _ends(self, level: float) -> tuple[float, float]:
        """Return both ends: exact ones of a share, else those of BCa."""
        if self.metric.kind == "share" and not self.is_difference:
            return self._exact_ends(level)
        z = _quantile((1 + level) / 2, self._degrees_of_freedom)
        return self._end(-z, *self._correction), self._end(z, *self._correction)

    def _end(self, z: float, bias: float, acceleration: float) -> float:
        """Return the resample that lies z standard errors from the middle, by Efron's formula."""
        from scipy.special import ndtr

        # Past the pole of the formula lies the far end of the distribution.
        moved = bias + (bias + z) / max(1 - acceleration * (bias + z), _NEAR_POLE)
        last = len(self.drawn)
        # The j-th of R ordered resamples is the j / (R + 1) quantile; a place that is whole may differ by rounding.
        place = round((last + 1) * float(ndtr(moved)), 9)
        nearest = math.ceil(place) if z > 0 else math.floor(place)
        end = float(self._ascending[np.clip(nearest, 1, last) - 1])
        # Beyond the last resample a normal distribution goes on.
        if self.standard_error < math.inf and z < 0 and place < 1:
            return min(end, self.value + z * self.standard_error)
        if self.standard_error < math.inf and z > 0 and place > last:
            return max(end, self.value + z * self.standard_error)
        return end

    def _lower_end(self, level: float) -> float:
        """Return what an error exceeds although it has a lower end only because it is far from 0.

        For a normal X with this mean, P(X > error | X > limit) is (1 - level) / 2. Close to the limit, no mean above 0
        is so small.
        """
        from scipy.optimize import brentq
        from scipy.special import log_ndtr

        if self.standard_error == 0:
            return self.value
        error = self.value / self.standard_error
        limit = self.metric.trusted_from

        def excess(mean: float) -> float:
            return float(log_ndtr(mean - error) - log_ndtr(mean - limit)) - math.log((1 - level) / 2)

        if error <= limit or excess(0.0) >= 0:
            return 0.0
        return self.standard_error * float(brentq(excess, 0.0, error))

    def _exact_ends(self, level: float) -> tuple[float, float]:
        """Return the Clopper-Pearson interval of a share, by the rows it counts as."""
        from scipy.special import betaincinv

        share = min(max(self.value, 0.0), 1.0)
        n_rows = self.evidence.n_rows
        if not self.evidence.even:
            n_rows = self.evidence.n_units
            if self.standard_error:
                n_rows = self._as_many_even_rows(share, (1 + level) / 2)
        hits = share * n_rows
        misses = (1 - share) * n_rows
        low, high = 0.0, 1.0
        if hits > ROUNDING:
            low = float(betaincinv(hits, misses + 1, (1 - level) / 2))
        if misses > ROUNDING:
            high = float(betaincinv(hits + 1, misses, (1 + level) / 2))
        return min(low, self.value), max(high, self.value)

    def _as_many_even_rows(self, share: float, probability: float) -> float:
        """Return how many independent rows of equal weight would have this standard error."""
        few_units = max(self.evidence.n_units - 1, 1.0)
        widened = _quantile(probability, few_units) / _quantile(probability, math.inf)
        return min(self.evidence.n_rows, share * (1 - share) / self.standard_error**2) / widened**2

    @cached_property
    def _ascending(self) -> Floats:
        return np.sort(self.drawn)

    @cached_property
    def _correction(self) -> tuple[float, float]:
        """Return the bias z0 and the acceleration a of BCa, both 0 without a jackknife."""
        from scipy.special import ndtri

        if len(self.left_out) == 0 or not np.isfinite(self.drawn).all():
            return 0.0, 0.0
        n_resamples = len(self.drawn)
        below = np.count_nonzero(self.drawn < self.value - ROUNDING)
        above = np.count_nonzero(self.drawn > self.value + ROUNDING)
        # Ties count half. If all resamples lie on one side, the other side has a probability below 1 / 2R.
        rate_below = (n_resamples + below - above) / (2 * n_resamples)
        bias = float(ndtri(np.clip(rate_below, 0.5 / n_resamples, 1 - 0.5 / n_resamples)))
        # A sixth of the skewness of the jackknife's values, over the root of their number.
        influences = self._influences
        squares = max(float((influences**2).sum()), 1.0)
        return bias, float((influences**3).sum()) / (6 * squares**1.5)

    @cached_property
    def _degrees_of_freedom(self) -> float:
        """The degrees of freedom of the variance: few if there are few units, or few cause most of it.

        With n units and kurtosis k a variance has a relative variance of 2 / n + (k - 3) / n. Blocks of units have the
        same second term.
        """
        influences = self._influences
        relative_variance = 2 / self.evidence.n_units
        if influences.any():
            kurtosis = float((influences**4).sum()) / float((influences**2).sum()) ** 2
            relative_variance += max(0.0, kurtosis - 3 / len(influences))
        if relative_variance == 0:
            return math.inf
        return max(1.0, min(self.evidence.n_units - 1, 2 / relative_variance))

    @cached_property
    def _influences(self) -> Floats:
        """How far each block moves the statistic, over the largest, so that no power leaves float64."""
        if len(self.left_out) == 0 or not np.isfinite(self.left_out).all():
            return np.zeros(0)
        influences = self.left_out.mean() - self.left_out
        largest = float(np.abs(influences).max())
        if not ROUNDING < largest < math.inf:
            return np.zeros(0)
        return influences / largest

    def _unreliable_because(self) -> str:
        """Return why not to trust any interval, or nothing.

        The limits were made from simulated models and checked on others: docs/how-to/intervals.md.
        """
        kind = self.metric.kind
        if self.evidence.few_groups:
            return self.evidence.few_groups
        if kind in ("loss", "error") and self.evidence.few_outcomes:
            return self.evidence.few_outcomes
        if self.is_difference and kind == "error" and self._biased():
            return "the resamples are biased"
        if self.is_difference or kind == "error":
            return ""
        return self.metric.unreliable

    def _one_sided_because(self, low: float) -> str:
        """Return why a two-sided interval of an error from `low` on would not cover, or nothing."""
        if self._biased():
            return "the resamples are biased"
        if low <= 0:
            return "too close to 0 for a lower end"
        if self.metric.about == "classes" and self.evidence.binary:  # the larger of two gaps that are nearly equal
            return "class-wise with two classes"
        return self.evidence.few_scores or self.metric.unreliable

    def _biased(self) -> bool:
        return abs(self.bias) > max(self.standard_error / 5, ROUNDING)


def _quantile(probability: float, freedom: float) -> float:
    """Return how many standard errors an interval extends to a side, with this many degrees of freedom."""
    from scipy.special import stdtrit

    probability = min(probability, math.nextafter(1.0, 0.0))  # 1 itself has an infinite quantile
    # The bootstrap's variance is that of a sample, too small by n / (n - 1).
    return float(stdtrit(freedom, probability)) * math.sqrt(1 + 1 / freedom)


class Resampling:
    """What to draw, how often and from which seed; every pass over `blocks` gives the same bytes."""

    def __init__(self, rows: Rows | Scored, settings: Bootstrap) -> None:
        # A common factor changes nothing, and squares of tiny weights would vanish. Powers of 2 are exact.
        self.row_weights = np.ldexp(rows.own_weights, -np.frexp(rows.own_weights.max())[1])
        self.groups = rows.group_numbers
        self.grouped = rows.groups is not None
        self.n_units = int(self.groups.max()) + 1
        self.units = np.unique(self.groups[self.row_weights > 0])
        if len(self.units) < 2:
            what = "groups" if self.grouped else "rows"
            raise BadPredictions(f"resampling needs at least 2 {what} of positive weight; got {len(self.units)}")
        self.n_resamples = settings.n_resamples
        self.n_left_out = min(len(self.units), _MOST_BLOCKS)  # blocks of the jackknife
        self._width = max(4, _ENTRIES // len(rows))
        self.n_batches = math.ceil((1 + self.n_left_out + self.n_resamples) / self._width)  # blocks in one pass
        self.seed = np.random.SeedSequence(settings.random_state)

    def blocks(self, advance: Callable[[], object] = int) -> Iterator[Block]:
        """Yield the columns in blocks that fit the cache: the sample, each block left out, each resample."""
        columns = self._columns()
        while counts := list(islice(columns, self._width)):
            weights = np.stack(counts, axis=1, dtype=np.float64)
            if self.grouped:
                weights = weights[self.groups]
            weights *= self.row_weights[:, None]
            weights /= weights.sum(axis=0)
            yield Block(weights)
            advance()

    def _columns(self) -> Iterator[Array]:
        """Yield how often each unit counts, column by column."""
        yield np.bincount(self.units, minlength=self.n_units)
        rng = np.random.default_rng(self.seed)
        size = len(self.units)
        # Units in random order, dealt out like cards.
        block = np.empty(size, dtype=np.int64)
        block[np.argsort(rng.random(size), kind="stable")] = np.arange(size) % self.n_left_out
        for left_out in range(self.n_left_out):
            stays = block != left_out  # weighted up, so that they stand for as many units as before
            yield np.bincount(self.units, weights=stays * size / stays.sum(), minlength=self.n_units)
        for _ in range(self.n_resamples):
            drawn = (rng.random(size) * size).astype(np.int64)
            yield np.bincount(self.units[drawn], minlength=self.n_units)
