"""Log-probabilities of rows -> parts of a correction: features with one coefficient each, and what they add to a score.

There are three kinds of parts: functions shared by all classes, one coefficient per class, and one coefficient per
feature and class. Each knows what its coefficients add to the scores of the rows, the transpose of that, and its own
curvature. The curvature preconditions a fit, and afterwards it is the posterior of the coefficients.

Features are centred for each class where that class is in question, so that no part can take the place of the shifts.
"""

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

_BY_FEATURE = ("matrix", "confusion", "hinges")  # their features depend on each other, so they are one part of a fit
_ALMOST_NONE = 1e-12  # keeps a share of nothing finite
_LEAST_SPREAD = 1e-3  # of a feature that hardly varies
_LEAST_HINGE = 0.05  # added to the spread of a hinge: one that few rows reach stays small
_QUANTILES = (0.2, 0.4, 0.6, 0.8)  # of the centred log-probabilities of a class: the knots of its hinges
_SPARSE_CLASSES = 50  # from here on ten probabilities of a row are few, and stored as such
_DIAGONAL = 450  # features or classes: beyond, the curvature is taken as diagonal, because inverses would take seconds
_CURVATURE_ROWS = 1_000  # rows that show the curvature
_DOUBLE_ENTRIES = 20_000  # logits up to which float64 costs nothing; above, float32 halves the time


class Basis(NamedTuple):
    """How features are standardised: what makes the coefficients of two fits comparable."""

    parts: tuple[str, ...]
    inputs: str  # of scale and matrix: "centred" log-probabilities, or "log" for log-probabilities as they are
    own: Floats  # (2, classes) centre and spread of the input of a class where it is in question, for its scale
    context: Floats  # (2, 4) centre and spread
    knots: Floats  # (4, classes), or none without hinges
    owners: Ints  # (features,) the part of each feature, as a place in `by_feature`
    spread: Floats  # (features,)
    means: Floats  # (features, classes) what is subtracted for each class, after division by the spread

    @property
    def by_feature(self) -> tuple[str, ...]:
        """The parts with one coefficient per feature and class, but for the shift."""
        return tuple(part for part in _BY_FEATURE if part in self.parts)

    def values(self, log_p: Floats) -> Floats:
        """Return what scales and matrices multiply."""
        if self.inputs == "centred":
            return np.asarray(centred(log_p))
        return log_p

    def features(self, log_p: Floats) -> Floats:
        """Return the features (n, features) as they are."""
        values = self.values(log_p)
        found = [np.zeros((len(log_p), 0))]
        if "matrix" in self.parts:
            found.append(values)
        if "confusion" in self.parts:
            found.append(np.asarray(top_probabilities(log_p, descending(log_p))))
        found += [np.maximum(values - knot, 0.0) for knot in self.knots]
        return np.concatenate(found, axis=1)

    @property
    def is_sparse(self) -> bool:
        """Whether most features of a row are 0."""
        dense = "matrix" in self.parts or "hinges" in self.parts
        return "confusion" in self.parts and not dense and self.means.shape[1] >= _SPARSE_CLASSES


def plain_basis(n_classes: int, parts: Sequence[str], inputs: str = "log") -> Basis:
    """Leave all features as they are, as published penalties expect them."""
    own = np.stack([np.zeros(n_classes), np.ones(n_classes)])
    counts = {"matrix": n_classes, "confusion": n_classes, "hinges": len(_QUANTILES) * n_classes}
    by_feature = [part for part in _BY_FEATURE if part in parts]
    owners = np.repeat(np.arange(len(by_feature)), [counts[part] for part in by_feature])
    knots = np.zeros((0, n_classes))
    context = np.stack([np.zeros(N_CONTEXT - 1), np.ones(N_CONTEXT - 1)])
    means = np.zeros((len(owners), n_classes))
    return Basis(tuple(parts), inputs, own, context, knots, owners, np.ones(len(owners)), means)


