"""Logits -> logits in the same order: f(x) = S(x)^-1 U w(x), Rahimi et al. 2020.

S(x) sorts a row, w holds the gaps between neighbours, positive wherever the logits differ, and U adds them up from the
lowest class. Steps differ only in the gaps. The order is that of the logits as they come, to the last bit: the
temperature is part of the step, since multiplying first could round two different logits to one.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from array_api_compat import array_namespace

from glayers.activations import log_softmax
from glayers.maps.steps import Step

_LEAST_SLOPE = 1e-6  # what a network's gap is multiplied by at least: its order must not vanish
_DEEPEST = -30.0  # log-probabilities below this tell a network nothing more


@dataclass(frozen=True)
class OrderPreservingStep(Step):
    """Gaps between sorted logits, added up and put back in place; `factor` is the inverse temperature to start from."""

    factor: Any

    def __call__(self, logits: Any) -> Any:
        """Return logits in exactly the same order: different ones stay different, equal ones equal."""
        xp = array_namespace(logits)
        order = xp.argsort(logits, axis=-1, descending=True, stable=True)
        ordered = xp.take_along_axis(logits, order, axis=-1)
        differ = xp.astype(ordered[..., :-1] > ordered[..., 1:], logits.dtype)
        # Beyond a quarter of the largest number a difference would overflow.
        widest = float(xp.finfo(logits.dtype).max) / 4
        ordered = xp.clip(ordered, min=-widest, max=widest)
        gaps = self._gaps(ordered, logits) * differ
        heights = _added_up(gaps)
        # Sums round: every level climbs by some rounding errors of the highest, so that none can fall together.
        limits = xp.finfo(logits.dtype)
        step = 8 * float(limits.eps) * heights[..., :1] + float(limits.smallest_normal) / float(limits.eps)
        heights = heights + step * _added_up(differ)
        back = xp.argsort(order, axis=-1, stable=True)
        return xp.take_along_axis(heights, xp.broadcast_to(back, heights.shape), axis=-1)

    @abstractmethod
    def _gaps(self, ordered: Any, logits: Any) -> Any:
        """Return what separates each sorted logit from the next, none negative."""

    def _scaled_gaps(self, ordered: Any) -> Any:
        xp = array_namespace(ordered)
        return self._times(xp.clip(ordered[..., :-1] - ordered[..., 1:], max=_wide(ordered)))

    def _log_probabilities(self, logits: Any) -> Any:
        """Return those at the start's temperature, finite for any finite logits."""
        xp = array_namespace(logits)
        widest = float(xp.finfo(logits.dtype).max) / 4
        below = xp.clip(logits, min=-widest, max=widest)
        below = below - xp.max(below, axis=-1, keepdims=True)
        return log_softmax(self._times(xp.clip(below, min=-_wide(logits))))

    def _times(self, logits: Any) -> Any:
        return logits * self.factor[..., None, None]


@dataclass(frozen=True)
class GapNetwork(OrderPreservingStep):
    """Each gap times a positive number from a small network; subclasses differ in what it sees."""

    weight_in: Any
    bias_in: Any
    weight_out: Any
    bias_out: Any

    def _gaps(self, ordered: Any, logits: Any) -> Any:
        return self._scaled_gaps(ordered) * self._slopes(self._features(ordered, logits))

    @abstractmethod
    def _features(self, ordered: Any, logits: Any) -> Any:
        """Return the log-probabilities the network sees."""

    def _slopes(self, log_probabilities: Any) -> Any:
        xp = array_namespace(log_probabilities)
        seen = xp.clip(log_probabilities, min=_DEEPEST) / 10 + 1  # from -2 to 1: where tanh is alive
        hidden = xp.tanh(xp.matmul(seen, self.weight_in) + self.bias_in[..., None, :])
        return _softplus(xp.matmul(hidden, self.weight_out) + self.bias_out[..., None, :]) + _LEAST_SLOPE

    @classmethod
    def start(cls, factor: float, n_logits: int, n_hidden: int, seed: int) -> Self:
        """Start as temperature scaling: a network that says 1 to everything, its first layer drawn at random."""
        rng = np.random.default_rng(seed)
        return cls(
            np.asarray(factor),
            rng.normal(size=(n_logits, n_hidden)) / np.sqrt(n_logits),
            np.zeros(n_hidden),
            np.zeros((n_hidden, n_logits - 1)),
            np.full(n_logits - 1, np.log(np.expm1(1 - _LEAST_SLOPE))),
        )


