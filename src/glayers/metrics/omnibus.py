"""Predictions -> the default answer to "is it calibrated?": a few tests with different blind spots, as one test.

KS of the confidence adds up errors of one sign; where over- and underconfidence alternate, they cancel. ECE sees these,
bin by bin. Neither sees anything below the top class: KS of rank 2 and KS of all classes do.

Labels are drawn once for all tests. The smallest p-value is compared with the smallest p-values of the same draws, so
the level is exact whatever the dependence between the tests, and tests that agree cost no power. Westfall and Young,
"Resampling-Based Multiple Testing", 1993. With groups, each test draws in its own way, and Holm's correction combines
them.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.checks import whole_number
from glayers.metrics.binned import bin_edges
from glayers.metrics.calibration_tests import (
    CalibrationTest,
    at_least_as_large,
    compare_with_draws,
    ece_test,
    ks_test,
    largest,
    rejects,
    step_down,
    summed_steps,
)
from glayers.metrics.class_tests import ClassSteps, classwise_ks_test
from glayers.metrics.differences import adjust
from glayers.metrics.events import N_BINS, Event, Rows, Scored, check_any, check_event, rank, top
from glayers.metrics.power import TOLERANCE, detectable_error
from glayers.metrics.redrawing import (
    ROUNDING,
    Draws,
    Outcomes,
    RunningSum,
    label_outcomes,
    redraw,
    redrawn_labels,
)

__all__ = ["OmnibusTest", "calibration_test"]

_DRAWS, _FEWER_DRAWS = 999, 199  # one draw less than a multiple of 20, so that a level of 5 % can be exact
_MANY_PROBABILITIES = 5_000_000  # from here on fewer draws: 25,000 rows of 1,000 classes then take half a minute
Verdict: TypeAlias = Literal["calibrated", "not calibrated", "too few rows", "too few groups"]
_NOT: Literal["not calibrated"] = "not calibrated"
_RANK_2, _CLASSES = "rank_2_ks", "classwise_ks"
_BELOW_THE_TOP = {
    frozenset([_RANK_2]): "the second class is",
    frozenset([_CLASSES]): "the classes taken together are",
    frozenset([_RANK_2, _CLASSES]): "classes below the top are",
}


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
            return _NOT
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
        below = _BELOW_THE_TOP.get(frozenset(self.rejecting))
        if below is None:
            return _NOT
        if self.detectable > TOLERANCE:
            return f"{below} not calibrated; {rows} are too few to tell whether the {self.event} is"
        return f"the {self.event} is calibrated, as far as {rows} can tell, but {below} not"

    def __str__(self) -> str:
        labels = {"ks": f"KS ({self.event})", "ece": f"ECE ({self.event})"}
        labels |= {_RANK_2: "KS (second class)", _CLASSES: "KS (all classes)"}
        found = self.finding
        if self.verdict != "too few groups":
            found += f" (p = {self.p_value:.2g})"
        if self.finding == _NOT:
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
    classes below the top are not calibrated; 100 rows are too few to tell whether the confidence is (p = 0.001)
    >>> found.rejected, found.rejecting
    (True, ('rank_2_ks', 'classwise_ks'))
    """
    given = check_any(probabilities, labels, sample_weight, groups, strict=True)
    if event is not None:
        given = check_event(given, event=event)
    n_entries = given.probabilities.size if isinstance(given, Rows) else len(given.scores)
    if n_resamples is None:
        n_resamples = _DRAWS if n_entries < _MANY_PROBABILITIES else _FEWER_DRAWS
    draws = Draws(n_resamples, level, random_state)
    # With fewer draws the smallest adjusted p-value of several tests would exceed 1 - level: nothing could be rejected.
    least = math.ceil(_n_tests(given) / (1 - level) - ROUNDING) - 1
    whole_number(n_resamples, f"for {_n_tests(given)} tests at level {level:g}, n_resamples", least)
    if given.groups is None:
        tests, adjusted = _jointly(given, draws, progress)
    else:
        tests, adjusted = _in_groups(given, draws, progress)
    about = "confidence" if event is None or event == top else event.name
    n_groups = None if given.groups is None else len(np.unique(given.groups))
    detectable = detectable_error(given.top, tests["ks"], len(tests))
    return OmnibusTest(tests, adjusted, about, len(given.weights), n_groups, n_resamples, level, detectable)


