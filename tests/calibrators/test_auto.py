"""Auto: what it gains, when it falls back, what it records, and what it refuses."""

import importlib.util
import json
import subprocess
import sys
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from glayers import GlayersError, GlayersWarning, load
from glayers.activations import log_softmax, softmax
from glayers.calibrators import auto as auto_module
from glayers.calibrators import auto_families
from glayers.calibrators.auto import AutoCalibrator, choose, mixture_of
from glayers.calibrators.auto_families import FAMILIES, affordable, fit_families
from glayers.calibrators.auto_selection import AutoSelection, FamilyResult
from glayers.calibrators.base import Fitted
from glayers.calibrators.shared_g_layers import Task
from glayers.calibrators.temperature import TemperatureScaling
from glayers.errors import BadFile
from glayers.maps import Chain, LogSoftmax, Scale
from glayers.metrics import brier_sum, nll
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


def log_loss(logits: Numbers, labels: Numbers) -> float:
    return nll(Predictions(logits, labels))


@pytest.fixture(scope="module")
def fitted() -> AutoCalibrator:
    return AutoCalibrator().fit(*crooked())


def test_it_beats_temperature_where_classes_differ(fitted: AutoCalibrator) -> None:
    z, labels = crooked(20_000, seed=1)
    plain = TemperatureScaling().fit(*crooked())
    assert log_loss(fitted.transform(z), labels) < log_loss(plain.transform(z), labels) - 0.05


def test_held_out_predictions_are_worth_what_new_rows_show(fitted: AutoCalibrator) -> None:
    z, labels = crooked(20_000, seed=1)
    held_out = log_loss(fitted.out_of_fold_, crooked()[1])
    spread = fitted.out_of_fold_[np.arange(1_000), crooked()[1]].std()
    assert abs(held_out - log_loss(fitted.transform(z), labels)) < 3 * spread / np.sqrt(1_000)


def test_the_selection_names_everything_tried_and_the_reason(fitted: AutoCalibrator) -> None:
    selection = fitted.selection_
    assert (selection.rows, selection.classes, selection.n_folds, selection.loss) == (1_000, 4, 5, "log")
    tried = ["uncalibrated", "temperature", "shared", "vector", "matrix", "g-layers", "shared, g-layers"]
    assert [family.name for family in selection.families] == tried
    assert selection.kept == "mixture"
    assert fitted.mixture_weights_ == selection.mixture == selection.weights
    assert sum(fitted.mixture_weights_.values()) == pytest.approx(1)
    assert min(fitted.mixture_weights_.values()) >= 0.01
    assert selection.mixture_loss == pytest.approx(log_loss(fitted.out_of_fold_, crooked()[1]))
    for printed in (str(selection), selection.to_markdown()):
        assert printed.startswith("1,000 rows, 4 classes (250 rows per class); compared by 5-fold cross-validated log")
        assert "Kept: mixture. Its cross-validated loss is lower than that of temperature scaling by " in printed
    for family in tried:
        assert f"\n| {family} " in selection.to_markdown()
    assert selection.table(seconds=False)[0] == ["family", "loss", "gain over temperature", "weight", "parameters"]


def test_the_selection_survives_json_and_a_file(fitted: AutoCalibrator, tmp_path: Any) -> None:
    record = json.loads(json.dumps(fitted.selection_.to_dict()))
    assert AutoSelection.from_dict(record) == fitted.selection_
    fitted.save(tmp_path / "auto.safetensors")
    again = load(tmp_path / "auto.safetensors")
    assert isinstance(again, AutoCalibrator)
    untimed = [replace(family, seconds=None) for family in fitted.selection_.families]  # files hold no times
    assert again.selection_ == replace(fitted.selection_, families=tuple(untimed))
    assert again.mixture_weights_ == fitted.mixture_weights_
    damages: list[dict[str, Any]] = [{"more": 1}, {"families": [{}]}, {"loss": "hinge"}, {"rows": "many"}]
    for damage in (*damages, {"mixture": {}}):
        with pytest.raises(BadFile, match="record of what auto selected is damaged"):
            AutoSelection.from_dict(record | damage)


def test_same_seed_same_bytes() -> None:
    z, labels = crooked(120)
    one, same = (AutoCalibrator(n_folds=2).fit(z, labels) for _ in range(2))
    assert "shared, g-layers" in [family.name for family in one.selection_.families]
    assert np.array_equal(one.transform(z), same.transform(z))


