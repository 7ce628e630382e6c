"""The fast kernels give the numbers of the steps that they stand for."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from glayers.activations import log_softmax, softmax
from glayers.maps import (
    Centre,
    Chain,
    Dense,
    Diagonal,
    Floor,
    KeepOrder,
    LogSoftmax,
    Reference,
    Relu,
    Scale,
    Stack,
    UniformShare,
    simplified,
)
from glayers.maps.corrections import Centred, Corrected, HingeLayer, Shared
from glayers.serving.fast import Fast, applied
from tests.strategies import Numbers, stack_of_two


def some_map(classes: int) -> Chain:
    """A map with a step of every kind that has a kernel."""
    rng = np.random.default_rng(classes)
    floor = (np.asarray(30.0), np.asarray(12.0))
    shared = Shared(rng.normal(size=(7, 5)) / 9, rng.normal(size=4), rng.uniform(1, 2, 4))
    hinges = HingeLayer(rng.normal(size=(4, classes)), rng.normal(size=(4, classes, classes)) / classes)
    square = rng.normal(size=(3, classes, classes)) / classes
    corrections = (
        Chain((shared,)),
        Chain((Centred(), Dense(square[0], rng.normal(size=classes)))),
        Chain((Centred(), hinges)),
        Chain((Centred(), Diagonal(square[0, 0], square[0, 1]))),
    )
    model = Floor(*floor, (Chain((Corrected(corrections),)),))
    hidden = Dense(rng.normal(size=(5, classes, 2 * classes)) / classes, rng.normal(size=(5, 2 * classes)))
    last = Dense(rng.normal(size=(5, 2 * classes, classes)) / classes, rng.normal(size=(5, classes)))
    network = Chain((Centre(rng.random(5)), hidden, Relu(), last))
    layers = stack_of_two(0.7, Chain((Floor(*floor, (network,)),)))
    tempered = Chain((Reference(), Scale(np.asarray(0.8)), LogSoftmax()))
    sharper = Chain((Reference(), Scale(np.asarray(1.1)), LogSoftmax(), Floor(*floor, (Chain((Corrected(()),)),))))
    kept = KeepOrder.of(Chain((Diagonal(np.ones(classes), rng.normal(size=classes)),)))
    branches = (tempered, tempered + Chain((model,)), tempered + Chain((layers,)) + sharper, tempered + Chain((kept,)))
    scaled, uniform = Chain((Scale(np.asarray(1.3)),)), Chain((UniformShare(np.asarray(1.0)),))
    mixture = Stack(np.array([0.5, 0.4, 0.1]), (scaled, Chain(()), uniform))
    return Chain(
        (Stack(np.array([0.2, 0.4, 0.3, 0.1]), branches), LogSoftmax(), mixture, UniformShare(np.asarray(0.01)))
    )


def some_logits(classes: int, rows: str) -> Numbers:
    rng = np.random.default_rng(1)
    z = 3 * rng.normal(size=(60, classes))
    if rows == "ties":
        z = np.round(z / 3)
    if rows == "wide":
        z *= 300
    if rows == "masked":
        z[np.arange(60), rng.integers(0, classes, 60)] = -np.inf
    return z


@pytest.mark.parametrize("rows", ["usual", "ties", "wide", "masked"])
@pytest.mark.parametrize("classes", [2, 3, 10, 11, 60])
def test_kernels_and_simplified_maps_equal_the_definitions(classes: int, rows: str) -> None:
    z, whole = some_logits(classes, rows), some_map(classes)
    stack: Any = whole.steps[0]
    for chain in (whole, *stack.branches, Chain(stack.branches[1].steps + whole.steps[2:]), Chain(())):
        expected = chain(z)
        for same in (chain, simplified(chain)):
            np.testing.assert_allclose(log_softmax(same(z)), log_softmax(expected), rtol=1e-12, atol=1e-12)
            for order in ("C", "F"):
                rows_in = np.array(z, order=order) if classes <= 10 else z
                np.testing.assert_allclose(Fast(same).probabilities(rows_in), softmax(expected), rtol=1e-9, atol=1e-12)
                np.testing.assert_allclose(Fast(same).logits(rows_in), expected, rtol=1e-12, atol=1e-11)
            np.testing.assert_allclose(Fast(same).probabilities(z[:1]), softmax(expected[:1]), atol=1e-12)


def test_simplified_maps_have_no_step_that_changes_nothing() -> None:
    found = simplified(some_map(4))
    assert [type(step) for step in found.steps] == [
        Reference, Scale, LogSoftmax, Stack, Stack, UniformShare,
    ]  # fmt: skip
    stack: Any = found.steps[3]
    assert [[type(step) for step in branch.steps] for branch in stack.branches] == [
        [],
        [Floor],
        [Stack, Scale, LogSoftmax, Floor],
        [KeepOrder],
    ]
    (scale,) = simplified(Chain((Scale(np.asarray(1 / 2)), Scale(np.asarray(1 / 3))))).steps
    assert scale.parameters()["factor"] == pytest.approx(1 / 6)


def test_one_logit_gets_its_reference_class() -> None:
    chain = Chain((Reference(), Scale(np.asarray(0.5)), UniformShare(np.asarray(0.1))))
    z = np.linspace(-3, 3, 7)[:, None]
    np.testing.assert_allclose(Fast(chain).probabilities(z), softmax(chain(z)), atol=1e-14)
    np.testing.assert_allclose(Fast(Chain(())).logits(z), np.hstack([0 * z, z]))


def test_one_logit_gets_its_reference_class_behind_a_floor() -> None:
    floored = Chain((Floor(np.asarray(30.0), np.asarray(12.0), (Chain((Scale(np.asarray(0.5)),)),)),))
    one = np.array([[-3.0], [0.0], [2.0]])
    np.testing.assert_allclose(Fast.of(floored).probabilities(one), softmax(floored(one)), rtol=1e-12)
    np.testing.assert_allclose(Fast.of(floored).probabilities(one)[1], 0.5)


def test_members_without_a_kernel_are_computed_by_the_definition() -> None:
    rng = np.random.default_rng(0)
    shared = Shared(rng.normal(size=(2, 7, 5)) / 9, np.zeros((2, 4)), np.ones((2, 4)))
    dense = Dense(rng.normal(size=(2, 5, 5)), np.zeros((2, 5)))
    z = some_logits(5, "usual")
    for step in (Scale(np.array([0.5, 2.0])), dense):
        chain = Chain((stack_of_two(0.4, Chain((step,))),))
        np.testing.assert_allclose(Fast(chain).logits(z), chain(z), atol=1e-12)
    floor = Floor(np.ones(()), np.ones(()), (Chain((Relu(),)),))
    with_floor = Chain((stack_of_two(0.4, Chain((dense, floor))),))
    np.testing.assert_allclose(Fast(with_floor).logits(z), with_floor(z), atol=1e-12)
    assert shared.n_parameters == 2 * (35 + 8)


def test_blocks_are_put_together_in_order() -> None:
    chain, z = some_map(10), some_logits(10, "usual")
    many = np.tile(z, (200, 1)).astype(np.float32)
    expected = np.tile(softmax(chain(z.astype(np.float32).astype(float))), (200, 1))
    np.testing.assert_allclose(applied(Fast.of(chain).probabilities, many, 10), expected, atol=1e-12)


def test_temperatures_that_almost_agree_are_kept_apart() -> None:
    branches = tuple(Chain((Scale(np.asarray(factor)), LogSoftmax())) for factor in (0.5, 0.5 + 1e-10))
    chain = Chain((Stack(np.array([0.0, 1.0]), branches),))
    z = 1e2 * some_logits(4, "usual")
    np.testing.assert_allclose(Fast(chain).logits(z[:1] / 50), chain(z[:1] / 50), rtol=1e-12, atol=0)


def test_copies_and_pickles_of_a_used_map_hold_no_kernels() -> None:
    chain = some_map(3)
    assert Fast.of(chain) is Fast.of(chain)
    for again in (copy.deepcopy(chain), pickle.loads(pickle.dumps(chain))):
        assert vars(again).keys() == {"steps"}
        np.testing.assert_array_equal(again(np.eye(3)), chain(np.eye(3)))
