"""Dask: the numbers of one machine, whatever the partition and even if a worker dies."""

import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster

import glayers
from glayers import AutoCalibrator, Predictions, VectorScaling, metrics
from glayers.bridges import dask as bridge
from glayers.calibrators import auto
from glayers.errors import BadPredictions
from tests.cli.running import run
from tests.cli.test_many_files import write


def simulated(n_rows: int = 3_000, seed: int = 0) -> Predictions:
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n_rows, 4)) * 2
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Predictions(3 * z + [2, 0, -1, 0], labels, rng.random(n_rows) + 0.5)  # vector scaling undoes the shifts


def on_dask(given: Predictions, chunk: int = 700) -> bridge.DaskRows:
    arrays = (da.from_array(values, chunks=chunk) for values in (given.labels, given.weights))
    labels, weights = arrays
    return bridge.rows(da.from_array(given.logits, chunks=(chunk, 2)), labels, sample_weight=weights)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        warnings.catch_warnings(),
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as found,
    ):
        yield found


def assert_same(found: metrics.StreamingScorecard, wanted: metrics.Scorecard) -> None:
    card, bounds = found.result(), found.error_bounds()
    for name, value in wanted.items():
        assert card[name] == pytest.approx(value, abs=bounds.get(name, 0.0) + 1e-12), name


@pytest.mark.parametrize("chunk", [1, 37, 500])
def test_scores_do_not_depend_on_chunks(chunk: int) -> None:
    given = simulated(200)
    assert_same(bridge.score(on_dask(given, chunk)), metrics.scorecard(given))


def test_files_and_probabilities_score_as_arrays(tmp_path: Path) -> None:
    given = simulated(300)
    plain = Predictions(given.logits, given.labels)
    write(tmp_path / "in", plain, [100, 250])
    assert_same(bridge.score(bridge.read_files(tmp_path / "in", entries=90)), metrics.scorecard(plain))
    probable = bridge.rows(da.from_array(plain.probabilities(), chunks=90), plain.labels, inputs="probabilities")
    assert_same(bridge.score(probable), metrics.scorecard(plain.probabilities(), plain.labels))


def test_predictions_of_a_dask_array_are_lazy_and_the_same() -> None:
    given = simulated(500)
    fitted = VectorScaling().fit_predictions(given)
    lazy = fitted.predict_proba(da.from_array(given.logits, chunks=(90, 3)))
    assert isinstance(lazy, da.Array)
    assert lazy.shape == (500, 4)
    assert (lazy.compute() == fitted.predict_proba(given.logits)).all()
    assert (fitted.transform(da.from_array(given.logits, chunks=90)).compute() == fitted.transform(given.logits)).all()
    assert_same(bridge.score(on_dask(given), fitted), metrics.scorecard(fitted.apply(given)))
    with pytest.raises(BadPredictions, match="logits must have shape"):
        fitted.predict_proba(da.zeros((5, 3)))


def test_fits_learn_from_a_subset_that_does_not_depend_on_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "_ENOUGH_ROWS", 400)
    given = simulated()
    several = [bridge.fit(VectorScaling(), on_dask(given, chunk)) for chunk in (100, 3_000)]
    assert several[0].diagnostics_.rows == 400
    first, second = (each.predict_proba(given.logits) for each in several)
    np.testing.assert_allclose(first, second, atol=1e-9)


def test_auto_has_the_numbers_of_one_machine() -> None:
    given = simulated(300)
    alone, found = (AutoCalibrator(time_budget=0, progress=False) for _ in range(2))
    alone.fit_predictions(given)
    bridge.fit(found, on_dask(given))
    assert found.mixture_weights_ == pytest.approx(alone.mixture_weights_, abs=1e-9)
    np.testing.assert_allclose(found.predict_proba(given.logits), alone.predict_proba(given.logits), atol=1e-9)


def test_a_comparison_has_the_scores_of_one_machine() -> None:
    calibration, test = simulated(600), simulated(500, seed=1)
    found = bridge.compare(on_dask(calibration, 200), on_dask(test, 90), ["temperature", "vector"])
    alone = glayers.compare(calibration, test, ["temperature", "vector"])
    for name, card in alone.scorecards.items():
        assert found.scorecards[name].by_name == pytest.approx(card.by_name, abs=1e-9)
    assert "temperature" in str(found)


def test_a_worker_that_dies_midway_changes_nothing(client: Client) -> None:
    given = simulated(400)

    def slow(block: Any) -> Any:
        time.sleep(0.1)
        return block

    logits = da.from_array(given.logits, chunks=(20, 4)).map_blocks(slow)
    task = bridge.rows(logits, given.labels, sample_weight=given.weights)
    victim = next(iter(client.run(os.getpid).values()))
    threading.Timer(0.5, os.kill, (victim, signal.SIGKILL)).start()
    found = bridge.score(task, client=client)
    assert victim not in client.run(os.getpid).values()
    assert_same(found, metrics.scorecard(given))


def test_commands_run_on_a_cluster_with_the_numbers_of_one_machine(client: Client, tmp_path: Path) -> None:
    given = simulated(300)
    write(tmp_path / "in", Predictions(given.logits, given.labels), [100, 250])
    dask_option = ("--quiet", "--dask", client.scheduler.address)
    models = [tmp_path / "alone.safetensors", tmp_path / "cluster.safetensors"]
    for model, more in zip(models, (("--quiet",), dask_option), strict=True):
        assert run("fit", tmp_path / "in", "-o", model, "-m", "temperature", *more).exit_code == 0
        assert run("apply", model, tmp_path / "in", "-o", model.with_suffix(""), *more).exit_code == 0
    assert models[0].read_bytes() == models[1].read_bytes()
    parts = [sorted(model.with_suffix("").glob("*.parquet")) for model in models]
    assert [part.read_bytes() for part in parts[0]] == [part.read_bytes() for part in parts[1]]
    cards = [
        json.loads(run("score", tmp_path / "in", "--model", models[0], "--json", *more).stdout)
        for more in (("--quiet",), dask_option)
    ]
    for name in ("uncalibrated", "calibrated"):
        numbers = [{metric: card[name][metric] for metric in metrics.METRICS} for card in cards]
        assert numbers[0] == pytest.approx(numbers[1], abs=1e-12)
        assert cards[0][name]["calibration_test"] == cards[1][name]["calibration_test"]


def test_an_address_without_a_cluster_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "in", simulated(50), [])
    done = run("score", tmp_path / "in", "--dask", "nowhere")
    assert done.exit_code == 1
    assert "cannot reach a Dask scheduler at nowhere" in " ".join(done.stderr.split())


def test_what_is_missing_is_named() -> None:
    given = simulated(50)
    logits = da.from_array(given.logits, chunks=20)
    with pytest.raises(BadPredictions, match="must be a dask array"):
        bridge.rows(given.logits, given.labels)
    with pytest.raises(BadPredictions, match="labels must have shape"):
        bridge.rows(logits, given.labels[:5])
    with pytest.raises(BadPredictions, match="compute_chunk_sizes"):
        bridge.rows(logits[logits[:, 0] > 0], given.labels)
