"""Layers that treat all classes alike: the optimum another optimiser finds, with and without each fold, and weights."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax

from glayers.fitting.symmetric import fit_symmetric
from glayers.maps import SymmetricLayers
from tests.strategies import Numbers


def bent_rows(rows: int, classes: int = 5) -> tuple[Numbers, Numbers]:
    rng = np.random.default_rng(0)
    x = log_softmax(rng.normal(size=(rows, classes)) * 3, axis=1)
    return x, (x - 0.6 * np.maximum(x + 3, 0) + rng.gumbel(size=x.shape)).argmax(axis=1)


def best_weight(x: Numbers, labels: Numbers, knots: Numbers) -> Numbers:
    """The mode under a prior of standard deviation 0.3: the sum of losses plus w^2 / (2 * 0.3^2)."""

    def cost(weight: Numbers) -> float:
        corrected = SymmetricLayers(weight, knots)(x)
        return -float(corrected[np.arange(len(x)), labels].sum()) + float((weight**2).sum()) / 0.18

    return np.asarray(minimize(cost, np.zeros(len(knots)), method="BFGS", options={"gtol": 1e-4}).x)


def test_the_weights_are_those_another_optimiser_finds_with_and_without_a_fold() -> None:
    x, labels = bent_rows(600)
    folds = np.arange(600) % 5
    step, held_out = fit_symmetric(x, labels, None, folds)
    assert step.weight == pytest.approx(best_weight(x, labels, step.knots), abs=2e-3)
    kept = folds != 2
    exact = SymmetricLayers(best_weight(x[kept], labels[kept], step.knots), step.knots)(x[~kept])
    off, apart = (np.abs(np.exp(held_out[~kept]) - np.exp(other)).max() for other in (exact, step(x[~kept])))
    assert off < 3e-3
    assert off < apart / 5, "closer to the fit without the fold than to the fit of all rows"


def test_a_weight_of_zero_is_the_row_left_out_and_the_same_weight_for_all_is_none() -> None:
    x, labels = bent_rows(90)
    folds, used = np.arange(90) // 3 % 4, np.arange(90) % 3 > 0
    weighted, held_out = fit_symmetric(x, labels, np.where(used, 7.0, 0.0), folds)
    alone, again = fit_symmetric(x[used], labels[used], None, folds[used])
    assert weighted.weight == pytest.approx(alone.weight, abs=1e-6)
    assert held_out[used] == pytest.approx(again, abs=1e-6)


def test_a_weight_of_two_pulls_as_hard_as_the_row_repeated() -> None:
    x, labels = bent_rows(3_000)
    times = 1 + np.arange(3_000) % 2
    rows = np.repeat(np.arange(3_000), times)
    weighted, _ = fit_symmetric(x, labels, times.astype(float), np.arange(3_000) % 4)
    repeated, _ = fit_symmetric(x[rows], labels[rows], None, rows % 4)
    plain, _ = fit_symmetric(x, labels, None, np.arange(3_000) % 4)
    # Only the prior differs: repeated rows count as more evidence than weighted ones.
    apart = (np.abs(other.weight - repeated.weight).max() for other in (weighted, plain))
    assert next(apart) < next(apart) / 2
