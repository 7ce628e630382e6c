"""Rows that have a label or not -> a curve of the log-odds, whose prior is learned from all labels together.

With p the probability at a common temperature, u = log p - log(1 - p) and v = log p + log(1 - p), the log-odds become

    u + level + slope (u - mean u) + bend (v - mean v).

This is the family of beta calibration. Means count rows by p (1 - p), so that level and slope hardly depend on each
other. The coefficients of all labels come from one Gaussian distribution. Its mean follows by generalised least squares
and its precisions by the fixed point of `fitting/evidence.py`. A label with many rows follows its rows, and one with
few positive rows follows the other labels.
"""

import copy
from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Any, NamedTuple, Self

import numpy as np

from glayers.activations import as_one_logit, with_reference_class
from glayers.arrays import Floats, effective_rows
from glayers.calibrators.base import Calibrator, Fitted
from glayers.calibrators.one_versus_rest import LogLoss
from glayers.errors import GlayersError, shown
from glayers.fitting.evidence import USUAL
from glayers.fitting.folds import design_effect, row_weights
from glayers.fitting.temperature import fit_with_prior
from glayers.maps import Chain, OneVersusRest, Reference, Scale
from glayers.maps.tables import one_versus_rest
from glayers.predictions import Predictions

_USUAL = np.array([USUAL["shift"], USUAL["scale"], USUAL["scale"]])  # precisions of level, slope and bend
_PRECISION_OF_MEAN = 1.0  # of the mean of all labels around no change, which a few hundred rows outweigh
_SETTLED = 0.05  # change of the mean, and relative change of every precision, that ends the search
_MOST_ROUNDS = 50  # 5 to 20 are usual
_FARTHEST = 1e6  # log-odds in a fit: the squares of larger ones would overflow
_TOLERANCE = 1e-9  # nats over all rows that the last Newton step may promise
_HELD = 1e9  # precision of a coefficient that stays at its mean


class LabelPrior(NamedTuple):
    """The inverse temperature of all labels, and the distribution of their coefficients."""

    factor: float
    mean: Floats
    precisions: Floats


class LabelCurve(Calibrator):
    """Fit level, slope and bend of the log-odds of two classes, with a prior: the default of `MultiLabelCalibrator`.

    Fitted alone, it is beta calibration with a prior around temperature scaling. `MultiLabelCalibrator` learns the
    prior from all labels. The curve never decreases.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> z = rng.normal(size=(5000, 1)) * 2
    >>> labels = (rng.random(5000) < 1 / (1 + np.exp(-z[:, 0]))).astype(int)  # z is calibrated: 3 z is overconfident
    >>> LabelCurve().fit(3 * z, labels).predict_proba([[3.0]]).round(1).tolist()
    [[0.3, 0.7]]
    """

    _only_for_fits = ("prior",)
    _warns_if_loss_rises = False

    _: KW_ONLY
    prior: Any = None

    def _with_prior_of(self, labels: Sequence[Predictions]) -> Self:
        new = copy.copy(self)
        new.prior = learn_prior(labels)
        return new

    def _fit(self, given: Predictions) -> Fitted:
        if given.n_classes != 2:
            raise GlayersError(f"a label curve is about two classes, absent and present; got {given.n_classes}")
        prior = self.prior
        if not isinstance(prior, LabelPrior | None):
            raise GlayersError(f"prior must be None, or what MultiLabelCalibrator learns; got {shown(prior)}")
        if prior is None:
            factor = fit_with_prior(given.logits, given.labels, given.weights).factor
            prior = LabelPrior(factor, np.zeros(3), _USUAL)
        loss, means = _loss_of_label(given, prior.factor)
        for held in ([1.0, 1.0, 1.0], [1.0, 1.0, _HELD], [1.0, _HELD, _HELD]):
            found = loss._replace(mean=prior.mean, precisions=prior.precisions * held).fit(prior.mean, _TOLERANCE)
            level, slope, bend = found.point
            if 1 + slope >= abs(bend):  # otherwise the curve decreases somewhere
                break
        power = np.array([1 + slope - bend, 1 + slope + bend])
        shift = level - means @ [slope, bend]
        curve = OneVersusRest(power, power[::-1], np.array([-shift, shift]))
        chain = Chain((Reference(), Scale(np.asarray(prior.factor)), curve))
        return Fitted(chain, "label curve", found.converged, "converged", found.iterations, n_parameters=3)


