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
from glayers.activations import softmax
from glayers.fitting.folds import assign_folds
from glayers.gap import LearningCurve
from tests.strategies import Numbers


def softened(rows: int, seed: int = 0) -> tuple[Numbers, Numbers]:
    """Logits that a temperature of 2 makes true."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(rows, 3))
    return 2 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)


def test_the_excess_is_at_most_half_a_coefficient_per_row_for_temperature_scaling() -> None:
    # One coefficient on 400 rows: 1 / 800 = 0.00125 is known, and the held-out loss may show less.
    found = [rows_needed(*softened(400, seed), calibrator=TemperatureScaling()) for seed in range(30)]
    excess = [curve.excess for curve in found]
    assert max(excess) == pytest.approx(1 / 800)
    assert 0.5 / 800 < np.mean(excess) < 1 / 800
    assert min(curve.coefficients for curve in found) == 1
    two, four = found[0].to_dict()["forecasts"]
    assert (two["rows"], four["rows"]) == (800, 1_600)
    assert two["gain"] == pytest.approx(found[0].excess / 2)
    assert two["at_most"] < four["at_most"]


def test_forecasts_are_what_more_rows_bring_where_the_truth_is_known() -> None:
    rng = np.random.default_rng(0)
    shift = 0.7 * rng.normal(size=8)
    z = 2 * rng.normal(size=(20, 3_000, 8))
    labels = (z + shift + rng.gumbel(size=z.shape)).argmax(axis=2)
    truth = softmax(z + shift)
    gains, forecasts, bounds = [], [], []
    for logits, y, p in zip(z, labels, truth, strict=True):
        forecast = rows_needed(logits[:300], y[:300], calibrator=VectorScaling()).forecast(2)
        fits = [VectorScaling().fit(logits[:rows], y[:rows]) for rows in (300, 600)]
        before, after = (-np.vecdot(p, np.log(each.predict_proba(logits)))[600:].mean() for each in fits)
        gains.append(before - after)
        forecasts.append(forecast["gain"])
        bounds.append(forecast["at_most"])
    assert 0.6 < np.mean(forecasts) / np.mean(gains) < 1.5
    assert np.mean(np.array(gains) <= bounds) >= 0.85
    assert np.mean(bounds) < 4 * np.mean(gains)


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
    assert found.forecast(2)["at_most"] > 1.5 * apart.forecast(2)["at_most"]
    assert found.effective_rows == pytest.approx(120)


def test_confidences_have_a_learning_curve_too() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 200)
    given = Confidences(confidence, rng.random(200) < confidence**2)
    curve = rows_needed(given, calibrator=TemperatureScaling(inputs="confidence"))
    assert 0 < curve.loss < 1


def test_the_bound_is_the_quantile_of_nested_fits() -> None:
    rng = np.random.default_rng(0)
    for d in (1, 3, 20):
        for times in (2, 4):
            first, more = rng.normal(size=(2, 100_000, d))
            later = (
                first / times + np.sqrt(times - 1) / times * more
            )  # the error of a fit on all rows, over sqrt(1 / n)
            falls = np.sum(first**2 - later**2, axis=1) / (2 * 500)
            bound = LearningCurve("m", 500, 0.3, 0.0, d, 500).forecast(times)["at_most"]
            assert bound == pytest.approx(np.quantile(falls, 0.95), rel=0.07)


def test_the_sentence_says_how_much_is_probable_and_how_much_possible() -> None:
    # chi-square with 2 degrees of freedom exceeds 5.991 in 5 %; 1.5 * 5.991 / 1,000 = 0.009.
    said = LearningCurve("m", 500, 0.3, 0.008, 6.0, 500.0).sentence()
    assert said == "with 2 times the rows NLL would fall by about 0.004, and by 0.009 at most"
    said = LearningCurve("m", 5000, 0.3, 0.0004, 6.0, 5000.0).sentence()
    assert said == "with 2 times the rows NLL would fall by 0.0009 at most: these rows are enough for this method"


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
        LearningCurve("m", 50, 0.3, 0.1, 3.0, 50.0).forecast(0)
