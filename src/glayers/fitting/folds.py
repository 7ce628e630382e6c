"""Rows and groups -> folds for cross-validation, and held-out losses before and after -> the gain and its error.

Folds are not stratified by label. Stratified folds would tell the training rows how frequent each class is among the
held-out rows. Intercepts that fit random class frequencies would then look like a gain, and fail on new rows.
"""

import math

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.arrays import effective_rows as effective_rows  # for the fits that count rows with it
from glayers.checks import whole_number
from glayers.errors import GlayersError
from glayers.predictions import Predictions

# A true gain of zero exceeds two standard errors once in 44 times with many observations and once in 23 times with 8
# (Student's t with 7 degrees of freedom). With 3 it is once in 11, and one extreme row suffices.
LEAST_OBSERVATIONS = 8


def row_weights(given: Predictions) -> Floats:
    """Return the weights of the rows, which are 1 if none were given."""
    if given.weights is None:
        return np.ones(len(given))
    return np.asarray(given.weights)


def assign_folds(n_rows: int, groups: Array | None, n_folds: int, random_state: int) -> Ints:
    """Return the fold (n,) that holds out each row: random, of equal size; a group goes whole to the smallest fold.

    >>> np.bincount(assign_folds(7, None, n_folds=3, random_state=0)).tolist()
    [3, 2, 2]
    """
    n_folds = whole_number(n_folds, "n_folds", least=2)
    if n_rows < 2:
        raise GlayersError(f"cross-validation needs at least 2 rows, one to hold out; got {n_rows}")
    rng = np.random.default_rng(random_state)
    if groups is None:
        return rng.permutation(np.arange(n_rows) % min(n_folds, n_rows))
    _, members, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        raise GlayersError("groups must hold at least 2 different values to hold one of them out")
    fold_of_group = np.zeros_like(sizes)
    filled = np.zeros(min(n_folds, len(sizes)))
    for group in np.lexsort((rng.random(len(sizes)), -sizes)):  # large groups first, equal ones in random order
        fold_of_group[group] = filled.argmin()
        filled[fold_of_group[group]] += sizes[group]
    return fold_of_group[members]


def draw_rows(n_rows: int, weights: Floats | None, most: int, random_state: int) -> Ints:
    """Return at most this many random rows in ascending order, blind to labels and groups, and none of weight 0.

    >>> draw_rows(5, np.array([1.0, 0.0, 2.0, 1.0, 1.0]), most=3, random_state=0).tolist()
    [0, 2, 3]
    """
    rng = np.random.default_rng(random_state)
    counted = np.arange(n_rows) if weights is None else np.flatnonzero(weights)
    return np.sort(rng.permutation(counted)[:most])


def fold_weights(folds: Ints, weights: Floats | None) -> tuple[Floats, Floats]:
    """Return row weights (folds, n) for training and for held-out rows, each summing to 1 per fold."""
    given = np.ones(len(folds)) if weights is None else weights
    held_out = (folds == np.arange(folds.max() + 1)[:, None]) * given
    train = given - held_out
    if not (held_out.sum(axis=1) > 0).all() or not (train.sum(axis=1) > 0).all():
        raise GlayersError("a fold has no weight to train on or to hold out: too few rows have a positive weight")
    return train / train.sum(axis=1, keepdims=True), held_out / held_out.sum(axis=1, keepdims=True)


def fold_fractions(folds: Ints, weights: Floats | None) -> Floats:
    """Return the fraction of the weight that each fold holds out; held-out losses average by it."""
    held = np.bincount(folds, weights=weights, minlength=int(folds.max()) + 1).astype(np.float64)
    return held / held.sum()


def paired_gain(before: Floats, after: Floats, weights: Floats | None, groups: Array | None) -> tuple[float, float]:
    """Return the mean fall of the loss per row and its standard error; a group counts as one observation.

    Observations of unequal weights w are worth (sum w)^2 / sum w^2 equal ones (Kish). With fewer than 8 the error is
    infinite: their spread is too uncertain to judge a gain by.

    >>> paired_gain(np.arange(2.0, 12.0), np.arange(1.0, 11.0), None, None)
    (1.0, 0.0)
    >>> paired_gain(np.array([2.0, 3.0, 4.0]), np.array([1.0, 2.0, 3.0]), None, None)
    (1.0, inf)
    """
    counted = np.ones(len(before)) if weights is None else weights
    used = counted > 0
    fractions = counted[used] / counted.sum()
    with np.errstate(over="ignore", invalid="ignore"):
        gains = before[used] - after[used]
        mean = float((fractions * gains).sum())
        deviations = fractions * (gains - mean)
        if groups is not None:
            _, members = np.unique(groups[used], return_inverse=True)
            deviations = np.bincount(members, weights=deviations)
            fractions = np.bincount(members, weights=fractions)
        squares = float(deviations @ deviations)
    if not math.isfinite(squares):
        return 0.0, math.inf  # losses too large to subtract or to square are no evidence
    observations = 1.0 / float(fractions @ fractions)
    if observations < LEAST_OBSERVATIONS * (1 - 1e-12):  # rounding: eight times 1/8 may exceed 1
        return mean, math.inf
    return mean, math.sqrt(squares * observations / (observations - 1))


def design_effect(slopes: Floats, groups: Array | None) -> float:
    """Return how many times the variance of a sum of slopes grows because rows of one group depend on each other.

    >>> design_effect(np.array([1.0, 1.0, -1.0, -1.0]), np.array([0, 0, 1, 1]))
    4.0
    """
    if groups is None or not slopes.any():
        return 1.0
    _, members = np.unique(groups, return_inverse=True)
    sums = np.bincount(members, slopes)
    if len(sums) == 1:  # its rows may be copies of one
        return float(len(slopes))
    return max(1.0, float(sums @ sums / (slopes @ slopes)) * len(sums) / (len(sums) - 1))


def format_gain(gain: float, error: float) -> str:
    """Return a gain with its standard error, or why it has none.

    >>> format_gain(0.0123, 0.004), format_gain(0.0123, math.inf)
    ('0.012 +- 0.004', '0.012 (too few rows or groups for a standard error)')
    """
    if math.isfinite(error):
        return f"{gain:.2g} +- {error:.2g}"
    return f"{gain:.2g} (too few rows or groups for a standard error)"
