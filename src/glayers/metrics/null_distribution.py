"""Rows -> the errors that a calibrated model would have shown on them: by drawn labels, or by Brownian motion.

Labels are drawn from the model's own probabilities, and each draw is measured as the observed labels are (`redraw`).
KS and ECE are functions of the running sum of weight * (hit - score) in order of score (`RunningSum`).

Weights that are a function of the label, as in a case-control study, are drawn with it (`label_law`).

Rows of one group, such as the pixels of an image, may depend on each other in a way no model states. Labels are drawn
as if they did not, and every error is divided by the standard deviation that the sums of its groups show, as in
Student's t-test. So rows of a group may depend in any way. Liang and Zeger, "Longitudinal Data Analysis Using
Generalized Linear Models", Biometrika 1986. Fewer than 8 groups of equal size say too little about it.

The KS error of independent rows needs no draws (`KSNullDistribution`). Under calibration the running sum has
independent steps of mean 0 and variance w^2 s(1 - s). Measured on the clock of that variance it becomes Brownian motion
on [0, 1]; nothing pulls it back to 0 at the end, so it is not a bridge. Arrieta-Ibarra et al., "Metrics of Calibration
for Probabilistic Predictions", JMLR 2022. Two corrections make this accurate for finite samples:

- The sum moves in steps, and passes a line by some distance where Brownian motion would touch it.
- Sums of uneven coin flips are skewed: far out, their tail probability is many times that of the normal distribution
  (ten times at p = 0.001 and two expected hits). A saddlepoint approximation accounts for it: tilt all coins by one
  factor until the expected sum is the observed one. Lugannani and Rice, Advances in Applied Probability 1980.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from glayers.arrays import Array, Floats, Ints, effective_rows, kish, row_blocks
from glayers.checks import number_between, whole_number
from glayers.errors import GlayersWarning
from glayers.metrics.events import ROUNDING, Rows, Scored, bin_of, check_seed, last_of_ties, warn_of_few_rows
from glayers.metrics.metric import membership
from glayers.progress import progress_bar

_ENTRIES = 131_072  # of a batch of residuals: 1 MB in float64, so that what is made of it stays in the cache
_LABELS = 1 << 24  # drawn at a time: 64 MB
_PIECES = 4  # of the range of scores: 16 groups whose errors at low and high scores cancel were rejected in 58 %
# The square of Student's t at 5 %, over that of the normal distribution, is about 1 + 2.4 / groups.
_FEW_GROUPS = 2.4
_FEWEST_GROUPS = 7.5  # 8 of nearly equal size
_LEAST_ROWS = 10  # beyond one per class: of fewer rows, weights may follow the labels by chance
MEAN_LARGEST = math.sqrt(math.pi / 2)  # expected max |B(t)|
# The mean distance by which a sum steps past a line, in standard deviations of a step: -zeta(1/2) over the root of
# 2 pi. Chernoff, Sankhya 1965; Siegmund, Advances in Applied Probability 1979.
_OVERSHOOT = 0.5826
_FEWEST_STEPS = 20  # with fewer steps the mean says little about the last one; a smaller correction is conservative
_FAR_OUT = 1.5  # standard deviations from where on skewness matters; nearer, a saddlepoint of few coins does not help
_FEW = 20  # expected hits, or misses: with 10, 6.2 % of calibrated models are rejected at 5 %, and with 2, up to 9 %
_CLOSE = 1e-9  # relative rounding of long sums, and of weights that were computed


class RunningSum:
    """The running sum of weight * (hit - score) in order of score, and the places where it counts.

    KS is its largest size wherever a score ends: rows of equal score enter together. ECE, if there are `edges`, adds up
    the sizes of what each bin adds to it. A row hits if its label is one of the classes (n, r) that the row names.
    """

    def __init__(self, event: Scored, named: Ints, edges: Floats | None = None) -> None:
        order = np.argsort(event.scores, kind="stable")
        self.order = order[event.weights[order] > 0]
        self.scores = event.scores[self.order]
        self.hits = event.hits[self.order]
        self.weights = event.weights[self.order]
        self.named = named[self.order]
        self.binned = edges is not None
        places = self.scores
        if edges is not None:
            places = bin_of(self.scores, edges).astype(np.float64)
        self.ends = np.flatnonzero(last_of_ties(places))
        self.groups = None
        if event.groups is not None:
            self.groups = event.group_numbers[self.order]
            self._divide(self.groups)

    def errors(self, labels: Ints, weights: Floats) -> Floats:
        """Return the error for each line of labels (b, n) and weights (b or 1, n).

        With groups it is scaled to the spread that the observed groups show.
        """
        step = max(1, _ENTRIES // len(self.order))
        found = []
        for first in range(0, len(labels), step):
            drawn = np.take(labels[first : first + step], self.order, axis=1)
            hits = np.zeros(drawn.shape, dtype=bool)
            for named in self.named.T:
                hits |= drawn == named
            own = weights if len(weights) == 1 else weights[first : first + step]
            residuals = np.take(own, self.order, axis=1) * (hits - self.scores)
            errors = self._sizes(residuals)
            if self.groups is not None:
                errors *= self._spread / self._spreads(residuals)
            found.append(errors)
        return np.concatenate(found)

    @property
    def error(self) -> float:
        """The observed error."""
        return float(self._sizes(self._residuals[None])[0])

    def step_variances(self) -> Floats:
        """Return the variance of each step of the sum if rows are independent."""
        return np.add.reduceat(self._variances, np.append(0, self.ends[:-1] + 1))

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
    def _variances(self) -> Floats:
        scores = np.clip(self.scores, 0.0, 1.0)  # rounding may have left them just outside
        return self.weights**2 * scores * (1 - scores)

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
        reached = np.cumsum(self._variances)
        clock = reached / (reached[-1] or 1.0)
        piece = np.minimum(_PIECES * clock, _PIECES - 1).astype(np.int64)
        cells, cell = np.unique(groups * _PIECES + piece, return_inverse=True)
        self._of_cell = membership(cell, len(cells))
        self._of_group = membership(cells // _PIECES, int(groups.max()) + 1)
        self._cell_piece = cells % _PIECES
        self._of_piece = membership(self._cell_piece, _PIECES)
        held = np.bincount(cell, self.weights)
        squares = np.bincount(cell, self.weights**2)
        self._cell_share = held / np.bincount(self._cell_piece, held)[self._cell_piece]
        left = 1 - self._cell_share  # centring takes as much from the square of a sum
        others = np.maximum(kish(held, squares) - 1, 0.0)
        counts = (others > ROUNDING) & (left > ROUNDING)
        self._pair_weights = counts / np.where(counts, left, 1.0)
        self._others = counts * others
        self._unseen = float(self._others @ squares) / len(cell)
        self._counted = counts.astype(np.float64)
        self._independent = float(reached[-1]) or 1.0  # where nothing is uncertain, any will do
        variances = np.bincount(groups, self._variances)
        n_rows = kish(np.bincount(groups, self.weights), np.bincount(groups, self.weights**2))
        self._if_copies = float(variances @ np.maximum(n_rows - 1, 0.0))
        # Few groups, or one that dominates the others, do not know their own spread well: the variance is raised, by
        # the groups that carry it if rows of a group are copies.
        n_groups = max(effective_rows(variances * n_rows), 1.0)
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


Statistic: TypeAlias = Callable[[Ints, Floats], Floats]  # labels (b, n) and weights (b or 1, n) become errors (b,)


def generator(n_resamples: int, level: float, random_state: int | None) -> np.random.Generator:
    """Return the one source of randomness of a test, after checking that there are enough draws for its bound."""
    number_between(level, "level", 0, 1)
    least = max(1, math.ceil(level / (1 - level) - ROUNDING))
    whole_number(n_resamples, f"for level {level:g}, n_resamples", least)
    return np.random.default_rng(check_seed(random_state))


def redraw(
    rows: Rows,
    statistics: Sequence[Statistic],
    n_resamples: int,
    rng: np.random.Generator,
    progress: bool | None = False,
    truths: Iterable[Array] | None = None,
) -> Floats:
    """Return statistics of drawn labels, (resamples, statistics): nan if groups are too few to tell.

    Labels are drawn from the probabilities of the rows, or from `truths`: probabilities (n, k) for each resample.
    """
    if rows.groups is not None and rows.cached(label_law) is not None:
        warnings.warn(
            "weights are a function of the label, and rows are in groups: tests and bands hold the weights fixed, and "
            "reject too often. Take one row of each group and leave out the groups, or leave out the weights",
            GlayersWarning,
            stacklevel=3,
        )
    warn_of_few_rows(rows)
    drawn = np.full((n_resamples, len(statistics)), np.nan)
    if rows.groups is not None and rows.n_units < _FEWEST_GROUPS:
        return drawn
    done = 0
    with progress_bar(progress, "redrawing labels", n_resamples) as advance:
        for labels, weights in _labels_and_weights(rows, n_resamples, rng, truths):
            batch = slice(done, done + len(labels))
            for number, statistic in enumerate(statistics):
                drawn[batch, number] = statistic(labels, weights)
            done = batch.stop
            advance(len(labels))
    return drawn


def _labels_and_weights(
    rows: Rows, n_resamples: int, rng: np.random.Generator, truths: Iterable[Array] | None
) -> Iterator[tuple[Ints, Floats]]:
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
    probabilities, class_weights = law
    for labels in redrawn_labels(probabilities, n_resamples, rng, _LABELS // 8):
        weights = class_weights[labels] * (rows.own_weights > 0)
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
            labels[:, rows] = _labels_at(probabilities[rows], uniform).T
        yield labels


def _labels_at(block: Array, uniform: Floats) -> Array:
    """Return the class where each row's cumulative probability passes its uniform numbers (rows, resamples)."""
    reached = np.cumsum(np.maximum(block.astype(np.float64), 0.0), axis=1)
    reached /= reached[:, -1:]
    if block.shape[1] == 2:
        return uniform >= reached[:, :1]
    # Row i lies in i..i+1: end to end they make one ascending list, and one search serves all rows. The factor keeps
    # a number just below 1 from rounding into the next row.
    row = np.arange(len(block))[:, None]
    wanted = uniform * (1 - 1e-9) + row
    places = np.searchsorted((reached + row).ravel(), wanted.ravel(), side="right")
    return places.reshape(wanted.shape) - row * block.shape[1]


