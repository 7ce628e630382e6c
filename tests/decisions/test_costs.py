"""Actions of least expected cost, and what they cost."""

from typing import Any

import numpy as np
import pytest

from glayers import BadPredictions, Confidences, Predictions
from glayers.decisions.costs import decide, net_benefit, realised_costs
from glayers.metrics import label, top

ALARM = [[0.0, 1.0], [10.0, 0.0]]  # to miss class 1 costs ten false alarms


def screening(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """True probabilities of class 1, and labels."""
    rng = np.random.default_rng(seed)
    p = rng.beta(0.5, 4, n)
    return p, (rng.uniform(size=n) < p).astype(int)


def of_class_1(p: np.ndarray, labels: np.ndarray) -> Predictions:
    return Predictions.from_probabilities(np.column_stack([1 - p, p]), labels)


def test_the_action_of_least_expected_cost_is_taken() -> None:
    p = np.array([[0.95, 0.05], [0.9, 0.1], [0.5, 0.5]])
    # expected costs of no alarm: 0.5, 1, 5; of an alarm: 0.95, 0.9, 0.5
    assert decide(p, ALARM).tolist() == [0, 1, 1]


def test_abstaining_is_a_column_of_equal_costs() -> None:
    assert decide([[0.95, 0.05], [0.5, 0.5]], [[0, 1, 0.2], [1, 0, 0.2]]).tolist() == [0, 2]


def test_abstain_is_one_more_action() -> None:
    assert decide([[0.95, 0.05], [0.5, 0.5]], [[0, 1], [1, 0]], abstain=0.2).tolist() == [0, 2]
    p, labels = screening(500)
    rows = of_class_1(p, labels)
    with_column = realised_costs({"model": rows}, np.column_stack([ALARM, [0.3, 0.3]]), n_resamples=20)
    assert realised_costs({"model": rows}, ALARM, abstain=0.3, n_resamples=20) == with_column
    for cost in (np.nan, "much", [0.3]):
        with pytest.raises(BadPredictions, match="abstain must be a number between"):
            decide([[0.7, 0.3]], ALARM, abstain=cost)  # type: ignore[arg-type]


def test_true_probabilities_cost_least_and_expect_what_they_cost() -> None:
    p, labels = screening(8_000)
    overconfident = 1 / (1 + ((1 - p) / p) ** 3)
    found = realised_costs({"true": of_class_1(p, labels), "overconfident": of_class_1(overconfident, labels)}, ALARM)
    assert found["overconfident"]["saved by true"].low > 0
    assert found["best constant action"]["saved by true"].low > 0
    cost = found["true"]["cost"]
    assert cost.low < found.facts["cost expected by true"] < cost.high
    assert cost.value == pytest.approx(np.where(10 * p < 1 - p, 10 * labels, 1 - labels).mean())
    assert "95 % intervals" in str(found)
    assert "saved by true" in str(found)


def test_the_best_constant_action_is_found() -> None:
    p, labels = screening(2000)
    found = realised_costs({"model": of_class_1(p, labels)}, ALARM)
    never, always = 10 * labels.mean(), 1 - labels.mean()
    assert found["best constant action"]["cost"].value == pytest.approx(min(never, always))
    assert found.facts["best constant action"] == int(always < never)


@pytest.mark.parametrize("costs", [[[0, 1]], [[0, np.nan], [1, 0]], [0, 1], "much", [[0, 1e308], [1e308, 0]]])
def test_costs_without_sense_are_refused(costs: object) -> None:
    with pytest.raises(BadPredictions, match="costs"):
        decide([[0.7, 0.3]], costs)


def test_large_costs_overflow_nowhere() -> None:
    p, labels = screening(200)
    found = realised_costs({"model": of_class_1(p, labels)}, [[0, -1e100], [1e100, 0]], n_resamples=20)
    assert np.isfinite([found["model"]["cost"][:4], found["best constant action"]["saved by model"][:4]]).all()


def test_other_rows_cannot_be_compared() -> None:
    p, labels = screening(100)
    with pytest.raises(BadPredictions, match="pass the same rows: the labels of b and a differ"):
        realised_costs({"a": of_class_1(p, labels), "b": of_class_1(p, 1 - labels)}, ALARM)


def test_net_benefit_by_hand() -> None:
    p = np.array([0.8, 0.6, 0.3, 0.1])
    found = net_benefit(of_class_1(np.tile(p, 5), np.array([1, 0, 1, 0] * 5)), [0.5, 0.2], n_resamples=50)
    assert list(found.lines) == ["0.2", "0.5"]
    # From 20 % on three of four are treated, two of them ill: 2/4 - 1/4 * 0.2 / 0.8; from 50 % on 1/4 - 1/4 * 1.
    values = [[benefit.value for benefit in line.values()] for line in found.lines.values()]
    assert values[0] == pytest.approx([0.4375, 2 / 4 - 2 / 4 * 0.25, 0.0625])
    assert values[1] == pytest.approx([0.0, 0.0, 0.0])
    assert list(found["0.5"]) == ["model", "treat all", "gain"]


def test_net_benefit_is_that_of_counting_row_by_row() -> None:
    p, labels = screening(3000)
    rng = np.random.default_rng(3)
    weights = rng.integers(1, 4, 3000)
    rounded = p.round(2).clip(0.01, 0.99)  # many rows lie on a threshold, and are treated
    rows = Predictions.from_probabilities(np.column_stack([1 - rounded, rounded]), labels, weights)
    repeated = np.repeat(np.arange(3000), weights)
    again = of_class_1(rounded[repeated], labels[repeated])
    cuts = [0.05, 0.1, 0.3, 0.6]
    found, counted = (net_benefit(each, cuts, n_resamples=20) for each in (rows, again))
    for cut in cuts:
        treated = rounded[repeated] >= cut - 1e-9
        true, false = (treated & (labels[repeated] == c) for c in (1, 0))
        expected = (true.sum() - false.sum() * cut / (1 - cut)) / len(repeated)
        assert found[f"{cut:g}"]["model"].value == pytest.approx(expected)
        assert counted[f"{cut:g}"]["model"].value == pytest.approx(expected)


def test_calibrated_probabilities_pay_at_every_threshold() -> None:
    p, labels = screening(20_000)
    found = net_benefit(of_class_1(p, labels), [0.05, 0.1, 0.3, 0.5], n_resamples=200)
    for line in found.lines.values():
        assert line["gain"].low > 0
        assert line["model"].low < line["model"].value < line["model"].high
    overconfident = 1 / (1 + ((1 - p) / p) ** 3)
    other = net_benefit(of_class_1(overconfident, labels), [0.05], n_resamples=200)
    assert other["0.05"]["model"].high < found["0.05"]["model"].low


def test_net_benefit_takes_other_events() -> None:
    p, labels = screening(500)
    rows = of_class_1(p, labels)
    of_healthy = net_benefit(rows, [0.5], event=label(0), n_resamples=20)
    alone = net_benefit(Confidences(1 - p, labels == 0), [0.5], event=top, n_resamples=20)
    assert of_healthy["0.5"]["model"].value == pytest.approx(alone["0.5"]["model"].value)


@pytest.mark.parametrize("thresholds", [[], [0.0], [0.5, 1.0], [np.nan], "half"])
def test_thresholds_without_sense_are_refused(thresholds: object) -> None:
    with pytest.raises(BadPredictions, match="thresholds"):
        net_benefit(of_class_1(*screening(50)), thresholds)


def test_policies_of_other_classes_weights_or_groups_are_refused() -> None:
    p, y = np.full((4, 3), 1 / 3), [0, 1, 0, 1]
    rows = Predictions.from_probabilities(p, y)
    others = [
        Predictions.from_probabilities(p, y, weights=[1, 1, 1, 5]),
        Predictions.from_probabilities(p[:, :2] * 1.5, y),
        Predictions.from_probabilities(p, y, groups=[0, 0, 1, 1]),  # in which rows depend on each other
    ]
    for other in others:
        with pytest.raises(
            BadPredictions, match=r"pass the same rows: the (n_classes|weights|group_numbers) of b and a differ"
        ):
            realised_costs({"a": rows, "b": other}, np.eye(3))


@pytest.mark.parametrize(
    "costs", [[0, 1], [[[0], [1]]], [[], []], [[0, 1]], [[0, np.nan], [1, 0]], [[0, -1e101], [1, 0]]]
)
def test_what_is_no_table_of_finite_costs_is_refused_in_words(costs: object) -> None:
    with pytest.raises(
        BadPredictions, match=r"costs must be finite .* one line per class \(2\) and one column per action"
    ):
        decide([[0.7, 0.3]], costs)


def test_intervals_of_few_surprises_are_marked() -> None:
    rows = Predictions.from_probabilities([[0.9, 0.1]] * 6, [0, 0, 0, 0, 0, 1])
    assert "* unreliable" in str(realised_costs({"a": rows}, 1 - np.eye(2)))


def test_confidences_have_the_classes_wrong_and_correct() -> None:
    given = Confidences([0.9, 0.6, 0.3, 0.8], [True, False, False, True])
    costs = [[1.0], [0.0]]  # a wrong answer costs 1
    assert decide(given, costs, abstain=0.25).tolist() == [0, 1, 1, 0]  # 0.1, 0.4, 0.7 and 0.2 are expected
    found = realised_costs({"model": given}, costs, abstain=0.25, n_resamples=20)
    assert found["model"]["cost"].value == pytest.approx(0.5 / 4)


def test_confidences_need_no_event() -> None:
    given = Confidences([0.9, 0.6, 0.3, 0.8], [True, False, False, True])
    assert net_benefit(given, [0.5], n_resamples=20) == net_benefit(given, [0.5], event=top, n_resamples=20)


def test_policies_of_the_same_text_are_refused() -> None:
    rows = Predictions.from_probabilities([[0.2, 0.8], [0.4, 0.6]] * 9, [1, 0] * 9)
    other: dict[Any, Any] = {1: rows, "1": rows}
    with pytest.raises(BadPredictions, match="names of policies must differ as text"):
        realised_costs(other, [[0, 1], [1, 0]])


def test_thresholds_that_are_nearly_equal_have_lines_of_their_own() -> None:
    rows = Predictions.from_probabilities([[0.2, 0.8], [0.4, 0.6]] * 9, [1, 0] * 9)
    found = net_benefit(rows, [0.1, 0.1 + 1e-9, 0.99999999999], n_resamples=20)
    assert list(found.lines) == ["0.1", "0.100000001", "0.99999999999"]


def test_the_classes_of_the_lines_of_costs_are_named_in_their_order() -> None:
    p, labels = [[0.2, 0.8], [0.4, 0.6]] * 9, [1, 0] * 9
    named = Predictions.from_probabilities(p, labels, class_names=["ill", "healthy"])
    found = realised_costs({"model": named}, [[0, 1], [10, 0]], n_resamples=20)
    assert "lines of costs: ill, healthy" in str(found).splitlines()
    assert found.to_dict()["lines of costs"] == ["ill", "healthy"]
    many = Predictions.from_probabilities(np.full((20, 20), 0.05), np.arange(20))
    assert "10, 11 and 8 more" in str(realised_costs({"model": many}, 1 - np.eye(20), n_resamples=20))
