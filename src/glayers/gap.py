"""Logits and labels -> how much calibration would lower the loss, and how much more labelled rows would.

The paper's definition as a measurement: a network is calibrated exactly when no function g of its logits lowers its
expected proper loss. So fit the best g we have on some folds, measure how much it lowers the loss of the others, and
repeat until every row was held out once. The loss that remains after g is the refinement loss: no calibration can lower
it.

A fit with d effective coefficients on n rows has an expected loss on new rows that is d / (2 n) above the best that its
family can reach, and a loss on its own rows that is as much below. So the difference between held-out and training loss
measures d, for any method and its shrinkage. With t times the rows, 1 - 1 / t of the excess is gone.
`experiments/accuracy/rows_needed.py` compares forecasts with the truth.
"""

import math
import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import chi2, norm

from glayers.activations import log_softmax
from glayers.arrays import Floats, effective_units, few_rows_note, row_blocks
from glayers.calibrators import AutoCalibrator, Calibrator, calibrator_of
from glayers.checks import MAX_SEED, number_between, whole_number
from glayers.errors import BadPredictions, GlayersError, GlayersWarning
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.folds import LEAST_OBSERVATIONS, assign_folds, format_gain, paired_gain, row_weights
from glayers.maps import Chain
from glayers.predictions import Confidences, Predictions
from glayers.predictions.predictions import two_classes
from glayers.progress import progress_bar
from glayers.serving.predictor import apply_map
from glayers.text_tables import Tabled, json_ready, p_text

if TYPE_CHECKING:
    from glayers.calibrators.base import Fitted

_FOLDS = 5
_LEAST_ROWS = 40
_WORST = 700.0  # nats: no loss of a row counts more, as e^-700 is nearly the smallest number
_HUGE = 1e6  # nats: decimals of such a loss mean nothing
_NOTICEABLE = 0.001  # a change of the NLL below this is not worth new labels
_LEVEL = 0.95  # of the most that more rows would bring


@dataclass(frozen=True)
class CalibrationGap:
    """How the log loss splits: loss = calibration + refinement. It prints as a sentence.

    Attributes
    ----------
    loss
        The mean log loss without calibration.
    calibration
        The gap: how much g lowers the loss of rows that it had not seen.
    standard_error
        Of `calibration` as an estimate of what functions like g could gain. It does not know what no such function can
        fit: the true gap may be larger by any amount.
    refinement
        What remains; no calibration can lower it.
    p_value
        Of the test whether the gap is zero.
    cost
        How much of the gap is lost, by an estimate, because g is learned from finitely many rows.
    methods
        Names the g fitted without each fold.
    rows
        The number of rows.
    """

    loss: float
    calibration: float
    standard_error: float
    refinement: float
    p_value: float
    cost: float
    methods: tuple[str, ...]
    rows: int

    def to_dict(self) -> dict[str, object]:
        """Return the numbers by name, as JSON has them."""
        return json_ready(asdict(self))

    def __str__(self) -> str:
        size = f"{_nats(self.calibration)} +- {_nats(self.standard_error)}"
        if math.isinf(self.standard_error):
            size = format_gain(self.calibration, self.standard_error)
        removed = f"{size} that calibration can remove ({p_text(self.p_value)})"
        return f"log loss: {_nats(self.loss)} = {removed} + {_nats(self.refinement)} that it cannot"


def _nats(loss: float) -> str:
    """Return a loss with four decimals; one that logits of 1e300 have given, with four digits."""
    return f"{loss:.4f}" if abs(loss) < _HUGE else f"{loss:.4g}"


@dataclass(frozen=True)
class LearningCurve(Tabled):
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
        How far the NLL of this fit, on new rows, probably lies above that of a fit on endlessly many.
    coefficients
        How many coefficients the rows determine, at most.
    effective_rows
        The effective number of rows, or of groups if there are any.
    """

    method: str
    rows: int
    loss: float
    excess: float
    coefficients: float
    effective_rows: float

    def forecast(self, times: float) -> dict[str, float]:
        """Return how far the NLL would fall with this many times the rows: probably, and at most in 95 % of fits.

        Let z be the error of a coefficient in standard errors, and e what it becomes with t times the rows. Then 2 n
        times the fall is the sum of z^2 - e^2 over coefficients, each of mean 1 - 1 / t and variance 2 (1 - 1 / t^2):
        nearly a multiple of chi-square.
        """
        t = number_between(times, "times", 1, 1e6)
        freedom = self.coefficients * (t - 1) / (t + 1)
        most = (1 + 1 / t) / (2 * self.effective_rows) * float(chi2.ppf(_LEVEL, freedom))
        return {"rows": round(t * self.rows), "gain": (1 - 1 / t) * self.excess, "at_most": most}

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers, with forecasts for two and four times the rows, ready for JSON."""
        return json_ready(asdict(self) | {"forecasts": [self.forecast(2), self.forecast(4)]})

    def sentence(self) -> str:
        """Return the forecast for twice the rows in words."""
        _, gain, most = self.forecast(2).values()
        if most < _NOTICEABLE:
            return f"with 2 times the rows NLL would fall by {most:.4f} at most: these rows are enough for this method"
        return f"with 2 times the rows NLL would fall by about {gain:.2g}, and by {most:.2g} at most"

    def footnotes(self) -> list[str]:
        """Return the forecast in words."""
        return [self.sentence()]

    def cells(self) -> list[tuple[str, ...]]:
        """Return the rows at hand, and forecasts for two and four times as many."""
        table: list[tuple[str, ...]] = [("rows", "NLL", "expected reduction", "at most (95 %)")]
        table.append((f"{self.rows:,}", f"{self.loss:.4f}", "", ""))
        for times in (2, 4):
            rows, gain, most = self.forecast(times).values()
            table.append((f"{rows:,}", "", f"{gain:.4f}", f"{most:.4f}"))
        return table