@dataclass(frozen=True)
class General(GapNetwork):
    """A network that sees which class is which."""

    def _features(self, ordered: Any, logits: Any) -> Any:  # noqa: ARG002  # sorting hides what it is to see
        return self._log_probabilities(logits)


@dataclass(frozen=True)
class Invariant(GapNetwork):
    """A network that sees sorted log-probabilities: permuting the classes permutes the output."""

    def _features(self, ordered: Any, logits: Any) -> Any:  # noqa: ARG002  # the order they came in is not to be seen
        return self._log_probabilities(ordered)


@dataclass(frozen=True)
class SharedCurve(OrderPreservingStep):
    """One increasing function of a log-probability for all classes, the diagonal kind: soft ramps side by side.

    Its slope is exp(log_slopes[h]) between knots h - 1 and h and changes over a stretch of `widths`; equal slopes make
    a straight line.
    """

    knots: Any
    widths: Any
    log_slopes: Any

    def _gaps(self, ordered: Any, logits: Any) -> Any:  # noqa: ARG002  # the curve reads no other class
        xp = array_namespace(ordered)
        values = self._curve(self._log_probabilities(ordered))
        return xp.clip(values[..., :-1] - values[..., 1:], min=0.0)

    def _curve(self, log_p: Any) -> Any:
        xp = array_namespace(log_p)
        slopes = xp.exp(self.log_slopes)[..., None, None, :]
        result = slopes[..., 0] * log_p
        for place in range(self.knots.shape[-1]):
            knot, width = (each[..., place][..., None, None] for each in (self.knots, self.widths))
            result = result + (slopes[..., place + 1] - slopes[..., place]) * width * _softplus((log_p - knot) / width)
        return result

    @classmethod
    def start(cls, factor: float, knots: Any, width: float) -> Self:
        """Start as temperature scaling: a straight line."""
        return cls(np.asarray(factor), knots, np.full(len(knots), width), np.zeros(len(knots) + 1))


@dataclass(frozen=True)
class Learning(Step):
    """A step of whose parameters only some are to be learned: the others are not shown to the fit."""

    step: Step
    learned: tuple[str, ...]

    def __call__(self, logits: Any) -> Any:
        """Apply the step."""
        return self.step(logits)

    def parameters(self) -> dict[str, Any]:
        """Return those to be learned."""
        return {name: value for name, value in self.step.parameters().items() if name in self.learned}

    def with_parameters(self, parameters: dict[str, Any]) -> Self:
        """Return the same with others in their place."""
        return replace(self, step=self.step.with_parameters(self.step.parameters() | parameters))


def _added_up(gaps: Any) -> Any:
    """Sum gaps (..., k - 1) from the last on into heights (..., k), the last of which is 0."""
    xp = array_namespace(gaps)
    rising = xp.cumulative_sum(xp.flip(gaps, axis=-1), axis=-1)
    return xp.flip(xp.concat([xp.zeros_like(gaps[..., :1]), rising], axis=-1), axis=-1)


def _softplus(values: Any) -> Any:
    xp = array_namespace(values)
    return xp.clip(values, min=0.0) + xp.log1p(xp.exp(-xp.abs(values)))


def _wide(logits: Any) -> float:
    """The square root of the largest number: wider gaps are all the same, and products with it stay finite."""
    return float(array_namespace(logits).finfo(logits.dtype).max) ** 0.5
