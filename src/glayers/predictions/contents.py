"""Keys and columns of a file -> `Contents`: the fields that they mean, and the checked rows that these become."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np

from glayers.arrays import Array, Floats
from glayers.checks import check_choice, check_probabilities, label_distributions, to_float
from glayers.errors import BadFile, BadPredictions, listed, shown
from glayers.predictions.predictions import Confidences, Predictions, warn_of_certainty
from glayers.predictions.several_labels import MultiLabelPredictions

Inputs: TypeAlias = Literal["logits", "probabilities"] | None
Stated: TypeAlias = Mapping[str, float] | Literal["percent"] | None
Rows: TypeAlias = Predictions | Confidences

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
KEYS: Mapping[str, str] = {word: name for name, words in FIELD_WORDS.items() for word in words}
SCORES = ("logits", "probabilities")  # of every class
# What is read of a file with these scores; the first scores that a file has decide.
_OF_CLASSES = ("labels", "weights", "groups", "counts", "class_names")
_READ_WITH: Mapping[str, tuple[str, ...]] = {
    "logits": _OF_CLASSES,
    "probabilities": _OF_CLASSES,
    "confidence": ("correct", "weights", "groups", "counts"),
}
_TRUE_OR_FALSE = {"true": 1.0, "True": 1.0, "TRUE": 1.0, "false": 0.0, "False": 0.0, "FALSE": 0.0}
_STATED = "a number, such as 0.9 or 90%, or a word of stated= (on the command line --stated likely=0.7,sure=0.95)"
_NO_CORRECT = "holds `confidence` without `correct`; add whether each answer was correct, as 1 or 0"
_NO_LABELS = (
    f"no labels: name their key or column one of {', '.join(FIELD_WORDS['labels'])}; for a .npy file, give labels= or "
    f"on the command line --labels labels.npy"
)


@dataclass(frozen=True)
class Reading:
    """How to read files: what the options of `read_predictions` and of the command line say.

    Parameters
    ----------
    labels
        The labels of a `.npy` file: another `.npy` file.
    part
        The word that stands before or after the keys to read, as in logits_test; only for `.npz` and `.json`.
    inputs
        What a `.npy` file holds; None means logits.
    options
        The options of every question in a log of a language model, such as A, B, C, D.
    stated
        What stated confidences mean: "percent" if they go up to 100, or the number of each word.
    others
        Whether the rows are written again: other columns, such as an id, are read too, and counts repeat no rows.
    entries
        How many scores to read at a time; None reads a file at once.
    ignore_groups
        Whether rows are independent, whatever groups a file has.
    """

    labels: str | os.PathLike[str] | None = None
    part: str | None = None
    inputs: Inputs = None
    options: Sequence[str] | None = None
    stated: Stated = None
    others: bool = False
    entries: int | None = None
    ignore_groups: bool = False

    def __post_init__(self) -> None:
        if self.inputs is not None:
            check_choice(self.inputs, SCORES, "inputs")
        if not isinstance(self.part, str | None):
            raise BadPredictions(f"part must be text, such as 'test' for logits_test; got {shown(self.part)}")
        if isinstance(self.stated, Mapping):
            outside = {word: number for word, number in self.stated.items() if not 0 <= to_float(number) <= 1}
            if outside:
                raise BadPredictions(f"stated must give each word a number between 0 and 1; got {shown(outside)}")
        elif self.stated is not None:
            check_choice(self.stated, ["percent"], "stated")

    def rows_at_once(self, n_columns: int) -> int:
        """Return the number of rows of a chunk of a file with so many columns."""
        return max(1, (self.entries or sys.maxsize) // max(1, n_columns))


@dataclass(frozen=True, eq=False)
class Contents:
    """The fields of a file, or of some of its rows: read but not yet checked, or about to be written.

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
        answers = self.correct if self.inputs == "confidence" else self.labels
        return answers is not None

    @property
    def has_soft_labels(self) -> bool:
        """Whether the labels are a distribution over the classes per row."""
        labels = self.labels
        return labels is not None and labels.dtype.kind == "f" and label_distributions(labels) is not None

    @property
    def has_several_labels(self) -> bool:
        """Whether the labels are a matrix with several labels, or none, in some row."""
        labels = self.labels
        if labels is None or labels.ndim != 2 or labels.shape[1] == 1 or labels.dtype.kind not in "biuf":
            return False
        if self.has_soft_labels:
            return False
        # Exactly one in every row looks one-hot.
        several = bool((np.count_nonzero(labels, axis=1) != 1).any() or np.isnan(labels).any())
        if several and self.counts is not None:
            raise BadFile("rows with several labels have no counts; repeat the rows, or give weights")
        return several

    def __len__(self) -> int:
        return len(self.scores)

    def arrays(self) -> dict[str, Array]:
        """Return the fields that hold one value or one row of scores per row."""
        return {name: value for name, value in vars(self).items() if isinstance(value, np.ndarray)}

    def in_chunks(self, reading: Reading) -> Iterator["Contents"]:
        """Yield some rows at a time."""
        step = reading.rows_at_once(self.scores[:1].size)
        for first in range(0, max(1, len(self)), step):
            rows = slice(first, first + step)
            some: dict[str, Any] = {name: array[rows] for name, array in self.arrays().items()}
            others = {name: values[rows] for name, values in self.others.items()}
            yield replace(self, **some, others=others)

    def checked(self, *, needs_labels: bool = True, warn: bool = True) -> Rows:
        """Return checked rows; without `needs_labels`, rows without any get labels that are possible classes.

        With `warn`, a warning counts labels whose probability is 0. Other probabilities of 0, such as those of masked
        classes, change no score.
        """
        if needs_labels and not self.labelled:
            raise BadFile(_NO_CORRECT if self.inputs == "confidence" else _NO_LABELS)
        scores = self.scores
        extras: dict[str, Any] = {"weights": self.weights, "groups": self.groups, "counts": self.counts}
        if self.inputs == "confidence":
            correct = np.zeros(scores.shape, bool) if self.correct is None else self.correct
            return Confidences(scores, correct, **extras)
        if self.has_several_labels:
            make = MultiLabelPredictions if self.inputs == "logits" else MultiLabelPredictions.from_probabilities
            return make(scores, self.labels, self.weights, self.groups, self.class_names)
        extras["class_names"] = self.class_names
        extras["labels"] = self.labels
        if self.labels is None:  # class 0 may be impossible, the highest score is not
            is_matrix = scores.ndim == 2 and scores.shape[1] > 1
            extras["labels"] = scores.argmax(axis=1) if is_matrix else np.zeros(len(scores), np.int64)
        if self.inputs == "logits":
            return Predictions(scores, **extras)
        rows = Predictions._of_probabilities(check_probabilities(scores), **extras)
        if warn:
            of_labels = rows.probabilities()[np.arange(len(rows)), rows.labels]
            warn_of_certainty(of_labels < 1.1e-12, "probabilities of labels are 0")  # rows may sum to 0.99
        return rows


