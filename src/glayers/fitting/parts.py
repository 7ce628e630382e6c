"""Log-probabilities of rows -> parts of a correction: features with one coefficient each, and what they add to a score.

Every part knows three things: what its coefficients add to the scores of the rows, the transpose of that, and its own
curvature. The curvature preconditions a fit, and afterwards it is the posterior of the coefficients.

Features are centred for each class where that class is in question, so that no part can take the place of the shifts.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints
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

LINEAR = ("matrix", "confusion", "hinges")  # parts with one coefficient per feature and class
_ALMOST_NONE = 1e-12  # keeps a share of nothing finite
_LEAST_SPREAD = 1e-3  # of a feature that hardly varies
_LEAST_HINGE_SPREAD = 0.05
_QUANTILES = (0.2, 0.4, 0.6, 0.8)  # of the centred log-probabilities of a class: the knots of its hinges
_SPARSE_CLASSES = 50  # from here on ten probabilities of a row are few, and stored as such
_DIAGONAL = 450  # features or classes: beyond, the curvature is taken as diagonal, because inverses would take seconds
_SAMPLE_ENTRIES = 200_000  # logits that show means, spreads and precisions; of more rows, every so many are read
_SAMPLE_ROWS, _SAMPLE_ROWS_PER_CLASS = 2_000, 5  # of which there are at least this many
_CURVATURE_ROWS = 1_000  # rows that show the curvature
_DOUBLE_ENTRIES = 20_000  # logits up to which float64 costs nothing; above, float32 halves the time


def sample_rows(n_rows: int, n_classes: int) -> slice:
    """Return every so many rows, enough to show means, spreads and precisions."""
    least = max(_SAMPLE_ROWS, _SAMPLE_ROWS_PER_CLASS * n_classes)
    return slice(None, None, max(1, min(n_rows * n_classes // _SAMPLE_ENTRIES, n_rows // least)))


class Basis(NamedTuple):
    """How features are standardised: what makes the coefficients of two fits comparable.

    Arrays of parts that the model does not have are empty.
    """

    parts: tuple[str, ...]
    n_classes: int
    inputs: str  # of scale and matrix: "centred" log-probabilities, or "log" for log-probabilities as they are
    own_centre: Floats  # (classes,) of the input of a class where it is in question, for its scale
    own_spread: Floats
    spread: Floats  # (classes,) of inputs, for the matrix
    knots: Floats  # (4, classes)
    hinge_spread: Floats  # (4 classes,)
    context_centre: Floats  # (4,)
    context_spread: Floats
    means: dict[str, Floats]  # of the features of a linear part, for each class: (features, classes)

    def features(self, part: str, log_p: Floats, ordered: Floats) -> Floats:
        """Return the features (n, j) of a linear part."""
        if part == "matrix":
            return self.values(log_p) / self.spread
        if part == "confusion":
            return np.asarray(top_probabilities(log_p, ordered) * np.sqrt(self.n_classes))
        return _hinges(self.values(log_p), self.knots) / self.hinge_spread

    def values(self, log_p: Floats) -> Floats:
        """Return what scales and matrices multiply."""
        return np.asarray(centred(log_p)) if self.inputs == "centred" else log_p


def plain_basis(n_classes: int, parts: Sequence[str]) -> Basis:
    """Leave scales, shifts and a matrix of log-probabilities as they are, as published penalties expect them."""
    ones, zeros = np.ones(n_classes), np.zeros(n_classes)
    nothing = np.zeros(0)
    knots = np.zeros((0, n_classes))
    means = {"matrix": np.zeros((n_classes, n_classes))}
    return Basis(tuple(parts), n_classes, "log", zeros, ones, ones, knots, nothing, nothing, nothing, means)


def basis_of(log_p: Floats, weights: Floats, parts: Sequence[str], inputs: str = "centred") -> Basis:
    """Standardise features over these rows, or over a sample of very many."""
    sample = sample_rows(*log_p.shape)
    log_p, weights = log_p[sample], weights[sample]
    n_classes = log_p.shape[1]
    ordered = descending(log_p)
    p = np.exp(log_p)
    in_question = weights[:, None] * p * (1 - p) + _ALMOST_NONE
    in_question /= in_question.sum(axis=0)
    unsure = weights * np.maximum(1 - np.vecdot(p, p), 0.0) + _ALMOST_NONE
    empty = plain_basis(n_classes, parts)._replace(inputs=inputs, means={})
    values = empty.values(log_p)
    own_centre = (in_question * values).sum(axis=0)
    own_spread = np.sqrt((in_question * (values - own_centre) ** 2).sum(axis=0)) + _LEAST_SPREAD
    context_centre, context_spread = _mean_and_spread(raw_context(log_p, ordered), weights)
    basis = empty._replace(
        own_centre=own_centre,
        own_spread=own_spread,
        spread=_mean_and_spread(values, unsure)[1],
        context_centre=context_centre,
        context_spread=context_spread,
    )
    if "hinges" in parts:
        knots = np.quantile(values[weights > 0], _QUANTILES, axis=0)
        hinge_spread = _mean_and_spread(_hinges(values, knots), unsure)[1] + _LEAST_HINGE_SPREAD
        basis = basis._replace(knots=knots, hinge_spread=hinge_spread)
    for part in parts:
        if part in LINEAR:
            basis.means[part] = basis.features(part, log_p, ordered).T @ in_question
    return basis


def _hinges(values: Floats, knots: Floats) -> Floats:
    return np.concatenate([np.maximum(values - knot, 0.0) for knot in knots], axis=1)


def _mean_and_spread(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    shares = weights / weights.sum()
    mean = shares @ values
    return mean, np.sqrt(shares @ (values - mean) ** 2) + _LEAST_SPREAD


class Point(NamedTuple):
    """Where a fit stands: probabilities (n, classes), weights, and the summed curvature of the classes."""

    probabilities: Floats
    weights: Floats
    of_classes: Floats


class Inverse(ABC):
    """The inverse of a part's penalised curvature."""

    @abstractmethod
    def solve(self, slopes: Floats) -> Floats:
        """Return the inverse times a vector of slopes, both of the part's shape."""

    @abstractmethod
    def variances(self) -> Floats:
        """Return the posterior variance of each coefficient."""

    @abstractmethod
    def score_variances(self, part: Any, probabilities: Floats) -> Floats:
        """Return the posterior variance of the log-probability of each class, (n, classes)."""


