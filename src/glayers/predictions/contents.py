"""Names in a file -> the part and the field each one carries; its arrays -> `Predictions`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.predictions.predictions import Predictions

# The first word of each field is its own name; the others are accepted too.
FIELD_WORDS: Mapping[str, tuple[str, ...]] = {
    "logits": ("logits", "logit", "z"),
    "probabilities": ("probabilities", "probs", "proba", "p"),
    "labels": ("labels", "label", "y", "y_true", "targets", "target"),
    "weights": ("weights", "weight", "sample_weight"),
    "groups": ("groups", "group"),
    "class_names": ("class_names",),
}
PART_WORDS: Mapping[str, tuple[str, ...]] = {
    "calibration": ("calibration", "calib", "cal", "validation", "valid", "val"),
    "test": ("test",),
}
WHOLE_FILE = "all"


class Rows(NamedTuple):
    """Predictions, and whether their labels were in the file; where not, all are 0 and mean nothing."""

    predictions: Predictions
    labelled: bool


@dataclass(frozen=True, eq=False)
class Contents:
    """What one part of a file holds, not yet checked; logits win where both kinds of scores are there.

    `no_labels` is what to say to whoever needs the labels of a file that has none.
    """

    labels: Array | None
    logits: Array | None = None
    probabilities: Array | None = None
    weights: Array | None = None
    groups: Array | None = None
    class_names: tuple[str, ...] | None = None
    no_labels: str = ""

    def predictions(self) -> Predictions:
        """Check it all, once."""
        if self.labels is None:
            raise BadFile(self.no_labels)
        return self._with(self.labels)

    def rows(self) -> Rows:
        """Check it all, once; labels may be missing."""
        if self.labels is not None:
            return Rows(self._with(self.labels), labelled=True)
        scores = np.asarray(self.probabilities if self.logits is None else self.logits)
        return Rows(self._with(np.zeros(scores.shape[:1], np.int64)), labelled=False)

    def _with(self, labels: Array) -> Predictions:
        if self.logits is not None:
            return Predictions(self.logits, labels, self.weights, self.groups, self.class_names)
        return Predictions.from_probabilities(self.probabilities, labels, self.weights, self.groups, self.class_names)


def assign_keys(keys: Iterable[str]) -> dict[str, dict[str, str]]:
    """Give part -> field -> key; keys that mean nothing here are left out, and labels may be missing.

    >>> assign_keys(["z_test", "y_test", "val_z", "y_val", "date"])
    {'calibration': {'logits': 'val_z', 'labels': 'y_val'}, 'test': {'labels': 'y_test', 'logits': 'z_test'}}
    """
    found = sorted(keys)
    parts: dict[str, dict[str, str]] = {}
    for key in found:
        meaning = _meaning(key)
        if meaning is None:
            continue
        part, field = meaning
        fields = parts.setdefault(part, {})
        if field in fields:
            raise BadFile(f"both {fields[field]!r} and {key!r} are {field}; keep one of them")
        fields[field] = key
    if not parts:
        raise BadFile(f"no key that we know: found {listed(found)}; expected logits (or probabilities) and labels")
    shared = _take_shared_names(parts)
    for part, fields in parts.items():
        _check_scores(part, fields, found)
    ordered = [part for part in (WHOLE_FILE, *PART_WORDS) if part in parts]
    return {part: shared | _without_spare_scores(parts[part]) for part in ordered}


def missing_labels(part: str, found: Iterable[str]) -> str:
    """Say that a part has no labels, and what they could be called."""
    return f"no labels{_of_part(part)}: found {listed(found)}; expected one of {listed(FIELD_WORDS['labels'])}"


def field_of(word: str) -> str | None:
    """Return the field a word without a part stands for."""
    return next((field for field, words in FIELD_WORDS.items() if word in words), None)


def listed(names: Iterable[str], at_most: int = 12) -> str:
    """Write names in one line, cut after `at_most`.

    >>> listed(["a", "b", "c"], at_most=2)
    'a, b and 1 more'
    """
    given = list(names)
    text = ", ".join(given[:at_most]) or "none"
    return text if len(given) <= at_most else f"{text} and {len(given) - at_most} more"


def _meaning(key: str) -> tuple[str, str] | None:
    """Part and field of a key, such as ("test", "labels") for y_test and for test_y."""
    field = field_of(key)
    if field is not None:
        return WHOLE_FILE, field
    for part, marks in PART_WORDS.items():
        for mark in marks:
            for stem in (key.removeprefix(f"{mark}_"), key.removesuffix(f"_{mark}")):
                field = field_of(stem) if stem != key else None
                if field is not None:
                    return part, field
    return None


def _take_shared_names(parts: dict[str, dict[str, str]]) -> dict[str, str]:
    """Class names without a part belong to every part without its own; nothing else may stand beside named parts."""
    if len(parts) == 1 or WHOLE_FILE not in parts:
        return {}
    whole = parts.pop(WHOLE_FILE)
    others = [key for field, key in whole.items() if field != "class_names"]
    if others:
        raise BadFile(
            f"{listed(others)} name no part, but other keys belong to {listed(parts)}; "
            f"give every key its part, such as {others[0]}_test, or none"
        )
    return whole


def _check_scores(part: str, fields: Mapping[str, str], found: Iterable[str]) -> None:
    if "logits" not in fields and "probabilities" not in fields:
        words = FIELD_WORDS["logits"] + FIELD_WORDS["probabilities"]
        raise BadFile(
            f"no logits or probabilities{_of_part(part)}: found {listed(found)}; expected one of {listed(words)}"
        )


def _of_part(part: str) -> str:
    return "" if part == WHOLE_FILE else f" of the part {part}"


def _without_spare_scores(fields: Mapping[str, str]) -> dict[str, str]:
    spare = "probabilities" if "logits" in fields else ""
    return {field: key for field, key in fields.items() if field != spare}
