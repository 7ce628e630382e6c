"""What a caller of a figure chose -> known to be possible, or an error that says what is."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from glayers.errors import BadPredictions

Methods: TypeAlias = Mapping[str, Any]


def check_methods(methods: Methods, least: int = 1) -> None:
    """Refuse too few methods; what is wrong with their numbers is said by the first curve made of them."""
    if not isinstance(methods, Mapping) or len(methods) < least:
        came = list(methods) if isinstance(methods, Mapping) else type(methods).__name__
        raise BadPredictions(
            f"methods must be {least} or more sets of probabilities by name, such as "
            f"{{'uncalibrated': p, 'calibrated': q}}; got {came}"
        )


def check_choice(choice: str, known: Iterable[str], name: str) -> None:
    """Refuse a name that is not among the known ones."""
    if choice not in known:
        raise BadPredictions(f"{name} must be one of {', '.join(known)}; got {choice!r}")
