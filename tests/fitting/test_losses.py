"""Row losses against NumPy written by hand."""

import numpy as np
import pytest

from glayers import GlayersError
from glayers.activations import softmax
from glayers.fitting.objective import row_loss
from tests.lazy import torch
from tests.strategies import Numbers


def some_rows() -> tuple[Numbers, Numbers]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(9, 4)) * 3, rng.integers(0, 4, 9)


def by_hand(name: str, z: Numbers, labels: Numbers) -> Numbers:
    p = softmax(z)
    each = -np.log(p) if name == "log" else ((p[:, None, :] - np.eye(4)[None]) ** 2).sum(axis=2)
    return each[np.arange(len(labels)), labels]


@pytest.mark.parametrize("name", ["log", "brier"])
def test_losses_are_those_written_by_hand(name: str) -> None:
    z, labels = some_rows()
    got = row_loss(name)(torch.as_tensor(z), torch.as_tensor(labels)).numpy()
    assert got == pytest.approx(by_hand(name, z, labels), abs=1e-12)


@pytest.mark.parametrize("name", ["log", "brier"])
def test_a_members_axis_is_the_members_one_by_one(name: str) -> None:
    z, labels = some_rows()
    loss = row_loss(name)
    together = loss(torch.as_tensor(np.stack([z, -z])), torch.as_tensor(labels))
    assert torch.equal(together[0], loss(torch.as_tensor(z), torch.as_tensor(labels)))
    assert torch.equal(together[1], loss(torch.as_tensor(-z), torch.as_tensor(labels)))


def test_log_loss_and_brier_of_one_row_by_hand() -> None:
    # p = (1/4, 3/4), label 1: -log 3/4; (1/4)^2 + (1/4)^2 = 1/8.
    z, labels = torch.tensor([[0.0, np.log(3.0)]], dtype=torch.float64), torch.tensor([1])
    assert float(row_loss("log")(z, labels)) == pytest.approx(-np.log(0.75))
    assert float(row_loss("brier")(z, labels)) == pytest.approx(0.125)


def test_both_losses_are_least_at_the_truth() -> None:
    truth = np.array([0.2, 0.5, 0.3])
    for name in ("log", "brier"):
        loss = row_loss(name)

        def expected(p: Numbers) -> float:
            rows = torch.as_tensor(np.log(np.tile(p, (3, 1))))
            return float(truth @ loss(rows, torch.arange(3)).numpy())  # noqa: B023 - used at once

        least = expected(truth)
        for move in ([0.01, -0.01, 0.0], [0.0, 0.02, -0.02], [-0.1, 0.05, 0.05]):
            assert expected(truth + np.array(move)) > least


def test_unknown_losses_are_refused() -> None:
    with pytest.raises(GlayersError, match=r"loss must be one of \['brier', 'log'\]; got 'hinge'"):
        row_loss("hinge")
