"""Logits and labels -> how much of the loss better calibration would take away, with its uncertainty.

The paper's definition as a measurement: a network is calibrated exactly when no g lowers its expected proper loss. So
fit the best g we have on some rows, see what it lowers on the others, and do so until every row was among the others.
What remains after g is the refinement loss: what the network cannot tell apart, however well it says so.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.base import clone

from glayers.activations import log_softmax
from glayers.arrays import Floats, Ints, row_blocks
from glayers.calibrators import AutoCalibrator, Calibrator
from glayers.calibrators.base import apply_map
from glayers.errors import GlayersError, GlayersWarning
from glayers.fitting.comparison import gain_in_words, paired_gain
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.folds import assign_folds, fold_weights
from glayers.maps import Chain
from glayers.predictions import Predictions
from glayers.progress import progress_bar
from glayers.settings import whole_number

_ROUNDING = 1e-12  # of a loss: copies of the same predictions differ by no more


class Gap(NamedTuple):
    """loss = calibration + refinement, the standard error of calibration, and the chance of so much were it none.

    `cost` is about what learning g from these rows costs: with endless rows calibration would be larger by as much.
    """

    loss: float
    calibration: float
    standard_error: float
    refinement: float
    p_value: float
    cost: float


@dataclass(frozen=True)
class CalibrationGap:
    """The gap by log loss and by Brier score (summed over classes), on how many rows, and what g was in each fold."""

    log: Gap
    brier: Gap
    rows: int
    folds: int
    methods: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the numbers by name, as JSON would have them."""
        return asdict(self) | {"log": self.log._asdict(), "brier": self.brier._asdict(), "methods": list(self.methods)}

    def __str__(self) -> str:
        return "\n".join(f"{name}: {_sentence(gap)}" for name, gap in (("log loss", self.log), ("Brier", self.brier)))


def calibration_gap(
    logits: object,
    labels: object,
    weights: object = None,
    groups: object = None,
    *,
    calibrator: Calibrator | None = None,
    n_folds: int = 5,
    random_state: int = 0,
    progress: bool = False,
) -> CalibrationGap:
    """Measure what calibration would lower, cross-fitted: every row is judged by a g that had not seen it.

    `calibrator` is the g to fit, `AutoCalibrator` if None; a lighter one is faster and may miss part of the gap. A g
    learned from few rows costs more than it finds: then calibration is negative, which is no evidence of a gap.

    `standard_error` is that of calibration as an estimate of the true gap: the root of the squares of the paired error
    of the rows, of `cost` and of 4 / rows, half the least gap that so many rows can show. The p-value is one-sided, by
    the normal distribution and the paired error alone: the others can only hide a gap. From fewer than 8 rows or groups
    there is no error to be had: it is infinite, and p is 0.5. See docs/gap.md.

    >>> rng = np.random.default_rng(0)
    >>> z = 2 * rng.normal(size=(2_000, 3))
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> from glayers import TemperatureScaling
    >>> gap = calibration_gap(3 * z, labels, calibrator=TemperatureScaling())
    >>> gap.log.p_value < 1e-6, calibration_gap(z, labels, calibrator=TemperatureScaling()).log.p_value > 0.05
    (True, True)
    """
    seed = whole_number(random_state, "random_state", least=0, most=2**32 - 1)
    g = AutoCalibrator(random_state=seed, progress=False) if calibrator is None else calibrator
    if not isinstance(g, Calibrator):
        raise GlayersError(f"calibrator must be a calibrator, such as TemperatureScaling(); got {calibrator!r:.60}")
    given = Predictions(logits, labels, weights=weights, groups=groups)
    folds = assign_folds(len(given), given.groups, whole_number(n_folds, "n_folds", least=2), seed)
    fold_weights(folds, given.weights)  # complains where a fold leaves nothing to learn from
    fits = []
    with progress_bar(progress, "measuring the gap", int(folds.max()) + 1) as advance:
        for fold in range(int(folds.max()) + 1):
            fits.append(_quietly_fitted(g, given.take(folds != fold)))
            advance()
    judged = _judged([fitted.map_ for fitted in fits], folds, given)
    gaps = {name: _gap(rows, given) for name, rows in judged.items()}
    methods = tuple(fitted.diagnostics_.method for fitted in fits)
    return CalibrationGap(gaps["log"], gaps["brier"], len(given), len(fits), methods)


