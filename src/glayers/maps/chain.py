"""Steps -> one map: frozen steps applied in turn, with named parameters that can be replaced.

Parameters may carry a leading *members* axis: weights of shape (members, in, out) turn logits (n, in) into
(members, n, out), so that many fits run as one. Steps are written against the array API: NumPy arrays in, NumPy
out; torch tensors in, torch out.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

SMALLEST = float(np.finfo(np.float64).tiny)  # the lower limit of positive numbers


@dataclass(frozen=True)
class Numbers:
    """The layout of one array of a step: its axes as words, the range of its entries, and how many a fit learns.

    `in` is the number of logits that come in, `branches` the number of chains that the step holds. Any other word is a
    size of the step's own, the same wherever the word occurs in that step. `in-1` is one less; a number is itself.
    """

    axes: str = ""
    low: float = -math.inf
    high: float = math.inf
    learned: Literal["all", "all but one", "none"] = "all"


@dataclass(frozen=True)
class Step(ABC):
    """One frozen step of a map; its fields are its parameters, or chains of other steps.

    A field's type carries its layout: `weight: Annotated[Any, Numbers("in out")]`.
    """

    fixed: ClassVar[tuple[str, ...]] = ()  # fields that are not parameters
    n_out: ClassVar[str] = "in"  # the number of logits that come out, as a word
    completes: ClassVar[bool] = False  # adds the reference class to a single logit, its own or that of a branch

    @abstractmethod
    def __call__(self, logits: Any) -> Any:
        """Apply the step to logits (..., n, m)."""

    def parameters(self) -> dict[str, Any]:
        """Return what fitting may change, by name; those of a chain follow its field's name: `branch.0.weight`."""
        return _flat({name: getattr(self, name) for name in self._own_names()})

    def with_parameters(self, parameters: Mapping[str, Any]) -> Self:
        """Return the same step with other parameters, of any array library."""
        return replace(self, **{name: _filled(name, getattr(self, name), parameters) for name in self._own_names()})

    def _own_names(self) -> list[str]:
        return [field.name for field in fields(self) if field.name not in self.fixed]


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
        return _flat({str(place): step for place, step in enumerate(self.steps)})

    def with_parameters(self, parameters: Mapping[str, Any]) -> "Chain":
        """Return the same chain with other parameters; the names must be exactly those of this chain."""
        if parameters.keys() != self.parameters().keys():
            odd = sorted(parameters.keys() ^ self.parameters().keys())
            raise ValueError(f"parameters do not belong to this chain: {odd}")
        return Chain(tuple(_filled(str(place), step, parameters) for place, step in enumerate(self.steps)))

    def map_parameters(self, change: Callable[[Any], Any]) -> "Chain":
        """Return the same chain with a function applied to every parameter, such as a cast."""
        return self.with_parameters({name: change(value) for name, value in self.parameters().items()})

    def member(self, index: int) -> "Chain":
        """Return one member of a chain whose parameters all carry a members axis."""
        return self.map_parameters(lambda value: value[index])

    @property
    def n_parameters(self) -> int:
        """The number of values to learn, over all members."""
        return sum(int(np.size(value)) for value in self.parameters().values())


def _flat(held: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters by name, with those of steps and chains under the name of what holds them."""
    found = {}
    for name, value in held.items():
        if isinstance(value, tuple):
            value = _flat({str(place): each for place, each in enumerate(value)})
        elif isinstance(value, Chain | Step):
            value = value.parameters()
        else:
            found[name] = value
            continue
        found |= {f"{name}.{inner}": each for inner, each in value.items()}
    return found


def _filled(name: str, value: Any, parameters: Mapping[str, Any]) -> Any:
    """Return a parameter by its name, or steps and chains filled with theirs."""
    if isinstance(value, tuple):
        return tuple(_filled(f"{name}.{place}", each, parameters) for place, each in enumerate(value))
    if isinstance(value, Chain | Step):
        return value.with_parameters({inner: parameters[f"{name}.{inner}"] for inner in value.parameters()})
    return parameters[name]
