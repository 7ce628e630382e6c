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
        assert metrics.mce(p, y, sample_weight=w, n_bins=bins) == pytest.approx(max(abs(g) for _, g in found))
        rms = sum(s * g * g for s, g in found) ** 0.5
        assert metrics.rms_calibration_error(p, y, sample_weight=w, n_bins=bins) == pytest.approx(rms)
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


def test_weights_that_are_shares_count_as_their_effective_number_of_rows() -> None:
    p, y, _ = make_case(6, 400, 4)
    plain = metrics.debiased_ece(p, y), metrics.debiased_rms_calibration_error(p, y)
    for weight in (1 / 400, 0.5, 1e-200):
        weights = np.full(400, weight)
        found = (
            metrics.debiased_ece(p, y, sample_weight=weights),
            metrics.debiased_rms_calibration_error(p, y, sample_weight=weights),
        )
        assert found == pytest.approx(plain, abs=1e-12)


def test_unequal_shares_count_by_the_formula_of_kish() -> None:
    # (0.5 + 0.5 + 1.5)^2 / (0.25 + 0.25 + 2.25) = 6.25 / 2.75 rows, all in one bin.
    scores, hits, weights = np.array([0.9, 0.9, 0.9]), np.array([1, 0, 1]), np.array([0.5, 0.5, 1.5])
    p = np.column_stack([1 - scores, scores])
    a = 2 / 2.5
    expected = (0.9 - a) ** 2 - a * (1 - a) / (6.25 / 2.75 - 1)
    assert expected < 0
    assert metrics.debiased_rms_calibration_error(p, hits, sample_weight=weights) == 0
    hits = np.array([0, 1, 0])
    a = 0.5 / 2.5
    expected = (0.9 - a) ** 2 - a * (1 - a) / (6.25 / 2.75 - 1)
    assert metrics.debiased_rms_calibration_error(p, hits, sample_weight=weights) == pytest.approx(expected**0.5)


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


def test_equal_mass_bins_hold_equal_numbers_when_nothing_ties() -> None:
    rng = np.random.default_rng(0)
    scores, hits = rng.random(90), rng.random(90) < 0.5
    groups = np.array_split(np.argsort(scores), 15)
    expected = sum(abs((scores[g] - hits[g]).sum()) for g in groups) / 90
    assert metrics.ece(Confidences(scores, hits), binning="equal_mass") == pytest.approx(expected)


def test_equal_mass_bins_never_split_equal_scores() -> None:
    # All rows share one score: a single bin, whose gap is the overall one.
    assert metrics.ece(Confidences([0.7] * 10, [1] * 4 + [0] * 6), binning="equal_mass") == pytest.approx(0.3)


def test_debiasing_takes_a_good_part_of_the_noise_of_a_calibrated_model_away() -> None:
    rng = np.random.default_rng(1)
    plain, debiased, rms = [], [], []
    for _ in range(100):
        p = rng.dirichlet(np.ones(3), 500)
        y = (p.cumsum(axis=1) < rng.random((500, 1))).sum(axis=1)
        plain.append(metrics.ece(p, y, binning="equal_mass"))
        debiased.append(metrics.debiased_ece(p, y))
        rms.append(metrics.debiased_rms_calibration_error(p, y))
    assert np.mean(plain) > 0.05
    assert abs(np.mean(debiased)) < 0.7 * np.mean(plain)
    assert np.mean(rms) < 0.6 * np.mean(plain)


def test_debiased_rms_is_the_published_formula() -> None:
    # Kumar et al.: sum_b share_b (gap_b^2 - a_b (1 - a_b) / (n_b - 1)), here with two bins of five rows.
    scores = np.array([0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0])
    hits = np.array([0, 0, 1, 0, 0, 1, 1, 0, 1, 1])
    p, y = np.column_stack([1 - scores, scores]), hits
    parts = []
    for rows in (slice(0, 5), slice(5, 10)):
        a = hits[rows].mean()
        parts.append(0.5 * ((scores[rows].mean() - a) ** 2 - a * (1 - a) / 4))
    assert metrics.debiased_rms_calibration_error(p, y, n_bins=2) == pytest.approx(sum(parts) ** 0.5)


def test_debiased_ece_is_the_gap_less_its_expected_noise() -> None:
    p, y, _ = make_case(6, 400, 4)
    rng = np.random.default_rng(0)
    confidence, hits = p.max(axis=1), p.argmax(axis=1) == y
    total = 0.0
    for rows in np.array_split(np.argsort(confidence), 4):
        gap, a = confidence[rows].mean() - hits[rows].mean(), hits[rows].mean()
        noise = rng.normal(gap, np.sqrt(a * (1 - a) / 100), 200_000)  # by resampling, as the paper has it
        total += 0.25 * (2 * abs(gap) - np.abs(noise).mean())
    assert metrics.debiased_ece(p, y, n_bins=4) == pytest.approx(total, abs=1e-3)


def test_settings_out_of_range_are_refused() -> None:
    p, y, _ = make_case(0, 10, 3)
    with pytest.raises(BadPredictions, match="n_bins must be at least 1"):
        metrics.ece(p, y, n_bins=0)
    wrong: list[Any] = [2.5, "15", None]
    for bins in wrong:
        for metric in (metrics.ece, metrics.debiased_ece, metrics.classwise_ece):
            with pytest.raises(BadPredictions, match="n_bins must be at least 1, a whole number; got"):
                metric(p, y, n_bins=bins)
    unknown: Any = "quantile"
    with pytest.raises(BadPredictions, match="equal_width"):
        metrics.ece(p, y, binning=unknown)
