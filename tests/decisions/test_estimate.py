"""How good a model is on rows without labels."""

import numpy as np
import pytest

from glayers import (
    BadPredictions,
    BetaCalibration,
    Confidences,
    GlayersError,
    GlayersWarning,
    IsotonicCalibration,
    PlattScaling,
    Predictions,
    TemperatureScaling,
    VectorScaling,
)
from glayers.activations import softmax
from glayers.decisions.costs import decide
from glayers.decisions.estimate import _drawn, _Unlabelled, estimate
from glayers.metrics import auroc
from glayers.testing import few_rows
from tests.strategies import Numbers


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


def test_statistics_agree_with_the_labels() -> None:
    calibrator = TemperatureScaling().fit_predictions(rows(0, 12_000))
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
    assert found.changed
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
    shares = [found.accuracy, *(share for by_class in found.classes.values() for share in by_class.values())]
    assert all(0 <= share.low <= share.high <= 1 for share in shares if not np.isnan(share.low))


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
    of_array = estimate(calibrator, new.logits, random_state=np.array(3))  # type: ignore[arg-type]
    assert of_array.to_dict() == estimate(calibrator, new.logits, random_state=3).to_dict()


@pytest.mark.parametrize("n_groups", [3, 101])
def test_few_groups_are_populations_and_many_are_units(calibrator: VectorScaling, n_groups: int) -> None:
    new = rows(11, 1515)
    groups = np.arange(1515) % n_groups
    found = estimate(calibrator, new.logits, groups=groups)
    assert list(found.groups) == (["0", "1", "2"] if n_groups == 3 else [])
    if found.groups:
        assert found.groups["1"].accuracy.high - found.groups["1"].accuracy.low > 1.4 * (
            found.accuracy.high - found.accuracy.low
        )
        assert sum(group.rows for group in found.groups.values()) == found.rows
        assert "group 2, 505 rows" in str(found)


def test_groups_with_other_class_frequencies_are_estimated_with_their_own(calibrator: VectorScaling) -> None:
    covered = np.zeros(2)
    widths = np.zeros(2)
    groups = np.repeat(["Bern", "Oslo"], [500, 300])
    refused = 0
    for seed in range(30):
        parts = [rows(2000 + seed, 500), rows(3000 + seed, 300, shift=[0.0, 0.0, 3.0])]
        logits = np.concatenate([part.logits for part in parts])
        try:
            found = estimate(calibrator, logits, groups=groups, n_draws=100, random_state=seed)
        except GlayersError:  # of 100 good batches, about one; so of three tests per seed
            refused += 1
            continue
        for place, (part, group) in enumerate(zip(parts, found.groups.values(), strict=True)):
            right = (calibrator.predict(part.logits) == part.labels).mean()
            covered[place] += group.accuracy.low <= right <= group.accuracy.high
            widths[place] += (group.accuracy.high - group.accuracy.low) / 30
        assert found.groups["Oslo"].changed
    assert refused <= 3  # 0.9 expected; 4 or more with a probability of 0.01
    assert covered.min() >= 23 - refused  # 27 of 30 expected; fewer than 23 with a probability of 0.03
    assert widths.max() < 0.15
    assert "group Oslo, 300 rows whose class frequencies have changed: accuracy " in str(found)


def test_the_estimate_of_all_rows_agrees_with_those_of_the_groups(calibrator: VectorScaling) -> None:
    parts = [rows(21, 1500).logits, rows(22, 300, shift=[0.0, 0.0, 3.0]).logits]
    groups = np.repeat(["Bern", "Oslo"], [1500, 300])
    found = estimate(calibrator, np.concatenate(parts), groups=groups, costs=1 - np.eye(3), random_state=3)
    bern, oslo = found.groups.values()
    assert found.accuracy.value == pytest.approx((5 * bern.accuracy.value + oslo.accuracy.value) / 6)
    assert found.cost is not None
    assert bern.cost is not None
    assert oslo.cost is not None
    assert found.cost.value == pytest.approx((5 * bern.cost.value + oslo.cost.value) / 6)
    assert found.confusion == pytest.approx(bern.confusion + oslo.confusion)
    assert (oslo.changed, bern.changed) == (True, False)
    assert oslo.confusion[:, 2].sum() > 0.8 * 300  # class 2 has 91 % of these labels, and a third in Bern
    assert bern.confusion[:, 2].sum() < 0.4 * 1500


