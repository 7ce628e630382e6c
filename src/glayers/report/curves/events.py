"""An event of each row -> reliability diagrams, and the curves whose largest gap is the KS error.

A reliability diagram shows how often the event happens, against its score. Each has a consistency band around the
diagonal: where the points of a calibrated model with the same scores would lie. A point outside its band shows
miscalibration; one inside may be chance. Broecker and Smith, "Increasing the Reliability of Reliability Diagrams",
Weather and Forecasting 2007.

KS curves are drawn against the fractile of rows. Rows are sorted by score; fractile t holds the fraction t of them with
the lowest scores. Up to there, scores and hits add up to the two cumulative curves, and their slopes at t are the score
and the probability of a hit. Gupta et al., "Calibration of Neural Networks using Splines", ICLR 2021.
"""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from glayers.arrays import Bools, Floats
from glayers.checks import number_between, whole_number
from glayers.metrics import CalibrationTest, Event, corp, corp_band, ks_test, smooth_ece, top
from glayers.metrics.binned import Binning, bin_edges, inner_edges
from glayers.metrics.events import Scored, bin_of, check_event
from glayers.metrics.redrawing import Draws, RunningSum

__all__ = [
    "KsCurves",
    "Reliability",
    "ReliabilityCurve",
    "corp_reliability",
    "ks_curves",
    "reliability",
    "smooth_reliability",
]

_NARROWEST = 0.2  # bandwidth times n^(1/5): the smooth ECE of a good model is too narrow a bandwidth for n rows
_ENTRIES = 1 << 20  # rows x points at a time: 8 MB
_ROUNDING = 1e-9
_KNOTS = 6  # as many as in the splines of Gupta et al.


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

    @property
    def outside(self) -> Bools:
        """Which accuracies leave their band, by more than rounding: a quantile of draws may equal what was observed."""
        return (self.accuracy < self.band_low - _ROUNDING) | (self.accuracy > self.band_high + _ROUNDING)


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """The accuracy at some of the scores, in order, its band, and for a smoothed curve the density of rows.

    `error` is the smooth ECE of a smoothed curve, and the miscalibration of an isotonic one.
    """

    x: Floats
    accuracy: Floats
    low: Floats
    high: Floats
    level: float
    error: float
    density: Floats | None = None


@dataclass(frozen=True, eq=False)
class KsCurves:
    """Curves from fractile 0 to 1; the gap at index `where` is the KS error, `test.value`."""

    fractile: Floats
    cumulative_score: Floats
    cumulative_hits: Floats
    score: Floats
    hit_rate: Floats
    where: int
    test: CalibrationTest


