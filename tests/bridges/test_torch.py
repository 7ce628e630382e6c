"""The bridge to torch: strip, collect, fit, and put g behind f, with the same numbers as NumPy's."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from glayers import BadPredictions, GLayers, GlayersWarning, TemperatureScaling
from glayers.bridges.torch import calibrate, collect_logits, strip_softmax, to_module
from glayers.calibrators import Calibrator

ROWS, FEATURES, CLASSES = 300, 6, 4


def quick() -> GLayers:
    return GLayers(recipe="paper", learning_rate=3e-3, weight_decay=0.0, max_epochs=5, random_state=0)


def parts(outputs: int = CLASSES) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, outputs)]


def make_network(*, outputs: int = CLASSES) -> nn.Sequential:
    return nn.Sequential(*parts(outputs))


def make_loader(classes: int = CLASSES) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, FEATURES, generator=generator)
    # Something to learn from: the label follows the first features, with noise.
    noisy = x[:, :classes] + torch.randn(ROWS, classes, generator=generator)
    return DataLoader(TensorDataset(x, noisy.argmax(dim=1)), batch_size=64)


def inputs_of(loader: DataLoader[Any]) -> Tensor:
    return torch.cat([x for x, _ in loader])


class EndsInSoftmax(nn.Module):
    """A network whose softmax cannot be seen from outside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = make_network()

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.softmax(self.inner(inputs), dim=1)


