"""How good a model is on rows without labels."""

import numpy as np
import pytest

from glayers import GlayersError, Predictions, TemperatureScaling, VectorScaling
from glayers.activations import softmax
from glayers.decisions.estimate import estimate


def rows(seed: int, n: int, shift: object = 0.0, k: int = 3) -> Predictions:
    """Rows of a network that is overconfident by a factor of 1.5."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(k, n, p=softmax(np.broadcast_to(np.asarray(shift, float), (1, k)))[0])
    z = rng.normal(size=(n, k)) + 1.5 * np.eye(k)[labels]  # so that log-odds of the classes are 1.5 z
    return Predictions(1.5 * 1.5 * z, labels)


@pytest.fixture(scope="module")
def calibrator() -> VectorScaling:
    return VectorScaling().fit_predictions(rows(0, 3000))


def test_intervals_cover_the_accuracy_that_labels_show() -> None:
    covered = 0
    for seed in range(40):
        fitted = TemperatureScaling().fit_predictions(rows(seed, 300))
        new = rows(1000 + seed, 300)
        found = estimate(fitted, new.logits, n_draws=100, random_state=seed)
        right = (fitted.predict(new.logits) == new.labels).mean()
        covered += found.accuracy.low <= right <= found.accuracy.high
    assert 31 <= covered <= 40  # 36 expected; fewer than 31 with a probability of 0.004


def test_fewer_calibration_rows_give_wider_intervals(calibrator: VectorScaling) -> None:
    new = rows(1, 5000)
    few = TemperatureScaling().fit_predictions(rows(2, 150))
    narrow = estimate(calibrator, new.logits).accuracy
    wide = estimate(few, new.logits).accuracy
    assert wide.high - wide.low > 1.5 * (narrow.high - narrow.low)


def test_statistics_agree_with_the_labels(calibrator: VectorScaling) -> None:
    new = rows(3, 20_000)
    found = estimate(calibrator, new.logits)
    predicted = calibrator.predict(new.logits)
    for c in range(3):
        hits = ((predicted == c) & (new.labels == c)).sum()
        assert found.classes[str(c)]["precision"].value == pytest.approx(hits / (predicted == c).sum(), abs=0.02)
        assert found.classes[str(c)]["recall"].value == pytest.approx(hits / (new.labels == c).sum(), abs=0.02)
    assert found.confusion.sum() == pytest.approx(20_000)


def test_other_class_frequencies_are_taken_into_account(calibrator: VectorScaling) -> None:
    new = rows(5, 5000, shift=[2.5, 0, 0])
    found = estimate(calibrator, new.logits)
    assert found.adapted
    right = (calibrator.predict(new.logits) == new.labels).mean()
    assert found.accuracy.low - 0.01 < right < found.accuracy.high + 0.01
    assert "class frequencies have changed" in str(found)
    adapted = calibrator.adapt(new.logits)  # whose predictions are better, and estimated as such
    of_adapted = estimate(adapted, new.logits)
    right = (adapted.predict(new.logits) == new.labels).mean()
    assert of_adapted.accuracy.low - 0.01 < right < of_adapted.accuracy.high + 0.01
    assert of_adapted.accuracy.low > found.accuracy.high


def test_rows_of_another_kind_are_refused(calibrator: VectorScaling) -> None:
    with pytest.raises(GlayersError, match="another kind"):
        estimate(calibrator, 2 * rows(6, 2000).logits)


def test_the_value_lies_in_its_interval_even_for_one_row(calibrator: VectorScaling) -> None:
    found = estimate(calibrator, rows(8, 1).logits)
    assert found.accuracy.low <= found.accuracy.value <= found.accuracy.high


def test_what_is_no_calibrator_is_refused() -> None:
    with pytest.raises(GlayersError, match="pass a fitted calibrator"):
        estimate("model.safetensors", [[0.0, 1.0]])  # type: ignore[arg-type]


def test_a_confidence_estimates_how_often_answers_are_correct() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.1, 0.9, 4000)
    correct = rng.uniform(size=4000) < confidence
    fitted = TemperatureScaling(inputs="confidence").fit(confidence[:2000], correct[:2000])
    found = estimate(fitted, confidence[2000:])
    assert found.accuracy.low < correct[2000:].mean() < found.accuracy.high


def test_the_same_seed_gives_the_same_numbers(calibrator: VectorScaling) -> None:
    new = rows(7, 500)
    assert estimate(calibrator, new.logits).to_dict() == estimate(calibrator, new.logits).to_dict()