def calibration_gap(
    logits: object,
    labels: object = None,
    sample_weight: object = None,
    groups: object = None,
    *,
    calibrator: Calibrator | str | None = None,
    random_state: int = 0,
    progress: bool = False,
) -> CalibrationGap:
    """Measure how much calibration would lower the loss; every row is judged by a g that had not seen it.

    Parameters
    ----------
    logits : array (n, m), Predictions or Confidences
        What the calibrator takes, of held-out rows; a record has labels, weights and groups of its own.
    labels : array (n,), optional
        Their labels.
    sample_weight, groups : array (n,), optional
        Row weights, and groups of dependent rows; a group is never split between folds.
    calibrator : Calibrator or str, optional
        The g to fit; `AutoCalibrator` by default. A simpler one is faster and may miss part of the gap. Most
        calibrators, this one included, depend on softmax(z) alone, which is the usual definition of calibration.
    random_state : int
        Seed of the folds, and of the default calibrator.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    CalibrationGap
        The gap by log loss. `calibration` is negative where learning g from few rows costs more than
        it gains, which is no evidence of a gap. `standard_error` combines the paired error over rows, `cost` and
        4 / rows, half the smallest gap that so many rows can show. The p-value is one-sided, from the normal
        distribution and the paired error alone, because the other two terms can only hide a gap. With fewer than 8 rows
        or groups the standard error is infinite and p is 0.5. See docs/how-to/gap.md.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = 2 * rng.normal(size=(2_000, 3))
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> from glayers import TemperatureScaling
    >>> gap = calibration_gap(3 * z, labels, calibrator=TemperatureScaling())
    >>> gap.p_value < 1e-6, calibration_gap(z, labels, calibrator=TemperatureScaling()).p_value > 0.05
    (True, True)
    """
    seed = whole_number(random_state, "random_state", least=0, most=MAX_SEED)
    g, given = _method_and_rows(calibrator, seed, logits, labels, sample_weight, groups)
    fits, (before, after, costs) = _cross_validated(g, given, seed, progress)
    # Logits of 1e307 have losses whose sum and squares would overflow. Powers of 2 are exact.
    _, exponent = np.frexp(max(before.max(), after.max()))
    before, after = np.ldexp([before, after], -exponent)
    gains = paired_gain(before, after, given.weights, given.groups)
    means = np.average([before, after], axis=1, weights=given.weights)
    gain, paired, loss, refinement = np.ldexp([*gains, *means], exponent).tolist()
    cost = float(np.average(costs, weights=given.weights))
    rounding = 1e-12 * abs(loss)  # the difference between losses of equal predictions
    p_value = float(gain <= rounding)
    if paired > rounding:
        p_value = float(norm.sf(gain / paired))
    # A gap of G has a variance of 2 G per row, so two standard errors show gaps from 8 / n on, whatever g. If g finds
    # nothing, and so has no spread, it may have missed as much: half of this is one standard error.
    error = math.hypot(paired, cost, 4 / effective_units(row_weights(given), given.groups))
    methods = tuple(fitted.method for fitted in fits)
    return CalibrationGap(loss, gain, error, refinement, p_value, cost, methods, len(given))


