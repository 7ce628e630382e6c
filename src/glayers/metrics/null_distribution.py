"""Rows -> the errors that a calibrated model would have shown on them, by drawn outcomes.

Labels are drawn from the model's own probabilities, and each draw is measured as the observed labels are (`redraw`).
For one event, its hits are drawn. KS and ECE are functions of the running sum of weight * (hit - score) in order of
score (`RunningSum`).

Weights that depend on the label, as in a case-control study, are drawn with it (`label_law`).

Rows of one group, such as the pixels of an image, may depend on each other in a way no model states. Labels are drawn
as if they did not, and every error is divided by the standard deviation that the sums of its groups show, as in
Student's t-test. So rows of a group may depend in any way. Liang and Zeger, "Longitudinal Data Analysis Using
Generalized Linear Models", Biometrika 1986. Fewer than 8 groups of equal size say too little about it.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Array, Floats, Ints, effective_rows, row_blocks
from glayers.checks import number_between, whole_number
from glayers.errors import GlayersWarning
from glayers.metrics.events import (
    ROUNDING,
    Rows,
    Scored,
    bin_of,
    check_seed,
    distinct_scores,
    last_of_ties,
)
from glayers.metrics.metric import membership, weight_in
from glayers.progress import progress_bar

_LABELS = 1 << 24  # drawn at a time: 64 MB
_PIECES = 4  # of the range of scores: 16 groups whose errors at low and high scores cancel were rejected in 58 %
# The square of Student's t at 5 %, over that of the normal distribution, is about 1 + 2.4 / groups.
_FEW_GROUPS = 2.4
_FEWEST_GROUPS = 7.5  # 8 of nearly equal size
_LEAST_ROWS = 10  # beyond one per class: of fewer rows, weights may follow the labels by chance
_MOST_ROWS = 20_000  # of one event that are drawn one by one; more become cells
_CELLS = 4096  # between their ends the sum moves by less than a hundredth of its final standard deviation
_CLOSE = 1e-9  # relative rounding of weights that were computed
_WEIGHT_BINS = 20  # of rows whose labels have about the same expected weight
_MOST_BY_CHANCE = 2.5  # standard errors of a sum whose mean is 0 where weights do not depend on the label
_PRIOR_ROWS = 1.0  # by which the factor of a rare label is held at 1


class RunningSum:
    """The running sum of weight * (hit - score) in order of score, and the places where it counts.

    KS is its largest size wherever a score ends: rows of equal score enter together. ECE, if there are `edges`, adds up
    the sizes of what each bin adds to it. A row hits if its label is one of the classes (n, r) that the row names;
    without `named`, hits are drawn and not labels.
    """

    def __init__(self, event: Scored, named: Ints | None = None, edges: Floats | None = None) -> None:
        self.order = event.ascending
        self.scores = event.scores[self.order]
        self.hits = event.hits[self.order]
        self.weights = event.weights[self.order]
        self.named = None if named is None else named[self.order]
        self.binned = edges is not None
        places = self.scores if edges is None else bin_of(self.scores, edges)
        self.ends = np.flatnonzero(last_of_ties(places))
        self.groups = None
        if event.groups is not None:
            self.groups = event.group_numbers[self.order]
            self._divide(self.groups)

    def __call__(self, outcomes: Array, weights: Floats) -> Floats:
        """Return the error for each line of labels or hits (b, n) and weights (b or 1, n).

        With groups it is scaled to the spread that the observed groups show.
        """
        errors = np.empty(len(outcomes))
        for lines in row_blocks(len(outcomes), len(self.order)):
            hits = np.take(outcomes[lines], self.order, axis=1)
            if self.named is not None:
                hits = np.any([hits == named for named in self.named.T], axis=0)
            own = weights if len(weights) == 1 else weights[lines]
            residuals = np.take(own, self.order, axis=1) * (hits - self.scores)
            errors[lines] = self._sizes(residuals)
            if self.groups is not None:
                errors[lines] *= self._spread / self._spreads(residuals)
        return errors

    @property
    def error(self) -> float:
        """The observed error."""
        return float(self._sizes(self._residuals[None])[0])

    def signs(self) -> Floats:
        """Return the sign with which each row enters the observed error; 0 if it does not."""
        sums = np.cumsum(self._residuals)[self.ends]
        if self.binned:
            signs = np.sign(np.diff(sums, prepend=0.0))
        else:
            largest = int(np.abs(sums).argmax())
            signs = np.zeros(len(sums))
            signs[: largest + 1] = np.sign(sums[largest])
        return np.repeat(signs, np.diff(self.ends, prepend=-1))

    @property
    def _residuals(self) -> Floats:
        return self.weights * (self.hits - self.scores)

    def _sizes(self, residuals: Floats) -> Floats:
        """Return the error of each line of residuals (b, n)."""
        sums = np.cumsum(residuals, axis=1)[:, self.ends]
        if self.binned:
            return np.abs(np.diff(sums, axis=1, prepend=0.0)).sum(axis=1)
        return np.abs(sums).max(axis=1)

    def _divide(self, groups: Ints) -> None:
        """Divide each group into cells of similar score; all pieces of the range of scores have the same variance."""
        scores = np.clip(self.scores, 0.0, 1.0)  # rounding may have left them just outside
        variances = self.weights**2 * scores * (1 - scores)
        reached = np.cumsum(variances)
        clock = reached / (reached[-1] or 1.0)
        piece = np.minimum(_PIECES * clock, _PIECES - 1).astype(np.int64)
        cells, cell = np.unique(groups * _PIECES + piece, return_inverse=True)
        self._of_cell = membership(cell, len(cells))
        self._of_group = membership(cells // _PIECES, int(groups.max()) + 1)
        self._cell_piece = cells % _PIECES
        self._of_piece = membership(self._cell_piece, _PIECES)
        held, squares, counts = weight_in(cell, self.weights)
        self._cell_share = held / np.bincount(self._cell_piece, held)[self._cell_piece]
        left = 1 - self._cell_share  # centring takes as much from the square of a sum
        others = np.maximum(counts - 1, 0.0)
        paired = (others > ROUNDING) & (left > ROUNDING)
        self._pair_weights = paired / np.where(paired, left, 1.0)
        self._others = paired * others
        self._unseen = float(self._others @ squares) / len(cell)
        self._counted = paired.astype(np.float64)
        self._independent = float(reached[-1]) or 1.0  # where nothing is uncertain, any will do
        of_groups = np.bincount(groups, variances)
        n_rows = weight_in(groups, self.weights)[2]
        self._if_copies = float(of_groups @ np.maximum(n_rows - 1, 0.0))
        # Few groups, or one that dominates the others, do not know their own spread well: the variance is raised, by
        # the groups that carry it if rows of a group are copies.
        n_groups = max(effective_rows(of_groups * n_rows), 1.0)
        self._spread = float(self._spreads(self._residuals[None])[0]) * math.sqrt(1 + _FEW_GROUPS / n_groups)

    def _spreads(self, residuals: Floats) -> Floats:
        """Return the standard deviation of the sum under the dependence that residuals (b, n) show.

        Sums are centred, so that a model that is wrong everywhere does not look as if its rows depend on each other.
        Where few outcomes were surprising, rows may well be copies: one unseen surprise counts as if they were.
        """
        cells = self._of_cell @ residuals.T
        centred = cells - self._cell_share[:, None] * (self._of_piece @ cells)[self._cell_piece]
        alone = self._of_cell @ (residuals**2).T
        pairs = self._pair_weights @ centred**2 - self._counted @ alone + self._unseen
        largest = self._others @ alone + self._unseen
        rho = np.clip(pairs / np.where(largest > 0, largest, 1.0), 0.0, 1.0)
        by_group = self._of_group @ (np.sqrt(self._pair_weights)[:, None] * centred)
        return np.sqrt(np.maximum((by_group**2).sum(axis=0), self._independent + rho * self._if_copies))


Statistic: TypeAlias = Callable[[Array, Floats], Floats]  # outcomes (b, n) and weights (b or 1, n) become errors (b,)


def generator(n_resamples: int, level: float, random_state: int | None) -> np.random.Generator:
    """Return the one source of randomness of a test, after checking that there are enough draws for its bound."""
    number_between(level, "level", 0, 1)
    least = max(1, math.ceil(level / (1 - level) - ROUNDING))
    whole_number(n_resamples, f"for level {level:g}, n_resamples", least)
    return np.random.default_rng(check_seed(random_state))


def in_cells(event: Scored, edges: Floats) -> Scored:
    """Return independent rows in order of score; many become few: neighbouring scores of a bin are one row.

    Such a cell says how many rows it is, and its hits are binomial. Weights count as Kish's effective number of rows.
    """
    if event.groups is not None:
        return event
    order = np.lexsort([event.weights, event.scores])  # the same draws for rows in any order
    order = order[event.weights[order] > 0]
    event = Scored(event.scores[order], event.hits[order], given_weights=event.own_weights[order])
    if len(event) <= _MOST_ROWS:
        return event
    scores, which = distinct_scores(event.scores)
    rows_up_to = np.cumsum(np.bincount(which))
    # Both terms grow with the score, so that cells are runs of neighbours.
    cell = (rows_up_to - 1) * _CELLS // len(event) + bin_of(scores, edges)
    cell = np.unique(cell, return_inverse=True)[1][which]
    weights, _, counts = weight_in(cell, event.weights)
    scores = np.bincount(cell, event.weights * event.scores) / weights
    hits = np.bincount(cell, event.weights * event.hits) / weights
    return Scored(scores, hits, counts, given_weights=weights)


def redraw(
    rows: Rows | Scored,
    statistics: Sequence[Statistic],
    n_resamples: int,
    rng: np.random.Generator,
    progress: bool | None = False,
    truths: Iterable[Array] | None = None,
) -> Floats:
    """Return statistics of drawn outcomes, (resamples, statistics): nan if groups are too few to tell.

    Labels are drawn from the probabilities of the rows, or from `truths`: probabilities (n, k) for each resample.
    """
    if isinstance(rows, Rows) and rows.groups is not None and rows.cached(label_law) is not None:
        warnings.warn(
            "weights are a function of the label, and rows are in groups: tests and bands hold the weights fixed, and "
            "reject too often. Take one row of each group and leave out the groups, or leave out the weights",
            GlayersWarning,
            stacklevel=3,
        )
    drawn = np.full((n_resamples, len(statistics)), np.nan)
    if rows.groups is not None and rows.n_units < _FEWEST_GROUPS:
        return drawn
    if isinstance(rows, Scored):
        outcomes = _hits_and_weights(rows, n_resamples, rng)
    else:
        outcomes = _labels_and_weights(rows, n_resamples, rng, truths)
    done = 0
    with progress_bar(progress, "testing calibration", n_resamples) as advance:
        for batch, weights in outcomes:
            lines = slice(done, done + len(batch))
            for number, statistic in enumerate(statistics):
                drawn[lines, number] = statistic(batch, weights)
            done = lines.stop
            advance(len(batch))
    return drawn


def _hits_and_weights(event: Scored, n_resamples: int, rng: np.random.Generator) -> Iterator[tuple[Array, Floats]]:
    """Yield drawn hits of an event, or shares of hits, (b, n), and weights (1, n)."""
    scores = np.clip(event.scores, 0.0, 1.0)  # rounding may have left them just outside
    for lines in row_blocks(n_resamples, len(event)):
        shape = (lines.stop - lines.start, len(event))
        if event.counts is None:
            hits = (rng.random(shape) < scores).astype(np.float64)
        else:
            whole = np.round(event.counts).astype(np.int64)
            shares = rng.binomial(whole, scores, shape) / whole
            hits = scores + np.sqrt(whole / event.counts) * (shares - scores)  # with the variance of all rows
        yield hits, event.weights[None]


def _labels_and_weights(
    rows: Rows, n_resamples: int, rng: np.random.Generator, truths: Iterable[Array] | None
) -> Iterator[tuple[Array, Floats]]:
    """Yield drawn labels (b, n), and weights that sum to 1, (b or 1, n)."""
    if truths is not None:
        for probabilities in truths:
            for labels in redrawn_labels(probabilities, 1, rng):
                yield labels, rows.weights[None]
        return
    law = rows.cached(label_law)
    if law is None or rows.groups is not None:
        for labels in redrawn_labels(rows.probabilities, n_resamples, rng):
            yield labels, rows.weights[None]
        return
    for labels in redrawn_labels(law.probabilities, n_resamples, rng, _LABELS // 8):
        weights = law.own * law.class_weights[labels]
        yield labels, weights / weights.sum(axis=1, keepdims=True)


def redrawn_labels(
    probabilities: Array, n_resamples: int, rng: np.random.Generator, entries: int = _LABELS
) -> Iterator[Ints]:
    """Yield labels (b, n) drawn from probabilities (n, k), some resamples at a time."""
    n_rows, n_classes = probabilities.shape
    step = max(1, entries // n_rows)
    for first in range(0, n_resamples, step):
        labels = np.empty((min(step, n_resamples - first), n_rows), dtype=np.int32)
        for rows in row_blocks(n_rows, max(n_classes, len(labels))):
            uniform = rng.random((rows.stop - rows.start, len(labels)))
            labels[:, rows] = labels_at(probabilities[rows], uniform).T
        yield labels


def labels_at(block: Array, uniform: Floats) -> Array:
    """Return the class where each row's cumulative probability passes its uniform numbers (rows, resamples)."""
    reached = np.cumsum(np.maximum(block.astype(np.float64), 0.0), axis=1)
    reached /= reached[:, -1:]
    if block.shape[1] == 2:
        return (uniform >= reached[:, :1]).astype(np.int64)
    # Row i lies in i..i+1: end to end they make one ascending list, and one search serves all rows. The factor keeps
    # a number just below 1 from rounding into the next row.
    row = np.arange(len(block))[:, None]
    wanted = uniform * (1 - 1e-9) + row
    places = np.searchsorted((reached + row).ravel(), wanted.ravel(), side="right")
    return places.reshape(wanted.shape) - row * block.shape[1]


