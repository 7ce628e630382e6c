"""Confidence and correctness -> reliability diagrams: how often a model is right, against how sure it says it is.

Each comes with a consistency band, around the diagonal and not around the data: where the points of a calibrated model
with the same scores would lie. A point outside its band is miscalibration, one inside may be chance. Broecker and
Smith, "Increasing the Reliability of Reliability Diagrams", Weather and Forecasting 2007.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from glayers.arrays import Floats
from glayers.metrics.old import corp, corp_band, smooth_ece_of
from glayers.metrics.old.bins import Binning
from glayers.metrics.old.checks import Scored, check_scored
from glayers.metrics.old.verdicts import Draws
from glayers.metrics.old.walks import Walk
from glayers.settings import number_between, whole_number

_NARROWEST = 0.2  # bandwidth times n^(1/5), as sharp as n rows allow: a good model's smECE would smooth nothing
_ENTRIES = 1 << 20  # rows x points at a time: 8 MB


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
    level: float


@dataclass(frozen=True, eq=False)
class SmoothReliability:
    """Accuracy and density of rows at some of the scores, in order, and the band of the accuracy."""

    x: Floats
    accuracy: Floats
    density: Floats
    low: Floats
    high: Floats
    level: float


@dataclass(frozen=True, eq=False)
class CorpReliability:
    """The accuracy that never falls, at some of the scores, in order, and its band."""

    x: Floats
    accuracy: Floats
    low: Floats
    high: Floats
    level: float


def reliability(
    confidence: object,
    correct: object,
    weights: object = None,
    *,
    n_bins: int = 15,
    binning: Binning = "equal_width",
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: int | None = 0,
) -> Reliability:
    """Return what is in each bin; edges of equal-mass bins are the lowest and the highest score they hold.

    >>> found = reliability([0.62, 0.58, 0.97, 0.93], [1, 0, 1, 1], n_bins=5)
    >>> found.low.tolist(), found.accuracy.tolist(), found.count.tolist()
    ([0.4, 0.6, 0.8], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0])
    """
    event = check_scored(confidence, correct, weights)
    walk = Walk.through_bins(event, weights, None, n_bins, binning)
    firsts = np.append(0, walk.ends[:-1] + 1)
    held = np.add.reduceat(walk.event.weights, firsts)
    confidences = np.add.reduceat(walk.event.weights * walk.event.scores, firsts) / held
    hits = np.add.reduceat(walk.event.weights * walk.event.hits, firsts) / held

    def added(sums: Floats) -> Floats:
        return np.diff(sums, axis=1, prepend=0.0) / held

    drawn = np.clip(confidences + walk.redrawn(added, Draws(n_resamples, level, random_state)), 0.0, 1.0)
    band_low, band_high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    low, high = walk.event.scores[firsts], walk.event.scores[walk.ends]
    if binning == "equal_width":
        place = np.searchsorted(np.arange(1, n_bins) / n_bins, high, side="left")
        low, high = place / n_bins, (place + 1) / n_bins
    return Reliability(
        low, high, confidences, np.clip(hits, 0.0, 1.0), held * walk.event.total, band_low, band_high, level
    )


def smooth_reliability(
    confidence: object, correct: object, weights: object = None, *, points: int = 101, level: float = 0.95
) -> SmoothReliability:
    """Return x + smoothed (hit - score) / density at the scores nearest to an even grid, so that rows lie under each.

    A Gaussian kernel, reflected at 0 and 1, smooths with the bandwidth of smECE, so that |accuracy - x| * density has
    the area smECE, or with 0.2 n^(-1/5) where that is wider. Residuals, not hits, are smoothed, so that a calibrated
    model lies on the diagonal on average. Blasiok and Nakkiran, "Smooth ECE", ICLR 2024. The band is that of a normal
    distribution, point by point.
    """
    whole_number(points, "points", least=2)
    reach = NormalDist().inv_cdf((1 + number_between(level, "level", 0, 1)) / 2)
    event = check_scored(confidence, correct, weights)
    scores = np.clip(event.scores, 0.0, 1.0)
    distinct = np.unique(scores[event.weights > 0])
    x = _nearest(distinct, np.linspace(distinct[0], distinct[-1], points))
    bandwidth = max(smooth_ece_of(scores, event.hits, event.weights), _NARROWEST / event.total**0.2)
    density, residual, variance = _smoothed(event._replace(scores=scores), x, bandwidth)
    noise = reach * np.sqrt(variance) / density
    accuracy = np.clip(x + residual / density, 0.0, 1.0)
    low, high = np.clip(x - noise, 0.0, 1.0), np.clip(x + noise, 0.0, 1.0)
    return SmoothReliability(x, accuracy, density, low, high, level)


def corp_reliability(
    confidence: object,
    correct: object,
    weights: object = None,
    *,
    level: float = 0.95,
    n_resamples: int = 200,
    random_state: int | None = 0,
) -> CorpReliability:
    """Return the best recalibration that never falls (isotonic), and where that of a calibrated model lies.

    Dimitriadis, Gneiting and Jordan, PNAS 2021. There are no bins to choose.

    >>> corp_reliability([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1]).accuracy.tolist()
    [0.0, 0.5, 0.5, 1.0]
    """
    event = check_scored(confidence, correct, weights)
    scores = np.clip(event.scores, 0.0, 1.0)
    found = corp(scores, event.hits, weights)
    band = corp_band(scores, event.hits, weights, n_resamples=n_resamples, level=level, random_state=random_state)
    x = np.unique(np.concatenate([found.lower, found.upper, band.scores]))
    accuracy = found.values[np.searchsorted(found.upper, x, side="left")]
    low, high = (np.interp(x, band.scores, ends) for ends in (band.lower, band.upper))
    return CorpReliability(x, accuracy, low, high, level)


def _nearest(distinct: Floats, wanted: Floats) -> Floats:
    """The distinct values nearest to the wanted ones, each once."""
    right = np.clip(np.searchsorted(distinct, wanted), 1, max(1, len(distinct) - 1))
    left = right - 1
    right = np.minimum(right, len(distinct) - 1)
    return np.unique(np.where(wanted - distinct[left] <= distinct[right] - wanted, distinct[left], distinct[right]))


def _smoothed(event: Scored, x: Floats, bandwidth: float) -> tuple[Floats, Floats, Floats]:
    """Kernel sums at x of the weight, of the residuals, and of what the residuals of a calibrated model vary by."""
    residuals = event.weights * (event.hits - event.scores)
    variances = event.weights**2 * event.scores * (1 - event.scores)
    sums = np.zeros((3, len(x)))
    step = max(1, _ENTRIES // len(x))
    for first in range(0, len(event.scores), step):
        rows = slice(first, first + step)
        kernel = _reflected_kernel(x, event.scores[rows], bandwidth)
        sums += kernel @ event.weights[rows], kernel @ residuals[rows], kernel**2 @ variances[rows]
    return sums[0], sums[1], sums[2]


def _reflected_kernel(x: Floats, scores: Floats, bandwidth: float) -> Floats:
    """Densities at x (points, rows) of normal distributions around the scores, folded back at 0 and at 1."""
    images = (scores, -scores, 2 - scores)  # further images lie beyond any bandwidth below 1/2
    total = sum(np.exp(-(((x[:, None] - image) / bandwidth) ** 2) / 2) for image in images)
    return np.asarray(total) / (bandwidth * math.sqrt(2 * math.pi))
