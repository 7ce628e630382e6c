"""Logits -> logits: the basic steps that maps are made of."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from array_api_compat import array_namespace

from glayers.activations import Activation, log_softmax, with_reference_class
from glayers.maps.chain import Numbers, Step

__all__ = ["Activate", "Centre", "Dense", "Diagonal", "Dropout", "LogSoftmax", "Reference", "Relu", "Scale"]


@dataclass(frozen=True)
class Scale(Step):
    """One factor for all logits: an inverse temperature."""

    factor: Annotated[Any, Numbers()]

    def __call__(self, logits: Any) -> Any:
        """Multiply every logit."""
        return logits * self.factor[..., None, None]

    @classmethod
    def identity(cls) -> Self:
        """Start from a factor of 1."""
        return cls(np.ones(()))


@dataclass(frozen=True)
class Diagonal(Step):
    """One scale and one shift per class."""

    scale: Annotated[Any, Numbers("in")]
    shift: Annotated[Any, Numbers("in")]

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

    weight: Annotated[Any, Numbers("in out")]
    bias: Annotated[Any, Numbers("out")]
    n_out: ClassVar[str] = "out"

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
class Reference(Step):
    """Add the reference class to the single logit of a binary model; more logits pass unchanged."""

    completes: ClassVar[bool] = True

    def __call__(self, logits: Any) -> Any:
        """Put a zero before a single logit."""
        return with_reference_class(logits)


@dataclass(frozen=True)
class LogSoftmax(Step):
    """Log-probabilities: the same prediction, in a form that adding a constant to a row does not change."""

    def __call__(self, logits: Any) -> Any:
        """Normalise each row."""
        return log_softmax(logits)


@dataclass(frozen=True)
class Centre(Step):
    """Subtract a share of each row's mean: 1 turns log-probabilities into centred logits, 0 leaves them.

    Both are the same prediction, and adding a constant to a row changes neither.
    """

    share: Annotated[Any, Numbers(learned="none")]

    def __call__(self, logits: Any) -> Any:
        """Subtract that share of the mean of each row."""
        mean = array_namespace(logits).mean(logits, axis=-1, keepdims=True)
        return logits - self.share[..., None, None] * mean


@dataclass(frozen=True)
class Activate(Step):
    """A user's own activation q, as log-probabilities: later steps may treat these as logits, as softmax(log q) = q."""

    activation: Activation
    fixed: ClassVar[tuple[str, ...]] = ("activation",)

    def __call__(self, logits: Any) -> Any:
        """Return log q(logits)."""
        return self.activation.log_probabilities(logits)


@dataclass(frozen=True)
class Dropout(Step):
    """The place where Adam drops hidden units during fitting; in prediction it does nothing."""

    keep: Any = None
    fixed: ClassVar[tuple[str, ...]] = ("keep",)

    def __call__(self, logits: Any) -> Any:
        """Multiply by the current mask, if there is one."""
        return logits if self.keep is None else logits * self.keep