def test_calibrated_logits_come_back_all_but_unchanged() -> None:
    z, labels = calibrated(2_000)
    fresh = calibrated(20_000, seed=1)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)  # nothing is returned, or a temperature near 1
        p = AutoCalibrator(time_budget=3).fit(z, labels).predict_proba(fresh)
    assert np.abs(p - softmax(fresh)).mean() < 0.01


def test_noise_is_no_gain() -> None:
    costs = []
    for seed in range(6):
        (z, labels), (fresh, truth) = calibrated(60, seed=seed), calibrated(5_000, seed=100 + seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GlayersWarning)  # it may fall back to no calibration
            fitted, plain = (made.fit(z, labels) for made in (AutoCalibrator(n_folds=3), TemperatureScaling()))
        costs.append(log_loss(fitted.transform(fresh), truth) - log_loss(plain.transform(fresh), truth))
    assert np.mean(costs) < 0.003


def test_no_label_costs_tens_of_nats() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 100)
    z = np.where(np.arange(5) == labels[:, None], 40.0, 0.0) + rng.normal(size=(100, 5))
    z[:2] = z[2:4]  # two labels out of a hundred are wrong, and class 4 never occurs
    z[:, 4] -= 60.0
    for keep_accuracy in (False, True):
        with pytest.warns(GlayersWarning, match="no row is labelled 4"):
            fitted = AutoCalibrator(time_budget=1, n_folds=2, keep_accuracy=keep_accuracy).fit(z, labels)
        log_p = fitted.transform(z)
        assert log_p.min() > np.log(0.1 / 5 / 200), "a share of about 0.1 / n, for each of five classes"
        assert np.log(0.9) < np.median(log_p.max(axis=1)), "and it costs little"
        assert np.array_equal(log_p.argmax(axis=1), z.argmax(axis=1))
        masked = np.where(np.arange(5) == 4, -np.inf, z)
        assert (fitted.predict_proba(masked)[:, 4] == 0).all()
        assert "is spread over all classes, for labels that no row has shown." in str(fitted.selection_)


def test_temperature_is_kept_where_rows_are_too_few_for_more() -> None:
    z, labels = calibrated(80)
    fitted = AutoCalibrator().fit(4 * z, labels)
    assert fitted.mixture_weights_ == {"temperature": 1.0}
    assert fitted.map_.parameters()["1.factor"] == pytest.approx(
        1 / TemperatureScaling().fit(4 * z, labels).temperature_
    )
    assert "Mixture: temperature alone; cross-validated loss" in str(fitted.selection_)
    kept = "Kept: temperature. No other family has any weight in the best mixture: falls back to temperature scaling."
    assert kept in str(fitted.selection_)


def test_few_rows_seldom_lead_away_from_the_truth() -> None:
    # 10 classes, 300 rows, and the truth is a temperature. With folds stratified by class, a matrix's intercepts looked
    # worth 0.02 here, for a loss higher by 0.007 on average. G-layers are left out to save time.
    costs = []
    for seed in range(12):
        auto = AutoCalibrator(time_budget=0.5)
        (z, labels), (fresh, truth) = calibrated(300, 10, seed), calibrated(5_000, 10, 100 + seed)
        fitted, plain = (made.fit(3 * z, labels) for made in (auto, TemperatureScaling()))
        costs.append(log_loss(fitted.transform(3 * fresh), truth))
        costs[-1] -= log_loss(plain.transform(3 * fresh), truth)
    assert np.mean(costs) < 0.001


def test_kept_accuracy_is_kept_in_every_row() -> None:
    fitted = AutoCalibrator(keep_accuracy=True, n_folds=2).fit(*crooked(400))
    assert "g-layers" in [family.name for family in fitted.selection_.families]
    z, labels = crooked(5_000, seed=1)
    moved = fitted.transform(z)
    assert np.array_equal(np.argsort(-moved, axis=1), np.argsort(-z, axis=1))
    plain = TemperatureScaling().fit(*crooked(400))
    assert log_loss(moved, labels) < log_loss(plain.transform(z), labels)
    assert "The order of the classes is kept in every row, and so is accuracy." in str(fitted.selection_)