def _n_tests(given: Rows | Scored) -> int:
    """Of two classes the second says nothing new."""
    if isinstance(given, Scored):
        return 2
    return 3 if given.n_classes == 2 else 4


def _in_groups(
    given: Rows | Scored, draws: Draws, progress: bool | None
) -> tuple[dict[str, CalibrationTest], dict[str, float]]:
    """Test one by one, with Holm's correction; a p-value of NaN says that there are too few groups."""
    settings: dict[str, Any] = vars(draws)
    tests = {"ks": ks_test(given, method="resampling", **settings), "ece": ece_test(given, **settings)}
    if isinstance(given, Rows):
        if given.n_classes > 2:
            tests[_RANK_2] = ks_test(given, event=rank(2), method="resampling", **settings)
        tests[_CLASSES] = classwise_ks_test(given, progress=progress, **settings)
    known = [name for name, test in tests.items() if not math.isnan(test.p_value)]
    corrected = adjust([tests[name].p_value for name in known]).tolist()
    adjusted = dict.fromkeys(tests, math.nan)
    adjusted.update(zip(known, corrected, strict=True))
    return tests, adjusted


def _jointly(
    given: Rows | Scored, draws: Draws, progress: bool | None
) -> tuple[dict[str, CalibrationTest], dict[str, float]]:
    """Draw labels once for all tests, and adjust by the smallest p-values of the same draws, step by step."""
    if isinstance(given, Rows):
        errors = _ErrorsOfRows.of(given)
        outcomes = label_outcomes(given)
    else:
        errors = _ErrorsOfRows(_EventErrors.of(given, np.ones(len(given.scores), dtype=np.int64)))
        probabilities = np.column_stack([1 - given.scores, given.scores])
        outcomes = Outcomes(given.hits, partial(redrawn_labels, probabilities))
    found = redraw(outcomes, errors, draws.n_resamples, draws.generator(), progress)
    names = errors.names()
    both = np.vstack([found.values, found.drawn])
    p_values = np.column_stack([_p_values(column) for column in both.T])
    adjusted = step_down(-p_values[0], -p_values[1:]).tolist()
    tests = {}
    for name, value, drawn in zip(names, found.values.tolist(), found.drawn.T, strict=True):
        tests[name] = compare_with_draws(value, drawn, draws.level)
    return tests, dict(zip(names, adjusted, strict=True))


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


class _EventErrors(NamedTuple):
    """KS and ECE of one event for any labels: the event happens where the label is the class that the row names."""

    running: RunningSum
    named: Ints
    bin_ends: Ints  # among the ends of the running sum

    @classmethod
    def of(cls, event: Scored, named: Ints) -> "_EventErrors":
        running = RunningSum.of(event)
        bins = RunningSum.of(event, bin_edges(event, N_BINS, "equal_width"))
        return cls(running, named[running.order], np.searchsorted(running.ends, bins.ends))

    def __call__(self, labels: Ints) -> list[float]:
        sums = self.running.sums((labels[self.running.order] == self.named)[None])
        ks = largest(sums)
        ece = summed_steps(sums[:, self.bin_ends])
        return [float(ks[0, 0]), float(ece[0, 0])]


@dataclass(frozen=True)
class _ErrorsOfRows:
    """The errors of the confidence (or of another event), of the second class, and of all classes."""

    confidence: _EventErrors
    second_class: _EventErrors | None = None
    classes: ClassSteps | None = None

    @classmethod
    def of(cls, rows: Rows) -> "_ErrorsOfRows":
        first, second = _two_best(rows.probabilities)
        confidence = _EventErrors.of(rows.top, first)
        if rows.n_classes == 2:  # the second class says nothing new
            return cls(confidence, None, ClassSteps.of(rows))
        return cls(confidence, _EventErrors.of(rank(2).of(rows), second), ClassSteps.of(rows))

    def names(self) -> list[str]:
        """The names of the errors."""
        names = ["ks", "ece"]
        if self.second_class is not None:
            names.append(_RANK_2)
        if self.classes is not None:
            names.append(_CLASSES)
        return names

    def __call__(self, batch: Array) -> Floats:
        """Return the errors (b, s) of labels (b, n)."""
        found = []
        for labels in batch:
            errors = self.confidence(labels)
            if self.second_class is not None:
                errors.append(self.second_class(labels)[0])
            if self.classes is not None:
                errors.append(float(self.classes.ks(labels).mean()))
            found.append(errors)
        return np.array(found)


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