def _quietly_fitted(calibrator: Calibrator, rows: Predictions) -> Calibrator:
    """Return a fitted copy; that a fold's g is none, or has not seen a rare class, is part of what is measured."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GlayersWarning)
            fitted: Calibrator = clone(calibrator).fit_predictions(rows)
    except GlayersError as problem:
        raise GlayersError(f"g cannot be fitted to what remains when a fold is held out: {problem}") from problem
    return fitted


class _Rows(NamedTuple):
    """By one loss: what each row costs as it came, by the g that had not seen it, and what learning that g cost."""

    plain: Floats
    calibrated: Floats
    costs: Floats


def _judged(chains: list[Chain], folds: Ints, given: Predictions) -> dict[str, _Rows]:
    found = {name: _Rows(*(np.empty(len(given)) for _ in _Rows._fields)) for name in _COSTS}
    for rows in row_blocks(len(given), len(chains) * given.n_classes):
        before, labels = apply_map(Chain(()), given.logits[rows]), given.labels[rows]
        outputs = np.array([log_softmax(apply_map(chain, given.logits[rows])) for chain in chains])
        after = outputs[folds[rows], np.arange(len(labels))]
        for name, (plain, calibrated, costs) in found.items():
            loss = smooth_loss(name)
            plain[rows], calibrated[rows] = loss.rows(before, labels), loss.rows(after, labels)
            costs[rows] = _COSTS[name](outputs).clip(min=0.0)  # rounding may leave less
    return found


def _gap(rows: _Rows, given: Predictions) -> Gap:
    gain, paired = paired_gain(rows.plain, rows.calibrated, given.weights, given.groups)
    total, cost = (float(np.average(values, weights=given.weights)) for values in (rows.plain, rows.costs))
    rounding = _ROUNDING * abs(total)
    p_value = float(norm.sf(gain / paired)) if paired > rounding else float(gain <= rounding)
    return Gap(total, gain, math.hypot(paired, cost, _resolution(given)), total - gain, p_value, cost)


def _resolution(given: Predictions) -> float:
    """Half the least gap that shows as two standard errors, whatever g.

    A gap of G by log loss comes with a variance of 2 G a row, by Brier score with no more; so G = 2 sqrt(2 G / n) is
    8 / n. Where g finds nothing, and so has no spread, that is how much it may have missed.
    """
    shares = np.ones(len(given)) if given.weights is None else given.weights / given.weights.max()
    if given.groups is not None:
        shares = np.bincount(np.unique(given.groups, return_inverse=True)[1], weights=shares).astype(np.float64)
    return 4 * float((shares**2).sum() / shares.sum() ** 2)


def _log_cost(outputs: Floats) -> Floats:
    """The sum over folds of p (log p - mean log p), row by row."""
    return (np.exp(outputs) * (outputs - outputs.mean(axis=0))).sum(axis=(0, 2))


def _brier_cost(outputs: Floats) -> Floats:
    """Twice the sum over folds of the squared distance from p to the mean p, row by row."""
    p = np.exp(outputs)
    return 2 * np.square(p - p.mean(axis=0)).sum(axis=(0, 2))


# By how far the folds' g lie apart. Two of K folds learn from the same rows but for one part in K - 1 each, so on
# average they diverge by 2 / (K - 1) times what noise costs either: Tukey's jackknife, 1958. That much again stands for
# what caution costs, which no fold shows: shrinking is worth it up to where both are equal.
_COSTS: dict[str, Callable[[Floats], Floats]] = {"log": _log_cost, "brier": _brier_cost}


def _sentence(gap: Gap) -> str:
    size = f"{gap.calibration:.4f} +- {gap.standard_error:.4f}"
    if math.isinf(gap.standard_error):
        size = gain_in_words(gap.calibration, gap.standard_error)
    told = f"p = {gap.p_value:.2g}" if gap.p_value >= 1e-4 else "p < 0.0001"
    return f"{gap.loss:.4f} = {size} that calibration takes away ({told}) + {gap.refinement:.4f} that it cannot"
