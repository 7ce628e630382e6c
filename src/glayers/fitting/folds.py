"""Rows and groups -> folds: every row gets the number of the fold that holds it out.

Labels have no say. Folds that each hold a class as often as all rows do tell the training rows how often it comes in
the held-out ones: an intercept that learns a class's chance excess would look like a gain, and be none on new rows.
"""

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.errors import GlayersError
from glayers.settings import whole_number


def assign_folds(n_rows: int, groups: Array | None, n_folds: int, random_state: int) -> Ints:
    """Deal rows out at random, equally many to each fold; with groups, each goes whole to the fold with least rows.

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
    fold_of_group = np.empty(len(sizes), dtype=np.int64)
    filled = np.zeros(min(n_folds, len(sizes)))
    for group in np.lexsort((rng.random(len(sizes)), -sizes)):  # large ones first, equal ones in random order
        fold_of_group[group] = filled.argmin()
        filled[fold_of_group[group]] += sizes[group]
    return fold_of_group[members]


def fold_weights(folds: Ints, weights: Floats | None) -> tuple[Floats, Floats]:
    """Return row weights (folds, n) of the training rows of each fold and of its held-out rows, rows summing to 1."""
    shares = np.ones(len(folds)) if weights is None else weights
    held_out = (folds == np.arange(folds.max() + 1)[:, None]) * shares
    train = shares - held_out
    if not (held_out.sum(axis=1) > 0).all() or not (train.sum(axis=1) > 0).all():
        raise GlayersError("a fold has no weight to train on or to hold out: weights sit on too few rows")
    return train / train.sum(axis=1, keepdims=True), held_out / held_out.sum(axis=1, keepdims=True)


def fold_shares(folds: Ints, weights: Floats | None) -> Floats:
    """Return how much of the weight each fold holds out; with these, held-out losses add up to that of all rows."""
    held = np.bincount(folds, weights=weights, minlength=int(folds.max()) + 1).astype(np.float64)
    return held / held.sum()
