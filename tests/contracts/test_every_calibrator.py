"""Laws that every calibrator obeys."""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from glayers import CALIBRATORS, BadPredictions, GlayersWarning, Predictions, TemperatureScaling, load
from glayers.activations import softmax
from glayers.calibrators import Calibrator
from glayers.serving.predictor import Diagnostics
from glayers.testing import LAWS
from tests.contracts.calibrators import (
    BY_POSITION,
    CLASSES,
    LOOSE,
    ROWS,
    WEIGHTS,
    every_calibrator,
    fitted,
    make,
    tilted,
    trial,
    weighted,
)
from tests.strategies import Numbers

# So few rows may not show a gain over temperature scaling; then it says so, which is lawful here.
pytestmark = [
    pytest.mark.filterwarnings("ignore:g-layers fall back"),
    pytest.mark.filterwarnings("ignore:the shared correction is left out"),
    pytest.mark.filterwarnings("ignore:order-preserving maps fall back"),
]


# The paper's recipe reads raw logits, which hold more than probabilities do.
BROKEN = {("g-layers-paper", "a_constant_per_row_changes_nothing")}


@every_calibrator
@pytest.mark.parametrize("law", LAWS)
def test_every_calibrator_keeps_the_laws(name: str, law: str) -> None:
    if (name, law) in BROKEN:
        with pytest.raises(AssertionError):
            LAWS[law](trial(name))
    else:
        LAWS[law](trial(name))


# One line of the base class makes them float64; these fit in NumPy, in torch and by parts.
@pytest.mark.parametrize("name", ["isotonic", "g-layers", "auto"])
def test_narrow_logits_are_those_numbers_in_float64(name: str) -> None:
    z, labels = tilted()
    half = z.astype(np.float16)  # float32 holds the same numbers
    wide = make(name).fit(half.astype(np.float64), labels).predict_proba(half.astype(np.float64))
    for dtype in (np.float16, np.float32):
        narrow = half.astype(dtype)
        # The temperature of narrow logits is found in float32.
        assert make(name).fit(narrow, labels).predict_proba(narrow) == pytest.approx(wide, abs=1e-6)


@every_calibrator
def test_fitting_lowers_the_loss(name: str) -> None:
    facts = fitted(name).diagnostics_
    assert facts.loss_after < facts.loss_before
    assert facts.moved


# The base class checks input, warns, predicts and saves: what these methods do for one calibrator, they do for all.
SHARED = ("fit", "fit_predictions", "predict_proba", "predict", "transform", "save", "adapt")


def test_no_calibrator_has_its_own_way_to_fit_predict_or_save() -> None:
    kinds = {type(make(name)) for name in CALIBRATORS}
    own = [f"{kind.__name__}.{name}" for kind in kinds for name in SHARED if getattr(kind, name) is not inherited(name)]
    assert own == []


def inherited(name: str) -> Any:
    return getattr(Calibrator, name)


