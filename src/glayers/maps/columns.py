"""Logits of several labels -> one calibrated logit per label, each by a map of its own."""

from typing import Any

from glayers.activations import with_reference_class
from glayers.arrays import array_namespace
from glayers.maps.steps import Chain, Step

__all__ = ["EachColumn"]


class EachColumn(Step):
    """Apply one branch per column: each takes one logit, whose sigmoid is the probability of a label, and gives one.

    >>> import numpy as np
    >>> from glayers.maps import Scale
    >>> halves = EachColumn((Chain((Scale(np.array(0.5)),)), Chain(())))
    >>> halves(np.array([[2.0, 2.0]])).tolist()
    [[1.0, 2.0]]
    """

    branches: tuple[Chain, ...]

    def __call__(self, logits: Any) -> Any:
        """Apply every branch to its column (n, 1). The logit of a label is that of class 1 less that of class 0."""
        columns = []
        for place, branch in enumerate(self.branches):
            pair = with_reference_class(branch(logits[..., place : place + 1]))
            columns.append(pair[..., 1:] - pair[..., :1])
        return array_namespace(logits).concat(columns, axis=-1)