def label_law(rows: Rows) -> tuple[Floats, Floats] | None:
    """Return the probabilities of labels and the weights of classes, if the weight is a function of the label.

    Such rows were drawn class by class, and their weights make up for it. So labels do not occur among them as often as
    a calibrated model says: given x, label c has a probability proportional to p_c / w_c, and its row the weight w_c.
    The mean of weight * (hit - score) is 0 under this law, and not if labels change and weights stay. None if weights
    vary within a class, or are the same for all.
    """
    if rows.given_weights is None:
        return None
    counted = rows.given_weights > 0
    labels = rows.labels[counted]
    weights = rows.given_weights[counted]
    counts = np.bincount(labels, minlength=rows.n_classes)
    lowest = np.full(rows.n_classes, np.inf)
    np.minimum.at(lowest, labels, weights)
    highest = np.zeros(rows.n_classes)
    np.maximum.at(highest, labels, weights)
    constant = (highest <= lowest * (1 + _CLOSE)).all()
    differ = highest.max() > lowest.min() * (1 + _CLOSE)
    if not (constant and differ and counts.sum() >= _LEAST_ROWS + np.count_nonzero(counts)):
        return None
    # Of the weights that a class without rows may have, the largest makes the variance largest.
    class_weights = np.where(counts > 0, highest, highest.max()) / highest.max()
    tilted = np.maximum(rows.probabilities, 0.0) / class_weights
    return tilted / tilted.sum(axis=1, keepdims=True), class_weights


