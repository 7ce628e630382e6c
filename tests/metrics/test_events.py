from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from glayers import BadPredictions, Confidences, Predictions, metrics
from glayers.metrics import Event, ece, ks, label, one_of, positive, rank, smooth_ece, top, within_top
from glayers.metrics.events import check_event, check_rows
from tests.strategies import Case, cases, confidences_of, make_case

EVENTS = [top, rank(2), within_top(2), label(1), one_of([0, 1])]
OF_AN_EVENT: list[Callable[..., float]] = [
    ks,
    ece,
    smooth_ece,
    metrics.kuiper,
]


@pytest.mark.parametrize("event", EVENTS, ids=str)
@given(case=cases())
@settings(max_examples=15, deadline=None)
def test_an_event_scores_every_row_and_measures_as_its_confidences_do(event: Event, case: Case) -> None:
    p, y, w = case
    ranking = np.argsort(-p, axis=1, kind="stable")
    ordered, hits = np.take_along_axis(p, ranking, axis=1), ranking == y[:, None]
    expected = {
        top: (ordered[:, 0], hits[:, 0]),
        rank(2): (ordered[:, 1], hits[:, 1]),
        within_top(2): (ordered[:, :2].sum(axis=1), hits[:, :2].any(axis=1)),
        label(1): (p[:, 1], y == 1),
        one_of([0, 1]): (p[:, :2].sum(axis=1), y <= 1),
    }[event]
    pair = confidences_of(event, p, y, sample_weight=w)
    np.testing.assert_allclose(pair.confidence, expected[0], atol=1e-15)
    np.testing.assert_array_equal(pair.correct, expected[1])
    for metric in OF_AN_EVENT:
        assert metric(pair) == metric(p, y, sample_weight=w, event=event), metric.__name__


def test_events_print_compare_and_hash() -> None:
    names = ["top class", "rank 2", "within top 2", "class 1", "one of 2 classes"]
    assert [event.name for event in EVENTS] == [str(event) for event in EVENTS] == names
    assert label("cat").name == "class cat"
    assert rank(1) == top
    assert len({*EVENTS, rank(2), one_of((0, 1))}) == 5


def test_classes_go_by_name_where_predictions_have_names() -> None:
    p, y, _ = make_case(2, 30, 3)
    named = Predictions(np.log(p), y, class_names=("cat", "dog", "owl"))
    assert ks(named, event=label("dog")) == pytest.approx(ks(p, y, event=label(1)))
    assert ks(named, event=one_of(["owl", 0])) == pytest.approx(ks(p, y, event=one_of([0, 2])))
    with pytest.raises(BadPredictions, match="there is no class 'emu'; the classes are cat, dog, owl"):
        ks(named, event=label("emu"))
    with pytest.raises(BadPredictions, match="class names are unknown; pass the number of 'dog', or Predictions"):
        ks(p, y, event=label("dog"))


def test_events_out_of_range_are_refused() -> None:
    p, y, _ = make_case(1, 40, 4)
    wrong: list[Any] = [0, 5, "1", 1.0, None]
    for bad in wrong:
        with pytest.raises(BadPredictions, match=r"rank must be in 1\.\.4, a whole number"):
            ks(p, y, event=rank(bad))
        with pytest.raises(BadPredictions, match=r"r must be in 1\.\.4, a whole number"):
            ks(p, y, event=within_top(bad))
    wrong = [4, -1, 0.5, None]
    for bad in wrong:
        with pytest.raises(BadPredictions, match=r"label must be in 0\.\.3, a whole number"):
            ks(p, y, event=label(bad))
    outside: list[Any] = [[], [4], [-1], [0.5], 1, [1, None], "01"]
    for classes in outside:
        with pytest.raises(BadPredictions, match="one_of"):
            ks(p, y, event=one_of(classes))
    unknown: Any = "top"
    with pytest.raises(BadPredictions, match=r"event must be top, rank\(r\), .* got 'top'"):
        ks(p, y, event=unknown)


