"""The objective: its gradient is the slope of its value, and its members know nothing of each other."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from glayers.fitting import objective as objective_module
from glayers.fitting.objective import Objective
from glayers.maps import Centre, Chain, Relu, dense_layers
from tests.fitting.problems import CLASSES, ROWS, dense_chain, make_objective, optimum, penalised


def somewhere(objective: Objective) -> torch.Tensor:
    start = objective.start()
    return start + 0.2 * torch.randn(start.shape, generator=torch.Generator().manual_seed(3), dtype=start.dtype)


@pytest.mark.parametrize("toward_start", [True, False])
@pytest.mark.parametrize("loss", ["log", "brier"])
def test_the_gradient_is_the_slope(loss: str, toward_start: bool) -> None:
    objective = penalised(make_objective(members=2, loss=loss), [0.3, 0.0], toward_start)
    point, width = somewhere(objective), 1e-6
    _, gradient = objective(point)
    for place in range(0, point.shape[1], 5):
        move = torch.zeros_like(point)
        move[:, place] = width
        slope = (objective(point + move)[0] - objective(point - move)[0]) / (2 * width)
        assert gradient[:, place].numpy() == pytest.approx(slope.numpy(), abs=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_training_uses_the_values_and_the_gradient_of_relu_also_at_zero(dtype: torch.dtype) -> None:
    at = torch.tensor([-torch.inf, -2.0, -1e-30, -0.0, 0.0, 1e-30, 3.0, torch.inf], dtype=dtype, requires_grad=True)
    fast, plain = objective_module._FastRelu()(at), Relu()(at)
    assert torch.equal(fast, plain)
    assert torch.equal(*(torch.autograd.grad(each.sum(), at)[0] for each in (fast, plain)))
    nothing = torch.tensor([torch.nan])
    assert objective_module._FastRelu()(nothing).isnan().all(), "a fit that diverged must not look finite"


def test_the_value_is_the_weighted_mean_loss_and_half_the_squared_distance() -> None:
    objective = penalised(make_objective(members=1), [0.7], toward_start=True)
    point = somewhere(objective)
    value, _ = objective(point)
    train, held_out = (float(objective.mean_losses(point, w)[0]) for w in (objective.train, objective.held_out))
    outputs = objective.chain_at(point).member(0)(objective.logits)
    losses = torch.nn.functional.cross_entropy(outputs, objective.labels, reduction="none")
    distance = sum(
        float(((now - torch.as_tensor(objective.chain.parameters()[name])) ** 2).sum())
        for name, now in objective.chain_at(point).parameters().items()
        if name.endswith("weight")
    )
    assert float(train) == pytest.approx(float((losses * objective.train[0]).sum()))
    assert float(held_out) == pytest.approx(float((losses * objective.held_out[0]).sum()))
    assert float(value) == pytest.approx(float(train) + 0.35 * distance)


def test_a_transparent_start_has_the_loss_of_the_logits_themselves() -> None:
    objective = make_objective(members=3)
    losses = torch.nn.functional.cross_entropy(objective.logits, objective.labels, reduction="none")
    assert objective(objective.start())[0].numpy() == pytest.approx((objective.train @ losses).numpy())


def test_members_evaluated_together_are_members_evaluated_alone() -> None:
    objective = penalised(make_objective(members=3), [0.0, 0.1, 1.0], toward_start=False)
    point = somewhere(objective)
    together = objective(point)
    for member in range(3):
        alone = objective.of(torch.tensor([member]))(point[[member]])
        for one, many in zip(alone, together, strict=True):
            assert one[0].numpy() == pytest.approx(many[member].numpy(), abs=1e-12)


def test_blocks_of_rows_add_up_to_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    objective = make_objective(members=2)
    point = somewhere(objective)
    whole, held_out = objective(point), objective.mean_losses(point, objective.held_out)
    monkeypatch.setattr(objective_module, "_BLOCK_ENTRIES", 200)
    assert len(list(objective.blocks(ROWS))) > 3
    for blocked, at_once in zip(objective(point), whole, strict=True):
        assert blocked.numpy() == pytest.approx(at_once.numpy(), abs=1e-12)
    assert objective.mean_losses(point, objective.held_out) == pytest.approx(held_out, abs=1e-12)


def test_the_ways_to_a_loss_agree() -> None:
    objective = make_objective(members=3)
    point = somewhere(objective)
    value, _ = objective(point)
    assert objective.mean_losses(point, objective.train) == pytest.approx(value.numpy(), abs=1e-12)
    nothing = torch.zeros_like(objective.train)
    assert objective.mean_losses(point, nothing).tolist() == [0.0, 0.0, 0.0]


def test_fixed_parameters_are_used_and_not_learned() -> None:
    layers = dense_layers(CLASSES, 1)
    chain = Chain((Centre(np.zeros(())), *layers.steps))
    shares = torch.tensor([0.0, 1.0], dtype=torch.float64)
    objective = replace(make_objective(chain, members=2), fixed={"0.share": shares})
    assert objective.start().shape == (2, layers.n_parameters)
    outputs = objective.chain_at(objective.start())(objective.logits)
    assert outputs.shape == (2, ROWS, CLASSES)
    assert torch.equal(outputs[0], objective.logits)
    assert outputs[1].mean(dim=1).abs().max() < 1e-12


@pytest.mark.parametrize("strength", [1e-3, 0.1])
def test_its_minimum_is_that_of_logistic_regression(strength: float) -> None:
    objective = penalised(make_objective(dense_chain(CLASSES, CLASSES)), [strength], toward_start=False)
    found = optimum(objective)
    # scikit-learn minimises |W|^2 / 2 + C * (sum of weighted losses): ours divided by the strength.
    peer = LogisticRegression(C=1 / strength, tol=1e-10, max_iter=5000)
    peer.fit(objective.logits.numpy(), objective.labels.numpy(), sample_weight=objective.train[0].numpy())
    flat = torch.as_tensor(np.concatenate([peer.coef_.T.ravel(), peer.intercept_]))[None]
    assert float(objective(found)[0]) == pytest.approx(float(objective(flat)[0]), rel=1e-6)
    # A constant added to every bias changes nothing, so probabilities are compared.
    ours = torch.softmax(objective.chain_at(found).member(0)(objective.logits), dim=1)
    assert ours.numpy() == pytest.approx(peer.predict_proba(objective.logits.numpy()), abs=1e-3)


@pytest.mark.parametrize("toward_start", [True, False])
def test_a_strong_penalty_holds_weights_at_their_anchor(toward_start: bool) -> None:
    objective = penalised(make_objective(), [1e3], toward_start)
    for name, value in objective.chain_at(optimum(objective)).parameters().items():
        if name.endswith("weight"):
            anchor = torch.as_tensor(objective.chain.parameters()[name]) if toward_start else torch.zeros(())
            # At the optimum strength * distance = slope of the loss, and no slope here is near 10.
            assert (value[0] - anchor).abs().max() < 1e-2


def test_a_stronger_decay_toward_zero_shrinks_weights_more() -> None:
    objective = penalised(make_objective(members=3), [0.0, 0.1, 1.0], toward_start=False)
    objective = replace(objective, train=objective.train[:1].expand(3, -1).contiguous())
    found = objective.chain_at(optimum(objective)).parameters()
    sizes = [sum(float((v[i] ** 2).sum()) for name, v in found.items() if name.endswith("weight")) for i in range(3)]
    assert sizes[0] > sizes[1] > sizes[2]
