"""`score` prints the metrics, for people and for programs."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

import glayers
from glayers import Confidences, Predictions, metrics
from tests.cli.conftest import NAMES, overconfident
from tests.cli.running import complaint, run, usage_error
from tests.strategies import confidences_of


def test_a_table_and_a_verdict(folder: Path) -> None:
    lines = run("score", "test.npz").stdout.splitlines()
    assert lines[0] == "test.npz"
    assert re.fullmatch(r"the model is overconfident by \d+\.\d points", lines[1])
    assert lines[2].startswith("not calibrated (p <= 0.01); significant: KS (confidence), ECE (confidence)")
    assert re.fullmatch(r"KS .* %; a calibrated model would exceed .* % in 5 % of samples", lines[3])
    table = lines[lines.index("") + 1 :]
    assert [line[:4].strip() for line in table[1:]] == ["rows", "clas", "accu", "mean", "NLL", "Brie", "KS", "ECE,"]
    assert len(run("score", "test.npz", "--all").stdout.splitlines()) > len(lines) + 10


def test_json_is_the_scorecard_and_the_test(folder: Path) -> None:
    found = json.loads(run("score", "both.npz", "--part", "test", "--json").stdout)
    assert list(found) == ["all", "verdict", "conditions", "failed", "files", "version", "time"]
    assert found["verdict"] == "not calibrated"
    together, tested = found["all"].pop("calibration_test"), found["all"].pop("ks_test")
    logits, labels = overconfident(150, 1)
    assert together["rejected"]
    assert together["tests"].keys() == {"ks", "ece", "rank_2_ks", "classwise_ks"}
    assert found["all"] == pytest.approx(metrics.scorecard(Predictions(logits, labels)).to_dict())
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    alone = metrics.ks_test(powers / powers.sum(axis=1, keepdims=True), labels)
    assert tested["value"] == pytest.approx(alone.value)
    assert tested["bound"] == pytest.approx(alone.bound, rel=0.3)  # other draws
    assert max(tested["p_value"], alone.p_value) <= 0.01


def test_labels_of_the_model_itself_pass_the_test(folder: Path) -> None:
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(12_000, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    np.savez("true.npz", logits=logits, labels=labels)
    printed = run("score", "true.npz").stdout
    assert "12,000 rows show no miscalibration (p = " in printed
    assert "confident (" not in printed  # one test decides about all sentences
    np.savez("few.npz", logits=logits[:400], labels=labels[:400])
    assert "400 rows are too few to tell whether the model is calibrated" in run("score", "few.npz").stdout


def test_the_ks_alone_does_not_contradict_the_tests_together(folder: Path) -> None:
    rng = np.random.default_rng(47)
    logits = 2 * rng.normal(size=(300, 4))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    np.savez("true.npz", logits=logits, labels=labels)
    found = json.loads(run("score", "true.npz", "--json").stdout)["all"]
    assert found["ks_test"]["p_value"] < 0.05 < found["calibration_test"]["p_value"]
    assert "by chance alone" not in run("score", "true.npz").stdout


def test_intervals_contain_their_values(folder: Path) -> None:
    found = json.loads(run("score", "test.npz", "--intervals", "--resamples", 50, "--json").stdout)["all"]
    assert found["intervals"]["accuracy"]["low"] < found["accuracy"] < found["intervals"]["accuracy"]["high"]
    printed = run("score", "test.npz", "--intervals", "--resamples", 50).stdout
    assert "95 % interval" in printed
    assert "* unreliable" in printed


def test_no_interval_of_a_calibrated_model_excludes_its_own_estimate(folder: Path) -> None:
    for seed, n in ((2, 2_000), (3, 400), (5, 60)):
        rng = np.random.default_rng(seed)
        logits = 2 * rng.normal(size=(n, 4))
        labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
        np.savez("true.npz", logits=logits, labels=labels)
        found = json.loads(run("score", "true.npz", "--resamples", 100, "--json").stdout)["all"]
        for name, interval in found["intervals"].items():
            assert interval["low"] - 1e-12 <= found[name] <= interval["high"] + 1e-12, name


def test_the_seed_chooses_the_resamples(folder: Path) -> None:
    words = ("score", "test.npz", "--intervals", "--resamples", 50, "--json", "--seed")
    first, again, other = (json.loads(run(*words, seed).stdout)["all"] for seed in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("verb", ["score", "estimate"])
def test_json_says_what_was_run_also_when_it_fails(folder: Path, verb: str) -> None:
    words = (verb, "test.npz", "--model", "model.safetensors", "--json")
    done = run(*words, "--fail-if", "accuracy > 1 %", "--fail-if", "accuracy < 1 %")
    found = json.loads(done.stdout)
    assert done.exit_code == 3
    assert found["conditions"] == ["accuracy > 1 %", "accuracy < 1 %"]
    assert len(found["failed"]) == 1
    assert found["verdict"] is not None
    np.savez("wide.npz", logits=np.zeros((20, 7)), labels=np.zeros(20, int))
    refused = run(verb, "wide.npz", *words[2:])
    assert refused.exit_code == 1
    assert len(refused.stderr.splitlines()) == 1
    for facts, name in ((found, "test.npz"), (json.loads(refused.stdout), "wide.npz")):
        assert facts["files" if verb == "score" else "file"] == ([name] if verb == "score" else name)
        assert facts["model"] == "model.safetensors"
        assert facts["version"] == glayers.__version__
        assert datetime.fromisoformat(facts["time"]) <= datetime.now(UTC)
    assert json.loads(refused.stdout)["error"] in refused.stderr


def test_weights_and_groups_in_the_file_count(folder: Path) -> None:
    rng = np.random.default_rng(0)
    logits, labels, weights = rng.normal(size=(50, 3)), rng.integers(0, 3, 50), rng.integers(0, 5, 50)
    np.savez("w.npz", logits=logits, labels=labels, weights=weights, groups=np.arange(50) // 5)
    card = json.loads(run("score", "w.npz", "--json").stdout)["all"]
    assert card["accuracy"] == pytest.approx(metrics.accuracy(Predictions(logits, labels, weights)))
    assert card["accuracy"] != metrics.accuracy(Predictions(logits, labels))
    assert 0 < card["ks_test"]["p_value"] <= 1


def test_json_has_null_for_infinity(folder: Path) -> None:
    np.savez("far.npz", logits=[[1e308, -1e308], [0.0, 2.0]], labels=[1, 0])
    done = run("score", "far.npz", "--json")
    assert done.stderr == ""
    assert "Infinity" not in done.stdout
    assert json.loads(done.stdout)["all"]["nll"] is None


@pytest.fixture
def confidences(folder: Path) -> Confidences:
    """The top class of test.npz alone, in a file of two columns."""
    logits, labels = overconfident(150, 1)
    bare = confidences_of(metrics.top, Predictions(logits, labels))
    lines = [f"{score!r},{int(right)}" for score, right in zip(bare.confidence.tolist(), bare.correct, strict=True)]
    Path("bare.csv").write_text("\n".join(["confidence,correct", *lines]))
    return bare


def test_a_model_of_confidences_is_scored_before_and_after(confidences: Confidences) -> None:
    assert run("fit", "bare.csv", "-m", "platt", "-o", "platt.safetensors").exit_code == 0
    found = json.loads(run("score", "bare.csv", "--model", "platt.safetensors", "--json").stdout)
    assert found["calibrated"]["ks"] < found["uncalibrated"]["ks"]


def test_confidence_and_correct_are_enough_for_the_metrics_of_the_top_class(confidences: Confidences) -> None:
    whole, bare = (json.loads(run("score", name, "--json").stdout)["all"] for name in ("test.npz", "bare.csv"))
    assert {"ks", "ece", "smooth_ece", "accuracy", "confidence"} < set(bare)
    assert "nll" not in bare
    assert bare.pop("calibration_test")["rejecting"] == ["ks", "ece"]
    assert bare.pop("ks_test")["value"] == pytest.approx(whole["ks_test"]["value"])  # which draws labels, not hits
    assert bare == {name: pytest.approx(whole[name], rel=1e-9) for name in bare}
    lines = {line.split("  ")[0] for line in run("score", "bare.csv").stdout.splitlines()}
    assert {"NLL of the confidence", "Brier of the confidence"} < lines, "or a constant would look best"
    assert not any("of the confidence" in line for line in run("score", "test.npz").stdout.splitlines())
    printed = run("score", "bare.csv", "--intervals", "--resamples", 50).stdout
    assert "95 % interval" in printed
    assert "overconfident" in printed


@pytest.mark.parametrize(
    ("words", "event"),
    [
        ("rank:2", metrics.rank(2)),
        ("within-top:3", metrics.within_top(3)),
        ("label:owl", metrics.label("owl")),
        ("label:2", metrics.label(2)),
        ("one-of:cat,3", metrics.one_of(["cat", 3])),
    ],
)
def test_an_event_is_scored_and_tested_in_place_of_the_top_class(
    folder: Path, words: str, event: metrics.Event
) -> None:
    found = json.loads(run("score", "test.npz", "--event", words, "--json").stdout)["all"]
    rows = Predictions(*overconfident(150, 1), class_names=NAMES)
    assert found["ks"] == pytest.approx(metrics.ks(rows, event=event))
    assert found["ks_test"] == vars(metrics.calibration_test(rows, event=event, n_resamples=99).tests["ks"])
    assert found["calibration_test"]["tests"].keys() == {"ks", "ece"}


@pytest.mark.parametrize("words", ["rank", "rank:cat", "within-top:2,3", "top:1", "label", "one-of:", "first"])
def test_an_event_that_cannot_be_parsed_is_a_usage_error(folder: Path, words: str) -> None:
    assert f"unknown event '{words}'; use top, rank:2" in usage_error(run("score", "test.npz", "--event", words))


def test_an_event_that_the_rows_do_not_have_is_one_line(confidences: Confidences) -> None:
    assert "there is no class 'fox'" in complaint(run("score", "test.npz", "--event", "label:fox"))
    assert "Confidences hold one event: there is no rank 2" in complaint(run("score", "bare.csv", "--event", "rank:2"))


def test_rows_prints_a_table_and_a_sentence(folder: Path) -> None:
    done = run("rows", "calibration.npz", "--method", "temperature")
    assert done.exit_code == 0, done.output
    assert "expected reduction" in done.stdout
    assert "NLL would" in done.stdout.splitlines()[-1]
    found = json.loads(run("rows", "calibration.npz", "-m", "temperature", "--json").stdout)
    assert found["forecasts"][0]["rows"] == 2 * found["rows"]


def test_a_class_that_looks_like_a_number_is_an_error_of_one_line(folder: Path) -> None:
    done = run("score", "test.npz", "--event", "label:²")  # a digit to Python, but no number
    assert done.exit_code == 1
    assert "'²'" in done.stderr


def test_resamples_ask_for_intervals(folder: Path) -> None:
    asked = run("score", "test.npz", "--resamples", "40").stdout
    assert asked == run("score", "test.npz", "--intervals", "--resamples", "40").stdout
    assert asked != run("score", "test.npz").stdout


def test_one_row_is_no_plural(folder: Path) -> None:
    np.savez("one.npz", logits=[[2.0, 0.0, 1.0]], labels=[0])
    assert "1 row is too few to tell" in run("score", "one.npz").stdout
    assert repr(glayers.read_predictions("one.npz")) == "Predictions(1 row, 3 classes, float64)"
