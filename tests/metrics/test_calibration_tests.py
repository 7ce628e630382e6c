from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from glayers import BadPredictions, Confidences, Predictions, metrics
from glayers.metrics import CalibrationTest, Event
from glayers.metrics.calibration_tests import compare_with_draws
from glayers.metrics.null_distribution import redrawn_labels
from tests.metrics.simulation import sample
from tests.strategies import Case, Numbers, cases, confidences_of, make_case

EVENTS = [metrics.top, metrics.rank(2), metrics.within_top(2), metrics.label(1), metrics.one_of([0, 1])]
every_event = pytest.mark.parametrize("event", EVENTS, ids=str)

SCORES: dict[str, Callable[[np.random.Generator, int], Numbers]] = {
    "confident": lambda rng, n: rng.beta(5, 1, n),
    "unsure": lambda rng, n: rng.uniform(0.4, 0.6, n),
    "rare": lambda rng, n: rng.beta(1, 9, n),
    "half certain": lambda rng, n: np.where(rng.random(n) < 0.5, rng.uniform(0.99, 1, n), rng.uniform(0.4, 0.8, n)),
}


def drawn_ks_test(given: object, labels: object = None, event: Event = metrics.top, **how: Any) -> CalibrationTest:
    """The KS test by drawn labels, where `ks_test` draws hits."""
    return metrics.calibration_test(given, labels, event=event, **how).tests["ks"]


def exact_chance(scores: Numbers, value: float) -> float:
    """P(KS >= value) of independent hits, by carrying along the distribution of the number of hits so far."""
    ascending = np.sort(scores)
    n = len(ascending)
    expected = np.cumsum(ascending)
    last = np.append(ascending[1:] != ascending[:-1], True)
    alive = np.zeros(n + 1)
    alive[0], gone = 1.0, 0.0
    for i, s in enumerate(ascending):
        alive[1 : i + 2] = alive[1 : i + 2] * (1 - s) + alive[: i + 1] * s
        alive[0] *= 1 - s
        if last[i]:
            out = np.abs(np.arange(n + 1) - expected[i]) >= n * value - 1e-9
            gone += alive[out].sum()
            alive[out] = 0.0
    return float(gone)


@every_event
@given(case=cases(max_rows=25, max_classes=5))
@settings(max_examples=15, deadline=None)
def test_what_is_tested_is_the_error_itself(event: Event, case: Case) -> None:
    p, y, w = case
    for test in (metrics.ks_test, drawn_ks_test):
        found = test(p, y, sample_weight=w, event=event, n_resamples=39)
        assert found.value == pytest.approx(metrics.ks(p, y, sample_weight=w, event=event), abs=1e-12)
    of_bins = metrics.ece_test(p, y, sample_weight=w, event=event, n_bins=4, n_resamples=19)
    assert of_bins.value == pytest.approx(metrics.ece(p, y, sample_weight=w, event=event, n_bins=4), abs=1e-12)


@pytest.mark.filterwarnings("ignore:the weights make")
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 12),
    power=st.sampled_from([0.0, 1.0, 12.0, 400.0]),
    weighted=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_any_few_rows_have_a_p_value_and_a_bound(seed: int, n: int, power: float, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.random(n) ** power  # all 1, spread out, or next to 0
    hits = rng.random(n) < rng.choice([0.0, 0.5, 1.0])
    test = metrics.ks_test(Confidences(scores, hits, weights=rng.exponential(size=n) if weighted else None))
    assert 0 <= test.p_value <= 1
    assert 0 <= test.bound < np.inf
    assert 0 <= test.expected < np.inf


@pytest.mark.parametrize("kind", [*SCORES, "two hits expected", "three scores"])
def test_drawn_p_values_agree_with_the_exact_one(kind: str) -> None:
    rng = np.random.default_rng(3)
    scores = np.repeat([0.3, 0.6, 0.7], 50)
    if kind == "two hits expected":
        scores = rng.beta(1, 74, 150)
    elif kind in SCORES:
        scores = SCORES[kind](rng, 150)
    rows = Confidences(scores, rng.random(150) < np.clip(scores - 0.03, 0, 1))
    exact = exact_chance(scores, metrics.ks(rows))
    for test in (metrics.ks_test, drawn_ks_test):
        found = test(rows, n_resamples=4000)
        assert found.p_value == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 4_000) + 1 / 4_000)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", SCORES)
