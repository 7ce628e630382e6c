"""Corrections that find their own strength: the optimum, the map, known precisions, symmetries, and rows held out."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import approx_fprime, minimize

from glayers import Predictions
from glayers.activations import log_softmax, softmax
from glayers.fitting.curvature import SMOOTH_LOSSES
from glayers.fitting.evidence import USUAL, Fit, fit_at, held_out_scores
from glayers.fitting.fitted_parts import FittedParts, PreparedRows, fit_parts, large_model
from glayers.fitting.folds import assign_folds, effective_rows
from glayers.fitting.parts import Design, basis_of, corrected_map, curvature_of, design_of
from glayers.fitting.temperature import fit_inverse_temperature
from tests.strategies import Numbers

ALL_PARTS = ("shared", "context", "scale", "shift", "matrix", "confusion", "hinges")
EACH = [("shared",), ("shared", "context"), *((part,) for part in ALL_PARTS[2:])]


def rows_of(n_rows: int = 300, classes: int = 4, seed: int = 0) -> Predictions:
    """Overconfident logits, shifted by class, of classes that lean on each other."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n_rows, classes))
    truth = z @ (np.eye(classes) + rng.normal(size=(classes, classes)) * 0.2) + np.linspace(-1, 1, classes)
    return Predictions(2 * z, (truth + rng.gumbel(size=z.shape)).argmax(axis=1))


def calibrated(n_rows: int, classes: int = 5, seed: int = 0) -> Predictions:
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n_rows, classes))
    return Predictions(z, (z + rng.gumbel(size=z.shape)).argmax(axis=1))


def fixed(factor: float = 1.0) -> dict[str, float]:
    return {name: factor * value for name, value in USUAL.items()}


def design_for(given: Predictions, parts: Any, weights: Numbers | None = None) -> Design:
    log_p = log_softmax(given.logits)
    ones = np.ones(len(given)) if weights is None else weights
    return design_of(basis_of(log_p, ones, parts), log_p, given.labels, weights)


def fit_of(design: Design, loss: str = "log") -> Fit:
    """The fit at the usual precisions."""
    return fit_at(design, SMOOTH_LOSSES[loss], USUAL, np.zeros(design.owners.size))


def objective(design: Design, flat: Numbers, loss: str = "log") -> float:
    """The penalised loss, written down once more."""
    losses = SMOOTH_LOSSES[loss].rows(design.base + design.scores(flat), design.labels)
    precisions = np.array([USUAL[name] for name in design.names])[design.owners]
    return float(design.weights @ losses) + float(precisions @ flat**2) / 2


@pytest.mark.parametrize("loss", sorted(SMOOTH_LOSSES))
@pytest.mark.parametrize("parts", [*EACH, ALL_PARTS], ids="-".join)
def test_the_optimum_has_no_slope_and_no_neighbour_below_it(parts: Any, loss: str) -> None:
    design = design_for(rows_of(150), parts, weights=np.random.default_rng(1).uniform(0.5, 2, 150))
    fit = fit_of(design, loss)
    assert fit.converged

    def value(flat: Numbers) -> float:
        return objective(design, flat, loss)

    slope = approx_fprime(fit.state.point, value, 1e-7)
    start = approx_fprime(np.zeros(len(slope)), value, 1e-7)
    assert np.abs(slope).max() < 0.02 * np.abs(start).max()
    found = minimize(value, fit.state.point, method="L-BFGS-B", options={"maxiter": 20})
    assert value(fit.state.point) < found.fun + 2e-3  # nats over all rows


@pytest.mark.parametrize("loss", sorted(SMOOTH_LOSSES))
def test_slopes_are_the_differences_of_losses(loss: str) -> None:
    rng = np.random.default_rng(1)
    z, labels, width = rng.normal(size=(6, 4)), rng.integers(0, 4, 6), 1e-6
    p = softmax(z)
    smooth = SMOOTH_LOSSES[loss]
    for of_class in range(4):
        nudge = width * np.eye(4)[of_class]
        difference = (smooth.rows(z + nudge, labels) - smooth.rows(z - nudge, labels)) / (2 * width)
        assert smooth.slope(p, labels)[:, of_class] == pytest.approx(difference, abs=1e-8)


