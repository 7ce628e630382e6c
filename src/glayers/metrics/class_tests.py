"""Predictions -> whether the classes together are further off than sampling error explains, and which of them are.

A class that is never the label only lowers its running sum, so the sum's extremes lie at its hits. A row hits one
class, so n places decide a resample, not n * k: what the scores add up to at each of them is computed once, and drawn
labels only choose among it.
"""

from dataclasses import dataclass

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.metrics.calibration_tests import (
    CalibrationTest,
    TestMethod,
    compare_with_draws,
    largest_gap_test,
    needs_draws,
    rejects,
    step_down,
)
from glayers.metrics.events import Rows, check_rows, distinct_scores, label
from glayers.metrics.redrawing import Draws, Redrawn, RunningSum, label_outcomes, redraw

__all__ = ["ClasswiseTest", "classwise_ks_test", "ks_test_per_class"]

_ROUNDING = 1e-9  # errors below this are rounding
_CERTAIN = 1e300  # an error relative to a bound of 0: more than any drawn error


@dataclass(frozen=True)
class ClasswiseTest:
    """The test of all classes together, the test of each class, and p-values adjusted for testing many classes.

    Small errors of many classes may reject the whole while no single class can be named.

    Attributes
    ----------
    together
        The test of the mean over classes.
    classes
        The test of each class alone.
    adjusted
        The p-value of each class, adjusted for testing all of them. Westfall and Young, 1993.
    level
        The level of the tests.
    """

    together: CalibrationTest
    classes: tuple[CalibrationTest, ...]
    adjusted: tuple[float, ...]
    level: float

    @property
    def p_value(self) -> float:
        """The p-value of all classes together."""
        return self.together.p_value

    @property
    def rejected(self) -> tuple[int, ...]:
        """The classes that are not calibrated; a calibrated model shows any with probability 1 - level."""
        return tuple(c for c, p in enumerate(self.adjusted) if rejects(p, self.level))


