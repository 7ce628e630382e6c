"""Scores and hits -> what a mean score is made of: miscalibration - discrimination + uncertainty.

Recalibrate the scores by the best function that never falls, found by pooling adjacent violators, and compare three
mean scores: of the scores as given, recalibrated, and of the one number that is the overall share of hits. No bins to
choose, and the same function is best for every proper score. Dimitriadis, Gneiting and Jordan, "Stable Reliability
Diagrams for Probabilistic Classifiers", PNAS 2021 (CORP).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from glayers.arrays import Floats, Ints
from glayers.errors import BadPredictions
from glayers.metrics.old.checks import Scored, check, check_scored, top
from glayers.metrics.old.events import class_event
from glayers.metrics.old.isotonic import pool_adjacent_violators
from glayers.metrics.old.verdicts import Draws
from glayers.metrics.old.walks import Walk

Score: TypeAlias = Literal["brier", "log"]
_MOST_POINTS = 512  # of a band: more than a figure shows


@dataclass(frozen=True, eq=False)
class Decomposition:
    """mean_score = miscalibration - discrimination + uncertainty, no part negative, and the recalibration behind it.

    Scores from `lower[i]` to `upper[i]` are recalibrated to `values[i]`, and hold the share `shares[i]` of the weight.
    Dimitriadis et al., PNAS 2021.
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


@dataclass(frozen=True, eq=False)
class ConsistencyBand:
    """Where the recalibrated values of a calibrated model lie, score by score. Dimitriadis et al., PNAS 2021."""

    scores: Floats
    lower: Floats
    upper: Floats
    level: float


def corp(scores: object, hits: object, weights: object = None, *, score: Score = "brier") -> Decomposition:
    """Decompose the mean score of any event, from its scores and whether it happened. Dimitriadis et al., PNAS 2021.

    "brier" is (score - hit)^2, "log" is -log of the probability given to what happened, infinite where that was 0.

    >>> print(corp([0.2, 0.4, 0.6, 0.8], [0, 1, 0, 1]))  # recalibrated to 0, 1/2, 1/2, 1
    0.2 = 0.075 miscalibration - 0.125 discrimination + 0.25 uncertainty
    """
    return _decompose(check_scored(scores, hits, weights), score)


def top_class_corp(
    probabilities: object, labels: object, weights: object = None, *, score: Score = "brier"
) -> Decomposition:
    """Decompose the mean score of "the highest class is the label". Dimitriadis et al., PNAS 2021."""
    return _decompose(top(check(probabilities, labels, weights)), score)


def classwise_corp(
    probabilities: object, labels: object, weights: object = None, *, score: Score = "brier"
) -> tuple[Decomposition, ...]:
    """Decompose the mean score of "the label is this class", for each class. Dimitriadis et al., PNAS 2021.

    Means of Brier scores over classes are `brier`.
    """
    checked = check(probabilities, labels, weights)
    return tuple(_decompose(class_event(checked, c), score) for c in range(checked.probabilities.shape[1]))


def corp_band(
    scores: object,
    hits: object,
    weights: object = None,
    groups: object = None,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
) -> ConsistencyBand:
    """Where recalibrated values lie with probability `level`, each score by itself, if the scores are true.

    Hits are drawn from the scores; with groups, whole groups of residuals change sign instead. At most 512 scores are
    looked at, evenly by rank. Dimitriadis et al., PNAS 2021.

    >>> band = corp_band([0.3] * 50 + [0.7] * 50, [0] * 100)
    >>> band.scores.tolist(), bool((band.lower < band.scores).all() and (band.scores < band.upper).all())
    ([0.3, 0.7], True)
    """
    draws = Draws(n_resamples, level, random_state)
    walk = Walk.of(check_scored(scores, hits, weights), weights, groups)
    distinct = walk.event.scores[walk.ends]
    held = np.diff(np.cumsum(walk.event.weights)[walk.ends], prepend=0.0)
    points = np.unique(np.linspace(0, len(distinct) - 1, _MOST_POINTS).round().astype(np.int64))

    def recalibrated(sums: Floats) -> Floats:
        hits_drawn = np.diff(sums, axis=1, prepend=0.0) + held * distinct
        return np.array([_values_at(points, each, held) for each in hits_drawn])

    drawn = np.clip(walk.redrawn(recalibrated, draws), 0.0, 1.0)
    lower, upper = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return ConsistencyBand(distinct[points], lower, upper, level)


def _decompose(event: Scored, score: Score) -> Decomposition:
    if score not in _SCORES:
        raise BadPredictions(f"score must be 'brier' or 'log'; got {score!r}")
    mean_score = _SCORES[score]
    counted = event.weights > 0
    distinct, which = np.unique(np.clip(event.scores[counted], 0.0, 1.0), return_inverse=True)
    held = np.bincount(which, weights=event.weights[counted]).astype(np.float64)
    hits = np.bincount(which, weights=(event.weights * event.hits)[counted]).astype(np.float64)
    pooled = pool_adjacent_violators(hits, held)
    overall = np.array([np.clip(hits.sum() / held.sum(), 0.0, 1.0)])
    values = np.clip(pooled.values, 0.0, 1.0)  # sums of thirds may exceed 1 in the last digit
    given = float(held @ mean_score(distinct, hits / held))
    recalibrated = float(pooled.weights @ mean_score(values, values))
    constant = float(mean_score(overall, overall)[0])
    return Decomposition(
        mean_score=given,
        miscalibration=max(0.0, given - recalibrated),
        discrimination=max(0.0, constant - recalibrated),
        uncertainty=constant,
        lower=distinct[pooled.starts],
        upper=distinct[np.append(pooled.starts[1:], len(distinct)) - 1],
        values=values,
        shares=pooled.weights,
    )


def _values_at(points: Ints, hits: Floats, held: Floats) -> Floats:
    pooled = pool_adjacent_violators(hits, held)
    return pooled.values[np.searchsorted(pooled.starts, points, side="right") - 1]


def _brier(scores: Floats, rates: Floats) -> Floats:
    """Mean of (score - hit)^2 where this share hits."""
    return rates * (1 - scores) ** 2 + (1 - rates) * scores**2


def _log(scores: Floats, rates: Floats) -> Floats:
    """Mean of -log(probability given to what happened); what never happens costs nothing, whatever it was given."""
    with np.errstate(divide="ignore", invalid="ignore"):
        hit, miss = -rates * np.log(scores), -(1 - rates) * np.log1p(-scores)
    return np.where(rates > 0, hit, 0.0) + np.where(rates < 1, miss, 0.0)


_SCORES: dict[str, Callable[[Floats, Floats], Floats]] = {"brier": _brier, "log": _log}
