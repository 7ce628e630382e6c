"""Corrections that find their own strength: the optimum, the map, known precisions, symmetries, and rows held out."""

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize, minimize_scalar

from glayers import Predictions
from glayers.activations import log_softmax, softmax
from glayers.fitting.curvature import SMOOTH_LOSSES
from glayers.fitting.evidence import (
    USUAL,
    FittedParts,
    PenalisedLoss,
    State,
    find_precisions,
    fit_factors,
    fit_parts,
    full_model,
    held_out_scores,
    of_each,
)
from glayers.fitting.folds import assign_folds, effective_rows
from glayers.fitting.parts import Curvature, Design, basis_of, corrected_map, curvature_of, design_of
from glayers.fitting.posterior import Posterior
from glayers.fitting.temperature import fit_inverse_temperature
from glayers.maps.corrections import centred
from tests.strategies import Numbers

WIDER = 0.3  # of the precision of the prior, for intervals
ALL_PARTS = ("shared", "context", "scale", "shift", "matrix", "hinges")
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


def problem_of(design: Design, loss: str = "log") -> PenalisedLoss:
    """The loss at the usual precisions."""
    return PenalisedLoss(design, SMOOTH_LOSSES[loss], of_each(design, USUAL))


def solved(problem: PenalisedLoss) -> tuple[State, Curvature, bool]:
    """The optimum, the curvature at the start, and whether the search converged."""
    start = problem.at(np.zeros(problem.design.owners.size))
    curvature = curvature_of(problem.design, start.probabilities).inverse(problem.precisions)
    state, _, converged = problem.minimise(start, curvature)
    return state, curvature, converged


def objective(design: Design, flat: Numbers, loss: str = "log") -> float:
    """The penalised loss, written down once more."""
    losses = SMOOTH_LOSSES[loss].rows(design.base + design.scores(flat), design.labels)
    penalty = 0.0
    for part, coefficients in zip(design.parts, design.split(flat), strict=True):
        usual = np.array([USUAL[name] for name in part.names])[part.owners]
        penalty += float((usual * coefficients**2).sum()) / 2
    return float(design.weights @ losses) + penalty


@pytest.mark.parametrize("loss", sorted(SMOOTH_LOSSES))
@pytest.mark.parametrize("parts", [*EACH, ALL_PARTS], ids="-".join)
def test_the_optimum_has_no_slope_and_no_neighbour_below_it(parts: Any, loss: str) -> None:
    design = design_for(rows_of(150), parts, weights=np.random.default_rng(1).uniform(0.5, 2, 150))
    state, _, converged = solved(problem_of(design, loss))
    assert converged

    def value(flat: Numbers) -> float:
        return objective(design, flat, loss)

    slope = approx_fprime(state.point, value, 1e-7)
    start = approx_fprime(np.zeros(len(slope)), value, 1e-7)
    assert np.abs(slope).max() < 0.02 * np.abs(start).max()
    found = minimize(value, state.point, method="L-BFGS-B", options={"maxiter": 20})
    assert value(state.point) < found.fun + 2e-3  # nats over all rows


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
    np.testing.assert_allclose(corrected_map(design, flat)(design.base), expected, atol=1e-8)


def seen_by(given: Predictions, found: FittedParts) -> Design:
    """The rows as parts, in their own order, as the fit has standardised them."""
    return found.posterior.design(given.logits)


def test_scales_and_a_matrix_of_plain_log_probabilities_map_as_they_fit() -> None:
    given = rows_of(200)
    found = fit_parts(given, 0.5, ("scale", "shift", "matrix"), None, inputs="log")
    design = seen_by(given, found)
    expected = log_softmax(design.base + design.scores(found.posterior.point))
    np.testing.assert_allclose(found.map(given.logits), expected, atol=1e-9)


