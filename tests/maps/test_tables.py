"""Tables and order-preserving steps: NumPy and torch agree, jumps and ends are read right, the order is kept."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glayers.activations import softmax
from glayers.maps import Chain, Step
from glayers.maps.order import Invariant
from glayers.maps.tables import EachClass, OneVersusRest, Table, look_up, table_of_bins
from tests.lazy import torch
from tests.strategies import Numbers

CLASSES = 4
HIGHEST = float(np.finfo(np.float64).max)


def random_table(rng: np.random.Generator, length: int) -> Table:
    knots = np.sort(rng.random(length))
    knots[length // 2] = knots[length // 2 - 1]  # a jump
    return knots, rng.random(length)


def network(rng: np.random.Generator) -> dict[str, Numbers]:
    return {
        "factor": np.asarray(0.7),
        "weight_in": rng.normal(size=(CLASSES, 5)),
        "bias_in": rng.normal(size=5),
        "weight_out": rng.normal(size=(5, CLASSES - 1)) * 2,
        "bias_out": rng.normal(size=CLASSES - 1) * 2,
    }


def random_step(name: str) -> Step:
    rng = np.random.default_rng(3)
    made: dict[str, Callable[[], Step]] = {
        "one_versus_rest": lambda: OneVersusRest(rng.random(CLASSES), rng.random(CLASSES), rng.normal(size=CLASSES)),
        "each_class": lambda: EachClass.of([random_table(rng, length) for length in (6, 4, 9, 5)]),
        "invariant": lambda: Invariant(**network(rng)),
    }
    return made[name]()


STEPS = ["one_versus_rest", "each_class", "invariant"]


@pytest.mark.parametrize("name", STEPS)
def test_numpy_and_torch_agree(name: str) -> None:
    chain = Chain((random_step(name),))
    z = np.random.default_rng(0).normal(size=(50, CLASSES)) * 4
    in_torch = chain.map_parameters(torch.as_tensor)(torch.as_tensor(z))
    np.testing.assert_allclose(in_torch.numpy(), chain(z), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", STEPS)
def test_rows_sum_to_one_and_stay_finite_for_extreme_logits(name: str, dtype: type) -> None:
    z: Numbers = np.array([[1e4, -1e4, 0, 3], [0, 0, 0, 0], [-1e4, -1e4, -1e4, 1e4], [5, 5, -1e4, 5]], dtype=dtype)
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


def rows_of_any_numbers() -> st.SearchStrategy[list[list[float]]]:
    anything = st.floats(allow_nan=False, allow_infinity=False)
    near = st.sampled_from([0.0, 1.0, 1.0 + 2**-52, 1.0 - 2**-53, 5e-324, -5e-324, 1e4, -1e4, 1e308, -1e308])
    row = st.lists(anything | near | st.floats(-20, 20), min_size=CLASSES, max_size=CLASSES)
    return st.lists(row, min_size=1, max_size=5)


LIBRARIES: list[Callable[..., Any]] = [np.asarray, lambda values: torch.as_tensor(values)]
ORDERED_CHAINS = [(library, Chain((random_step("invariant"),)).map_parameters(library)) for library in LIBRARIES]


@settings(max_examples=150)
@given(rows=rows_of_any_numbers())
@example(rows=[[HIGHEST, -HIGHEST, 0.0, 1.0]])
@example(rows=[[0.0, HIGHEST / 4, -HIGHEST / 8, -HIGHEST / 8]])
def test_the_order_of_any_row_is_kept_exactly(rows: list[list[float]]) -> None:
    z = np.array(rows)
    lower = z[:, :, None] < z[:, None, :]
    for library, chain in ORDERED_CHAINS:
        out = np.asarray(chain(library(z)))
        assert np.isfinite(out).all()
        assert np.array_equal(out[:, :, None] < out[:, None, :], lower)


def test_a_gap_is_multiplied_by_what_the_network_returns() -> None:
    step, z = random_step("invariant"), np.array([[1.0, 4.0, -2.0, 2.5], [-400.0, 0.0, 1.0, 3.0]])
    assert isinstance(step, Invariant)
    order = np.argsort(-z, axis=1)
    ordered = np.take_along_axis(z, order, axis=1)
    read = np.log(softmax(0.7 * ordered))
    # Log-probabilities from -30 to 0 become inputs from -2 to 1.
    hidden = np.tanh((np.maximum(read, -30) / 10 + 1) @ step.weight_in + step.bias_in)
    factors = np.log1p(np.exp(hidden @ step.weight_out + step.bias_out)) + 1e-6
    gaps = 0.7 * (ordered[:, :-1] - ordered[:, 1:]) * factors
    out = np.take_along_axis(step(z), order, axis=1)
    np.testing.assert_allclose(out[:, :-1] - out[:, 1:], gaps, rtol=1e-9, atol=1e-9)


def test_permuting_the_classes_permutes_the_output() -> None:
    step, z, places = random_step("invariant"), np.random.default_rng(0).normal(size=(9, CLASSES)), [2, 0, 3, 1]
    np.testing.assert_allclose(step(z[:, places]), step(z)[:, places], atol=1e-13)


def test_the_start_is_temperature_scaling() -> None:
    step, z = Invariant.start(0.5, CLASSES, n_hidden=3, seed=0), np.random.default_rng(0).normal(size=(30, CLASSES)) * 5
    np.testing.assert_allclose(softmax(step(z)), softmax(z / 2), atol=1e-12)


def test_the_random_layer_of_a_gap_network_keeps_the_scale_of_its_input() -> None:
    # 100 inputs with weights of standard deviation 1/10: their sum has the spread of one input.
    assert Invariant.start(0.5, 100, n_hidden=50, seed=0).weight_in.std() == pytest.approx(0.1, rel=0.05)


def test_members_broadcast() -> None:
    step: Any = random_step("invariant")
    z = np.random.default_rng(0).normal(size=(6, CLASSES))
    both = step.with_parameters({key: np.stack([value, value * 1.1]) for key, value in step.parameters().items()})
    other = step.with_parameters({key: value * 1.1 for key, value in step.parameters().items()})
    np.testing.assert_allclose(both(z), np.stack([step(z), other(z)]), atol=1e-12)
