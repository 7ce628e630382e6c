"""Imports that need torch -> the same, or an error that names the extra: classes load without it, only fits need it."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_torch(who: str) -> Iterator[None]:
    """Say how to get torch where an import inside finds none."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(f'{who} needs torch to fit: pip install "glayers[fit]"', name="torch") from error
