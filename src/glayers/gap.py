"""Logits and labels -> how much better calibration would lower the loss, with its uncertainty.

The paper's definition as a measurement: a network is calibrated exactly when no function g of its logits lowers its
expected proper loss. So fit the best g we have on some folds, measure how much it lowers the loss of the others, and
repeat until every row was held out once. The loss that remains after g is the refinement loss: no calibration can lower
it. Most calibrators ignore a constant added to a row of logits; a correction behind g therefore reads the level.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from scipy.stats import norm

from glayers.activations import log_softmax
from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.calibrators import AutoCalibrator, Calibrator
from glayers.checks import check_choice, whole_number
from glayers.errors import GlayersError
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.folds import assign_folds, fold_weights, format_gain, paired_gain
from glayers.fitting.level import LevelCorrection, fit_level
from glayers.maps import Chain
from glayers.predictions import Predictions
from glayers.progress import progress_bar
from glayers.serving.predictor import apply_map

if TYPE_CHECKING:
    from glayers.calibrators.base import Fitted

_ROUNDING = 1e-12  # relative difference between losses of equal predictions


class Gap(NamedTuple):
    """The decomposition of one loss: loss = calibration + refinement.

    `standard_error` is that of `calibration` as an estimate of the true gap. `p_value` tests whether the gap is zero.
    `cost` estimates how much of the gap is lost because g is learned from finitely many rows.
    """

    loss: float
    calibration: float
    standard_error: float
    refinement: float
    p_value: float
    cost: float


@dataclass(frozen=True)
class CalibrationGap:
    """The gap by log loss and by Brier score (summed over classes); `methods` names the g fitted without each fold."""

    log: Gap
    brier: Gap
    rows: int
    folds: int
    methods: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the numbers by name, as JSON has them."""
        return asdict(self) | {"log": self.log._asdict(), "brier": self.brier._asdict(), "methods": list(self.methods)}

    def __str__(self) -> str:
        return "\n".join(f"{name}: {_sentence(gap)}" for name, gap in (("log loss", self.log), ("Brier", self.brier)))


def calibration_gap(
    logits: object,
    labels: object = None,
    sample_weight: object = None,
    groups: object = None,
    *,
    calibrator: Calibrator | None = None,
    of: Literal["logits", "probabilities"] = "logits",
    n_folds: int = 5,
    random_state: int = 0,
    progress: bool = False,
) -> CalibrationGap:
    """Measure how much calibration would lower the loss; every row is judged by a g that had not seen it.

    Parameters
    ----------
    logits : array (n, m) or Predictions
        Logits of held-out rows; or `Predictions`, which have labels, weights and groups of their own.
    labels : array (n,), optional
        Their labels.
    sample_weight, groups : array (n,), optional
        Row weights, and groups of dependent rows; a group is never split between folds.
    calibrator : Calibrator, optional
        The g to fit; `AutoCalibrator` by default. A simpler one is faster and may miss part of the gap.
    of : {"logits", "probabilities"}
        What g may depend on. "logits" is the paper's definition: behind the calibrator, a temperature and shifts depend
        on the level of the row, log sum exp(z) or the mean of z, where that lowers the held-out loss significantly.
        "probabilities" is the usual definition of calibration: g depends on softmax(z) alone.
    n_folds : int
        Number of folds.
    random_state : int
        Seed of the folds, and of the default calibrator.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    CalibrationGap
        The gap by log loss and by Brier score. `calibration` is negative where learning g from few rows costs more than
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
    >>> gap.log.p_value < 1e-6, calibration_gap(z, labels, calibrator=TemperatureScaling()).log.p_value > 0.05
    (True, True)
    """
    seed = whole_number(random_state, "random_state", least=0, most=2**32 - 1)
    check_choice(of, ("logits", "probabilities"), "of")
    g = AutoCalibrator(random_state=seed, progress=False) if calibrator is None else calibrator
    if not isinstance(g, Calibrator):
        raise GlayersError(f"calibrator must be a calibrator, such as TemperatureScaling(); got {calibrator!r:.60}")
    given = logits if isinstance(logits, Predictions) else Predictions(logits, labels, sample_weight, groups)
    if given is logits and not labels is sample_weight is groups is None:
        raise GlayersError("Predictions have labels, weights and groups of their own: pass no others")
    given = given.repeated()
    folds = assign_folds(len(given), given.groups, whole_number(n_folds, "n_folds", least=2), seed)
    fold_weights(folds, given.weights)  # raises if a fold has no weight to train on
    fits: list[Fitted] = []
    levels: list[LevelCorrection | None] = []
    with progress_bar(progress, "measuring the gap", int(folds.max()) + 1) as advance:
        for fold in range(int(folds.max()) + 1):
            try:
                rows = given.take(folds != fold)
                fits.append(g._fit(rows))
                log_p = log_softmax(apply_map(fits[-1].map, rows.logits))
                levels.append(fit_level(log_p, rows, seed) if of == "logits" else None)
            except GlayersError as problem:
                raise GlayersError(f"g cannot be fitted to the rows outside a fold: {problem}") from problem
            advance()
    maps = [(fitted.map, level) for fitted, level in zip(fits, levels, strict=True)]
    log, brier = (_gap(rows, given) for rows in _row_losses(maps, folds, given).values())
    methods = tuple(each.method + (", by level" if level else "") for each, level in zip(fits, levels, strict=True))
    return CalibrationGap(log, brier, len(given), len(fits), methods)


