"""Logits and labels -> what more labelled rows would probably bring, from fits on eighths, quarters and halves of them.

Each half of the rows judges the fits on the other half and on its parts. This gives the held-out loss at n/8, n/4 and
n/2 rows. A power law, loss = a + b / rows^c, leads from there to more rows. For a fixed family, c is about 1. Methods
that choose among families or penalties learn more slowly, and their curves bend. So c has a prior, and the c of the
future may differ from that of the past. `experiments/rows_needed.py` measures how often the intervals are right.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.base import clone

from glayers.arrays import Floats, Ints
from glayers.calibrators import AutoCalibrator, Calibrator
from glayers.calibrators.class_frequencies import sums_by_group
from glayers.checks import number_between, whole_number
from glayers.errors import BadPredictions, GlayersError, shown
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.folds import assign_folds
from glayers.predictions import Confidences, Predictions
from glayers.predictions.predictions import map_inputs, two_classes
from glayers.progress import progress_bar
from glayers.text_tables import aligned_table

__all__ = ["Forecast", "LearningCurve", "rows_needed"]

_PARTS = 8
_LEAST_ROWS = 40  # five in each eighth
# The prior of the exponent, and how much the exponent of the future may differ from it: standard deviations.
_EXPONENT, _SPREAD, _CHANGE = 0.75, 0.5, 0.5
_DRAWS = 4_000
_WORST = 700.0  # nats: no loss of a row counts more, as e^-700 is nearly the smallest number
_NOTICEABLE = 0.001  # a change of the NLL below this is not worth new labels


class Forecast(NamedTuple):
    """With this many rows, the NLL would fall by `gain`, and probably by `lower` to `upper`."""

    rows: int
    gain: float
    lower: float
    upper: float


@dataclass(frozen=True)
class LearningCurve:
    """The held-out NLL of fits on parts of the rows, and what more rows would bring; it prints as a table.

    Attributes
    ----------
    method
        What was fitted.
    rows
        The number of rows at hand.
    sizes, losses
        The sizes of the parts, and the mean held-out NLL of fits on them.
    forecasts
        For each number of rows: the fall of the NLL from that of a fit on all rows at hand, and its interval.
    level
        The probability of the intervals.
    """

    method: str
    rows: int
    sizes: tuple[int, ...]
    losses: tuple[float, ...]
    forecasts: tuple[Forecast, ...]
    level: float

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, ready for JSON."""
        return {**asdict(self), "forecasts": [each._asdict() for each in self.forecasts]}

    def sentence(self) -> str:
        """Return the first forecast in words."""
        rows, gain, lower, upper = self.forecasts[0]
        factor = rows / self.rows
        more = f"with {'twice' if factor == 2 else f'{factor:.3g} times'} the rows"
        interval = f"{100 * self.level:.3g} % interval {lower:.4f} to {upper:.4f}"
        if upper < _NOTICEABLE:
            return f"{more} NLL would hardly change ({interval}): these rows are enough for this method"
        if lower < _NOTICEABLE / 10:
            unknown = "these rows cannot tell whether more would help"
            return f"{unknown}: {more} NLL would fall by {upper:.2g} at most ({interval})"
        return f"{more} NLL would fall by about {gain:.2g} ({interval})"

    def __str__(self) -> str:
        table = [("rows", "held-out NLL", "fall of the NLL", f"{100 * self.level:.3g} % interval")]
        falls = ["", *(f"{before - after:.4f}" for before, after in zip(self.losses, self.losses[1:], strict=False))]
        for rows, loss, fall in zip(self.sizes, self.losses, falls, strict=True):
            table.append((f"{rows:,}", f"{loss:.4f}", fall, ""))
        table.append((f"{self.rows:,}", "", "", ""))
        table += [(f"{f.rows:,}", "", f"{f.gain:.4f}", f"{f.lower:.4f} to {f.upper:.4f}") for f in self.forecasts]
        return f"{aligned_table(table)}\n{self.sentence()}"


