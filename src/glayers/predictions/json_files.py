"""`.json` files -> arrays: an object with the keys of an `.npz`, its arrays as lists of numbers."""

import json
from pathlib import Path

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.predictions.contents import Contents, assign_keys, listed, missing_labels
from glayers.predictions.raw_arrays import DAMAGED


def read_json(path: Path) -> dict[str, Contents]:
    """Read every part of a JSON file."""
    try:
        stored = json.loads(path.read_bytes(), object_pairs_hook=_once_each)
    except ValueError as error:
        raise BadFile(f"is not JSON ({error}); {DAMAGED}") from error
    if not isinstance(stored, dict):
        raise BadFile(
            f"holds a {type(stored).__name__}; expected an object with logits (or probabilities) and labels, as lists"
        )
    parts = {}
    for part, fields in assign_keys(stored).items():
        arrays = {field: _array(key, stored[key]) for field, key in fields.items() if field != "class_names"}
        names = _texts(stored[fields["class_names"]]) if "class_names" in fields else None
        no_labels = missing_labels(part, sorted(stored))
        parts[part] = Contents(**{"labels": None} | arrays, class_names=names, no_labels=no_labels)
    return parts


def _once_each(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object whose keys stand once: of two arrays under one name, nobody knows which was meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for place, (key, _) in enumerate(pairs) if key in dict(pairs[:place]))
        raise BadFile(f"holds the key {twice!r:.40} twice; leave one of them out")
    return found


def _array(key: str, values: object) -> Array:
    if not isinstance(values, list):
        raise BadFile(f"{key} must be a list; got {values!r:.40}")
    try:
        return np.array(values)
    except ValueError as error:
        raise BadFile(f"{key} must have rows of equal length, all of them numbers ({error})") from error


def _texts(names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadFile(f"class_names must be a list of text; got {listed([f'{names!r:.40}'])}")
    return tuple(names)