class Part(ABC):
    """Features of rows and the coefficients that multiply them; `names` are the precisions that it has."""

    names: tuple[str, ...]
    owners: Ints  # the place in `names` of each coefficient, in the shape of the coefficients

    @abstractmethod
    def take(self, rows: Any) -> "Part":
        """Return some of the rows."""

    @abstractmethod
    def add_scores(self, coefficients: Array, result: Array) -> None:
        """Add what the part adds to the scores (n, classes), in place."""

    @abstractmethod
    def slopes(self, by_score: Array, total: Array) -> Array:
        """Return the transpose of `add_scores`; `total` is the sum of `by_score` over rows."""

    @abstractmethod
    def inverse(self, at: Point, precisions: Floats) -> Inverse:
        """Return the inverse of the curvature with the precision of each coefficient."""


@dataclass(frozen=True, eq=False)
class _SharedPart(Part):
    """The shared correction: `linear` (n, classes), `bends` (6, n, outcomes) and `context` (n, 5).

    `places` (n, outcomes) are the columns of the outcomes, or None if these are all classes.
    """

    linear: Array
    bends: Array
    context: Array
    places: Ints | None
    names = ("shared", "context")
    owners = np.tile(np.minimum(np.arange(N_CONTEXT), 1), (N_SHAPES, 1))

    def take(self, rows: Any) -> "_SharedPart":
        places = None if self.places is None else self.places[rows]
        return _SharedPart(self.linear[rows], self.bends[:, rows], self.context[rows], places)

    def add_scores(self, coefficients: Array, result: Array) -> None:
        sizes = self.context @ coefficients.T
        result += sizes[:, :1] * self.linear
        moves = np.einsum("ns,sno->no", sizes[:, 1:], self.bends)
        if self.places is None:
            result += moves
        else:
            result[np.arange(len(moves))[:, None], self.places] += moves

    def slopes(self, by_score: Array, total: Array) -> Array:  # noqa: ARG002 (no feature is centred)
        own = self._outcomes(by_score)
        by_size = [np.vecdot(by_score, self.linear), *np.einsum("no,sno->sn", own, self.bends)]
        return np.stack(by_size) @ self.context

    def inverse(self, at: Point, precisions: Floats) -> "_DenseInverse":
        """Sum over rows of context x context times the covariance of the functions under the probabilities."""
        p = at.probabilities
        own = self._outcomes(p)
        linear = self.linear.astype(np.float64)
        each = np.concatenate([self._outcomes(linear)[None], self.bends.astype(np.float64)])
        weighted = each * own
        mean = weighted.sum(axis=2)
        second = weighted.transpose(1, 0, 2) @ each.transpose(1, 2, 0)
        if self.places is not None:  # the first function also counts where the others are 0
            mean[0] = np.vecdot(p, linear)
            second[:, 0, 0] = np.vecdot(p * linear, linear)
        covariance = second - np.einsum("sn,tn->nst", mean, mean)
        pairs = np.einsum("nj,nk,n->njk", self.context, self.context, at.weights)
        summed = covariance.reshape(len(p), -1).T @ pairs.reshape(len(p), -1)
        curved = summed.reshape(N_SHAPES, N_SHAPES, N_CONTEXT, N_CONTEXT).transpose(0, 2, 1, 3)
        curved = curved.reshape(N_SHAPES * N_CONTEXT, -1)
        return _DenseInverse(np.linalg.inv(curved + np.diag(precisions.ravel())))

    def _outcomes(self, values: Array) -> Array:
        if self.places is None:
            return values
        return np.take_along_axis(values, self.places, axis=1)

    def features_at(self, probabilities: Floats) -> Floats:
        """Return the derivative of each log-probability by each coefficient, (n, classes, 35)."""
        n_rows, n_classes = self.linear.shape
        each = np.zeros((n_rows, n_classes, N_SHAPES))
        each[:, :, 0] = self.linear
        for place, bend in enumerate(self.bends, start=1):
            if self.places is None:
                each[:, :, place] = bend
            else:
                np.put_along_axis(each[:, :, place], self.places, bend, axis=1)
        each -= np.einsum("nc,ncs->ns", probabilities, each)[:, None, :]
        return np.einsum("ncs,nj->ncsj", each, self.context).reshape(n_rows, n_classes, -1)


