"""Log-probabilities and labels -> the correction shared by all classes, averaged over penalties by their evidence.

The correction is linear in its thirty weights, so the penalised log loss is convex and Newton's method finds its one
minimum in a few steps. The penalty has two settings: its strength, and how much stronger it is for weights that depend
on the row's context. Neither is chosen. Every pair of settings counts, and so does no correction at all, by its
evidence: the probability of the labels under it. So a correction with little evidence moves little, and one that needs
no context does not pay for it. The corrections are averaged to one, and mixed with no correction by probability: with
few rows, a wrong correction then costs little. With few rows, every pair is fitted. With many, only the settings of
most evidence are, and the others follow from a quadratic there. Each row keeps its ten most probable classes apart and
pools the rest.
"""

import math
from typing import NamedTuple, Self

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Bools, Floats, Ints, row_blocks
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.newton import newton
from glayers.fitting.penalty_path import Key, Weighed, caution, counted_rows, is_few, most_evidence, next_strengths
from glayers.maps import Blend, Chain, Step
from glayers.maps.tables import N_CONTEXT, N_SHAPES, Shared, context, raw_context, shapes

DEPTH = 10
STRENGTHS = (1e4, 1e3, 1e2, 1e1, 1e0, 1e-1)
# Multiples of the strength for context weights; with infinity a class moves by its own log-probability alone. Finer
# grids were no better on halves of calibration rows (docs/design/0003-auto.md).
CONTEXT_TIMES = (1.0, 30.0, math.inf)
# Prior probabilities, up to a factor, of the strengths: weak penalties allow moves of several nats, which are rare.
_STRENGTH_CHANCES = (1.0, 1.0, 1.0, 1.0, 0.3, 0.1)
_ON_GRID = len(STRENGTHS) * len(CONTEXT_TIMES)
_INFINITE = 1e12  # stands for an infinite strength
_ALL = 1 - 1e-6  # a correction of more probability stands alone
_LEAST_CHANCE = 1e-3  # a penalty of less probability with all rows is not tried again without a fold
_MOST_STEPS = 30
_TOLERANCE = 1e-3  # nats over all rows, by which the last Newton step but one may miss the minimum
_FEW = 2_000  # rows, above which one Newton step is as good as several: within 1e-4 of the held-out loss
_NEGLIGIBLE = -12.0  # log of a probability, relative to the best, that ends the search in one direction


class SharedRows(NamedTuple):
    """Rows as outcomes: six functions of each (6, outcomes, n), the row's context (5, n), logits (outcomes, n), labels.

    Each of the thirty features is one function times one entry of the context, so neither sums over rows nor memory
    need them written out. A label among the pooled classes counts as the pool: the correction does not change the
    proportions inside it. `scale` (30,) is the variance of each feature, for penalties.
    """

    shapes: Floats
    context: Floats
    logits: Floats
    labels: Ints
    scale: Floats
    centre: Floats
    spread: Floats

    def take(self, rows: Bools) -> Self:
        """Return some of the rows."""
        shapes, context, logits = self.shapes[:, :, rows], self.context[:, rows], self.logits[:, rows]
        return self._replace(shapes=shapes, context=context, logits=logits, labels=self.labels[rows])


class SharedFit(NamedTuple):
    """The averaged weights; probability and weights of each penalty, and last of no correction.

    With many rows, `key` are the strengths of most evidence, whose fit comes before the last one.
    """

    theta: Floats
    chances: Floats
    fits: Floats
    key: Key = ()

    @property
    def share(self) -> float:
        """The probability of a correction."""
        return float(1 - self.chances[-1])


