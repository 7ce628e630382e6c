"""The path of penalties: Newton's optimum, standard errors that know of groups, and a default that is hard to move."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from glayers.arrays import Array
from glayers.fitting.curvature import SMOOTH_LOSSES
from glayers.fitting.newton import LinearProblem, Preconditioner, newton_cg
from glayers.fitting.penalty_path import Path, Prior, Trial, counted_rows

ROWS, CLASSES = 200, 4


def make_problem(matrix: bool, loss: str = "log", dtype: Any = np.float64) -> LinearProblem:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, CLASSES)).astype(dtype) * 2
    labels = (x * 0.5 + rng.gumbel(size=x.shape)).argmax(axis=1)
    shares = rng.random(ROWS)
    anchor = np.stack([np.ones(CLASSES), np.zeros(CLASSES)])
    if matrix:
        x, anchor = np.hstack([x, np.ones((ROWS, 1))]), np.concatenate([np.eye(CLASSES), np.zeros((1, CLASSES))])
    strengths = rng.uniform(0.001, 0.1, anchor.shape)
    return LinearProblem(x, labels, shares / shares.sum(), SMOOTH_LOSSES[loss], strengths, anchor)


@pytest.mark.parametrize("matrix", [False, True])
@pytest.mark.parametrize("loss", sorted(SMOOTH_LOSSES))
def test_newton_ends_where_scipy_does(matrix: bool, loss: str) -> None:
    problem = make_problem(matrix, loss)
    start = problem.anchor
    found = newton_cg(problem, start, Preconditioner(problem, start), tolerance=1e-13)
    peer = minimize(lambda flat: problem.value(flat.reshape(start.shape)), start.ravel(), method="BFGS")
    assert found.converged
    assert problem.value(found.point) <= peer.fun + 1e-10
    assert found.point.ravel() == pytest.approx(peer.x, abs=1e-3)


@pytest.mark.parametrize("loss", sorted(SMOOTH_LOSSES))
def test_slopes_are_the_differences_of_losses(loss: str) -> None:
    rng = np.random.default_rng(1)
    z, labels, width = rng.normal(size=(6, CLASSES)), rng.integers(0, CLASSES, 6), 1e-6
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    smooth = SMOOTH_LOSSES[loss]
    for of_class in range(CLASSES):
        nudge = width * np.eye(CLASSES)[of_class]
        difference = (smooth.rows(z + nudge, labels) - smooth.rows(z - nudge, labels)) / (2 * width)
        assert smooth.slope(p, labels)[:, of_class] == pytest.approx(difference, abs=1e-8)
        unit = np.broadcast_to(np.eye(CLASSES)[of_class], z.shape)
        assert smooth.curve(p, unit)[:, of_class] == pytest.approx(smooth.curve_diagonal(p)[:, of_class])


def test_very_many_classes_fit_in_float32() -> None:
    rng = np.random.default_rng(0)
    k = 150  # past the blocks of the preconditioner
    x = np.hstack([rng.normal(size=(400, k)), np.ones((400, 1))]).astype(np.float32)
    anchor = np.concatenate([np.eye(k), np.zeros((1, k))])
    shares, labels = np.full(400, 1 / 400), rng.integers(0, k, 400)
    problem = LinearProblem(x, labels, shares, SMOOTH_LOSSES["log"], np.full_like(anchor, 0.01), anchor)
    start = anchor.astype(np.float32)
    found = newton_cg(problem, start, Preconditioner(problem, start), tolerance=1e-6)
    assert found.converged
    assert found.point.dtype == np.float32
    assert problem.value(found.point) < problem.value(start)


def make_path(groups: Array | None = None) -> Path:
    problem = make_problem(matrix=False)
    prior = Prior((np.full_like(problem.anchor, 8.0),), problem.anchor)
    return Path(problem, prior, np.ones(ROWS), groups)


def test_rows_of_one_group_count_as_one_observation() -> None:
    rng = np.random.default_rng(0)
    once = rng.normal(size=ROWS // 2)
    twice, zero = np.repeat(once, 2), np.zeros(ROWS)
    alone, paired = make_path().gain(twice, zero), make_path(np.arange(ROWS) // 2).gain(twice, zero)
    assert paired[0] == alone[0] == pytest.approx(once.mean())
    assert paired[1] == pytest.approx(once.std(ddof=1) / np.sqrt(ROWS // 2))
    assert alone[1] < paired[1]


def test_the_default_stays_unless_another_is_clearly_better() -> None:
    path, rng = make_path(), np.random.default_rng(0)
    noise = rng.normal(size=ROWS)
    default, near, far = (Trial((m,), (), np.ones(ROWS)) for m in (1.0, 0.1, 0.01))
    unclear = far._replace(losses=1 - 0.01 + noise - noise.mean())
    assert path.choose([default, near, unclear], (1.0,)) is default
    clear = far._replace(losses=np.full(ROWS, 0.9) + 0.01 * noise)
    assert path.choose([default, near, clear], (1.0,)) is clear
    # As good as the best to within its error, and nearer to the default.
    almost = near._replace(losses=np.full(ROWS, 0.9) - 0.01 * noise)
    assert path.choose([default, almost, clear], (1.0,)) is almost


def test_rows_counted_by_weights() -> None:
    assert counted_rows(np.full(10, 3.0)) == pytest.approx(10)  # a common factor changes nothing
    assert counted_rows(np.array([1.0, 1.0, 4.0])) == pytest.approx(2)  # 6^2 / 18
    assert counted_rows(np.array([1e-3, 0, 0])) == pytest.approx(1)


def shifted_path(rows: int = 3_000, classes: int = 6) -> Path:
    """Rows whose labels follow one shift per class, and no scale; scales and shifts have strengths of their own."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, classes)) * 2
    labels = (x + np.linspace(-1, 1, classes) + rng.gumbel(size=x.shape)).argmax(axis=1)
    anchor = np.stack([np.ones(classes), np.zeros(classes)])
    parts = tuple(2.0 * classes * np.eye(2)[part][:, None] * np.ones((2, classes)) for part in (0, 1))
    problem = LinearProblem(x, labels, np.full(rows, 1 / rows), SMOOTH_LOSSES["log"], np.zeros_like(anchor), anchor)
    return Path(problem, Prior(parts, anchor), np.ones(rows), None)


