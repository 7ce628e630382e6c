"""Log-probabilities of rows -> parts of a correction: features with one coefficient each, and what they add to a score.

There are three kinds of parts: functions shared by all classes, one scale per class, and one coefficient per feature
and class. Each knows what its coefficients add to the scores of the rows, the transpose of that, and its curvature.

Features are centred for each class where that class is in question, so that no part can take the place of the shifts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from glayers.activations import softmax
from glayers.arrays import Array, Floats, Ints, effective_rows, map_row_blocks, row_blocks
from glayers.fitting.folds import draw_rows
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
    bends,
    centred,
    context,
    descending,
    raw_context,
    tenth,
)

SHARED = ("shared", "context")
CLASSES = ("scale", "shift")  # parts with one coefficient per class
PAIRS = ("matrix", "hinges")  # parts with one coefficient per pair of classes
PARTS = (*SHARED, *CLASSES, *PAIRS)
_ALMOST_NONE = np.finfo(np.float64).eps  # keeps a share of nothing finite
_QUANTILES = (0.2, 0.4, 0.6, 0.8)  # of the centred log-probabilities of a class: the knots of its hinges
# Added to the spread of a feature, in nats. From this to fifty times as much, the held-out loss changes by less than
# 0.0005.
_LEAST = 1e-3
_CURVATURE_ROWS = 1_000  # rows that show the curvature
DOUBLE_ENTRIES = 20_000  # logits up to which float64 costs nothing; above, float32 halves the time


class Basis(NamedTuple):
    """How features are standardised."""

    names: tuple[str, ...]
    inputs: str  # of scale and matrix: "centred" log-probabilities, or "log" for log-probabilities as they are
    own: Floats  # (2, classes) centre and spread of the input of a class where it is in question, for its scale
    context: Floats  # (2, 4) centre and spread
    knots: Floats  # (4, classes), or none without hinges
    spread: Floats  # (features,)
    means: Floats  # (features, classes) what is subtracted for each class, after division by the spread

    @property
    def pairs(self) -> tuple[str, ...]:
        """The parts with one coefficient per pair of classes."""
        return self.chosen(PAIRS)

    def chosen(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return which of these parts there are."""
        return tuple(name for name in names if name in self.names)

    @property
    def owners(self) -> Ints:
        """The part of each feature, as a place in `pairs`."""
        n_classes = self.own.shape[1]
        sizes = {"matrix": n_classes, "hinges": len(_QUANTILES) * n_classes}
        return np.repeat(np.arange(len(self.pairs)), [sizes[name] for name in self.pairs])

    def values(self, log_p: Floats) -> Floats:
        """Return what scales and matrices multiply."""
        return np.asarray(centred(log_p)) if self.inputs == "centred" else log_p

    def features(self, log_p: Floats) -> Floats:
        """Return the features (n, features) of pairs as they are."""
        values = self.values(log_p)
        found = [values] if "matrix" in self.names else []
        return np.concatenate([*found, *(np.maximum(values - knot, 0.0) for knot in self.knots)], axis=1)


def plain_basis(n_classes: int, names: Sequence[str], inputs: str = "log") -> Basis:
    """Leave all features, of log-probabilities, as they are: published penalties expect them so."""
    own = np.stack([np.zeros(n_classes), np.ones(n_classes)])
    seen = np.stack([np.zeros(N_CONTEXT - 1), np.ones(N_CONTEXT - 1)])
    nothing = np.zeros((0, n_classes))
    basis = Basis(tuple(names), inputs, own, seen, nothing, np.ones(0), nothing)
    shape = len(basis.owners), n_classes
    return basis._replace(spread=np.ones(shape[0]), means=np.zeros(shape))


