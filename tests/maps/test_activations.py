"""Softmax for many logits and for one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glayers.activations import log_softmax, softmax, with_reference_class
from tests.lazy import torch


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
    p = softmax(with_reference_class(z))
    # sigmoid(log 3) = 3 / 4
    assert p[2] == pytest.approx([0.25, 0.75])
    assert p[:, 1] == pytest.approx(1 / (1 + np.exp(-z[:, 0])))
    assert with_reference_class(np.zeros((2, 3))).shape == (2, 3)
