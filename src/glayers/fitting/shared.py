"""Log-probabilities and labels -> the shared correction, by Newton's method, averaged over how much to trust it.

The correction is linear in its thirty weights, so the penalised log loss is convex: a few steps end at its one minimum.
How strong the penalty should be, and how much stronger where a shape's size depends on the row's context, is not chosen
but averaged over: every pair, and no correction at all, counts by its evidence, the chance of the labels under it. So a
correction that the rows hardly ask for hardly moves, and one that asks for no context does not pay for it.
Only the highest classes of a row are told apart; all others together are one more outcome.
"""

import math
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.fitting.penalty_path import counted_rows
from glayers.maps.shared import N_CONTEXT, N_SHAPES, Shared, context, raw_context, shapes

DEPTH = 10
STRENGTHS = (1e4, 1e3, 1e2, 1e1, 1e0, 1e-1)
# Times the strength for weights of the context; at infinity a class moves by its own log-probability alone. Finer grids
# were no better on halves of calibration rows (docs/design/0003-auto.md).
CONTEXT_TIMES = (1.0, 30.0, math.inf)
_LEAST_CHANCE = 1e-3  # a penalty that counts for less with all rows is not tried again without some of them
_MOST_STEPS = 30
_TOLERANCE = 1e-8  # of a mean over rows: a thousandth of a nat for a hundred thousand of them


class SharedRows(NamedTuple):
    """Rows as outcomes: features (n, outcomes, 30), their logits, which one is the label, and a scale for penalties.

    A label among the rest counts as the rest: its share of them is none of the correction's doing.
    """

    features: Floats
    logits: Floats
    labels: Ints
    scale: Floats
    centre: Floats
    spread: Floats


class SharedFit(NamedTuple):
    """The averaged weights, the chance of each penalty and last that of no correction, and the weights of each."""

    theta: Floats
    chances: Floats
    fits: Floats


def shared_rows(log_probabilities: Floats, labels: Ints, weights: Floats | None = None) -> SharedRows:
    """Prepare rows once for any number of fits; what is typical of them counts every row by its weight."""
    n_rows, n_classes = log_probabilities.shape
    depth = min(DEPTH, n_classes)
    order, raw = np.empty((n_rows, depth), dtype=np.int64), np.empty((n_rows, N_CONTEXT - 1))
    for rows in row_blocks(n_rows, n_classes):
        order[rows] = np.argsort(-log_probabilities[rows], axis=1, kind="stable")[:, :depth]
        block = log_probabilities[rows]
        raw[rows] = raw_context(block, np.take_along_axis(block, order[rows], axis=1))
    highest = np.take_along_axis(log_probabilities, order, axis=1)
    centre = _mean(raw, weights)
    spread = np.sqrt(_mean((raw - centre) ** 2, weights)) + 1e-9
    standard = context(raw, centre, spread)
    features = (np.stack(shapes(highest), axis=-1)[..., None] * standard[:, None, None, :]).reshape(n_rows, depth, -1)
    is_label = order == labels[:, None]
    place, logits = np.where(is_label.any(axis=1), is_label.argmax(axis=1), depth), highest
    if depth < n_classes:
        rest = np.log(np.maximum(-np.expm1(np.log(np.exp(highest).sum(axis=1))), 1e-300))
        logits = np.column_stack([highest, rest])
        features = np.concatenate([features, features[:, -1:]], axis=1)
    p = np.exp(np.minimum(logits, 0.0))[..., None]
    mean = (p * features).sum(axis=1, keepdims=True)
    scale = _mean((p * (features - mean) ** 2).sum(axis=1), weights) + 1e-12
    return SharedRows(features, logits, place, scale, centre, spread)


