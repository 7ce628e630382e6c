"""Held-out logits and labels -> a fitted map that makes probabilities true.

`GLayers` needs the `fit` extra (torch), so it is imported when it is first asked for.
"""

from typing import TYPE_CHECKING, Any

from glayers.calibrators.base import Calibrator
from glayers.calibrators.scaling import TemperatureScaling

if TYPE_CHECKING:
    from glayers.calibrators.g_layers import GLayers

__all__ = ["Calibrator", "GLayers", "TemperatureScaling"]


def __getattr__(name: str) -> Any:
    if name != "GLayers":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from glayers.calibrators.g_layers import GLayers
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError('fitting g-layers needs torch: pip install "glayers[fit]"', name="torch") from error
    return GLayers
