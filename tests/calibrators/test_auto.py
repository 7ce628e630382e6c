"""Auto: what it gains, when it falls back, what it records, and what it refuses."""

import importlib.util
import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example
from hypothesis import given as drawn
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from glayers import GlayersError, GlayersWarning, PlattScaling, VectorScaling, load
from glayers.activations import softmax
from glayers.calibrators import auto as auto_module
from glayers.calibrators.auto import AutoCalibrator, enough_rows, g_layers_seconds
from glayers.calibrators.auto_selection import AutoSelection, PartResult
from glayers.calibrators.temperature import TemperatureScaling
from glayers.errors import BadFile
from glayers.metrics import brier_sum, nll
from glayers.predictions import Predictions
from glayers.serving.artifact import decoded
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


def quietly(calibrator: Any, *given: Any, **named: Any) -> Any:
    """Fit without warnings: it may fall back to no calibration, and say so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)
        return calibrator.fit(*given, **named)


def names_of(fitted: AutoCalibrator) -> list[str]:
    return [part.name for part in fitted.selection_.parts]


def test_g_layers_that_learn_nothing_are_left_out_with_the_reason() -> None:
    selection = quietly(AutoCalibrator(), *calibrated(500)).selection_
    assert "g-layers" not in [part.name for part in selection.parts]
    assert "Left out: g-layers. In cross-validation it showed no significant gain" in str(selection)


def test_a_share_of_temperature_scaling_leaves_no_bias_in_a_class() -> None:
    """Two classes, scores with log-odds 2.2 s + 0.8 where s is true: temperature scaling alone is 6 points too high."""
    biases = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        true = rng.normal(0, 1.5, 3_000)
        labels = (rng.random(3_000) < 1 / (1 + np.exp(-true))).astype(int)
        new = rng.normal(0, 1.5, 20_000)
        auto = AutoCalibrator(time_budget=0).fit(2.2 * true[:, None] + 0.8, labels)
        assert 0 < auto.mixture_weights_["temperature"] < 0.5
        p = auto.predict_proba(2.2 * new[:, None] + 0.8)[:, 1]
        biases.append(100 * np.mean(p - 1 / (1 + np.exp(-new))))
    assert abs(np.mean(biases)) < 0.5  # points, with a standard error of 0.2; 1.1 without shifts in the last correction


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


def test_the_selection_names_every_part_and_the_reason(fitted: AutoCalibrator) -> None:
    selection = fitted.selection_
    assert (selection.rows, selection.classes, selection.n_folds, selection.loss) == (1_000, 4, 5, "log")
    assert names_of(fitted) == ["uncalibrated", "temperature", "model", "g-layers"]
    assert fitted.mixture_weights_ == selection.weights
    assert sum(fitted.mixture_weights_.values()) == pytest.approx(1)
    assert min(fitted.mixture_weights_.values()) >= 0.01
    assert selection.kept_loss == pytest.approx(log_loss(fitted.out_of_fold_, crooked()[1]))
    assert selection.effective.keys() == {"shared", "context", "scale", "shift", "matrix", "hinges"}
    assert selection.left_out == {}
    for printed in (str(selection), selection.to_markdown()):
        assert printed.startswith("1,000 rows, 4 classes (250 rows per class); compared by 5-fold cross-validated log")
        assert "The rows support these corrections (effective coefficients): " in printed
        assert "cross-validated log loss lower than temperature scaling's by " in printed
    for name in names_of(fitted):
        assert f"\n| {name} " in selection.to_markdown()
    headings = ["part", "held-out loss", "gain over temperature", "weight", "parameters"]
    assert selection.table(seconds=False)[0] == headings


def test_the_losses_of_the_selection_belong_together(fitted: AutoCalibrator) -> None:
    selection = fitted.selection_
    by_name = {part.name: part for part in selection.parts}
    assert by_name["temperature"].gain == 0
    for part in selection.parts:
        assert part.gain == pytest.approx(by_name["temperature"].loss - part.loss)
    assert selection.gain == pytest.approx(by_name["temperature"].loss - selection.kept_loss)
    assert selection.kept_loss <= min(part.loss for part in selection.parts) + 1e-3
    assert selection.gain_error > 0


def test_the_selection_survives_json_and_a_file(fitted: AutoCalibrator, tmp_path: Any) -> None:
    record = json.loads(json.dumps(fitted.selection_.to_dict()))
    assert decoded(AutoSelection, record) == fitted.selection_
    fitted.save(tmp_path / "auto.safetensors")
    again = load(tmp_path / "auto.safetensors")
    assert isinstance(again, AutoCalibrator)
    untimed = [replace(part, seconds=None) for part in fitted.selection_.parts]  # files hold no times
    assert again.selection_ == replace(fitted.selection_, parts=tuple(untimed))
    assert again.mixture_weights_ == fitted.mixture_weights_
    assert again.predict_proba(crooked()[0]).tobytes() == fitted.predict_proba(crooked()[0]).tobytes()
    damages: list[dict[str, Any]] = [{"more": 1}, {"parts": [{}]}]
    for damage in damages:
        with pytest.raises(BadFile, match="an entry is missing, unknown or odd"):
            decoded(AutoSelection, record | damage)


def test_same_seed_same_bytes() -> None:
    z, labels = crooked(120)
    one, same = (AutoCalibrator(n_folds=2).fit(z, labels) for _ in range(2))
    assert "g-layers" in names_of(one)
    assert np.array_equal(one.transform(z), same.transform(z))


def test_calibrated_logits_come_back_all_but_unchanged() -> None:
    z, labels = calibrated(2_000)
    fresh = calibrated(20_000, seed=1)[0]
    p = quietly(AutoCalibrator(), z, labels).predict_proba(fresh)
    assert np.abs(p - softmax(fresh)).mean() < 0.01


def test_noise_is_no_gain() -> None:
    costs = []
    for seed in range(6):
        (z, labels), (fresh, truth) = calibrated(60, seed=seed), calibrated(5_000, seed=100 + seed)
        fitted, plain = (quietly(made, z, labels) for made in (AutoCalibrator(n_folds=3), TemperatureScaling()))
        costs.append(log_loss(fitted.transform(fresh), truth) - log_loss(plain.transform(fresh), truth))
    assert np.mean(costs) < 0.003


@hypothesis_settings(max_examples=20, deadline=None)
@example(seed=23418, rows=10, classes=2, loss="brier", signal=3.0, keep_accuracy=False)
@drawn(
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(10, 150),
    classes=st.integers(2, 7),
    loss=st.sampled_from(["log", "brier"]),
    signal=st.sampled_from([0.0, 1.0, 3.0]),
    keep_accuracy=st.booleans(),
)
def test_what_is_kept_never_has_a_higher_held_out_loss_than_temperature_scaling(
    seed: int, rows: int, classes: int, loss: Any, signal: float, keep_accuracy: bool
) -> None:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(rows, classes)) * rng.uniform(0.1, 10)
    truth = signal * z @ rng.normal(size=(classes, classes)) / 3
    labels = (truth + rng.gumbel(size=z.shape)).argmax(axis=1)
    auto = AutoCalibrator(loss=loss, time_budget=0, keep_accuracy=keep_accuracy, random_state=seed % 1000)
    selection = quietly(auto, z, labels).selection_
    temperature = next(part for part in selection.parts if part.name == "temperature")
    if not temperature.note:  # it has a finite temperature of least loss
        assert selection.kept_loss <= temperature.loss + 1e-12
        assert selection.gain >= -1e-12
    assert sum(selection.weights.values()) == pytest.approx(1)
    assert np.isfinite(auto.transform(z)).all()


def test_no_label_costs_tens_of_nats() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 100)
    z = np.where(np.arange(5) == labels[:, None], 40.0, 0.0) + rng.normal(size=(100, 5))
    z[:2] = z[2:4]  # two labels out of a hundred are wrong, and class 4 never occurs
    z[:, 4] -= 60.0
    for keep_accuracy in (False, True):
        fitted = quietly(AutoCalibrator(time_budget=0, n_folds=2, keep_accuracy=keep_accuracy), z, labels)
        assert fitted.diagnostics_.classes_never_seen == (4,)
        log_p = fitted.transform(z)
        assert log_p.min() > np.log(0.1 / 5 / 200), "a share of about 0.1 / n, for each of five classes"
        assert np.log(0.9) < np.median(log_p.max(axis=1)), "and it costs little"
        assert np.array_equal(log_p.argmax(axis=1), z.argmax(axis=1))
        masked = np.where(np.arange(5) == 4, -np.inf, z)
        assert (fitted.predict_proba(masked)[:, 4] == 0).all()
        assert "Every class keeps a small minimum probability" in str(fitted.selection_)


def test_the_uniform_share_is_the_same_in_the_map_and_in_what_was_held_out() -> None:
    # Far beyond all rows every part is certain, and only the share is left for the other classes.
    fitted = quietly(AutoCalibrator(time_budget=0), *crooked(400))
    extreme = np.array([[1e5, 0.0, -1e5, -2e5]])
    expected = fitted.selection_.uniform_share / 4
    assert fitted.predict_proba(extreme)[0, 3] == pytest.approx(expected, rel=1e-6)
    assert np.exp(fitted.out_of_fold_).sum(axis=1) == pytest.approx(1)


def test_an_anchor_is_kept_where_nothing_more_is_shown() -> None:
    found = []
    for seed in range(8):
        z, labels = calibrated(80, seed=seed)
        fitted = quietly(AutoCalibrator(), 4 * z, labels)
        if fitted.mixture_weights_ == {"temperature": 1.0}:
            reason = "no gain over temperature scaling in cross-validated log loss: falls back to it"
            assert fitted.selection_.reason == reason
            assert f"Kept: 1.000 temperature; {reason}." in str(fitted.selection_)
            plain = TemperatureScaling().fit(4 * z, labels)
            assert fitted.predict_proba(z) == pytest.approx(plain.predict_proba(z), abs=0.01)  # but for the share
            found.append(seed)
    assert found, "80 rows whose truth is a temperature"


@pytest.mark.parametrize("classes", [3, 13])
def test_a_row_of_weight_0_is_a_row_left_out(classes: int) -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(400, classes))
    labels = (z + np.linspace(-1, 1, classes) + rng.gumbel(size=z.shape)).argmax(axis=1)
    weights = rng.uniform(0.5, 2, 400) * (rng.random(400) > 0.7)
    used = weights > 0
    whole = AutoCalibrator().fit(2 * z, labels, weights)
    alone = AutoCalibrator().fit(2 * z[used], labels[used], weights[used])
    np.testing.assert_allclose(whole.predict_proba(z), alone.predict_proba(z), atol=1e-9)
    assert whole.selection_.rows == alone.selection_.rows == used.sum()
    assert whole.predict_set(z).sum() == alone.predict_set(z).sum()


def test_a_corrected_anchor_is_no_fallback() -> None:
    part = PartResult("uncalibrated", 1.0, 0.0, 0.1, 1.0, 0)
    selection = AutoSelection(50, 50, 3, 5, "brier", False, (part,), {}, {}, 0.9, 0.1, 0.05, 0.001)
    assert selection.weights == {"uncalibrated": 1.0}
    assert selection.reason.startswith("cross-validated Brier score lower than temperature scaling's by 0.1")


def test_the_reason_names_the_anchor_that_is_kept() -> None:
    part = PartResult("uncalibrated", 1.0, 0.0, 0.1, 1.0, 0)
    selection = AutoSelection(50, 50, 3, 5, "brier", False, (part,), {}, {}, 1.0, 0.0, 0.1, 0.001, "uncalibrated")
    assert selection.reason == "no gain over no calibration in cross-validated Brier score: falls back to it"
    assert "Kept: 1.000 uncalibrated; no gain over no calibration" in str(selection)


def test_kept_accuracy_is_kept_in_every_row() -> None:
    fitted = AutoCalibrator(keep_accuracy=True, n_folds=2).fit(*crooked(400))
    assert "g-layers" in names_of(fitted)
    z, labels = crooked(5_000, seed=1)
    moved = fitted.transform(z)
    assert np.array_equal(np.argsort(-moved, axis=1), np.argsort(-z, axis=1))
    plain = TemperatureScaling().fit(*crooked(400))
    assert log_loss(moved, labels) < log_loss(plain.transform(z), labels)
    assert "The order of the classes is kept in every row, and so is accuracy." in str(fitted.selection_)


def test_parts_are_compared_by_the_brier_score_if_asked() -> None:
    z, labels = crooked(10_000, seed=1)
    few = crooked(400)
    fitted = AutoCalibrator(loss="brier", n_folds=2).fit(*few)
    assert "g-layers" in names_of(fitted)
    plain = TemperatureScaling().fit(*few)
    assert fitted.selection_.summary.endswith("compared by 2-fold cross-validated Brier score.")
    assert brier_sum(fitted.predict_proba(z), labels) < brier_sum(plain.predict_proba(z), labels) - 0.01
    assert fitted.diagnostics_.loss_after == pytest.approx(brier_sum(fitted.predict_proba(few[0]), few[1]))


def test_parts_and_weights_are_fitted_by_the_brier_score_if_asked() -> None:
    def noisy(rows: int, seed: int) -> tuple[Numbers, Numbers]:
        """Overconfident logits with a tenth of the labels at the least probable class, which log loss dreads most."""
        rng = np.random.default_rng(seed)
        z = 2 * rng.normal(size=(rows, 3))
        labels, wild = (2 * z + rng.gumbel(size=z.shape)).argmax(axis=1), rng.random(rows) < 0.1
        return 2 * z, np.where(wild, z.argmin(axis=1), labels)

    z, labels = noisy(20_000, 1)
    scores = [
        brier_sum(AutoCalibrator(loss=loss, time_budget=0, n_folds=2).fit(*noisy(300, 3)).predict_proba(z), labels)
        for loss in ("brier", "log")
    ]
    assert scores[0] < scores[1]  # equal, if `loss` were ignored


def test_a_small_budget_leaves_g_layers_out_and_says_so() -> None:
    fitted = quietly(AutoCalibrator(time_budget=0, n_folds=2), *crooked(200))
    assert "Left out: g-layers. It would take about" in str(fitted.selection_)
    assert names_of(fitted) == ["uncalibrated", "temperature", "model"]
    assert not quietly(AutoCalibrator(n_folds=2), *crooked(60)).selection_.left_out  # few rows are no reason


def test_the_time_of_g_layers_grows_with_rows_and_classes() -> None:
    assert g_layers_seconds(1_000, 10) < g_layers_seconds(5_000, 10) < g_layers_seconds(5_000, 100)
    assert g_layers_seconds(25_000, 1_000) > 120 > g_layers_seconds(5_000, 100)


def test_without_torch_it_does_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(auto_module, "find_spec", lambda name: None if name == "torch" else real(name))
    fitted = quietly(AutoCalibrator(n_folds=2), *crooked(200))
    assert fitted.selection_.left_out["g-layers"] == 'Torch is not installed: pip install "glayers[fit]"'
    assert names_of(fitted) == ["uncalibrated", "temperature", "model"]


def test_weights_that_sit_on_one_fold_are_no_crash() -> None:
    z, labels = crooked(300)
    weights = np.zeros(300)
    weights[[5, 17]] = 1
    for seed in range(4):
        p = quietly(AutoCalibrator(time_budget=0, random_state=seed), z, labels, weights).predict_proba(z)
        np.testing.assert_allclose(p.sum(axis=1), 1)


def test_equal_weights_are_none_and_a_weight_of_zero_is_no_row() -> None:
    z, labels = crooked(300)
    one, other = (quietly(AutoCalibrator(time_budget=0), z, labels, w) for w in (None, np.full(300, 3.0)))
    assert one.predict_proba(z) == pytest.approx(other.predict_proba(z), abs=1e-6)


def test_keeping_accuracy_costs_the_same_on_any_scale() -> None:
    z, labels = crooked(200)
    same, *scaled = (
        AutoCalibrator(keep_accuracy=True, time_budget=0, n_folds=2).fit(scale * z, labels).diagnostics_.loss_after
        for scale in (1.0, 1e-3, 1e4)
    )
    # No calibration, one part of the mixture, does depend on the scale.
    assert scaled == pytest.approx([same] * 2, rel=1e-2)


def test_permuting_classes_permutes_the_result() -> None:
    z, labels = crooked(400)
    order = np.array([2, 0, 3, 1])
    one = quietly(AutoCalibrator(time_budget=0), z, labels)
    other = quietly(AutoCalibrator(time_budget=0), z[:, order], np.argsort(order)[labels])
    assert other.predict_proba(z[:, order]) == pytest.approx(one.predict_proba(z)[:, order], abs=0.01)


def test_rows_of_one_group_are_never_split() -> None:
    z, labels = crooked(300)
    groups = np.repeat(np.arange(60), 5)
    fitted = AutoCalibrator(time_budget=0).fit(z, labels, groups=groups)
    assert fitted.out_of_fold_.shape == (300, 4)
    few = quietly(AutoCalibrator(time_budget=0), z, labels, groups=np.arange(300) % 3).selection_
    assert few.n_folds == 3
    assert few.gain_error == np.inf
    assert "inf" not in few.reason
    with pytest.raises(GlayersError, match="groups must hold at least 2"):
        AutoCalibrator().fit(z, labels, groups=np.zeros(300))


def test_repeated_rows_of_a_group_are_no_evidence() -> None:
    # Random labels, each row five times: split over folds, every row would be known by heart.
    rng = np.random.default_rng(0)
    z, labels = np.repeat(rng.normal(size=(40, 3)), 5, axis=0), np.repeat(rng.integers(0, 3, 40), 5)
    selection = quietly(AutoCalibrator(time_budget=0), z, labels, groups=np.repeat(np.arange(40), 5)).selection_
    assert selection.kept_loss > np.log(3) - 0.05


def test_a_gain_without_a_standard_error_prints_without_one() -> None:
    parts = (PartResult("model", 1.0, 0.5, np.inf, 1.0, 2, 0.1, note="not converged"),)
    selection = AutoSelection(5, 5, 3, 2, "log", True, parts, {"shift": 2.0}, {}, 1.0, 0.5, np.inf, 0.01)
    cells = [cell.strip() for cell in selection.to_markdown().splitlines()[4].strip("|").split("|")]
    assert cells == ["model", "1.00000", "+0.50000", "1.000", "2", "0.1"]
    assert "(effective coefficients): one shift per class (2)." in str(selection)
    assert str(selection).endswith("Note on model: not converged.")


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
    assert (enough_rows(10), enough_rows(1_000)) == (100_000, 25_000)
    monkeypatch.setattr(auto_module, "_ENOUGH_ROWS", 600)
    monkeypatch.setattr(auto_module, "MOST_KEPT", 600 * 4)
    z, labels = crooked(5_000)
    groups = np.arange(5_000) // 4
    fitted = AutoCalibrator(time_budget=0).fit(z, labels, groups=groups)
    assert (fitted.selection_.rows, fitted.selection_.sample) == (5_000, 600)
    assert "temperature from all, the other parts from 600 random rows;" in fitted.selection_.summary
    assert fitted.out_of_fold_.shape == (600, 4)
    assert fitted.diagnostics_.rows == 5_000
    assert fitted.diagnostics_.loss_after == pytest.approx(log_loss(fitted.transform(z), labels))
    monkeypatch.setattr(auto_module, "MOST_KEPT", 600)
    assert AutoCalibrator(time_budget=0).fit(z, labels).out_of_fold_ is None


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_many_rows_fill_no_memory() -> None:
    # A copy of the logits in float64 would take 49 MB, and one per part several times as much.
    script = r"""
