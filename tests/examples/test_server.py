"""The example server calibrates as the library does, whatever was fitted, and refuses bad rows."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from glayers import (
    BetaCalibration,
    GroupCalibrator,
    MultiLabelCalibrator,
    PlattScaling,
    Predictions,
    TemperatureScaling,
    VectorScaling,
)
from glayers.activations import softmax

APP = Path(__file__).parent.parent.parent / "examples" / "server" / "app.py"
RNG = np.random.default_rng(0)
Z = 3 * RNG.normal(size=(300, 3))
FITTED = VectorScaling(strength=1.0).fit_predictions(
    Predictions(Z, (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1), class_names=["cat", "dog", "owl"])
)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    return served(FITTED, tmp_path, monkeypatch)


def served(fitted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """Start the server with a calibrator."""
    fitted.save(tmp_path / "model.safetensors")
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
    assert (health["calibrator"], health["classes"], health["inputs"]) == ("vector scaling", 3, "logits")


def test_every_kind_of_calibrator_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1)
    sites = RNG.choice(["Bern", "Oslo"], 300)
    p = softmax(Z)
    several = MultiLabelCalibrator(TemperatureScaling()).fit(Z, (Z + RNG.normal(size=Z.shape) > 0).astype(int))
    groups = GroupCalibrator(TemperatureScaling()).fit(Z * np.where(sites == "Bern", 3, 1)[:, None], labels, sites)
    of_probabilities = BetaCalibration(inputs="probabilities").fit(p, labels)
    stated = PlattScaling(inputs="confidence").fit(p.max(axis=1), p.argmax(axis=1) == labels)
    new, where = Z[:4].tolist(), ["Bern", "Oslo", "Rome", "Bern"]
    served_and_expected: list[tuple[Any, dict[str, Any], Any]] = [
        (several, {"logits": new}, several.predict_proba(new)),
        (groups, {"logits": new, "groups": where}, groups.predict_proba(new, where)),
        (of_probabilities, {"probabilities": p[:4].tolist()}, of_probabilities.predict_proba(p[:4])),
        (stated, {"confidence": [0.5, 0.9]}, stated.predict_proba([0.5, 0.9])),
    ]
    for fitted, request, expected in served_and_expected:
        client = served(fitted, tmp_path, monkeypatch)
        answer = client.post("/calibrate", json=request)
        assert answer.status_code == 200, answer.text
        np.testing.assert_allclose(answer.json()["probabilities"], expected, atol=1e-12)
        health = client.get("/health").json()
        assert {health["inputs"], *["groups"] * health["by_group"]} == request.keys()
        refused = client.post("/calibrate", json={"logits": new, "groups": where, "confidence": [0.5]})
        assert refused.status_code == 422
        assert "expected ['" in refused.text


def test_the_image_is_built_from_files_of_the_repository(tmp_path: Path) -> None:
    """What the Containerfile copies before it installs is enough for a wheel; the image itself needs a registry."""
    root = APP.parent.parent.parent
    copied = re.findall(r"^COPY (.+) (\S+)$", (APP.parent / "Containerfile").read_text(), re.MULTILINE)
    for names, target in copied:
        for name in names.split():
            if target.startswith("/source"):
                copy = shutil.copytree if (root / name).is_dir() else shutil.copy
                copy(root / name, tmp_path / name)
            elif "$" not in name:
                assert (root / name).is_file()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheels")]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert len(list((tmp_path / "wheels").glob("glayers-*.whl"))) == 1


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
