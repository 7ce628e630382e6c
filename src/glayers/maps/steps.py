"""Logits -> logits: the steps a map is made of.

Each is a frozen dataclass whose fields are its parameters. Parameters may carry a leading *members* axis: weights of
shape (members, in, out) turn logits (n, in) into (members, n, out), so that many fits run as one. The forward is
written against the array API: NumPy arrays in, NumPy out; torch tensors in, torch out.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from array_api_compat import array_namespace

from glayers.activations import Activation, log_softmax, with_reference_class

if TYPE_CHECKING:
    from glayers.maps.chain import Chain


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
class Reference(Step):
    """Give the one logit of a binary model its second class; more logits pass as they are."""

    def __call__(self, logits: Any) -> Any:
        """Put a zero before a lone logit."""
        return with_reference_class(logits)


@dataclass(frozen=True)
class LogSoftmax(Step):
    """Log-probabilities: the same prediction in the one form that no constant added to a row can change."""

    def __call__(self, logits: Any) -> Any:
        """Normalise each row."""
        return log_softmax(logits)


@dataclass(frozen=True)
class Centre(Step):
    """Take a share of each row's mean away: all of it makes centred logits out of log-probabilities, none leaves them.

    Both are the same prediction, and no constant added to a row can change either.
    """

    share: Any

    def __call__(self, logits: Any) -> Any:
        """Subtract that share of the mean of each row."""
        mean = array_namespace(logits).mean(logits, axis=-1, keepdims=True)
        return logits - self.share[..., None, None] * mean


@dataclass(frozen=True)
class Activate(Step):
    """A q of one's own, as log-probabilities: what follows may treat them as logits, since softmax(log q) = q."""

    activation: Activation

    def __call__(self, logits: Any) -> Any:
        """Return log q(logits)."""
        return self.activation.log_probabilities(logits)

    def parameters(self) -> dict[str, Any]:
        """Return nothing: q is given."""
        return {}


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


@dataclass(frozen=True)
class Blend(Step):
    """A mixture of probabilities, on the log scale: 1 - share of the rows as they come, share of a branch's members."""

    share: Any
    branch: "Chain"

    def __call__(self, logits: Any) -> Any:
        """Return log((1 - share) softmax(logits) + share * mean over members of softmax(branch(logits)))."""
        xp = array_namespace(logits)
        plain, members = log_softmax(logits), log_softmax(self.branch(logits))
        if members.ndim > plain.ndim:
            highest = xp.max(members, axis=0)
            members = xp.log(xp.mean(xp.exp(members - highest[None, ...]), axis=0)) + highest
        # On the log scale no class is lost to underflow; a share of 0 or 1 only has to stay finite there.
        least = float(xp.finfo(plain.dtype).smallest_normal)
        rest, share = (xp.log(xp.clip(part, min=least)) for part in (1 - self.share, self.share))
        return xp.logaddexp(rest + plain, share + members)

    def parameters(self) -> dict[str, Any]:
        """Return the share, and the branch's parameters by their names there."""
        return {"share": self.share} | {f"branch.{name}": value for name, value in self.branch.parameters().items()}

    def with_parameters(self, parameters: dict[str, Any]) -> Self:
        """Return the same step with another share and another branch."""
        inner = {name.removeprefix("branch."): value for name, value in parameters.items() if name != "share"}
        return replace(self, share=parameters["share"], branch=self.branch.with_parameters(inner))
