"""Predictions and the names of parts -> the fitted map, its out-of-fold predictions, and what the rows support.

Every penalised fit of the library comes through `fit_parts`: vector, matrix and Dirichlet scaling, the shared
correction, the corrections of groups, and the model of `auto`. They differ in their parts and in nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from glayers.activations import log_softmax
from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.fitting.curvature import SmoothLoss, smooth_loss
from glayers.fitting.evidence import Fit, find_precisions, fit_at, held_out_scores
from glayers.fitting.floor import fit_floor
from glayers.fitting.parts import Basis, Design, Inverse, basis_of, corrected_map, curvature_of, design_of
from glayers.maps import Chain, LogSoftmax, Reference, Scale
from glayers.predictions import Predictions

LOOSE = ("matrix", "confusion", "hinges")
_LOOSER = 0.1  # of the precisions of many coefficients, for a fit that the first one is averaged with
_CAUTION = 3.0  # nats that a looser fit must gain over all rows: with 100 rows, chance gains one or two
_HOPELESS = 1.0  # nats that a looser fit may lose in the first fold without being given up
_WIDER = 0.1  # of the precisions, for the posterior
_SAMPLE_ENTRIES = 250_000  # logits that show spreads and precisions; of more rows, every so many are read
_SAMPLE_ROWS, _SAMPLE_ROWS_PER_CLASS = 2_500, 5  # of which there are at least this many
_DRAWS = 200  # of the coefficients: the error of a standard deviation is then 5 %
_HINGE_CLASSES = 12  # with more classes, hinges have more coefficients than they gain
_MANY_CLASSES = 50  # from here on a matrix and probabilities say the same, and the matrix says it better
_MATRIX_WORK = 1.5e9  # rows x classes^2 of one product: above, a matrix takes longer than all other parts


@dataclass(frozen=True, eq=False)
class FittedParts:
    """A fitted model: its map from logits to log-probabilities, and what the fit found.

    `loosened` is the share of a fit with a tenth of the precisions of many coefficients.
    """

    map: Chain
    out_of_fold: Floats
    rows: Ints  # of the calibration rows: those of the design, in its order
    basis: Basis
    design: Design
    fit: Fit
    loosened: float

    @property
    def effective(self) -> dict[str, float]:
        """The effective number of coefficients of each part: how many the rows determine."""
        return self.fit.effective

    @property
    def n_parameters(self) -> int:
        """The number of coefficients."""
        return len(self.fit.state.point)

    def posterior(self) -> "Posterior":
        """Return the posterior of the coefficients, under a prior ten times as wide as the fitted one.

        Intervals under the fitted prior cover too little where it shrinks true effects; under this one they cover at
        least their level (`experiments/statistics/interval_coverage.py`).
        """
        design = self.design
        precisions = np.array([_WIDER * self.fit.precisions[name] for name in design.names])[design.owners]
        curvature = curvature_of(design, self.fit.state.probabilities, precisions)
        return Posterior(self.map, self.basis, self.fit.state.point, curvature.inverses)


@dataclass(frozen=True, eq=False)
class Posterior:
    """What a fit knows about its coefficients: the map, how features are standardised, means and covariances."""

    map: Chain
    basis: Basis
    point: Floats
    inverses: tuple[Inverse, ...]

    def log_odds_errors(self, logits: Array) -> Floats:
        """Return the standard deviation of the log-odds of each class, (n, classes), over draws of the coefficients."""
        *prefix, floor = self.map.steps
        found = []
        for rows in row_blocks(len(logits), 10 * logits.shape[1]):
            log_p = Chain(tuple(prefix))(logits[rows].astype(np.float64))
            raised, _ = floor.split(log_p)  # type: ignore[attr-defined]  # the last step is the floor
            found.append(self._errors(design_of(self.basis, log_softmax(raised), np.zeros(len(log_p), np.int64))))
        return np.concatenate(found)

    def _errors(self, design: Design) -> Floats:
        rng = np.random.default_rng(0)
        centre = _log_odds(design.base + design.scores(self.point))
        squares = np.zeros_like(centre)
        for _ in range(_DRAWS):
            noise = design.split(rng.standard_normal(len(self.point)))
            drawn = [inverse.draw(each).ravel() for inverse, each in zip(self.inverses, noise, strict=True)]
            moved = _log_odds(design.base + design.scores(self.point + np.concatenate(drawn)))
            squares += (moved - centre) ** 2
        return np.sqrt(squares / _DRAWS)


def _log_odds(scores: Array) -> Floats:
    log_p = log_softmax(scores.astype(np.float64))
    return np.asarray(log_p - np.log(-np.expm1(np.minimum(log_p, -1e-12))))


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
    inputs: str = "centred",
) -> FittedParts:
    """Fit the parts to rows behind an inverse temperature.

    With `precisions`, these stay as given. With a `basis`, features are standardised as it says. Without folds there
    are no out-of-fold predictions.
    """
    prefix = Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax()))
    log_p = prefix(given.logits.astype(np.float64))
    floor = fit_floor(log_p, 1.0, given.weights)
    raised, lowered = floor.split(log_p)
    weights = np.ones(len(given)) if given.weights is None else np.asarray(given.weights)
    # Samples read every so many rows: a random order makes any of them fair, and rows of weight 0 count in none.
    order = np.random.default_rng(0).permutation(np.flatnonzero(weights > 0))
    raised = log_softmax(raised[order])
    sample = _sample(*raised.shape)
    if basis is None:
        basis = basis_of(raised[sample], weights[order][sample], parts, inputs)
    masks = lowered[order] if lowered.any() else None
    design = design_of(basis, raised, given.labels[order], weights[order], masks)
    smooth = smooth_loss(loss)
    start = np.zeros(design.owners.size)
    given_precisions = precisions
    if precisions is None:
        precisions, start = find_precisions(design.take(sample))
    fit = fit_at(design, smooth, precisions, start)
    scores = design.base[:0]
    loosened = 0.0
    if folds is not None:
        scores = held_out_scores(design, smooth, fit, folds[order])
        if given_precisions is None and any(part in parts for part in LOOSE):
            fit, scores, loosened = _averaged(design, smooth, fit, scores, folds[order])
    chain = prefix + Chain((replace(floor, branch=Chain((corrected_map(basis, design, fit.state.point),))),))
    out_of_fold = np.zeros((0, 0))
    if folds is not None:
        out_of_fold = log_p
        if len(order) < len(given):  # no fit has seen the rows of weight 0
            out_of_fold = np.asarray(chain(given.logits.astype(np.float64)))
        out_of_fold[order] = log_softmax(scores.astype(np.float64))
    return FittedParts(chain, out_of_fold, order, basis, design, fit, loosened)


def _sample(n_rows: int, n_classes: int) -> slice:
    """Return every so many rows, enough to show spreads and precisions."""
    least = max(_SAMPLE_ROWS, _SAMPLE_ROWS_PER_CLASS * n_classes)
    return slice(None, None, max(1, min(n_rows * n_classes // _SAMPLE_ENTRIES, n_rows // least)))


def _averaged(design: Design, loss: SmoothLoss, tight: Fit, scores: Array, folds: Ints) -> tuple[Fit, Array, float]:
    """Average the coefficients with those of a looser fit, with the share of least held-out loss.

    One precision for thousands of coefficients, of which few matter, is too tight for those few.
    """
    precisions = {name: value * (_LOOSER if name in LOOSE else 1.0) for name, value in tight.precisions.items()}
    first = folds == 0
    trial = held_out_scores(design, loss, tight._replace(precisions=precisions), np.where(first, 0, -1))
    labels = design.labels[first]
    change = loss.rows(trial[first], labels) - loss.rows(scores[first], labels)
    if float(design.weights[first] @ change) > _HOPELESS:
        return tight, scores, 0.0
    loose = fit_at(design, loss, precisions, tight.state.point)
    others = held_out_scores(design, loss, loose, folds)
    difference = np.subtract(others, scores, out=np.zeros_like(scores), where=scores > -np.inf)
    shares = np.linspace(0, 1, 21)
    losses = [float(design.weights @ loss.rows(scores + share * difference, design.labels)) for share in shares]
    share = float(shares[np.argmin(losses + _CAUTION * shares)])
    point = (1 - share) * tight.state.point + share * loose.state.point
    effective = {name: (1 - share) * value + share * loose.effective[name] for name, value in tight.effective.items()}
    averaged = tight._replace(state=tight.state._replace(point=point), effective=effective)
    return averaged, scores + share * difference, share