@pytest.mark.parametrize(
    ("classes", "parts"), [(60, ("shift", "matrix")), (160, ("scale", "shift", "matrix", "hinges"))]
)
def test_many_classes_and_very_many_features_fit_in_float32(classes: int, parts: Any) -> None:
    given = rows_of(400, classes)
    found = fit_parts(given, 0.5, parts, None)
    design = seen_by(given, found)
    assert design.base.dtype == np.float32
    losses = [-x[np.arange(400), given.labels].mean() for x in (log_softmax(given.logits / 2), found.map(given.logits))]
    assert losses[1] < losses[0]
    expected = log_softmax(design.base + design.scores(found.posterior.point))
    np.testing.assert_allclose(found.map(given.logits), expected, atol=1e-3)


@pytest.mark.parametrize("part", ["scale", "shift"])
def test_the_curvature_of_scales_and_shifts_is_the_diagonal_of_the_exact_one(part: str) -> None:
    design = design_for(rows_of(50), (part,), weights=np.random.default_rng(1).uniform(0.5, 2, 50))
    p = softmax(design.base)
    precisions = np.linspace(10, 30, 4)
    features = np.stack([design.scores(unit) for unit in np.eye(4)], axis=2)  # (n, classes, coefficients)
    exact = np.diag(precisions)
    for weight, row, feature in zip(design.weights, p, features, strict=True):
        exact = exact + weight * feature.T @ (np.diag(row) - np.outer(row, row)) @ feature
    found = curvature_of(design, p).inverse(precisions)
    np.testing.assert_allclose(found.variances(), 1 / np.diagonal(exact), rtol=1e-9)
    np.testing.assert_allclose(found.times(np.ones(4)), 1 / np.diagonal(exact), rtol=1e-9)


def test_the_curvature_of_features_is_exact_where_all_rows_are_equally_unsure() -> None:
    # With equal probabilities the diagonal is the sum of squares of a feature times p (1 - p) = 2 / 9.
    rng = np.random.default_rng(0)
    design = design_for(rows_of(60, 3), ("matrix",))
    features = rng.normal(size=(60, 3))
    features -= features.mean(axis=0)
    basis = design.basis._replace(means=np.zeros((3, 3)))
    design = replace(design, basis=basis, arrays={"features": features})
    found = curvature_of(design, np.full((60, 3), 1 / 3)).inverse(np.full(9, 7.0))
    exact = np.repeat(1 / ((features**2).sum(axis=0) * 2 / 9 + 7.0), 3)
    np.testing.assert_allclose(found.variances(), exact, rtol=1e-9)


def test_the_curvature_of_the_shared_part_is_the_covariance_of_its_functions() -> None:
    for classes in (5, 14):
        design = design_for(rows_of(80, classes), ("shared", "context"))
        p = softmax(design.base)
        features = np.stack([design.scores(unit) for unit in np.eye(35)], axis=2)  # (n, classes, 35)
        covariances = [np.cov(f, rowvar=False, aweights=q, ddof=0) for f, q in zip(features, p, strict=True)]
        found = curvature_of(design, p).inverse(np.full(35, 10.0))
        exact = np.linalg.inv(np.sum(covariances, axis=0) + 10 * np.eye(35))
        vector = np.random.default_rng(0).normal(size=35)
        np.testing.assert_allclose(found.times(vector), exact @ vector, atol=1e-8)
        np.testing.assert_allclose(found.variances(), np.diagonal(exact), atol=1e-8)


def test_the_curvature_of_a_sample_of_the_rows_is_near_that_of_all() -> None:
    given = rows_of(2_500)
    design = design_for(given, ALL_PARTS)
    p = softmax(design.base)
    precisions = np.full(design.owners.size, 10.0)
    sampled = curvature_of(design, p).inverse(precisions).variances()
    parts = [
        curvature_of(design.take(slice(first, first + 500)), p[first : first + 500]) for first in range(0, 2_500, 500)
    ]
    whole = 1 / (np.sum([each.diagonal for each in parts], axis=0) + 10.0)
    np.testing.assert_allclose(sampled[35:], whole, rtol=0.35)


