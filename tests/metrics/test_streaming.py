"""Accumulators give the numbers of `scorecard`, however rows are ordered and divided."""

import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glayers import Confidences, Predictions
from glayers.errors import BadPredictions
from glayers.metrics import METRICS, Metric, StreamingScorecard, label, scorecard
from glayers.metrics.events import Rows, Scored
from glayers.metrics.metric import Block
from glayers.metrics.streaming import RowSample, cell_of, row_places
from tests.strategies import Case, cases, make_case

ITERATED = ("calibration_slope", "calibration_intercept")
ORDERED = ("kuiper", *list(METRICS)[list(METRICS).index("calibration_slope") :])
CELLS = {"octaves": 14, "bits": 12}  # of the scores of events


def accumulator(*settings: Any, keep: int = 0, **how: Any) -> StreamingScorecard:
    """Return one that keeps few rows or none as they are."""
    made = StreamingScorecard(*settings, **how)
    made.exact_entries = keep
    return made


def streamed(case: Case, weights: Any, parts: list[Any], **how: Any) -> StreamingScorecard:
    """Add up each part by itself, and merge them."""
    whole = accumulator(**how)
    for part in parts:
        own = None if weights is None else weights[part]
        one = accumulator(**how)
        one.update(case.probabilities[part], case.labels[part], sample_weight=own)
        whole.merge(one)
    return whole


def assert_same(found: StreamingScorecard, wanted: Any, slack: float = 1e-12) -> None:
    card = found.result()
    assert list(card) == list(wanted)
    assert (card.rows, card.classes) == (wanted.rows, wanted.classes)
    for name, value in wanted.items():
        if name in ORDERED and not found._kept:  # of scores next to 1, cells keep too few digits
            continue
        allowed = max(slack, {"smooth_ece": 1e-6}.get(name, 0.0))
        if name in ITERATED:
            allowed = max(slack, 1e-5)
        assert card[name] == value or abs(card[name] - value) <= allowed, (name, card[name], value)


