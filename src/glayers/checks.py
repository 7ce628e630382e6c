"""What a caller passed -> arrays and settings that the rest of the library can trust, or an error with a way out.

The tolerance for rounding in probabilities is decided here, for everything that reads probabilities.
"""

import math
import operator
import warnings
from collections.abc import Iterable, Iterator
from numbers import Real
from typing import Any, SupportsIndex

import numpy as np

from glayers.arrays import Array, Bools, Floats, Ints, to_floats, to_numbers, to_numpy
from glayers.errors import BadPredictions, GlayersWarning, shown

_SUM_ROUNDING = 1e-2  # sums of float16 probabilities of many classes, and of printed ones, differ from 1 by this much
MAX_SEED = 2**32 - 1  # NumPy's older generators, which scikit-learn uses, take no larger seed
_IF_LOGITS = "If these are logits, pass Predictions(logits=..., labels=...); in a file, name the array `logits`"
_IF_PROBABILITIES = "use from_probabilities; in a file, name the array `probabilities`, columns probability_<class>"


def refuse(bad: Array, values: Array, expected: str, way_out: str = "") -> None:
    """Raise an error that names the first bad entry of an array, if there is one.

    >>> refuse(np.array([False, True]), np.array([0.5, -1.0]), "must be positive")
    Traceback (most recent call last):
    glayers.errors.BadPredictions: must be positive; row 1 has -1
    """
    if bad.any():
        place = np.argwhere(bad)[0]
        value = values[tuple(place)]
        text = f"{value:g}" if isinstance(value, np.floating) else str(value)[:40]
        raise BadPredictions(f"{expected}; row {', column '.join(map(str, place))} has {text}{way_out}")


def check_logits(values: object) -> Array:
    """Return the logits (n, m) that a user passed; refuse them if all rows together look like probabilities."""
    logits = possible_logits(values)
    if logits.shape[1] > 1 and logits.min() >= 0 and _rows_sum_to_one(logits).all():
        raise BadPredictions(
            f"these logits look like probabilities: none is negative, and every row sums to 1. If they are, "
            f"{_IF_PROBABILITIES}. If not, subtract 1 from all of them: no probability changes"
        )
    if logits.shape[1] == 1 and len(logits) > 1 and logits.min() >= 0 and logits.max() <= 1:
        warnings.warn(
            f"all one-column logits lie between 0 and 1: if they are probabilities of class 1, {_IF_PROBABILITIES}",
            GlayersWarning,
            stacklevel=3,  # the caller of the function that checks its logits
        )
    return logits


def possible_logits(values: object) -> Array:
    """Return logits (n, m) of which every row can be predicted: finite, or -inf for a class that is impossible."""
    logits = to_floats(values, "logits")
    if logits.ndim == 1:  # one logit of a binary model
        logits = logits[:, None]
    two_dimensional(logits, "logits")
    if np.isfinite([logits.min(), logits.max()]).all():  # quick, and in little memory
        return logits
    way_out = ". Remove those rows; only -inf is allowed, for a class that is impossible in that row"
    refuse(~(logits < np.inf), logits, "logits must be finite", way_out)
    if logits.shape[1] > 1:
        highest = logits.max(axis=1)
        refuse(np.isneginf(highest), highest, "one class of each row must be possible", " for every class")
    return logits


def refuse_impossible_labels(logits: Array, labels: Ints) -> None:
    """Refuse a label whose class has a logit of -inf. One logit of -inf makes class 1 of two impossible."""
    if logits.shape[1] > 1:
        own = logits[np.arange(len(labels)), labels]
    else:
        own = np.where(labels == 1, logits[:, 0], 0.0)
    way_out = ", whose logit is -inf: that class was impossible. Correct the label or the mask, or remove the row"
    refuse(np.isneginf(own), labels, "labels must be possible classes", way_out)


def check_probabilities(values: object) -> Array:
    """Return the probabilities (n, k) that a user passed: rows that sum to 1, or one column with those of class 1."""
    probabilities = two_dimensional(to_floats(values, "probabilities"), "probabilities")
    check_probability_rows(probabilities)
    return probabilities


