"""Adam on minibatches: every member as if alone, the same bytes for the same seed, dropout and mixup as they should."""

from dataclasses import field, replace
from typing import Any

import numpy as np
import pytest
import torch
from experiments.paper.studies.regularised import RegularisedGLayers, RegularisedObjective

from glayers.fitting.adam import descend
from glayers.fitting.objective import Objective
from glayers.maps import Chain, Dense, Relu, Step
from tests.fitting.problems import CLASSES, ROWS, dense_chain, make_objective, optimum, penalised
from tests.strategies import Numbers


class Spy(Step):
    """Remembers what passes."""

    seen: list[torch.Tensor] = field(default_factory=list)

    def __call__(self, logits: Any) -> Any:
        self.seen.append(logits.detach().clone())
        return logits


def never_stop(epoch: int, parameters: Numbers, train: Numbers, held_out: Numbers) -> Numbers:
    return np.ones(len(train), dtype=bool)


def run(objective: Objective, rates: list[float], epochs: int, batch_size: int = 16, **settings: Any) -> torch.Tensor:
    chosen: dict[str, Any] = {"seed": 0, "on_epoch": never_stop} | settings
    return descend(objective, np.array(rates), epochs=epochs, batch_size=batch_size, **chosen)


def regularised(objective: Objective, **settings: Any) -> Objective:
    return RegularisedObjective(**vars(objective), regularisation=RegularisedGLayers(**settings))


def unmeasured(objective: Objective) -> Objective:
    """Nothing is held out, so that nothing is measured between epochs."""
    return replace(objective, held_out=torch.zeros_like(objective.held_out))


@pytest.mark.parametrize("averaging", [0.0, 0.9])
def test_members_do_not_mix(averaging: float) -> None:
    objective = penalised(make_objective(members=3), [0.0, 0.1, 0.5], toward_start=False)
    rates = [1e-2, 3e-3, 3e-2]
    together = run(objective, rates, 4, averaging=averaging)
    for member in range(3):
        alone = run(objective.of(torch.tensor([member])), [rates[member]], 4, averaging=averaging)
        assert alone[0].numpy() == pytest.approx(together[member].numpy(), abs=1e-10)


def test_a_member_that_stops_stays_where_it_was_and_the_others_continue() -> None:
    objective = make_objective(members=2)

    def stop_the_first(epoch: int, *_: Numbers) -> Numbers:
        return np.array([epoch < 2, True])

    found = run(objective, [1e-2, 1e-2], 5, on_epoch=stop_the_first)
    whole = run(objective, [1e-2, 1e-2], 5)
    short = run(objective, [1e-2, 1e-2], 2)
    assert found[0].numpy() == pytest.approx(short[0].numpy(), abs=1e-12)
    assert found[1].numpy() == pytest.approx(whole[1].numpy(), abs=1e-12)


