"""Logits -> what any map makes of them, bent back wherever it would change the order of the classes.

Take the classes of a row from the highest logit down. Each gets what the map says, or less: never more than the class
above it, minus a small part of the gap there was. As a formula, with u what the map says, z the log-probabilities that
came in and s the least slope, out = s z + running minimum of (u - s z).
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace

from glayers.activations import log_softmax, with_reference_class
from glayers.maps.chain import Chain
from glayers.maps.steps import Step

LEAST_SLOPE = 1e-3


@dataclass(frozen=True)
class KeepOrder(Step):
    """A branch that may not reorder the classes: accuracy and every top-k accuracy stay what they were.

    To the precision of numbers: logits so close that `slope` times their gap is lost in rounding become a tie.
    """

    slope: Any
    branch: Chain

    def __call__(self, logits: Any) -> Any:
        """Apply the branch and restore the order of the logits that came in."""
        return in_order_of(logits, with_reference_class(self.branch(logits)), self.slope)

    @classmethod
    def of(cls, branch: Chain, factor: float = 1.0) -> Self:
        """Hold a branch to the order of its input, whose logits are on the scale of the output once times `factor`."""
        return cls(np.asarray(LEAST_SLOPE * factor), branch)

    def parameters(self) -> dict[str, Any]:
        """Return the least slope, and the branch's parameters by their names there."""
        return {"slope": self.slope} | {f"branch.{name}": value for name, value in self.branch.parameters().items()}

    def with_parameters(self, parameters: dict[str, Any]) -> Self:
        """Return the same step with another slope and another branch."""
        inner = {name.removeprefix("branch."): value for name, value in parameters.items() if name != "slope"}
        return replace(self, slope=parameters["slope"], branch=self.branch.with_parameters(inner))


def in_order_of(reference: Any, outputs: Any, slope: Any) -> Any:
    """Return outputs lowered as little as needed to have the order of the reference; ties go to the first class.

    >>> in_order_of(np.array([[2.0, 1.0, 0.0]]), np.array([[0.5, 0.9, 0.1]]), 0.0).tolist()
    [[0.5, 0.5, 0.1]]
    """
    xp = array_namespace(outputs)
    reference = log_softmax(with_reference_class(reference))
    order = xp.argsort(reference, axis=-1, descending=True, stable=True)
    least = slope * xp.take_along_axis(reference, order, axis=-1)
    lowest = xp.take_along_axis(outputs, order, axis=-1) - least
    shift = 1
    while shift < lowest.shape[-1]:  # each round doubles how far up a minimum has looked
        lowest = xp.concat([lowest[..., :shift], xp.minimum(lowest[..., shift:], lowest[..., :-shift])], axis=-1)
        shift *= 2
    return xp.take_along_axis(lowest + least, xp.argsort(order, axis=-1, stable=True), axis=-1)
