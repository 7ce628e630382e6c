"""Log-probabilities and labels -> corrections that are linear in their coefficients and find their own strength.

The corrected score of class c is its log-probability plus a sum of parts. Each part has a Gaussian prior whose
precision is learned from the rows by MacKay's fixed point ("Bayesian interpolation", 1992):

    precision = (g + 1) / (|w - w0|^2 + 1 / usual)

w are the coefficients of the part, w0 their prior means, and g counts the coefficients that the rows determine. The
ones are a hyperprior worth one coefficient at the usual precision. A part that the rows do not support stays near w0.

Everything is a product with features: Newton's method with conjugate gradients never writes down a matrix of
coefficients x coefficients. Its preconditioner, and the posterior of the coefficients, take the curvature of a block of
features as a Kronecker product: features x classes. Martens and Grosse, "K-FAC", ICML 2015.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from glayers.arrays import Array, Floats, Ints
from glayers.fitting.curvature import SmoothLoss, smooth_loss
from glayers.fitting.folds import effective_rows
from glayers.maps import Chain, Dense, Diagonal
from glayers.maps.corrections import (
    DEPTH,
    LOWEST,
    N_CONTEXT,
    N_SHAPES,
    Centred,
    Corrected,
    HingeLayer,
    Shared,
    TopProbabilities,
    bends,
    centred,
    context,
    descending,
    raw_context,
    tenth,
    top_probabilities,
)

# Usual precisions, chosen on halves of calibration rows (docs/design/0028-evidence.md). Factors of three change the
# mean held-out loss by less than 0.0005.
USUAL = {
    "shared": 10.0,
    "context": 200.0,
    "scale": 150.0,
    "shift": 30.0,
    "matrix": 400.0,
    "confusion": 600.0,
    "hinges": 1200.0,
}
LINEAR_BLOCKS = ("shift", "matrix", "confusion", "hinges")  # one coefficient per feature and class
_ALMOST_NONE = 1e-12  # keeps a share of nothing finite
_LEAST_SPREAD = 1e-3  # of a feature that hardly varies
_LEAST_HINGE_SPREAD = 0.05
_MOST_ROUNDS = 10
_SETTLED = 0.1  # relative change of every precision that ends the search
_MOST_RATIO = 0.75  # of one step of the search to the one before
_TOLERANCE = 1e-3  # nats over all rows that the last Newton step may promise
_QUANTILES = (0.2, 0.4, 0.6, 0.8)  # of the centred log-probabilities of a class: the knots of its hinges
_SPARSE_CLASSES = 50  # from here on ten probabilities of a row are few, and stored as such
_DIAGONAL = 450  # features: beyond, the curvature is taken as diagonal, because eigenvectors would take seconds
_SEARCH_ENTRIES = 2_000_000  # logits that the search for precisions reads; of more rows, a sample
_CURVATURE_ROWS = 2_000  # rows that the preconditioner reads
_DOUBLE_ENTRIES = 20_000  # logits up to which float64 costs nothing; above, float32 halves the time
_MOST_PRODUCTS = 60  # of the curvature with a direction, in one Newton step


class Basis(NamedTuple):
    """How features are standardised: what makes the coefficients of two fits comparable.

    Each feature is centred for each class where that class is in question, so that no part can take the place of the
    shifts. Arrays of parts that the model does not have are empty.
    """

    parts: tuple[str, ...]
    n_classes: int
    inputs: str  # of scale and matrix: "centred" log-probabilities, or "log" for log-probabilities as they are
    own_centre: Floats  # (classes,) of the centred log-probability of a class, for its scale
    own_spread: Floats
    spread: Floats  # (classes,) of centred log-probabilities, for the matrix
    knots: Floats  # (4, classes)
    hinge_spread: Floats  # (4 classes,)
    context_centre: Floats  # (4,)
    context_spread: Floats
    means: dict[str, Floats]  # of the features of a part, for each class: (features, classes)

    def features(self, part: str, log_p: Floats, ordered: Floats) -> Floats:
        """Return the features (n, j) of a part whose coefficients are one per feature and class."""
        if part == "shift":
            return np.ones((len(log_p), 1))
        if part == "matrix":
            return self.values(log_p) / self.spread
        if part == "confusion":
            return np.asarray(top_probabilities(log_p, ordered) * np.sqrt(self.n_classes))
        bent = [np.maximum(self.values(log_p) - knot, 0.0) for knot in self.knots]
        return np.concatenate(bent, axis=1) / self.hinge_spread

    def values(self, log_p: Floats) -> Floats:
        """Return what scales and matrices multiply."""
        return np.asarray(centred(log_p)) if self.inputs == "centred" else log_p


def plain_basis(n_classes: int, parts: Sequence[str]) -> Basis:
    """Leave scales, shifts and a matrix of log-probabilities as they are, as the published penalties expect them."""
    ones, zeros = np.ones(n_classes), np.zeros(n_classes)
    means = {"matrix": np.zeros((n_classes, n_classes)), "shift": np.zeros((1, n_classes))}
    nothing = np.zeros(0)
    knots = np.zeros((0, n_classes))
    return Basis(tuple(parts), n_classes, "log", zeros, ones, ones, knots, nothing, nothing, nothing, means)


def basis_of(log_p: Floats, weights: Floats, parts: Sequence[str], inputs: str = "centred") -> Basis:
    """Standardise features over these rows, or over a sample of very many."""
    stride = max(1, log_p.size // _SEARCH_ENTRIES)
    log_p, weights = log_p[::stride], weights[::stride]
    ordered = descending(log_p)
    t = np.asarray(centred(log_p)) if inputs == "centred" else log_p
    p = np.exp(log_p)
    in_question = weights[:, None] * p * (1 - p) + _ALMOST_NONE
    in_question /= in_question.sum(axis=0)
    own_centre = np.vecdot(in_question, t, axis=0)
    own_spread = np.sqrt(np.vecdot(in_question, (t - own_centre) ** 2, axis=0)) + _LEAST_SPREAD
    unsure = weights * np.maximum(1 - np.vecdot(p, p), 0.0) + _ALMOST_NONE
    _, spread = _mean_and_spread(t, unsure)
    knots = np.zeros((0, log_p.shape[1]))
    hinge_spread = np.zeros(0)
    if "hinges" in parts:
        knots = np.quantile(t[weights > 0], _QUANTILES, axis=0)
        _, hinge_spread = _mean_and_spread(np.concatenate([np.maximum(t - k, 0.0) for k in knots], axis=1), unsure)
    context_centre, context_spread = _mean_and_spread(raw_context(log_p, ordered), weights)
    basis = Basis(
        tuple(parts),
        log_p.shape[1],
        inputs,
        own_centre,
        own_spread,
        spread,
        knots,
        hinge_spread + _LEAST_HINGE_SPREAD,
        context_centre,
        context_spread,
        {},
    )
    for part in basis.parts:
        if part in LINEAR_BLOCKS:
            basis.means[part] = basis.features(part, log_p, ordered).T @ in_question
    if "shift" in parts:
        basis.means["shift"] = np.zeros((1, log_p.shape[1]))
    return basis


def _mean_and_spread(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    shares = weights / weights.sum()
    mean = shares @ values
    return mean, np.sqrt(shares @ (values - mean) ** 2) + _LEAST_SPREAD


class Block(NamedTuple):
    """Features (n, j), dense or sparse, with one coefficient per feature and class.

    `owners` are the parts that the features belong to, and `means` (j, classes) are subtracted for each class.
    """

    features: Any
    owners: Ints
    means: Array

    def scores(self, weight: Array) -> Array:
        """Return the sum over centred features times coefficients, (n, classes)."""
        return self.features @ weight - np.vecdot(self.means, weight, axis=0)

    def slopes(self, by_score: Array) -> Array:
        """Return the transpose of `scores`."""
        return self.features.T @ by_score - self.means * by_score.sum(axis=0)


@dataclass(frozen=True, eq=False)
class Design:
    """Rows as features. Coefficients are one flat vector: shared (7, 5), scale (classes,), then each block (j, classes).

    `linear` (n, classes), `bends` (6, n, outcomes) and `context` (n, 5) belong to the shared part; `places`
    (n, outcomes) are the columns of the outcomes, or None if these are all classes. Weights sum to the effective number
    of rows.
    """

    basis: Basis
    base: Array
    labels: Ints
    weights: Floats
    linear: Array | None
    bends: Array | None
    context: Array | None
    places: Ints | None
    scaled: Array | None
    blocks: tuple[Block, ...]

    def take(self, rows: Any) -> "Design":
        """Return some of the rows, with their own weights."""
        return replace(
            self,
            base=self.base[rows],
            labels=self.labels[rows],
            weights=self.weights[rows],
            linear=None if self.linear is None else self.linear[rows],
            bends=None if self.bends is None else self.bends[:, rows],
            context=None if self.context is None else self.context[rows],
            places=None if self.places is None else self.places[rows],
            scaled=None if self.scaled is None else self.scaled[rows],
            blocks=tuple(block._replace(features=block.features[rows]) for block in self.blocks),
        )

    def names(self) -> tuple[str, ...]:
        """Return the parts that have a precision, in the order of `owners`."""
        return part_names(self.basis.parts)

    def owners(self) -> Ints:
        """Return the part of each coefficient, as a place in `names`."""
        found = []
        names = self.names()
        if self.linear is not None:
            of_row = np.where(np.arange(N_CONTEXT) == 0, names.index("shared"), names.index("context"))
            found.append(np.tile(of_row, N_SHAPES))
        if self.scaled is not None:
            found.append(np.full(self.base.shape[1], names.index("scale")))
        found += [np.repeat(block.owners, self.base.shape[1]) for block in self.blocks]
        return np.concatenate(found)

    def split(self, flat: Array) -> tuple[Array, Array, list[Array]]:
        """Return views of the coefficients of the shared part, of the scales and of each block."""
        n_classes = self.base.shape[1]
        n_shared = 0 if self.linear is None else N_SHAPES * N_CONTEXT
        n_scales = 0 if self.scaled is None else n_classes
        of_blocks = []
        start = n_shared + n_scales
        for block in self.blocks:
            size = len(block.owners) * n_classes
            of_blocks.append(flat[start : start + size].reshape(-1, n_classes))
            start += size
        return flat[:n_shared].reshape(-1, N_CONTEXT), flat[n_shared : n_shared + n_scales], of_blocks

    def scores(self, flat: Array) -> Array:
        """Return what the parts add to the log-probabilities, (n, classes)."""
        shared, scales, of_blocks = self.split(flat.astype(self.base.dtype))
        result = np.zeros_like(self.base)
        for block, weight in zip(self.blocks, of_blocks, strict=True):
            result += block.scores(weight)
        if self.scaled is not None:
            result += self.scaled * scales
        if self.linear is not None and self.bends is not None and self.context is not None:
            sizes = self.context @ shared.T
            result += sizes[:, :1] * self.linear
            moves = np.einsum("ns,sno->no", sizes[:, 1:], self.bends)
            if self.places is None:
                result += moves
            else:
                result[np.arange(len(moves))[:, None], self.places] += moves
        return result

    def slopes(self, by_score: Array) -> Floats:
        """Return the derivative by the coefficients, given that by the scores: the transpose of `scores`."""
        found = []
        if self.linear is not None and self.bends is not None and self.context is not None:
            own = by_score
            if self.places is not None:
                own = np.take_along_axis(by_score, self.places, axis=1)
            by_size = [np.vecdot(by_score, self.linear), *np.einsum("no,sno->sn", own, self.bends)]
            found.append((np.stack(by_size) @ self.context).ravel())
        if self.scaled is not None:
            found.append(np.einsum("nc,nc->c", by_score, self.scaled))
        found += [block.slopes(by_score).ravel() for block in self.blocks]
        return np.concatenate(found).astype(np.float64)


def part_names(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the parts that have a precision: the shared part has two.

    >>> part_names(["shared", "shift"])
    ('shared', 'context', 'shift')
    """
    names = []
    for part in parts:
        names += ["shared", "context"] if part == "shared" else [part]
    return tuple(names)


