"""Selection: the setting and the moment of least held-out loss win, and who falls behind is dropped."""

import numpy as np
import pytest
import torch

from glayers.fitting.selection import EarlyStopping, HeldOutSelection
from glayers.fitting.watching import Sight, everyone_goes_on


def sight(iteration: int, losses: list[float]) -> Sight:
    """Members whose only parameter is iteration * 10 + member, so that it tells where it was taken."""
    values = torch.tensor(losses, dtype=torch.float64)
    place = torch.arange(len(losses), dtype=torch.float64)[:, None] + 10 * iteration
    return Sight(iteration, place, train=values, held_out=values)


def watch(selection: HeldOutSelection, curves: list[list[float]]) -> list[list[bool]]:
    """Show one curve a setting, one fold each; return who went on after each iteration."""
    return [
        selection(sight(iteration, list(losses))).tolist() for iteration, losses in enumerate(zip(*curves, strict=True))
    ]


def test_it_keeps_the_iteration_of_least_loss_and_the_parameters_then() -> None:
    selection = HeldOutSelection(n_settings=2, fold_shares=np.ones(1), patience=9)
    watch(selection, [[1.0, 0.6, 0.7], [1.0, 0.8, 0.5]])
    assert selection.best.tolist() == [0.6, 0.5]
    assert selection.best_iteration.tolist() == [1, 2]
    assert [kept.tolist() for kept in selection.parameters] == [[[10.0]], [[21.0]]]
    assert selection.winner == 1


def test_the_loss_of_a_setting_is_the_mean_over_its_folds() -> None:
    selection = HeldOutSelection(n_settings=2, fold_shares=np.array([0.5, 0.5]), patience=9)
    # Setting 0 has folds of 0.1 and 0.9, mean 0.5; setting 1 has 0.4 and 0.4.
    goes_on = selection(sight(0, [0.1, 0.9, 0.4, 0.4]))
    assert selection.best.tolist() == pytest.approx([0.5, 0.4])
    assert selection.winner == 1
    assert selection.parameters[1].tolist() == [[2.0], [3.0]]
    assert goes_on.tolist() == [True] * 4


def test_half_is_dropped_by_promise_not_by_the_latest_loss() -> None:
    selection = HeldOutSelection(n_settings=2, fold_shares=np.ones(1), patience=9)
    quick = [1.0, 0.50, 0.49, 0.489]  # ahead, but done
    steady = [1.0, 0.90, 0.80, 0.700]  # behind, and still gaining as much as before
    went_on = watch(selection, [quick, steady])
    assert went_on[2] == [True, True]
    assert went_on[3] == [False, True]
    # What a dropped setting reached still counts.
    assert selection.winner == 0


def test_promise_by_hand() -> None:
    selection = HeldOutSelection(n_settings=1, fold_shares=np.ones(1), patience=9)
    watch(selection, [[1.0, 0.6, 0.4]])
    # Gains of 0.4 and 0.2 halve each time: what is left is 0.1 + 0.05 + ... = 0.2.
    assert selection.promise().tolist() == pytest.approx([0.2])


def test_at_iteration_3_6_and_12_half_of_the_rest_goes_on() -> None:
    selection = HeldOutSelection(n_settings=5, fold_shares=np.ones(1), patience=99)
    curves = [[1.0 - 0.01 * (setting + 1) * i for i in range(13)] for setting in range(5)]
    counts = [sum(row) for row in watch(selection, curves)]
    assert counts == [5, 5, 5, 3, 3, 3, 2, 2, 2, 2, 2, 2, 1]
    assert selection.going_on.tolist() == [False, False, False, False, True]


def test_a_setting_that_stopped_improving_ends_after_its_patience() -> None:
    selection = HeldOutSelection(n_settings=1, fold_shares=np.ones(1), patience=2)
    assert watch(selection, [[1.0, 0.5, 0.6, 0.7]]) == [[True], [True], [True], [False]]
    assert selection.best_iteration.tolist() == [1]


def test_a_dropped_setting_takes_no_more_notes() -> None:
    selection = HeldOutSelection(n_settings=2, fold_shares=np.ones(1), patience=1)
    watch(selection, [[1.0, 1.1, 0.1], [1.0, 0.9, 0.8]])
    assert selection.best.tolist() == [1.0, 0.8]


def test_a_loss_that_is_no_number_never_wins() -> None:
    selection = HeldOutSelection(n_settings=2, fold_shares=np.ones(1), patience=9)
    watch(selection, [[1.0, float("nan")], [1.1, 1.05]])
    assert selection.best.tolist() == [1.0, 1.05]
    assert selection.winner == 0


def test_early_stopping_keeps_the_iteration_of_least_training_loss() -> None:
    stopping = EarlyStopping(n_members=2, patience=2)
    curves = [[1.0, 0.5, 0.6, 0.7], [1.0, 0.9, 0.8, 0.7]]
    went_on = []
    for iteration, losses in enumerate(zip(*curves, strict=True)):
        seen = sight(iteration, list(losses))
        went_on.append(stopping(seen._replace(held_out=-seen.held_out)))
    assert [row.tolist() for row in went_on] == [[True, True], [True, True], [True, True], [False, True]]
    assert stopping.best.tolist() == [0.5, 0.7]
    assert stopping.best_iteration.tolist() == [1, 3]
    assert stopping.parameters.tolist() == [[10.0], [31.0]]
    assert stopping.held_out.tolist() == pytest.approx([-0.5, -0.7])
    assert len(stopping.history) == 4


def test_nobody_watching_lets_everyone_go_on() -> None:
    assert everyone_goes_on(sight(3, [1.0, 2.0])).tolist() == [True, True]


def test_folds_count_by_what_they_hold_out() -> None:
    selection = HeldOutSelection(n_settings=1, fold_shares=np.array([0.9, 0.1]), patience=9)
    selection(Sight(0, torch.zeros(2, 1), torch.zeros(2), torch.tensor([1.0, 2.0])))
    assert selection.best.tolist() == pytest.approx([1.1])  # 0.9 * 1 + 0.1 * 2