@pytest.mark.parametrize("part", ["scale", "shift", "matrix", "hinges"])
def test_an_inverse_curvature_is_symmetric_and_below_the_prior(part: str) -> None:
    design = design_for(rows_of(80), (part,))
    size = design.owners.size
    found = curvature_of(design, softmax(design.base)).inverse(np.full(size, 20.0))
    matrix = np.stack([found.times(unit) for unit in np.eye(size)])
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12)
    np.testing.assert_allclose(np.diagonal(matrix), found.variances(), atol=1e-12)
    assert (found.variances() > 0).all()
    assert (found.variances() <= 1 / 20 + 1e-12).all()


def test_a_class_is_standardised_over_the_rows_where_it_is_possible() -> None:
    given = rows_of(400)
    log_p = log_softmax(given.logits)
    lowered = np.zeros_like(log_p)
    lowered[::2, 1] = -np.inf
    log_p[::2, 1] = 3.0  # wherever a masked class is put, it is not seen
    found = basis_of(log_p, np.ones(400), ("scale", "shift", "hinges"), lowered=lowered)
    expected = basis_of(log_p[1::2], np.ones(200), ("scale", "shift", "hinges"))
    np.testing.assert_allclose(found.own[:, 1], expected.own[:, 1], rtol=1e-6)
    np.testing.assert_allclose(found.knots[:, 1], expected.knots[:, 1], atol=1e-6)


def test_knots_are_quantiles_of_weighted_rows() -> None:
    counted = np.arange(400) < 203  # no quantile lies between two rows
    log_p = log_softmax(rows_of(400).logits * np.where(counted, 1.0, 3.0)[:, None])
    hinges = ("hinges",)
    first_half = basis_of(log_p[counted], np.ones(203), hinges).knots
    weighted = basis_of(log_p, np.where(counted, 7.0, 0.0), hinges).knots
    np.testing.assert_allclose(weighted, first_half, rtol=1e-12)
    twice = basis_of(np.concatenate([log_p, log_p[counted]]), np.ones(603), hinges).knots
    np.testing.assert_allclose(basis_of(log_p, np.where(counted, 2.0, 1.0), hinges).knots, twice, rtol=1e-12)
    expected = np.quantile(centred(log_p[counted]), [0.2, 0.4, 0.6, 0.8], axis=0)
    np.testing.assert_allclose(first_half, expected, atol=0.2)  # between rows next to the quantile


def drawn_with(size: float, n_rows: int, classes: int, seed: int) -> Predictions:
    """Labels of shifts that are drawn with this standard deviation."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n_rows, classes))
    shifts = size * rng.normal(size=classes)
    return Predictions(z, (z + shifts + rng.gumbel(size=z.shape)).argmax(axis=1))


def test_evidence_finds_the_precision_that_coefficients_were_drawn_with() -> None:
    for size in (0.3, 1.0):
        found = [
            fit_parts(drawn_with(size, 4_000, 30, seed), 1.0, ("shift",), None).precisions["shift"] for seed in range(4)
        ]
        # The precision of thirty draws has a relative error of sqrt(2 / 30) = 0.26, that of four times as many 0.13.
        assert np.exp(np.mean(np.log(found))) == pytest.approx(1 / size**2, rel=0.35)


@pytest.mark.parametrize("seed", [2, 4, 5])
def test_precisions_of_few_rows_of_many_classes_end_at_the_fixed_point(seed: int) -> None:
    """Where the evidence is flat, each step to the fixed point is nearly as long as the one before."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(100, 100))
    labels = (z + 0.5 * rng.normal(size=100) + rng.gumbel(size=z.shape)).argmax(axis=1)
    design = design_for(Predictions(z, labels), ("scale", "shift"))
    start = np.array([USUAL[name] for name in design.names]), np.zeros(design.owners.size)
    found, _ = find_precisions(design, *start, most_rounds=10)
    with mock.patch("glayers.fitting.evidence._SETTLED", 1e-4):
        exact, _ = find_precisions(design, *start, most_rounds=300)
    assert found == pytest.approx(exact, rel=0.1)


def test_evidence_finds_known_shifts() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(20_000, 5))
    shifts = np.array([-1.0, 0.5, 0.0, 1.5, -1.0])
    given = Predictions(z, (z + shifts + rng.gumbel(size=z.shape)).argmax(axis=1))
    found = fit_parts(given, 1.0, ("shift",), None)
    point = found.posterior.point
    assert point - point.mean() == pytest.approx(shifts - shifts.mean(), abs=0.06)
    assert 4 <= found.effective["shift"] <= 5  # the diagonal does not see that a common shift changes nothing