class LabelLaw(NamedTuple):
    """How labels and weights occur together, if the weight of a row depends on its label.

    Given x, label c has a probability of `probabilities[:, c]`, and its row the weight `own * class_weights[c]`.
    """

    probabilities: Floats
    class_weights: Floats
    own: Floats


def label_law(rows: Rows) -> LabelLaw | None:
    """Return the law of labels and weights, if weights depend on the label; None if they do not, or for few rows.

    Such rows were drawn class by class, and their weights make up for it. So labels do not occur among them as often as
    a calibrated model says: given x, label c has a probability proportional to p_c / w_c, and its row the weight w_c.
    The mean of weight * (hit - score) is 0 under this law, and not if labels change and weights stay. A weight may have
    another factor that does not depend on the label given x, such as that of a site: it stays with its row.
    """
    if rows.given_weights is None:
        return None
    scaled = rows.given_weights / rows.given_weights.max()  # no factor may overflow
    counted = scaled > 0
    labels = rows.labels[counted]
    counts = np.bincount(labels, minlength=rows.n_classes)
    if len(labels) < _LEAST_ROWS + np.count_nonzero(counts):
        return None
    weights = scaled[counted]
    class_weights = _weights_by_class(labels, weights, rows.n_classes)
    if class_weights is None:
        log_weights = np.log(weights)
        of_groups = rows.group_numbers[counted]
        class_weights = _factors_of_classes(labels, log_weights, rows.probabilities[counted], of_groups)
    seen = counts > 0
    if class_weights is None or class_weights[seen].max() <= class_weights[seen].min() * (1 + _CLOSE):
        return None
    # Of the weights that a class without rows may have, the largest makes the variance largest.
    class_weights = np.where(seen, class_weights, class_weights[seen].max()) / class_weights[seen].max()
    tilted = np.maximum(rows.probabilities, 0.0) / class_weights
    own = scaled / class_weights[rows.labels]
    return LabelLaw(tilted / tilted.sum(axis=1, keepdims=True), class_weights, own / own.max())


