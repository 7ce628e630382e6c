"""Predictions and the names of parts -> coefficients whose strengths the rows determine, and the map they make.

Every penalised fit of the library comes through `fit_parts`: vector, matrix and Dirichlet scaling, the shared
correction, the corrections of groups, and the model of `auto`. They differ in their parts and in nothing else.

Each part has a Gaussian prior around zero whose precision is learned by MacKay's fixed point ("Bayesian interpolation",
1992):

    precision = (g + h) / (|w|^2 + h / usual)

w are the coefficients of the part, and g counts those that the rows determine. The hyperprior is worth h coefficients
at the usual precision. h is 1, or a tenth of the coefficients of parts with one per pair of classes: the evidence for
thousands of coefficients has no clear peak. A part that the rows do not support stays near zero. Held-out predictions
then multiply three kinds of coefficients by one factor each: those of confidence, of single classes, and of pairs.

Newton's method with conjugate gradients needs only products with features (`parts.py`), never a matrix of
coefficients x coefficients.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from glayers.activations import log_softmax, with_reference_class
from glayers.arrays import Array, Bools, Floats, Ints, in_row_blocks
from glayers.fitting.curvature import SmoothLoss, smooth_loss
from glayers.fitting.floor import floor_of
from glayers.fitting.folds import design_effect, draw_rows, row_weights
from glayers.fitting.parts import (
    CLASSES,
    DOUBLE_ENTRIES,
    PAIRS,
    SHARED,
    Curvature,
    Design,
    basis_of,
    corrected_map,
    curvature_of,
    design_of,
    plain_basis,
)
from glayers.fitting.posterior import Posterior
from glayers.maps import Chain, Floor, LogSoftmax, Reference, Scale
from glayers.predictions import Predictions

# Usual precisions, chosen on halves of calibration rows (docs/design/0016-evidence.md). Factors of two or three change
# the mean held-out loss by less than 0.0005.
USUAL: Mapping[str, float] = {
    "shared": 10.0,
    "context": 200.0,
    "scale": 150.0,
    "shift": 30.0,
    "matrix": 200.0,
    "hinges": 1000.0,
    "factor": 4.0,  # around 1; with 0 to 64, the mean held-out loss of 13 sets changes by 0.0005
}
SMALL_MODEL = (*SHARED, *CLASSES)
# Rows per class from which pairs of classes are corrected: with 2.5 rows per class the loss of 100 and 200 classes
# rises by 0.002 to 0.014, with 5 and 10 it falls by 0.001 to 0.010.
_ROWS_PER_CLASS = 5
_HINGE_CLASSES = 12  # with more classes, hinges have more coefficients than they gain
_MATRIX_WORK = 1.5e9  # rows x classes^2 of one product: above, a matrix takes longer than all other parts
_SAMPLE_ENTRIES = 250_000  # logits that show spreads and precisions; of more rows, every so many are read
_WORTH_OF_PAIRS = 0.1  # of their coefficients: from 0.03 to 0.3, the mean held-out loss of 13 sets is the same
KINDS = (SHARED, CLASSES, PAIRS)  # of coefficients that held-out rows multiply by one factor
# From here on one fold changes a fit so little that one Newton step follows it, and the precisions of so many rows are
# near those of all.
_MANY_ROWS = 2_500
# The search for precisions ends when all change by less than this part. With 0.1, and 100 rows of 200 classes, it stops
# up to five times above the fixed point, and the loss rises by 0.04.
_SETTLED = 0.03
_MOST_RATIO = 0.75  # of two steps of that search; without this limit, one step may pass over the fixed point
_TOLERANCE = 1e-3  # nats over all rows that the last Newton step may promise


def full_model(n_rows: int, n_classes: int) -> tuple[str, ...]:
    """Return the parts that so many rows and classes allow.

    >>> full_model(5_000, 10)[4:], full_model(5_000, 100)[4:], full_model(25_000, 1_000)[4:]
    (('matrix', 'hinges'), ('matrix',), ())
    """
    names = list(SMALL_MODEL)
    if n_rows < _ROWS_PER_CLASS * n_classes:
        return SMALL_MODEL
    if n_rows * n_classes**2 <= _MATRIX_WORK:
        names.append("matrix")
    if n_classes <= _HINGE_CLASSES:
        names.append("hinges")
    return tuple(names)


class State(NamedTuple):
    """Coefficients, the loss of all rows there (without the penalty), and the probabilities."""

    point: Floats
    loss: float
    probabilities: Array


class PenalisedLoss(NamedTuple):
    """The loss of rows, and the precision of each coefficient."""

    design: Design
    loss: SmoothLoss
    precisions: Floats

    def at(self, point: Floats) -> State:
        """Return the loss and the probabilities at some coefficients."""
        probabilities = np.empty_like(self.design.base)
        total = 0.0
        for rows, block in self.design.blocks:
            losses, probabilities[rows] = self.loss.both(block.base + block.scores(point), block.labels)
            total += float(block.weights @ losses)
        return State(point, total, probabilities)

    def minimise(
        self, state: State, curvature: Curvature, most_steps: int = 30, enough: float = 0.03
    ) -> tuple[State, int, bool]:
        """Take Newton steps until one promises less than the tolerance; return the state, the steps, whether it did.

        Conjugate gradients end when the residual has fallen to the fraction `enough`.
        """
        for step in range(1, most_steps + 1):
            direction, promised = self.newton_step(state, curvature, enough)
            state, lower = self._lowered(state, direction)
            if promised < _TOLERANCE or not lower:  # a step that lowers nothing promised no more than rounding
                return state, step, promised < max(_TOLERANCE, 1e-4 * abs(self._objective(state)))
        return state, most_steps, False

    def newton_step(self, state: State, curvature: Curvature, enough: float) -> tuple[Floats, float]:
        """Return the change of the coefficients, and twice the fall of the objective that it promises."""
        slope = self.precisions * state.point
        for rows, block in self.design.blocks:
            slope = slope + block.slopes(self.loss.slope(state.probabilities[rows], block.labels))
        direction = _conjugate_gradients(self._curved(state), slope, curvature.times, enough)
        return direction, -float(slope @ direction)

    def _objective(self, state: State) -> float:
        return state.loss + float(self.precisions @ state.point**2) / 2

    def _curved(self, state: State) -> Callable[[Floats], Floats]:
        """Return the function that multiplies a direction by the curvature."""

        def curved(direction: Floats) -> Floats:
            result = self.precisions * direction
            for rows, block in self.design.blocks:
                result = result + block.slopes(self.loss.curve(state.probabilities[rows], block.scores(direction)))
            return result

        return curved

    def _lowered(self, state: State, direction: Floats) -> tuple[State, bool]:
        """Halve the step until the objective falls, up to rounding; return the state, and whether it ever does."""
        value = self._objective(state)
        length = 1.0
        while length > 1e-3:
            reached = self.at(state.point + length * direction)
            if self._objective(reached) <= value + np.finfo(np.float32).eps * abs(value):
                return reached, True
            length /= 2
        return state, False


def _conjugate_gradients(
    curved: Callable[[Floats], Floats], slope: Floats, precondition: Callable[[Floats], Floats], enough: float
) -> Floats:
    """Solve curvature @ step = -slope until the preconditioned residual falls to this fraction."""
    step = np.zeros_like(slope)
    residual = -slope
    towards = step
    before = math.inf
    target = 0.0
    for _ in range(60):
        ready = precondition(residual)
        size = float(residual @ ready)
        target = target or max(enough**2 * size, 1e-3 * _TOLERANCE)
        if not size > target:
            break
        towards = ready + (size / before) * towards
        before = size
        bent = curved(towards)
        length = size / float(towards @ bent)
        step = step + length * towards
        residual = residual - length * bent
    return step


def of_each(design: Design, precisions: Mapping[str, float]) -> Floats:
    """Return the precision of every coefficient."""
    return np.array([precisions[name] for name in design.names])[design.owners]


def _worth_of_usual(design: Design) -> Floats:
    """Return how many coefficients of each part the usual precision is worth."""
    return np.maximum(np.isin(design.names, PAIRS) * np.bincount(design.owners) * _WORTH_OF_PAIRS, 1.0)


def find_precisions(design: Design, precisions: Floats, point: Floats, most_rounds: int) -> tuple[Floats, Floats]:
    """Return the precision of each part by MacKay's fixed point, and the coefficients.

    Each round takes one Newton step on the log loss.
    """
    owners = design.owners
    usual = np.array([USUAL[name] for name in design.names])
    worth = _worth_of_usual(design)
    loss = smooth_loss("log")
    state = PenalisedLoss(design, loss, precisions[owners]).at(point)
    for _ in range(most_rounds):
        problem = PenalisedLoss(design, loss, precisions[owners])
        curvature = curvature_of(design, state.probabilities).inverse(problem.precisions)
        state, _, _ = problem.minimise(state, curvature, most_steps=1, enough=0.1)
        kept = problem.precisions * curvature.variances()  # the share of each coefficient that the prior determines
        squares = state.point**2
        above = np.bincount(owners, 1 - kept) + worth
        below = np.bincount(owners, squares) + worth / usual
        # Near the fixed point, each step would be this multiple of the one before: go where they would end.
        ratio = 2 * np.bincount(owners, squares * kept) / below - np.bincount(owners, kept * (1 - kept)) / above
        step = np.log(above / below / precisions) / (1 - ratio.clip(0.0, _MOST_RATIO))
        precisions = precisions * np.exp(step)
        if np.abs(step).max() < _SETTLED:
            break
    return precisions, state.point


def held_out_scores(
    problem: PenalisedLoss, state: State, curvature: Curvature, folds: Ints, kinds: Sequence[Bools], *, exact: bool
) -> Array:
    """Return what the coefficients of each kind add to the scores of every row, (kinds, n, classes).

    It comes from fits that have not seen the fold of the row, at the same precisions: two Newton steps from the fit to
    all rows, or one if the rows are many. With 250 rows of 100 classes, one step alone finds a held-out loss that is
    0.02 too low; with 2,500 rows, 0.002. With `exact`, each fit starts anew: where little is penalised, coefficients
    that the other rows leave open would stay as their own row had them.
    """
    design = problem.design
    added = np.empty((len(kinds), *design.base.shape), design.base.dtype)
    for fold in range(int(folds.max()) + 1):
        own = folds == fold
        without = problem._replace(design=replace(design, weights=np.where(own, 0.0, design.weights)))
        if exact:
            reached, _, _ = without.minimise(without.at(np.zeros_like(state.point)), curvature)
            point = reached.point
        else:
            point = state.point + without.newton_step(state, curvature, enough=0.1)[0]
        if not exact and len(folds) < _MANY_ROWS:
            point = point + without.newton_step(without.at(point), curvature, enough=0.1)[0]
        rows = design.take(own)
        for place, chosen in enumerate(kinds):
            added[place, own] = rows.scores(np.where(chosen, point, 0.0))
    return added


def fit_factors(problem: PenalisedLoss, added: Array) -> Floats:
    """Return the factors on `added` scores, from 0 to 3, that have the least loss under priors around 1.

    The added scores are functions shared by all classes, and what a factor differs from 1 is their coefficient.
    """
    design = problem.design
    basis = plain_basis(design.base.shape[1], ("shared",))
    arrays = {
        "linear": added[0],
        "bends": np.moveaxis(added[1:], 0, 1),
        "context": np.ones((len(design.base), 1), added.dtype),
    }
    of_factors = Design(basis, design.base + added.sum(axis=0), design.labels, design.weights, arrays)
    differences = PenalisedLoss(of_factors, problem.loss, np.full(len(added), USUAL["factor"]))
    state = differences.at(np.zeros(len(added)))
    curvature = curvature_of(of_factors, state.probabilities).inverse(differences.precisions)
    state, _, _ = differences.minimise(state, curvature, enough=1e-3)
    return np.clip(1 + state.point, 0.0, 3.0)


class FittedParts(NamedTuple):
    """A fitted model: its map from logits to log-probabilities, its out-of-fold predictions, and what the fit found."""

    map: Chain
    out_of_fold: Any  # log-probabilities (n, classes), or None without folds
    precisions: Mapping[str, float]  # of the prior of each part
    effective: Mapping[str, float]  # how many coefficients of each part the rows determine
    factor_of_pairs: float  # by which held-out rows multiply the parts of pairs; 0 without such parts or folds
    iterations: int
    converged: bool
    posterior: Posterior


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Leave one thread to BLAS: those of small products mostly wait for each other, and two took ten times as long."""
    from threadpoolctl import threadpool_limits  # on first use: loading a calibrator does not need it

    with threadpool_limits(limits=1, user_api="blas"):
        yield


