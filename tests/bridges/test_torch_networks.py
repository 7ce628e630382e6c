"""End to end: small networks, trained until they are overconfident, calibrated, and exported to one ONNX file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from glayers import AutoCalibrator, VectorScaling, metrics
from glayers.bridges.torch import CalibratedNetwork, calibrate, collect_logits

# The exporter of torch warns about its own dependencies.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


class Task(NamedTuple):
    """A network, batches of a given number of examples and seed, and the settings of `calibrate`."""

    network: nn.Module
    batch: Callable[[int, int], Any]
    n_training: int
    settings: dict[str, Any]


def images(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Noise with one bright quarter, which is the class."""
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(4, (rows,), generator=rng)
    pixels = torch.randn(rows, 1, 8, 8, generator=rng)
    for label in range(4):
        down, right = divmod(label, 2)
        pixels[labels == label, :, 4 * down : 4 * down + 4, 4 * right : 4 * right + 4] += 0.5
    return pixels, labels


def scenes(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """A bright diamond or a dark square on noise; the first line of pixels has no label."""
    rng = torch.Generator().manual_seed(seed)
    masks, places = torch.zeros(rows, 16, 16, dtype=torch.long), torch.arange(16)
    for mask in masks:
        shape, down, right = (
            int(torch.randint(low, high, (), generator=rng)) for low, high in [(1, 3), (4, 12), (4, 12)]
        )
        high, wide = (places - down).abs()[:, None], (places - right).abs()[None]
        mask[high + wide <= 4 if shape == 1 else torch.maximum(high, wide) <= 3] = shape
    pixels = torch.tensor([0.0, 0.7, -0.7])[masks] + torch.randn(rows, 16, 16, generator=rng)
    masks[:, 0] = 255
    return pixels[:, None], masks


def texts(rows: int, seed: int) -> dict[str, Tensor]:
    """Words of which one in four, on average, is the word of the class, and some belong to any class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, rows)
    words = np.where(rng.random((rows, 12)) < 0.25, 1 + labels[:, None], rng.integers(4, 20, (rows, 12)))
    words = np.where(rng.random((rows, 12)) < 0.15, rng.integers(1, 4, (rows, 12)), words)
    tokens = torch.tensor(words)
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": torch.tensor(labels)}


def task(name: str) -> Task:
    torch.manual_seed(0)
    if name == "convolutional":
        network = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 4))
        return Task(network, images, 200, {})
    if name == "segmentation":
        layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
        network = nn.Sequential(*layers, nn.Conv2d(16, 3, 3, padding=1))
        return Task(network, scenes, 8, {"class_axis": 1, "ignore_label": 255, "max_rows": 2_000})
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = BertConfig(vocab_size=20, max_position_embeddings=12, num_labels=3, **sizes)
    return Task(BertForSequenceClassification(config), texts, 150, {})


def trained(given: Task) -> nn.Module:
    """Fit the network to few examples, far beyond what they can teach."""
    batch = given.batch(given.n_training, 0)
    optimizer = torch.optim.Adam(given.network.parameters(), 1e-2)
    for _ in range(100):
        optimizer.zero_grad()
        if isinstance(batch, dict):
            loss = given.network(**batch).loss
        else:
            loss = nn.functional.cross_entropy(given.network(batch[0]), batch[1], ignore_index=255)
        loss.backward()
        optimizer.step()
    return given.network.eval()


def inputs_of(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(batch, dict):
        return (), {name: value for name, value in batch.items() if name != "labels"}
    return batch[:1], {}


def onnx_probabilities(calibrated: CalibratedNetwork, batch: Any, path: Path) -> Any:
    """Export network and g to one file, and run it."""
    args, named = inputs_of(batch)
    calibrated.to_onnx(path, *args, **named)
    session = onnxruntime.InferenceSession(path)
    feed = {given.name: (named[given.name] if named else args[0]).numpy() for given in session.get_inputs()}
    return session.run(["probabilities"], feed)[0]


@pytest.mark.parametrize("name", ["convolutional", "segmentation", "Hugging Face"])
def test_an_overconfident_network_is_calibrated_and_served(name: str, tmp_path: Path) -> None:
    given = task(name)
    network = trained(given)
    examples = 40 if name == "segmentation" else 500
    # The steps of auto, which take long to export, need no second network.
    calibrator = AutoCalibrator(time_budget=1.0) if name == "convolutional" else VectorScaling()
    held_out = [given.batch(examples, 1), given.batch(examples, 2)]
    calibrated = calibrate(network, held_out, calibrator, **given.settings).eval()
    test = [given.batch(examples, 3), given.batch(examples, 4)]
    before, after = (collect_logits(each, test, **given.settings) for each in (network, calibrated))
    assert metrics.mean_confidence(before) > metrics.accuracy(before) + 0.05
    assert metrics.nll(after) < 0.8 * metrics.nll(before)
    assert metrics.ks(after) < 0.5 * metrics.ks(before)
    few = given.batch(3, 5)
    args, named = inputs_of(few)
    with torch.inference_mode():
        p = calibrated.predict_proba(*args, **named).numpy()
    assert onnx_probabilities(calibrated, few, tmp_path / "served.onnx") == pytest.approx(p, abs=1e-5)
