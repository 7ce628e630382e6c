"""Laws that every calibrator obeys."""

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from glayers import BadPredictions, GLayers, TemperatureScaling
from glayers.activations import softmax
from glayers.calibrators import (
    BayesianBinning,
    BetaCalibration,
    Calibrator,
    DirichletCalibration,
    EnsembleTemperatureScaling,
    HistogramBinning,
    IsotonicCalibration,
    MatrixScaling,
    OrderPreserving,
    PlattScaling,
    ScalingBinning,
    SharedGLayers,
    SplineCalibration,
    VectorScaling,
)
from glayers.fitting.diagnostics import Diagnostics
from tests.strategies import Numbers

CALIBRATORS: dict[str, Callable[[], Calibrator]] = {
    "temperature": TemperatureScaling,
    "g_layers": lambda: GLayers(max_epochs=3, random_state=0),
    "g_layers_paper": lambda: GLayers(
        recipe="paper", learning_rate=1e-3, weight_decay=1e-2, max_epochs=3, random_state=0
    ),
    "shared_g_layers": lambda: SharedGLayers("temperature", random_state=0),
    "vector": lambda: VectorScaling(strength=1.0, random_state=0),
    "matrix": lambda: MatrixScaling(strength=1.0, random_state=0),
    "matrix_odir": lambda: MatrixScaling("odir", strength=0.1, random_state=0),
    "dirichlet": lambda: DirichletCalibration(strength=0.1, random_state=0),
    "ensemble_temperature": EnsembleTemperatureScaling,
    "order_preserving": lambda: OrderPreserving(random_state=0),
    "platt": PlattScaling,
    "beta": BetaCalibration,
    "isotonic": IsotonicCalibration,
    "histogram": HistogramBinning,
    "bayesian_binning": BayesianBinning,
    "scaling_binning": ScalingBinning,
    "spline": SplineCalibration,
}
ROWS, CLASSES = 240, 4

# So few rows may not show a gain over temperature scaling; then it says so, which is lawful here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:g-layers gained"),
    pytest.mark.filterwarnings("ignore:the shared correction gained"),
    pytest.mark.filterwarnings("ignore:order-preserving maps gained nothing"),
]

every_calibrator = pytest.mark.parametrize("make", CALIBRATORS.values(), ids=CALIBRATORS.keys())


