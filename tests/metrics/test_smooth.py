import numpy as np
import pytest
import relplot

from glayers import Confidences, metrics


@pytest.mark.parametrize("n", [50, 1_000, 20_000])
@pytest.mark.parametrize("excess", [0.0, 0.05, 0.2])
def test_smooth_ece_agrees_with_its_authors(n: int, excess: float) -> None:
    rng = np.random.default_rng(n)
    scores = rng.beta(2, 1, n)
    hits = rng.random(n) < scores * (1 - excess)
    # The authors' own code works on a grid of a thousandth.
    assert metrics.smooth_ece(Confidences(scores, hits)) == pytest.approx(
        relplot.smECE(scores, hits.astype(float)), abs=1e-3
    )


def test_a_constant_gap_is_its_own_smooth_error() -> None:
    # 0.8 said, 0.5 true everywhere: the residual integrates to 0.3 whatever the bandwidth.
    assert metrics.smooth_ece(Confidences([0.8] * 10, [1, 0] * 5)) == pytest.approx(0.3, abs=1e-6)


def test_scores_at_both_ends_are_reflected_inside() -> None:
    assert metrics.smooth_ece(Confidences([0.0, 1.0], [True, False])) > 0.3
    assert metrics.smooth_ece(Confidences([0.0, 1.0], [False, True])) == pytest.approx(0, abs=1e-9)


def test_the_error_of_the_opposite_event_is_the_same() -> None:
    # Exact only if every score has its own place on the grid; residuals of both signs, so that the place matters.
    rng = np.random.default_rng(3)
    scores, hits = rng.random(40), rng.random(40) < 0.4
    opposite = metrics.smooth_ece(Confidences(1 - scores, ~hits))
    assert metrics.smooth_ece(Confidences(scores, hits)) == pytest.approx(opposite, rel=1e-10)


@pytest.mark.parametrize("seed", range(8))
def test_the_error_is_the_area_at_the_bandwidth_equal_to_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.random(4)
    hits = rng.random(4) < scores
    error = metrics.smooth_ece(Confidences(scores, hits))
    # Reflection at 0 and 1 by mirror images: kernels at 2k + score and 2k - score, summed at 1000 points.
    images = np.concatenate([2 * k + sign * scores for k in range(-3, 4) for sign in (1, -1)])
    distances = (np.arange(1000)[:, None] + 0.5) / 1000 - images
    kernels = np.exp(-((distances / error) ** 2) / 2) / (error * np.sqrt(2 * np.pi))
    assert np.abs(kernels @ np.tile((hits - scores) / 4, 14)).mean() == pytest.approx(error, rel=1e-4)