def _outputs(chain: Chain, level: LevelCorrection | None, logits: Array) -> Floats:
    """Return log-probabilities by one g."""
    log_p: Floats = log_softmax(apply_map(chain, logits))
    return log_p if level is None else level(log_p, logits)


def _row_losses(maps: list[tuple[Chain, LevelCorrection | None]], folds: Ints, given: Predictions) -> dict[str, Floats]:
    """Return by loss, for each row: its loss, its loss by the g that had not seen it, and the cost of learning g."""
    found = {name: np.empty((3, len(given))) for name in _COSTS}
    for rows in row_blocks(len(given), len(maps) * given.n_classes):
        raw, labels = apply_map(Chain(()), given.logits[rows]), given.labels[rows]
        outputs = np.array([_outputs(*each, given.logits[rows]) for each in maps])
        calibrated = outputs[folds[rows], np.arange(len(labels))]
        for name, (before, after, costs) in found.items():
            loss = smooth_loss(name)
            before[rows], after[rows] = loss.rows(raw, labels), loss.rows(calibrated, labels)
            costs[rows] = _COSTS[name](outputs).clip(min=0.0)  # rounding may leave less
    return found


def _gap(rows: Floats, given: Predictions) -> Gap:
    before, after, costs = rows
    gain, paired = paired_gain(before, after, given.weights, given.groups)
    total, cost = (float(np.average(values, weights=given.weights)) for values in (before, costs))
    rounding = _ROUNDING * abs(total)
    p_value = float(norm.sf(gain / paired)) if paired > rounding else float(gain <= rounding)
    return Gap(total, gain, math.hypot(paired, cost, _resolution(given)), total - gain, p_value, cost)


def _resolution(given: Predictions) -> float:
    """Return half the smallest gap that shows as two standard errors, whatever g.

    A gap of G by log loss has a variance of 2 G per row, and no more by Brier score; so G = 2 sqrt(2 G / n) gives
    8 / n. If g finds nothing, and so has no spread, it may have missed this much.
    """
    weights = np.ones(len(given)) if given.weights is None else given.weights / given.weights.max()
    if given.groups is not None:
        weights = np.bincount(np.unique(given.groups, return_inverse=True)[1], weights=weights).astype(np.float64)
    return 4 * float((weights**2).sum() / weights.sum() ** 2)


def _log_cost(outputs: Floats) -> Floats:
    """Sum over folds of p (log p - mean log p), per row."""
    finite = np.maximum(outputs, -800.0)  # impossible classes: 0 times a finite number
    return (np.exp(outputs) * (finite - finite.mean(axis=0))).sum(axis=(0, 2))


def _brier_cost(outputs: Floats) -> Floats:
    """Twice the sum over folds of the squared distance from p to the mean p, per row."""
    p = np.exp(outputs)
    return 2 * np.square(p - p.mean(axis=0)).sum(axis=(0, 2))


# The cost of learning g, from how far the g of different folds differ. Any two of K folds share all training rows
# except one part in K - 1 each, so on average they differ by 2 / (K - 1) times the cost of noise to either: Tukey's
# jackknife, 1958. As much again stands for the cost of shrinkage, which no fold shows: shrinking pays off until both
# are equal.
_COSTS: dict[str, Callable[[Floats], Floats]] = {"log": _log_cost, "brier": _brier_cost}


def _sentence(gap: Gap) -> str:
    size = f"{gap.calibration:.4f} +- {gap.standard_error:.4f}"
    if math.isinf(gap.standard_error):
        size = format_gain(gap.calibration, gap.standard_error)
    p_value = f"p = {gap.p_value:.2g}" if gap.p_value >= 1e-4 else "p < 0.0001"
    return f"{gap.loss:.4f} = {size} that calibration can remove ({p_value}) + {gap.refinement:.4f} that it cannot"
