"""What a caller chose -> a number a function can use, or an error that says what may be chosen."""

import math
import operator
from collections.abc import Iterable
from numbers import Real
from typing import SupportsIndex

from glayers.errors import BadPredictions


def whole_number(value: SupportsIndex, name: str, least: int, most: int | None = None) -> int:
    """Return a setting as an int within its limits.

    >>> whole_number(3, "bins", least=1)
    3
    """
    limits = f"at least {least}" if most is None else f"in {least}..{most}"
    expected = f"{name} must be {limits}, a whole number"
    try:
        number = operator.index(value)
    except TypeError:
        raise BadPredictions(f"{expected}; got {value!r}") from None
    if most is not None and number > most:
        raise BadPredictions(f"{expected}; got {number}: pass {name}={most}")
    if number < least:
        raise BadPredictions(f"{expected}; got {number}")
    return number


def class_numbers(values: Iterable[SupportsIndex], name: str, n_classes: int) -> list[int]:
    """Return a set of classes in ascending order, each once.

    >>> class_numbers([2, 0, 2], "subset", n_classes=3)
    [0, 2]
    """
    try:
        numbers = sorted({operator.index(value) for value in values})
    except TypeError:
        numbers = []
    if not numbers or numbers[0] < 0 or numbers[-1] >= n_classes:
        raise BadPredictions(f"{name} must hold class numbers in 0..{n_classes - 1}, such as [0, 1]; got {values!r}")
    return numbers


def number_between(value: object, name: str, low: float, high: float) -> float:
    """Return a setting that lies strictly between two numbers.

    >>> number_between(0.1, "floor", 0, 0.5)
    0.1
    """
    number = float(value) if isinstance(value, Real) else math.nan
    if not low < number < high:
        raise BadPredictions(f"{name} must be a number between {low:g} and {high:g}; got {value!r}")
    return number
