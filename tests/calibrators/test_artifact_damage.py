"""Damaged, edited and foreign files: each is a `BadFile` that names file and problem, and nothing else happens."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from glayers import BadFile, GlayersError, load
from glayers.files import MAX_BYTES
from glayers.serving.artifact import METADATA
from tests.calibrators.artifact_files import Arrays, Facts, contents, write
from tests.contracts.calibrators import fitted, tilted
from tests.files import write_anew


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A file of g-layers: a branch with members inside."""
    fitted("g-layers").save(tmp_path / "g.safetensors")
    return tmp_path / "g.safetensors"


def renamed(facts: Facts, old: str, new: str) -> Facts:
    return {new if name == old else name: value for name, value in facts.items()}


# Each turns the facts and arrays of a sound file of g-layers into those of an unsound one, signed anew.
EDITS: dict[str, tuple[Callable[[Facts, Arrays], tuple[Any, Arrays]], str]] = {
    "newer": (lambda f, a: (f | {"format": 2}, a), "has format 2, and this glayers reads format 1: pip install"),
    "format 0": (lambda f, a: (f | {"format": 0}, a), "has format"),
    "no format": (lambda f, a: (renamed(f, "format", "version"), a), "has format"),
    "calibrator": (
        lambda f, a: (f | {"calibrator": "os.system"}, a),
        "unknown calibrator 'os.system'",
    ),
    "abstract": (lambda f, a: (f | {"calibrator": "Calibrator"}, a), "unknown calibrator"),
    "no text": (lambda f, a: (f | {"calibrator": 3}, a), "unknown calibrator 3"),
    "other": (lambda f, a: (f | {"calibrator": "TemperatureScaling"}, a), "TemperatureScaling has the settings inputs"),
    "setting gone": (
        lambda f, a: (f | {"settings": renamed(f["settings"], "n_folds", "folds")}, a),
        "GLayers has the settings",
    ),
    "more settings": (lambda f, a: (f | {"settings": f["settings"] | {"magic": 1}}, a), "GLayers has the settings"),
    "settings": (lambda f, a: (f | {"settings": []}, a), "cannot be read"),
    "fact gone": (lambda f, a: (renamed(f, "kept", "keep"), a), "cannot be read .*'kept'"),
    "no kept": (lambda f, a: (f | {"kept": None}, a), "cannot be read"),
    "no logits": (lambda f, a: (f | {"n_logits": 0, "n_classes": 2}, a), "0 logits, 2 classes"),
    "logits": (lambda f, a: (f | {"n_logits": 5, "n_classes": 5}, a), "5 classes and its label counts"),
    "many logits": (lambda f, a: (f | {"n_logits": 10**15, "n_classes": 10**15}, a), "and its label counts"),
    "classes": (lambda f, a: (f | {"n_classes": 3}, a), "4 logits, 3 classes and its label counts do not go together"),
    "few names": (lambda f, a: (f | {"class_names": ["a", "b", "c"]}, a), "4 different names; got"),
    "same names": (lambda f, a: (f | {"class_names": ["a"] * 4}, a), "4 different names; got"),
    "a fact of the fit": (
        lambda f, a: (f | {"diagnostics": renamed(f["diagnostics"], "rows", "row")}, a),
        "Diagnostics: an entry is missing, unknown or odd",
    ),
    "structure": (lambda f, a: (f | {"structure": ["Scale"]}, a), "'0.factor' is missing"),
    "step": (lambda f, a: (f | {"structure": [*f["structure"], "Eval"]}, a), "unknown step 'Eval'"),
    "array gone": (lambda f, a: (f, {k: v for k, v in a.items() if k != "1.factor"}), "'1.factor' is missing"),
    "more arrays": (lambda f, a: (f, a | {"9.factor": np.ones(())}), "no step has an array '9.factor'"),
    "shape": (
        lambda f, a: (f, a | {"1.factor": np.ones(1)}),
        r"1.factor must hold finite numbers of shape \(\); it is \(1,\)",
    ),
    "float32": (
        lambda f, a: (f, a | {"1.factor": np.ones((), np.float32)}),
        "must be of type F64; it is F32",
    ),
    "int64": (lambda f, a: (f, a | {"1.factor": np.ones((), np.int64)}), "must be of type F64; it is I64"),
    "nan": (lambda f, a: (f, a | {"1.factor": np.array(np.nan)}), "1.factor must hold finite numbers"),
    "inf": (lambda f, a: (f, a | {"1.factor": np.array(np.inf)}), "1.factor must hold finite numbers"),
}


