"""L-BFGS: finds the optimum that others find, for many members at once as for each alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from glayers.fitting.lbfgs import minimise
from glayers.fitting.watching import Sight
from tests.fitting.problems import CLASSES, dense_chain, make_objective, penalised


@pytest.mark.parametrize("strength", [1e-3, 0.1])
def test_it_reaches_the_optimum_of_logistic_regression(strength: float) -> None:
    objective = penalised(make_objective(dense_chain(CLASSES, CLASSES)), [strength], toward_start=False)
    n_rows = len(objective.labels)
    shares = objective.train[0]
    found = minimise(objective, objective.start())
    # scikit-learn minimises |W|^2 / 2 + C * (sum of weighted losses), ours divided by the strength.
    peer = LogisticRegression(C=1 / strength, tol=1e-10, max_iter=5000)
    peer.fit(objective.logits.numpy(), objective.labels.numpy(), sample_weight=shares.numpy())
    weight, bias = peer.coef_.T, peer.intercept_
    flat = torch.as_tensor(np.concatenate([weight.ravel(), bias]))[None]
    assert n_rows > CLASSES
    assert bool(found.converged[0])
    assert float(found.objective[0]) == pytest.approx(float(objective(flat).objective[0]), rel=1e-6)
    # Softmax does not mind a constant in every bias; the probabilities are the same.
    ours = torch.softmax(objective.chain_at(found.parameters).member(0)(objective.logits), dim=1)
    assert ours.numpy() == pytest.approx(peer.predict_proba(objective.logits.numpy()), abs=1e-3)


def test_members_do_not_mix() -> None:
    objective = penalised(make_objective(members=4), [0.5, 0.05, 0.2, 1.0], toward_start=True)
    together = minimise(objective, objective.start(), max_iterations=15)
    for member in range(4):
        alone = objective.of(torch.tensor([member]))
        one = minimise(alone, alone.start(), max_iterations=15)
        assert one.parameters[0].numpy() == pytest.approx(together.parameters[member].numpy(), abs=1e-9)
        assert float(one.objective[0]) == pytest.approx(float(together.objective[member]), abs=1e-12)
        assert int(one.iterations[0]) == int(together.iterations[member])


def test_the_objective_never_rises() -> None:
    objective = make_objective(members=3)
    seen: list[torch.Tensor] = []

    def note(sight: Sight) -> torch.Tensor:
        seen.append(sight.train.clone())
        return torch.ones(3, dtype=torch.bool)

    minimise(objective, objective.start(), max_iterations=30, watcher=note)
    assert (torch.stack(seen).diff(dim=0) <= 0).all()
    assert (seen[-1] < seen[0]).all()


def test_a_member_that_is_given_up_stays_where_it_was() -> None:
    chain = dense_chain(CLASSES, CLASSES)
    objective = penalised(make_objective(chain, members=2), [0.1, 0.1], toward_start=True)

    def give_up_the_first(sight: Sight) -> torch.Tensor:
        return torch.tensor([sight.iteration < 2, True])

    found = minimise(objective, objective.start(), watcher=give_up_the_first)
    assert found.iterations.tolist()[0] == 2
    assert found.iterations.tolist()[1] > 2
    assert found.converged.tolist() == [False, True]
    short = minimise(objective.of(torch.tensor([0])), objective.start()[:1], max_iterations=2)
    assert found.parameters[0].numpy() == pytest.approx(short.parameters[0].numpy(), abs=1e-12)


def test_an_optimum_is_left_alone() -> None:
    objective = penalised(make_objective(dense_chain(CLASSES, CLASSES)), [0.1], toward_start=False)
    optimum = minimise(objective, objective.start(), tolerance=1e-14).parameters
    again = minimise(objective, optimum)
    assert again.parameters.numpy() == pytest.approx(optimum.numpy(), abs=1e-6)
    assert bool(again.converged[0])


@pytest.mark.parametrize("toward_start", [True, False])
def test_a_strong_penalty_holds_weights_at_their_anchor(toward_start: bool) -> None:
    objective = penalised(make_objective(), [1e3], toward_start)
    found = objective.unflatten(minimise(objective, objective.start(), max_iterations=40).parameters)
    for name, value in found.items():
        if name.endswith("weight"):
            anchor = torch.as_tensor(objective.chain.parameters()[name]) if toward_start else torch.zeros(())
            # At the optimum strength * distance = slope of the loss, and no slope here is near 10.
            assert (value[0] - anchor).abs().max() < 1e-2


def test_decay_toward_zero_shrinks_weights_the_more_the_stronger() -> None:
    objective = penalised(make_objective(members=3), [0.0, 0.1, 1.0], toward_start=False)
    same_rows = objective.train[:1].expand(3, -1).contiguous()
    objective = replace(objective, train=same_rows)
    found = objective.unflatten(minimise(objective, objective.start()).parameters)
    sizes = sum((value**2).sum(dim=(1, 2)) for name, value in found.items() if name.endswith("weight"))
    assert isinstance(sizes, torch.Tensor)
    assert sizes[0] > sizes[1] > sizes[2]
