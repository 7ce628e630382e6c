"""A statistic at the sample, with each block left out and at each resample -> its standard error and its interval.

Percentile: the middle of what the resamples gave. BCa ("bias-corrected and accelerated") moves both ends, for the
statistic being off on average and for its spread changing with its value. Efron, "Better Bootstrap Confidence
Intervals", Journal of the American Statistical Association, 1987.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Floats, Ints
from glayers.errors import BadPredictions
from glayers.metrics.old.resampling import Resampling, plan_resampling
from glayers.settings import number_between, whole_number

Method: TypeAlias = Literal["bca", "percentile"]
_METHODS: tuple[Method, ...] = ("bca", "percentile")
_NORMAL = NormalDist()
_ALL_BUT_1 = math.nextafter(1.0, 0.0)  # no normal quantile is known of 1 itself
_SAME = 1e-12  # a resample's accuracy may equal the sample's on paper and differ by rounding


@dataclass(frozen=True)
class Settings:
    """How many resamples of what kind, and what becomes of them."""

    n_resamples: int
    level: float
    method: Method
    stratify: bool
    random_state: int | None
    progress: bool | None

    def __post_init__(self) -> None:
        whole_number(self.n_resamples, "n_resamples", least=2)
        number_between(self.level, "level", 0, 1)
        if self.method not in _METHODS:
            raise BadPredictions(f"method must be 'bca' or 'percentile'; got {self.method!r}")
        if self.random_state is not None:
            whole_number(self.random_state, "random_state", least=0)

    def plan(self, labels: Ints, weights: object, groups: object) -> Resampling:
        """Plan the resamples of these rows, with a jackknife where BCa intervals need one."""
        return plan_resampling(
            labels,
            weights,
            groups,
            n_resamples=self.n_resamples,
            jackknife=self.method == "bca",
            stratify=self.stratify,
            random_state=self.random_state,
        )


class Interval(NamedTuple):
    """A number, the ends of its interval, its standard error, and how far resamples lie above it on average.

    `doubtful` says that they lie off by more than a quarter of the standard error, which bootstrap intervals do not
    forgive. Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 10.3.
    """

    value: float
    low: float
    high: float
    standard_error: float
    bias: float

    @property
    def doubtful(self) -> bool:
        """Whether the interval is not to be trusted."""
        return abs(self.bias) > max(self.standard_error / 4, _SAME)


class Bootstrapped(NamedTuple):
    """One statistic at the sample, with each of the jackknife's blocks left out, and at each resample."""

    value: float
    left_out: Floats
    drawn: Floats

    @classmethod
    def of(cls, columns: Floats, resampling: Resampling) -> "Bootstrapped":
        """Take apart the columns of a resampling."""
        return cls(float(columns[0]), *np.split(columns[1:], [resampling.n_blocks]))

    def interval(self, level: float) -> Interval:
        """The percentile interval, or the BCa interval where blocks were left out and every resample is finite."""
        finite = bool(np.isfinite(self.drawn).all())
        with np.errstate(over="ignore"):  # losses of 1e300 have a spread that float64 cannot hold
            error = float(self.drawn.std(ddof=1)) if finite else math.inf
        shares = [(1 - level) / 2, min((1 + level) / 2, _ALL_BUT_1)]
        if len(self.left_out) and finite:
            shares = [self._bca_share(share) for share in shares]
        ordered = np.sort(self.drawn)
        # The j-th of R ordered resamples has the share j / (R + 1) of the distribution below it; round outwards.
        low, high = ((len(ordered) + 1) * share for share in shares)
        ends = np.clip([math.floor(low + 1e-9), math.ceil(high - 1e-9)], 1, len(ordered)) - 1
        return Interval(
            value=self.value,
            low=float(ordered[ends[0]]),
            high=float(ordered[ends[1]]),
            standard_error=error if error > _SAME else 0.0,
            bias=float(self.drawn.mean()) - self.value if finite else 0.0,
        )

    def _bca_share(self, share: float) -> float:
        """Phi(z0 + (z0 + z) / (1 - a (z0 + z))) for the share Phi(z), with the bias z0 and the acceleration a."""
        n_resamples = len(self.drawn)
        below = np.count_nonzero(self.drawn < self.value - _SAME)
        above = np.count_nonzero(self.drawn > self.value + _SAME)
        # Ties count half. All resamples on one side say no more than that the other has a share below 1 / 2R.
        share_below = (n_resamples + below - above) / (2 * n_resamples)
        bias = _NORMAL.inv_cdf(min(max(share_below, 0.5 / n_resamples), 1 - 0.5 / n_resamples))
        z = bias + _NORMAL.inv_cdf(share)
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
