"""Groups and outcomes -> how strongly rows of a group depend on each other, and draws that depend as strongly.

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

No estimate sees what happens rarely to a whole group and happened to none of the few that were seen. Without such a
group, the others look better than the model says, and like independent rows. `unseen_failures` allows for this.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.metrics.events import effective_number

_LEAST_GROUPS = 7.5  # 8 of nearly equal size; with fewer, the spread between groups is too uncertain
_PIECES = 4  # of the range of scores, of equal variance, within which residuals are compared
_COPIES = 100  # draws that show how strongly copies seem to depend
_ENTRIES = 1 << 18  # of a batch of residuals: 2 MB
# Of its expected hits (or misses), what a failing group lacks. With 1, nothing unseen could ever cause a rejection, but
# an error of 15 points in 16 images would hardly be significant. With 0.6 it is, and groups that fail as a whole keep
# the level of KS (experiments/level_in_hard_cases.py).
_FAILURE_SEVERITY = 0.6
_SINGLE = 1 + 1e-9  # a group of this many rows or fewer has no pairs


def too_few_groups(groups: Ints | None, weights: Floats) -> bool:
    """Whether groups are so few, or so uneven, that they cannot tell dependence from error.

    >>> too_few_groups(np.arange(100) % 8, np.ones(100)), too_few_groups(np.arange(100) % 7, np.ones(100))
    (False, True)
    """
    if groups is None:
        return False
    return effective_number(np.bincount(groups, weights)) < _LEAST_GROUPS


class UnseenFailures(NamedTuple):
    """The error that groups of several rows show, what a failing group would take from it, and the number of groups."""

    observed_gap: float
    gap_if_failed: float
    n_groups: int

    @property
    def probability(self) -> float:
        """The probability that no group failed, if groups fail as often as would make the model calibrated.

        They fail with probability observed / (observed + if failed): failures of this share cancel the error of the
        other groups.

        >>> round(UnseenFailures(observed_gap=0.07, gap_if_failed=0.28, n_groups=8).probability, 3)  # 0.8^8
        0.168
        """
        if self.observed_gap <= 0:
            return 0.0
        return (self.gap_if_failed / (self.gap_if_failed + self.observed_gap)) ** self.n_groups

    def largest(self, probability: float) -> float:
        """The largest error that unseen failures explain with more than this probability."""
        if self.observed_gap <= 0:
            return 0.0
        return self.gap_if_failed * (probability ** (-1 / self.n_groups) - 1)


def unseen_failures(groups: Ints, weights: Floats, scores: Floats, hits: Floats, signs: Ints) -> UnseenFailures:
    """Return what groups that fail as a whole could explain of the sum of sign * weight * (hit - score)."""
    sizes = np.bincount(groups)
    used = weights * (sizes[groups] > 1)
    expected = np.where(signs > 0, scores, 1 - scores) * np.abs(signs)
    observed_gap = float(used * signs @ (hits - scores))
    gap_if_failed = _FAILURE_SEVERITY * float(used @ expected)
    return UnseenFailures(observed_gap, gap_if_failed, int(np.count_nonzero(sizes > 1)))


def _effective_rows(sums: Array, squares: Array) -> Floats:
    """Kish's effective number of rows, of each group with this sum of weights and of squared weights."""
    return np.where(squares > 0, sums**2 / np.where(squares > 0, squares, 1.0), 1.0)


