"""Predictions -> tests of calibration: whether an error is larger than sampling error explains.

The reference is what a calibrated model shows on the same rows (`redrawing.py`). Given the scores of an event, its
outcomes are coin flips, and KS and ECE are functions of running sums of hit - score. So the tests of these two need not
draw labels, and the asymptotic KS test draws nothing at all (`null_distribution.py`). `classwise_ks_test` tests all
classes at once, and `consistency_test` any metric.

`calibration_test` is the default answer to "is it calibrated?": a few tests with different blind spots, as one test. KS
of the confidence adds up errors of one sign; where over- and underconfidence alternate, they cancel. ECE sees these,
bin by bin. Neither sees anything below the top class: KS of rank 2 and KS of all classes do. Labels are drawn once for
all tests. The smallest p-value is compared with the smallest p-values of the same draws, so the level is exact whatever
the dependence between the tests, and tests that agree cost no power. Westfall and Young, "Resampling-Based Multiple
Testing", 1993. With groups, each test draws in its own way, and Holm's correction combines them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from statistics import NormalDist
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from glayers.arrays import Array, Bools, Floats, Ints
from glayers.checks import check_choice, whole_number
from glayers.errors import BadPredictions
from glayers.metrics.binned import Binning, bin_edges
from glayers.metrics.differences import adjust
from glayers.metrics.events import (
    N_BINS,
    Event,
    Rows,
    Scored,
    check_any,
    check_event,
    check_rows,
    distinct_scores,
    rank,
    top,
)
from glayers.metrics.ks import error_of_each_class
from glayers.metrics.metric import evaluate_once
from glayers.metrics.null_distribution import MEAN_LARGEST, KSNullDistribution, brownian_height
from glayers.metrics.redrawing import ROUNDING, Draws, RunningSum, redraw
from glayers.metrics.scorecard import METRICS
from glayers.text_tables import p_text

__all__ = [
    "CalibrationTest",
    "OmnibusTest",
    "calibration_test",
    "classwise_ks_test",
    "consistency_test",
    "ece_test",
    "ks_test",
]

TestMethod: TypeAlias = Literal["auto", "asymptotic", "resampling"]
# Of its expected hits (or misses), what a failing group lacks. With 1, nothing unseen could ever cause a rejection, but
# an error of 15 points in 16 images would hardly be significant. With 0.6 it is, and groups that fail as a whole keep
# the level of KS (experiments/level_in_hard_cases.py).
_FAILURE_SEVERITY = 0.6
POWER = 0.8  # with which an error would have been found: the usual choice in planning a study
TOLERANCE = 0.02  # an error of 2 points of confidence: most uses of probabilities tolerate as much
_DRAWS = 999  # one draw less than a multiple of 20, so that a level of 5 % can be exact
_FEWER_DRAWS = 199  # from five million probabilities on: 25,000 rows of 1,000 classes then take half a minute
Verdict: TypeAlias = Literal["calibrated", "not calibrated", "too few rows", "too few groups"]
_RANK_2, _CLASSES = "rank_2_ks", "classwise_ks"
_BELOW_THE_TOP = {
    (_RANK_2,): "the second class is",
    (_CLASSES,): "the classes taken together are",
    (_RANK_2, _CLASSES): "classes below the top are",
}


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


_Tests: TypeAlias = dict[str, CalibrationTest]
_Error: TypeAlias = Callable[[Array, Floats], float]


@dataclass(frozen=True)
class OmnibusTest:
    """Several tests of the same predictions, and what they say together.

    Attributes
    ----------
    tests
        The single tests by name, with p-values of their own: "ks" and "ece" of the confidence or of another event,
        "rank_2_ks" of the second most probable class, and "classwise_ks", the mean over classes.
    adjusted
        Their p-values, adjusted for each other: each rejects if its adjusted p-value is at most 1 - `level`.
    event
        The event of "ks" and "ece", in words.
    rows, groups
        The number of rows, and of groups if there are any.
    n_resamples
        The number of draws.
    level
        The level of all tests together: a calibrated model passes with this probability.
    detectable
        The KS error of the confidence, or of the event, that these rows would have shown with a probability of 80 %,
        if all scores are too high or too low by that much; nan if there are too few groups to tell.
    """

    tests: dict[str, CalibrationTest]
    adjusted: dict[str, float]
    event: str
    rows: int
    groups: int | None
    n_resamples: int
    level: float
    detectable: float

    @property
    def verdict(self) -> Verdict:
        """The answer in a few words: "calibrated" only if an error above 2 points would most likely have shown."""
        if self.rejecting:
            return "not calibrated"
        if math.isnan(self.p_value):
            return "too few groups"
        if self.detectable > TOLERANCE:
            return "too few rows"
        return "calibrated"

    @property
    def p_value(self) -> float:
        """The p-value of all tests together; NaN if there are too few groups to tell."""
        return float(np.min(list(self.adjusted.values())))

    @property
    def rejected(self) -> bool:
        """Whether the model is not calibrated. False also where there are too few rows to tell: see `verdict`."""
        return bool(self.rejecting)

    @property
    def rejecting(self) -> tuple[str, ...]:
        """The names of the tests that reject."""
        return tuple(name for name, p in self.adjusted.items() if rejects(p, self.level))

    @property
    def undecided(self) -> bool:
        """Whether there are too few rows or groups to tell."""
        return self.verdict in ("too few rows", "too few groups")

    def to_dict(self) -> dict[str, Any]:
        """Return everything, ready for JSON."""
        tests = {}
        for name, test in self.tests.items():
            tests[name] = {**vars(test), "adjusted_p_value": self.adjusted[name]}
        names = ("verdict", "p_value", "rejected", "rejecting", "undecided", "detectable", "n_resamples", "level")
        return {**{name: getattr(self, name) for name in names}, "sentence": str(self), "tests": tests}

    @property
    def finding(self) -> str:
        """The answer in words, without numbers but that of the rows."""
        rows = f"{self.rows:,} rows"
        if self.groups is not None:
            rows += f" in {self.groups:,} groups"
        if self.verdict == "calibrated":
            return f"calibrated, as far as {rows} can tell"
        if self.undecided:
            return f"{self.verdict} to tell whether the model is calibrated: {rows}"
        below = _BELOW_THE_TOP.get(self.rejecting)
        if below is None:
            return "not calibrated"
        if self.detectable > TOLERANCE:
            return f"{below} not calibrated; {rows} are too few to tell whether the {self.event} is"
        return f"the {self.event} is calibrated, as far as {rows} can tell, but {below} not"

    def __str__(self) -> str:
        labels = {"ks": f"KS ({self.event})", "ece": f"ECE ({self.event})"}
        labels |= {_RANK_2: "KS (second class)", _CLASSES: "KS (all classes)"}
        found = self.finding
        if self.verdict != "too few groups":
            found += f" ({p_text(self.p_value, self.n_resamples)})"
        if self.finding == "not calibrated":
            return f"{found}; significant: {', '.join(labels[name] for name in self.rejecting)}"
        if self.undecided and not math.isnan(self.detectable):
            found += f"; only errors above about {100 * self.detectable:.2g} points would show"
        if self.verdict == "calibrated":
            found += f"; an error of {100 * self.detectable:.2g} points would show"
        return found


def calibration_test(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    event: Event | None = None,
    n_resamples: int | None = None,
    level: float = 0.95,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> OmnibusTest:
    """Test whether a model is calibrated, by a few tests that see different errors.

    Parameters
    ----------
    probabilities
        Array (n, k), `Predictions` or `Confidences`.
    labels, sample_weight
        As in `ks`.
    groups
        Group of each row (n,), where rows of a group depend on each other.
    event
        None tests the confidence (KS and ECE), the second most probable class (KS) and all classes (mean KS). An event
        tests KS and ECE of that event alone, as `Confidences` do.
    n_resamples
        The number of draws; None means 999, or 199 from five million probabilities on.
    level
        The level of all tests together.
    random_state
        The seed of the draws.
    progress
        Whether to show a progress bar; None shows it at a terminal.

    Returns
    -------
    OmnibusTest
        It prints as a sentence. Without groups the level is exact: one set of drawn labels serves all tests. With
        groups it is Holm's, which is conservative.

    Examples
    --------
    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 70 + [1] * 2 + [2] * 28
    >>> found = calibration_test(p, y)
    >>> print(found)
    classes below the top are not calibrated; 100 rows are too few to tell whether the confidence is (p <= 0.001)
    >>> found.rejected, found.rejecting
    (True, ('rank_2_ks', 'classwise_ks'))
    """
    given = check_any(probabilities, labels, sample_weight, groups, strict=True)
    if event is not None:
        given = check_event(given, event=event)
    if n_resamples is None:
        n_entries = len(given) * max(1, given.n_classes)
        n_resamples = _DRAWS if n_entries < 5_000_000 else _FEWER_DRAWS
    draws = Draws(n_resamples, level, random_state)
    n_tests = 2 if isinstance(given, Scored) else min(4, 1 + given.n_classes)  # of two classes the second is not new
    # With fewer draws the smallest adjusted p-value of several tests would exceed 1 - level: nothing could be rejected.
    least = math.ceil(n_tests / (1 - level) - ROUNDING) - 1
    whole_number(n_resamples, f"for {n_tests} tests at level {level:g}, n_resamples", least)
    n_groups = None
    if given.groups is None:
        tests, adjusted = _jointly(given, draws, progress)
    else:
        tests, adjusted = _in_groups(given, draws, progress)
        n_groups = int(given.group_numbers.max()) + 1
    about = "confidence" if event is None or event == top else event.name
    detectable = detectable_error(check_event(given), tests["ks"], len(tests))
    return OmnibusTest(tests, adjusted, about, len(given), n_groups, n_resamples, level, detectable)


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
        be independent, and weights no function of the label. "resampling" draws outcomes from the scores, with the
        dependence that groups seem to have. "auto" is asymptotic, unless there are groups, weights that are a function
        of the label, or fewer than about 20 expected hits or misses.
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
    check_choice(method, get_args(TestMethod), "method")
    draws = Draws(n_resamples, level, random_state)
    running = RunningSum.of(check_event(probabilities, labels, sample_weight, groups, event))
    grouped = running.event.groups is not None
    if method == "asymptotic" and grouped:
        raise BadPredictions("the asymptotic test needs independent rows; with groups pass method='resampling'")
    by_label = running.event.law is not None
    if method == "asymptotic" and by_label:
        raise BadPredictions("these weights are a function of the label, which needs draws: pass method='resampling'")
    if method == "resampling" or grouped or by_label:
        return _resampling_test(running, draws)
    null = _null_distribution(running)
    if method == "asymptotic" or not null.too_few_uncertain_rows:
        value = float(running.errors(running.event.hits[None], running.event.weights[None])[0, 0])
        return CalibrationTest(value, null.p_value(value), null.quantile_above(1 - level), null.mean(), level)
    found = _resampling_test(running, draws)
    if found.p_value * (1 + n_resamples) <= 1:  # draws cannot tell how far out an error is that none of them reaches
        return replace(found, p_value=min(found.p_value, null.p_value(found.value)))
    return found


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
    return _resampling_test(running, Draws(n_resamples, level, random_state))


def classwise_ks_test(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> CalibrationTest:
    """Test `classwise_ks`, the mean KS error over classes, by redrawing labels.

    It asks whether the classes are calibrated. To ask which of them are not, test each with `ks_test` and
    `event=label(c)`, and pass the p-values to `adjust`. Small errors of many classes add up here and may be missed
    there.

    Parameters
    ----------
    probabilities, labels, sample_weight, groups, level
        As in `ks_test`; `Confidences` do not suffice.
    n_resamples, random_state
        The number of draws and their seed.
    progress
        Whether to show a progress bar; None shows it at a terminal.

    Returns
    -------
    CalibrationTest
        By consistency resampling: Broecker and Smith, Weather and Forecasting 2007; Vaicenavicius et al., AISTATS 2019.

    Examples
    --------
    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> test = classwise_ks_test(p, y)
    >>> round(test.value, 12), test.p_value < 0.01
    (0.1, True)
    """
    rows = check_rows(probabilities, labels, sample_weight, groups, strict=True)
    draws = Draws(n_resamples, level, random_state)
    values, drawn = redraw(rows, class_errors(rows), draws, progress, by_class=True)
    return compare_with_draws(float(values.mean()), drawn.mean(axis=1), level)


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
            "consistency_test redraws row by row and needs independent rows; with groups use ece_test or ks_test"
        )

    def statistics(batch: Array, weights: Floats) -> Floats:
        values = []
        own_weights = given.given_weights
        for outcomes, drawn_weights in zip(batch, np.broadcast_to(weights, batch.shape), strict=True):
            if given.law is not None:
                own_weights = drawn_weights
            if isinstance(given, Rows):
                labels = outcomes.astype(np.int64)
                values.append(value_of(replace(given, labels=labels, losses=None, given_weights=own_weights)))
            else:
                values.append(value_of(replace(given, hits=outcomes.astype(np.float64), given_weights=own_weights)))
        return np.array(values)[:, None]

    values, drawn = redraw(given, statistics, draws, progress)
    return compare_with_draws(float(values[0]), drawn[:, 0], level)


def rejects(p_value: float, level: float) -> bool:
    """Whether a p-value rejects at this level.

    >>> rejects(0.05, level=0.95)
    True
    """
    return p_value <= 1 - level + ROUNDING


def at_least_as_large(drawn: Floats, value: Floats | float) -> Bools:
    """Which drawn errors reach an error, or differ from it by rounding only."""
    return drawn >= value - np.maximum(ROUNDING, 1e-9 * np.abs(value))


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


def _null_distribution(running: RunningSum) -> KSNullDistribution:
    """Return what is known of the running sum under calibration, for independent rows."""
    scores = np.clip(running.event.scores, 0.0, 1.0)  # rounding may have left them just outside
    weights = running.event.weights
    step_variances = np.add.reduceat(weights**2 * scores * (1 - scores), np.append(0, running.ends[:-1] + 1))
    return KSNullDistribution.of(scores, weights, step_variances)


def _resampling_test(running: RunningSum, draws: Draws) -> CalibrationTest:
    values, drawn = redraw(running.event, running.errors, draws)
    found = compare_with_draws(float(values[0]), drawn[:, 0], draws.level)
    if running.event.groups is None or found.too_few_groups:
        return found
    return _allow_for_unseen_failures(running.event, running.signs(), found)


def _allow_for_unseen_failures(event: Scored, signs: Floats, found: CalibrationTest) -> CalibrationTest:
    """Raise the p-value and the bound to what groups that fail as a whole, and were not seen, could explain.

    No draws show what happens rarely to a whole group and happened to none of the few that were seen. Without such a
    group, the others look better than the model says, and like independent rows. Groups may fail as often as would
    make the model calibrated, with probability gap / (gap + gap if failed). `signs` say how each row enters the error.
    """
    sizes = np.bincount(event.group_numbers)
    weights = event.weights * (sizes[event.group_numbers] > 1)
    expected = np.where(signs > 0, event.scores, 1 - event.scores) * np.abs(signs)
    gap = float(weights * signs @ (event.hits - event.scores))
    gap_if_failed = _FAILURE_SEVERITY * float(weights @ expected)
    rest = found.value - gap
    if gap <= 0 or rest > found.bound:  # the rows outside groups of several rows suffice to reject
        return found
    n_groups = np.count_nonzero(sizes > 1)
    none_failed = (gap_if_failed / (gap_if_failed + gap)) ** n_groups
    explained = gap_if_failed * ((1 - found.level) ** (-1 / n_groups) - 1)
    return replace(found, p_value=max(found.p_value, none_failed), bound=max(found.bound, rest + explained))


def class_errors(rows: Rows) -> Callable[[Array, Floats], Floats]:
    """Return the function from labels and weights (b, n) to the KS errors of the classes, (b, k)."""
    if rows.law is None:
        from_labels = _class_errors_of_labels(rows)
        return lambda batch, _weights: np.stack([from_labels(labels) for labels in batch])

    def errors(batch: Array, weights: Floats) -> Floats:
        drawn = zip(batch, np.broadcast_to(weights, batch.shape), strict=True)
        return np.stack([error_of_each_class(replace(rows, labels=labels), own) for labels, own in drawn])

    return errors


def _class_errors_of_labels(rows: Rows) -> Callable[[Ints], Floats]:
    """Return the function from labels (n,) to the KS errors of the classes, (k,), if weights stay with their rows.

    A class that is never the label only lowers its running sum, so the sum's extremes lie at its hits. A row hits one
    class, so n places decide a resample, not n * k: what the scores add up to at each of them is computed once.

    >>> p, y = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]
    >>> _class_errors_of_labels(check_rows(p, y))(np.array(y)).round(12).tolist()
    [0.1, 0.4, 0.3]
    """
    shape = rows.probabilities.shape
    place = np.empty(shape, dtype=np.int32, order="F")  # of a row's score among those of the class
    before = np.empty(shape, order="F")  # what the class's scores below it add up to
    through = np.empty(shape, order="F")  # and with it
    total = np.empty(shape[1])
    for c in range(shape[1]):
        scores = rows.probabilities[:, c].astype(np.float64)
        different, place[:, c] = distinct_scores(scores)
        ends = np.cumsum(np.bincount(place[:, c], rows.weights * scores, len(different)))
        through[:, c] = ends[place[:, c]]
        before[:, c] = np.append(0.0, ends)[place[:, c]]
        total[c] = ends[-1]

    def errors(labels: Ints) -> Floats:
        key = labels.astype(np.int64) * len(labels) + place[np.arange(len(labels)), labels]
        order = np.argsort(key, kind="stable")
        hits = np.cumsum(rows.weights[order])
        last = np.flatnonzero(np.append(np.diff(key[order]) != 0, True))  # hits of equal score enter together
        row = order[last]
        label = labels[row]
        first = np.append(True, label[1:] != label[:-1])
        until = np.append(0.0, hits[last][:-1])  # hits before each of these places, of all classes
        earlier = until[first][np.cumsum(first) - 1]  # hits of the classes before
        after = np.abs(hits[last] - earlier - through[row, label])
        ahead = np.abs(until - earlier - before[row, label])
        gaps = np.maximum.reduceat(np.maximum(after, ahead), np.flatnonzero(first))
        seen = label[first]
        at_end = -total
        at_end[seen] += np.diff(np.append(until[first], hits[-1]))
        largest = np.abs(at_end)
        largest[seen] = np.maximum(largest[seen], gaps)
        return largest

    return errors


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
        weighted = {} if rows.given_weights is None else {"sample_weight": rows.given_weights}
        value: object = metric(rows.probabilities, rows.labels, **weighted)
        if not isinstance(value, Real) or math.isnan(value):
            raise BadPredictions(f"the metric must give a number for any labels; {metric!r} gave {value!r:.60}")
        return float(value)

    return number


def _in_groups(given: Rows | Scored, draws: Draws, progress: bool | None) -> tuple[_Tests, dict[str, float]]:
    """Test one by one, with Holm's correction; p-values of NaN say that there are too few groups."""
    settings: dict[str, Any] = vars(draws)
    tests = {"ks": ks_test(given, method="resampling", **settings), "ece": ece_test(given, **settings)}
    if isinstance(given, Rows):
        if given.n_classes > 2:
            tests[_RANK_2] = ks_test(given, event=rank(2), method="resampling", **settings)
        tests[_CLASSES] = classwise_ks_test(given, progress=progress, **settings)
    if any(test.too_few_groups for test in tests.values()):
        return tests, dict.fromkeys(tests, math.nan)
    adjusted = adjust([test.p_value for test in tests.values()]).tolist()
    return tests, dict(zip(tests, adjusted, strict=True))