def keys_of_fields(names: Iterable[str], known: Mapping[str, str] = KEYS) -> dict[str, str]:
    """Return the key of each field to read: logits rather than probabilities, or else confidence and correct.

    >>> keys_of_fields(["z", "y", "date"])
    {'logits': 'z', 'labels': 'y'}
    """
    found = list(names)
    keys = keys_by_field(found, known)
    for scores, others in _READ_WITH.items():
        if scores in keys:
            return {name: keys[name] for name in (scores, *others) if name in keys}
    words = [key for key, name in known.items() if name in SCORES]
    raise BadFile(
        f"no logits or probabilities: found {listed(found)}; expected one of these keys or column headers: "
        f"{listed(words)}, and labels; or confidence and correct. For keys such as logits_test, say part= (on the "
        f"command line --part)"
    )


def keys_by_field(names: Iterable[str], known: Mapping[str, str]) -> dict[str, str]:
    """Return the one key of each field."""
    keys: dict[str, str] = {}
    for key in names:
        name = known.get(key)
        if name in keys:
            raise BadFile(f"both {keys[name]!r} and {key!r} are {name}; keep one of them")
        if name is not None:
            keys[name] = key
    return keys


def keys_of_part(names: Iterable[str], part: str | None) -> dict[str, str]:
    """Return the key of each field of one part of an archive, which stands before or after its keys.

    >>> keys_of_part(["z_test", "y_test", "z_val", "class_names"], "test")
    {'logits': 'z_test', 'labels': 'y_test', 'class_names': 'class_names'}
    """
    if part is None:
        return keys_of_fields(names)
    known = {"class_names": "class_names"}
    for word, name in KEYS.items():
        known[f"{word}_{part}"] = name
        known[f"{part}_{word}"] = name
    return keys_of_fields(names, known)