def test_cells_of_neighbouring_scores_have_the_errors_of_their_rows(
    kind: str, weighted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    scores = SCORES[kind](rng, 6_000)
    rows = Confidences(scores, rng.random(6_000) < scores, weights=rng.lognormal(size=6_000) if weighted else None)
    one_by_one = [test(rows, n_resamples=300) for test in (metrics.ks_test, metrics.ece_test)]
    monkeypatch.setattr("glayers.metrics.null_distribution._MOST_ROWS", 1_000)
    in_cells = [test(rows, n_resamples=300) for test in (metrics.ks_test, metrics.ece_test)]
    for rows_drawn, cells_drawn in zip(one_by_one, in_cells, strict=True):
        assert cells_drawn.value == rows_drawn.value
        assert cells_drawn.expected == pytest.approx(rows_drawn.expected, rel=0.12)
        assert cells_drawn.bound == pytest.approx(rows_drawn.bound, rel=0.2)
        assert cells_drawn.p_value == pytest.approx(rows_drawn.p_value, abs=0.15)  # standard error up to 0.04


@every_event
@pytest.mark.parametrize("weighted", [False, True])
def test_drawn_hits_and_drawn_labels_agree_on_p_value_bound_and_expectation(event: Event, weighted: bool) -> None:
    p, y = sample(7, 1_200, 6, sharpness=1.05)
    # Weights that go with the scores: only their squares give the right variance.
    w = np.random.default_rng(1).exponential(size=1_200) * p.max(axis=1) ** 3 if weighted else None
    drawn = drawn_ks_test(p, y, sample_weight=w, event=event, n_resamples=4_000)
    known = metrics.ks_test(p, y, sample_weight=w, event=event, n_resamples=4_000)
    assert drawn.p_value == pytest.approx(known.p_value, abs=0.035)
    assert drawn.bound == pytest.approx(known.bound, rel=0.06)
    assert drawn.expected == pytest.approx(known.expected, rel=0.05)


@pytest.mark.parametrize("weighted", [False, True])
def test_p_values_of_calibrated_models_are_uniform(weighted: bool) -> None:
    found: dict[str, list[float]] = {"hits": [], "labels": [], "ece": []}
    for seed in range(200):
        p, y = sample(seed, 300, 4)
        w = np.random.default_rng(seed).uniform(0.5, 2, 300) if weighted else None
        how: dict[str, Any] = {"sample_weight": w, "n_resamples": 99, "random_state": seed}
        found["hits"].append(metrics.ks_test(p, y, **how).p_value)
        found["labels"].append(drawn_ks_test(p, y, **how).p_value)
        found["ece"].append(metrics.ece_test(p, y, **how).p_value)
    for p_values in found.values():
        assert kstest(p_values, "uniform").pvalue > 0.001
        assert 1 <= sum(p <= 0.05 for p in p_values) <= 23  # 10 expected, standard deviation 3.1


def test_a_temperature_off_by_a_fifth_is_found_in_ten_thousand_rows() -> None:
    p, y = sample(0, 10_000, 10, sharpness=1.2)
    for test in (metrics.ks_test(p, y), drawn_ks_test(p, y), metrics.ece_test(p, y)):
        assert test.rejected
        assert test.value > test.bound > test.expected


@given(seed=st.integers(0, 2**32 - 1), sharpness=st.floats(0.8, 1.3), level=st.sampled_from([0.5, 0.8, 0.95]))
@settings(max_examples=25, deadline=None)
def test_a_test_rejects_just_where_its_value_exceeds_its_bound(seed: int, sharpness: float, level: float) -> None:
    p, y = sample(seed % 1_000, 90, 3, sharpness)
    how: dict[str, Any] = {"level": level, "n_resamples": 39, "random_state": seed}
    for test in (drawn_ks_test(p, y, **how), metrics.ks_test(p, y, **how), metrics.ece_test(p, y, **how)):
        assert test.rejected == (test.value > test.bound + 1e-12) == (test.p_value <= 1 - level + 1e-12)


def test_p_value_and_bound_by_hand() -> None:
    drawn = np.arange(1.0, 20.0)  # 19 resamples: only an error above all of them has a p-value of 1 / 20
    below, above = compare_with_draws(18.5, drawn, level=0.95), compare_with_draws(19.5, drawn, level=0.95)
    assert (below.p_value, below.bound, below.rejected) == (0.1, 19.0, False)
    assert (above.p_value, above.bound, above.rejected) == (0.05, 19.0, True)
    assert compare_with_draws(19.0, drawn, level=0.5).bound == 10.0
    assert compare_with_draws(19.0, drawn, level=0.95).p_value == 0.1  # as large as one of them


def test_counts_are_repeated_rows_in_metrics_tests_and_intervals() -> None:
    p, y = sample(4, 80, 3)
    times, groups = np.random.default_rng(2).integers(0, 4, 80), np.arange(80) // 4
    counted = Predictions.from_probabilities(p, y, groups=groups, counts=times)
    rows = np.repeat(np.arange(80), times)
    written = Predictions.from_probabilities(p[rows], y[rows], groups=groups[rows])
    for function in (
        partial(metrics.ks_test, n_resamples=99),
        partial(metrics.intervals, metrics=["nll", "ks"], n_resamples=19),
    ):
        assert function(counted) == function(written)
    alone = Confidences(p[:, 0], y == 0, counts=times)
    assert metrics.ks_test(alone) == metrics.ks_test(Confidences(p[rows, 0], y[rows] == 0))


_UNEVEN = np.random.default_rng(0)
IMPORTANCE = {"1 or 10": _UNEVEN.choice([1, 10], 60), "all 2": np.full(60, 2), "uneven": _UNEVEN.lognormal(size=60)}


@pytest.mark.parametrize("test", [metrics.ks_test, metrics.ece_test, metrics.classwise_ks_test])
@pytest.mark.parametrize("weights", IMPORTANCE.values(), ids=IMPORTANCE.keys())
def test_importance_weights_keep_the_level(weights: Numbers, test: Any) -> None:
    p_values = []
    for seed in range(80):
        p, y = sample(seed, 60, 3)
        p_values.append(test(p, y, sample_weight=weights, n_resamples=19, random_state=seed).p_value)
    assert sum(p <= 0.05 for p in p_values) <= 11  # 4 expected, deviation 2; as counts, 20 to 80


def test_shares_of_any_scale_give_the_same_test() -> None:
    p, y, w = make_case(5, 200, 4)
    plain, scaled = metrics.ks_test(p, y, sample_weight=w), metrics.ks_test(p, y, sample_weight=w / 1000)
    assert scaled.p_value == pytest.approx(plain.p_value, rel=1e-9)
    assert metrics.ks_test(p, y) == metrics.ks_test(p, y, sample_weight=np.ones(200))


def test_the_order_of_rows_does_not_matter() -> None:
    p, y, w = make_case(6, 300, 4)
    order = np.random.default_rng(0).permutation(300)
    plain, shuffled = (
        metrics.ks_test(p, y, sample_weight=w),
        metrics.ks_test(p[order], y[order], sample_weight=w[order]),
    )
    assert shuffled.p_value == pytest.approx(plain.p_value, rel=1e-9)


def test_rows_that_depend_on_each_other_need_groups() -> None:
    rejected = {"without": 0, "ks": 0, "ece": 0}
    for seed in range(120):
        rng = np.random.default_rng(seed)
        p = rng.dirichlet(np.ones(3), 60)
        groups = rng.permutation(np.repeat(np.arange(60), 6))
        p, u = p[groups], rng.random(60)[groups]  # one prediction and one draw a group: six copies of one row
        y = (p.cumsum(axis=1) < u[:, None]).sum(axis=1)
        rejected["without"] += metrics.ks_test(p, y, n_resamples=99).rejected
        how: dict[str, Any] = {"groups": groups, "n_resamples": 99}
        rejected["ks"] += metrics.ks_test(p, y, **how).rejected
        rejected["ece"] += metrics.ece_test(p, y, n_bins=5, **how).rejected
    assert rejected["without"] > 40
    assert rejected["ks"] <= 14  # 6 expected, standard deviation 2.4
    assert rejected["ece"] <= 16


def test_groups_of_one_row_are_as_good_as_none() -> None:
    p, y = sample(9, 2_000, 5, sharpness=1.05)
    groups = np.random.default_rng(0).permutation(2_000)
    alone = metrics.ks_test(p, y, groups=groups, n_resamples=2000)
    none = metrics.ks_test(p, y)
    assert alone.p_value == pytest.approx(none.p_value, abs=0.05)
    assert alone.bound == pytest.approx(none.bound, rel=0.07)


def test_what_is_certain_cannot_fail() -> None:
    for test in (metrics.ks_test, drawn_ks_test):
        sure = test(Confidences([1.0, 0.0, 1.0], [1, 0, 1]), n_resamples=99)
        assert (sure.value, sure.p_value, sure.bound, sure.expected) == (0.0, 1.0, 0.0, 0.0)
        assert test(Confidences([1.0, 0.0, 1.0], [1, 0, 0]), n_resamples=99).p_value <= 0.01


def test_an_error_of_zero_is_no_evidence() -> None:
    assert metrics.ks_test(Confidences([0.5] * 4, [1, 0, 1, 0])).p_value == 1.0


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others() -> None:
    p, y = sample(1, 200, 3, sharpness=1.3)
    for test in (drawn_ks_test, metrics.ece_test, metrics.classwise_ks_test):
        assert test(p, y, random_state=3) == test(p, y, random_state=3)
        assert test(p, y, random_state=3).bound != test(p, y, random_state=4).bound


def test_groups_do_not_make_an_event_that_was_not_seen_look_wrong() -> None:
    # Signs know no chance of hits that were not seen: 97 of 100 calibrated models were rejected.
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scores = rng.uniform(0, 4e-4, 200)  # 0.04 hits expected
        never = np.zeros(200)
        groups = np.arange(200) // 2
        assert not metrics.ks_test(Confidences(scores, never, groups=groups), n_resamples=99).rejected
        sure = np.column_stack([1 - scores, scores])
        assert not metrics.ece_test(sure, never.astype(int), groups=groups, n_resamples=99).rejected


def test_copies_in_groups_keep_the_level_of_a_rare_event() -> None:
    rejected = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        groups = np.repeat(np.arange(200), 10)
        scores = (rng.uniform(0.5, 1.5, 200) / 100)[groups]  # two groups of hits expected
        hits = rng.random(200)[groups] < scores
        rejected += metrics.ks_test(Confidences(scores, hits, groups=groups), n_resamples=39).rejected
    assert rejected <= 22  # 10 expected, standard deviation 3.1; 48 with signs


many_p_values = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(p_values=many_p_values)
@settings(max_examples=100, deadline=None)
def test_corrections_only_ever_raise_p_values_and_keep_their_order(p_values: list[float]) -> None:
    holm = metrics.adjust(p_values)
    order = np.argsort(p_values, kind="stable")
    assert (np.array(p_values) <= holm).all()
    assert (holm <= 1).all()
    assert (np.diff(holm[order]) >= 0).all()


def test_holm_stops_at_the_first_that_is_not_rejected() -> None:
    # Sorted: 4 x 0.01 = 0.04, 3 x 0.015 = 0.045; 2 x 0.02 = 0.04 and 1 x 0.03 may not fall below what came before.
    assert metrics.adjust([0.03, 0.01, 0.02, 0.015]) == pytest.approx([0.045, 0.04, 0.045, 0.045])


def test_a_bar_changes_nothing_and_keeps_off_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    p, y = sample(13, 60, 3)
    for test in (metrics.calibration_test, metrics.classwise_ks_test):
        assert test(p, y, n_resamples=99, progress=True) == test(p, y, n_resamples=99, progress=False)
    assert capsys.readouterr().out == ""


def test_labels_are_drawn_from_the_probabilities_of_their_row() -> None:
    rng = np.random.default_rng(0)
    p = np.array([[0.0, 0.2, 0.8, 0.0], [0.5, 0.0, 0.0, 0.5], [0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0]])
    drawn = np.concatenate(list(redrawn_labels(p.astype(np.float32), 20_000, rng)))
    assert drawn.shape == (20_000, 4)
    shares = np.array([np.bincount(column, minlength=4) for column in drawn.T]) / 20_000
    assert np.abs(shares - p).max() < 4 * 0.5 / np.sqrt(20_000)
    assert (shares[p == 0] == 0).all()
    # Rows are drawn apart from each other: rows 1 and 2 both give class 0 as often as chance has it.
    assert ((drawn[:, 1] == 0) & (drawn[:, 2] == 0)).mean() == pytest.approx(0.125, abs=0.01)


def test_labels_of_many_rows_are_drawn_in_several_passes() -> None:
    batches = list(redrawn_labels(np.tile([0.3, 0.7], (1_000, 1)), 90, np.random.default_rng(0), entries=7_000))
    assert len(batches) == 13
    drawn = [labels for batch in batches for labels in batch]
    assert len(drawn) == 90
    assert np.mean([labels.mean() for labels in drawn]) == pytest.approx(0.7, abs=4 * 0.46 / np.sqrt(90_000))
    assert len({labels.tobytes() for labels in drawn}) == 90


def test_settings_out_of_range_are_refused() -> None:
    p, y, _ = make_case(0, 20, 3)
    with pytest.raises(BadPredictions, match=r"for level 0\.95, n_resamples must be at least 19, .*; got 18"):
        metrics.ece_test(p, y, n_resamples=18)
    with pytest.raises(BadPredictions, match="level must be a number between 0 and 1; got 1"):
        metrics.ks_test(p, y, level=1)
    with pytest.raises(BadPredictions, match="random_state must be at least 0"):
        metrics.ece_test(p, y, random_state=-1)
    with pytest.raises(BadPredictions, match="p_values must be one number between 0 and 1"):
        metrics.adjust([0.5, 1.5])
    with pytest.raises(BadPredictions, match=r"label must be in 0\.\.2"):
        metrics.ks_test(p, y, event=metrics.label(3))
    with pytest.raises(BadPredictions, match=r"rank must be in 1\.\.3"):
        metrics.ks_test(p, y, event=metrics.rank(4))


def test_confidences_give_the_same_tests() -> None:
    p, y = sample(14, 300, 3, sharpness=1.3)
    pair = confidences_of(metrics.top, p, y)
    assert metrics.ks_test(pair) == metrics.ks_test(p, y)
    assert metrics.ece_test(pair, n_resamples=99) == metrics.ece_test(p, y, n_resamples=99)


def test_bad_groups_are_refused() -> None:
    p, y, _ = make_case(0, 20, 3)
    with pytest.raises(BadPredictions, match=r"needs independent rows; with groups test each class by"):
        metrics.classwise_ks_test(Predictions.from_probabilities(p, y, groups=np.arange(20)))
    with pytest.raises(BadPredictions, match=r"groups must have shape \(20,\)"):
        metrics.ks_test(p, y, groups=np.arange(19))
    with pytest.raises(BadPredictions, match=r"^groups has masked entries"):
        metrics.ks_test(p, y, groups=np.ma.masked_equal(np.arange(20), 7))
    with pytest.raises(BadPredictions, match="at least 2 different values"):
        metrics.ks_test(p, y, groups=np.zeros(20))
    with pytest.raises(BadPredictions, match="all numbers or all names"):
        metrics.ks_test(p, y, groups=np.array([1, "a"] * 10, dtype=object))


def test_rows_without_weight_leave_no_chance_to_a_sure_row() -> None:
    p, labels, weights = np.array([[0.0, 1.0], [0.5, 0.5]]), np.array([1, 0]), np.array([1.0, 1e-300])
    found = metrics.ks_test(p, labels, sample_weight=weights)
    assert found.value == pytest.approx(0, abs=1e-12)
    assert found.p_value == 1
