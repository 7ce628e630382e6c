"""Names in a file -> the part and the field that each one carries; the arrays of a part -> a checked record."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array
from glayers.errors import BadFile
from glayers.predictions.predictions import Confidences, Predictions

# The first word is the field's own name; the reader accepts the others too.
FIELD_WORDS: Mapping[str, tuple[str, ...]] = {
    "logits": ("logits", "logit", "z"),
    "probabilities": ("probabilities", "probs", "proba", "p"),
    "confidence": ("confidence", "confidences"),
    "correct": ("correct",),
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
FIELD_OF = {word: field for field, words in FIELD_WORDS.items() for word in words}
_PART_AND_FIELD = {word: (WHOLE_FILE, field) for word, field in FIELD_OF.items()} | {
    key: (part, field)
    for part, marks in PART_WORDS.items()
    for mark in marks
    for word, field in FIELD_OF.items()
    for key in (f"{mark}_{word}", f"{word}_{mark}")
}


class RowsToCalibrate(NamedTuple):
    """Predictions, and whether their labels were in the file; if not, the labels are all 0 and mean nothing."""

    predictions: Predictions
    labelled: bool


@dataclass(frozen=True, eq=False)
class Contents:
    """The fields of one part of a file: read but not yet checked, or about to be written.

    A part has logits, or probabilities, or confidence and correct; readers drop probabilities beside logits.
    `no_labels` is the message for a caller who needs labels that the file does not have.
    """

    logits: Array | None = None
    probabilities: Array | None = None
    confidence: Array | None = None
    correct: Array | None = None
    labels: Array | None = None
    weights: Array | None = None
    groups: Array | None = None
    class_names: tuple[str, ...] | None = None
    no_labels: str = ""

    def either(self) -> Predictions | Confidences:
        """Return checked confidences if the part holds them, otherwise checked predictions."""
        return self.predictions() if self.confidence is None else self.confidences()

    def confidences(self) -> Confidences:
        """Return checked confidences."""
        if self.confidence is None:
            raise BadFile("holds scores of every class, not `confidence` and `correct`; read it with read_predictions")
        return Confidences(self.confidence, self.correct, self.weights, self.groups)

    def predictions(self) -> Predictions:
        """Return checked predictions, which need labels."""
        if self.labels is None and self.confidence is None:
            raise BadFile(self.no_labels)
        return self.rows_to_calibrate().predictions

    def rows_to_calibrate(self) -> RowsToCalibrate:
        """Return checked predictions, whose labels may be missing."""
        if self.confidence is not None:
            raise BadFile(
                "holds `confidence` and `correct`, but logits or probabilities of every class are needed here; "
                "read_confidences reads such a file for metrics, tests and figures"
            )
        scores = np.asarray(self.probabilities if self.logits is None else self.logits)
        labels = np.zeros(scores.shape[:1], np.int64) if self.labels is None else self.labels
        make = Predictions.from_probabilities if self.logits is None else Predictions
        rows = make(scores, labels, self.weights, self.groups, self.class_names)
        return RowsToCalibrate(rows, labelled=self.labels is not None)


def contents_by_part(
    keys: Iterable[str], read_array: Callable[[str], Array], read_names: Callable[[str], tuple[str, ...]]
) -> dict[str, Contents]:
    """Read the arrays and the class names of every part by their keys."""
    found, parts = sorted(keys), {}
    for part, fields in assign_keys(found).items():
        names = fields.pop("class_names", None)
        of_part = "" if part == WHOLE_FILE else f" of the part {part}"
        parts[part] = Contents(
            **{field: read_array(key) for field, key in fields.items()},
            class_names=None if names is None else read_names(names),
            no_labels=f"no labels{of_part}: found {listed(found)}; expected one of {listed(FIELD_WORDS['labels'])}",
        )
    return parts


def assign_keys(keys: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return part -> field -> key; unknown keys are left out, and labels may be missing.

    >>> assign_keys(["z_test", "y_test", "val_z", "y_val", "date"])
    {'calibration': {'logits': 'val_z', 'labels': 'y_val'}, 'test': {'labels': 'y_test', 'logits': 'z_test'}}
    """
    found = sorted(keys)
    parts: dict[str, dict[str, str]] = {}
    for key in found:
        if key not in _PART_AND_FIELD:
            continue
        part, field = _PART_AND_FIELD[key]
        fields = parts.setdefault(part, {})
        if field in fields:
            raise BadFile(f"both {fields[field]!r} and {key!r} are {field}; keep one of them")
        fields[field] = key
    if not parts:
        raise BadFile(
            f"no known key: found {listed(found)}; expected logits (or probabilities) and labels, "
            f"or confidence and correct"
        )
    shared = _take_shared_names(parts)
    ordered = [part for part in (WHOLE_FILE, *PART_WORDS) if part in parts]
    return {part: shared | _chosen_scores(part, parts[part], found) for part in ordered}


def refuse_mixed_scores(scores: str, fields: Mapping[str, str]) -> None:
    """Refuse confidence and correct beside scores of every class: they could describe different predictions."""
    if "confidence" in fields and "correct" in fields:
        raise BadFile(
            f"has {scores} as well as {fields['confidence']} and {fields['correct']}; keep the {scores} and the labels "
            f"to use all classes, or keep {fields['confidence']} and {fields['correct']}"
        )


def listed(names: Iterable[str], at_most: int = 12) -> str:
    """Join names with commas, cut after `at_most`.

    >>> listed(["a", "b", "c"], at_most=2)
    'a, b and 1 more'
    """
    given = list(names)
    text = ", ".join(given[:at_most]) or "none"
    return text if len(given) <= at_most else f"{text} and {len(given) - at_most} more"


def _take_shared_names(parts: dict[str, dict[str, str]]) -> dict[str, str]:
    """Remove and return class names without a part: they apply to every part without names of its own."""
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


def _chosen_scores(part: str, fields: Mapping[str, str], found: Iterable[str]) -> dict[str, str]:
    """Return the fields to read: logits rather than probabilities, or else confidence and correct."""
    scores = next((field for field in ("logits", "probabilities") if field in fields), None)
    unread = {"logits", "probabilities", "confidence", "correct"}
    if scores is not None:
        refuse_mixed_scores(scores, fields)
        unread -= {scores}
    elif "confidence" in fields and "correct" in fields:
        unread = {"labels", "class_names"}
    else:
        of_part = "" if part == WHOLE_FILE else f" of the part {part}"
        words = FIELD_WORDS["logits"] + FIELD_WORDS["probabilities"]
        raise BadFile(
            f"no logits or probabilities{of_part}: found {listed(found)}; expected one of {listed(words)}, "
            f"or both confidence and correct"
        )
    return {field: key for field, key in fields.items() if field not in unread}
