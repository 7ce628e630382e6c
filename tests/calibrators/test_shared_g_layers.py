from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp

from glayers import GlayersError, GlayersWarning, Predictions, metrics
from glayers.calibrators import shared_g_layers
from glayers.calibrators.shared_g_layers import SharedGLayers, shared_correction
from glayers.fitting.folds import assign_folds
from glayers.fitting.penalty_path import counted_rows
from glayers.fitting.shared import (
    CONTEXT_TIMES,
    STRENGTHS,
    SharedFit,
    SharedRows,
    average_over_grid,
    average_shared,
    average_without,
    fit_shared,
    shared_penalties,
    shared_rows,
    shared_step,
)
from glayers.maps import Blend
from glayers.maps.layouts import n_learned
from glayers.maps.tables import Shared


def bent(rows: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose truth is not a temperature away: the winner's margin is stretched more the larger it is."""
    rng = np.random.default_rng(seed)
    truth = 2 * rng.normal(size=(rows, classes))
    labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    return np.sign(truth) * np.abs(truth) ** 1.6, labels


def some_step(seed: int = 0) -> Shared:
    rng = np.random.default_rng(seed)
    return Shared(rng.normal(size=(6, 5)) / 10, rng.normal(size=4), rng.uniform(1, 2, 4), np.asarray(4.0))


def test_permuting_classes_permutes_the_output() -> None:
    logits, _ = bent(50, 7)
    order = np.random.default_rng(1).permutation(7)
    step = some_step()
    np.testing.assert_allclose(step(logits)[:, order], step(logits[:, order]), atol=1e-12)


def test_adding_a_constant_to_a_row_changes_nothing() -> None:
    logits, _ = bent(50, 7)
    shift = np.random.default_rng(1).normal(size=(50, 1)) * 100
    np.testing.assert_allclose(some_step()(logits), some_step()(logits + shift), atol=1e-9)


def test_no_weight_is_no_correction() -> None:
    logits, _ = bent(50, 7)
    step = Shared(np.zeros((6, 5)), np.zeros(4), np.ones(4), np.asarray(10.0))
    np.testing.assert_allclose(step(logits), log_softmax(logits, axis=1), atol=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 30, 60])
def test_numpy_and_torch_agree(classes: int) -> None:
    logits, _ = bent(40, classes)
    logits[0, 1:], logits[1], logits[2] = -np.inf, 1.0, 1e4 * logits[2]
    for depth in (10.0, 2.0):
        step = some_step().with_parameters(some_step().parameters() | {"depth": np.asarray(depth)})
        tensors = step.with_parameters({name: torch.as_tensor(value) for name, value in step.parameters().items()})
        np.testing.assert_allclose(tensors(torch.as_tensor(logits)).numpy(), step(logits), atol=1e-12)


def features(rows: SharedRows) -> np.ndarray:
    """Every function times every entry of the context, (n, outcomes, weights)."""
    return np.einsum("isn,an->nsia", rows.shapes, rows.context).reshape(*rows.logits.T.shape, -1)


def shared_losses(rows: SharedRows, theta: np.ndarray) -> np.ndarray:
    """Log loss of each row's outcome under a correction."""
    logits = rows.logits.T + features(rows) @ theta
    return logsumexp(logits, axis=1) - logits[np.arange(len(logits)), rows.labels]


@pytest.mark.parametrize("classes", [2, 5, 30, 60])
def test_what_the_fit_takes_off_the_losses_is_what_the_step_takes_off(classes: int) -> None:
    logits, labels = bent(300, classes)
    plain, own = log_softmax(logits, axis=1), (np.arange(300), labels)
    rows = shared_rows(plain, labels)
    theta = np.random.default_rng(2).normal(size=30) / 20
    gains = shared_losses(rows, np.zeros(30)) - shared_losses(rows, theta)
    np.testing.assert_allclose(gains, shared_step(rows, theta)(plain)[own] - plain[own], atol=1e-8)


