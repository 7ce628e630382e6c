"""Log-probabilities -> log-probabilities by one small function that is the same for all classes.

The function adds d(l_i, c) to the log-probability l_i of class i: a sum of six fixed functions of l_i, whose
coefficients are linear in the row's context c (its three highest log-probabilities and its entropy). It has thirty
parameters, whatever the number of classes, and permuting classes permutes the output. Classes below the `depth` highest
get the correction of the last of these.
"""

from dataclasses import dataclass
from typing import Annotated, Any

from array_api_compat import array_namespace

from glayers.activations import log_softmax
from glayers.maps.chain import SMALLEST, Numbers, Step

N_SHAPES = 6
N_HIGHEST = 3
N_CONTEXT = 1 + N_HIGHEST + 1  # a constant, the highest log-probabilities, the entropy


@dataclass(frozen=True)
class Shared(Step):
    """Add the shared correction; `weight` is (6, 5), functions x context, and the context is centred and scaled."""

    weight: Annotated[Any, Numbers(f"{N_SHAPES} {N_CONTEXT}")]
    centre: Annotated[Any, Numbers(f"{N_CONTEXT - 1}", learned="none")]
    spread: Annotated[Any, Numbers(f"{N_CONTEXT - 1}", low=SMALLEST, learned="none")]
    depth: Annotated[Any, Numbers(low=1.0, learned="none")]

    def __call__(self, logits: Any) -> Any:
        """Return corrected log-probabilities."""
        xp = array_namespace(logits)
        plain = log_softmax(logits)
        ordered = xp.flip(xp.sort(plain, axis=-1), axis=-1)
        last = min(int(self.depth), plain.shape[-1]) - 1
        seen = context(raw_context(plain, ordered), self.centre, self.spread)
        sizes = xp.matmul(seen, xp.matrix_transpose(self.weight))
        reached = xp.maximum(plain, ordered[..., last : last + 1])
        parts = [sizes[..., i : i + 1] * shape for i, shape in enumerate(shapes(reached))]
        return log_softmax(plain + sum(parts))


def shapes(l: Any) -> list[Any]:  # noqa: E741 (the l of the formulas)
    """Return six functions of a log-probability, on the scale of logits, on that of probabilities, and in between."""
    xp = array_namespace(l)
    miss = xp.log(-xp.expm1(xp.clip(l, max=-1e-9)))  # log(1 - p)
    return [l, xp.exp(l), xp.exp(l / 2), xp.clip(miss, min=-15) / 5, xp.tanh(l + 2.3), xp.tanh((l + 5) / 2)]


def raw_context(plain: Any, ordered: Any) -> Any:
    """Return the three highest log-probabilities of each row and its entropy, (n, 4); two classes repeat the second."""
    xp = array_namespace(plain)
    last = plain.shape[-1] - 1
    entropy = -xp.sum(xp.exp(plain) * plain, axis=-1, keepdims=True)
    highest = [ordered[..., min(i, last) : min(i, last) + 1] for i in range(N_HIGHEST)]
    return xp.concat([*highest, entropy], axis=-1)


def context(raw: Any, centre: Any, spread: Any) -> Any:
    """Return a constant and the standardised context, clipped to four spreads so that no row is extrapolated far."""
    xp = array_namespace(raw)
    standard = xp.clip((raw - centre) / spread, min=-4, max=4)
    return xp.concat([xp.ones_like(standard[..., :1]), standard], axis=-1)