@pytest.mark.parametrize("parts", [*EACH, ALL_PARTS], ids="-".join)
def test_a_part_without_a_signal_stays_near_zero(parts: Any) -> None:
    given = calibrated(3_000)
    found = fit_parts(given, 1.0, parts, assign_folds(3_000, None, 5, 0))
    moved = np.abs(softmax(found.map(given.logits)) - softmax(given.logits))
    assert moved.mean() < 0.01
    assert all(value > USUAL[name] / 3 for name, value in found.precisions.items())
    assert sum(found.effective.values()) < 3.5 + 0.2 * len(found.posterior.point)


def test_a_part_with_a_signal_takes_it_and_the_others_stay() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(3_000, 6))
    given = Predictions(z, (z + np.linspace(-1, 1, 6) + rng.gumbel(size=z.shape)).argmax(axis=1))
    found = fit_parts(given, 1.0, ("shift", "matrix"), None)
    assert found.effective["shift"] > 4.5
    assert found.effective["matrix"] < 11  # of 36
    assert found.precisions["shift"] < 5 < USUAL["matrix"] / 3 < found.precisions["matrix"]


def test_effective_coefficients_grow_with_rows() -> None:
    counts = [
        sum(fit_parts(rows_of(n), 0.5, ("scale", "shift", "matrix"), None).effective.values()) for n in (100, 1_000)
    ]
    assert 0 < counts[0] < counts[1] < 24


@pytest.mark.parametrize("classes", [4, 14])
def test_permuting_classes_permutes_the_result(classes: int) -> None:
    given = rows_of(400, classes)
    order = np.random.default_rng(1).permutation(classes)
    parts = full_model(400, classes)
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
    assert one.effective == pytest.approx(other.effective, rel=1e-2)


def test_a_weight_of_two_is_the_row_twice_up_to_the_effective_number_of_rows() -> None:
    given = rows_of(300)
    weights = 1.0 + np.arange(300, dtype=np.float64) % 2
    twice = np.repeat(np.arange(300), weights.astype(int))
    # By Kish's count the weighted rows are worth 270, and the repeated ones 450: precisions make up for it.
    share = effective_rows(weights) / len(twice)
    for part in EACH:
        one = fit_parts(
            Predictions(given.logits, given.labels, weights=weights), 0.5, part, None, precisions=fixed(share)
        )
        other = fit_parts(given.take(twice), 0.5, part, None, precisions=fixed())
        np.testing.assert_allclose(one.map(given.logits), other.map(given.logits), atol=1e-3)


def without_fold(given: Predictions, folds: Numbers, fold: int, parts: Any) -> FittedParts:
    """A fit that never saw the fold, with the standardisation of all rows."""
    log_p = log_softmax(0.5 * given.logits)
    basis = basis_of(log_p, np.ones(len(given)), parts)
    with mock.patch("glayers.fitting.evidence.basis_of", return_value=basis):
        return fit_parts(given.take(folds != fold), 0.5, parts, None, precisions=fixed())


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
    assert np.isfinite(found.posterior.point).all()


def test_separable_rows_stay_finite() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(60, 4))
    given = Predictions(z, (z @ rng.normal(size=(4, 4))).argmax(axis=1))
    found = fit_parts(given, 1.0, ALL_PARTS, assign_folds(60, None, 5, 0))
    assert np.isfinite(found.map(3 * z)).all()
    assert np.isfinite(found.out_of_fold).all()
    assert all(np.isfinite(value) and value > 0 for value in found.precisions.values())


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


