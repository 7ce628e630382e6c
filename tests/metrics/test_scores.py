from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from scipy.special import log_softmax

from glayers import BadPredictions, Predictions, metrics
from tests.strategies import Case, cases, confidences_of, make_case


@given(case=cases())
@settings(max_examples=50, deadline=None)
def test_proper_scores_agree_with_scikit_learn(case: Case) -> None:
    p, y, w = case
    classes = np.arange(p.shape[1])
    assert metrics.nll(p, y, sample_weight=w) == pytest.approx(
        sklearn.metrics.log_loss(y, p, labels=classes, sample_weight=w), rel=1e-11
    )
    squares = np.average(((p - np.eye(p.shape[1])[y]) ** 2).sum(axis=1), weights=w)
    assert metrics.brier_sum(p, y, sample_weight=w) == pytest.approx(squares, rel=1e-11)
    assert metrics.brier(p, y, sample_weight=w) == pytest.approx(squares / p.shape[1], rel=1e-11)


@given(case=cases())
@settings(max_examples=50, deadline=None)
def test_accuracies_agree_with_sorting(case: Case) -> None:
    p, y, w = case
    ranking = np.argsort(-p, axis=1, kind="stable")
    for k in range(1, p.shape[1] + 1):
        hits = (ranking[:, :k] == y[:, None]).any(axis=1)
        assert metrics.top_k_accuracy(p, y, sample_weight=w, k=k) == pytest.approx(np.average(hits, weights=w))
    assert metrics.accuracy(p, y, sample_weight=w) == pytest.approx(
        sklearn.metrics.accuracy_score(y, p.argmax(axis=1), sample_weight=w)
    )


def test_nll_from_float32_logits_does_not_lose_small_probabilities() -> None:
    rng = np.random.default_rng(0)
    logits = (rng.normal(size=(2_000, 50)) * 20).astype(np.float32)
    labels = rng.integers(0, 50, 2_000)
    exact = -log_softmax(logits.astype(np.longdouble), axis=1)[np.arange(2_000), labels].mean()
    assert metrics.nll(Predictions(logits, labels)) == pytest.approx(float(exact), abs=1e-7)


def test_one_logit_is_a_sigmoid() -> None:
    # -log sigmoid(2) = log(1 + e^-2); -log(1 - sigmoid(-1)) = log(1 + e^-1)
    expected = (np.log1p(np.exp(-2)) + np.log1p(np.exp(-1))) / 2
    assert metrics.nll(Predictions([[2.0], [-1.0]], [1, 0])) == pytest.approx(expected)


def test_a_label_of_probability_zero_is_infinitely_wrong() -> None:
    assert metrics.nll([[1.0, 0.0]], [1]) == np.inf
    assert metrics.nll([[1.0, 0.0], [0.5, 0.5]], [1, 0], sample_weight=[0, 1]) == pytest.approx(np.log(2))


def test_logits_that_are_not_finite_are_named() -> None:
    with pytest.raises(BadPredictions, match="row 1"):
        metrics.nll(Predictions([[0.0, 1.0], [np.nan, 1.0]], [0, 0]))
    with pytest.raises(BadPredictions, match="row 0, column 0 has inf"):
        metrics.nll(Predictions([[np.inf], [2.0]], [0, 0]))
    with pytest.raises(BadPredictions, match="shape"):
        metrics.nll(Predictions([[[0.0, 1.0]]], [0]))


def test_logits_too_far_apart_to_subtract_are_infinitely_wrong_without_a_warning() -> None:
    far = [[1e308, -1e308], [0.0, 2.0]]
    assert metrics.nll(Predictions(far, [1, 0])) == np.inf
    assert metrics.nll(Predictions(far, [1, 0], weights=[0, 1])) == pytest.approx(np.log1p(np.exp(2)))
    assert metrics.scorecard(Predictions(far, [0, 1]))["accuracy"] == 1.0


def test_k_must_be_a_number_of_classes() -> None:
    p, y, _ = make_case(0, 10, 3)
    with pytest.raises(BadPredictions, match=r"k must be in 1\.\.3, a whole number; got 4, more than 3"):
        metrics.top_k_accuracy(p, y, k=4)
    with pytest.raises(BadPredictions, match="got 5, more than 3"):
        metrics.top_k_accuracy(p, y)
    wrong: list[Any] = [1.5, "1", None]
    for k in wrong:
        with pytest.raises(BadPredictions, match=r"k must be in 1\.\.3, a whole number; got "):
            metrics.top_k_accuracy(p, y, k=k)


@pytest.mark.parametrize("score", [metrics.nll, metrics.brier, metrics.brier_sum])
def test_proper_scores_are_lowest_for_the_truth(score: Callable[..., float]) -> None:
    # Labels in exact proportion to the truth: any other constant forecast must score worse.
    truth = np.array([0.5, 0.3, 0.2])
    labels = np.repeat([2, 0, 1], [2, 5, 3])
    best = score(np.tile(truth, (10, 1)), labels)
    for other in ([0.6, 0.2, 0.2], [0.4, 0.3, 0.3], [1 / 3, 1 / 3, 1 / 3]):
        assert score(np.tile(other, (10, 1)), labels) > best


@pytest.mark.parametrize("score", [metrics.brier, metrics.brier_sum])
def test_a_label_of_negative_probability_is_refused_though_the_squares_pass(score: Callable[..., float]) -> None:
    # 0.09 + 0.64 + 0.25 = 0.98 could be the squares of probabilities.
    with pytest.raises(BadPredictions, match=r"^probabilities must be finite and lie between 0 and 1; row 0 has -0\.3"):
        score([[-0.3, 0.8, 0.5]], [0])


def test_mean_confidence_is_that_of_the_top_class() -> None:
    p, y, w = make_case(1, 30, 4)
    assert metrics.mean_confidence(p, y, sample_weight=w) == pytest.approx(np.average(p.max(axis=1), weights=w))
    assert metrics.mean_confidence(confidences_of(metrics.top, p, y)) == pytest.approx(p.max(axis=1).mean())


def test_scores_of_all_classes_refuse_confidences() -> None:
    pair = confidences_of(metrics.top, [[0.7, 0.2, 0.1]], [0])
    for score in (metrics.nll, metrics.brier, metrics.brier_sum, metrics.top_k_accuracy):
        with pytest.raises(BadPredictions, match="needs the probabilities of all classes"):
            score(pair)
