"""Selection: the setting and epoch of least held-out loss win, and settings that fall behind are dropped."""

import numpy as np
import pytest

from glayers.fitting.adam import EpochSelection
from tests.strategies import Numbers


def seen(epoch: int, losses: list[float]) -> tuple[int, Numbers, Numbers, Numbers]:
    """Members whose only parameter is epoch * 10 + member, so that it tells where it was taken."""
    values = np.array(losses)
    place = np.arange(float(len(losses)))[:, None] + 10 * epoch
    return epoch, place, values, values


def run(selection: EpochSelection, curves: list[list[float]]) -> list[list[bool]]:
    """Show one curve per setting, one fold each; return who continued after each epoch."""
    return [selection(*seen(epoch, list(losses))).tolist() for epoch, losses in enumerate(zip(*curves, strict=True))]


def test_it_keeps_the_epoch_of_least_loss_and_its_parameters() -> None:
    selection = EpochSelection(n_settings=2, fold_fractions=np.ones(1), patience=9)
    run(selection, [[1.0, 0.6, 0.7], [1.0, 0.8, 0.5]])
    assert selection.best.tolist() == [0.6, 0.5]
    assert selection.best_epoch.tolist() == [1, 2]
    assert [kept.tolist() for kept in selection.parameters] == [[[10.0]], [[21.0]]]
    assert int(selection.best.argmin()) == 1


def test_the_loss_of_a_setting_is_the_mean_over_its_folds() -> None:
    selection = EpochSelection(n_settings=2, fold_fractions=np.array([0.5, 0.5]), patience=9)
    # Setting 0 has folds of 0.1 and 0.9, mean 0.5; setting 1 has 0.4 and 0.4.
    goes_on = selection(*seen(0, [0.1, 0.9, 0.4, 0.4]))
    assert selection.best.tolist() == pytest.approx([0.5, 0.4])
    assert int(selection.best.argmin()) == 1
    assert selection.parameters[1].tolist() == [[2.0], [3.0]]
    assert goes_on.tolist() == [True] * 4


def test_the_better_half_continues_and_what_a_dropped_setting_reached_still_counts() -> None:
    selection = EpochSelection(n_settings=2, fold_fractions=np.ones(1), patience=9)
    went_on = run(selection, [[1.0, 0.9, 0.8, 0.7], [1.0, 0.5, 0.49, 0.489]])
    assert went_on[2] == [True, True]
    assert went_on[3] == [False, True]
    assert selection.best.tolist() == [0.7, 0.489]


def test_after_epochs_3_6_and_12_half_of_the_rest_continues() -> None:
    selection = EpochSelection(n_settings=5, fold_fractions=np.ones(1), patience=99)
    curves = [[1.0 - 0.01 * (setting + 1) * i for i in range(13)] for setting in range(5)]
    counts = [sum(row) for row in run(selection, curves)]
    assert counts == [5, 5, 5, 3, 3, 3, 2, 2, 2, 2, 2, 2, 1]
    assert selection.running.tolist() == [False, False, False, False, True]


def test_a_setting_that_stopped_improving_ends_after_its_patience() -> None:
    selection = EpochSelection(n_settings=1, fold_fractions=np.ones(1), patience=2)
    assert run(selection, [[1.0, 0.5, 0.6, 0.7]]) == [[True], [True], [True], [False]]
    assert selection.best_epoch.tolist() == [1]


def test_a_dropped_setting_is_no_longer_recorded() -> None:
    selection = EpochSelection(n_settings=2, fold_fractions=np.ones(1), patience=1)
    run(selection, [[1.0, 1.1, 0.1], [1.0, 0.9, 0.8]])
    assert selection.best.tolist() == [1.0, 0.8]


def test_a_loss_that_is_no_number_never_wins() -> None:
    selection = EpochSelection(n_settings=2, fold_fractions=np.ones(1), patience=9)
    run(selection, [[1.0, float("nan")], [1.1, 1.05]])
    assert selection.best.tolist() == [1.0, 1.05]
    assert int(selection.best.argmin()) == 0


def test_early_stopping_keeps_the_epoch_of_least_training_loss() -> None:
    stopping = EpochSelection(2, np.ones(1), patience=2, by_training_loss=True)
    curves = [[1.0, 0.5, 0.6, 0.7], [1.0, 0.9, 0.8, 0.7]]
    went_on = []
    for epoch, losses in enumerate(zip(*curves, strict=True)):
        _, parameters, train, held_out = seen(epoch, list(losses))
        went_on.append(stopping(epoch, parameters, train, -held_out))
    assert [row.tolist() for row in went_on] == [[True, True], [True, True], [True, True], [False, True]]
    assert stopping.best.tolist() == [0.5, 0.7]
    assert stopping.best_epoch.tolist() == [1, 3]
    assert np.concatenate(stopping.parameters).tolist() == [[10.0], [31.0]]
    assert stopping.held_out.tolist() == pytest.approx([-0.5, -0.7])
    assert len(stopping.trace) == 4


def test_folds_count_by_what_they_hold_out() -> None:
    selection = EpochSelection(n_settings=1, fold_fractions=np.array([0.9, 0.1]), patience=9)
    selection(0, np.zeros((2, 1)), np.zeros(2), np.array([1.0, 2.0]))
    assert selection.best.tolist() == pytest.approx([1.1])  # 0.9 * 1 + 0.1 * 2


def test_all_stop_after_two_epochs_without_any_gain() -> None:
    selection = EpochSelection(n_settings=2, fold_fractions=np.ones(1), patience=9)
    goes_on = run(selection, [[1.0, 1.1, 1.2], [1.0, 1.3, 1.1]])
    assert goes_on == [[True, True], [True, True], [False, False]]
    learning = EpochSelection(n_settings=2, fold_fractions=np.ones(1), patience=9)
    assert run(learning, [[1.0, 1.1, 1.2], [1.0, 0.9, 0.8]])[-1] == [True, True]