def test_many_populations_with_frequencies_of_their_own_are_not_refused_by_chance(calibrator: VectorScaling) -> None:
    """Each was tested at 99 %, so that one of 60 was of another kind by chance in almost half of all cases."""
    refused = 0
    for seed in range(6):
        parts = [rows(100 * seed + g, 100, shift=[3.0 * (g % 2), 0.0, 0.0]).logits for g in range(60)]
        try:
            estimate(calibrator, np.concatenate(parts), groups=np.repeat(np.arange(60), 100), n_draws=20)
        except GlayersError:
            refused += 1
    assert refused <= 1


def test_groups_too_small_to_tell_have_frequencies_near_the_common_ones(calibrator: VectorScaling) -> None:
    new = rows(5, 600, shift=[0.0, 0.0, 3.0])
    found = estimate(calibrator, new.logits, groups=np.repeat(["a", "b"], [591, 9]))
    assert not found.groups["b"].changed
    assert "group b, 9 rows: accuracy " in str(found)
    alone = estimate(calibrator, new.logits[591:])
    assert found.groups["b"].confusion[:, 2].sum() > alone.confusion[:, 2].sum()


@pytest.mark.parametrize("frequency", [0.1, 0.2])
def test_intervals_cover_where_few_calibration_rows_hide_other_frequencies(frequency: float) -> None:
    """Frequencies without a significant change were taken for certain: at 20 %, 62 % were covered."""

    def drawn(rng: np.random.Generator, n: int, ill: float) -> Predictions:
        labels = (rng.uniform(size=n) < ill).astype(int)
        x = 2 * rng.normal(size=n) + 4 * labels - 2  # so that log-odds are x, plus those of the frequencies
        return Predictions(np.column_stack([np.zeros(n), 1.9 * (x + np.log(1 / 9)) + 0.8]), labels)

    covered = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        with few_rows():
            fitted = PlattScaling().fit_predictions(drawn(rng, 120, 0.1))
        new = drawn(rng, 1500, frequency)
        try:
            found = estimate(fitted, new.logits, costs=[[0, 1], [10, 0]], n_draws=60, random_state=seed)
        except GlayersError:
            continue
        right = (fitted.predict(new.logits) == new.labels).mean()
        actions = decide(fitted.predict_proba(new.logits), [[0, 1], [10, 0]])
        paid = np.array([[0, 1], [10, 0]])[new.labels, actions].mean()
        assert found.cost is not None
        covered.append((found.accuracy.low <= right <= found.accuracy.high, found.cost.low <= paid <= found.cost.high))
    assert len(covered) > 50
    assert np.mean(covered, axis=0).min() > 0.78


def test_columns_in_another_order_are_refused() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(400, 3))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    rows = Predictions(3 * z, labels, class_names=("cat", "dog", "owl"))
    fitted = TemperatureScaling().fit_predictions(rows)
    swapped = Predictions(3 * z[:, [1, 0, 2]], labels, class_names=("dog", "cat", "owl"))
    with pytest.raises(BadPredictions, match="fitted on the classes cat, dog, owl, but these rows have dog, cat, owl"):
        estimate(fitted, swapped)


def test_an_error_about_a_group_names_it(calibrator: VectorScaling) -> None:
    usual = rows(6, 12_000)
    odd = 0.3 * rows(7, 100, shift=[0.0, 0.0, 2.0]).logits
    with pytest.raises(GlayersError, match="group odd: these rows are of another kind"):
        estimate(calibrator, np.concatenate([usual.logits, odd]), groups=np.repeat(["usual", "odd"], [12_000, 100]))


def test_a_class_that_is_never_predicted_has_no_interval_of_width_0(calibrator: VectorScaling) -> None:
    logits = np.array([[9.0, 0.0, 0.0], [8.0, 0.0, 0.0], [0.0, 9.0, 0.0]])
    assert str(estimate(calibrator, logits)).endswith("lowest F1: class 2, which is predicted for no row")


def test_groups_of_another_kind_are_refused_although_they_are_few(calibrator: VectorScaling) -> None:
    with pytest.raises(GlayersError, match="another kind"):
        estimate(calibrator, 2 * rows(6, 2000).logits, groups=np.arange(2000) % 3)