def basis_of(
    log_p: Floats,
    weights: Floats,
    names: Sequence[str],
    inputs: str = "centred",
    lowered: Floats | None = None,
) -> Basis:
    """Standardise features over rows; with `inputs` "plain" they stay as they are.

    `lowered` is added to the scores, -inf for impossible classes: a class counts where it is possible.
    """
    n_classes = log_p.shape[1]
    if inputs == "plain":
        return plain_basis(n_classes, names)
    p = np.exp(log_p) if lowered is None else softmax(log_p + lowered)
    in_question = weights[:, None] * p * (1 - p) + _ALMOST_NONE
    basis = plain_basis(n_classes, names, inputs)
    values = basis.values(log_p)
    basis = basis._replace(own=_mean_and_spread(values, in_question))
    if "context" in names:
        seen = raw_context(log_p, descending(log_p))
        basis = basis._replace(context=_mean_and_spread(seen, weights[:, None]))
    if "hinges" in names:
        counted = weights[:, None] * (p > 0) + _ALMOST_NONE
        knots = np.quantile(values, _QUANTILES, axis=0, weights=counted, method="inverted_cdf")
        basis = basis._replace(knots=knots)
    if not basis.pairs:
        return basis
    features = basis.features(log_p)
    unsure = weights * np.maximum(1 - np.vecdot(p, p), 0.0) + _ALMOST_NONE
    _, spread = _mean_and_spread(features, unsure[:, None])
    means = (features / spread).T @ (in_question / in_question.sum(axis=0))
    return basis._replace(spread=spread, means=means)


def _mean_and_spread(values: Floats, weights: Floats) -> Floats:
    """Return the mean of each column and its spread, by weights of rows (n, 1) or of entries."""
    shares = weights / weights.sum(axis=0)
    mean = (shares * values).sum(axis=0)
    return np.stack([mean, np.sqrt((shares * (values - mean) ** 2).sum(axis=0)) + _LEAST])


@dataclass(frozen=True, eq=False)
class SharedPart:
    """Functions shared by all classes: `linear` (n, classes), `bends` (n, b, outcomes) and `context` (n, j).

    `places` (n, outcomes) are the columns of the outcomes, or None if these are all classes. Coefficients are
    (functions, context).

    Every kind of part has `names`, the parts of the model that have a precision of their own, and `owners`: the place
    in `names` of each coefficient, in the shape of the coefficients.
    """

    names: tuple[str, ...]
    owners: Ints
    linear: Array
    bends: Array
    context: Array
    places: Ints | None = None

    def add_scores(self, coefficients: Array, result: Array) -> None:
        """Add what the part adds to the scores (n, classes), in place."""
        sizes = self.context @ coefficients.T
        result += sizes[:, :1] * self.linear
        moves = np.einsum("ns,nso->no", sizes[:, 1:], self.bends)
        if self.places is None:
            result += moves
        else:
            result[np.arange(len(moves))[:, None], self.places] += moves

    def slopes(self, by_score: Array) -> Array:
        """Return the transpose of `add_scores`."""
        own = self._outcomes(by_score)
        by_size = [np.vecdot(by_score, self.linear), *np.einsum("no,nso->sn", own, self.bends)]
        return np.stack(by_size) @ self.context

    def curvature(self, p: Floats, weights: Floats) -> Floats:
        """Sum over rows of context x context times the covariance of the functions under the probabilities."""
        linear = self.linear.astype(np.float64)
        functions = np.concatenate([self._outcomes(linear)[:, None], self.bends.astype(np.float64)], axis=1)
        own = self._outcomes(p)
        mean = np.einsum("nso,no->ns", functions, own)
        second = (functions * own[:, None]) @ functions.transpose(0, 2, 1)
        if self.places is not None:  # the first function also counts where the others are 0
            mean[:, 0] = np.vecdot(p, linear)
            second[:, 0, 0] = np.vecdot(p * linear, linear)
        covariance = second - np.einsum("ns,nt->nst", mean, mean)
        pairs = np.einsum("nj,nk,n->njk", self.context, self.context, weights)
        summed = np.einsum("nst,njk->sjtk", covariance, pairs, optimize=True)
        return summed.reshape(self.owners.size, -1)

    def _outcomes(self, values: Array) -> Array:
        if self.places is None:
            return values
        return np.take_along_axis(values, self.places, axis=1)


