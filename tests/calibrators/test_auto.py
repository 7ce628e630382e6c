import importlib.util
import warnings
from typing import Any

import numpy as np
import pytest

from glayers import GlayersError, GlayersWarning
from glayers.activations import softmax
from glayers.calibrators import auto_families, auto_mixture
from glayers.calibrators.auto import AutoCalibrator, _affordable
from glayers.calibrators.auto_families import Candidate, Task
from glayers.calibrators.auto_mixture import Mixture, mixture_of
from glayers.calibrators.auto_report import Tried, judge, told
from glayers.calibrators.shared_recalibration import Recalibration
from glayers.calibrators.temperature import TemperatureScaling
from glayers.maps import Chain, LogSoftmax, Scale
from glayers.metrics.old import brier_sum, nll_from_logits
from glayers.predictions import Predictions
from tests.calibrators.simulation import by_class, sample
from tests.strategies import Numbers


def crooked(rows: int = 1_000, seed: int = 0) -> tuple[Numbers, Numbers]:
    made = sample(by_class, 4, rows, seed)
    return made.logits, made.labels


def calibrated(rows: int, classes: int = 3, seed: int = 0) -> tuple[Numbers, Numbers]:
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(rows, classes))
    return z, (z + rng.gumbel(size=z.shape)).argmax(axis=1)


@pytest.fixture(scope="module")
def fitted() -> AutoCalibrator:
    return AutoCalibrator().fit(*crooked())


def test_it_beats_temperature_where_classes_differ(fitted: AutoCalibrator) -> None:
    z, labels = crooked(20_000, seed=1)
    plain = TemperatureScaling().fit(*crooked())
    assert nll_from_logits(fitted.transform(z), labels) < nll_from_logits(plain.transform(z), labels) - 0.05


def test_held_out_predictions_are_worth_what_new_rows_show(fitted: AutoCalibrator) -> None:
    z, labels = crooked(20_000, seed=1)
    held_out = nll_from_logits(fitted.out_of_fold_, crooked()[1])
    spread = fitted.out_of_fold_[np.arange(1_000), crooked()[1]].std()
    assert abs(held_out - nll_from_logits(fitted.transform(z), labels)) < 3 * spread / np.sqrt(1_000)


def test_the_report_names_everything_tried_and_the_reason(fitted: AutoCalibrator) -> None:
    report = fitted.report_
    assert report.startswith("1,000 rows of 4 classes, 250 a class")
    for family in ("nothing", "temperature", "shared", "matrix", "g-layers", "shared, g-layers"):
        assert f"| {family} | " in report
    assert "Kept: mixture. Its held-out loss is lower than that of " in report
    assert sum(fitted.shares_.values()) == pytest.approx(1)
    assert min(fitted.shares_.values()) >= 0.01


def test_same_seed_same_bytes(fitted: AutoCalibrator) -> None:
    again = AutoCalibrator().fit(*crooked())
    assert np.array_equal(again.transform(crooked()[0]), fitted.transform(crooked()[0]))


def test_calibrated_logits_come_back_all_but_unchanged() -> None:
    z, labels = calibrated(2_000)
    fresh = calibrated(20_000, seed=1)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)  # nothing is returned, or a temperature near 1
        p = AutoCalibrator().fit(z, labels).predict_proba(fresh)
    assert np.abs(p - softmax(fresh)).mean() < 0.01


def test_noise_is_no_gain_to_rely_on() -> None:
    z, labels = calibrated(60)  # too few for anything but temperature
    with pytest.warns(GlayersWarning, match="no gain to rely on.*nothing is returned") as said:
        fitted = AutoCalibrator().fit(z, labels)
    assert len(said) == 1
    assert fitted.shares_ == {"nothing": 1.0}
    assert not fitted.diagnostics_.moved
    np.testing.assert_allclose(fitted.predict_proba(z), softmax(z), atol=1e-12)
    np.testing.assert_allclose(np.exp(fitted.out_of_fold_), softmax(z), atol=1e-12)
    assert "60 rows are too few" in fitted.report_


def test_temperature_is_returned_where_nothing_else_can_be_told() -> None:
    z, labels = calibrated(80)
    fitted = AutoCalibrator().fit(4 * z, labels)
    assert fitted.shares_ == {"temperature": 1.0}
    assert fitted.map_.parameters()["1.factor"] == pytest.approx(
        1 / TemperatureScaling().fit(4 * z, labels).temperature_
    )
    assert "Mixture (temperature alone): held-out loss" in fitted.report_
    assert "Kept: temperature. Nothing else has a share in the mixture: temperature is returned." in fitted.report_


