"""`score --model` compares new rows with the model's own; conditions end with status 3; `info` describes a model."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from glayers import TemperatureScaling, load, metrics
from glayers.cli.scoring import condition_of, failures_of
from tests.cli.conftest import overconfident
from tests.cli.running import complaint, run, usage_error


@pytest.fixture
def model(folder: Path) -> TemperatureScaling:
    fitted = TemperatureScaling().fit(*overconfident(900, 5))
    fitted.save("model.safetensors")
    return fitted


def write(name: str, rows: int, seed: int, scale: float = 1.0, *, labelled: bool = True) -> None:
    logits, labels = overconfident(rows, seed)
    arrays: dict[str, Any] = {"logits": scale * logits} | ({"labels": labels} if labelled else {})
    np.savez(name, **arrays)


def failure(*words: str) -> str:
    done = run(*words)
    assert done.exit_code == 3
    return done.stderr


def test_scores_before_and_after_the_model(model: TemperatureScaling) -> None:
    write("new.npz", 400, 6)
    lines = run("score", "new.npz", "--model", "model.safetensors").stdout.splitlines()
    assert lines[lines.index("") + 1].split() == ["uncalibrated", "calibrated"]
    assert any(line.startswith("uncalibrated: not calibrated") for line in lines)
    assert any("rows are too few to tell whether the model is calibrated" in line for line in lines)
    assert lines[lines.index("") - 1].startswith("no significant shift between 400 rows and the calibration rows (p = ")
    found = json.loads(run("score", "new.npz", "--model", "model.safetensors", "--json").stdout)
    logits, labels = overconfident(400, 6)
    assert found["calibrated"]["ks"] == pytest.approx(metrics.ks(model.predict_proba(logits), labels))
    assert found["shift"]["shifted"] is False


def test_few_groups_fail_and_may_be_ignored(model: TemperatureScaling) -> None:
    logits, labels = overconfident(900, 6)
    for name, sites in (("one", ["Oslo"]), ("three", ["Bern", "Oslo", "Rom"])):
        np.savez(f"{name}.npz", logits=logits, labels=labels, groups=np.repeat(sites, 900 // len(sites)))
    scored = ("score", "three.npz", "--model", "model.safetensors", "--fail-if-shifted")
    assert "failed: too few groups (3) to tell" in failure(*scored)
    assert "no significant shift between 900 rows" in run(*scored, "--ignore-groups").stdout
    assert "(--ignore-groups)" in complaint(run("score", "one.npz"))
    assert run("score", "one.npz", "--ignore-groups").exit_code == 0
    adapted = ("adapt", "model.safetensors", "three.npz", "-o", "adapted.safetensors")
    assert "(--ignore-groups)" in complaint(run(*adapted))
    assert not Path("adapted.safetensors").exists()
    assert run(*adapted, "--ignore-groups").exit_code == 0
    watched = ("watch", "model.safetensors", "one.npz", "--state", "state.json")
    assert "(--ignore-groups)" in complaint(run(*watched))
    assert run(*watched, "--ignore-groups").exit_code == 0


def test_the_status_says_whether_a_condition_holds(model: TemperatureScaling) -> None:
    write("new.npz", 400, 6)
    scored = ("score", "new.npz")
    calibrated = (*scored, "--model", "model.safetensors")
    assert run(*calibrated, "--fail-if", "ks > 10 %", "--fail-if", "accuracy < 0.3").exit_code == 0
    write("true.npz", 8_000, 6, 1 / 3)
    assert run("score", "true.npz", "--fail-if-miscalibrated").exit_code == 0
    assert "failed: ks = " in failure(*scored, "--fail-if", "ks > 0.05")
    assert "failed: not calibrated" in failure(*scored, "--fail-if-miscalibrated")
    write("few.npz", 60, 6, 1 / 3)
    assert "rows are too few to tell whether the model is calibrated" in failure(
        "score", "few.npz", "--fail-if-miscalibrated"
    )
    assert "failed: calibrated: nll = " in failure(*calibrated, "--fail-if", "nll >= 0.01")


def test_shift_is_named_with_and_without_labels(model: TemperatureScaling) -> None:
    write("new.npz", 300, 7, 0.5, labelled=False)
    words = ("score", "new.npz", "--model", "model.safetensors")
    assert "shift: these rows differ from the calibration rows in " in run(*words).stdout
    assert "failed: shift: " in failure(*words, "--fail-if-shifted")
    assert "no labels" in complaint(run(*words, "--fail-if", "KS > 0.1"))
    write("few.npz", 3, 8)
    assert "too few rows" in failure("score", "few.npz", "--model", "model.safetensors", "--fail-if-shifted")


def test_wrong_conditions_are_usage_errors(folder: Path) -> None:
    assert "cannot read the condition 'ks'" in usage_error(run("score", "test.npz", "--fail-if", "ks"))
    assert "did you mean 'ks'?" in usage_error(run("score", "test.npz", "--fail-if", "kss > 1"))
    assert "did you mean 'ks > 3 %'?" in usage_error(run("score", "test.npz", "--fail-if", "ks > 3"))
    assert "needs --model" in usage_error(run("score", "test.npz", "--fail-if-shifted"))


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("ks > 3", "ks is always between 0 and 1, so it cannot be compared with 3; did you mean 'ks > 3 %'?"),
        ("ks > 300 %", "did you mean 'ks > 3 %'?"),
        ("ks > 1", "did you mean 'ks > 1 %'?"),
        ("accuracy < 90", "did you mean 'accuracy < 90 %'?"),
        ("accuracy < 0", "cannot be compared with 0"),
        ("nll < -1", "nll is always between 0 and inf, so it cannot be compared with -1"),
        ("brier_sum >= 2.5", "brier_sum is always between 0 and 2, so it cannot be compared with 2.5"),
    ],
)
def test_a_limit_that_no_score_can_pass_is_refused(condition: str, words: str) -> None:
    with pytest.raises(typer.BadParameter, match=re.escape(words)):
        condition_of(condition)


def test_limits_at_the_ends_of_the_range_are_allowed_where_a_score_can_pass_them() -> None:
    for condition in ("ks > 0", "ks >= 1", "accuracy <= 0 %", "accuracy < 1", "nll > 300"):
        assert condition_of(condition)[1] in condition


def test_a_score_that_is_no_number_fails() -> None:
    assert failures_of([("ks", ">", 0.1)], {"ks": float("nan")}) == ["ks = nan > 0.1"]


def test_info_describes_the_model(model: TemperatureScaling) -> None:
    printed = run("info", "model.safetensors").stdout
    assert "temperature" in printed
    assert "fitted on 900 rows of 4 classes (model.safetensors)" in printed
    found = json.loads(run("info", "model.safetensors", "--json").stdout)
    assert found["calibrator"] == "TemperatureScaling"
    assert found["diagnostics"]["rows"] == 900
    assert sum(found["calibration_rows"]["predicted"]) == 900


def test_a_model_is_adapted_to_new_rows(model: TemperatureScaling) -> None:
    logits, labels = overconfident(900, 9)
    keep = np.random.default_rng(0).random(900) < np.array([1.0, 0.6, 0.3, 0.3])[labels]
    np.savez("new.npz", logits=logits[keep])
    words = ("adapt", "model.safetensors", "new.npz", "-o", "adapted.safetensors")
    printed = run(*words).stdout
    assert "estimated %" in printed
    assert "the class frequencies differ from those of the calibration rows" in printed
    assert "class shift explains these rows" in printed
    found = json.loads(run(*words, "--force", "--json").stdout)
    assert found["shifted"] is True
    assert np.abs(np.array(found["after"]) - np.bincount(labels[keep]) / keep.sum()).max() < 0.06
    adapted = load("adapted.safetensors")
    assert adapted.predict_proba(logits[keep]).mean(axis=0) == pytest.approx(found["estimated"], abs=0.02)


def test_rows_that_class_shift_does_not_explain_are_named(model: TemperatureScaling) -> None:
    write("new.npz", 900, 9, 0.5)
    words = ("adapt", "model.safetensors", "new.npz", "-o", "adapted.safetensors")
    done = run(*words)
    assert "note: class shift does not explain these rows" in done.stderr
    assert Path("adapted.safetensors").exists()
