"""An error and what calibrated models show -> a test: p-value, bound, and the error to expect of a calibrated model."""

import math
from dataclasses import dataclass

import numpy as np

from glayers.arrays import Bools, Floats
from glayers.errors import BadPredictions
from glayers.metrics.old.coin_flips import CoinWalk
from glayers.settings import number_between, whole_number

_SAME, _SAME_SHARE = 1e-12, 1e-9  # two sums that are equal on paper may differ by rounding


@dataclass(frozen=True)
class CalibrationTest:
    """An error, and what a calibrated model would show on the same rows: labels drawn from its own probabilities.

    `p_value` is the chance of an error at least as large as `value`; a calibrated model stays at or below `bound` with
    probability `level`, and shows `expected` on average. Broecker and Smith, Weather and Forecasting 2007.

    >>> print(CalibrationTest(value=0.02, p_value=0.004, bound=0.015, expected=0.008, level=0.95))
    0.02, p = 0.004: a calibrated model shows 0.008 on average and at most 0.015 in 95 % of cases
    """

    value: float
    p_value: float
    bound: float
    expected: float
    level: float

    @property
    def rejected(self) -> bool:
        """Whether the error is too large for a calibrated model at this level."""
        return rejects(self.p_value, self.level)

    def __str__(self) -> str:
        return (
            f"{self.value:.4g}, p = {self.p_value:.2g}: a calibrated model shows {self.expected:.4g} on average "
            f"and at most {self.bound:.4g} in {100 * self.level:g} % of cases"
        )


def rejects(p_value: float, level: float) -> bool:
    """Whether a p-value rejects at this level.

    >>> rejects(0.05, level=0.95)
    True
    """
    return p_value <= 1 - level + _SAME


@dataclass(frozen=True)
class Draws:
    """How many resamples, the level they must resolve, and the seed."""

    n_resamples: int
    level: float
    random_state: int | None

    def __post_init__(self) -> None:
        number_between(self.level, "level", 0, 1)
        whole_number(self.n_resamples, "n_resamples", least=1)
        check_seed(self.random_state)

    def generator(self) -> np.random.Generator:
        """The one source of randomness of a test, once it is clear that its draws reach as far as its bound."""
        least = math.ceil(self.level / (1 - self.level) - _SAME)
        if self.n_resamples < least:
            raise BadPredictions(
                f"n_resamples must be at least {least} for a bound at level {self.level:g}; got {self.n_resamples}"
            )
        return np.random.default_rng(self.random_state)


def check_seed(random_state: int | None) -> int | None:
    """Return a seed that is a whole number, or None for another draw each time.

    >>> check_seed(3)
    3
    """
    return None if random_state is None else whole_number(random_state, "random_state", least=0)


def as_large_as(drawn: Floats, value: Floats | float) -> Bools:
    """Which drawn errors reach an error, or differ from it by rounding only."""
    return drawn >= value - np.maximum(_SAME, _SAME_SHARE * np.abs(value))


def judge_by_draws(value: float, drawn: Floats, level: float) -> CalibrationTest:
    """Compare an error with those of resamples: the p-value counts the error itself as one of them.

    >>> judge_by_draws(0.9, np.linspace(0.0, 0.8, 19), level=0.95).p_value
    0.05
    """
    as_large = int(np.count_nonzero(as_large_as(drawn, value)))
    # The smallest bound that no p-value of 1 - level or less goes with.
    place = math.ceil(level * (len(drawn) + 1) - _SAME) - 1
    return CalibrationTest(
        value=value,
        p_value=(1 + as_large) / (1 + len(drawn)),
        bound=float(np.sort(drawn)[place]),
        expected=float(drawn.mean()),
        level=level,
    )


def judge_by_brownian_motion(value: float, coins: CoinWalk, level: float) -> CalibrationTest:
    """Compare a KS error with what is known of the walk it is the largest size of."""
    return CalibrationTest(
        value=value,
        p_value=coins.chance_of_reaching(value),
        bound=coins.reached_with_chance(1 - level),
        expected=coins.mean_largest(),
        level=level,
    )
