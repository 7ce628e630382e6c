"""A fitted calibrator -> one `.safetensors` file, and back: arrays by name, everything else as JSON; never code.

The same calibrator gives the same bytes. `write_calibrator` refuses what `load` could not read back, and `load` checks
every fact and a checksum. A file is read at once and never mapped into memory: a mapped file that somebody cuts short
would end the process. `docs/artifact.md` describes the format.
"""

import hashlib
import inspect
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_origin

import numpy as np
from safetensors import deserialize
from safetensors.numpy import save

from glayers import calibrators
from glayers.arrays import Array
from glayers.calibrators.base import Calibrator, Diagnostics
from glayers.calibrators.row_summary import RowSummary
from glayers.errors import BadFile, GlayersError, shown
from glayers.files import DAMAGED, errors_as_bad_file, file_path, open_regular, write_whole
from glayers.maps.layouts import chain_of, structure_of

FORMAT = 1
METADATA = "glayers"  # one entry for all facts: safetensors does not keep the order of several
LONGEST_HEADER = 2**24  # 16 MB: enough for names and label counts of some hundred thousand classes
LARGEST_FILE = 2**32  # 4 GB: ten times the g-layers of 1,000 classes with ten members
_CLOCK = "seconds"  # never saved: it differs between runs of the same fit
_FACTS = (
    "format calibrator settings structure n_logits n_classes class_names diagnostics calibration_rows kept versions"
)
# The JSON type of each diagnostic: a tuple is a list there.
_DIAGNOSTICS: dict[str, Any] = {
    each.name: list if get_origin(each.type) is tuple else each.type
    for each in fields(Diagnostics)
    if each.name != _CLOCK
}
# Checks names, types and sizes against each other; safetensors ships without types.
_tensors_in: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = deserialize


def write_calibrator(calibrator: Calibrator, path: str | os.PathLike[str]) -> None:
    """Write a fitted calibrator in one step. Refuse what a file cannot hold before anything is written."""
    name = type(calibrator).__name__
    if calibrators.CLASSES.get(name) is not type(calibrator):
        raise GlayersError(
            f"{name} is not a calibrator of glayers, so `load` could not read it: keep it in memory, "
            f"or write its numbers, `map_.parameters()`, to a file of your own"
        )
    facts = _facts_of(calibrator)
    arrays = {key: np.asarray(value, np.float64, order="C") for key, value in calibrator.map_.parameters().items()}
    data = save(arrays, {METADATA: _json(facts | {"sha256": checksum(facts, arrays)})})
    try:
        _calibrator_of(json.loads(_json(facts)), arrays)
    except BadFile as error:
        raise GlayersError(f"not saved, because it could not be loaded again: {error}") from error
    if int.from_bytes(data[:8], "little") > LONGEST_HEADER:
        raise GlayersError(f"settings and names take more than {LONGEST_HEADER} bytes: shorten the class names")
    if len(data) > LARGEST_FILE:
        raise GlayersError(f"the map takes more than {LARGEST_FILE} bytes: fit fewer members or smaller layers")
    write_whole(file_path(path), data)


