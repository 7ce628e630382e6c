import numpy as np
import pytest

from glayers import BadPredictions, Confidences, GlayersError, Predictions, TemperatureScaling, metrics, rows_needed
from glayers.fitting.folds import assign_folds
from glayers.learning_curve import Forecast, LearningCurve, _possible_falls, _Variances
from tests.strategies import Numbers


def softened(rows: int, seed: int = 0) -> tuple[Numbers, Numbers]:
    """Logits that a temperature of 2 makes true."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(rows, 3))
    return 2 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)


def test_a_half_is_judged_by_the_other_half() -> None:
    logits, labels = softened(101)
    curve = rows_needed(logits, labels, calibrator=TemperatureScaling(), random_state=3)
    first = assign_folds(101, None, 8, 3) < 4
    total = 0.0
    for half in (first, ~first):
        p = TemperatureScaling().fit(logits[half], labels[half]).predict_proba(logits[~half])
        total += metrics.nll(p, labels[~half]) * (~half).sum()
    assert curve.losses[-1] == pytest.approx(total / 101)
    assert curve.sizes == (13, 25, 50)
    assert [each.rows for each in curve.forecasts] == [202, 404]


def test_a_steady_power_law_goes_on() -> None:
    # Falls of 0.04 and 0.02 mean an exponent of 1, so the next falls are 0.01 and, from n to 2 n, 0.005.
    exact = _Variances(np.eye(2) * 1e-12, 0.0)
    found = _possible_falls(np.array([0.04, 0.02]), exact, [2, 4])
    for draws, truth in zip(found, (0.005, 0.005 + 0.0025), strict=True):
        low, middle, high = np.quantile(draws, [0.05, 0.5, 0.95])
        assert middle == pytest.approx(truth, rel=0.1)
        assert truth / 5 < low < truth / 2 < 2 * truth < high < 5 * truth  # the exponent may change: 2^(2 * 0.82) = 3.1


def test_a_rising_loss_is_noise_and_no_forecast_of_harm() -> None:
    (found,) = _possible_falls(np.array([-0.001, -0.0005]), _Variances(np.eye(2) * 1e-6, 0.0), [2])
    assert found.min() >= 0
    assert np.median(found) < 0.001


def test_rows_without_weight_do_not_count() -> None:
    logits, labels = softened(300)
    weights = np.random.default_rng(1).integers(0, 3, 300)
    used = weights > 0
    found = rows_needed(logits, labels, weights, calibrator=TemperatureScaling())
    assert found == rows_needed(logits[used], labels[used], 7.0 * weights[used], calibrator=TemperatureScaling())
    equal = rows_needed(logits[used], labels[used], calibrator=TemperatureScaling())
    assert found.losses != equal.losses


def test_groups_stay_whole_and_count_as_one_observation() -> None:
    logits, labels = softened(120)
    copies, groups = np.repeat(np.arange(120), 5), np.repeat(np.arange(120), 5)
    found, apart = (
        rows_needed(logits[copies], labels[copies], groups=each, calibrator=TemperatureScaling())
        for each in (groups, None)
    )
    # Split copies would be judged by fits that have seen them, and seem to be five times as many.
    assert found.losses[0] > apart.losses[0]
    assert found.forecasts[0].upper > 2 * apart.forecasts[0].upper


def test_confidences_have_a_learning_curve_too() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.5, 1, 200)
    given = Confidences(confidence, rng.random(200) < confidence**2)
    curve = rows_needed(given, calibrator=TemperatureScaling(inputs="confidence"))
    assert all(0 < loss < 1 for loss in curve.losses)


def test_the_sentence_says_what_the_interval_says() -> None:
    def said(lower: float, gain: float, upper: float) -> str:
        return LearningCurve(
            "m", 50, (6, 12, 25), (0.3, 0.2, 0.1), (Forecast(100, gain, lower, upper),), 0.9
        ).sentence()

    assert (
        said(0.001, 0.004, 0.008)
        == "with twice the rows NLL would fall by about 0.004 (90 % interval 0.0010 to 0.0080)"
    )
    assert "cannot tell" in said(-0.001, 0.004, 0.02)
    assert "these rows are enough" in said(-0.001, 0.0002, 0.0009)


@pytest.mark.parametrize(
    ("rows", "labels", "groups", "problem"),
    [
        (2, [0, 1], None, "at least 40 rows with a positive weight; got 2"),
        (50, [1] * 50, None, "all labels are the same class"),
        (50, [0, 1] * 25, [1, 2] * 25, "at least 8 groups"),
        (50, [0, 1] * 25, [0] * 40 + list(range(10)), "a group of 41 of 50 rows is too large"),
    ],
)
def test_too_little_data_is_refused(rows: int, labels: list[int], groups: list[int] | None, problem: str) -> None:
    logits = np.random.default_rng(0).normal(size=(rows, 3))
    with pytest.raises(BadPredictions, match=problem):
        rows_needed(logits, labels, groups=groups, calibrator=TemperatureScaling())


def test_other_misuse_is_refused() -> None:
    given = Predictions(*softened(50))
    with pytest.raises(GlayersError, match="such as TemperatureScaling"):
        rows_needed(given, calibrator="auto")  # type: ignore[arg-type]
    with pytest.raises(GlayersError, match="pass no others"):
        rows_needed(given, labels=[0] * 50)
    with pytest.raises(BadPredictions, match="times must be"):
        rows_needed(given, times=[])
