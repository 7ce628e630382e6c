"""A fitted calibrator -> an ONNX file, alone or behind a network, compared with NumPy before it is written.

The graph is recorded from the same steps that NumPy and torch run (`recorder.py`). A file whose results differ from
those of NumPy is never written.
"""

import json
import os
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import GraphProto, ModelProto, ValueInfoProto, compose, helper, version_converter

from glayers.activations import LINKS, sigmoid, softmax
from glayers.arrays import Array, to_numpy
from glayers.checks import check_choice
from glayers.errors import BadPredictions, GlayersError, shown
from glayers.files import errors_as_bad_file, file_path, write_whole
from glayers.serving.predictor import Predictor, calibrated_logits
from glayers.serving.recorder import NAMESPACE, OPSET, Graph, Recorded

IR_VERSION = 8
LOGITS, PROBABILITIES = "logits", "probabilities"
# How far probabilities may differ from those of NumPy: outputs are float32. Logits may differ by 100 times that,
# relative to the largest of the row: where one class is nearly certain, the logits of the others amplify rounding.
TOLERANCE = 1e-5
_NETWORK = "network/"  # put before the names of the network's nodes, so that they differ from ours


def export(calibrator: Predictor, path: str | os.PathLike[str], compute_dtype: str = "float64") -> None:
    """Write a calibrator to an ONNX file; `Calibrator.to_onnx` describes it."""
    graph = Graph()
    name = _input_name(calibrator)
    given = graph.input(name, ("rows", calibrator.n_features_in_), np.float32)
    outputs = _outputs(calibrator, given, compute_dtype)
    opsets = [helper.make_opsetid("", OPSET)]
    model = helper.make_model(graph.finish([given], outputs), opset_imports=opsets, ir_version=IR_VERSION)
    data = _with_facts(model, calibrator)
    session = _session(data)
    rows = _sampled_rows(calibrator).astype(np.float32)
    for block in (rows, rows[:1], rows[:0]):
        logits, p = session.run([LOGITS, PROBABILITIES], {name: block})
        _compare(calibrator, block, logits, p)
    write_whole(file_path(path), data)


def append(
    network: str | os.PathLike[str] | ModelProto,
    calibrator: Predictor,
    path: str | os.PathLike[str],
    inputs: Any,
    output: str | None = None,
    class_axis: int = 1,
    compute_dtype: str = "float64",
) -> None:
    """Write one ONNX file with a network and its calibration: inputs of the network in, calibrated probabilities out.

    The new file has the inputs of the network and three outputs: `logits` and `probabilities`, both calibrated and
    float32, and `uncalibrated_logits`. Other outputs of the network are left out.

    Parameters
    ----------
    network
        An ONNX file, or a model in memory, that returns logits. Of more than one logit per row, none may be a softmax.
    calibrator
        A calibrator, fitted on logits of this network.
    path
        Where to write the new file.
    inputs
        Example inputs: an array, or arrays by name for a network with several inputs. The new file is run on them,
        and must give what the calibrator gives for the network's logits.
    output
        The name of the network's output with the logits; not needed if there is one output.
    class_axis
        The axis of the classes: 1 for (rows, classes) and for images (rows, classes, height, width).
    compute_dtype : {"float64", "float32"}
        The precision of the calibration, as for `Calibrator.to_onnx`.

    Raises
    ------
    GlayersError
        If the network does not fit the calibrator, or if the results differ from those of NumPy. Nothing is written.

    Examples
    --------
    >>> append("network.onnx", calibrator, "calibrated.onnx", np.zeros((2, 3, 32, 32), "float32"))  # doctest: +SKIP
    """
    model = _network_of(network)
    end = _logits_output(model, output)
    sizes = [size.dim_value or size.dim_param or None for size in end.type.tensor_type.shape.dim]
    axis = class_axis % max(1, len(sizes))
    if len(sizes) < 2 or (isinstance(sizes[axis], int) and sizes[axis] != calibrator.n_features_in_):
        raise BadPredictions(
            f"the output {end.name!r} has shape {tuple(sizes)}, but the calibrator needs {calibrator.n_features_in_} "
            f"logits per row along class_axis={class_axis}"
        )
    graph = Graph()
    dtype = helper.tensor_dtype_to_np_dtype(end.type.tensor_type.elem_type)
    raw = graph.input(_NETWORK + end.name, (None,) * len(sizes), dtype)
    class_last = [each for each in range(len(sizes)) if each != axis] + [axis]
    moved = graph.add("Transpose", raw, perm=class_last)
    rows = graph.add("Reshape", moved, [-1, calibrator.n_features_in_])
    size_before = graph.add("Shape", moved, start=0, end=-1)
    outputs = {}
    for name, array in _outputs(calibrator, rows, compute_dtype).items():
        size = graph.add("Concat", size_before, [len(calibrator.classes_)], axis=0)
        restored = graph.add("Reshape", array, size)
        outputs[name] = graph.add("Transpose", restored, perm=np.argsort(class_last).tolist())
    outputs[_input_name(calibrator)] = raw
    joined = _joined(model, graph.finish([raw], outputs))
    for name, array in outputs.items():
        sizes[axis] = calibrator.n_features_in_ if array is raw else len(calibrator.classes_)
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        joined.graph.output.append(helper.make_tensor_value_info(name, kind, sizes))
    data = _with_facts(joined, calibrator)
    results = _session(data).run(list(outputs), _named(inputs, model))
    logits, p, before = (np.moveaxis(result, axis, -1).reshape(-1, result.shape[axis]) for result in results)
    _compare(calibrator, before, logits, p)
    write_whole(file_path(path), data)


