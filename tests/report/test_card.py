"""The section of a model card says what was measured, and what the numbers do not promise."""

import re

import numpy as np
import pytest

from glayers import Confidences, Predictions, TemperatureScaling, VectorScaling, __version__, model_card, threshold
from glayers.metrics import METRICS, accuracy, calibration_test, mean_confidence


def sampled(seed: int, n: int, factor: float = 2.0) -> Predictions:
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, 3))
    return Predictions(factor * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1))


def test_the_card_states_what_other_functions_find() -> None:
    fitted = TemperatureScaling().fit_predictions(sampled(0, 3000))
    test = sampled(4, 5000)
    card = model_card(fitted, test, accuracy=0.9)
    calibrated = fitted.apply(test)
    assert "Calibrated by temperature scaling on 3,000 rows of 3 classes." in card
    assert "from 5,000 other rows" in card
    assert f"| accuracy | {METRICS['accuracy'].format(accuracy(test))}" in card
    gaps = [100 * (mean_confidence(rows) - accuracy(rows)) for rows in (test, calibrated)]
    line = next(line for line in card.splitlines() if line.startswith("| mean confidence minus accuracy"))
    shown = re.findall(r"([+-][0-9.]+) points \(([+-][0-9.]+) to ([+-][0-9.]+)\)", line)
    assert [float(value) for value, _, _ in shown] == pytest.approx(gaps, abs=0.006)
    assert all(float(low) < float(value) < float(high) for value, low, high in shown)
    verdict = calibration_test(calibrated)
    assert verdict.finding[1:] in card
    assert f"An error of {100 * verdict.detectable:.2g} points" in card
    assert str(threshold(calibrated, accuracy=0.9)) in card
    assert "no significant shift" in card
    assert f"glayers {__version__}" in card
    assert card == model_card(fitted, test, accuracy=0.9)


def test_limits_name_shift_and_classes_never_seen() -> None:
    rows = sampled(2, 2000)
    seen = rows.take(np.flatnonzero(rows.labels != 2))
    with pytest.warns(Warning, match="no row is labelled 2"):
        fitted = VectorScaling().fit_predictions(seen)
    limits = model_card(fitted, sampled(3, 2000, factor=5.0)).partition("**Limits.**")[2]
    assert "shift: these rows differ" in limits
    assert "no row is labelled 2" in limits


def test_confidences_have_a_card_too() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.beta(4, 1, 3000)
    correct = rng.uniform(size=3000) < confidence**2
    fitted = TemperatureScaling(inputs="confidence").fit(confidence[:1000], correct[:1000])
    card = model_card(fitted, Confidences(confidence[1000:], correct[1000:]), accuracy=0.99)
    assert "2,000 other rows" in card
    assert "**Threshold.**" in card


def test_few_rows_are_not_called_calibrated() -> None:
    card = model_card(TemperatureScaling().fit_predictions(sampled(0, 1000)), sampled(6, 60))
    assert "**Verdict.** 60 rows are too few to tell whether the model is calibrated. An error of " in card


def test_too_few_groups_are_named_without_a_number() -> None:
    rows = sampled(5, 600)
    few = Predictions(rows.logits, rows.labels, groups=np.arange(600) % 4)
    card = model_card(TemperatureScaling().fit_predictions(sampled(0, 1000)), few)
    assert "**Verdict.** 600 rows in 4 groups are too few to tell" in card
    assert "nan" not in card


def test_the_card_names_weights_and_adapted_frequencies() -> None:
    given = sampled(0, 400)
    weights = np.where(np.arange(400) < 40, 10.0, 1.0)
    fitted = TemperatureScaling().fit(given.logits, given.labels, weights)
    share = fitted.adapt(frequencies=np.eye(given.n_classes)[0] + 1)
    text = model_card(share, sampled(1, 400))
    assert f"on 400 rows of {given.n_classes} classes (132 effective rows). Then adapted to other class freq" in text
    assert f"class 0 from {100 * share.adaptation_.before[0]:.1f} %" in text
    assert "effective rows" not in model_card(TemperatureScaling().fit_predictions(given), sampled(1, 400))