def overconfident(columns: int = CLASSES, rows: int = ROWS) -> tuple[Numbers, Numbers]:
    """Logits three times too large, bent on the way, and labels unsorted."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(rows, columns)) * 2
    wide = np.hstack([np.zeros_like(z), z]) if columns == 1 else z
    return 3 * np.sinh(z / 2), (wide + rng.gumbel(size=wide.shape)).argmax(axis=1)


@every_calibrator
@pytest.mark.parametrize("columns", [1, 2, CLASSES])
def test_rows_sum_to_1_and_stay_finite_whatever_comes(make: Callable[[], Calibrator], columns: int) -> None:
    fitted = make().fit(*overconfident(columns))
    rng = np.random.default_rng(1)
    for size in (1e-4, 1.0, 1e4):
        for dtype in (np.float16, np.float32, np.float64):
            z = (rng.choice([-size, size, size / 3], size=(50, columns))).astype(dtype)
            p = fitted.predict_proba(z)
            assert p.shape == (50, max(2, columns))
            assert np.isfinite(p).all()
            assert np.isfinite(fitted.transform(z)).all()
            assert (p >= 0).all()
            assert p.sum(axis=1) == pytest.approx(1.0, abs=1e-6)


@every_calibrator
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_logits_are_those_numbers_in_float64(make: Callable[[], Calibrator], dtype: type[np.floating]) -> None:
    z, labels = overconfident()
    narrow = z.astype(dtype)
    one, two = make().fit(narrow, labels), make().fit(narrow.astype(np.float64), labels)
    assert one.predict_proba(narrow) == pytest.approx(two.predict_proba(narrow.astype(np.float64)), abs=1e-9)


@every_calibrator
def test_fitting_lowers_the_loss_and_says_by_how_much(make: Callable[[], Calibrator]) -> None:
    z, labels = overconfident()
    fitted = make().fit(z, labels)
    facts = fitted.diagnostics_
    own = fitted.predict_proba(z)[np.arange(ROWS), labels]
    assert facts.loss_after == pytest.approx(-float(np.log(own).mean()), rel=1e-9)
    assert facts.loss_before == pytest.approx(-float(np.log(softmax(z)[np.arange(ROWS), labels]).mean()), rel=1e-9)
    assert facts.loss_after < facts.loss_before
    assert facts.moved


@every_calibrator
def test_the_order_of_rows_to_predict_does_not_matter(make: Callable[[], Calibrator]) -> None:
    z, labels = overconfident()
    fitted = make().fit(z, labels)
    order = np.random.default_rng(0).permutation(ROWS)
    assert fitted.predict_proba(z[order]) == pytest.approx(fitted.predict_proba(z)[order], abs=1e-12)
    assert fitted.predict_proba(z[:1]) == pytest.approx(fitted.predict_proba(z)[:1], abs=1e-12)


@every_calibrator
@pytest.mark.parametrize("columns", [1, CLASSES])
def test_the_ways_to_a_prediction_agree(make: Callable[[], Calibrator], columns: int) -> None:
    z, labels = overconfident(columns)
    fitted = make().fit(z, labels)
    p = fitted.predict_proba(z)
    assert np.array_equal(softmax(fitted.transform(z)), p)
    assert np.array_equal(fitted.predict(z), p.argmax(axis=1))
    assert fitted.classes_.tolist() == list(range(max(2, columns)))


@every_calibrator
def test_fit_returns_itself_and_leaves_its_settings_and_its_input_alone(make: Callable[[], Calibrator]) -> None:
    z, labels = overconfident()
    kept, calibrator = z.copy(), make()
    settings = calibrator.get_params()
    assert calibrator.fit(z, labels) is calibrator
    assert calibrator.get_params() == settings
    assert np.array_equal(z, kept)


@every_calibrator
def test_a_clone_has_the_settings_and_nothing_learned_and_fits_the_same(make: Callable[[], Calibrator]) -> None:
    z, labels = overconfident()
    fitted = make().fit(z, labels)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        copy.predict_proba(z)
    assert np.array_equal(copy.fit(z, labels).predict_proba(z), fitted.predict_proba(z))


@every_calibrator
@pytest.mark.parametrize("method", ["predict_proba", "predict", "transform"])
def test_predicting_before_fitting_is_refused(make: Callable[[], Calibrator], method: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(make(), method)(overconfident()[0])


@every_calibrator
def test_fitting_again_forgets_the_first_fit(make: Callable[[], Calibrator]) -> None:
    z, labels = overconfident()
    other = overconfident(3)
    again = make().fit(*other).fit(z, labels)
    assert np.array_equal(again.predict_proba(z), make().fit(z, labels).predict_proba(z))


@every_calibrator
def test_diagnostics_are_complete_and_go_into_json(make: Callable[[], Calibrator]) -> None:
    z, labels = overconfident()
    fitted = make().fit(z, labels)
    facts = json.loads(json.dumps(fitted.diagnostics_.to_dict()))
    assert set(facts) == {field.name for field in fields(Diagnostics)}
    assert facts["rows"] == ROWS
    assert facts["labels_per_class"] == np.bincount(labels, minlength=CLASSES).tolist()
    assert facts["classes_never_seen"] == []
    assert facts["n_parameters"] == fitted.n_parameters_ > 0
    assert facts["reason"]
    assert facts["iterations"] >= 0  # 0 where the start was already best


def changed(array: Numbers, value: float) -> Numbers:
    result = array.astype(np.float64)
    result[7, 1] = value
    return result


BAD: dict[str, tuple[Callable[[Numbers, Numbers], tuple[Any, Any]], str]] = {
    "nan": (lambda z, y: (changed(z, np.nan), y), "finite; row 7, column 1"),
    "inf": (lambda z, y: (changed(z, np.inf), y), "finite; row 7, column 1"),
    "one dimension": (lambda z, y: (z[:, 0], y), r"shape \(rows, classes\)"),
    "empty": (lambda z, y: (z[:0], y[:0]), "empty"),
    "fewer labels": (lambda z, y: (z, y[:-1]), r"labels must have shape \(240,\)"),
    "one-hot": (lambda z, y: (z, np.eye(CLASSES)[y]), "one-hot"),
    "out of range": (lambda z, y: (z, y + 1), r"0\.\.3"),
    "negative": (lambda z, y: (z, y - 1), r"0\.\.3"),
    "fractions": (lambda z, y: (z, y + 0.5), "whole numbers"),
    "names": (lambda z, y: (z, np.array(["cat"] * len(y))), "class numbers"),
    "probabilities": (lambda z, y: (softmax(z), y), "look like probabilities"),
}


@every_calibrator
@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_refused_with_the_reason(make: Callable[[], Calibrator], kind: str) -> None:
    spoil, complaint = BAD[kind]
    with pytest.raises(BadPredictions, match=complaint):
        make().fit(*spoil(*overconfident()))


@every_calibrator
def test_bad_weights_and_groups_are_refused(make: Callable[[], Calibrator]) -> None:
    z, labels = overconfident()
    with pytest.raises(BadPredictions, match="not negative"):
        make().fit(z, labels, sample_weight=-np.ones(ROWS))
    with pytest.raises(BadPredictions, match="all be zero"):
        make().fit(z, labels, sample_weight=np.zeros(ROWS))
    with pytest.raises(BadPredictions, match="weights must have shape"):
        make().fit(z, labels, sample_weight=np.ones(3))
    with pytest.raises(BadPredictions, match="groups must have shape"):
        make().fit(z, labels, groups=np.ones(3))


@every_calibrator
def test_rows_to_predict_are_checked_too(make: Callable[[], Calibrator]) -> None:
    z, labels = overconfident()
    fitted = make().fit(z, labels)
    with pytest.raises(BadPredictions, match="fitted on 4 logits a row; got 3"):
        fitted.predict_proba(z[:, :3])
    with pytest.raises(BadPredictions, match="finite"):
        fitted.predict_proba(changed(z, np.nan))
    with pytest.raises(BadPredictions, match="look like probabilities"):
        fitted.predict_proba(softmax(z))


@every_calibrator
def test_lists_and_tensors_are_as_good_as_arrays(make: Callable[[], Calibrator]) -> None:
    z, labels = overconfident()
    expected = make().fit(z, labels).predict_proba(z)
    listed = make().fit(z.tolist(), labels.tolist()).predict_proba(z.tolist())
    tensors = make().fit(torch.as_tensor(z), torch.as_tensor(labels)).predict_proba(torch.as_tensor(z))
    assert np.array_equal(listed, expected)
    assert np.array_equal(tensors, expected)


def test_temperature_keeps_every_ranking() -> None:
    z, labels = overconfident()
    fitted = TemperatureScaling().fit(z, labels)
    assert np.array_equal(np.argsort(fitted.transform(z), axis=1), np.argsort(z, axis=1))
    assert np.array_equal(fitted.predict(z), z.argmax(axis=1))


def test_the_nested_family_never_fits_worse() -> None:
    z, labels = overconfident()
    one, many = (CALIBRATORS[name]().fit(z, labels).diagnostics_ for name in ("temperature", "g_layers"))
    assert many.loss_after <= one.loss_after < one.loss_before
