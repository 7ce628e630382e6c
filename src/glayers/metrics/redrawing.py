"""Predictions and statistics -> what a calibrated model would have shown on the same rows: the engine of all tests.

Every test draws outcomes from the model's own probabilities, computes statistics of each draw (`redraw`), and compares
the observed ones with them. Outcomes are the hits of an event, or labels. Weights go along with their rows.
Weights that are a function of the label are drawn with it (`LabelLaw`).

Rows of one group, such as the pixels of an image, may depend on each other in a way no model states. Drawing them
independently would make the sampling error too small, and drawing them as copies of each other too large. So the
strength of the dependence, rho, is estimated from the rows: 0 for independent rows, 1 for copies. It is the correlation
of residuals (outcome - expectation) of two rows of a group, as in an analysis of variance: Donner, International
Statistical Review 1986. Three precautions keep the level of tests:

- Residuals are centred, and compared only with those of similar score. So a model that is wrong everywhere does not
  look as if its rows depend on each other, and groups that are overconfident for some scores and underconfident for
  others do.
- The estimate counts one unseen row that is a copy of its group. Where no error was seen, rows may well be copies.
- With few groups the estimate is uncertain. So it is made again for every draw, and errors are compared relative to the
  spread that goes with the estimate, as in Student's t-test.

Fewer than 8 groups of equal size tell too little about any of this.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints, effective_rows, kish, row_blocks
from glayers.checks import number_between, whole_number
from glayers.errors import GlayersWarning
from glayers.metrics.events import LabelLaw, Rows, Scored, among, bin_of, check_seed, last_of_ties, warn_of_few_rows
from glayers.progress import progress_bar

_ENTRIES = 131_072  # of a batch of hits or residuals: 1 MB in float64, so that what is made of it stays in the cache
_LABELS = 1 << 24  # drawn at a time: 64 MB
_FEATURES = 16  # of a label: as many random signs tell which pairs of labels are equal
_PIECES = 4  # of the range of scores, of equal variance, within which residuals are compared
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


def redraw(
    rows: Rows | Scored,
    statistics: Callable[[Array, Floats], Floats],
    draws: Draws,
    progress: bool | None = False,
    by_class: bool = False,
) -> tuple[Floats, Floats]:
    """Compute statistics, a function from outcomes and weights (b, n) to numbers (b, s), as observed and if calibrated.

    Outcomes are labels or hits; weights are (1, n) where they are the same in all draws. Returns statistics (s,) and
    (resamples, s): nan if groups are too few to tell. With `by_class`, the statistics are those of the classes, and
    dependence in groups may differ between up to 16 of them.
    """
    if rows.groups is not None and rows.law is not None:
        warnings.warn(
            "weights are a function of the label, and rows are in groups: tests and bands hold the weights fixed, and "
            "reject too often. Take one row of each group and leave out the groups, or leave out the weights",
            GlayersWarning,
            stacklevel=3,
        )
    warn_of_few_rows(rows)
    rng = draws.generator()
    values = statistics(_observed(rows)[None], rows.weights[None])[0]
    drawn = np.full((draws.n_resamples, len(values)), np.nan)
    if rows.groups is not None and rows.n_units < 7.5:  # 8 of nearly equal size
        return values, drawn
    done = 0
    with progress_bar(progress, "redrawing labels", draws.n_resamples) as advance:
        for batch, weights, factors in _batches(rows, draws.n_resamples, rng, by_class):
            drawn[done : done + len(batch)] = factors * statistics(batch, weights)
            done += len(batch)
            advance(len(batch))
    return values, drawn


def _observed(rows: Rows | Scored) -> Array:
    return rows.labels if isinstance(rows, Rows) else rows.hits


def _batches(
    rows: Rows | Scored, n_resamples: int, rng: np.random.Generator, by_class: bool
) -> Iterator[tuple[Array, Floats, Floats]]:
    """Yield outcomes (b, n), each batch with weights (b or 1, n) and factors (b or 1, 1 or s) for its statistics."""
    weights = rows.weights[None]
    if rows.groups is not None:
        dependence = _label_dependence(rows, rng, by_class) if isinstance(rows, Rows) else _hit_dependence(rows, rng)
        for outcomes, factors in dependence.draw(n_resamples):
            yield outcomes, weights, factors
        return
    one = np.ones((1, 1))
    if rows.law is not None:
        for labels in redrawn_labels(rows.law.probabilities, n_resamples, rng, _LABELS // 8):
            yield *_weighed(rows, rows.law, labels), one
        return
    if isinstance(rows, Rows):
        for labels in redrawn_labels(rows.probabilities, n_resamples, rng):
            yield labels, weights, one
        return
    step = max(1, _ENTRIES // len(rows))
    for first in range(0, n_resamples, step):
        size = min(step, n_resamples - first)
        yield rng.random((size, len(rows))) < rows.scores, weights, one


def _weighed(rows: Rows | Scored, law: LabelLaw, labels: Ints) -> tuple[Array, Floats]:
    """Return the outcomes of labels (b, n), and their weights, which sum to 1; rows without weight stay without."""
    weights = law.weights[labels] * (rows.own_weights > 0)
    weights /= weights.sum(axis=1, keepdims=True)
    if isinstance(rows, Rows):
        return labels, weights
    return among(law.named, labels), weights


def redrawn_labels(
    probabilities: Array, n_resamples: int, rng: np.random.Generator, entries: int | None = None
) -> Iterator[Array]:
    """Yield labels (b, n) drawn from probabilities (n, k), some resamples at a time."""
    n_rows = len(probabilities)
    step = max(1, (entries or _LABELS) // n_rows)
    for first in range(0, n_resamples, step):
        labels = np.empty((min(step, n_resamples - first), n_rows), dtype=np.int32)
        for rows in row_blocks(n_rows, max(probabilities.shape[1], len(labels))):
            uniform = rng.random((rows.stop - rows.start, len(labels)))
            labels[:, rows] = _labels_at(probabilities[rows], uniform).T
        yield labels


def _labels_at(block: Array, uniform: Floats) -> Ints:
    """Return the class where each row's cumulative probability passes its uniform numbers (rows, resamples)."""
    reached = np.cumsum(np.maximum(block.astype(np.float64), 0.0), axis=1)
    reached /= reached[:, -1:]
    # Row i lies in i..i+1: end to end they make one ascending list, and one search serves all rows. The factor keeps
    # a number just below 1 from rounding into the next row.
    row = np.arange(len(block))[:, None]
    wanted = uniform * (1 - 1e-9) + row
    places = np.searchsorted((reached + row).ravel(), wanted.ravel(), side="right")
    return places.reshape(wanted.shape) - row * block.shape[1]


