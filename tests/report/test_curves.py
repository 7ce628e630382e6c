"""The numbers behind figures equal those of the metrics, and calibrated models stay inside their bands."""

import numpy as np
import pytest
from hypothesis import given, settings

from glayers import Confidences, Predictions, metrics
from glayers.errors import BadPredictions
from glayers.metrics import label, rank, top, within_top
from glayers.metrics.events import check_event, check_rows
from glayers.report.curves import PredictedGaps, errors_above, ks_curves, predicted_gaps, reliability
from tests.metrics.simulation import sample
from tests.strategies import Case, cases


@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_the_gaps_of_bins_weighted_by_rows_are_the_ece(case: Case) -> None:
    p, y, w = case
    found = reliability(check_rows(p, y, w), n_bins=7)
    ece = found.count @ np.abs(found.confidence - found.accuracy) / found.count.sum()
    assert ece == pytest.approx(metrics.ece(p, y, sample_weight=w, n_bins=7), abs=1e-12)
    assert (found.low <= found.confidence + 1e-12).all()
    assert (found.confidence <= found.high + 1e-12).all()


def test_a_bin_without_rows_has_no_entry_and_a_row_on_an_edge_is_in_the_bin_below() -> None:
    found = reliability(Confidences([0.05, 0.6, 0.65, 1.0], [0, 1, 0, 1]), n_bins=5)
    assert found.low.tolist() == [0.0, 0.4, 0.6, 0.8]
    assert found.high.round(12).tolist() == [0.2, 0.6, 0.8, 1.0]
    assert found.count.tolist() == [1, 1, 1, 1]


def test_a_row_of_count_two_is_the_row_twice() -> None:
    once = reliability(Confidences([0.9, 0.3, 0.35], [1, 0, 1], counts=[2, 1, 1]), n_bins=5)
    twice = reliability(Confidences([0.9, 0.9, 0.3, 0.35], [1, 1, 0, 1]), n_bins=5)
    assert once.count.tolist() == twice.count.tolist() == [2, 2]
    assert np.array_equal(once.band_low, twice.band_low)


def test_calibrated_models_stay_inside_their_bands_as_often_as_the_level_says() -> None:
    bins = []
    for seed in range(40):
        event = check_event(*sample(seed, n=700, k=4))
        binned = reliability(event, n_bins=10)
        bins += ((binned.band_low <= binned.accuracy) & (binned.accuracy <= binned.band_high)).tolist()
    # About 300 bins covered at 0.95 each: 0.95 - 3 * 0.013, and whole numbers of hits make the band wider.
    assert len(bins) > 280
    assert 0.911 <= np.mean(bins) <= 0.995


@pytest.mark.parametrize(("score", "n", "low", "high"), [(0.5, 10, 0.2, 0.8), (0.9, 20, 0.75, 1.0), (0.5, 1, 0.0, 1.0)])
def test_the_band_of_equal_scores_is_the_binomial_one(score: float, n: int, low: float, high: float) -> None:
    # P(X < 2) = 0.011 and P(X < 3) = 0.055 of 10 at 0.5; P(X < 15) = 0.011 and P(X < 16) = 0.043 of 20 at 0.9.
    found = reliability(Confidences([score] * n, [1] * n), n_bins=5)
    assert (found.band_low.tolist(), found.band_high.tolist()) == ([pytest.approx(low)], [pytest.approx(high)])


@pytest.mark.parametrize("weight", [1.0, 1 / 3, 0.1])
def test_the_band_of_one_row_holds_both_outcomes_that_are_likely(weight: float) -> None:
    # The band ends where the outcome lies, up to rounding; each row has a bin of its own.
    for score in (0.1, 1 / 3, 0.7):
        for correct in (0, 1):
            found = reliability(Confidences([score, 0.999], [correct, 1], weights=[weight, 0.7]), n_bins=5)
            assert not found.outside[0]


def test_a_share_at_an_end_of_its_band_is_inside_however_it_is_rounded() -> None:
    for n in range(3, 60):
        weights = np.full(n, 0.1)
        band = reliability(Confidences([0.7] * n, [1] * n, weights=weights), n_bins=1)
        for end in (band.band_low[0], band.band_high[0]):
            hits = np.arange(n) < round(end * n)
            assert not reliability(Confidences([0.7] * n, hits, weights=weights), n_bins=1).outside[0]


def test_an_overconfident_model_leaves_its_band() -> None:
    event = check_event(*sample(3, n=3000, k=4, sharpness=2.5))
    binned = reliability(event)
    assert (binned.accuracy < binned.band_low).mean() > 0.5


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_the_gap_marked_is_the_ks_error_of_the_metric(case: Case) -> None:
    p, y, w = case
    found = ks_curves(check_rows(p, y, w), event=within_top(2), points=5)
    gaps = np.abs(found.cumulative_score - found.cumulative_hits)
    assert gaps[found.where] == pytest.approx(found.test.value, abs=1e-12)
    assert gaps.max() == gaps[found.where]
    assert found.test.value == pytest.approx(metrics.ks(p, y, sample_weight=w, event=within_top(2)), abs=1e-12)
    assert (found.fractile[0], found.fractile[-1]) == (0.0, pytest.approx(1.0))