def check_confidence(values: object) -> Floats:
    """Return the confidence (n,) of each row, between 0 and 1."""
    confidence = to_floats(values, "confidence").astype(np.float64)
    if confidence.ndim != 1 or confidence.size == 0:
        way_out = "For probabilities of every class, use Predictions.from_probabilities"
        raise BadPredictions(f"confidence must be one number per row; got shape {confidence.shape}. {way_out}")
    refuse_outside_unit_interval(confidence, "confidence", way_out="Divide percentages by 100; apply sigmoid to logits")
    return confidence


def check_correct(values: object, n_rows: int) -> Bools:
    """Return whether each answer was correct, given as True and False or as 1 and 0."""
    correct = one_per_row(to_numbers(values, "correct"), n_rows, "correct")
    way_out = ". Compare the answers with the truth first, such as predicted == labels"
    refuse((correct != 0) & (correct != 1), correct, "correct must be True or False (1 or 0) for each row", way_out)
    return correct.astype(np.bool_)


def check_probability_rows(probabilities: Array) -> None:
    """Refuse rows (n, k) outside [0, 1] and, for more than one column, rows that do not sum to 1."""
    refuse_outside_unit_interval(probabilities, "probabilities")
    if probabilities.shape[1] > 1 and not _rows_sum_to_one(probabilities).all():
        row = _rows_sum_to_one(probabilities).argmin()
        raise BadPredictions(
            f"each row of probabilities must sum to 1; row {row} sums to {probabilities[row].sum():g}. Divide each "
            f"row? Not if a row may have several labels: use MultiLabelCalibrator. {_IF_LOGITS}"
        )


def refuse_outside_unit_interval(
    values: Array, name: str, way_out: str = f"Divide percentages by 100. {_IF_LOGITS}"
) -> None:
    """Refuse values that are not numbers between 0 and 1, up to rounding."""
    lowest = -1e-6  # 1 - p computed in float32 may give slightly less than 0
    highest = 1 + _SUM_ROUNDING
    if values.min() >= lowest and values.max() <= highest:  # false for NaN
        return
    if 0 <= values.min() <= values.max() <= 101 and 99 <= values.mean(axis=0, dtype=np.float64).sum() <= 101:
        way_out = "Divide percentages by 100"
    row, *column = np.argwhere(~((values >= lowest) & (values <= highest)))[0]
    where = f"row {row} has {values[row, *column]:g}"
    raise BadPredictions(f"{name} must be finite and lie between 0 and 1; {where}. {way_out}")


def _rows_sum_to_one(array: Array) -> Bools:
    with np.errstate(over="ignore"):  # huge logits are checked too
        return np.abs(array.sum(axis=1, dtype=np.float64) - 1) <= _SUM_ROUNDING


def two_dimensional(array: Array, name: str) -> Array:
    """Return the array if it has shape (rows, classes) and is not empty; otherwise raise an error."""
    if array.ndim != 2:
        raise BadPredictions(
            f"{name} must have shape (rows, classes); got {array.shape}; for one column, reshape(-1, 1); to make every "
            f"pixel or token a row, np.moveaxis(array, class_axis, -1).reshape(-1, n_classes)"
        )
    if array.size == 0:
        raise BadPredictions(f"{name} are empty, with shape {array.shape}; give at least one row and one column")
    return array


def one_per_row(array: Array, n_rows: int, name: str) -> Array:
    """Return an array that has one value per row."""
    if array.shape != (n_rows,):
        raise BadPredictions(f"{name} must have shape ({n_rows},), one per row; got {array.shape}")
    return array


def check_places(values: object, n_rows: int) -> Array:
    """Return which rows to take: numbers of rows (m,), negative from the end, or a mask (n,) of True and False."""
    places = to_numbers(values, "rows")
    if places.size == 0:
        return np.zeros(0, dtype=np.int64)
    try:
        return np.arange(n_rows)[places.reshape(-1)]
    except IndexError:
        expected = f"rows must be numbers of rows in 0..{n_rows - 1}, a mask ({n_rows},) or a slice"
        raise BadPredictions(f"{expected}; got {shown(values)}") from None


def check_class_names(names: Iterable[str] | None, n_classes: int) -> tuple[str, ...] | None:
    """Return one name per class, if there are any."""
    if names is None:
        return None
    given = list(names) if isinstance(names, str) else items_of(names) or []
    result = tuple(map(str, given))
    if len(result) != n_classes or len(set(result)) != n_classes:
        raise BadPredictions(f"class_names must be {n_classes} different names; got {shown(result)}")
    return result