@pytest.mark.parametrize(("n_rows", "exact"), [(300, False), (3_000, False), (300, True)])
def test_held_out_scores_of_a_fold_come_from_the_other_rows(n_rows: int, exact: bool) -> None:
    design = design_for(rows_of(n_rows), ("shift", "matrix"))
    problem = problem_of(design)
    state, curvature, _ = solved(problem)
    folds = np.arange(n_rows) % 4
    pairs = np.repeat([False, True], [4, 16])
    rest, added = held_out_scores(problem, state, curvature, folds, [~pairs, pairs], exact=exact)
    own = folds == 1
    alone, _, _ = solved(problem._replace(design=design.take(~own)))
    rows = design.take(own)
    expected = rows.scores(np.where(pairs, 0.0, alone.point))
    # Newton steps end when a tenth of the residual is left; exact ones end like those of `alone`.
    scale = np.abs(rows.scores(alone.point - state.point)).max() * (0.1 if exact else 1)
    np.testing.assert_allclose(rest[own], expected, atol=0.2 * scale)
    np.testing.assert_allclose(added[own], rows.scores(np.where(pairs, alone.point, 0.0)), atol=0.2 * scale)


def factor_problem(rest: Numbers, labels: Any, loss: str = "log", weights: Numbers | None = None) -> PenalisedLoss:
    """A problem of which `fit_factors` reads the scores before the factors, the loss, the labels and the weights."""
    design = design_of(basis_of(log_softmax(rest), np.ones(len(rest)), ("shift",)), log_softmax(rest), labels, weights)
    return problem_of(design, loss)


@pytest.mark.parametrize("true", [0.3, 1.0, 1.7])
@pytest.mark.parametrize("loss", sorted(SMOOTH_LOSSES))
def test_the_factor_has_the_least_loss_under_its_prior(loss: str, true: float) -> None:
    rng = np.random.default_rng(2)
    rest, added = 2 * rng.normal(size=(2, 1_500, 4))
    labels = (rest + true * added + rng.gumbel(size=rest.shape)).argmax(axis=1)
    weights = rng.uniform(0, 2, 1_500)
    problem = factor_problem(rest, labels, loss, weights)

    def value(factor: float) -> float:
        losses = SMOOTH_LOSSES[loss].rows(rest + factor * added, labels)
        return float(problem.design.weights @ losses) + 4.0 / 2 * (factor - 1) ** 2

    (found,) = fit_factors(problem, added[None])
    best = minimize_scalar(value, bounds=(0, 3), method="bounded", options={"xatol": 1e-7})
    assert found == pytest.approx(best.x, abs=2e-3)
    assert found == pytest.approx(true, abs=0.15)


def test_the_factor_stays_near_one_where_rows_say_nothing() -> None:
    rng = np.random.default_rng(0)
    rest, added = rng.normal(size=(2, 50, 4))
    labels = rng.integers(0, 4, 50)
    assert fit_factors(factor_problem(rest, labels), (0.0 * added)[None]) == 1.0
    assert fit_factors(factor_problem(rest, labels), (1e-3 * added)[None]) == pytest.approx(1, abs=0.05)


def test_the_factor_of_noise_is_near_zero_and_never_below() -> None:
    rng = np.random.default_rng(0)
    rest, added = 2 * rng.normal(size=(2, 3_000, 5))
    labels = (rest + rng.gumbel(size=rest.shape)).argmax(axis=1)
    assert fit_factors(factor_problem(rest, labels), added[None]) == pytest.approx(0, abs=0.05)
    against = (rest - added + rng.gumbel(size=rest.shape)).argmax(axis=1)
    assert fit_factors(factor_problem(rest, against), added[None]) == 0.0


def test_the_factor_is_at_most_three() -> None:
    rng = np.random.default_rng(0)
    rest, added = rng.normal(size=(2, 3_000, 5))
    labels = (rest + 6 * added + rng.gumbel(size=rest.shape)).argmax(axis=1)
    assert fit_factors(factor_problem(rest, labels), added[None]) == 3.0