def rows_needed(
    logits: Any,
    labels: Any = None,
    sample_weight: Any = None,
    groups: Any = None,
    *,
    calibrator: Calibrator | str | None = None,
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
    calibrator : Calibrator or str, optional
        The method, which is fitted six times; `AutoCalibrator()` by default.
    random_state : int
        Seed of the folds, and of the default calibrator.
    progress : bool, optional
        Whether to show a progress bar; by default, at a terminal only.

    Returns
    -------
    LearningCurve
        The cross-validated NLL and the forecasts of what this calibrator would gain on new rows like these. They do not
        know coefficients that only more rows would support.

    Examples
    --------
    >>> from glayers import TemperatureScaling
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(800, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> rows_needed(3 * z, labels, calibrator=TemperatureScaling()).sentence()
    'with 2 times the rows NLL would fall by about 0.0002, and by 0.0017 at most'
    """
    seed = whole_number(random_state, "random_state", least=0, most=MAX_SEED)
    method, given = _method_and_rows(calibrator, seed, logits, labels, sample_weight, groups)
    if len(given) < _LEAST_ROWS:
        raise BadPredictions(
            f"a forecast needs at least {_LEAST_ROWS} rows with a positive weight; got {len(given)}. "
            f"Label some more rows first"
        )
    if given.groups is not None and len(np.unique(given.groups)) < LEAST_OBSERVATIONS:
        raise BadPredictions(f"a forecast needs at least {LEAST_OBSERVATIONS} groups, which are never split")
    _, (_, held_out, _) = _cross_validated(method, given, seed, progress)
    fitted = method._fit(given)
    training = smooth_loss("log").rows(apply_map(fitted.map, given.logits), given.labels)
    held_out = np.minimum(held_out, _WORST)
    difference, _ = paired_gain(held_out, np.minimum(training, _WORST), given.weights, given.groups)
    # Held-out rows were judged by fits on 1 - 1 / folds of the rows, whose excess is larger.
    measured = max(0.0, difference / (_FOLDS / (_FOLDS - 1) + 1))
    n_units = effective_units(row_weights(given), given.groups)
    known = measured
    coefficients = 2 * n_units * max(0.0, difference)  # a training loss is below that of endlessly many rows
    if fitted.posterior is not None:
        known = fitted.effective / (2 * n_units)
        coefficients = max(2 * n_units * measured, fitted.effective)
    loss = float(np.average(held_out, weights=given.weights))
    return LearningCurve(str(method), len(given), loss, min(measured, known), max(1.0, coefficients), n_units)


def _method_and_rows(
    calibrator: object, seed: int, logits: Any, labels: Any, sample_weight: Any, groups: Any
) -> tuple[Calibrator, Predictions]:
    """Return the calibrator that the user passed, or `AutoCalibrator`, and the rows of positive weight.

    Rows come as arrays or as a record. Warns if few of them have most of the weight.
    """
    method: Calibrator = AutoCalibrator(random_state=seed, progress=False)
    if calibrator is not None:
        method = calibrator_of(calibrator)
    if not isinstance(logits, Predictions | Confidences):
        given = method._check_input(logits, labels, sample_weight, groups)
    elif labels is sample_weight is groups is None:
        given = two_classes(method.inputs, logits)
    else:
        raise GlayersError("Predictions have labels, weights and groups of their own: pass no others")
    note = few_rows_note(given.weights)
    if note:
        warnings.warn(note, GlayersWarning, stacklevel=3)
    if given.weights is not None:
        given = given.take(given.weights > 0)
    return method, given


def _cross_validated(
    g: Calibrator, given: Predictions, random_state: int, progress: bool | None
) -> "tuple[list[Fitted], Floats]":
    """Return a fit without each fold, and for each row: its loss, its loss by the g that had not seen it, and the cost.

    The cost is that of learning g.
    """
    folds = assign_folds(len(given), given.groups, _FOLDS, random_state)
    fits = []
    with progress_bar(progress, "fitting without each fold", int(folds.max()) + 1) as advance:
        for fold in range(int(folds.max()) + 1):
            try:
                fits.append(g._fit(given.take(folds != fold)))
            except GlayersError as problem:
                raise GlayersError(f"g cannot be fitted to the rows outside a fold: {problem}") from problem
            advance()
    losses = np.empty((3, len(given)))
    log_loss = smooth_loss("log").rows
    for rows in row_blocks(len(given), len(fits) * given.n_classes):
        logits = given.logits[rows]
        labels = given.labels[rows]
        by_fold = np.array([log_softmax(apply_map(fitted.map, logits)) for fitted in fits])
        losses[0, rows] = log_loss(apply_map(Chain(()), logits), labels)
        losses[1, rows] = log_loss(by_fold[folds[rows], np.arange(len(labels))], labels)
        losses[2, rows] = _cost(by_fold).clip(min=0.0)  # rounding may leave less
    return fits, losses


# The cost of learning g, from how far the g of different folds differ. Any two of K folds share all training rows
# except one part in K - 1 each, so on average they differ by 2 / (K - 1) times the cost of noise to either: Tukey's
# jackknife, 1958. As much again stands for the cost of shrinkage, which no fold shows: shrinking pays off until both
# are equal.
def _cost(by_fold: Floats) -> Floats:
    """Sum over folds of p (log p - mean log p), per row."""
    finite = np.maximum(by_fold, -_WORST)  # 0 times a finite number
    return (np.exp(by_fold) * (finite - finite.mean(axis=0))).sum(axis=(0, 2))