def basis_of(log_p: Floats, weights: Floats, parts: Sequence[str], inputs: str = "centred") -> Basis:
    """Standardise features over rows."""
    p = np.exp(log_p)
    in_question = weights[:, None] * p * (1 - p) + _ALMOST_NONE
    in_question /= in_question.sum(axis=0)
    unsure = weights * np.maximum(1 - np.vecdot(p, p), 0.0) + _ALMOST_NONE
    basis = plain_basis(log_p.shape[1], parts, inputs)
    values = basis.values(log_p)
    centre = (in_question * values).sum(axis=0)
    spread = np.sqrt((in_question * (values - centre) ** 2).sum(axis=0)) + _LEAST_SPREAD
    basis = basis._replace(own=np.stack([centre, spread]))
    if "context" in parts:
        basis = basis._replace(context=np.stack(_mean_and_spread(raw_context(log_p, descending(log_p)), weights)))
    if "hinges" in parts:
        basis = basis._replace(knots=np.quantile(values[weights > 0], _QUANTILES, axis=0))
    features = basis.features(log_p)
    _, spread = _mean_and_spread(features, unsure)
    for place, part in enumerate(basis.by_feature):
        own = basis.owners == place
        if part == "confusion":
            spread[own] = 1 / np.sqrt(log_p.shape[1])
        elif part == "hinges":
            spread[own] += _LEAST_HINGE
    return basis._replace(spread=spread, means=(features / spread).T @ in_question)