@pytest.mark.parametrize("method", ["predict_proba", "predict", "transform", "save"])
def test_predicting_and_saving_before_fitting_is_refused(method: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(TemperatureScaling(), method)(tilted()[0])


# Temperature scaling learns a map only; these have more attributes, and fits of their own inside.
@pytest.mark.parametrize("name", ["g-layers", "shared-g-layers"])
def test_fitting_again_forgets_the_first_fit(name: str) -> None:
    z, labels = tilted()
    named = Predictions(*tilted(3), class_names=["a", "b", "c"])
    again = make(name).fit_predictions(named).fit(z, labels)
    assert np.array_equal(again.predict_proba(z), fitted(name).predict_proba(z))
    assert again.class_names_ is None
    assert again.n_features_in_ == CLASSES


# Groups matter where rows are cut into folds.
@pytest.mark.parametrize("name", ["temperature", "shared-g-layers", "order-invariant"])
def test_predictions_are_fitted_as_their_parts_whatever_the_names_of_classes_and_groups(name: str) -> None:
    z, labels = tilted()
    groups = np.random.default_rng(3).integers(0, 40, ROWS)
    named = np.array([f"speaker {number:02}" for number in groups])
    parts = make(name).fit(z, labels, WEIGHTS, groups)
    whole = make(name).fit_predictions(Predictions(z, labels, WEIGHTS, named, class_names="wxyz"))
    assert np.array_equal(whole.predict_proba(z), parts.predict_proba(z))
    assert whole.class_names_ == ("w", "x", "y", "z")


@every_calibrator
def test_diagnostics_are_complete_and_go_into_json(name: str) -> None:
    facts = json.loads(json.dumps(fitted(name).diagnostics_.to_dict()))
    assert set(facts) == {field.name for field in fields(Diagnostics)}
    assert facts["rows"] == ROWS
    assert facts["labels_per_class"] == np.bincount(tilted()[1], minlength=CLASSES).tolist()
    assert facts["classes_never_seen"] == []
    assert facts["n_parameters"] == fitted(name).n_parameters_ > 0
    assert facts["reason"]
    assert facts["iterations"] >= 0  # 0 where the start was already best


def test_a_class_without_a_label_is_named() -> None:
    z, labels = tilted(5)
    with pytest.warns(GlayersWarning, match="no row is labelled 3"):
        make("temperature").fit(z[labels != 3], labels[labels != 3])
    with pytest.warns(GlayersWarning, match=r"no row is labelled 0 \(are the labels numbered from 1\?\): "):
        make("temperature").fit(z[labels != 0], labels[labels != 0])


@pytest.mark.parametrize("name", sorted(CALIBRATORS.keys() - BY_POSITION))
def test_a_count_of_2_is_the_row_written_twice_and_rows_may_come_in_any_order(name: str) -> None:
    z, labels = tilted()
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 3, ROWS)
    written = rng.permutation(np.repeat(np.arange(ROWS), counts))
    counted = make(name).fit_predictions(Predictions(z, labels, counts=counts))
    repeated = make(name).fit(z[written], labels[written])
    assert counted.predict_proba(z) == pytest.approx(repeated.predict_proba(z), abs=LOOSE.get(name, 1e-8))
    assert counted.diagnostics_.loss_after == pytest.approx(repeated.diagnostics_.loss_after, rel=LOOSE.get(name, 1e-9))


def test_every_form_of_logits_labels_and_weights_is_fitted_alike(tmp_path: Path) -> None:
    import pandas
    import torch

    z, labels = tilted()
    np.save(tmp_path / "z.npy", z)
    forms: list[tuple[Any, Any, Any]] = [
        (z.tolist(), labels.tolist(), WEIGHTS.tolist()),
        (torch.as_tensor(z), torch.as_tensor(labels), torch.as_tensor(WEIGHTS)),
        (pandas.DataFrame(z), pandas.Series(labels), pandas.Series(WEIGHTS)),
        (np.load(tmp_path / "z.npy", mmap_mode="r"), labels, WEIGHTS),
    ]
    for name in ("temperature", "vector", "isotonic"):
        for form in forms:
            p = np.asarray(make(name).fit(*form).predict_proba(form[0]))
            assert p == pytest.approx(weighted(name).predict_proba(z), abs=1e-12)


def changed(array: Numbers, value: float) -> Numbers:
    result = array.astype(np.float64)
    result[7, 1] = value
    return result