class KSNullDistribution:
    """Distribution of the largest size of the running sum, for rows and the variance of each step of the sum.

    Keeps the rows whose outcome is uncertain, with weights in units of the sum's standard deviation, and the mean
    `overshoot` in the same units.
    """

    def __init__(self, scores: Floats, weights: Floats, step_variances: Floats) -> None:
        flips = scores * (1 - scores)
        variances = weights**2 * flips
        self.deviation = math.sqrt(float(variances.sum()))
        self.overshoot = 0.0
        matter = variances > 1e-4 * variances.mean()  # all other rows together change nothing
        if flips.sum() < ROUNDING or self.deviation == 0:  # no miss will be seen; the square of a weight may be 0
            self.deviation = 0.0
            matter[:] = False
        else:
            self.overshoot = mean_overshoot(step_variances)
        self.scores = scores[matter]
        self.weights = weights[matter] / (self.deviation or 1.0)

    @property
    def too_few_uncertain_rows(self) -> bool:
        """Whether so few rows have an uncertain outcome that the approximations are off by more than a tenth."""
        flips = self.scores * (1 - self.scores)
        return self.deviation > 0 and float(self.weights**4 @ flips) * _FEW > 1  # weights^2 @ flips is 1

    def p_value(self, value: float) -> float:
        """P(largest size of the running sum >= value).

        >>> null = KSNullDistribution(np.full(400, 0.5), np.full(400, 1 / 400), np.full(400, 0.25 / 400**2))
        >>> round(null.p_value(0.05), 3)
        0.085
        """
        if value <= _CLOSE:
            return 1.0
        if self.deviation == 0:  # every score is practically 0 or 1: a calibrated model makes no error at all
            return 0.0
        height = value / self.deviation + self.overshoot
        if height <= _FAR_OUT:
            return brownian_exit_probability(height)
        at_the_end = self._tail_at_the_end(self.scores, height) + self._tail_at_the_end(1 - self.scores, height)
        # How much likelier the sum is outside at some time than outside at the end: twice, from a height of 8 on.
        near = min(height, 8.0)
        ratio = brownian_exit_probability(near) / math.erfc(near / math.sqrt(2))
        return min(brownian_exit_probability(_FAR_OUT), ratio * at_the_end)

    def quantile_above(self, probability: float) -> float:
        """Return the value that the largest size of the running sum exceeds with this probability."""
        value = self._brownian_value(probability)
        for _ in range(2):  # the correction changes slowly
            corrected = self.p_value(value)
            if not 0 < corrected < 1:
                break
            ratio = corrected / brownian_exit_probability(value / self.deviation + self.overshoot)
            value = self._brownian_value(min(1.0, probability / ratio))
        largest_sum = max(self._largest_sum(self.scores), self._largest_sum(1 - self.scores))
        return min(value, self.deviation * largest_sum)

    def mean(self) -> float:
        """Return the expected largest size of the running sum."""
        return self.deviation * max(0.0, MEAN_LARGEST - self.overshoot)

    def _brownian_value(self, probability: float) -> float:
        return self.deviation * max(0.0, brownian_height(probability) - self.overshoot)

    def _largest_sum(self, scores: Floats) -> float:
        """The sum of weight * (hit - score) if every row hits."""
        return float(self.weights @ (1 - scores))

    def _tail_at_the_end(self, scores: Floats, height: float) -> float:
        most = self._largest_sum(scores)
        if height - self.overshoot > most:
            return 0.0
        return tail_of_sum(scores, self.weights, min(height, most))


