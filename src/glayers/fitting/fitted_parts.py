"""Predictions and the names of parts -> the fitted map, its out-of-fold predictions, and what the rows support.

Every penalised fit of the library comes through `fit_parts`: vector, matrix and Dirichlet scaling, the shared
correction, the corrections of groups, and the model of `auto`. They differ in their parts and in nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from glayers.activations import log_softmax
from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.evidence import Fit, Model, held_out_scores
from glayers.fitting.floor import fit_floor
from glayers.fitting.parts import Basis, Design, Inverse, basis_of, corrected_map, curvature_of, design_of
from glayers.maps import Chain, LogSoftmax, Reference, Scale
from glayers.maps.corrections import N_CONTEXT, N_SHAPES
from glayers.predictions import Predictions

LOOSE = ("matrix", "confusion", "hinges")
_LOOSER = 0.1  # precisions that find no peak are averaged with a tenth of them
_WIDER = 0.1  # of the precisions, for the posterior
_ALMOST_SURE = 1e-9  # the least probability of an error that log-odds are computed for
_CAUTION = 3.0  # nats that a looser fit must gain over all rows: with 100 rows, chance gains one or two
_HOPELESS = 1.0  # nats that a looser fit may lose in the first fold without being given up
_HINGE_CLASSES = 12  # with more classes, hinges have more coefficients than they gain
_MANY_CLASSES = 50  # from here on a matrix and probabilities say the same, and the matrix says it better
_MATRIX_WORK = 1.5e9  # rows x classes^2 of one product: above, a matrix takes longer than all other parts


@dataclass(frozen=True, eq=False)
class FittedParts:
    """A fitted model: its map from logits to log-probabilities, and what the fit found.

    `effective` counts the coefficients of each part that the rows determine, and `loosened` is the weight of the fit
    with a tenth of the precisions.
    """

    map: Chain
    out_of_fold: Floats
    rows: Ints  # of the calibration rows: those of the design, in its order
    design: Design
    fit: Fit
    loosened: float
    n_parameters: int

    @property
    def effective(self) -> dict[str, float]:
        """The effective number of coefficients of each part."""
        return self.fit.effective

    def posterior(self) -> "Posterior":
        """Return the posterior of the coefficients, under a prior ten times as wide as the fitted one.

        Intervals under the fitted prior cover too little where it shrinks true effects; under this one they cover at
        least their level (`experiments/statistics/interval_coverage.py`).
        """
        design = self.design
        precisions = np.array([_WIDER * self.fit.precisions[name] for name in design.names])[design.owners]
        curvature = curvature_of(design, self.fit.state.probabilities, precisions)
        return Posterior(self.map, design.basis, self.fit.state.point, curvature.inverses)


@dataclass(frozen=True, eq=False)
class Posterior:
    """What a fit knows about its coefficients: the map, how features are standardised, means and covariances."""

    map: Chain
    basis: Basis
    point: Floats
    inverses: tuple[Inverse, ...]

    def log_odds_errors(self, logits: Array) -> Floats:
        """Return the standard deviation of the log-odds of each class, (n, classes), by the delta method.

        A coefficient moves a log-probability by its feature less the feature that the probabilities expect. Rows are
        read in blocks, because each has classes x classes such differences.
        """
        n_classes = self.basis.n_classes
        found = np.empty((len(logits), n_classes))
        for rows in row_blocks(len(logits), n_classes * max(n_classes, N_SHAPES * N_CONTEXT)):
            found[rows] = self._errors(logits[rows])
        return found

    def _errors(self, logits: Array) -> Floats:
        *prefix, floor = self.map.steps
        log_p = Chain(tuple(prefix))(logits.astype(np.float64))
        raised, _ = floor.split(log_p)  # type: ignore[attr-defined]  # the last step is the floor
        design = design_of(self.basis, np.asarray(log_softmax(raised)), np.zeros(len(logits), np.int64))
        p = np.exp(log_softmax(np.asarray(design.base + design.scores(self.point), np.float64)))
        of_parts = zip(design.parts, self.inverses, strict=True)
        variances = sum(inverse.score_variances(part, p) for part, inverse in of_parts)
        return np.sqrt(np.maximum(variances, 0.0)) / np.maximum(1 - p, _ALMOST_SURE)


def model_parts(n_rows: int, n_classes: int) -> tuple[str, ...]:
    """Return the parts of the full model that rows and classes allow.

    >>> model_parts(5_000, 10)
    ('shared', 'scale', 'shift', 'matrix', 'confusion', 'hinges')
    >>> model_parts(5_000, 100), model_parts(25_000, 1_000)
    (('shared', 'scale', 'shift', 'matrix'), ('shared', 'scale', 'shift', 'confusion'))
    """
    common = ("shared", "scale", "shift")
    if n_classes <= _HINGE_CLASSES:
        return (*common, "matrix", "confusion", "hinges")
    if n_classes < _MANY_CLASSES:
        return (*common, "matrix", "confusion")
    if n_rows * n_classes**2 <= _MATRIX_WORK:
        return (*common, "matrix")
    return (*common, "confusion")


def fit_parts(
    given: Predictions,
    factor: float,
    parts: Sequence[str],
    folds: Ints | None,
    *,
    loss: str = "log",
    precisions: Mapping[str, float] | None = None,
    basis: Basis | None = None,
    means: Floats | None = None,
    inputs: str = "centred",
) -> FittedParts:
    """Fit the parts to rows behind an inverse temperature.

    With `precisions`, these stay as given. With a `basis`, features are standardised as it says. `means` are the prior
    means of the coefficients, 0 by default. Without folds there are no out-of-fold predictions.
    """
    prefix = Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax()))
    log_p = prefix(given.logits.astype(np.float64))
    floor = fit_floor(log_p, 1.0, given.weights)
    raised, lowered = floor.split(log_p)
    raised = log_softmax(raised)
    weights = np.ones(len(given)) if given.weights is None else np.asarray(given.weights)
    # Samples read every so many rows: a random order makes any of them fair, and rows of weight 0 count in none.
    order = np.random.default_rng(0).permutation(np.flatnonzero(weights > 0))
    if basis is None:
        basis = basis_of(raised[order], weights[order], parts, inputs)
    masks = lowered[order] if lowered.any() else None
    design = design_of(basis, raised[order], given.labels[order], weights[order], masks)
    if means is None:
        means = np.zeros(design.owners.size)
    model = Model(design, smooth_loss(loss), means)
    fit = model.fit() if precisions is None else model.at(precisions, means)
    held_out = np.zeros((0, 0))
    loosened = 0.0
    if folds is not None:
        held_out = held_out_scores(model, fit, folds[order]).astype(np.float64)
        if precisions is None and any(part in parts for part in LOOSE):
            fit, held_out, loosened = _loosened(model, fit, held_out, folds[order])
    chain = prefix + Chain((replace(floor, branch=Chain((corrected_map(design, fit.state.point),))),))
    out_of_fold = held_out
    if folds is not None:
        # No fit has seen the rows of weight 0.
        out_of_fold = np.asarray(chain(given.logits.astype(np.float64))) if len(order) < len(given) else log_p.copy()
        out_of_fold[order] = log_softmax(held_out)
    return FittedParts(chain, out_of_fold, order, design, fit, loosened, len(fit.state.point))


def _loosened(model: Model, tight: Fit, scores: Floats, folds: Ints) -> tuple[Fit, Floats, float]:
    """Average the coefficients with those of a looser fit, with the weight of least held-out loss.

    Where the evidence for the precision of thousands of coefficients has no peak, the fixed point ends too tight.
    """
    from scipy.optimize import minimize_scalar  # on first use: importing it takes longer than glayers

    precisions = {name: value * (_LOOSER if name in LOOSE else 1.0) for name, value in tight.precisions.items()}
    labels, weights = model.design.labels, model.design.weights
    first = folds == 0
    trial = held_out_scores(model, tight._replace(precisions=precisions), np.where(first, 0, -1))
    change = model.loss.rows(trial[first], labels[first]) - model.loss.rows(scores[first], labels[first])
    if float(weights[first] @ change) > _HOPELESS:
        return tight, scores, 0.0
    loose = model.at(precisions, tight.state.point)
    other = held_out_scores(model, loose, folds).astype(np.float64)

    def held_out_loss(share: float) -> float:
        loss = model.loss.rows((1 - share) * scores + share * other, labels)
        return float(weights @ loss) + _CAUTION * share

    share = float(minimize_scalar(held_out_loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 0.02}).x)
    if held_out_loss(share) >= held_out_loss(0.0):
        return tight, scores, 0.0
    point = (1 - share) * tight.state.point + share * loose.state.point
    effective = {name: (1 - share) * value + share * loose.effective[name] for name, value in tight.effective.items()}
    curvature = loose.curvature if share > 0.5 else tight.curvature
    averaged = tight._replace(state=tight.state._replace(point=point), effective=effective, curvature=curvature)
    return averaged, (1 - share) * scores + share * other, share
