"""Laws of impossible classes: a logit of -inf means probability 0, in fits, predictions, files, torch and metrics."""

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.paper.studies.regularised import RegularisedGLayers

from glayers import CALIBRATORS, BadPredictions, GlayersWarning, Predictions, load, metrics
from glayers.activations import softmax
from glayers.calibrators import Calibrator
from glayers.calibrators.one_versus_rest import TableCalibrator
from glayers.testing import masked_rows
from tests.contracts.calibrators import every_calibrator, fitted, make, tilted
from tests.contracts.test_every_metric import every_metric
from tests.strategies import Numbers


def masked(value: float = -np.inf) -> tuple[Numbers, Numbers, Numbers]:
    """Rows of which two in three lack one class that is not the label, or have it far below."""
    z, labels, missing = masked_rows()
    return np.where(missing, value, z), labels, missing


def fit(name: str, z: Numbers, labels: Numbers) -> Calibrator:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)  # so few rows may not show a gain, and fits say so
        return make(name).fit(z, labels)


@cache
def fitted_to_masked(name: str) -> Calibrator:
    return fit(name, *masked()[:2])


@every_calibrator
def test_an_impossible_class_stays_impossible_in_logits_and_files(name: str, tmp_path: Path) -> None:
    z, labels, missing = masked()
    calibrator = fitted_to_masked(name)
    assert calibrator.predict_proba(z)[0, labels[0]] == 1
    assert np.array_equal(np.isneginf(calibrator.transform(z)), missing)
    calibrator.save(tmp_path / "saved.safetensors")
    assert np.array_equal(load(tmp_path / "saved.safetensors").predict_proba(z), calibrator.predict_proba(z))


@every_calibrator
def test_an_impossible_class_has_probability_0_in_torch_too(name: str) -> None:
    import torch

    from glayers.bridges.torch import to_module

    z, _, missing = masked()
    by_torch = torch.softmax(to_module(fitted_to_masked(name))(torch.tensor(z)), dim=1).numpy()
    assert by_torch == pytest.approx(fitted_to_masked(name).predict_proba(z), abs=1e-12)
    assert (by_torch[missing] == 0).all()


# Tables give every probability a positive rate, that of 0 too.
@pytest.mark.parametrize("name", [name for name in CALIBRATORS if not isinstance(make(name), TableCalibrator)])
@pytest.mark.parametrize("far", [-1e3, -1e30])
def test_a_class_far_below_counts_as_impossible(name: str, far: float) -> None:
    for calibrator in (fitted(name), fit(name, *masked(far)[:2])):
        p = calibrator.predict_proba(masked(far)[0])
        assert p == pytest.approx(calibrator.predict_proba(masked()[0]), abs=0.02)


@every_calibrator
def test_a_class_that_is_impossible_in_every_row_breaks_no_fit(name: str) -> None:
    z, labels, _ = masked()
    rows = labels != 2
    z[:, 2] = -np.inf
    never = fit(name, z[rows], labels[rows])
    assert (never.predict_proba(z)[:, 2] == 0).all()
    assert np.isfinite(never.predict_proba(tilted()[0])).all()


@every_calibrator
def test_rows_with_one_possible_class_each_break_no_fit(name: str) -> None:
    labels = np.arange(24) % 3
    z = np.where(np.arange(3) == labels[:, None], 1.0, -np.inf)
    alone = fit(name, z, labels)
    assert np.array_equal(alone.predict_proba(z), np.eye(3)[labels])
    assert np.isfinite(alone.predict_proba(np.eye(3))).all()


@every_calibrator
def test_one_logit_may_exclude_class_1(name: str) -> None:
    z, labels = tilted(1)
    z[labels == 0] = np.where(np.arange((labels == 0).sum()) % 3 == 0, -np.inf, z[labels == 0].T).T
    p = fit(name, z, labels).predict_proba(z)
    assert (p[np.isneginf(z[:, 0])] == [1, 0]).all()
    assert np.isfinite(p).all()


