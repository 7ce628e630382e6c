"""Logits -> logits: the steps a map is made of.

Each is a frozen dataclass whose fields are its parameters. Parameters may carry a leading *members* axis: weights of
shape (members, in, out) turn logits (n, in) into (members, n, out), so that many fits run as one. The forward is
written against the array API: NumPy arrays in, NumPy out; torch tensors in, torch out.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace

from glayers.activations import log_softmax


@dataclass(frozen=True)
class Step(ABC):
    """One frozen step of a map."""

    @abstractmethod
    def __call__(self, logits: Any) -> Any:
        """Apply the step to logits (..., n, m)."""

    def parameters(self) -> dict[str, Any]:
        """Return what fitting may change, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def with_parameters(self, parameters: dict[str, Any]) -> Self:
        """Return the same step with other parameters, of any array library."""
        return replace(self, **parameters)


@dataclass(frozen=True)
class Scale(Step):
    """One factor for all logits: an inverse temperature."""

    factor: Any

    def __call__(self, logits: Any) -> Any:
        """Multiply every logit."""
        return logits * self.factor[..., None, None]

    @classmethod
    def identity(cls) -> Self:
        """Start from a factor of 1."""
        return cls(np.ones(()))


@dataclass(frozen=True)
class Diagonal(Step):
    """One scale and one shift for each class."""

    scale: Any
    shift: Any

    def __call__(self, logits: Any) -> Any:
        """Scale and shift each column."""
        return logits * self.scale[..., None, :] + self.shift[..., None, :]

    @classmethod
    def identity(cls, n_logits: int) -> Self:
        """Start from scales of 1 and shifts of 0."""
        return cls(np.ones(n_logits), np.zeros(n_logits))


@dataclass(frozen=True)
class Dense(Step):
    """A full linear layer: logits @ weight + bias."""

    weight: Any
    bias: Any

    def __call__(self, logits: Any) -> Any:
        """Apply the layer."""
        return array_namespace(logits).matmul(logits, self.weight) + self.bias[..., None, :]

    @classmethod
    def identity(cls, n_logits: int) -> Self:
        """Start from the identity matrix."""
        return cls(np.eye(n_logits), np.zeros(n_logits))


@dataclass(frozen=True)
class Relu(Step):
    """The positive part."""

    def __call__(self, logits: Any) -> Any:
        """Set negative entries to zero."""
        return array_namespace(logits).clip(logits, min=0)


@dataclass(frozen=True)
class LogSoftmax(Step):
    """Log-probabilities: the same prediction in the one form that no constant added to a row can change."""

    def __call__(self, logits: Any) -> Any:
        """Normalise each row."""
        return log_softmax(logits)


@dataclass(frozen=True)
class Centre(Step):
    """Logits with mean zero in each row: the same prediction, and no constant added to a row can change it."""

    def __call__(self, logits: Any) -> Any:
        """Subtract the mean of each row."""
        return logits - array_namespace(logits).mean(logits, axis=-1, keepdims=True)


@dataclass(frozen=True)
class Dropout(Step):
    """Where hidden units are dropped while fitting with Adam; when predicting it does nothing."""

    keep: Any = None

    def __call__(self, logits: Any) -> Any:
        """Multiply by the mask of the moment, if there is one."""
        return logits if self.keep is None else logits * self.keep

    def parameters(self) -> dict[str, Any]:
        """Return nothing: a mask is drawn, not learned."""
        return {}
