"""Logits and labels -> a logistic curve for each class against the rest: Platt's and the beta family.

Both are tiny convex problems, solved exactly by Newton's method; neither needs torch.
"""

import time
from abc import abstractmethod
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from glayers.activations import with_reference_class
from glayers.arrays import Floats, Ints
from glayers.calibrators.base import Calibrator, apply_map
from glayers.fitting.diagnostics import Diagnostics, label_facts
from glayers.maps import Chain, Reference
from glayers.maps.tables import OneVersusRest, one_versus_rest
from glayers.metrics.old import nll_from_logits
from glayers.predictions import Predictions

_MOST_STEPS = 100
_DECREMENT = 1e-22  # Newton's estimate of what is left to gain: below it, coefficients are exact to about 1e-11


class Solved(NamedTuple):
    """A map found without descent, and how."""

    chain: Chain
    iterations: int = 1
    converged: bool = True
    reason: str = "solved exactly"


class DirectCalibrator(Calibrator):
    """A calibrator that counts or solves instead of descending; a subclass writes `_solve`."""

    def _fit(self, given: Predictions) -> None:
        began = time.perf_counter()
        solved = self._solve(given)
        self.map_ = solved.chain
        before, after = (
            nll_from_logits(logits, given.labels, given.weights)
            for logits in (given.logits, apply_map(self.map_, given.logits))
        )
        self.diagnostics_ = Diagnostics(
            method=type(self).__name__,
            converged=solved.converged,
            reason=solved.reason,
            iterations=solved.iterations,
            loss_before=before,
            loss_after=after,
            moved=after != before,
            n_parameters=solved.chain.n_parameters,
            seconds=time.perf_counter() - began,
            **label_facts(given),
        )

    @abstractmethod
    def _solve(self, given: Predictions) -> Solved:
        """Find the map."""


class PlattScaling(DirectCalibrator):
    """sigmoid(a s + b) of each class's log-odds s against the rest, made to sum to 1. Platt, 1999.

    For two classes s is the difference of the logits, and this is Platt's method exactly, with his targets:
    (N + 1) / (N + 2) for the N rows of a class and 1 / (M + 2) for the M others. So a class without rows gets a
    probability of about 1 / (M + 2) before rows are made to sum to 1, and separable rows a finite slope. Weights count
    rows here: halving all of them doubles the part of the prior.

    Cannot: bend the log-odds, or keep the predicted class (shifts move it; with three classes or more, slopes too).

    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 1)) * 2
    >>> labels = (rng.random(20_000) < expit(z[:, 0] - 1)).astype(int)  # z is calibrated but for a shift
    >>> PlattScaling().fit(z, labels).map_.parameters()["1.shift"].round(1).tolist()
    [1.0, -1.0]
    """

    def _solve(self, given: Predictions) -> Solved:
        log_p, log_rest, labels, weights = _rows(given)
        fits = [
            fit_logistic((log_p - log_rest)[:, [c]], platt_targets(labels == c, weights), weights)
            for c in range(given.n_classes)
        ]
        slope, shift = np.stack([fit.coefficients for fit in fits]).T
        return _solved(OneVersusRest(slope, slope.copy(), shift), fits)


class BetaCalibration(DirectCalibrator):
    """sigmoid(a log p - b log(1 - p) + c), a and b not negative, of each class, made to sum to 1. Kull et al., 2017.

    The identity is a member (a = b = 1, c = 0), and the curve may bend one end only. Targets are smoothed as Platt's,
    which the paper does not do: a class without rows M keeps about 1 / (M + 2), and every fit is finite.

    Cannot: keep the predicted class, or bend the curve more than twice.

    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(20_000, 3)) * 2
    >>> labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    >>> BetaCalibration().fit(z, labels).map_.parameters()["1.power"].round(1).tolist()
    [1.0, 1.0, 1.0]
    """

    def _solve(self, given: Predictions) -> Solved:
        log_p, log_rest, labels, weights = _rows(given)
        fits = [
            _fit_not_negative(
                np.stack([log_p[:, c], -log_rest[:, c]], axis=1), platt_targets(labels == c, weights), weights
            )
            for c in range(given.n_classes)
        ]
        power, rest_power, shift = np.stack([fit.coefficients for fit in fits]).T
        return _solved(OneVersusRest(power, rest_power, shift), fits)