BAD: dict[str, tuple[Callable[[Numbers, Numbers], tuple[Any, Any]], str]] = {
    "nan": (lambda z, y: (changed(z, np.nan), y), "finite; row 7, column 1"),
    "inf": (lambda z, y: (changed(z, np.inf), y), "finite; row 7, column 1"),
    "complex": (lambda z, y: (z + 1j, y), "real numbers"),
    "one dimension": (lambda z, y: (z[:, 0], y), r"whole numbers in 0\.\.1"),
    "empty": (lambda z, y: (z[:0], y[:0]), "empty"),
    "no labels": (lambda z, _: (z, None), "labels"),
    "fewer labels": (lambda z, y: (z, y[:-1]), r"labels must have shape \(240,\)"),
    "one-hot": (lambda z, y: (z, np.eye(CLASSES)[y]), "one-hot"),
    "out of range": (lambda z, y: (z, y + 1), r"0\.\.3"),
    "negative": (lambda z, y: (z, y - 1), r"0\.\.3"),
    "fractions": (lambda z, y: (z, y + 0.5), "whole numbers"),
    "names": (lambda z, y: (z, np.array(["cat"] * len(y))), "class numbers"),
    "probabilities": (lambda z, y: (softmax(z), y), "look like probabilities"),
}


# g-layers may read features that are no logits, and check them themselves.
@pytest.mark.parametrize("name", ["temperature", "g-layers"])
@pytest.mark.parametrize("kind", BAD)
def test_bad_input_is_refused_with_the_reason(name: str, kind: str) -> None:
    spoil, complaint = BAD[kind]
    with pytest.raises(BadPredictions, match=complaint):
        make(name).fit(*spoil(*tilted()))


@pytest.mark.parametrize("name", ["temperature", "g-layers"])
def test_bad_weights_and_groups_are_refused(name: str) -> None:
    z, labels = tilted()
    with pytest.raises(BadPredictions, match="not negative"):
        make(name).fit(z, labels, sample_weight=-np.ones(ROWS))
    with pytest.raises(BadPredictions, match="all be zero"):
        make(name).fit(z, labels, sample_weight=np.zeros(ROWS))
    with pytest.raises(BadPredictions, match="weights must have shape"):
        make(name).fit(z, labels, sample_weight=np.ones(3))
    with pytest.raises(BadPredictions, match="groups must have shape"):
        make(name).fit(z, labels, groups=np.ones(3))


def test_rows_to_predict_are_checked_too() -> None:
    z, _ = tilted()
    with pytest.raises(BadPredictions, match="fitted on 4 logits per row; got 3"):
        fitted("temperature").predict_proba(z[:, :3])
    with pytest.raises(BadPredictions, match="finite"):
        fitted("temperature").predict_proba(changed(z, np.nan))


def test_rows_that_look_like_probabilities_can_be_predicted() -> None:
    # Only `fit` refuses them, over all rows together: one row of logits may sum to 1 by chance.
    row = np.array([[0.3, 0.7, 0.0, 0.0]])
    beside = fitted("temperature").predict_proba(np.concatenate([row, row - 5]))[:1]
    assert fitted("temperature").predict_proba(row) == pytest.approx(beside, abs=1e-12)
    assert fitted("temperature", 1).predict_proba([[0.2], [0.9]]).shape == (2, 2)


def test_temperature_keeps_every_ranking() -> None:
    z, labels = tilted()
    calibrator = TemperatureScaling().fit(z, labels)
    assert np.array_equal(np.argsort(calibrator.transform(z), axis=1), np.argsort(z, axis=1))
    assert np.array_equal(calibrator.predict(z), z.argmax(axis=1))


def test_the_nested_family_never_fits_worse() -> None:
    one, many = (fitted(name).diagnostics_ for name in ("temperature", "g-layers"))
    assert many.loss_after < one.loss_after < one.loss_before


def test_an_adapted_calibrator_is_saved_and_adapted_back(tmp_path: Path) -> None:
    calibrator, (z, _) = fitted("temperature"), tilted()
    adapted = calibrator.adapt(frequencies=np.arange(1.0, CLASSES + 1))
    record = adapted.adaptation_
    assert calibrator.adaptation_ is None
    assert adapted.adapt(frequencies=record.before).predict_proba(z) == pytest.approx(calibrator.predict_proba(z))
    adapted.save(tmp_path / "adapted.safetensors")
    loaded = load(tmp_path / "adapted.safetensors")
    assert (loaded.predict_proba(z) == adapted.predict_proba(z)).all()
    assert repr(loaded.adaptation_) == repr(record)