@pytest.mark.parametrize("classes", [3, 14, 60])
def test_slopes_of_a_design_are_the_transpose_of_its_scores(classes: int) -> None:
    parts = ALL_PARTS if classes == 3 else ALL_PARTS[:-1]
    design = design_for(rows_of(80, classes), parts)
    rng = np.random.default_rng(0)
    flat, by_score = rng.normal(size=design.owners.size), rng.normal(size=(80, classes))
    expected = float((design.scores(flat) * by_score).sum())
    assert float(flat @ design.slopes(by_score)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("classes", [2, 3, 11, 60])
@pytest.mark.parametrize("parts", [*EACH, ALL_PARTS], ids="-".join)
def test_the_map_gives_what_the_fit_has_seen(parts: Any, classes: int) -> None:
    log_p = log_softmax(rows_of(70, classes).logits)
    basis = basis_of(log_p, np.ones(70), parts)
    design = design_of(basis, log_p, np.zeros(70, np.int64))
    flat = np.random.default_rng(2).normal(size=design.owners.size) / np.sqrt(10 * classes)
    expected = log_softmax(design.base + design.scores(flat))
    np.testing.assert_allclose(corrected_map(basis, design, flat)(design.base), expected, atol=1e-8)
    if parts == ("confusion",):
        part: Any = design.parts[0]
        assert sparse.issparse(part.features) == (classes == 60)


def test_scales_and_a_matrix_of_plain_log_probabilities_map_as_they_fit() -> None:
    given = rows_of(200)
    rows = PreparedRows.of(given, 0.5, ("scale", "shift", "matrix"), inputs="log")
    found = rows.fit(("scale", "shift", "matrix"), None)
    design, flat = found.design, found.fit.state.point
    expected = log_softmax(design.base + design.scores(flat))
    np.testing.assert_allclose(found.map(given.logits)[rows.order], expected, atol=1e-9)


@pytest.mark.parametrize("classes", [60, 160])
def test_many_classes_and_very_many_features_fit(classes: int) -> None:
    given = rows_of(400, classes)
    parts = ("shift", "matrix", "confusion") if classes == 60 else ("scale", "shift", "matrix", "hinges")
    rows = PreparedRows.of(given, 0.5, parts)
    found = rows.fit(parts, None)  # 160 classes: 5 x 160 features, whose curvature is taken as diagonal
    design, flat = found.design, found.fit.state.point
    assert design.base.dtype == np.float32
    losses = [-x[np.arange(400), given.labels].mean() for x in (log_softmax(given.logits / 2), found.map(given.logits))]
    assert losses[1] < losses[0]
    expected = log_softmax(design.base + design.scores(flat))
    np.testing.assert_allclose(found.map(given.logits)[rows.order], expected, atol=1e-3)


def test_the_curvature_of_shifts_is_exact() -> None:
    # One feature that is 1 in every row: the sum over rows of diag(p) - p p', plus the precision.
    design = design_for(rows_of(50), ("shift",))
    p = softmax(design.base)
    exact = sum(np.diag(row) - np.outer(row, row) for row in p) + USUAL["shift"] * np.eye(4)
    found = curvature_of(design, p, np.full(4, USUAL["shift"]))
    vector = np.random.default_rng(0).normal(size=4)
    np.testing.assert_allclose(found.solve(vector), np.linalg.solve(exact, vector), rtol=1e-9)
    np.testing.assert_allclose(found.variances(), np.diagonal(np.linalg.inv(exact)), rtol=1e-9)


def test_the_curvature_of_features_is_exact_where_all_rows_are_equally_unsure() -> None:
    # Equal probabilities make the curvature a Kronecker product: features' covariance x (diag(p) - p p').
    rng = np.random.default_rng(0)
    design = design_for(rows_of(60, 3), ("matrix",))
    part: Any = design.parts[0]
    features = rng.normal(size=(60, 3))
    features -= features.mean(axis=0)
    design = replace(design, parts=(replace(part, features=features, means=np.zeros((3, 3))),))
    of_classes = np.eye(3) / 3 - 1 / 9
    exact = np.kron(features.T @ features, of_classes) + 7.0 * np.eye(9)
    found = curvature_of(design, np.full((60, 3), 1 / 3), np.full(9, 7.0))
    vector = rng.normal(size=9)
    np.testing.assert_allclose(found.solve(vector), np.linalg.solve(exact, vector), rtol=1e-9)
    np.testing.assert_allclose(found.variances(), np.diagonal(np.linalg.inv(exact)), rtol=1e-9)


def test_the_curvature_of_the_shared_part_is_the_covariance_of_its_functions() -> None:
    for classes in (5, 14):
        design = design_for(rows_of(80, classes), ("shared", "context"))
        p = softmax(design.base)
        features = np.stack([design.scores(unit) for unit in np.eye(35)], axis=2)  # (n, classes, 35)
        covariances = [np.cov(f, rowvar=False, aweights=q, ddof=0) for f, q in zip(features, p, strict=True)]
        found = curvature_of(design, p, np.full(35, 10.0))
        exact = np.linalg.inv(np.sum(covariances, axis=0) + 10 * np.eye(35))
        vector = np.random.default_rng(0).normal(size=35)
        np.testing.assert_allclose(found.solve(vector), exact @ vector, atol=1e-8)
        np.testing.assert_allclose(found.variances(), np.diagonal(exact), atol=1e-8)


@pytest.mark.parametrize("part", ["scale", "shift", "matrix", "confusion", "hinges"])
def test_an_inverse_curvature_is_symmetric_and_below_the_prior(part: str) -> None:
    design = design_for(rows_of(80), (part,))
    size = design.owners.size
    found = curvature_of(design, softmax(design.base), np.full(size, 20.0))
    matrix = np.stack([found.solve(unit) for unit in np.eye(size)])
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(matrix), found.variances(), atol=1e-12)
    assert (found.variances() > 0).all()
    assert (found.variances() <= 1 / 20 + 1e-12).all()