@pytest.mark.parametrize("loss", sorted(SMOOTH_LOSSES))
def test_three_factors_have_the_least_loss_together(loss: str) -> None:
    rng = np.random.default_rng(4)
    rest, *added = rng.normal(size=(4, 3_000, 4))
    added[1] += 0.7 * added[0]  # what one kind adds, the other can replace
    true = np.array([0.5, 1.2, 2.0])
    labels = (rest + np.tensordot(true, added, axes=1) + rng.gumbel(size=rest.shape)).argmax(axis=1)
    problem = factor_problem(rest, labels, loss)

    def value(factors: Numbers) -> float:
        losses = SMOOTH_LOSSES[loss].rows(rest + np.tensordot(factors, added, axes=1), labels)
        return float(losses.sum() + 4.0 / 2 * ((factors - 1) ** 2).sum())

    found = fit_factors(problem, np.array(added))
    np.testing.assert_allclose(found, minimize(value, np.ones(3)).x, atol=2e-3)
    np.testing.assert_allclose(found, true, atol=0.3)


def test_held_out_rows_multiply_each_kind_of_coefficients_in_the_map_by_its_factor() -> None:
    given = rows_of(400)
    folds = assign_folds(400, None, 5, 0)
    parts = ("shared", "scale", "shift", "matrix")
    whole, plain = (fit_parts(given, 0.5, parts, each) for each in (folds, None))
    assert 0 < whole.factor_of_pairs < 3
    assert plain.factor_of_pairs == 0
    ratios = np.split(whole.posterior.point / plain.posterior.point, [7, 15])
    assert len({round(float(each[0]), 6) for each in ratios}) == 3
    assert ratios[2][0] == pytest.approx(whole.factor_of_pairs)
    for each in ratios:
        np.testing.assert_allclose(each, each[0])
    design = seen_by(given, whole)
    expected = log_softmax(design.base + design.scores(whole.posterior.point))
    np.testing.assert_allclose(whole.map(given.logits), expected, atol=1e-9)


def test_given_precisions_leave_the_coefficients_as_they_are_fitted() -> None:
    given = rows_of(400)
    folds = assign_folds(400, None, 5, 0)
    whole, plain = (fit_parts(given, 0.5, ("shift", "matrix"), each, precisions=fixed()) for each in (folds, None))
    np.testing.assert_array_equal(whole.posterior.point, plain.posterior.point)


def test_pairs_of_classes_without_a_signal_have_a_small_factor_and_with_one_a_large() -> None:
    folds = assign_folds(2_000, None, 5, 0)
    with_signal = fit_parts(rows_of(2_000), 0.5, ALL_PARTS, folds)
    without = [fit_parts(calibrated(2_000, seed=seed), 1.0, ALL_PARTS, folds).factor_of_pairs for seed in range(3)]
    assert with_signal.factor_of_pairs > 0.8
    assert np.mean(without) < 0.6


def test_a_fit_without_pairs_has_no_factor() -> None:
    given = rows_of(200)
    assert fit_parts(given, 0.5, ALL_PARTS[:4], assign_folds(200, None, 5, 0)).factor_of_pairs == 0


def test_precisions_of_pairs_stay_closer_to_the_usual_ones_than_their_evidence() -> None:
    # The hyperprior of 144 coefficients counts as 14 of them.
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(6_000, 12))
    truth = z @ (np.eye(12) + 0.25 * rng.normal(size=(12, 12)))
    labels = (truth + rng.gumbel(size=z.shape)).argmax(axis=1)
    design = design_for(Predictions(z, labels), ("matrix",))
    (found,), point = find_precisions(design, np.array([USUAL["matrix"]]), np.zeros(144), 10)
    own = 144 / float((point**2).sum())
    assert own < found < USUAL["matrix"] / 2


def drawn_errors(posterior: Posterior, design: Design, draws: int = 5_000) -> Numbers:
    """The standard deviation of linearised log-odds over draws of the coefficients."""
    rng = np.random.default_rng(5)
    wide = posterior.information.inverse(WIDER * posterior.precisions)
    block, diagonal = wide.block, wide.diagonal
    shared = rng.normal(size=(draws, len(block)))
    if len(block):
        shared = shared @ np.linalg.cholesky(block).T
    steps = np.concatenate([shared, rng.normal(size=(draws, len(diagonal))) * np.sqrt(diagonal)], axis=1)
    p = softmax((design.base + design.scores(posterior.point)).astype(np.float64))
    moves = []
    for step in steps:
        change = design.scores(step).astype(np.float64) + posterior.factor_error * rng.normal() * design.base
        of_others = ((p * change).sum(axis=1, keepdims=True) - p * change) / (1 - p)
        moves.append(change - of_others)
    return np.std(moves, axis=0)


