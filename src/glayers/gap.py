"""Logits and labels -> how much of the loss better calibration would take away, with its uncertainty.

The paper's definition as a measurement: a network is calibrated exactly when no g lowers its expected proper loss. So
fit the best g we have on some rows, see what it lowers on the others, and do so until every row was among the others.
What remains after g is the refinement loss: what the network cannot tell apart, however well it says so.
"""

from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.base import clone

from glayers.arrays import Floats
from glayers.calibrators import AutoCalibrator, Calibrator
from glayers.calibrators.base import apply_map
from glayers.fitting.comparison import paired_gain
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.folds import assign_folds
from glayers.fitting.progress import progress_bar
from glayers.maps import Chain
from glayers.predictions import Predictions
from glayers.settings import whole_number


class Gap(NamedTuple):
    """loss = calibration + refinement, the standard error of calibration, and the chance of so much were it none."""

    loss: float
    calibration: float
    standard_error: float
    refinement: float
    p_value: float


@dataclass(frozen=True)
class CalibrationGap:
    """The gap by log loss and by Brier score (summed over classes), and how many rows it was measured on."""

    log: Gap
    brier: Gap
    rows: int
    folds: int

    def to_dict(self) -> dict[str, object]:
        """Return the numbers by name, as JSON would have them."""
        return asdict(self) | {"log": self.log._asdict(), "brier": self.brier._asdict()}

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

    `calibrator` is the g to fit, `AutoCalibrator` if None; a lighter one is faster and may miss part of the gap. The
    p-value is one-sided, by the normal distribution. A g learned from few rows costs more than it finds: then
    calibration is negative, which is no evidence of a gap.

    >>> rng = np.random.default_rng(0)
    >>> z = 2 * rng.normal(size=(2_000, 3))
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> from glayers import TemperatureScaling
    >>> gap = calibration_gap(3 * z, labels, calibrator=TemperatureScaling())
    >>> gap.log.p_value < 1e-6, calibration_gap(z, labels, calibrator=TemperatureScaling()).log.p_value > 0.05
    (True, True)
    """
    given = Predictions(logits, labels, weights=weights, groups=groups)
    folds = assign_folds(len(given), given.groups, whole_number(n_folds, "n_folds", least=2), random_state)
    before = apply_map(Chain(()), given.logits)
    after = np.empty_like(before)
    n_used = int(folds.max()) + 1
    with progress_bar(progress, "measuring the gap", n_used) as advance:
        for fold in range(n_used):
            held_out = folds == fold
            g = AutoCalibrator(random_state=random_state) if calibrator is None else clone(calibrator)
            fitted = g.fit_predictions(given.take(~held_out))
            after[held_out] = apply_map(fitted.map_, given.logits[held_out])
            advance()
    return CalibrationGap(_gap("log", before, after, given), _gap("brier", before, after, given), len(given), n_used)


def _gap(name: str, before: Floats, after: Floats, given: Predictions) -> Gap:
    loss = smooth_loss(name)
    plain, calibrated = loss.rows(before, given.labels), loss.rows(after, given.labels)
    gain, error = paired_gain(plain, calibrated, given.weights, given.groups)
    total = float(np.average(plain, weights=given.weights))
    p_value = float(norm.sf(gain / error)) if error > 0 else float(gain <= 0)
    return Gap(total, gain, error, total - gain, p_value)


def _sentence(gap: Gap) -> str:
    told = f"p = {gap.p_value:.2g}" if gap.p_value >= 1e-4 else "p < 0.0001"
    return (
        f"{gap.loss:.4f} = {gap.calibration:.4f} +- {gap.standard_error:.4f} that calibration takes away ({told}) "
        f"+ {gap.refinement:.4f} that it cannot"
    )