def drawn_with(size: float, n_rows: int, classes: int, seed: int) -> Predictions:
    """Labels of shifts that are drawn with this standard deviation."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n_rows, classes))
    shifts = size * rng.normal(size=classes)
    return Predictions(z, (z + shifts + rng.gumbel(size=z.shape)).argmax(axis=1))


def test_evidence_finds_the_precision_that_coefficients_were_drawn_with() -> None:
    for size in (0.3, 1.0):
        found = [
            fit_parts(drawn_with(size, 4_000, 30, seed), 1.0, ("shift",), None).fit.precisions["shift"]
            for seed in range(4)
        ]
        # The precision of thirty draws has a relative error of sqrt(2 / 30) = 0.26, that of four times as many 0.13.
        assert np.exp(np.mean(np.log(found))) == pytest.approx(1 / size**2, rel=0.35)


def test_evidence_finds_known_shifts() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(20_000, 5))
    shifts = np.array([-1.0, 0.5, 0.0, 1.5, -1.0])
    given = Predictions(z, (z + shifts + rng.gumbel(size=z.shape)).argmax(axis=1))
    found = fit_parts(given, 1.0, ("shift",), None)
    point = found.fit.state.point
    assert point - point.mean() == pytest.approx(shifts - shifts.mean(), abs=0.06)
    assert found.fit.effective["shift"] == pytest.approx(4, abs=0.1)  # a common shift changes nothing


@pytest.mark.parametrize("parts", [*EACH, ALL_PARTS], ids="-".join)
def test_a_part_without_a_signal_stays_near_zero(parts: Any) -> None:
    given = calibrated(3_000)
    found = fit_parts(given, 1.0, parts, assign_folds(3_000, None, 5, 0))
    moved = np.abs(softmax(found.map(given.logits)) - softmax(given.logits))
    assert moved.mean() < 0.01
    assert all(value > USUAL[name] / 3 for name, value in found.fit.precisions.items())
    assert sum(found.fit.effective.values()) < 3.5 + 0.2 * found.n_parameters


def test_a_part_with_a_signal_takes_it_and_the_others_stay() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(3_000, 6))
    given = Predictions(z, (z + np.linspace(-1, 1, 6) + rng.gumbel(size=z.shape)).argmax(axis=1))
    found = fit_parts(given, 1.0, ("shift", "matrix"), None)
    assert found.fit.effective["shift"] > 4.5
    assert found.fit.effective["matrix"] < 8  # of 36
    assert found.fit.precisions["shift"] < 5 < USUAL["matrix"] / 3 < found.fit.precisions["matrix"]


def test_effective_coefficients_grow_with_rows() -> None:
    counts = [
        sum(fit_parts(rows_of(n), 0.5, ("scale", "shift", "matrix"), None).fit.effective.values()) for n in (100, 1_000)
    ]
    assert 0 < counts[0] < counts[1] < 24


@pytest.mark.parametrize("classes", [4, 14])
def test_permuting_classes_permutes_the_result(classes: int) -> None:
    given = rows_of(400, classes)
    order = np.random.default_rng(1).permutation(classes)
    parts = large_model(400, classes)
    folds = assign_folds(400, None, 5, 0)
    again = Predictions(given.logits[:, order], np.argsort(order)[given.labels])
    one, other = (fit_parts(each, 0.5, parts, folds) for each in (given, again))
    np.testing.assert_allclose(other.map(again.logits), one.map(given.logits)[:, order], atol=2e-3)
    np.testing.assert_allclose(other.out_of_fold, one.out_of_fold[:, order], atol=2e-2)


def test_adding_a_constant_to_a_row_changes_nothing() -> None:
    given = rows_of(300)
    constants = 50 * np.random.default_rng(1).normal(size=(300, 1))
    one, other = (
        fit_parts(Predictions(z, given.labels), 0.5, ALL_PARTS, None) for z in (given.logits, given.logits + constants)
    )
    np.testing.assert_allclose(other.map(given.logits), one.map(given.logits), atol=1e-6)


def test_equal_weights_are_none_and_a_weight_of_zero_is_no_row() -> None:
    given = rows_of(300)
    used = np.arange(300) % 3 > 0
    folds = assign_folds(300, None, 5, 0)
    weighted = Predictions(given.logits, given.labels, weights=np.where(used, 7.0, 0.0))
    parts = ALL_PARTS[:-1]
    one = fit_parts(weighted, 0.5, parts, folds)
    other = fit_parts(given.take(used), 0.5, parts, folds[used])
    np.testing.assert_allclose(one.map(given.logits), other.map(given.logits), atol=2e-3)
    assert one.fit.effective == pytest.approx(other.fit.effective, rel=1e-2)


def test_a_weight_of_two_is_the_row_twice_up_to_the_effective_number_of_rows() -> None:
    given = rows_of(300)
    weights = 1.0 + np.arange(300, dtype=np.float64) % 2
    twice = np.repeat(np.arange(300), weights.astype(int))
    # By Kish's count the weighted rows are worth 270, and the repeated ones 450: precisions make up for it.
    share = effective_rows(weights) / len(twice)
    for part in EACH[:-1]:  # knots are quantiles of rows, whatever their weights
        one = fit_parts(
            Predictions(given.logits, given.labels, weights=weights), 0.5, part, None, precisions=fixed(share)
        )
        other = fit_parts(given.take(twice), 0.5, part, None, precisions=fixed())
        np.testing.assert_allclose(one.map(given.logits), other.map(given.logits), atol=1e-3)


def without_fold(given: Predictions, folds: Numbers, fold: int, parts: Any) -> FittedParts:
    """A fit that never saw the fold, with the standardisation of all rows."""
    log_p = log_softmax(0.5 * given.logits)
    basis = basis_of(log_p, np.ones(len(given)), parts)
    return fit_parts(given.take(folds != fold), 0.5, parts, None, precisions=fixed(), basis=basis)


@pytest.mark.parametrize("parts", [("shared", "context"), ("scale", "shift", "matrix"), ALL_PARTS], ids="-".join)
def test_out_of_fold_predictions_do_not_know_their_own_labels(parts: Any) -> None:
    given = rows_of(400)
    folds = assign_folds(400, None, 4, 0)
    own = folds == 2
    wrong = np.flatnonzero(own)[::5]
    labels = given.labels.copy()
    labels[wrong] = (labels[wrong] + 1) % 4
    one, other = (
        fit_parts(Predictions(given.logits, y), 0.5, parts, folds, precisions=fixed()) for y in (given.labels, labels)
    )
    out_of_fold = np.abs(np.exp(one.out_of_fold) - np.exp(other.out_of_fold))[own]
    of_all_rows = np.abs(softmax(one.map(given.logits)) - softmax(other.map(given.logits)))[own]
    # A fit without a fold starts from the fit to all rows, and two Newton steps leave a trace of it.
    assert out_of_fold.max() < 0.05 * of_all_rows.max()
    exact = without_fold(given, folds, 2, parts).map(given.logits[own])
    np.testing.assert_allclose(np.exp(one.out_of_fold[own]), np.exp(exact), atol=1e-3)


def test_held_out_scores_of_a_fold_come_from_the_other_rows() -> None:
    design = design_for(rows_of(200), ("shift",))
    folds = np.arange(200) % 4
    scores = held_out_scores(design, SMOOTH_LOSSES["log"], fit_of(design), folds)
    alone = fit_of(design.take(folds != 1))
    rows = design.take(folds == 1)
    np.testing.assert_allclose(scores[folds == 1], rows.base + rows.scores(alone.state.point), atol=1e-3)


@pytest.mark.parametrize("parts", [("scale", "shift"), ALL_PARTS], ids="-".join)
def test_impossible_classes_stay_impossible_and_nothing_overflows(parts: Any) -> None:
    given = rows_of(400, 5)
    z = given.logits.copy()
    z[np.arange(400), (given.labels + 1) % 5] = -np.inf
    z[:50] *= 1e4
    found = fit_parts(Predictions(z, given.labels), 0.5, parts, assign_folds(400, None, 5, 0))
    p = softmax(found.map(z))
    assert (p[z == -np.inf] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(found.out_of_fold).sum(axis=1), 1)
    assert np.isfinite(found.fit.state.point).all()


def test_separable_rows_stay_finite() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(60, 4))
    given = Predictions(z, (z @ rng.normal(size=(4, 4))).argmax(axis=1))
    found = fit_parts(given, 1.0, ALL_PARTS, assign_folds(60, None, 5, 0))
    assert np.isfinite(found.map(3 * z)).all()
    assert np.isfinite(found.out_of_fold).all()
    assert all(np.isfinite(value) and value > 0 for value in found.fit.precisions.values())


def test_a_class_that_never_occurs_keeps_a_finite_probability() -> None:
    given = rows_of(300)
    labels = np.where(given.labels == 2, 0, given.labels)
    found = fit_parts(Predictions(given.logits, labels), 0.5, ALL_PARTS, None)
    p = softmax(found.map(given.logits))[:, 2]
    assert (p > 0).all()
    assert p.mean() < softmax(given.logits / 2)[:, 2].mean() / 2


@pytest.mark.parametrize("loss", sorted(SMOOTH_LOSSES))
def test_the_whole_model_beats_temperature_scaling_on_new_rows(loss: str) -> None:
    drawn = rows_of(22_000)
    given, fresh = drawn.take(np.arange(2_000)), drawn.take(np.arange(2_000, 22_000))
    factor = fit_inverse_temperature(given.logits, given.labels, None).factor
    found = fit_parts(given, factor, ALL_PARTS, assign_folds(2_000, None, 5, 0), loss=loss)
    rows = SMOOTH_LOSSES[loss].rows
    plain, ours = (rows(x, fresh.labels).mean() for x in (factor * fresh.logits, found.map(fresh.logits)))
    held_out = rows(found.out_of_fold, given.labels)
    assert ours < plain - 0.02
    assert held_out.mean() == pytest.approx(ours, abs=3 * held_out.std() / np.sqrt(2_000))


def test_some_parts_of_prepared_rows_fit_as_they_do_alone() -> None:
    given = rows_of(300)
    folds = assign_folds(300, None, 5, 0)
    small = ALL_PARTS[:4]
    together = PreparedRows.of(given, 0.5, ALL_PARTS).fit(small, folds)
    alone = fit_parts(given, 0.5, small, folds)
    np.testing.assert_allclose(together.map(given.logits), alone.map(given.logits), atol=1e-9)
    np.testing.assert_allclose(together.out_of_fold, alone.out_of_fold, atol=1e-9)


def test_looser_parts_fit_the_rows_closer_and_the_evidence_stays() -> None:
    given = rows_of(300)
    rows = PreparedRows.of(given, 0.5, ALL_PARTS)
    tight, loose = (rows.fit(ALL_PARTS, None, looser=factor) for factor in (1.0, 0.1))
    assert loose.fit.state.loss < tight.fit.state.loss
    assert loose.evidence == tight.evidence == tight.fit.precisions
    for name, value in loose.fit.precisions.items():
        expected = 0.1 if name in ("matrix", "confusion", "hinges") else 1.0
        assert value == pytest.approx(expected * loose.evidence[name])
