from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from glayers import BadPredictions, Confidences, Predictions, metrics
from glayers.metrics import METRICS, metric
from glayers.metrics.bootstrap import Bootstrap, Resampling
from glayers.metrics.events import Rows, check_rows
from glayers.metrics.metric import Block, evaluate, evaluate_once
from glayers.metrics.scorecard import chosen_metrics
from tests.strategies import Case, Numbers, cases, confidences_of, make_case

# Found by iteration; where scores separate the outcomes, the loss is nearly flat and rounding counts.
ITERATED = {"calibration_slope", "calibration_intercept"}


def slack(name: str, exact: float = 1e-12) -> float:
    return 1e-5 if name in ITERATED else exact


def plan(rows: Rows, n_resamples: int = 3) -> Resampling:
    return Resampling(rows, Bootstrap(n_resamples))


def columns_of(rows: Rows, names: Iterable[str] = tuple(METRICS), n_resamples: int = 3) -> dict[str, Numbers]:
    return evaluate(rows, chosen_metrics(rows, names), plan(rows, n_resamples).blocks())


@example(case=make_case(2, 7, 7, ties=False), kind="none")  # its scores separate the outcomes: 228 steps to the slope
@given(case=cases(), kind=st.sampled_from(["none", "whole", "fractional"]))
@settings(max_examples=15, deadline=None)
def test_many_columns_give_what_the_scorecard_of_each_gives(case: Case, kind: str) -> None:
    p, y, w = case
    weights = {"none": None, "whole": np.ceil(w), "fractional": w}[kind]
    rows = check_rows(p, y, weights)
    card, found = metrics.scorecard(p, y, sample_weight=weights), columns_of(rows)
    assert set(found) == set(METRICS)
    for name, values in found.items():
        assert values[0] == pytest.approx(card[name], abs=slack(name)), name
    if kind == "whole":
        return
    (block,) = plan(rows).blocks()
    for column, drawn_weights in enumerate(block.weights.T):
        counts = drawn_weights if weights is None else drawn_weights / weights
        drawn = np.repeat(np.arange(len(y)), (counts * len(y) / counts.sum() + 1e-9).round().astype(int))
        card = metrics.scorecard(p[drawn], y[drawn], sample_weight=None if weights is None else weights[drawn])
        for name in METRICS:
            if name == "calibration_slope" and abs(card[name]) > 100:
                continue  # of rows that the scores separate: no slope is steep enough
            assert found[name][column] == pytest.approx(card[name], abs=slack(name, 1e-10)), name