@_one_blas_thread()
def fit_parts(
    given: Predictions,
    factor: float,
    names: Sequence[str],
    folds: Ints | None,
    *,
    loss: str = "log",
    precisions: Mapping[str, float] | None = None,
    inputs: str = "centred",
    factor_error: float = 0.0,
) -> FittedParts:
    """Fit parts to rows behind an inverse temperature; without folds there are no out-of-fold predictions.

    `precisions` stay as given, without factors; otherwise the rows determine both. `inputs` are those of `basis_of`.
    `factor_error` is the relative standard error of `factor`, which intervals count unless a shared part does.
    """
    floor, design, sample = _prepared(given, factor, names, inputs)
    point = np.zeros(design.owners.size)
    enough = 1e-3  # given precisions may be close to 0, and the fit then has flat directions
    found = precisions
    if found is None:
        found, point = _start(design, sample)
        enough = 0.03
    problem = PenalisedLoss(design, smooth_loss(loss), of_each(design, found))
    state = problem.at(point)
    curvature = curvature_of(design, state.probabilities).inverse(problem.precisions)
    state, steps, converged = problem.minimise(state, curvature, enough=enough)
    point = state.point
    out_of_fold = None
    factor_of_pairs = 0.0
    if folds is not None:
        kinds = [np.isin(design.names, kind)[design.owners] for kind in KINDS if design.basis.chosen(kind)]
        added = held_out_scores(problem, state, curvature, folds, kinds, exact=precisions is not None)
        factors = np.ones(len(kinds))
        if precisions is None:
            factors = fit_factors(problem, added)
        point = point * (factors @ np.array(kinds))
        out_of_fold = design.base + np.tensordot(factors.astype(added.dtype), added, axes=1)
        out_of_fold = in_row_blocks(log_softmax, out_of_fold)
        if design.basis.pairs:
            factor_of_pairs = float(factors[-1])
    corrected = Chain((corrected_map(design, point),))
    effective, effect, information, degrees = _uncertainty(problem, state, given.groups)
    law = information, problem.precisions, degrees
    return FittedParts(
        map=Chain((Reference(), Scale(np.asarray(factor)), LogSoftmax(), replace(floor, branches=(corrected,)))),
        out_of_fold=out_of_fold,
        precisions=found,
        effective=effective,
        factor_of_pairs=factor_of_pairs,
        iterations=steps,
        converged=converged,
        posterior=Posterior(factor, factor_error * effect**0.5, floor, design.basis, point, *law),
    )