def _jointly(given: Rows | Scored, draws: Draws, progress: bool | None) -> tuple[_Tests, dict[str, float]]:
    """Draw labels once for all tests, and adjust by the smallest p-values of the same draws, step by step."""
    rows = given
    if isinstance(given, Rows):
        errors = _errors_of_labels(given)
    else:
        errors = _event_errors(given, np.ones(len(given)))
        if given.law is None:
            p = np.column_stack([1 - given.scores, given.scores])
            rows = Rows(p, given.hits.astype(np.int64), given_weights=given.given_weights)

    def statistics(batch: Array, weights: Floats) -> Floats:
        drawn = zip(batch, np.broadcast_to(weights, batch.shape), strict=True)
        return np.array([[error(labels, own) for error in errors.values()] for labels, own in drawn])

    values, drawn = redraw(rows, statistics, draws, progress)
    p_values = np.column_stack([_p_values(column) for column in np.vstack([values, drawn]).T])
    adjusted = step_down(-p_values[0], -p_values[1:]).tolist()
    tests = {}
    for name, value, of_draws in zip(errors, values.tolist(), drawn.T, strict=True):
        tests[name] = compare_with_draws(value, of_draws, draws.level)
    return tests, dict(zip(errors, adjusted, strict=True))


def _errors_of_labels(rows: Rows) -> dict[str, _Error]:
    """Return each error as a function of labels and weights (n,)."""
    errors = _event_errors(rows.top, rows.top_classes(1)[:, 0])
    if rows.n_classes > 2:
        errors[_RANK_2] = _event_errors(rank(2).of(rows), rows.top_classes(2)[:, 1])["ks"]
    of_classes = class_errors(rows)
    errors[_CLASSES] = lambda labels, weights: float(of_classes(labels[None], weights[None]).mean())
    return errors


