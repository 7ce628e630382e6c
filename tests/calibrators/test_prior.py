"""A shift per class that corrects class frequencies."""

import numpy as np
import pytest

from glayers import PriorCorrection
from glayers.activations import softmax


def test_labels_with_other_frequencies_are_recovered() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(20_000, 3))
    shift = np.array([1.0, 0.0, -1.0])
    labels = (z + shift + rng.gumbel(size=z.shape)).argmax(axis=1)
    p = PriorCorrection().fit(z, labels).predict_proba(z)
    truth = softmax(z + shift)
    assert np.abs(p - truth).mean() < 0.5 * np.abs(softmax(z) - truth).mean()
    assert p.sum(axis=1) == pytest.approx(1.0)
