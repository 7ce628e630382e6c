"""Log-probabilities and labels -> the correction shared by all classes, averaged over penalties by their evidence.

The correction is linear in its thirty weights, so the penalised log loss is convex and Newton's method finds its one
minimum in a few steps. The penalty has two settings: its strength, and how much stronger it is for weights that depend
on the row's context. Neither is chosen. Every pair of settings is fitted, and so is no correction at all; each counts
by its evidence, the probability of the labels under it. So a correction with little evidence moves little, and one that
needs no context does not pay for it. Each row keeps its ten most probable classes apart and pools the rest.
"""

import math
from typing import NamedTuple

import numpy as np

from glayers.activations import log_softmax, softmax
from glayers.arrays import Floats, Ints, row_blocks
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.newton import newton
from glayers.fitting.penalty_path import counted_rows
from glayers.maps.tables import N_CONTEXT, N_SHAPES, Shared, context, raw_context, shapes

DEPTH = 10
STRENGTHS = (1e4, 1e3, 1e2, 1e1, 1e0, 1e-1)
# Multiples of the strength for context weights; with infinity a class moves by its own log-probability alone. Finer
# grids were no better on halves of calibration rows (docs/design/0003-auto.md).
CONTEXT_TIMES = (1.0, 30.0, math.inf)
_LEAST_CHANCE = 1e-3  # a penalty of less probability with all rows is not tried again without a fold
_MOST_STEPS = 30
_TOLERANCE = 1e-8  # of a mean over rows: with a hundred thousand rows, a thousandth of a nat in all


class SharedRows(NamedTuple):
    """Rows as outcomes: features (n, outcomes, 30), their logits, which one is the label, and a scale for penalties.

    A label among the pooled classes counts as the pool: the correction does not change the proportions inside it.
    """

    features: Floats
    logits: Floats
    labels: Ints
    scale: Floats
    centre: Floats
    spread: Floats


class SharedFit(NamedTuple):
    """The averaged weights, the probability of each penalty and last of no correction, and the weights of each fit."""

    theta: Floats
    chances: Floats
    fits: Floats


def shared_rows(log_probabilities: Floats, labels: Ints, weights: Floats | None = None) -> SharedRows:
    """Prepare rows once for any number of fits; means and spreads count every row by its weight."""
    n_rows, n_classes = log_probabilities.shape
    depth = min(DEPTH, n_classes)
    order, raw = np.empty((n_rows, depth), dtype=np.int64), np.empty((n_rows, N_CONTEXT - 1))
    for rows in row_blocks(n_rows, n_classes):
        order[rows] = np.argsort(-log_probabilities[rows], axis=1, kind="stable")[:, :depth]
        block = log_probabilities[rows]
        raw[rows] = raw_context(block, np.take_along_axis(block, order[rows], axis=1))
    highest = np.take_along_axis(log_probabilities, order, axis=1)
    centre = np.average(raw, axis=0, weights=weights)
    spread = np.sqrt(np.average((raw - centre) ** 2, axis=0, weights=weights)) + 1e-9
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
    scale = np.average((p * (features - mean) ** 2).sum(axis=1), axis=0, weights=weights) + 1e-12
    return SharedRows(features, logits, place, scale, centre, spread)


