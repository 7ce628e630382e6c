import math
import warnings
from typing import Any

import numpy as np
import pytest

from glayers import (
    AutoCalibrator,
    BadPredictions,
    Confidences,
    GlayersError,
    Predictions,
    TemperatureScaling,
    VectorScaling,
    calibration_gap,
)
from glayers.calibrators import PlattScaling
from glayers.fitting.folds import assign_folds
from glayers.metrics import nll
from tests.strategies import Numbers


def softened(rows: int, factor: float, seed: int = 0) -> tuple[Numbers, Numbers]:
    """Logits that a temperature of `factor` makes true."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(rows, 3))
    return factor * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)


def test_the_gap_is_that_of_the_truth() -> None:
    def shifted(rows: int, seed: int) -> tuple[Numbers, Numbers, Numbers]:
        """Logits, the log-probabilities that labels come from, and labels: one scale and one shift per class."""
        rng = np.random.default_rng(seed)
        z = 2 * rng.normal(size=(rows, 4))
        true = z * [0.4, 0.6, 0.8, 1.0] + [1.0, 0.0, -0.5, 0.5]
        return z, true, (true + rng.gumbel(size=z.shape)).argmax(axis=1)

    z, _, labels = shifted(3_000, 0)
    gap = calibration_gap(z, labels, calibrator=VectorScaling())
    z, true, labels = shifted(100_000, 1)
    truth = nll(Predictions(z, labels)) - nll(Predictions(true, labels))
    assert truth > 10 * gap.standard_error
    assert abs(gap.calibration - truth) < 3 * gap.standard_error
    assert gap.p_value < 1e-6


def test_calibrated_models_are_rarely_called_anything_else() -> None:
    p_values = [
        calibration_gap(*softened(400, 1.0, seed), calibrator=TemperatureScaling()).p_value for seed in range(40)
    ]
    # One parameter learned from 320 rows costs a little, so fewer than 5 in 100; 7 of 40 would be a 1 percent chance.
    assert sum(p < 0.05 for p in p_values) < 7


def test_rows_count_alike_however_unequal_the_folds() -> None:
    z, labels = softened(240, 2.0)
    groups = np.where(np.arange(240) < 150, 0, np.arange(240))  # one fold has 150 rows or more
    gap = calibration_gap(z, labels, groups=groups, calibrator=TemperatureScaling())
    folds = assign_folds(240, groups, 5, 0)
    after = 0.0
    for held in (folds == fold for fold in range(5)):
        fitted = TemperatureScaling().fit(z[~held], labels[~held])
        after += held.sum() * nll(fitted.predict_proba(z[held]), labels[held])
    assert gap.refinement == pytest.approx(after / 240)


def test_loss_is_calibration_and_refinement() -> None:
    z, labels = softened(600, 2.0)
    gap = calibration_gap(z, labels, calibrator=TemperatureScaling())
    assert gap.loss == pytest.approx(gap.calibration + gap.refinement)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    assert gap.loss == pytest.approx(nll(p, labels))
    assert "that calibration can remove (p < 0.0001)" in str(gap)
    assert gap.to_dict()["calibration"] == gap.calibration
    assert calibration_gap(Predictions(z, labels), calibrator=TemperatureScaling()) == gap
    with pytest.raises(GlayersError, match="pass no others"):
        calibration_gap(Predictions(z, labels), labels)


def test_rows_are_judged_by_a_g_that_had_not_seen_them() -> None:
    free, found = VectorScaling(strength=1e-3), []
    for seed in range(10):  # any one of them may be lucky
        z, labels = softened(60, 1.0, seed)  # true already: only memory could do better
        assert free.fit(z, labels).diagnostics_.loss_after < free.diagnostics_.loss_before
        found.append(calibration_gap(z, labels, calibrator=free))
    assert np.mean([gap.calibration for gap in found]) < -0.02
    assert np.mean([gap.p_value for gap in found]) > 0.7


def test_the_calibrator_given_stays_unfitted_and_groups_stay_whole() -> None:
    mine = TemperatureScaling()
    z, labels = softened(300, 2.0)
    gap = calibration_gap(z, labels, groups=np.repeat(np.arange(60), 5), calibrator=mine)
    assert "map_" not in vars(mine)
    assert len(gap.methods) == 5
    with pytest.raises(GlayersError, match="groups must hold at least 2"):
        calibration_gap(z, labels, groups=np.zeros(300), calibrator=mine)


def test_the_cost_is_twice_the_jackknifes_estimate_of_what_noise_takes() -> None:
    # One parameter learned from 800 rows costs 1 / 1,600 on average; 40 seeds know the mean of estimates to an eighth.
    gaps = [calibration_gap(*softened(1_000, 1.5, seed), calibrator=TemperatureScaling()) for seed in range(40)]
    assert np.mean([gap.cost for gap in gaps]) / 2 == pytest.approx(1 / 1_600, rel=0.3)


def test_the_standard_error_counts_rows_learning_and_what_cannot_be_seen() -> None:
    z, labels = softened(4_000, 1.5)
    gap = calibration_gap(z, labels, calibrator=TemperatureScaling())
    paired = math.sqrt(gap.standard_error**2 - gap.cost**2 - (4 / 4_000) ** 2)
    truth = np.log(np.exp(z / 1.5) / np.exp(z / 1.5).sum(axis=1, keepdims=True))
    said = np.log(np.exp(z) / np.exp(z).sum(axis=1, keepdims=True))
    gains = (truth - said)[np.arange(4_000), labels]
    assert paired == pytest.approx(gains.std(ddof=1) / math.sqrt(4_000), rel=0.05)
    # The p-value is that of the paired error alone.
    assert gap.p_value == pytest.approx(math.erfc(gap.calibration / paired / math.sqrt(2)) / 2)


def test_a_g_that_changes_nothing_finds_nothing_and_says_how_little_that_means() -> None:
    z, labels = softened(500, 1.0, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # five folds that find nothing are no five warnings
        gap = calibration_gap(z, labels, calibrator=AutoCalibrator(time_budget=0))
    assert set(gap.methods) <= {"auto: uncalibrated", "auto: temperature"}
    assert gap.standard_error >= 4 / 500
    # Rows five times over, in groups, show no more than one of each.
    copies = np.repeat(np.arange(500), 5)
    grouped = calibration_gap(z[copies], labels[copies], groups=copies, calibrator=TemperatureScaling())
    assert grouped.standard_error >= 4 / 500


def test_rounding_is_no_gain() -> None:
    # Both logits of a row are the same: every temperature says what the model says.
    gap = calibration_gap(np.zeros((50, 2)), np.arange(50) % 2, calibrator=TemperatureScaling())
    assert gap.p_value == 1
    assert (gap.calibration, gap.cost) == (0, 0)


@pytest.mark.parametrize("unit", [1e-300, 1e290])
def test_the_unit_of_weights_changes_nothing(unit: float) -> None:
    z, labels = softened(200, 1.5)
    weights = np.random.default_rng(0).uniform(0.5, 2, 200)
    gap, scaled = (calibration_gap(z, labels, w, calibrator=TemperatureScaling()) for w in (weights, unit * weights))
    for name in ("loss", "calibration", "standard_error", "p_value", "cost"):
        assert getattr(scaled, name) == pytest.approx(getattr(gap, name), rel=1e-6)


def test_few_groups_are_no_evidence_and_too_few_leave_nothing_to_fit() -> None:
    z, labels = softened(300, 3.0)
    gap = calibration_gap(z, labels, groups=np.arange(300) % 7, calibrator=TemperatureScaling())
    assert (gap.standard_error, gap.p_value) == (math.inf, 0.5)
    assert "(too few rows or groups for a standard error) that calibration can remove (p = 0.5)" in str(gap)
    with pytest.raises(GlayersError, match="the rows outside a fold: groups must hold at least 2"):
        calibration_gap(z, labels, groups=np.arange(300) % 2, calibrator=AutoCalibrator(time_budget=0))


def test_wrong_settings_are_refused_by_name() -> None:
    z, labels = softened(60, 1.0)
    for wrong in ("temperatur", TemperatureScaling):
        no_calibrator: Any = wrong
        with pytest.raises(GlayersError, match=r"a calibrator must be one of glayers, such as TemperatureScaling\(\)"):
            calibration_gap(z, labels, calibrator=no_calibrator)
    for seed in (-1, 2**32):
        with pytest.raises(BadPredictions, match=r"random_state must be in 0\.\.4294967295"):
            calibration_gap(z, labels, random_state=seed)
    temperature = TemperatureScaling()
    of_array = calibration_gap(z, labels, calibrator=temperature, random_state=np.array(3))  # type: ignore[arg-type]
    assert of_array == calibration_gap(z, labels, calibrator=temperature, random_state=3)
    with pytest.raises(GlayersError, match="at least 2 rows, one to hold out; got 1"):
        calibration_gap(z, labels, np.r_[1.0, np.zeros(59)])
    with pytest.raises(GlayersError, match="at least 2 rows"):
        calibration_gap(z[:1], labels[:1])


def test_masked_classes_and_one_logit_have_a_gap() -> None:
    z, labels = softened(300, 2.0)
    z[np.arange(300), (labels + 1) % 3] = -np.inf
    assert np.isfinite(calibration_gap(z, labels, calibrator=TemperatureScaling()).standard_error)
    one = calibration_gap(z[:, :1].clip(-9), labels.clip(max=1), calibrator=TemperatureScaling())
    assert np.isfinite(one.standard_error)


def test_confidences_have_a_gap_too() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 2_000)
    given = Confidences(confidence, rng.random(2_000) < confidence**2)
    gap = calibration_gap(given, calibrator=PlattScaling(inputs="confidence"))
    assert gap.p_value < 1e-4
    with pytest.raises(BadPredictions, match="Confidences do not fit a calibrator with inputs='logits'"):
        calibration_gap(given, calibrator=TemperatureScaling())


def test_losses_that_could_not_be_squared_are_a_gap_too() -> None:
    z, labels = softened(400, 1.0)
    gap = calibration_gap(1e307 * z, labels, calibrator=TemperatureScaling())
    assert gap.calibration == pytest.approx(nll(Predictions(1e307 * z / 1e9, labels)) * 1e9, rel=1e-6)
    assert gap.refinement == pytest.approx(
        calibration_gap(1e3 * z, labels, calibrator=TemperatureScaling()).refinement, abs=1e-4
    )
    assert 0 < gap.standard_error < gap.calibration < np.inf
    assert gap.p_value < 1e-6
    assert len(str(gap)) < 120


def test_rows_of_weight_zero_equal_rows_left_out() -> None:
    z, labels = softened(400, 2.0)
    weights = np.arange(400) % 2
    gap = calibration_gap(z, labels, weights, calibrator=TemperatureScaling())
    assert gap == calibration_gap(z[1::2], labels[1::2], calibrator=TemperatureScaling())
    assert gap.rows == 200
