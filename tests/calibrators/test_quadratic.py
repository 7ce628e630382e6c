"""Quadratic scaling recovers a curve whose slope changes, never decreases, and bends little where rows are few."""

import warnings

import numpy as np
import pytest

from glayers import PlattScaling, QuadraticScaling
from glayers.activations import sigmoid


def bent(x: np.ndarray) -> np.ndarray:
    """Log-odds whose slope falls from 1.5 at x = -4 to 0.1 at x = 3."""
    return 0.3 + 0.7 * x - 0.1 * x**2


def simulated(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-4, 3, n_rows)
    return x[:, None], (rng.random(n_rows) < sigmoid(bent(x))).astype(int)


def test_a_quadratic_truth_is_recovered_where_platt_scaling_is_wrong() -> None:
    x, labels = simulated(50_000, seed=0)
    grid = np.linspace(-4, 3, 50)
    errors = []
    for method in (QuadraticScaling(), PlattScaling()):
        p = method.fit(x, labels).predict_proba(grid[:, None])[:, 1]
        errors.append(np.abs(p - sigmoid(bent(grid))).max())
    assert errors[0] < 0.01 < 0.05 < errors[1]


def test_classes_0_and_1_may_change_places() -> None:
    x, labels = simulated(500, seed=1)
    p = QuadraticScaling().fit(x, labels).predict_proba(x)
    swapped = QuadraticScaling().fit(-x, 1 - labels).predict_proba(-x)
    np.testing.assert_allclose(swapped[:, ::-1], p, atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_it_never_decreases_whatever_the_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(30, 1)) * 5
    p = QuadraticScaling().fit(x, rng.integers(0, 2, 30)).predict_proba(np.linspace(-1e3, 1e3, 4001)[:, None])[:, 1]
    assert (np.diff(p) >= -1e-12).all()


@pytest.mark.filterwarnings("ignore::glayers.GlayersWarning")
def test_few_rows_stay_closer_to_platt_scaling_than_the_same_rows_many_times() -> None:
    grid = np.linspace(-4, 3, 50)[:, None]
    distance = {1: 0.0, 100: 0.0}
    for seed in (0, 1, 2, 5, 7):
        x, labels = simulated(20, seed)
        for times in distance:
            rows = np.tile(x, (times, 1)), np.tile(labels, times)
            platt, quadratic = (
                method.fit(*rows).predict_proba(grid) for method in (PlattScaling(), QuadraticScaling())
            )
            distance[times] += np.abs(quadratic - platt).max()
    assert distance[1] < 0.6 * distance[100]


def test_one_value_of_the_log_odds_gives_the_frequency() -> None:
    p = QuadraticScaling().fit(np.full((100, 1), 2.0), np.arange(100) % 4 == 0).predict_proba([[2.0]])
    assert p[0, 1] == pytest.approx(0.255, abs=0.005)  # Platt's targets


def test_one_row_far_below_all_others_has_a_result() -> None:
    z = np.array([[-1e30, -1.7, -1e30, 1.3]])
    with warnings.catch_warnings(action="ignore"):
        assert np.isfinite(QuadraticScaling().fit(z, [0]).predict_proba(z)).all()