def load(path: str | os.PathLike[str]) -> Calibrator:
    """Read a calibrator that `Calibrator.save` wrote. It predicts the same bytes, without torch.

    Parameters
    ----------
    path : str or path-like
        The `.safetensors` file.

    Returns
    -------
    Calibrator
        The fitted calibrator, of the class that was saved.

    Raises
    ------
    BadFile
        If the file is missing, damaged, edited or not written by glayers. Nothing in a file is ever executed.

    Examples
    --------
    >>> import tempfile
    >>> from glayers import TemperatureScaling
    >>> fitted = TemperatureScaling().fit([[2.0, 0.0, 1.0], [0.0, 2.0, -1.0], [2.0, 0.0, 0.5]], [0, 1, 2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fitted.save(Path(folder) / "t.safetensors")
    ...     load(Path(folder) / "t.safetensors").temperature_ == fitted.temperature_
    True
    """
    where = file_path(path)
    with errors_as_bad_file(where):
        text, data = _facts_and_bytes(where)
        arrays = {}
        for name, tensor in _tensors_in(data):
            if tensor["dtype"] != "F64":
                raise BadFile(f"the array {shown(name)} must be of type F64; it is {tensor['dtype']}")
            arrays[name] = np.frombuffer(tensor["data"], "<f8").reshape(tensor["shape"]).astype(np.float64)
        facts = json.loads(text)
        if type(facts) is not dict:
            raise BadFile(f"its facts must be a JSON object; got {shown(facts)}")
        number = facts.get("format")
        if type(number) is not int or number < 1:
            raise BadFile(f"its format must be a whole number from 1; got {shown(number)}")
        if number > FORMAT:
            raise BadFile(f"has format {number}, and this glayers reads up to {FORMAT}: pip install --upgrade glayers")
        if facts.pop("sha256", None) != checksum(facts, arrays):
            raise BadFile(f"its contents do not match their checksum; {DAMAGED}")
        return _calibrator_of(facts, arrays)


