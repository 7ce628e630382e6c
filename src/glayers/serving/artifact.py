"""A `.safetensors` file -> the map of a calibrator and the facts about it, each of them checked; never code.

A file is read at once and never mapped into memory: a mapped file that somebody cuts short would end the process.
`docs/artifact.md` describes the format, and `calibrators/artifact.py` writes it.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_origin

import numpy as np
from safetensors import deserialize

from glayers.arrays import Array
from glayers.errors import BadFile, shown
from glayers.files import DAMAGED, open_regular
from glayers.maps.layouts import chain_of
from glayers.serving.predictor import CHECKS, Diagnostics

FORMAT = 1
METADATA = "glayers"  # one entry for all facts: safetensors does not keep the order of several
LONGEST_HEADER = 2**24  # 16 MB: enough for names and label counts of some hundred thousand classes
LARGEST_FILE = 2**32  # 4 GB: ten times the g-layers of 1,000 classes with ten members
MULTI_LABEL = "MultiLabelCalibrator"  # the calibrator of a file with several labels
GROUPS = "GroupCalibrator"  # that of a file with corrections of groups
CLOCK = "seconds"  # never saved: it differs between runs of the same fit
_FACTS = (
    "format calibrator settings structure n_logits n_classes class_names diagnostics calibration_rows kept versions"
)
# The JSON type of each diagnostic: a tuple is a list there.
DIAGNOSTICS: dict[str, Any] = {
    each.name: list if get_origin(each.type) is tuple else each.type
    for each in fields(Diagnostics)
    if each.name != CLOCK
}
# Checks names, types and sizes against each other; safetensors ships without types.
_tensors_in: Callable[[bytes], list[tuple[str, dict[str, Any]]]] = deserialize


def read(path: Path) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the facts and arrays of a file that was neither damaged nor edited; their contents are not checked yet."""
    text, data = _facts_and_bytes(path)
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
    return facts, arrays


def learned_attributes(facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> dict[str, Any]:
    """Return the attributes of a `Predictor`, and refuse whatever does not fit together."""
    check_names(facts, set(_FACTS.split()), "fact")
    n_logits, n_classes = (of_type(facts, name, int) for name in ("n_logits", "n_classes"))
    if n_logits < 1 or n_classes != max(2, n_logits):
        raise BadFile(f"{n_logits} logits and {n_classes} classes do not go together")
    # The label counts come first: they show that the file is really about so many classes.
    diagnostics = _diagnostics(of_type(facts, "diagnostics", dict), n_classes)
    versions = of_type(facts, "versions", dict)
    if versions.keys() != {"glayers", "numpy"} or not all(type(value) is str for value in versions.values()):
        raise BadFile(f"versions must be those of glayers and numpy; got {shown(versions)}")
    for name, kind in (("calibrator", str), ("settings", dict)):
        of_type(facts, name, kind)
    chain = chain_of(facts["structure"], arrays, n_logits)
    class_names = _class_names(facts["class_names"], n_classes)
    of_type(facts, "kept", dict)
    inputs = facts["settings"].get("inputs")
    if not isinstance(inputs, str) or inputs not in CHECKS:
        raise BadFile(f"the setting inputs must be one of {', '.join(CHECKS)}; got {shown(inputs)}")
    return {
        "inputs": inputs,
        "map_": chain,
        "diagnostics_": diagnostics,
        "n_features_in_": n_logits,
        "classes_": np.arange(n_classes),
        "class_names_": class_names,
        "versions_": versions,
    }


def label_parts(
    facts: Mapping[str, Any], arrays: Mapping[str, Array]
) -> tuple[list[tuple[dict[str, Any], dict[str, Array]]], tuple[str, ...] | None]:
    """Return facts and arrays of the calibrator of each label, and the names of the labels."""
    check_names(facts, {"format", "calibrator", "label_names", "labels"}, "fact")
    labels, names = facts["labels"], facts["label_names"]
    parts = parts_of(labels, arrays, "label")
    if names is not None and not (type(names) is list and len(names) == len(labels) == len(set(map(str, names)))):
        raise BadFile(f"label_names must be {len(labels)} different names; got {shown(names)}")
    if any(each.get("n_logits") != 1 for each in labels):
        raise BadFile("the calibrator of a label must take one logit")
    return parts, None if names is None else tuple(map(str, names))


def parts_of(listed: Any, arrays: Mapping[str, Array], what: str) -> list[tuple[dict[str, Any], dict[str, Array]]]:
    """Return the facts and arrays of each of several calibrators, whose arrays begin with their number."""
    if type(listed) is not list or not listed or not all(type(each) is dict for each in listed):
        raise BadFile(f"{what}s must be a list of the facts of each; got {shown(listed)}")
    parts: list[dict[str, Array]] = [{} for _ in listed]
    for key, array in arrays.items():
        place, _, name = key.partition("/")
        if not place.isdecimal() or int(place) >= len(listed):
            raise BadFile(f"the array {shown(key)} belongs to no {what}")
        parts[int(place)][name] = array
    return list(zip(listed, parts, strict=True))


def checksum(facts: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """Return the SHA-256 of all facts and arrays of a file."""
    digest = hashlib.sha256(to_json(facts).encode())
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def to_json(facts: Mapping[str, Any]) -> str:
    """Return the facts as they are written to a file."""
    return json.dumps(facts, separators=(",", ":"))


def check_names(given: Mapping[str, Any], expected: set[str], what: str) -> None:
    """Refuse names that are missing or unknown."""
    missing, unknown = sorted(expected - given.keys()), sorted(given.keys() - expected)
    if missing:
        raise BadFile(f"the {what} {missing[0]!r} is missing")
    if unknown:
        raise BadFile(f"unknown {what} {unknown[0]!r:.60}; known are {', '.join(sorted(expected)) or 'none'}")


def of_type(facts: Mapping[str, Any], name: str, kind: type[Any]) -> Any:
    """Return a fact that must have exactly this type."""
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
    check_names(facts, set(DIAGNOSTICS), "fact of the fit")
    values: dict[str, Any] = {name: of_type(facts, name, kind) for name, kind in DIAGNOSTICS.items()}
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
    return Diagnostics(**values | {name: tuple(values[name]) for name, kind in DIAGNOSTICS.items() if kind is list})


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
