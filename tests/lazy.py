"""Libraries that take seconds to import, imported when a test first uses them: `from tests.lazy import torch`."""

from importlib import import_module
from typing import Any


class _Lazy:
    """Attributes of a module that is not imported yet."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


torch: Any = _Lazy("torch")
