"""A fitted calibrator <-> one `.safetensors` file: a tree of calibrators as JSON, and their arrays; never code.

The same calibrator gives the same bytes. `save` refuses what `load` could not read back; `load` checks every fact,
every array and a checksum. A file is read at once and never mapped into memory: a mapped file that somebody cuts short
would end the process. `docs/reference/artifact.md` describes the format.
"""

import hashlib
import json
import os
import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, Union, get_args, get_origin

import numpy as np
from safetensors import deserialize
from safetensors.numpy import save as to_safetensors

from glayers.arrays import Array
from glayers.errors import BadFile, GlayersError, shown
from glayers.files import DAMAGED, errors_as_bad_file, file_path, open_regular, write_whole
from glayers.maps.layouts import chain_of, structure_of
from glayers.serving.predictor import CHECKS, Diagnostics

FORMAT = 1
METADATA = "glayers"  # one entry for all facts: safetensors does not keep the order of several
LONGEST_HEADER = 2**24  # 16 MB: enough for names and label counts of some hundred thousand classes
LARGEST_FILE = 2**32  # 4 GB: ten times the g-layers of 1,000 classes with ten members
_CLOCK = "seconds"  # never saved: it differs between runs of the same fit
# The facts of a calibrator with a map of its own, and of one that consists of others.
_FACTS = {"calibrator", "settings", "structure", "n_logits", "n_classes", "class_names", "diagnostics", "kept"}
_FACTS |= {"versions"}
_FACTS_OF_PARTS = {"calibrator", "class_names", "parts"}
_ADAPTATION = "adaptation_"  # only a calibrator that was adapted has one
_Record = TypeVar("_Record")
FindClass: TypeAlias = Callable[[str], Any]  # a class by its name, or None