@dataclass(frozen=True, eq=False)
class _DenseInverse(Inverse):
    """The inverse of a curvature that is written down."""

    matrix: Floats

    def solve(self, slopes: Floats) -> Floats:
        return (self.matrix @ slopes.ravel()).reshape(slopes.shape)

    def variances(self) -> Floats:
        return np.diagonal(self.matrix)

    def score_variances(self, part: Any, probabilities: Floats) -> Floats:
        features = part.features_at(probabilities)
        return np.einsum("ncf,fg,ncg->nc", features, self.matrix, features, optimize=True)


@dataclass(frozen=True, eq=False)
class _ScalePart(Part):
    """One scale per class: coefficients (classes,) times `values` (n, classes)."""

    values: Array
    owners: Ints
    names = ("scale",)

    def take(self, rows: Any) -> "_ScalePart":
        return _ScalePart(self.values[rows], self.owners)

    def add_scores(self, coefficients: Array, result: Array) -> None:
        result += self.values * coefficients

    def slopes(self, by_score: Array, total: Array) -> Array:  # noqa: ARG002 (centred already)
        return np.einsum("nc,nc->c", by_score, self.values)

    def inverse(self, at: Point, precisions: Floats) -> "_DiagonalInverse":
        p = at.probabilities
        return _DiagonalInverse(1 / (at.weights @ (p * (1 - p) * self.values**2) + precisions))

    def features_at(self, probabilities: Floats) -> Floats:
        """Return the derivative of each log-probability by each coefficient, (n, classes, classes)."""
        return (np.eye(self.values.shape[1]) - probabilities[:, None, :]) * self.values[:, None, :]


@dataclass(frozen=True, eq=False)
class _DiagonalInverse(Inverse):
    """The inverse of a curvature that is taken as diagonal."""

    diagonal: Floats

    def solve(self, slopes: Floats) -> Floats:
        return self.diagonal * slopes

    def variances(self) -> Floats:
        return self.diagonal

    def score_variances(self, part: Any, probabilities: Floats) -> Floats:
        return part.features_at(probabilities) ** 2 @ self.diagonal


