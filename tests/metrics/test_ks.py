from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from glayers import BadPredictions, Confidences, metrics
from tests.strategies import Case, Numbers, cases, make_case


def slow_ks(scores: Numbers, hits: Numbers, weights: Numbers) -> float:
    """For every threshold, add up all rows at or below it, up to rounding: quadratic, and nothing to get wrong."""
    gaps = [
        abs(sum(w * (a - s) for s, a, w in zip(scores, hits, weights, strict=True) if s <= threshold + 1e-12))
        for threshold in scores
    ]
    return float(max(gaps) / weights.sum())


@given(case=cases(max_rows=25, max_classes=5))
@settings(max_examples=40, deadline=None)
def test_every_kind_of_ks_agrees_with_a_slow_loop(case: Case) -> None:
    p, y, w = case
    ranking = np.argsort(-p, axis=1, kind="stable")
    ordered = np.take_along_axis(p, ranking, axis=1)
    hits = ranking == y[:, None]
    by_rank = [slow_ks(ordered[:, r], hits[:, r], w) for r in range(p.shape[1])]
    for r, expected in enumerate(by_rank):
        assert metrics.ks(p, y, sample_weight=w, event=metrics.rank(r + 1)) == pytest.approx(expected, abs=1e-12)
    assert metrics.mean_top_ks(p, y, sample_weight=w, n_ranks=p.shape[1]) == pytest.approx(np.mean(by_rank), abs=1e-12)
    for r in range(1, p.shape[1]):
        within = slow_ks(np.cumsum(ordered, axis=1)[:, r - 1], hits[:, :r].any(axis=1), w)
        assert metrics.ks(p, y, sample_weight=w, event=metrics.within_top(r)) == pytest.approx(within, abs=1e-9)
    for c in range(p.shape[1]):
        one = slow_ks(p[:, c], y == c, w)
        assert metrics.ks_per_class(p, y, sample_weight=w)[c] == pytest.approx(one, abs=1e-12)
        assert metrics.ks(p, y, sample_weight=w, event=metrics.one_of([c])) == pytest.approx(one, abs=1e-12)
    assert metrics.classwise_ks(p, y, sample_weight=w) == pytest.approx(
        metrics.ks_per_class(p, y, sample_weight=w).mean()
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_errors_of_classes_are_those_of_one_class_wherever_the_gap_is_largest(dtype: type, weighted: bool) -> None:
    for seed in range(60):  # in some of them, it is largest among the lowest hits
        rng = np.random.default_rng(seed)
        p: Numbers = rng.dirichlet(np.ones(3), size=40).astype(dtype)
        y = (np.log(p) + rng.gumbel(size=p.shape)).argmax(axis=1)
        weights = rng.integers(1, 3, 40) if weighted else None
        each = [metrics.ks(p, y, sample_weight=weights, event=metrics.label(c)) for c in range(3)]
        assert metrics.ks_per_class(p, y, sample_weight=weights) == pytest.approx(each, abs=1e-12)


def test_equal_scores_enter_together() -> None:
    # Four rows at 0.5, two hits: cumulative gap is 0 once all four are in, whatever their order.
    for hits in ([1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]):
        assert metrics.ks(Confidences([0.5] * 4, hits)) == 0.0


def test_labels_sampled_from_the_model_stay_below_the_sampling_bound() -> None:
    # sup |Brownian motion| on [0, 1] exceeds 2.24 with probability 0.05; the variance is mean s(1 - s).
    rng = np.random.default_rng(0)
    rejected = 0
    for _ in range(200):
        p = rng.dirichlet(np.ones(4), 1_000)
        y = (p.cumsum(axis=1) < rng.random((1_000, 1))).sum(axis=1)
        top = p.max(axis=1)
        rejected += metrics.ks(p, y) > 2.24 * np.sqrt((top * (1 - top)).mean() / 1_000)
    assert 2 <= rejected <= 20  # 10 expected, standard deviation 3.1


def test_ties_at_the_last_rank_follow_class_order() -> None:
    # Classes 1, 2 and 3 tie; class 1 holds rank 2, so only it counts there.
    p = np.array([[0.4, 0.2, 0.2, 0.2]])
    assert metrics.ks(p, [1], event=metrics.rank(2)) == pytest.approx(0.8)
    assert metrics.ks(p, [2], event=metrics.rank(2)) == pytest.approx(0.2)
    assert metrics.ks(p, [3], event=metrics.rank(4)) == pytest.approx(0.8)


def test_all_classes_are_a_certain_subset() -> None:
    p, y, _ = make_case(1, 40, 4)
    assert metrics.ks(p, y, event=metrics.one_of(range(4))) == pytest.approx(0, abs=1e-12)
    assert metrics.ks(p, y, event=metrics.within_top(4)) == pytest.approx(0, abs=1e-12)


def test_a_number_of_ranks_out_of_range_is_refused() -> None:
    p, y, _ = make_case(1, 40, 4)
    wrong: list[Any] = [0, 5, "1", 1.0, None]
    for bad in wrong:
        with pytest.raises(BadPredictions, match=r"n_ranks must be in 1\.\.4, a whole number"):
            metrics.mean_top_ks(p, y, n_ranks=bad)


def test_the_default_of_ten_ranks_says_what_to_pass_for_fewer_classes() -> None:
    p, y, _ = make_case(1, 40, 3)
    with pytest.raises(BadPredictions, match="got 10, more than 3"):
        metrics.mean_top_ks(p, y)
