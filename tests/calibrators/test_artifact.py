"""Saved calibrators: what a file holds, that nothing is lost on the way, and what is refused before it is written."""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glayers import (
    CALIBRATORS,
    AutoCalibrator,
    BadFile,
    GLayers,
    GlayersError,
    MatrixScaling,
    Predictions,
    SharedGLayers,
    TemperatureScaling,
    VectorScaling,
    load,
)
from glayers.calibrators import Calibrator
from glayers.calibrators.base import Fitted
from glayers.maps import Chain, Scale
from tests.calibrators.artifact_files import Facts, contents
from tests.contracts.calibrators import fitted, make, tilted


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A file of g-layers: a branch with members inside."""
    fitted("g-layers").save(tmp_path / "g.safetensors")
    return tmp_path / "g.safetensors"


# What a file holds.


def test_a_file_holds_arrays_by_name_and_all_else_as_json(tmp_path: Path) -> None:
    z, labels = tilted()
    calibrator = GLayers(max_epochs=3, n_folds=2, learning_rate=(0.03,), random_state=0)
    calibrator.fit_predictions(Predictions(z, labels, class_names=["owl", "élan", "wren", "jay"]))
    calibrator.save(tmp_path / "g.safetensors")
    facts, arrays = contents(tmp_path / "g.safetensors")
    assert facts["format"] == 1
    assert facts["calibrator"] == "GLayers"
    assert facts["settings"] == calibrator.get_params() | {"learning_rate": [0.03]}
    layers = {"Stack": [[], [{"Floor": [["Centre", "Dense", "Relu", "Dense"]]}]]}
    assert facts["structure"] == ["Reference", "Scale", "LogSoftmax", layers]
    assert (facts["n_logits"], facts["n_classes"]) == (4, 4)
    assert facts["class_names"] == ["owl", "élan", "wren", "jay"]
    assert facts["diagnostics"]["loss_after"] == calibrator.diagnostics_.loss_after
    assert facts["versions"]["numpy"] == np.__version__
    assert arrays.keys() == calibrator.map_.parameters().keys()
    assert arrays["3.branches.1.0.branches.0.1.weight"].shape == (2, 4, 10)  # members, logits, hidden units
    assert all(np.array_equal(arrays[name], value) for name, value in calibrator.map_.parameters().items())
    assert load(tmp_path / "g.safetensors").class_names_ == ("owl", "élan", "wren", "jay")


def test_what_is_kept_by_name_keeps_its_order(tmp_path: Path) -> None:
    order: Any = copy(fitted("shared-g-layers"))
    order.gain_ = {"vector": 0.75, "g-layers": 0.25, "text": "zwei\nZeilen \u2028 \ud800"}
    order.save(tmp_path / "a")
    again = load(tmp_path / "a").gain_
    assert again == order.gain_
    assert list(again) == ["vector", "g-layers", "text"]


class Columnwise(MatrixScaling):
    """A fit whose matrix lies in memory column by column, and is half as precise."""

    def _fit(self, given: Predictions) -> Fitted:
        fitted = super()._fit(given)
        chain = fitted.map.map_parameters(lambda value: np.asarray(value, np.float32, order="F"))
        return replace(fitted, map=chain)


def test_a_fit_lays_its_numbers_out_as_a_file_does() -> None:
    for value in Columnwise(strength=1.0).fit(*tilted()).map_.parameters().values():
        assert value.dtype == np.float64
        assert value.flags.c_contiguous


def test_numbers_come_back_as_they_were_whatever_order_they_lay_in(tmp_path: Path) -> None:
    z, labels = tilted()
    calibrator = MatrixScaling(strength=1.0).fit(z, labels)
    calibrator.map_ = calibrator.map_.map_parameters(lambda value: np.asarray(value, order="F"))
    calibrator.save(tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    for name, value in calibrator.map_.parameters().items():
        assert np.array_equal(loaded.map_.parameters()[name], value)


def test_what_a_subclass_keeps_comes_back_and_the_rest_does_not(tmp_path: Path) -> None:
    fitted("shared-g-layers").save(tmp_path / "o.safetensors")
    fitted("g-layers").save(tmp_path / "g.safetensors")
    kept, plain = load(tmp_path / "o.safetensors"), load(tmp_path / "g.safetensors")
    assert isinstance(kept, SharedGLayers)
    assert kept.gain_ == fitted("shared-g-layers").gain_
    assert "out_of_fold_" not in vars(plain)


@pytest.mark.parametrize(
    "given",
    [
        {"strength": (0.5, np.float32(2.0)), "penalty": "odir"},
        {"strength": np.array([0.5, 2.0]), "penalty": "odir"},
        {"strength": np.inf},
        {"strength": np.float64(0.25), "random_state": np.int64(3), "n_folds": np.uint8(4)},
    ],
    ids=str,
)
def test_numbers_of_numpy_and_pairs_are_settings_too(tmp_path: Path, given: Facts) -> None:
    saved = MatrixScaling(**given).fit(*tilted())
    saved.save(tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    assert {name: np.asarray(value).tolist() for name, value in loaded.get_params().items()} == {
        name: np.asarray(value).tolist() for name, value in saved.get_params().items()
    }
    assert np.array_equal(loaded.fit(*tilted()).predict_proba(tilted()[0]), saved.predict_proba(tilted()[0]))


def test_another_process_without_torch_loads_predicts_and_saves_the_same_bytes_and_fits_name_the_extra(
    tmp_path: Path,
) -> None:
    z, _ = tilted()
    np.save(tmp_path / "z.npy", z)
    for name in CALIBRATORS:
        fitted(name).save(tmp_path / f"{name}.safetensors")
        np.save(tmp_path / f"{name}.npy", fitted(name).predict_proba(z))
    code = (
        "import pathlib, sys\n"
        "asked = []\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] != 'torch': return None\n"
        "        asked.append(name)\n"
        "        raise ModuleNotFoundError('No module named torch', name='torch')\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import glayers, numpy\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "z = numpy.load(folder / 'z.npy')\n"
        "for file in sorted(folder.glob('*.safetensors')):\n"
        "    calibrator = glayers.load(file)\n"
        "    assert calibrator.predict_proba(z).tobytes() == numpy.load(file.with_suffix('.npy')).tobytes(), file\n"
        "    calibrator.save(folder / 'again')\n"
        "    assert (folder / 'again').read_bytes() == file.read_bytes(), file\n"
        "    print(file.stem)\n"
        "assert not asked, asked\n"
        "for name in ('g-layers', 'g-layers-paper', 'temperature'):\n"
        "    calibrator = glayers.CALIBRATORS[name]()\n"
        "    try: calibrator.fit([[2.0, 0.0, 1.0], [0.0, 2.0, -1.0], [2.0, 0.0, 0.5]], [0, 1, 1])\n"
        "    except ModuleNotFoundError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONHASHSEED": "1"},
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert set(said[: len(CALIBRATORS)]) == set(CALIBRATORS)
    assert said[len(CALIBRATORS) :] == ['torch is missing: pip install "glayers[fit]"'] * 2


# What no file can hold is said before anything is written.


class Quiet(TemperatureScaling):
    """Not one of ours."""


def with_map(calibrator: Calibrator, chain: Chain) -> Calibrator:
    calibrator.map_ = chain
    return calibrator


UNSAVABLE: dict[str, tuple[Callable[[], Calibrator], str]] = {
    "a generator": (
        lambda: VectorScaling(strength=1.0).set_params(random_state=np.random.RandomState(0)),
        "the setting random_state is a RandomState.*set_params",
    ),
    "a class of one's own": (Quiet, "Quiet is not registered, so `load` would not find it"),
}


@pytest.mark.parametrize("kind", UNSAVABLE)
def test_what_cannot_be_saved_is_refused_and_the_old_file_stays(tmp_path: Path, kind: str) -> None:
    calibrator, complaint = UNSAVABLE[kind][0]().fit(*tilted()), UNSAVABLE[kind][1]
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"old")
    with pytest.raises(GlayersError, match=complaint):
        calibrator.save(path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"a.safetensors": b"old"}


def test_the_way_out_leads_out(tmp_path: Path) -> None:
    z, labels = tilted()
    calibrator = VectorScaling(strength=1.0).set_params(random_state=np.random.RandomState(0)).fit(z, labels)
    calibrator.set_params(random_state=None).save(tmp_path / "v.safetensors")
    assert np.array_equal(load(tmp_path / "v.safetensors").predict_proba(z), calibrator.predict_proba(z))


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda c: with_map(c, Chain((Scale(np.array(np.nan)),))), "0.factor must hold finite numbers"),
        (lambda c: with_map(c, Chain((Scale(np.ones(3)),))), "0.factor must hold finite numbers of shape"),
        (lambda c: setattr(c, "class_names_", ("a", "b")), "4 different names; got"),
    ],
    ids=["nan", "shape", "names"],
)
def test_what_could_not_be_loaded_is_not_saved(
    tmp_path: Path, spoil: Callable[[Calibrator], object], complaint: str
) -> None:
    calibrator = TemperatureScaling().fit(*tilted())
    spoil(calibrator)
    with pytest.raises(GlayersError, match=complaint):
        calibrator.save(tmp_path / "a.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_and_an_interrupt_leave_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: Path
) -> None:
    before = saved.read_bytes()
    for happening in (OSError(28, "No space left on device"), KeyboardInterrupt()):

        def fail(_: int, happening: BaseException = happening) -> None:
            raise happening

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(BadFile if isinstance(happening, OSError) else KeyboardInterrupt):
            fitted("temperature").save(saved)
        assert [file.name for file in tmp_path.iterdir()] == [saved.name]
        assert saved.read_bytes() == before


@pytest.mark.thorough
def test_the_same_fit_gives_the_same_bytes_in_another_process(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from tests.contracts.calibrators import fitted\n"
        "for name in sys.argv[2:]:\n"
        "    fitted(name).save(f'{sys.argv[1]}/{name}')\n"
    )
    names = ["temperature", "matrix", "g-layers", "auto"]
    environment = os.environ | {"PYTHONHASHSEED": "2", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, tmp_path, *names], check=True, env=environment)
    for name in names:
        with warnings.catch_warnings(action="ignore"):
            make(name).fit(*tilted()).save(tmp_path / "here")
        assert (tmp_path / "here").read_bytes() == (tmp_path / name).read_bytes(), name
    loaded = load(tmp_path / "auto")
    assert loaded.diagnostics_.seconds is None  # it differs between runs, so a file does not keep it
    assert isinstance(loaded, AutoCalibrator)
    assert {row[-1] for row in loaded.selection_.table()[1:]} == {"-"}
