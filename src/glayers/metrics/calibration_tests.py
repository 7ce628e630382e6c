"""Predictions -> tests of calibration: whether an error is larger than sampling error explains.

The reference is what a calibrated model shows on the same rows (`null_distribution.py`).

`calibration_test` is the default answer to "is it calibrated?": a few tests with different blind spots, as one test. KS
of the confidence adds up errors of one sign; where over- and underconfidence alternate, they cancel. ECE sees these,
bin by bin. Neither sees anything below the top class: KS of rank 2 and KS of all classes do. Labels are drawn once for
all tests. The largest error, in standard deviations, is compared with the largest errors of the same draws, so the
level is exact whatever the dependence between the tests, and tests that agree cost no power. Westfall and Young,
"Resampling-Based Multiple Testing", 1993.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Bools, Floats, Ints
from glayers.checks import number_between, whole_number
from glayers.errors import BadPredictions
from glayers.metrics import events
from glayers.metrics.calibration_errors import inner_edges
from glayers.metrics.events import BIN_EDGES, N_BINS, ROUNDING, Event, Rows, Scored, check_any, check_event, top
from glayers.metrics.metric import METRICS
from glayers.metrics.null_distribution import RunningSum, generator, in_cells, label_law, redraw
from glayers.predictions import Predictions
from glayers.text_tables import html_table, json_ready, p_text, plural, two_digits

__all__ = ["CalibrationTest", "OmnibusTest", "calibration_test", "classwise_ks_test", "ece_test", "ks_test"]

# Of its expected hits (or misses), what a failing group lacks. With 1, nothing unseen could ever cause a rejection, but
# an error of 15 points in 16 images would hardly be significant. With 0.6 it is, and groups that fail as a whole keep
# the level of KS (experiments/level_in_hard_cases.py).
_FAILURE_SEVERITY = 0.6
POWER = 0.8  # with which an error would have been found: the usual choice in planning a study
TOLERANCE = 0.02  # an error of 2 points of confidence: most uses of probabilities tolerate as much
_DRAWS = 999  # one draw less than a multiple of 20, so that a level of 5 % can be exact
FEWER_DRAWS = 199  # where a draw is slow, as of probabilities that may be true, or the p-value is not shown
_MANY_ENTRIES = 5_000_000  # probabilities from where on there are fewer draws
_CLOSE = 1.1  # a mean error up to this many times that of a perfect calibrator needs no more calibration rows
Verdict: TypeAlias = Literal[
    "calibrated", "as calibrated as the rows allow", "not calibrated", "too few rows", "too few groups"
]
_HEADINGS = ("error", "p", "mean by chance", "at most by chance")
_RANK_2, _CLASSES = "rank_2_ks", "classwise_ks"
_LABELS = {"ks": "KS ({})", "ece": "ECE ({})", _RANK_2: "KS (second class)", _CLASSES: "KS (all classes)"}
_OTHERS = "the probabilities of the classes that are not predicted are"
_BELOW_THE_TOP = {(_RANK_2,): "the second probability is", (_CLASSES,): _OTHERS, (_RANK_2, _CLASSES): _OTHERS}


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
    n_resamples
        The number of draws: the p-value is at least 1 / (draws + 1), and then says "at most".
    too_few_groups
        Whether groups are too few, or too uneven, to tell: fewer than 8 by Kish's effective number. The p-value, the
        bound and the expected error are then nan, and nothing is rejected.

    Examples
    --------
    >>> print(CalibrationTest(value=0.02, p_value=0.004, bound=0.015, expected=0.008, level=0.95, n_resamples=999))
    0.02, p = 0.004: a calibrated model shows 0.008 on average and at most 0.015 in 95 % of cases
    """

    value: float
    p_value: float
    bound: float
    expected: float
    level: float
    n_resamples: int | None = None
    too_few_groups: bool = False

    @property
    def rejected(self) -> bool:
        """Whether the error is too large for a calibrated model at this level."""
        return rejects(self.p_value, self.level)

    def __str__(self) -> str:
        if self.too_few_groups:
            return f"{self.value:.4g}: too few groups to tell whether a calibrated model shows as much"
        by_chance = f"{self.expected:.4g} on average and at most {self.bound:.4g} in {100 * self.level:g} % of cases"
        return f"{self.value:.4g}, {p_text(self.p_value, self.n_resamples)}: a calibrated model shows {by_chance}"

    def _cells(self) -> list[str]:
        return [f"{number:.4g}" for number in (self.value, self.p_value, self.expected, self.bound)]

    def _repr_html_(self) -> str:
        return html_table([_HEADINGS, self._cells()])


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
    allowed
        The adjusted p-values against a calibrator that is only as good as its calibration rows allow: its coefficients
        have a sampling error. None if no calibrator was given, or if it does not know this error.
    rows_needed
        About how many calibration rows would make this sampling error unimportant: with them, errors would be a tenth
        above those of a perfect calibrator. It grows with the test rows. None also if so many rows were fitted on.
    """

    tests: dict[str, CalibrationTest]
    adjusted: dict[str, float]
    event: str
    rows: int
    groups: int | None
    n_resamples: int
    level: float
    detectable: float
    allowed: dict[str, float] | None = None
    rows_needed: int | None = None

    @property
    def verdict(self) -> Verdict:
        """The answer in a few words: "calibrated" only if an error above 2 points would most likely have shown."""
        if self.rejecting:
            if self.allowed is not None and not any(rejects(p, self.level) for p in self.allowed.values()):
                return "as calibrated as the rows allow"
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
        names = ["verdict", "p_value", "rejected", "rejecting", "undecided", "detectable", "n_resamples", "level"]
        found: dict[str, Any] = {name: getattr(self, name) for name in [*names, "allowed", "rows_needed"]}
        tests = {name: vars(test) | {"adjusted_p_value": self.adjusted[name]} for name, test in self.tests.items()}
        return json_ready(found | {"sentence": str(self), "tests": tests})

    @property
    def finding(self) -> str:
        """The answer in words, without numbers but that of the rows."""
        rows = plural(self.rows, "row")
        if self.groups is not None:
            rows += f" in {self.groups:,} groups"
        if self.verdict == "calibrated":
            return f"{rows} show no miscalibration"
        below = _BELOW_THE_TOP.get(self.rejecting)
        if below and _RANK_2 not in self.tests:
            below = "the probability of class 1 is"
        if self.verdict == "as calibrated as the rows allow":
            if below is None:
                return "the error that remains is as expected from so few calibration rows"
            off = f"{below} off, as expected from so few calibration rows"
            return off if self.detectable > TOLERANCE else f"the top probability shows no error, but {off}"
        if self.undecided:
            verb = "is" if rows == "1 row" else "are"
            return f"{rows} {verb} too few to tell whether the model is calibrated"
        if below is None:
            return "not calibrated"
        if self.detectable > TOLERANCE:
            return f"{below} wrong; {rows} are too few to tell whether the top probability is right"
        return f"the top probability is right, as far as {rows} can tell, but {below} wrong"

    def _label(self, name: str) -> str:
        """Return the name of a test as people read it."""
        return _LABELS[name].format(self.event)

    def _repr_html_(self) -> str:
        lines = [[self._label(name), *test._cells(), f"{self.adjusted[name]:.4g}"] for name, test in self.tests.items()]
        return html_table([["test", *_HEADINGS, "adjusted p"], *lines], [str(self)])

    def __str__(self) -> str:
        found = self.finding
        if self.verdict != "too few groups":
            found += f" ({p_text(self.p_value, self.n_resamples)})"
        if self.finding == "not calibrated":
            return f"{found}; significant: {', '.join(map(self._label, self.rejecting))}"
        if self.undecided and not math.isnan(self.detectable):
            found += f"; only errors above about {two_digits(100 * self.detectable)} points would show"
        if self.verdict == "as calibrated as the rows allow" and self.rows_needed:
            found += f"; with about {self.rows_needed:,} calibration rows these test rows would no longer show it"
        if self.verdict == "calibrated":
            found += f"; an error of {two_digits(100 * self.detectable)} points would show"
        return found


def calibration_test(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    event: Event | str | None = None,
    calibrator: Any = None,
    before: Any = None,
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
        None tests the confidence (KS and ECE), the second most probable class (KS) and, without groups, all classes
        (mean KS). An event tests KS and ECE of that event alone, as `Confidences` do.
    calibrator, before
        The fitted calibrator that made the probabilities, and the rows that it was given: `Predictions`, or what
        `predict_proba` takes. A calibrator is never perfect, because its calibration rows are a sample. Where the tests
        find an error, `verdict` then says whether it is larger than so many calibration rows allow. Of `auto`,
        temperature, vector, matrix and Dirichlet scaling, which know the sampling error of their coefficients; without
        an event.
    n_resamples
        The number of draws; None means 999, or 199 from five million probabilities on, and more for levels near 1.
    level
        The level of all tests together.
    random_state
        The seed of the draws.
    progress
        Whether to show a progress bar; None shows it at a terminal.

    Returns
    -------
    OmnibusTest
        It prints as a sentence. Without groups the level is exact: one set of drawn labels serves all tests.

    Examples
    --------
    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 70 + [1] * 2 + [2] * 28
    >>> found = calibration_test(p, y)
    >>> print(found.finding.partition(";")[0])
    the probabilities of the classes that are not predicted are wrong
    >>> found.rejected, found.rejecting
    (True, ('rank_2_ks', 'classwise_ks'))
    """
    given = check_any(probabilities, labels, sample_weight, groups)
    asked = top if event is None else events.as_event(event)
    scored = check_event(given, event=asked)
    if event is not None:
        given = scored
    rows, statistics = _statistics(given, scored)
    # With fewer draws the smallest adjusted p-value of several tests would exceed 1 - level: nothing could be rejected.
    least = math.ceil(len(statistics) / (1 - number_between(level, "level", 0, 1)) - ROUNDING) - 1
    if n_resamples is None:
        many = len(given) * max(1, given.n_classes) >= _MANY_ENTRIES
        n_resamples = max(least, FEWER_DRAWS if many else _DRAWS)
    rng = generator(n_resamples, level, random_state)
    whole_number(n_resamples, f"for {len(statistics)} tests at level {level:g}, n_resamples", least)
    drawn = redraw(rows, list(statistics.values()), n_resamples, rng, progress)
    tests, adjusted = _compared(statistics, drawn, level)
    tests["ks"] = replace(tests["ks"], value=RunningSum(scored).error)  # cells hide a little of it, also in draws
    allowed = None
    needed = None
    if _knows_its_error(calibrator, before, given):
        count = min(n_resamples, max(least, FEWER_DRAWS))
        truths = calibrator.plausible(before, count, random_state)
        drawn = redraw(given, list(statistics.values()), count, rng, progress, truths)
        of_fit, allowed = _compared(statistics, drawn, level)
        needed = _rows_needed(tests, of_fit, calibrator.diagnostics_.rows)
    n_groups = None
    if given.groups is not None:
        n_groups = int(given.group_numbers.max()) + 1
    about = "confidence" if asked == top else asked.name
    detectable = detectable_error(scored.n_units, tests["ks"], len(tests))
    return OmnibusTest(tests, adjusted, about, len(given), n_groups, n_resamples, level, detectable, allowed, needed)


