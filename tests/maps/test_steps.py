"""Steps and chains: NumPy and torch agree, a members axis broadcasts, and parameters come and go by name."""

from collections.abc import Callable

import numpy as np
import pytest

from glayers.activations import softmax
from glayers.maps import (
    Centre,
    Chain,
    Dense,
    Diagonal,
    LogSoftmax,
    Reference,
    Relu,
    Scale,
    Step,
    dense_layers,
)
from tests.lazy import torch
from tests.strategies import Numbers, stack_of_two

MEMBERS, ROWS, CLASSES = 3, 7, 4


def random_step(name: str, members: tuple[int, ...]) -> Step:
    """A step of that kind whose parameters have a members axis, or none."""
    rng = np.random.default_rng(1)
    made: dict[str, Callable[[], Step]] = {
        "scale": lambda: Scale(rng.uniform(0.5, 2, members)),
        "diagonal": lambda: Diagonal(rng.normal(size=(*members, CLASSES)), rng.normal(size=(*members, CLASSES))),
        "dense": lambda: Dense(rng.normal(size=(*members, CLASSES, 6)), rng.normal(size=(*members, 6))),
        "relu": Relu,
        "reference": Reference,
        "log_softmax": LogSoftmax,
        "centre": lambda: Centre(rng.uniform(size=members)),
    }
    return made[name]()


WITH_PARAMETERS = ["scale", "diagonal", "dense", "centre"]
every_step = pytest.mark.parametrize("name", [*WITH_PARAMETERS, "relu", "reference", "log_softmax"])


def some_logits(seed: int = 0, columns: int = CLASSES) -> Numbers:
    return np.random.default_rng(seed).normal(size=(ROWS, columns)) * 3


def in_torch(chain: Chain, logits: Numbers) -> Numbers:
    return chain.map_parameters(torch.as_tensor)(torch.as_tensor(logits)).numpy()


@every_step
@pytest.mark.parametrize("members", [(), (MEMBERS,)])
def test_numpy_and_torch_agree(name: str, members: tuple[int, ...]) -> None:
    chain = Chain((random_step(name, members),))
    z = some_logits()
    assert in_torch(chain, z) == pytest.approx(chain(z), abs=1e-12)


@pytest.mark.parametrize("name", WITH_PARAMETERS)
def test_members_at_once_equal_the_members_one_by_one(name: str) -> None:
    z = some_logits()
    together = Chain((random_step(name, (MEMBERS,)),))
    apart = np.stack([together.member(i)(z) for i in range(MEMBERS)])
    assert together(z).shape == apart.shape == (MEMBERS, ROWS, apart.shape[-1])
    assert together(z) == pytest.approx(apart, abs=1e-12)
    assert not np.allclose(apart[0], apart[1])


@every_step
def test_logits_that_differ_by_member_are_kept_apart(name: str) -> None:
    z = np.stack([some_logits(seed) for seed in range(MEMBERS)])
    step = random_step(name, (MEMBERS,))
    each = [Chain((step,)).member(i)(z[i]) for i in range(MEMBERS)]
    assert step(z) == pytest.approx(np.stack(each), abs=1e-12)


def test_a_chain_of_members_is_each_chain() -> None:
    chains = [dense_layers(CLASSES, 3, random_state=seed) for seed in range(MEMBERS)]
    shaken = [
        chain.with_parameters({name: value + 0.1 * seed for name, value in chain.parameters().items()})
        for seed, chain in enumerate(chains)
    ]
    together = shaken[0].with_parameters(
        {name: np.stack([c.parameters()[name] for c in shaken]) for name in shaken[0].parameters()}
    )
    z = some_logits()
    assert together(z) == pytest.approx(np.stack([c(z) for c in shaken]), abs=1e-12)
    assert in_torch(together, z) == pytest.approx(together(z), abs=1e-12)
    assert together.n_parameters == MEMBERS * chains[0].n_parameters


def test_scale_diagonal_and_dense_by_hand() -> None:
    z = np.array([[1.0, -2.0]])
    assert Scale(np.array(3.0))(z).tolist() == [[3.0, -6.0]]
    # 1 * 2 + 5 = 7 and -2 * 3 + 1 = -5
    assert Diagonal(np.array([2.0, 3.0]), np.array([5.0, 1.0]))(z).tolist() == [[7.0, -5.0]]
    # (1, -2) @ [[1, 2, 3], [4, 5, 6]] = (-7, -8, -9), then + (1, 1, 0)
    weight = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert Dense(weight, np.array([1.0, 1.0, 0.0]))(z).tolist() == [[-6.0, -7.0, -9.0]]
    assert Relu()(z).tolist() == [[1.0, 0.0]]
    assert Reference()(z[:, :1]).tolist() == [[0.0, 1.0]]
    assert Reference()(z).tolist() == z.tolist()