def test_newton_ends_where_a_general_optimiser_does() -> None:
    logits, labels = bent(400, 5)
    rows = shared_rows(log_softmax(logits, axis=1), labels)
    weights = np.random.default_rng(3).uniform(0.5, 2, 400)

    def objective(theta: np.ndarray) -> float:
        loss = float(np.average(shared_losses(rows, theta), weights=weights))
        return loss + 10.0 / counted_rows(weights) * float((rows.scale * theta**2).sum()) / 2

    def gradient(theta: np.ndarray) -> np.ndarray:
        p = np.exp(log_softmax(rows.logits.T + features(rows) @ theta, axis=1))
        expected = (p[..., None] * features(rows)).sum(axis=1) - features(rows)[np.arange(400), rows.labels]
        return np.average(expected, axis=0, weights=weights) + 10.0 / counted_rows(weights) * rows.scale * theta

    ours = fit_shared(rows, weights, 10.0 * rows.scale, np.zeros(30))[0]
    other = minimize(objective, np.zeros(30), jac=gradient, method="BFGS", options={"gtol": 1e-7})
    assert objective(ours) == pytest.approx(other.fun, abs=1e-7)
    assert objective(ours) <= other.fun + 1e-9


@pytest.mark.parametrize("classes", [4, 12])
def test_weights_are_rows_repeated_up_to_their_effective_number(classes: int) -> None:
    logits, labels = bent(200, classes)
    plain = log_softmax(logits, axis=1)
    times = np.where(np.arange(200) % 4 == 0, 0, 3)  # 0 is no row at all; equal weights are one row each
    many = np.repeat(np.arange(200), times)
    rows, repeated = shared_rows(plain, labels, times.astype(float)), shared_rows(plain[many], labels[many])
    for part in ("scale", "centre", "spread"):
        np.testing.assert_allclose(getattr(rows, part), getattr(repeated, part), rtol=1e-9)
    once = shared_rows(plain[times > 0], labels[times > 0])
    weighted, unweighted = average_shared(rows, times.astype(float)), average_shared(once, np.ones(150))
    np.testing.assert_allclose(weighted.theta, unweighted.theta, atol=1e-7)
    np.testing.assert_allclose(weighted.chances, unweighted.chances, atol=1e-7)


