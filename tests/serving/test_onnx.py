"""ONNX files: names and facts, what is refused, and networks with their calibration in one file."""

import json
import warnings
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

from glayers import BadPredictions, GlayersError, Predictions, TemperatureScaling, load
from glayers.activations import softmax
from glayers.bridges.torch import CalibratedNetwork
from glayers.maps import Chain, Step
from glayers.serving.onnx import append
from tests.contracts.calibrators import CLASSES, fitted, tilted
from tests.strategies import Numbers


def session_of(path: Path) -> Any:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def test_a_file_states_its_names_opset_and_classes(tmp_path: Path) -> None:
    z, labels = tilted()
    named = TemperatureScaling().fit_predictions(Predictions(z, labels, class_names=["owl", "élan", "wren", "jay"]))
    named.to_onnx(tmp_path / "t.onnx")
    session, model = session_of(tmp_path / "t.onnx"), onnx.load(tmp_path / "t.onnx")
    (given,) = session.get_inputs()
    assert (given.name, given.shape, given.type) == ("uncalibrated_logits", ["rows", 4], "tensor(float)")
    assert [(each.name, each.shape) for each in session.get_outputs()] == [
        ("logits", ["rows", 4]),
        ("probabilities", ["rows", 4]),
    ]
    assert [(each.domain, each.version) for each in model.opset_import] == [("", 18)]
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["class_names"]) == ["owl", "élan", "wren", "jay"]
    assert facts["calibrator"] == "temperature scaling"


class Drifting(Step):
    """A step that is recorded otherwise than it computes, as a wrong recorder would do."""

    def __call__(self, logits: Any) -> Any:
        return logits * (1.0 if isinstance(logits, np.ndarray) else 1.001)


def test_a_graph_that_differs_from_numpy_is_not_written(tmp_path: Path) -> None:
    calibrator = TemperatureScaling().fit(*tilted())
    calibrator.map_ = Chain((Drifting(),))
    (tmp_path / "t.onnx").write_bytes(b"old")
    with pytest.raises(GlayersError, match=r"not written: onnxruntime differs from NumPy by .* in probability"):
        calibrator.to_onnx(tmp_path / "t.onnx")
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"t.onnx": b"old"}


@pytest.mark.parametrize("inputs", ["probabilities", "confidence"])
def test_probabilities_and_confidences_are_inputs_too(
    inputs: Literal["probabilities", "confidence"], tmp_path: Path
) -> None:
    z, labels = tilted()
    p = softmax(z / 3)
    given = p if inputs == "probabilities" else p.max(axis=1)
    truth = labels if inputs == "probabilities" else p.argmax(axis=1) == labels
    calibrator = TemperatureScaling(inputs=inputs).fit(given, truth)
    calibrator.to_onnx(tmp_path / "p.onnx")
    rows = (given if given.ndim == 2 else given[:, None]).astype(np.float32)
    (found,) = session_of(tmp_path / "p.onnx").run(["probabilities"], {f"uncalibrated_{inputs}": rows})
    assert found == pytest.approx(calibrator.predict_proba(given), abs=1e-5)
    assert calibrator.predict_proba(torch.tensor(given)).numpy() == pytest.approx(found, abs=1e-5)
    calibrator.save(tmp_path / "p.safetensors")
    loaded = load(tmp_path / "p.safetensors")
    assert np.array_equal(loaded.predict_proba(given), calibrator.predict_proba(given))


# Behind a network.


class Segmenter(nn.Module):
    """A small network with one logit per class and pixel."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, CLASSES, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return 20 * self.layers(images)


class Classifier(Segmenter):
    """The mean over the pixels: one row of logits per image."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return super().forward(images).mean(dim=(2, 3))


IMAGES = np.random.default_rng(0).normal(size=(5, 3, 6, 7)).astype(np.float32)


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both networks as ONNX files, as torch exports them."""
    folder = tmp_path_factory.mktemp("networks")
    for name, network in (("classifier", Classifier()), ("segmenter", Segmenter())):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of its own future
            torch.onnx.export(
                network.eval(),
                (torch.tensor(IMAGES),),
                folder / f"{name}.onnx",
                input_names=["images"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
                dynamo=True,
                verbose=False,
            )
    return folder


def by_numpy(network: nn.Module, name: str, images: Numbers) -> tuple[Numbers, Numbers]:
    """Return logits of the network and calibrated probabilities, with the classes last."""
    with torch.inference_mode():
        raw = np.moveaxis(network.eval()(torch.tensor(images)).numpy(), 1, -1)
    return raw, fitted(name).predict_proba(raw.reshape(-1, CLASSES)).reshape(raw.shape)


@pytest.mark.parametrize("name", ["temperature", "auto"])
@pytest.mark.parametrize(("kind", "network"), [("classifier", Classifier()), ("segmenter", Segmenter())])
def test_a_network_and_its_calibration_make_one_file(
    kind: str, network: nn.Module, name: str, networks: Path, tmp_path: Path
) -> None:
    append(onnx.load(networks / f"{kind}.onnx"), fitted(name), tmp_path / "both.onnx", {"images": IMAGES})
    session = session_of(tmp_path / "both.onnx")
    assert [each.name for each in session.get_inputs()] == ["images"]
    for images in (IMAGES, IMAGES[:1]):
        outputs = session.run(["uncalibrated_logits", "logits", "probabilities"], {"images": images})
        raw, logits, probabilities = (np.moveaxis(each, 1, -1) for each in outputs)
        expected, calibrated = by_numpy(network, name, images)
        assert raw == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert probabilities == pytest.approx(calibrated, abs=1e-4)  # the network itself rounds to float32
        assert softmax(logits) == pytest.approx(probabilities, abs=1e-6)


class Words(nn.Module):
    """A text classifier with two inputs by name and an output that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.last = nn.Embedding(50, 8), nn.Linear(8, CLASSES)

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
        weights = attention_mask[..., None].float()
        return {"logits": 9 * self.last((self.embedding(input_ids) * weights).sum(dim=1) / weights.sum(dim=1))}