def contents_of(
    values: Mapping[str, Any],
    reading: Reading,
    others: Mapping[str, Any] | None = None,
    place: Callable[[str, int], str] = "{} of row {}".format,
    ignored: Iterable[str] = (),
) -> Contents:
    """Return contents from the array, the list or the cells of each field.

    `place` says where a value stands, and `ignored` names columns.
    """
    arrays = {name: _array(value, name) for name, value in values.items()}
    names = tuple(map(str, arrays.pop("class_names"))) if "class_names" in values else None
    words: dict[str, Mapping[str, float]] = {"correct": _TRUE_OR_FALSE}
    words["labels"] = {name: number for number, name in enumerate(names or ())}
    of_label = (
        f"a number or one of {listed(names or ())}: no column has the scores of another class. Rename its column "
        f"(ignored: {listed(ignored)}), or fix or remove that row"
    )
    fields: dict[str, Any] = {}
    for name, cells in arrays.items():
        fields[name] = cells
        if name == "confidence":
            fields[name] = stated_confidences(cells, reading.stated, partial(place, name))
        elif cells.dtype == object and name != "groups":
            expected = of_label if names and name == "labels" else ""
            fields[name] = numbers_or_words(cells, words.get(name, {}), partial(place, name), expected)
    counts = {name: len(array) for name, array in fields.items()}
    if len(set(counts.values())) > 1:
        raise BadFile(f"its arrays have different numbers of rows: {counts}; save rows of one kind")
    return Contents(**fields, class_names=names, others=others or {})


def _array(value: Any, name: str) -> Array:
    """Return a field as an array: of objects where a list holds text, or names of groups, which may be long numbers."""
    if isinstance(value, np.ndarray) and value.ndim:
        return value
    if not isinstance(value, list):
        raise BadFile(f"{name} must be a list; got {shown(value)}")
    kinds = set(map(type, value))
    if name == "groups" and not kinds <= {str, int, float, bool}:
        raise BadFile(f"groups must be a list of numbers or text; got {shown(value)}")
    if str in kinds or (name == "groups" and float not in kinds):
        return object_array(value)
    return real_numbers(value, name)


def real_numbers(values: list[Any], name: str) -> Array:
    """Return numbers, or text of numbers, as an array."""
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError) as error:
        raise BadFile(f"{name} must be real numbers, in rows of equal length ({str(error)[:200]})") from error


def object_array(values: list[Any]) -> Array:
    """Return text as an array of objects: an array of text would have every row as long as the longest."""
    array = np.empty(len(values), object)
    array[:] = values
    return array


def numbers_or_words(
    cells: Array, words: Mapping[str, float], place: Callable[[int], str], expected: str = ""
) -> Floats:
    """Return cells as numbers, for which words may stand, or raise an error that names the first other one."""
    numbers = np.array([number_of(cell, words) for cell in cells], np.float64)
    for row in np.flatnonzero(np.isnan(numbers)).tolist():
        among = f" or one of {listed(words)}" if words else ""
        expected = expected or f"a number{among}: fix or remove that row"
        raise BadFile(f"{place(row)} has {shown(cells[row])}; expected {expected}")
    return numbers


def number_of(cell: Any, words: Mapping[str, float]) -> float:
    """Parse a word or a number, else return NaN; 1_0, which Python accepts, is more likely an error than ten."""
    word = str(cell).strip()
    if word in words:
        return words[word]
    try:
        return np.nan if "_" in word else float(word)
    except ValueError:
        return np.nan


def stated_confidences(cells: Array, stated: Stated, place: Callable[[int], str]) -> Array:
    """Return confidences as numbers: 0.9, the text 90%, a word that `stated` maps to a number, or 90 if it says so.

    >>> stated_confidences(np.array(["90%", "likely"]), {"likely": 0.7}, "row {}".format).tolist()
    [0.9, 0.7]
    """
    words = {}
    if isinstance(stated, Mapping):
        words = {word.casefold(): number for word, number in stated.items()}
    signs = np.zeros(len(cells), bool)
    if cells.dtype.kind in "OU":
        texts = [str(cell).strip().casefold() for cell in cells]
        signs = np.array([text.endswith("%") for text in texts])
        bare = object_array([text.removesuffix("%") for text in texts])
        cells = numbers_or_words(bare, words, place, _STATED)
    if stated == "percent":
        plain = np.where(signs, 0, cells)
        for row in np.flatnonzero((plain > 0) & ((plain < 1) | (plain.max() <= 1))).tolist():
            raise BadFile(
                f"{place(row)} has {plain[row]:g}, which may be a fraction or a percentage: write {plain[row]:g}% as "
                f"text or, if the confidences are fractions, read them without stated=percent"
            )
        return cells / 100
    return np.where(signs, cells / 100, cells)
