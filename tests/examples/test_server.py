"""The example server calibrates as the library does, and refuses bad rows."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from glayers import Predictions, VectorScaling

APP = Path(__file__).parent.parent.parent / "examples" / "server" / "app.py"
RNG = np.random.default_rng(0)
Z = 3 * RNG.normal(size=(300, 3))
FITTED = VectorScaling(strength=1.0).fit_predictions(
    Predictions(Z, (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1), class_names=["cat", "dog", "owl"])
)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    FITTED.save(tmp_path / "model.safetensors")
    monkeypatch.setenv("MODEL", str(tmp_path / "model.safetensors"))
    spec = importlib.util.spec_from_file_location("example_server", APP)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "example_server", module)
    spec.loader.exec_module(module)
    return TestClient(module.app)


def test_rows_are_calibrated(client: TestClient) -> None:
    answer = client.post("/calibrate", json={"logits": Z[:5].tolist()})
    assert answer.status_code == 200
    assert answer.json()["class_names"] == ["cat", "dog", "owl"]
    np.testing.assert_allclose(answer.json()["probabilities"], FITTED.predict_proba(Z[:5]), atol=1e-12)
    health = client.get("/health").json()
    assert (health["calibrator"], health["classes"]) == ("vector scaling", 3)


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([[1.0, 2.0]], "fitted on 3 logits per row"),
        ([[1.0, 2.0, 3.0], [1.0]], "cannot be converted to NumPy"),
        ([], "at least 1"),
        ("x", ""),
    ],
)
def test_bad_rows_are_refused_with_the_reason(client: TestClient, rows: object, reason: str) -> None:
    answer = client.post("/calibrate", json={"logits": rows})
    assert answer.status_code == 422
    assert reason in answer.text


def test_the_server_does_not_import_what_only_fits_need(tmp_path: Path) -> None:
    FITTED.save(tmp_path / "model.safetensors")
    code = "import app, sys; print([m for m in ('torch', 'scipy', 'sklearn', 'pandas') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=APP.parent,
        env={**os.environ, "MODEL": str(tmp_path / "model.safetensors")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"