def test_a_few_rows_seldom_talk_it_out_of_the_truth() -> None:
    # 10 classes, 300 rows, and the truth is a temperature. Folds that shared out each class evenly let a matrix's
    # intercepts look worth 0.02 here: 9 of 16 seeds left the truth, for a loss higher by 0.007 on average. By the rule
    # of one standard error about one in six may.
    costs = []
    for seed in range(12):
        (z, labels), (fresh, truth) = calibrated(300, 10, seed), calibrated(5_000, 10, 100 + seed)
        fitted, plain = (made.fit(3 * z, labels) for made in (AutoCalibrator(), TemperatureScaling()))
        costs.append(nll_from_logits(fitted.transform(3 * fresh), truth))
        costs[-1] -= nll_from_logits(plain.transform(3 * fresh), truth)
    assert sum(cost != 0 for cost in costs) <= 4
    assert np.mean(costs) < 0.003


def test_kept_accuracy_is_kept_in_every_row() -> None:
    fitted = AutoCalibrator(keep_accuracy=True).fit(*crooked())
    z, labels = crooked(5_000, seed=1)
    moved = fitted.transform(z)
    assert np.array_equal(np.argsort(-moved, axis=1), np.argsort(-z, axis=1))
    plain = TemperatureScaling().fit(*crooked())
    assert nll_from_logits(moved, labels) < nll_from_logits(plain.transform(z), labels)
    assert "order of the classes is kept" in fitted.report_


def test_the_brier_score_judges_if_asked() -> None:
    z, labels = crooked(10_000, seed=1)
    fitted = AutoCalibrator(loss="brier").fit(*crooked())
    plain = TemperatureScaling().fit(*crooked())
    assert "judged by the Brier score" in fitted.report_
    assert brier_sum(fitted.predict_proba(z), labels) < brier_sum(plain.predict_proba(z), labels) - 0.01
    assert fitted.diagnostics_.loss_after == pytest.approx(brier_sum(fitted.predict_proba(crooked()[0]), crooked()[1]))


def test_a_small_budget_leaves_families_out_and_says_so() -> None:
    fitted = AutoCalibrator(time_budget=1).fit(*crooked())
    assert "Left out: g-layers. it would take about" in fitted.report_
    assert "| vector | " in fitted.report_
    z, labels = calibrated(500)
    assert AutoCalibrator(time_budget=0).fit(4 * z, labels).shares_ == {"temperature": 1.0}


def test_families_follow_rows_and_classes() -> None:
    def names(rows: int, classes: int, budget: float = 120.0, n_folds: int = 5) -> list[str]:
        return [family.name for family in _affordable(rows, classes, budget, n_folds)[0]]

    assert names(5_000, 10) == ["temperature", "shared", "matrix", "g-layers", "shared, g-layers"]
    assert names(5_000, 100) == ["temperature", "shared", "g-layers", "shared, g-layers"]
    assert names(25_000, 1_000) == ["temperature", "shared", "vector"]
    assert names(25_000, 1_000, 1e4) == ["temperature", "shared", "g-layers", "shared, g-layers"]
    assert names(20, 3) == ["temperature"]
    # The shared correction takes 3 s in 5 folds; g-layers take 4 s, whatever folds the others have.
    assert names(5_000, 100, 37, n_folds=50) == ["temperature", "shared", "g-layers"]


def test_without_torch_it_does_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(auto_families, "find_spec", lambda name: None if name == "torch" else real(name))
    fitted = AutoCalibrator().fit(*crooked())
    assert 'torch is not installed: pip install "glayers[fit]"' in fitted.report_
    assert "| vector | " in fitted.report_


def test_a_family_whose_ground_is_left_out_is_left_out_too() -> None:
    z, labels = calibrated(10_000, 2)
    report = AutoCalibrator(time_budget=4).fit(2 * z, labels).report_
    assert "Left out: shared. it would take" in report
    assert "Left out: shared, g-layers. it stands on shared, which is left out" in report


def test_weights_that_sit_on_one_fold_are_no_crash() -> None:
    z, labels = crooked(300)
    weights = np.zeros(300)
    weights[[5, 17]] = 1
    for seed in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GlayersWarning)
            p = AutoCalibrator(time_budget=1, random_state=seed).fit(z, labels, weights).predict_proba(z)
        np.testing.assert_allclose(p.sum(axis=1), 1)


@pytest.mark.parametrize("scale", [1e-3, 1e3, 1e4])
def test_keeping_accuracy_costs_the_same_on_any_scale(scale: float) -> None:
    z, labels = crooked(400)
    same, scaled = (
        AutoCalibrator(keep_accuracy=True, time_budget=1).fit(times * z, labels).diagnostics_.loss_after
        for times in (1.0, scale)
    )
    assert scaled == pytest.approx(same, rel=1e-3)


