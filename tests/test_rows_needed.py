import numpy as np
import pytest

from glayers import (
    BadPredictions,
    Confidences,
    GlayersError,
    Predictions,
    TemperatureScaling,
    VectorScaling,
    metrics,
    rows_needed,
)
from glayers.fitting.folds import assign_folds
from glayers.gap import LearningCurve
from tests.strategies import Numbers


def softened(rows: int, seed: int = 0) -> tuple[Numbers, Numbers]:
    """Logits that a temperature of 2 makes true."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(rows, 3))
    return 2 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)


def test_the_excess_is_half_a_coefficient_per_row_for_temperature_scaling() -> None:
    # One coefficient on 400 rows: 1 / 800 = 0.00125 on average.
    found = [rows_needed(*softened(400, seed), calibrator=TemperatureScaling()) for seed in range(30)]
    excess = [curve.excess for curve in found]
    assert np.mean(excess) == pytest.approx(1 / 800, abs=3 * np.std(excess) / 30**0.5)
    assert np.std(excess) / 30**0.5 < 0.2 / 800
    two, four = found[0].to_dict()["forecasts"]
    assert (two["rows"], four["rows"]) == (800, 1_600)
    assert two["gain"] == pytest.approx(found[0].excess / 2)
    assert four["gain"] == pytest.approx(0.75 * found[0].excess)


def test_a_forecast_for_many_coefficients_is_what_more_rows_bring() -> None:
    rng = np.random.default_rng(0)
    shift = rng.normal(size=8)
    z = 2 * rng.normal(size=(9_000, 8))
    labels = (z + shift + rng.gumbel(size=z.shape)).argmax(axis=1)
    curve = rows_needed(z[:300], labels[:300], calibrator=VectorScaling())
    fits = [VectorScaling().fit(z[:rows], labels[:rows]) for rows in (300, 600)]
    before, after = (metrics.nll(each.predict_proba(z[2_000:]), labels[2_000:]) for each in fits)
    forecast = curve.forecast(2)
    assert forecast["lower"] < before - after < forecast["upper"]
    assert "would fall by about" in curve.sentence()


def test_most_answers_say_how_much_and_intervals_are_not_much_wider_than_the_gain() -> None:
    # A power law through fits on parts of the rows could not tell in 105 of 120 runs; intervals were 9 to 14 gains.
    rng = np.random.default_rng(1)
    z = 2 * rng.normal(size=(12, 500, 10))
    scores = z * np.linspace(0.6, 1.4, 10) + np.linspace(-0.5, 0.5, 10)
    labels = (scores + rng.gumbel(size=z.shape)).argmax(axis=2)
    found = [rows_needed(1.5 * logits, y, calibrator=VectorScaling()) for logits, y in zip(z, labels, strict=True)]
    assert sum("cannot tell" in curve.sentence() for curve in found) <= 1
    assert np.mean([(curve.upper - curve.lower) / curve.excess for curve in found]) < 3


def test_the_loss_is_that_of_rows_held_out() -> None:
    logits, labels = softened(101)
    curve = rows_needed(logits, labels, calibrator=TemperatureScaling(), random_state=3)
    folds = assign_folds(101, None, 5, 3)
    total = 0.0
    for fold in range(5):
        own = folds == fold
        p = TemperatureScaling().fit(logits[~own], labels[~own]).predict_proba(logits[own])
        total += metrics.nll(p, labels[own]) * own.sum()
    assert curve.loss == pytest.approx(total / 101)


def test_rows_without_weight_do_not_count() -> None:
    logits, labels = softened(300)
    weights = np.random.default_rng(1).integers(0, 3, 300)
    used = weights > 0
    found = rows_needed(logits, labels, weights, calibrator=TemperatureScaling())
    same = rows_needed(logits[used], labels[used], 7.0 * weights[used], calibrator=TemperatureScaling())
    assert (found.rows, found.loss, found.excess) == pytest.approx((same.rows, same.loss, same.excess), rel=1e-6)
    equal = rows_needed(logits[used], labels[used], calibrator=TemperatureScaling())
    assert found.loss != equal.loss


def test_groups_stay_whole_and_count_as_one_observation() -> None:
    logits, labels = softened(120)
    copies, groups = np.repeat(np.arange(120), 5), np.repeat(np.arange(120), 5)
    found, apart = (
        rows_needed(logits[copies], labels[copies], groups=each, calibrator=TemperatureScaling())
        for each in (groups, None)
    )
    # Split copies would be judged by fits that have seen them, and seem to be five times as many.
    assert found.loss > apart.loss
    assert found.upper > 1.5 * apart.upper


def test_confidences_have_a_learning_curve_too() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 200)
    given = Confidences(confidence, rng.random(200) < confidence**2)
    curve = rows_needed(given, calibrator=TemperatureScaling(inputs="confidence"))
    assert 0 < curve.loss < 1


def test_the_sentence_says_what_the_interval_says() -> None:
    def said(lower: float, gain: float, upper: float) -> str:
        return LearningCurve("m", 50, 0.3, 2 * gain, 2 * lower, 2 * upper).sentence()

    assert (
        said(0.001, 0.004, 0.008)
        == "with 2 times the rows NLL would fall by about 0.004 (rough interval 0.0010 to 0.0080)"
    )
    assert "cannot tell" in said(0.0, 0.004, 0.02)
    assert "these rows are enough" in said(0.0, 0.0002, 0.0009)


@pytest.mark.parametrize(
    ("rows", "labels", "groups", "problem"),
    [
        (2, [0, 1], None, "at least 40 rows with a positive weight; got 2"),
        (50, [0, 1] * 25, [1, 2] * 25, "at least 8 groups"),
    ],
)
def test_too_little_data_is_refused(rows: int, labels: list[int], groups: list[int] | None, problem: str) -> None:
    logits = np.random.default_rng(0).normal(size=(rows, 3))
    with pytest.raises(BadPredictions, match=problem):
        rows_needed(logits, labels, groups=groups, calibrator=TemperatureScaling())


def test_other_misuse_is_refused() -> None:
    given = Predictions(*softened(50))
    with pytest.raises(GlayersError, match="such as TemperatureScaling"):
        rows_needed(given, calibrator="autos")
    with pytest.raises(GlayersError, match="pass no others"):
        rows_needed(given, labels=[0] * 50)
    with pytest.raises(BadPredictions, match="times must be"):
        LearningCurve("m", 50, 0.3, 0.1, 0.0, 0.2).forecast(0)