def shared_rows(log_probabilities: Array, labels: Ints, weights: Floats | None = None) -> SharedRows:
    """Prepare rows once for any number of fits; means and spreads count every row by its weight."""
    n_rows, n_classes = log_probabilities.shape
    depth = min(DEPTH, n_classes)
    pooled = depth < n_classes
    raw, place = np.empty((n_rows, N_CONTEXT - 1)), np.empty(n_rows, dtype=np.int64)
    logits = np.empty((depth + pooled, n_rows))
    for rows in row_blocks(n_rows, n_classes):
        block = log_probabilities[rows].astype(np.float64)
        order = _highest_classes(block, depth)
        highest = np.take_along_axis(block, order, axis=1)
        raw[rows] = raw_context(block, highest)
        is_label = order == labels[rows, None]
        place[rows] = np.where(is_label.any(axis=1), is_label.argmax(axis=1), depth)
        logits[:depth, rows] = highest.T
    if pooled:
        logits[-1] = np.log(np.maximum(-np.expm1(np.log(np.exp(logits[:-1]).sum(axis=0))), 1e-300))
    centre = np.average(raw, axis=0, weights=weights)
    spread = np.sqrt(np.average((raw - centre) ** 2, axis=0, weights=weights)) + 1e-9
    standard = np.ascontiguousarray(context(raw, centre, spread).T)
    each = np.stack(shapes(logits[:depth]))
    if pooled:
        each = np.concatenate([each, each[:, -1:]], axis=1)
    p = np.exp(np.minimum(logits, 0.0))
    variance = (p * (each - (p * each).sum(axis=1, keepdims=True)) ** 2).sum(axis=1)
    fractions = np.full(n_rows, 1 / n_rows) if weights is None else weights / weights.sum()
    scale = ((variance * fractions) @ standard.T**2).ravel() + 1e-12
    return SharedRows(each, standard, logits, place, scale, centre, spread)


def _highest_classes(log_probabilities: Floats, depth: int) -> Ints:
    """Return the classes of the highest entries of each row, from the highest down."""
    if log_probabilities.shape[1] <= 4 * depth:
        return np.argsort(-log_probabilities, axis=1, kind="stable")[:, :depth]
    some = np.sort(np.argpartition(log_probabilities, -depth, axis=1)[:, -depth:], axis=1)
    order = np.argsort(-np.take_along_axis(log_probabilities, some, axis=1), axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)


def average_shared(rows: SharedRows, weights: Floats) -> SharedFit:
    """Return the correction averaged over all penalties; with many rows, most follow from a quadratic."""
    used = weights > 0
    seen = rows if used.all() else rows.take(used)
    few = is_few(counted_rows(weights[used]))
    return (average_over_grid if few else _around_most_evidence)(seen, weights[used])


def average_over_grid(rows: SharedRows, weights: Floats) -> SharedFit:
    """Average the fits of all penalties and of no correction, each by its evidence in Laplace's approximation.

    log evidence = -n loss(theta) - theta' P theta / 2 - log det(I + P^-1/2 H P^-1/2) / 2, with n the rows counted by
    weight, P the penalty and H the curvature of n loss, both for the weights that a penalty leaves free. With few rows
    no correction has a prior probability of one half, with many that of one penalty of the grid. From a middle
    strength on, the search for each multiple of the context goes to stronger and to weaker penalties until the
    probability becomes negligible.
    """
    penalties, n_rows = shared_penalties(rows), counted_rows(weights)
    fits, evidence = np.zeros((len(penalties) + 1, penalties.shape[1])), np.full(len(penalties) + 1, -math.inf)
    evidence[-1] = -n_rows * _uncorrected(rows, weights)
    middle = len(STRENGTHS) // 2
    start = fits[-1]
    for first in range(0, len(penalties), len(STRENGTHS)):
        for places in (range(first + middle, first + len(STRENGTHS)), range(first + middle - 1, first - 1, -1)):
            for place in places:
                fits[place], value, curvature = fit_shared(rows, weights, penalties[place], start)
                evidence[place] = _log_evidence(value, curvature, penalties[place], n_rows)
                if evidence[place] < evidence.max() + _NEGLIGIBLE:
                    break
                start = fits[place]
            start = fits[first + middle]
    return _averaged(fits, evidence, n_rows)