class RunningSum(NamedTuple):
    """The running sum of weight * (hit - score) in order of score, and the places where it counts.

    KS is its largest size wherever a score ends; ECE adds up the sizes of what each bin adds to it. `event` has the
    rows of positive weight in order of score; `order` are their places before they were sorted.
    """

    event: Scored
    ends: Ints
    order: Ints
    binned: bool

    @classmethod
    def of(cls, event: Scored, edges: Floats | None = None) -> "RunningSum":
        """Count the sum at the last row of each score, so that rows of equal score enter together; or of each bin."""
        order = np.argsort(event.scores, kind="stable")
        order = order[event.weights[order] > 0]
        groups = None
        if event.groups is not None:
            groups = event.group_numbers[order]
        scores = event.scores[order]
        law = None if event.law is None else event.law.take(order)
        ordered = Scored(scores, event.hits[order], law, given_weights=event.own_weights[order], groups=groups)
        if edges is not None:
            scores = bin_of(scores, edges).astype(np.float64)
        return cls(ordered, np.flatnonzero(last_of_ties(scores)), order, edges is not None)

    def sums(self, hits: Array, weights: Floats) -> Floats:
        """Return the sum at its ends for hits and weights (b, n) in order of score, (b, ends)."""
        residuals = weights * (hits - self.event.scores)
        return np.cumsum(residuals, axis=1)[:, self.ends]

    def errors(self, hits: Array, weights: Floats) -> Floats:
        """Return the ECE for hits and weights (b, n) if there are bins, else the KS error, (b, 1)."""
        sums = self.sums(hits, weights)
        if self.binned:
            return np.abs(np.diff(sums, axis=1, prepend=0.0)).sum(axis=1, keepdims=True)
        return np.abs(sums).max(axis=1, keepdims=True)

    def signs(self) -> Floats:
        """Return the sign with which each row enters the observed error; 0 if it does not."""
        (sums,) = self.sums(self.event.hits[None], self.event.weights[None])
        if self.binned:
            signs = np.sign(np.diff(sums, prepend=0.0))
        else:
            largest = int(np.abs(sums).argmax())
            signs = np.zeros(len(sums))
            signs[: largest + 1] = np.sign(sums[largest])
        return np.repeat(signs, np.diff(self.ends, prepend=-1))