def _loss_of_label(given: Predictions, factor: float) -> tuple[LogLoss, Floats]:
    """Return the log loss of the coefficients of one label under the usual prior, and the means of u and v."""
    single = as_one_logit(given.logits.astype(np.float64))[:, 0] * factor
    possible = np.isfinite(single)  # rows that cannot have the label, or must have it, say nothing
    single = np.where(possible, single, 0.0).clip(-_FARTHEST, _FARTHEST)
    log_p, log_rest = (each[:, 1] for each in one_versus_rest(with_reference_class(single[:, None])))
    present = given.labels.astype(np.float64)
    weights = row_weights(given) * possible
    if possible.any():
        weights = weights * effective_rows(weights) / weights.sum()
    curves = np.column_stack([log_p - log_rest, log_p + log_rest])
    means = np.average(curves, axis=0, weights=weights * np.exp(curves[:, 1]) + 1e-300)
    if given.groups is not None and np.ptp(np.unique(given.groups, return_inverse=True)[1]):
        # One group alone, such as one image, shows no dependence.
        weights = weights / design_effect(weights * (present - np.exp(log_p)), given.groups)
    features = np.column_stack([np.ones(len(present)), curves - means])
    return LogLoss(features, present, weights, _USUAL, offset=curves[:, 0]), means


def learn_prior(labels: Sequence[Predictions]) -> LabelPrior:
    """Return the median temperature of the labels, and the mean and the precisions of their coefficients.

    A label determines its coefficients up to the inverse of its curvature H. They scatter around the mean by this and
    by the prior's covariance S, so the mean counts them by (S + 1/H)^-1 = (1 + H S)^-1 H.
    """
    factors = [fit_with_prior(rows.logits, rows.labels, rows.weights).factor for rows in labels]
    factor = float(np.exp(np.median(np.log(factors))))  # one label with a sure and wrong row does not decide
    losses = [_loss_of_label(rows, factor)[0] for rows in labels]
    mean = np.zeros(3)
    precisions = _USUAL
    points = np.zeros((len(labels), 3))
    for _ in range(_MOST_ROUNDS):
        losses = [loss._replace(mean=mean, precisions=precisions) for loss in losses]
        points = np.array([loss.fit(start, _TOLERANCE).point for loss, start in zip(losses, points, strict=True)])
        penalised = np.array([loss.derivatives(point)[1] for loss, point in zip(losses, points, strict=True)])
        curvatures = penalised - np.diag(precisions)
        scatter = np.eye(3) + curvatures / precisions
        worth = np.linalg.solve(scatter, curvatures)
        # At the optimum of a label, its slope is -precisions (point - mean).
        alone = curvatures @ points[..., None] + (precisions * (points - mean))[..., None]
        pulls = np.linalg.solve(scatter, alone)[..., 0]
        before = mean, precisions
        mean = np.linalg.solve(worth.sum(axis=0) + _PRECISION_OF_MEAN * np.eye(3), pulls.sum(axis=0))
        unsure = np.linalg.inv(penalised).diagonal(axis1=1, axis2=2).sum(axis=0)
        determined = len(labels) - precisions * unsure
        precisions = (determined + 1) / (((points - mean) ** 2).sum(axis=0) + 1 / _USUAL)
        if np.abs([mean - before[0], np.log(precisions / before[1])]).max() < _SETTLED:
            break
    return LabelPrior(factor, mean, precisions)