def test_equal_weights_prepare_rows_as_none_do() -> None:
    logits, labels = bent(200, 4)
    plain = log_softmax(logits, axis=1)
    for one, other in zip(shared_rows(plain, labels), shared_rows(plain, labels, np.full(200, 0.3)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_the_curvature_is_that_at_the_answer() -> None:
    logits, labels = bent(400, 5)
    rows = shared_rows(log_softmax(logits, axis=1), labels)
    theta, _, curvature = fit_shared(rows, np.ones(400), 10.0 * rows.scale, np.zeros(30))
    # The curvature of the log loss is the covariance of the features under the chances of the outcomes.
    chances = np.exp(log_softmax(rows.logits.T + features(rows) @ theta, axis=1))
    covariances = [np.cov(f, rowvar=False, aweights=p, ddof=0) for f, p in zip(features(rows), chances, strict=True)]
    np.testing.assert_allclose(curvature, np.mean(covariances, axis=0), rtol=1e-9, atol=1e-12)


def test_rows_of_no_weight_teach_nothing() -> None:
    logits, labels = bent(200, 4)
    rows = shared_rows(log_softmax(logits, axis=1), labels)
    weights = np.repeat([1.0, 0.0], 100)
    spoiled = rows._replace(labels=np.where(weights > 0, rows.labels, 0))
    np.testing.assert_array_equal(average_shared(rows, weights).theta, average_shared(spoiled, weights).theta)


def test_a_weight_of_infinite_penalty_stays_at_zero_and_the_others_fit_as_if_it_were_not_there() -> None:
    logits, labels = bent(400, 5)
    rows, weights = shared_rows(log_softmax(logits, axis=1), labels), np.random.default_rng(3).uniform(0.5, 2, 400)
    free = np.arange(30) % 5 == 0
    theta, _, curvature = fit_shared(rows, weights, np.where(free, 10.0 * rows.scale, np.inf), np.ones(30))
    fewer = rows._replace(context=rows.context[:1], scale=rows.scale[free])
    alone, *_ = fit_shared(fewer, weights, 10.0 * fewer.scale, np.ones(6))
    np.testing.assert_array_equal(theta[~free], 0.0)
    np.testing.assert_array_equal(theta[free], alone)
    assert curvature.shape == (6, 6)


def test_the_context_is_penalised_apart_wherever_the_step_reads_it() -> None:
    logits, labels = bent(100, 5)
    rows = shared_rows(log_softmax(logits, axis=1), labels)
    every_strength = np.tile(STRENGTHS, len(CONTEXT_TIMES))[:, None]
    times = shared_penalties(rows) / (every_strength * rows.scale)
    for own, expected in zip(times, np.repeat(CONTEXT_TIMES, len(STRENGTHS)), strict=True):
        shaped = shared_step(rows, own).parameters()["weight"]  # shapes x context, whose first is a constant
        np.testing.assert_allclose(shaped[:, 0], 1.0)
        np.testing.assert_allclose(shaped[:, 1:], expected)


@pytest.mark.parametrize("n_rows", [400, 2_500])  # with many rows by one Newton step
def test_a_fold_is_corrected_by_what_the_other_folds_taught(n_rows: int) -> None:
    logits, labels = bent(n_rows, 5)
    rows, weights = shared_rows(log_softmax(logits, axis=1), labels), np.random.default_rng(3).uniform(0.5, 2, n_rows)
    folds, whole = assign_folds(n_rows, None, 4, 0), average_shared(rows, weights)

    def held_out_loss(thetas: list[np.ndarray]) -> float:
        return float(np.mean([shared_losses(rows, theta)[folds == fold].mean() for fold, theta in enumerate(thetas)]))

    afresh = held_out_loss([average_shared(rows, weights * (folds != fold)).theta for fold in range(4)])
    ours = held_out_loss([found.theta for found in average_without(rows, weights, folds, whole)])
    seen = held_out_loss([whole.theta] * 4)
    assert ours == pytest.approx(afresh, abs=0.2 * (afresh - seen))
    spoiled = rows._replace(labels=np.where(folds == 1, 0, rows.labels))
    one, other = (average_without(each, weights, folds, whole)[1] for each in (rows, spoiled))
    np.testing.assert_allclose(one.theta, other.theta, atol=1e-9)
    assert one.share == pytest.approx(other.share, abs=1e-9)


def test_rows_that_bend_without_context_are_not_charged_for_it() -> None:
    # Twice as sure as they should be, whatever else the row says; or only where its entropy is high.
    rng = np.random.default_rng(5)
    logits = 2 * rng.normal(size=(3_000, 5))
    plain = log_softmax(logits, axis=1)
    entropy = -(np.exp(plain) * plain).sum(axis=1, keepdims=True)
    for truth, without_context in (
        (logits / 2, True),
        (logits * np.where(entropy > np.median(entropy), 0.3, 1), False),
    ):
        labels = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
        rows = shared_rows(plain, labels)
        chances = average_shared(shared_rows(plain[:1_500], labels[:1_500]), np.ones(1_500)).chances
        assert (chances[-1 - len(STRENGTHS) : -1].sum() > 0.5) == without_context
        # With many rows, the strengths of most evidence hold the weights of the context more or less firmly.
        own, of_context = average_shared(rows, np.ones(3_000)).key
        assert (of_context > own + 2) == without_context


def test_penalties_far_from_the_best_are_not_tried() -> None:
    logits, labels = bent(400, 5)
    whole = average_shared(shared_rows(log_softmax(logits, axis=1), labels), np.ones(400))
    assert 0 < (whole.chances == 0).sum() < len(STRENGTHS) * len(CONTEXT_TIMES) / 2


def calibrated(rows: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(rows, classes))
    return logits, (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)


def test_evidence_is_for_no_correction_where_there_is_nothing_to_correct() -> None:
    logits, labels = calibrated(1_500, 5)
    chances = average_shared(shared_rows(log_softmax(logits, axis=1), labels), np.ones(1_500)).chances
    assert chances.sum() == pytest.approx(1)
    # Strong penalties and none say nearly the same; weak ones pay for weights that nobody needs.
    by_strength = chances[:-1].reshape(len(CONTEXT_TIMES), len(STRENGTHS)).sum(axis=0)
    assert chances[-1] + by_strength[:2].sum() > 0.9
    assert (np.diff(by_strength[1:]) < 0).all()
    for n_rows in (1_500, 3_000):
        logits, labels = bent(n_rows, 5)
        chances = average_shared(shared_rows(log_softmax(logits, axis=1), labels), np.ones(n_rows)).chances
        assert chances[-1] < 1e-6


def test_with_many_rows_the_penalty_of_most_evidence_is_found() -> None:
    logits, labels = bent(3_000, 5)
    rows, weights = shared_rows(log_softmax(logits, axis=1), labels), np.ones(3_000)
    found = average_shared(rows, weights)

    def evidence(penalty: np.ndarray) -> float:
        _, value, curvature = fit_shared(rows, weights, penalty, found.theta)
        spread = np.sqrt(penalty)
        inner = np.eye(30) + 3_000 * curvature / np.outer(spread, spread)
        return float(-3_000 * value - np.linalg.slogdet(inner)[1] / 2)

    finite = [each for each in shared_penalties(rows) if np.isfinite(each).all()]
    of_context = np.arange(30) % 5 > 0
    best = rows.scale * 10.0 ** np.where(of_context, *found.key[::-1])
    assert evidence(best) > max(map(evidence, finite)) - 0.5
    # The quadratic around it stands for all penalties.
    grid = average_over_grid(rows, weights)
    losses = [shared_losses(rows, theta).mean() for theta in (np.zeros(30), grid.theta, found.theta)]
    assert losses[2] == pytest.approx(losses[1], abs=0.05 * (losses[0] - losses[1]))
    assert found.share == pytest.approx(grid.share, abs=0.01)


def test_evidence_agrees_with_a_sum_over_a_fine_grid() -> None:
    # One weight alone: the integral of likelihood x prior by brute force, against Laplace's approximation.
    logits, labels = bent(300, 3)
    rows = shared_rows(log_softmax(logits, axis=1), labels)
    alone = rows._replace(shapes=rows.shapes[:1], context=rows.context[:1], scale=rows.scale[:1])
    grid = np.linspace(-3, 3, 4_001)
    log_likelihood = np.array([-shared_losses(alone, np.array([t])).sum() for t in grid])
    expected = []
    for (precision,) in shared_penalties(alone):
        log_prior = -precision * grid**2 / 2 + np.log(precision / (2 * np.pi)) / 2
        expected.append(logsumexp(log_likelihood + log_prior) + np.log(grid[1] - grid[0]))
    expected.append(-shared_losses(alone, np.zeros(1)).sum())
    # No correction has a prior probability of one half; of the penalties, the two weakest have less than the others.
    prior = np.append(np.tile([1, 1, 1, 1, 0.3, 0.1], 3) / 13.2, 1.0)
    chances = np.exp(np.array(expected) - logsumexp(expected)) * prior
    chances /= chances.sum()
    np.testing.assert_allclose(average_shared(alone, np.ones(300)).chances, chances, atol=0.01)


def test_calibrated_predictions_are_left_alone() -> None:
    logits, labels = calibrated(3_000, 5)
    plain = log_softmax(logits, axis=1)
    found = shared_correction(plain, Predictions(logits, labels), 5, 0)
    assert abs(found.attributes["gain_"]) < 1e-3
    assert np.abs(np.exp(found.map(plain)) - np.exp(plain)).max() < 0.05


def test_a_correction_that_does_harm_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = bent(500, 4)
    plain = log_softmax(logits, axis=1)
    n_fits = len(CONTEXT_TIMES) * len(STRENGTHS) + 1
    wild = SharedFit(np.random.default_rng(0).normal(size=30), np.ones(n_fits) / n_fits, np.zeros((n_fits, 30)))
    monkeypatch.setattr(shared_g_layers, "average_shared", lambda *_: wild)
    monkeypatch.setattr(shared_g_layers, "average_without", lambda *_: [wild] * 5)
    found = shared_correction(plain, Predictions(logits, labels), 5, 0)
    assert found.map.steps == ()
    assert found.attributes["gain_"] < -found.attributes["gain_error_"]
    assert found.out_of_fold is plain
    with pytest.warns(GlayersWarning, match="shared correction is left out: it raises the cross-validated log loss by"):
        SharedGLayers("temperature", random_state=0).fit(logits, labels)


@pytest.mark.parametrize("part", ["temperature", "g-layers"])
def test_it_calibrates_what_a_temperature_cannot(part: Any) -> None:
    calibration, test = bent(4_000, 8), bent(20_000, 8, seed=1)
    settings = {"max_epochs": 4} if part == "g-layers" else None
    fitted = SharedGLayers(part, random_state=0, settings=settings).fit(*calibration)
    p = fitted.predict_proba(test[0])
    top = p.max(axis=1)
    # The 5 percent bound of a sampling error that both sides carry: what 4,000 rows teach and what 20,000 show.
    assert metrics.ks(p, test[1]) < 2.24 * np.sqrt((top * (1 - top)).mean() * (1 / 4_000 + 1 / 20_000))
    assert fitted.gain_ > fitted.gain_error_
    assert fitted.out_of_fold_.shape == (4_000, 8)
    assert fitted.diagnostics_.reason.startswith("the shared correction lowers the cross-validated log loss by ")


def test_one_logit_is_enough() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(2_000, 1)) * 2
    labels = (rng.random((2_000, 1)) < 1 / (1 + np.exp(-np.tanh(z) * 2))).astype(int)[:, 0]
    fitted = SharedGLayers("temperature", random_state=0).fit(z, labels)
    assert fitted.predict_proba(z).shape == (2_000, 2)


@pytest.mark.parametrize("part", ["temperature", "vector", "matrix"])
def test_kept_in_order_no_row_ranks_its_classes_anew(part: Any) -> None:
    logits, labels = bent(600, 5)
    logits += np.array([1.5, 0.0, 0.0, -1.5, 0.0])  # a class-wise part has something to reorder
    fitted = SharedGLayers(part, keep_order=True, random_state=0).fit(logits, labels)
    test = bent(2_000, 5, seed=1)[0]
    assert np.array_equal(np.argsort(-fitted.transform(test), axis=1), np.argsort(-test, axis=1))
    assert np.array_equal(fitted.out_of_fold_.argmax(axis=1), logits.argmax(axis=1))
    free = SharedGLayers(part, random_state=0).fit(logits, labels)
    assert np.array_equal(free.predict(test), test.argmax(axis=1)) == (part == "temperature")


@pytest.mark.parametrize(
    ("chosen", "complaint"),
    [
        ({"class_part": "forest"}, "class_part must be one of .*; got 'forest'"),
        ({"class_part": ["matrix"]}, r"class_part must be one of .*; got \['matrix'\]"),
        ({"class_part": "vector", "settings": {"dropout": 0.1}}, "class_part='vector' has no setting 'dropout'.* none"),
        (
            {"settings": {"drop": 0.1, "max_epochs": 1}},
            "class_part='g-layers' has no setting 'drop'; known are activation",
        ),
        ({"settings": ["max_epochs"]}, "settings must be a dict"),
        ({"class_part": "temperature", "n_folds": "5"}, "n_folds must be at least 2, a whole number; got '5'"),
        ({"class_part": "temperature", "n_folds": 2.5}, "n_folds must be at least 2, a whole number; got 2.5"),
        ({"class_part": "temperature", "n_folds": 1}, "n_folds must be at least 2, a whole number; got 1"),
        (
            {"settings": {"recipe": "paper", "learning_rate": 1e-3, "weight_decay": 0.1, "max_epochs": 1}},
            "without cross-validation",
        ),
    ],
    ids=str,
)
def test_settings_that_nothing_could_come_of_are_refused(chosen: dict[str, Any], complaint: str) -> None:
    with pytest.raises(GlayersError, match=complaint):
        SharedGLayers(**chosen).fit(*bent(200, 3))


def test_what_was_learned_is_counted_from_the_map() -> None:
    fitted = SharedGLayers("temperature", random_state=0).fit(*bent(500, 4))
    # A temperature, 6 x 5 weights, and two shares that mix the correction with none; where the context stood is not
    # learned.
    assert fitted.n_parameters_ == n_learned(fitted.map_) == 33


def test_a_correction_from_few_rows_is_mixed_with_none() -> None:
    def moved(rows: int) -> float:
        logits, labels = bent(rows, 4)
        plain = log_softmax(logits, axis=1)
        found = shared_correction(plain, Predictions(logits, labels), 5, 0)
        share = [float(step.share) for step in found.map.steps if isinstance(step, Blend)]
        return share[0] if share else 1.0

    assert 0 < moved(120) < moved(400) < moved(3_000) == 1.0


def test_from_few_rows_there_is_no_correction_and_words_for_it() -> None:
    logits, labels = bent(6, 3)
    with pytest.warns(GlayersWarning, match=r"correction is left out.*\(too few rows or groups for a standard error\)"):
        fitted = SharedGLayers("temperature", n_folds=2, random_state=0).fit(logits, labels)
    assert fitted.n_parameters_ == 1
    assert "inf" not in fitted.diagnostics_.reason
    assert fitted.gain_error_ == np.inf