@pytest.mark.parametrize(
    ("classes", "parts"),
    [
        *((4, part) for part in EACH),
        (2, ALL_PARTS),
        (4, ALL_PARTS),
        (14, ("shared", "context")),
        (14, ALL_PARTS[:-1]),
        (30, ("shared", "context", "scale", "shift", "matrix")),
    ],
)
def test_errors_of_log_odds_are_those_of_drawn_coefficients(classes: int, parts: Any) -> None:
    found = fit_parts(rows_of(40 * classes, classes), 0.5, parts, None)
    new = rows_of(5, classes, seed=7)
    drawn = drawn_errors(found.posterior, seen_by(new, found))
    np.testing.assert_allclose(found.posterior.log_odds_errors(new.logits), drawn, rtol=0.05)


def test_errors_of_log_odds_are_those_of_the_slopes_of_the_map() -> None:
    found = fit_parts(rows_of(500, 5), 0.5, ALL_PARTS, None)
    new = rows_of(10, 5, seed=7)
    design = seen_by(new, found)
    point = found.posterior.point

    def log_odds(flat: Numbers) -> Numbers:
        log_p = corrected_map(design, flat)(design.base)
        return np.asarray(log_p - np.log(-np.expm1(log_p)))

    width = 1e-5
    slopes = [(log_odds(point + unit) - log_odds(point - unit)) / (2 * width) for unit in width * np.eye(len(point))]
    curvature = found.posterior.information.inverse(WIDER * found.posterior.precisions)
    covariance = np.diag(curvature.variances())
    covariance[:35, :35] = curvature.block
    expected = np.sqrt(np.einsum("inc,ij,jnc->nc", slopes, covariance, slopes, optimize=True))
    np.testing.assert_allclose(found.posterior.log_odds_errors(new.logits), expected, rtol=1e-4)


def test_draws_know_that_the_precision_of_the_prior_is_an_estimate() -> None:
    found = fit_parts(rows_of(60, 4), 0.5, ("scale",), None)
    unit = rows_of(1, 4, seed=7).logits

    def changes(posterior: Posterior) -> Numbers:
        return np.array(list(posterior.changes(unit, 4_000, np.random.default_rng(0))))[:, 0]

    law = found.posterior
    known = changes(replace(law, degrees=np.full(1, 1e9)))
    spread = np.sqrt(law.design(unit).parts[0].variances(law.information.inverse(law.precisions).variances()[None])[0])
    np.testing.assert_allclose(known.std(axis=0), spread, rtol=0.05)
    np.testing.assert_allclose(known.mean(axis=0) / spread, 0, atol=0.05)
    # With a weaker prior the coefficients would be further from 0, and less certain.
    estimated = changes(law)
    assert (estimated.std(axis=0) > 1.1 * spread).all()
    fitted = law.design(unit).scores(law.point)[0]
    assert ((estimated.mean(axis=0) * np.sign(fitted)) / spread > 0).all()


def test_errors_of_two_classes_are_equal_and_fall_with_rows() -> None:
    new = rows_of(20, 2, seed=7)
    errors = [
        fit_parts(rows_of(n, 2), 0.5, ALL_PARTS, None).posterior.log_odds_errors(new.logits) for n in (100, 3_000)
    ]
    np.testing.assert_allclose(errors[0][:, 0], errors[0][:, 1], rtol=1e-6)
    assert (errors[1] < errors[0]).all()


def test_the_size_of_the_model_follows_rows_and_classes() -> None:
    small = ALL_PARTS[:4]
    assert full_model(39, 8) == small
    assert full_model(40, 8) == full_model(10**6, 8) == ALL_PARTS
    assert full_model(1_000, 12) == ALL_PARTS
    assert full_model(1_000, 13) == (*small, "matrix")
    assert full_model(1_000, 50) == (*small, "matrix")
    assert full_model(10_000, 1_000) == small
