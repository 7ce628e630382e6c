"""Contents of a file: what its keys and columns mean, the record they fill, and the checked rows it becomes."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import numpy as np

from glayers.arrays import Array
from glayers.checks import check_choice, check_probabilities
from glayers.errors import BadFile, shown
from glayers.errors import listed as listed  # which messages about files use
from glayers.files import MemoryBudget
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
        f"no labels: name their key or column one of {', '.join(FIELD_WORDS['labels'])}; a .npy file holds logits "
        f"alone: give labels too, labels= or on the command line --labels labels.npy"
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


Parts: TypeAlias = dict[str, Contents]
Chunks: TypeAlias = Iterator[Parts]  # what a reader yields: the parts of a file, at once or some rows at a time


def one_part(parts: Mapping[str, _Part], part: str | None) -> _Part:
    """Return the part that is asked for, or the only one."""
    if part is None and len(parts) > 1:
        raise BadFile(
            f"has the parts {listed(parts)}; say which with part= (on the command line --part), "
            f"such as {next(iter(parts))!r}"
        )
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
    parts: dict[str, dict[str, list[str]]] = {}
    for key in all_keys:
        if key in known:
            part, field_name = known[key]
            parts.setdefault(part, {}).setdefault(field_name, []).append(key)
    shared = {}
    if len(parts) > 1:
        shared = parts.pop(WHOLE_FILE, {})
    if shared.keys() - {"class_names"}:
        raise BadFile(
            f"some keys belong to {listed(parts)} and others to no part; give every key its part, such as "
            f"logits_test, or none. The keys are {listed(all_keys)}"
        )
    if not parts:
        parts = {WHOLE_FILE: {}}
    return {part: _chosen_keys(shared | parts[part], all_keys, known) for part in sorted(parts)}


def _chosen_keys(fields: dict[str, list[str]], all_keys: list[str], known: KnownKeys) -> dict[str, str]:
    """Return the key of each field to read: logits rather than probabilities, or else confidence and correct."""
    scores = next((name for name in SCORES if name in fields), None)
    if scores is None and "confidence" not in fields:
        words = [key for key, place in known.items() if place in [(WHOLE_FILE, name) for name in SCORES]]
        raise BadFile(
            f"no logits or probabilities: found {listed(all_keys)}; expected one of these keys or column headers: "
            f"{listed(words)}, and labels; or both confidence and correct"
        )
    if scores is None:
        unread = {"labels", "class_names", "predicted"}
    elif "confidence" in fields and "correct" in fields:  # they could describe different predictions
        raise BadFile(
            f"has {scores} as well as confidence and correct; keep {scores} and labels to use all classes, "
            f"or keep confidence and correct"
        )
    else:
        unread = {*SCORES, "confidence", "correct", "predicted"} - {scores}
    chosen = {}
    for name in fields.keys() - unread:
        if len(fields[name]) > 1:
            raise BadFile(f"both {fields[name][0]!r} and {fields[name][1]!r} are {name}; keep one of them")
        chosen[name] = fields[name][0]
    return dict(sorted(chosen.items(), key=lambda item: list(FIELD_WORDS).index(item[0])))


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
    items = _items(name, values)
    _refuse_text(name, items)
    try:
        return np.array(items)
    except ValueError as error:
        raise BadFile(f"{name} must have rows of equal length, all of them numbers ({error})") from error


def _items(name: str, values: object) -> list[Any]:
    items = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(items, list):
        raise BadFile(f"{name} must be a list; got {shown(values)}")
    return items


def _refuse_text(name: str, values: list[Any]) -> None:
    """Refuse text in lists of numbers: NumPy would store every number at the length of the longest text."""
    for value in values:
        if isinstance(value, list):
            _refuse_text(name, value)
        elif isinstance(value, str):
            raise BadFile(f"{name} must be real numbers; got the text {shown(value)}")


def _class_names(values: object) -> tuple[str, ...]:
    names = as_text(_items("class_names", values))
    if not all(isinstance(name, str) for name in names):
        raise BadFile(f"class_names must be a list of text, one name per class; got {shown(names)}")
    return tuple(names)


def _groups(values: object) -> Array:
    """Return numbers as an array of numbers, and anything else as text, which takes only the memory of its names."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biufU":
        return values
    names = as_text(_items("groups", values))
    if any(isinstance(name, list | dict | None) for name in names):
        raise BadFile(f"groups must be a list of numbers or text; got {shown(values)}")
    if names and all(type(name) in (int, float, bool) for name in names):
        numbers = np.array(names)
        if numbers.dtype.kind in "biu" or float in map(type, names):
            return numbers  # whole numbers too long for 64 bits are not: they stay apart as text
    groups = np.empty(len(names), object)
    groups[:] = list(map(str, names))
    return groups


def as_text(values: list[Any]) -> list[Any]:
    """Return a list with text instead of bytes."""
    return [value.decode(errors="backslashreplace") if isinstance(value, bytes) else value for value in values]


def cells_of(values: Any) -> list[Any]:
    """Return a column as Python objects, whether it is a list, an array or a column of Parquet."""
    if hasattr(values, "to_pylist"):
        cells: list[Any] = values.to_pylist()
        return cells
    return values.tolist() if isinstance(values, np.ndarray) else list(values)