def checksum(facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 of all facts and arrays of a file."""
    digest = hashlib.sha256(_json(facts).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def _facts_of(calibrator: Calibrator) -> dict[str, Any]:
    """Return everything but the arrays, ready for JSON."""
    return {
        "format": FORMAT,
        "calibrator": type(calibrator).__name__,
        "structure": structure_of(calibrator.map_),  # before the settings: its message about an activation is better
        "settings": {
            name: _plain(value, f"the setting {name}") for name, value in calibrator.get_params(False).items()
        },
        "n_logits": calibrator.n_features_in_,
        "n_classes": len(calibrator.classes_),
        "class_names": _plain(calibrator.class_names_, "class_names_"),
        "diagnostics": {name: kind(getattr(calibrator.diagnostics_, name)) for name, kind in _DIAGNOSTICS.items()},
        "calibration_rows": calibrator.calibration_rows_.to_dict(),
        "kept": {
            name: _plain(value.to_dict() if name in calibrator._records else value, name)
            for name in calibrator._kept
            for value in [getattr(calibrator, name)]
        },
        "versions": calibrator.versions_,
    }


def _calibrator_of(facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> Calibrator:
    """Build the calibrator again, and refuse whatever does not fit together."""
    _check_names(facts, set(_FACTS.split()), "fact")
    n_logits, n_classes = (_of_type(facts, name, int) for name in ("n_logits", "n_classes"))
    if n_logits < 1 or n_classes != max(2, n_logits):
        raise BadFile(f"{n_logits} logits and {n_classes} classes do not go together")
    # The label counts come first: they show that the file is really about so many classes.
    diagnostics = _diagnostics(_of_type(facts, "diagnostics", dict), n_classes)
    versions = _of_type(facts, "versions", dict)
    if versions.keys() != {"glayers", "numpy"} or not all(type(value) is str for value in versions.values()):
        raise BadFile(f"versions must be those of glayers and numpy; got {shown(versions)}")
    name, settings = _of_type(facts, "calibrator", str), _of_type(facts, "settings", dict)
    chain = chain_of(facts["structure"], arrays, n_logits)
    class_names, kept = _class_names(facts["class_names"], n_classes), _of_type(facts, "kept", dict)
    if name not in calibrators.CLASSES:
        raise BadFile(f"unknown calibrator {shown(name)}; known are {', '.join(sorted(calibrators.CLASSES))}")
    _check_names(settings, set(calibrators.CLASSES[name]._get_param_names()), f"setting of {name}")
    _check_names(kept, set(calibrators.CLASSES[name]._kept), f"kept attribute of {name}")
    kept |= {each: record.from_dict(kept[each]) for each, record in calibrators.CLASSES[name]._records.items()}
    new = calibrators.CLASSES[name](**settings)
    summary = RowSummary.from_dict(facts["calibration_rows"], n_classes)
    learned = {"map_": chain, "diagnostics_": diagnostics, "calibration_rows_": summary, **kept}
    for attribute, value in learned.items():
        setattr(new, attribute, value)
    new._set_facts(n_logits, class_names, versions)
    _check_derived(new)
    return new


def _check_derived(calibrator: Calibrator) -> None:
    """Refuse a map without what the attributes of its class are computed from, such as a temperature."""
    for attribute in dir(type(calibrator)):
        if attribute.endswith("_") and isinstance(inspect.getattr_static(type(calibrator), attribute), property):
            try:
                getattr(calibrator, attribute)
            except (ArithmeticError, LookupError, TypeError) as error:
                name = type(calibrator).__name__
                raise BadFile(f"its map is not one of {name}, which has the attribute {attribute}") from error


def _plain(value: object, name: str) -> Any:
    """Return a value as JSON has it, tuples and arrays as lists, or raise an error if a file cannot hold it.

    >>> _plain({"strength": (np.float64(0.5), 2)}, "settings")
    {'strength': [0.5, 2]}
    """
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.tolist(), name)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(each, name) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(each, f"{name}, {key}") for key, each in value.items() if key != _CLOCK}
    raise GlayersError(
        f"{name} is a {type(value).__name__}, and a file holds only numbers, text and lists of them. "
        f"If only the fit needed it, set it to None with set_params and save again"
    )


def _check_names(given: Mapping[str, Any], expected: set[str], what: str) -> None:
    missing, unknown = sorted(expected - given.keys()), sorted(given.keys() - expected)
    if missing:
        raise BadFile(f"the {what} {missing[0]!r} is missing")
    if unknown:
        raise BadFile(f"unknown {what} {unknown[0]!r:.60}; known are {', '.join(sorted(expected)) or 'none'}")


def _of_type(facts: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    if type(facts[name]) is not kind:
        raise BadFile(f"{name} must be of type {kind.__name__}; got {shown(facts[name])}")
    return facts[name]


def _class_names(names: object, n_classes: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if type(names) is not list or not all(type(name) is str for name in names):
        raise BadFile(f"class_names must be a list of text; got {shown(names)}")
    if len(names) != n_classes or len(set(names)) != n_classes:
        raise BadFile(f"class_names must be {n_classes} different names; got {len(names)}, {len(set(names))} different")
    return tuple(names)


def _diagnostics(facts: dict[str, Any], n_classes: int) -> Diagnostics:
    _check_names(facts, set(_DIAGNOSTICS), "fact of the fit")
    values: dict[str, Any] = {name: _of_type(facts, name, kind) for name, kind in _DIAGNOSTICS.items()}
    counts = values["labels_per_class"]
    if len(counts) != n_classes or not all(type(count) is int and count >= 0 for count in counts):
        raise BadFile(f"labels_per_class must be {n_classes} counts; got {shown(counts)}")
    if any(type(value) is int and value < 0 for value in values.values()) or values["rows"] < sum(counts):
        raise BadFile(f"the numbers of rows, iterations and parameters do not fit: {shown(facts)}")
    if math.isnan(values["loss_before"]) or math.isnan(values["loss_after"]):
        raise BadFile("loss_before and loss_after must be numbers")
    unseen = [number for number, count in enumerate(counts) if count == 0]
    if values["classes_never_seen"] != unseen:
        raise BadFile(f"classes_never_seen must be those without a label; got {shown(values['classes_never_seen'])}")
    if not all(type(note) is str for note in values["notes"]):
        raise BadFile(f"notes must be a list of text; got {shown(values['notes'])}")
    return Diagnostics(**values | {name: tuple(values[name]) for name, kind in _DIAGNOSTICS.items() if kind is list})


def _json(facts: Mapping[str, Any]) -> str:
    return json.dumps(facts, separators=(",", ":"))


def _facts_and_bytes(path: Path) -> tuple[str, bytes]:
    """Return the facts as text and all bytes of a file. Of a file that is not ours, read no more than the header."""
    with open_regular(path) as stream:
        size, beginning = os.fstat(stream.fileno()).st_size, stream.read(8)
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
