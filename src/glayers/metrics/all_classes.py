"""Probabilities and labels -> the test of `classwise_ks`: whether the classes together are further off than chance.

A class that never hits only brings its running sum down, so the sum's extremes lie at its hits. A row hits one class,
hence n places decide a resample, not n * k: what the scores add up to at each of them is computed once, and drawn
labels only choose among it.
"""

from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.metrics.checks import Checked, check
from glayers.metrics.events import class_event
from glayers.metrics.ks import class_ks
from glayers.metrics.redrawing import group_numbers, random_signs, redrawn_labels, written_out
from glayers.metrics.verdicts import CalibrationTest, Draws, judge_by_draws
from glayers.metrics.walks import Walk
from glayers.probabilities import check_probability_rows

_ENTRIES = 1 << 20  # of a batch of resamples: 8 MB


def mean_class_ks_test(
    probabilities: object,
    labels: object,
    weights: object = None,
    groups: object = None,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
) -> CalibrationTest:
    """Test `classwise_ks`, the mean over classes: labels are drawn anew, or whole groups change their sign.

    It asks whether the classes are calibrated, where `classwise_ks_test` asks which of them is not: small errors of
    many classes add up here, and are lost there. Consistency resampling: Broecker and Smith, Weather and Forecasting
    2007; Vaicenavicius et al., AISTATS 2019.

    >>> p, y = [[0.7, 0.2, 0.1]] * 100, [0] * 55 + [1] * 25 + [2] * 20
    >>> test = mean_class_ks_test(p, y)
    >>> round(test.value, 12), test.p_value < 0.01
    (0.1, True)
    """
    checked = check(probabilities, labels, weights)
    check_probability_rows(checked.probabilities)
    draws = Draws(n_resamples, level, random_state)
    value = float(class_ks(probabilities, labels, weights).mean())
    rows = written_out(weights, len(checked.labels))
    written = checked if rows is None else check(checked.probabilities[rows], checked.labels[rows])
    steps = Steps.of(written)
    resamples = redrawn_labels(written.probabilities, n_resamples, draws.generator())
    drawn = np.array([steps.mean_ks(labels) for labels in resamples])
    if groups is None:
        return judge_by_draws(value, drawn, level)
    # Signs leave the hits as they are, so classes of few hits vary too little, and a mean over many classes shows it:
    # what single rows lack that change sign, against rows drawn anew, groups lack too.
    numbers, singles = group_numbers(groups, len(checked.labels)), np.arange(len(written.labels))
    lacking = drawn.mean() - (_with_signs_changed(written, None, singles, draws).mean() if len(singles) > 1 else 0.0)
    return judge_by_draws(value, _with_signs_changed(checked, weights, numbers, draws) + lacking, level)


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

    def mean_ks(self, labels: Ints) -> float:
        """`classwise_ks` of these labels.

        >>> from glayers.metrics.checks import check
        >>> p, y = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]
        >>> round(Steps.of(check(p, y, None)).mean_ks(np.array(y)), 12), class_ks(p, y).mean().round(12).item()
        (0.266666666667, 0.266666666667)
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
        return float(largest.mean())


def _with_signs_changed(checked: Checked, weights: object, groups: Ints, draws: Draws) -> Floats:
    """`classwise_ks` where every group's residuals, of all classes together, keep or change their sign."""
    signs = random_signs(draws.generator(), draws.n_resamples, int(groups.max()) + 1)
    walks = (Walk.of(class_event(checked, c), weights, groups) for c in range(checked.probabilities.shape[1]))
    return np.mean([_largest_with(signs, walk) for walk in walks], axis=0)


def _largest_with(signs: Array, walk: Walk) -> Floats:
    residuals = walk.event.weights * (walk.event.hits - walk.event.scores)
    step = max(1, _ENTRIES // len(residuals))
    batches = (signs[first : first + step, walk.groups] for first in range(0, len(signs), step))
    return np.concatenate([np.abs(np.cumsum(residuals * batch, axis=1)[:, walk.ends]).max(axis=1) for batch in batches])
