"""What loading and predicting import, and what a light installation can do without scikit-learn and torch."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from glayers import CALIBRATORS, MultiLabelCalibrator
from tests.contracts.calibrators import CLASSES, fitted, rows, tilted

# `make test` builds it: the wheel and its dependencies, without extras.
SERVING = Path(__file__).parents[2] / ".venv" / "serving" / "bin" / "python"
# In the environment of the tests, this makes all other libraries missing.
BLOCK = """
import sys
allowed = {"numpy", "safetensors", "array_api_compat", "glayers"} | sys.stdlib_module_names
allowed |= {"coverage", "org"}  # the first measures this test, and copy of the standard library asks for the second
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in allowed:
            asked.append(name)
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""
# Loads and predicts with every file of a folder: many rows, one row, and none.
SERVER = """
import pathlib, sys
asked = []
BLOCK
import numpy
import glayers
for file in sorted(pathlib.Path(sys.argv[1]).glob("*.safetensors")):
    loaded, z, expected = glayers.load(file), *(numpy.load(file.with_suffix(end)) for end in (".z.npy", ".npy"))
    for some in (slice(None), slice(1), slice(0)):
        found = loaded.predict_proba(z[some])
        assert found.shape == expected[some].shape, file
        assert abs(found - expected[some]).max(initial=0.0) <= 1e-12, file
    assert (loaded.predict(z) == expected.argmax(axis=1)).all(), file
    assert loaded.diagnostics_.rows and loaded.n_parameters_ and len(loaded.classes_) == expected.shape[1]
    assert type(loaded).__name__ in repr(loaded)
    assert asked == [], asked
    print(file.stem)
several = glayers.load(sys.argv[1] + "/several.labels")
found, expected = several.predict_proba(numpy.load(sys.argv[1] + "/z.npy")), numpy.load(sys.argv[1] + "/several.npy")
assert abs(found - expected).max() <= 1e-12 and asked == [], asked
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every calibrator with rows and what it predicts for them: random logits to 1e4, ties, masked classes."""
    folder = tmp_path_factory.mktemp("files")
    for name in CALIBRATORS:
        for columns in (1, CLASSES):
            file, z = folder / f"{name}-{columns}.safetensors", rows(columns)
            fitted(name, columns).save(file)
            np.save(file.with_suffix(".z.npy"), z)
            np.save(file.with_suffix(".npy"), fitted(name, columns).predict_proba(z))
    z = tilted()[0]
    several = MultiLabelCalibrator().fit(z, z > 0)
    several.save(folder / "several.labels")
    np.save(folder / "z.npy", z)
    np.save(folder / "several.npy", several.predict_proba(z))
    return folder


def serve(python: str | Path, folder: Path, block: str) -> None:
    code = SERVER.replace("BLOCK", block)
    done = subprocess.run([python, "-c", code, folder], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2 * len(CALIBRATORS)


def test_loading_and_predicting_import_numpy_and_safetensors_only(files: Path) -> None:
    serve(sys.executable, files, BLOCK)


@pytest.mark.skipif(not SERVING.exists(), reason="`make test` builds this environment")
def test_an_environment_without_torch_and_scikit_learn_predicts_the_same(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)  # the wheel, not the checkout
    serve(SERVING, files, "")


# Fits, saves, loads, scores and compares, as `glayers demo` does.
LIGHT = """
import sys
asked = []
BLOCK
import glayers
from glayers.cli import app
calibration, test = glayers.datasets.load_fashion_mnist()
few = calibration.take(slice(300))
for name in ("vector", "isotonic"):
    fitted = glayers.CALIBRATORS[name]().fit_predictions(few)
    fitted.save(sys.argv[1] + "/a")
    again = glayers.load(sys.argv[1] + "/a")
    assert (again.predict_proba(test.logits[:9]) == fitted.predict_proba(test.logits[:9])).all()
print(glayers.compare(few, test.take(slice(500)), ["temperature", "beta"]))
try:
    glayers.TemperatureScaling().predict_proba(test.logits)
except glayers.GlayersError as error:
    assert "call fit first" in str(error)
try:
    glayers.CalibratedClassifier
except ModuleNotFoundError as error:
    print(error)
assert "sklearn" not in sys.modules and "torch" not in sys.modules
"""
# In the environment of the tests, this makes the extras missing.
NO_EXTRAS = """
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("sklearn", "torch", "pandas", "pyarrow", "matplotlib", "onnx"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
"""


def use(python: str | Path, folder: Path, block: str) -> None:
    code = LIGHT.replace("BLOCK", block)
    command = [python, "-W", "ignore", "-c", code, folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert 'sklearn is missing: pip install "glayers[sklearn]"' in done.stdout


def test_fits_files_and_comparisons_need_no_extra(tmp_path: Path) -> None:
    use(sys.executable, tmp_path, NO_EXTRAS)


@pytest.mark.skipif(not SERVING.exists(), reason="`make test` builds this environment")
def test_a_light_installation_fits_saves_and_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    use(SERVING, tmp_path, "")


@pytest.mark.thorough
@pytest.mark.skipif(not SERVING.exists(), reason="`make test` builds this environment")
def test_the_demo_runs_in_a_light_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    command = [str(SERVING.parent / "glayers"), "demo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
