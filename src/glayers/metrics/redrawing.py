"""Predictions -> what a calibrated model would have shown on the same rows: outcomes drawn from its own probabilities.

Weights go along with their rows. Rows of one group may depend on each other in a way no model states. So with groups
nothing is drawn: the residuals (hit - score) of a whole group keep or change their sign together. Their mean is 0 under
calibration and stays 0, and the dependence within a group stays as it was. Liu, Annals of Statistics 1988. But signs
carry no information about outcomes that were never seen: a confident model that never missed would be rejected. Where
few hits or misses are expected, groups are redrawn after all, as if their rows were copies of each other: the worst
case of dependence.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np

from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.checks import number_between, whole_number
from glayers.errors import BadPredictions
from glayers.metrics.events import Rows, Scored, bin_of, last_of_ties
from glayers.metrics.null_distribution import KSNullDistribution

_Kind = TypeVar("_Kind", bound=Rows | Scored)
_ENTRIES = 131_072  # of one batch: 1 MB in float64, so that what is made of it stays in the cache
_LABELS = 1 << 24  # drawn at a time: 64 MB
_FEW = 20  # groups with an expected surprise: with 10, sign flips reject 7 of 100 calibrated models instead of 5
ROUNDING = 1e-12  # two sums that are equal on paper may differ by this much


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
        """Return the one source of randomness of a test, after checking that there are enough draws for its bound."""
        least = math.ceil(self.level / (1 - self.level) - ROUNDING)
        whole_number(self.n_resamples, f"for level {self.level:g}, n_resamples", least)
        return np.random.default_rng(self.random_state)


def check_seed(random_state: int | None) -> int | None:
    """Return a seed that is a whole number, or None for other draws each time."""
    return None if random_state is None else whole_number(random_state, "random_state", least=0)


def rows_to_redraw(rows: _Kind) -> _Kind:
    """Number the groups from 0."""
    return rows if rows.groups is None else replace(rows, groups=group_numbers(rows.groups))


def group_numbers(groups: Array) -> Ints:
    """Number the groups from 0; at least two are needed to tell noise from error.

    >>> group_numbers(np.array(["b", "a", "b"])).tolist()
    [1, 0, 1]
    """
    names, numbers = np.unique(groups, return_inverse=True, equal_nan=False)
    if len(names) < 2:
        raise BadPredictions("groups must hold at least 2 different values; one group says nothing about chance")
    return numbers


class RunningSum(NamedTuple):
    """The running sum of weight * (hit - score) in order of score, and the places where it counts.

    KS is its largest size wherever a score ends; ECE adds up the sizes of what each bin adds to it.
    """

    event: Scored
    ends: Ints

    @classmethod
    def of(cls, event: Scored, edges: Floats | None = None) -> "RunningSum":
        """Count the sum at the last row of each score, so that rows of equal score enter together; or of each bin."""
        rows = rows_to_redraw(event)
        order = np.argsort(rows.scores, kind="stable")
        order = order[rows.weights[order] > 0]
        groups = None if rows.groups is None else rows.groups[order]
        ordered = Scored(rows.scores[order], rows.hits[order], rows.weights[order], rows.total, groups=groups)
        ends = last_of_ties(ordered.scores if edges is None else bin_of(ordered.scores, edges).astype(np.float64))
        return cls(ordered, np.flatnonzero(ends))

    def observed(self) -> Floats:
        """Return the sum at its ends, (1, ends)."""
        return self._at_ends((self.event.weights * (self.event.hits - self.event.scores))[None])

    def null_distribution(self) -> KSNullDistribution:
        """Return what is known of the sum under calibration, for independent rows."""
        scores = np.clip(self.event.scores, 0.0, 1.0)  # rounding may have left them just outside
        variances = np.add.reduceat(self.event.weights**2 * scores * (1 - scores), np.append(0, self.ends[:-1] + 1))
        return KSNullDistribution.of(scores, self.event.weights, variances)

    def redrawn(self, statistic: Callable[[Floats], Floats], draws: Draws) -> Floats:
        """Return a statistic of the running sums of calibrated models, (resamples, ...)."""
        batches = redrawn_residuals(self.event, draws.n_resamples, draws.generator())
        return np.concatenate([statistic(self._at_ends(batch)) for batch in batches])

    def _at_ends(self, residuals: Floats) -> Floats:
        return np.cumsum(residuals, axis=1)[:, self.ends]


def redrawn_residuals(event: Scored, n_resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield weight * (hit - score) of each row under calibration, (resamples, n), one batch at a time."""
    n_rows, groups = len(event.scores), event.groups
    residuals = event.weights * (event.hits - event.scores)
    step = max(1, _ENTRIES // n_rows)
    hits = float(event.scores.sum())
    by_signs = groups is not None and not too_few_for_signs(min(hits, n_rows - hits), groups)
    n_units = n_rows if groups is None else int(groups.max()) + 1
    for first in range(0, n_resamples, step):
        shape = (min(step, n_resamples - first), n_units)
        drawn = random_signs(rng, *shape) if by_signs else rng.random(shape)
        of_rows = drawn if groups is None else drawn[:, groups]
        yield residuals * of_rows if by_signs else event.weights * ((of_rows < event.scores) - event.scores)


def too_few_for_signs(expected: float, groups: Ints) -> bool:
    """Whether so few expected hits, or misses, leave sign flips of groups too little information.

    >>> too_few_for_signs(30.0, np.arange(1000)), too_few_for_signs(30.0, np.arange(1000) // 2)
    (False, True)
    """
    return expected * (int(groups.max()) + 1) / len(groups) < _FEW


def random_signs(rng: np.random.Generator, *shape: int) -> Array:
    """Return -1 and 1 at random, one byte each."""
    return 2 * rng.integers(0, 2, shape, dtype=np.int8) - 1


def redrawn_labels(
    probabilities: Array, n_resamples: int, rng: np.random.Generator, groups: Ints | None = None
) -> Iterator[Ints]:
    """Yield labels (n,) drawn from probabilities (n, k), one resample after the other; one draw per group if given."""
    n_rows = len(probabilities)
    step = max(1, _LABELS // n_rows)
    for first in range(0, n_resamples, step):
        labels = np.empty((min(step, n_resamples - first), n_rows), dtype=np.int32)
        of_group = np.empty(0) if groups is None else rng.random((int(groups.max()) + 1, len(labels)))
        for rows in row_blocks(n_rows, max(probabilities.shape[1], len(labels))):
            size = (rows.stop - rows.start, len(labels))
            uniform = rng.random(size) if groups is None else of_group[groups[rows]]
            labels[:, rows] = _draw(probabilities[rows], uniform).T
        for drawn in labels:
            yield drawn.astype(np.int64)


def _draw(block: Array, uniform: Floats) -> Ints:
    """Return the class where each row's cumulative probability passes its uniform numbers (rows, resamples)."""
    width = block.shape[1]
    reached = np.cumsum(np.maximum(block.astype(np.float64), 0.0), axis=1)
    reached /= reached[:, -1:]
    # Row i lies in i..i+1: end to end they make one ascending list, and one search serves all rows. The factor keeps
    # a number just below 1 from rounding into the next row.
    row = np.arange(len(block))[:, None]
    wanted = uniform * (1 - 1e-9) + row
    return np.searchsorted((reached + row).ravel(), wanted.ravel(), side="right").reshape(wanted.shape) - row * width