def _around_most_evidence(rows: SharedRows, weights: Floats) -> SharedFit:
    """Average as `average_over_grid`, with a quadratic in place of the loss: that at the penalty of most evidence."""
    n_rows = counted_rows(weights)

    def weigh(key: Key, start: Floats) -> Weighed:
        return _weighed(*fit_shared(rows, weights, _penalty(rows, key), start), rows, key, n_rows)

    first = (math.log10(STRENGTHS[len(STRENGTHS) // 2]),) * 2
    key, best = most_evidence(first, weigh(first, np.zeros(len(rows.scale))), weigh)
    near = _loss_and_derivatives(rows, weights / weights.sum(), best.point)
    return _average_near(best.point, near, rows, key, n_rows, -n_rows * _uncorrected(rows, weights))


def _average_near(
    theta: Floats, near: tuple[float, Floats, Floats], rows: SharedRows, key: Key, n_rows: float, of_none: float
) -> SharedFit:
    """Average over the grid of penalties, the one of `key` and no correction, where the loss is a quadratic.

    `near` holds value, slope and curvature at theta. This takes no pass over the rows.
    """
    penalties = np.concatenate([np.minimum(shared_penalties(rows), _INFINITE * rows.scale), [_penalty(rows, key)]])
    fits, evidence = np.zeros((len(penalties) + 1, len(theta))), np.append(np.zeros(len(penalties)), of_none)
    for place, penalty in enumerate(penalties):
        fits[place], value = _newton_step(theta, near, penalty / n_rows)
        evidence[place] = _log_evidence(value, near[2], penalty, n_rows)
    return _averaged(fits, evidence, n_rows, key)


def _penalty(rows: SharedRows, key: Key) -> Floats:
    """Return the penalty of each weight, for a strength of its own and one of the context, both as powers of ten."""
    return rows.scale * np.where(_of_context(rows), 10.0 ** key[1], 10.0 ** key[0])


def _of_context(rows: SharedRows) -> Bools:
    return np.arange(len(rows.scale)) % len(rows.context) > 0


def _weighed(theta: Floats, value: float, curvature: Floats, rows: SharedRows, key: Key, n_rows: float) -> Weighed:
    """Return a fit with its log evidence and the strengths to try next."""
    penalty = _penalty(rows, key)
    scale = 1 / np.sqrt(penalty)
    left = np.linalg.inv(np.eye(len(scale)) + scale[:, None] * (n_rows * curvature) * scale)
    parts = [rows.scale * ~_of_context(rows), rows.scale * _of_context(rows)]
    evidence = _log_evidence(value, curvature, penalty, n_rows)
    return Weighed(theta, evidence, next_strengths(np.diagonal(left), theta**2, parts))


def _averaged(fits: Floats, evidence: Floats, n_rows: float, key: Key = ()) -> SharedFit:
    """Average the corrections among themselves; their probability follows from the evidence and the prior."""
    of_penalties = np.append(np.tile(_STRENGTH_CHANCES, len(CONTEXT_TIMES)), np.ones(len(fits) - 1 - _ON_GRID))
    of_none = 1 + caution(n_rows) * (of_penalties.sum() - 1)
    chances = softmax(evidence + np.log(np.append(of_penalties, of_none)))
    theta = softmax(evidence[:-1] + np.log(of_penalties)) @ fits[:-1] if np.isfinite(evidence[:-1]).any() else fits[-1]
    return SharedFit(theta, chances, fits, key)


def average_without(rows: SharedRows, weights: Floats, folds: Ints, whole: SharedFit) -> list[SharedFit]:
    """Return the average without each fold, given that of all rows.

    Each fit is one Newton step from the fit to all rows, which differs by little. Its loss follows from the same
    quadratic, so one pass over the rows serves all folds. A fold of few rows matters more, and Newton's method goes on.
    Penalties of little probability are skipped. With many rows, each fold finds its own penalty of most evidence.
    """
    n_folds, total = int(folds.max()) + 1, weights.sum()
    held_out = [rows.take(folds == fold) for fold in range(n_folds)]
    shares = [weights[folds == fold] / total for fold in range(n_folds)]
    counted = [counted_rows(weights[folds != fold]) for fold in range(n_folds)]
    of_none = [-counted[fold] * _uncorrected(rows, weights * (folds != fold)) for fold in range(n_folds)]

    def without_each(theta: Floats, free: Bools) -> list[tuple[float, Floats, Floats]]:
        """Return value, slope and curvature of the loss of the other rows, for each fold."""
        parts = [
            _loss_and_derivatives(_with_context(part, free), share, theta)
            for part, share in zip(held_out, shares, strict=True)
        ]
        whole = [sum(each) for each in zip(*parts, strict=True)]
        left = [1.0 - float(share.sum()) for share in shares]
        return [
            tuple((all_rows - own) / rest for all_rows, own in zip(whole, part, strict=True))
            for part, rest in zip(parts, left, strict=True)
        ]

    if whole.key:
        theta, made = whole.fits[-2], []
        for near, n_rows, none in zip(without_each(theta, np.isfinite(theta)), counted, of_none, strict=True):
            key = _most_evidence_near(theta, near, rows, whole.key, n_rows)
            made.append(_average_near(theta, near, rows, key, n_rows, none))
        return made
    penalties = shared_penalties(rows)
    fits = np.zeros((n_folds, *whole.fits.shape))
    evidence = np.full((n_folds, len(whole.fits)), -math.inf)
    evidence[:, -1] = of_none
    for place in np.flatnonzero(whole.chances[:-1] >= _LEAST_CHANCE):
        free = np.isfinite(penalties[place])
        theta, penalty = whole.fits[place][free], penalties[place][free]
        for fold, near in enumerate(without_each(theta, free)):
            fits[fold, place, free], loss = _newton_step(theta, near, penalty / counted[fold])
            bent = near[2]
            if len(weights) <= _FEW:
                others = folds != fold
                found = fit_shared(rows.take(others), weights[others], penalties[place], fits[fold, place])
                fits[fold, place], loss, bent = found
            evidence[fold, place] = _log_evidence(loss, bent, penalties[place], counted[fold])
    return [_averaged(*each) for each in zip(fits, evidence, counted, strict=True)]


def _newton_step(theta: Floats, near: tuple[float, Floats, Floats], ridge: Floats) -> tuple[Floats, float]:
    """Return the minimum of a quadratic plus a penalty, and its value; `near` is value, slope, curvature at theta."""
    value, gradient, curvature = near
    slope = gradient + ridge * theta
    step = -np.linalg.solve(curvature + np.diag(ridge + 1e-12), slope)
    return theta + step, value + float(ridge @ theta**2) / 2 + float(slope @ step) / 2


def _most_evidence_near(
    theta: Floats, near: tuple[float, Floats, Floats], rows: SharedRows, key: Key, n_rows: float
) -> Key:
    """Search for the penalty of most evidence where the loss is a quadratic, which takes no pass over the rows."""

    def weigh(there: Key, _: Floats) -> Weighed:
        found, value = _newton_step(theta, near, _penalty(rows, there) / n_rows)
        return _weighed(found, value, near[2], rows, there, n_rows)

    return most_evidence(key, weigh(key, theta), weigh)[0]


def _uncorrected(rows: SharedRows, weights: Floats) -> float:
    """Return the mean log loss of no correction."""
    return float(np.average(smooth_loss("log").rows(rows.logits.T, rows.labels), weights=weights))


def _log_evidence(value: float, curvature: Floats, penalty: Floats, n_rows: float) -> float:
    scale = 1 / np.sqrt(penalty[np.isfinite(penalty)])
    determinant = np.linalg.slogdet(np.eye(len(scale)) + scale[:, None] * (n_rows * curvature) * scale)[1]
    return float(-n_rows * value - determinant / 2)


def _with_context(rows: SharedRows, free: Bools) -> SharedRows:
    """Return rows with the features of the free weights: all, or of the context only its constant."""
    return rows if free.all() else rows._replace(context=rows.context[:1])


def shared_penalties(rows: SharedRows) -> Floats:
    """Return every strength with every multiple for the context, (pairs, weights), on the scale of the features."""
    of_context = np.arange(len(rows.scale)) % len(rows.context) > 0
    return np.array(
        [strength * rows.scale * np.where(of_context, times, 1.0) for times in CONTEXT_TIMES for strength in STRENGTHS]
    )


def fit_shared(rows: SharedRows, weights: Floats, penalty: Floats, start: Floats) -> tuple[Floats, float, Floats]:
    """Minimise the mean log loss plus 1 / 2n times the penalised squares; a weight of infinite penalty stays 0.

    Return the weights, the minimum, and the curvature of the mean log loss there by the weights of finite penalty.
    """
    fractions, free = weights / weights.sum(), np.isfinite(penalty)
    rows = _with_context(rows, free)
    penalty = penalty[free] / counted_rows(weights)
    latest: dict[bytes, tuple[float, Floats, Floats]] = {}  # whoever needs a value needs the derivatives next

    def at(theta: Floats) -> tuple[float, Floats, Floats]:
        if theta.tobytes() not in latest:
            latest.clear()
            latest[theta.tobytes()] = _loss_and_derivatives(rows, fractions, theta)
        return latest[theta.tobytes()]

    def value(theta: Floats) -> float:
        return at(theta)[0] + float((penalty * theta**2).sum()) / 2

    def derivatives(theta: Floats) -> tuple[Floats, Floats]:
        _, gradient, curvature = at(theta)
        return gradient + penalty * theta, curvature + np.diag(penalty + 1e-12)

    tolerance = _TOLERANCE / counted_rows(weights)
    optimum = newton(value, derivatives, start[free], tolerance=tolerance, max_iterations=_MOST_STEPS)
    theta = np.zeros(len(free))
    theta[free] = optimum.point
    return theta, optimum.value, at(optimum.point)[2]


def _loss_and_derivatives(rows: SharedRows, fractions: Floats, theta: Floats) -> tuple[float, Floats, Floats]:
    """Return the mean log loss, its gradient, and its curvature: the mean covariance of an outcome's features."""
    n_shapes, n_outcomes, n_rows = rows.shapes.shape
    n_context = len(rows.context)
    weight, value = theta.reshape(n_shapes, n_context), 0.0
    # Covariances are symmetric: each pair is computed once.
    (first, second), (one, other) = np.triu_indices(n_shapes), np.triu_indices(n_context)
    gradient, curvature = np.zeros((n_shapes, n_context)), np.zeros((len(first), len(one)))
    for block in row_blocks(n_rows, n_shapes * n_outcomes):
        each, context, part = rows.shapes[:, :, block], rows.context[:, block], fractions[block]
        label = rows.labels[block], np.arange(len(part))
        sizes = weight @ context
        z = rows.logits[:, block] + sum(size * shape for size, shape in zip(sizes, each, strict=True))
        z -= z.max(axis=0)
        p = np.exp(z)
        total = p.sum(axis=0)
        value -= float(part @ (z[label] - np.log(total)))
        weighted = each * (p / total)
        mean = weighted.sum(axis=1)
        gradient += ((mean - each[:, *label]) * part) @ context.T
        covariance = -mean[first] * mean[second]
        for pair, (i, j) in enumerate(zip(first, second, strict=True)):
            covariance[pair] += np.einsum("sn,sn->n", weighted[i], each[j])
        curvature += covariance @ (context[one] * context[other] * part).T
    # From pairs of functions x pairs of context entries to features x features.
    full = np.empty((n_shapes, n_shapes, n_context, n_context))
    for a, b in ((first, second), (second, first)):
        for c, d in ((one, other), (other, one)):
            full[a[:, None], b[:, None], c, d] = curvature
    return value, gradient.ravel(), full.transpose(0, 2, 1, 3).reshape(theta.size, theta.size)


def shared_step(rows: SharedRows, theta: Floats, share: float = 1.0) -> Step:
    """Return the correction as a step of a map, mixed with no correction if its share is less than 1."""
    step = Shared(theta.reshape(N_SHAPES, N_CONTEXT), rows.centre, rows.spread, np.asarray(float(DEPTH)))
    return step if share > _ALL else Blend(np.asarray(share), Chain((step,)))
