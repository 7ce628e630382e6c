"""Errors and warnings by name: each message says what was expected, what was given, and what to do."""

import reprlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class GlayersError(ValueError):
    """Base class of all errors that this library raises about its input."""


class BadPredictions(GlayersError):
    """Logits, probabilities, labels, weights, groups or settings with impossible shapes or values."""


class BadFile(GlayersError):
    """A file that cannot be read or written, or whose contents are refused."""


# How to go on where few groups leave too few independent units.
WITHOUT_GROUPS = "If rows of a group are independent, leave the groups out (--ignore-groups), or rename their column"


class GlayersWarning(UserWarning):
    """Something the user should know, although the result is valid."""


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Name the extra to install if an import inside finds no library."""
    try:
        yield
    except ModuleNotFoundError as error:
        message = f'{error.name} is missing: pip install "glayers[{extra}]"'
        raise ModuleNotFoundError(message, name=error.name) from error


def shown(value: object) -> str:
    """Return a short `repr` for a message, whatever the value: that of nested tuples could take minutes.

    >>> shown("a"), shown(list(range(100))), shown(10**5000)
    ("'a'", '[0, 1, 2, 3, 4, 5, ...]', 'a value of type int')
    """
    try:
        return " ".join(reprlib.repr(value).split())
    except Exception:  # ints of many digits and objects of the user may have no repr
        return f"a value of type {type(value).__name__}"


def listed(names: Iterable[str], at_most: int = 12) -> str:
    """Join names with commas, cut after `at_most`.

    >>> listed(["a", "b", "c"], at_most=2)
    'a, b and 1 more'
    """
    given = list(names)
    text = ", ".join(given[:at_most]) or "none"
    return text if len(given) <= at_most else f"{text} and {len(given) - at_most} more"
