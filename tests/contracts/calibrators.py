"""Every calibrator by name, with settings that fit in a moment, and rows for it that leave each something to learn."""

import warnings
from functools import cache
from typing import Any

import numpy as np
import pytest

from glayers import CALIBRATORS, GlayersWarning, testing
from glayers.calibrators import Calibrator
from tests.strategies import Numbers

CLASSES = testing.CLASSES
ROWS = testing.ROWS
tilted = testing.tilted_rows
WEIGHTS = np.linspace(0.5, 2.0, ROWS)
# Where the settings of the library itself would take seconds a fit.
FAST: dict[str, dict[str, Any]] = {
    "auto": {"time_budget": 1.0, "n_folds": 2},  # leaves g-layers out; they have entries of their own
    "vector": {"strength": 1.0},
    "matrix": {"strength": 1.0},
    "matrix-odir": {"strength": 0.1},
    "dirichlet": {"strength": 0.1},
    "g-layers": {"max_epochs": 3, "n_folds": 2, "learning_rate": 0.03, "random_state": 0},
    "g-layers-paper": {"max_epochs": 3, "learning_rate": 1e-2, "weight_decay": 1e-2, "random_state": 0},
    "shared-g-layers": {"n_folds": 2, "random_state": 0},
    "order-invariant": {"max_iterations": 10, "n_folds": 2},
}
# These cut rows into folds or batches by where they stand: a row written twice may land on both sides.
BY_POSITION = {
    "auto",
    "g-layers",
    "g-layers-paper",
    "shared-g-layers",
    "order-invariant",
}

every_calibrator = pytest.mark.parametrize("name", CALIBRATORS)


def make(name: str) -> Calibrator:
    return CALIBRATORS[name](**FAST.get(name, {}))


# The ODIR penalty leaves scales almost free: how far Newton's method goes depends on rounding.
LOOSE = {"matrix-odir": 1e-5}


@cache
def trial(name: str) -> testing.Trial:
    return testing.Trial(make(name), LOOSE.get(name, 1e-6))


def fitted(name: str, columns: int = CLASSES) -> Calibrator:
    """Return one fitted calibrator to look at; whoever would change it makes another."""
    return trial(name).fitted(columns)


@cache
def weighted(name: str) -> Calibrator:
    """Return one calibrator fitted with weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)
        return make(name).fit(*tilted(), WEIGHTS)


@cache
def rows(columns: int) -> Numbers:
    """Return small and extreme logits, ties, masked classes, and one row with a single possible class."""
    rng = np.random.default_rng(4)
    z = np.concatenate([rng.normal(size=(12, columns)) * size for size in (0.1, 3.0, 30.0, 1e3, 1e4)])
    ties = np.concatenate([rng.choice([-1e4, 0.0, 1.0, 1e4], size=(20, columns)), np.zeros((1, columns))])
    z = np.concatenate([z, ties])
    if columns == 1:
        return z
    hidden = np.where(rng.random(z.shape) < 0.4, -np.inf, z)
    hidden[:, 2] = z[:, 2]
    hidden[0, [0, 1, 3]] = -np.inf
    return np.concatenate([z, hidden])