class Dependence:
    """What is needed to draw outcomes that depend on each other within groups as the observed ones seem to.

    `outcomes` turns uniform numbers (b, n) into outcomes (b, n), and `residuals` outcomes into residuals (b, n, d).
    With `class_variances` (n, c), the first c residuals are those of classes, and each class has a factor of its own:
    dependence may affect some classes more than others.
    """

    def __init__(
        self,
        groups: Ints,
        weights: Floats,
        scores: Floats,
        variances: Floats,
        outcomes: Callable[[Floats], Array],
        residuals: Callable[[Array], Floats],
        observed: Array,
        rng: np.random.Generator,
        class_variances: Floats | None = None,
    ) -> None:
        self._groups = groups
        self._weights = weights
        self._n_groups = int(groups.max()) + 1
        self._outcomes = outcomes
        self._residuals = residuals
        self._rng = rng
        variance = np.bincount(groups, weights**2 * variances)
        others = _effective_rows(np.bincount(groups, weights), np.bincount(groups, weights**2)) - 1
        self._depends = float(variance @ others) > 1e-9 * float(variance.sum())  # whether groups have several rows
        self._apart = class_variances is not None
        scaled = variances[:, None] if class_variances is None else class_variances
        own = np.stack([np.bincount(groups, weights**2 * column) for column in scaled.T])  # (1 or c, groups)
        self._shared_variances = own @ others
        self._variances = np.where(own.any(axis=1), own.sum(axis=1), 1.0)  # where nothing is uncertain, any will do
        self._compare_similar(scores, variances)
        start = self._residuals(observed[None])
        rho = 1.0
        for _ in range(4):  # the best weights depend on the estimate
            self._weigh(rho)
            rho = float(self._rho(start)[0, 0])
        # The fewer groups carry the variance, the less the unknown form of the dependence averages out.
        carried = variance * (1 + rho * others)
        carrying = float(carried.sum()) ** 2 / (float(carried @ carried) or 1.0)
        self._spread = self._spreads(start) * math.sqrt(1 + 1 / max(carrying, 1.0))
        # Two rows follow the number of their group together with the square of this probability.
        self._follow = math.sqrt(min(1.0, rho / max(self._rho_of_copies(start.size), 1e-12)))

    def _rho_of_copies(self, n_residuals: int) -> float:
        """Return how strongly rows that are copies of each other seem to depend, on average."""
        batch = max(1, _ENTRIES // n_residuals)
        found = []
        for first in range(0, _COPIES, batch):
            shared = self._rng.random((min(batch, _COPIES - first), self._n_groups))
            copies = self._outcomes(shared[:, self._groups])
            found.append(self._rho(self._residuals(copies)))
        return float(np.concatenate(found).mean())

    def draw(self, n_resamples: int, width: int = 1) -> Iterator[tuple[Array, Floats]]:
        """Yield outcomes (b, n) in batches of about n * width * b numbers, and factors for their errors, (b, 1 or c).

        A factor is the spread that the observed rows seem to have, over the one that the drawn rows seem to have.
        """
        n_rows = len(self._groups)
        batch = max(1, _ENTRIES // (n_rows * width))
        for first in range(0, n_resamples, batch):
            own = self._rng.random((min(batch, n_resamples - first), n_rows))
            shared = self._rng.random((len(own), self._n_groups))[:, self._groups]
            follows = own < self._follow
            uniform = np.where(follows, shared, (own - self._follow) / (1 - self._follow or 1.0))
            drawn = self._outcomes(uniform)
            yield drawn, self._spread / self._spreads(self._residuals(drawn))

    def _compare_similar(self, scores: Floats, variances: Floats) -> None:
        """Divide each group into pieces of similar score, and sort rows by piece."""
        ascending = np.argsort(scores, kind="stable")
        reached = np.cumsum((self._weights**2 * variances)[ascending])
        piece = np.empty(len(scores), dtype=np.int64)
        clock = reached / (reached[-1] or 1.0)
        piece[ascending] = np.minimum(_PIECES * clock, _PIECES - 1).astype(np.int64)
        _, part, size = np.unique(self._groups * _PIECES + piece, return_inverse=True, return_counts=True)
        self._order = np.argsort(part, kind="stable")
        self._first = np.append(0, np.cumsum(size)[:-1])
        piece = piece[self._order]
        weights = self._weights[self._order]
        self._in_piece = np.arange(_PIECES)[:, None] == piece[self._first]  # (pieces, parts)
        in_all = np.bincount(piece, weights)[piece]
        self._share = (weights / np.where(in_all > 0, in_all, 1.0))[:, None]  # of a row in the weight of its piece
        self._row_piece = piece
        self._left = 1 - np.add.reduceat(self._share[:, 0], self._first)  # the share of all other groups
        self._squares = np.add.reduceat(weights**2, self._first)
        self._size = size
        self._rows = _effective_rows(np.add.reduceat(weights, self._first), self._squares)

    def _weigh(self, rho: float) -> None:
        """Set the weight of each part of a group in the estimate, and the weight of an unseen copy."""
        counts = (self._rows > _SINGLE) & (self._left > 1e-9)
        mean_square = np.where(counts, self._squares / self._size, 1.0)
        self._part_weights = counts / (1 + (self._rows - 1) * rho) ** 2 / mean_square
        self._unseen = float(self._part_weights @ ((self._rows - 1) * self._squares)) / len(self._groups)

    def _rho(self, residuals: Floats, apart: bool = False) -> Floats:
        """Estimate the dependence shown by residuals (b, n, d) together, (b, 1), or apart, (b, d)."""
        if self._unseen == 0:  # no two rows can be compared: independent, unless groups have several rows
            width = residuals.shape[2] if apart else 1
            return np.full((len(residuals), width), float(self._depends))
        weighted = residuals[:, self._order] * self._weights[self._order, None]
        sums = self._in_piece @ np.add.reduceat(weighted, self._first, axis=1)  # (b, pieces, d)
        centred = weighted - sums[:, self._row_piece] * self._share
        together = np.add.reduceat(centred, self._first, axis=1) ** 2
        alone = np.add.reduceat(centred**2, self._first, axis=1)
        if not apart:
            together = together.sum(axis=2, keepdims=True)
            alone = alone.sum(axis=2, keepdims=True)
        together = together.swapaxes(1, 2)
        alone = alone.swapaxes(1, 2)
        pairs = (together / np.maximum(self._left, 1e-9) - alone) @ self._part_weights + self._unseen
        largest = (alone * (self._rows - 1)) @ self._part_weights + self._unseen
        return np.clip(pairs / largest, 0.0, 1.0)

    def _spreads(self, residuals: Floats) -> Floats:
        """The standard deviation of the sum of residuals under the dependence that they show, (b, 1 or c)."""
        rho = self._rho(residuals, self._apart)[:, : len(self._variances)]
        return np.sqrt(self._variances + rho * self._shared_variances)