def test_curves_carry_the_ks_test_with_resampling_where_there_are_groups() -> None:
    probabilities, labels = sample(5, n=400, k=5, sharpness=1.4)
    assert ks_curves(check_rows(probabilities, labels)).test == metrics.ks_test(probabilities, labels)
    event = check_event(probabilities, labels, groups=np.repeat(np.arange(100), 4))
    assert ks_curves(event, random_state=3).test == metrics.ks_test(event, random_state=3)


def test_one_score_for_all_rows_makes_a_straight_line() -> None:
    rows = Confidences([0.7] * 10, [1] * 4 + [0] * 6)
    found = ks_curves(rows)
    assert found.fractile.tolist() == pytest.approx([0, 1])
    assert found.cumulative_hits.tolist() == pytest.approx([0, 0.4])


@pytest.mark.parametrize(
    ("event", "scores", "hits"),
    [
        (top, [0.5, 0.65], [False, True]),
        (rank(2), [0.3, 0.25], [True, False]),
        (within_top(2), [0.8, 0.9], [True, True]),
        (label("cat"), [0.2, 0.65], [False, True]),
    ],
)
def test_curves_of_an_event_are_those_of_its_scores_and_hits(
    event: metrics.Event, scores: list[float], hits: list[bool]
) -> None:
    p = np.array([[0.5, 0.3, 0.2], [0.1, 0.25, 0.65]])
    rows = Predictions(np.log(p), [1, 2], class_names=("owl", "hen", "cat"))
    pair = Confidences(scores, hits)
    binned, alone = reliability(rows, event=event), reliability(pair)
    assert binned.confidence == pytest.approx(alone.confidence)
    assert binned.accuracy.tolist() == alone.accuracy.tolist()
    assert ks_curves(rows, event=event).test.value == pytest.approx(ks_curves(pair).test.value)


def test_what_confidences_cannot_show_is_refused() -> None:
    pair = Confidences([0.6, 0.8], [True, False])
    with pytest.raises(BadPredictions, match="there is no rank 2"):
        ks_curves(pair, event=rank(2))
    with pytest.raises(BadPredictions, match="needs the probabilities of all classes"):
        predicted_gaps(pair)


@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_gaps_of_classes_weighted_by_their_rows_are_the_gap_of_all_rows(case: Case) -> None:
    rows = check_rows(*case)
    gaps = predicted_gaps(rows)
    seen = gaps.count > 0
    assert np.isnan(gaps.gap[~seen]).all()
    total = gaps.count[seen] @ gaps.gap[seen] / gaps.count[seen].sum()
    assert total == pytest.approx(float(rows.weights @ (rows.top.scores - rows.top.hits)), abs=1e-9)
    assert gaps.n_predicted == seen.sum()
    assert (gaps.gap_low[seen] <= gaps.gap[seen] + 1e-9).all()
    assert (gaps.gap[seen] <= gaps.gap_high[seen] + 1e-9).all()


def test_a_gap_that_would_show_shows_in_most_samples() -> None:
    # 20 classes with 200 rows each, predicted with 70 %; the first alone is right less often, by the detectable gap.
    rng = np.random.default_rng(0)
    predicted = np.repeat(np.arange(20), 200)
    said = np.full((4_000, 20), 0.3 / 19)
    said[np.arange(4_000), predicted] = 0.7

    def gaps(gap: float) -> PredictedGaps:
        right = rng.random(4_000) < np.where(predicted == 0, 0.7 - gap, 0.7)
        return predicted_gaps(check_rows(said, np.where(right, predicted, (predicted + 1) % 20)))

    detectable = gaps(0.0).detectable
    shown = np.mean([0 in gaps(detectable).off for _ in range(200)])
    assert 0.7 < shown < 0.9


@given(case=cases())
@settings(max_examples=25, deadline=None)
def test_errors_above_a_threshold_are_those_of_the_rows_there(case: Case) -> None:
    event = check_event(*case)
    found = errors_above(event)
    for place in (0, 20, 40, 49):
        above = event.scores >= found.threshold[place] - 1e-9
        weight = event.weights[above].sum()
        assert found.coverage[place] == pytest.approx(weight, abs=1e-12)
        if weight > 0:
            assert found.promised[place] == pytest.approx(event.weights[above] @ (1 - event.scores[above]) / weight)
            assert found.actual[place] == pytest.approx(event.weights[above] @ (1 - event.hits[above]) / weight)
        else:
            assert np.isnan(found.actual[place])
            assert not found.kept[place]


def test_calibrated_models_keep_their_promise_and_overconfident_ones_do_not() -> None:
    kept = [errors_above(check_event(*sample(seed, n=700, k=4))).kept[[0, 20, 40]] for seed in range(40)]
    assert 0.9 <= np.mean(kept) <= 0.995  # 120 entries at 0.95, those of a model depend on each other
    assert not errors_above(check_event(*sample(3, n=3000, k=4, sharpness=2.5))).kept[:45].any()


def test_bands_of_calibrated_rows_hold_where_rows_of_a_group_are_copies() -> None:
    outside = []
    kept = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scores = rng.uniform(0.5, 1, 100)
        hits = rng.random(100) < scores
        rows = Confidences(np.repeat(scores, 8), np.repeat(hits, 8), groups=np.repeat(np.arange(100), 8))
        outside += reliability(rows).outside.tolist()
        kept += errors_above(rows).kept[:40].tolist()
    assert np.mean(outside) < 0.06  # 0.5 if all rows were independent
    assert np.mean(kept) > 0.9