class Fails(nn.Module):
    """A network that breaks at the second batch."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls = nn.Linear(FEATURES, CLASSES), 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 2:
            raise RuntimeError("out of order")
        return self.inner(inputs)


@pytest.fixture(params=[TemperatureScaling, quick, lambda: GLayers(max_epochs=4, random_state=0)])
def calibrator(request: pytest.FixtureRequest) -> Calibrator:
    made: Calibrator = request.param()
    return made


@pytest.mark.filterwarnings("ignore:temperature scaling:glayers.GlayersWarning")
@pytest.mark.filterwarnings("ignore:g-layers start from temperature:glayers.GlayersWarning")
@pytest.mark.filterwarnings("ignore:g-layers fall back:glayers.GlayersWarning")
@pytest.mark.parametrize("outputs", [1, CLASSES])
def test_g_after_f_equals_the_prediction_in_numpy(calibrator: Calibrator, outputs: int) -> None:
    network, loader = make_network(outputs=outputs), make_loader(max(2, outputs))
    calibrated = calibrate(network, loader, calibrator).eval()
    with torch.inference_mode():
        z, logits, p = network.eval()(inputs_of(loader)), calibrated(inputs_of(loader)), None
        p = calibrated.predict_proba(inputs_of(loader))
    assert p.shape == (ROWS, max(2, outputs))
    assert p.numpy() == pytest.approx(calibrator.predict_proba(z.numpy()), abs=1e-5)
    assert torch.softmax(logits, dim=1).numpy() == pytest.approx(p.numpy(), abs=1e-6)
    assert torch.equal(calibrated.logits(inputs_of(loader)), logits)
    assert not np.allclose(p.numpy(), _plain(z.numpy()), atol=1e-3), "g does something"


def _plain(z: Any) -> Any:
    wide = np.hstack([np.zeros_like(z), z]) if z.shape[1] == 1 else z
    return np.exp(wide) / np.exp(wide).sum(axis=1, keepdims=True)


@pytest.mark.filterwarnings("ignore:temperature scaling:glayers.GlayersWarning")
@pytest.mark.filterwarnings("ignore:g-layers fall back:glayers.GlayersWarning")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_module_of_g_alone_equals_numpy(calibrator: Calibrator, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 3)) * 3
    labels = (np.tanh(z) + 0.5 * rng.gumbel(size=z.shape)).argmax(axis=1)
    module = to_module(calibrator.fit(z, labels))
    out = module(torch.as_tensor(z, dtype=dtype))
    assert out.dtype == dtype
    assert torch.softmax(out, dim=1).numpy() == pytest.approx(calibrator.predict_proba(z), abs=1e-5)


def test_temperature_as_a_module_divides_by_it() -> None:
    z = np.array([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
    fitted = TemperatureScaling().fit(z, [0, 1, 1])
    out = to_module(fitted)(torch.as_tensor(z))
    assert out.numpy() == pytest.approx(z / fitted.temperature_, rel=1e-6)


@pytest.mark.filterwarnings("ignore:temperature scaling:glayers.GlayersWarning")
@pytest.mark.parametrize("end", [nn.Softmax(dim=1), nn.LogSoftmax(dim=1)])
@pytest.mark.parametrize("nested", [False, True])
def test_a_final_softmax_is_removed_with_a_warning(end: nn.Module, nested: bool) -> None:
    layers, loader = parts(), make_loader()
    inner = nn.Sequential(*layers[2:], end)
    network = nn.Sequential(*layers[:2], inner) if nested else nn.Sequential(*layers, end)
    body = nn.Sequential(*layers)
    with pytest.warns(GlayersWarning, match=f"removed the final {type(end).__name__}"):
        calibrated = calibrate(network, loader, TemperatureScaling()).eval()
    body.eval()
    x = inputs_of(loader)
    assert torch.equal(calibrated.network(x), body(x))
    expected = calibrated.calibrator.predict_proba(body(x).detach().numpy())
    assert calibrated.predict_proba(x).detach().numpy() == pytest.approx(expected, abs=1e-5)
    assert (inner if nested else network)[-1] is end, "the network itself keeps it"


@pytest.mark.parametrize("network", [nn.Linear(2, 3), nn.Sequential(), nn.Sequential(nn.Softmax(dim=1), nn.ReLU())])
def test_what_does_not_end_in_softmax_is_left_alone(network: nn.Module) -> None:
    assert strip_softmax(network) is network


def test_a_softmax_within_forward_is_refused_as_probabilities() -> None:
    with pytest.raises(BadPredictions, match="look like probabilities"):
        calibrate(EndsInSoftmax(), make_loader(), quick())


def modes_of(network: nn.Module) -> list[bool]:
    return [part.training for part in network.modules()]


@pytest.mark.filterwarnings("ignore:removed the final:glayers.GlayersWarning")
@pytest.mark.filterwarnings("ignore:temperature scaling:glayers.GlayersWarning")
@pytest.mark.parametrize("end", ["logits", "softmax", "nested softmax"])
@pytest.mark.parametrize("training", [True, False, "frozen part"])
def test_a_network_is_left_in_the_mode_it_was_in(training: bool | str, end: str) -> None:
    layers, norm = parts(), nn.BatchNorm1d(16)
    layers[1] = norm
    network = {
        "logits": nn.Sequential(*layers),
        "softmax": nn.Sequential(*layers, nn.Softmax(dim=1)),
        "nested softmax": nn.Sequential(*layers[:2], nn.Sequential(*layers[2:], nn.Softmax(dim=1))),
    }[end].train(bool(training))
    if training == "frozen part":
        norm.eval()
    before, seen = modes_of(network), int(norm.get_buffer("num_batches_tracked"))
    calibrate(network, make_loader(), TemperatureScaling())
    assert modes_of(network) == before
    assert int(norm.get_buffer("num_batches_tracked")) == seen, "rows were collected in evaluation mode"


@pytest.mark.parametrize("training", [True, False])
def test_a_network_is_left_in_its_mode_after_an_error(training: bool) -> None:
    network = Fails().train(training)
    with pytest.raises(RuntimeError, match="out of order"):
        calibrate(network, make_loader(), quick())
    assert modes_of(network) == [training] * 2


def test_logits_are_collected_in_order_without_dropout_or_gradient() -> None:
    network, loader = make_network().train(), make_loader()
    logits, labels = collect_logits(network, loader)
    assert not logits.requires_grad
    assert torch.equal(labels, torch.cat([y for _, y in loader]))
    assert logits.numpy() == pytest.approx(network.eval()(inputs_of(loader)).detach().numpy(), abs=1e-5)


def test_a_calibrated_network_survives_its_state_dict(tmp_path: Path) -> None:
    loader, x = make_loader(), inputs_of(make_loader())
    calibrated = calibrate(make_network(), loader, quick()).eval()
    torch.save(calibrated.state_dict(), tmp_path / "network.pt")
    other = make_network()
    for parameter in other.parameters():
        nn.init.constant_(parameter, 0.1)
    second = calibrate(other, loader, quick().set_params(learning_rate=1e-2)).eval()
    assert not torch.equal(second(x), calibrated(x))
    second.load_state_dict(torch.load(tmp_path / "network.pt", weights_only=True))
    assert torch.equal(second(x), calibrated(x))


def test_g_moves_and_casts_with_its_network() -> None:
    calibrated = calibrate(make_network(), make_loader(), quick()).eval()
    assert {buffer.dtype for buffer in calibrated.calibration.double().buffers()} == {torch.float64}
    assert not list(calibrated.calibration.parameters()), "g is calibrated, not trained on"


def test_an_empty_loader_is_refused() -> None:
    with pytest.raises(BadPredictions, match="gave no batch"):
        calibrate(make_network(), [], quick())


def test_a_loader_without_length_and_a_progress_bar_are_fine(capsys: pytest.CaptureFixture[str]) -> None:
    def batches() -> Iterator[Any]:
        yield from make_loader()

    calibrated = calibrate(make_network(), batches(), quick(), progress=True)
    assert calibrated.calibrator.diagnostics_.rows == ROWS
    assert capsys.readouterr().out == ""


def test_without_a_calibrator_g_layers_are_fitted() -> None:
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(2_000, 3, generator=rng) * 4
    labels = (torch.tanh(z) * 2).softmax(dim=1).multinomial(1, generator=rng)[:, 0]
    calibrated = calibrate(nn.Identity(), [(z[:800], labels[:800]), (z[800:], labels[800:])])
    assert isinstance(calibrated.calibrator, GLayers)
    assert calibrated.calibrator.diagnostics_.loss_after < calibrated.calibrator.diagnostics_.loss_before


class Pair(nn.Module):
    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return inputs, inputs


@pytest.mark.parametrize(
    ("network", "batch", "complaint"),
    [
        (nn.Identity(), torch.zeros(4, 3), r"batch 0 .* must be \(inputs, labels\); got a tensor of shape \(4, 3\)"),
        (nn.Identity(), {"x": 1}, r"batch 0 .* got a dict of 1"),
        (nn.Identity(), (1, 2, 3), r"got a tuple of 3"),
        (Pair(), (torch.zeros(4, 3), torch.zeros(4)), "returned a tuple of 2"),
        (nn.Identity(), (torch.zeros(4, 3), torch.zeros(5)), r"5 labels of batch 0 .* shape \(4, 3\)"),
        (nn.Flatten(0), (torch.zeros(4, 3), torch.zeros(4)), r"shape \(12,\)"),
    ],
    ids=["no labels", "dict", "three", "tuple", "counts", "flat"],
)
def test_the_error_names_the_batch_or_output_that_is_wrong(network: nn.Module, batch: Any, complaint: str) -> None:
    with pytest.raises(BadPredictions, match=complaint):
        calibrate(network, [batch], TemperatureScaling())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_used_for_input_and_output_only(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(300, 50)) * 3
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    module = to_module(TemperatureScaling().fit(2 * z, labels))
    narrow = torch.as_tensor(2 * z).to(dtype)
    exact = module(narrow.double())
    assert module(narrow).dtype == dtype
    expected = exact.to(dtype).float().numpy()
    np.testing.assert_allclose(module(narrow).float().numpy(), expected, rtol=1e-2, atol=1e-2)
