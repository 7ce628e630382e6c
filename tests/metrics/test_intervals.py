import json
from typing import Any

import numpy as np
import pytest
import scipy.stats

from glayers import BadPredictions, Predictions, metrics
from glayers.metrics import METRICS, Interval, intervals
from glayers.metrics.bootstrap import Bootstrap, Bootstrapped
from glayers.metrics.events import check_rows
from tests.strategies import Numbers, confidences_of, make_case


def calibrated(seed: int, rows: int, classes: int, sharpness: float = 1.0) -> tuple[Numbers, Numbers]:
    """Labels drawn from softmax(z), and softmax(sharpness * z): what an overconfident model says above 1."""
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(rows, classes))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    powers = np.exp(sharpness * z)
    return powers / powers.sum(axis=1, keepdims=True), labels


def test_the_value_is_the_scorecard_and_lies_between_the_ends() -> None:
    p, y = calibrated(0, 400, 4, sharpness=2)
    _, _, w = make_case(0, 400, 4)
    found = intervals(p, y, sample_weight=w, n_resamples=200)
    card = metrics.scorecard(p, y, sample_weight=w)
    assert dict(found.value) == pytest.approx(dict(card), rel=1e-12)
    assert (found.value.rows, found.value.classes) == (card.rows, card.classes)
    for name in METRICS:
        interval = found[name]
        assert interval.low <= interval.high
        assert interval.unreliable or interval.low <= interval.value <= interval.high, name
        assert interval.value == found.value[name]


def test_standard_errors_of_means_are_those_of_the_textbook() -> None:
    p, y = calibrated(1, 900, 5)
    found = intervals(p, y, metrics=["accuracy", "confidence", "nll", "brier_sum"], n_resamples=1000)
    own = p[np.arange(900), y]
    rows = {
        "accuracy": p.argmax(axis=1) == y,
        "confidence": p.max(axis=1),
        "nll": -np.log(own),
        "brier_sum": (p**2).sum(axis=1) - 2 * own + 1,
    }
    for name, values in rows.items():
        # The standard deviation of 1,000 resamples is known to 1 / sqrt(2000) = 2.2 percent.
        assert found[name].standard_error == pytest.approx(values.std() / 30, rel=0.09), name


def test_intervals_agree_with_scipys() -> None:
    # Few rows with a long tail, so that BCa has something to correct: it moves the upper end by 0.6 standard errors.
    p, y = calibrated(2, 60, 3, sharpness=3)
    losses = -np.log(p[np.arange(60), y])
    drawn = Bootstrap(40_000).columns(check_rows(p, y), [METRICS["nll"]], "")["nll"]
    found = drawn.interval(0.95)
    excess = scipy.stats.kurtosis(losses - losses.mean())
    assert excess > 3
    freedom = 2 / (2 / 60 + excess / 60)
    # Scipy has no t: ask it for the level at which a normal distribution reaches as far.
    reach = scipy.stats.t.ppf(0.975, freedom) * np.sqrt(1 + 1 / freedom)
    expected = scipy.stats.bootstrap(
        (losses,),
        np.mean,
        n_resamples=40_000,
        confidence_level=1 - 2 * scipy.stats.norm.sf(reach),
        method="BCa",
        rng=np.random.default_rng(0),
    ).confidence_interval
    assert found.low == pytest.approx(expected.low, abs=0.05 * found.standard_error)
    assert found.high == pytest.approx(expected.high, abs=0.1 * found.standard_error)


def test_bca_moves_the_ends_as_worked_out_by_hand() -> None:
    drawn = np.arange(1.0, 1000)  # 999 resamples: the j-th has the share j / 1000 below it
    plain = Bootstrapped(500.0, np.zeros(0), drawn, METRICS["nll"]).interval(0.9)
    assert (plain.low, plain.high) == (50, 950)
    unbiased = Bootstrapped(500.0, np.array([1.0, -1.0, 2.0, -2.0]), drawn, METRICS["nll"]).interval(
        0.9
    )  # no skew, half below
    assert (unbiased.low, unbiased.high) == (50, 950)
    # 69.15 percent below: z0 = 0.5, and Phi(2 * 0.5 -+ 1.6449) = 0.2595 and 0.99591.
    biased = Bootstrapped(691.5, np.array([1.0, -1.0]), drawn, METRICS["nll"]).interval(0.9)
    assert (biased.low, biased.high) == (259, 996)
    # Pulls 3, -1, -1, -1: a = 24 / (6 * 12^1.5) = 0.0962; Phi(-+1.6449 / (1 +- 0.0962 * 1.6449)) = 0.0778 and 0.9747.
    skewed = Bootstrapped(500.0, np.array([-3.0, 1.0, 1.0, 1.0]), drawn, METRICS["nll"]).interval(0.9)
    assert (skewed.low, skewed.high) == (77, 975)


