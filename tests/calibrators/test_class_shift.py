"""Adaptation to new class frequencies: known truths are recovered, and the tests reject at their level."""

import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from glayers import (
    BadFile,
    BadPredictions,
    Calibrator,
    GlayersError,
    GlayersWarning,
    PlattScaling,
    Predictions,
    TemperatureScaling,
    VectorScaling,
    shift_test,
)
from glayers.bridges.torch import to_module
from glayers.calibrators.class_shift import ClassShift
from glayers.serving.artifact import decoded
from tests.lazy import torch
from tests.strategies import Numbers

EQUAL, SHIFTED = np.full(4, 0.25), np.array([0.6, 0.25, 0.1, 0.05])


def drawn(rows: int, frequencies: Numbers, seed: int, noise: float = 0.0) -> tuple[Numbers, Numbers]:
    """Logits whose halves are calibrated for equal frequencies; rows of a class look alike whatever the frequencies."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(4, rows, p=frequencies)
    x = rng.normal(size=(rows, 4)) + 1.5 * np.eye(4)[labels]
    return 3.0 * x + noise * rng.normal(size=x.shape), labels


def fitted(rows: int = 2_000, seed: int = 0) -> TemperatureScaling:
    return TemperatureScaling().fit(*drawn(rows, EQUAL, seed))


def adaptation(calibrator: Calibrator, *rows: Any, **more: Any) -> Any:
    return calibrator.adapt(*rows, **more).adaptation_


def log_loss(calibrator: Calibrator, z: Numbers, labels: Numbers) -> float:
    return -float(np.log(calibrator.predict_proba(z)[np.arange(len(z)), labels]).mean())


@pytest.mark.filterwarnings("ignore:class shift does not explain")  # once in twenty times, at the level
def test_shifted_frequencies_are_recovered_within_their_errors_and_lower_the_loss() -> None:
    scores, losses = [], []
    for seed in range(15):
        z, labels = drawn(600, SHIFTED, 100 + seed)
        calibrator = fitted(1_000, seed)
        adapted, known = calibrator.adapt(z), calibrator.adapt(frequencies=SHIFTED)
        found: Any = adapted.adaptation_
        assert found.shifted
        scores.append((np.array(found.estimated) - SHIFTED) / np.array(found.standard_errors))
        losses.append([log_loss(each, z, labels) for each in (calibrator, adapted, known)])
    before, after, at_best = np.mean(losses, axis=0)
    assert at_best < before - 0.1
    assert after < at_best + 0.01
    assert 0.7 < np.std(scores) < 1.3  # 1, were the errors exact
    assert np.abs(np.mean(scores, axis=0)).max() < 0.78  # three standard errors of a mean of 15


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_standard_errors_of_two_classes_are_equal_and_those_of_repeated_draws(bias: float) -> None:
    def drawn_two(rows: int, frequencies: list[float], rng: np.random.Generator) -> tuple[Numbers, Numbers]:
        labels = rng.choice(2, rows, p=frequencies)
        x = rng.normal(size=(rows, 2)) + 1.2 * np.eye(2)[labels]
        return 1.5 * x + [bias, 0.0], labels

    estimates, errors = [], []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        calibrator = TemperatureScaling().fit(*drawn_two(300, [0.5, 0.5], rng))
        with warnings.catch_warnings(action="ignore"):
            found = adaptation(calibrator, drawn_two(300, [0.7, 0.3], rng)[0])
        estimates.append(found.estimated[0])
        errors.append(found.standard_errors)
    first, second = np.array(errors).T
    assert first == pytest.approx(second, rel=1e-9)
    # The standard deviation of 60 draws has a standard error of 9 %.
    assert first.mean() == pytest.approx(np.std(estimates), rel=0.2)


def test_a_temperature_fitted_on_a_tail_warns_when_it_is_adapted_and_a_shift_per_class_does_not() -> None:
    # The network was trained on equal frequencies: its probabilities are right for the new rows as they are.
    z, labels = drawn(3_000, SHIFTED, 0)
    new, truth = drawn(1_500, EQUAL, 1)
    biased = TemperatureScaling().fit(z, labels)
    with pytest.warns(GlayersWarning, match=r"worse: on the calibration rows, class \d has .* Fit VectorScaling"):
        adapted = biased.adapt(frequencies=EQUAL)
    assert log_loss(adapted, new, truth) > log_loss(biased, new, truth) + 0.01
    by_class = VectorScaling().fit(z, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        unbiased = by_class.adapt(frequencies=EQUAL)
    assert log_loss(unbiased, new, truth) < log_loss(by_class, new, truth) - 0.05


@pytest.mark.filterwarnings("ignore:class shift does not explain")
def test_rows_without_shift_are_left_alone_at_the_level() -> None:
    found = []
    for seed in range(100):
        z, labels = drawn(250, EQUAL, 1_000 + seed)
        calibrator = fitted(500, seed)
        adapted = calibrator.adapt(z)
        record = adapted.adaptation_
        cost = log_loss(adapted, z, labels) - log_loss(calibrator, z, labels)
        found.append((record.shifted, record.unexplained, cost))
    shifted, unexplained, cost = np.mean(found, axis=0)
    assert 0.0 < shifted <= 0.12  # of 100; 13 would be a chance of 1 in 700
    assert 0.0 < unexplained <= 0.12
    assert cost < 0.002


def test_shift_of_many_classes_is_found_with_few_rows_of_each() -> None:
    def many(rows: int, ratio: float, seed: int) -> tuple[Numbers, Numbers]:
        rng = np.random.default_rng(seed)
        frequencies = ratio ** -np.linspace(0, 1, 60)
        labels = rng.choice(60, rows, p=frequencies / frequencies.sum())
        z = 1.5 * rng.normal(size=(rows, 60))
        z[np.arange(rows), labels] += 3.0
        return z, labels

    found = []
    for seed in range(8):
        calibrator = TemperatureScaling().fit(*many(2_000, 1.0, seed))
        with warnings.catch_warnings(action="ignore"):  # the test of the fit may reject by chance
            found.append(adaptation(calibrator, many(250, 30.0, 100 + seed)[0]).shifted)
    assert sum(found) >= 5  # Hotelling's test, with its inverse of a covariance, finds one of these eight


def test_noise_is_not_taken_for_class_shift() -> None:
    calibrator = fitted()
    z, _ = drawn(1_000, SHIFTED, 1, noise=4.0)
    with pytest.warns(GlayersWarning, match="class shift does not explain these rows .* expected rows but .* below"):
        adapted = calibrator.adapt(z)
    assert adapted.adaptation_.unexplained
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "class shift explains these rows" in str(adaptation(calibrator, drawn(1_000, SHIFTED, 1)[0]))


def test_copies_in_a_group_say_no_more_than_one_row() -> None:
    z, _ = drawn(200, SHIFTED, 3)
    single = adaptation(fitted(), z)
    copies = adaptation(fitted(), np.repeat(z, 5, axis=0), groups=np.repeat(np.arange(200), 5))
    assert copies.rows == pytest.approx(single.rows)
    assert copies.p_value == pytest.approx(single.p_value, rel=1e-6)
    assert copies.fit_p_value == pytest.approx(single.fit_p_value, rel=1e-6)
    assert copies.standard_errors == pytest.approx(single.standard_errors, rel=1e-3)
    assert copies.after == pytest.approx(single.after, rel=1e-3)


def test_calibration_rows_in_groups_count_as_fewer() -> None:
    z, labels = (np.repeat(each, 5, axis=0) for each in drawn(100, EQUAL, 0))
    kept = TemperatureScaling().fit(z, labels, groups=np.repeat(np.arange(100), 5)).calibration_rows_
    assert kept.rows == pytest.approx(100)


def test_weights_count_in_old_and_in_new_frequencies() -> None:
    z, labels = drawn(800, EQUAL, 0)
    weights = SHIFTED[labels]
    weighted = TemperatureScaling().fit(z, labels, sample_weight=weights)
    counts = np.bincount(labels, weights)
    with pytest.warns(GlayersWarning, match="adapting may make predictions worse"):  # a temperature moves no class
        adapted = adaptation(weighted, frequencies=EQUAL)
    assert adapted.before == pytest.approx(counts / counts.sum())
    new, labels = drawn(400, SHIFTED, 1)
    some = np.arange(400) < 250
    found = adaptation(fitted(), Predictions(new, labels, weights=some.astype(float)))
    assert found.after == pytest.approx(adaptation(fitted(), new[some]).after, rel=1e-3)


def test_masked_classes_stay_impossible() -> None:
    z, labels = drawn(900, EQUAL, 0)
    z[np.arange(900), (labels + 1) % 4] = -np.inf
    adapted = TemperatureScaling().fit(z, labels).adapt(z[:300])
    p = adapted.predict_proba(z)
    assert (p[np.arange(900), (labels + 1) % 4] == 0).all()
    assert p.sum(axis=1) == pytest.approx(1.0)


def test_a_class_that_is_missing_in_the_new_rows_keeps_a_small_frequency() -> None:
    z, _ = drawn(500, np.array([0.0, 0.4, 0.3, 0.3]), 1)
    found = adaptation(fitted(), z)
    assert 0 < found.after[0] < 0.05
    assert found.estimated[0] - 2 * found.standard_errors[0] <= 0


def test_few_rows_change_nothing_and_say_so() -> None:
    found = adaptation(fitted(), drawn(4, SHIFTED, 0)[0])
    assert found.after == pytest.approx(found.before)
    assert "too few rows or groups (4 effective rows)" in str(found)
    with pytest.raises(BadPredictions, match=r"too few groups \(1\)"):
        fitted().adapt(drawn(300, SHIFTED, 0)[0], groups=np.zeros(300))
    with pytest.warns(UserWarning, match="temperature"):
        sure = TemperatureScaling().fit(1e4 * np.eye(4), np.arange(4))
    assert sum(adaptation(sure, 1e4 * np.eye(4)[:2]).after) == pytest.approx(1.0)


def test_a_single_logit_and_probabilities_can_be_adapted() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=3_000) * 2
    labels = (rng.random(3_000) < 1 / (1 + np.exp(-z))).astype(int)
    keep = rng.random(3_000) < np.where(labels == 1, 1.0, 0.2)  # now class 1 has a frequency of 5 / 6
    found = PlattScaling().fit(z[:, None], labels).adapt(z[keep][:, None])
    assert found.adaptation_.after[1] == pytest.approx(labels[keep].mean(), abs=0.04)
    p = 1 / (1 + np.exp(-z[:, None]))
    both = np.hstack([1 - p, p])
    by_probabilities = TemperatureScaling(inputs="probabilities").fit(both, labels).adapt(both[keep])
    assert by_probabilities.adaptation_.after[1] == pytest.approx(labels[keep].mean(), abs=0.04)
    assert by_probabilities.predict_proba(both)[:, 1].mean() > p.mean() + 0.1


def test_exports_predict_as_the_adapted_calibrator(tmp_path: Path) -> None:
    z, _ = drawn(50, SHIFTED, 1)
    adapted = fitted().adapt(frequencies=SHIFTED)
    expected = adapted.predict_proba(z)
    adapted.to_onnx(tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "a.onnx", providers=["CPUExecutionProvider"])
    assert session.run(["probabilities"], {"uncalibrated_logits": z.astype("float32")})[0] == pytest.approx(
        expected, abs=1e-6
    )
    assert to_module(adapted)(torch.tensor(z)).softmax(dim=1).numpy() == pytest.approx(expected, abs=1e-6)
    assert adapted.temperature_ == fitted().temperature_


def test_shift_is_still_tested_against_the_calibration_rows_and_a_new_fit_forgets_the_adaptation() -> None:
    calibrator, (z, labels) = fitted(), drawn(500, EQUAL, 5)
    adapted = calibrator.adapt(frequencies=SHIFTED)
    assert shift_test(adapted, z) == shift_test(calibrator, z)
    assert adapted.fit(z, labels).adaptation_ is None


def test_class_names_are_kept_and_printed() -> None:
    z, labels = drawn(300, EQUAL, 0)
    named = VectorScaling(strength=1.0).fit_predictions(Predictions(z, labels, class_names=list("abcd")))
    found = adaptation(named, frequencies=[4, 3, 2, 1])
    assert found.after == pytest.approx([0.4, 0.3, 0.2, 0.1])
    assert str(found).splitlines()[1].split()[0] == "a"


@pytest.mark.filterwarnings("ignore:adapting may make predictions worse")  # a temperature leaves it 14 %
def test_a_class_without_calibration_rows_can_be_adapted() -> None:
    z, labels = drawn(600, np.array([0.4, 0.3, 0.3, 0.0]), 0)
    with pytest.warns(UserWarning, match="no row is labelled 3"):
        calibrator = TemperatureScaling().fit(z, labels)
    adapted = calibrator.adapt(frequencies=EQUAL)
    assert np.isfinite(adapted.transform(z)).all()


@pytest.mark.parametrize(
    ("rows", "more", "message"),
    [
        ([], {}, "either logits of new rows, or frequencies="),
        ([np.zeros((2, 4))], {"frequencies": EQUAL}, "either logits of new rows, or frequencies="),
        ([], {"frequencies": [0.5, 0.5]}, "must be 4 numbers"),
        ([], {"frequencies": [0.5, 0.5, 0.0, 0.0]}, "must be positive; class 2 has 0"),
        ([], {"frequencies": [0.5, 0.5, np.nan, 0.1]}, "must be positive; class 2 has nan"),
        ([], {"frequencies": "abcd"}, "frequencies must be"),
        ([np.zeros((2, 3))], {}, "fitted on 4 logits per row; got 3"),
        ([np.zeros((0, 4))], {}, "empty"),
        ([np.full((2, 4), np.nan)], {}, "must be finite"),
        ([np.zeros((2, 4))], {"level": 2.0}, "level"),
    ],
)
def test_wrong_input_is_refused(rows: list[Numbers], more: dict[str, Any], message: str) -> None:
    with pytest.raises(GlayersError, match=message):
        fitted(200).adapt(*rows, **more)


def test_a_confidence_cannot_be_adapted() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.random(200)
    calibrator = PlattScaling(inputs="confidence").fit(confidence, rng.random(200) < confidence)
    with pytest.raises(GlayersError, match="a confidence has no classes to adapt"):
        calibrator.adapt(confidence)


def test_a_record_of_other_entries_is_refused() -> None:
    shift = adaptation(fitted(300), frequencies=EQUAL)
    facts = json.loads(json.dumps(asdict(shift)))
    assert repr(decoded(ClassShift, facts)) == repr(shift)
    with pytest.raises(BadFile, match="ClassShift: an entry is missing"):
        decoded(ClassShift, facts | {"more": 1})