def test_the_mean_cost_is_estimated_and_abstaining_lowers_it(calibrator: VectorScaling) -> None:
    new = rows(12, 5000)
    costs = 1.0 - np.eye(3)
    errors = estimate(calibrator, new.logits, costs=costs)
    assert errors.cost is not None
    # With these costs the best action is the predicted class, and the cost the error rate.
    assert errors.cost.value == pytest.approx(1 - errors.accuracy.value)
    assert errors.cost.low == pytest.approx(1 - errors.accuracy.high, abs=1 / 5000)  # whose ends are whole rows
    assert "cost      0." in str(errors)
    tens = estimate(calibrator, new.logits, costs=10 * costs).cost
    assert tens is not None
    assert (tens.low, tens.high) == pytest.approx((10 * errors.cost.low, 10 * errors.cost.high))
    lower = estimate(calibrator, new.logits, costs=costs, abstain=0.2).cost
    assert lower is not None
    assert lower.high < errors.cost.low
    actions = decide(calibrator.predict_proba(new.logits), costs, abstain=0.2)
    paid = np.column_stack([costs, np.full(3, 0.2)])[new.labels, actions]
    assert lower.low < paid.mean() < lower.high
    free = estimate(calibrator, new.logits, costs=costs, abstain=0.0).cost
    assert free is not None  # a cost of nothing is known, too
    assert (free.value, free.low, free.high) == (0.0, 0.0, 0.0)
    assert estimate(calibrator, new.logits).cost is None
    with pytest.raises(BadPredictions, match="abstain= needs costs="):
        estimate(calibrator, new.logits, abstain=0.2)


def test_masked_classes_get_no_labels(calibrator: VectorScaling) -> None:
    new = rows(14, 600)
    masked = np.where(np.eye(3, dtype=bool)[(new.labels + 1) % 3], -np.inf, new.logits)  # a class that is not the label
    for fitted in (calibrator, IsotonicCalibration().fit_predictions(rows(0, 3000))):
        impossible = np.isneginf(masked)
        places = np.arange(600)
        unlabelled = _Unlabelled(masked, places, 0 * places, new.labels, np.ones(600), np.zeros((600, 3)))
        chances, labels = _drawn(unlabelled, fitted, 20, 0)
        assert labels.shape == (600, 20)
        assert not impossible[places[:, None], labels].any()
        assert (chances[impossible] == 0).all()


def test_methods_without_a_posterior_and_sure_models_have_intervals() -> None:
    new = rows(15, 400, k=2)
    fitted = BetaCalibration().fit_predictions(rows(16, 400, k=2))
    assert fitted.posterior_ is None
    found = estimate(fitted, new.logits).accuracy
    assert 0.03 < found.high - found.low < 0.2
    sure = Predictions(100.0 * np.eye(2)[new.labels], new.labels)
    with pytest.warns(GlayersWarning):  # the fit cannot improve on it
        calibrator = VectorScaling().fit_predictions(sure)
    certain = estimate(calibrator, sure.logits)
    assert certain.accuracy.high == pytest.approx(1.0)
    assert certain.accuracy.high <= 1.0


def test_the_accuracy_of_few_rows_can_be_what_the_interval_holds(calibrator: VectorScaling) -> None:
    for n in (1, 2, 5):
        found = estimate(calibrator, rows(12, n).logits).accuracy
        assert found.low * n == pytest.approx(round(found.low * n))
        assert found.high * n == pytest.approx(round(found.high * n))
        assert found.low < found.high


def test_rows_of_a_unit_count_as_copies(calibrator: VectorScaling) -> None:
    new = rows(12, 200)
    copies = np.repeat(np.arange(200), 5)
    alone = estimate(calibrator, new.logits).accuracy
    copied = estimate(calibrator, new.logits[copies], groups=copies).accuracy
    assert copied.high - copied.low > 0.8 * (alone.high - alone.low)


def test_predictions_are_estimated_as_their_logits(calibrator: VectorScaling) -> None:
    new = rows(12, 100)
    assert estimate(calibrator, new).to_dict() == estimate(calibrator, new.logits).to_dict()
    groups = np.repeat(["north", "south"], 50)
    grouped = Predictions(new.logits, new.labels, groups=groups)
    assert estimate(calibrator, grouped).to_dict() == estimate(calibrator, new.logits, groups=groups).to_dict()
    with pytest.raises(BadPredictions, match="equal weight"):
        estimate(calibrator, Predictions(new.logits, new.labels, weights=np.arange(100)))


