"""New rows are compared with what a calibrator remembers of its calibration rows."""

import json
import math
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2
from sklearn.exceptions import NotFittedError

from glayers import (
    BadFile,
    BadPredictions,
    GlayersError,
    MultiLabelCalibrator,
    MultiLabelPredictions,
    Predictions,
    TemperatureScaling,
    VectorScaling,
    load,
    shift_test,
)
from glayers.calibrators.class_shift import RowSummary, merge_neighbours
from glayers.serving.artifact import decoded
from glayers.shift import _compare_classes
from tests.strategies import Numbers


def drawn(rows: int, seed: int, size: float = 3.0, bias: float = 0.0) -> tuple[Numbers, Numbers]:
    rng = np.random.default_rng(seed)
    logits = size * rng.normal(size=(rows, 4)) + bias * np.arange(4)
    return logits, (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)


def same_class_frequencies(before: Numbers, now: Numbers) -> float:
    return _compare_classes(before, now, [str(y) for y in range(len(before))])[0]


def test_pearsons_test_by_hand() -> None:
    # Column sums 80, 70, 50, expected halves 40, 35, 25: 2 (100/40 + 25/35 + 25/25) = 8.4286; exp(-8.4286 / 2).
    before, now = np.array([50.0, 30.0, 20.0]), np.array([30.0, 40.0, 30.0])
    assert same_class_frequencies(before, now) == pytest.approx(np.exp(-(5 + 10 / 7 + 2) / 2))
    # The last class in 20 parts: four of them, 10 rows, are enough. The same statistic has 6 degrees of freedom.
    split = [np.append(counts[:2], np.full(20, counts[2] / 20)) for counts in (before, now)]
    assert same_class_frequencies(*split) == pytest.approx(chi2.sf(5 + 10 / 7 + 2, 6))


def test_the_order_of_classes_does_not_matter_where_rare_ones_are_merged() -> None:
    before, now = np.array([40.0, 1, 30, 2, 1, 3]), np.array([30.0, 3, 35, 1, 2, 4])
    order = np.array([1, 0, 4, 2, 5, 3])
    assert same_class_frequencies(before[order], now[order]) == pytest.approx(same_class_frequencies(before, now))
    parts = merge_neighbours(np.array([6.0, 2.0, 5.0, 1.0]), 5.0)
    assert parts.tolist() == [0, 1, 1, 1]  # what is left over joins the part before


def test_one_class_tells_nothing_and_few_rows_are_not_tested() -> None:
    assert same_class_frequencies(np.array([19.0, 0.0]), np.array([10.0, 0.0])) == 1.0
    assert math.isnan(same_class_frequencies(np.array([19.0, 0.0]), np.array([9.0, 0.0])))
    assert math.isnan(same_class_frequencies(np.array([3.0, 2.0]), np.array([4.0, 3.0])))


def test_rows_like_the_calibration_rows_pass_at_the_level() -> None:
    fitted = [TemperatureScaling().fit(*drawn(600, seed)) for seed in range(60)]
    p = [shift_test(each, *drawn(n, 1_000 + s)).p_value for s, each in enumerate(fitted) for n in (60, 250)]
    assert sum(value <= 0.05 for value in p) <= 13  # of 120; 14 would be a chance of 1 in 300
    assert min(p) < 0.2  # and it is a test: some p-values are small


@pytest.mark.parametrize(
    ("change", "feature"),
    [
        ({"size": 2.0}, "confidence"),
        ({"size": 2.0}, "highest logit"),
        ({"bias": 1.0}, "predicted classes"),
        ({"bias": 1.0}, "labels"),
    ],
)
def test_each_kind_of_shift_is_named(change: dict[str, float], feature: str) -> None:
    found = shift_test(TemperatureScaling().fit(*drawn(2_000, 0)), *drawn(500, 1, **change))
    assert found.shifted
    assert found.p_values[feature] < 0.001
    assert found.p_values[feature] <= 0.05
    assert f" in {found.most_changed}, where {found.changes[found.most_changed]} (p < 0.0001)" in str(found)


