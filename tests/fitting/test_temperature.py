"""The inverse temperature: the optimum others find, at any scale and precision; where there is none, it says so."""

import os
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.base import clone

from glayers import AutoCalibrator, GlayersWarning, TemperatureScaling, arrays
from glayers.fitting import temperature
from glayers.fitting.temperature import fit_inverse_temperature, fit_with_prior, log_loss_at
from tests.strategies import Numbers

NONE_IS_BEST = "every row is classified correctly by a margin, so no finite temperature is best"
FLAT_IS_BEST = "the logits carry no information about the labels, so uniform probabilities are best"


def informative(seed: int, rows: int = 200, classes: int = 4, size: float = 2.0) -> tuple[Numbers, Numbers]:
    """Logits that know something, but not everything, about the labels."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, classes)) * size
    return z, (z + 1.5 * rng.gumbel(size=z.shape)).argmax(axis=1)


def loss(b: float, z: Numbers, labels: Numbers, weights: Numbers | None = None) -> float:
    own = log_softmax(b * z.astype(np.float64), axis=1)[np.arange(len(z)), labels]
    return -float(np.average(own, weights=weights))


def slope(b: float, z: Numbers, labels: Numbers) -> float:
    wide = z.astype(np.float64)
    return float(((softmax(b * wide, axis=1) * wide).sum(axis=1) - wide[np.arange(len(z)), labels]).mean())


@given(seed=st.integers(0, 2**32 - 1), classes=st.integers(2, 9), narrow=st.booleans())
@settings(max_examples=30, deadline=None)
def test_it_is_the_optimum_that_scipy_finds(seed: int, classes: int, narrow: bool) -> None:
    z, labels = informative(seed, classes=classes)
    z = z.astype(np.float32) if narrow else z
    found = fit_inverse_temperature(z, labels, None)
    # A minimiser that sees values only is blind to the last 1e-8; a root of the slope is not.
    root = brentq(slope, 1e-3, 50, args=(z, labels), xtol=1e-14, rtol=1e-13)
    by_value = minimize_scalar(loss, bounds=(1e-3, 50), args=(z, labels), method="bounded", options={"xatol": 1e-10})
    assert found.converged
    assert found.reason == ""
    assert found.factor == pytest.approx(root, rel=1e-6 if narrow else 1e-8)
    assert found.factor == pytest.approx(by_value.x, rel=1e-5)


def test_a_large_set_is_read_from_a_good_start_and_ends_at_the_same_optimum() -> None:
    z, labels = informative(3, rows=9_001)
    root = brentq(slope, 1e-3, 50, args=(z, labels), xtol=1e-14, rtol=1e-13)
    assert fit_inverse_temperature(z, labels, None).factor == pytest.approx(root, rel=1e-8)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_weights_are_repeated_rows(seed: int) -> None:
    z, labels = informative(seed)
    times = np.random.default_rng(seed).integers(0, 4, len(z))
    rows = np.repeat(np.arange(len(z)), times)
    weighted = fit_inverse_temperature(z, labels, times.astype(np.float64)).factor
    assert weighted == pytest.approx(fit_inverse_temperature(z[rows], labels[rows], None).factor, rel=1e-8)


@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([1e-6, 1 / 7, 7.0, 1e4]))
@settings(max_examples=20, deadline=None)
def test_logits_times_seven_have_seven_times_the_temperature(seed: int, scale: float) -> None:
    z, labels = informative(seed)
    plain, scaled = (fit_inverse_temperature(factor * z, labels, None).factor for factor in (1.0, scale))
    assert plain == pytest.approx(scale * scaled, rel=1e-8)


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 30), classes=st.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_it_is_never_negative_and_never_worse_than_leaving_the_logits_alone(seed: int, rows: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    z, labels = rng.normal(size=(rows, classes)) * 3, rng.integers(0, classes, rows)
    found = fit_inverse_temperature(z, labels, None)
    assert 0 < found.factor < np.inf
    assert found.converged == (found.reason == "")
    assert loss(found.factor, z, labels) <= loss(1.0, z, labels) + 1e-9


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_logits_that_point_away_from_the_labels_say_so(size: float) -> None:
    z, labels = informative(1)
    found = fit_inverse_temperature(-size * z, labels, None)
    assert not found.converged
    assert found.reason == FLAT_IS_BEST
    assert loss(found.factor, -size * z, labels) == pytest.approx(np.log(4), abs=1e-6)


@pytest.mark.parametrize("size", [1e-4, 1.0, 300.0, 1e4])  # at 300 the first slope underflows to exactly 0
@pytest.mark.parametrize("margin", ["equal", "random"])
def test_logits_that_are_always_right_say_so(margin: str, size: float) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 50)
    z = 5 * np.eye(3)[labels] - 1 if margin == "equal" else rng.normal(size=(50, 3))
    labels = z.argmax(axis=1)
    found = fit_inverse_temperature(size * z, labels, None)
    assert not found.converged
    assert found.reason == NONE_IS_BEST
    assert loss(found.factor, size * z, labels) < 1e-6 < loss(1 / size, size * z, labels)


def test_a_fit_without_an_optimum_warns() -> None:
    z, labels = informative(1)
    with pytest.warns(GlayersWarning, match=FLAT_IS_BEST):
        flat = TemperatureScaling().fit(-z, labels)
    assert (flat.diagnostics_.converged, flat.diagnostics_.reason) == (False, FLAT_IS_BEST)
    assert flat.predict_proba(z) == pytest.approx(np.full(z.shape, 0.25), abs=1e-6)


def test_equal_logits_have_no_temperature() -> None:
    found = fit_inverse_temperature(np.full((5, 3), 7.0), np.array([0, 2, 1, 1, 0]), None)
    assert found.factor == 1.0
    assert "no temperature matters" in found.reason


def test_one_logit_is_two_logits() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 1)) * 3
    labels = (rng.random(300) < 1 / (1 + np.exp(-0.5 * z[:, 0]))).astype(np.int64)
    two = np.hstack([np.zeros_like(z), z])
    one_found, two_found = (fit_inverse_temperature(logits, labels, None).factor for logits in (z, two))
    assert one_found == pytest.approx(two_found, rel=1e-12)
    # Labels were drawn with b = 0.5; its standard error at 300 rows is about 0.06.
    assert one_found == pytest.approx(0.5, abs=0.2)


def test_a_known_temperature_is_recovered() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(50_000, 5)) * 2
    labels = (z / 2.5 + rng.gumbel(size=z.shape)).argmax(axis=1)
    fitted = TemperatureScaling().fit(z, labels)
    assert fitted.temperature_ == pytest.approx(2.5, rel=0.02)
    assert fitted.diagnostics_.converged


def test_one_masked_class_in_many_rows_does_not_decide_the_temperature() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(4_000, 4))
    labels = (4 * z + rng.gumbel(size=z.shape)).argmax(axis=1)
    masked = z.copy()
    wrong = (labels + 1) % 4
    some = np.arange(4_000) % 3 > 0
    masked[np.flatnonzero(some), wrong[some]] = -1e4
    found = fit_inverse_temperature(masked, labels, None)
    assert found.converged
    assert found.factor == pytest.approx(4, rel=0.1)


@given(seed=st.integers(0, 2**32 - 1), size=st.sampled_from([1e-3, 1.0, 1e4]), far=st.booleans())
@settings(max_examples=30, deadline=None)
def test_it_is_exact_in_float32_however_wrong_the_worst_label_is(seed: int, size: float, far: bool) -> None:
    z, labels = informative(seed, rows=300)
    if far:  # a row that lies far above all others, and its label far below its top
        z[7] += 1e2
        z[7, labels[7]] -= 1e2
    z = (size * z).astype(np.float32)
    found = fit_inverse_temperature(z, labels, None)
    centred = z.astype(np.float64) - z.max(axis=1, keepdims=True)
    root = brentq(slope, 1e-3 / size, 50 / size, args=(centred, labels), xtol=1e-14 / size, rtol=1e-13)
    assert found.factor == pytest.approx(root, rel=1e-6)
    assert found.loss == pytest.approx(loss(found.factor, z, labels), rel=1e-6)


@given(seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from([np.float16, np.float32, np.float64]))
@settings(max_examples=20, deadline=None)
def test_the_loss_at_a_factor_is_that_of_softmax(seed: int, dtype: type) -> None:
    z, labels = informative(seed)
    z, weights = z.astype(dtype), np.random.default_rng(seed).random(len(z))
    expected = loss(0.7, z, labels, weights)
    assert log_loss_at(z, labels, weights, 0.7) == pytest.approx(expected, rel=1e-12 if dtype is np.float64 else 1e-6)


@given(seed=st.integers(0, 2**32 - 1), b=st.floats(0.1, 2.0))
@settings(max_examples=20, deadline=None)
def test_three_derivatives_tell_the_loss_nearby(seed: int, b: float) -> None:
    z, labels = informative(seed)
    rows = z, labels, np.full(len(z), 1 / len(z))
    value, slope, curvature, third = temperature.loss_and_derivatives(*rows, b, np.float64)
    # What is left is d^4 / 24 of the fourth derivative; a wrong third one would leave d^3 / 6, a hundred times that.
    for d in (-0.01, 0.01):
        near = value + d * slope + d**2 / 2 * curvature + d**3 / 6 * third
        assert near == pytest.approx(loss(b * (1 + d), z, labels), abs=2e-8)


def test_before_and_after_are_the_losses_of_the_rows() -> None:
    z, labels = informative(5)
    fitted = TemperatureScaling().fit(z, labels)
    assert fitted.diagnostics_.loss_before == pytest.approx(loss(1.0, z, labels), rel=1e-12)
    assert fitted.diagnostics_.loss_after == pytest.approx(loss(1 / fitted.temperature_, z, labels), rel=1e-6)


def test_any_number_of_threads_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = informative(0, rows=9_001, classes=70)  # five blocks
    found = set()
    for threads in (1, 2, 5):
        monkeypatch.setattr(arrays, "available_threads", lambda threads=threads: threads)
        found.add((fit_inverse_temperature(z, labels, None), log_loss_at(z, labels, None, 1.0)))
    assert len(found) == 1


@pytest.mark.parametrize(("limit", "threads"), [("1", 1), (" 2,4", 2), ("64", 3), ("0", 3), ("", 3), ("many", 3)])
def test_threads_are_the_cores_or_fewer_where_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch, limit: str, threads: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert arrays.available_threads() == threads


def test_a_search_cut_short_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temperature, "_MOST_STEPS", 1)
    found = fit_inverse_temperature(*informative(0, size=20.0), None)
    assert not found.converged
    assert found.reason == "no optimum in 1 steps"


@pytest.mark.parametrize("size", [1e-320, 1e-310, 1e-300])
def test_logits_too_close_for_any_factor_stay_as_they_are(size: float) -> None:
    z, labels = informative(0)
    with pytest.warns(GlayersWarning, match="all logits of each row are equal"):
        found = TemperatureScaling().fit(z * size, labels)
    assert found.predict_proba(z * size) == pytest.approx(0.25, abs=1e-12)


@pytest.mark.parametrize("size", [1e-200, 1e-120, 1e150])
def test_tiny_and_huge_logits_have_the_temperature_of_ordinary_ones(size: float) -> None:
    z, labels = informative(0)
    plain, scaled = (TemperatureScaling().fit(each, labels) for each in (z, z * size))
    # The prior holds a temperature near 1, by less than two parts in a hundred with 200 rows.
    assert scaled.temperature_ / size == pytest.approx(plain.temperature_, rel=0.02)
    assert scaled.predict_proba(z * size) == pytest.approx(plain.predict_proba(z), abs=0.01)


@pytest.mark.parametrize("calibrator", [TemperatureScaling(), AutoCalibrator(time_budget=0)])
def test_few_rows_of_a_sure_model_are_left_nearly_alone(calibrator: Any) -> None:
    losses = []
    fresh = sure(5_000, 99)
    for seed in range(8):
        p = clone(calibrator).fit(*sure(50, seed)).predict_proba(fresh[0])
        losses.append(-np.log(p[np.arange(5_000), fresh[1]]).mean())
    assert np.mean(losses) < loss(1.0, *fresh) + 0.006  # temperature scaling without a prior loses 0.4
    assert max(losses) < loss(1.0, *fresh) + 0.02


def sure(rows: int, seed: int) -> tuple[Numbers, Numbers]:
    """Calibrated logits of a model that is right in 98 % of the rows."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, rows)
    z = rng.normal(size=(rows, 10))
    z[np.arange(rows), labels] += 3.9
    return 3.9 * z, labels


