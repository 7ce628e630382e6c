"""Shared g-layers: g-layers and one correction for all classes, what they gain, and what is refused."""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.special import log_softmax

from glayers import GlayersError, GlayersWarning, Predictions, TemperatureScaling, metrics
from glayers.calibrators.shared_g_layers import SharedGLayers


def bent(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose truth is not a temperature away: the winner's margin is stretched more the larger it is."""
    rng = np.random.default_rng(seed)
    truth = 2 * rng.normal(size=(rows, classes))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    return np.sign(truth) * np.abs(truth) ** 1.6, labels


def calibrated(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(rows, classes))
    return logits, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def log_loss(logits: np.ndarray, labels: np.ndarray) -> float:
    return metrics.nll(Predictions(logits, labels))


def fit_quietly(logits: np.ndarray, labels: np.ndarray, **settings: Any) -> SharedGLayers:
    """Fit where g-layers may fall back to temperature scaling."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)
        return SharedGLayers(random_state=0, **settings).fit(logits, labels)


def test_calibrated_predictions_are_left_alone() -> None:
    logits, labels = calibrated(3_000, 5)
    fitted = fit_quietly(logits, labels)
    assert abs(fitted.gain_) < 3e-3
    assert np.abs(fitted.predict_proba(logits) - np.exp(log_softmax(logits, axis=1))).mean() < 0.01


def test_permuting_classes_permutes_the_shared_correction() -> None:
    logits, labels = calibrated(800, 6)  # where g-layers find nothing, the correction acts alone
    logits = np.sign(logits) * np.abs(logits) ** 1.1
    order = np.random.default_rng(1).permutation(6)
    one, other = (fit_quietly(z, y) for z, y in ((logits, labels), (logits[:, order], np.argsort(order)[labels])))
    assert one.n_parameters_ == other.n_parameters_ == 36
    np.testing.assert_allclose(other.predict_proba(logits[:, order]), one.predict_proba(logits)[:, order], atol=1e-4)


def test_a_gain_that_rows_do_not_show_is_said_to_be_a_loss() -> None:
    logits, labels = calibrated(40, 5)
    fitted = fit_quietly(logits, labels)
    verb = "lowers" if fitted.gain_ >= 0 else "raises"
    assert fitted.diagnostics_.reason.startswith(f"the shared correction {verb} the cross-validated log loss by ")
    plain = log_loss(TemperatureScaling().fit(logits, labels).transform(logits), labels)  # g-layers fall back to it
    assert fitted.gain_ == pytest.approx(plain - log_loss(fitted.out_of_fold_, labels), abs=1e-6)


def test_it_calibrates_what_a_temperature_cannot() -> None:
    calibration, test = bent(4_000, 8), bent(20_000, 8, seed=1)
    fitted = SharedGLayers(random_state=0).fit(*calibration)
    p = fitted.predict_proba(test[0])
    top = p.max(axis=1)
    # The 5 percent bound of a sampling error that both sides carry: what 4,000 rows teach and what 20,000 show.
    assert metrics.ks(p, test[1]) < 2.24 * np.sqrt((top * (1 - top)).mean() * (1 / 4_000 + 1 / 20_000))
    assert fitted.gain_ > fitted.gain_error_
    assert fitted.out_of_fold_.shape == (4_000, 8)
    assert fitted.diagnostics_.reason.startswith("the shared correction lowers the cross-validated log loss by ")


def test_one_logit_is_enough() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2_000, 1)) * 2
    labels = (rng.random((2_000, 1)) < 1 / (1 + np.exp(-np.tanh(z) * 2))).astype(int)[:, 0]
    assert fit_quietly(z, labels).predict_proba(z).shape == (2_000, 2)


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        ({"n_folds": "5"}, "n_folds must be at least 2, a whole number; got '5'"),
        ({"n_folds": 2.5}, "n_folds must be at least 2, a whole number; got 2.5"),
        ({"n_folds": 1}, "n_folds must be at least 2, a whole number; got 1"),
    ],
    ids=str,
)
def test_settings_that_nothing_could_come_of_are_refused(chosen: dict[str, Any], complaint: str) -> None:
    with pytest.raises(GlayersError, match=complaint):
        SharedGLayers(**chosen).fit(*bent(200, 3))


def test_what_was_learned_is_counted_from_the_map() -> None:
    fitted = fit_quietly(*calibrated(40, 4))  # g-layers fall back to a temperature
    # A temperature and 7 x 5 coefficients; where the context stood is not learned.
    assert fitted.n_parameters_ == 36


def test_from_few_rows_there_is_hardly_a_correction_and_no_standard_error() -> None:
    logits, labels = bent(6, 3)
    fitted = fit_quietly(logits, labels, n_folds=2)
    plain = TemperatureScaling().fit(logits, labels)
    assert np.abs(fitted.predict_proba(logits) - plain.predict_proba(logits)).max() < 0.2
    assert "inf" not in fitted.diagnostics_.reason
    assert fitted.gain_error_ == np.inf