def reliability(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event = top,
    n_bins: int = 15,
    binning: Binning = "equal_width",
    level: float = 0.95,
    n_resamples: int = 1000,
    random_state: int | None = 0,
) -> Reliability:
    """Return the binned reliability diagram of an event.

    Parameters
    ----------
    probabilities
        Array (n, k), `Predictions` or `Confidences`.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    sample_weight
        Row weights (n,).
    event
        `top`, `rank(r)`, `within_top(r)`, `label(c)` or `one_of(classes)`.
    n_bins, binning
        The number of bins, of "equal_width" or of "equal_mass". The edges of an equal-mass bin are the lowest and the
        highest score in it.
    level, n_resamples, random_state
        The level of the band, and the number and the seed of the draws it comes from.

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
    # Bands treat rows as independent, also where there are groups.
    scored = replace(check_event(probabilities, labels, sample_weight, event=event), groups=None)
    running = RunningSum.of(scored, bin_edges(scored, n_bins, binning))
    rows, firsts = running.event, np.append(0, running.ends[:-1] + 1)
    held = np.add.reduceat(rows.weights, firsts)
    confidence = np.add.reduceat(rows.weights * rows.scores, firsts) / held
    accuracy = np.clip(np.add.reduceat(rows.weights * rows.hits, firsts) / held, 0.0, 1.0)
    draws = Draws(n_resamples, level, random_state)
    gaps = running.redrawn(lambda sums: np.diff(sums, axis=1, prepend=0.0) / held, draws)
    drawn = np.clip(confidence + gaps, 0.0, 1.0)
    band_low, band_high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    low, high = rows.scores[firsts], rows.scores[running.ends]
    if binning == "equal_width":
        place = bin_of(high, inner_edges(n_bins))
        low, high = place / n_bins, (place + 1) / n_bins
    return Reliability(low, high, confidence, accuracy, held * rows.total, band_low, band_high, level)


def smooth_reliability(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event = top,
    points: int = 101,
    level: float = 0.95,
) -> ReliabilityCurve:
    """Return the kernel-smoothed reliability diagram of an event.

    The curve is x + smoothed (hit - score) / density, at the scores nearest to an even grid. A Gaussian kernel,
    reflected at 0 and 1, smooths with the bandwidth of the smooth ECE, so that `|accuracy - x|` * density has the area
    of the smooth ECE, or with 0.2 n^(-1/5) if that is wider. It smooths residuals, so a calibrated model lies on the
    diagonal on average. Blasiok and Nakkiran, "Smooth ECE", ICLR 2024.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `reliability`.
    points
        About how many points the curve has.
    level
        The level of the band, which holds point by point and comes from a normal distribution.

    Returns
    -------
    ReliabilityCurve
        The curve, the density of rows and the band.

    Examples
    --------
    >>> from glayers import Confidences
    >>> smooth_reliability(Confidences([0.7] * 10, [1] * 4 + [0] * 6)).accuracy.round(12).tolist()
    [0.4]
    """
    whole_number(points, "points", least=2)
    reach = NormalDist().inv_cdf((1 + number_between(level, "level", 0, 1)) / 2)
    scored = _clipped(check_event(probabilities, labels, sample_weight, event=event))
    distinct = np.unique(scored.scores[scored.weights > 0])
    wanted, between = np.linspace(distinct[0], distinct[-1], points), (distinct[1:] + distinct[:-1]) / 2
    x = np.unique(distinct[np.searchsorted(between, wanted)])
    error = smooth_ece(scored)
    bandwidth = max(error, _NARROWEST / scored.total**0.2)
    density, residual, variance = _smoothed(scored, x, bandwidth)
    noise = reach * np.sqrt(variance) / density
    accuracy, low, high = np.clip([x + residual / density, x - noise, x + noise], 0.0, 1.0)
    return ReliabilityCurve(x, accuracy, low, high, level, error, density)


def corp_reliability(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event = top,
    level: float = 0.95,
    n_resamples: int = 200,
    random_state: int | None = 0,
) -> ReliabilityCurve:
    """Return the CORP reliability diagram of an event: isotonic regression, without bins to choose.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `reliability`.
    level, n_resamples, random_state
        The level of the band, and the number and the seed of the draws it comes from.

    Returns
    -------
    ReliabilityCurve
        The curve and the band. Dimitriadis, Gneiting and Jordan, PNAS 2021.

    Examples
    --------
    >>> from glayers import Confidences
    >>> corp_reliability(Confidences([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1])).accuracy.tolist()
    [0.0, 0.5, 0.5, 1.0]
    """
    scored = _clipped(check_event(probabilities, labels, sample_weight, event=event))
    found = corp(scored)
    band = corp_band(scored, n_resamples=n_resamples, level=level, random_state=random_state)
    x = np.unique(np.concatenate([found.lower, found.upper, band.scores]))
    accuracy = found.values[np.searchsorted(found.upper, x, side="left")]
    low, high = (np.interp(x, band.scores, ends) for ends in (band.lower, band.upper))
    return ReliabilityCurve(x, accuracy, low, high, level, found.miscalibration)


def ks_curves(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event = top,
    points: int = 201,
    level: float = 0.95,
    random_state: int | None = 0,
) -> KsCurves:
    """Return the KS curves of an event and the KS test.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `reliability`. With groups the test uses resampling.
    points
        About how many fractiles the curves have; that of the largest gap is always among them.
    level, random_state
        The level of the test, and the seed of its draws if there are groups.

    Returns
    -------
    KsCurves
        `hit_rate` is the score plus the slope of a cubic spline through the gap, cumulative hits minus score.

    Examples
    --------
    >>> from glayers import Confidences
    >>> found = ks_curves(Confidences([0.8, 0.6, 0.7], [True, True, False]))
    >>> found.fractile.round(2).tolist(), round(found.test.value, 12), found.where  # gaps 0, -0.4/3, 0.3/3, 0.1/3
    ([0.0, 0.33, 0.67, 1.0], 0.133333333333, 1)
    """
    whole_number(points, "points", least=2)
    scored = check_event(probabilities, labels, sample_weight, event=event)
    test = ks_test(scored, level=level, random_state=random_state)
    running = RunningSum.of(scored)
    rows = running.event
    fractile, score_sum, hit_sum = (
        np.append(0.0, np.cumsum(rows.weights * values)[running.ends])
        for values in (np.ones_like(rows.scores), rows.scores, rows.hits)
    )
    largest = int(np.abs(score_sum - hit_sum).argmax())
    # The fractiles next above an even grid, both ends, and the largest gap.
    spread = np.searchsorted(fractile, np.linspace(0, fractile[-1], points) - 1e-12)
    shown = np.unique(np.append(spread, [0, largest, len(fractile) - 1]))
    score = rows.scores[running.ends][np.maximum(shown - 1, 0)]
    fractile, score_sum, hit_sum = fractile[shown], score_sum[shown], hit_sum[shown]
    hit_rate = np.clip(score + _smooth_slope(fractile, hit_sum - score_sum), 0.0, 1.0)
    return KsCurves(fractile, score_sum, hit_sum, score, hit_rate, int(np.searchsorted(shown, largest)), test)


def _clipped(scored: Scored) -> Scored:
    """Return the event without groups, and with scores that rounding left just outside [0, 1] moved inside."""
    return replace(scored, scores=np.clip(scored.scores, 0.0, 1.0), groups=None)


def _smoothed(scored: Scored, x: Floats, bandwidth: float) -> tuple[Floats, Floats, Floats]:
    """Return kernel sums at x of the weights, of the residuals, and of the variance of a calibrated model's residuals.

    The kernels are normal densities around the scores, folded back at 0 and at 1.
    """
    residuals = scored.weights * (scored.hits - scored.scores)
    variances = scored.weights**2 * scored.scores * (1 - scored.scores)
    sums = np.zeros((3, len(x)))
    step = max(1, _ENTRIES // len(x))
    for first in range(0, len(scored.scores), step):
        rows = slice(first, first + step)
        scores = scored.scores[rows]
        images = (scores, -scores, 2 - scores)  # further images lie beyond any bandwidth below 1/2
        total = sum(np.exp(-(((x[:, None] - image) / bandwidth) ** 2) / 2) for image in images)
        kernel = np.asarray(total) / (bandwidth * math.sqrt(2 * math.pi))
        sums += kernel @ scored.weights[rows], kernel @ residuals[rows], kernel**2 @ variances[rows]
    return sums[0], sums[1], sums[2]


def _smooth_slope(fractile: Floats, gap: Floats) -> Floats:
    """Return the slope of the cubic spline from (0, 0) nearest to the gap, its knots spread evenly over the points.

    A natural spline, flat at the ends, would vary less there but be biased: most rows of a good model lie at the upper
    end.
    """
    from scipy.interpolate import CubicSpline  # on first use: importing it takes longer than importing glayers

    knots = fractile[np.unique(np.linspace(0, len(fractile) - 1, _KNOTS).round().astype(np.int64))]
    if len(knots) == 2:  # all rows have the same score: a line
        return np.full_like(fractile, gap[-1] / fractile[-1])
    cardinal = CubicSpline(knots, np.eye(len(knots)), bc_type="not-a-knot")
    heights = np.linalg.lstsq(cardinal(fractile)[:, 1:], gap, rcond=None)[0]
    return cardinal(fractile, 1)[:, 1:] @ heights
