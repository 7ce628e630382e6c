"""Labels and groups -> folds: every row gets the number of the fold that holds it out."""

import warnings

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold

from glayers.arrays import Array, Floats, Ints
from glayers.errors import GlayersError


def assign_folds(labels: Ints, groups: Array | None, n_folds: int, random_state: int) -> Ints:
    """Stratify by label, however rare a class is; with groups, keep each group within one fold.

    >>> assign_folds(np.array([0, 0, 0, 1, 1, 1, 2]), None, n_folds=3, random_state=0).shape
    (7,)
    """
    if n_folds < 2:
        raise GlayersError(f"cross-validation needs at least 2 folds; got {n_folds}")
    if len(labels) < 2:
        raise GlayersError(f"cross-validation needs at least 2 rows, one to hold out; got {len(labels)}")
    rng = np.random.default_rng(random_state)
    folds = np.empty(len(labels), dtype=np.int64)
    if groups is None:
        # Rows of one class stand together in random order; dealing them out like cards stratifies.
        order = np.lexsort((rng.random(len(labels)), labels))
        folds[order] = np.arange(len(labels)) % min(n_folds, len(labels))
        return folds
    n_groups = len(np.unique(groups))
    if n_groups < 2:
        raise GlayersError("groups must hold at least 2 different values to hold one of them out")
    splitter = StratifiedGroupKFold(min(n_folds, n_groups), shuffle=True, random_state=random_state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a rare class cannot be in every fold; nothing is lost by it
        for fold, (_, held_out) in enumerate(splitter.split(labels, labels, groups)):
            folds[held_out] = fold
    return folds


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