def test_a_calibrated_torch_network_becomes_one_file(tmp_path: Path) -> None:
    ids = torch.randint(50, (6, 9), generator=torch.Generator().manual_seed(0))
    batch = {"input_ids": ids, "attention_mask": (torch.arange(9) < 7).long().expand(6, 9).contiguous()}
    calibrated = CalibratedNetwork(Words().train(), fitted("vector"))
    calibrated.to_onnx(tmp_path / "words.onnx", **batch)
    assert calibrated.network.training
    session = session_of(tmp_path / "words.onnx")
    few = {name: tensor[:2, :5].numpy() for name, tensor in batch.items()}
    found = session.run(["probabilities"], few)[0]
    with torch.inference_mode():
        expected = calibrated.eval().predict_proba(**{name: tensor[:2, :5] for name, tensor in batch.items()})
    assert found == pytest.approx(expected.numpy(), abs=1e-5)


def test_a_network_with_one_logit_still_returns_one(tmp_path: Path) -> None:
    torch.manual_seed(0)
    calibrated = CalibratedNetwork(nn.Linear(6, 1), fitted("platt", 1))
    x = torch.randn(5, 6)
    calibrated.to_onnx(tmp_path / "both.onnx", x)
    names = ["logits", "probabilities", "uncalibrated_logits"]
    logits, p, before = session_of(tmp_path / "both.onnx").run(names, {"input": x.numpy()})
    assert (logits.shape, p.shape, before.shape) == ((5, 1), (5, 2), (5, 1))
    with torch.inference_mode():
        assert logits == pytest.approx(calibrated(x).numpy(), abs=1e-5)
    assert 1 / (1 + np.exp(-logits[:, 0])) == pytest.approx(p[:, 1], abs=1e-6)


class TwoInputs(nn.Module):
    """A network that takes a pair of tensors as one argument, and any number after it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.last = nn.Linear(6, CLASSES)

    def forward(self, pair: tuple[torch.Tensor, torch.Tensor], *others: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(pair[0]) + pair[1]
        for other in others:
            found = found * other
        return found


def test_a_tuple_of_inputs_becomes_as_many_inputs_of_the_file(tmp_path: Path) -> None:
    calibrated = CalibratedNetwork(TwoInputs(), fitted("vector"))
    rng = torch.Generator().manual_seed(0)
    first, second, third = (torch.randn(5, columns, generator=rng) for columns in (6, 1, CLASSES))
    calibrated.to_onnx(tmp_path / "both.onnx", (first, second), third)
    session = session_of(tmp_path / "both.onnx")
    assert [given.name for given in session.get_inputs()] == ["pair_0", "pair_1", "others_0"]
    feed = {"pair_0": first[:3].numpy(), "pair_1": second[:3].numpy(), "others_0": third[:3].numpy()}
    with torch.inference_mode():
        expected = calibrated.predict_proba((first[:3], second[:3]), third[:3]).numpy()
    assert session.run(["probabilities"], feed)[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("inputs", [(), (np.zeros((2, 6)),), ((torch.zeros(2, 6), 3),)])
def test_example_inputs_that_are_no_tensors_are_refused(inputs: Any, tmp_path: Path) -> None:
    calibrated = CalibratedNetwork(nn.Linear(6, CLASSES), fitted("vector"))
    with pytest.raises(BadPredictions, match="to_onnx needs example inputs, tensors as `forward` takes them; got"):
        calibrated.to_onnx(tmp_path / "both.onnx", *inputs)
    assert list(tmp_path.iterdir()) == []


def test_what_does_not_fit_the_network_is_refused(networks: Path, tmp_path: Path) -> None:
    network, path = onnx.load(networks / "classifier.onnx"), tmp_path / "both.onnx"
    with pytest.raises(BadPredictions, match=r"the output 'logits' has shape .*4.*, but the calibrator needs 1 logits"):
        append(network, fitted("temperature", 1), path, {"images": IMAGES})
    with pytest.raises(ValueError, match=r"Required inputs \(\['images'\]\) are missing"):
        append(network, fitted("temperature"), path, {"pixels": IMAGES})
    assert list(tmp_path.iterdir()) == []