@dataclass(frozen=True, eq=False)
class OwnPart:
    """One coefficient per class for each feature (n, classes), or (n, 1): coefficients (features, classes)."""

    names: tuple[str, ...]
    owners: Ints
    features: list[Array]

    def add_scores(self, coefficients: Array, result: Array) -> None:
        """Add what the part adds to the scores (n, classes), in place."""
        for feature, each in zip(self.features, coefficients, strict=True):
            result += feature * each

    def slopes(self, by_score: Array) -> Array:
        """Return the transpose of `add_scores`."""
        return np.stack([np.einsum("nc,nc->c", by_score, feature) for feature in self.features])

    def curvature(self, p: Floats, weights: Floats) -> Floats:
        """Return the diagonal."""
        unsure = p * (1 - p)
        return np.stack([weights @ (unsure * feature**2) for feature in self.features])

    def variances(self, of_coefficients: Floats) -> Floats:
        """Return the variance of each score, given that of each coefficient."""
        return sum(feature**2 * each for feature, each in zip(self.features, of_coefficients, strict=True))


@dataclass(frozen=True, eq=False)
class PairsPart:
    """Features (n, j) with one coefficient per feature and class: (j, classes).

    `means` (j, classes) are subtracted for each class.
    """

    names: tuple[str, ...]
    owners: Ints
    features: Array
    means: Array

    def add_scores(self, coefficients: Array, result: Array) -> None:
        """Add what the part adds to the scores (n, classes), in place."""
        result += self.features @ coefficients
        result -= (self.means * coefficients).sum(axis=0)

    def slopes(self, by_score: Array) -> Array:
        """Return the transpose of `add_scores`."""
        total = np.ones(len(by_score), by_score.dtype) @ by_score
        return self.features.T @ by_score - self.means * total

    def curvature(self, p: Floats, weights: Floats) -> Floats:
        """Return the diagonal, taken as the variance of each feature times the curvature of each class.

        The exact diagonal counts the same evidence several times, because features depend on each other: precisions
        then come out too high, and the held-out loss of 100 and 200 classes rises by 0.003 to 0.014.
        """
        unsure = weights * np.maximum(1 - np.vecdot(p, p), 0.0)
        of_class = weights @ (p * (1 - p))
        shares = of_class / max(of_class.sum(), _ALMOST_NONE)
        squares = (self.features.astype(np.float64) ** 2).T @ unsure / max(unsure.sum(), _ALMOST_NONE)
        variances = np.maximum(squares - self.means.astype(np.float64) ** 2 @ shares, 0.0)
        return variances[:, None] * of_class

    def variances(self, of_coefficients: Floats) -> Floats:
        """Return the variance of each score, given that of each coefficient: the sum of (feature - mean)^2 v."""
        of_means = of_coefficients * self.means
        crossed = self.features @ of_means
        return np.asarray(self.features**2 @ of_coefficients - 2 * crossed + (of_means * self.means).sum(axis=0))