import re, warnings
from pathlib import Path
import numpy as np
from glayers import AutoCalibrator
from glayers.calibrators import auto
warnings.simplefilter("ignore")
def peak():  # of this program alone; ru_maxrss begins with that of the process which started it
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[1])
auto._ENOUGH_ROWS = 2_000
rng = np.random.default_rng(0)
logits, labels = rng.standard_normal((800_000, 8), dtype=np.float32), rng.integers(0, 8, 800_000)
AutoCalibrator(time_budget=0).fit(logits[:2_000], labels[:2_000])
before = peak()
AutoCalibrator(time_budget=0).fit(logits, labels)
print((peak() - before) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 60


def overconfident(rows: int, seed: int) -> tuple[Numbers, Numbers, Numbers]:
    """Rows of five classes: logits, labels, and the true probabilities, one scale and one shift per class away."""
    rng, fixed = np.random.default_rng(seed), np.random.default_rng(0)
    z = 2 * rng.normal(size=(rows, 5))
    z -= z.mean(axis=1, keepdims=True)
    true = z * (1 + 0.3 * fixed.normal(size=5)) + 0.8 * fixed.normal(size=5)
    return 1.5 * z, (true + rng.gumbel(size=z.shape)).argmax(axis=1), softmax(true)


def quick(**settings: Any) -> AutoCalibrator:
    return AutoCalibrator(time_budget=0, progress=False, **settings)


def test_an_earlier_calibrator_is_worth_many_rows_and_an_unrelated_one_does_no_harm() -> None:
    earlier = quick().fit(*overconfident(5_000, 1)[:2])
    z, labels, _ = overconfident(5_000, 2)
    unrelated = quick().fit(z[:, ::-1], labels)
    losses = []
    for seed in range(3, 7):
        few = overconfident(100, seed)[:2]
        fits = (quick(), quick(prior=earlier), quick(prior=[unrelated, earlier]), quick(prior=unrelated))
        losses.append([nll(each.fit(*few).predict_proba(z), labels) for each in fits])
    without, related, both, other = np.mean(losses, axis=0)
    assert related < without - 0.015
    assert both < without - 0.015
    assert other < without + 0.01


def test_a_prior_must_be_fitted_for_the_same_logits(tmp_path: Path) -> None:
    z, labels, _ = overconfident(200, 1)
    with pytest.raises(GlayersError, match="prior must be a fitted calibrator"):
        quick(prior=quick()).fit(z, labels)
    with pytest.raises(GlayersError, match="fitted on 4 columns of logits; these rows have 5"):
        quick(prior=quick().fit(z[:, :4], labels % 4)).fit(z, labels)
    fitted = quick(prior=[quick().fit(z, labels)]).fit(z, labels)
    fitted.save(tmp_path / "a.safetensors")
    again = load(tmp_path / "a.safetensors")
    assert again.get_params()["prior"] is None
    assert np.array_equal(again.predict_proba(z), fitted.predict_proba(z))


@pytest.mark.parametrize("rows", [100, 1_000, 10_000])
def test_intervals_hold_the_true_probability_as_often_as_they_say(rows: int) -> None:
    inside = []
    for seed in range(3):
        auto = quick().fit(*overconfident(rows, seed)[:2])
        z, _, true = overconfident(300, 100 + seed)
        low, high = auto.predict_interval(z, 0.9)
        assert (low <= auto.predict_proba(z)).all()
        assert (auto.predict_proba(z) <= high).all()
        inside.append(((low <= true) & (true <= high))[true > 0.01].mean())
    assert np.mean(inside) > 0.88


def test_intervals_shrink_with_rows_and_grow_with_the_level() -> None:
    z, _, _ = overconfident(50, 9)
    few, many = (quick().fit(*overconfident(rows, 1)[:2]) for rows in (200, 20_000))
    width = {each: np.subtract(*each.predict_interval(z)[::-1]).mean() for each in (few, many)}
    assert width[many] < width[few] / 3
    assert np.subtract(*few.predict_interval(z, 0.5)[::-1]).mean() < width[few] / 2


@pytest.mark.parametrize("method", [VectorScaling, quick])
def test_intervals_know_that_rows_of_a_group_may_be_copies(method: Any) -> None:
    inside = []
    for seed in range(4):
        z, labels, _ = overconfident(100, seed)
        copied = {"logits": np.repeat(z, 10, axis=0), "labels": np.repeat(labels, 10)}
        fitted = method().fit(**copied, groups=np.repeat(np.arange(100), 10))
        new, _, true = overconfident(300, 100 + seed)
        low, high = fitted.predict_interval(new, 0.9)
        inside.append(((low <= true) & (true <= high))[true > 0.01].mean())
        narrow = method().fit(**copied).predict_interval(new, 0.9)
        assert np.mean(high - low) > 1.5 * np.mean(narrow[1] - narrow[0])
    assert np.mean(inside) > 0.85


def test_ten_copies_of_each_row_say_no_more_about_the_temperature_than_one() -> None:
    z, labels, _ = overconfident(400, 1)
    alone = TemperatureScaling().fit(z, labels)
    copied = TemperatureScaling().fit(np.repeat(z, 10, axis=0), np.repeat(labels, 10), groups=np.repeat(range(400), 10))
    assert copied.posterior_.factor_error == pytest.approx(alone.posterior_.factor_error, rel=0.2)


def test_intervals_of_a_row_do_not_depend_on_the_rows_beside_it() -> None:
    auto = quick().fit(*overconfident(300, 1)[:2])
    z, _, _ = overconfident(2_000, 2)  # more than one block
    for together, alone in zip(auto.predict_interval(z), auto.predict_interval(z[-1:]), strict=True):
        np.testing.assert_allclose(together[-1:], alone, rtol=1e-5)


def test_intervals_need_the_fit_and_a_level(tmp_path: Path) -> None:
    z, labels, _ = overconfident(200, 1)
    auto = quick(inputs="probabilities").fit(softmax(z), labels)
    assert auto.predict_interval(softmax(z[:3]))[0].shape == (3, 5)
    with pytest.raises(GlayersError, match="level"):
        auto.predict_interval(softmax(z), 1.5)
    auto.save(tmp_path / "a.safetensors")
    loaded = load(tmp_path / "a.safetensors")
    for before, after in zip(auto.predict_interval(softmax(z)), loaded.predict_interval(softmax(z)), strict=True):
        np.testing.assert_array_equal(before, after)
    with pytest.raises(GlayersError, match="PlattScaling knows no posterior"):
        PlattScaling().fit(z[:, :2], labels % 2).predict_interval(z[:, :2])