def check_labels(values: object, n_rows: int, n_classes: int, names: tuple[str, ...] | None = None) -> Ints:
    """Return labels as int64 in 0..n_classes-1, or raise an error that names the first bad row.

    Labels may be names of the classes.
    """
    labels = to_numbers(values, "labels")
    if names is not None and labels.ndim == 1 and labels.dtype.kind in "UO":
        labels = _numbers_of(labels, names)
    if labels.shape[1:] == (1,):
        labels = labels[:, 0]
    if labels.shape == (n_rows, n_classes):
        raise BadPredictions(
            "labels must be one class number per row. If they are one-hot, pass labels.argmax(axis=1). If rows may "
            "have several labels, use MultiLabelCalibrator. A metric takes soft labels in Predictions(logits, labels)"
        )
    one_per_row(labels, n_rows, "labels")
    if labels.dtype.kind not in "iubf":
        way_out = "Fill gaps; for names, pass Predictions(..., class_names=...) in the order of the columns"
        raise BadPredictions(f"labels must be class numbers; got an array of {labels.dtype}. {way_out}")
    # Compare before the cast, which would wrap a huge number and truncate a fraction into the valid range.
    bad = ~((labels >= 0) & (labels < n_classes)) | (labels != np.floor(labels))
    hint = ". Leave out rows without a label"
    if labels.min() == 1 and labels.max() == n_classes:
        hint = " (are they numbered from 1?)"
    refuse(bad, labels, f"labels must be whole numbers in 0..{n_classes - 1}", hint)
    return labels.astype(np.int64)


def warn_of_labels_from_1(logits: Array, labels: Ints) -> None:
    """Warn if no label is 0 and far more labels would be right if they were numbered from 1."""
    if labels.min() > 0 and logits.shape[1] > 2:
        lag = labels - logits.argmax(axis=1)
        if (lag == 1).sum() > 10 + 2 * (lag == 0).sum():  # a few rows may be so by chance
            warnings.warn(
                "no label is 0, and far more rows predict the label - 1 than the label; are labels numbered from 1?",
                GlayersWarning,
                stacklevel=4,  # the caller of Predictions
            )


def label_distributions(values: object) -> Floats | None:
    """Return soft labels, one distribution over the classes per row, and None for labels of any other kind.

    >>> label_distributions([[0.75, 0.25], [0.0, 1.0]]) is None, label_distributions([[0, 1], [1, 0]]) is None
    (False, True)
    """
    labels = to_numbers(values, "labels")
    if labels.ndim != 2 or labels.shape[1] < 2 or labels.dtype.kind != "f":
        return None
    if not ((labels > 0) & (labels < 1)).any():  # one-hot, or several labels per row
        return None
    refuse(~((labels >= 0) & (labels <= 1)), labels, "soft labels must lie between 0 and 1")
    sums = labels.sum(axis=1, dtype=np.float64)
    refuse(~_rows_sum_to_one(labels), sums, "each row of soft labels must sum to 1", ". Divide each row by its sum")
    return labels.astype(np.float64)


def _numbers_of(labels: Array, names: tuple[str, ...]) -> Array:
    """Return class numbers of labels that are names of classes."""
    number_of = {name: number for number, name in enumerate(names)}
    numbers = np.array([number_of.get(str(label), -1) for label in labels.tolist()])
    refuse(numbers < 0, labels, f"labels must be class numbers or the class names {shown(names)}")
    return numbers


def check_weights(values: object, n_rows: int, name: str = "weights") -> Floats:
    """Return row weights as float64: finite, not negative, with a positive finite sum."""
    weights = one_per_row(to_floats(values, name).astype(np.float64), n_rows, name)
    refuse(~np.isfinite(weights) | (weights < 0), weights, f"{name} must be finite and not negative")
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not 0 < total < np.inf:
        raise BadPredictions(f"{name} must not all be zero, and have a finite sum; divide huge ones by the largest")
    return weights


