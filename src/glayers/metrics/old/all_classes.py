"""Probabilities and labels -> whether the classes together are further off than chance, and which of them are.

A class that never hits only brings its running sum down, so the sum's extremes lie at its hits. A row hits one class,
hence n places decide a resample, not n * k: what the scores add up to at each of them is computed once, and drawn
labels only choose among it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.metrics.old.checks import Checked, check
from glayers.metrics.old.events import class_event
from glayers.metrics.old.redrawing import few_surprises, group_numbers, random_signs, redrawn_labels, written_out
from glayers.metrics.old.verdicts import CalibrationTest, Draws, as_large_as, judge_by_draws, rejects
from glayers.metrics.old.waiting import waiting_bar
from glayers.metrics.old.walks import Method, Walk, largest_gap_test
from glayers.probabilities import check_probability_rows

_ENTRIES = 1 << 20  # of a batch of resamples: 8 MB
_NOTHING = 1e-9  # an error that rounding makes
_CERTAIN = 1e300  # bounds: more than any drawn error


@dataclass(frozen=True)
class ClasswiseTest:
    """The test of all classes together, that of each, and p-values of each that allow for there being many.

    `together` says whether the classes are calibrated, `rejected` which of them are not. Small errors of many classes
    may reject the whole while no single class can be named. Westfall and Young, 1993.
    """

    together: CalibrationTest
    classes: tuple[CalibrationTest, ...]
    adjusted: tuple[float, ...]
    level: float

    @property
    def p_value(self) -> float:
        """That of all classes together."""
        return self.together.p_value

    @property
    def rejected(self) -> tuple[int, ...]:
        """The classes that are not calibrated: a calibrated model shows any with a chance of 1 - level."""
        return tuple(c for c, p in enumerate(self.adjusted) if rejects(p, self.level))


def classwise_ks_test(
    probabilities: object,
    labels: object,
    weights: object = None,
    groups: object = None,
    *,
    method: Method = "asymptotic",
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> ClasswiseTest:
    """Test `class_ks` of every class, and all of them together by `mean_class_ks_test`.

    `classes` holds each class's own test, by a method as in `ks_test`. Of a hundred such tests five fail by chance, so
    `adjusted` holds every class against the largest error of any class in redrawn labels, which knows what classes owe
    to each other: step-down of Westfall and Young, "Resampling-Based Multiple Testing", 1993. Errors are measured in
    bounds that each class alone exceeds with a chance of (1 - level) / k. No p-value of draws is below
    1 / (n_resamples + 1). For other corrections see `adjust`.

    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> found = classwise_ks_test(p, y)
    >>> found.rejected, found.p_value < 0.01
    ((0, 2), True)
    """
    checked = check(probabilities, labels, weights)
    check_probability_rows(checked.probabilities)
    draws = Draws(n_resamples, level, random_state)
    draws.generator()  # complains of too few
    classes, bounds = [], np.empty(checked.probabilities.shape[1])
    for c in range(len(bounds)):  # before the draws, which take longer: a wrong setting is named at the first class
        walk = Walk.of(class_event(checked, c), weights, groups)
        bounds[c] = walk.coins().reached_with_chance((1 - level) / len(bounds))
        if method != "resampling":
            classes.append(largest_gap_test(walk, method, draws))
    drawn = _Drawn.of(checked, weights, groups, draws, progress)
    if method == "resampling":
        classes = [judge_by_draws(value, drawn.each[:, c], level) for c, value in enumerate(drawn.values.tolist())]
    bounds = np.where(bounds > 0, bounds, drawn.each.max(axis=0))
    adjusted = step_down(_in_bounds(drawn.values, bounds), _in_bounds(drawn.each, bounds))
    return ClasswiseTest(drawn.judge_mean(level), tuple(classes), tuple(adjusted.tolist()), level)


def mean_class_ks_test(
    probabilities: object,
    labels: object,
    weights: object = None,
    groups: object = None,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> CalibrationTest:
    """Test `classwise_ks`, the mean over classes: labels are drawn anew, or whole groups change their sign.

    It asks whether the classes are calibrated, where `classwise_ks_test` also asks which of them are not: small errors
    of many classes add up here, and are lost there. Consistency resampling: Broecker and Smith, Weather and Forecasting
    2007; Vaicenavicius et al., AISTATS 2019.

    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> test = mean_class_ks_test(p, y)
    >>> round(test.value, 12), test.p_value < 0.01
    (0.1, True)
    """
    checked = check(probabilities, labels, weights)
    check_probability_rows(checked.probabilities)
    draws = Draws(n_resamples, level, random_state)
    return _Drawn.of(checked, weights, groups, draws, progress).judge_mean(level)


def step_down(values: Floats, drawn: Floats) -> Floats:
    """Return p-values of many errors (k,) against drawn ones (resamples, k), for all of them to be read together.

    The largest error is held against the largest drawn of all, the next against the largest of those left, and so on.

    >>> step_down(np.array([3.0, 0.5]), np.array([[1.0, 2.0], [0.4, 0.3], [0.2, 4.0]])).tolist()
    [0.5, 0.75]
    """
    order = np.argsort(-values, kind="stable")
    of_those_left = np.maximum.accumulate(drawn[:, order[::-1]], axis=1)[:, ::-1]
    as_large = np.count_nonzero(as_large_as(of_those_left, values[order]), axis=0)
    adjusted = np.empty(len(values))
    adjusted[order] = np.maximum.accumulate((1 + as_large) / (1 + len(drawn)))
    return adjusted


class _Drawn(NamedTuple):
    """Class errors as found (k,), and what calibrated models show: `each` class (resamples, k), and the `mean`."""

    values: Floats
    each: Floats
    mean: Floats

    @classmethod
    def of(cls, checked: Checked, weights: object, groups: object, draws: Draws, progress: bool | None) -> "_Drawn":
        rows = written_out(weights, len(checked.labels))
        written = checked if rows is None else check(checked.probabilities[rows], checked.labels[rows])
        steps = Steps.of(written)
        values = steps.ks(written.labels)

        def redrawn(numbers: Ints | None) -> Floats:
            drawn = np.empty((draws.n_resamples, len(values)))
            resamples = redrawn_labels(written.probabilities, draws.n_resamples, draws.generator(), numbers)
            with waiting_bar(progress, "redrawing labels", draws.n_resamples) as advance:
                for to, labels in zip(drawn, resamples, strict=True):
                    to[:] = steps.ks(labels)
                    advance()
            return drawn

        if groups is None:
            drawn = redrawn(None)
            return cls(values, drawn, drawn.mean(axis=1))
        numbers = group_numbers(groups, len(checked.labels))
        numbers = numbers if rows is None else numbers[rows]
        said = written.probabilities.astype(np.float64)
        if few_surprises(float((1 - said.max(axis=1)).sum()), numbers):
            drawn = redrawn(numbers)
            return cls(values, drawn, drawn.mean(axis=1))
        # Signs leave the hits as they are, so classes of few hits vary too little, and a mean over many classes shows
        # it: what single rows lack that change sign, against rows drawn anew, groups lack too.
        signs, alone = (_with_signs_changed(written, own, draws) for own in (numbers, np.arange(len(numbers))))
        mean = signs.mean(axis=1) + (redrawn(None).mean() - alone.mean())
        hits = said.sum(axis=0)
        rare = np.array([few_surprises(min(n, len(said) - n), numbers) for n in hits.tolist()])
        each = np.where(rare, redrawn(numbers), signs) if rare.any() else signs
        return cls(values, each, mean)

    def judge_mean(self, level: float) -> CalibrationTest:
        """The test of the mean over classes."""
        return judge_by_draws(float(self.values.mean()), self.mean, level)


def _in_bounds(errors: Floats, bounds: Floats) -> Floats:
    """Errors (..., k) over the bounds of their classes; where a class is certain, any error is too large."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(errors <= _NOTHING, 0.0, np.where(bounds > 0, errors / bounds, _CERTAIN))


