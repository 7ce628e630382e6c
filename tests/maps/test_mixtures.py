from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from glayers.activations import log_softmax, softmax
from glayers.maps import Chain, Dense, Diagonal, Scale
from glayers.maps.mixtures import Stack, UniformShare
from glayers.maps.order import KeepOrder, in_order_of
from tests.lazy import torch
from tests.strategies import Numbers


def some_logits(rows: int = 30, classes: int = 5, seed: int = 0) -> Numbers:
    return 3 * np.random.default_rng(seed).normal(size=(rows, classes))


def some_stack() -> Stack:
    rng = np.random.default_rng(1)
    dense = Chain((Dense(rng.normal(size=(5, 5)), rng.normal(size=5)),))
    return Stack(np.array([0.3, 0.7]), (Chain((Scale(np.asarray(0.5)),)), dense))


def test_a_stack_is_the_mixture_of_its_branches_probabilities() -> None:
    z, stack = some_logits(), some_stack()
    expected = 0.3 * softmax(z / 2) + 0.7 * softmax(stack.branches[1](z))
    np.testing.assert_allclose(np.exp(stack(z)), expected, atol=1e-14)


def test_a_share_of_one_is_that_branch() -> None:
    z, stack = some_logits(), some_stack()
    alone = Stack(np.array([0.0, 1.0]), stack.branches)
    np.testing.assert_allclose(np.exp(alone(z)), softmax(stack.branches[1](z)), atol=1e-14)


def test_a_share_of_zero_has_no_effect_even_on_very_unlikely_classes() -> None:
    # The first part gives class 0 all it has, the second next to nothing: e^-5000 is what comes out, not e^-709.
    sure = Chain((Diagonal(np.array([0.0, 0.0, 0.0]), np.array([5000.0, 0.0, 0.0])),))
    other = Chain((Diagonal(np.array([0.0, 0.0, 0.0]), np.array([0.0, 5000.0, 0.0])),))
    expected = np.array([[-5000.0, 0.0, -5000.0]])
    for nothing in (0.0, -1e-10):
        shares = np.array([nothing, 1.0])
        np.testing.assert_allclose(Stack(shares, (sure, other))(np.zeros((1, 3))), expected, atol=1e-9)


def test_a_uniform_share_is_spread_over_the_possible_classes() -> None:
    z = some_logits(7, 5)
    z[:, 2] = -np.inf
    expected = 0.8 * softmax(z) + 0.2 / 4 * (z > -np.inf)
    np.testing.assert_allclose(np.exp(UniformShare(np.asarray(0.2))(z)), expected, atol=1e-14)
    np.testing.assert_allclose(UniformShare(np.asarray(0.0))(z), log_softmax(z), atol=1e-12)


@pytest.mark.parametrize("step", [some_stack(), KeepOrder.of(Chain((some_stack(),)))])
def test_parameters_come_and_go_by_name_and_torch_agrees(step: Any) -> None:
    z = some_logits()
    assert "branches.1.0.weight" in {name.removeprefix("branches.0.0.") for name in step.parameters()}
    doubled = step.with_parameters({name: 2 * value for name, value in step.parameters().items()})
    for name, value in doubled.parameters().items():
        np.testing.assert_array_equal(value, 2 * step.parameters()[name])
    tensors = step.with_parameters({name: torch.as_tensor(value) for name, value in step.parameters().items()})
    np.testing.assert_allclose(tensors(torch.as_tensor(z)).numpy(), step(z), atol=1e-12)


# Gaps that float64 can still see once they are a thousandth as wide.
LEVELS = arrays(np.int64, (4, 7), elements=st.integers(-30, 30), fill=st.nothing())


@given(LEVELS, LEVELS)
def test_the_order_of_the_input_is_kept_and_outputs_in_that_order_stay_as_they_are(z: Numbers, u: Numbers) -> None:
    reference, outputs = z.astype(float), u.astype(float)
    lowered = in_order_of(reference, outputs, 1e-3)
    assert (lowered <= outputs + 1e-12).all()
    higher = reference[:, :, None] > reference[:, None, :]
    assert (lowered[:, :, None] > lowered[:, None, :])[higher].all()
    assert np.array_equal(lowered.argmax(axis=1), reference.argmax(axis=1))
    ordered = np.tanh(reference / 20) * 5
    np.testing.assert_allclose(in_order_of(reference, ordered, 1e-3), ordered, atol=1e-12)


def test_keeping_the_order_is_a_running_minimum() -> None:
    z, u = some_logits(8, 9), some_logits(8, 9, seed=2)
    reference = np.log(softmax(z))
    for row, said, bent in zip(reference, u, in_order_of(z, u, 0.01), strict=True):
        order = np.argsort(-row)
        above = np.inf
        for c in order:
            above = min(above, said[c] - 0.01 * row[c])
            assert bent[c] == pytest.approx(above + 0.01 * row[c], abs=1e-12)


def test_a_single_logit_keeps_its_sign() -> None:
    step = KeepOrder.of(Chain((Diagonal(np.array([-1.0]), np.array([0.0])),)))
    z = np.array([[2.0], [-1.0]])
    assert step(z).shape == (2, 2)
    assert step(z).argmax(axis=1).tolist() == [1, 0]


def test_the_order_is_kept_for_each_member() -> None:
    z, outputs = (np.stack([some_logits(2, 9, seed=seed) for seed in seeds]) for seeds in ((0, 1), (2, 3)))
    each = [in_order_of(reference, output, 0.01) for reference, output in zip(z, outputs, strict=True)]
    np.testing.assert_array_equal(in_order_of(z, outputs, 0.01), np.stack(each))


def test_the_least_slope_is_a_thousandth_on_the_scale_of_the_output() -> None:
    assert KeepOrder.of(Chain((Scale(np.ones(())),))).slope == 1e-3
    assert KeepOrder.of(Chain((Scale(np.ones(())),)), factor=0.5).slope == 5e-4


def test_tempered_plain_and_uniform_probabilities_are_mixed_by_their_shares() -> None:
    z = some_logits(7, 5)
    parts = (Chain((Scale(np.asarray(0.4)),)), Chain(()), Chain((UniformShare(np.asarray(1.0)),)))
    step = Stack(np.array([0.5, 0.3, 0.2]), parts)
    expected = 0.5 * softmax(0.4 * z) + 0.3 * softmax(z) + 0.2 / 5
    np.testing.assert_allclose(np.exp(step(z)), expected, atol=1e-14)
    np.testing.assert_array_equal(step(np.stack([z, -z])), np.stack([step(z), step(-z)]))