def test_families_are_compared_by_the_brier_score_if_asked() -> None:
    z, labels = crooked(10_000, seed=1)
    few = crooked(400)
    fitted = AutoCalibrator(loss="brier", n_folds=2).fit(*few)
    assert "g-layers" in [family.name for family in fitted.selection_.families]
    plain = TemperatureScaling().fit(*few)
    assert fitted.selection_.summary.endswith("compared by 2-fold cross-validated Brier score.")
    assert brier_sum(fitted.predict_proba(z), labels) < brier_sum(plain.predict_proba(z), labels) - 0.01
    assert fitted.diagnostics_.loss_after == pytest.approx(brier_sum(fitted.predict_proba(few[0]), few[1]))


def test_families_and_weights_are_fitted_by_the_brier_score_if_asked() -> None:
    def noisy(rows: int, seed: int) -> tuple[Numbers, Numbers]:
        """Overconfident logits with a tenth of the labels at the least probable class, which log loss dreads most."""
        rng = np.random.default_rng(seed)
        z = 2 * rng.normal(size=(rows, 3))
        labels, wild = (2 * z + rng.gumbel(size=z.shape)).argmax(axis=1), rng.random(rows) < 0.1
        return 2 * z, np.where(wild, z.argmin(axis=1), labels)

    z, labels = noisy(20_000, 1)
    scores = [
        brier_sum(AutoCalibrator(loss=loss, time_budget=0.5, n_folds=2).fit(*noisy(300, 3)).predict_proba(z), labels)
        for loss in ("brier", "log")
    ]
    assert scores[0] < scores[1]  # equal, if `loss` were ignored


def test_a_small_budget_leaves_families_out_and_says_so() -> None:
    fitted = AutoCalibrator(time_budget=1, n_folds=2).fit(*crooked(200))
    assert "Not fitted: g-layers. It would take about" in str(fitted.selection_)
    assert "vector" in [family.name for family in fitted.selection_.families]
    z, labels = calibrated(500)
    assert AutoCalibrator(time_budget=0).fit(4 * z, labels).mixture_weights_ == {"temperature": 1.0}


def test_families_follow_rows_and_classes() -> None:
    def names(rows: int, classes: int, budget: float = 120.0, n_folds: int = 5) -> list[str]:
        return [family.name for family in affordable(rows, classes, budget, n_folds)[0]]

    assert names(5_000, 10) == ["temperature", "shared", "vector", "matrix", "g-layers", "shared, g-layers"]
    assert names(5_000, 100) == ["temperature", "shared", "vector", "g-layers", "shared, g-layers"]
    assert names(25_000, 1_000) == ["temperature", "shared", "vector"]
    assert names(25_000, 1_000, 1e4) == ["temperature", "shared", "vector", "g-layers", "shared, g-layers"]
    assert names(20, 3) == ["temperature", "shared", "vector", "matrix"]
    # In 50 folds the shared correction takes 2 s and vector scaling 7.5 s; g-layers take 9 s, whatever folds the
    # others have.
    assert names(5_000, 100, 25, n_folds=50) == ["temperature", "shared", "vector", "g-layers"]


def test_without_torch_it_does_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(auto_families, "find_spec", lambda name: None if name == "torch" else real(name))
    fitted = AutoCalibrator(n_folds=2).fit(*crooked(200))
    assert fitted.selection_.left_out["g-layers"] == 'Torch is not installed: pip install "glayers[fit]"'
    assert "vector" in [family.name for family in fitted.selection_.families]


def test_a_family_that_builds_on_one_left_out_is_left_out_too() -> None:
    chosen, left_out = affordable(10_000, 2, budget=20)
    assert chosen[-1].name == "shared, g-layers"
    task = Task(Predictions(*calibrated(50)), "log", False, 5, 0)
    assert list(fit_families(task, [chosen[0], chosen[-1]], left_out, lambda: None)) == ["temperature"]
    assert left_out["shared, g-layers"] == "It builds on shared, which is left out"


def test_weights_that_sit_on_one_fold_are_no_crash() -> None:
    z, labels = crooked(300)
    weights = np.zeros(300)
    weights[[5, 17]] = 1
    for seed in range(4):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GlayersWarning)
            p = AutoCalibrator(time_budget=1, random_state=seed).fit(z, labels, weights).predict_proba(z)
        np.testing.assert_allclose(p.sum(axis=1), 1)


def test_keeping_accuracy_costs_the_same_on_any_scale() -> None:
    z, labels = crooked(200)
    same, *scaled = (
        AutoCalibrator(keep_accuracy=True, time_budget=1, n_folds=2).fit(scale * z, labels).diagnostics_.loss_after
        for scale in (1.0, 1e-3, 1e4)
    )
    assert scaled == pytest.approx([same] * 2, rel=1e-3)


