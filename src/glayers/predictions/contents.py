"""Fields: what the keys and columns of a file mean, and the checked rows that they become."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import numpy as np

from glayers.arrays import Array
from glayers.checks import check_choice, check_probabilities
from glayers.errors import BadFile, BadPredictions, shown
from glayers.errors import listed as listed  # which messages about files use
from glayers.predictions.predictions import Confidences, Predictions

Inputs: TypeAlias = Literal["logits", "probabilities"] | None
Rows: TypeAlias = Predictions | Confidences
_Part = TypeVar("_Part")

# The first word is the field's own name; the reader accepts the others too.
FIELD_WORDS: Mapping[str, tuple[str, ...]] = {
    "logits": ("logits", "logit", "z", "log_probabilities", "logprobs", "log_likelihoods"),
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
PART_WORDS = {
    "calibration": ("calibration", "calib", "cal", "validation", "valid", "val"),
    "test": ("test",),
}
WHOLE_FILE = "all"
KnownKeys: TypeAlias = Mapping[str, tuple[str, str]]  # the part and the field of a key

KEYS: KnownKeys = {word: (WHOLE_FILE, name) for name, words in FIELD_WORDS.items() for word in words}


def _keys_of_parts() -> dict[str, tuple[str, str]]:
    """Return the part and the field of each key that has the word of a part before or after it."""
    keys = {}
    for part, marks in PART_WORDS.items():
        for mark in marks:
            for word, (_, name) in KEYS.items():
                keys[f"{mark}_{word}"] = (part, name)
                keys[f"{word}_{mark}"] = (part, name)
    return keys


ARCHIVE_KEYS: KnownKeys = {**KEYS, **_keys_of_parts()}


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

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping) or not all(isinstance(name, str) for name in self.columns.values()):
            raise BadPredictions(
                f'columns must map fields to headers, such as {{"logits": "c*", "labels": "y"}}; '
                f"got {shown(self.columns)}"
            )


@dataclass(frozen=True)
class Portion:
    """What to read of a file: all at once within a limit of memory, or some rows, so many scores at a time."""

    path: Path
    reading: Reading
    limit: int
    entries: int | None = None
    rows: range | None = None

    def rows_at_once(self, n_columns: int) -> int:
        """Return the number of rows of a chunk of a file with so many columns."""
        if self.entries is None:
            return sys.maxsize
        return max(1, self.entries // max(1, n_columns))


@dataclass(frozen=True, eq=False)
class Contents:
    """The fields of one part of a file: read but not yet checked, or about to be written.

    Input has logits, or probabilities, or confidence and correct. New rows, which a calibrator is applied to, need
    neither labels nor correct. Output also has the predicted class and its confidence. `others` are columns that mean
    nothing here.
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

    no_labels: ClassVar[str] = (
        f"no labels: name their key or column one of {', '.join(FIELD_WORDS['labels'])}; for a .npy file, give "
        f"labels= or on the command line --labels labels.npy"
    )

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

    def arrays(self) -> dict[str, Array]:
        """Return the fields that hold one value or one row of scores per row."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def in_chunks(self, portion: Portion) -> Iterator["Contents"]:
        """Yield some rows at a time."""
        arrays: dict[str, Any] = self.arrays()
        sizes = {name: len(array) if array.ndim else 0 for name, array in arrays.items()}
        if len(set(sizes.values())) > 1:
            raise BadFile(f"its arrays have different numbers of rows: {sizes}; save rows of one kind")
        step = portion.rows_at_once(self.scores[:1].size)
        for first in range(0, max(1, len(self)), step):
            rows = slice(first, first + step)
            some = {name: array[rows] for name, array in arrays.items()}
            others = {name: values[rows] for name, values in self.others.items()}
            yield replace(self, **some, others=others)

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
        if scores.ndim == 2 and scores.shape[1] > 1:
            return replace(self, labels=scores.argmax(axis=1))
        return replace(self, labels=np.zeros(len(scores), np.int64))

    def checked(self, warn: bool = True) -> Rows:
        """Return checked rows of either kind; with `warn`, a warning counts probabilities of 0."""
        extras: dict[str, Any] = {"weights": self.weights, "groups": self.groups, "counts": self.counts}
        if self.inputs == "confidence":
            if self.correct is None:
                raise BadFile("holds `confidence` without `correct`; add whether each answer was correct, as 1 or 0")
            return Confidences(self.confidence, self.correct, **extras)
        if self.labels is None:
            raise BadFile(self.no_labels)
        if self.inputs == "logits":
            return Predictions(self.scores, self.labels, class_names=self.class_names, **extras)
        if warn:
            return Predictions.from_probabilities(self.scores, self.labels, class_names=self.class_names, **extras)
        fields = (self.labels, self.weights, self.groups, self.class_names, self.counts)
        return Predictions._of_probabilities(check_probabilities(self.scores), *fields)


Parts: TypeAlias = dict[str, Contents]
Chunks: TypeAlias = Iterator[Parts]  # what a reader yields: the parts of a file, at once or some rows at a time


def one_part(parts: Mapping[str, _Part], part: str | None) -> _Part:
    """Return the part that is asked for, or the only one."""
    if part is None and len(parts) > 1:
        raise BadFile(f"has the parts {listed(parts)}; say which with part= (on the command line --part)")
    if part is not None and (not isinstance(part, str) or part not in parts):
        raise BadFile(f"has no part {shown(part)}; its parts are {listed(parts)}")
    return parts[part or next(iter(parts))]


def only_part(parts: Parts) -> Contents:
    """Return the only part, for formats that cannot hold two."""
    if len(parts) != 1:
        raise BadFile(f"a table holds one part, not {listed(parts)}; choose one of them, or write .npz or .json")
    return next(iter(parts.values()))


def keys_by_part(keys: Iterable[str], known: KnownKeys = ARCHIVE_KEYS) -> dict[str, dict[str, str]]:
    """Return the key of each field of each part, calibration before test. Unknown keys are left out.

    Class names without a part apply to every part without names of its own.

    >>> keys_by_part(["z_test", "y_test", "date"])
    {'test': {'logits': 'z_test', 'labels': 'y_test'}}
    """
    all_keys = list(keys)
    parts: dict[str, dict[str, str]] = {}
    for key in all_keys:
        if key not in known:
            continue
        part, name = known[key]
        fields = parts.setdefault(part, {})
        if name in fields:
            raise BadFile(f"both {fields[name]!r} and {key!r} are {name}; keep one of them")
        fields[name] = key
    shared = {}
    if len(parts) > 1:
        shared = parts.pop(WHOLE_FILE, {})
    if shared.keys() - {"class_names"}:
        raise BadFile(f"some keys belong to {listed(parts)} and others to no part; add the part, as in logits_test")
    if not parts:
        parts = {WHOLE_FILE: {}}
    return {part: _fields_to_read(shared | parts[part], all_keys, known) for part in sorted(parts)}


def _fields_to_read(fields: dict[str, str], all_keys: list[str], known: KnownKeys) -> dict[str, str]:
    """Return the key of each field to read: logits rather than probabilities, or else confidence and correct."""
    scores = [name for name in SCORES if name in fields]
    unread = {"predicted"}
    if scores:
        unread |= {"confidence", "correct", *scores[1:]}
        if "confidence" in fields and "correct" in fields:  # they could describe different predictions
            raise BadFile(f"has {scores[0]} as well as confidence and correct; keep {scores[0]} to use all classes")
    elif "confidence" in fields:
        unread |= {"labels", "class_names"}
    else:
        words = [key for key, (part, name) in known.items() if part == WHOLE_FILE and name in SCORES]
        expected = f"one of these keys or column headers: {listed(words)}, and labels; or confidence and correct"
        raise BadFile(f"no logits or probabilities: found {listed(all_keys)}; expected {expected}")
    return {name: fields[name] for name in FIELD_WORDS if name in fields and name not in unread}


def parts_of(keys: dict[str, dict[str, str]], values: Mapping[str, object]) -> Parts:
    """Return the contents of each part from the values of all keys."""
    return {part: contents_of({name: values[key] for name, key in fields.items()}) for part, fields in keys.items()}


def contents_of(values: Mapping[str, object], others: Mapping[str, Any] | None = None) -> Contents:
    """Return contents from the arrays or lists of each field."""
    fields: dict[str, Any] = {}
    for name, value in values.items():
        if name == "class_names":
            fields[name] = _class_names(value)
        elif name == "groups":
            fields[name] = _groups(value)
        else:
            fields[name] = _numbers(name, value)
    return Contents(**fields, others=others or {})


def _numbers(name: str, values: object) -> Array:
    if isinstance(values, np.ndarray):
        return values
    try:
        return np.array(_items(name, values), np.float64)
    except (TypeError, ValueError) as error:
        raise BadFile(f"{name} must be real numbers, in rows of equal length ({str(error)[:200]})") from error


def _items(name: str, values: object) -> list[Any]:
    items = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(items, list):
        raise BadFile(f"{name} must be a list; got {shown(values)}")
    return as_text(items)


def _class_names(values: object) -> tuple[str, ...]:
    names = _items("class_names", values)
    if not all(isinstance(name, str) for name in names):
        raise BadFile(f"class_names must be a list of text, one name per class; got {shown(names)}")
    return tuple(names)


def _groups(values: object) -> Array:
    """Return numbers as they are; anything else as objects, each of which takes only the memory of its own name."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biufU":
        return values
    names = _items("groups", values)
    if not all(isinstance(name, str | int | float) for name in names):
        raise BadFile(f"groups must be a list of numbers or text; got {shown(values)}")
    return object_array(names)


def as_text(values: list[Any]) -> list[Any]:
    """Return a list with text instead of bytes."""
    return [value.decode(errors="backslashreplace") if isinstance(value, bytes) else value for value in values]


def object_array(values: list[Any]) -> Array:
    """Return text as an array of objects: an array of text would have every row as long as the longest."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def cells_of(values: Any) -> list[Any]:
    """Return a column as Python objects, whether it is a list, an array or a column of Parquet."""
    if hasattr(values, "to_pylist"):
        cells: list[Any] = values.to_pylist()
        return cells
    return values.tolist() if isinstance(values, np.ndarray) else list(values)
