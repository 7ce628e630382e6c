import re
from dataclasses import replace

import numpy as np
import pytest

from glayers import Predictions, compare
from glayers.metrics import CalibrationTest, OmnibusTest, scorecard
from glayers.report.curves import PredictedGaps
from glayers.report.verdict import findings, rows_in_both, verdict
from tests.report.html_comparisons import sampled_rows


def omnibus(adjusted: float, detectable: float) -> OmnibusTest:
    """All four tests with the same adjusted p-value."""
    names = ("ks", "ece", "rank_2_ks", "classwise_ks")
    single = CalibrationTest(value=0.01, p_value=adjusted, bound=0.02, expected=0.01, level=0.95)
    return OmnibusTest(
        dict.fromkeys(names, single), dict.fromkeys(names, adjusted), "confidence", 9_000, None, 999, 0.95, detectable
    )


def gaps(p_value: float) -> PredictedGaps:
    """Three classes, of which the second has this p-value."""
    gap = np.array([0.0, 0.2, 0.0])
    p_values = np.array([1.0, p_value, 1.0])
    return PredictedGaps(["a", "b", "c"], np.full(3, 3_000.0), gap, gap - 0.01, gap + 0.01, p_values)


@pytest.mark.parametrize(
    ("adjusted", "detectable", "of_class", "answer", "tone"),
    [
        (0.5, 0.01, 0.5, "Yes", "good"),
        (0.5, 0.01, 1e-4, "Not where it predicts b", "bad"),
        (0.5, 0.05, 1e-4, "Not where it predicts b", "bad"),
        (0.5, 0.05, 0.5, "Too few rows to tell", "fair"),
        (np.nan, np.nan, 0.5, "Too few groups to tell", "fair"),
        (1e-3, 0.01, 1e-4, "Not calibrated", "bad"),
        (1e-3, 0.05, 0.5, "Not calibrated", "bad"),
    ],
)
def test_only_a_model_without_any_error_on_enough_rows_is_called_calibrated(
    adjusted: float, detectable: float, of_class: float, answer: str, tone: str
) -> None:
    card = scorecard(sampled_rows(60, 1))
    said = verdict(omnibus(adjusted, detectable), card, gaps(of_class))
    assert (said.answer, said.tone) == (answer, tone)
    assert ("predicts b" in said.sentence) == (answer == "Not where it predicts b")


def test_errors_below_the_top_class_alone_are_named() -> None:
    found = replace(omnibus(0.5, 0.01), adjusted={"ks": 0.5, "ece": 0.5, "rank_2_ks": 0.001, "classwise_ks": 0.5})
    card = scorecard(sampled_rows(60, 1))
    assert verdict(found, card, gaps(0.5)).answer == "Only the top probability"
    small = replace(gaps(1e-4), gap=np.array([0.0, 0.09, 0.0]))
    assert verdict(found, card, small).tone == "fair"
    # "The confidence is calibrated" would contradict the list of the classes whose confidence is off.
    both = verdict(found, card, gaps(1e-4))
    assert (both.answer, both.sentence) == (
        "Not where it predicts b",
        "the model is not calibrated where it predicts b",
    )


def test_only_the_same_logits_with_the_same_label_are_the_same_row() -> None:
    rows, other = sampled_rows(60, 1), sampled_rows(40, 2)
    assert rows_in_both(rows, other) == 0
    mixed = Predictions(
        np.concatenate([other.logits, rows.logits[:7]]), np.concatenate([other.labels, rows.labels[:7]])
    )
    assert rows_in_both(rows, mixed) == 7
    relabelled = Predictions(rows.logits[:7], (rows.labels[:7] + 1) % 4)
    assert rows_in_both(rows, relabelled) == 0
    assert rows_in_both(rows, Predictions(rows.logits.astype(np.float32), rows.labels)) == 0


def test_rows_that_repeat_within_both_sets_are_no_sign_of_shared_rows() -> None:
    # Rounded logits: each set holds each of 200 rows about five times.
    rows = sampled_rows(200, 1)
    parts = [rows.take(np.random.default_rng(seed).integers(0, 200, 1_000)) for seed in (1, 2)]
    assert rows_in_both(*parts) == 0
    # A test set that was joined twice is no excuse for rows of the calibration set in it.
    assert rows_in_both(rows, rows.take(np.tile(np.arange(50), 2))) == 100


def test_single_logits_that_are_the_same_by_chance_are_no_shared_rows() -> None:
    # 15 million pairs of logits between 2 and 4, where float32 has 8 million numbers: about one pair is the same.
    rng = np.random.default_rng(0)
    parts = [Predictions(rng.uniform(2, 4, (n, 1)).astype(np.float32), np.ones(n, np.int64)) for n in (3_000, 5_000)]
    logits = [set(part.logits[:, 0].tolist()) for part in parts]
    assert logits[0] & logits[1]
    assert rows_in_both(*parts) == 0
    shared = Predictions(np.concatenate([parts[1].logits, parts[0].logits[:20]]), np.ones(5_020, np.int64))
    assert rows_in_both(parts[0], shared) >= 20


def test_rows_without_problems_have_no_findings() -> None:
    calibration, test = sampled_rows(900, 1), sampled_rows(1_100, 2)
    assert findings(compare(calibration, test, ["temperature"]), calibration) == []


def test_many_rare_classes_are_counted_and_few_are_named() -> None:
    calibration, test = (sampled_rows(n, seed, classes=30) for n, seed in ((600, 1), (2_000, 2)))
    n_few = int((calibration.label_counts() < 20).sum())
    assert 3 < n_few < 30
    (few,) = findings(compare(calibration, test, ["temperature"]), None)
    assert few == (
        "Rare classes",
        f"fewer than 20 calibration rows of {n_few} of 30 classes",
        f"Collect labelled rows of {n_few} of 30 classes.",
    )
    kept = np.flatnonzero((test.labels > 1) | (np.arange(2_000) < 60))
    few = findings(compare(test, test.take(kept), ["temperature"]), None)[-1]
    assert few[1:] == ("fewer than 20 test rows of class 0, class 1", "Collect labelled rows of class 0, class 1.")


def test_shift_in_confidence_alone_needs_attention() -> None:
    calibration = sampled_rows(900, 1)
    moved = Predictions(sampled_rows(500, 5).logits / 3, sampled_rows(500, 5).labels)
    (finding,) = findings(compare(calibration, moved, ["temperature"]), calibration)
    assert finding.found.startswith("the largest difference is in highest logit minus mean logit (")
    assert re.search(r"% of the calibration rows but [0-9.]+ % of the test rows are below", finding.found)
    assert finding.advice == "Fit again on rows like those the model will see."