@pytest.mark.parametrize("extra", [{}, {"mixup": 0.4}, {"dropout": 0.3}])
def test_the_same_seed_gives_the_same_bytes_and_another_does_not(extra: dict[str, float]) -> None:
    objective = regularised(make_objective(), **extra)
    one, same, other = (run(objective, [1e-2], 3, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_the_loss_falls() -> None:
    objective = make_objective(members=2)
    before = objective.mean_losses(objective.start(), objective.train)
    after = objective.mean_losses(run(objective, [1e-2, 1e-2], 20), objective.train)
    assert (after < before - 0.01).all()


def test_a_rate_of_zero_stays_at_the_start() -> None:
    objective = make_objective()
    assert torch.equal(run(objective, [0.0], 2), objective.start())


def test_the_first_step_of_adam_by_hand() -> None:
    # One batch, one step: mean and square are both corrected to g and g^2, so each parameter moves by rate * sign(g).
    objective = make_objective()
    _, gradient = objective(objective.start())
    moved = run(objective, [0.01], 1, ROWS, averaging=0.0) - objective.start()
    steep = gradient.abs() > 1e-4
    assert steep.float().mean() > 0.5
    assert moved[steep].numpy() == pytest.approx((-0.01 * gradient.sign())[steep].numpy(), rel=1e-3)


def test_small_batches_weigh_the_penalty_as_the_whole_set_does() -> None:
    objective = penalised(make_objective(dense_chain(CLASSES, CLASSES)), [0.1], toward_start=False)
    found = run(objective, [0.01], 150, 8)
    # Without its scale, a batch of 8 of 40 rows would count five times too little, and the weights would shrink.
    assert float(objective(found)[0]) == pytest.approx(float(objective(optimum(objective))[0]), rel=1e-3)


def test_batches_together_estimate_the_whole_gradient() -> None:
    # With rate 0 nothing moves; rows seen in an epoch are all rows, each once.
    spy = Spy()
    objective = make_objective(Chain((spy, Dense(np.eye(CLASSES), np.zeros(CLASSES)))))
    run(unmeasured(objective), [0.0], 1, training_loss=False)
    assert [len(batch) for batch in spy.seen] == [13, 13, 14]  # 40 rows in batches of at most 16, nearly equal
    rows = torch.cat(spy.seen).numpy()
    assert not np.array_equal(rows, objective.logits.numpy())
    assert np.array_equal(np.sort(rows, axis=0), np.sort(objective.logits.numpy(), axis=0))


def test_dropout_masks_keep_the_expectation_and_are_drawn_anew() -> None:
    spy, rate, width = Spy(), 0.25, 50
    # All hidden units are 1, so the spy behind the hidden layer sees the masks themselves.
    ones = Dense(np.zeros((CLASSES, width)), np.ones(width))
    chain = Chain((ones, Relu(), spy, Dense(np.zeros((width, CLASSES)), np.zeros(CLASSES))))
    run(regularised(make_objective(chain), dropout=rate), [0.0], 5, ROWS)
    masks = [mask for mask in spy.seen if mask.min() == 0]  # measuring in between drops nothing
    masks = [mask.reshape(ROWS, width) for mask in masks]
    assert len(masks) == 5
    assert all(np.unique(mask).tolist() == pytest.approx([0.0, 1 / (1 - rate)]) for mask in masks)
    assert not torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0][0], masks[0][1])
    # 5 * 40 * 50 = 10,000 masks of variance rate / (1 - rate) = 1/3: a standard error of 0.0058.
    assert float(torch.stack(masks).mean()) == pytest.approx(1.0, abs=4 * 0.0058)


def test_mixup_mixes_pairs_of_rows_by_one_share_a_batch() -> None:
    spy = Spy()
    objective = make_objective(Chain((spy, Dense(np.eye(CLASSES), np.zeros(CLASSES)))))
    numbered = torch.arange(ROWS, dtype=torch.float64)[:, None].repeat(1, CLASSES)
    numbered = (numbered % 2).contiguous()  # rows are all 0 or all 1: their mixtures show the share
    objective = replace(objective, logits=numbered)
    run(regularised(objective, mixup=1.0), [0.0], 3, ROWS)
    batches = [batch for batch in spy.seen if len(np.unique(batch)) > 2]
    assert len(batches) == 3
    shares = []
    for batch in batches:
        low, one_way, other_way, high = np.unique(batch).tolist()
        assert (low, high) == (0.0, 1.0)
        assert one_way + other_way == pytest.approx(1.0)
        shares.append(one_way)
    assert len(set(shares)) == 3


def test_a_progress_bar_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    objective = make_objective()
    quiet, shown = (run(objective, [1e-2], 2, progress=progress) for progress in (False, True))
    assert torch.equal(quiet, shown)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("mixup", [0.0, 0.5])
def test_labels_that_are_held_out_teach_nothing(mixup: float) -> None:
    def train(flipped: bool) -> torch.Tensor:
        objective = make_objective(Chain((Dense(np.eye(CLASSES), np.zeros(CLASSES)),)))
        held = torch.zeros_like(objective.train, dtype=torch.bool)
        held[:, ::2] = True
        weights = torch.where(held, 0.0, objective.train)
        labels = torch.where(held[0] & flipped, (objective.labels + 1) % CLASSES, objective.labels)
        fold = replace(objective, labels=labels, train=weights / weights.sum(dim=1, keepdim=True))
        return run(regularised(unmeasured(fold), mixup=mixup), [0.01], 2, training_loss=False)

    assert torch.equal(train(flipped=False), train(flipped=True))