def test_a_level_of_all_logits_is_seen_although_no_probability_changes() -> None:
    z, labels = drawn(2_000, 0)
    fitted = TemperatureScaling().fit(z, labels)
    found = shift_test(fitted, drawn(500, 1)[0] + 30)
    assert found.p_values["highest logit"] < 1e-9
    assert found.p_values["confidence"] > 0.001


def test_few_rows_are_not_called_fine() -> None:
    found = shift_test(TemperatureScaling().fit(*drawn(500, 0)), drawn(4, 1)[0])
    assert math.isnan(found.p_value)
    assert not found.shifted
    assert str(found) == "too few rows (4) to tell whether they look like the calibration rows"


@pytest.mark.parametrize("n", [1, 2, 9])
def test_few_rows_that_share_a_bin_are_not_called_fine(n: int) -> None:
    z, labels = drawn(500, 0)
    z[:, 0] = 9.0  # every row has the same highest logit
    assert math.isnan(shift_test(TemperatureScaling().fit(z, labels), z[:n]).p_value)


def test_copies_in_a_group_count_once() -> None:
    fitted = TemperatureScaling().fit(*drawn(1_000, 0))
    rejected = 0
    for seed in range(20):
        z, labels = (np.repeat(each, 30, axis=0) for each in drawn(40, 100 + seed))
        rejected += shift_test(fitted, z, labels, groups=np.repeat(np.arange(40), 30)).shifted
    assert rejected <= 4


def test_few_groups_are_not_called_fine_and_the_way_out_is_named() -> None:
    fitted = TemperatureScaling().fit(*drawn(1_000, 0))
    z, labels = drawn(900, 1, bias=3.0)
    groups = np.repeat(["Bern", "Oslo", "Rom"], 300)
    found = shift_test(fitted, z, labels, groups=groups)
    assert math.isnan(found.p_value)
    assert str(found).startswith("too few groups (3) to tell")
    assert "leave the groups out" in str(found)
    assert shift_test(fitted, z, labels).shifted
    with pytest.raises(BadPredictions, match=r"too few groups \(3\) .* leave the groups out"):
        fitted.adapt(z, groups=groups)


def test_calibration_rows_in_groups_count_once_too() -> None:
    z, labels = (np.repeat(each, 30, axis=0) for each in drawn(40, 0))
    fitted = TemperatureScaling().fit(z, labels, groups=np.repeat(np.arange(40), 30))
    assert sum(fitted.calibration_rows_.predicted) == 40


def test_importance_weights_count_as_their_effective_number() -> None:
    z, labels = drawn(400, 0)
    weights = np.where(np.arange(400) < 100, 1.0, 0.0)
    fitted = TemperatureScaling().fit(z, labels, sample_weight=weights)
    alone = TemperatureScaling().fit(z[:100], labels[:100])
    assert fitted.calibration_rows_.rows == pytest.approx(100)
    assert fitted.calibration_rows_.predicted == pytest.approx(alone.calibration_rows_.predicted)
    assert fitted.calibration_rows_.frequencies == pytest.approx(alone.calibration_rows_.frequencies)


def test_masked_classes_and_tied_confidences_are_counted() -> None:
    z, labels = drawn(600, 0)
    z[np.arange(600), (labels + 1) % 4] = -np.inf
    fitted = TemperatureScaling().fit(z, labels)
    assert not shift_test(fitted, z, labels).shifted
    sure = 1e4 * np.eye(4)[labels]
    with pytest.warns(UserWarning, match="temperature"):
        certain = TemperatureScaling().fit(sure, labels)
    assert shift_test(certain, sure[:100]).p_value > 0.5


