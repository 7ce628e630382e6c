from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from glayers import BadPredictions
from glayers.metrics import rank_methods
from tests.strategies import Numbers


def scores_of(table: Numbers) -> dict[str, dict[str, float]]:
    return {f"set {i}": {f"m{j}": float(value) for j, value in enumerate(row)} for i, row in enumerate(table)}


def test_ranks_and_wins_as_counted_by_hand() -> None:
    found = rank_methods(
        {
            "a": {"none": 0.9, "temperature": 0.5, "g-layers": 0.4},
            "b": {"none": 0.8, "temperature": 0.6, "g-layers": 0.6},
            "c": {"none": 0.2, "temperature": 0.3, "g-layers": 0.1},
            "d": {"none": 0.7, "temperature": 0.5, "g-layers": 0.6},
        }
    )
    # Ranks of none: 3, 3, 2, 3; of temperature: 2, 1.5, 3, 1; of g-layers: 1, 1.5, 1, 2.
    assert found.average_ranks == {"g-layers": 1.375, "temperature": 1.875, "none": 2.75}
    assert list(found.average_ranks) == ["g-layers", "temperature", "none"]
    assert found.win_rates["g-layers"] == {"temperature": 0.625, "none": 1.0}  # 2 wins, a tie, a loss
    assert found.win_rates["none"] == {"g-layers": 0.0, "temperature": 0.25}


@pytest.mark.parametrize(
    ("methods", "datasets", "level", "expected"),
    [
        # Demsar's table 5: q is 1.960, 2.343, 2.569 and 3.164 at 5 percent, and his example has 4 methods on 14 sets.
        (2, 10, 0.95, 1.960 * np.sqrt(2 * 3 / 60)),
        (3, 10, 0.95, 2.343 * np.sqrt(3 * 4 / 60)),
        (4, 14, 0.95, 1.25),
        (10, 30, 0.95, 3.164 * np.sqrt(10 * 11 / 180)),
        (4, 14, 0.90, 1.12),
    ],
)
def test_the_critical_difference_is_demsars(methods: int, datasets: int, level: float, expected: float) -> None:
    table = np.random.default_rng(0).normal(size=(datasets, methods))
    assert rank_methods(scores_of(table), level=level).critical_difference == pytest.approx(expected, abs=5e-3)