@dataclass(frozen=True, eq=False)
class Design:
    """Rows as parts. Coefficients are one flat vector, part after part; weights sum to the effective number of rows."""

    basis: Basis
    base: Array
    labels: Ints
    weights: Floats
    arrays: Mapping[str, Array]  # what the parts read, by row

    @cached_property
    def parts(self) -> list[Any]:
        """The parts of these rows."""
        return _parts_of(self.basis, self.arrays)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The precisions of all parts."""
        return self.basis.chosen(PARTS)

    @cached_property
    def owners(self) -> Ints:
        """The precision of each coefficient, as a place in `names`."""
        found = [part.owners.ravel() + self.names.index(part.names[0]) for part in self.parts]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def take(self, rows: Any) -> "Design":
        """Return some of the rows, with their own weights."""
        arrays = {name: array[rows] for name, array in self.arrays.items()}
        return Design(self.basis, self.base[rows], self.labels[rows], self.weights[rows], arrays)

    def split(self, flat: Array) -> list[Array]:
        """Return views of the coefficients of each part, in its shape."""
        found = []
        for part in self.parts:
            found.append(flat[: part.owners.size].reshape(part.owners.shape))
            flat = flat[part.owners.size :]
        return found

    @cached_property
    def blocks(self) -> list[tuple[slice, "Design"]]:
        """The rows in slices that fit into the cache of a processor."""
        return [(rows, self.take(rows)) for rows in row_blocks(*self.base.shape)]

    def scores(self, flat: Floats) -> Array:
        """Return what the parts add to the log-probabilities, (n, classes)."""
        result = np.zeros_like(self.base)
        for part, coefficients in zip(self.parts, self.split(flat.astype(self.base.dtype)), strict=True):
            part.add_scores(coefficients, result)
        return result

    def slopes(self, by_score: Array) -> Floats:
        """Return the derivative by the coefficients, given that of each row by its scores."""
        by_score *= self.weights.astype(by_score.dtype)[:, None]
        return np.concatenate([part.slopes(by_score).ravel() for part in self.parts]).astype(np.float64)


def design_of(
    basis: Basis, log_p: Floats, labels: Ints, weights: Floats | None = None, lowered: Floats | None = None
) -> Design:
    """Prepare rows once for any number of fits; `lowered` is added to the scores, -inf for impossible classes."""
    dtype = np.float64 if log_p.size <= DOUBLE_ENTRIES else np.float32
    by_block = map_row_blocks(lambda rows: _arrays_of(basis, log_p[rows], dtype), *log_p.shape)
    arrays = {name: np.concatenate([block[name] for block in by_block]) for name in by_block[0]}
    if weights is None:
        weights = np.ones(len(log_p))
    base = log_p if lowered is None else log_p + lowered
    counted = weights / weights.sum() * effective_rows(weights)
    return Design(basis, base.astype(dtype, copy=False), labels, counted, arrays)


def _arrays_of(basis: Basis, log_p: Floats, dtype: Any) -> dict[str, Array]:
    """Return the arrays of all parts, for some rows."""
    found: dict[str, Array] = {}
    if "shared" in basis.names:
        found |= _shared_arrays(basis, log_p)
    if "scale" in basis.names:
        centre, spread = basis.own
        found["scale"] = (basis.values(log_p) - centre) / spread
    if "shift" in basis.names:
        found["shift"] = np.ones((len(log_p), 1))
    if basis.pairs:
        found["features"] = basis.features(log_p) / basis.spread
    return {name: array if name == "places" else array.astype(dtype) for name, array in found.items()}


def _shared_arrays(basis: Basis, log_p: Floats) -> dict[str, Array]:
    found = {"linear": np.maximum(log_p, LOWEST), "context": np.ones((len(log_p), 1))}
    ordered = descending(log_p)
    if log_p.shape[1] <= DEPTH:
        bent = bends(log_p)
    else:
        places = np.argpartition(log_p, -DEPTH, axis=1)[:, -DEPTH:]
        # Every other class moves as the tenth does, so only differences from it matter.
        pairs = zip(bends(np.take_along_axis(log_p, places, axis=1)), bends(tenth(ordered)), strict=True)
        bent = [each - last for each, last in pairs]
        found["places"] = places
    found["bends"] = np.stack(bent, axis=1)
    if "context" in basis.names:
        found["context"] = context(raw_context(log_p, ordered), *basis.context)
    return found


def _parts_of(basis: Basis, arrays: Mapping[str, Array]) -> list[Any]:
    parts: list[Any] = []
    n_classes = basis.own.shape[1]
    names = basis.chosen(SHARED)
    if names:
        # The coefficients of the constant belong to "shared", all others to "context".
        owners = np.tile(np.minimum(np.arange(arrays["context"].shape[1]), 1), (1 + arrays["bends"].shape[1], 1))
        bent = arrays["linear"], arrays["bends"], arrays["context"], arrays.get("places")
        parts.append(SharedPart(names, owners, *bent))
    names = basis.chosen(CLASSES)
    if names:
        owners = np.repeat(np.arange(len(names))[:, None], n_classes, axis=1)
        parts.append(OwnPart(names, owners, [arrays[name] for name in names]))
    if basis.pairs:
        owners = np.repeat(basis.owners[:, None], n_classes, axis=1)
        features = arrays["features"]
        parts.append(PairsPart(basis.pairs, owners, features, basis.means.astype(features.dtype)))
    return parts


@dataclass(frozen=True, eq=False)
class Curvature:
    """A matrix over the coefficients: a block for the shared part, a diagonal for all others.

    That of the loss at one point, without the prior, or the inverse of the penalised one. The inverse preconditions a
    fit, and afterwards it is the covariance of the coefficients.
    """

    block: Floats
    diagonal: Floats

    def inverse(self, precisions: Floats) -> "Curvature":
        """Add the precision of each coefficient, and invert."""
        n_shared = len(self.block)
        block: Any = self.block + np.diag(precisions[:n_shared])
        return Curvature(np.linalg.inv(block), 1 / (self.diagonal + precisions[n_shared:]))

    def times(self, flat: Floats) -> Floats:
        """Return the matrix times a vector."""
        n_shared = len(self.block)
        return np.concatenate([self.block @ flat[:n_shared], self.diagonal * flat[n_shared:]])

    def draw(self, rng: np.random.Generator) -> Floats:
        """Return a draw from the posterior around zero, whose covariance this is."""
        normal = rng.standard_normal(len(self.block) + len(self.diagonal))
        root: Any = np.linalg.cholesky(self.block)
        return Curvature(root, np.sqrt(self.diagonal)).times(normal)

    def variances(self) -> Floats:
        """Return the diagonal: of a covariance, the variance of each coefficient."""
        return np.concatenate([np.diagonal(self.block), self.diagonal])


def curvature_of(design: Design, probabilities: Array) -> Curvature:
    """Return the curvature at some probabilities."""
    some = draw_rows(len(design.labels), design.weights, _CURVATURE_ROWS, random_state=0)
    sample = design.take(some)
    p = probabilities[some].astype(np.float64)
    weights = sample.weights * (design.weights.sum() / sample.weights.sum())
    found = [part.curvature(p, weights) for part in sample.parts]
    block = found.pop(0) if "shared" in design.names else np.zeros((0, 0))
    return Curvature(block, np.concatenate([np.zeros(0), *(each.ravel() for each in found)]))


def corrected_map(design: Design, flat: Floats) -> Corrected:
    """Return the fitted model as a step of a map; standardisation goes into its weights."""
    basis = design.basis
    n_classes = design.base.shape[1]
    branches: list[Chain] = []
    slopes = bias = np.zeros(n_classes)
    weights: Mapping[str, Floats] = {}
    for part, coefficients in zip(design.parts, design.split(flat), strict=True):
        if isinstance(part, SharedPart):
            weight = np.zeros((N_SHAPES, N_CONTEXT))
            weight[:, : coefficients.shape[1]] = coefficients
            branches.append(Chain((Shared(weight, *basis.context),)))
        elif isinstance(part, OwnPart):
            of_name = dict(zip(part.names, coefficients, strict=True))
            centre, spread = basis.own
            slopes = of_name.get("scale", slopes) / spread
            bias = of_name.get("shift", bias) - centre * slopes
        else:
            bias = bias - (basis.means * coefficients).sum(axis=0)
            scaled = coefficients / basis.spread[:, None]
            weights = {name: scaled[basis.owners == place] for place, name in enumerate(part.names)}
    first = Chain((Centred(),)) if basis.inputs == "centred" else Chain(())
    if "matrix" in weights:
        branches.append(first + Chain((Dense(weights["matrix"] + np.diag(slopes), bias),)))
    elif slopes.any() or bias.any():
        branches.append(first + Chain((Diagonal(slopes, bias),)))
    if "hinges" in weights:
        branches.append(first + Chain((HingeLayer(basis.knots, weights["hinges"].reshape(*basis.knots.shape, -1)),)))
    return Corrected(tuple(branches))
