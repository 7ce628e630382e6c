"""Contents of a file: what its keys and columns mean, the record they fill, and the checked rows it becomes."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import numpy as np

from glayers.arrays import Array
from glayers.checks import check_choice, check_probabilities
from glayers.errors import BadFile, shown
from glayers.errors import listed as listed  # which messages about files use
from glayers.files import MemoryBudget
from glayers.predictions.predictions import Confidences, Predictions

Inputs: TypeAlias = Literal["logits", "probabilities"] | None
Rows: TypeAlias = Predictions | Confidences

# The first word is the field's own name; the reader accepts the others too.
FIELD_WORDS: Mapping[str, tuple[str, ...]] = {
    "logits": ("logits", "logit", "z"),
    "probabilities": ("probabilities", "probs", "proba", "p"),
    "confidence": ("confidence", "confidences"),
    "correct": ("correct",),
    "labels": ("labels", "label", "y", "y_true", "targets", "target"),
    "weights": ("weights", "weight", "sample_weight"),
    "groups": ("groups", "group"),
    "counts": ("counts", "count"),
    "predicted": ("predicted",),
    "class_names": ("class_names",),
}
SCORES = ("logits", "probabilities")  # of every class; logits are read if both are there
PART_WORDS: Mapping[str, tuple[str, ...]] = {
    "calibration": ("calibration", "calib", "cal", "validation", "valid", "val"),
    "test": ("test",),
}
WHOLE_FILE = "all"
KnownKeys: TypeAlias = Mapping[str, tuple[str, str]]  # the part and the field of a key


def _archive_keys() -> dict[str, tuple[str, str]]:
    """Return the part and the field of each key: plain, or with the word of a part before or after it."""
    keys = {}
    for field_name, words in FIELD_WORDS.items():
        for word in words:
            keys[word] = (WHOLE_FILE, field_name)
            for part, marks in PART_WORDS.items():
                for mark in marks:
                    keys[f"{mark}_{word}"] = (part, field_name)
                    keys[f"{word}_{mark}"] = (part, field_name)
    return keys


ARCHIVE_KEYS = _archive_keys()


@dataclass(frozen=True)
class Reading:
    """How to read files: what the options of `read_predictions` and of the command line say.

    Parameters
    ----------
    labels
        The labels of a `.npy` file: another `.npy` file.
    part
        "calibration" or "test" for a file with two parts.
    inputs
        What the scores are, whatever their name says; None leaves it to the name.
    columns
        For tables with other headers: the column of each field, with a star for the class.
    others
        Whether to read the other columns of a table too, such as an id.
    """

    labels: str | os.PathLike[str] | None = None
    part: str | None = None
    inputs: Inputs = None
    columns: Mapping[str, str] = field(default_factory=dict)
    others: bool = False


@dataclass(frozen=True)
class Portion:
    """How much of a file to read: all at once, or chunks of so many scores, of all rows or of some of them."""

    budget: MemoryBudget
    chunk_entries: int | None = None
    rows: range | None = None

    def rows_at_once(self, n_columns: int) -> int:
        """Return the number of rows of a chunk of a file with so many columns."""
        if self.chunk_entries is None:
            return sys.maxsize
        return max(1, self.chunk_entries // max(1, n_columns))


@dataclass(frozen=True, eq=False)
class Contents:
    """The fields of one part of a file: read but not yet checked, or about to be written.

    Input has logits, or probabilities, or confidence and correct. New rows, which a calibrator is applied to, need
    neither labels nor correct. Output also has the predicted class and its confidence. `others` are columns that mean
    nothing here, and `no_labels` is the message for a caller who needs labels that the file does not have.
    """

    logits: Array | None = None
    probabilities: Array | None = None
    labels: Array | None = None
    predicted: Array | None = None
    confidence: Array | None = None
    correct: Array | None = None
    weights: Array | None = None
    groups: Array | None = None
    counts: Array | None = None
    class_names: tuple[str, ...] | None = None
    others: Mapping[str, Any] = field(default_factory=dict)
    no_labels: str = ""

    @property
    def inputs(self) -> str:
        """What a calibrator of these rows takes: logits, probabilities or confidence."""
        if self.logits is not None:
            return "logits"
        return "confidence" if self.probabilities is None else "probabilities"

    @property
    def scores(self) -> Array:
        """The logits, probabilities or confidence of each row."""
        return np.asarray(getattr(self, self.inputs))

    @property
    def labelled(self) -> bool:
        """Whether the answers are known."""
        return self.labels is not None or (self.inputs == "confidence" and self.correct is not None)

    def __len__(self) -> int:
        return len(self.scores)

    def with_declared_inputs(self, inputs: Inputs) -> "Contents":
        """Return the contents with their scores under the name that the caller gave them."""
        if inputs is None or self.inputs == "confidence":
            return self
        check_choice(inputs, SCORES, "inputs")
        names: dict[str, Any] = {"logits": None, "probabilities": None, inputs: self.scores}
        return replace(self, **names)

    def with_possible_labels(self) -> "Contents":
        """Return the contents with labels; where there are none, each label is a possible class."""
        if self.labelled:
            return self
        scores = self.scores
        if self.inputs == "confidence":
            return replace(self, correct=np.zeros(scores.shape, bool))
        if scores.ndim == 2 and scores.shape[1] > 1 and scores.dtype.kind == "f":
            return replace(self, labels=scores.argmax(axis=1))
        return replace(self, labels=np.zeros(scores.shape[:1], np.int64))

    def checked(self, warn: bool = True) -> Rows:
        """Return checked rows of either kind; with `warn`, a warning counts probabilities of 0."""
        return self.confidences() if self.inputs == "confidence" else self.predictions(warn)

    def confidences(self) -> Confidences:
        """Return checked confidences."""
        if self.inputs != "confidence":
            raise BadFile("holds scores of every class, not `confidence` and `correct`; read it with read_predictions")
        if self.correct is None:
            raise BadFile("holds `confidence` without `correct`; add whether each answer was correct, as 1 or 0")
        return Confidences(self.confidence, self.correct, self.weights, self.groups, self.counts)

    def predictions(self, warn: bool = True) -> Predictions:
        """Return checked predictions."""
        if self.inputs == "confidence":
            raise BadFile(
                "holds `confidence` and `correct`, but logits or probabilities of every class are needed here; "
                "read_confidences reads such a file for metrics, tests, figures and calibrators of a confidence"
            )
        if self.labels is None:
            raise BadFile(self.no_labels)
        names = ("labels", "weights", "groups", "class_names", "counts")
        extras: dict[str, Any] = {name: getattr(self, name) for name in names}
        if self.inputs == "logits":
            return Predictions(self.scores, **extras)
        if warn:
            return Predictions.from_probabilities(self.scores, **extras)
        return Predictions._of_probabilities(check_probabilities(self.scores), **extras)


Parts: TypeAlias = dict[str, Iterator[Contents]]  # chunks of each part of a file


def keys_by_part(keys: Iterable[str], known: KnownKeys) -> dict[str, dict[str, str]]:
    """Return the key of each field of each part, calibration before test. Unknown keys are left out.

    >>> keys_by_part(["z_test", "y_test", "date"], ARCHIVE_KEYS)
    {'test': {'logits': 'z_test', 'labels': 'y_test'}}
    """
    all_keys = list(keys)
    parts: dict[str, dict[str, list[str]]] = {}
    for key in all_keys:
        if key in known:
            part, field_name = known[key]
            parts.setdefault(part, {}).setdefault(field_name, []).append(key)
    shared = _take_shared_names(parts)
    if not parts:
        parts = {WHOLE_FILE: {}}
    return {
        part: _chosen_keys(shared | parts[part], missing_message(part, all_keys, known, *SCORES))
        for part in sorted(parts)
    }


def missing_message(part: str, all_keys: Iterable[str], known: KnownKeys, *fields: str) -> str:
    """Return what is missing, what was found, and what was expected."""
    of_part = "" if part == WHOLE_FILE else f" of the part {part}"
    words = [key for key, place in known.items() if place in [(WHOLE_FILE, name) for name in fields]]
    expected = f"expected one of these keys or column headers: {listed(words)}"
    return f"no {' or '.join(fields)}{of_part}: found {listed(all_keys)}; {expected}"


def _take_shared_names(parts: dict[str, dict[str, list[str]]]) -> dict[str, list[str]]:
    """Remove and return class names without a part: they apply to every part without names of its own."""
    if len(parts) == 1 or WHOLE_FILE not in parts:
        return {}
    whole = parts.pop(WHOLE_FILE)
    others = [key for name, keys in whole.items() if name != "class_names" for key in keys]
    if others:
        raise BadFile(
            f"{listed(others)} name no part, but other keys belong to {listed(parts)}; "
            f"give every key its part, such as {others[0]}_test, or none"
        )
    return whole


def _chosen_keys(fields: dict[str, list[str]], no_scores: str) -> dict[str, str]:
    """Return the key of each field to read: logits rather than probabilities, or else confidence and correct."""
    scores = next((name for name in SCORES if name in fields), None)
    if scores is None and "confidence" not in fields:
        raise BadFile(f"{no_scores}, and labels; or both confidence and correct")
    if scores is None:
        unread = {"labels", "class_names", "predicted"}
    elif "confidence" in fields and "correct" in fields:  # they could describe different predictions
        pair = f"{fields['confidence'][0]} and {fields['correct'][0]}"
        raise BadFile(f"has {scores} as well as {pair}; keep {scores} and labels to use all classes, or keep {pair}")
    else:
        unread = {*SCORES, "confidence", "correct", "predicted"} - {scores}
    chosen = {}
    for name, keys in fields.items():
        if name in unread:
            continue
        if len(keys) > 1:
            raise BadFile(f"both {keys[0]!r} and {keys[1]!r} are {name}; keep one of them")
        chosen[name] = keys[0]
    return chosen


def class_names_in(key: str, values: object) -> tuple[str, ...]:
    """Return a list of text as class names."""
    names = values.tolist() if isinstance(values, np.ndarray) else values
    if isinstance(names, list):
        names = [name.decode() if isinstance(name, bytes) else name for name in names]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadFile(f"{key} must be a list of text, one name per class; got {shown(names)}")
    return tuple(names)


def groups_in(key: str, values: object) -> Array:
    """Return groups as every format can hold them: bytes and very long whole numbers as text, floats as float64."""
    if isinstance(values, np.ndarray) and values.dtype.kind != "S":
        narrow = values.astype(np.float64) if values.dtype == np.longdouble else values
        if (narrow != values).any():
            raise BadFile(f"{key} holds numbers with more digits than float64 has; save them as text")
        return narrow
    items = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(items, list) or any(isinstance(item, list | dict | None) for item in items):
        raise BadFile(f"{key} must be a list of numbers or text; got {shown(values)}")
    return group_ids(items)


def group_ids(values: list[Any]) -> Array:
    """Return numbers as an array of numbers; text as objects, as an array of text has every row as long as the longest.

    >>> group_ids(["a", "bc"]).dtype, group_ids([2, 3]).dtype, group_ids([b"a"])[0], group_ids([-1, 2**63])[1]
    (dtype('O'), dtype('int64'), 'a', '9223372036854775808')
    """
    if not any(isinstance(value, str | bytes) for value in values):
        numbers = np.array(values)
        if numbers.dtype.kind in "biu" or any(isinstance(value, float) for value in values):
            return numbers
    names = np.empty(len(values), object)
    if any(isinstance(value, bytes) for value in values):
        names[:] = _decoded(values)
    else:
        names[:] = list(map(str, values))
    return names


def _decoded(values: list[Any]) -> list[str]:
    """Return bytes as text, all of them by UTF-8 or else by Latin-1, so that no two become the same."""
    raw = [value if isinstance(value, bytes) else str(value).encode() for value in values]
    try:
        return [value.decode() for value in raw]
    except UnicodeDecodeError:
        return [value.decode("latin-1") for value in raw]


def cells_of(values: Any) -> list[Any]:
    """Return a column as Python objects, whether it is a list, an array or a column of Parquet."""
    if hasattr(values, "to_pylist"):
        cells: list[Any] = values.to_pylist()
        return cells
    return values.tolist() if isinstance(values, np.ndarray) else list(values)