def _knows_its_error(calibrator: Any, before: Any, rows: Rows | Scored) -> bool:
    """Return whether a calibrator knows the error of its coefficients; refuse one that did not make these rows."""
    if calibrator is None or isinstance(rows, Scored) or rows.cached(label_law) is not None:
        return False
    if before is None or not hasattr(calibrator, "predict_proba"):
        raise BadPredictions(
            "calibrator= takes a fitted calibrator, and before= the rows that it was given, as in "
            "calibration_test(fitted.apply(test), calibrator=fitted, before=test)"
        )
    if getattr(calibrator, "posterior_", None) is None:
        return False
    if isinstance(before, Predictions):
        expected = softmax(calibrator.apply(before).logits)
    else:
        expected = calibrator.predict_proba(before)
    if expected.shape != rows.probabilities.shape or not np.allclose(expected, rows.probabilities, atol=1e-4):
        raise BadPredictions("the probabilities are not those that the calibrator gives for the rows in before=")
    # Where classes have other frequencies, few calibration rows are no excuse for an error.
    label_counts = np.bincount(rows.labels, rows.weights, rows.n_classes) * rows.n_units
    expected_labels: bool = calibrator.expects(label_counts)
    return expected_labels


def _compared(
    statistics: "dict[str, TestedError]", drawn: Floats, level: float
) -> tuple[dict[str, CalibrationTest], dict[str, float]]:
    """Compare errors with those of draws; return the tests, and their p-values adjusted for each other.

    They are adjusted by the largest errors of the same draws, in standard deviations, and nan if groups are too few.
    """
    tests = {}
    for (name, statistic), errors in zip(statistics.items(), drawn.T, strict=True):
        tests[name] = _tested(statistic, errors, level)
    if np.isnan(drawn).any():
        return tests, dict.fromkeys(tests, math.nan)
    # Each error is compared with all others in the same way, so any function of them that is the same for all will do.
    errors = np.vstack([[test.value for test in tests.values()], drawn])
    spreads = errors.std(axis=0)
    standardised = (errors - errors.mean(axis=0)) / np.where(spreads > ROUNDING, spreads, 1.0)
    adjusted = step_down(standardised[0], standardised[1:]).tolist()
    # Groups that fail unseen may have raised the p-value of a single test above that of its draws.
    return tests, {name: max(p, tests[name].p_value) for name, p in zip(tests, adjusted, strict=True)}