@settings(deadline=None, max_examples=30)
@given(case=cases(max_rows=80), weighted=st.booleans(), kept=st.booleans(), seed=st.integers(0, 10**6))
def test_any_partition_in_any_order_gives_the_scorecard_of_all_rows(
    case: Case, weighted: bool, kept: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n = len(case.labels)
    order, cuts = rng.permutation(n), np.sort(rng.integers(0, n + 1, rng.integers(0, 5)))
    weights = case.weights if weighted else None
    found = streamed(case, weights, np.split(order, cuts), keep=10**6 if kept else 0)
    whole = streamed(case, weights, [np.arange(n)], keep=10**6 if kept else 0)
    assert_same(found, whole.result(), slack=1e-9)
    wanted = scorecard(case.probabilities, case.labels, sample_weight=weights)
    if kept:
        assert_same(found, wanted)
    result = found.result()
    for name in ("accuracy", "nll", "brier", "ece", "classwise_ece"):
        assert result[name] == pytest.approx(wanted[name], abs=1e-12)


@pytest.mark.filterwarnings("ignore:the weights make")
@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 300), heavy=st.sampled_from([1.0, 1e3, 1e9]), seed=st.integers(0, 10**6))
def test_metrics_of_an_event_are_those_of_scores_rounded_to_the_mean_of_their_cell(
    n: int, heavy: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    scores = np.clip(rng.choice([0.5, 0.93, 0.999]) + rng.normal(0, 1e-3, n), 0, 1)  # many in a cell
    weights = np.where(rng.random(n) < 0.2, heavy, 1.0) * rng.gamma(1, size=n) + 1e-3
    rows = Confidences(scores, rng.random(n) < scores, weights)
    _, cell = np.unique(cell_of(scores, **CELLS), return_inverse=True)
    rounded = (np.bincount(cell, weights * scores) / np.bincount(cell, weights))[cell]
    assert np.abs(rounded / scores - 1).max() < 1 / 4096
    found = accumulator()
    for part in np.array_split(rng.permutation(n), min(n, 3)):
        found.update(rows.take(part))
    wanted = scorecard(Confidences(rounded, rows.correct, weights))
    result = found.result()
    exact = scorecard(rows)
    means = ("accuracy", "confidence", "confidence_nll", "confidence_brier")  # exact, without rounding
    for name in set(wanted) - set(means):
        assert result[name] == pytest.approx(wanted[name], rel=1e-4, abs=1e-5), name
    for name in means:
        assert result[name] == pytest.approx(exact[name], rel=1e-9), name


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_many_rows_are_scored_as_if_all_were_kept(kind: Any) -> None:
    case = make_case(3, 20_000, 7)
    p = case.probabilities.astype(kind)
    p = p if kind == np.float64 else (p / p.sum(axis=1, keepdims=True)).astype(kind)
    labels = (np.cumsum(case.probabilities, axis=1) < np.random.default_rng(0).random((len(p), 1))).sum(axis=1)
    case = case._replace(probabilities=p, labels=labels.clip(0, 6))
    found = streamed(case, None, np.array_split(np.arange(len(p)), 3))
    wanted = scorecard(p, case.labels)
    assert_same(found, wanted, slack=5e-4)
    result = found.result()
    for name in ("ks", "mean_top_ks", "classwise_ks"):
        assert result[name] == pytest.approx(wanted[name], abs=5e-5)


def test_a_new_metric_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    def large(event: Scored, block: Block) -> Any:
        return np.abs((event.scores - event.hits) @ block.weights)

    def spread(rows: Rows) -> Any:
        return rows.probabilities.std(axis=1)

    added = [
        Metric("in_the_large", "in the large", large, "Cox, Biometrika 1958"),
        Metric("in_the_large_by_rank", "by rank", large, "none", about="ranks", at_most=2),
        Metric("in_the_large_by_class", "by class", large, "none", about="classes"),
        Metric("spread", "spread", spread, "none", about="rows", per_row=True),
    ]
    for metric in added:
        monkeypatch.setitem(METRICS._values, metric.name, metric)
    case = make_case(4, 500, 4)
    found = streamed(case, case.weights, np.array_split(np.arange(500), 3))
    card, wanted = found.result(), scorecard(case.probabilities, case.labels, sample_weight=case.weights)
    assert list(card) == list(wanted) == list(METRICS)
    for metric in added:
        assert card[metric.name] == pytest.approx(wanted[metric.name], abs=1e-12), metric.name


def test_logits_confidences_and_events_are_accumulated_too() -> None:
    case = make_case(5, 300, 4)
    rows = Predictions(3 * np.log(case.probabilities), case.labels, case.weights)
    for half in (0, 10**6):
        found = accumulator("logits", keep=half)
        for some in (slice(0, 1), slice(1, 150), slice(150, 300)):
            found.update(rows.logits[some], rows.labels[some], sample_weight=case.weights[some])
        assert_same(found, scorecard(rows))
        one = accumulator(event=label(2), keep=half)
        sure = accumulator(keep=half)
        answers = Confidences(case.probabilities[:, 0], case.labels == 0)
        for part in (np.arange(100), np.arange(100, 300)):
            one.update(rows.take(part))
            sure.update(answers.take(part))
        assert_same(one, scorecard(rows, event=label(2)))
        assert_same(sure, scorecard(answers))


def test_scores_that_take_few_values_have_no_error() -> None:
    rng = np.random.default_rng(0)
    answers = Confidences(rng.choice([0.3, 0.1 + 0.2, 0.9, 0.5], 2_000), rng.random(2_000) < 0.6)
    found = accumulator().update(answers)
    assert found.result()["ks"] == pytest.approx(scorecard(answers)["ks"], abs=1e-12)


@pytest.mark.filterwarnings("ignore:the weights make")
def test_heavy_weights_in_any_partition_have_the_scores_of_all_rows() -> None:
    for seed in range(30):
        rng = np.random.default_rng(seed)
        case = make_case(seed, int(rng.integers(2, 60)), int(rng.integers(2, 6)))
        n = len(case.labels)
        heavy = rng.choice([1e3, 1e6, 1e9])
        weights = np.where(rng.random(n) < 0.2, heavy, 1.0) * rng.gamma(1, size=n) + 1e-3
        wanted = scorecard(case.probabilities, case.labels, sample_weight=weights)
        cuts = np.sort(rng.integers(0, n + 1, 3))
        parts = np.split(rng.permutation(n), cuts)
        assert_same(streamed(case, weights, parts, keep=10**6), wanted)
        in_cells = streamed(case, weights, parts).result()
        for name in ("accuracy", "nll", "brier", "ece", "classwise_ece", "observed_over_expected"):
            assert in_cells[name] == pytest.approx(wanted[name], abs=1e-12), name


def test_rounding_in_the_sum_of_many_equal_scores_keeps_hits_and_misses_together() -> None:
    n = 400_000  # the sum of 0.6 over the hits is too large by 3e-12 of itself, which is past the edge of a bin
    hits = np.arange(n) % 10 < 9
    found = accumulator().update(Confidences(np.full(n, 0.6), hits))
    for name in ("ks", "ece"):
        assert found.result()[name] == pytest.approx(0.3, abs=1e-9), name


def test_impossible_labels_make_the_loss_infinite_only_where_they_have_weight() -> None:
    p, labels = np.array([[1.0, 0.0, 0.0], [0.2, 0.5, 0.3]]), np.array([1, 2])
    for weights in ([1.0, 1.0], [0.0, 1.0]):
        found = accumulator()
        for row in (0, 1):
            found.update(p[[row]], labels[[row]], sample_weight=[weights[row]])
        assert_same(found, scorecard(p, labels, sample_weight=weights))
        assert math.isinf(found.result()["nll"]) is (weights[0] > 0)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**6), grouped=st.booleans(), parts=st.integers(1, 6))
