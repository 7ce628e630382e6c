"""Predictions -> the parts of a mean score: miscalibration - discrimination + uncertainty.

Recalibrate the scores of an event by the best non-decreasing function (isotonic regression), and compare three mean
scores: of the scores as given, of the recalibrated scores, and of the overall share of hits as a constant score. There
are no bins to choose, and the same function is best for every proper score. Dimitriadis, Gneiting and Jordan, "Stable
Reliability Diagrams for Probabilistic Classifiers", PNAS 2021 (CORP).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Array, Floats
from glayers.checks import check_choice
from glayers.metrics.events import Event, check_event, distinct_scores, top
from glayers.metrics.redrawing import Draws, RunningSum, redraw

__all__ = ["ConsistencyBand", "Decomposition", "corp", "corp_band"]

Score: TypeAlias = Literal["brier", "log"]


@dataclass(frozen=True, eq=False)
class Decomposition:
    """mean_score = miscalibration - discrimination + uncertainty, no part negative, and the recalibration behind it.

    Attributes
    ----------
    mean_score, miscalibration, discrimination, uncertainty
        The mean score and its parts.
    lower, upper, values, shares
        Scores from `lower[i]` to `upper[i]` are recalibrated to `values[i]` and hold `shares[i]` of the weight.
    """

    mean_score: float
    miscalibration: float
    discrimination: float
    uncertainty: float
    lower: Floats
    upper: Floats
    values: Floats
    shares: Floats

    def __str__(self) -> str:
        return (
            f"{self.mean_score:.4g} = {self.miscalibration:.4g} miscalibration "
            f"- {self.discrimination:.4g} discrimination + {self.uncertainty:.4g} uncertainty"
        )


class ConsistencyBand(NamedTuple):
    """Where the recalibrated values of a calibrated model lie, score by score. Dimitriadis et al., PNAS 2021."""

    scores: Floats
    lower: Floats
    upper: Floats


def corp(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event = top,
    score: Score = "brier",
) -> Decomposition:
    """Decompose the mean score of an event.

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
    score
        "brier" is (score - hit)^2; "log" is -log of the probability given to what happened, infinite where that was 0.

    Returns
    -------
    Decomposition
        Dimitriadis et al., PNAS 2021.

    Examples
    --------
    >>> from glayers.predictions.predictions import Confidences
    >>> print(corp(Confidences([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1])))  # recalibrated to 0, 1/2, 1/2, 1
    0.2 = 0.075 miscalibration - 0.125 discrimination + 0.25 uncertainty
    """
    scored = check_event(probabilities, labels, sample_weight, event=event)
    check_choice(score, _SCORES, "score")
    mean_score = _SCORES[score]
    counted = scored.weights > 0
    distinct, which = distinct_scores(np.clip(scored.scores[counted], 0.0, 1.0))
    held = np.bincount(which, weights=scored.weights[counted]).astype(np.float64)
    hits = np.bincount(which, weights=(scored.weights * scored.hits)[counted]).astype(np.float64)
    pooled = isotonic(hits, held)
    overall = np.array([np.clip(hits.sum() / held.sum(), 0.0, 1.0)])
    values = np.clip(pooled.x[pooled.blocks[:-1]], 0.0, 1.0)  # sums of thirds may exceed 1 in the last digit
    given = float(held @ mean_score(distinct, hits / held))
    recalibrated = float(pooled.weights @ mean_score(values, values))
    constant = float(mean_score(overall, overall)[0])
    return Decomposition(
        mean_score=given,
        miscalibration=max(0.0, given - recalibrated),
        discrimination=max(0.0, constant - recalibrated),
        uncertainty=constant,
        lower=distinct[pooled.blocks[:-1]],
        upper=distinct[pooled.blocks[1:] - 1],
        values=values,
        shares=pooled.weights,
    )


def corp_band(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    event: Event = top,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
) -> ConsistencyBand:
    """Return where recalibrated values lie with probability `level`, score by score, if the model is calibrated.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `corp`.
    groups
        Group of each row (n,), where rows of a group depend on each other.
    n_resamples, random_state
        The number of draws and their seed.
    level
        The probability of each point of the band.

    Returns
    -------
    ConsistencyBand
        At 512 scores at most, evenly spaced by rank. Dimitriadis et al., PNAS 2021.

    Examples
    --------
    >>> from glayers.predictions.predictions import Confidences
    >>> scores, lower, upper = corp_band(Confidences([0.3] * 50 + [0.7] * 50, [0] * 100))
    >>> scores.tolist(), bool((lower < scores).all() and (scores < upper).all())
    ([0.3, 0.7], True)
    """
    draws = Draws(n_resamples, level, random_state)
    running = RunningSum.of(check_event(probabilities, labels, sample_weight, groups, event))
    distinct = running.event.scores[running.ends]
    points = np.unique(np.linspace(0, len(distinct) - 1, 512).round().astype(np.int64))

    def recalibrated(hits: Array, weights: Floats) -> Floats:
        held = np.diff(np.cumsum(weights, axis=1)[:, running.ends], axis=1, prepend=0.0)
        hits_drawn = np.diff(running.sums(hits, weights), axis=1, prepend=0.0) + held * distinct
        held = np.broadcast_to(held, hits_drawn.shape)
        return np.array([isotonic(*drawn).x[points] for drawn in zip(hits_drawn, held, strict=True)])

    _, drawn = redraw(running.event, recalibrated, draws)
    lower, upper = np.quantile(np.clip(drawn, 0.0, 1.0), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return ConsistencyBand(distinct[points], lower, upper)


def isotonic(sums: Floats, weights: Floats) -> Any:
    """Isotonic regression of sums / weights, all weights positive, as SciPy returns it: x, weights and blocks."""
    from scipy.optimize import isotonic_regression  # on first use: importing it takes longer than importing glayers

    return isotonic_regression(sums / weights, weights=weights)


def _brier(scores: Floats, rates: Floats) -> Floats:
    """Mean of (score - hit)^2 at these rates of hits."""
    return rates * (1 - scores) ** 2 + (1 - rates) * scores**2


def _log(scores: Floats, rates: Floats) -> Floats:
    """Mean of -log(probability given to what happened); an outcome that never happens costs nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        hit, miss = -rates * np.log(scores), -(1 - rates) * np.log1p(-scores)
    return np.where(rates > 0, hit, 0.0) + np.where(rates < 1, miss, 0.0)


_SCORES: dict[str, Callable[[Floats, Floats], Floats]] = {"brier": _brier, "log": _log}
