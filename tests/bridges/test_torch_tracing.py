"""torch.export, torch.compile and torch.jit.trace accept every calibrator and give the numbers of NumPy."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from glayers import CALIBRATORS, TemperatureScaling
from glayers.bridges.torch import CalibratedNetwork, chain_module, to_module
from glayers.calibrators import Calibrator
from glayers.maps import Chain
from glayers.maps.corrections import Corrected, Shared
from tests.bridges.one_logit import same_width
from tests.contracts.calibrators import CLASSES, every_calibrator, fitted, tilted
from tests.strategies import Numbers

Traced = Callable[[torch.Tensor], torch.Tensor]
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.trace:DeprecationWarning", "ignore::torch.jit.TracerWarning")


def hard_rows(columns: int = CLASSES) -> Numbers:
    """Random logits up to 1e4, ties and integers."""
    rng = np.random.default_rng(0)
    random = [rng.normal(size=(20, columns)) * scale for scale in (0.1, 3, 100, 3e3)]
    return np.clip(np.concatenate([*random, rng.integers(-1, 2, (20, columns)), np.zeros((1, columns))]), -1e4, 1e4)


EVERY_SIZE = (slice(None), slice(1), slice(0))


def check(calibrator: Calibrator, module: Traced, dtype: torch.dtype, sizes: Sequence[slice] = EVERY_SIZE) -> None:
    """Compare with NumPy, and on one row and none."""
    z = torch.tensor(hard_rows(calibrator.n_features_in_), dtype=dtype)
    expected = same_width(calibrator.transform(z.double().numpy()), calibrator.n_features_in_)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    for rows in sizes:
        found = module(z[rows])
        assert found.dtype == dtype
        np.testing.assert_allclose(found.numpy(), expected[rows], rtol=tolerance, atol=tolerance)


def traced(module: nn.Module, example: torch.Tensor) -> Traced:
    made: Traced = torch.jit.trace(module, example)  # type: ignore[no-untyped-call]
    return made


@every_calibrator
@pytest.mark.parametrize("columns", [CLASSES, 1])
def test_modules_give_the_numbers_of_numpy(name: str, columns: int) -> None:
    module = to_module(fitted(name, columns))
    for dtype in (torch.float64, torch.float32):
        check(fitted(name, columns), module, dtype)


def exported(module: nn.Module, columns: int, dtype: torch.dtype = torch.float64) -> Traced:
    program = torch.export.export(
        module, (torch.zeros(3, columns, dtype=dtype),), dynamic_shapes=({0: torch.export.Dim("rows")},)
    )
    return program.module()


def kinds(chain: Chain) -> Iterator[str]:
    """The names of all steps of a chain."""
    for step in chain.steps:
        yield type(step).__name__
        for branch in step.chains():
            yield from kinds(branch)


# Tracing, exporting and compiling take long. These few contain every step of every calibrator.
ALL_STEPS = ["auto", "g-layers", "vector", "order-invariant", "platt", "quadratic"]
ALL_STEPS += ["isotonic"]


@pytest.mark.parametrize("columns", [CLASSES, 1])
def test_the_traced_exported_and_compiled_calibrators_contain_every_step(columns: int) -> None:
    seen = {kind for name in ALL_STEPS for kind in kinds(fitted(name, columns).map_)}
    assert {kind for name in CALIBRATORS for kind in kinds(fitted(name, columns).map_)} <= seen


@pytest.mark.parametrize("name", ALL_STEPS)
@pytest.mark.parametrize(("columns", "dtype"), [(CLASSES, torch.float64), (1, torch.float32)])
def test_traces_give_the_numbers_of_numpy(name: str, columns: int, dtype: torch.dtype) -> None:
    example = torch.zeros(3, columns, dtype=dtype)
    check(fitted(name, columns), traced(to_module(fitted(name, columns)), example), dtype)


@pytest.mark.parametrize("name", ALL_STEPS)
def test_exported_programs_give_the_numbers_of_numpy_for_any_number_of_rows(name: str) -> None:
    check(fitted(name), exported(to_module(fitted(name)), CLASSES), torch.float64)


@pytest.mark.parametrize("columns", [1, CLASSES])
def test_exported_programs_take_narrow_types_and_one_logit(columns: int) -> None:
    calibrator = fitted("shared-g-layers", columns)
    check(calibrator, exported(to_module(calibrator), columns, torch.float32), torch.float32)


@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a .functools.lru_cache:UserWarning")  # cumulative sums
@pytest.mark.parametrize("name", ALL_STEPS)
def test_compiled_modules_give_the_numbers_of_numpy(name: str) -> None:
    torch.compiler.reset()
    module = to_module(fitted(name))
    # One graph without a break; the default backend would need a C++ compiler.
    # Another number of rows would be compiled anew: only one calibrator is tried with one row and with none.
    sizes = EVERY_SIZE if name == "vector" else EVERY_SIZE[:1]
    check(fitted(name), torch.compile(module, backend="eager", fullgraph=True), torch.float64, sizes)


def test_a_whole_network_is_exported_compiled_and_traced_with_its_g() -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    network = nn.Sequential(nn.Conv2d(2, CLASSES, 3, padding=1))
    calibrated = CalibratedNetwork(network, TemperatureScaling().fit(*tilted()), class_axis=1).eval()
    images: Any = torch.randn(2, 2, 5, 6)
    dynamic = ({0: torch.export.Dim("images"), 2: torch.export.Dim("height", min=3)},)
    program = torch.export.export(calibrated, (images,), dynamic_shapes={"inputs": dynamic})
    other = torch.randn(3, 2, 7, 6)
    for made in (
        program.module(),
        traced(calibrated, images),
        torch.compile(calibrated, backend="aot_eager"),
    ):
        torch.testing.assert_close(made(other), calibrated(other))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_the_exporter_of_torch_translates_the_sort_of_the_shared_correction_to_onnx() -> None:
    rng = np.random.default_rng(0)
    step = Corrected((Chain((Shared(rng.normal(size=(7, 5)) / 10, np.zeros(4), np.ones(4)),)),))
    program = torch.onnx.export(
        chain_module(Chain((step,))),
        (torch.zeros(3, CLASSES, dtype=torch.float64),),
        dynamo=True,
        verbose=False,
        dynamic_shapes=({0: torch.export.Dim("rows")},),
    )
    assert program is not None
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString())
    z = hard_rows()
    (found,) = session.run(None, {session.get_inputs()[0].name: z})
    np.testing.assert_allclose(found, step(z), rtol=1e-8, atol=1e-8)