# Log loss and Brier score are minimised; the others, which estimate rates, may raise the loss a little.
@pytest.mark.parametrize("name", ["temperature", "vector", "matrix", "platt", "beta", "auto"])
def test_masks_do_not_keep_a_fit_from_lowering_the_loss(name: str) -> None:
    z, labels, _ = masked()
    facts = fitted_to_masked(name).diagnostics_
    assert facts.loss_before == pytest.approx(metrics.nll(Predictions(z, labels)))
    assert facts.loss_after < facts.loss_before


@pytest.mark.parametrize("name", ["vector", "matrix", "dirichlet", "g-layers", "g-layers-paper", "platt", "isotonic"])
def test_plain_fits_predict_masked_rows_about_as_well_as_a_masked_temperature(name: str) -> None:
    z, labels, _ = masked()
    temperature = metrics.nll(softmax(fitted("temperature").transform(z)), labels)
    assert metrics.nll(fitted(name).predict_proba(z), labels) < temperature + 0.02


@pytest.mark.parametrize("setting", [{"mixup": 0.4}, {"label_smoothing": 0.1}, {"dropout": 0.2}, {"loss": "brier"}])
def test_regularised_layers_learn_from_masked_rows(setting: dict[str, Any]) -> None:
    z, labels, missing = masked()
    settings: dict[str, Any] = {"learning_rate": 1e-2, "weight_decay": 1e-2, "max_epochs": 5}
    g = RegularisedGLayers(**settings, **setting).fit(z, labels)
    assert np.isfinite(g.diagnostics_.loss_after)
    assert g.diagnostics_.moved
    assert (g.predict_proba(z)[missing] == 0).all()


@every_metric
def test_metrics_of_masked_predictions_are_those_of_probabilities_with_zeros(metric: Callable[..., float]) -> None:
    z, labels, missing = masked()
    given = Predictions(z, labels)
    p = given.probabilities()
    assert (p[missing] == 0).all()
    assert metric(given, None) == pytest.approx(metric(p, labels), abs=1e-12)
    assert np.isfinite(metric(p, labels))


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        ([[0.0, 1.0, 2.0], [0.0, -np.inf, 1.0]], "row 1 has 1, whose logit is -inf.*Correct the label"),
        ([[0.0, 1.0, 2.0], [-np.inf, -np.inf, -np.inf]], "row 1 has -inf for every class"),
        ([[0.0, 1.0, 2.0], [0.0, 1.0, np.inf]], "row 1, column 2 has inf.*only -inf is allowed"),
        ([[1.0], [-np.inf]], "row 1 has 1, whose logit"),
    ],
)
def test_what_cannot_be_is_refused(logits: Any, message: str) -> None:
    with pytest.raises(BadPredictions, match=message):
        Predictions(logits, [0, 1])


def test_exact_zeros_stay_zeros_if_asked() -> None:
    p = np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75]])
    kept = Predictions.from_probabilities(p, [0, 1], floor=0).probabilities()
    assert kept == pytest.approx(p, abs=1e-15)
    assert np.array_equal(kept == 0, p == 0)
    with pytest.warns(GlayersWarning, match="2 of 6 probabilities are exactly 0.*floor=0 if these classes are imposs"):
        raised = Predictions.from_probabilities(p, [0, 1]).probabilities()
    assert raised[0, 2] == pytest.approx(1e-12)
    with pytest.raises(BadPredictions, match="row 1 has 0, whose logit is -inf"):
        Predictions.from_probabilities(p, [0, 0], floor=0)
    assert np.isneginf(Predictions.from_probabilities([[0.0], [0.5]], [0, 1], floor=0).logits[0, 0])
    with pytest.raises(BadPredictions, match="pass the probabilities of both classes"):
        Predictions.from_probabilities([[1.0], [0.5]], [1, 0], floor=0)