def design_of(
    basis: Basis, log_p: Floats, labels: Ints, weights: Floats | None, lowered: Floats | None = None
) -> Design:
    """Prepare rows once for any number of fits; `lowered` is added to the scores, -inf for impossible classes."""
    n_classes = log_p.shape[1]
    dtype = np.float64 if log_p.size <= _DOUBLE_ENTRIES else np.float32
    ordered = descending(log_p)
    parts = basis.parts
    names = part_names(parts)
    blocks: list[Block] = []
    dense = [part for part in ("matrix", "confusion", "hinges") if part in parts]
    together: list[Block] = []
    for part in [part for part in LINEAR_BLOCKS if part in parts]:
        features = basis.features(part, log_p, ordered).astype(dtype)
        owners = np.full(features.shape[1], names.index(part))
        block = Block(features, owners, basis.means[part].astype(dtype))
        if part == "confusion" and n_classes >= _SPARSE_CLASSES:
            blocks.append(block._replace(features=sparse.csr_array(features)))
        elif part in dense:
            together.append(block)
        else:
            blocks.append(block)
    if together:
        features = np.concatenate([block.features for block in together], axis=1)
        owners = np.concatenate([block.owners for block in together])
        blocks.append(Block(features, owners, np.concatenate([block.means for block in together])))
    weights = np.ones(len(log_p)) if weights is None else weights * (effective_rows(weights) / weights.sum())
    base = log_p if lowered is None else log_p + lowered
    found = Design(basis, base.astype(dtype), labels, weights, None, None, None, None, None, tuple(blocks))
    if "scale" in parts:
        own = (basis.values(log_p) - basis.own_centre) / basis.own_spread
        found = replace(found, scaled=own.astype(dtype))
    if "shared" in parts:
        places = None
        bent = np.stack(bends(log_p))
        if n_classes > DEPTH:
            places = np.argpartition(log_p, -DEPTH, axis=1)[:, -DEPTH:]
            # Every other class moves as the tenth does, so only differences from it matter.
            bent = np.stack(bends(np.take_along_axis(log_p, places, axis=1))) - np.stack(bends(tenth(ordered)))
        found = replace(
            found,
            linear=np.maximum(log_p, LOWEST).astype(dtype),
            bends=bent.astype(dtype),
            context=context(raw_context(log_p, ordered), basis.context_centre, basis.context_spread).astype(dtype),
            places=places,
        )
    return found


