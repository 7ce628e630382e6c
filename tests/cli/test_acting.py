"""The verbs of decisions, from file to exit status."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from glayers import GroupCalibrator, Predictions, TemperatureScaling, decide, load
from glayers.cli import app
from glayers.decisions.estimate import ESTIMATED
from glayers.errors import BadFile
from glayers.predictions.contents import Reading
from glayers.predictions.source import Source


def rows(seed: int, n: int, factor: float = 1.5) -> Predictions:
    rng = np.random.default_rng(seed)
    z = 2 * rng.normal(size=(n, 3))
    return Predictions(factor * z, (z + rng.gumbel(size=z.shape)).argmax(axis=1))


def saved(path: Path, given: Predictions) -> str:
    np.savez(path, logits=given.logits, labels=given.labels)
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "model.safetensors"
    TemperatureScaling().fit_predictions(rows(0, 2000)).save(path)
    return str(path)


def run(*words: str, status: int = 0) -> str:
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == status, found.output
    return found.output


def test_threshold_promises_an_accuracy(tmp_path: Path, model: str) -> None:
    test = saved(tmp_path / "test.npz", rows(1, 3000))
    found = json.loads(run("threshold", test, "--model", model, "--accuracy", "90%", "--json"))
    assert found["target"] == 0.9
    assert 0.5 < found["confidence"] < 0.95
    assert "No threshold" in run("threshold", test, "--accuracy", "0.9999", status=3)


@pytest.mark.parametrize("accuracy", ["95", "much", "0", "-5%"])
def test_shares_that_are_none_are_refused(tmp_path: Path, accuracy: str) -> None:
    test = saved(tmp_path / "test.npz", rows(1, 50))
    assert "95%" in run("threshold", test, f"--accuracy={accuracy}", status=2)


def test_decide_compares_costs(tmp_path: Path, model: str) -> None:
    test = saved(tmp_path / "test.npz", rows(1, 2000))
    costs = tmp_path / "costs.csv"
    costs.write_text("0,1,1,0.4\n1,0,1,0.4\n8,8,0,0.4\n")  # the last action is to abstain
    found = json.loads(run("decide", test, "--model", model, "--costs", str(costs), "--json"))
    assert list(found["lines"]) == ["calibrated", "uncalibrated", "best constant action"]
    assert found["lines"]["best constant action"]["saved by calibrated"]["low"] > 0
    costs.write_text("0,1,1\n1,0,1\n8,8,0\n")
    command = ["decide", test, "--model", model, "--costs", str(costs), "--json"]
    assert json.loads(run(*command, "--abstain", "0.4"))["lines"] == found["lines"]
    alone = json.loads(run(*command))["lines"]["calibrated"]["cost"]["value"]
    assert alone > found["lines"]["calibrated"]["cost"]["value"]
    costs.write_text("0,1\n1\n")
    assert "one line per class" in run("decide", test, "--costs", str(costs), status=1)


def test_estimate_needs_no_labels_and_checks_conditions(tmp_path: Path, model: str) -> None:
    new = tmp_path / "new.npz"
    np.savez(new, logits=rows(2, 2000).logits)
    found = json.loads(run("estimate", str(new), "--model", model, "--json"))
    assert 0.6 < found["accuracy"]["low"] < found["accuracy"]["value"] < found["accuracy"]["high"] < 0.9
    run("estimate", str(new), "--model", model, "--fail-if", "accuracy < 95 %", status=3)
    costs = tmp_path / "costs.csv"
    costs.write_text("0,1,1\n1,0,1\n1,1,0\n")
    options = ["--costs", str(costs), "--abstain", "0.1", "--json"]
    assert 0.05 < json.loads(run("estimate", str(new), "--model", model, *options))["cost"]["value"] < 0.1
    other = tmp_path / "other.npz"
    np.savez(other, logits=3 * rows(2, 2000).logits)
    assert "another kind" in run("estimate", str(other), "--model", model, status=1)


def test_conditions_of_an_estimate_may_be_about_the_worst_class_and_the_cost(tmp_path: Path, model: str) -> None:
    new, costs = tmp_path / "new.npz", tmp_path / "costs.csv"
    np.savez(new, logits=rows(2, 2000).logits)
    costs.write_text("0,1,1\n1,0,1\n1,1,0\n")
    command = ["estimate", str(new), "--model", model, "--costs", str(costs)]
    failed = run(*command, "--fail-if", "lowest_f1 < 90 %", "--fail-if", "cost > 0.1", status=3)
    assert "lowest_f1 = 0.7" in failed
    assert "cost = 0.2" in failed
    run(*command, "--fail-if", "lowest_f1 < 50 %", "--fail-if", "cost > 0.9", "--fail-if", "cost < -5")
    assert "choose from accuracy" in run(*command, "--fail-if", "ks > 3 %", status=2)


def test_the_help_of_estimate_names_the_conditions_that_it_accepts() -> None:
    shown = CliRunner().invoke(app, ["estimate", "--help"], env={"COLUMNS": "300"}).output
    of_conditions = next(line for line in shown.splitlines() if "--fail-if" in line and "CONDITION" in line)
    assert [name for name in ESTIMATED if name not in of_conditions] == []
    assert "ks" not in of_conditions  # labels are missing, so no calibration error can be estimated


def test_a_refused_estimate_leaves_no_old_numbers_for_prometheus(tmp_path: Path, model: str) -> None:
    new, numbers = tmp_path / "new.npz", tmp_path / "estimate.prom"
    command = ["estimate", str(new), "--model", model, "--prometheus", str(numbers)]
    np.savez(new, logits=rows(2, 900).logits, groups=np.repeat(["a", "b", "c"], 300))
    run(*command)
    assert "glayers_estimate_lowest_f1 0.7" in numbers.read_text()
    assert 'glayers_estimate_group_accuracy{name="b"} 0.7' in numbers.read_text()
    np.savez(new, logits=3 * rows(2, 2000).logits)
    run(*command, status=1)
    assert numbers.read_text() == "glayers_estimate_refused 1.0\n"
    np.savez(new, logits=rows(2, 2000).logits)
    run(*command)
    assert "refused" not in numbers.read_text()
    assert "have no cost" in run(*command, "--fail-if", "cost > 1", status=1)  # no costs were given
    assert numbers.read_text() == "glayers_estimate_refused 1.0\n"


@pytest.mark.parametrize(
    "words",
    [
        ["score", "--model", "MODEL"],
        ["threshold", "--accuracy", "70%"],
        ["watch", "MODEL", "--state", "state.json"],
        ["estimate", "--model", "MODEL"],
    ],
)
def test_a_command_that_fails_leaves_no_old_numbers_for_prometheus(
    tmp_path: Path, model: str, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    numbers = tmp_path / "glayers.prom"
    verb, *options = [model if word == "MODEL" else word for word in words]
    if verb == "watch":
        verb, *options = verb, options[0], "new.npz", *options[1:]
    else:
        options = ["new.npz", *options]
    saved(tmp_path / "new.npz", rows(2, 900))
    run(verb, *options, "--prometheus", str(numbers))
    assert "refused" not in numbers.read_text()
    (tmp_path / "new.npz").unlink()
    run(verb, *options, "--prometheus", str(numbers), status=1)
    assert numbers.read_text() == f"glayers_{verb}_refused 1.0\n"


def test_watch_refuses_another_model_on_an_old_state_file(tmp_path: Path, model: str) -> None:
    other, state = str(tmp_path / "other.safetensors"), str(tmp_path / "state.json")
    TemperatureScaling().fit_predictions(rows(77, 500)).save(other)
    run("watch", model, saved(tmp_path / "0.npz", rows(10, 300)), "--state", state)
    again = saved(tmp_path / "1.npz", rows(11, 300))
    assert "another model" in run("watch", other, again, "--state", state, status=1).replace("\n", " ")
    assert "No alarm" in run("watch", model, again, "--state", state)


def test_score_names_the_reason_of_a_refused_estimate(tmp_path: Path, model: str) -> None:
    new, kept = tmp_path / "new.npz", tmp_path / "estimate.json"
    np.savez(new, logits=3 * rows(2, 2000).logits)
    kept.write_text(CliRunner().invoke(app, ["estimate", str(new), "--model", model, "--json"]).stdout)
    labelled = saved(tmp_path / "labelled.npz", rows(2, 2000))
    said = run("score", labelled, "--model", model, "--estimate", str(kept), status=1)
    assert "holds no estimate, because `glayers estimate` ended with an error: these rows are of another kind" in said


def test_a_file_that_cannot_be_written_gives_one_json_document(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise BadFile("numbers.prom: cannot be written (No space left on device)")

    monkeypatch.setattr("glayers.cli.arguments.write_whole", full)
    new = saved(tmp_path / "new.npz", rows(2, 300))
    for words in (
        ("estimate", new, "--model", model),
        ("score", new),
        ("threshold", new, "--accuracy", "60%"),
        ("watch", model, new, "--state", str(tmp_path / "state.json")),
    ):
        given = [*words, "--json", "--prometheus", str(tmp_path / "numbers.prom")]
        found = CliRunner().invoke(app, given)
        assert found.exit_code == 1, found.output
        assert "No space left" in json.loads(found.stdout)["error"]


def test_confidences_have_estimates_and_costs_but_no_classes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    log, model, costs = tmp_path / "answers.jsonl", tmp_path / "c.safetensors", tmp_path / "costs.csv"
    confidence = rng.uniform(0.2, 1, 800)
    correct = rng.uniform(size=800) < confidence
    lines = [{"confidence": c, "correct": bool(right)} for c, right in zip(confidence, correct, strict=True)]
    log.write_text("\n".join(map(json.dumps, lines)))
    TemperatureScaling(inputs="confidence").fit(confidence, correct).save(model)
    said = run("estimate", str(log), "--model", str(model), "--prometheus", str(tmp_path / "e.prom"))
    assert "accuracy" in said
    assert "F1" not in said
    assert "lowest_f1" not in (tmp_path / "e.prom").read_text()
    costs.write_text("1\n0\n")  # a wrong answer costs 1
    assert "saved by calibrated" in run(
        "decide", str(log), "--model", str(model), "--costs", str(costs), "--abstain=0.3"
    )


def test_apply_never_replaces_the_table_of_costs(tmp_path: Path, model: str) -> None:
    new, costs = saved(tmp_path / "new.npz", rows(2, 30)), tmp_path / "costs.csv"
    costs.write_text("0,1,1\n1,0,1\n8,8,0\n")
    run("apply", model, new, "-o", str(costs), "--costs", str(costs), "--force", status=1)
    assert costs.read_text() == "0,1,1\n1,0,1\n8,8,0\n"


@pytest.mark.parametrize("ending", [".csv", ".npz", ".jsonl", ".parquet"])
def test_apply_writes_the_action_of_each_row(tmp_path: Path, model: str, ending: str) -> None:
    new, costs, actions = tmp_path / "new.npz", tmp_path / "costs.csv", tmp_path / f"actions{ending}"
    logits = rows(2, 300).logits
    np.savez(new, logits=logits)
    costs.write_text("0,1,1\n1,0,1\n8,8,0\n")
    run("apply", model, str(new), "-o", str(actions), "--costs", str(costs), "--abstain", "0.4")
    expected = decide(load(model).predict_proba(logits), np.loadtxt(costs, delimiter=","), abstain=0.4)
    assert set(expected) == {0, 1, 2, 3}
    if ending == ".npz":
        with np.load(actions) as arrays:
            written = arrays["action"]
    else:
        contents = Source.of([actions], Reading(others=True), needs_labels=False).contents
        assert contents is not None
        written = contents.others["action"]
    assert list(map(int, written)) == expected.tolist()
    if ending == ".csv":
        said = run("apply", model, str(new), "-o", str(tmp_path / "a.npy"), "--costs", str(costs), status=2)
        assert "no place for sets or actions" in " ".join(said.split())


def test_actions_of_confidences_are_written_too(tmp_path: Path) -> None:
    confidence = np.linspace(0.05, 0.95, 200)
    model, costs, new = tmp_path / "c.safetensors", tmp_path / "costs.csv", tmp_path / "new.csv"
    TemperatureScaling(inputs="confidence").fit(
        confidence, np.random.default_rng(0).uniform(size=200) < confidence
    ).save(model)
    new.write_text("confidence\n0.1\n0.9\n")
    costs.write_text("1\n0\n")
    run("apply", str(model), str(new), "-o", str(tmp_path / "a.csv"), "--costs", str(costs), "--abstain", "0.5")
    heading, *written = (tmp_path / "a.csv").read_text().splitlines()
    place = heading.split(",").index("action")
    assert [line.split(",")[place] for line in written] == ["1", "0"]


def test_json_says_what_was_run_whether_it_was_refused_or_not(tmp_path: Path, model: str) -> None:
    new, other = saved(tmp_path / "new.npz", rows(2, 2000)), saved(tmp_path / "other.npz", rows(2, 2000, factor=6))
    state = str(tmp_path / "state.json")
    condition = ["--fail-if", "accuracy < 5 %"]
    for words, verdict in (
        (["estimate", new, "--model", model, *condition], "estimated"),
        (["threshold", new, "--model", model, "--accuracy", "80%"], "found"),
        (["watch", model, new, "--state", state], "no alarm"),
    ):
        found = json.loads(run(*words, "--json"))
        assert (found["verdict"], found["failed"], found["model"]) == (verdict, [], model)
        assert {"version", "time"} < found.keys()
        assert found.get("file", found.get("batch")) == new
        if "--fail-if" in words:
            assert found["conditions"] == ["accuracy < 5 %"]
    refused = CliRunner().invoke(app, ["estimate", other, "--model", model, *condition, "--json"])
    assert refused.exit_code == 1
    found = json.loads(refused.stdout)
    assert (found["verdict"], found["file"], found["conditions"]) == (None, other, ["accuracy < 5 %"])
    failed = json.loads(run("threshold", new, "--accuracy", "99.99%", "--json", status=3).partition("failed:")[0])
    assert (failed["verdict"], failed["failed"], failed["confidence"]) == ("failed", ["no threshold"], None)


def test_score_says_how_good_an_estimate_was(tmp_path: Path, model: str) -> None:
    given = rows(2, 2000)
    new, kept, numbers = tmp_path / "new.npz", tmp_path / "estimate.json", tmp_path / "glayers.prom"
    np.savez(new, logits=given.logits)
    kept.write_text(run("estimate", str(new), "--model", model, "--json"))
    labelled = saved(tmp_path / "labelled.npz", given)
    options = ["--model", model, "--estimate", str(kept), "--prometheus", str(numbers)]
    said = run("score", labelled, *options)
    assert "accuracy: estimated 7" in said
    assert "%: inside" in said
    assert json.loads(run("score", labelled, *options, "--json"))["estimated"]["accuracy"]["low"] < 0.8
    assert 'glayers_score_accuracy{name="calibrated"} 0.7' in numbers.read_text()
    text = dict.fromkeys(("value", "low", "high"), "0.7")
    others: list[Any] = [[], {"accuracy": text, "auroc": text}]
    for other in others:
        kept.write_text(json.dumps(other))
        assert "is not what `glayers estimate --json` writes" in run("score", labelled, *options, status=1)


def test_groups_of_a_file_get_their_own_estimates(tmp_path: Path, model: str) -> None:
    new = tmp_path / "new.npz"
    np.savez(new, logits=rows(2, 900).logits, groups=np.repeat(["a", "b", "c"], 300))
    found = json.loads(run("estimate", str(new), "--model", model, "--json"))
    assert [group["rows"] for group in found["groups"].values()] == [300, 300, 300]
    assert "group b, 300 rows: accuracy" in run("estimate", str(new), "--model", model)


def test_watch_raises_an_alarm_and_tells_prometheus(tmp_path: Path, model: str) -> None:
    state, numbers = str(tmp_path / "state.json"), tmp_path / "glayers.prom"
    options = ["--state", state, "--prometheus", str(numbers)]
    for night in range(3):
        batch = saved(tmp_path / f"{night}.npz", rows(10 + night, 300))
        expected = "No result yet" if night == 0 else "No alarm"
        assert expected in run("watch", model, batch, *options)
    assert "glayers_watch_alarm 0.0\n" in numbers.read_text()
    for night in range(3, 9):
        batch = saved(tmp_path / f"{night}.npz", rows(10 + night, 300, factor=4.0))
        found = CliRunner().invoke(app, ["watch", model, batch, *options])
    assert found.exit_code == 3
    assert "Alarm" in found.output
    text = numbers.read_text()
    assert "glayers_watch_alarm 1.0\n" in text
    assert 'glayers_watch_log_wealth{name="class 2"}' in text


def test_card_prints_markdown(tmp_path: Path, model: str) -> None:
    test = saved(tmp_path / "test.npz", rows(1, 3000))
    card = run("card", model, test, "--accuracy", "80%")
    assert card.startswith("## Calibration\n\nCalibrated by temperature scaling on 2,000 rows")
    assert "at least 80 %" in card
    assert "--accuracy" in run("card", model, test, "--accuracy", "80", status=2)


def test_conditions_may_name_the_metrics_of_medicine(tmp_path: Path) -> None:
    test = saved(tmp_path / "test.npz", rows(1, 3000))
    failed = run("score", test, "--fail-if", "calibration_slope < 0.8", status=3)
    assert "calibration_slope = 0.6" in failed
    assert "observed / expected" not in failed
    every = run("score", test, "--all", "--fail-if", "kuiper > 50 %", "--fail-if", "observed_over_expected > 1.5")
    assert all(
        name in every for name in ("Kuiper", "calibration slope", "calibration intercept", "observed / expected")
    )


def test_numbers_for_prometheus_replace_no_other_file(tmp_path: Path, model: str) -> None:
    batch = saved(tmp_path / "new.npz", rows(1, 100))
    before = Path(model).read_bytes()
    said = run("watch", model, batch, "--state", str(tmp_path / "s.json"), "--prometheus", model, status=1)
    assert "holds something else than numbers of glayers" in said.replace("\n", " ")
    assert not (tmp_path / "s.json").exists()  # nothing is done before
    assert Path(model).read_bytes() == before


def test_an_empty_table_of_costs_is_one_error(tmp_path: Path) -> None:
    test = saved(tmp_path / "test.npz", rows(1, 50))
    (tmp_path / "costs.csv").write_text("")
    assert "one line per class" in run("decide", test, "--costs", str(tmp_path / "costs.csv"), status=1).replace(
        "\n", " "
    )


def test_thresholds_of_several_labels_are_pooled_or_of_one(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(3000, 2))
    labels = (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(int)
    path = str(tmp_path / "labels.npz")
    np.savez(path, logits=z, labels=labels, class_names=["cat", "dog"])
    pooled = run("threshold", path, "--accuracy", "90%")
    assert "pooled over 2 labels; --event label:NAME finds that of one" in pooled
    assert "of 6,000 rows" in pooled
    of_one = run("threshold", path, "--accuracy", "30%", "--event", "label:dog")
    assert "pooled" not in of_one
    assert "of all 3,000 answers" in of_one
    cow = run("threshold", path, "--accuracy", "90%", "--event", "label:cow", status=1)
    assert "no label 'cow' has rows; there are cat, dog" in cow


def test_info_names_weights_and_adapted_frequencies(tmp_path: Path) -> None:
    given = rows(0, 400)
    weights = np.where(np.arange(400) < 40, 10.0, 1.0)
    fitted = TemperatureScaling().fit(given.logits, given.labels, weights).adapt(frequencies=[0.8, 0.1, 0.1])
    fitted.save(tmp_path / "adapted.safetensors")
    said = run("info", str(tmp_path / "adapted.safetensors"))
    assert "weights and groups leave 132 effective rows" in said
    assert "adapted to other class frequencies: class 0 from " in said
    assert "to 80.0 %" in said


def test_a_model_by_group_acts_on_rows_whose_groups_are_ignored_afterwards(tmp_path: Path) -> None:
    given = rows(0, 900)
    groups = np.arange(900) % 3
    path = tmp_path / "model.safetensors"
    GroupCalibrator(TemperatureScaling()).fit(given.logits, given.labels, groups=groups).save(path)
    test = rows(1, 1500)
    file = str(tmp_path / "test.npz")
    np.savez(file, logits=test.logits, labels=test.labels, groups=np.arange(1500) % 3)
    costs = tmp_path / "costs.csv"
    costs.write_text("0,1,1\n1,0,1\n8,8,0\n")
    options = [file, "--model", str(path), "--ignore-groups", "--json"]
    found = json.loads(run("threshold", *options, "--accuracy", "80%"))
    assert found["groups"] is None
    assert found["confidence"] > 0.5
    compared = json.loads(run("decide", *options, "--costs", str(costs)))
    assert list(compared["lines"])[:2] == ["calibrated", "uncalibrated"]
    state = str(tmp_path / "state.json")
    watched = json.loads(run("watch", str(path), file, "--state", state, "--ignore-groups", "--json"))
    assert watched["rows"] == 1500