def save(fitted: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted calibrator in one step. Refuse what a file cannot hold before anything is written."""
    arrays: dict[str, Array] = {}
    classes = {type(fitted).__name__: type(fitted)}
    facts: dict[str, Any] = {"format": FORMAT, "calibrator": type(fitted).__name__}
    parts = fitted._fitted_parts()
    if parts:
        facts["class_names"] = _plain(fitted.class_names_, "class_names_")
        facts["parts"] = {}
        for name, part in parts.items():
            classes[type(part).__name__] = type(part)
            facts["parts"][name] = _facts_of(part)
            arrays |= _arrays_of(part, f"{name}/")
    else:
        facts |= _facts_of(fitted)
        arrays = _arrays_of(fitted)
    data = to_safetensors(arrays, {METADATA: _to_json(facts | {"sha256": checksum(facts, arrays)})})
    try:
        _built(json.loads(_to_json(facts)), arrays, classes.get)
    except BadFile as error:
        raise GlayersError(f"not saved, because it could not be loaded again: {error}") from error
    if int.from_bytes(data[:8], "little") > LONGEST_HEADER:
        raise GlayersError(f"settings and names take more than {LONGEST_HEADER} bytes: shorten the class names")
    write_whole(file_path(path), data)


def load(path: str | os.PathLike[str], find: FindClass) -> Any:
    """Read a calibrator; `glayers.load` describes it. `find` returns the class of a name that a file may have."""
    where = file_path(path)
    with errors_as_bad_file(where):
        text, data = _facts_and_bytes(where)
        arrays = _arrays_in(data)
        facts = json.loads(text)
        if type(facts) is not dict:
            raise BadFile(f"its facts must be a JSON object; got {shown(facts)}")
        number = facts.get("format")
        if type(number) is not int or number < 1:
            raise BadFile(f"its format must be a whole number from 1; got {shown(number)}")
        if number != FORMAT:
            raise BadFile(f"has format {number}, and this glayers reads format {FORMAT}: pip install --upgrade glayers")
        if facts.pop("sha256", None) != checksum(facts, arrays):
            raise BadFile(f"its contents do not match their checksum; {DAMAGED}")
        return _built(facts, arrays, find)


def _arrays_of(fitted: Any, prefix: str = "") -> dict[str, Array]:
    """Return the arrays of a map as a file holds them."""
    parameters = fitted.map_.parameters()
    return {prefix + name: np.asarray(value, np.float64, order="C") for name, value in parameters.items()}


def checksum(facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 of all facts and arrays of a file."""
    digest = hashlib.sha256(_to_json(facts).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def decoded(kind: type[_Record], value: object, what: str) -> _Record:
    """Return the dataclass whose fields a JSON object holds, each of the type that the class declares.

    Fields with a default may be missing.
    """
    given = _typed(value, dict, what)
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    needed = {name for name, field in known.items() if field.default is MISSING}
    _check_names(given, needed, set(known), f"entry of {what}")
    return kind(**{name: _typed(each, known[name].type, f"{name} of {what}") for name, each in given.items()})


def _typed(value: Any, kind: Any, what: str) -> Any:
    """Return a value of JSON as this type; lists become tuples."""
    origin = get_origin(kind) or kind
    inner = get_args(kind)
    if origin in (Union, types.UnionType):  # something or None
        return None if value is None else _typed(value, inner[0], what)
    if is_dataclass(origin):
        return decoded(origin, value, what)  # type: ignore[arg-type]
    expected = {tuple: list, Mapping: dict}.get(origin, origin)
    if type(value) is not expected:
        raise BadFile(f"{what} must be of type {expected.__name__}; got {shown(value)}")
    if origin is tuple and set(map(type, value)) == {inner[0]}:  # at once: there may be thousands of numbers
        return tuple(value)
    if origin is tuple:
        return tuple(_typed(each, inner[0], what) for each in value)
    if origin is Mapping:
        return {name: _typed(each, inner[1], what) for name, each in value.items()}
    return value


def _check_names(given: Mapping[str, Any], needed: set[str], known: set[str], what: str) -> None:
    """Refuse names that are missing or unknown."""
    missing = sorted(needed - given.keys())
    unknown = sorted(given.keys() - known)
    if missing:
        raise BadFile(f"the {what} {missing[0]!r} is missing")
    if unknown:
        raise BadFile(f"unknown {what} {unknown[0]!r:.60}; known are {', '.join(sorted(known)) or 'none'}")


def _facts_of(fitted: Any) -> dict[str, Any]:
    """Return everything but the arrays of a calibrator with a map of its own, ready for JSON."""
    kind = type(fitted)
    if not kind.__module__.startswith("glayers.calibrators."):
        raise GlayersError(
            f"{kind.__name__} is not a calibrator of glayers, so `load` could not read it: keep it in memory, "
            f"or write its numbers, `map_.parameters()`, to a file of your own"
        )
    structure = structure_of(fitted.map_)  # before the settings: its message about an activation is better
    settings = fitted.get_params(deep=False) | dict.fromkeys(fitted._only_for_fits)
    kept = {name: getattr(fitted, name) for name in fitted._kept}
    for name in fitted._records:
        if getattr(fitted, name) is not None:
            kept[name] = asdict(getattr(fitted, name))
    return {
        "calibrator": kind.__name__,
        "settings": {name: _plain(value, f"the setting {name}") for name, value in settings.items()},
        "structure": structure,
        "n_logits": fitted.n_features_in_,
        "n_classes": len(fitted.classes_),
        "class_names": _plain(fitted.class_names_, "class_names_"),
        "diagnostics": _plain(asdict(fitted.diagnostics_), "diagnostics_"),
        "kept": {name: _plain(value, name) for name, value in kept.items()},
        "versions": fitted.versions_,
    }


def _built(facts: dict[str, Any], arrays: Mapping[str, Array], find: FindClass) -> Any:
    """Build the calibrator of a file again, and refuse whatever does not fit together."""
    facts.pop("format")
    if "parts" not in facts:
        return _calibrator(facts, arrays, find)
    _check_names(facts, _FACTS_OF_PARTS, _FACTS_OF_PARTS, "fact")
    kind = _class_of(facts, find, of_parts=True)
    facts_of_parts = _typed(facts["parts"], dict, "parts")
    arrays_of_parts: dict[str, dict[str, Array]] = {name: {} for name in facts_of_parts}
    for full, array in arrays.items():
        part, _, name = full.rpartition("/")
        if part not in arrays_of_parts:
            raise BadFile(f"the array {shown(full)} belongs to no part")
        arrays_of_parts[part][name] = array
    parts = {}
    for name, own in arrays_of_parts.items():
        parts[name] = _calibrator(_typed(facts_of_parts[name], dict, f"part {shown(name)}"), own, find)
    new = kind._from_parts(parts)
    new.class_names_ = _class_names(facts["class_names"], len(new.classes_))
    return new


def _class_of(facts: Mapping[str, Any], find: FindClass, of_parts: bool) -> Any:
    name = _typed(facts["calibrator"], str, "calibrator")
    kind = find(name)
    if kind is None or kind.of_parts != of_parts:
        raise BadFile(f"unknown calibrator {shown(name)}; the file was edited, or another glayers wrote it")
    return kind


def _calibrator(facts: Mapping[str, Any], arrays: Mapping[str, Array], find: FindClass) -> Any:
    """Build a calibrator with a map of its own."""
    _check_names(facts, _FACTS, _FACTS, "fact")
    kind = _class_of(facts, find, of_parts=False)
    settings = _typed(facts["settings"], dict, "settings")
    names = {field.name for field in fields(kind)}
    _check_names(settings, names, names, f"setting of {kind.__name__}")
    inputs = settings["inputs"]
    if not isinstance(inputs, str) or inputs not in CHECKS:
        raise BadFile(f"the setting inputs must be one of {', '.join(CHECKS)}; got {shown(inputs)}")
    n_logits = _typed(facts["n_logits"], int, "n_logits")
    n_classes = _typed(facts["n_classes"], int, "n_classes")
    if n_logits < 1 or n_classes != max(2, n_logits):
        raise BadFile(f"{n_logits} logits and {n_classes} classes do not go together")
    new = kind(**settings)
    # The label counts come first: they show that the file is really about so many classes.
    new.diagnostics_ = decoded(Diagnostics, facts["diagnostics"], "the diagnostics")
    new.diagnostics_.check(n_classes)
    new.n_features_in_ = n_logits
    new.classes_ = np.arange(n_classes)
    new.class_names_ = _class_names(facts["class_names"], n_classes)
    new.versions_ = _typed(facts["versions"], Mapping[str, str], "versions")
    _check_names(new.versions_, {"glayers", "numpy"}, {"glayers", "numpy"}, "version")
    new.map_ = chain_of(facts["structure"], arrays, n_logits)
    kept = _typed(facts["kept"], dict, "kept")
    names = {*kind._kept, *kind._records}
    _check_names(kept, names - {_ADAPTATION}, names, f"kept attribute of {kind.__name__}")
    records = {name: kind._records[name].from_dict(value) for name, value in kept.items() if name in kind._records}
    vars(new).update({_ADAPTATION: None} | kept | records)
    new._check_loaded()
    return new


def _class_names(names: object, n_classes: int) -> tuple[str, ...] | None:
    found: tuple[str, ...] | None = _typed(names, tuple[str, ...] | None, "class_names")
    if found is not None and not len(found) == len(set(found)) == n_classes:
        raise BadFile(f"class_names must be {n_classes} different names; got {len(found)}, {len(set(found))} different")
    return found


def _plain(value: object, name: str) -> Any:
    """Return a value as JSON has it, tuples and arrays as lists, or raise an error if a file cannot hold it.

    >>> _plain({"strength": (np.float64(0.5), 2)}, "settings")
    {'strength': [0.5, 2]}
    """
    try:
        text = json.dumps(value, default=lambda array: array.tolist())
        return json.loads(text, object_hook=_without_clock)
    except (AttributeError, TypeError, ValueError) as error:
        raise GlayersError(
            f"{name} is a {type(value).__name__}, and a file holds only numbers, text and lists of them. "
            f"If only the fit needed it, set it to None with set_params and save again"
        ) from error


def _without_clock(entries: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in entries.items() if name != _CLOCK}


def _to_json(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, separators=(",", ":"))


def _arrays_in(data: bytes) -> dict[str, Array]:
    arrays = {}
    for name, tensor in deserialize(data):  # type: ignore[no-untyped-call]  # checks names, types and sizes
        if tensor["dtype"] != "F64":
            raise BadFile(f"the array {shown(name)} must be of type F64; it is {tensor['dtype']}")
        arrays[name] = np.frombuffer(tensor["data"], "<f8").reshape(tensor["shape"]).astype(np.float64)
    return arrays


def _facts_and_bytes(path: Path) -> tuple[str, bytes]:
    """Return the facts as text and all bytes of a file. Of a file that is not ours, read no more than the header."""
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        beginning = stream.read(8)
        length = int.from_bytes(beginning, "little")
        if len(beginning) < 8 or length > min(size - 8, LONGEST_HEADER):
            raise BadFile(f"does not begin as a safetensors file does; {DAMAGED}")
        header = json.loads(stream.read(length).decode())
        metadata = header.get("__metadata__") if type(header) is dict else None
        text = metadata.get(METADATA) if type(metadata) is dict else None
        if type(text) is not str:
            raise BadFile("is a safetensors file, but not a calibrator of glayers; load it with the tool that wrote it")
        if size > LARGEST_FILE:
            raise BadFile(f"takes {size} bytes, and no calibrator takes more than {LARGEST_FILE}; {DAMAGED}")
        stream.seek(0)
        return text, stream.read(size)