def test_a_random_subset_is_the_same_for_any_partition(seed: int, grouped: bool, parts: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 15, 60) if grouped else None
    rows = Predictions(rng.normal(size=(60, 3)) + 5, rng.integers(0, 3, 60), groups=groups)
    places = row_places(0, 60)
    whole = RowSample(20).update(rows, places).result()
    divided = RowSample(20)
    for part in np.array_split(rng.permutation(60), parts):
        divided.merge(RowSample(20).update(rows.take(part), places[part]))
    assert len(whole) == 20
    assert isinstance(whole, Predictions)
    again = divided.result()
    assert isinstance(again, Predictions)
    assert (whole.logits == again.logits).all()  # in the order of the places, too
    assert np.isin(whole.logits[:, 0], rows.logits[:, 0]).all()


def test_a_random_subset_has_rows_of_every_large_group() -> None:
    # Whole groups, such as the pixels of an image, would leave one of ten.
    rows = Predictions(
        np.random.default_rng(0).normal(size=(10_000, 3)), np.zeros(10_000, int), None, np.arange(10_000) % 10
    )
    drawn = RowSample(1_000).update(rows, row_places(0, 10_000)).result()
    assert np.bincount(np.asarray(drawn.groups)).min() > 60


def test_memory_does_not_grow_with_the_number_of_rows() -> None:
    found, sizes = StreamingScorecard(), []
    for seed in range(4):
        case = make_case(seed, 3_000, 400)
        found.update(case.probabilities, case.labels)
        sizes.append(len(pickle.dumps(found)))
    assert sizes[1] == pytest.approx(sizes[3], abs=1_000)


def test_an_accumulator_from_another_process_works_on() -> None:
    case = make_case(1, 60, 3)
    found = pickle.loads(pickle.dumps(accumulator()))
    assert_same(found.update(case.probabilities, case.labels), scorecard(case.probabilities, case.labels))


def test_every_metric_of_the_registry_has_an_accumulator() -> None:
    case = make_case(0, 50, 3)
    assert list(accumulator().update(case.probabilities, case.labels).result()) == list(METRICS)


@pytest.mark.parametrize("factor", [1e-200, 1e200])
def test_a_common_factor_of_the_weights_changes_nothing(factor: float) -> None:
    case = make_case(0, 50, 3)
    plain = streamed(case, case.weights, [np.arange(50)])
    found = streamed(case, factor * case.weights, [np.arange(50)])
    assert dict(found.result()) == pytest.approx(dict(plain.result()), rel=1e-6, abs=1e-9)


def test_what_does_not_fit_together_is_refused() -> None:
    case = make_case(0, 10, 3)
    some = StreamingScorecard().update(case.probabilities, case.labels)
    with pytest.raises(BadPredictions, match="earlier rows had 3 classes, these have 2 classes"):
        some.update([[0.5, 0.5]], [0])
    with pytest.raises(BadPredictions, match="earlier rows had 3 classes, these have one event per row"):
        some.update(Confidences([0.5], [True]))
    with pytest.raises(BadPredictions, match="no rows of positive weight"):
        StreamingScorecard().update(np.zeros((0, 3)), []).result()
    assert some.result() == scorecard(case.probabilities, case.labels)  # errors have changed nothing