def _rows_needed(
    perfect: dict[str, CalibrationTest], allowed: dict[str, CalibrationTest], calibration_rows: int
) -> int | None:
    """Return how many calibration rows would bring the mean errors close to those of a perfect calibrator, if more.

    The square of an error has a part from the test rows and a part from the calibration rows, which falls as 1 / rows.
    """
    ratios = [(allowed[name].expected / test.expected) ** 2 for name, test in perfect.items() if test.expected > 0]
    factor = (max(ratios, default=1.0) - 1) / (_CLOSE**2 - 1)
    needed = int(float(f"{calibration_rows * max(factor, 1.0):.2g}"))
    return needed if needed > calibration_rows else None


def ks_test(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    event: Event | str = top,
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
    n_resamples, random_state
        The number of draws and their seed. More than 20,000 independent rows are drawn as cells of neighbouring
        scores, so that a million rows take no longer.
    level
        The level of the bound and of `rejected`.

    Returns
    -------
    CalibrationTest
        By consistency resampling: Broecker and Smith, Weather and Forecasting 2007.

    Examples
    --------
    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> print(ks_test(p, y))  # says 70 percent, right 55
    0.15, p <= 0.001: a calibrated model shows 0.03589 on average and at most 0.09 in 95 % of cases
    """
    given = check_any(probabilities, labels, sample_weight, groups)
    return _test_event(given, event, None, n_resamples, level, generator(n_resamples, level, random_state))


def ece_test(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    event: Event | str = top,
    n_bins: int = N_BINS,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
) -> CalibrationTest:
    """Test the ECE of an event by resampling.

    Parameters
    ----------
    probabilities, labels, sample_weight, event, n_bins
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
    given = check_any(probabilities, labels, sample_weight, groups)
    rng = generator(n_resamples, level, random_state)
    return _test_event(given, event, inner_edges(n_bins), n_resamples, level, rng)


def classwise_ks_test(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
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
    probabilities, labels, sample_weight, level
        As in `ks_test`; `Confidences` do not suffice. Rows must be independent.
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
    rows = events.check_rows(probabilities, labels, sample_weight)
    rng = generator(n_resamples, level, random_state)
    if rows.groups is not None:
        raise BadPredictions(
            "classwise_ks_test needs independent rows; with groups test each class by "
            "ks_test(..., event=label(c), groups=...) and pass the p-values to adjust"
        )
    errors = ClassErrors(rows)
    return _tested(errors, redraw(rows, [errors], n_resamples, rng, progress)[:, 0], level)


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
        return CalibrationTest(value, math.nan, math.nan, math.nan, level, len(drawn), too_few_groups=True)
    as_large = int(np.count_nonzero(at_least_as_large(drawn, value)))
    # The smallest bound that goes with no p-value of 1 - level or less.
    place = max(0, math.ceil(level * (len(drawn) + 1) - ROUNDING) - 1)
    p_value = (1 + as_large) / (1 + len(drawn))
    bound = float(np.sort(drawn)[place])
    return CalibrationTest(value, p_value, bound, float(drawn.mean()), level, len(drawn))


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


def _drawn_event(given: Rows | Scored, event: Event | str, edges: Floats) -> tuple[Rows | Scored, Scored, Ints | None]:
    """Return what to draw for one event, its event, and the classes (n, r) of labels that make it happen.

    Given the scores of an event its outcomes are coin flips, so hits are drawn, and no classes are named. Weights that
    are a function of the label need labels.
    """
    scored = check_event(given, event=event)
    if isinstance(given, Scored):
        p = np.column_stack([1 - scored.scores, scored.scores])
        given = Rows(p, scored.hits.astype(np.int64), given_weights=scored.given_weights, groups=scored.groups)
        event = events.label(1)
    if given.cached(label_law) is not None:
        return given, scored, events.as_event(event).classes_of(given)
    cells = in_cells(scored, edges)
    return cells, cells, None


def _statistics(given: Rows | Scored, scored: Scored) -> "tuple[Rows | Scored, dict[str, TestedError]]":
    """Return what to draw, and the errors of `calibration_test` by name."""
    if isinstance(given, Scored):
        rows, event, named = _drawn_event(given, top, BIN_EDGES)
        return rows, {"ks": RunningSum(event, named), "ece": RunningSum(event, named, BIN_EDGES)}
    named = top.classes_of(given)
    found: dict[str, TestedError] = {"ks": RunningSum(scored, named), "ece": RunningSum(scored, named, BIN_EDGES)}
    if given.n_classes > 2:  # of two classes the second is not new
        found[_RANK_2] = RunningSum(events.rank(2).of(given), events.rank(2).classes_of(given))
    if given.groups is None:
        found[_CLASSES] = ClassErrors(given)
    return given, found


def _test_event(
    given: Rows | Scored, event: Event | str, edges: Floats | None, n_resamples: int, level: float, rng: Any
) -> CalibrationTest:
    """Test the ECE of an event in bins with these edges, or its KS error without edges."""
    rows, drawn_event, named = _drawn_event(given, event, BIN_EDGES if edges is None else edges)
    running = RunningSum(drawn_event, named, edges)
    found = _tested(running, redraw(rows, [running], n_resamples, rng)[:, 0], level)
    value = RunningSum(check_event(given, event=event), edges=edges).error  # cells hide a little of it, also in draws
    return replace(found, value=value)


def _tested(statistic: "TestedError", drawn: Floats, level: float) -> CalibrationTest:
    """Compare an error with drawn ones, and with what groups that fail as a whole, and were not seen, could explain.

    No draws show what happens rarely to a whole group and happened to none of the few that were seen. Without such a
    group, the others look better than the model says, and like independent rows. Groups may fail as often as would
    make the model calibrated, with probability gap / (gap + gap if failed).
    """
    found = compare_with_draws(statistic.error, drawn, level)
    if statistic.groups is None or found.too_few_groups:
        return found
    signs = statistic.signs()
    sizes = np.bincount(statistic.groups)
    weights = statistic.weights * (sizes[statistic.groups] > 1)
    expected = np.where(signs > 0, statistic.scores, 1 - statistic.scores) * np.abs(signs)
    gap = float(weights * signs @ (statistic.hits - statistic.scores))
    gap_if_failed = _FAILURE_SEVERITY * float(weights @ expected)
    rest = found.value - gap
    if gap <= 0 or rest > found.bound:  # the rows outside groups of several rows suffice to reject
        return found
    n_groups = np.count_nonzero(sizes > 1)
    none_failed = (gap_if_failed / (gap_if_failed + gap)) ** n_groups
    explained = gap_if_failed * ((1 - level) ** (-1 / n_groups) - 1)
    return replace(found, p_value=max(found.p_value, none_failed), bound=max(found.bound, rest + explained))


class ClassErrors:
    """The mean KS error over classes, of the observed labels and, when it is called, of drawn ones."""

    groups = None

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.error = METRICS["classwise_ks"].score(rows)

    def __call__(self, batch: Ints, weights: Floats) -> Floats:
        """Return the error for each line of labels (b, n) and weights (b or 1, n)."""
        if self.rows.cached(label_law) is None:
            of_labels = self.rows.cached(_class_errors_of_labels)
            return np.array([of_labels(labels).mean() for labels in batch])
        drawn = zip(batch, weights, strict=True)
        metric = METRICS["classwise_ks"]
        return np.array([metric.score(replace(self.rows, labels=labels, given_weights=own)) for labels, own in drawn])


TestedError: TypeAlias = RunningSum | ClassErrors


def _class_errors_of_labels(rows: Rows) -> Callable[[Ints], Floats]:
    """Return the function from labels (n,) to the KS errors of the classes, (k,), if weights stay with their rows.

    A class that is never the label only lowers its running sum, so the sum's extremes lie at its hits. A row hits one
    class, so n places decide a resample, not n * k: what the scores add up to at each of them is computed once.

    >>> p, y = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]
    >>> _class_errors_of_labels(events.check_rows(p, y))(np.array(y)).round(12).tolist()
    [0.1, 0.4, 0.3]
    """
    shape = rows.probabilities.shape
    place = np.empty(shape, dtype=np.int32, order="F")  # of a row's score among those of the class
    before = np.empty(shape, order="F")  # what the class's scores below it add up to
    through = np.empty(shape, order="F")  # and with it
    total = np.empty(shape[1])
    for c in range(shape[1]):
        scores = rows.probabilities[:, c].astype(np.float64)
        different, place[:, c] = events.distinct_scores(scores)
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
        class_ = labels[row]
        first = np.append(True, class_[1:] != class_[:-1])
        until = np.append(0.0, hits[last][:-1])  # hits before each of these places, of all classes
        earlier = until[first][np.cumsum(first) - 1]  # hits of the classes before
        after = np.abs(hits[last] - earlier - through[row, class_])
        ahead = np.abs(until - earlier - before[row, class_])
        gaps = np.maximum.reduceat(np.maximum(after, ahead), np.flatnonzero(first))
        seen = class_[first]
        at_end = -total
        at_end[seen] += np.diff(np.append(until[first], hits[-1]))
        largest = np.abs(at_end)
        largest[seen] = np.maximum(largest[seen], gaps)
        return largest

    return errors


def detectable_error(n_units: float, test: CalibrationTest, n_tests: int) -> float:
    """Return the KS error of an event that the joint test of `n_tests` would find with probability `POWER`.

    A test that does not reject says little if it could hardly have rejected. Suppose that the model is off by the same
    amount everywhere. The running sum then ends about as far from 0 as this KS error, give or take its standard
    deviation: of Brownian motion, max |B(t)| has a mean of sqrt(pi / 2) deviations. The larger the error of a sure
    model, the more uncertain are its outcomes: the variance grows by at most error / n_units. So the error solves

        error = critical + z sqrt(deviation^2 + error / n_units)

    Other errors of the same size are harder or easier to find; this is a yardstick, not a bound. `test` is the KS test
    of the event alone. The error is nan if groups are too few to tell.
    """
    if test.too_few_groups:
        return math.nan
    allowed = 1 - test.level
    critical = test.bound * _height(allowed / n_tests) / _height(allowed)
    z = NormalDist().inv_cdf(POWER)
    deviation = test.expected / math.sqrt(math.pi / 2)
    added = z**2 / (2 * n_units)
    error = critical + added + math.sqrt((z * deviation) ** 2 + added**2 + 2 * added * critical)
    # Even a model that is always sure must have had the chance to be wrong.
    once_seen = 1 - (1 - POWER) ** (1 / n_units)
    return min(1.0, max(error, once_seen))


def _height(probability: float) -> float:
    """Return the height that max |B(t)| exceeds with this probability, for Brownian motion B on [0, 1].

    By reflection: 4 * P(B(1) > height), less than a hundredth off for probabilities up to 0.6.
    """
    return NormalDist().inv_cdf(1 - probability / 4)