class Steps(NamedTuple):
    """Weights of rows; for each row and class the place of its score among those of the class, and sums of scores.

    `before` and `through` are what the class's scores add up to below the row's score and up to it, `total` in all.
    """

    weights: Floats
    place: Array
    before: Floats
    through: Floats
    total: Floats

    @classmethod
    def of(cls, checked: Checked) -> "Steps":
        """Sort every class once."""
        shape = checked.probabilities.shape
        place = np.empty(shape, dtype=np.int32, order="F")  # filled class by class
        before, through, total = np.empty(shape, order="F"), np.empty(shape, order="F"), np.empty(shape[1])
        for c in range(shape[1]):
            scores = checked.probabilities[:, c].astype(np.float64)
            different, place[:, c] = np.unique(scores, return_inverse=True)
            ends = np.cumsum(np.bincount(place[:, c], checked.weights * scores, len(different)))
            through[:, c] = ends[place[:, c]]
            before[:, c] = np.append(0.0, ends)[place[:, c]]
            total[c] = ends[-1]
        return cls(checked.weights, place, before, through, total)

    def ks(self, labels: Ints) -> Floats:
        """`class_ks` of these labels.

        >>> from glayers.metrics.old import class_ks
        >>> p, y = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]
        >>> Steps.of(check(p, y, None)).ks(np.array(y)).round(12).tolist(), class_ks(p, y).round(12).tolist()
        ([0.1, 0.4, 0.3], [0.1, 0.4, 0.3])
        """
        rows = np.arange(len(labels))
        key = labels.astype(np.int64) * len(labels) + self.place[rows, labels]
        order = np.argsort(key, kind="stable")
        key, label = key[order], labels[order]
        hits = np.cumsum(self.weights[order])
        last = np.flatnonzero(np.append(key[1:] != key[:-1], True))  # hits of equal score enter together
        row, label, through = order[last], label[last], hits[last]
        first = np.append(True, label[1:] != label[:-1])
        until = np.append(0.0, through[:-1])  # hits before each of these places, of all classes
        earlier = until[first][np.cumsum(first) - 1]  # hits of the classes before
        gaps = np.maximum(
            np.abs(through - earlier - self.through[row, label]), np.abs(until - earlier - self.before[row, label])
        )
        at_end = -self.total
        at_end[label[first]] += np.diff(np.append(until[first], hits[-1]))
        largest = np.abs(at_end)
        largest[label[first]] = np.maximum(largest[label[first]], np.maximum.reduceat(gaps, np.flatnonzero(first)))
        return largest


def _with_signs_changed(written: Checked, groups: Ints, draws: Draws) -> Floats:
    """`class_ks` where every group's residuals, of all classes together, keep or change their sign."""
    signs = random_signs(draws.generator(), draws.n_resamples, int(groups.max()) + 1)
    walks = (Walk.of(class_event(written, c), written.weights, groups) for c in range(written.probabilities.shape[1]))
    return np.column_stack([_largest_with(signs, walk) for walk in walks])


def _largest_with(signs: Array, walk: Walk) -> Floats:
    residuals = walk.event.weights * (walk.event.hits - walk.event.scores)
    step = max(1, _ENTRIES // len(residuals))
    batches = (signs[first : first + step, walk.groups] for first in range(0, len(signs), step))
    return np.concatenate([np.abs(np.cumsum(residuals * batch, axis=1)[:, walk.ends]).max(axis=1) for batch in batches])
