"""Names -> values: those of this library, those that users register, and those of other packages by entry points."""

import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any, TypeVar

from glayers.errors import GlayersWarning

_Value = TypeVar("_Value")


class Registry(Mapping[str, _Value]):
    """Values by name, in the order in which they were added.

    The entry points of a group are read once: when the names are listed, or a name is not known yet. `register` is
    called with what each of them names, and adds it.
    """

    def __init__(self, group: str, register: Callable[[Any], object]) -> None:
        self._group = group
        self._register = register
        self._values: dict[str, _Value] = {}
        self._has_read_packages = False
        self._reading = threading.RLock()  # others wait; the thread that reads may ask for names meanwhile
        self._is_reading = False

    def add(self, name: str, value: _Value) -> None:
        """Add a value, in the place of an earlier one of this name."""
        self._values[name] = value

    def known(self, name: str) -> _Value | None:
        """Return a value that is here already: reading packages while one of them registers its own would fail."""
        return self._values.get(name)

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __getitem__(self, name: str) -> _Value:
        if name not in self._values:
            self._read_packages()
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        self._read_packages()
        return iter(self._values)

    def __len__(self) -> int:
        self._read_packages()
        return len(self._values)

    def _read_packages(self) -> None:
        if self._has_read_packages:
            return
        with self._reading:
            if self._is_reading or self._has_read_packages:
                return
            self._is_reading = True
            try:
                self._read_entry_points()
            finally:
                self._is_reading = False
                self._has_read_packages = True

    def _read_entry_points(self) -> None:
        for entry in entry_points(group=self._group):
            try:
                self._register(entry.load())
            except Exception as problem:  # whatever another package does, this one works on
                package = entry.dist.name if entry.dist else "a package"
                reason = f"{type(problem).__name__}: {problem}"
                warnings.warn(f"{entry.value} of {package} is left out: {reason}", GlayersWarning, stacklevel=5)
