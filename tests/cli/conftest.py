"""A folder with small files, named as in the help and the guides."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glayers import Predictions, TemperatureScaling
from glayers.comparison import Comparison
from glayers.predictions.contents import Contents
from glayers.predictions.formats import to_bytes
from glayers.report.page import write_report
from tests.strategies import Numbers

NAMES = ("cat", "dog", "owl", "bee")


def overconfident(rows: int, seed: int) -> tuple[Numbers, Numbers]:
    """Logits of four classes, too large by a factor of 3, and labels drawn from the correct ones."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, 4)) * 2
    return 3 * logits, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


@pytest.fixture(autouse=True)
def quick_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands print a test of calibration with most scores, here of 99 draws; `tests/metrics` tests the test."""
    monkeypatch.setattr("glayers.metrics.calibration_tests._DRAWS", 99)


@pytest.fixture
def quick_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports from few resamples and rows, for tests that do not look at their numbers."""

    def quick(found: Comparison, path: Path, **settings: Any) -> None:
        few = replace(found, test=found.test.take(np.arange(min(300, len(found.test)))))
        write_report(few, path, **{**settings, "n_resamples": 20})

    monkeypatch.setattr("glayers.report.page.write_report", quick)


@pytest.fixture(scope="session")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that every test gets a copy of."""
    folder = tmp_path_factory.mktemp("small_files")
    calibration, test = overconfident(90, 0), overconfident(150, 1)
    for name, (logits, labels) in {"calibration": calibration, "test": test}.items():
        np.savez(folder / f"{name}.npz", logits=logits, labels=labels, class_names=np.array(NAMES))
        (folder / f"{name}.csv").write_bytes(to_bytes(Contents(logits=logits, labels=labels), ".csv"))
    (folder / "new.csv").write_bytes(to_bytes(Contents(logits=test[0]), ".csv"))
    np.savez(folder / "both.npz", z_val=calibration[0], y_val=calibration[1], z_test=test[0], y_test=test[1])
    n = len(NAMES)
    (folder / "costs.csv").write_text("\n".join(",".join(str(int(a != c)) for a in range(n)) for c in range(n)))
    np.save(folder / "logits.npy", calibration[0])
    np.save(folder / "labels.npy", calibration[1])
    fitted = TemperatureScaling().fit_predictions(Predictions(*calibration, class_names=NAMES))
    fitted.save(folder / "model.safetensors")
    scores = Contents(probabilities=fitted.predict_proba(test[0]), labels=test[1], class_names=NAMES)
    (folder / "calibrated.npz").write_bytes(to_bytes(scores, ".npz"))
    for name, (logits, labels) in {"logits": test, "calibration": calibration, "test": test}.items():
        (folder / name).mkdir()
        for half, rows in enumerate((slice(0, 40), slice(40, None))):
            contents = Contents(logits=logits[rows], labels=labels[rows], class_names=NAMES)
            file = folder / name / f"2026-{half + 1:02d}.parquet"
            file.write_bytes(to_bytes(contents, ".parquet"))
    return folder


@pytest.fixture
def folder(small_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(small_files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path