def rows_needed(
    logits: Any,
    labels: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    *,
    calibrator: Calibrator | None = None,
    times: Sequence[float] = (2, 4),
    level: float = 0.9,
    random_state: int = 0,
    progress: bool | None = None,
) -> LearningCurve:
    """Estimate what more labelled rows would bring, from fits on eighths, quarters and halves of the rows at hand.

    Parameters
    ----------
    logits : array-like of shape (n_rows, n_logits), Predictions or Confidences
        As for `Calibrator.fit`; a record has labels, weights and groups of its own.
    labels, sample_weight, groups : array-like of shape (n_rows,), optional
        As for `Calibrator.fit`. A group is never split, and counts as one observation.
    calibrator : Calibrator, optional
        The method, which is fitted 14 times. By default `AutoCalibrator()`, whose 14 fits take about 20 seconds on
        1,000 rows; `TemperatureScaling()` takes less than a second.
    times : sequence of float
        How many times as many rows to forecast for.
    level : float
        The probability of the intervals.
    random_state : int
        Seed of the parts, and of the default calibrator.
    progress : bool, optional
        Whether to show a progress bar; by default, at a terminal only.

    Returns
    -------
    LearningCurve
        The held-out NLL at each size and the forecasts. An interval says what this calibrator would gain on new rows
        like these. It does not know families that no part of the rows was large enough for.

    Examples
    --------
    >>> from glayers import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(800, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> curve = rows_needed(3 * z, labels, calibrator=TemperatureScaling())
    >>> curve.sizes, curve.forecasts[0].rows
    ((100, 200, 400), 1600)
    """
    seed = whole_number(random_state, "random_state", least=0)
    method = AutoCalibrator(random_state=seed, progress=False) if calibrator is None else calibrator
    if not isinstance(method, Calibrator):
        raise GlayersError(f"calibrator must be a calibrator, such as TemperatureScaling(); got {shown(method)}")
    level = number_between(level, "level", 0, 1)
    factors = [number_between(each, "times", 1, 1e6) for each in times] if _is_list(times) else []
    if not factors:
        raise BadPredictions(f"times must be a list of numbers above 1, such as [2, 4]; got {shown(times)}")
    given = _rows(method, logits, labels, sample_weight, groups)
    parts = _parts(given, seed)
    losses = _held_out(method, given, parts, progress)
    curve, falls, variances = _measured(given, parts, losses)
    draws = np.minimum(_possible_falls(falls, variances, factors), curve[-1])  # no loss falls below 0
    ends = np.quantile(draws, [0.5, (1 - level) / 2, (1 + level) / 2], axis=1).T
    forecasts = [Forecast(round(t * len(given)), *map(float, each)) for t, each in zip(factors, ends, strict=True)]
    sizes = tuple(round(len(given) / parts) for parts in (8, 4, 2))
    return LearningCurve(str(method), len(given), sizes, curve, tuple(forecasts), level)


def _is_list(values: Any) -> bool:
    if isinstance(values, np.ndarray):
        return values.ndim == 1
    return isinstance(values, Sequence) and not isinstance(values, str | bytes)


def _rows(method: Calibrator, logits: Any, labels: Any, sample_weight: Any, groups: Any) -> Predictions:
    """Return the rows that count."""
    if isinstance(logits, Predictions | Confidences):
        if not labels is sample_weight is groups is None:
            raise GlayersError("Predictions have labels, weights and groups of their own: pass no others")
        given = two_classes(method.inputs, logits).repeated()
    else:
        given = method._given(logits, labels, sample_weight, groups)
    return given if given.weights is None else given.take(given.weights > 0)


def _parts(given: Predictions, seed: int) -> Ints:
    """Return the eighth (n,) of each row; the first four form a half."""
    if len(given) < _LEAST_ROWS:
        raise BadPredictions(
            f"a learning curve needs at least {_LEAST_ROWS} rows with a positive weight; got {len(given)}. "
            f"Label some more rows first"
        )
    if given.groups is not None and (found := len(np.unique(given.groups))) < _PARTS:
        raise BadPredictions(f"a learning curve needs at least {_PARTS} groups, which are never split; got {found}")
    if len(np.unique(given.labels)) < 2:
        raise BadPredictions(
            "all labels are the same class, so no part of the rows can teach anything about the others"
        )
    parts = assign_folds(len(given), given.groups, _PARTS, seed)
    if (largest := int(np.bincount(parts).max())) > 2 * len(given) / _PARTS:
        raise BadPredictions(
            f"a group of {largest} of {len(given)} rows is too large: groups are never split, and all eighths of the "
            f"rows should be about equal. Draw fewer rows of this group"
        )
    return parts