def average_shared(rows: SharedRows, weights: Floats, near: SharedFit | None = None) -> SharedFit:
    """Average the fits of all penalties and of none, each by its evidence in Laplace's approximation.

    `near` is the average over these rows and others: fits start there, and penalties that hardly count there stay out.

    log evidence = -n loss(theta) - theta' P theta / 2 - log det(I + P^-1/2 H P^-1/2) / 2, with n rows counted by their
    weights, P the penalty and H the curvature of n loss, both of the weights that a penalty leaves free. Penalties and
    none are equally likely beforehand.
    """
    used = weights > 0
    seen, weights = _taken(rows, used), weights[used]
    n_rows, penalties = counted_rows(weights), shared_penalties(rows)
    fits, evidence = np.zeros((len(penalties) + 1, penalties.shape[1])), np.full(len(penalties) + 1, -math.inf)
    evidence[-1] = -n_rows * float(np.average(shared_losses(seen, fits[-1]), weights=weights))
    for place, penalty in enumerate(penalties):
        if near is not None and near.chances[place] < _LEAST_CHANCE:
            continue
        stronger = fits[place - 1] if place % len(STRENGTHS) else fits[-1]
        optimum = fit_shared(seen, weights, penalty, stronger if near is None else near.fits[place])
        free = np.isfinite(penalty)
        scale = 1 / np.sqrt(penalty[free])
        determinant = np.linalg.slogdet(np.eye(len(scale)) + scale[:, None] * (n_rows * optimum.curvature) * scale)[1]
        fits[place], evidence[place] = optimum.theta, -n_rows * optimum.value - determinant / 2
    chances = np.exp(evidence - evidence.max())
    chances /= chances.sum()
    return SharedFit(chances @ fits, chances, fits)


def shared_penalties(rows: SharedRows) -> Floats:
    """Every strength for every `CONTEXT_TIMES`, (pairs, weights), on the scale of the features."""
    of_context = np.arange(len(rows.scale)) % N_CONTEXT > 0
    return np.array(
        [strength * rows.scale * np.where(of_context, times, 1.0) for times in CONTEXT_TIMES for strength in STRENGTHS]
    )


class SharedOptimum(NamedTuple):
    """The weights under one penalty, the penalised mean loss there, and the curvature of the loss in the free ones."""

    theta: Floats
    value: float
    curvature: Floats


def fit_shared(rows: SharedRows, weights: Floats, penalty: Floats, start: Floats) -> SharedOptimum:
    """Minimise the mean log loss plus 1 / 2n times the penalised squares of the weights; at infinity a weight is 0."""
    shares = weights / weights.sum()
    free = np.isfinite(penalty)
    features = rows.features if free.all() else rows.features[..., free]
    penalty, theta = penalty[free] / counted_rows(weights), start[free]
    logits, labels = rows.logits, rows.labels
    own = features[np.arange(len(labels)), labels]
    value, p = _value(features, logits, labels, shares, penalty, theta)
    for _ in range(_MOST_STEPS):
        mean = np.einsum("ns,nsd->nd", p, features)
        gradient = ((mean - own) * shares[:, None]).sum(axis=0) + penalty * theta
        step = -np.linalg.solve(_curvature(features, p, mean, shares) + np.diag(penalty + 1e-12), gradient)
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
    found = np.zeros(len(free))
    found[free] = theta
    return SharedOptimum(found, value, _curvature(features, p, np.einsum("ns,nsd->nd", p, features), shares))


def shared_losses(rows: SharedRows, theta: Floats) -> Floats:
    """Log loss of each row's outcome under a correction."""
    logits = rows.logits + rows.features @ theta
    top = logits.max(axis=1)
    total = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    return total - logits[np.arange(len(rows.labels)), rows.labels]


def shared_step(rows: SharedRows, theta: Floats) -> Shared:
    """Return the correction as a step of a map."""
    return Shared(theta.reshape(N_SHAPES, N_CONTEXT), rows.centre, rows.spread, np.asarray(float(DEPTH)))


def _taken(rows: SharedRows, used: Array) -> SharedRows:
    return rows._replace(features=rows.features[used], logits=rows.logits[used], labels=rows.labels[used])


def _mean(values: Floats, weights: Floats | None) -> Floats:
    return values.mean(axis=0) if weights is None else np.average(values, axis=0, weights=weights)


def _curvature(features: Floats, p: Floats, mean: Floats, shares: Floats) -> Floats:
    """Mean over rows of the covariance of an outcome's features."""
    spread = (features * np.sqrt(p * shares[:, None])[..., None]).reshape(-1, features.shape[-1])
    middle = mean * np.sqrt(shares)[:, None]
    return np.asarray(spread.T @ spread - middle.T @ middle)


def _value(
    features: Floats, logits: Floats, labels: Ints, shares: Floats, penalty: Floats, theta: Floats
) -> tuple[float, Array]:
    moved = logits + features @ theta
    top = moved.max(axis=1, keepdims=True)
    powers = np.exp(moved - top)
    total = powers.sum(axis=1, keepdims=True)
    losses = np.log(total[:, 0]) + top[:, 0] - moved[np.arange(len(labels)), labels]
    return float((shares * losses).sum() + (penalty * theta**2).sum() / 2), powers / total
