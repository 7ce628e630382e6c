"""Logits of any array library -> calibrated logits in the same library."""

from typing import Any

import numpy as np
from array_api_compat import device

from glayers.activations import with_reference_class
from glayers.arrays import array_namespace
from glayers.maps import Chain


def calibrated_logits(chain: Chain, logits: Any) -> Any:
    """Return calibrated logits (n, classes) of an array (n, m) of any library, as a pure function that can be traced.

    The computation has the precision of the logits, or float32 if theirs is lower. A traced array has no values to
    check, so a row that NumPy would refuse becomes NaN: one with NaN, +inf, or -inf for every class.

    >>> from glayers.maps import Scale
    >>> calibrated_logits(Chain((Scale(np.array(0.5)),)), np.array([[2.0, -np.inf], [0.0, np.nan]])).tolist()
    [[1.0, -inf], [nan, nan]]
    """
    xp = array_namespace(logits)
    wide = logits if logits.dtype == xp.float64 else xp.astype(logits, xp.float32)
    held = chain.map_parameters(lambda value: xp.asarray(np.asarray(value), dtype=wide.dtype, device=device(wide)))
    below = xp.sum(xp.astype(wide < xp.inf, wide.dtype), axis=-1, keepdims=True) == wide.shape[-1]
    possible = below & (xp.max(wide, axis=-1, keepdims=True) > -xp.inf) if wide.shape[-1] > 1 else below
    return xp.where(possible, with_reference_class(held(wide)), xp.nan)
