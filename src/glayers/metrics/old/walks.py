"""One event a row -> the running sum of weight * (hit - score) in order of score, and tests of what it does.

KS is the largest size of that sum, wherever a score ends; ECE the sizes of what each bin adds to it.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Floats, Ints
from glayers.errors import BadPredictions
from glayers.metrics.old.bins import Binning, _inner_edges, _quantile_edges
from glayers.metrics.old.checks import Scored
from glayers.metrics.old.coin_flips import CoinWalk
from glayers.metrics.old.redrawing import group_numbers, redrawn_residuals, write_out, written_out
from glayers.metrics.old.verdicts import CalibrationTest, Draws, judge_by_brownian_motion, judge_by_draws

Method: TypeAlias = Literal["asymptotic", "resampling"]


class Walk(NamedTuple):
    """Rows in order of score, whole weights written out, and the places where the running sum counts."""

    event: Scored
    groups: Ints | None
    ends: Ints

    @classmethod
    def of(cls, event: Scored, weights: object, groups: object) -> "Walk":
        """Count the sum at the last row of each score, so that rows of equal score enter together."""
        ordered, numbers = _in_order(event, weights, groups)
        return cls(ordered, numbers, _last_of_each(ordered.scores))

    @classmethod
    def through_bins(cls, event: Scored, weights: object, groups: object, bins: int, binning: Binning) -> "Walk":
        """Count the sum at the last row of each bin."""
        if binning not in ("equal_width", "equal_mass"):
            raise BadPredictions(f"binning must be 'equal_width' or 'equal_mass'; got {binning!r}")
        edges = _inner_edges(bins) if binning == "equal_width" else _quantile_edges(event, bins)
        ordered, numbers = _in_order(event, weights, groups)
        return cls(ordered, numbers, _last_of_each(np.searchsorted(edges, ordered.scores, side="left")))

    def observed(self) -> Floats:
        """The running sum at its ends, (1, ends)."""
        return self._at_ends((self.event.weights * (self.event.hits - self.event.scores))[None])

    def coins(self) -> CoinWalk:
        """What is known of the sum under calibration, for rows that do not depend on each other."""
        scores = np.clip(self.event.scores, 0.0, 1.0)  # rounding may have left them just outside
        variances = np.add.reduceat(self.event.weights**2 * scores * (1 - scores), np.append(0, self.ends[:-1] + 1))
        return CoinWalk.of(scores, self.event.weights, variances)

    def redrawn(self, statistic: Callable[[Floats], Floats], draws: Draws) -> Floats:
        """A statistic of the running sums of calibrated models, (resamples,)."""
        batches = redrawn_residuals(self.event, self.groups, draws.n_resamples, draws.generator())
        return np.concatenate([statistic(self._at_ends(batch)) for batch in batches])

    def _at_ends(self, residuals: Floats) -> Floats:
        return np.cumsum(residuals, axis=1)[:, self.ends]


def largest_gap_test(walk: Walk, method: Method, draws: Draws) -> CalibrationTest:
    """Test the largest size of the running sum: the KS error."""
    if method not in _METHODS:
        raise BadPredictions(f"method must be 'asymptotic' or 'resampling'; got {method!r}")
    return _METHODS[method](walk, draws)


def summed_gaps_test(walk: Walk, draws: Draws) -> CalibrationTest:
    """Test the sum of the sizes of what is added between ends: the ECE, where ends are those of bins."""
    return judge_by_draws(float(_summed(walk.observed())[0]), walk.redrawn(_summed, draws), draws.level)


def _by_brownian_motion(walk: Walk, draws: Draws) -> CalibrationTest:
    if walk.groups is not None:
        raise BadPredictions(
            "the asymptotic p-value supposes rows that do not depend on each other, and groups say that they do; "
            "pass method='resampling', which flips the signs of whole groups"
        )
    return judge_by_brownian_motion(float(_largest(walk.observed())[0]), walk.coins(), draws.level)


def _by_resampling(walk: Walk, draws: Draws) -> CalibrationTest:
    return judge_by_draws(float(_largest(walk.observed())[0]), walk.redrawn(_largest, draws), draws.level)


_METHODS = {"asymptotic": _by_brownian_motion, "resampling": _by_resampling}


def _largest(sums: Floats) -> Floats:
    return np.abs(sums).max(axis=1)


def _summed(sums: Floats) -> Floats:
    return np.abs(np.diff(sums, axis=1, prepend=0.0)).sum(axis=1)


def _in_order(event: Scored, weights: object, groups: object) -> tuple[Scored, Ints | None]:
    """Write whole weights out as rows and sort the rows by score, without those of weight 0."""
    rows = written_out(weights, len(event.scores))
    numbers = None if groups is None else group_numbers(groups, len(event.scores))
    if numbers is not None and rows is not None:
        numbers = numbers[rows]
    written = write_out(event, rows)
    order = np.argsort(written.scores, kind="stable")
    order = order[written.weights[order] > 0]
    ordered = Scored(written.scores[order], written.hits[order], written.weights[order], written.total)
    return ordered, None if numbers is None else numbers[order]


def _last_of_each(ascending: Floats | Ints) -> Ints:
    return np.flatnonzero(np.append(ascending[1:] != ascending[:-1], True))
