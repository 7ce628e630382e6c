from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from glayers import BadPredictions, Confidences, metrics
from tests.lazy import torch
from tests.strategies import Case, Numbers, cases, make_case


def slow_bins(scores: Numbers, hits: Numbers, weights: Numbers, bins: int) -> list[tuple[float, float]]:
    """(share of the weight, confidence minus accuracy) of each right-closed bin that holds a row, up to rounding."""
    found = []
    for b in range(bins):
        inside = [(b / bins < s - 1e-12 or b == 0) and s - 1e-12 <= (b + 1) / bins for s in scores]
        if any(inside):
            w = weights[inside]
            gap = (w * (scores[inside] - hits[inside])).sum() / w.sum()
            found.append((float(w.sum() / weights.sum()), float(gap)))
    return found


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_equal_width_errors_agree_with_a_slow_loop(case: Case) -> None:
    p, y, w = case
    for bins in (1, 4, 15):
        found = slow_bins(p.max(axis=1), (p.argmax(axis=1) == y).astype(float), w, bins)
        assert metrics.ece(p, y, sample_weight=w, n_bins=bins) == pytest.approx(sum(s * abs(g) for s, g in found))
        by_class = [
            sum(s * abs(g) for s, g in slow_bins(p[:, c], (y == c).astype(float), w, bins)) for c in range(p.shape[1])
        ]
        assert metrics.ece_per_class(p, y, sample_weight=w, n_bins=bins) == pytest.approx(by_class)
        assert metrics.classwise_ece(p, y, sample_weight=w, n_bins=bins) == pytest.approx(np.mean(by_class))


def test_classwise_ece_bins_float32_values_next_to_an_edge_as_float64_would() -> None:
    # 0.2 in float32 lies just above the float64 edge 1/5, 1/15 perhaps just below its edge.
    for edge, bins in ((0.2, 5), (0.1, 10), (1 / 15, 15), (1 / 3, 3)):
        p = np.array([[edge, 1 - edge]] * 3, dtype=np.float32)
        wide = p.astype(np.float64)
        assert metrics.ece_per_class(p, [0, 1, 1], n_bins=bins) == pytest.approx(
            metrics.ece_per_class(wide, [0, 1, 1], n_bins=bins), abs=1e-09
        )


@pytest.mark.parametrize("bins", [1, 15])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bad", [-0.2, 1.2, np.nan, np.inf])
def test_classwise_ece_names_the_row_of_one_bad_value_among_many(bins: int, dtype: type, bad: float) -> None:
    p, y, _ = make_case(3, 50_000, 4)  # more than one block of rows
    p = p.astype(dtype)
    p[49_998, 2] = bad
    with pytest.raises(BadPredictions, match="between 0 and 1; row 49998 has"):
        metrics.classwise_ece(p, y, n_bins=bins)


def test_confidence_of_exactly_zero_and_one_is_in_the_first_and_last_bin() -> None:
    scores, hits = [0.0, 0.05, 1.0, 0.95], [True, False, False, True]
    # 10 bins: first bin holds 0 and 0.05 (gap 0.025 - 0.5), last holds 0.95 and 1 (gap 0.975 - 0.5).
    assert metrics.ece(Confidences(scores, hits), n_bins=10) == pytest.approx(0.475)


def test_ece_agrees_with_netcal_style_counts_in_torch() -> None:
    # An independent route: torch.bucketize and scatter, as the usual torch snippets do it.
    p, y, _ = make_case(2, 5_000, 8)
    confidence = torch.from_numpy(p).max(dim=1).values
    hits = torch.from_numpy((p.argmax(axis=1) == y).astype(float))
    place = torch.bucketize(confidence, torch.linspace(0, 1, 16, dtype=torch.float64)[1:-1], right=False)
    sums = torch.zeros(15, dtype=torch.float64).scatter_add(0, place, confidence - hits)
    assert metrics.ece(p, y) == pytest.approx(float(sums.abs().sum() / 5_000))


def test_settings_out_of_range_are_refused() -> None:
    p, y, _ = make_case(0, 10, 3)
    with pytest.raises(BadPredictions, match="n_bins must be at least 1"):
        metrics.ece(p, y, n_bins=0)
    wrong: list[Any] = [2.5, "15", None]
    for bins in wrong:
        for metric in (metrics.ece, metrics.classwise_ece):
            with pytest.raises(BadPredictions, match="n_bins must be at least 1, a whole number; got"):
                metric(p, y, n_bins=bins)
