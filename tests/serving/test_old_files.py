"""Files of format version 1 load, and predict what they predicted when they were written.

`python -m tests.serving.test_old_files` writes those that are missing.
"""

import json
import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glayers import (
    AutoCalibrator,
    GroupCalibrator,
    IsotonicCalibration,
    MultiLabelCalibrator,
    PlattScaling,
    TemperatureScaling,
    load,
)
from glayers.datasets import load_fashion_mnist
from glayers.serving.artifact import FORMAT

FILES = Path(__file__).parent / "files"
EXPECTED = json.loads((FILES / "expected.json").read_text())  # of the first three test rows, by the code that wrote it


@pytest.mark.parametrize("name", EXPECTED)
def test_an_old_file_predicts_what_it_predicted(name: str) -> None:
    np.testing.assert_allclose(predicted(load(FILES / f"{name}.safetensors")), EXPECTED[name], rtol=0, atol=1e-12)


def predicted(calibrator: Any) -> Any:
    """Return probabilities of three rows, as the calibrator takes them."""
    logits = load_fashion_mnist().test.logits[:3, : calibrator.n_features_in_]
    if isinstance(calibrator, GroupCalibrator):
        return calibrator.predict_proba(logits, ["0", "1", "2"])
    if calibrator.inputs == "confidence":
        return calibrator.predict_proba([0.25, 0.5, 1.0])
    return calibrator.predict_proba(logits)


def test_there_is_a_file_of_each_format_and_kind() -> None:
    stated = {re.search(rb'"format\\":(\d+)', path.read_bytes()) for path in FILES.glob("*.safetensors")}
    assert {int(found[1]) for found in stated if found} == set(range(1, FORMAT + 1))
    kinds: set[type] = {type(load(path)) for path in FILES.glob("*.safetensors")}
    expected: set[type] = {GroupCalibrator, MultiLabelCalibrator, TemperatureScaling, PlattScaling}
    assert expected <= kinds


def fitted() -> dict[str, Any]:
    """Return one calibrator for each kind of file."""
    rows = load_fashion_mnist().calibration.take(np.arange(300))
    correct = rows.logits.argmax(axis=1) == rows.labels
    several = np.eye(10)[rows.labels][:, :2].astype(int)
    return {
        "auto": AutoCalibrator(time_budget=0).fit_predictions(rows),
        "isotonic": IsotonicCalibration().fit_predictions(rows),
        "adapted": TemperatureScaling().fit_predictions(rows).adapt(frequencies=np.arange(1, 11) / 55),
        "groups": GroupCalibrator(TemperatureScaling()).fit(rows.logits, rows.labels, np.arange(300) % 2),
        "confidence": PlattScaling(inputs="confidence").fit(rows.probabilities().max(axis=1), correct),
        "labels": MultiLabelCalibrator(TemperatureScaling()).fit(rows.logits[:, :2], several),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for name, calibrator in fitted().items():
        if name not in EXPECTED:
            calibrator.save(FILES / f"{name}.safetensors")
            EXPECTED[name] = predicted(calibrator).tolist()
    (FILES / "expected.json").write_text(json.dumps(EXPECTED, indent=1) + "\n")