def _held_out(
    method: Calibrator, given: Predictions, parts: Ints, progress: bool | None
) -> dict[tuple[int, int], Floats]:
    """Return by half and number of parts of the half: the losses (fits, rows of the other half)."""
    loss, found = smooth_loss("log"), {}
    with progress_bar(progress, "fitting on parts of the rows", 2 * (1 + 2 + 4)) as advance:
        for half in (0, 1):
            held = given.take(parts // 4 != half)
            for count in (4, 2, 1):
                fits = []
                for part in range(count):
                    rows = given.take((parts // 4 == half) & (parts % 4 // (4 // count) == part))
                    try:
                        fitted = clone(method)._learn(rows)
                    except GlayersError as problem:
                        raise GlayersError(
                            f"{method} cannot be fitted on {len(rows)} of the rows: {problem}"
                        ) from problem
                    calibrated = fitted.transform(map_inputs(method.inputs, held))
                    fits.append(np.minimum(loss.rows(calibrated, held.labels), _WORST))
                    advance()
                found[half, count] = np.array(fits)
    return found


class _Variances(NamedTuple):
    """Of the two measured falls (2, 2), and of the loss of a fit on a quarter of the rows."""

    of_falls: Floats
    of_quarters: float


def _measured(
    given: Predictions, parts: Ints, losses: dict[tuple[int, int], Floats]
) -> tuple[tuple[float, ...], Floats, _Variances]:
    """Return the loss at each size, the falls from eighths to quarters and from quarters to halves, and variances.

    The falls vary with the rows that judge, and with the rows that the fits see. The loss of a fit on twice the rows
    varies about a quarter as much.
    """
    weights = np.ones(len(given)) if given.weights is None else given.weights / given.weights.max()
    mean = np.empty((3, len(given)))
    spread = np.zeros(3)
    for half in (0, 1):
        held = parts // 4 != half
        share = weights[held] / weights[held].sum()
        for place, count in enumerate((4, 2, 1)):
            mean[place, held] = losses[half, count].mean(axis=0)
            if count > 1:
                spread[place] += (losses[half, count] @ share).var(ddof=1) / 2
    share = weights / weights.sum()
    curve = mean @ share
    falls = -np.diff(curve)
    deviations = share[:, None] * (-np.diff(mean, axis=0) - falls[:, None]).T
    sums = sums_by_group(deviations, given.groups)
    eighths, quarters = spread[:2]
    of_fits = np.array([[eighths / 8 + quarters / 4, -quarters / 4], [-quarters / 4, quarters / 4 + quarters / 8]])
    noise = np.eye(2) * (1e-14 + 1e-14 * float(np.square(falls).max()))  # falls may be equal for all rows
    of_falls = sums.T @ sums * (len(sums) / (len(sums) - 1)) + of_fits + noise
    return tuple(map(float, curve)), falls, _Variances(of_falls, float(quarters))


def _possible_falls(falls: Floats, variances: _Variances, factors: Sequence[float]) -> Floats:
    """Return draws (factors, draws) of the fall of the loss with each factor times the rows.

    For an exponent c, the falls are u 2^c and u, with u >= 0 and errors of known variance. So c is drawn from its
    posterior on a grid, and u, given c, is a truncated normal number. The fall from n to t n rows is
    u (1 - t^-c) / (4^c - 2^c).
    """
    rng = np.random.default_rng(0)
    grid = np.linspace(-1, 3, 4_001)
    shape = np.stack([2**grid, np.ones(len(grid))])
    precision = np.linalg.inv(variances.of_falls)
    information = (shape * (precision @ shape)).sum(axis=0)
    centre, error = (precision @ falls) @ shape / information, information**-0.5
    positive = np.maximum(ndtr(centre / error), 1e-300)
    density = 0.5 * (centre / error) ** 2 + np.log(error * positive) - 0.5 * ((grid - _EXPONENT) / _SPREAD) ** 2
    below = np.cumsum(np.exp(density - density.max()))
    drawn = np.searchsorted(below / below[-1], rng.permutation((np.arange(_DRAWS) + 0.5) / _DRAWS))
    place = 1 - positive[drawn] * rng.random(_DRAWS)  # among all values of the normal number, only positive ones
    u = np.maximum(0.0, centre[drawn] + error[drawn] * ndtri(np.clip(place, 1e-12, 1 - 1e-12)))
    c = grid[drawn] + _CHANGE * rng.standard_normal(_DRAWS)
    c = np.where(np.abs(c) < 1e-3, 1e-3, c)
    noise = math.sqrt(variances.of_quarters) * 4.0**-c * rng.standard_normal(_DRAWS)  # of the fit on all rows
    return np.array([u * (1 - factor**-c) / (4**c - 2**c) + noise for factor in factors])
