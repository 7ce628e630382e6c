"""Actions of least expected cost, and what they cost."""

import numpy as np
import pytest

from glayers import BadPredictions, Predictions
from glayers.decisions.costs import decide, realised_costs

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
    found = decide(p, ALARM)
    # expected costs of no alarm: 0.5, 1, 5; of an alarm: 0.95, 0.9, 0.5
    assert found.actions.tolist() == [0, 1, 1]
    assert found.expected_costs == pytest.approx([0.5, 0.9, 0.5])


def test_abstaining_is_the_last_action() -> None:
    found = decide([[0.95, 0.05], [0.5, 0.5]], [[0, 1], [1, 0]], abstain=0.2)
    assert found.actions.tolist() == [0, 2]


def test_true_probabilities_cost_least_and_expect_what_they_cost() -> None:
    p, labels = screening(20_000)
    overconfident = 1 / (1 + ((1 - p) / p) ** 3)
    found = realised_costs({"true": of_class_1(p, labels), "overconfident": of_class_1(overconfident, labels)}, ALARM)
    assert found.savings["overconfident"].low > 0
    assert found.savings["best constant action"].low > 0
    cost = found.by_policy["true"]
    assert cost.low < found.expected < cost.high
    assert cost.value == pytest.approx(np.where(10 * p < 1 - p, 10 * labels, 1 - labels).mean())
    assert "true saves" in str(found)


def test_the_best_constant_action_is_found() -> None:
    p, labels = screening(2000)
    found = realised_costs({"model": of_class_1(p, labels)}, ALARM)
    never, always = 10 * labels.mean(), 1 - labels.mean()
    assert found.by_policy["best constant action"].value == pytest.approx(min(never, always))
    assert found.constant_action == int(always < never)


@pytest.mark.parametrize("costs", [[[0, 1]], [[0, np.nan], [1, 0]], [0, 1], "much"])
def test_costs_without_sense_are_refused(costs: object) -> None:
    with pytest.raises(BadPredictions, match="costs"):
        decide([[0.7, 0.3]], costs)


def test_other_rows_cannot_be_compared() -> None:
    p, labels = screening(100)
    with pytest.raises(BadPredictions, match="same labels"):
        realised_costs({"a": of_class_1(p, labels), "b": of_class_1(p, 1 - labels)}, ALARM)