@dataclass(frozen=True, eq=False)
class _ShiftPart(Part):
    """One shift per class."""

    n_rows: int
    owners: Ints
    names = ("shift",)

    def take(self, rows: Any) -> "_ShiftPart":
        return replace(self, n_rows=len(np.arange(self.n_rows)[rows]))

    def add_scores(self, coefficients: Array, result: Array) -> None:
        result += coefficients

    def slopes(self, by_score: Array, total: Array) -> Array:  # noqa: ARG002 (the sum is at hand)
        return total

    def inverse(self, at: Point, precisions: Floats) -> Inverse:
        if len(precisions) > _DIAGONAL:
            return _DiagonalInverse(1 / (np.diagonal(at.of_classes) + precisions))
        return _DenseInverse(np.linalg.inv(np.asarray(at.of_classes + np.diag(precisions), np.float64)))

    def features_at(self, probabilities: Floats) -> Floats:
        """Return the derivative of each log-probability by each coefficient, (n, classes, classes)."""
        return np.eye(probabilities.shape[1]) - probabilities[:, None, :]


@dataclass(frozen=True, eq=False)
class _LinearPart(Part):
    """Features (n, j), dense or sparse, with one coefficient per feature and class: (j, classes).

    `means` (j, classes) are subtracted for each class.
    """

    features: Any
    means: Array
    names: tuple[str, ...]
    owners: Ints

    def take(self, rows: Any) -> "_LinearPart":
        return replace(self, features=self.features[rows])

    def add_scores(self, coefficients: Array, result: Array) -> None:
        result += self.features @ coefficients
        result -= (self.means * coefficients).sum(axis=0)

    def slopes(self, by_score: Array, total: Array) -> Array:
        return self.features.T @ by_score - self.means * total

    def inverse(self, at: Point, precisions: Floats) -> Inverse:
        """Take the curvature as that of classes times the covariance of the features around their class means.

        Such a Kronecker product has the eigenvectors of both. Martens and Grosse, "K-FAC", ICML 2015.
        """
        p = at.probabilities
        unsure = at.weights * np.maximum(1 - np.vecdot(p, p), 0.0)
        unsure = unsure / max(unsure.sum(), _ALMOST_NONE)
        of_class = np.diagonal(at.of_classes)
        shares = of_class / max(of_class.sum(), _ALMOST_NONE)
        means = self.means.astype(np.float64)
        if not isinstance(self.features, np.ndarray) or len(precisions) > _DIAGONAL:
            squares = (self.features * self.features).T @ unsure
            variances = np.maximum(squares - means**2 @ shares, 0.0)
            return _DiagonalInverse(1 / (variances[:, None] * of_class + precisions))
        scale = 1 / np.sqrt(precisions[:, 0])
        weighted = self.features.astype(np.float64) * np.sqrt(unsure)[:, None]
        covariance = weighted.T @ weighted - (means * shares) @ means.T
        class_values, class_vectors = np.linalg.eigh(at.of_classes)
        feature_values, feature_vectors = np.linalg.eigh(scale[:, None] * covariance * scale)
        curved = np.maximum(feature_values, 0.0)[:, None] * np.maximum(class_values, 0.0)
        return _KroneckerInverse(scale[:, None] * feature_vectors, class_vectors, 1 / (1 + curved))

    def features_at(self, probabilities: Floats) -> Floats:
        """Return the features of each row, centred by the class means that its probabilities expect, (n, j)."""
        dense = self.features if isinstance(self.features, np.ndarray) else self.features.toarray()
        return np.asarray(dense - probabilities @ self.means.T, dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _KroneckerInverse(Inverse):
    """The inverse of a Kronecker product plus a penalty: scaled eigenvectors of features, those of classes, values."""

    features: Floats
    classes: Floats
    values: Floats  # (features, classes)

    def solve(self, slopes: Floats) -> Floats:
        inner = (self.features.T @ slopes @ self.classes) * self.values
        return self.features @ inner @ self.classes.T

    def variances(self) -> Floats:
        return self.features**2 @ self.values @ (self.classes**2).T

    def score_variances(self, part: Any, probabilities: Floats) -> Floats:
        by_class = (part.features_at(probabilities) @ self.features) ** 2 @ self.values
        moved = self.classes - (probabilities @ self.classes)[:, None, :]
        return np.einsum("nca,na->nc", moved**2, by_class)


@dataclass(frozen=True, eq=False)
class Design:
    """Rows as parts. Coefficients are one flat vector, part after part; weights sum to the effective number of rows."""

    basis: Basis
    base: Array
    labels: Ints
    weights: Floats
    parts: tuple[Part, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The precisions of all parts."""
        return tuple(name for part in self.parts for name in part.names)

    @property
    def owners(self) -> Ints:
        """The precision of each coefficient, as a place in `names`."""
        found = []
        first = 0
        for part in self.parts:
            found.append(part.owners.ravel() + first)
            first += len(part.names)
        return np.concatenate(found)

    def take(self, rows: Any) -> "Design":
        """Return some of the rows, with their own weights."""
        parts = tuple(part.take(rows) for part in self.parts)
        return Design(self.basis, self.base[rows], self.labels[rows], self.weights[rows], parts)

    def split(self, flat: Array) -> list[Array]:
        """Return views of the coefficients of each part, in its shape."""
        found = []
        start = 0
        for part in self.parts:
            found.append(flat[start : start + part.owners.size].reshape(part.owners.shape))
            start += part.owners.size
        return found

    def scores(self, flat: Floats) -> Array:
        """Return what the parts add to the log-probabilities, (n, classes)."""
        result = np.zeros_like(self.base)
        for part, coefficients in zip(self.parts, self.split(flat.astype(self.base.dtype)), strict=True):
            part.add_scores(coefficients, result)
        return result

    def slopes(self, by_score: Array) -> Floats:
        """Return the derivative by the coefficients, given that by the scores: the transpose of `scores`."""
        total = np.ones(len(by_score), by_score.dtype) @ by_score
        return np.concatenate([part.slopes(by_score, total).ravel() for part in self.parts]).astype(np.float64)


def part_names(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the precisions of parts: the shared part has two.

    >>> part_names(["shared", "shift"])
    ('shared', 'context', 'shift')
    """
    names = []
    for part in parts:
        names += ["shared", "context"] if part == "shared" else [part]
    return tuple(names)


def design_of(
    basis: Basis, log_p: Floats, labels: Ints, weights: Floats | None = None, lowered: Floats | None = None
) -> Design:
    """Prepare rows once for any number of fits; `lowered` is added to the scores, -inf for impossible classes."""
    dtype = np.float64 if log_p.size <= _DOUBLE_ENTRIES else np.float32
    ordered = descending(log_p)
    n_classes = basis.n_classes
    parts: list[Part] = []
    if "shared" in basis.parts:
        parts.append(_shared_part(basis, log_p, ordered, dtype))
    if "scale" in basis.parts:
        values = (basis.values(log_p) - basis.own_centre) / basis.own_spread
        parts.append(_ScalePart(values.astype(dtype), np.zeros(n_classes, np.int64)))
    if "shift" in basis.parts:
        parts.append(_ShiftPart(len(log_p), np.zeros(n_classes, np.int64)))
    linear = [part for part in basis.parts if part in LINEAR]
    features = {part: basis.features(part, log_p, ordered).astype(dtype) for part in linear}
    if "confusion" in linear and n_classes >= _SPARSE_CLASSES:
        from scipy.sparse import csr_array  # on first use: importing it takes longer than glayers

        linear.remove("confusion")
        owners = np.zeros((n_classes, n_classes), np.int64)
        means = basis.means["confusion"].astype(dtype)
        parts.append(_LinearPart(csr_array(features["confusion"]), means, ("confusion",), owners))
    if linear:
        owners = np.concatenate([np.full(features[part].shape[1], place) for place, part in enumerate(linear)])
        together = np.concatenate([features[part] for part in linear], axis=1)
        means = np.concatenate([basis.means[part] for part in linear]).astype(dtype)
        parts.append(_LinearPart(together, means, tuple(linear), np.repeat(owners[:, None], n_classes, axis=1)))
    if weights is None:
        weights = np.ones(len(log_p))
    base = log_p if lowered is None else log_p + lowered
    counted = weights * (effective_rows(weights) / weights.sum())
    return Design(basis, base.astype(dtype), labels, counted, tuple(parts))


def _shared_part(basis: Basis, log_p: Floats, ordered: Floats, dtype: type) -> _SharedPart:
    places = None
    if log_p.shape[1] > DEPTH:
        places = np.argpartition(log_p, -DEPTH, axis=1)[:, -DEPTH:]
        # Every other class moves as the tenth does, so only differences from it matter.
        bent = np.stack(bends(np.take_along_axis(log_p, places, axis=1))) - np.stack(bends(tenth(ordered)))
    else:
        bent = np.stack(bends(log_p))
    seen = context(raw_context(log_p, ordered), basis.context_centre, basis.context_spread)
    linear = np.maximum(log_p, LOWEST)
    return _SharedPart(linear.astype(dtype), bent.astype(dtype), seen.astype(dtype), places)


@dataclass(frozen=True, eq=False)
class Curvature:
    """The inverse of the penalised curvature at one point, part by part."""

    design: Design
    inverses: tuple[Inverse, ...]

    def solve(self, flat: Floats) -> Floats:
        """Return the inverse curvature times a vector."""
        parts = zip(self.inverses, self.design.split(flat), strict=True)
        return np.concatenate([inverse.solve(slopes).ravel() for inverse, slopes in parts])

    def variances(self) -> Floats:
        """Return the posterior variance of each coefficient."""
        return np.concatenate([inverse.variances().ravel() for inverse in self.inverses])


def curvature_of(design: Design, probabilities: Array, precisions: Floats) -> Curvature:
    """Return the curvature at some probabilities, with the precision of each coefficient."""
    some = slice(None, None, max(1, len(design.labels) // _CURVATURE_ROWS))
    sample = design.take(some)
    p = probabilities[some].astype(np.float64)
    weights = sample.weights * (design.weights.sum() / max(sample.weights.sum(), _ALMOST_NONE))
    at = Point(p, weights, np.diag(weights @ p) - (p.T * weights) @ p)
    of_parts = zip(sample.parts, design.split(precisions), strict=True)
    return Curvature(design, tuple(part.inverse(at, precision) for part, precision in of_parts))


def corrected_map(design: Design, flat: Floats) -> Corrected:
    """Return the fitted model as a step of a map; standardisation goes into its weights."""
    basis = design.basis
    weights: dict[str, Floats] = {}
    bias = np.zeros(basis.n_classes)
    slopes = np.zeros(basis.n_classes)
    branches: list[Chain] = []
    for part, coefficients in zip(design.parts, design.split(flat), strict=True):
        if isinstance(part, _SharedPart):
            branches.append(Chain((Shared(coefficients, basis.context_centre, basis.context_spread),)))
        elif isinstance(part, _ScalePart):
            slopes = coefficients / basis.own_spread
            bias = bias - basis.own_centre * slopes
        elif isinstance(part, _ShiftPart):
            bias = bias + coefficients
        elif isinstance(part, _LinearPart):
            bias = bias - (part.means.astype(np.float64) * coefficients).sum(axis=0)
            for place, name in enumerate(part.names):
                weights[name] = coefficients[part.owners[:, 0] == place]
    first = Chain((Centred(),)) if basis.inputs == "centred" else Chain(())
    if "matrix" in weights:
        weight = weights["matrix"] / basis.spread[:, None]
        branches.append(first + Chain((Dense(weight + np.diag(slopes), bias),)))
    elif slopes.any() or bias.any():
        branches.append(first + Chain((Diagonal(slopes, bias),)))
    if "hinges" in weights:
        weight = weights["hinges"] / basis.hinge_spread[:, None]
        branches.append(first + Chain((HingeLayer(basis.knots, weight.reshape(*basis.knots.shape, -1)),)))
    if "confusion" in weights:
        weight = weights["confusion"] * np.sqrt(basis.n_classes)
        branches.append(Chain((TopProbabilities(), Dense(weight, np.zeros(basis.n_classes)))))
    return Corrected(tuple(branches))
