"""Where two-sided intervals of calibration errors cover too little, an upper bound takes their place."""

import numpy as np
import pytest

from glayers.metrics import METRICS, ece, intervals, ks
from glayers.metrics.bootstrap import Bootstrapped
from tests.metrics.simulation import sample


def test_few_different_scores_are_flagged() -> None:
    rng = np.random.default_rng(0)
    score = rng.choice([0.6, 0.7, 0.8, 0.9], 2000)
    labels = (rng.random(2000) < score - 0.2).astype(np.int64)  # overconfident by 20 points: no other reason
    p = np.column_stack([1 - score, score])
    assert intervals(p, labels, metrics=["ks"], n_resamples=99)["ks"].one_sided == "few different scores: 4"


def test_groups_of_copies_are_flagged_and_groups_of_different_rows_not() -> None:
    p, y = sample(1, 1000, 4, sharpness=2.5)
    groups = np.repeat(np.arange(1000), 5)
    copies = intervals(p.repeat(5, axis=0), y.repeat(5), groups=groups, metrics=["ks"], n_resamples=999)
    assert copies["ks"].one_sided == "rows of a group are copies"
    apart = intervals(p, y, groups=np.arange(1000) // 5, metrics=["ks"], n_resamples=999)
    assert apart["ks"].one_sided == ""


@pytest.mark.parametrize("metric", ["classwise_ks", "classwise_ece"])
def test_class_wise_errors_of_two_classes_are_flagged(metric: str) -> None:
    p, y = sample(2, 4000, 2, sharpness=4.0)
    tilted = np.column_stack([p[:, 0] ** 2, p[:, 1]])  # the two largest gaps differ, so resamples are not biased
    tilted /= tilted.sum(axis=1, keepdims=True)
    found = intervals(tilted, y, metrics=[metric, "ks"], n_resamples=99)
    assert found["ks"].one_sided == ""
    assert found[metric].one_sided in ("class-wise with two classes", "the resamples are biased")


def test_ece_is_trusted_only_far_from_zero() -> None:
    reasons = set()
    for seed in range(25):  # two of them have no other flag, and miss
        p, y = sample(seed, 1000, 2, sharpness=1.5)
        reasons.add(intervals(p, y, metrics=["ece"], n_resamples=199, random_state=seed)["ece"].one_sided)
    assert "" not in reasons
    p, y = sample(0, 10_000, 4, sharpness=2.5)
    assert intervals(p, y, metrics=["ece"], n_resamples=499)["ece"].one_sided == ""


def test_upper_bounds_cover_where_two_sided_intervals_do_not() -> None:
    # Overconfident by up to 4 points, which 300 rows hardly show; two-sided intervals of the ECE cover 0 of 40.
    p, y = sample(0, 200_000, 4, sharpness=1.15)
    truth = {"ks": ks(p, y), "ece": ece(p, y)}
    missed = dict.fromkeys(truth, 0)
    for seed in range(1, 41):
        found = intervals(*sample(seed, 300, 4, sharpness=1.15), metrics=list(truth), n_resamples=99)
        for name, value in truth.items():
            assert not found[name].one_sided or found[name].low == 0
            missed[name] += not found[name].low <= value <= found[name].high
    assert max(missed.values()) <= 2


def test_two_ends_make_up_for_having_been_chosen_by_a_large_error() -> None:
    # Before, 16 of the 20 intervals with two ends missed here: rows that show a large error by chance had two ends.
    p, y = sample(0, 400_000, 2, sharpness=1.15)
    truth = ks(p, y)
    missed = 0
    for seed in range(1, 101):
        found = intervals(*sample(seed, 500, 2, sharpness=1.15), metrics=["ks"], n_resamples=99)["ks"]
        missed += not found.low <= truth <= found.high
    assert missed <= 1


@pytest.mark.parametrize(("errors", "low"), [(3.9, 0.0), (4.5, 1.66), (6.0, 3.96), (9.0, 7.04)])
def test_the_lower_end_of_an_error_by_hand(errors: float, low: float) -> None:
    # The limit is 3 standard errors: with a mean of 1.66, P(X > 4.5) / P(X > 3) = 0.00225 / 0.0900 = 0.025.
    drawn = errors + np.array([-1.0, 0.0, 1.0])  # a standard error of 1
    found = Bootstrapped(errors, np.zeros(0), drawn, METRICS["ks"])
    assert found._lower_end(0.95) == pytest.approx(low, abs=0.005)


def test_upper_bounds_are_printed_as_such() -> None:
    found = intervals(*sample(3, 800, 5), metrics=["nll", "ks"], n_resamples=99)
    assert found["ks"].low == 0 < found["ks"].value < found["ks"].high
    assert f"at most {100 * found['ks'].high:.2f} %" in str(found)
    assert found.unreliable == {}
    assert "*" not in str(found)