def test_the_counts_are_those_of_the_predictions() -> None:
    z, labels = drawn(3_000, 0)
    fitted = TemperatureScaling().fit(z, labels)
    p, summary = fitted.predict_proba(z), fitted.calibration_rows_
    confidence, (low, *inner, high) = p.max(axis=1), summary.histograms["confidence"].edges
    assert (low, high) == pytest.approx((confidence.min(), confidence.max()), abs=1e-6)
    place = np.searchsorted(inner, confidence, side="right")
    assert summary.histograms["confidence"].counts == tuple(np.bincount(place))
    assert min(np.bincount(place)) > 200  # a tenth of the rows, although a part of them gave the edges
    np.testing.assert_allclose(summary.means(), p.mean(axis=0), rtol=1e-3)
    np.testing.assert_allclose(summary.squares, (p**2).mean(axis=0), rtol=1e-3)
    expected = [[p[place == b, c].sum() / len(p) for c in range(4)] for b in range(10)]
    np.testing.assert_allclose(summary.shares, expected, rtol=1e-3)


def test_equal_confidences_share_a_bin_whatever_their_rounding() -> None:
    rng = np.random.default_rng(0)
    kinds = 3 * rng.normal(size=(3, 60))
    z = rng.permuted(kinds[rng.integers(0, 3, 900)], axis=1) + rng.normal(size=(900, 1))  # sums in any order
    labels = np.where(rng.random(900) < 0.9, z.argmax(axis=1), 0)
    edges = TemperatureScaling().fit(z, labels).calibration_rows_.histograms["confidence"].edges
    assert len(edges) == 4  # three kinds of rows


def test_a_file_keeps_the_counts(tmp_path: Path) -> None:
    fitted = VectorScaling().fit_predictions(Predictions(*drawn(300, 0), class_names=list("abcd")))
    fitted.save(tmp_path / "v.safetensors")
    new = drawn(200, 1, bias=3.0)
    assert shift_test(load(tmp_path / "v.safetensors"), *new) == shift_test(fitted, *new)
    assert shift_test(fitted, *new).changes["labels"][:5] in ("a is ", "d is ")


def test_many_rows_give_the_counts_of_a_part() -> None:
    z, labels = drawn(30_000, 0)
    assert sum(TemperatureScaling().fit(z, labels).calibration_rows_.predicted) == 20_000


@pytest.mark.parametrize("change", [{"histograms": {"confidence": 1}}, {"more": 1}])
def test_a_record_of_other_entries_is_refused(change: dict[str, object]) -> None:
    kept = TemperatureScaling().fit(*drawn(50, 0)).calibration_rows_
    facts = json.loads(json.dumps(asdict(kept)))
    assert decoded(RowSummary, facts) == kept
    with pytest.raises(BadFile, match="an entry is missing, unknown or odd"):
        decoded(RowSummary, facts | change)


def test_wrong_input_is_refused() -> None:
    z, labels = drawn(50, 0)
    fitted = TemperatureScaling().fit(z, labels)
    with pytest.raises(NotFittedError, match="call fit first"):
        shift_test(TemperatureScaling(), z)
    with pytest.raises(BadPredictions, match="fitted on 4 logits per row; got 3"):
        shift_test(fitted, z[:, :3])
    with pytest.raises(BadPredictions, match="leave labels= and groups= out"):
        shift_test(fitted, Predictions(z, labels), labels)
    with pytest.raises(GlayersError, match="level"):
        shift_test(fitted, z, level=1.5)


def test_rows_of_several_labels_have_their_own_groups() -> None:
    z = np.random.default_rng(0).normal(size=(200, 2))
    truth = (z > 0.1).astype(float)
    fitted = MultiLabelCalibrator(TemperatureScaling()).fit(z, truth)
    given = MultiLabelPredictions(z, truth)
    for more in ({"groups": np.arange(200) // 2}, {"labels": truth}):
        with pytest.raises(BadPredictions, match="MultiLabelPredictions have their own labels; leave labels= and"):
            shift_test(fitted, given, **more)
