from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax

from glayers import GlayersError, GlayersWarning, Predictions, metrics
from glayers.calibrators.shared_g_layers import SharedGLayers
from glayers.calibrators.shared_recalibration import recalibrate
from glayers.fitting.comparison import paired_gain
from glayers.fitting.folds import assign_folds
from glayers.fitting.shared import fit_shared, shared_losses, shared_rows, shared_step
from glayers.maps.shared import Shared


def bent(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose truth is not a temperature away: the winner's margin is stretched more the larger it is."""
    rng = np.random.default_rng(seed)
    truth = 2 * rng.normal(size=(rows, classes))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    return np.sign(truth) * np.abs(truth) ** 1.6, labels


def some_step(seed: int = 0) -> Shared:
    rng = np.random.default_rng(seed)
    return Shared(rng.normal(size=(6, 5)) / 10, rng.normal(size=4), rng.uniform(1, 2, 4), np.asarray(4.0))


def test_permuting_classes_permutes_the_output() -> None:
    logits, _ = bent(50, 7)
    order = np.random.default_rng(1).permutation(7)
    step = some_step()
    np.testing.assert_allclose(step(logits)[:, order], step(logits[:, order]), atol=1e-12)


def test_adding_a_constant_to_a_row_changes_nothing() -> None:
    logits, _ = bent(50, 7)
    shift = np.random.default_rng(1).normal(size=(50, 1)) * 100
    np.testing.assert_allclose(some_step()(logits), some_step()(logits + shift), atol=1e-9)


def test_no_weight_is_no_correction() -> None:
    logits, _ = bent(50, 7)
    step = Shared(np.zeros((6, 5)), np.zeros(4), np.ones(4), np.asarray(10.0))
    np.testing.assert_allclose(step(logits), log_softmax(logits, axis=1), atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 30])
def test_numpy_and_torch_agree(classes: int) -> None:
    logits, _ = bent(40, classes)
    step = some_step()
    tensors = step.with_parameters({name: torch.as_tensor(value) for name, value in step.parameters().items()})
    np.testing.assert_allclose(tensors(torch.as_tensor(logits)).numpy(), step(logits), atol=1e-12)


@pytest.mark.parametrize("classes", [2, 5, 30])
def test_the_losses_of_the_fit_are_the_losses_of_the_step(classes: int) -> None:
    logits, labels = bent(300, classes)
    plain = log_softmax(logits, axis=1)
    rows = shared_rows(plain, labels)
    theta = np.random.default_rng(2).normal(size=30) / 20
    outputs = shared_step(rows, theta)(plain)
    np.testing.assert_allclose(shared_losses(rows, theta), -outputs[np.arange(300), labels], atol=1e-8)


def test_newton_ends_where_a_general_optimiser_does() -> None:
    logits, labels = bent(400, 5)
    rows = shared_rows(log_softmax(logits, axis=1), labels)
    weights = np.random.default_rng(3).uniform(0.5, 2, 400)

    def objective(theta: np.ndarray) -> float:
        loss = float(np.average(shared_losses(rows, theta), weights=weights))
        return loss + 10.0 / 400 * float((rows.scale * theta**2).sum()) / 2

    ours = fit_shared(rows, weights, strength=10.0)
    other = minimize(objective, np.zeros(30), method="BFGS", options={"gtol": 1e-7})
    assert objective(ours) == pytest.approx(other.fun, abs=1e-7)
    assert objective(ours) <= other.fun + 1e-9


def test_weights_of_two_are_rows_twice() -> None:
    logits, labels = bent(200, 4)
    plain = log_softmax(logits, axis=1)
    rows = shared_rows(plain, labels)
    half = fit_shared(rows, np.where(np.arange(200) < 100, 2.0, 0.0), 1.0)
    again = fit_shared(rows, np.where(np.arange(200) < 100, 1.0, 0.0), 1.0)
    np.testing.assert_allclose(half, again, atol=1e-9)


def test_calibrated_predictions_are_left_alone() -> None:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(3_000, 5))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    given = Predictions(logits, labels)
    found = recalibrate(log_softmax(logits, axis=1), given, assign_folds(labels, None, 5, 0))
    assert found.chain.steps == ()
    assert found.gain <= found.error


def test_the_gain_is_paired_and_its_error_is_that_of_a_mean() -> None:
    before, after = np.array([2.0, 3.0, 4.0, 9.0]), np.array([1.0, 1.0, 4.0, 3.0])
    gains = before - after  # 1, 2, 0, 6
    gain, error = paired_gain(before, after, None, None)
    assert gain == pytest.approx(2.25)
    assert error == pytest.approx(gains.std(ddof=1) / 2)


def test_rows_of_no_weight_and_rows_of_one_group_tell_nothing_more() -> None:
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 40))
    few = paired_gain(before[:20], after[:20], None, None)
    assert paired_gain(before, after, np.where(np.arange(40) < 20, 3.0, 0.0), None) == pytest.approx(few)
    twenty_times = np.repeat(np.arange(40), 20)
    grouped = paired_gain(before[twenty_times], after[twenty_times], None, twenty_times)
    assert grouped == pytest.approx(paired_gain(before, after, None, None))
    assert paired_gain(before, after, None, np.zeros(40))[1] == np.inf


@pytest.mark.parametrize("part", ["temperature", "g-layers"])
def test_it_calibrates_what_a_temperature_cannot(part: Any) -> None:
    calibration, test = bent(4_000, 8), bent(20_000, 8, seed=1)
    settings = {"max_epochs": 4} if part == "g-layers" else None
    fitted = SharedGLayers(part, random_state=0, settings=settings).fit(*calibration)
    p = fitted.predict_proba(test[0])
    top = p.max(axis=1)
    # Twice the 5 percent bound of a perfectly calibrated model: 30 weights from 4,000 rows carry some error themselves.
    assert metrics.ks_error(p, test[1]) < 2 * 2.24 * np.sqrt((top * (1 - top)).mean() / len(top))
    assert fitted.gain_ > fitted.gain_error_
    assert fitted.out_of_fold_.shape == (4_000, 8)
    assert "kept" in fitted.diagnostics_.reason


def test_one_logit_is_enough() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2_000, 1)) * 2
    labels = (rng.random((2_000, 1)) < 1 / (1 + np.exp(-np.tanh(z) * 2))).astype(int)[:, 0]
    fitted = SharedGLayers("temperature", random_state=0).fit(z, labels)
    assert fitted.predict_proba(z).shape == (2_000, 2)


def test_nothing_to_correct_is_said() -> None:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(2_000, 4))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    with pytest.warns(GlayersWarning, match="no gain to rely on"):
        SharedGLayers("temperature", random_state=0).fit(logits, labels)


def test_unknown_parts_and_missing_folds_are_refused() -> None:
    calibration = bent(200, 3)
    wrong: Any = "matrix"
    with pytest.raises(GlayersError, match="class_part"):
        SharedGLayers(wrong).fit(*calibration)
    paper = {"recipe": "paper", "learning_rate": 1e-3, "weight_decay": 0.1, "max_epochs": 1}
    with pytest.raises(GlayersError, match="cross-validation"):
        SharedGLayers(settings=paper).fit(*calibration)