def _weights_by_class(labels: Ints, weights: Floats, n_classes: int) -> Floats | None:
    """Return the weight of each class if all its rows have the same; 0 without rows."""
    lowest = np.full(n_classes, np.inf)
    np.minimum.at(lowest, labels, weights)
    highest = np.zeros(n_classes)
    np.maximum.at(highest, labels, weights)
    if (highest <= lowest * (1 + _CLOSE)).all():
        return highest
    return None


def _factors_of_classes(labels: Ints, log_weights: Floats, probabilities: Array, groups: Ints) -> Floats | None:
    """Return the factor by which each label changes the weight, or None if the weights do not depend on the label.

    Where they do not, rows of the same expected weight of their label have no more weight if they have that label: the
    label's mean weight over all other rows says nothing about the weight of a row. Rows are compared within bins of the
    expectation, and factors fitted there by least squares.
    """
    n_classes = probabilities.shape[1]
    counts = np.bincount(labels, minlength=n_classes)
    totals = np.bincount(labels, log_weights, n_classes)
    means = np.where(counts > 0, totals / np.maximum(counts, 1), log_weights.mean())
    expected = probabilities @ means
    place = np.empty(len(labels), dtype=np.int64)
    place[np.argsort(expected, kind="stable")] = np.arange(len(labels))
    n_bins = min(_WEIGHT_BINS, len(labels) // _LEAST_ROWS)
    in_bin = membership(place * n_bins // len(labels), n_bins)
    sizes = in_bin.sum(axis=1)

    def within_bins(values: Floats) -> Floats:
        return np.asarray(values - in_bin.T @ (in_bin @ values / sizes))

    of_row = within_bins(log_weights)
    of_label = means[labels] - (log_weights - means[labels]) / np.maximum(counts[labels] - 1, 1)
    of_label = within_bins(np.where(counts[labels] > 1, of_label, log_weights.mean()))
    covariances = np.bincount(groups, of_row * of_label)
    if covariances.sum() <= _MOST_BY_CHANCE * math.sqrt(float(covariances @ covariances)):
        return None
    of_class = (in_bin @ membership(labels, n_classes).T).toarray()  # rows of each class in each bin
    products = np.diag(counts + _PRIOR_ROWS) - of_class.T @ (of_class / sizes[:, None])
    return np.exp(np.linalg.solve(products, np.bincount(labels, of_row, n_classes)))