@pytest.mark.parametrize(("n", "classes"), [(700, 3), (1500, 40)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_wide_and_narrow_samples_agree_too(n: int, classes: int, dtype: type[np.floating]) -> None:
    p, y, w = make_case(n, n, classes)
    card = metrics.scorecard(p.astype(dtype), y, sample_weight=w)
    for name, values in columns_of(check_rows(p.astype(dtype), y, w)).items():
        assert values[0] == pytest.approx(card[name], abs=slack(name)), name


def test_classes_that_are_not_kept_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = check_rows(*make_case(6, 90, 7))
    whole = columns_of(rows)
    monkeypatch.setattr(metric, "_KEPT_ENTRIES", 90)
    for name, values in columns_of(check_rows(*make_case(6, 90, 7))).items():
        np.testing.assert_array_equal(whole[name], values)
    alone = evaluate(rows, list(METRICS.values()), [Block.of(rows)])
    for name, value in evaluate_once(rows, METRICS.values()).items():
        assert alone[name] == pytest.approx([value], abs=slack(name, 1e-14)), name


def test_only_what_is_asked_for_is_evaluated() -> None:
    p, y, w = make_case(7, 50, 3)
    whole = columns_of(check_rows(p, y, w))
    for name in METRICS:
        (alone,) = columns_of(check_rows(p, y, w), [name]).items()
        assert alone[0] == name
        np.testing.assert_array_equal(alone[1], whole[name])


def test_a_label_without_probability_makes_the_nll_infinite_where_it_was_drawn() -> None:
    p, y, _ = make_case(8, 40, 3)
    p[5], y[5] = [0.5, 0.5, 0.0], 2
    nll = columns_of(check_rows(p, y), ["nll"], n_resamples=50)["nll"]
    assert nll[0] == np.inf
    assert 10 < np.isinf(nll[-50:]).sum() < 45  # a row is drawn with probability 0.63
    assert not np.isnan(nll).any()


def test_logits_give_losses_that_probabilities_have_lost() -> None:
    given_logits = Predictions([[0.0, 1e4, 3.0], [1e4, 0.0, 2.0], [0.0, 0.0, 0.0]], [0, 0, 2])
    expected = (1e4 + 0 + np.log(3)) / 3
    assert metrics.nll(given_logits) == pytest.approx(expected)
    assert columns_of(check_rows(given_logits), ["nll"])["nll"][0] == pytest.approx(expected)


def test_zeros_that_came_out_just_below_are_zeros() -> None:
    p, y, w = make_case(9, 60, 3)
    p[:20, 1], p[:20, 0] = -1e-7, 1 - p[:20, 2]
    y[:20] = 0
    card = metrics.scorecard(p, y, sample_weight=w)
    for name, values in columns_of(check_rows(p, y, w)).items():
        assert values[0] == pytest.approx(card[name], abs=slack(name)), name


def test_a_smooth_error_narrower_than_a_grid_cell_is_the_same_for_many_columns() -> None:
    rows = check_rows(np.tile([0.99967, 0.00033, 0.0], (3, 1)), np.zeros(3, dtype=np.int64))
    np.testing.assert_allclose(columns_of(rows, ["smooth_ece"])["smooth_ece"], metrics.smooth_ece(rows), atol=1e-12)


def test_confidences_allow_the_metrics_of_one_event() -> None:
    pair = confidences_of(metrics.top, *make_case(10, 80, 4)[:2])
    card = metrics.scorecard(pair)
    assert set(card) == {name for name, found in METRICS.items() if found.about == "event"}
    assert isinstance(pair, Confidences)
    with pytest.raises(BadPredictions, match=r"nll: needs the probabilities of all classes.* choose from accuracy, "):
        metrics.intervals(pair, metrics=["nll"])


def test_every_record_says_how_it_prints_and_where_it_comes_from() -> None:
    plain = {"nll": "0.1235", "brier": "0.12345", "brier_sum": "0.1235"}
    plain |= {"confidence_nll": "0.1235", "confidence_brier": "0.12345"}
    plain |= dict.fromkeys(["calibration_slope", "calibration_intercept", "observed_over_expected"], "0.123")
    not_lower: dict[str, str | None] = {"accuracy": "higher", "top_5_accuracy": "higher", "confidence": None}
    not_lower |= dict.fromkeys(["calibration_slope", "calibration_intercept", "observed_over_expected"])
    not_lower |= dict.fromkeys(["auroc", "accuracy_at_coverage", "coverage_at_accuracy"], "higher")
    for name, found in METRICS.items():
        assert found.name == name
        assert found.reference
        assert found.format(0.12345) == plain.get(name, "12.35 %")
        assert found.unit == ("plain" if name in plain else "percent")
        assert found.better == not_lower.get(name, "lower")
    ks, nll = METRICS["ks"], METRICS["nll"]
    assert (ks.format_difference(0.001), ks.format_difference(0), ks.format_difference(-0.00001)) == (
        "+0.10 points",
        "0.00 points",
        "0.00 points",
    )
    assert nll.format_difference(-0.012) == "-0.0120"
    assert METRICS["mean_top_ks"].short_label == "mean top KS"
    assert METRICS["top_5_accuracy"].label_for(3) == "accuracy, top 3"
    assert nll.format_change(0.10518, 0.09, 0.12, 0.0061, 0.95) == "0.105 (95 % interval 0.090 to 0.120)"
    points = METRICS["accuracy"].format_change(0.0031, -0.0002, 0.0051, 0.00124, 0.9)
    assert points == "0.31 points (90 % interval -0.02 to 0.51)"