def _mean_and_spread(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    shares = weights / weights.sum()
    mean = shares @ values
    return mean, np.sqrt(shares @ (values - mean) ** 2) + _LEAST_SPREAD


class Inverse(NamedTuple):
    """The inverse of a penalised curvature: its values, and the vectors that turn coefficients into their directions.

    Coefficients are (features, classes), and a Kronecker product has the eigenvectors of both. None is no turn.
    """

    values: Floats
    features: Floats | None = None
    classes: Floats | None = None

    def solve(self, slopes: Floats) -> Floats:
        """Return the inverse times the slopes of the coefficients."""
        if self.features is None or self.classes is None:
            return self.values * slopes
        return self._turned(self.values * (self.features.T @ slopes @ self.classes))

    def variances(self) -> Floats:
        """Return the posterior variance of each coefficient."""
        if self.features is None or self.classes is None:
            return self.values
        return self.features**2 @ self.values @ (self.classes**2).T

    def draw(self, noise: Floats) -> Floats:
        """Turn standard normal noise into a draw from the posterior, less its mean."""
        return self._turned(np.sqrt(self.values) * noise)

    def _turned(self, directions: Floats) -> Floats:
        if self.features is None or self.classes is None:
            return directions
        return self.features @ directions @ self.classes.T


def _kronecker_inverse(of_features: Floats, of_classes: Floats, precisions: Floats) -> Inverse:
    """Invert the Kronecker product of two curvatures plus the precision of each feature."""
    scale = 1 / np.sqrt(precisions)
    class_values, class_vectors = np.linalg.eigh(of_classes)
    feature_values, feature_vectors = np.linalg.eigh(scale[:, None] * of_features * scale)
    curved = np.maximum(feature_values, 0.0)[:, None] * np.maximum(class_values, 0.0)
    return Inverse(1 / (1 + curved), scale[:, None] * feature_vectors, class_vectors)


@dataclass(frozen=True, eq=False)
class SharedPart:
    """Functions shared by all classes: `linear` (n, classes), `bends` (b, n, outcomes) and `context` (n, j).

    `places` (n, outcomes) are the columns of the outcomes, or None if these are all classes. Coefficients are
    (functions x context, 1).
    """

    linear: Array
    bends: Array
    context: Array
    places: Ints | None
    names: tuple[str, ...]
    owners: Ints

    def take(self, rows: Any) -> "SharedPart":
        """Return some of the rows."""
        places = None if self.places is None else self.places[rows]
        return replace(
            self, linear=self.linear[rows], bends=self.bends[:, rows], context=self.context[rows], places=places
        )

    def add_scores(self, coefficients: Array, result: Array) -> None:
        """Add what the part adds to the scores (n, classes), in place."""
        sizes = self.context @ coefficients.reshape(-1, self.context.shape[1]).T
        result += sizes[:, :1] * self.linear
        moves = np.einsum("ns,sno->no", sizes[:, 1:], self.bends)
        if self.places is None:
            result += moves
        else:
            result[np.arange(len(moves))[:, None], self.places] += moves

    def slopes(self, by_score: Array) -> Array:
        """Return the transpose of `add_scores`."""
        own = self._outcomes(by_score)
        by_size = [np.vecdot(by_score, self.linear), *np.einsum("no,sno->sn", own, self.bends)]
        return np.stack(by_size) @ self.context

    def inverse(self, p: Floats, weights: Floats, precisions: Floats) -> Inverse:
        """Sum over rows of context x context times the covariance of the functions under the probabilities."""
        linear = self.linear.astype(np.float64)
        functions = np.concatenate([self._outcomes(linear)[None], self.bends.astype(np.float64)])
        weighted = functions * self._outcomes(p)
        mean = weighted.sum(axis=2)
        second = weighted.transpose(1, 0, 2) @ functions.transpose(1, 2, 0)
        if self.places is not None:  # the first function also counts where the others are 0
            mean[0] = np.vecdot(p, linear)
            second[:, 0, 0] = np.vecdot(p * linear, linear)
        covariance = second - np.einsum("sn,tn->nst", mean, mean)
        pairs = np.einsum("nj,nk,n->njk", self.context, self.context, weights)
        summed = np.einsum("nst,njk->sjtk", covariance, pairs, optimize=True)
        return _kronecker_inverse(summed.reshape(len(precisions), -1), np.ones((1, 1)), precisions[:, 0])

    def _outcomes(self, values: Array) -> Array:
        if self.places is None:
            return values
        return np.take_along_axis(values, self.places, axis=1)


@dataclass(frozen=True, eq=False)
class ScalePart:
    """One scale per class: coefficients (classes,) times `values` (n, classes)."""

    values: Array
    names = ("scale",)

    @property
    def owners(self) -> Ints:
        """The place in `names` of each coefficient."""
        return np.zeros(self.values.shape[1], np.int64)

    def take(self, rows: Any) -> "ScalePart":
        """Return some of the rows."""
        return ScalePart(self.values[rows])

    def add_scores(self, coefficients: Array, result: Array) -> None:
        """Add what the part adds to the scores (n, classes), in place."""
        result += self.values * coefficients

    def slopes(self, by_score: Array) -> Array:
        """Return the transpose of `add_scores`."""
        return np.einsum("nc,nc->c", by_score, self.values)

    def inverse(self, p: Floats, weights: Floats, precisions: Floats) -> Inverse:
        """Take the curvature as diagonal."""
        return Inverse(1 / (weights @ (p * (1 - p) * self.values**2) + precisions))


@dataclass(frozen=True, eq=False)
class LinearPart:
    """Features (n, j), dense or sparse, with one coefficient per feature and class: (j, classes).

    `means` (j, classes) are subtracted for each class.
    """

    features: Any
    means: Array
    names: tuple[str, ...]
    owners: Ints

    def take(self, rows: Any) -> "LinearPart":
        """Return some of the rows."""
        return replace(self, features=self.features[rows])

    def add_scores(self, coefficients: Array, result: Array) -> None:
        """Add what the part adds to the scores (n, classes), in place."""
        result += self.features @ coefficients
        result -= (self.means * coefficients).sum(axis=0)

    def slopes(self, by_score: Array) -> Array:
        """Return the transpose of `add_scores`."""
        total = np.ones(len(by_score), by_score.dtype) @ by_score
        return self.features.T @ by_score - self.means * total

    def inverse(self, p: Floats, weights: Floats, precisions: Floats) -> Inverse:
        """Take the curvature as that of classes times the covariance of the features around their class means.

        Such a Kronecker product has the eigenvectors of both. Martens and Grosse, "K-FAC", ICML 2015.
        """
        unsure = weights * np.maximum(1 - np.vecdot(p, p), 0.0)
        unsure = unsure / max(unsure.sum(), _ALMOST_NONE)
        of_class = weights @ (p * (1 - p))
        shares = of_class / max(of_class.sum(), _ALMOST_NONE)
        means = self.means.astype(np.float64)
        if not isinstance(self.features, np.ndarray) or max(precisions.shape) > _DIAGONAL:
            squares = (self.features * self.features).T @ unsure
            variances = np.maximum(squares - means**2 @ shares, 0.0)
            return Inverse(1 / (variances[:, None] * of_class + precisions))
        weighted = self.features.astype(np.float64) * np.sqrt(unsure)[:, None]
        covariance = weighted.T @ weighted - (means * shares) @ means.T
        of_classes = np.diag(weights @ p) - (p.T * weights) @ p
        return _kronecker_inverse(covariance, of_classes, precisions[:, 0])


Part = SharedPart | ScalePart | LinearPart


@dataclass(frozen=True, eq=False)
class Design:
    """Rows as parts. Coefficients are one flat vector, part after part; weights sum to the effective number of rows."""

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
        return Design(self.base[rows], self.labels[rows], self.weights[rows], parts)

    def only(self, names: Sequence[str]) -> "Design":
        """Return the same rows with the parts of these names."""
        return replace(self, parts=tuple(part for part in self.parts if part.names[0] in names))

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
        return np.concatenate([part.slopes(by_score).ravel() for part in self.parts]).astype(np.float64)


def design_of(
    basis: Basis, log_p: Floats, labels: Ints, weights: Floats | None = None, lowered: Floats | None = None
) -> Design:
    """Prepare rows once for any number of fits; `lowered` is added to the scores, -inf for impossible classes."""
    dtype = np.float64 if log_p.size <= _DOUBLE_ENTRIES else np.float32
    parts: list[Part] = []
    if "shared" in basis.parts:
        parts.append(_shared_part(basis, log_p, dtype))
    if "scale" in basis.parts:
        centre, spread = basis.own
        parts.append(ScalePart(((basis.values(log_p) - centre) / spread).astype(dtype)))
    if "shift" in basis.parts:
        shape = 1, log_p.shape[1]
        constant = np.ones((len(log_p), 1), dtype)
        parts.append(LinearPart(constant, np.zeros(shape, dtype), ("shift",), np.zeros(shape, np.int64)))
    if basis.by_feature:
        features: Any = (basis.features(log_p) / basis.spread).astype(dtype)
        owners = np.repeat(basis.owners[:, None], log_p.shape[1], axis=1)
        if basis.is_sparse:
            from scipy.sparse import csr_array  # on first use: importing it takes longer than glayers

            features = csr_array(features)
        parts.append(LinearPart(features, basis.means.astype(dtype), basis.by_feature, owners))
    if weights is None:
        weights = np.ones(len(log_p))
    base = log_p if lowered is None else log_p + lowered
    counted = weights / weights.sum() * effective_rows(weights)
    return Design(base.astype(dtype), labels, counted, tuple(parts))


def _shared_part(basis: Basis, log_p: Floats, dtype: type) -> SharedPart:
    ordered = descending(log_p)
    if log_p.shape[1] > DEPTH:
        places = np.argpartition(log_p, -DEPTH, axis=1)[:, -DEPTH:]
        # Every other class moves as the tenth does, so only differences from it matter.
        pairs = zip(bends(np.take_along_axis(log_p, places, axis=1)), bends(tenth(ordered)), strict=True)
        bent = [each - last for each, last in pairs]
    else:
        places = None
        bent = bends(log_p)
    names: tuple[str, ...] = ("shared",)
    seen = np.ones((len(log_p), 1))
    if "context" in basis.parts:
        names = ("shared", "context")
        seen = context(raw_context(log_p, ordered), *basis.context)
    constant_first = np.tile(np.minimum(np.arange(seen.shape[1]), 1), N_SHAPES)
    return SharedPart(
        np.maximum(log_p, LOWEST).astype(dtype),
        np.stack(bent).astype(dtype),
        seen.astype(dtype),
        places,
        names,
        constant_first[:, None],
    )


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
    of_parts = zip(sample.parts, design.split(precisions), strict=True)
    return Curvature(design, tuple(part.inverse(p, weights, precision) for part, precision in of_parts))


def corrected_map(basis: Basis, design: Design, flat: Floats) -> Corrected:
    """Return the fitted model as a step of a map; standardisation goes into its weights."""
    n_classes = design.base.shape[1]
    branches: list[Chain] = []
    slopes = np.zeros(n_classes)
    bias = np.zeros(n_classes)
    weights: dict[str, Floats] = {}
    for part, coefficients in zip(design.parts, design.split(flat), strict=True):
        if isinstance(part, SharedPart):
            weight = np.zeros((N_SHAPES, N_CONTEXT))
            weight[:, : part.context.shape[1]] = coefficients.reshape(N_SHAPES, -1)
            branches.append(Chain((Shared(weight, *basis.context),)))
        elif isinstance(part, ScalePart):
            centre, spread = basis.own
            slopes = coefficients / spread
            bias -= centre * slopes
        elif part.names == ("shift",):
            bias += coefficients[0]
        else:
            bias -= (basis.means * coefficients).sum(axis=0)
            scaled = coefficients / basis.spread[:, None]
            weights = {name: scaled[basis.owners == place] for place, name in enumerate(part.names)}
    first = Chain((Centred(),)) if basis.inputs == "centred" else Chain(())
    if "matrix" in weights:
        branches.append(first + Chain((Dense(weights["matrix"] + np.diag(slopes), bias),)))
    elif slopes.any() or bias.any():
        branches.append(first + Chain((Diagonal(slopes, bias),)))
    if "hinges" in weights:
        branches.append(first + Chain((HingeLayer(basis.knots, weights["hinges"].reshape(*basis.knots.shape, -1)),)))
    if "confusion" in weights:
        branches.append(Chain((TopProbabilities(), Dense(weights["confusion"], np.zeros(n_classes)))))
    return Corrected(tuple(branches))