def _uncertainty(
    problem: PenalisedLoss, state: State, groups: Array | None
) -> tuple[dict[str, float], float, Curvature, Floats]:
    """Return the effective coefficients of each part, the design effect of groups, the curvature, degrees of freedom.

    The rows show the variance 1 / precision + 1 / h of k coefficients of curvature h. The prior keeps a share of
    precision / (precision + h), so the precision is known as well as a variance with k (1 - kept)^2 degrees of freedom.
    """
    design = problem.design
    of_loss = curvature_of(design, state.probabilities)
    tight = of_loss.inverse(problem.precisions)
    counted = np.bincount(design.owners, 1 - problem.precisions * tight.variances())
    effect = _effect_of_groups(problem, state, tight, groups)
    information = Curvature(of_loss.block / effect, of_loss.diagonal / effect)
    kept = problem.precisions * information.inverse(problem.precisions).variances()
    degrees = np.bincount(design.owners, (1 - kept) ** 2) + _worth_of_usual(design)
    return dict(zip(design.names, counted.tolist(), strict=True)), effect, information, degrees


def _prepared(given: Predictions, factor: float, names: Sequence[str], inputs: str) -> tuple[Floor, Design, Ints]:
    """Return the floor, all rows as features, and which of them show spreads and precisions."""
    logits = working_logits(given.logits)
    log_p = in_row_blocks(lambda each: log_softmax(each * each.dtype.type(factor)), logits)
    floor = floor_of(1.0)
    raised, lowered = floor.split(log_p)
    masks = None
    if lowered.any():
        raised, masks = np.asarray(log_softmax(raised)), lowered
    weights = row_weights(given) / row_weights(given).max()  # a common factor changes nothing
    most = max(_MANY_ROWS, 5 * given.n_classes, _SAMPLE_ENTRIES // given.n_classes)
    sample = draw_rows(len(given), weights, most, random_state=0)
    basis = basis_of(raised[sample], weights[sample], names, inputs, None if masks is None else masks[sample])
    return floor, design_of(basis, raised, given.labels, weights, masks), sample


def _start(design: Design, sample: Any) -> tuple[Mapping[str, float], Floats]:
    """Return the precisions that the rows determine, and coefficients to start from: by a sample, then by all rows."""
    found = np.array([USUAL[name] for name in design.names])
    found, point = find_precisions(design.take(sample), found, np.zeros(design.owners.size), most_rounds=10)
    if np.count_nonzero(design.weights) > len(sample):  # more rows determine more coefficients
        found, point = find_precisions(design, found, point, most_rounds=2)
    return dict(zip(design.names, found.tolist(), strict=True)), point


def _effect_of_groups(problem: PenalisedLoss, state: State, curvature: Curvature, groups: Array | None) -> float:
    """Return the design effect of groups, as the slopes of rows show it along directions that the posterior allows."""
    if groups is None:
        return 1.0
    design = problem.design
    by_score = problem.loss.slope(state.probabilities, design.labels) * design.weights[:, None]
    rng = np.random.default_rng(0)
    effects = []
    for _ in range(20):
        along = design.scores(curvature.draw(rng))
        effects.append(design_effect(np.vecdot(by_score, along), groups))
    return float(np.mean(effects))


def working_logits(logits: Array) -> Array:
    """Return the logits of all classes in float64; many logits in float32 stay there, which halves the time."""
    each = with_reference_class(logits)
    narrow = each.dtype == np.float32 and each.size > DOUBLE_ENTRIES
    return each if narrow else each.astype(np.float64)