def _hit_dependence(event: Scored, rng: np.random.Generator) -> "Dependence":
    """Return the dependence of the hits of an event."""
    scores = event.scores
    within = np.clip(scores, 0.0, 1.0)
    return Dependence(
        event,
        scores,
        variances=within * (1 - within),
        outcomes=lambda uniform: uniform < scores,
        residuals=lambda hits: (hits - scores)[:, :, None],
        rng=rng,
    )


def _label_dependence(rows: Rows, rng: np.random.Generator, by_class: bool) -> "Dependence":
    """Return the dependence of labels."""
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
        return np.concatenate([_labels_at(p[some], uniform[:, some].T).T for some in blocks], axis=1)

    def residuals(labels: Ints) -> Floats:
        right = (labels == best) - confidence
        return np.concatenate([features[labels] - expected, right[:, :, None]], axis=2)

    variances = p @ (features**2).sum(axis=1) - (expected**2).sum(axis=1) + confidence * (1 - confidence)
    class_variances = None
    if by_class and few:
        class_variances = p * (1 - p)
    return Dependence(rows, confidence, variances, outcomes, residuals, rng, class_variances)


class Dependence:
    """What is needed to draw outcomes that depend on each other within groups as the observed ones seem to.

    `outcomes` turns uniform numbers (b, n) into outcomes (b, n), and `residuals` outcomes into residuals (b, n, d).
    With `class_variances` (n, c), the first c residuals are those of classes, and each class has a factor of its own:
    dependence may affect some classes more than others.
    """

    def __init__(
        self,
        rows: Rows | Scored,
        scores: Floats,
        variances: Floats,
        outcomes: Callable[[Floats], Array],
        residuals: Callable[[Array], Floats],
        rng: np.random.Generator,
        class_variances: Floats | None = None,
    ) -> None:
        self._groups = rows.group_numbers
        self._n_groups = int(self._groups.max()) + 1
        self._outcomes = outcomes
        self._residuals = residuals
        self._rng = rng
        squares = rows.weights**2
        variance = np.bincount(self._groups, squares * variances)
        n_effective = kish(np.bincount(self._groups, rows.weights), np.bincount(self._groups, squares))
        others = np.maximum(n_effective, 1.0) - 1
        self._depends = float(variance @ others) > 1e-9 * float(variance.sum())  # whether groups have several rows
        self._by_class = class_variances is not None
        scaled = variances[:, None] if class_variances is None else class_variances
        own = np.stack([np.bincount(self._groups, squares * column) for column in scaled.T])  # (1 or c, groups)
        self._shared_variances = own @ others
        self._variances = np.where(own.any(axis=1), own.sum(axis=1), 1.0)  # where nothing is uncertain, any will do
        self._compare_similar(scores, rows.weights, squares * variances)
        start = self._residuals(_observed(rows)[None])
        self._batch = max(1, 2 * _ENTRIES // start.size)
        rho = 1.0
        for _ in range(4):  # the best weights depend on the estimate
            self._weigh(rho)
            rho = float(self._rho(start)[0, 0])
        # The fewer groups carry the variance, the less the unknown form of the dependence averages out.
        carrying = max(effective_rows(variance * (1 + rho * others)), 1.0)
        self._spread = self._spreads(start) * math.sqrt(1 + 1 / carrying)
        # Two rows follow the number of their group together with the square of this probability.
        self._follow = math.sqrt(min(1.0, rho / max(self._rho_of_copies(), 1e-12)))

    def draw(self, n_resamples: int) -> Iterator[tuple[Array, Floats]]:
        """Yield outcomes (b, n) in batches, and factors for their errors, (b, 1 or c).

        A factor is the spread that the observed rows seem to have, over the one that the drawn rows seem to have.
        """
        for first in range(0, n_resamples, self._batch):
            own = self._rng.random((min(self._batch, n_resamples - first), len(self._groups)))
            shared = self._rng.random((len(own), self._n_groups))[:, self._groups]
            apart = (own - self._follow) / (1 - self._follow or 1.0)
            drawn = self._outcomes(np.where(own < self._follow, shared, apart))
            yield drawn, self._spread / self._spreads(self._residuals(drawn))

    def _rho_of_copies(self, n_draws: int = 100) -> float:
        """Return how strongly rows that are copies of each other seem to depend, on average."""
        found = []
        for first in range(0, n_draws, self._batch):
            shared = self._rng.random((min(self._batch, n_draws - first), self._n_groups))
            copies = self._outcomes(shared[:, self._groups])
            found.append(self._rho(self._residuals(copies)))
        return float(np.concatenate(found).mean())

    def _compare_similar(self, scores: Floats, weights: Floats, variances: Floats) -> None:
        """Divide each group into parts of similar score, and sort rows by part."""
        ascending = np.argsort(scores, kind="stable")
        reached = np.cumsum(variances[ascending])
        piece = np.empty(len(scores), dtype=np.int64)
        clock = reached / (reached[-1] or 1.0)
        piece[ascending] = np.minimum(_PIECES * clock, _PIECES - 1).astype(np.int64)
        _, part, self._size = np.unique(self._groups * _PIECES + piece, return_inverse=True, return_counts=True)
        self._order = np.argsort(part, kind="stable")
        self._first = np.append(0, np.cumsum(self._size)[:-1])
        self._row_piece = piece[self._order]
        self._row_weights = weights[self._order, None]
        self._in_piece = np.arange(_PIECES)[:, None] == self._row_piece[self._first]  # (pieces, parts)
        in_all = np.bincount(self._row_piece, weights[self._order])[self._row_piece, None]
        self._share = self._row_weights / np.where(in_all > 0, in_all, 1.0)  # of a row in the weight of its piece
        self._left = 1 - np.add.reduceat(self._share[:, 0], self._first)  # the share of all other groups
        self._squares = np.add.reduceat(self._row_weights[:, 0] ** 2, self._first)
        sums = np.add.reduceat(self._row_weights[:, 0], self._first)
        self._rows = np.maximum(kish(sums, self._squares), 1.0)

    def _weigh(self, rho: float) -> None:
        """Set the weight of each part of a group in the estimate, and the weight of an unseen copy."""
        counts = (self._rows > 1 + 1e-9) & (self._left > 1e-9)  # single rows have no pairs
        mean_square = np.where(counts, self._squares / self._size, 1.0)
        self._part_weights = counts / (1 + (self._rows - 1) * rho) ** 2 / mean_square
        self._unseen = float(self._part_weights @ ((self._rows - 1) * self._squares)) / len(self._groups)

    def _rho(self, residuals: Floats, by_class: bool = False) -> Floats:
        """Estimate the dependence shown by residuals (b, n, d) together, (b, 1), or apart, (b, d)."""
        if self._unseen == 0:  # no two rows can be compared: independent, unless groups have several rows
            width = residuals.shape[2] if by_class else 1
            return np.full((len(residuals), width), float(self._depends))
        weighted = residuals[:, self._order] * self._row_weights
        sums = self._in_piece @ np.add.reduceat(weighted, self._first, axis=1)  # (b, pieces, d)
        centred = weighted - sums[:, self._row_piece] * self._share
        together = np.add.reduceat(centred, self._first, axis=1) ** 2
        alone = np.add.reduceat(centred**2, self._first, axis=1)
        if not by_class:
            together = together.sum(axis=2, keepdims=True)
            alone = alone.sum(axis=2, keepdims=True)
        together = together.swapaxes(1, 2)
        alone = alone.swapaxes(1, 2)
        pairs = (together / np.maximum(self._left, 1e-9) - alone) @ self._part_weights + self._unseen
        largest = (alone * (self._rows - 1)) @ self._part_weights + self._unseen
        return np.clip(pairs / largest, 0.0, 1.0)

    def _spreads(self, residuals: Floats) -> Floats:
        """The standard deviation of the sum of residuals under the dependence that they show, (b, 1 or c)."""
        rho = self._rho(residuals, self._by_class)[:, : len(self._variances)]
        return np.sqrt(self._variances + rho * self._shared_variances)
