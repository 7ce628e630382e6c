"""The bridge to torch: strip, collect, fit, and put g behind f, with the same numbers as NumPy's."""

import pickle
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import glayers
from glayers import (
    AutoCalibrator,
    BadPredictions,
    GLayers,
    GlayersWarning,
    IsotonicCalibration,
    MultiLabelCalibrator,
    MultiLabelPredictions,
    PaperGLayers,
    TemperatureScaling,
)
from glayers.bridges.torch import (
    CalibrateAfterTraining,
    CalibratedNetwork,
    calibrate,
    collect_logits,
    strip_softmax,
    to_module,
)
from glayers.calibrators import Calibrator
from glayers.errors import GlayersError
from glayers.metrics import label_scorecards
from tests.bridges.one_logit import same_width
from tests.contracts.calibrators import fitted, tilted

ROWS, FEATURES, CLASSES = 300, 6, 4


def quick() -> PaperGLayers:
    return PaperGLayers(learning_rate=3e-3, weight_decay=0.0, max_epochs=5, random_state=0)


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
    assert logits.shape == z.shape, "one logit stays one"
    found = torch.sigmoid(logits[:, 0]) if outputs == 1 else torch.softmax(logits, dim=1)[:, 1]
    assert found.numpy() == pytest.approx(p[:, 1].numpy(), abs=1e-6)
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
@pytest.mark.parametrize("end", [nn.Softmax(dim=1), nn.LogSoftmax(dim=1), nn.Sigmoid()])
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


def test_a_method_goes_by_its_name() -> None:
    network = nn.Linear(FEATURES, CLASSES)
    nn.init.eye_(network.weight)
    by_name, given = (calibrate(network, make_loader(), each) for each in ("temperature", TemperatureScaling()))
    x = inputs_of(make_loader())
    assert torch.equal(by_name(x), given(x))
    with pytest.raises(GlayersError, match=r"one of the names auto, temperature, .*got 'temperatur'"):
        calibrate(network, make_loader(), "temperatur")


@pytest.mark.parametrize(
    ("names", "expected"), [(["cat", "dog", "fox"], ("cat", "dog", "fox")), (["cat", "dog"], None), (["cat"] * 3, None)]
)
def test_class_names_come_from_the_configuration_of_a_model(names: list[str], expected: object) -> None:
    network: Any = make_network(outputs=3)
    network.config = SimpleNamespace(id2label=dict(enumerate(names)))
    assert collect_logits(network, make_loader(3)).class_names == expected
    assert collect_logits(network, make_loader(3), class_names="xyz").class_names == ("x", "y", "z")


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
    with pytest.raises(GlayersError, match="load_state_dict replaced g"):
        second.save(tmp_path / "g.safetensors")
    with pytest.raises(GlayersError, match="load_state_dict replaced g"):
        second.to_onnx(tmp_path / "both.onnx", x)


def test_the_state_dict_has_the_names_of_the_arrays_in_a_file() -> None:
    calibrated = calibrate(make_network(), make_loader(), quick())
    names = {name.removeprefix("steps.") for name in calibrated.calibration.state_dict()}
    assert names == set(calibrated.calibrator.map_.parameters())


@pytest.mark.parametrize("calibrator", [quick(), IsotonicCalibration()], ids=["dense", "tables"])
def test_g_is_saved_without_its_network_and_loaded_behind_it(calibrator: Calibrator, tmp_path: Path) -> None:
    network, x = make_network(), inputs_of(make_loader())
    calibrated = calibrate(network, make_loader(), calibrator).eval()
    calibrated.save(tmp_path / "g.safetensors")
    assert torch.equal(CalibratedNetwork.load(network, tmp_path / "g.safetensors").eval()(x), calibrated(x))
    assert glayers.load(tmp_path / "g.safetensors").map_.parameters().keys() == calibrator.map_.parameters().keys()


def test_a_loaded_g_never_follows_a_softmax(tmp_path: Path) -> None:
    calibrate(make_network(), make_loader(), quick()).save(tmp_path / "g.safetensors")
    with pytest.warns(GlayersWarning, match="removed the final Softmax"):
        loaded = CalibratedNetwork.load(nn.Sequential(*parts(), nn.Softmax(dim=1)), tmp_path / "g.safetensors")
    assert not any(isinstance(part, nn.Softmax) for part in loaded.modules())


