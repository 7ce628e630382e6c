"""A number of logits, a depth and a width -> dense layers that start exactly as the identity.

relu(z) - relu(-z) = z, so a hidden layer that carries both signs of every logit loses nothing. The first layer splits
each logit in two, hidden layers pass these 2C units on, and the last layer subtracts them. Units beyond 2C have random
incoming weights and outgoing weights of zero: they change nothing at the start, yet they learn from the first step.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from glayers.arrays import Array
from glayers.maps.chain import Chain, Step
from glayers.maps.steps import Dense, Relu

__all__ = ["glorot_layers", "transparent_layers"]


def transparent_layers(
    n_logits: int,
    n_layers: int,
    units_per_class: int = 3,
    random_state: int | np.random.Generator = 0,
    width: int | None = None,
) -> Chain:
    """Return `n_layers` dense layers, the last one included, that are the identity before they are fitted.

    Hidden layers have units_per_class * n_logits + 2 units, or `width` of them; at least 2 * n_logits either way.

    >>> layers = transparent_layers(n_logits=4, n_layers=3)
    >>> z = np.array([[0.3, -7.0, 1e4, 2.5]])
    >>> (layers(z) == z).all()
    np.True_
    >>> layers.steps[0].weight.shape
    (4, 14)
    """
    hidden = hidden_width(n_logits, units_per_class, width)
    if n_layers > 1 and hidden < 2 * n_logits:
        raise ValueError(
            f"a transparent layer on {n_logits} logits needs at least {2 * n_logits} units to carry both signs; "
            f"got {hidden}. Use units_per_class >= 2 or a larger width"
        )
    chain = glorot_layers(n_logits, n_layers, units_per_class, random_state, width)
    layers = [step.weight for step in chain.steps if isinstance(step, Dense)]
    for place, weight in enumerate(layers):
        carried = _carried(n_logits, first=place == 0, last=place == n_layers - 1)
        weight[:, : carried.shape[1]] = 0.0
        weight[: carried.shape[0], : carried.shape[1]] = carried
    return chain


def glorot_layers(
    n_logits: int,
    n_layers: int,
    units_per_class: int = 3,
    random_state: int | np.random.Generator = 0,
    width: int | None = None,
) -> Chain:
    """Return the same layers with Glorot's uniform random start, which the paper compares with."""
    rng = np.random.default_rng(random_state)
    hidden = hidden_width(n_logits, units_per_class, width)
    steps: list[Step] = []
    for n_in, n_out in layer_shapes(n_logits, n_layers, hidden):
        reach = np.sqrt(6.0 / (n_in + n_out))
        steps += [Dense(rng.uniform(-reach, reach, size=(n_in, n_out)), np.zeros(n_out)), Relu()]
    return Chain(tuple(steps[:-1]))


def hidden_width(n_logits: int, units_per_class: int, width: int | None) -> int:
    """Return the paper's hC + 2, unless a width is given."""
    return units_per_class * n_logits + 2 if width is None else width


def layer_shapes(n_logits: int, n_layers: int, hidden: int) -> Iterator[tuple[int, int]]:
    """Return the number of inputs and outputs of each layer, the last one included."""
    if n_layers < 1:
        raise ValueError(f"n_layers counts the last layer and must be at least 1; got {n_layers}")
    sizes = [n_logits, *[hidden] * (n_layers - 1), n_logits]
    return pairwise(sizes)


def _carried(n_logits: int, first: bool, last: bool) -> Array:
    """Return the weights between units that carry logits: z to (z, -z), (z, -z) to itself, or (z, -z) back to z."""
    eye = np.eye(n_logits)
    before = eye if first else np.hstack([eye, -eye])
    after = eye if last else np.hstack([eye, -eye])
    # A hidden unit carries one sign only, so the positive part never goes to the negative unit.
    return np.eye(2 * n_logits) if not first and not last else before.T @ after
