import numpy as np
import pytest

from glayers import Predictions
from glayers.metrics.events import check_rows
from glayers.report.findings import class_counts, rows_in_both, shifts
from tests.report.html_comparisons import sampled_rows


def p_values(first: Predictions, second: Predictions) -> dict[str, float | None]:
    return {check.subject.split(": ")[1]: check.p_value for check in shifts(first, second)}


def test_rows_of_one_distribution_are_flagged_as_rarely_as_the_level_says() -> None:
    # Any of three tests at 5 %, after Holm: of 200 pairs 10 are expected, 21 or more have a chance of 0.1 %.
    alarms = sum(
        any(check.status == "attention" for check in shifts(sampled_rows(300, 2 * s), sampled_rows(200, 2 * s + 1)))
        for s in range(200)
    )
    assert alarms <= 20


def test_a_class_that_became_rare_is_found_and_named() -> None:
    rows, other = sampled_rows(900, 1), sampled_rows(900, 2)
    thinned = other.take(np.setdiff1d(np.arange(900), np.flatnonzero(other.labels == 1)[100:]))
    (found,) = [check for check in shifts(rows, thinned) if check.subject.endswith("class frequencies")]
    assert found.status == "attention"
    assert found.found.startswith("significant difference: the largest change is in class 1, ")


def test_too_few_rows_to_compare_frequencies_are_said_to_be_so() -> None:
    (check,) = [each for each in shifts(sampled_rows(4, 1), sampled_rows(4, 2)) if "frequencies" in each.subject]
    assert (check.status, check.p_value) == ("not tested", None)
    assert "too few rows" in check.found


def test_rows_repeated_within_their_group_tell_nothing_more() -> None:
    first, second = sampled_rows(120, 1), sampled_rows(150, 2)

    def grouped(rows: Predictions, times: int) -> Predictions:
        place = np.repeat(np.arange(len(rows)), times)
        return Predictions(rows.logits[place], rows.labels[place], groups=place)

    once, often = (p_values(grouped(first, times), grouped(second, times)) for times in (1, 5))
    assert once == pytest.approx(often)
    assert "class frequencies" not in once  # Pearson's test counts rows, which groups make too many of


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
