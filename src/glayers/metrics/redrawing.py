"""Predictions -> what a calibrated model would have shown on the same rows: outcomes drawn from its own probabilities.

Weights go along with their rows. Rows of one group are drawn with the dependence that they seem to have
(`dependence.py`).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np

from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.checks import number_between, whole_number
from glayers.errors import BadPredictions
from glayers.metrics.dependence import Dependence
from glayers.metrics.events import Rows, Scored, bin_of, last_of_ties
from glayers.metrics.null_distribution import KSNullDistribution

_Kind = TypeVar("_Kind", bound=Rows | Scored)
_ENTRIES = 131_072  # of one batch: 1 MB in float64, so that what is made of it stays in the cache
_LABELS = 1 << 24  # drawn at a time: 64 MB
_FEATURES = 16  # of a label: as many random signs tell which pairs of labels are equal
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
    return None if random_state is None else whole_number(random_state, "random_state", 0, 2**128)


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
    weights, scores, n_rows = event.weights, event.scores, len(event.scores)
    if event.groups is None:
        step = max(1, _ENTRIES // n_rows)
        for first in range(0, n_resamples, step):
            yield weights * ((rng.random((min(step, n_resamples - first), n_rows)) < scores) - scores)
        return
    within = np.clip(scores, 0.0, 1.0)
    dependence = Dependence(
        event.groups,
        weights,
        scores,
        variances=within * (1 - within),
        outcomes=lambda uniform: uniform < scores,
        residuals=lambda hits: (hits - scores)[:, :, None],
        observed=event.hits,
        rng=rng,
    )
    for hits, factors in dependence.draw(n_resamples):
        yield factors * weights * (hits - scores)


def redrawn_labels(probabilities: Array, n_resamples: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Yield labels (n,) drawn from probabilities (n, k), one resample after the other."""
    n_rows = len(probabilities)
    step = max(1, _LABELS // n_rows)
    for first in range(0, n_resamples, step):
        labels = np.empty((min(step, n_resamples - first), n_rows), dtype=np.int32)
        for rows in row_blocks(n_rows, max(probabilities.shape[1], len(labels))):
            labels[:, rows] = _draw(probabilities[rows], rng.random((rows.stop - rows.start, len(labels)))).T
        for drawn in labels:
            yield drawn.astype(np.int64)


def redrawn_group_labels(
    p: Floats,
    labels: Ints,
    weights: Floats,
    groups: Ints,
    n_resamples: int,
    rng: np.random.Generator,
    by_class: bool = False,
) -> Iterator[tuple[Ints, Floats]]:
    """Yield labels drawn with the dependence that groups seem to have, and a factor for their error (`Dependence`).

    With `by_class` and up to 16 classes, there is a factor for the error of each class.
    """
    n_rows, n_classes = p.shape
    # What a label says: its class, or random signs instead of many classes; and whether the top class is right.
    few = n_classes <= _FEATURES
    features = np.eye(n_classes) if few else rng.choice([-1.0, 1.0], (n_classes, _FEATURES)) / math.sqrt(_FEATURES)
    best, expected = p.argmax(axis=1), p @ features
    confidence = p[np.arange(n_rows), best]

    def outcomes(uniform: Floats) -> Ints:
        blocks = row_blocks(n_rows, max(n_classes, len(uniform)))
        return np.concatenate([_draw(p[some], uniform[:, some].T).T for some in blocks], axis=1)

    def residuals(labels: Ints) -> Floats:
        right = (labels == best) - confidence
        return np.concatenate([features[labels] - expected, right[:, :, None]], axis=2)

    variances = p @ (features**2).sum(axis=1) - (expected**2).sum(axis=1) + confidence * (1 - confidence)
    of_classes = p * (1 - p) if by_class and few else None
    dependence = Dependence(groups, weights, confidence, variances, outcomes, residuals, labels, rng, of_classes)
    for drawn, factors in dependence.draw(n_resamples, features.shape[1]):
        yield from zip(drawn, factors, strict=True)


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