@pytest.mark.parametrize("copied", [deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_a_calibrated_network_can_be_copied_and_pickled(copied: Callable[[nn.Module], nn.Module]) -> None:
    calibrated, x = calibrate(make_network(), make_loader(), quick()).eval(), inputs_of(make_loader())
    assert torch.equal(copied(calibrated)(x), calibrated(x))


def test_g_follows_its_network_to_a_device_but_not_to_half_precision() -> None:
    calibrated = calibrate(make_network(), make_loader(), quick()).eval()
    before = deepcopy(calibrated.calibration.state_dict())
    calibrated.half()
    assert {parameter.dtype for parameter in calibrated.network.parameters()} == {torch.float16}
    after = calibrated.calibration.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in before)
    assert not list(calibrated.calibration.parameters()), "g is calibrated, not trained on"
    calibrated.to("meta")
    assert {buffer.device.type for buffer in calibrated.calibration.buffers()} == {"meta"}


def test_a_gradient_passes_through_g_to_the_network() -> None:
    calibrated = calibrate(make_network(), make_loader(), quick())
    calibrated(inputs_of(make_loader())).square().sum().backward()
    assert all(parameter.grad is not None for parameter in calibrated.network.parameters())


def test_without_a_calibrator_the_recommended_one_is_fitted() -> None:
    rng = torch.Generator().manual_seed(0)
    z = torch.randn(90, 3, generator=rng) * 4  # so few rows that auto is quick
    labels = (torch.tanh(z) * 2).softmax(dim=1).multinomial(1, generator=rng)[:, 0]
    calibrated = calibrate(nn.Identity(), [(z[:40], labels[:40]), (z[40:], labels[40:])], class_names="abc")
    assert isinstance(calibrated.calibrator, AutoCalibrator)
    assert calibrated.calibrator.diagnostics_.loss_after < calibrated.calibrator.diagnostics_.loss_before
    assert calibrated.calibrator.class_names_ == ("a", "b", "c")


def several_labels() -> tuple[Tensor, Tensor]:
    """Logits that are three times too large for independent labels."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(400, 3, generator=generator)
    return 3 * z, torch.bernoulli(torch.sigmoid(z), generator=generator)


@pytest.mark.parametrize("names", [None, ("wind", "rain", "hail")])
def test_rows_with_several_labels_are_calibrated_label_by_label(names: Any) -> None:
    z, labels = several_labels()
    labels[:40, 1] = torch.nan  # missing
    network: Any = nn.Sequential(nn.Identity())
    network.config = SimpleNamespace(id2label=dict(enumerate(names or "")))
    calibrated = calibrate(network, [(z[:250], labels[:250]), (z[250:], labels[250:])], MultiLabelCalibrator())
    expected = MultiLabelCalibrator().fit(z.numpy(), labels.numpy())
    assert calibrated.predict_proba(z).numpy() == pytest.approx(expected.predict_proba(z.numpy()), abs=1e-6)
    assert torch.sigmoid(calibrated(z)).numpy() == pytest.approx(calibrated.predict_proba(z).numpy(), abs=1e-6)
    assert calibrated.calibrator.class_names_ == names
    after = collect_logits(calibrated, [(z, labels)], several_labels=True)
    assert isinstance(after, MultiLabelPredictions)
    assert after.label_names == names
    assert [card.rows for card in label_scorecards(after).values()] == [400, 360, 400]
    pixels = z.T.reshape(1, 3, 20, 20)
    by_pixel = calibrate(
        nn.Identity(), [(pixels, labels.T.reshape(1, 3, 20, 20))], MultiLabelCalibrator(), class_axis=1
    )
    found = by_pixel.predict_proba(pixels).reshape(3, -1).T
    assert found.numpy() == pytest.approx(expected.predict_proba(z.numpy()), abs=1e-6)


def test_labels_in_another_shape_than_several_labels_need_are_refused() -> None:
    z, labels = several_labels()
    with pytest.raises(BadPredictions, match=r"several labels per row must have the shape of the logits, \(400, 3\)"):
        calibrate(nn.Identity(), [(z, labels[:, 0])], MultiLabelCalibrator())
    with pytest.raises(BadPredictions, match=r"If a row may have several labels, calibrate with MultiLabelCalibrator"):
        calibrate(nn.Identity(), [(z, labels)], "temperature")
    with pytest.raises(BadPredictions, match="class_names must be 3 different names"):
        calibrate(nn.Identity(), [(z, labels)], MultiLabelCalibrator(), class_names="ab")
    unused: Any = iter(())  # names are checked before the loader is read
    with pytest.raises(BadPredictions, match="class_names must be 3 different names"):
        calibrate(nn.Identity(), unused, MultiLabelCalibrator(), class_names=["a", "a", "b"])


def test_ignored_labels_are_missing_and_names_become_text(tmp_path: Path) -> None:
    z, labels = several_labels()
    missing, ignored = labels.clone(), labels.long()
    missing[:40, 1], ignored[:40, 1] = torch.nan, -100
    names: Any = [1, 2, 3]
    one, other = (
        calibrate(nn.Identity(), [(z, given)], MultiLabelCalibrator(), class_names=names)
        for given in (missing, ignored)
    )
    assert torch.equal(one.predict_proba(z), other.predict_proba(z))
    assert one.calibrator.class_names_ == ("1", "2", "3")
    one.save(tmp_path / "labels.safetensors")


def test_the_callbacks_keep_one_logit_and_take_several_labels() -> None:
    z, labels = several_labels()
    callback = CalibrateAfterTraining("platt")
    callback._calibrate(nn.Identity(), [(z[:, :1], labels[:, 0])])
    assert callback.calibrated is not None
    assert callback.calibrated(z[:, :1]).shape == (400, 1)
    callback = CalibrateAfterTraining(MultiLabelCalibrator())
    callback._calibrate(nn.Identity(), [(z, labels)])
    assert callback.calibrated is not None
    assert callback.calibrated(z).shape == (400, 3)


def temperature(columns: int = 4) -> TemperatureScaling:
    return TemperatureScaling().fit(*tilted(columns))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_used_for_input_and_output_only(dtype: torch.dtype) -> None:
    narrow = torch.as_tensor(tilted()[0]).to(dtype)
    module = to_module(fitted("matrix"))
    assert torch.equal(module(narrow), module(narrow.double()).to(dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(module(narrow.float()), module(narrow.double()).float())


def test_one_logit_stays_one_so_that_its_sigmoid_is_the_probability() -> None:
    z = torch.linspace(-4, 4, 9)[:, None]
    calibrator = fitted("platt", 1)
    network = CalibratedNetwork(nn.Identity(), calibrator)
    assert network(z).shape == (9, 1)
    assert torch.sigmoid(network(z))[:, 0].numpy() == pytest.approx(calibrator.predict_proba(z.numpy())[:, 1], abs=1e-6)
    assert network.predict_proba(z).shape == (9, 2)


@pytest.mark.parametrize("name", ["auto", "isotonic", "matrix", "order-invariant"])
@pytest.mark.parametrize(("shape", "axis"), [((5, 7, 4), -1), ((1, 7, 4), 2), ((3, 4, 5, 2), 1), ((4, 4, 4), 1)])
@pytest.mark.parametrize("columns", [4, 1])
def test_the_classes_may_lie_on_any_axis(name: str, shape: tuple[int, ...], axis: int, columns: int) -> None:
    calibrator = fitted(name, columns)
    z = np.random.default_rng(0).normal(size=shape) * 5
    z = z if columns == 4 else z.take([0], axis=axis)
    out = to_module(calibrator, class_axis=axis)(torch.tensor(z)).numpy()
    by_row = np.moveaxis(z, axis, -1)
    expected = same_width(calibrator.transform(by_row.reshape(-1, columns)), columns).reshape(by_row.shape)
    np.testing.assert_allclose(np.moveaxis(out, axis, -1), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("z", "axis", "complaint"),
    [
        (torch.zeros(5, 7, 4), None, r"which axis of logits of shape \(5, 7, 4\) holds the classes.*pass 1 for"),
        (torch.zeros(4), None, r"which axis of logits of shape \(4,\).*one logit per row must return \(rows, 1\)"),
        (torch.zeros(5, 7, 4), 1, r"fitted on 4 logits per row; got torch.float32 of shape \(5, 7, 4\) .* axis 1"),
        (torch.zeros(5, 3), None, "fitted on 4 logits per row"),
        (torch.zeros(5, 7, 4), 3, r"class_axis must be in -3\.\.2"),
        (torch.zeros(5, 4, dtype=torch.int64), None, "got torch.int64"),
    ],
)
def test_logits_of_another_shape_are_refused(z: Tensor, axis: int | None, complaint: str) -> None:
    with pytest.raises(BadPredictions, match=complaint):
        to_module(temperature(), class_axis=axis)(z)


def test_probabilities_sum_to_one_along_the_axis_of_the_classes() -> None:
    network = CalibratedNetwork(nn.Identity(), temperature(), class_axis=1)
    p = network.predict_proba(torch.randn(2, 4, 3, 5).half())
    assert p.dtype == torch.float16
    assert p.float().sum(dim=1).numpy() == pytest.approx(1, abs=1e-2)