def test_positive_names_a_class_of_two() -> None:
    p, y, w = make_case(3, 60, 2)
    rows = Predictions.from_probabilities(p, y, w, class_names=("well", "ill"))
    expected = ks(rows, event=label(1))
    for event in ("positive", positive(), positive(1), positive("ill")):
        assert ks(rows, event=event) == expected
        assert metrics.scorecard(rows, event=event)["ks"] == expected
        assert metrics.ks_test(rows, event=event).value == pytest.approx(expected, rel=1e-12)
    streamed = metrics.StreamingScorecard(event="positive").update(p, y, sample_weight=w)
    assert streamed.result()["ks"] == pytest.approx(expected)
    assert ks(rows, event=positive("well")) == ks(rows, event=label(0))
    assert metrics.calibration_test(rows, event="positive").event == "positive class 1"
    with pytest.raises(BadPredictions, match=r"these rows have 4 classes, so none is positive; use label\(c\)"):
        ks(*make_case(1, 40, 4)[:2], event="positive")
    with pytest.raises(BadPredictions, match="Confidences hold one event"):
        ks(Confidences([0.5], [True]), event="positive")


def test_a_set_of_classes_may_be_any_iterable_of_whole_numbers() -> None:
    p, y, _ = make_case(1, 40, 4)
    expected = ks(p, y, event=one_of([0, 2]))
    for classes in ({2, 0}, np.array([2, 0, 2]), (n for n in (0, 2))):
        assert ks(p, y, event=one_of(classes)) == expected


def test_rows_that_do_not_sum_to_one_are_refused() -> None:
    # Every number lies between 0 and 1, but the two highest add up to 1.7.
    p = np.array([[0.6, 0.3, 0.1], [0.9, 0.8, 0.2]])
    for event in (top, within_top(2), one_of([0, 1])):
        with pytest.raises(BadPredictions, match=r"must sum to 1; row 1 sums to 1\.9"):
            ks(p, [0, 1], event=event)


def test_confidences_are_one_event() -> None:
    pair = Confidences([0.5, 0.9], [1, 0])
    assert check_event(pair).hits.tolist() == [1.0, 0.0]
    with pytest.raises(BadPredictions, match="Confidences hold one event: there is no within top 2; leave event out"):
        ks(pair, event=within_top(2))
    with pytest.raises(BadPredictions, match=r"^this needs the probabilities of all classes: pass an array or "):
        check_rows(pair)


def test_weights_count_rows_as_kish_has_it() -> None:
    p, y = np.full((3, 2), 0.5), [0, 1, 1]
    assert check_rows(p, y, [2, 1, 1]).total == pytest.approx(16 / 6)
    assert check_rows(p, y, [0.5, 0.5, 0.5]).total == check_rows(p, y, [2, 2, 2]).total == pytest.approx(3)
    assert check_rows(p, y, [2, 1, 1]).weights.tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize("order", list(permutations(range(4)))[::5], ids=str)
def test_sums_that_are_equal_on_paper_are_ties(order: tuple[int, ...]) -> None:
    # Every row gives 0.6 to classes 0 to 2 and 0.4 to class 3. Half of the rows are of class 0, half of class 3.
    columns = np.argsort(order)
    p = np.repeat([[0.1, 0.2, 0.3, 0.4], [0.3, 0.2, 0.1, 0.4]], 50, axis=0)[:, order]
    y = columns[np.repeat([0, 3], 50)]
    first_three = one_of(columns[:3].tolist())
    logits = Predictions.from_probabilities(p, y)
    for rows in ((p, y), (logits,)):
        assert metrics.ks(*rows, event=first_three) == pytest.approx(0.1)
        assert metrics.ks_test(*rows, event=first_three).value == pytest.approx(0.1)
        assert metrics.ks(*rows) == pytest.approx(0.1), "so are probabilities that a softmax gave"
        assert metrics.classwise_ks_test(*rows, n_resamples=19).value == pytest.approx(metrics.classwise_ks(p, y))


def test_a_sum_on_the_edge_of_a_bin_lies_in_the_bin_below() -> None:
    # 0.1 + 0.2 exceeds 0.3 in the last digit, and bins are closed on the right: both rows are in (0.2, 0.3].
    p, y = [[0.1, 0.2, 0.7], [0.05, 0.25, 0.7]], [0, 2]
    assert metrics.ece(p, y, event=one_of([0, 1]), n_bins=10) == pytest.approx(0.2)  # |0.3 - 0.5|
    assert metrics.ece_test(p, y, event=one_of([0, 1]), n_bins=10).value == pytest.approx(0.2)