def test_rows_of_one_group_are_never_split() -> None:
    z, labels = crooked(300)
    groups = np.repeat(np.arange(60), 5)
    fitted = AutoCalibrator(time_budget=1).fit(z, labels, groups=groups)
    assert fitted.out_of_fold_.shape == (300, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)
        few = AutoCalibrator(time_budget=1).fit(z, labels, groups=np.arange(300) % 3).selection_
    assert few.n_folds == 3
    assert "(too few rows or groups for a standard error)" in few.reason
    with pytest.raises(GlayersError, match="groups must hold at least 2"):
        AutoCalibrator().fit(z, labels, groups=np.zeros(300))


def candidate(log_probabilities: Numbers) -> Fitted:
    return Fitted(Chain((Scale(np.ones(())), LogSoftmax())), "", out_of_fold=log_probabilities)


@pytest.mark.parametrize("loss", ["log", "brier"])
def test_a_mixture_drops_families_of_little_weight(loss: str) -> None:
    z, labels = calibrated(2_000)
    good, bad = np.log(softmax(z)), np.log(softmax(-z))
    families = {"bad": candidate(bad), "good": candidate(good)}
    mixture, weights, correction = mixture_of(families, Task(Predictions(z, labels), loss, False, 5, 0))
    assert weights == {"good": 1.0}
    assert mixture is families["good"]
    assert correction is None


@pytest.mark.parametrize("loss", ["log", "brier"])
def test_two_halves_of_the_truth_are_mixed_half_and_half(loss: str) -> None:
    rng = np.random.default_rng(0)
    first, second = (np.log(softmax(2 * rng.normal(size=(8_000, 3)))) for _ in range(2))
    truth = (np.exp(first) + np.exp(second)) / 2
    labels = (truth.cumsum(axis=1) > rng.random((8_000, 1))).argmax(axis=1)
    task = Task(Predictions(first, labels), loss, False, 5, 0)
    mixture, weights, _ = mixture_of({"first": candidate(first), "second": candidate(second)}, task)
    assert weights["first"] == pytest.approx(0.5, abs=0.03)
    np.testing.assert_allclose(np.exp(np.asarray(mixture.out_of_fold)), truth, atol=0.05)


@pytest.mark.parametrize(("kept", "gain"), [(True, 0.25), (True, -0.25), (False, -0.25)])
def test_the_last_correction_is_reported_by_the_loss_that_compares_and_as_made_only_where_it_was(
    monkeypatch: pytest.MonkeyPatch, kept: bool, gain: float
) -> None:
    z, labels = calibrated(400)
    plain = np.log(softmax(z))
    made = Fitted(
        Chain((LogSoftmax(),)) if kept else Chain(()),
        "",
        out_of_fold=np.log(softmax(2 * z)) if kept else plain,
        attributes={"gain_": gain, "gain_error_": 0.01},  # measured by log loss
    )
    monkeypatch.setattr(auto_module, "shared_correction", lambda *_: made)
    monkeypatch.setattr(auto_module, "_weights", lambda parts, _: np.full(len(parts), 0.5))
    task = Task(Predictions(z, labels), "brier", False, 5, 0)
    _, weights, correction = mixture_of({"one": candidate(plain), "other": candidate(plain)}, task)
    assert correction is not None
    lowered = brier_sum(softmax(z), labels) - brier_sum(softmax(2 * z), labels)
    assert lowered < 0
    assert (correction.kept, correction.loss) == ((True, "brier") if kept else (False, "log"))
    assert correction.gain == pytest.approx(lowered if kept else gain)
    selection = AutoSelection(400, 3, 5, "brier", False, (), {}, weights, 0.5, correction, "mixture", "Why.")
    assert "Mixture: 0.50 one + 0.50 other; cross-validated loss 0.50000." in str(selection)
    done = f"raises the loss by {-lowered:.2g} +- "
    undone = "would raise the log loss by 0.25 +- 0.01, so it is left out."
    assert (done in str(selection), undone in str(selection)) == (kept, not kept)