class LogisticFit(NamedTuple):
    """Slopes and, last, the shift; the mean loss there; how long it took, and whether it came to an end."""

    coefficients: Floats
    loss: float
    steps: int
    converged: bool


def platt_targets(hits: np.ndarray, weights: Floats) -> Floats:
    """Return what Platt expects of a hit and of a miss: a step short of certain, the more rows the smaller.

    >>> platt_targets(np.array([True, True, False]), np.ones(3)).round(2).tolist()
    [0.75, 0.75, 0.33]
    """
    n_hits, n_misses = weights[hits].sum(), weights[~hits].sum()
    return np.where(hits, (n_hits + 1) / (n_hits + 2), 1 / (n_misses + 2))


def fit_logistic(features: Floats, targets: Floats, weights: Floats) -> LogisticFit:
    """Minimise the weighted log loss of sigmoid(features @ slopes + shift) against targets within (0, 1)."""
    shares = weights / weights.sum()
    mean = shares @ features
    spread = np.sqrt(shares @ (features - mean) ** 2)
    spread[spread == 0] = 1.0  # a feature that never changes tells nothing, and its slope stays 0
    x = np.column_stack([(features - mean) / spread, np.ones(len(features))])
    base = float(shares @ targets)
    point = np.append(np.zeros(features.shape[1]), np.log(base / (1 - base)))
    loss, step, converged = _loss(x @ point, targets, shares), 0, False
    while step < _MOST_STEPS and not converged:
        step += 1
        p = expit(x @ point)
        gradient = (shares * (p - targets)) @ x
        # The ridge moves no minimum: it only keeps the step finite where features repeat each other.
        curvature = (x.T * (shares * p * (1 - p))) @ x + 1e-14 * np.eye(len(point))
        direction = -np.linalg.solve(curvature, gradient)
        length = 1.0
        # Near the minimum losses differ by rounding only, and the full step is right.
        while length > 1e-8 and _loss(x @ (point + length * direction), targets, shares) > loss + 1e-13:
            length /= 2
        converged = bool(-gradient @ direction < _DECREMENT or length <= 1e-8)
        if length > 1e-8:
            point = point + length * direction
            loss = _loss(x @ point, targets, shares)
    slopes = point[:-1] / spread
    return LogisticFit(np.append(slopes, point[-1] - slopes @ mean), loss, step, converged)


def _fit_not_negative(features: Floats, targets: Floats, weights: Floats) -> LogisticFit:
    """Fit two slopes that may not be negative: where the free optimum has one, the best lies on an edge."""
    free = fit_logistic(features, targets, weights)
    if (free.coefficients[:-1] >= 0).all():
        return free
    return min((_fit_edge(features, targets, weights, keep) for keep in (0, 1)), key=lambda fit: fit.loss)


def _fit_edge(features: Floats, targets: Floats, weights: Floats, keep: int) -> LogisticFit:
    """Fit one slope with the other at 0, or neither where that one is negative too."""
    fit = fit_logistic(features[:, [keep]], targets, weights)
    if fit.coefficients[0] < 0:
        fit = fit_logistic(np.zeros((len(features), 1)), targets, weights)
    coefficients = np.zeros(3)
    coefficients[[keep, 2]] = fit.coefficients
    return fit._replace(coefficients=coefficients)


def _loss(scores: Floats, targets: Floats, shares: Floats) -> float:
    return float(shares @ (np.logaddexp(0.0, scores) - targets * scores))


def _rows(given: Predictions) -> tuple[Floats, Floats, Ints, Floats]:
    """Return log p, log(1 - p), labels and weights of the rows that count."""
    weights = np.ones(len(given)) if given.weights is None else given.weights
    counted = weights > 0
    logits = with_reference_class(given.logits[counted].astype(np.float64))
    return *one_versus_rest(logits), given.labels[counted], weights[counted]


def _solved(step: OneVersusRest, fits: list[LogisticFit]) -> Solved:
    failed = [c for c, fit in enumerate(fits) if not fit.converged]
    return Solved(
        Chain((Reference(), step)),
        iterations=max(fit.steps for fit in fits),
        converged=not failed,
        reason=f"Newton did not end for classes {failed[:5]}" if failed else "converged",
    )
