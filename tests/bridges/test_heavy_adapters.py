"""MLflow gets what a comparison found, and lm-evaluation-harness our metrics of its questions: `make test-adapters`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glayers
from glayers import Predictions, compare
from glayers.datasets import load_fashion_mnist
from glayers.errors import BadPredictions
from glayers.metrics import scorecard
from tests.bridges.page import PAGE, block_about

pytestmark = [pytest.mark.adapters, pytest.mark.filterwarnings("ignore")]  # for what these libraries warn of


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An active run of MLflow in an empty folder."""
    import mlflow

    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    mlflow.create_experiment("calibration", artifact_location=str(tmp_path / "artifacts"))
    mlflow.set_experiment("calibration")
    with mlflow.start_run() as active:
        yield active


def read_back(run: Any, folder: Path) -> tuple[dict[str, float], Path]:
    """Return the metrics of a run, and where its artifacts are."""
    import mlflow

    client = mlflow.MlflowClient()
    artifacts = client.download_artifacts(run.info.run_id, "glayers", str(folder))
    return client.get_run(run.info.run_id).data.metrics, Path(artifacts)


def small() -> tuple[Predictions, Predictions]:
    calibration, test = load_fashion_mnist()
    return calibration.take(slice(500)), test.take(slice(500))


def test_mlflow_holds_numbers_table_figures_report_and_calibrator(run: Any, tmp_path: Path) -> None:
    from glayers.bridges.mlflow import log_comparison

    calibration, test = small()
    found = compare(calibration, test, ["temperature", "vector"])
    log_comparison(found, calibration=calibration, n_resamples=50)
    metrics, artifacts = read_back(run, tmp_path)
    for method, card in found.to_dict().items():
        for name, value in card.items():
            assert metrics[f"{method}/{name}"] == pytest.approx(value)
    table = json.loads((artifacts / "comparison.json").read_text())
    rows = {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["data"]}
    assert rows["vector"]["ks"] == pytest.approx(found.scorecards["vector"]["ks"])
    assert (artifacts / "report.html").read_text().startswith("<!doctype html>")
    for name in ("reliability.png", "ks.png"):
        assert (artifacts / name).read_bytes().startswith(b"\x89PNG")
    loaded = glayers.load(artifacts / "calibrator.safetensors")
    ours = found.predictions(found.recommended)
    assert isinstance(ours, Predictions)
    assert np.array_equal(loaded.apply(test).logits, ours.logits)


def test_mlflow_says_that_a_function_cannot_be_saved(run: Any, tmp_path: Path) -> None:
    import mlflow

    from glayers.bridges.mlflow import log_comparison

    calibration, test = small()
    log_comparison(compare(calibration, test, {"same (p)": lambda p: p}), figures=[], n_resamples=50)
    metrics, artifacts = read_back(run, tmp_path)
    assert "same _p_/nll" in metrics
    assert not (artifacts / "calibrator.safetensors").exists()
    assert "never code" in mlflow.MlflowClient().get_run(run.info.run_id).data.tags["glayers.not_saved"]


def test_the_example_of_the_page_logs_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import mlflow

    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    mlflow.set_experiment("page")
    monkeypatch.setattr(glayers.datasets, "load_fashion_mnist", small)
    exec(compile(block_about("bridges.mlflow"), str(PAGE), "exec"), {})
    (logged,) = mlflow.search_runs(output_format="list")
    assert logged.data.metrics["vector/nll"] < logged.data.metrics["uncalibrated/nll"]


def asked(folder: Path, questions: list[dict[str, Any]]) -> dict[str, Any]:
    """Let a model with known log-likelihoods answer questions in the harness."""
    from lm_eval import simple_evaluate
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    scores = {(each["question"], choice): score for each in questions for choice, score in each["scores"].items()}

    class KnownModel(LM):  # type: ignore[misc]
        def loglikelihood(self, requests: Any) -> list[tuple[float, bool]]:
            return [(scores[request.args[0], request.args[1].strip()], False) for request in requests]

        def loglikelihood_rolling(self, requests: Any) -> Any:
            raise NotImplementedError

        generate_until = loglikelihood_rolling

    file = folder / "questions.jsonl"
    file.write_text("".join(json.dumps(each | {"scores": None}) + "\n" for each in questions))
    (folder / "quiz.yaml").write_text(block_about("bridges.lm_eval").replace("questions.jsonl", str(file)))
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    return simple_evaluate(KnownModel(), tasks=["quiz"], task_manager=manager, bootstrap_iters=0)["results"]["quiz"]


def written(n_questions: int) -> list[dict[str, Any]]:
    """Questions of three to five choices, with log-likelihoods that are too sure."""
    rng = np.random.default_rng(0)
    questions = []
    for number in range(n_questions):
        truth = rng.normal(size=rng.integers(3, 6))
        choices = [f"choice {letter}" for letter in "ABCDE"[: len(truth)]]
        question: dict[str, Any] = {"question": f"number {number}?", "choices": choices}
        question["answer"] = int((truth + rng.gumbel(size=len(truth))).argmax())
        question["scores"] = dict(zip(choices, (3 * truth - 20).tolist(), strict=True))
        questions.append(question)
    return questions


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def test_the_harness_prints_the_metrics_of_the_log(tmp_path: Path, own_cache: None) -> None:
    questions = written(300)
    found = asked(tmp_path, questions)
    logits = np.full((len(questions), 5), -np.inf)
    for row, question in zip(logits, questions, strict=True):
        row[: len(question["scores"])] = list(question["scores"].values())
    card = scorecard(Predictions(logits, [question["answer"] for question in questions]))
    assert found["ks,none"] == pytest.approx(card["ks"], rel=1e-12)
    assert found["nll,none"] == pytest.approx(card["nll"], rel=1e-12)
    assert found["acc,none"] == pytest.approx(card["accuracy"])


def test_a_question_without_a_right_choice_is_refused(tmp_path: Path, own_cache: None) -> None:
    questions = written(3)
    questions[1]["answer"] = 7
    with pytest.raises(BadPredictions, match="one right choice"):
        asked(tmp_path, questions)
