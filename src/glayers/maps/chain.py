"""Steps -> one map: a frozen chain, its parameters by name, and how to swap them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from glayers.maps.steps import Step


@dataclass(frozen=True)
class Chain:
    """Steps applied one after another.

    >>> from glayers.maps import Dense, Relu
    >>> chain = Chain((Dense.identity(2), Relu(), Dense.identity(2)))
    >>> chain(np.array([[1.0, -1.0]])).tolist()
    [[1.0, 0.0]]
    >>> chain.n_parameters
    12
    """

    steps: tuple[Step, ...]

    def __call__(self, logits: Any) -> Any:
        """Apply every step."""
        for step in self.steps:
            logits = step(logits)
        return logits

    def __add__(self, other: "Chain") -> "Chain":
        return Chain(self.steps + other.steps)

    def parameters(self) -> dict[str, Any]:
        """Return all parameters, named by the place of their step: `2.weight`."""
        return {
            f"{place}.{name}": value
            for place, step in enumerate(self.steps)
            for name, value in step.parameters().items()
        }

    def with_parameters(self, parameters: Mapping[str, Any]) -> "Chain":
        """Return the same chain with other parameters; every name must be there, and no other."""
        if parameters.keys() != self.parameters().keys():
            odd = sorted(parameters.keys() ^ self.parameters().keys())
            raise ValueError(f"parameters do not belong to this chain: {odd}")
        return Chain(
            tuple(
                step.with_parameters({name: parameters[f"{place}.{name}"] for name in step.parameters()})
                for place, step in enumerate(self.steps)
            )
        )

    def map_parameters(self, change: Callable[[Any], Any]) -> "Chain":
        """Return the same chain with every parameter changed alike, as in a cast."""
        return self.with_parameters({name: change(value) for name, value in self.parameters().items()})

    def member(self, index: int) -> "Chain":
        """Return one member of a chain whose parameters all carry a members axis."""
        return self.map_parameters(lambda value: value[index])

    @property
    def n_parameters(self) -> int:
        """How many numbers there are to learn, all members counted."""
        return sum(int(np.size(value)) for value in self.parameters().values())