def ks_test_per_class(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    method: TestMethod = "auto",
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> ClasswiseTest:
    """Test the KS error of every class, and all of them together as `classwise_ks_test` does.

    Of a hundred tests at level 0.95, five reject by chance. So `adjusted` compares every class with the largest error
    of any class in redrawn labels, whatever the dependence between the classes: the step-down procedure of Westfall and
    Young, "Resampling-Based Multiple Testing", 1993. Errors are measured relative to bounds that each class alone
    exceeds with probability (1 - level) / k. For other corrections see `adjust`.

    Parameters
    ----------
    probabilities, labels, sample_weight, groups, method, level, random_state
        As in `ks_test`; `Confidences` do not suffice.
    n_resamples
        The number of draws; no p-value from draws is below 1 / (n_resamples + 1).
    progress
        Whether to show a progress bar; None shows it at a terminal.

    Returns
    -------
    ClasswiseTest
        Which classes are not calibrated, and whether all of them together are.

    Examples
    --------
    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> found = ks_test_per_class(p, y)
    >>> found.rejected, found.p_value < 0.01
    ((0, 2), True)
    """
    rows = check_rows(probabilities, labels, sample_weight, groups, strict=True)
    draws = Draws(n_resamples, level, random_state)
    draws.generator()  # refuses too few draws
    asymptotic, bounds = {}, np.empty(rows.n_classes)
    for c in range(len(bounds)):  # before the draws, which take longer: a wrong setting is named at the first class
        running = RunningSum.of(label(c).of(rows))
        null = running.null_distribution()
        bounds[c] = null.quantile_above((1 - level) / len(bounds))
        if not needs_draws(running, method, null):
            asymptotic[c] = largest_gap_test(running, "asymptotic", draws)
    found = _redraw_classes(rows, draws, progress)
    together = _mean_test(found, level)
    classes = []
    for c, value in enumerate(found.values.tolist()):
        drawn = compare_with_draws(value, found.drawn[:, c], level)
        classes.append(asymptotic.get(c, drawn))
    adjusted = np.full(len(bounds), np.nan)
    if not together.too_few_groups:
        bounds = np.where(bounds > 0, bounds, found.drawn.max(axis=0))
        adjusted = step_down(_relative(found.values, bounds), _relative(found.drawn, bounds))
    return ClasswiseTest(together, tuple(classes), tuple(adjusted.tolist()), level)


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

    It asks whether the classes are calibrated; `ks_test_per_class` also asks which of them are not. Small errors of
    many classes add up here and may be missed there.

    Parameters
    ----------
    probabilities, labels, sample_weight, groups, n_resamples, level, random_state, progress
        As in `ks_test_per_class`.

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
    found = _redraw_classes(rows, Draws(n_resamples, level, random_state), progress)
    return _mean_test(found, level)


def _redraw_classes(rows: Rows, draws: Draws, progress: bool | None) -> Redrawn:
    """Return the errors of the classes, as observed and under calibration."""
    outcomes = label_outcomes(rows, by_class=True)
    return redraw(outcomes, ClassSteps.of(rows), draws.n_resamples, draws.generator(), progress)


def _mean_test(found: Redrawn, level: float) -> CalibrationTest:
    """Return the test of the mean over classes."""
    return compare_with_draws(float(found.values.mean()), found.drawn.mean(axis=1), level)


def _relative(errors: Floats, bounds: Floats) -> Floats:
    """Errors (..., k) over the bounds of their classes; where a class is certain, any error is too large."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(errors <= _ROUNDING, 0.0, np.where(bounds > 0, errors / bounds, _CERTAIN))


@dataclass(frozen=True)
class ClassSteps:
    """For each row and class the place of its score among those of the class, and sums of scores.

    `before` and `through` are what the class's scores add up to below the row's score and up to it, `total` in all.
    """

    weights: Floats
    place: Array
    before: Floats
    through: Floats
    total: Floats

    @classmethod
    def of(cls, rows: Rows) -> "ClassSteps":
        """Sort every class once."""
        shape = rows.probabilities.shape
        place = np.empty(shape, dtype=np.int32, order="F")  # filled class by class
        before = np.empty(shape, order="F")
        through = np.empty(shape, order="F")
        total = np.empty(shape[1])
        for c in range(shape[1]):
            scores = rows.probabilities[:, c].astype(np.float64)
            different, place[:, c] = distinct_scores(scores)
            ends = np.cumsum(np.bincount(place[:, c], rows.weights * scores, len(different)))
            through[:, c] = ends[place[:, c]]
            before[:, c] = np.append(0.0, ends)[place[:, c]]
            total[c] = ends[-1]
        return cls(rows.weights, place, before, through, total)

    def __call__(self, labels: Array) -> Floats:
        """Return the errors (b, k) of labels (b, n)."""
        return np.stack([self.ks(row) for row in labels])

    def ks(self, labels: Ints) -> Floats:
        """Return `ks_per_class` of these labels.

        >>> from glayers.metrics import ks_per_class
        >>> p, y = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]
        >>> ClassSteps.of(check_rows(p, y)).ks(np.array(y)).round(12).tolist(), ks_per_class(p, y).round(12).tolist()
        ([0.1, 0.4, 0.3], [0.1, 0.4, 0.3])
        """
        rows = np.arange(len(labels))
        key = labels.astype(np.int64) * len(labels) + self.place[rows, labels]
        order = np.argsort(key, kind="stable")
        key = key[order]
        label = labels[order]
        hits = np.cumsum(self.weights[order])
        last = np.flatnonzero(np.append(key[1:] != key[:-1], True))  # hits of equal score enter together
        row = order[last]
        label = label[last]
        through = hits[last]
        first = np.append(True, label[1:] != label[:-1])
        until = np.append(0.0, through[:-1])  # hits before each of these places, of all classes
        earlier = until[first][np.cumsum(first) - 1]  # hits of the classes before
        after = np.abs(through - earlier - self.through[row, label])
        ahead = np.abs(until - earlier - self.before[row, label])
        gaps = np.maximum.reduceat(np.maximum(after, ahead), np.flatnonzero(first))
        seen = label[first]
        at_end = -self.total
        at_end[seen] += np.diff(np.append(until[first], hits[-1]))
        largest = np.abs(at_end)
        largest[seen] = np.maximum(largest[seen], gaps)
        return largest
