"""Loading without scikit-learn: what is imported, what predicts, and how the full estimator comes on demand."""

import copy
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from glayers import CALIBRATORS, Calibrator, MultiLabelCalibrator, TemperatureScaling, VectorScaling
from glayers.loading import LoadedCalibrator
from glayers.serving.artifact import read
from tests.contracts.calibrators import CLASSES, fitted, rows, tilted

# `make test` builds it: the wheel beside NumPy, safetensors and array-api-compat.
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
    assert not isinstance(loaded, dict) and "loaded from a file" in repr(loaded)
    assert asked == [], asked
    try:
        loaded.fit(z, [0])
    except ModuleNotFoundError as error:
        assert "only predicting works without" in str(error), error
    else:
        raise AssertionError("fits without scikit-learn")
    asked.clear()
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


@pytest.fixture
def light(tmp_path: Path) -> Calibrator:
    """A calibrator as a fresh process loads it."""
    fitted("temperature").save(tmp_path / "t.safetensors")
    loaded: Calibrator = LoadedCalibrator(*read(tmp_path / "t.safetensors"))  # type: ignore[assignment]
    return loaded


def test_a_loaded_calibrator_becomes_the_estimator_that_was_saved(light: Calibrator, tmp_path: Path) -> None:
    assert type(light) is LoadedCalibrator
    assert isinstance(light, TemperatureScaling)
    assert not isinstance(light, VectorScaling)
    assert light.temperature_ == fitted("temperature").temperature_
    assert type(light) is TemperatureScaling
    assert vars(light).keys() == vars(fitted("temperature")).keys() - {"out_of_fold_"}
    light.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "t.safetensors").read_bytes()


def test_fitting_a_loaded_calibrator_changes_its_predictions(light: Calibrator) -> None:
    z, labels = tilted()
    before = light.predict_proba(z)
    assert light.fit(z / 3, labels) is light
    assert not np.allclose(light.predict_proba(z), before)


def test_a_loaded_calibrator_can_be_copied_pickled_cloned_and_changed(light: Calibrator) -> None:
    z = tilted()[0]
    for same in (copy.copy(light), copy.deepcopy(light), pickle.loads(pickle.dumps(light))):
        assert type(same) is LoadedCalibrator
        assert np.array_equal(same.predict_proba(z), light.predict_proba(z))
    assert repr(clone(light)) == "TemperatureScaling()"
    other = copy.copy(light)
    other.class_names_ = tuple("abcd")
    assert other.class_names_ == tuple("abcd")
    assert light.class_names_ is None


def test_an_unknown_attribute_is_an_attribute_error(light: Calibrator) -> None:
    assert not hasattr(light, "__array__")
    assert type(light) is LoadedCalibrator, "a look for a protocol imports nothing"
    assert not hasattr(light, "no_such_attribute")


def test_load_returns_the_estimator_if_it_is_imported_already(tmp_path: Path) -> None:
    import glayers

    fitted("vector").save(tmp_path / "v.safetensors")
    assert type(glayers.load(tmp_path / "v.safetensors")) is VectorScaling
