"""Files of format version 1 load, and predict what they predicted when they were written.

`python -m tests.serving.test_old_files` writes them again: only while no version that reads them has been released.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glayers import AutoCalibrator, IsotonicCalibration, MultiLabelCalibrator, TemperatureScaling, load
from glayers.datasets import load_fashion_mnist

FILES = Path(__file__).parent / "files"
EXPECTED = json.loads((FILES / "expected.json").read_text())  # of the first three test rows, by the code that wrote it


@pytest.mark.parametrize("name", EXPECTED)
def test_an_old_file_predicts_what_it_predicted(name: str) -> None:
    calibrator = load(FILES / f"{name}.safetensors")
    logits = load_fashion_mnist().test.logits[:3, : calibrator.n_features_in_]
    np.testing.assert_allclose(calibrator.predict_proba(logits), EXPECTED[name], rtol=0, atol=1e-12)


def fitted() -> dict[str, Any]:
    """Return one calibrator for each kind of file."""
    rows = load_fashion_mnist().calibration.take(np.arange(300))
    several = np.eye(10)[rows.labels][:, :2].astype(int)
    return {
        "auto": AutoCalibrator(time_budget=0).fit_predictions(rows),
        "isotonic": IsotonicCalibration().fit_predictions(rows),
        "adapted": TemperatureScaling().fit_predictions(rows).adapt(frequencies=np.arange(1, 11) / 55),
        "labels": MultiLabelCalibrator(TemperatureScaling()).fit(rows.logits[:, :2], several),
    }


if __name__ == "__main__":
    expected = {}
    warnings.simplefilter("ignore")
    for name, calibrator in fitted().items():
        calibrator.save(FILES / f"{name}.safetensors")
        logits = load_fashion_mnist().test.logits[:3, : calibrator.n_features_in_]
        expected[name] = calibrator.predict_proba(logits).tolist()
    (FILES / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
