"""Predictions -> the default answer to "is it calibrated?": a few tests with different blind spots, as one test.

KS of the confidence adds up errors of one sign; where over- and underconfidence alternate, they cancel. ECE sees these,
bin by bin. Neither sees anything below the top class: KS of rank 2 and KS of all classes do.

Labels are drawn once for all tests. The smallest p-value is compared with the smallest p-values of the same draws, so
the level is exact whatever the dependence between the tests, and tests that agree cost no power. Westfall and Young,
"Resampling-Based Multiple Testing", 1993. With groups, each test draws in its own way, and Holm's correction combines
them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

import numpy as np

from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.checks import whole_number
from glayers.metrics.binned import bin_edges
from glayers.metrics.calibration_tests import (
    CalibrationTest,
    at_least_as_large,
    class_errors,
    classwise_ks_test,
    compare_with_draws,
    ece_test,
    ks_test,
    largest,
    rejects,
    step_down,
    summed_steps,
)
from glayers.metrics.differences import adjust
from glayers.metrics.events import N_BINS, Event, Rows, Scored, check_any, check_event, rank, top
from glayers.metrics.null_distribution import MEAN_LARGEST, brownian_height
from glayers.metrics.redrawing import ROUNDING, Draws, RunningSum, redraw
from glayers.text_tables import p_text

__all__ = ["OmnibusTest", "calibration_test"]

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
_Found: TypeAlias = tuple[dict[str, CalibrationTest], dict[str, float]]  # tests, and adjusted p-values


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
        p_values = list(self.adjusted.values())
        known = [p for p in p_values if not math.isnan(p)]
        smallest = min(known, default=math.nan)
        if len(known) < len(p_values) and not rejects(smallest, self.level):
            return math.nan
        return smallest

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
    n_tests = _n_tests(given)
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
    detectable = detectable_error(given.top, tests["ks"], len(tests))
    return OmnibusTest(tests, adjusted, about, len(given), n_groups, n_resamples, level, detectable)


def _n_tests(given: Rows | Scored) -> int:
    """Of two classes the second says nothing new."""
    if isinstance(given, Scored):
        return 2
    return 3 if given.n_classes == 2 else 4


def _in_groups(given: Rows | Scored, draws: Draws, progress: bool | None) -> _Found:
    """Test one by one, with Holm's correction; a p-value of NaN says that there are too few groups."""
    settings: dict[str, Any] = vars(draws)
    tests = {"ks": ks_test(given, method="resampling", **settings), "ece": ece_test(given, **settings)}
    if isinstance(given, Rows):
        if given.n_classes > 2:
            tests[_RANK_2] = ks_test(given, event=rank(2), method="resampling", **settings)
        tests[_CLASSES] = classwise_ks_test(given, progress=progress, **settings)
    adjusted = dict.fromkeys(tests, math.nan)
    known = [name for name, test in tests.items() if not test.too_few_groups]
    adjusted.update(zip(known, adjust([tests[name].p_value for name in known]).tolist(), strict=True))
    return tests, adjusted


def _jointly(given: Rows | Scored, draws: Draws, progress: bool | None) -> _Found:
    """Draw labels once for all tests, and adjust by the smallest p-values of the same draws, step by step."""
    if isinstance(given, Rows):
        rows = given
        errors = _errors_of_labels(given)
    else:
        p = np.column_stack([1 - given.scores, given.scores])
        rows = Rows(p, given.hits.astype(np.int64), given_weights=given.given_weights)
        errors = _event_errors(given, rows.labels * 0 + 1)

    def statistics(batch: Array) -> Floats:
        return np.array([[error(labels) for error in errors.values()] for labels in batch])

    values, drawn = redraw(rows, statistics, draws.n_resamples, draws.generator(), progress)
    p_values = np.column_stack([_p_values(column) for column in np.vstack([values, drawn]).T])
    adjusted = step_down(-p_values[0], -p_values[1:]).tolist()
    tests = {}
    for name, value, of_draws in zip(errors, values.tolist(), drawn.T, strict=True):
        tests[name] = compare_with_draws(value, of_draws, draws.level)
    return tests, dict(zip(errors, adjusted, strict=True))


def _errors_of_labels(rows: Rows) -> dict[str, Callable[[Ints], float]]:
    """Return each error as a function of labels (n,)."""
    first, second = _two_best(rows.probabilities)
    errors = _event_errors(rows.top, first)
    if rows.n_classes > 2:
        errors[_RANK_2] = _event_errors(rank(2).of(rows), second)["ks"]
    of_classes = class_errors(rows)
    errors[_CLASSES] = lambda labels: float(of_classes(labels[None]).mean())
    return errors


def _event_errors(event: Scored, named: Ints) -> dict[str, Callable[[Ints], float]]:
    """Return KS and ECE as functions of labels: the event happens where the label is the class that the row names."""

    def error(running: RunningSum, statistic: Callable[[Floats], Floats]) -> Callable[[Ints], float]:
        wanted = named[running.order]
        return lambda labels: float(statistic(running.sums(labels[None, running.order] == wanted))[0, 0])

    binned = RunningSum.of(event, bin_edges(event, N_BINS, "equal_width"))
    return {"ks": error(RunningSum.of(event), largest), "ece": error(binned, summed_steps)}


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


def _two_best(probabilities: Array) -> tuple[Ints, Ints]:
    """Return the most probable and the second most probable class of each row; of equal ones the first comes first.

    >>> [classes.tolist() for classes in _two_best(np.array([[0.2, 0.4, 0.4], [0.5, 0.3, 0.2]]))]
    [[1, 0], [2, 1]]
    """
    best = np.empty((2, len(probabilities)), dtype=np.int64)
    for rows in row_blocks(*probabilities.shape):
        block = probabilities[rows].copy()
        best[0, rows] = block.argmax(axis=1)
        block[np.arange(len(block)), best[0, rows]] = -1.0
        best[1, rows] = block.argmax(axis=1)
    return best[0], best[1]


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
    wider = 1.0  # because rows of a group depend on each other
    if event.groups is not None and independent > 0:
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