def test_with_many_rows_the_strengths_of_most_evidence_are_found() -> None:
    path = shifted_path()
    found = path.average()
    (scale, shift) = next(key for key in found.fits if key)

    def evidence(*key: float) -> float:
        return path._weigh(key, path.start, 3_000.0).evidence

    assert evidence(scale, shift) > max(evidence(a, b) for a in (-1.0, 0.0, 1.0, 2.0) for b in (-1.0, 0.0)) - 0.5
    assert scale > shift + 1  # the scales are not needed, and are held more firmly
    assert found.point[1] - found.point[1].mean() == pytest.approx(np.linspace(-1, 1, 6), abs=0.15)


def test_evidence_agrees_with_a_determinant_of_all_blocks() -> None:
    path = shifted_path(rows=500)
    found = path._weigh((0.5, -0.5), path.start, 500.0)
    p = np.exp(path.problem.logits(found.point))
    p /= p.sum(axis=1, keepdims=True)
    penalty, determinant = path.prior.strengths((10**0.5, 10**-0.5), 1.0), 0.0
    for of_class in range(p.shape[1]):
        features = np.stack([path.problem.inputs[:, of_class], np.ones(500)])
        curvature = (features * p[:, of_class] * (1 - p[:, of_class])) @ features.T
        determinant += np.linalg.slogdet(np.eye(2) + curvature / penalty[:, of_class, None])[1]
    losses = -np.log(p[np.arange(500), path.problem.labels]).sum()
    distances = (penalty * (found.point - path.prior.anchor) ** 2).sum() / 2
    assert found.evidence == pytest.approx(-losses - distances - determinant / 2, rel=1e-6)


@pytest.mark.parametrize("rows", [500, 3_000])
def test_without_some_rows_the_average_is_that_of_a_new_fit(rows: int) -> None:
    path, rest = shifted_path(rows), np.arange(rows) % 5 > 0
    weights = rest / rest.sum()
    fewer = Path(path.problem._replace(weights=weights).take(rest), path.prior, np.ones(rest.sum()), None)
    whole, again, afresh = path.average(), fewer.average_without(path.average()), fewer.average()
    moved = np.abs(afresh.point - whole.point).max()
    assert np.abs(again.point - afresh.point).max() < 0.3 * moved