@pytest.mark.parametrize("kind", EDITS)
def test_an_edited_file_is_refused_with_its_name_and_the_reason(saved: Path, tmp_path: Path, kind: str) -> None:
    edit, complaint = EDITS[kind]
    path = write(tmp_path / "edited.safetensors", *edit(*contents(saved)))
    with pytest.raises(BadFile, match=complaint) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("structure", "arrays"),
    [
        ([], {}),
        (["Diagonal"], {"0.scale": np.ones(4), "0.shift": np.zeros(4)}),
        (["Scale"], {"0.factor": np.zeros(())}),
        (["Scale"], {"0.factor": np.array(-1.0)}),
    ],
)
def test_a_temperature_needs_a_map_that_has_one(tmp_path: Path, structure: list[str], arrays: Arrays) -> None:
    fitted("temperature").save(tmp_path / "t")
    facts, _ = contents(tmp_path / "t")
    with pytest.raises(BadFile, match="must end with a positive factor"):
        load(write(tmp_path / "t", facts | {"structure": structure}, arrays))


@pytest.mark.parametrize("facts", [[], None, 3, "text", [["format", 1]]], ids=str)
def test_facts_that_are_no_object_are_refused(tmp_path: Path, facts: Any) -> None:
    with pytest.raises(BadFile, match="not a calibrator of glayers"):
        load(write(tmp_path / "a", facts, {}, sign=False))


def test_json_that_is_none_or_nests_too_deep_is_refused(tmp_path: Path) -> None:
    for text in ("{", "", '{"format": 1,}', "[" * 100_000 + "]" * 100_000, '{"format": ' + "9" * 5_000 + "}"):
        save_file({}, tmp_path / "a", {METADATA: text})
        with pytest.raises(BadFile, match="cannot be read"):
            load(tmp_path / "a")


def test_a_change_that_fits_is_noticed_by_the_checksum(saved: Path, tmp_path: Path) -> None:
    facts, arrays = contents(saved)
    for changed in (
        (facts, arrays | {"1.factor": np.asarray(arrays["1.factor"] * 1.001)}),
        (facts | {"class_names": ["a", "b", "c", "d"]}, arrays),
        ({name: value for name, value in facts.items() if name != "sha256"}, arrays),
    ):
        with pytest.raises(BadFile, match="checksum"):
            load(write(tmp_path / "a", *changed, sign=False))


def test_a_safetensors_file_of_somebody_else_is_named_as_such(tmp_path: Path) -> None:
    save_file({"weight": np.ones((2, 2))}, tmp_path / "a")
    with pytest.raises(BadFile, match="but not a calibrator of glayers"):
        load(tmp_path / "a")
    save_file({"weight": np.ones((2, 2))}, tmp_path / "a", {"format": "pt"})
    with pytest.raises(BadFile, match="but not a calibrator of glayers"):
        load(tmp_path / "a")