def _event_errors(event: Scored, named: Array) -> dict[str, _Error]:
    """Return KS and ECE as functions of labels and weights: the event happens where the label is what the row names."""

    def error(running: RunningSum) -> _Error:
        order = running.order
        wanted = named[order]
        return lambda labels, weights: float(running.errors(labels[None, order] == wanted, weights[None, order])[0, 0])

    binned = RunningSum.of(event, bin_edges(event, N_BINS, "equal_width"))
    return {"ks": error(RunningSum.of(event)), "ece": error(binned)}


def _p_values(errors: Floats) -> Floats:
    """Return the share of all errors that reach each of them, less a part of one error that breaks ties between tests.

    Each error is compared with all others in the same way, so any function of them that is the same for all will do.
    Without the part, which grows with the error, ties of small p-values would make the combined test conservative.

    >>> np.ceil(4 * _p_values(np.array([0.3, 0.1, 0.4, 0.2]))).tolist()
    [2.0, 4.0, 1.0, 3.0]
    """
    ascending = np.sort(errors)
    below = [np.searchsorted(at_least_as_large(ascending, error), True) for error in errors]
    spread = errors.std()
    part = np.full(len(errors), 0.5)
    if spread > ROUNDING:
        part += np.arctan((errors - errors.mean()) / spread) / np.pi
    return 1 - (np.array(below) + part) / len(errors)