def test_a_statistic_that_never_moves_has_no_width() -> None:
    same = Bootstrapped(0.3, np.full(5, 0.3), np.full(50, 0.3), METRICS["nll"]).interval(0.95)
    assert same == pytest.approx(Interval(0.3, 0.3, 0.3, 0.0, 0.0))
    assert not same.unreliable


def test_resamples_all_on_one_side_give_a_bound() -> None:
    found = Bootstrapped(0.2, np.array([0.2, 0.3]), np.linspace(0.4, 0.6, 99), METRICS["ece"]).interval(0.95)
    assert found.one_sided == "the resamples are biased"
    assert 0 <= found.low <= found.value <= found.high <= 0.6


def test_errors_near_zero_are_bounded_and_large_ones_have_two_ends() -> None:
    good = intervals(*calibrated(3, 800, 5), n_resamples=200)
    bounded = {name for name, found in good.items() if found.one_sided}
    assert {"ks", "mean_top_ks", "classwise_ks", "ece", "smooth_ece"} <= bounded
    assert not {"accuracy", "top_5_accuracy", "confidence", "nll", "brier", "brier_sum"} & bounded
    bad = intervals(*calibrated(3, 800, 5, sharpness=3), n_resamples=200)
    assert not any(bad[name].one_sided for name in ("ks", "smooth_ece", "nll"))


def test_groups_of_copies_tell_no_more_than_one_copy() -> None:
    p, y = calibrated(4, 200, 3)
    rows = np.random.default_rng(4).permutation(np.repeat(np.arange(200), 4))
    means = ("accuracy", "nll", "confidence")
    alone = intervals(p, y, metrics=means, n_resamples=400)
    grouped = intervals(p[rows], y[rows], groups=rows, metrics=means, n_resamples=400)
    careless = intervals(p[rows], y[rows], metrics=means, n_resamples=400)
    for name in means:
        assert grouped[name].standard_error == pytest.approx(alone[name].standard_error, rel=0.2)
        assert careless[name].standard_error == pytest.approx(alone[name].standard_error / 2, rel=0.2)


def test_the_order_of_equal_weights_and_their_scale_change_nothing() -> None:
    p, y = calibrated(7, 100, 3)
    plain = intervals(p, y, n_resamples=50).to_dict()
    for name, numbers in intervals(p, y, sample_weight=np.full(100, 0.25), n_resamples=50).to_dict().items():
        assert numbers == pytest.approx(plain[name], abs=1e-12), name


def test_a_seed_gives_the_same_bytes() -> None:
    p, y = calibrated(8, 90, 3)
    assert intervals(p, y, n_resamples=40) == intervals(p, y, n_resamples=40)
    assert intervals(p, y, n_resamples=40) != intervals(p, y, n_resamples=40, random_state=1)


def test_a_higher_level_is_wider() -> None:
    p, y = calibrated(9, 300, 3)
    narrow, wide = (intervals(p, y, n_resamples=300, level=level)["nll"] for level in (0.5, 0.99))
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    # Accuracy and NLL of labels drawn from known probabilities: E = mean of max p, and of the entropy, over rows.
    z = 2 * np.random.default_rng(10).normal(size=(100_000, 4))
    q = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    truth = {"accuracy": q.max(axis=1).mean(), "nll": -(q * np.log(q)).sum(axis=1).mean()}
    covered = dict.fromkeys(truth, 0)
    for seed in range(120):
        p, y = calibrated(1000 + seed, 250, 4)
        found = metrics.intervals(p, y, metrics=list(truth), n_resamples=200, level=0.9, random_state=seed)
        for name, value in truth.items():
            covered[name] += found[name].low <= value <= found[name].high
    for hits in covered.values():
        assert 98 <= hits <= 117  # 108 expected, standard deviation 3.3