def test_what_is_no_file_is_said_to_be_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, complaint in (
        (tmp_path / "none", "no such file"),
        (tmp_path, "is a directory"),
        ("pipe", "not a regular"),
    ):
        with pytest.raises(BadFile, match=complaint):
            load(tmp_path / path)
    with pytest.raises(BadFile, match=r"no such file|null"):
        load(f"{saved}\0")

    def refuse(*arguments: Any, **named: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(
        BadFile, match=r"cannot be opened \(Permission denied\); check its name and your right to read it"
    ):
        load(saved)


def test_a_damaged_header_is_not_called_a_text_that_needs_another_encoding(saved: Path) -> None:
    data = bytearray(saved.read_bytes())
    data[200] = 0xFF  # within the facts; no byte of UTF-8
    saved.write_bytes(data)
    with pytest.raises(BadFile, match="cut short or damaged") as caught:
        load(saved)
    assert "save it as UTF-8" not in str(caught.value)


def test_predictions_in_the_place_of_a_calibrator_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "calibration.npz"
    np.savez(path, logits=np.eye(3), labels=np.arange(3))
    with pytest.raises(BadFile, match="is not a calibrator: give a file that `glayers fit` or `save` wrote"):
        load(path)


@pytest.mark.parametrize("length", [2**40, 2**64 - 1])
def test_a_header_that_claims_too_much_is_not_read(tmp_path: Path, length: int) -> None:
    path = tmp_path / "a"
    with path.open("wb") as stream:
        stream.write(length.to_bytes(8, "little") + b'{"')
        stream.truncate(2 * 10**8)  # a hole: as long as it says, and nothing in it
    with pytest.raises(BadFile, match="is not a calibrator: give a file that"):
        load(path)


def with_header(path: Path, header: object, size: int) -> Path:
    """Write a header, and after it a hole up to that size, which takes no room on disk."""
    text = json.dumps(header).encode()
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(size)
    return path


def test_a_file_too_large_for_the_memory_limit_is_not_read(tmp_path: Path) -> None:
    path = with_header(tmp_path / "a", {"__metadata__": {METADATA: "{}"}}, MAX_BYTES + 1)
    with pytest.raises(BadFile, match="is too large"):
        load(path)


@pytest.mark.parametrize(
    "header", [{}, {"__metadata__": {}}, {"__metadata__": {METADATA: 3}}, {"__metadata__": []}, [], None, 3], ids=str
)
def test_of_a_foreign_file_no_more_than_the_header_is_read(tmp_path: Path, header: object) -> None:
    # As large as weights of a language model, most of it a hole: reading it would be noticed.
    with pytest.raises(BadFile, match="but not a calibrator of glayers"):
        load(with_header(tmp_path / "a", header, 2**36))


def test_a_file_cut_short_at_any_moment_of_its_reading_ends_no_process(saved: Path) -> None:
    # A memory map whose file loses its end is a SIGBUS, which no `except` sees. It is cut at the first and the
    # second visit of every line in turn: a loop does the same again.
    code = (
        "import sys, pathlib, glayers\n"
        "from glayers import files\n"
        "from glayers.serving import artifact\n"
        "path = pathlib.Path(sys.argv[1]); data = path.read_bytes()\n"
        "def trace(frame, event, argument):\n"
        "    global countdown\n"
        "    if frame.f_code.co_filename not in (artifact.__file__, files.__file__): return None\n"
        "    if event == 'line':\n"
        "        place = frame.f_code, frame.f_lineno\n"
        "        visits[place] = visits.get(place, 0) + 1\n"
        "        countdown -= visits[place] < 3\n"
        "    if countdown == 0: path.write_bytes(b'')\n"
        "    return trace\n"
        "refused = read = 0\n"
        "while True:\n"
        "    countdown, visits = refused + read + 1, {}\n"
        "    path.unlink()\n"
        "    path.write_bytes(data)\n"
        "    sys.settrace(trace)\n"
        "    try: glayers.load(path); read += 1\n"
        "    except glayers.BadFile: refused += 1\n"
        "    finally: sys.settrace(None)\n"
        "    if countdown > 0: break\n"
        "print(refused, read)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, saved], capture_output=True, text=True, check=False)
    assert done.returncode != -signal.SIGBUS
    assert done.returncode == 0, done.stderr
    refused, read = map(int, done.stdout.split())
    assert refused > 5  # cut before its bytes were read
    assert read > 5  # and after


# Files damaged at random.


SOUND = ["temperature", "g-layers", "order-invariant", "histogram"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all random files: a new one per file would take longer than the test."""
    return tmp_path_factory.mktemp("random")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("sound") / "a"
    files = {}
    for name in SOUND:
        fitted(name).save(path)
        files[name] = path.read_bytes()
    return files


def refused_or_harmless(path: Path, data: bytes, sound: bytes) -> bool:
    """Say whether bytes are refused; if not, they must mean exactly what the sound file means."""
    write_anew(path, data)
    try:
        loaded = load(path)
    except BadFile as error:
        return str(error).startswith(f"{path}: ") and "\n" not in str(error)
    loaded.save(path)
    assert path.read_bytes() == sound
    return False


@pytest.mark.parametrize("name", SOUND)
def test_a_file_that_was_cut_or_had_a_bit_flipped_is_refused_or_says_the_same(
    tmp_path: Path, sound: dict[str, bytes], name: str
) -> None:
    data, path = sound[name], tmp_path / "a"
    rng = np.random.default_rng(0)
    harmless = 0
    for place in [*range(0, min(len(data), 1200), 8), *rng.integers(0, len(data), 80)]:
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(rng.integers(8))
        assert refused_or_harmless(path, data[:place], data)
        assert refused_or_harmless(path, data + data[place : place + 1], data)
        harmless += not refused_or_harmless(path, bytes(flipped), data)
    assert harmless <= 1  # the e of 1e-05 may become a capital


def test_spliced_files_are_refused(tmp_path: Path, sound: dict[str, bytes]) -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        one, two = (sound[SOUND[int(number)]] for number in rng.integers(0, len(SOUND), 2))
        start, stop = np.sort(rng.integers(0, len(one) + 1, 2))
        begin, end = np.sort(rng.integers(0, len(two) + 1, 2))
        spliced = one[:start] + two[begin:end] + one[stop:]
        assert spliced in sound.values() or refused_or_harmless(tmp_path / "a", spliced, one)


PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_facts_at_random_load_or_are_a_bad_file(folder: Path, sound: dict[str, bytes], data: st.DataObject) -> None:
    path = folder / "random"
    write_anew(path, sound[data.draw(st.sampled_from(SOUND))])
    facts, arrays = contents(path)
    place: Any = facts
    name = data.draw(st.sampled_from(sorted(facts.keys() - {"sha256"})))
    while isinstance(place[name], dict | list) and place[name] and data.draw(st.booleans()):
        place = place[name]
        name = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
    place[name] = data.draw(JSON)
    write(path, facts, arrays)
    try:
        loaded = load(path)
    except BadFile:
        return
    # A setting, a version or a word about the fit: what it predicts with is untouched.
    assert np.isfinite(loaded.predict_proba(tilted()[0])).all()


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=3),
    structure=st.recursive(
        st.lists(st.sampled_from(["Scale", "Dense", "Relu", "Centre"]), max_size=3),
        lambda inner: st.lists(st.fixed_dictionaries({"Floor": inner}), max_size=2),
        max_leaves=4,
    ),
)
def test_any_structure_on_any_arrays_loads_or_is_a_bad_file(
    folder: Path, sound: dict[str, bytes], shapes: list[list[int]], structure: list[Any]
) -> None:
    path = folder / "shapes"
    write_anew(path, sound["temperature"])
    facts, _ = contents(path)
    names = ["0.factor", "0.depth", "0.weight", "0.bias", "0.branches.0.0.share", "1.factor"]
    arrays = {name: np.full(shape, 0.5) for name, shape in zip(names, shapes * 3, strict=False)}
    write(path, facts | {"structure": structure}, arrays)
    try:
        loaded = load(path)
    except BadFile:
        return
    assert np.isfinite(loaded.predict_proba(tilted()[0])).all()


def test_unknown_inputs_are_refused(tmp_path: Path) -> None:
    fitted("temperature").save(tmp_path / "temperature")
    facts, arrays = contents(tmp_path / "temperature")
    for bad in (0, "odds", ["logits"], None):
        path = write(tmp_path / "forged", facts | {"settings": facts["settings"] | {"inputs": bad}}, arrays)
        with pytest.raises(BadFile, match="the setting inputs must be one of"):
            load(path)


def test_a_map_without_results_is_refused_when_loaded_or_when_it_predicts(tmp_path: Path) -> None:
    fitted("temperature").save(tmp_path / "temperature")
    facts, arrays = contents(tmp_path / "temperature")
    for factor, refused in ((1e305, "not finite"), (1e300, "the map has no result for row 1")):
        path = write(tmp_path / "forged", facts, arrays | {"0.factor": np.array(factor)})
        with pytest.raises(GlayersError, match=refused):
            load(path).predict_proba(np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 1e10, 2e10, 3e10]]))


POSTERIORS: dict[str, Callable[[Arrays], Arrays]] = {
    "gone": lambda a: {name: array for name, array in a.items() if name != "posterior.own"},
    "more": lambda a: a | {"posterior.more": np.ones(1)},
    "not finite": lambda a: a | {"posterior.diagonal": np.nan * a["posterior.diagonal"]},
    "negative": lambda a: a | {"posterior.precisions": -a["posterior.precisions"]},
    "negative curvature": lambda a: a | {"posterior.diagonal": -a["posterior.diagonal"]},
    "no degrees of freedom": lambda a: a | {"posterior.degrees": 0 * a["posterior.degrees"]},
    "longer": lambda a: a | {"posterior.point": np.repeat(a["posterior.point"], 2)},
    "many classes": lambda a: a | {"posterior.own": np.ones((2, 40_000))},
    "no factor": lambda a: a | {"posterior.factor": 0 * a["posterior.factor"]},
}


@pytest.mark.parametrize("change", POSTERIORS.values(), ids=list(POSTERIORS))
def test_a_forged_posterior_is_refused(change: Callable[[Arrays], Arrays], tmp_path: Path) -> None:
    fitted("vector").save(tmp_path / "v.safetensors")
    facts, arrays = contents(tmp_path / "v.safetensors")
    write(tmp_path / "forged.safetensors", facts, change(dict(arrays)))
    with pytest.raises(BadFile, match="posterior"):
        load(tmp_path / "forged.safetensors")
