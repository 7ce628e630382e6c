"""An event of each row -> the curves whose largest gap is the KS error, against the fractile of the rows.

Rows are sorted by score; fractile t holds the fraction t of them with the lowest scores. Up to there, scores and hits
add up to the two cumulative curves, and their slopes at t are the score and the probability of a hit. Gupta et al.,
"Calibration of Neural Networks using Splines", ICLR 2021.
"""

from dataclasses import dataclass

import numpy as np

from glayers.arrays import Floats, Ints
from glayers.checks import whole_number
from glayers.metrics import CalibrationTest, Event, ks_test, top
from glayers.metrics.events import check_event
from glayers.metrics.redrawing import RunningSum

__all__ = ["KsCurves", "ks_curves"]

_KNOTS = 6  # as many as in the splines of Gupta et al.


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
    probabilities
        Array (n, k), `Predictions` or `Confidences`. With groups the test uses resampling.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    sample_weight
        Row weights (n,).
    event
        `top`, `rank(r)`, `within_top(r)`, `label(c)` or `one_of(classes)`.
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
    test = ks_test(
        scored,
        method="asymptotic" if scored.groups is None else "resampling",
        level=level,
        random_state=random_state,
    )
    running = RunningSum.of(scored)
    rows = running.event
    fractile, score_sum, hit_sum = (
        np.append(0.0, np.cumsum(rows.weights * values)[running.ends])
        for values in (np.ones_like(rows.scores), rows.scores, rows.hits)
    )
    largest = int(np.abs(score_sum - hit_sum).argmax())
    shown = _spread(fractile, points, largest)
    score = rows.scores[running.ends][np.maximum(shown - 1, 0)]
    fractile, score_sum, hit_sum = fractile[shown], score_sum[shown], hit_sum[shown]
    hit_rate = np.clip(score + _smooth_slope(fractile, hit_sum - score_sum), 0.0, 1.0)
    return KsCurves(fractile, score_sum, hit_sum, score, hit_rate, int(np.searchsorted(shown, largest)), test)


def _spread(fractile: Floats, points: int, always: int) -> Ints:
    """Return the places of the fractiles next above an even grid, each once, with both ends and one more."""
    places = np.searchsorted(fractile, np.linspace(0, fractile[-1], points) - 1e-12, side="left")
    return np.unique(np.append(places, [0, always, len(fractile) - 1]))


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
