import numpy as np
import pytest

from glayers import GlayersError, TemperatureScaling, VectorScaling, calibration_gap
from glayers.calibrators import SharedGLayers
from glayers.metrics import brier_sum, nll
from tests.calibrators.simulation import by_class, sample
from tests.strategies import Numbers


def softened(rows: int, factor: float, seed: int = 0) -> tuple[Numbers, Numbers]:
    """Logits that a temperature of `factor` makes true."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(rows, 3))
    return factor * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)


def test_the_gap_is_that_of_the_truth() -> None:
    made = sample(by_class, 4, 3_000, 0)
    gap = calibration_gap(made.logits, made.labels, calibrator=SharedGLayers("vector", random_state=0))
    large = sample(by_class, 4, 200_000, 1)
    claimed = np.exp(large.logits) / np.exp(large.logits).sum(axis=1, keepdims=True)
    truth = nll(claimed, large.labels) - nll(large.truth, large.labels)
    brier_truth = brier_sum(claimed, large.labels) - brier_sum(large.truth, large.labels)
    assert abs(gap.log.calibration - truth) < 3 * gap.log.standard_error
    assert abs(gap.brier.calibration - brier_truth) < 3 * gap.brier.standard_error
    assert max(gap.log.p_value, gap.brier.p_value) < 1e-6


def test_calibrated_models_are_rarely_called_anything_else() -> None:
    p_values = [
        calibration_gap(*softened(400, 1.0, seed), calibrator=TemperatureScaling()).log.p_value for seed in range(60)
    ]
    # One parameter learned from 320 rows costs a little, so fewer than 5 in 100; 8 of 60 would be a 1 percent chance.
    assert sum(p < 0.05 for p in p_values) < 8


def test_loss_is_calibration_and_refinement() -> None:
    z, labels = softened(600, 2.0)
    gap = calibration_gap(z, labels, calibrator=TemperatureScaling())
    for part in (gap.log, gap.brier):
        assert part.loss == pytest.approx(part.calibration + part.refinement)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    assert gap.log.loss == pytest.approx(nll(p, labels))
    assert gap.brier.loss == pytest.approx(brier_sum(p, labels))
    assert "that calibration takes away (p < 0.0001)" in str(gap)
    assert gap.to_dict()["log"] == gap.log._asdict()


def test_rows_are_judged_by_a_g_that_had_not_seen_them() -> None:
    z, labels = softened(60, 1.0)  # true already: only memory could do better
    free = VectorScaling(strength=1e-3)
    assert free.fit(z, labels).diagnostics_.loss_after < free.diagnostics_.loss_before
    gap = calibration_gap(z, labels, calibrator=free)
    assert gap.log.calibration < 0
    assert gap.log.p_value > 0.5


def test_the_calibrator_given_stays_unfitted_and_groups_stay_whole() -> None:
    mine = TemperatureScaling()
    z, labels = softened(300, 2.0)
    gap = calibration_gap(z, labels, groups=np.repeat(np.arange(60), 5), calibrator=mine)
    assert "map_" not in vars(mine)
    assert gap.folds == 5
    with pytest.raises(GlayersError, match="groups must hold at least 2"):
        calibration_gap(z, labels, groups=np.zeros(300), calibrator=mine)