@pytest.mark.parametrize("step", [LogSoftmax(), Centre(np.array(1.0))])
def test_no_constant_added_to_a_row_changes_a_normalised_row(step: Step) -> None:
    z, shift = some_logits(), np.arange(ROWS)[:, None] * 100.0 - 250.0
    assert step(z + shift) == pytest.approx(step(z), abs=1e-11)


def test_centre_takes_its_share_of_the_mean() -> None:
    z = np.array([[1.0, 2.0, 6.0]])  # mean 3
    assert Centre(np.array(0.0))(z).tolist() == z.tolist()
    assert Centre(np.array(1.0))(z).tolist() == [[-2.0, -1.0, 3.0]]
    assert Centre(np.array(0.5))(z).tolist() == [[-0.5, 0.5, 4.5]]
    both = Centre(np.array([0.0, 1.0]))(z)
    assert both.tolist() == [[[1.0, 2.0, 6.0]], [[-2.0, -1.0, 3.0]]]


def test_log_softmax_stays_finite_and_normalised() -> None:
    z = np.array([[1e4, -1e4, 0.0]], dtype=np.float32)
    out = LogSoftmax()(z)
    assert out.tolist() == [[0.0, -2e4, -1e4]]
    assert np.exp(LogSoftmax()(some_logits())).sum(axis=1) == pytest.approx(1.0)


def test_a_blend_is_a_mixture_of_probabilities() -> None:
    # softmax(0, log 3) = (1/4, 3/4); the branch swaps the classes, (3/4, 1/4). A share of 0.2 gives
    # 0.8 * 1/4 + 0.2 * 3/4 = 0.35 and 0.65; the second row is the first with its classes swapped.
    z = np.array([[0.0, np.log(3.0)], [np.log(3.0), 0.0]])
    swap = Chain((Dense(np.array([[0.0, 1.0], [1.0, 0.0]]), np.zeros(2)),))
    mixed = np.exp(stack_of_two(0.2, swap)(z))
    assert mixed == pytest.approx(np.array([[0.35, 0.65], [0.65, 0.35]]), abs=1e-12)


def test_a_blend_with_members_takes_their_mean_probability() -> None:
    # Members: swapped (3/4, 1/4) and unchanged (1/4, 3/4), mean (1/2, 1/2); half of it and half of (1/4, 3/4).
    z = np.array([[0.0, np.log(3.0)]])
    weights = np.array([[[0.0, 1.0], [1.0, 0.0]], np.eye(2)])
    both = Chain((Dense(weights, np.zeros((2, 2))),))
    mixed = np.exp(stack_of_two(0.5, both)(z))
    assert mixed == pytest.approx(np.array([[0.375, 0.625]]), abs=1e-12)
    assert in_torch(Chain((stack_of_two(0.5, both),)), z) == pytest.approx(np.log(mixed), abs=1e-12)


def test_a_blend_of_share_0_is_the_rows_and_of_share_1_the_branch() -> None:
    z = some_logits()
    branch = Chain((random_step("diagonal", (MEMBERS,)),))
    assert np.exp(stack_of_two(0.0, branch)(z)) == pytest.approx(softmax(z), abs=1e-12)
    assert np.exp(stack_of_two(1.0, branch)(z)) == pytest.approx(softmax(branch(z)).mean(axis=0), abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_blend_stays_finite_where_a_class_is_lost(dtype: type[np.floating]) -> None:
    z = np.array([[1e4, -1e4, 0.0]], dtype=dtype)
    chain = Chain((stack_of_two(0.5, Chain((Scale(np.ones(())),))),)).map_parameters(lambda v: v.astype(dtype))
    out = chain(z)
    assert out.dtype == dtype
    assert np.isfinite(out).all()
    assert softmax(out).sum() == pytest.approx(1.0)
    # Class 1 has e^-20000 in the rows and in one member, e^-10000 in the other: half of half of that is left.
    members = Chain((Scale(np.array([1.0, 0.5])),))
    out = Chain((stack_of_two(0.5, members),)).map_parameters(lambda v: v.astype(dtype))(z)
    assert out[0, 1] == pytest.approx(-1e4 - np.log(4), rel=1e-6)


def test_parameters_come_and_go_by_name() -> None:
    chain = Chain((Dense(np.eye(2), np.zeros(2)), Relu(), stack_of_two(0.3, Chain((Scale(np.ones(())),)))))
    assert list(chain.parameters()) == ["0.weight", "0.bias", "2.shares", "2.branches.1.0.factor"]
    doubled = chain.with_parameters({name: 2 * value for name, value in chain.parameters().items()})
    assert doubled.parameters()["2.branches.1.0.factor"] == 2.0
    assert chain.parameters()["2.branches.1.0.factor"] == 1.0, "the chain itself is frozen"
    assert chain.n_parameters == 4 + 2 + 2 + 1


def test_chains_add_up_in_order() -> None:
    first, second = Chain((Scale(np.array(2.0)),)), Chain((Relu(), Diagonal(np.ones(CLASSES), np.zeros(CLASSES))))
    z = some_logits()
    assert np.array_equal((first + second)(z), second(first(z)))
