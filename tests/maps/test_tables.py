"""Tables and curves: NumPy and torch agree, and jumps and ends are read right."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glayers.activations import softmax
from glayers.maps import Chain, Step
from glayers.maps.tables import EachClass, OneVersusRest, Table, look_up, one_versus_rest, table_of_bins
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
    }
    return made[name]()


STEPS = ["one_versus_rest", "each_class"]


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