def test_logits_give_the_same_intervals_and_an_exact_nll() -> None:
    logits = np.random.default_rng(11).normal(size=(150, 4)) * 3
    y = np.random.default_rng(12).integers(0, 4, 150)
    powers = np.exp(logits)
    from_logits = intervals(Predictions(logits, y), n_resamples=60)
    from_probabilities = intervals(powers / powers.sum(axis=1, keepdims=True), y, n_resamples=60)
    for name, numbers in from_logits.to_dict().items():
        assert numbers == pytest.approx(from_probabilities[name]._asdict(), abs=1e-10), name
    logits[3, y[3]] = -1e4  # a probability of 0 in float64, and a loss of 1e4 or so
    far = intervals(Predictions(logits, y), metrics=["nll"], n_resamples=60)["nll"]
    assert far.value == pytest.approx(metrics.nll(Predictions(logits, y)), rel=1e-14)
    assert far.high < 1e3


def test_an_infinite_nll_has_an_infinite_end_and_no_nan() -> None:
    p, y = calibrated(13, 50, 3)
    p[4], y[4] = [0.5, 0.5, 0.0], 2
    found = intervals(p, y, n_resamples=100)
    assert found["nll"].value == found["nll"].high == found["nll"].standard_error == np.inf
    assert np.isfinite(found["nll"].low)  # a third of resamples have not drawn it
    assert np.isfinite([found[name][:5] for name in METRICS if name != "nll"]).all()


def test_it_becomes_json_markdown_and_text() -> None:
    found = intervals(*calibrated(14, 300, 3), n_resamples=100, level=0.9)
    assert tuple(json.loads(json.dumps(found.to_dict()))["nll"]) == Interval._fields
    nll = found["nll"]
    assert f"| NLL | {nll.value:.4f} | {nll.low:.4f} to {nll.high:.4f} |" in found.to_markdown()
    assert "| 90 % interval |" in found.to_markdown()
    assert r"\* unreliable" in found.to_markdown()
    lines = str(found).splitlines()
    assert len(lines) == 1 + len(METRICS) + 1
    assert len({line.rfind(" %") for line in lines if line.startswith("ECE")}) == 1  # columns stand in line
    assert sum(" * " in line for line in lines) == len(found.unreliable) > 0
    plain = intervals(*calibrated(14, 300, 3), n_resamples=50, metrics=["accuracy", "nll"])
    assert (plain.unreliable, plain.footnote()) == ({}, "")
    assert "*" not in str(plain) + plain.to_markdown()
    with pytest.raises(KeyError, match="no 'rows'; choose from accuracy, "):
        found["rows"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_resamples": 1}, "n_resamples must be at least 2, a whole number; got 1"),
        ({"n_resamples": 10.5}, "n_resamples must be at least 2, a whole number; got 10.5"),
        ({"level": 95}, "level must be a number between 0 and 1; got 95"),
        ({"level": 0}, "level must be a number between 0 and 1; got 0"),
        ({"random_state": -1}, "random_state must be at least 0"),
        ({"groups": [1, 2]}, r"groups must have shape \(40,\), one per row; got \(2,\)"),
        ({"groups": np.zeros(40)}, "at least 2 different values"),
        ({"sample_weight": np.zeros(40)}, "weights must not all be zero"),
    ],
)
def test_wrong_settings_are_refused_by_name(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BadPredictions, match=message):
        intervals(*calibrated(15, 40, 3), **wrong)


@pytest.mark.parametrize("unit", [1e-300, 5e-324 * 2**40])
def test_the_unit_of_weights_that_count_no_rows_changes_nothing(unit: float) -> None:
    p, y = calibrated(17, 50, 3)
    weights = np.random.default_rng(17).integers(1, 2**30, 50) / 2**30
    found, scaled = (intervals(p, y, sample_weight=w, n_resamples=20).to_dict() for w in (weights, unit * weights))
    for metric, numbers in found.items():
        assert scaled[metric] == pytest.approx(numbers, abs=1e-9), metric


def test_a_level_of_all_but_everything_spans_every_resample() -> None:
    p, y = calibrated(18, 60, 3)
    widest = intervals(p, y, n_resamples=30, level=np.nextafter(1.0, 0.0))["nll"]
    drawn = Bootstrap(30).columns(check_rows(p, y), [METRICS["nll"]], "")["nll"].drawn
    assert widest.low < drawn.min() < drawn.max() < widest.high


def test_losses_as_large_as_float64_has_them_leave_numbers_and_no_warning() -> None:
    p, y = calibrated(19, 40, 3)
    logits = np.log(p)
    logits[7, y[7]] = -1e300
    found = intervals(Predictions(logits, y), n_resamples=30)["nll"]
    assert found.value == pytest.approx(1e300 / 40)
    assert found.low <= found.value <= found.high
    assert found.standard_error == np.inf  # its square is more than float64 holds


