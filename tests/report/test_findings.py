import numpy as np

from glayers import Predictions
from glayers.metrics.events import check_rows
from glayers.report.findings import class_counts, rows_in_both
from tests.report.html_comparisons import sampled_rows


def test_a_count_of_two_is_the_row_twice_among_the_classes() -> None:
    rows = sampled_rows(50, 1)
    counts = np.where(rows.labels == 2, 2, 1)
    expected = np.bincount(np.repeat(rows.labels, counts), minlength=4)
    counted = Predictions(rows.logits, rows.labels, counts=counts)
    np.testing.assert_allclose(class_counts(check_rows(counted)), expected)


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
