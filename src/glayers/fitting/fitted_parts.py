"""Predictions and the names of parts -> the fitted map, its out-of-fold predictions, and what the rows support.

Every penalised fit of the library comes through here: vector, matrix and Dirichlet scaling, the shared correction, the
corrections of groups, and both models of `auto`. They differ in their parts and in nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from glayers.activations import log_softmax
from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.fitting.curvature import smooth_loss
from glayers.fitting.evidence import USUAL, Fit, find_precisions, fit_at, held_out_scores
from glayers.fitting.floor import fit_floor
from glayers.fitting.parts import Basis, Design, Inverse, basis_of, corrected_map, curvature_of, design_of
from glayers.maps import Chain, Floor, LogSoftmax, Reference, Scale
from glayers.predictions import Predictions

SMALL_MODEL = ("shared", "context", "scale", "shift")
# One precision for thousands of coefficients, of which few matter, is too tight for those few.
LOOSER = 0.1
_SAMPLE_ENTRIES = 250_000  # logits that show spreads and precisions; of more rows, every so many are read
_SAMPLE_ROWS, _SAMPLE_ROWS_PER_CLASS = 2_500, 5  # of which there are at least this many
_DRAWS = 200  # of the coefficients: the error of a standard deviation is then 5 %
_HINGE_CLASSES = 12  # with more classes, hinges have more coefficients than they gain
_MANY_CLASSES = 50  # from here on a matrix and probabilities say the same, and the matrix says it better
_MATRIX_WORK = 1.5e9  # rows x classes^2 of one product: above, a matrix takes longer than all other parts


def large_model(n_rows: int, n_classes: int) -> tuple[str, ...]:
    """Return the parts of the large model that rows and classes allow.

    >>> large_model(5_000, 10)[4:]
    ('matrix', 'confusion', 'hinges')
    >>> large_model(5_000, 100)[4:], large_model(25_000, 1_000)[4:]
    (('matrix',), ('confusion',))
    """
    if n_classes <= _HINGE_CLASSES:
        return (*SMALL_MODEL, "matrix", "confusion", "hinges")
    if n_classes < _MANY_CLASSES:
        return (*SMALL_MODEL, "matrix", "confusion")
    if n_rows * n_classes**2 <= _MATRIX_WORK:
        return (*SMALL_MODEL, "matrix")
    return (*SMALL_MODEL, "confusion")


@dataclass(frozen=True, eq=False)
class FittedParts:
    """A fitted model: its map from logits to log-probabilities, and what the fit found.

    `evidence` are the precisions that the rows support; those of the fit are lower if it was loosened.
    """

    map: Chain
    out_of_fold: Floats
    basis: Basis
    design: Design
    fit: Fit
    evidence: Mapping[str, float]

    @property
    def n_parameters(self) -> int:
        """The number of coefficients."""
        return len(self.fit.state.point)

    def posterior(self) -> "Posterior":
        """Return the posterior of the coefficients, under a prior ten times as wide as the rows support.

        Intervals under the narrower prior cover too little where it shrinks true effects; under this one they cover at
        least their level (`experiments/statistics/interval_coverage.py`).
        """
        design = self.design
        precisions = np.array([LOOSER * self.evidence[name] for name in design.names])[design.owners]
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


@dataclass(frozen=True, eq=False)
class PreparedRows:
    """Rows behind an inverse temperature with the features of all parts, made once for several fits.

    The design has the rows of positive weight in the random `order`: every so many of them are a fair sample.
    """

    given: Predictions
    prefix: Chain
    floor: Floor
    basis: Basis
    design: Design
    order: Ints

    @classmethod
    def of(
        cls,
        given: Predictions,
        factor: float,
        parts: Sequence[str],
        *,
        basis: Basis | None = None,
        inputs: str = "centred",
    ) -> "PreparedRows":
        """Compute features; with a `basis`, they are standardised as it says."""
        prefix = Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax()))
        log_p = prefix(given.logits.astype(np.float64))
        floor = fit_floor(log_p, 1.0, given.weights)
        weights = np.ones(len(given)) if given.weights is None else np.asarray(given.weights)
        order = np.random.default_rng(0).permutation(np.flatnonzero(weights > 0))
        weights = weights[order]
        raised, lowered = floor.split(log_p[order])
        raised = log_softmax(raised)
        if basis is None:
            sample = _sample(*raised.shape)
            basis = basis_of(raised[sample], weights[sample], parts, inputs)
        masks = lowered if lowered.any() else None
        return cls(given, prefix, floor, basis, design_of(basis, raised, given.labels[order], weights, masks), order)

    def fit(
        self,
        parts: Sequence[str],
        folds: Ints | None,
        *,
        loss: str = "log",
        precisions: Mapping[str, float] | None = None,
        looser: float = 1.0,
        usual: Mapping[str, float] = USUAL,
        smaller: FittedParts | None = None,
    ) -> FittedParts:
        """Fit some of the parts; without folds there are no out-of-fold predictions.

        `precisions` stay as given; otherwise the rows determine them, around the `usual` ones. The factor `looser` is
        for the parts with one coefficient per pair of classes. A `smaller` model, of the first parts, is the start.
        """
        design = self.design.only(parts)
        smooth = smooth_loss(loss)
        start = np.zeros(design.owners.size)
        if precisions is None:
            known = dict(usual)
            if smaller is not None:
                known |= smaller.evidence
                start[: smaller.n_parameters] = smaller.fit.state.point
            precisions, start = find_precisions(design.take(_sample(*design.base.shape)), usual, known, start)
        loosened = {
            name: value * (looser if name in self.basis.by_feature else 1.0) for name, value in precisions.items()
        }
        fit = fit_at(design, smooth, loosened, start)
        branch = Chain((corrected_map(self.basis, design, fit.state.point),))
        chain = self.prefix + Chain((replace(self.floor, branch=branch),))
        out_of_fold = np.zeros((0, 0))
        if folds is not None:
            out_of_fold = np.empty((len(self.given), design.base.shape[1]))
            if len(self.order) < len(self.given):  # no fit has seen the rows of weight 0
                out_of_fold = np.asarray(chain(self.given.logits.astype(np.float64)))
            scores = held_out_scores(design, smooth, fit, folds[self.order])
            out_of_fold[self.order] = log_softmax(scores.astype(np.float64))
        return FittedParts(chain, out_of_fold, self.basis, design, fit, precisions)


def fit_parts(
    given: Predictions,
    factor: float,
    parts: Sequence[str],
    folds: Ints | None,
    *,
    loss: str = "log",
    precisions: Mapping[str, float] | None = None,
    usual: Mapping[str, float] = USUAL,
    basis: Basis | None = None,
    inputs: str = "centred",
) -> FittedParts:
    """Fit the parts to rows behind an inverse temperature; the settings are those of `PreparedRows`."""
    rows = PreparedRows.of(given, factor, parts, basis=basis, inputs=inputs)
    return rows.fit(parts, folds, loss=loss, precisions=precisions, usual=usual)


def _sample(n_rows: int, n_classes: int) -> slice:
    """Return every so many rows, enough to show spreads and precisions."""
    least = max(_SAMPLE_ROWS, _SAMPLE_ROWS_PER_CLASS * n_classes)
    return slice(None, None, max(1, min(n_rows * n_classes // _SAMPLE_ENTRIES, n_rows // least)))