def test_rows_that_are_no_probabilities_are_refused() -> None:
    with pytest.raises(BadPredictions, match=r"row 1 sums to 0\.8"):
        intervals([[0.5, 0.5], [0.4, 0.4]], [0, 1])


def test_a_bar_is_shown_on_request(capfd: pytest.CaptureFixture[str]) -> None:
    p, y = calibrated(16, 40, 3)
    assert intervals(p, y, n_resamples=20, progress=True) == intervals(p, y, n_resamples=20, progress=False)
    assert capfd.readouterr().out == ""


def test_an_event_or_confidences_give_the_intervals_of_that_event() -> None:
    p, y = calibrated(20, 120, 4, sharpness=2)
    event = metrics.within_top(2)
    found = intervals(p, y, event=event, n_resamples=40)
    pair = confidences_of(event, p, y)
    assert found == intervals(pair, n_resamples=40)
    assert found["ks"].value == pytest.approx(metrics.ks(p, y, event=event))
    assert found.value.classes is None
    assert "classes" not in found.value.to_dict()
    grouped = Predictions(np.log(p), y, groups=np.arange(120) // 3)
    with_groups = intervals(p, y, groups=np.arange(120) // 3, metrics=["ks"], n_resamples=40)
    assert intervals(grouped, metrics=["ks"], n_resamples=40)["ks"] == pytest.approx(with_groups["ks"])


def sure_model(seed: int, rows: int, **sharpness: float) -> tuple[Numbers, Numbers]:
    """Labels drawn from probabilities of which the highest is 99.7 percent on average."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, 10))
    z[np.arange(rows), rng.integers(0, 10, rows)] += 8.9
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    return p, (z + rng.gumbel(size=z.shape)).argmax(axis=1)


@pytest.mark.parametrize("rows", [50, 200])
def test_intervals_of_sure_models_cover_or_say_that_they_may_not(rows: int) -> None:
    p, _ = sure_model(0, 100_000)
    truth = {"accuracy": p.max(axis=1).mean(), "nll": -(p * np.log(p)).sum(axis=1).mean()}
    truth["brier_sum"] = 1 - (p * p).sum(axis=1).mean()
    silent = dict.fromkeys(truth, 0)
    for seed in range(60):
        found = intervals(*sure_model(seed, rows), metrics=list(truth), n_resamples=50)
        assert found["accuracy"].high <= 1
        for name, value in truth.items():
            silent[name] += not found[name].unreliable and not found[name].low <= value <= found[name].high
    assert max(silent.values()) <= 5  # 3 expected; without errors seen it was 48 and 32


def test_a_share_has_the_exact_interval_of_its_rows() -> None:
    p, y = np.tile([0.9, 0.1], (40, 1)), np.repeat([0, 1], [37, 3])
    found = intervals(p, y, metrics=["accuracy"], n_resamples=20)["accuracy"]
    expected = scipy.stats.binomtest(37, 40).proportion_ci(0.95, "exact")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    # Groups of 4 equal rows are 10 independent rows, and nothing else is known where all are right.
    grouped = intervals(p, [0] * 40, groups=np.arange(40) // 4, metrics=["accuracy"], n_resamples=20)["accuracy"]
    expected = scipy.stats.binomtest(10, 10).proportion_ci(0.95, "exact")
    assert (grouped.low, grouped.high) == pytest.approx((expected.low, 1.0))


def test_shares_and_their_bounds_are_at_most_one() -> None:
    weights = np.random.default_rng(21).uniform(0.1, 1, 3000)
    p = np.tile([1.0, 0.0], (3000, 1))
    shares = ["accuracy", "top_5_accuracy", "confidence"]
    found = intervals(p, np.zeros(3000, dtype=int), sample_weight=weights, metrics=shares, n_resamples=20)
    for name in shares:
        assert found[name].high == 1.0 >= found[name].value >= found[name].low


def test_few_groups_reach_as_far_as_students_t_and_fewer_are_doubted() -> None:
    p, y = calibrated(22, 400, 4)
    few, enough = (
        intervals(p, y, groups=np.arange(400) % g, metrics=["nll"], n_resamples=3000)["nll"] for g in (5, 12)
    )
    assert (few.unreliable, enough.unreliable) == ("too few groups: they count as 5.0", "")
    reach = scipy.stats.t.ppf(0.975, 11) * np.sqrt(12 / 11)  # 2.3 instead of 1.96
    assert (enough.high - enough.low) / 2 == pytest.approx(reach * enough.standard_error, rel=0.08)
