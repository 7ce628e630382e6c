"""Steps -> one map: frozen steps applied in turn, with named parameters that can be replaced.

Parameters may carry a leading *members* axis: weights of shape (members, in, out) turn logits (n, in) into
(members, n, out), so that many fits run as one. Steps are written against the array API: NumPy arrays in, NumPy
out; torch tensors in, torch out.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Literal, Self

import numpy as np

__all__ = ["Chain", "Step"]

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
        """Return what fitting may change, by name; those of a chain follow its own name: `branch.0.weight`."""
        found = {name: getattr(self, name) for name in array_fields(type(self))}
        for prefix, chain in self.chains().items():
            found |= {f"{prefix}.{name}": value for name, value in chain.parameters().items()}
        return found

    def with_parameters(self, parameters: Mapping[str, Any]) -> Self:
        """Return the same step with other parameters, of any array library."""
        changed = {name: parameters[name] for name in array_fields(type(self))}
        chains = tuple(
            chain.with_parameters({name: parameters[f"{prefix}.{name}"] for name in chain.parameters()})
            for prefix, chain in self.chains().items()
        )
        if chains:
            changed |= {"branches": chains} if branch_field(type(self)) == "branches" else {"branch": chains[0]}
        return replace(self, **changed)

    def chains(self) -> "dict[str, Chain]":
        """Return the chains that the step holds, named `branch`, or `branches.0`, `branches.1` and so on."""
        name = branch_field(type(self))
        if not name:
            return {}
        held = getattr(self, name)
        return {name: held} if isinstance(held, Chain) else {f"{name}.{i}": chain for i, chain in enumerate(held)}


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
        """Return the same chain with other parameters; the names must be exactly those of this chain."""
        names = [{name: f"{place}.{name}" for name in step.parameters()} for place, step in enumerate(self.steps)]
        odd = parameters.keys() ^ {full for each in names for full in each.values()}
        if odd:
            raise ValueError(f"parameters do not belong to this chain: {sorted(odd)}")
        return Chain(
            tuple(
                step.with_parameters({name: parameters[full] for name, full in each.items()}) if each else step
                for step, each in zip(self.steps, names, strict=True)
            )
        )

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


@cache
def branch_field(kind: type[Step]) -> str:
    """Return the field of a step's chains: "branch", "branches", or "" for most steps."""
    return next((field.name for field in fields(kind) if field.name in ("branch", "branches")), "")


@cache
def array_fields(kind: type[Step]) -> tuple[str, ...]:
    """Return the fields of a step that are arrays."""
    return tuple(field.name for field in fields(kind) if field.name not in (*kind.fixed, branch_field(kind)))