@given(seed=st.integers(0, 10_000), ties=st.booleans())
@settings(max_examples=40, deadline=None)
def test_friedmans_test_agrees_with_scipy(seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    table = rng.integers(0, 3, (7, 4)).astype(float) if ties else rng.normal(size=(7, 4)) + np.arange(4) * 0.5
    found = rank_methods(scores_of(table))
    assert found.p_value == pytest.approx(scipy.stats.friedmanchisquare(*table.T).pvalue)
    expected = scipy.stats.rankdata(table, axis=1).mean(axis=0)
    assert found.average_ranks == pytest.approx({f"m{j}": rank for j, rank in enumerate(expected)})


def test_higher_is_better_turns_ranks_round() -> None:
    table = np.random.default_rng(1).normal(size=(6, 4))
    up, down = rank_methods(scores_of(table), lower_is_better=False), rank_methods(scores_of(-table))
    assert up == down


def test_order_and_scale_of_a_data_set_change_nothing() -> None:
    table = np.random.default_rng(2).normal(size=(6, 4))
    scaled = np.exp(table * np.arange(1, 7)[:, None])[::-1]
    assert rank_methods(scores_of(table)) == rank_methods(scores_of(scaled))


def test_groups_hold_methods_without_significant_differences() -> None:
    # Always in the same order: ranks 1 to 4. On 14 sets the critical difference is 1.25, on 6 it is 1.91, on 4 2.35.
    always = np.tile([1.0, 2.0, 3.0, 4.0], (14, 1))
    pairs = (("m0", "m1"), ("m1", "m2"), ("m2", "m3"))
    assert rank_methods(scores_of(always)).groups == pairs
    assert rank_methods(scores_of(always[:6])).groups == pairs
    assert rank_methods(scores_of(always[:4])).groups == (("m0", "m1", "m2"), ("m1", "m2", "m3"))
    assert rank_methods(scores_of(np.tile([1.0, 2.0], (9, 1)))).groups == (("m0",), ("m1",))  # CD 0.65
    assert rank_methods(scores_of(np.ones((5, 3)))).groups == (("m0", "m1", "m2"),)


def test_the_statement_names_the_best_and_those_alike() -> None:
    said = str(rank_methods(scores_of(np.tile([1.0, 2.0, 3.0, 4.0], (14, 1)))))
    assert said.startswith(
        "over 14 data sets m0 ranks best (1.00 on average), significantly ahead of m2 and m3, "
        "without a significant difference to m1;"
    )
    # Ranks never change: chi-squared is 14 * 3 = 42 with 3 degrees of freedom.
    assert "critical difference 1.25 at level 0.05, Friedman p = 4e-09" in said
    alike = rank_methods(scores_of(np.ones((5, 3))))
    assert alike.p_value == 1.0
    assert "significantly ahead of no method, without a significant difference to m1 and m2" in alike.statement()
    apart = rank_methods(scores_of(np.tile([1.0, 2.0], (9, 1)))).statement()
    assert "ahead of m1; critical" in apart


def test_a_table_has_a_line_for_each_method() -> None:
    lines = rank_methods(scores_of(np.tile([2.0, 1.0], (3, 1)))).to_markdown().splitlines()
    assert lines[2:] == ["| m1 | 1.00 |  | 100 % |", "| m0 | 2.00 | 0 % |  |"]


def test_methods_that_are_alike_are_rejected_at_the_level() -> None:
    rng = np.random.default_rng(3)
    p_values = np.array([rank_methods(scores_of(rng.normal(size=(20, 3)))).p_value for _ in range(150)])
    assert 1 <= (p_values < 0.05).sum() <= 17  # 7.5 expected, standard deviation 2.7


def test_gaps_in_the_table_are_named() -> None:
    full: dict[str, dict[str, Any]] = {"a": {"x": 1.0, "y": 2.0}, "b": {"x": 1.0, "y": 2.0}}
    with pytest.raises(BadPredictions, match=r"'b' and the first differ in \['y', 'z'\]"):
        rank_methods(full | {"b": {"x": 1.0, "z": 2.0}})
    with pytest.raises(BadPredictions, match="'b' has NaN for 'y'"):
        rank_methods(full | {"b": {"x": 1.0, "y": np.nan}})
    with pytest.raises(BadPredictions, match=r"at least 2 data sets; got \['a'\]"):
        rank_methods({"a": full["a"]})
    with pytest.raises(BadPredictions, match=r"at least 2 methods; got \['x'\]"):
        rank_methods({"a": {"x": 1.0}, "b": {"x": 2.0}})
    mixed: Any = {"x": 1.0, 1: 2.0}
    with pytest.raises(BadPredictions, match=r"'b' and the first differ in \[1, 'y'\]"):
        rank_methods(full | {"b": mixed})
    for word, problem in (("good", "scores must be real numbers"), (None, "scores must be real numbers")):
        with pytest.raises(BadPredictions, match=problem):
            rank_methods(full | {"b": {"x": 1.0, "y": word}})
    with pytest.raises(BadPredictions, match="scores holds a number too large"):
        rank_methods(full | {"b": {"x": 10**400, "y": 1}})
    pairs: Any = {"b": {"x": [1.0, 2.0], "y": [1.0, 2.0]}, "c": {"x": [1.0, 2.0], "y": [1.0, 2.0]}}
    with pytest.raises(BadPredictions, match=r"one number for each method and data set; got shape \(2, 2, 2\)"):
        rank_methods(pairs)
    for shapeless in (None, [1.0, 2.0], {"a": [1.0, 2.0], "b": [1.0, 2.0]}):
        wrong: Any = shapeless
        with pytest.raises(BadPredictions, match="scores must be a dict of dicts"):
            rank_methods(wrong)
    with pytest.raises(BadPredictions, match="level must be a number between 0 and 1"):
        rank_methods(full, level=5)


def test_a_bar_in_a_name_does_not_end_its_cell() -> None:
    table = rank_methods({name: {"a|b": 1.0, "c\nd": 2.0} for name in "xyz"}).to_markdown().splitlines()
    assert table[0] == r"| method | average rank | beats a\|b | beats c d |"
    assert table[2].startswith(r"| a\|b | ")
