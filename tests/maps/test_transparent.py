"""Transparent layers start exactly as the identity, at every depth and width, and all of them can learn."""

from typing import Any

import numpy as np
import pytest

from glayers.datasets import load_fashion_mnist
from glayers.fitting.adam import EpochSelection, descend
from glayers.fitting.objective import Objective, row_loss
from glayers.maps import Chain, Dense, dense_layers
from glayers.maps.steps import layer_shapes
from glayers.metrics import nll
from glayers.predictions import Predictions
from tests.lazy import torch
from tests.strategies import Numbers

DTYPES: list[type[np.floating]] = [np.float32, np.float64]


def cast(layers: Chain, dtype: type[np.floating]) -> Chain:
    return layers.map_parameters(lambda value: value.astype(dtype))


def logits_of(rows: int, classes: int, dtype: type[np.floating] = np.float64) -> Numbers:
    rng = np.random.default_rng(rows + classes)
    # Sizes from 1e-3 to 1e4, both signs, and a true zero.
    values = rng.normal(size=(rows, classes)) * 10.0 ** rng.uniform(-3, 4, size=(rows, classes))
    values[0, 0] = 0.0
    return values.astype(dtype)


def accuracy(logits: Numbers, labels: Numbers) -> float:
    return float((logits.argmax(axis=1) == labels).mean())


@pytest.mark.parametrize("units_per_class", [2, 3, 4, 5])
@pytest.mark.parametrize("n_layers", [1, 2, 3, 4, 5, 6])
def test_the_start_is_exactly_the_identity(n_layers: int, units_per_class: int) -> None:
    for classes in (1, 2, 3, 10, 100):
        layers = dense_layers(classes, n_layers, units_per_class, random_state=classes)
        for dtype in DTYPES:
            z = logits_of(7, classes, dtype)
            out = cast(layers, dtype)(z)
            assert out.dtype == dtype
            assert np.array_equal(out, z), f"{classes} classes"


@pytest.mark.parametrize("dtype", DTYPES)
def test_200_classes_start_exactly_as_the_identity(dtype: type[np.floating]) -> None:
    z = logits_of(7, 200, dtype)
    assert np.array_equal(cast(dense_layers(200, 4, units_per_class=5), dtype)(z), z)


def test_fewer_than_two_units_per_logit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"at least 10 units .* got 7.* units_per_class >= 2"):
        dense_layers(5, 2, units_per_class=1)


def test_one_layer_needs_no_hidden_units() -> None:
    z = logits_of(4, 5)
    assert np.array_equal(dense_layers(5, 1, units_per_class=1)(z), z)


def test_the_identity_holds_in_torch() -> None:
    z = logits_of(7, 6)
    layers = dense_layers(6, 4)
    assert np.array_equal(layers(z), z)
    assert torch.equal(layers.map_parameters(torch.as_tensor)(torch.as_tensor(z)), torch.as_tensor(z))


@pytest.mark.parametrize("n_layers", [2, 3, 5])
def test_transparent_extra_units_learn_from_the_first_step(n_layers: int) -> None:
    classes, rng = 4, np.random.default_rng(0)
    layers = dense_layers(classes, n_layers).map_parameters(lambda v: torch.tensor(v, requires_grad=True))
    outputs = layers(torch.as_tensor(rng.normal(size=(50, classes))))
    loss = torch.nn.functional.cross_entropy(outputs, torch.as_tensor(rng.integers(0, classes, 50)))
    for step in layers.steps[2:]:  # every dense layer that reads hidden units
        if isinstance(step, Dense):
            (gradient,) = torch.autograd.grad(loss, step.weight, retain_graph=True)
            into_carried = gradient[2 * classes :, :classes]
            assert (into_carried != 0).any(dim=1).float().mean() > 0.5, "most extra units are heard"


def test_seeds_differ_only_in_the_extra_units() -> None:
    one, same, other = (dense_layers(3, 2, random_state=seed) for seed in (0, 0, 2))
    for equal in (same, dense_layers(3, 2)):  # a seed left out is 0
        assert np.array_equal(one.parameters()["0.weight"], equal.parameters()["0.weight"])
    assert not np.array_equal(one.parameters()["0.weight"], other.parameters()["0.weight"])
    assert np.array_equal(one.parameters()["0.weight"][:, :6], other.parameters()["0.weight"][:, :6])


