"""Saved calibrators, damaged or forged with a fitting checksum: each is a `BadFile`, or it predicts as it should."""

import inspect
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from glayers import CALIBRATORS, Calibrator, GlayersError, load
from tests.calibrators.artifact_files import Arrays, Facts, contents, write
from tests.contracts.calibrators import FAST
from tests.files import write_anew
from tests.fuzz.mutations import Random, changed_tree, damaged, pick
from tests.fuzz.readers import check_message

QUICK = [name for name in CALIBRATORS if name != "auto"]
ROWS = np.random.default_rng(0).normal(size=(5, 4)) * np.array([[0.0], [1.0], [30.0], [1e4], [1e-300]])


@cache
def sound(name: str) -> bytes:
    """Return the bytes of a fitted calibrator's file."""
    import tempfile

    rng = np.random.default_rng(3)
    z = rng.normal(size=(60, 4))
    with warnings.catch_warnings(action="ignore"), tempfile.TemporaryDirectory() as folder:
        CALIBRATORS[name](**FAST.get(name, {})).fit(3 * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)).save(
            Path(folder) / "a"
        )
        return (Path(folder) / "a").read_bytes()


def changed_arrays(arrays: Arrays, random: Random) -> Arrays:
    changed = dict(arrays)
    name = pick(sorted(changed), random) if changed else "0.factor"
    array = changed.get(name, np.ones(()))
    values = [0.0, -1.0, 1e308, -1e308, 1e150, 5e-324, np.nan, np.inf, 1.0 + 1e-12, 1e-6]
    match random.integers(6):
        case 0:
            changed[name] = np.full(array.shape, pick(values, random))
        case 1:
            flat = array.copy().reshape(-1)
            flat[int(random.integers(max(1, flat.size))) :: 7] = pick(values, random)
            changed[name] = flat.reshape(array.shape)
        case 2:
            changed[name] = np.ones(
                pick([(), (1,), (4,), (0,), (4, 4), (1, 1, 1), (*array.shape, 1), (2, *array.shape)], random)
            )
        case 3:
            changed.pop(name, None)
        case 4:
            changed[pick(["0.factor", "9.shift", "", "a", "0.branches.0.0.share"], random)] = array
        case _:
            changed[name] = np.ascontiguousarray(np.flip(array)) if array.ndim else np.array(-float(array))
    return changed


def forged(path: Path, name: str, random: Random) -> None:
    """Write a file with changed facts or arrays, or those of two calibrators mixed, and a fitting checksum."""
    write_anew(path, sound(name))
    facts, arrays = contents(path)
    facts.pop("sha256")
    for _ in range(random.integers(1, 3)):
        match random.integers(4):
            case 0 | 1:
                facts = changed_tree(facts, random)
            case 2:
                arrays = changed_arrays(arrays, random)
            case _:
                facts, arrays = mixed(path, facts, arrays, random)
    write(path, facts, arrays)


def mixed(path: Path, facts: Facts, arrays: Arrays, random: Random) -> tuple[Facts, Arrays]:
    """Take some facts from another calibrator's file: its class with these settings, or its map in this class."""
    write_anew(path, sound(pick(QUICK, random)))
    others, other_arrays = contents(path)
    if random.random() < 0.5:
        return facts | {"structure": others["structure"]}, other_arrays
    names = [name for name in ("calibrator", "settings", "kept", "diagnostics") if random.random() < 0.7]
    return facts | {name: others[name] for name in names}, arrays


def check_artifact(random: Random, folder: Path) -> str:
    """Load one damaged file; return what happened, or raise what should not come out."""
    path, name = folder / "a.safetensors", pick(QUICK, random)
    if random.random() < 0.3:
        write_anew(path, damaged(sound(name), sound(pick(QUICK, random)), random))
    else:
        forged(path, name, random)
    try:
        loaded = load(path)
    except GlayersError as error:
        check_message(error, str(path))
        return "refused"
    check_loaded(loaded, path)
    return "loaded"


def check_loaded(loaded: Calibrator, path: Path) -> None:
    """A file that loads predicts, describes itself, and saves again."""
    logits = ROWS[:, : loaded.n_features_in_] if loaded.n_features_in_ <= 4 else np.zeros((2, loaded.n_features_in_))
    try:
        probabilities = loaded.predict_proba(logits)
        assert np.isfinite(probabilities).all()
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    except GlayersError:
        pass  # logits too large for this map, and it says so
    described: list[Any] = [loaded, loaded.diagnostics_, loaded.diagnostics_.to_dict()]
    learned = {name for name in dir(loaded) if name.endswith("_") and not name.startswith("_")}
    described += [value for name in sorted(learned) if (value := public(loaded, name)) is not None]
    for value in described:
        assert repr(value) + str(value)
    loaded.save(path)


def public(loaded: Calibrator, name: str) -> Any:
    """Return a learned attribute; of those that a file does not keep there is none."""
    kept = isinstance(inspect.getattr_static(type(loaded), name, None), property) or name in vars(loaded)
    return getattr(loaded, name) if kept else None