class _BlockCurvature(NamedTuple):
    """The curvature of a block as classes x features: eigenvectors of both, and 1 / (1 + curvature / precision)."""

    features: Floats | None  # None for diagonal
    classes: Floats | None
    scale: Floats  # prior standard deviation of each feature's coefficients
    kept: Floats  # (features, classes)

    def solve(self, slopes: Floats) -> Floats:
        scaled = slopes * self.scale[:, None]
        if self.features is None or self.classes is None:
            return (scaled * self.kept) * self.scale[:, None]
        inner = (self.features.T @ scaled @ self.classes) * self.kept
        return (self.features @ inner @ self.classes.T) * self.scale[:, None]

    def variances(self) -> Floats:
        """Return the posterior variance of each coefficient as a fraction of its prior variance."""
        if self.features is None or self.classes is None:
            return self.kept
        return self.features**2 @ self.kept @ (self.classes**2).T


class Curvature:
    """The penalised curvature at one point, in blocks: what preconditions a fit and is its posterior afterwards."""

    def __init__(self, design: Design, probabilities: Array, precisions: Floats) -> None:
        stride = max(1, len(design.labels) // _CURVATURE_ROWS)
        some = design.take(slice(None, None, stride))
        p = probabilities[::stride].astype(np.float64)
        weights = some.weights * (design.weights.sum() / max(some.weights.sum(), 1e-300))
        shared, scales, of_blocks = design.split(precisions)
        self.design = design
        self.shared = np.zeros((0, 0))
        self.scales = np.zeros(0)
        if some.linear is not None:
            curvature = _shared_curvature(some, p, weights)
            self.shared = np.linalg.inv(curvature + np.diag(shared.ravel()))
        if some.scaled is not None:
            curved = np.einsum("nc,nc,n->c", p * (1 - p), some.scaled.astype(np.float64) ** 2, weights)
            self.scales = 1 / (curved + scales)
        of_classes = np.diag(weights @ p) - (p.T * weights) @ p
        unsure = weights * np.maximum(1 - np.vecdot(p, p), 0.0)
        unsure = unsure / max(unsure.sum(), _ALMOST_NONE)
        self.blocks = [
            _block_curvature(block, of_classes, unsure, precision[:, 0])
            for block, precision in zip(some.blocks, of_blocks, strict=True)
        ]

    def solve(self, flat: Floats) -> Floats:
        """Return the inverse curvature times a vector."""
        shared, scales, of_blocks = self.design.split(flat)
        found = [(self.shared @ shared.ravel()), self.scales * scales]
        found += [block.solve(part).ravel() for block, part in zip(self.blocks, of_blocks, strict=True)]
        return np.concatenate(found)

    def variances(self, precisions: Floats) -> Floats:
        """Return the posterior variance of each coefficient as a fraction of its prior variance."""
        shared, scales, _ = self.design.split(precisions)
        found = [np.diagonal(self.shared) * shared.ravel(), self.scales * scales]
        found += [block.variances().ravel() for block in self.blocks]
        return np.concatenate(found)


def _shared_curvature(some: Design, p: Floats, weights: Floats) -> Floats:
    """Sum over rows of context x context times the covariance of the functions under the probabilities."""
    assert some.linear is not None
    assert some.bends is not None
    assert some.context is not None
    own = p if some.places is None else np.take_along_axis(p, some.places, axis=1)
    linear = some.linear.astype(np.float64)
    near = linear if some.places is None else np.take_along_axis(linear, some.places, axis=1)
    each = np.concatenate([near[None], some.bends.astype(np.float64)])
    weighted = each * own
    mean = weighted.sum(axis=2)
    second = np.einsum("sno,tno->nst", weighted, each, optimize=True)
    if some.places is not None:  # the first function also counts where the others are 0
        mean[0] = np.vecdot(p, linear)
        second[:, 0, 0] = np.vecdot(p * linear, linear)
    covariance = second - np.einsum("sn,tn->nst", mean, mean)
    pairs = np.einsum("nj,nk,n->njk", some.context, some.context, weights).reshape(len(own), -1)
    summed = covariance.reshape(len(own), -1).T @ pairs
    shape = (N_SHAPES, N_SHAPES, N_CONTEXT, N_CONTEXT)
    return summed.reshape(shape).transpose(0, 2, 1, 3).reshape(N_SHAPES * N_CONTEXT, -1)


def _block_curvature(block: Block, of_classes: Floats, unsure: Floats, precision: Floats) -> _BlockCurvature:
    """Take the curvature as that of classes times the covariance of the features around their class means."""
    scale = 1 / np.sqrt(precision)
    features = block.features
    of_class = np.diagonal(of_classes) / max(float(np.trace(of_classes)), _ALMOST_NONE)
    means = block.means.astype(np.float64)
    if len(scale) > _DIAGONAL or sparse.issparse(features):
        variances = np.maximum((features * features).T @ unsure - means**2 @ of_class, 0.0)
        curved = (scale**2 * variances)[:, None] * np.diagonal(of_classes)
        return _BlockCurvature(None, None, scale, 1 / (1 + curved))
    weighted = features.astype(np.float64) * np.sqrt(unsure)[:, None]
    covariance = weighted.T @ weighted - (means * of_class) @ means.T
    class_values, class_vectors = np.linalg.eigh(of_classes)
    feature_values, feature_vectors = np.linalg.eigh(scale[:, None] * covariance * scale)
    curved = np.maximum(feature_values, 0.0)[:, None] * np.maximum(class_values, 0.0)
    return _BlockCurvature(feature_vectors, class_vectors, scale, 1 / (1 + curved))


class State(NamedTuple):
    """Coefficients, the loss of all rows there (without the penalty), and the probabilities."""

    point: Floats
    loss: float
    probabilities: Array


class Fit(NamedTuple):
    """What one fit found: coefficients, the precision and the effective number of coefficients of each part."""

    state: State
    precisions: dict[str, float]
    effective: dict[str, float]
    curvature: Curvature
    iterations: int
    converged: bool


@dataclass(frozen=True, eq=False)
class Model:
    """A fit of rows by parts with priors.

    `means` are the prior means of the coefficients, and `fixed` are precisions that stay as given, by part.
    """

    design: Design
    loss: SmoothLoss
    means: Floats
    usual: dict[str, float] = field(default_factory=lambda: dict(USUAL))
    fixed: dict[str, float] | None = None

    def fit(self) -> Fit:
        """Find the precisions, then the coefficients."""
        precisions = self.fixed
        effective: dict[str, float] = {}
        start = self.means
        if precisions is None:
            precisions, effective, start = self._searched()
        return self.at(precisions, start, effective)

    def at(self, precisions: dict[str, float], start: Floats, effective: dict[str, float] | None = None) -> Fit:
        """Fit all rows at given precisions."""
        flat = self._flat(precisions)
        state = self._evaluated(self.design, self.loss, start)
        curvature = Curvature(self.design, state.probabilities, flat)
        state, steps, converged = self._descended(self.design, self.loss, state, flat, curvature, 30, 0.03)
        counted = effective or self._effective(curvature, flat)
        return Fit(state, precisions, counted, curvature, steps, converged)

    def without(self, fit: Fit, rows: Any) -> Floats:
        """Return the coefficients for some of the rows, at the same precisions, from the fit to all rows."""
        some = self.design.take(rows)
        state = self._evaluated(some, self.loss, fit.state.point)
        flat = self._flat(fit.precisions)
        return self._descended(some, self.loss, state, flat, fit.curvature, 2, 0.1)[0].point

    def _searched(self) -> tuple[dict[str, float], dict[str, float], Floats]:
        """MacKay's fixed point by the log loss, one Newton step per round, on a sample of very many rows."""
        log_loss = smooth_loss("log")
        stride = max(1, self.design.base.size // _SEARCH_ENTRIES)
        design = self.design.take(slice(None, None, stride))
        names = design.names()
        owners = design.owners()
        usual = np.array([self.usual[name] for name in names])
        precisions = usual
        state = self._evaluated(design, log_loss, self.means)
        counted = step = np.zeros(len(names))
        for _ in range(_MOST_ROUNDS):
            flat = precisions[owners]
            curvature = Curvature(design, state.probabilities, flat)
            state, _, _ = self._descended(design, log_loss, state, flat, curvature, 1, 0.1)
            counted = np.bincount(owners, 1 - curvature.variances(flat))
            squares = np.bincount(owners, (state.point - self.means) ** 2)
            step, before = np.log((counted + 1) / (squares + 1 / usual) / precisions), step
            # Steps to a fixed point shrink by a constant ratio: go where they would end.
            ratio = np.divide(step, before, out=np.zeros_like(step), where=before != 0).clip(0.0, _MOST_RATIO)
            precisions = precisions * np.exp(step / (1 - ratio))
            if np.abs(step / (1 - ratio)).max() < _SETTLED:
                break
        by_name = dict(zip(names, precisions.tolist(), strict=True))
        return by_name, dict(zip(names, counted.tolist(), strict=True)), state.point

    def _flat(self, precisions: dict[str, float]) -> Floats:
        return np.array([precisions[name] for name in self.design.names()])[self.design.owners()]

    def _effective(self, curvature: Curvature, flat: Floats) -> dict[str, float]:
        counted = np.bincount(self.design.owners(), 1 - curvature.variances(flat))
        return dict(zip(self.design.names(), counted.tolist(), strict=True))

    def _evaluated(self, design: Design, loss: SmoothLoss, point: Floats) -> State:
        losses, probabilities = loss.both(design.base + design.scores(point), design.labels)
        return State(point, float(design.weights @ losses), probabilities)

    def _descended(
        self,
        design: Design,
        loss: SmoothLoss,
        state: State,
        precisions: Floats,
        curvature: Curvature,
        most_steps: int,
        precision_of_step: float,
    ) -> tuple[State, int, bool]:
        """Newton steps until one promises less than the tolerance, or until a step no longer lowers the objective."""

        def penalised(reached: State) -> float:
            return reached.loss + float(precisions @ (reached.point - self.means) ** 2) / 2

        weights = design.weights.astype(design.base.dtype)[:, None]
        for step in range(1, most_steps + 1):
            slope = design.slopes(weights * loss.slope(state.probabilities, design.labels))
            slope += precisions * (state.point - self.means)

            def curved(direction: Floats, p: Array = state.probabilities) -> Floats:
                moved = loss.curve(p, design.scores(direction))
                return design.slopes(weights * moved) + precisions * direction

            direction = _conjugate_gradients(curved, slope, curvature.solve, precision_of_step)
            promised = -float(slope @ direction)
            value = penalised(state)
            length = 1.0
            while True:
                reached = self._evaluated(design, loss, state.point + length * direction)
                if penalised(reached) <= value - 1e-4 * length * promised + 1e-7 * abs(value):
                    break
                length /= 2
                if length < 1e-3:
                    return state, step, promised < 1e-4 * abs(value)
            state = reached
            if promised < _TOLERANCE:
                return state, step, True
        return state, most_steps, False


def _conjugate_gradients(
    curved: Callable[[Floats], Floats], slope: Floats, precondition: Callable[[Floats], Floats], enough: float
) -> Floats:
    """Solve curvature @ step = -slope until the preconditioned residual falls to this fraction."""
    step = np.zeros_like(slope)
    residual = -slope
    ready = precondition(residual)
    towards = ready
    size = float(residual @ ready)
    target = max(enough**2 * size, 1e-3 * _TOLERANCE)
    for _ in range(_MOST_PRODUCTS):
        if not size > target:
            break
        bent = curved(towards)
        bend = float(towards @ bent)
        if not bend > 0:
            break
        step = step + (size / bend) * towards
        residual = residual - (size / bend) * bent
        ready = precondition(residual)
        before, size = size, float(residual @ ready)
        towards = ready + (size / before) * towards
    return step


def corrected_map(design: Design, flat: Floats) -> Corrected:
    """Return the fitted model as a step of a map; standardisation goes into its weights."""
    basis = design.basis
    n_classes = basis.n_classes
    shared, scales, of_blocks = design.split(flat)
    weights: dict[str, Floats] = {}
    names = design.names()
    for block, coefficients in zip(design.blocks, of_blocks, strict=True):
        for place in np.unique(block.owners):
            weights[names[place]] = coefficients[block.owners == place]
    offset = -sum(np.vecdot(basis.means[name], weight, axis=0) for name, weight in weights.items())
    bias = np.zeros(n_classes) + offset
    if "shift" in weights:
        bias = bias + weights["shift"][0]
    slopes = np.zeros(n_classes)
    if len(scales):
        slopes = scales / basis.own_spread
        bias = bias - basis.own_centre * slopes
    branches: list[Chain] = []
    first = Chain((Centred(),)) if basis.inputs == "centred" else Chain(())
    if "matrix" in weights:
        weight = weights["matrix"] / basis.spread[:, None]
        branches.append(first + Chain((Dense(weight + np.diag(slopes), bias),)))
    elif len(scales) or weights:
        branches.append(first + Chain((Diagonal(slopes, bias),)))
    if "hinges" in weights:
        weight = (weights["hinges"] / basis.hinge_spread[:, None]).reshape(*basis.knots.shape, n_classes)
        branches.append(first + Chain((HingeLayer(basis.knots, weight),)))
    if "confusion" in weights:
        weight = weights["confusion"] * np.sqrt(n_classes)
        branches.append(Chain((TopProbabilities(), Dense(weight, np.zeros(n_classes)))))
    if len(shared):
        branches.insert(0, Chain((Shared(shared, basis.context_centre, basis.context_spread),)))
    return Corrected(tuple(branches))


def held_out_scores(model: Model, fit: Fit, folds: Ints) -> Array:
    """Return the corrected scores of every row by a fit that has not seen its fold."""
    result = np.empty_like(model.design.base)
    for fold in range(int(folds.max()) + 1):
        own = folds == fold
        point = model.without(fit, ~own)
        rows = model.design.take(own)
        result[own] = rows.base + rows.scores(point)
    return result