def test_confidences_are_estimated_as_their_numbers() -> None:
    rng = np.random.default_rng(0)
    confidence = rng.uniform(0.1, 0.9, 900)
    correct = rng.uniform(size=900) < confidence
    fitted = TemperatureScaling(inputs="confidence").fit(confidence, correct)
    given = Confidences(confidence[:300], correct[:300])
    of_rows = estimate(fitted, given).accuracy
    of_numbers = estimate(fitted, confidence[:300]).accuracy
    assert (of_rows.value, of_rows.low, of_rows.high) == pytest.approx(
        (of_numbers.value, of_numbers.low, of_numbers.high)
    )


def test_a_cost_prints_as_a_number_and_that_of_one_row_can_be_any_that_the_row_may_have(
    calibrator: VectorScaling,
) -> None:
    new = rows(12, 100)
    found = estimate(calibrator, new.logits, costs=1 - np.eye(3), groups=np.arange(100))
    assert "%" not in str(found.cost)
    assert " % (" in str(found.accuracy)
    of_groups = [group.cost for group in found.groups.values() if group.cost is not None]
    doubtful = [cost for cost in of_groups if 0.1 < cost.value < 0.9]
    assert len(doubtful) > 20
    for cost in doubtful:  # the label of the row is right or wrong
        assert (cost.low, cost.high) == pytest.approx((0, 1), abs=0.01)
    assert "group 7, 1 row: " in str(found)


def test_an_action_that_is_free_has_a_cost_of_zero(calibrator: VectorScaling) -> None:
    new = rows(12, 200)
    free = np.column_stack([1.0 - np.eye(3), np.zeros(3)])
    found = estimate(calibrator, new.logits, costs=free, groups=np.arange(200) % 2)
    for part in (found, *found.groups.values()):
        assert part.cost is not None
        assert (part.cost.value, part.cost.low, part.cost.high) == (0, 0, 0)
    assert found.scores()["cost"] == 0
    without = estimate(calibrator, new.logits)
    assert without.cost is None
    assert "cost" not in without.scores()


def test_new_frequencies_of_many_classes_do_not_flatter_the_predictions() -> None:
    """The likeliest frequencies agree with the predictions too well: with them, estimates were 0.9 points too high."""
    rng = np.random.default_rng(0)
    k = 100

    def drawn(n: int, frequencies: Numbers) -> Predictions:
        labels = rng.choice(k, n, p=frequencies)
        return Predictions(2.5 * rng.normal(size=(n, k)) + 2.5**2 * np.eye(k)[labels], labels)

    fitted = TemperatureScaling().fit_predictions(drawn(5000, np.full(k, 1 / k)))
    errors = []
    for _ in range(6):
        frequencies = rng.dirichlet(np.full(k, 2.0))
        new = drawn(400, frequencies)
        found = estimate(fitted, new.logits, n_draws=60)
        assert found.changed
        chances = softmax(new.logits + np.log(frequencies))  # the true ones
        errors.append(found.accuracy.value - chances[np.arange(400), fitted.predict(new.logits)].mean())
    assert abs(np.mean(errors)) < 0.006, errors


def test_the_auroc_is_that_of_labels_if_the_model_is_sure_of_them() -> None:
    confidence = np.array([0.6, 0.9, 0.6, 0.7, 0.5])
    right = np.array([1.0, 1.0, 0.0, 0.0, 0.0])
    chances = np.column_stack([right, 1 - right])
    places = np.arange(5)
    unlabelled = _Unlabelled(chances, places, 0 * places, 0 * places, confidence, chances)
    ranks = np.array([2.5, 5, 2.5, 4, 1]) - 3  # from their middle
    # 0.9 is above all three wrong answers; 0.6 above one, and equal to one: (3 + 1.5) / 6. Precision and recall of
    # class 0 are 2 / 5 and 1; class 1 is never predicted.
    statistics = unlabelled.statistics(ranks, right, np.array([2, 3]), chances[:, 0])
    assert statistics.tolist() == pytest.approx([0.4, 0.4, 0.75, 0.4, 0, 1, 0, 4 / 7, 0])
    by_metric = auroc(Confidences(confidence, right.astype(bool)))
    assert by_metric == pytest.approx(0.75)
