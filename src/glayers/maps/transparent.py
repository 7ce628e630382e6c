"""A number of logits, a depth and a width -> dense layers that start exactly as the identity.

relu(z) - relu(-z) = z, so a hidden layer that carries both signs of every logit loses nothing: the first layer splits,
hidden layers hand the 2C carried units on, the last one joins. Units beyond 2C read with random weights and are read
with weight zero, so they change nothing at the start and learn from the first step.
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from glayers.arrays import Array
from glayers.maps.chain import Chain, Step
from glayers.maps.steps import Dense, Relu


def transparent_layers(
    n_logits: int,
    n_layers: int,
    units_per_class: int = 3,
    random_state: int | np.random.Generator = 0,
    width: int | None = None,
) -> Chain:
    """Dense layers, `n_layers` of them with the last counted, that are the identity before they are fitted.

    Hidden layers have units_per_class * n_logits + 2 units, or `width` of them; at least 2 * n_logits either way.

    >>> layers = transparent_layers(n_logits=4, n_layers=3)
    >>> z = np.array([[0.3, -7.0, 1e4, 2.5]])
    >>> (layers(z) == z).all()
    np.True_
    >>> layers.steps[0].weight.shape
    (4, 14)
    """
    rng = np.random.default_rng(random_state)
    hidden = hidden_width(n_logits, units_per_class, width)
    if n_layers > 1 and hidden < 2 * n_logits:
        raise ValueError(
            f"a transparent layer on {n_logits} logits needs at least {2 * n_logits} units to carry both signs; "
            f"got {hidden}. Take units_per_class >= 2 or a larger width"
        )
    layers: list[Dense] = []
    for n_in, n_out in layer_shapes(n_logits, n_layers, hidden):
        weight = _glorot(n_in, n_out, rng)
        hand_over = _hand_over(n_logits, first=len(layers) == 0, last=len(layers) == n_layers - 1)
        weight[:, : hand_over.shape[1]] = 0.0
        weight[: hand_over.shape[0], : hand_over.shape[1]] = hand_over
        layers.append(Dense(weight, np.zeros(n_out)))
    return _with_relus(layers)


def glorot_layers(
    n_logits: int,
    n_layers: int,
    units_per_class: int = 3,
    random_state: int | np.random.Generator = 0,
    width: int | None = None,
) -> Chain:
    """The same layers from Glorot's uniform random start, which the paper compares with."""
    rng = np.random.default_rng(random_state)
    hidden = hidden_width(n_logits, units_per_class, width)
    layers = [
        Dense(_glorot(n_in, n_out, rng), np.zeros(n_out)) for n_in, n_out in layer_shapes(n_logits, n_layers, hidden)
    ]
    return _with_relus(layers)


def hidden_width(n_logits: int, units_per_class: int, width: int | None) -> int:
    """The paper's hC + 2, unless a width is given."""
    return units_per_class * n_logits + 2 if width is None else width


def layer_shapes(n_logits: int, n_layers: int, hidden: int) -> Iterator[tuple[int, int]]:
    """Yield inputs and outputs of each layer, the last one counted."""
    if n_layers < 1:
        raise ValueError(f"n_layers counts the last layer and must be at least 1; got {n_layers}")
    sizes = [n_logits, *[hidden] * (n_layers - 1), n_logits]
    return pairwise(sizes)


def _hand_over(n_logits: int, first: bool, last: bool) -> Array:
    """Weights between carried units: z to (z, -z), (z, -z) to itself, or (z, -z) back to z."""
    eye = np.eye(n_logits)
    before = eye if first else np.hstack([eye, -eye])
    after = eye if last else np.hstack([eye, -eye])
    # A hidden unit carries one sign only: never hand the positive part to the negative unit.
    return np.eye(2 * n_logits) if not first and not last else before.T @ after


def _glorot(n_in: int, n_out: int, rng: np.random.Generator) -> Array:
    reach = np.sqrt(6.0 / (n_in + n_out))
    return rng.uniform(-reach, reach, size=(n_in, n_out))


def _with_relus(layers: list[Dense]) -> Chain:
    steps: list[Step] = []
    for layer in layers:
        steps += [layer, Relu()]
    return Chain(tuple(steps[:-1]))