def brownian_exit_probability(height: float) -> float:
    """P(max |B(t)| > height, t in [0, 1]) for Brownian motion B.

    >>> round(brownian_exit_probability(2.2414), 4)
    0.05
    """
    if height <= 0:
        return 1.0
    odd = range(1, 16, 2)  # with signs + - + -; either series has converged to float64 by then
    if height < 1:
        staying = sum((-1) ** (m // 2) / m * math.exp(-((m * math.pi / height) ** 2) / 8) for m in odd)
        return 1 - 4 / math.pi * staying
    return 2 * sum((-1) ** (m // 2) * math.erfc(m * height / math.sqrt(2)) for m in odd)


def brownian_height(probability: float) -> float:
    """Return the height that max |B(t)| exceeds with this probability.

    >>> round(brownian_height(0.05), 4)
    2.2414
    """
    from scipy.optimize import brentq  # on first use: importing it takes longer than importing glayers

    def excess(height: float) -> float:
        return brownian_exit_probability(height) - probability

    return float(brentq(excess, 0.0, 40.0, xtol=1e-14))


def mean_overshoot(variances: Floats) -> float:
    """Return how far a sum with steps of these variances passes a line, in units of its final standard deviation.

    The sum stays between two lines with the probability of Brownian motion between lines further out by this much.
    """
    total = float(variances.sum())
    typical = float(np.sqrt(variances) @ variances) / total  # steps weighted by their variance
    return _OVERSHOOT * min(typical / math.sqrt(total), 1 / math.sqrt(_FEWEST_STEPS))


def tail_of_sum(scores: Floats, weights: Floats, at_least: float) -> float:
    """P(sum of weight * (hit - score) >= at_least), for scores strictly between 0 and 1 and a sum that can be reached.

    Of 100 fair coins 61 or more show heads with probability 0.0176. The method ignores steps, so ask for 60.5:

    >>> round(tail_of_sum(np.full(100, 0.5), np.ones(100), at_least=10.5), 4)
    0.0178
    """
    from scipy.special import expit

    log_hit = np.log(scores)
    log_miss = np.log1p(-scores)
    all_hit = float(np.exp(log_hit.sum()))
    if at_least >= float(weights @ (1 - scores)) * (1 - _CLOSE):
        return all_hit
    tilt = _tilt(scores, weights, at_least)
    log_moment = float(np.logaddexp(log_miss, log_hit + tilt * weights).sum() - tilt * (weights @ scores))
    cost = math.sqrt(2 * (tilt * at_least - log_moment))
    tilted = expit(log_hit - log_miss + tilt * weights)
    spread = tilt * math.sqrt(float(weights**2 @ (tilted * (1 - tilted))))
    density = math.exp(-(cost**2) / 2) / math.sqrt(2 * math.pi)
    return max(all_hit, math.erfc(cost / math.sqrt(2)) / 2 + density * (1 / spread - 1 / cost))


def _tilt(scores: Floats, weights: Floats, at_least: float) -> float:
    """Return the factor at which coins of log-odds + factor * weight sum to this much above the mean, as expected."""
    from scipy.optimize import brentq
    from scipy.special import expit, logit

    odds = logit(scores)

    def excess(tilt: float) -> float:
        return float(weights @ (expit(odds + tilt * weights) - scores)) - at_least

    high = 1.0
    while excess(high) < 0:
        high *= 4
    return float(brentq(excess, 0.0, high))
