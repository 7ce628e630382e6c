"""Every map in other array libraries and file formats: the results are those of NumPy."""

from functools import partial
from pathlib import Path
from typing import Any

import array_api_strict
import numpy as np
import pytest

from glayers import CALIBRATORS, BadPredictions
from glayers.activations import softmax, with_reference_class
from tests.bridges.one_logit import same_width
from tests.contracts.calibrators import CLASSES, every_calibrator, fitted, rows
from tests.strategies import Numbers

COLUMNS = pytest.mark.parametrize("columns", [1, CLASSES])


def differ(found: Any, expected: Numbers) -> float:
    """Return the largest difference; infinities of the same sign differ by 0."""
    assert found.shape == expected.shape
    with np.errstate(invalid="ignore"):
        return float(np.where(found == expected, 0.0, np.abs(found - expected)).max(initial=0.0))


@every_calibrator
@COLUMNS
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_step_keeps_to_the_array_api(name: str, columns: int, dtype: str) -> None:
    kind = getattr(array_api_strict, dtype)
    chain = fitted(name, columns).map_.map_parameters(lambda value: array_api_strict.asarray(value, dtype=kind))
    z = rows(columns).astype(dtype)
    found = chain(array_api_strict.asarray(z))
    assert found.dtype == kind
    if dtype == "float64":
        assert differ(np.asarray(found), fitted(name, columns).map_(z)) < 1e-9


# One logit makes the steps of two classes; each kind of step once is enough.
ONE_LOGIT = ("temperature", "platt", "isotonic", "auto")


every_kind_of_step = pytest.mark.parametrize(
    ("name", "columns"), [*((name, CLASSES) for name in CALIBRATORS), *((name, 1) for name in ONE_LOGIT)]
)


@every_kind_of_step
def test_an_onnx_file_predicts_what_numpy_does(name: str, columns: int, tmp_path: Path) -> None:
    import onnxruntime

    calibrator = fitted(name, columns)
    calibrator.to_onnx(tmp_path / "g.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "g.onnx", providers=["CPUExecutionProvider"])
    run = partial(session.run, ["logits", "probabilities"])
    z = rows(columns).astype(np.float32)
    expected, largest = calibrator.transform(z), np.abs(z, where=np.isfinite(z), out=np.ones_like(z)).max(axis=1)
    for some in (slice(None), slice(1), slice(0)):
        logits, probabilities = run({"uncalibrated_logits": z[some]})
        assert probabilities.dtype == logits.dtype == np.float32
        assert differ(probabilities, softmax(expected[some])) < 1e-6
        by_row = np.maximum(1.0, largest[some, None])
        assert differ(logits / by_row, same_width(expected[some], columns) / by_row) < 1e-4
    z[3, 0], z[5, -1] = np.nan, np.inf
    broken = np.isnan(run({"uncalibrated_logits": z})[1])
    assert broken[[3, 5]].all()
    assert broken.sum() == 2 * broken.shape[1]


@every_kind_of_step
def test_a_graph_in_float64_has_the_digits_of_numpy(name: str, columns: int) -> None:
    import onnxruntime
    from onnx import helper

    from glayers.serving.onnx import OPSET, Graph
    from glayers.serving.predictor import calibrated_logits

    calibrator, z = fitted(name, columns), rows(columns)
    graph = Graph()
    given = graph.input("z", ("rows", columns), np.float64)
    outputs = {"p": softmax(calibrated_logits(calibrator.map_, given))}
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph.finish([given], outputs), opset_imports=opsets, ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert differ(session.run(["p"], {"z": z})[0], calibrator.predict_proba(z)) < 1e-12


@every_calibrator
@COLUMNS
def test_tensors_of_torch_stay_tensors_and_modules_agree(name: str, columns: int) -> None:
    import torch

    from glayers.bridges.torch import to_module

    calibrator, z = fitted(name, columns), rows(columns)
    expected, allowed = calibrator.predict_proba(z), 1e-12
    for some in (slice(None), slice(1), slice(0)):
        found = calibrator.predict_proba(torch.tensor(z[some]))
        assert isinstance(found, torch.Tensor)
        assert found.dtype == torch.float64
        assert differ(found.numpy(), expected[some]) < allowed
    assert torch.equal(calibrator.predict(torch.tensor(z)), torch.tensor(calibrator.predict(z)))
    module, narrow = to_module(calibrator), torch.tensor(z, dtype=torch.float32)
    assert differ(softmax(with_reference_class(module(torch.tensor(z)).numpy())), expected) < allowed
    wanted = calibrator.predict_proba(narrow.numpy())
    for some in (slice(None), slice(1), slice(0)):
        assert differ(module.predict_proba(narrow[some]).numpy(), wanted[some]) < 1e-6
    # Logits in float32 are rounded by 1e-7 of their size, and so are the odds of two classes.
    largest = narrow.abs().masked_fill(narrow == -torch.inf, 0).amax(dim=1, keepdim=True).numpy()
    found = softmax(with_reference_class(module(narrow).numpy()))
    assert differ(found / np.maximum(1, largest), wanted / np.maximum(1, largest)) < 1e-6


# Compiling takes seconds. array-api-strict runs every step of every calibrator.
def test_jax_compiles_the_prediction_and_keeps_its_arrays() -> None:
    import jax
    import jax.numpy as jnp

    calibrator, z = fitted("vector"), rows(CLASSES)
    with jax.enable_x64(True):
        found = jax.jit(calibrator.predict_proba)(jnp.asarray(z))
        assert isinstance(found, jax.Array)
        assert differ(np.asarray(found), calibrator.predict_proba(z)) < 1e-12
    narrow = fitted("temperature").predict_proba(jnp.asarray(z, jnp.float32))
    assert narrow.dtype == jnp.float32
    assert differ(np.asarray(narrow), fitted("temperature").predict_proba(z.astype(np.float32))) < 1e-5


def test_arrays_of_another_shape_are_refused_also_where_values_cannot_be_checked() -> None:
    import torch

    for wrong in (torch.zeros(2, 3), torch.zeros(4), torch.zeros(2, 3, 4)):
        with pytest.raises(BadPredictions, match=r"logits must have shape \(rows, 4\); got"):
            fitted("temperature").predict_proba(wrong)
    one = fitted("platt", 1)
    assert torch.equal(one.predict_proba(torch.zeros(3)), one.predict_proba(torch.zeros(3, 1)))
    bad = torch.tensor([[np.nan, 0, 0, 0], [0, np.inf, 0, 0], [-np.inf] * 4, [0, -np.inf, 0, 0]], dtype=torch.float64)
    for name in ("temperature", "isotonic"):
        assert fitted(name).predict_proba(bad).isnan().all(dim=1).tolist() == [True, True, True, False]
