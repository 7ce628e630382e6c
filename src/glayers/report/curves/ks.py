"""Scores and hits of one event -> the curves whose largest gap is the KS error, against the fractile of the rows.

Rows are sorted by score; fractile t is the share t of them with the lowest scores. Up to there, scores and hits add up
to the two cumulative curves, and their slopes at t are the score and the probability of a hit. Gupta et al.,
"Calibration of Neural Networks using Splines", ICLR 2021.
"""

from dataclasses import dataclass

import numpy as np

from glayers.arrays import Floats, Ints
from glayers.metrics.old import ks_test_of
from glayers.metrics.old.checks import check_scored
from glayers.metrics.old.walks import Walk
from glayers.settings import whole_number

_KNOTS = 6  # as many as Gupta et al. give their splines


@dataclass(frozen=True, eq=False)
class KsCurves:
    """Curves from fractile 0 to 1; the gap at index `where` is `ks`, and a calibrated model's KS is within `bound`."""

    fractile: Floats
    cumulative_score: Floats
    cumulative_hits: Floats
    score: Floats
    hit_rate: Floats
    ks: float
    where: int
    bound: float
    p_value: float
    level: float


def ks_curves(
    scores: object, hits: object, weights: object = None, *, points: int = 201, level: float = 0.95
) -> KsCurves:
    """Return the curves at about so many fractiles, and at that of the largest gap.

    `hit_rate` is the score plus the slope of a cubic spline through the gap, cumulative hits minus score.

    >>> found = ks_curves([0.8, 0.6, 0.7], [True, True, False])
    >>> found.fractile.round(2).tolist(), round(found.ks, 12), found.where  # gaps 0, -0.4/3, 0.3/3, 0.1/3
    ([0.0, 0.33, 0.67, 1.0], 0.133333333333, 1)
    """
    whole_number(points, "points", least=2)
    test = ks_test_of(scores, hits, weights, level=level)
    walk = Walk.of(check_scored(scores, hits, weights), weights, None)
    event = walk.event
    fractile, score_sum, hit_sum = (
        np.append(0.0, np.cumsum(event.weights * values)[walk.ends])
        for values in (np.ones_like(event.scores), event.scores, event.hits)
    )
    largest = int(np.abs(score_sum - hit_sum).argmax())
    shown = _spread(fractile, points, largest)
    score = event.scores[walk.ends][np.maximum(shown - 1, 0)]
    fractile, score_sum, hit_sum = fractile[shown], score_sum[shown], hit_sum[shown]
    return KsCurves(
        fractile=fractile,
        cumulative_score=score_sum,
        cumulative_hits=hit_sum,
        score=score,
        hit_rate=np.clip(score + _smooth_slope(fractile, hit_sum - score_sum), 0.0, 1.0),
        ks=test.value,
        where=int(np.searchsorted(shown, largest)),
        bound=test.bound,
        p_value=test.p_value,
        level=level,
    )


def _spread(fractile: Floats, points: int, always: int) -> Ints:
    """Places of the fractiles next above an even grid, each once, with both ends and one more."""
    places = np.searchsorted(fractile, np.linspace(0, fractile[-1], points) - 1e-12, side="left")
    return np.unique(np.append(places, [0, always, len(fractile) - 1]))


def _smooth_slope(fractile: Floats, gap: Floats) -> Floats:
    """The slope of the cubic spline from (0, 0) nearest to the gap, its knots spread evenly over the points.

    A natural spline, flat at the ends, would be steadier there and wrong: most rows of a good
    model lie at the upper end.
    """
    from scipy.interpolate import CubicSpline  # on first use: it takes longer to import than all of glayers

    knots = fractile[np.unique(np.linspace(0, len(fractile) - 1, _KNOTS).round().astype(np.int64))]
    if len(knots) == 2:  # all rows of one score: a line
        return np.full_like(fractile, gap[-1] / fractile[-1])
    cardinal = CubicSpline(knots, np.eye(len(knots)), bc_type="not-a-knot")
    heights = np.linalg.lstsq(cardinal(fractile)[:, 1:], gap, rcond=None)[0]
    return cardinal(fractile, 1)[:, 1:] @ heights
