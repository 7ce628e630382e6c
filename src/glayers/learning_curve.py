"""Logits and labels -> what more labelled rows would probably bring, from how far the fit adapts to its own rows.

A fit with d effective coefficients on n rows has an expected loss on new rows that is d / (2 n) above the best that its
family can reach, and a loss on its own rows that is as much below. So the difference between held-out and training loss
measures d, for any method and its shrinkage. With t times the rows, 1 - 1 / t of the excess is gone.
`experiments/rows_needed.py` compares forecasts with the truth.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from glayers.arrays import Floats
from glayers.calibrators import Calibrator
from glayers.checks import items_of, number_between, whole_number
from glayers.errors import BadPredictions, shown
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.folds import LEAST_OBSERVATIONS, assign_folds, paired_gain
from glayers.gap import chosen_calibrator, fits_without_folds, rows_to_fit
from glayers.maps import Chain
from glayers.predictions import Predictions
from glayers.serving.predictor import apply_map
from glayers.text_tables import aligned_table, json_ready

__all__ = ["Forecast", "LearningCurve", "rows_needed"]

_FOLDS = 5
_LEAST_ROWS = 40
_WORST = 700.0  # nats: no loss of a row counts more, as e^-700 is nearly the smallest number
_NOTICEABLE = 0.001  # a change of the NLL below this is not worth new labels
_REACH = 1.6448536269514722  # standard errors of a 90 % interval
# Relative error of the excess beyond sampling: shrinkage that is chosen from the rows differs from sample to sample.
_SPREAD = 0.5


class Forecast(NamedTuple):
    """With this many rows, the expected NLL would fall by `gain`, and probably by `lower` to `upper`."""

    rows: int
    gain: float
    lower: float
    upper: float


@dataclass(frozen=True)
class LearningCurve:
    """What more rows would bring; it prints as a table and a sentence.

    Attributes
    ----------
    method
        What was fitted.
    rows
        The number of rows at hand.
    loss
        The cross-validated NLL.
    excess
        How far the expected NLL of a fit on these rows lies above that of a fit on endlessly many.
    forecasts
        For each number of rows: the fall of the NLL from that of a fit on all rows at hand, and its interval.
    """

    method: str
    rows: int
    loss: float
    excess: float
    forecasts: tuple[Forecast, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, ready for JSON."""
        found: dict[str, Any] = json_ready({**asdict(self), "forecasts": [each._asdict() for each in self.forecasts]})
        return found

    def sentence(self) -> str:
        """Return the first forecast in words."""
        first = self.forecasts[0]
        more = f"with {first.rows / self.rows:.3g} times the rows"
        interval = f"90 % interval {first.lower:.4f} to {first.upper:.4f}"
        if first.upper < _NOTICEABLE:
            return f"{more} NLL would hardly change ({interval}): these rows are enough for this method"
        if first.lower > 0:
            return f"{more} NLL would fall by about {first.gain:.2g} ({interval})"
        most = f"{more} NLL would fall by {first.upper:.2g} at most ({interval})"
        return f"these rows cannot tell whether more would help: {most}"

    def __str__(self) -> str:
        table = [("rows", "NLL", "expected reduction", "90 % interval")]
        table.append((f"{self.rows:,}", f"{self.loss:.4f}", "", ""))
        for rows, gain, lower, upper in self.forecasts:
            table.append((f"{rows:,}", "", f"{gain:.4f}", f"{lower:.4f} to {upper:.4f}"))
        return f"{aligned_table(table)}\n{self.sentence()}"


def rows_needed(
    logits: Any,
    labels: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    *,
    calibrator: Calibrator | None = None,
    times: Sequence[float] = (2, 4),
    random_state: int = 0,
    progress: bool | None = None,
) -> LearningCurve:
    """Estimate what more labelled rows would bring, from the held-out and the training loss of the rows at hand.

    Parameters
    ----------
    logits : array-like of shape (n_rows, n_logits), Predictions or Confidences
        As for `Calibrator.fit`; a record has labels, weights and groups of its own.
    labels, sample_weight, groups : array-like of shape (n_rows,), optional
        As for `Calibrator.fit`. A group is never split, and counts as one observation.
    calibrator : Calibrator, optional
        The method, which is fitted six times; `AutoCalibrator()` by default.
    times : sequence of float
        How many times as many rows to forecast for.
    random_state : int
        Seed of the folds, and of the default calibrator.
    progress : bool, optional
        Whether to show a progress bar; by default, at a terminal only.

    Returns
    -------
    LearningCurve
        The cross-validated NLL and the forecasts. An interval says what this calibrator would gain on new rows like
        these. It does not know families that only more rows would support.

    Examples
    --------
    >>> from glayers import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(800, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> rows_needed(3 * z, labels, calibrator=TemperatureScaling()).sentence()[:42]
    'with 2 times the rows NLL would hardly cha'
    """
    seed = whole_number(random_state, "random_state", least=0)
    method = chosen_calibrator(calibrator, seed)
    factors = [number_between(each, "times", 1, 1e6) for each in items_of(times) or []]
    if not factors:
        raise BadPredictions(f"times must be a list of numbers above 1, such as [2, 4]; got {shown(times)}")
    given = _counted(rows_to_fit(method, logits, labels, sample_weight, groups))
    folds = assign_folds(len(given), given.groups, _FOLDS, seed)
    held_out = np.empty(len(given))
    for fold, fitted in enumerate(fits_without_folds(method, given, folds, progress, "fitting without each fold")):
        own = folds == fold
        held_out[own] = _losses(fitted.map, given.take(own))
    training = _losses(method._fit(given).map, given)
    difference, error = paired_gain(held_out, training, given.weights, given.groups)
    # Held-out rows were judged by fits on 1 - 1 / folds of the rows, whose excess is larger.
    excesses = _FOLDS / (_FOLDS - 1) + 1
    excess = max(0.0, difference / excesses)
    reach = _REACH * math.hypot(error / excesses, _SPREAD * excess)
    ends = np.array([excess, max(0.0, excess - reach), excess + reach])
    forecasts = [Forecast(round(t * len(given)), *((1 - 1 / t) * ends).tolist()) for t in factors]
    loss = float(np.average(held_out, weights=given.weights))
    return LearningCurve(str(method), len(given), loss, excess, tuple(forecasts))


def _counted(given: Predictions) -> Predictions:
    """Return the rows of positive weight, after checking that there are enough."""
    if given.weights is not None:
        given = given.take(given.weights > 0)
    if len(given) < _LEAST_ROWS:
        raise BadPredictions(
            f"a forecast needs at least {_LEAST_ROWS} rows with a positive weight; got {len(given)}. "
            f"Label some more rows first"
        )
    if given.groups is not None and len(np.unique(given.groups)) < LEAST_OBSERVATIONS:
        raise BadPredictions(f"a forecast needs at least {LEAST_OBSERVATIONS} groups, which are never split")
    return given


def _losses(chain: Chain, given: Predictions) -> Floats:
    """Return the log loss of each row after a map."""
    return np.minimum(smooth_loss("log").rows(apply_map(chain, given.logits), given.labels), _WORST)
