"""The corrections: their formulas by hand, their symmetries, and the same numbers in NumPy and torch."""

import numpy as np
import pytest

from glayers.activations import log_softmax
from glayers.maps import Chain, Dense, LogSoftmax, Relu
from glayers.maps.corrections import Centred, Corrected, HingeLayer, Shared
from tests.lazy import torch
from tests.strategies import Numbers

CLASSES = 7


def some_logits(rows: int = 30, classes: int = CLASSES) -> Numbers:
    return 3 * np.random.default_rng(0).normal(size=(rows, classes))


def some_shared(seed: int = 4) -> Shared:
    rng = np.random.default_rng(seed)
    return Shared(rng.normal(size=(7, 5)) / 10, rng.normal(size=4), rng.uniform(1, 2, 4))


def all_branches(classes: int) -> Corrected:
    """A step with a branch of every kind."""
    rng = np.random.default_rng(1)
    dense = Dense(rng.normal(size=(classes, classes)) / 9, rng.normal(size=classes))
    hinges = HingeLayer(rng.normal(size=(4, classes)), rng.normal(size=(4, classes, classes)) / 9)
    return Corrected(
        (
            Chain((some_shared(),)),
            Chain((Centred(), dense)),
            Chain((Centred(), hinges)),
        )
    )


@pytest.mark.parametrize("classes", [7, 14])
def test_the_shared_correction_by_hand(classes: int) -> None:
    z = some_logits(3, classes)
    z[2] = 0.0
    z[2, :4] = [18.0, -1.0, -2.0, -30.0]  # log(1 - p) of class 0 and log p of class 3 are below the limit of -15
    step = some_shared()
    for row, added in zip(log_softmax(z), step(log_softmax(z)), strict=True):
        highest = np.sort(row)[::-1]
        raw = np.array([*highest[:3], -(np.exp(row) * row).sum()])
        context = np.array([1.0, *np.clip((raw - step.centre) / step.spread, -4, 4)])
        for own, found in zip(row, added, strict=True):
            l = max(own, highest[min(classes, 10) - 1])  # noqa: E741  # below the tenth, the tenth's correction
            miss = max(np.log(1 - np.exp(l)), -15) / 5
            bends = [max(l, -15), np.exp(l), np.exp(l / 2), miss, np.tanh(l + 2.3), np.tanh((l + 5) / 2)]
            assert found == pytest.approx(context @ step.weight.T @ [max(own, -15), *bends], rel=1e-9)


def test_hinges_are_dense_layers_around_a_relu() -> None:
    rng = np.random.default_rng(2)
    knots, weight = rng.normal(size=(2, CLASSES)), rng.normal(size=(2, CLASSES, CLASSES))
    eye = np.eye(CLASSES)
    layers = Chain(
        (
            Dense(np.hstack([eye, eye]), -knots.ravel()),
            Relu(),
            Dense(weight.reshape(2 * CLASSES, CLASSES), np.zeros(CLASSES)),
        )
    )
    z = some_logits()
    np.testing.assert_allclose(HingeLayer(knots, weight)(z), layers(z), atol=1e-12)


def test_centred_log_probabilities_by_hand() -> None:
    # -40 counts as -15: the mean of (-1, -2, -15) is -6.
    np.testing.assert_allclose(Centred()(np.array([[-1.0, -2.0, -40.0]])), [[5.0, 4.0, -9.0]])


def test_a_corrected_row_is_the_sum_of_its_branches() -> None:
    z, step = some_logits(), all_branches(CLASSES)
    log_p = log_softmax(z)
    expected = log_p + sum(branch(log_p) for branch in step.branches)
    np.testing.assert_allclose(step(z), log_softmax(expected), atol=1e-12)
    np.testing.assert_allclose(Corrected(())(z), log_p, atol=1e-12)


def test_permuting_classes_permutes_the_shared_correction() -> None:
    step = Corrected((Chain((some_shared(),)),))
    for classes in (3, 7, 14, 60):
        z = some_logits(20, classes)
        order = np.random.default_rng(1).permutation(classes)
        np.testing.assert_allclose(step(z)[:, order], step(z[:, order]), atol=1e-12)


def test_adding_a_constant_to_a_row_changes_nothing() -> None:
    z, step = some_logits(), all_branches(CLASSES)
    shift = 100 * np.random.default_rng(1).normal(size=(len(z), 1))
    np.testing.assert_allclose(step(z + shift), step(z), atol=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 30, 60])
def test_numpy_and_torch_agree_and_impossible_classes_stay_so(classes: int) -> None:
    z, step = some_logits(40, classes), all_branches(classes)
    z[0, 1:], z[1], z[2] = -np.inf, 1.0, 1e4 * z[2]
    in_torch = Chain((step,)).map_parameters(torch.as_tensor)(torch.as_tensor(z)).numpy()
    np.testing.assert_allclose(in_torch, step(z), rtol=1e-9, atol=1e-12)
    assert (step(z)[0, 1:] == -np.inf).all()
    np.testing.assert_allclose(np.exp(step(z)).sum(axis=1), 1)


def test_many_impossible_classes_change_nothing_for_the_others() -> None:
    z = some_logits(20, 12)
    step = Corrected((Chain((some_shared(),)),))
    masked = np.concatenate([z, np.full((20, 88), -np.inf)], axis=1)
    np.testing.assert_allclose(step(masked)[:, :12], step(z), atol=1e-9)


def test_a_correction_behind_log_probabilities_is_the_same() -> None:
    z, step = some_logits(), all_branches(CLASSES)
    chain = Chain((LogSoftmax(), step))
    np.testing.assert_allclose(chain(z), step(z), atol=1e-12)