def detectable_error(event: Scored, test: CalibrationTest, n_tests: int) -> float:
    """Return the KS error of the event that the joint test of `n_tests` would find with probability `POWER`.

    A test that does not reject says little if it could hardly have rejected. Suppose that the model is off by the same
    amount everywhere. The running sum then ends about as far from 0 as this KS error, give or take its standard
    deviation. The test rejects with the stated power if the error exceeds the critical value by a quantile of that
    deviation. Other errors of the same size are harder or easier to find; this is a yardstick, not a bound. `test` is
    the KS test of the event alone. The error is nan if groups are too few to tell.
    """
    if test.too_few_groups:
        return math.nan
    allowed = 1 - test.level
    critical = test.bound * brownian_height(allowed / n_tests) / brownian_height(allowed)
    independent = _deviation(event, 0.0)
    wider = 1.0  # because rows of a group depend on each other, or heavy rows are rare
    if (event.groups is not None or event.law is not None) and independent > 0:
        wider = max(1.0, test.expected / (MEAN_LARGEST * independent))
    error = critical
    for _ in range(20):  # the larger the error, the more uncertain are the outcomes of a sure model; halves each time
        error = critical + NormalDist().inv_cdf(POWER) * wider * _deviation(event, error)
    # Even a model that is always sure must have had the chance to be wrong.
    once_seen = 1 - (1 - POWER) ** (1 / event.n_units)
    return min(1.0, max(error, once_seen))


def _deviation(event: Scored, error: float) -> float:
    """Return the standard deviation of the sum of weight * hit if all scores are too high, or too low, by an error."""
    variances = []
    for shift in (-error, error):
        rates = np.clip(event.scores + shift, 0.0, 1.0)
        variances.append(float(event.weights**2 @ (rates * (1 - rates))))
    return math.sqrt(max(variances))