def test_with_many_rows_the_prior_moves_nothing_visible() -> None:
    z, labels = informative(4, rows=5_000, size=5.0)
    exact = fit_inverse_temperature(z, labels, None)
    found = fit_with_prior(z, labels, None)
    assert found.factor == pytest.approx(exact.factor, rel=2e-3)
    assert found.loss == pytest.approx(exact.loss, abs=1e-5)


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(5, 400), size=st.sampled_from([0.3, 2.0, 20.0]))
@settings(max_examples=20, deadline=None)
def test_the_prior_is_added_to_the_loss(seed: int, rows: int, size: float) -> None:
    z, labels = informative(seed, rows=rows)
    z = z * size
    fitted = fit_with_prior(z, labels, None)
    assume(fitted.converged)  # rows that say nothing end at uniform probabilities, whatever the prior
    found = fitted.factor

    def value(log_b: float) -> float:
        return rows * loss(np.exp(log_b), z, labels) + 2 * np.log1p(log_b**2 / 0.75)

    grid = np.linspace(np.log(found) - 0.3, np.log(found) + 0.3, 13)
    assert value(np.log(found)) <= min(map(value, grid)) + 1e-3


def test_groups_take_little_more_memory() -> None:
    z = np.random.default_rng(0).normal(size=(20_000, 100))
    labels = np.where(np.arange(len(z)) % 2 == 0, z.argmax(axis=1), 0)
    tracemalloc.start()
    try:
        TemperatureScaling().fit(z, labels, groups=np.arange(len(z)) // 10)
        assert tracemalloc.get_traced_memory()[1] < z.nbytes
    finally:
        tracemalloc.stop()
