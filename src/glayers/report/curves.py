"""Predictions -> the numbers behind a figure: small frozen records that matplotlib and the page draw.

A reliability diagram shows how often an event happens, against its score. Each has a consistency band around the
diagonal: where the points of a calibrated model with the same scores would lie. A point outside its band shows
miscalibration; one inside may be chance. Broecker and Smith, "Increasing the Reliability of Reliability Diagrams",
Weather and Forecasting 2007. Bands treat rows as independent, also where there are groups.

KS curves are drawn against the fractile of rows. Rows are sorted by score; fractile t holds the fraction t of them with
the lowest scores. Up to there, scores and hits add up to the two cumulative curves. Gupta et al., "Calibration of
Neural Networks using Splines", ICLR 2021.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from glayers.arrays import Bools, Floats, Ints
from glayers.metrics import CalibrationTest, Event, adjust, ks_test, top
from glayers.metrics.calibration_errors import inner_edges
from glayers.metrics.events import Scored, bin_of, check_event, check_rows, last_of_ties
from glayers.metrics.metric import weight_in

__all__ = ["errors_above", "ks_curves", "predicted_gaps", "reliability"]

LEVEL = 0.95  # of all bands, intervals and tests
_ROUNDING = 1e-9
# Unicode marks for right-to-left writing: they would also turn the text around a class name.
_TURNING = re.compile(r"[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, eq=False)
class Reliability:
    """One entry for every bin that holds a row: its edges, means, number of rows, and band of the accuracy."""

    low: Floats
    high: Floats
    confidence: Floats
    accuracy: Floats
    count: Floats
    band_low: Floats
    band_high: Floats

    @property
    def outside(self) -> Bools:
        """Which accuracies leave their band, by more than rounding."""
        return (self.accuracy < self.band_low - _ROUNDING) | (self.accuracy > self.band_high + _ROUNDING)


@dataclass(frozen=True, eq=False)
class KsCurves:
    """Curves from fractile 0 to 1; the gap at index `where` is the KS error, `test.value`."""

    fractile: Floats
    cumulative_score: Floats
    cumulative_hits: Floats
    where: int
    test: CalibrationTest


@dataclass(frozen=True, eq=False)
class PredictedGaps:
    """For each class, the rows that are predicted as it: their number, and mean confidence minus accuracy.

    The gap has the ends of its interval. `p_value` tests that it is zero, and is adjusted for the number of classes by
    Holm's method. Classes that are never predicted have NaN.
    """

    names: list[str]
    count: Floats
    gap: Floats
    gap_low: Floats
    gap_high: Floats
    p_value: Floats

    @property
    def off(self) -> list[int]:
        """The classes with a significant gap, the largest gap first."""
        worst_first = np.argsort(-np.nan_to_num(np.abs(self.gap)), kind="stable").tolist()
        return [c for c in worst_first if self.p_value[c] <= 1 - LEVEL]

    @property
    def n_predicted(self) -> int:
        """The number of classes that some row is predicted as."""
        return int(np.count_nonzero(self.count))

    @property
    def detectable(self) -> float:
        """The gap of one class that shows in 80 % of samples, if its interval is as wide as that of most classes."""
        normal = NormalDist()
        tail = (1 - LEVEL) / 2
        # In standard errors. A test must reject after the adjustment for the number of classes.
        needed = normal.inv_cdf(1 - tail / self.n_predicted) + normal.inv_cdf(0.8)
        half_width = float(np.nanmedian(self.gap_high - self.gap_low)) / 2
        return half_width * needed / normal.inv_cdf(1 - tail)


@dataclass(frozen=True, eq=False)
class ErrorsAbove:
    """For each threshold of the confidence, the rows above it: their share, and the errors promised and made.

    Both are fractions of these rows, NaN where there are none. `band_low` and `band_high` are where the errors of a
    calibrated model lie.
    """

    threshold: Floats
    coverage: Floats
    promised: Floats
    actual: Floats
    band_low: Floats
    band_high: Floats

    @property
    def kept(self) -> Bools:
        """Whether the errors are those promised, up to sampling error."""
        return (self.band_low - _ROUNDING <= self.actual) & (self.actual <= self.band_high + _ROUNDING)


def reliability(rows: object, *, event: Event | str = top, n_bins: int = 15) -> Reliability:
    """Return the binned reliability diagram of an event.

    The number of hits of a calibrated model varies at most as much as a binomial number with the mean score of the bin
    (Hoeffding, 1956), which gives the band. Weights count by Kish's effective size.

    Parameters
    ----------
    rows
        `Predictions` or `Confidences`.
    event
        `top`, `rank(r)`, `within_top(r)`, `label(c)` or `one_of(classes)`.
    n_bins
        The number of bins, which are equally wide.

    Returns
    -------
    Reliability
        One entry per bin that holds a row.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = reliability(Confidences([0.62, 0.58, 0.97, 0.93], [1, 0, 1, 1]), n_bins=5)
    >>> found.low.tolist(), found.accuracy.tolist(), found.count.tolist()
    ([0.4, 0.6, 0.8], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0])
    """
    scored = check_event(rows, event=event)
    bins = bin_of(scored.scores, inner_edges(n_bins))
    weight, n_effective, confidence, accuracy = _means(bins, scored, n_bins)
    held = np.flatnonzero(weight)
    ends = _band(confidence[held], n_effective[held])
    count = weight[held] * scored.total
    return Reliability(held / n_bins, (held + 1) / n_bins, confidence[held], accuracy[held], count, *ends)


def _means(place: Ints, event: Scored, n_places: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return of the rows of each place: their weight and effective number, mean score, and share of hits.

    Rows of one group in one place count as copies.
    """
    weight, _, n_effective = weight_in(place, event.weights, n_places)
    if event.groups is not None:
        n_groups = event.group_numbers.max() + 1
        units, unit_of = np.unique(place * n_groups + event.group_numbers, return_inverse=True)
        n_effective = weight_in(units // n_groups, np.bincount(unit_of, event.weights), n_places)[2]
    held = np.where(weight > 0, weight, np.nan)
    scores = np.bincount(place, event.weights * event.scores, n_places)
    hits = np.bincount(place, event.weights * event.hits, n_places)
    return weight, n_effective, scores / held, np.clip(hits / held, 0.0, 1.0)


def _band(mean: Floats, n_effective: Floats) -> list[Floats]:
    """Return between which fractions a binomial number with this mean lies."""
    from scipy.special import bdtrik  # slow to import

    uncertain = np.clip(mean, _ROUNDING, 1 - _ROUNDING)
    below = (1 - LEVEL) / 2
    ends = []
    for tail in (below, 1 - below):
        events = np.ceil(bdtrik(tail, n_effective, uncertain) - _ROUNDING)
        ends.append(np.clip(events / n_effective, 0.0, 1.0))
    return ends


def errors_above(rows: object, *, event: Event | str = top) -> ErrorsAbove:
    """Return what happens where only scores above a threshold are acted on, for thresholds from 50 to 99 %.

    Parameters
    ----------
    rows, event
        As in `reliability`.

    Returns
    -------
    ErrorsAbove
        One entry per threshold.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = errors_above(Confidences([0.6, 0.9, 0.9, 0.96], [1, 1, 0, 1]))
    >>> found.coverage[[0, 40]].tolist(), found.promised[[40]].round(3).tolist()  # from 50 % and from 90 % on
    ([1.0, 0.75], [0.08])
    """
    scored = check_event(rows, event=event)
    order = np.argsort(-scored.scores, kind="stable")
    weights = scored.weights[order]
    thresholds = np.arange(50, 100) / 100
    last = np.searchsorted(-scored.scores[order], -thresholds + _ROUNDING)

    def sums(values: Floats) -> Floats:
        return np.append(0.0, np.cumsum(values))[last]

    coverage = sums(weights)
    held = np.where(coverage > 0, coverage, np.nan)
    promised = sums(weights * (1 - scored.scores[order])) / held
    actual = sums(weights * (1 - scored.hits[order])) / held
    squares = sums(weights**2)
    if scored.groups is not None:  # rows of one group count as copies
        groups = scored.group_numbers[order]
        squares = np.array([np.square(np.bincount(groups[:n], weights[:n])).sum() for n in last])
    ends = _band(promised, held**2 / squares)
    return ErrorsAbove(thresholds, coverage, promised, actual, *ends)


def ks_curves(rows: object, *, event: Event | str = top, points: int = 201, random_state: int | None = 0) -> KsCurves:
    """Return the KS curves of an event and the KS test.

    Parameters
    ----------
    rows, event
        As in `reliability`. With groups the test uses resampling.
    points
        About how many fractiles the curves have; that of the largest gap is always among them.
    random_state
        The seed of the test's draws if there are groups.

    Returns
    -------
    KsCurves
        The curves and the test.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = ks_curves(Confidences([0.8, 0.6, 0.7], [True, True, False]))
    >>> found.fractile.round(2).tolist(), round(found.test.value, 12), found.where  # gaps 0, -0.4/3, 0.3/3, 0.1/3
    ([0.0, 0.33, 0.67, 1.0], 0.133333333333, 1)
    """
    scored = check_event(rows, event=event)
    test = ks_test(scored, level=LEVEL, random_state=random_state)
    order = scored.ascending
    scores = scored.scores[order]
    weights = scored.weights[order]
    ends = last_of_ties(scores)  # rows of equal score enter together
    fractile = np.append(0.0, np.cumsum(weights)[ends])
    score_sum = np.append(0.0, np.cumsum(weights * scores)[ends])
    hit_sum = np.append(0.0, np.cumsum(weights * scored.hits[order])[ends])
    largest = int(np.abs(score_sum - hit_sum).argmax())
    # The fractiles next above an even grid, both ends, and the largest gap.
    spread = np.searchsorted(fractile, np.linspace(0, fractile[-1], points) - 1e-12)
    shown = np.unique(np.append(spread, [0, largest, len(fractile) - 1]))
    where = int(np.searchsorted(shown, largest))
    return KsCurves(fractile[shown], score_sum[shown], hit_sum[shown], where, test)


def predicted_gaps(rows: object) -> PredictedGaps:
    """Return confidence and accuracy by predicted class, with exact binomial intervals and exact tests.

    The test asks how likely so many hits are if each row hits with the probability that the model gave (the
    Poisson-binomial distribution). Rows of a group count as one, and weights by Kish's effective size; so many rows
    then get the mean probability, whose hits vary no less (Hoeffding, 1956).

    Parameters
    ----------
    rows
        `Predictions`; rows of a group may depend on each other.

    Returns
    -------
    PredictedGaps
        One entry per class.

    Examples
    --------
    >>> from glayers import Predictions
    >>> rows = Predictions.from_probabilities(np.tile([0.9, 0.1], (40, 1)), np.repeat([0, 1], [20, 20]))
    >>> found = predicted_gaps(rows)
    >>> found.gap.round(2).tolist(), bool(found.p_value[0] < 1e-6)
    ([0.4, nan], True)
    """
    from scipy.special import betaincinv  # slow to import

    checked = check_rows(rows)
    best = checked.probabilities.argmax(axis=1)
    k = checked.n_classes
    total, n_effective, confidence, accuracy = _means(best, checked.top, k)
    known = total > 0
    n = np.where(known, n_effective, np.nan)
    hits = accuracy * n
    misses = n - hits
    # Clopper and Pearson's interval of the accuracy; the beta distribution needs positive parameters.
    tail = (1 - LEVEL) / 2
    low = betaincinv(np.maximum(hits, _ROUNDING), misses + 1, tail)
    high = betaincinv(hits + 1, np.maximum(misses, _ROUNDING), 1 - tail)
    p_value = np.full(k, np.nan)
    for c in np.flatnonzero(known):
        scores = checked.top.scores[best == c]
        if not np.isclose(n[c], len(scores)):  # rows of groups, or with weights
            scores = np.full(max(1, int(n[c])), confidence[c])
        p_value[c] = _chance_of_hits(scores, accuracy[c])
    names = class_names(checked.class_names, k)
    count = total * checked.total
    return PredictedGaps(names, count, confidence - accuracy, confidence - high, confidence - low, adjust(p_value))


def _chance_of_hits(scores: Floats, accuracy: float) -> float:
    """Return the two-sided p-value of a share of hits, if each row hits with the probability of its score.

    The exact distribution of the number of hits is the product of the rows' polynomials, multiplied in pairs.
    """
    law = np.column_stack([1 - scores, scores])
    while len(law) > 1:
        if len(law) % 2:
            certain = np.eye(1, law.shape[1])  # no hit
            law = np.concatenate([law, certain])
        size = 2 * law.shape[1] - 1
        waves = np.fft.rfft(law, size)
        law = np.fft.irfft(waves[::2] * waves[1::2], size)
    hits = accuracy * len(scores)
    numbers = np.arange(law.shape[1])
    at_most = law[0, numbers <= hits + _ROUNDING].sum()
    at_least = law[0, numbers >= hits - _ROUNDING].sum()
    return float(np.clip(2 * min(at_most, at_least), 0.0, 1.0))


def class_names(names: Sequence[str] | None, n_classes: int) -> list[str]:
    """Return the name of each class, with marks for right-to-left writing escaped, or its number."""
    if names is None:
        return [f"class {c}" for c in range(n_classes)]
    return [_TURNING.sub(lambda mark: mark[0].encode("unicode_escape").decode(), name) for name in names]
