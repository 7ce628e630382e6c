"""Logits -> logits in the same order of classes.

`KeepOrder` restores the order after any map. From the highest logit down, each class gets the map's value, or less: at
most the value of the class above, minus a small part of the original gap. With u the map's values, z the
log-probabilities of the input and s the least slope: out = s z + running minimum of (u - s z).
"""

from typing import Annotated, Any, ClassVar, Self

import numpy as np

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import array_namespace, is_torch
from glayers.maps.steps import Chain, Numbers, Step

__all__ = ["KeepOrder"]

_LEAST_SLOPE = 1e-3


class KeepOrder(Step):
    """A branch whose output keeps the order of the classes, so that accuracy and every top-k accuracy stay the same.

    Exact up to rounding: logits so close that `slope` times their gap is lost in rounding become a tie.
    """

    slope: Annotated[Any, Numbers(learned="none")]
    branches: tuple[Chain]
    completes: ClassVar[bool] = True

    def __call__(self, logits: Any) -> Any:
        """Apply the branch and restore the order of the input."""
        (branch,) = self.branches
        return in_order_of(logits, with_reference_class(branch(logits)), self.slope)

    @classmethod
    def of(cls, branch: Chain, factor: float = 1.0) -> Self:
        """Keep the order of a branch's input, which has the scale of the output after multiplication by `factor`."""
        return cls(np.asarray(_LEAST_SLOPE * factor), (branch,))


def in_order_of(reference: Any, outputs: Any, slope: Any) -> Any:
    """Lower outputs by as little as gives them the order of the reference; ties go to the first class.

    >>> in_order_of(np.array([[2.0, 1.0, 0.0]]), np.array([[0.5, 0.9, 0.1]]), 0.0).tolist()
    [[0.5, 0.5, 0.1]]
    """
    xp = array_namespace(outputs)
    reference = xp.clip(log_softmax(with_reference_class(reference)), min=-_wide(outputs))
    order = xp.argsort(reference, axis=-1, descending=True, stable=True)
    least = slope * _gathered(reference, order)
    lowest = _gathered(outputs, order) - least
    shift = 1
    while shift < lowest.shape[-1]:  # each round doubles the number of classes above that the minimum covers
        lower = xp.minimum(lowest[..., shift:], lowest[..., :-shift])
        lowest = xp.concat([lowest[..., :shift], lower], axis=-1)
        shift *= 2
    return _gathered(lowest + least, xp.argsort(order, axis=-1, stable=True))


def _gathered(values: Any, places: Any) -> Any:
    """Return take_along_axis of the last axis; that of torch would fix the number of rows in an exported program."""
    if is_torch(values):
        return values.gather(-1, places)
    return array_namespace(values).take_along_axis(values, places, axis=-1)


def _wide(logits: Any) -> float:
    """Return the square root of the largest number: wider gaps are clipped to it, so that products stay finite."""
    return float(array_namespace(logits).finfo(logits.dtype).max) ** 0.5
