"""Tables and curves: NumPy and torch agree, and jumps and ends are read right."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glayers.activations import softmax
from glayers.maps import Chain, Step
from glayers.maps.tables import EachClass, OneVersusRest, Table, TopClass, look_up, one_versus_rest, table_of_bins
from tests.lazy import torch

if TYPE_CHECKING:
    from glayers.arrays import Array

CLASSES = 4
HIGHEST = float(np.finfo(np.float64).max)


def random_table(rng: np.random.Generator, length: int) -> Table:
    knots = np.sort(rng.random(length))
    knots[length // 2] = knots[length // 2 - 1]  # a jump
    return knots, rng.random(length)


def random_step(name: str) -> Step:
    rng = np.random.default_rng(3)
    made: dict[str, Callable[[], Step]] = {
        "one_versus_rest": lambda: OneVersusRest(rng.random(CLASSES), rng.random(CLASSES), rng.normal(size=CLASSES)),
        "each_class": lambda: EachClass.of([random_table(rng, length) for length in (6, 4, 9, 5)]),
        "top_class": lambda: TopClass.of(random_table(rng, 8)),
    }
    return made[name]()


STEPS = ["one_versus_rest", "each_class", "top_class"]


@pytest.mark.parametrize("name", STEPS)
def test_numpy_and_torch_agree(name: str) -> None:
    chain = Chain((random_step(name),))
    z = np.random.default_rng(0).normal(size=(50, CLASSES)) * 4
    in_torch = chain.map_parameters(torch.as_tensor)(torch.as_tensor(z))
    np.testing.assert_allclose(in_torch.numpy(), chain(z), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", STEPS)
def test_rows_sum_to_one_and_stay_finite_for_extreme_logits(name: str, dtype: type) -> None:
    z: Array = np.array([[1e4, -1e4, 0, 3], [0, 0, 0, 0], [-1e4, -1e4, -1e4, 1e4], [5, 5, -1e4, 5]], dtype=dtype)
    out = Chain((random_step(name),)).map_parameters(lambda value: value.astype(dtype))(z)
    assert np.isfinite(out).all()
    np.testing.assert_allclose(softmax(out).sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize("name", STEPS)
def test_adding_a_constant_to_a_row_changes_nothing(name: str) -> None:
    step = random_step(name)
    z = np.random.default_rng(0).normal(size=(50, CLASSES)) * 4
    np.testing.assert_allclose(softmax(step(z + 7.0)), softmax(step(z)), atol=1e-12)


@pytest.mark.parametrize("name", STEPS)
def test_logits_of_several_members_are_mapped_one_by_one(name: str) -> None:
    step, z = random_step(name), np.random.default_rng(0).normal(size=(3, 7, CLASSES)) * 4
    np.testing.assert_allclose(step(z), np.stack([step(each) for each in z]), atol=1e-12)


@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 40))
def test_a_table_is_read_as_numpy_interpolates(seed: int, length: int) -> None:
    rng = np.random.default_rng(seed)
    knots, values = np.sort(rng.random((3, length)), axis=1), rng.random((3, length))
    at = np.concatenate([rng.random((20, 3)) * 1.4 - 0.2, knots.T])
    expected = np.stack([np.interp(at[:, c], knots[c], values[c]) for c in range(3)], axis=1)
    np.testing.assert_allclose(look_up(knots, values, at), expected, atol=1e-12)


@given(seed=st.integers(0, 2**32 - 1), n_bins=st.integers(1, 20))
def test_bins_are_read_with_their_left_edge_inside(seed: int, n_bins: int) -> None:
    rng = np.random.default_rng(seed)
    edges, values = np.sort(rng.random(n_bins - 1)), rng.random(n_bins)
    knots, read = table_of_bins(edges, values)
    at = np.concatenate([rng.random(20), edges])
    expected = [values[sum(edge <= x for edge in edges)] for x in at]
    assert look_up(knots[None], read[None], at[:, None])[:, 0].tolist() == expected


def test_log_of_the_rest_keeps_its_digits_where_the_top_class_is_certain() -> None:
    # 1 - p = 2 e^-50 / (1 + 2 e^-50), whose logarithm is log 2 - 50 to 21 digits; 1 - p itself rounds to 0
    _, log_rest = one_versus_rest(np.array([[0.0, 50.0, 0.0]]))
    assert log_rest[0, 1] == pytest.approx(np.log(2) - 50, rel=1e-15)
    assert log_rest[0, 0] == pytest.approx(-np.exp(-50), rel=1e-12)


def test_the_top_class_gets_its_value_and_the_others_keep_their_proportions() -> None:
    step = TopClass.of((np.zeros(1), np.array([0.55])))
    # others were 0.2 and 0.1, so two parts and one part of 0.45
    np.testing.assert_allclose(softmax(step(np.log([[0.2, 0.7, 0.1]]))), [[0.3, 0.55, 0.15]])


@given(seed=st.integers(0, 2**32 - 1), ties=st.booleans())
def test_the_top_class_stays_on_top(seed: int, ties: bool) -> None:
    z = np.random.default_rng(seed).normal(size=(20, CLASSES)) * 3
    z = np.round(z) if ties else z
    step = TopClass.of((np.zeros(1), np.array([0.01])))
    out = softmax(step(z))
    assert (out.argmax(axis=1) == z.argmax(axis=1)).all()
    np.testing.assert_array_equal(step(z.reshape(4, 5, CLASSES)), step(z).reshape(4, 5, CLASSES))  # with members
    # A capped top class ties with the runner-up: 0.2 of the other 0.3 gives 2/3 each, so 2/5, 2/5 and 1/5.
    np.testing.assert_allclose(softmax(step(np.log([[0.2, 0.7, 0.1]]))), [[0.4, 0.4, 0.2]], atol=1e-12)


def test_a_table_of_the_top_class_stays_off_0_and_1() -> None:
    for value in (0.0, 1.0):
        assert 0 < float(TopClass.of((np.zeros(1), np.array([value]))).values[0]) < 1
