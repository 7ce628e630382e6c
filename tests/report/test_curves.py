"""The numbers behind figures are those of the metrics, and a calibrated model's lie where they are said to."""

import numpy as np
import pytest
from hypothesis import given, settings

from glayers.errors import BadPredictions
from glayers.metrics import old as metrics
from glayers.metrics.old.bins import Binning
from glayers.report.curves import (
    calibration_map,
    class_gaps,
    class_matrix,
    corp_reliability,
    event_name,
    event_scores,
    ks_curves,
    reliability,
    smooth_reliability,
)
from tests.metrics.simulation import sample
from tests.strategies import Case, cases


@pytest.mark.parametrize("binning", ["equal_width", "equal_mass"])
@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_the_gaps_of_bins_weighted_by_rows_are_the_ece(case: Case, binning: Binning) -> None:
    scores, hits = event_scores(case.probabilities, case.labels)
    found = reliability(scores, hits, case.weights, n_bins=7, binning=binning, n_resamples=19)
    ece = found.count @ np.abs(found.confidence - found.accuracy) / found.count.sum()
    assert ece == pytest.approx(metrics.ece_of(scores, hits, case.weights, bins=7, binning=binning), abs=1e-12)
    assert (found.low <= found.confidence + 1e-12).all()
    assert (found.confidence <= found.high + 1e-12).all()


def test_a_bin_without_rows_has_no_entry_and_a_row_on_an_edge_is_in_the_bin_below() -> None:
    found = reliability([0.05, 0.6, 0.65, 1.0], [0, 1, 0, 1], n_bins=5)
    assert found.low.tolist() == [0.0, 0.4, 0.6, 0.8]
    assert found.high.round(12).tolist() == [0.2, 0.6, 0.8, 1.0]
    assert found.count.tolist() == [1, 1, 1, 1]


def test_a_row_of_weight_two_is_the_row_twice() -> None:
    once = reliability([0.9, 0.3, 0.35], [1, 0, 1], [2, 1, 1], n_bins=5)
    twice = reliability([0.9, 0.9, 0.3, 0.35], [1, 1, 0, 1], n_bins=5)
    assert once.count.tolist() == twice.count.tolist() == [2, 2]
    assert np.array_equal(once.band_low, twice.band_low)


def test_calibrated_models_stay_inside_their_bands_as_often_as_the_level_says() -> None:
    bins, smooth, isotonic = [], [], []
    for seed in range(40):
        scores, hits = event_scores(*sample(seed, n=700, k=4))
        binned = reliability(scores, hits, n_bins=10, binning="equal_mass", n_resamples=399)
        bins += ((binned.band_low <= binned.accuracy) & (binned.accuracy <= binned.band_high)).tolist()
        kernel = smooth_reliability(scores, hits, points=11)
        smooth += ((kernel.low <= kernel.accuracy) & (kernel.accuracy <= kernel.high)).tolist()
        corp = corp_reliability(scores, hits, n_resamples=99)
        isotonic.append(np.mean((corp.low <= corp.accuracy) & (corp.accuracy <= corp.high)))
    # 400 bins covered at 0.95 each: 0.95 +- 3 * 0.011; points of a curve depend on each other, hence wider limits.
    assert 0.917 <= np.mean(bins) <= 1.0
    assert 0.90 <= np.mean(smooth) <= 1.0
    assert 0.90 <= np.mean(isotonic) <= 1.0


def test_an_overconfident_model_leaves_all_three_bands() -> None:
    scores, hits = event_scores(*sample(3, n=3000, k=4, sharpness=2.5))
    binned, kernel, corp = reliability(scores, hits), smooth_reliability(scores, hits), corp_reliability(scores, hits)
    assert (binned.accuracy < binned.band_low).mean() > 0.5
    assert (kernel.accuracy < kernel.low).mean() > 0.5
    assert (corp.accuracy < corp.low).mean() > 0.5


def test_the_area_between_the_smooth_curve_and_the_diagonal_is_the_smooth_ece() -> None:
    rng = np.random.default_rng(1)
    scores = rng.uniform(0, 1, 6000)
    hits = rng.random(6000) < 0.2 + 0.6 * scores  # away from 0 and 1, where curves are clipped
    found = smooth_reliability(scores, hits, points=401)
    area = np.trapezoid(np.abs(found.accuracy - found.x) * found.density, found.x)
    assert area == pytest.approx(metrics.smooth_ece_of(scores, hits), rel=2e-3)


