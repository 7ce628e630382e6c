"""Files that an earlier version wrote still load, and predict what they predicted."""

import json
from pathlib import Path

import numpy as np
import pytest

from glayers import load
from glayers.datasets import load_fashion_mnist

FILES = Path(__file__).parent / "files"
EXPECTED = json.loads((FILES / "expected.json").read_text())  # of the first three test rows, by the earlier version


@pytest.mark.parametrize("name", EXPECTED)
def test_an_old_file_predicts_what_it_predicted(name: str) -> None:
    calibrator = load(FILES / f"{name}.safetensors")
    logits = load_fashion_mnist().test.logits[:3, : calibrator.n_features_in_]
    np.testing.assert_allclose(calibrator.predict_proba(logits), EXPECTED[name], rtol=0, atol=1e-12)