def _joined(network: ModelProto, calibration: GraphProto) -> ModelProto:
    """Return a network followed by its calibration, still without outputs."""
    joined = compose.add_prefix(network, _NETWORK, rename_inputs=False)
    joined.graph.node.extend(calibration.node)
    joined.graph.initializer.extend(calibration.initializer)
    del joined.graph.output[:]
    return joined


def _outputs(calibrator: Predictor, given: Recorded, compute_dtype: str) -> dict[str, Recorded]:
    """Record the calibration of rows (n, m); the outputs are float32."""
    check_choice(compute_dtype, ("float32", "float64"), "compute_dtype")
    wide = NAMESPACE.astype(given, compute_dtype)
    logits = calibrated_logits(calibrator.map_, wide, calibrator.link)
    probabilities = LINKS[calibrator.link](logits)
    return {
        LOGITS: NAMESPACE.astype(logits, np.float32),
        PROBABILITIES: NAMESPACE.astype(probabilities, np.float32),
    }


def _with_facts(model: ModelProto, calibrator: Predictor) -> bytes:
    """Return the file: the model with the class names and the version of glayers, after a check of its form."""
    model.producer_name = "glayers"
    model.producer_version = version("glayers")
    model.metadata_props.add(key="calibrator", value=calibrator.diagnostics_.method)
    model.metadata_props.add(key="class_names", value=json.dumps(calibrator.class_names_))
    onnx.checker.check_model(model)
    return model.SerializeToString()


def _session(data: bytes) -> Any:
    """Return the file in onnxruntime, ready to run."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only, and these are raised
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _compare(calibrator: Predictor, rows: Array, logits: Array, probabilities: Array) -> None:
    """Raise an error unless the logits and probabilities of onnxruntime are those of NumPy."""
    wide = rows.astype(np.float64)
    given = wide[:, 0] if calibrator.inputs == "confidence" else wide
    expected = p = np.empty((0, len(calibrator.classes_)))
    if len(rows):
        expected = calibrator.transform(given)
        p = calibrator.predict_proba(given)
    if logits.shape != expected.shape or probabilities.shape != p.shape:
        raise GlayersError(f"not written: onnxruntime returns shape {logits.shape}, and NumPy {expected.shape}")
    largest = np.abs(np.where(np.isfinite(wide), wide, 1.0)).max(axis=1, keepdims=True, initial=1.0)
    with np.errstate(invalid="ignore"):
        off_logits = np.abs(logits - expected) / largest
    off_logits[logits == expected] = 0.0  # also of -inf
    off_p = np.abs(probabilities - p)
    if not ((off_p <= TOLERANCE).all() and (off_logits <= 100 * TOLERANCE).all()):
        raise GlayersError(
            f"not written: onnxruntime differs from NumPy by {np.max(off_p):.2g} in probability and "
            f"{np.max(off_logits):.2g} in logits, relative to the largest; allowed are {TOLERANCE:g} and "
            f'{100 * TOLERANCE:g}. Use compute_dtype="float64", which is the default'
        )


def _sampled_rows(calibrator: Predictor) -> Array:
    """Return inputs to compare: small and extreme logits, ties, and masked classes where they may occur."""
    size = calibrator.n_features_in_
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(16, size)) * scale for scale in (0.1, 3.0, 30.0, 1e3, 1e4)]
    parts.append(rng.choice([-1e4, 0.0, 1.0, 1e4], size=(16, size)))
    parts.append(np.full((1, size), 0.0))
    parts.append(np.full((1, size), 1e4))
    rows = np.concatenate(parts)
    if calibrator.inputs != "logits":
        return sigmoid(rows) if size == 1 or calibrator.link == "sigmoid" else softmax(rows)
    if size > 1 and calibrator.link == "softmax":
        hidden = np.where(rng.random((len(rows), size)) < 0.3, -np.inf, rows)
        hidden[:, 0] = rows[:, 0]  # one class stays possible
        rows = np.concatenate([rows, hidden])
    return rows


def _input_name(calibrator: Predictor) -> str:
    return f"uncalibrated_{calibrator.inputs}"


def _network_of(network: str | os.PathLike[str] | ModelProto) -> ModelProto:
    """Return the network in memory, with at least the operators of our opset."""
    if isinstance(network, ModelProto):
        model = network
    else:
        with errors_as_bad_file(network):
            model = onnx.load(network)
    if any(each.domain in ("", "ai.onnx") and each.version < OPSET for each in model.opset_import):
        return version_converter.convert_version(model, OPSET)
    return model


def _logits_output(model: ModelProto, output: str | None) -> ValueInfoProto:
    outputs = list(model.graph.output)
    if output is None and len(outputs) == 1:
        return outputs[0]
    for value in outputs:
        if value.name == output:
            return value
    names = ", ".join(repr(value.name) for value in outputs)
    raise BadPredictions(f"output must be one of {names}; got {shown(output)}")


def _named(inputs: Any, model: ModelProto) -> dict[str, Array]:
    """Return example inputs by name."""
    constants = {value.name for value in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in constants]
    given = inputs if isinstance(inputs, Mapping) else {names[0]: inputs}
    return {name: to_numpy(array, name) for name, array in given.items()}