def test_rows_of_one_group_are_never_split() -> None:
    z, labels = crooked(300)
    groups = np.repeat(np.arange(60), 5)
    fitted = AutoCalibrator(time_budget=2).fit(z, labels, groups=groups)
    assert fitted.out_of_fold_.shape == (300, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)
        few = AutoCalibrator(time_budget=1).fit(z, labels, groups=np.arange(300) % 3).report_
    assert "rows held out in 3 folds" in few
    assert "(from too few rows or groups to tell it from chance): " in few
    with pytest.raises(GlayersError, match="groups must hold at least 2"):
        AutoCalibrator().fit(z, labels, groups=np.zeros(300))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"loss": "hinge"}, "loss"),
        ({"time_budget": -1}, "time_budget"),
        ({"time_budget": "long"}, "time_budget"),
        ({"n_folds": 1}, "n_folds"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises((GlayersError, ValueError), match=complaint):
        AutoCalibrator(**settings).fit(*crooked(50))


def candidate(name: str, log_probabilities: Numbers) -> Candidate:
    return Candidate(name, Chain((Scale(np.ones(())), LogSoftmax())), log_probabilities, 1, True, "", 0.0)


@pytest.mark.parametrize("loss", ["log", "brier"])
def test_a_mixture_leaves_out_what_hardly_counts(loss: str) -> None:
    z, labels = calibrated(2_000)
    good, bad = np.log(softmax(z)), np.log(softmax(-z))
    mixture = mixture_of(
        [candidate("bad", bad), candidate("good", good)], Task(Predictions(z, labels), loss, False, 5, 0)
    )
    assert mixture.shares == {"good": 1.0}
    assert mixture.out_of_fold is good


@pytest.mark.parametrize("loss", ["log", "brier"])
def test_two_halves_of_the_truth_are_mixed_half_and_half(loss: str) -> None:
    rng = np.random.default_rng(0)
    first, second = (np.log(softmax(2 * rng.normal(size=(20_000, 3)))) for _ in range(2))
    truth = (np.exp(first) + np.exp(second)) / 2
    labels = (truth.cumsum(axis=1) > rng.random((20_000, 1))).argmax(axis=1)
    task = Task(Predictions(first, labels), loss, False, 5, 0)
    mixture = mixture_of([candidate("first", first), candidate("second", second)], task)
    assert mixture.shares["first"] == pytest.approx(0.5, abs=0.03)
    np.testing.assert_allclose(np.exp(mixture.out_of_fold), truth, atol=0.05)


@pytest.mark.parametrize(("kept", "gain"), [(True, 0.25), (True, -0.25), (False, -0.25)])
def test_the_last_correction_is_told_by_the_loss_that_judges_and_only_as_done_where_it_was(
    monkeypatch: pytest.MonkeyPatch, kept: bool, gain: float
) -> None:
    z, labels = calibrated(400)
    plain = np.log(softmax(z))
    chain = Chain((LogSoftmax(),)) if kept else Chain(())
    made = Recalibration(chain, np.log(softmax(2 * z)) if kept else plain, gain, 0.01)  # measured by log loss
    monkeypatch.setattr(auto_mixture, "recalibrate", lambda *_: made)
    monkeypatch.setattr(auto_mixture, "_shares", lambda candidates, _: np.full(len(candidates), 0.5))
    task = Task(Predictions(z, labels), "brier", False, 5, 0)
    mixture = mixture_of([candidate("one", plain), candidate("other", plain)], task)
    lowered = brier_sum(softmax(z), labels) - brier_sum(softmax(2 * z), labels)
    assert mixture.gain == pytest.approx(lowered if kept else gain)
    assert lowered < 0
    report = told_of(task, mixture)
    assert "Mixture (0.50 one + 0.50 other): held-out loss" in report
    done, undone = f"raises it by {-lowered:.2g} +- ", "would raise its log loss by 0.25 +- 0.01, and is left out."
    assert (done in report, undone in report) == (kept, not kept)


def told_of(task: Task, mixture: Mixture) -> str:
    losses = np.linspace(0.5, 1.5, len(task.given))
    tried = Tried({"nothing": losses + 1, "temperature": losses + 0.1, "matrix": losses}, losses, losses)
    return told(task, tried, {}, mixture, {}, judge(tried, mixture.shares, task.given), {})


def test_a_family_that_came_back_as_temperature_shows_no_gain_over_it() -> None:
    # Held out, temperature looks worse than on the rows it was fitted to, which is where a fallen-back matrix is.
    task = Task(Predictions(*calibrated(50)), "log", False, 5, 0)
    report = told_of(task, Mixture(Chain(()), np.zeros((0, 0)), {"matrix": 1.0}, False, np.nan, np.nan))
    assert "| matrix | 1.00000 | +0.00000 +- 0.00000 |" in report
    assert "Mixture (matrix alone): held-out loss 1.00000.\nKept: temperature. No gain to rely on" in report
    assert (
        "held-out loss is that of temperature scaling on the rows it was fitted to: temperature is returned" in report
    )


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"keep_accuracy": "no"}, "keep_accuracy must be True or False; got 'no'"),
        ({"time_budget": -1}, "time_budget must be a number of seconds, 0 or more; got -1"),
        ({"n_folds": 1}, "n_folds must be"),
        ({"loss": "hinge"}, "loss must be"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        AutoCalibrator(**settings).fit(*calibrated(50))
