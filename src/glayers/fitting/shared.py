"""Log-probabilities and labels -> the shared correction of least penalised log loss, by Newton's method.

The correction is linear in its thirty weights, so the loss is convex: a few steps end at the one minimum from anywhere.
Only the highest classes of a row are told apart; all others together are one more outcome.
"""

from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.maps.shared import N_CONTEXT, N_SHAPES, Shared, context, raw_context, shapes

DEPTH = 10
_MOST_STEPS = 30
_TOLERANCE = 1e-10


class SharedRows(NamedTuple):
    """Rows as outcomes: features (n, outcomes, 30), their logits, which one is the label, and a scale for penalties."""

    features: Floats
    logits: Floats
    labels: Ints
    within: Floats
    scale: Floats
    centre: Floats
    spread: Floats


def shared_rows(log_probabilities: Floats, labels: Ints) -> SharedRows:
    """Prepare rows once for any number of fits."""
    n_rows, n_classes = log_probabilities.shape
    depth = min(DEPTH, n_classes)
    order = np.argsort(-log_probabilities, axis=1, kind="stable")[:, :depth]
    highest = np.take_along_axis(log_probabilities, order, axis=1)
    raw = raw_context(log_probabilities, highest)
    centre, spread = raw.mean(axis=0), raw.std(axis=0) + 1e-9
    rows = context(log_probabilities, highest, centre, spread)
    features = (np.stack(shapes(highest), axis=-1)[..., None] * rows[:, None, None, :]).reshape(n_rows, depth, -1)
    is_label = order == labels[:, None]
    found = is_label.any(axis=1)
    place, within, logits = np.where(found, is_label.argmax(axis=1), depth), np.zeros(n_rows), highest
    if depth < n_classes:
        rest = np.log(np.maximum(-np.expm1(np.log(np.exp(highest).sum(axis=1))), 1e-300))
        logits = np.column_stack([highest, rest])
        features = np.concatenate([features, features[:, -1:]], axis=1)
        # A label among the rest: its share of the rest does not depend on the correction.
        own = log_probabilities[np.arange(n_rows), labels]
        within = np.where(found, 0.0, own - rest)
    p = np.exp(np.minimum(logits, 0.0))[..., None]
    mean = (p * features).sum(axis=1, keepdims=True)
    scale = (p * (features - mean) ** 2).sum(axis=1).mean(axis=0) + 1e-12
    return SharedRows(features, logits, place, within, scale, centre, spread)


def fit_shared(rows: SharedRows, weights: Floats, strength: float) -> Floats:
    """Minimise the mean log loss plus `strength` / n times the squared weights on the scale of their features."""
    shares = weights / weights.sum()
    penalty = strength * rows.scale / max(1.0, float((weights > 0).sum()))
    theta = np.zeros(rows.features.shape[-1])
    used = shares > 0
    features, logits, labels, shares = (part[used] for part in (rows.features, rows.logits, rows.labels, shares))
    own = features[np.arange(len(labels)), labels]
    value, p = _value(features, logits, labels, shares, penalty, theta)
    for _ in range(_MOST_STEPS):
        mean = np.einsum("ns,nsd->nd", p, features)
        gradient = ((mean - own) * shares[:, None]).sum(axis=0) + penalty * theta
        spread = (features * np.sqrt(p * shares[:, None])[..., None]).reshape(-1, len(theta))
        middle = mean * np.sqrt(shares)[:, None]
        hessian = spread.T @ spread - middle.T @ middle + np.diag(penalty + 1e-12)
        step = -np.linalg.solve(hessian, gradient)
        length, slope = 1.0, float(gradient @ step)
        following, p_next = _value(features, logits, labels, shares, penalty, theta + step)
        while not following <= value + 1e-4 * length * slope and length > 1e-8:
            length /= 2
            following, p_next = _value(features, logits, labels, shares, penalty, theta + length * step)
        if not following < value:
            break
        gained, value, p, theta = value - following, following, p_next, theta + length * step
        if gained < _TOLERANCE:
            break
    return theta


def shared_losses(rows: SharedRows, theta: Floats) -> Floats:
    """Log loss of each row under a correction."""
    logits = rows.logits + rows.features @ theta
    top = logits.max(axis=1)
    total = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    return total - logits[np.arange(len(rows.labels)), rows.labels] - rows.within


def shared_step(rows: SharedRows, theta: Floats) -> Shared:
    """Return the correction as a step of a map."""
    return Shared(theta.reshape(N_SHAPES, N_CONTEXT), rows.centre, rows.spread, np.asarray(float(DEPTH)))


def _value(
    features: Floats, logits: Floats, labels: Ints, shares: Floats, penalty: Floats, theta: Floats
) -> tuple[float, Array]:
    moved = logits + features @ theta
    top = moved.max(axis=1, keepdims=True)
    powers = np.exp(moved - top)
    total = powers.sum(axis=1, keepdims=True)
    losses = np.log(total[:, 0]) + top[:, 0] - moved[np.arange(len(labels)), labels]
    return float((shares * losses).sum() + (penalty * theta**2).sum() / 2), powers / total