@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_smooth_and_isotonic_curves_are_finite_and_ordered_whatever_the_rows(case: Case) -> None:
    scores, hits = event_scores(case.probabilities, case.labels)
    kernel = smooth_reliability(scores, hits, case.weights)
    corp = corp_reliability(scores, hits, case.weights, n_resamples=19)
    for curve in (kernel, corp):
        assert (np.diff(curve.x) > 0).all()
        assert np.isfinite([curve.accuracy, curve.low, curve.high]).all()
        assert (curve.low <= curve.high).all()
    assert (np.diff(corp.accuracy) >= 0).all()
    assert set(kernel.x) <= set(scores)


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_the_gap_marked_is_the_ks_error_of_the_metric(case: Case) -> None:
    scores, hits = event_scores(case.probabilities, case.labels, within=2)
    found = ks_curves(scores, hits, case.weights, points=5)
    gaps = np.abs(found.cumulative_score - found.cumulative_hits)
    assert gaps[found.where] == pytest.approx(found.ks, abs=1e-12)
    assert gaps.max() == gaps[found.where]
    assert found.ks == pytest.approx(metrics.ks_within_top(case.probabilities, case.labels, 2, case.weights), abs=1e-12)
    assert (found.fractile[0], found.fractile[-1]) == (0.0, pytest.approx(1.0))
    assert np.isfinite(found.hit_rate).all()


def test_bound_and_p_value_are_those_of_the_test() -> None:
    probabilities, labels = sample(5, n=400, k=5, sharpness=1.4)
    found, test = ks_curves(*event_scores(probabilities, labels)), metrics.ks_test(probabilities, labels)
    assert (found.ks, found.bound, found.p_value) == (test.value, test.bound, test.p_value)


def test_the_smoothed_hit_rate_recovers_the_probability_that_hits_were_drawn_with() -> None:
    rng = np.random.default_rng(2)
    scores = rng.uniform(0.3, 1.0, 60_000)
    found = ks_curves(scores, rng.random(60_000) < scores**2)
    assert np.abs(found.hit_rate - found.score**2)[5:-5].max() < 0.025


def test_one_score_for_all_rows_makes_a_straight_line() -> None:
    found = ks_curves([0.7] * 10, [1] * 4 + [0] * 6)
    assert found.fractile.tolist() == pytest.approx([0, 1])
    assert found.hit_rate.tolist() == pytest.approx([0.4, 0.4])
    assert smooth_reliability([0.7] * 10, [1] * 4 + [0] * 6).accuracy.tolist() == pytest.approx([0.4])


def test_an_event_is_chosen_by_rank_by_top_r_or_by_class() -> None:
    p, y = [[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]], [1, 2]
    for choice, scores, hits in (
        ({}, [0.5, 0.6], [False, True]),
        ({"rank": 2}, [0.3, 0.3], [True, False]),
        ({"within": 2}, [0.8, 0.9], [True, True]),
        ({"class_": 2}, [0.2, 0.6], [False, True]),
    ):
        found = event_scores(p, y, **choice)
        assert found[0].round(12).tolist() == scores
        assert found[1].tolist() == hits
    assert event_name(class_=2) == "class 2"
    with pytest.raises(BadPredictions, match="choose one of rank, within and class_; got"):
        event_scores(p, y, rank=1, class_=0)


def test_a_map_of_no_calibration_is_the_diagonal() -> None:
    probabilities, _ = sample(0, n=300, k=3)
    for class_ in (None, 2):
        found = calibration_map(probabilities, probabilities, class_)
        assert np.abs(found.after - found.before).max() < 1 / 40
        assert found.count.sum() == 300
        assert ((found.low <= found.after) & (found.after <= found.high)).all()


def test_a_map_follows_the_class_on_top_before_wherever_it_goes() -> None:
    found = calibration_map([[0.6, 0.3, 0.1], [0.2, 0.0, 0.8]], [[0.3, 0.4, 0.3], [0.1, 0.2, 0.7]])
    assert found.before.tolist() == [0.6, 0.8]
    assert found.after.tolist() == [0.3, 0.7]
    with pytest.raises(BadPredictions, match=r"one shape; got \(1, 2\) and \(2, 2\)"):
        calibration_map([[0.5, 0.5]], [[0.5, 0.5], [0.1, 0.9]])


@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_what_is_given_too_much_to_one_class_is_missing_from_others(case: Case) -> None:
    gaps = class_gaps(*case)
    assert gaps.gap.sum() == pytest.approx(0, abs=1e-9)
    assert gaps.ks.tolist() == metrics.class_ks(*case).tolist()
    matrix = class_matrix(*case)
    seen = matrix.predicted > 0
    assert np.abs(matrix.gap[seen].sum(axis=1)).max() < 1e-9
    assert np.isnan(matrix.gap[~seen]).all()
    # Rows of the matrix, put together again, are the gaps over all rows.
    shares = matrix.predicted[seen] / matrix.predicted.sum()
    assert shares @ matrix.gap[seen] == pytest.approx(gaps.gap, abs=1e-9)


def test_gaps_of_a_calibrated_model_are_as_large_as_their_deviation() -> None:
    matrix = class_matrix(*sample(4, n=20_000, k=6))
    ratio = (matrix.gap / matrix.deviation).ravel()
    assert float(np.sqrt(np.mean(ratio**2))) == pytest.approx(1, abs=0.3)  # 36 entries: 1 / sqrt(72) = 0.12 each way
