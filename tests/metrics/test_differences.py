import json
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from glayers import BadPredictions, Predictions, metrics
from glayers.metrics import METRICS, Difference, Interval, PairedDifferences, paired_differences
from glayers.metrics.bootstrap import Bootstrapped, Evidence
from tests.strategies import Numbers, confidences_of, make_case


def models(seed: int, rows: int, classes: int, **sharpness: float) -> tuple[dict[str, Numbers], Numbers]:
    """Logits of models that are the true ones times a number, by name, and labels."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(rows, classes))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return {name: factor * z for name, factor in sharpness.items()}, labels


def compare_logits(
    logits: dict[str, Numbers], y: Numbers, w: Any = None, groups: Any = None, **how: Any
) -> PairedDifferences:
    return paired_differences({name: Predictions(z, y, w, groups) for name, z in logits.items()}, **how)


def softmax(logits: Numbers) -> Numbers:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def test_a_difference_is_the_later_metric_minus_the_earlier() -> None:
    p = {name: make_case(seed, 120, 4).probabilities for seed, name in enumerate(["a", "b", "c"])}
    _, y, w = make_case(9, 120, 4)
    names = ["nll", "brier", "ks", "accuracy", "classwise_ece", "smooth_ece"]
    found = paired_differences(p, y, sample_weight=w, metrics=names, n_resamples=50)
    cards = {name: metrics.scorecard(values, y, sample_weight=w) for name, values in p.items()}
    assert [(d.metric, d.method, d.against) for d in found.differences] == [
        (metric, *pair) for metric in names for pair in [("b", "a"), ("c", "a"), ("c", "b")]
    ]
    for d in found.differences:
        expected = cards[d.method][d.metric] - cards[d.against][d.metric]
        assert d.interval.value == pytest.approx(expected, abs=1e-12)


def test_the_default_metrics_are_those_of_a_comparison() -> None:
    logits, y = models(0, 60, 3, a=1, b=2)
    found = compare_logits(logits, y, n_resamples=20)
    assert [d.metric for d in found.differences] == ["nll", "brier", "ks", "accuracy"]


def test_the_standard_error_is_that_of_the_rows_differences() -> None:
    logits, y = models(1, 900, 4, a=1, b=1.3)
    found = compare_logits(logits, y, metrics=["nll"]).between("nll", "b", "a")
    losses = {name: -np.log(softmax(values)[np.arange(900), y]) for name, values in logits.items()}
    # 1,000 resamples know a standard deviation to 2.2 percent.
    assert found.interval.standard_error == pytest.approx((losses["b"] - losses["a"]).std() / 30, rel=0.09)
    unpaired = np.hypot(losses["a"].std(), losses["b"].std()) / 30
    assert found.interval.standard_error < unpaired / 3


def test_a_method_does_not_differ_from_itself() -> None:
    p, y, _ = make_case(2, 80, 3)
    found = paired_differences({"one": p, "other": p}, y, n_resamples=30)
    for d in found.differences:
        assert d.interval == Interval(0, 0, 0, 0, 0)
        assert (d.p_value, d.significant) == (1.0, False)
        assert d.sentence().startswith("other and one have the same ")


def test_a_difference_that_is_the_same_in_every_row_is_certain() -> None:
    p = np.tile([0.5, 0.3, 0.2], (50, 1))
    d = paired_differences({"a": p, "b": p[:, [1, 0, 2]]}, [0] * 50, metrics=["nll"], n_resamples=30).differences[0]
    assert d.interval.value == pytest.approx(np.log(0.5 / 0.3))
    assert (d.interval.standard_error, d.p_value, d.significant) == (0.0, 0.0, True)
    sure = "b raises NLL by 0.5108 (95 % interval 0.5108 to 0.5108) against a"
    assert d.sentence() == f"{sure} (unreliable: too few hits seen: 0)"  # of b, whose top class is never the label


def test_equally_good_methods_are_rejected_at_the_level() -> None:
    # Two noisy copies of the truth, each as far from it as the other on average.
    rejected = 0
    for seed in range(120):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(200, 3))
        y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        both = {name: z + rng.normal(size=z.shape) for name in "ab"}
        found = compare_logits(both, y, metrics=["nll"], n_resamples=100, random_state=seed)
        rejected += found.differences[0].significant
    assert 1 <= rejected <= 14  # 6 expected, standard deviation 2.4


def test_holm_corrects_over_the_pairs_of_a_metric() -> None:
    logits, y = models(3, 300, 3, a=1, b=1.1, c=1.2)
    settings: dict[str, Any] = {"metrics": ["nll", "brier"], "n_resamples": 100}
    holm = compare_logits(logits, y, **settings)
    alone = [compare_logits({a: logits[a], b: logits[b]}, y, **settings) for a, b in ("ab", "ac", "bc")]  # one pair
    for metric in ("nll", "brier"):
        plain = [d for pair in alone for d in pair.differences if d.metric == metric]
        raw = [d.p_value for d in plain]
        corrected = [d.p_value for d in holm.differences if d.metric == metric]
        smallest, middle, largest = np.argsort(raw)
        assert corrected[smallest] == pytest.approx(min(1, 3 * raw[smallest]))
        assert corrected[middle] == pytest.approx(min(1, max(3 * raw[smallest], 2 * raw[middle])))
        assert corrected[largest] == pytest.approx(max(corrected[middle], raw[largest]))
        after = [d for d in holm.differences if d.metric == metric]
        assert [d.interval for d in after] == [d.interval for d in plain]
        assert [d.significant for d in after] == [d.p_value <= 0.05 + 1e-12 for d in after]


def test_p_values_are_students_and_do_not_end_at_the_number_of_resamples() -> None:
    logits, y = models(4, 400, 3, good=1, bad=6)
    # The interval of a difference of errors is not corrected by a jackknife, so that its t has 399 degrees of freedom.
    found = compare_logits(logits, y, metrics=["ks"], n_resamples=50).differences[0]
    t = abs(found.interval.value) / found.interval.standard_error * np.sqrt(399 / 400)
    assert t > 4
    assert 0 < found.p_value < 1e-4
    assert found.p_value == pytest.approx(2 * scipy.stats.t.sf(t, 399), rel=1e-9)


@given(
    seed=st.integers(0, 10_000),
    level=st.sampled_from([0.5, 0.8, 0.9, 0.95, 0.99, 0.9999]),
    n_resamples=st.integers(2, 300),
    bca=st.booleans(),
)
def test_an_interval_excludes_zero_exactly_where_the_p_value_says_so(
    seed: int, level: float, n_resamples: int, bca: bool
) -> None:
    rng = np.random.default_rng(seed)
    value, left_out = rng.normal(0, 2), rng.standard_t(2, 12 if bca else 0)
    drawn = np.round(rng.normal(value + rng.normal(0, 0.5), 1, n_resamples), rng.integers(0, 3))
    evidence = Evidence(12, rng.uniform(3, 40))
    found = Bootstrapped(value, left_out, drawn, METRICS["nll"], evidence, is_difference=True)
    interval = found.interval(level)
    assert (found.p_value() <= 1 - level) == (interval.low > 0 or interval.high < 0)


def test_equal_ks_errors_of_calibrated_models_are_seldom_called_different() -> None:
    # Two models with the same small noise in their logits. Intervals without 0 came from BCa in 7.6 percent of samples.
    excluded = significant = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        z = 3 * rng.normal(size=(200, 5))
        y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        logits = {name: z + 0.3 * rng.normal(size=z.shape) for name in "ab"}
        d = compare_logits(logits, y, metrics=["ks"], n_resamples=200).differences[0]
        excluded += d.interval.low > 0 or d.interval.high < 0
        significant += d.significant
    assert excluded == significant <= 2


def test_sentences_say_who_lowers_what() -> None:
    def said(metric: str, value: float, error: float, method: str = "g-layers", significant: bool = True) -> str:
        interval = Interval(value, value - 2 * error, value + 2 * error, error, 0.0)
        return Difference(metric, method, "none", interval, 0.01, significant).sentence()

    assert said("nll", -0.1052, 0.0061) == ("g-layers lower NLL by 0.105 (95 % interval 0.093 to 0.117) against none")
    assert said("nll", 0.1052, 0.0121, "temperature scaling") == (
        "temperature scaling raises NLL by 0.105 (95 % interval 0.081 to 0.129) against none"
    )
    assert said("accuracy", 0.0123, 0.00251) == (
        "g-layers raise accuracy by 1.23 points (95 % interval 0.73 to 1.73) against none"
    )
    assert said("mean_top_ks", -0.02, 0.003, significant=False) == (
        "mean top KS of g-layers differs by -2.0 points (95 % interval -2.6 to -1.4) from none: "
        "no significant difference"
    )
    assert said("brier", -12.0, 3.4) == ("g-layers lower Brier by 12 (95 % interval 5 to 19) against none")


def test_between_finds_a_pair_from_either_side() -> None:
    logits, y = models(5, 200, 3, a=1, b=2)
    found = compare_logits(logits, y, n_resamples=50)
    there, back = found.between("nll", "b", "a"), found.between("nll", "a", "b")
    assert there in found.differences
    assert back.interval[:3] == (-there.interval.value, -there.interval.high, -there.interval.low)
    assert back.reversed() == there
    assert back.sentence().startswith("a lowers NLL")
    with pytest.raises(KeyError, match="no difference of 'a' and 'z' by 'nll'; there are a, accuracy, b, "):
        found.between("nll", "a", "z")


def test_it_becomes_json_markdown_and_text() -> None:
    logits, y = models(6, 200, 3, none=1, sharper=4)
    found = compare_logits(logits, y, metrics=["nll", "accuracy"], n_resamples=50)
    first = json.loads(json.dumps(found.to_dicts()))[0]
    assert (first["metric"], first["method"], first["against"]) == ("nll", "sharper", "none")
    assert first["low"] <= first["difference"] <= first["high"]
    assert {"p_value", "significant", "standard_error", "bias"} <= set(first)
    assert str(found).splitlines() == found.sentences()
    lines = found.to_markdown().splitlines()
    assert lines[0].endswith("| 95 % interval | p-value, holm |")
    assert lines[2].startswith("| nll | sharper | none | ")
    assert " * |" in lines[2]
    assert " * |" not in lines[3]


def test_logits_and_probabilities_agree_where_both_can_be_had() -> None:
    logits, y = models(7, 150, 4, a=1, b=1.5)
    from_logits = compare_logits(logits, y, n_resamples=50)
    from_probabilities = paired_differences({name: softmax(z) for name, z in logits.items()}, y, n_resamples=50)
    for one, other in zip(from_logits.differences, from_probabilities.differences, strict=True):
        assert one.interval == pytest.approx(other.interval, abs=1e-10)


def test_an_infinite_nll_is_refused_with_a_way_out() -> None:
    p, y, _ = make_case(8, 40, 3)
    zero = p.copy()
    zero[3] = np.eye(3)[(y[3] + 1) % 3]
    with pytest.raises(BadPredictions, match=r"b: NLL is infinite.*pass Predictions of the logits"):
        paired_differences({"a": p, "b": zero}, y)
    assert paired_differences({"a": p, "b": zero}, y, metrics=["brier"], n_resamples=20).differences


def test_groups_widen_the_interval_and_the_scale_of_weights_does_not_matter() -> None:
    logits, y = models(9, 150, 3, a=1, b=1.5)
    rows = np.random.default_rng(9).permutation(np.repeat(np.arange(150), 4))
    copies = {name: z[rows] for name, z in logits.items()}
    settings: dict[str, Any] = {"metrics": ["nll"], "n_resamples": 400}
    errors = [
        compare_logits(*case, **settings).differences[0].interval.standard_error
        for case in ((logits, y), (copies, y[rows], None, rows), (copies, y[rows]))
    ]
    assert errors[1] == pytest.approx(errors[0], rel=0.2)
    assert errors[2] == pytest.approx(errors[0] / 2, rel=0.2)
    four = compare_logits(logits, y, np.full(150, 4), **settings).differences[0].interval
    assert four.standard_error == pytest.approx(errors[0], rel=1e-9)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"metrics": ["nll", "f1"]}, "metrics must be a list of some of accuracy, .*got "),
        ({"metrics": []}, "metrics must be a list of some of"),
        ({"metrics": 3}, "metrics must be a list of some of .*got 3"),
        ({"n_resamples": 1}, "n_resamples must be at least 2"),
        ({"level": 1.0}, "level must be a number between 0 and 1"),
    ],
)
def test_wrong_settings_are_refused_by_name(wrong: dict[str, Any], message: str) -> None:
    logits, y = models(10, 40, 3, a=1, b=2)
    with pytest.raises(BadPredictions, match=message):
        compare_logits(logits, y, **({"n_resamples": 20} | wrong))


def test_a_complaint_says_whose_numbers_are_wrong() -> None:
    p, y, _ = make_case(11, 40, 3)
    with pytest.raises(BadPredictions, match=r"^mine: each row of probabilities must sum to 1; row 0 sums to 0\.5"):
        paired_differences({"theirs": p, "mine": p / 2}, y, n_resamples=20)
    with pytest.raises(BadPredictions, match=r"^mine: labels must have shape \(30,\)"):
        paired_differences({"theirs": p, "mine": p[:30]}, y, n_resamples=20)
    nameless: Any = [p, p]
    with pytest.raises(BadPredictions, match="methods must be a dict of predictions by name; got a list"):
        paired_differences(nameless, y)
    with pytest.raises(BadPredictions, match=r"at least 2 methods, by name; got \['alone'\]"):
        paired_differences({"alone": p}, y)
    with pytest.raises(BadPredictions, match="mine: 4 classes, and 3 in the first method"):
        paired_differences({"theirs": p, "mine": make_case(11, 40, 4).probabilities}, y, n_resamples=20)


def test_methods_must_be_about_the_same_rows() -> None:
    p, y, _ = make_case(12, 40, 3)
    ours, others = Predictions(np.log(p), y), Predictions(np.log(p), (y + 1) % 3)
    with pytest.raises(BadPredictions, match=r"^b: the labels differ"):
        paired_differences({"a": ours, "b": others}, n_resamples=20)
    with pytest.raises(BadPredictions, match=r"^b: all methods must be given in the same form"):
        paired_differences({"a": ours, "b": confidences_of(metrics.top, ours)}, n_resamples=20)
    with pytest.raises(BadPredictions, match=r"^a: labels come with the Predictions"):
        paired_differences({"a": ours, "b": ours}, y)
    pairs = {name: confidences_of(metrics.top, softmax(t * np.log(p)), y) for name, t in (("a", 1), ("b", 2))}
    assert [d.metric for d in paired_differences(pairs, n_resamples=20).differences] == ["ks", "accuracy"]