# 1000 x 3002 + 3002 x 3002 + 3002 x 1000 = 15,016,004; one more hidden layer adds 9,012,004.
@pytest.mark.parametrize(("n_layers", "weights", "millions"), [(3, 15_016_004, 15), (4, 24_028_008, 24)])
def test_transparent_weight_counts_are_the_papers(n_layers: int, weights: int, millions: int) -> None:
    shapes = layer_shapes(1000, n_layers, 3)
    assert sum(n_in * n_out for n_in, n_out in shapes) == weights
    assert round(weights / 1e6) == millions
    assert sum(n_out for _, n_out in shapes) == 3002 * (n_layers - 1) + 1000


@pytest.mark.parametrize("start", ["transparent", "glorot"])
@pytest.mark.parametrize(("n_layers", "units"), [(1, 3), (3, 2), (4, 3)])
def test_layers_have_the_shapes_that_are_counted(start: Any, n_layers: int, units: int) -> None:
    layers = dense_layers(7, n_layers, units_per_class=units, start=start)
    shapes = layer_shapes(7, n_layers, units)
    assert [v.shape for name, v in layers.parameters().items() if name.endswith("weight")] == shapes
    assert layers.n_parameters == sum(n_in * n_out + n_out for n_in, n_out in shapes)


def test_a_glorot_start_is_not_transparent() -> None:
    z = np.random.default_rng(0).normal(size=(2000, 10)) * 3
    layers = dense_layers(10, 3, start="glorot")
    assert not np.allclose(layers(z), z)
    agreement = float((layers(z).argmax(axis=1) == z.argmax(axis=1)).mean())
    assert agreement < 0.5, "a random start loses what f knew"
    # Glorot's bound for 10 -> 32 is sqrt(6 / 42).
    first = layers.parameters()["0.weight"]
    assert 0.9 * np.sqrt(6 / 42) < np.abs(first).max() <= np.sqrt(6 / 42)


@pytest.mark.parametrize("n_layers", [1, 2, 3, 5])
def test_accuracy_at_a_transparent_start_is_that_of_f(n_layers: int) -> None:
    rng = np.random.default_rng(5)
    z, labels = rng.normal(size=(3000, 30)) * 4, rng.integers(0, 30, 3000)
    start = dense_layers(30, n_layers, random_state=7)(z)
    assert accuracy(start, labels) == accuracy(z, labels)
    assert nll(Predictions(start, labels)) == nll(Predictions(z, labels))


def test_accuracy_at_a_transparent_start_is_that_of_a_real_network() -> None:
    calibration, test = load_fashion_mnist()
    for part in (calibration, test):
        start = cast(dense_layers(10, 3, units_per_class=2), np.float32)(part.logits)
        assert np.array_equal(start, part.logits)


@pytest.mark.parametrize("n_layers", [2, 4])
def test_two_units_per_class_at_100_classes_are_transparent_and_learn(n_layers: int) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(600, 100)) * 2
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    overconfident = 3 * z
    chain = dense_layers(100, n_layers, units_per_class=2)
    whole = torch.full((1, 600), 1 / 600)
    objective = Objective(
        chain,
        row_loss("log"),
        torch.as_tensor(overconfident, dtype=torch.float32),
        torch.as_tensor(labels),
        whole,
        whole,
    )
    stopping = EpochSelection(1, np.ones(1), patience=3, by_training_loss=True)
    descend(objective, np.array([1e-3]), stopping, epochs=3, batch_size=250, averaging=0.0, seed=0)
    before = nll(Predictions(overconfident, labels))
    assert float(stopping.trace[0][0]) == pytest.approx(before, rel=1e-5)
    assert float(stopping.best[0]) < 0.95 * before
    fitted = objective.fitted(0, stopping.parameters[0]).member(0)
    # The paper fell to chance, 1%, here.
    assert accuracy(fitted(overconfident), labels) > accuracy(overconfident, labels) - 0.01
