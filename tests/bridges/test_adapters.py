"""Metrics in Hugging Face's `evaluate` and in torchmetrics are those of the scorecard, whatever the batches."""

import pickle
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from glayers import Predictions
from glayers.activations import softmax
from glayers.errors import BadPredictions
from glayers.metrics import label, scorecard
from glayers.testing import tilted_rows
from tests.bridges.page import PAGE, block_about
from tests.lazy import torch

LOGITS, LABELS = tilted_rows()
EXPECTED = dict(scorecard(Predictions(LOGITS, LABELS)))


@pytest.fixture
def torchmetric() -> Any:
    """The class, imported when a test needs it: torch takes seconds."""
    return import_module("glayers.bridges.torchmetrics").ScorecardMetric


def batches(size: int) -> Iterator[tuple[Any, Any]]:
    for start in range(0, len(LABELS), size):
        rows = slice(start, start + size)
        yield torch.tensor(LOGITS[rows]), torch.tensor(LABELS[rows])


def plain(found: dict[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in found.items()}


@pytest.fixture
def evaluate_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    return import_module("glayers.bridges.evaluate")


@pytest.mark.parametrize("size", [1, 37, 240])
def test_evaluate_gives_the_scorecard_in_any_batches(evaluate_module: Any, tmp_path: Path, size: int) -> None:
    metric = evaluate_module.ScorecardEvaluation(cache_dir=str(tmp_path))
    for start in range(0, len(LABELS), size):
        metric.add_batch(predictions=LOGITS[start : start + size], references=LABELS[start : start + size])
    assert metric.compute(inputs="logits") == pytest.approx(EXPECTED, rel=1e-12)


def test_evaluate_combines_and_loads_the_metric(evaluate_module: Any, tmp_path: Path) -> None:
    import evaluate

    ours = evaluate_module.ScorecardEvaluation(cache_dir=str(tmp_path))
    loaded = evaluate.load(evaluate_module.__file__, cache_dir=str(tmp_path))
    rows = {"predictions": softmax(LOGITS), "references": LABELS, "metrics": ["ks", "nll"]}
    wanted = {"ks": pytest.approx(EXPECTED["ks"]), "nll": pytest.approx(EXPECTED["nll"])}
    assert ours.compute(**rows) == wanted
    assert loaded.compute(**rows) == wanted
    assert evaluate.combine([ours]).compute(**rows) == wanted


def test_evaluate_refuses_logits_that_are_called_probabilities(evaluate_module: Any, tmp_path: Path) -> None:
    metric = evaluate_module.ScorecardEvaluation(cache_dir=str(tmp_path))
    with pytest.raises(BadPredictions, match="probabilit"):
        metric.compute(predictions=LOGITS, references=LABELS)


def test_the_example_of_the_page_runs(evaluate_module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    session = {"logits": torch.tensor(LOGITS), "labels": torch.tensor(LABELS)}
    exec(compile(block_about("bridges.evaluate"), str(PAGE), "exec"), session)
    assert f"{EXPECTED['ks']:.10f}"[:10] in capsys.readouterr().out


@pytest.mark.parametrize("size", [1, 37, 240])
def test_torchmetrics_gives_the_scorecard_in_any_batches(torchmetric: Any, size: int) -> None:
    metric = torchmetric()
    for scores, labels in batches(size):
        metric.update(scores.requires_grad_(), labels)
    assert plain(metric.compute()) == pytest.approx(EXPECTED, rel=1e-6)


def test_torchmetrics_forward_returns_the_value_of_the_batch(torchmetric: Any) -> None:
    metric = torchmetric(metrics=["accuracy", "nll"])
    for scores, labels in batches(100):
        batch = plain(metric(scores, labels))
        alone = dict(scorecard(Predictions(scores, labels)))
        assert batch == pytest.approx({name: alone[name] for name in batch}, rel=1e-6)
    whole = {name: EXPECTED[name] for name in ("accuracy", "nll")}
    assert plain(metric.compute()) == pytest.approx(whole, rel=1e-6)
    metric.reset()
    metric.update(*next(batches(100)))
    assert metric.rows.n_rows == 100


def test_torchmetrics_takes_half_precision_probabilities_and_an_event(torchmetric: Any) -> None:
    metric = torchmetric("probabilities", metrics=["ks"], event=label(1))
    metric.update(torch.tensor(softmax(LOGITS)).bfloat16(), torch.tensor(LABELS))
    wanted = scorecard(softmax(LOGITS), LABELS, event=label(1))["ks"]
    assert plain(metric.compute())["ks"] == pytest.approx(wanted, abs=2e-3)  # bfloat16 has 8 bits


def test_torchmetrics_copies_pickles_and_merges(torchmetric: Any) -> None:
    first, second = (torchmetric(), torchmetric())
    (one, two, *_) = batches(120)
    first.update(*one)
    second.update(*two)
    again = pickle.loads(pickle.dumps(first)).clone()
    again.compute()
    again.merge_state(second)
    assert plain(again.compute()) == pytest.approx(EXPECTED, rel=1e-6)
    assert first.rows.n_rows == 120


def test_torchmetrics_joins_a_collection(torchmetric: Any) -> None:
    from torchmetrics import MetricCollection
    from torchmetrics.classification import MulticlassAccuracy

    accuracy = MulticlassAccuracy(LOGITS.shape[1], average="micro")
    together = MetricCollection([torchmetric(metrics=["accuracy", "ks"]), accuracy])
    for scores, labels in batches(50):
        together.update(scores, labels)
    found = plain(together.compute())
    assert found["accuracy"] == pytest.approx(found["MulticlassAccuracy"])
    assert found["ks"] == pytest.approx(EXPECTED["ks"], rel=1e-6)


def _one_of_two(rank: int, folder: str) -> None:
    """What each of two processes does: one has 200 rows, the other 40."""
    import torch
    from torch import distributed

    from glayers.bridges.torchmetrics import ScorecardMetric

    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    rows = slice(0, 200) if rank == 0 else slice(200, 240)
    metric = ScorecardMetric()
    metric.update(torch.tensor(LOGITS[rows]), torch.tensor(LABELS[rows]))
    found = plain(metric.compute())
    own = metric.rows.n_rows
    distributed.destroy_process_group()
    (Path(folder) / f"{rank}.pickle").write_bytes(pickle.dumps((found, own)))


@pytest.mark.thorough
def test_torchmetrics_adds_up_processes_and_keeps_their_own_rows(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(_one_of_two, (str(tmp_path),), nprocs=2)
    for rank, n_rows in enumerate((200, 40)):
        found, own = pickle.loads((tmp_path / f"{rank}.pickle").read_bytes())
        assert found == pytest.approx(EXPECTED, rel=1e-6)
        assert own == n_rows


def test_wrong_shapes_and_names_are_refused(torchmetric: Any) -> None:
    with pytest.raises(BadPredictions, match="shape"):
        torchmetric().update(torch.zeros(2, 3, 4), torch.zeros(2, dtype=int))
    metric = torchmetric(metrics=["nll", "kss"])
    metric.update(*next(batches(100)))
    with pytest.raises(BadPredictions, match="kss"):
        metric.compute()
