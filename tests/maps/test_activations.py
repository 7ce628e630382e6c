"""Activations: softmax for many logits and for one, and the check that a q can reach every distribution."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glayers import GlayersError
from glayers.activations import Softmax, check_submersion, log_softmax, softmax, with_reference_class
from tests.lazy import torch


class Constant:
    """The same two classes whatever comes."""

    def log_probabilities(self, logits: Any) -> Any:
        return np.log(np.full((len(logits), 2), 0.5))


class Unnormalised:
    """Sigmoids of their own for each class, which sum to anything."""

    def log_probabilities(self, logits: Any) -> Any:
        return -np.log1p(np.exp(-logits))


class HalfDeaf:
    """Softmax that does not listen to the last logit."""

    def log_probabilities(self, logits: Any) -> Any:
        return log_softmax(np.concatenate([logits[:, :-1], np.zeros((len(logits), 2))], axis=1))


@pytest.mark.parametrize("n_logits", [1, 2, 5])
def test_softmax_is_a_submersion(n_logits: int) -> None:
    check_submersion(Softmax(), n_logits)


@pytest.mark.parametrize(
    ("q", "complaint"),
    [
        (Constant(), "Constant is not a submersion: .* rank 0, but 2 classes need rank 1"),
        (HalfDeaf(), "HalfDeaf is not a submersion: .* rank 2, but 4 classes need rank 3"),
        (Unnormalised(), "Unnormalised is not an activation: .* do not sum to 1"),
    ],
)
def test_the_error_names_an_activation_that_is_not_a_submersion(q: Any, complaint: str) -> None:
    with pytest.raises(GlayersError, match=complaint):
        check_submersion(q, n_logits=3)


@given(seed=st.integers(0, 2**32 - 1), size=st.floats(1e-3, 1e4), shift=st.floats(-1e4, 1e4))
@settings(max_examples=25, deadline=None)
def test_softmax_sums_to_1_and_no_constant_changes_it(seed: int, size: float, shift: float) -> None:
    z = np.random.default_rng(seed).normal(size=(5, 4)) * size
    p = softmax(z)
    assert np.isfinite(log_softmax(z)).all()
    assert p.sum(axis=1) == pytest.approx(1.0)
    assert np.exp(log_softmax(z)) == pytest.approx(p, abs=1e-12)
    assert softmax(z + shift) == pytest.approx(p, abs=1e-10)
    assert softmax(torch.as_tensor(z)).numpy() == pytest.approx(p, abs=1e-12)


def test_one_logit_is_the_sigmoid_of_class_1() -> None:
    z = np.array([[-1.0], [0.0], [np.log(3.0)]])
    p = np.exp(Softmax().log_probabilities(z))
    # sigmoid(log 3) = 3 / 4
    assert p[2] == pytest.approx([0.25, 0.75])
    assert p[:, 1] == pytest.approx(1 / (1 + np.exp(-z[:, 0])))
    assert with_reference_class(np.zeros((2, 3))).shape == (2, 3)