def test_no_calibration_is_kept_only_without_evidence_for_a_temperature() -> None:
    given = Predictions(*calibrated(50))
    raw = np.linspace(0.5, 1.5, 50)
    losses = {"uncalibrated": raw, "temperature": raw + 0.1}
    kept, reason = choose(losses, raw - 0.001, raw + 0.1, {"temperature": 1.0}, given)
    assert kept == "uncalibrated"
    assert reason.startswith("No gain, as the mixture's cross-validated loss is higher than that of no calibration by")
    assert reason.endswith(": falls back to no calibration.")
    assert choose(losses, raw - 0.01, raw + 0.1, {"temperature": 1.0}, given)[0] == "temperature", "0.5 nats in all"
    unlimited = choose(losses, raw - 0.01, raw + 0.1, {"temperature": 1.0}, given, found_temperature=False)
    assert unlimited[0] == "uncalibrated"
    kept, reason = choose(losses, raw - 0.01, raw - 0.01, {"matrix": 1.0}, given)
    assert (kept, reason) == ("mixture", "Its cross-validated loss is equal to that of temperature scaling.")


def test_a_gain_without_a_standard_error_prints_without_one() -> None:
    families = (FamilyResult("matrix", 1.0, 0.5, np.inf, 1.0, 2, 0.1, note="not converged"),)
    selection = AutoSelection(5, 3, 2, "log", True, families, {}, {"matrix": 1.0}, 1.0, None, "mixture", "Why.")
    cells = [cell.strip() for cell in selection.to_markdown().splitlines()[4].strip("|").split("|")]
    assert cells == ["matrix", "1.00000", "+0.50000", "1.00", "2", "0.1"]
    assert str(selection).endswith("Note on matrix: not converged.")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"keep_accuracy": "no"}, "keep_accuracy must be True or False; got 'no'"),
        ({"time_budget": -1}, "time_budget must be a number of seconds, 0 or more; got -1"),
        ({"time_budget": "long"}, "time_budget must be a number of seconds, 0 or more; got 'long'"),
        ({"n_folds": 1}, "n_folds must be"),
        ({"loss": "hinge"}, "loss must be"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        AutoCalibrator(**settings).fit(*calibrated(50))


def test_many_rows_teach_by_a_sample_and_temperature_by_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_families, "_ENOUGH_ROWS", 600)
    monkeypatch.setattr(auto_module, "MOST_KEPT", 600 * 4)
    z, labels = crooked(5_000)
    groups = np.arange(5_000) // 4
    fitted = AutoCalibrator(time_budget=1).fit(z, labels, groups=groups)
    assert (fitted.selection_.rows, fitted.selection_.sample) == (5_000, 600)
    assert "temperature from all, the other families from 600 random rows;" in fitted.selection_.summary
    assert fitted.out_of_fold_.shape == (600, 4)
    assert fitted.diagnostics_.rows == 5_000
    z = z / 3
    plain = AutoCalibrator(time_budget=0).fit(z, labels, groups=groups)
    assert plain.selection_.kept == "temperature"
    np.testing.assert_allclose(plain.predict_proba(z), TemperatureScaling().fit(z, labels).predict_proba(z), atol=1e-3)
    monkeypatch.setattr(auto_module, "MOST_KEPT", 600)
    assert AutoCalibrator(time_budget=0).fit(z, labels).out_of_fold_ is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_many_rows_fill_no_memory() -> None:
    # A copy of the logits in float64 would take 49 MB, and one per family several times as much.
    script = r"""
import re, warnings
from pathlib import Path
import numpy as np
from glayers import AutoCalibrator
from glayers.calibrators import auto_families
warnings.simplefilter("ignore")
def peak():  # of this program alone; ru_maxrss begins with that of the process which started it
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])
auto_families._ENOUGH_ROWS = 2_000
rng = np.random.default_rng(0)
logits, labels = rng.standard_normal((800_000, 8), dtype=np.float32), rng.integers(0, 8, 800_000)
AutoCalibrator(time_budget=0).fit(logits[:2_000], labels[:2_000])
before = peak()
AutoCalibrator(time_budget=0).fit(logits, labels)
print((peak() - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60


def test_g_layers_are_not_tried_again_behind_the_shared_correction_if_they_learn_nothing() -> None:
    z, labels = calibrated(50)
    plain = Fitted(Chain(()), "", out_of_fold=log_softmax(z))
    fit = next(family.fit for family in FAMILIES if family.name == "shared, g-layers")
    with pytest.raises(GlayersError, match="learn nothing beyond temperature"):
        fit(Task(Predictions(z, labels)), {"temperature": plain, "shared": plain})
