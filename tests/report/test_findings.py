import numpy as np

from glayers import Predictions, compare
from glayers.report.findings import findings, rows_in_both
from tests.report.html_comparisons import sampled_rows


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


def test_rows_without_problems_have_no_findings() -> None:
    calibration, test = sampled_rows(900, 1), sampled_rows(1_100, 2)
    assert findings(compare(calibration, test, ["temperature"]), calibration) == []


def test_many_rare_classes_are_counted() -> None:
    found = compare(sampled_rows(300, 1, classes=30), sampled_rows(900, 2, classes=30), ["temperature"])
    (few,) = [each.found for each in findings(found, None) if "calibration" in each.subject]
    n_few = int((sampled_rows(300, 1, classes=30).label_counts() < 20).sum())
    assert f"and {n_few - 5} more: estimates for such classes are imprecise" in few


def test_shift_in_confidence_alone_needs_attention() -> None:
    calibration = sampled_rows(900, 1)
    moved = Predictions(sampled_rows(500, 5).logits / 3, sampled_rows(500, 5).labels)
    (finding,) = findings(compare(calibration, moved, ["temperature"]), calibration)
    assert "confidence (p" in finding.found
    assert "labels (p" not in finding.found
    assert finding.advice == "Fit again on rows like those the model will see"
