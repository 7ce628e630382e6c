"""Predictions -> tests of calibration: whether an error is larger than sampling error explains.

The reference is what a calibrated model shows on the same rows (`redrawing.py`). Given the scores of an event, its
outcomes are coin flips, and KS and ECE are functions of running sums of hit - score. So the tests of these two need not
draw labels, and the asymptotic KS test draws nothing at all (`null_distribution.py`). `consistency_test` takes any
metric and redraws labels. `class_tests.py` and `skce.py` test all classes at once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Literal, TypeAlias, get_args

import numpy as np

from glayers.arrays import Array, Bools, Floats, Ints
from glayers.checks import check_choice
from glayers.errors import BadPredictions
from glayers.metrics.binned import Binning, bin_edges
from glayers.metrics.dependence import UnseenFailures, unseen_failures
from glayers.metrics.events import N_BINS, Event, Rows, Scored, check_any, check_event, check_rows, top
from glayers.metrics.null_distribution import KSNullDistribution
from glayers.metrics.redrawing import ROUNDING, Draws, RunningSum, hit_outcomes, label_outcomes, redraw
from glayers.metrics.registry import METRICS, evaluate_once

__all__ = ["CalibrationTest", "consistency_test", "ece_test", "ks_test"]

TestMethod: TypeAlias = Literal["auto", "asymptotic", "resampling"]
_RELATIVE_ROUNDING = 1e-9


@dataclass(frozen=True)
class CalibrationTest:
    """An error, and what a calibrated model would show on the same rows.

    Attributes
    ----------
    value
        The error.
    p_value
        The probability that a calibrated model shows an error at least as large.
    bound
        A calibrated model stays at or below this with probability `level`.
    expected
        The mean error of a calibrated model.
    level
        The level of the test.
    too_few_groups
        Whether groups are too few, or too uneven, to tell: fewer than 8 by Kish's effective number. The p-value, the
        bound and the expected error are then nan, and nothing is rejected.

    Examples
    --------
    >>> print(CalibrationTest(value=0.02, p_value=0.004, bound=0.015, expected=0.008, level=0.95))
    0.02, p = 0.004: a calibrated model shows 0.008 on average and at most 0.015 in 95 % of cases
    """

    value: float
    p_value: float
    bound: float
    expected: float
    level: float
    too_few_groups: bool = False

    @property
    def rejected(self) -> bool:
        """Whether the error is too large for a calibrated model at this level."""
        return rejects(self.p_value, self.level)

    def __str__(self) -> str:
        if self.too_few_groups:
            return f"{self.value:.4g}: too few groups to tell whether a calibrated model shows as much"
        return (
            f"{self.value:.4g}, p = {self.p_value:.2g}: a calibrated model shows {self.expected:.4g} on average "
            f"and at most {self.bound:.4g} in {100 * self.level:g} % of cases"
        )


def ks_test(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    event: Event = top,
    method: TestMethod = "auto",
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
) -> CalibrationTest:
    """Test the KS error of an event.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `ks`.
    groups
        Group of each row (n,), where rows of a group depend on each other.
    method
        "asymptotic" takes the p-value from Brownian motion with finite-sample corrections and draws nothing; rows must
        be independent. "resampling" draws outcomes from the scores, with the dependence that groups seem to have.
        "auto" is asymptotic, unless there are groups or fewer than about 20 expected hits or misses.
    n_resamples, random_state
        The number of draws and their seed, for resampling.
    level
        The level of the bound and of `rejected`.

    Returns
    -------
    CalibrationTest
        Arrieta-Ibarra et al., JMLR 2022.

    Examples
    --------
    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> print(ks_test(p, y))  # says 70 percent, right 55
    0.15, p = 0.0013: a calibrated model shows 0.05146 on average and at most 0.09653 in 95 % of cases
    """
    rows = check_event(probabilities, labels, sample_weight, groups, event)
    return largest_gap_test(RunningSum.of(rows), method, Draws(n_resamples, level, random_state))


def ece_test(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    event: Event = top,
    n_bins: int = N_BINS,
    binning: Binning = "equal_width",
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
) -> CalibrationTest:
    """Test the ECE of an event by resampling.

    Parameters
    ----------
    probabilities, labels, sample_weight, event, n_bins, binning
        As in `ece`.
    groups
        Group of each row (n,), where rows of a group depend on each other.
    n_resamples, random_state
        The number of draws and their seed.
    level
        The level of the bound and of `rejected`.

    Returns
    -------
    CalibrationTest
        By consistency resampling: Broecker and Smith, Weather and Forecasting 2007; for classifiers Vaicenavicius et
        al., AISTATS 2019.

    Examples
    --------
    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> test = ece_test(p, y)
    >>> round(test.value, 12), test.p_value < 0.01
    (0.15, True)
    """
    rows = check_event(probabilities, labels, sample_weight, groups, event)
    running = RunningSum.of(rows, bin_edges(rows, n_bins, binning))
    return _resampling_test(running, summed_steps, Draws(n_resamples, level, random_state))


def consistency_test(
    metric: str | Callable[..., float],
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event = top,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> CalibrationTest:
    """Test any metric that is larger for worse models, by redrawing all labels.

    Parameters
    ----------
    metric
        A name from `METRICS`, or a function of probabilities, labels and `sample_weight=`; bind other settings with
        `functools.partial`. Of a score such as the NLL the test asks whether the loss exceeds what the model itself
        expects: overconfidence.
    probabilities, labels, sample_weight
        As in `ks`. Rows must be independent.
    event
        The event, for the name of a metric of one event.
    n_resamples, random_state
        The number of draws and their seed.
    level
        The level of the bound and of `rejected`.
    progress
        Whether to show a progress bar; None shows it at a terminal.

    Returns
    -------
    CalibrationTest
        By consistency resampling: Broecker and Smith, Weather and Forecasting 2007; for classifiers Vaicenavicius et
        al., AISTATS 2019.

    Examples
    --------
    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> consistency_test("classwise_ece", p, y, n_resamples=199).p_value
    0.005
    """
    value_of = _statistic(metric, event)
    draws = Draws(n_resamples, level, random_state)
    given = check_any(probabilities, labels, sample_weight, strict=True)
    if given.groups is not None:
        raise BadPredictions(
            "consistency_test redraws row by row and needs independent rows; with groups use ece_test, skce_test or "
            "ks_test"
        )
    if isinstance(given, Rows):
        outcomes = label_outcomes(given)
    else:
        outcomes = hit_outcomes(given)

    def statistics(batch: Array) -> Floats:
        return np.array([[value_of(_with_outcomes(given, drawn))] for drawn in batch])

    found = redraw(outcomes, statistics, n_resamples, draws.generator(), progress)
    return compare_with_draws(float(found.values[0]), found.drawn[:, 0], level)


def _with_outcomes(rows: Rows | Scored, outcomes: Array) -> Rows | Scored:
    """Return the rows with other outcomes."""
    if isinstance(rows, Rows):
        return replace(rows, labels=outcomes.astype(np.int64), losses=None)
    return replace(rows, hits=outcomes.astype(np.float64))


def rejects(p_value: float, level: float) -> bool:
    """Whether a p-value rejects at this level.

    >>> rejects(0.05, level=0.95)
    True
    """
    return p_value <= 1 - level + ROUNDING


def at_least_as_large(drawn: Floats, value: Floats | float) -> Bools:
    """Which drawn errors reach an error, or differ from it by rounding only."""
    return drawn >= value - np.maximum(ROUNDING, _RELATIVE_ROUNDING * np.abs(value))


def compare_with_draws(value: float, drawn: Floats, level: float) -> CalibrationTest:
    """Compare an error with those of resamples; the p-value counts the error itself as one of them.

    >>> compare_with_draws(0.9, np.linspace(0.0, 0.8, 19), level=0.95).p_value
    0.05
    """
    if np.isnan(drawn).any():
        return CalibrationTest(value, math.nan, math.nan, math.nan, level, too_few_groups=True)
    as_large = int(np.count_nonzero(at_least_as_large(drawn, value)))
    # The smallest bound that goes with no p-value of 1 - level or less.
    place = math.ceil(level * (len(drawn) + 1) - ROUNDING) - 1
    p_value = (1 + as_large) / (1 + len(drawn))
    return CalibrationTest(value, p_value, float(np.sort(drawn)[place]), float(drawn.mean()), level)


def step_down(values: Floats, drawn: Floats) -> Floats:
    """Return adjusted p-values of many errors (k,) against drawn ones (resamples, k).

    The largest error is compared with the largest drawn of all, the next with the largest of the rest, and so on.

    >>> step_down(np.array([3.0, 0.5]), np.array([[1.0, 2.0], [0.4, 0.3], [0.2, 4.0]])).tolist()
    [0.5, 0.75]
    """
    order = np.argsort(-values, kind="stable")
    largest_left = np.maximum.accumulate(drawn[:, order[::-1]], axis=1)[:, ::-1]
    as_large = np.count_nonzero(at_least_as_large(largest_left, values[order]), axis=0)
    adjusted = np.empty(len(values))
    adjusted[order] = np.maximum.accumulate((1 + as_large) / (1 + len(drawn)))
    return adjusted


def largest_gap_test(running: RunningSum, method: TestMethod, draws: Draws) -> CalibrationTest:
    """Test the largest size of a running sum: the KS error."""
    null = running.null_distribution()
    if needs_draws(running, method, null):
        found = _resampling_test(running, largest, draws)
        # Draws cannot tell how far out an error is that none of them reaches.
        unreached = method == "auto" and running.event.groups is None and found.p_value * (1 + draws.n_resamples) <= 1
        if unreached:
            return replace(found, p_value=min(found.p_value, null.p_value(found.value)))
        return found
    value = float(largest(running.sums(running.event.hits[None]))[0, 0])
    bound = null.quantile_above(1 - draws.level)
    return CalibrationTest(value, null.p_value(value), bound, null.mean(), draws.level)


def needs_draws(running: RunningSum, method: TestMethod, null: KSNullDistribution) -> bool:
    """Whether the p-value comes from resampling."""
    check_choice(method, get_args(TestMethod), "method")
    grouped = running.event.groups is not None
    if method == "asymptotic" and grouped:
        raise BadPredictions("the asymptotic test needs independent rows; with groups pass method='resampling'")
    return method == "resampling" or (method == "auto" and (grouped or null.too_few_uncertain_rows))


def _resampling_test(running: RunningSum, statistic: Callable[[Floats], Floats], draws: Draws) -> CalibrationTest:
    event = running.event
    sums = running.sums(event.hits[None])
    value = float(statistic(sums)[0, 0])
    found = compare_with_draws(value, running.redrawn(statistic, draws)[:, 0], draws.level)
    if event.groups is None or found.too_few_groups:
        return found
    signs = np.repeat(_SIGNS[statistic](sums[0]), np.diff(running.ends, prepend=-1))
    return allow_for(unseen_failures(event.groups, event.weights, event.scores, event.hits, signs), found)


def allow_for(unseen: UnseenFailures, found: CalibrationTest, power: int = 1) -> CalibrationTest:
    """Raise the p-value and the bound to what unseen failures explain; the error is this power of theirs."""
    rest = found.value - unseen.observed_gap**power
    if rest > found.bound:  # the rows outside groups of several rows suffice to reject
        return found
    bound = rest + unseen.largest(1 - found.level) ** power
    return replace(found, p_value=max(found.p_value, unseen.probability), bound=max(found.bound, bound))


def largest(sums: Floats) -> Floats:
    """The KS error of running sums at the end of each score, (b, 1)."""
    return np.abs(sums).max(axis=1, keepdims=True)


def summed_steps(sums: Floats) -> Floats:
    """The ECE of running sums at the end of each bin, (b, 1)."""
    return np.abs(np.diff(sums, axis=1, prepend=0.0)).sum(axis=1, keepdims=True)


def _signs_of_largest(sums: Floats) -> Ints:
    """Return with which sign each step of a running sum enters its largest size."""
    largest = int(np.abs(sums).argmax())
    signs = np.zeros(len(sums), dtype=np.int64)
    signs[: largest + 1] = np.sign(sums[largest])
    return signs


def _signs_of_steps(sums: Floats) -> Ints:
    return np.sign(np.diff(sums, prepend=0.0)).astype(np.int64)


_SIGNS: dict[Callable[[Floats], Floats], Callable[[Floats], Ints]] = {
    largest: _signs_of_largest,
    summed_steps: _signs_of_steps,
}


def _statistic(metric: str | Callable[..., float], event: Event) -> Callable[[Rows | Scored], float]:
    """Return the function from rows to the number to test."""
    if isinstance(metric, str) and metric in METRICS:
        found = METRICS[metric]
        if found.better != "lower":
            raise BadPredictions(f"a test needs a metric that is larger for worse models; {metric} is not")
        check = partial(check_event, event=event) if found.about == "event" else check_rows
        return lambda rows: evaluate_once(check(rows), [found])[metric]
    if isinstance(metric, str) or not callable(metric):
        raise BadPredictions(
            f"metric must be one of {', '.join(METRICS)}, or a function of probabilities and labels; got {metric!r:.60}"
        )

    def number(rows: Rows | Scored) -> float:
        if isinstance(rows, Scored):
            raise BadPredictions("Confidences need the name of a metric, such as 'ece', instead of a function")
        weighted = {}
        if rows.given_weights is not None:
            weighted = {"sample_weight": rows.given_weights}
        found: object = metric(rows.probabilities, rows.labels, **weighted)
        value = float(found) if isinstance(found, Real) else math.nan
        if math.isnan(value):
            raise BadPredictions(f"the metric must give a number for any labels; {metric!r} gave {found!r:.60}")
        return value

    return number