def average_shared(rows: SharedRows, weights: Floats, near: SharedFit | None = None) -> SharedFit:
    """Average the fits of all penalties and of no correction, each by its evidence in Laplace's approximation.

    `near` is the average over these rows and more: fits start there, and penalties of little probability are skipped.

    log evidence = -n loss(theta) - theta' P theta / 2 - log det(I + P^-1/2 H P^-1/2) / 2, with n the rows counted by
    weight, P the penalty and H the curvature of n loss, both for the weights that a penalty leaves free. All penalties
    and no correction have equal prior probability.
    """
    used, penalties = weights > 0, shared_penalties(rows)
    seen = rows._replace(features=rows.features[used], logits=rows.logits[used], labels=rows.labels[used])
    weights, n_rows = weights[used], counted_rows(weights[used])
    fits, evidence = np.zeros((len(penalties) + 1, penalties.shape[1])), np.full(len(penalties) + 1, -math.inf)
    uncorrected = smooth_loss("log").rows(seen.logits, seen.labels)
    evidence[-1] = -n_rows * float(np.average(uncorrected, weights=weights))
    for place, penalty in enumerate(penalties):
        if near is not None and near.chances[place] < _LEAST_CHANCE:
            continue
        stronger = fits[place - 1] if place % len(STRENGTHS) else fits[-1]
        start = stronger if near is None else near.fits[place]
        fits[place], value, curvature = fit_shared(seen, weights, penalty, start)
        scale = 1 / np.sqrt(penalty[np.isfinite(penalty)])
        determinant = np.linalg.slogdet(np.eye(len(scale)) + scale[:, None] * (n_rows * curvature) * scale)[1]
        evidence[place] = -n_rows * value - determinant / 2
    chances = softmax(evidence)
    return SharedFit(chances @ fits, chances, fits)


def shared_penalties(rows: SharedRows) -> Floats:
    """Return every strength with every multiple for the context, (pairs, weights), on the scale of the features."""
    of_context = np.arange(len(rows.scale)) % N_CONTEXT > 0
    return np.array(
        [strength * rows.scale * np.where(of_context, times, 1.0) for times in CONTEXT_TIMES for strength in STRENGTHS]
    )


def fit_shared(rows: SharedRows, weights: Floats, penalty: Floats, start: Floats) -> tuple[Floats, float, Floats]:
    """Minimise the mean log loss plus 1 / 2n times the penalised squares; a weight of infinite penalty stays 0.

    Return the weights, the minimum, and the curvature of the mean log loss there by the weights of finite penalty.
    """
    fractions, free = weights / weights.sum(), np.isfinite(penalty)
    if not free.all():
        rows = rows._replace(features=rows.features[..., free])
    penalty = penalty[free] / counted_rows(weights)
    ridge = np.diag(penalty + 1e-12)
    label = np.arange(len(rows.labels)), rows.labels
    own = rows.features[label]
    latest: dict[bytes, Floats] = {}  # the value and the derivatives at a point need the same probabilities

    def log_probabilities(theta: Floats) -> Floats:
        if theta.tobytes() not in latest:
            latest.clear()
            latest[theta.tobytes()] = log_softmax(rows.logits + rows.features @ theta)
        return latest[theta.tobytes()]

    def value(theta: Floats) -> float:
        return float(-(fractions * log_probabilities(theta)[label]).sum() + (penalty * theta**2).sum() / 2)

    def derivatives(theta: Floats) -> tuple[Floats, Floats]:
        p = np.exp(log_probabilities(theta))
        mean = np.einsum("ns,nsd->nd", p, rows.features)
        gradient = ((mean - own) * fractions[:, None]).sum(axis=0) + penalty * theta
        return gradient, _curvature(rows.features, p, mean, fractions) + ridge

    optimum = newton(value, derivatives, start[free], tolerance=_TOLERANCE, max_iterations=_MOST_STEPS)
    theta = np.zeros(len(free))
    theta[free] = optimum.point
    return theta, optimum.value, derivatives(optimum.point)[1] - ridge


def shared_step(rows: SharedRows, theta: Floats) -> Shared:
    """Return the correction as a step of a map."""
    return Shared(theta.reshape(N_SHAPES, N_CONTEXT), rows.centre, rows.spread, np.asarray(float(DEPTH)))


def _curvature(features: Floats, p: Floats, mean: Floats, fractions: Floats) -> Floats:
    """Mean over rows of the covariance of an outcome's features."""
    spread = (features * np.sqrt(p * fractions[:, None])[..., None]).reshape(-1, features.shape[-1])
    middle = mean * np.sqrt(fractions)[:, None]
    return np.asarray(spread.T @ spread - middle.T @ middle)