def check_counts(values: object, n_rows: int, n_columns: int) -> Ints:
    """Return how often each row of `n_columns` scores occurred: whole numbers from 0, but not too many rows in all."""
    counts = check_weights(values, n_rows, "counts")
    way_out = ". Pass importance weights as weights"
    refuse(counts != np.floor(counts), counts, "counts must be whole numbers", way_out)
    # A file of some kilobytes must not take gigabytes: 10 million repeated rows took 2.5 GB and a minute in `score`. A
    # metric keeps eight numbers of a row, however few scores it has. A large record may be repeated ten times.
    most = max(2**24 // max(n_columns, 8), 10 * n_rows)
    if counts.sum() > most:
        raise BadPredictions(
            f"counts sum to {counts.sum():,.0f}, and rows are repeated in memory: here at most {most:,} times in all. "
            f"Divide the counts by a number, or pass them as weights if you need no tests and no intervals"
        )
    return counts.astype(np.int64)


def check_groups(values: object, n_rows: int) -> Array:
    """Return the group of each row, after checking that groups can be compared and written to any file."""
    groups = one_per_row(to_numpy(values, "groups"), n_rows, "groups")
    try:
        np.unique(groups)
    except TypeError as error:
        raise BadPredictions(f"groups must be all numbers or all names, so that they can be sorted; {error}") from None
    if groups.dtype.kind in "fO":
        bad = np.array([isinstance(group, float | np.floating) and not np.isfinite(group) for group in groups.tolist()])
        refuse(bad, groups, "groups must be finite numbers or names", ". Give rows without a group a name")
    return groups


def check_label_matrix(values: object, shape: tuple[int, ...]) -> Floats:
    """Return labels (n_rows, n_labels) of 0 and 1, NaN where they are missing; name the first bad entry."""
    labels: Array = to_numbers(values, "labels")
    if labels.shape != shape:
        expected = f"labels must have the shape of the logits, {shape}, 1 where a row has the label"
        raise BadPredictions(f"{expected}; got {labels.shape}. For one label per row, use another calibrator")
    if labels.dtype == object:  # pandas and JSON write None or NA where a value is missing
        missing = np.array([cell is None or str(cell) == "<NA>" for cell in labels.flat]).reshape(shape)
        labels = to_numbers(np.where(missing, np.nan, labels), "labels")
    known = to_floats(labels, "labels")
    refuse((known != 0) & (known != 1) & ~np.isnan(known), labels, "labels must be 0, 1, or NaN where they are missing")
    return known


def whole_number(value: SupportsIndex, name: str, least: int, most: int | None = None) -> int:
    """Return a setting as an int within its limits; without a limit of its own, up to a billion.

    A larger count is a mistake that would take days or all memory.

    >>> whole_number(3, "n_bins", least=1)
    3
    """
    limits = f"at least {least}"
    if most is None:
        most = 10**9
    elif most < 2**64:  # a longer number would only tire the reader
        limits = f"in {least}..{most}"
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool | np.bool_) or not least <= number <= most:
        beyond = f", more than {most:,}" if number > most else ""
        raise BadPredictions(f"{name} must be {limits}, a whole number; got {shown(value)}{beyond}")
    return number


def check_choice(choice: object, known: Iterable[str], name: str) -> None:
    """Refuse a setting that is not one of the known words."""
    words = tuple(known)
    if not isinstance(choice, str) or choice not in words:
        raise BadPredictions(f"{name} must be one of {', '.join(map(repr, words))}; got {shown(choice)}")


def check_switch(value: object, name: str) -> bool:
    """Return a setting that is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise BadPredictions(f"{name} must be True or False; got {shown(value)}")
    return bool(value)


def number_between(value: object, name: str, low: float, high: float) -> float:
    """Return a setting that lies strictly between two numbers.

    >>> number_between(0.1, "floor", 0, 0.5)
    0.1
    """
    number = to_float(value)
    if not low < number < high:
        raise BadPredictions(f"{name} must be a number between {low:g} and {high:g}; got {shown(value)}")
    return number


def to_float(value: object) -> float:
    """Return a real number as a float, and NaN for anything else.

    >>> to_float(3), to_float("3")
    (3.0, nan)
    """
    try:
        return float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        return math.inf


def one_or_several(values: object) -> tuple[float, ...]:
    """Return a number, or each of several, as floats; NaN stands for what is no number.

    >>> one_or_several(2), one_or_several([1, "a"])
    ((2.0,), (1.0, nan))
    """
    several = items_of(values)
    return tuple(map(to_float, (values,) if several is None else several))


def items_of(values: object) -> list[Any] | None:
    """Return the items of a list, tuple, set or array, and None for a single value, text or an iterator.

    >>> items_of((1, 2)), items_of("ab"), items_of(3)
    ([1, 2], None, None)
    """
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Iterator):
        return None
    return None if isinstance(values, np.ndarray) and values.ndim == 0 else list(values)
