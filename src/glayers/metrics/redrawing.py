"""Predictions and statistics -> what a calibrated model would have shown on the same rows: the engine of all tests.

Every test draws outcomes from the model's own probabilities, computes statistics of each draw (`redraw`), and compares
the observed ones with them. Outcomes are the hits of an event, or labels. Weights go along with their rows. Rows of one
group are drawn with the dependence that they seem to have (`dependence.py`).
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.checks import number_between, whole_number
from glayers.errors import BadPredictions
from glayers.metrics.dependence import Dependence, too_few_groups
from glayers.metrics.events import Rows, Scored, bin_of, last_of_ties
from glayers.metrics.null_distribution import KSNullDistribution
from glayers.progress import progress_bar

_Kind = TypeVar("_Kind", bound=Rows | Scored)
_ENTRIES = 131_072  # of one batch: 1 MB in float64, so that what is made of it stays in the cache
_LABELS = 1 << 24  # drawn at a time: 64 MB
_FEATURES = 16  # of a label: as many random signs tell which pairs of labels are equal
_ONE = np.ones((1, 1))
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


class Outcomes(NamedTuple):
    """Outcomes of rows as observed (n,), and how to draw others.

    `draw` yields batches (b, n), each with factors (b, 1) or (b, s) for the statistics of the batch.
    """

    observed: Array
    draw: Callable[[int, np.random.Generator], Iterator[tuple[Array, Floats]]]
    too_few_groups: bool = False


class Redrawn(NamedTuple):
    """Statistics of the observed outcomes (s,), and of drawn ones (resamples, s): nan if groups are too few to tell."""

    values: Floats
    drawn: Floats


def redraw(
    outcomes: Outcomes,
    statistics: Callable[[Array], Floats],
    n_resamples: int,
    rng: np.random.Generator,
    progress: bool | None = False,
) -> Redrawn:
    """Compute statistics, a function from outcomes (b, n) to numbers (b, s), as observed and under calibration."""
    values = statistics(outcomes.observed[None])[0]
    drawn = np.full((n_resamples, len(values)), np.nan)
    if outcomes.too_few_groups:
        return Redrawn(values, drawn)
    done = 0
    with progress_bar(progress, "redrawing labels", n_resamples) as advance:
        for batch, factors in outcomes.draw(n_resamples, rng):
            drawn[done : done + len(batch)] = factors * statistics(batch)
            done += len(batch)
            advance(len(batch))
    return Redrawn(values, drawn)


def hit_outcomes(event: Scored) -> Outcomes:
    """Return the hits of an event, which are drawn from its scores."""
    return Outcomes(event.hits, partial(_redrawn_hits, event), too_few_groups(event.groups, event.weights))


def label_outcomes(rows: Rows, by_class: bool = False) -> Outcomes:
    """Return the labels of rows, which are drawn from their probabilities.

    With `by_class`, groups and up to 16 classes, the statistics are those of the classes, and each has its own factor.
    """
    if rows.groups is None:
        return Outcomes(rows.labels, partial(redrawn_labels, rows.probabilities))
    groups = group_numbers(rows.groups)
    draw = partial(_redrawn_group_labels, rows, groups, by_class)
    return Outcomes(rows.labels, draw, too_few_groups(groups, rows.weights))


class RunningSum(NamedTuple):
    """The running sum of weight * (hit - score) in order of score, and the places where it counts.

    KS is its largest size wherever a score ends; ECE adds up the sizes of what each bin adds to it. `order` are the
    places of the rows of positive weight before they were sorted.
    """

    event: Scored
    ends: Ints
    order: Ints

    @classmethod
    def of(cls, event: Scored, edges: Floats | None = None) -> "RunningSum":
        """Count the sum at the last row of each score, so that rows of equal score enter together; or of each bin."""
        rows = rows_to_redraw(event)
        order = np.argsort(rows.scores, kind="stable")
        order = order[rows.weights[order] > 0]
        groups = None if rows.groups is None else rows.groups[order]
        ordered = Scored(rows.scores[order], rows.hits[order], rows.weights[order], rows.total, groups=groups)
        places = ordered.scores
        if edges is not None:
            places = bin_of(ordered.scores, edges).astype(np.float64)
        return cls(ordered, np.flatnonzero(last_of_ties(places)), order)

    def sums(self, hits: Array) -> Floats:
        """Return the sum at its ends for hits (b, n) in order of score, (b, ends)."""
        residuals = self.event.weights * (hits - self.event.scores)
        return np.cumsum(residuals, axis=1)[:, self.ends]

    def null_distribution(self) -> KSNullDistribution:
        """Return what is known of the sum under calibration, for independent rows."""
        scores = np.clip(self.event.scores, 0.0, 1.0)  # rounding may have left them just outside
        variances = self.event.weights**2 * scores * (1 - scores)
        first_rows = np.append(0, self.ends[:-1] + 1)
        step_variances = np.add.reduceat(variances, first_rows)
        return KSNullDistribution.of(scores, self.event.weights, step_variances)

    def redrawn(self, statistic: Callable[[Floats], Floats], draws: Draws) -> Floats:
        """Return a statistic (b, s) of the running sums of calibrated models, (resamples, s)."""

        def statistics(hits: Array) -> Floats:
            return statistic(self.sums(hits))

        return redraw(hit_outcomes(self.event), statistics, draws.n_resamples, draws.generator()).drawn


def _redrawn_hits(event: Scored, n_resamples: int, rng: np.random.Generator) -> Iterator[tuple[Array, Floats]]:
    scores = event.scores
    n_rows = len(scores)
    if event.groups is None:
        step = max(1, _ENTRIES // n_rows)
        for first in range(0, n_resamples, step):
            drawn = rng.random((min(step, n_resamples - first), n_rows)) < scores
            yield drawn, _ONE
        return
    within = np.clip(scores, 0.0, 1.0)
    dependence = Dependence(
        event.groups,
        event.weights,
        scores,
        variances=within * (1 - within),
        outcomes=lambda uniform: uniform < scores,
        residuals=lambda hits: (hits - scores)[:, :, None],
        observed=event.hits,
        rng=rng,
    )
    yield from dependence.draw(n_resamples)


def redrawn_labels(probabilities: Array, n_resamples: int, rng: np.random.Generator) -> Iterator[tuple[Array, Floats]]:
    """Yield labels (b, n) drawn from probabilities (n, k), some resamples at a time."""
    n_rows = len(probabilities)
    step = max(1, _LABELS // n_rows)
    for first in range(0, n_resamples, step):
        labels = np.empty((min(step, n_resamples - first), n_rows), dtype=np.int32)
        for rows in row_blocks(n_rows, max(probabilities.shape[1], len(labels))):
            uniform = rng.random((rows.stop - rows.start, len(labels)))
            labels[:, rows] = _draw(probabilities[rows], uniform).T
        yield labels, _ONE


def _redrawn_group_labels(
    rows: Rows, groups: Ints, by_class: bool, n_resamples: int, rng: np.random.Generator
) -> Iterator[tuple[Array, Floats]]:
    """Yield labels drawn with the dependence that groups seem to have, and factors (`Dependence`)."""
    p = rows.probabilities.astype(np.float64)
    n_rows, n_classes = p.shape
    # What a label says: its class, or random signs instead of many classes; and whether the top class is right.
    few = n_classes <= _FEATURES
    if few:
        features = np.eye(n_classes)
    else:
        features = rng.choice([-1.0, 1.0], (n_classes, _FEATURES)) / math.sqrt(_FEATURES)
    best = p.argmax(axis=1)
    expected = p @ features
    confidence = p[np.arange(n_rows), best]

    def outcomes(uniform: Floats) -> Ints:
        blocks = row_blocks(n_rows, max(n_classes, len(uniform)))
        return np.concatenate([_draw(p[some], uniform[:, some].T).T for some in blocks], axis=1)

    def residuals(labels: Ints) -> Floats:
        right = (labels == best) - confidence
        return np.concatenate([features[labels] - expected, right[:, :, None]], axis=2)

    variances = p @ (features**2).sum(axis=1) - (expected**2).sum(axis=1)
    variances += confidence * (1 - confidence)
    dependence = Dependence(
        groups,
        rows.weights,
        confidence,
        variances=variances,
        outcomes=outcomes,
        residuals=residuals,
        observed=rows.labels,
        rng=rng,
        class_variances=p * (1 - p) if by_class and few else None,
    )
    yield from dependence.draw(n_resamples, features.shape[1])


def _draw(block: Array, uniform: Floats) -> Ints:
    """Return the class where each row's cumulative probability passes its uniform numbers (rows, resamples)."""
    width = block.shape[1]
    reached = np.cumsum(np.maximum(block.astype(np.float64), 0.0), axis=1)
    reached /= reached[:, -1:]
    # Row i lies in i..i+1: end to end they make one ascending list, and one search serves all rows. The factor keeps
    # a number just below 1 from rounding into the next row.
    row = np.arange(len(block))[:, None]
    wanted = uniform * (1 - 1e-9) + row
    places = np.searchsorted((reached + row).ravel(), wanted.ravel(), side="right")
    return places.reshape(wanted.shape) - row * width
