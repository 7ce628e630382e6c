"""The captured logits of the base networks: how they are stored, and what is kept in the repository."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from experiments.paper.networks.capture import Run
from experiments.paper.networks.captured import FOLDER, STEPS, Network, load_networks, pack, rounded, unpack
from experiments.paper.networks.command import PLANS
from experiments.paper.networks.images import Sizes
from experiments.paper.networks.table import as_markdown
from experiments.paper.networks.training import Recipe
from hypothesis import given, settings
from hypothesis import strategies as st

from glayers import BadFile, Predictions, metrics

ROOT = Path(__file__).parents[2]


@settings(max_examples=20, deadline=None)  # the first file written loads the compressor
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 40))
def test_logits_in_whole_steps_come_back_exactly(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    labels = {"calibration": rng.integers(0, 10, n), "test": rng.integers(0, 10, n + 1)}
    steps = {part: rng.integers(-(2**15) + 1, 2**15, size=(len(rows), 10)) for part, rows in labels.items()}
    logits = {part: (values / STEPS).astype(np.float32) for part, values in steps.items()}
    data = pack(labels, {4: logits})
    assert pack(labels, {4: logits}) == data
    calibration, test = unpack(data)["4"]
    assert np.array_equal(calibration.logits, logits["calibration"])
    assert np.array_equal(test.logits, logits["test"])
    assert np.array_equal(test.labels, labels["test"])


@pytest.mark.parametrize("sharpness", [1.0, 3.0, 6.0])
def test_rounding_moves_the_loss_by_less_than_a_thousandth(sharpness: float) -> None:
    rng = np.random.default_rng(0)
    logits = (sharpness * rng.normal(size=(5_000, 10))).astype(np.float32)
    labels = (logits / 1.5 + rng.gumbel(size=logits.shape)).argmax(axis=1)  # overconfident by half
    stored = rounded(logits).astype(np.float32) / STEPS
    assert np.abs(stored - logits).max() <= 0.5 / STEPS
    assert metrics.nll(Predictions(stored, labels)) == pytest.approx(metrics.nll(Predictions(logits, labels)), abs=1e-3)


@pytest.mark.parametrize("value", [1_024.0, -np.inf, np.nan])
def test_logits_of_a_training_that_diverged_are_refused(value: float) -> None:
    with pytest.raises(BadFile, match="Lower the learning rate"):
        rounded(np.array([[0.0, 1.0, value]], dtype=np.float32))


def test_captured_logits_are_read_without_torch_or_images() -> None:
    code = "import sys, experiments.paper.networks.captured; print({'torch', 'PIL', 'matplotlib'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.fixture(scope="module")
def networks() -> dict[str, Network]:
    return load_networks()


def test_the_networks_that_are_kept_are_those_the_command_trains(networks: dict[str, Network]) -> None:
    assert set(networks) == set(PLANS)
    for name, network in networks.items():
        run = Run(name, *PLANS[name], Recipe(), Sizes())
        assert {key: network.about[key] for key in run.settings()} == run.settings()
        assert set(network.checkpoints) == {"1", "2", "5", "10", "15", network.early_stopping}


def test_kept_rows_are_as_many_as_in_the_paper_and_shared_by_networks(networks: dict[str, Network]) -> None:
    for name, network in networks.items():
        for calibration, test in network.checkpoints.values():
            assert (calibration.logits.shape, test.logits.shape) == ((5_000, 10), (10_000, 10))
            assert test.label_counts().tolist() == [1_000] * 10
            if name.startswith("cifar10"):
                shared = networks["cifar10_residual"].checkpoints["1"]
                assert np.array_equal(calibration.labels, shared.calibration.labels)
                assert np.array_equal(test.labels, shared.test.labels)


def test_kept_logits_have_the_loss_that_was_measured_in_training(networks: dict[str, Network]) -> None:
    for network in networks.values():
        for epoch, (calibration, _) in network.checkpoints.items():
            measured = network.about["epochs"][int(epoch) - 1]["calibration_nll"]
            assert metrics.nll(calibration) == pytest.approx(measured, abs=1e-3)


def test_the_page_beside_the_logits_is_made_of_them(networks: dict[str, Network]) -> None:
    page = (FOLDER / "README.md").read_text()
    assert page == as_markdown(networks)
    for name, network in networks.items():
        test = network.checkpoints["15"].test
        accuracy = 100 * np.mean(test.logits.argmax(axis=1) == test.labels)
        (line,) = (line for line in page.splitlines() if line.startswith(f"| {name} ") and line.count("|") == 9)
        assert f"| 15 | {network.about['processor_seconds']:,.0f} | {accuracy:.2f} |" in line
