"""A fitted calibrator -> an ONNX file, alone or behind a network, compared with NumPy before it is written.

The steps of a map are written against the array API. Called on a `Recorded` array, they leave a graph behind instead of
computing, so no step needs code for ONNX. Parameters stay NumPy arrays: what depends on them alone is computed at once,
and only what depends on the input becomes a node. A size that only the run will know, such as the number of rows, is
None in a `shape`. A file whose results differ from those of NumPy is never written.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, ClassVar, TypeAlias

import numpy as np
import onnx
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, compose, defs, helper, numpy_helper
from onnx.shape_inference import infer_node_outputs

from glayers.activations import LINKS, as_one_logit, sigmoid, softmax
from glayers.arrays import NUMPY, Array, to_numpy
from glayers.errors import BadPredictions, GlayersError
from glayers.files import file_path, write_whole
from glayers.serving.predictor import Predictor, calibrated_logits
from glayers.serving.sets import class_scores

OPSET = 18  # onnxruntime 1.14 and newer
LOGITS, PROBABILITIES, SET = "logits", "probabilities", "set"
# How far probabilities may differ from those of NumPy: outputs are float32. Logits may differ by 100 times that,
# relative to the largest of the row: where one class is nearly certain, the logits of the others amplify rounding.
TOLERANCE = 1e-5
_Sets: TypeAlias = tuple[str, float] | None  # the kind of prediction sets, and their threshold
_PREFIX = "calibration/"  # of all names, so that the graph can be joined with that of a network
_NETWORK = "network/"  # put before the names of the network's nodes, so that they differ from ours


def export(calibrator: Predictor, path: str | os.PathLike[str], sets: _Sets = None) -> None:
    """Write a calibrator to an ONNX file; `Calibrator.to_onnx` describes it."""
    graph = Graph()
    name = f"uncalibrated_{calibrator.inputs}"
    given = graph.input(name, ("rows", calibrator.n_features_in_), np.float32)
    outputs = _outputs(calibrator, given, sets)
    recorded = graph.finish([given], outputs)
    opsets = [helper.make_opsetid("", OPSET)]
    data, session = _finished(helper.make_model(recorded, opset_imports=opsets, ir_version=8), calibrator)
    rows = _sampled_rows(calibrator).astype(np.float32)
    for block in (rows, rows[:1], rows[:0]):
        logits, p, *in_sets = session.run(list(outputs), {name: block})
        _compare(calibrator, block, logits, p)
        if sets is not None:
            _compare_sets(calibrator.transform(block.astype(np.float64)), in_sets[0], *sets)
    write_whole(file_path(path), data)


def append(
    network: ModelProto,
    calibrator: Predictor,
    path: str | os.PathLike[str],
    inputs: Mapping[str, Any],
    class_axis: int = 1,
) -> None:
    """Write one ONNX file with a network and its calibration: inputs of the network in, calibrated probabilities out.

    The new file has the inputs of the network and three outputs: `logits` and `probabilities`, both calibrated and
    float32, and `uncalibrated_logits`. Other outputs of the network are left out.

    Parameters
    ----------
    network
        A model of opset 18 or newer, such as `onnx.load(path)`. Its first output must be logits, without a softmax.
    calibrator
        A calibrator, fitted on logits of this network.
    path
        Where to write the new file.
    inputs
        Example inputs, arrays by name. The new file is run on them, and must give what the calibrator gives for the
        network's logits.
    class_axis
        The axis of the classes: 1 for (rows, classes) and for images (rows, classes, height, width).

    Raises
    ------
    GlayersError
        If the network does not fit the calibrator, or if the results differ from those of NumPy. Nothing is written.

    Examples
    --------
    >>> images = np.zeros((2, 3, 32, 32), "float32")
    >>> append(onnx.load("network.onnx"), calibrator, "calibrated.onnx", {"images": images})  # doctest: +SKIP
    """
    end = network.graph.output[0]
    sizes = [size.dim_value or size.dim_param or None for size in end.type.tensor_type.shape.dim]
    n_logits = calibrator.n_features_in_
    axis = class_axis % max(1, len(sizes))
    if len(sizes) < 2 or (isinstance(sizes[axis], int) and sizes[axis] != n_logits):
        raise BadPredictions(
            f"the output {end.name!r} has shape {tuple(sizes)}, but the calibrator needs {n_logits} logits per row "
            f"along class_axis={class_axis}"
        )
    graph = Graph()
    dtype = helper.tensor_dtype_to_np_dtype(end.type.tensor_type.elem_type)
    raw = graph.input(_NETWORK + end.name, (None,) * len(sizes), dtype)
    class_last = [each for each in range(len(sizes)) if each != axis] + [axis]
    moved = graph.add("Transpose", raw, perm=class_last)
    rows = graph.add("Reshape", moved, [-1, n_logits])
    size_before = graph.add("Shape", moved, start=0, end=-1)
    outputs = {}
    calibrated = _outputs(calibrator, rows)
    for name, array in calibrated.items():
        size = graph.add("Concat", size_before, [array.shape[-1]], axis=0)
        restored = graph.add("Reshape", array, size)
        outputs[name] = graph.add("Transpose", restored, perm=np.argsort(class_last).tolist())
    outputs[f"uncalibrated_{calibrator.inputs}"] = raw
    calibration = graph.finish([raw], outputs)
    joined = compose.add_prefix(network, _NETWORK, rename_inputs=False)
    joined.graph.node.extend(calibration.node)
    joined.graph.initializer.extend(calibration.initializer)
    del joined.graph.output[:]
    for name, array in outputs.items():
        sizes[axis] = n_logits if array is raw else calibrated[name].shape[-1]
        kind = helper.np_dtype_to_tensor_dtype(array.dtype)
        joined.graph.output.append(helper.make_tensor_value_info(name, kind, sizes))
    data, session = _finished(joined, calibrator)
    results = session.run(list(outputs), {name: to_numpy(array, name) for name, array in inputs.items()})
    logits, p, before = (np.moveaxis(result, axis, -1).reshape(-1, result.shape[axis]) for result in results)
    _compare(calibrator, before, logits, p)
    write_whole(file_path(path), data)


def _outputs(calibrator: Predictor, given: "Recorded", sets: _Sets = None) -> dict[str, Any]:
    """Record the calibration of rows (n, m), and sets if asked for: float64 in between, float32 at the end."""
    wide = NAMESPACE.astype(given, np.float64)
    logits = calibrated_logits(calibrator.map_, wide, calibrator.link)
    probabilities = LINKS[calibrator.link](logits)
    one_logit = calibrator.n_features_in_ == 1
    outputs = {
        LOGITS: NAMESPACE.astype(as_one_logit(logits) if one_logit else logits, np.float32),
        PROBABILITIES: NAMESPACE.astype(probabilities, np.float32),
    }
    if sets is not None:
        kind, threshold = sets
        outputs[SET] = class_scores(logits, kind) >= threshold
    return outputs


def _finished(model: ModelProto, calibrator: Predictor) -> tuple[bytes, Any]:
    """Return the file, with the class names and the version of glayers, and a session of onnxruntime that runs it."""
    model.producer_name = "glayers"
    model.producer_version = version("glayers")
    model.metadata_props.add(key="calibrator", value=calibrator.diagnostics_.method)
    model.metadata_props.add(key="class_names", value=json.dumps(calibrator.class_names_))
    onnx.checker.check_model(model)
    data = model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors only, and these are raised
    return data, onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _compare(calibrator: Predictor, rows: Array, logits: Array, probabilities: Array) -> None:
    """Raise an error unless the logits and probabilities of onnxruntime are those of NumPy."""
    given = rows.astype(np.float64)
    if calibrator.inputs == "confidence" and len(given):
        given = given[:, 0]
    expected = calibrator.transform(given)
    if calibrator.n_features_in_ == 1:
        expected = as_one_logit(expected)
    p = calibrator.predict_proba(given)
    if logits.shape != expected.shape or probabilities.shape != p.shape:
        raise GlayersError(f"not written: onnxruntime returns shape {logits.shape}, and NumPy {expected.shape}")
    largest = np.abs(np.where(np.isfinite(rows), rows, 1.0)).max(axis=1, keepdims=True, initial=1.0)
    close_p = np.allclose(probabilities, p, rtol=0.0, atol=TOLERANCE)
    if not close_p or not np.allclose(logits / largest, expected / largest, rtol=0.0, atol=100 * TOLERANCE):
        raise GlayersError(
            f"not written: onnxruntime differs from NumPy by {np.abs(probabilities - p).max():.2g} in probability; "
            f"allowed are {TOLERANCE:g}, and {100 * TOLERANCE:g} in logits, relative to the largest of the row"
        )


def _compare_sets(logits: Array, found: Array, kind: str, threshold: float) -> None:
    """Raise an error unless the sets of onnxruntime are those of NumPy, except at the very threshold."""
    scores = class_scores(logits, kind)
    differ = found != (scores >= threshold)
    if not (np.abs(np.exp(scores[differ]) - np.exp(threshold)) <= TOLERANCE).all():
        raise GlayersError("not written: the prediction sets of onnxruntime differ from those of NumPy")


def _sampled_rows(calibrator: Predictor) -> Array:
    """Return inputs to compare: small and extreme logits, ties, and masked classes where they may occur."""
    size = calibrator.n_features_in_
    rng = np.random.default_rng(0)
    small = [rng.normal(size=(16, size)) * scale for scale in (0.1, 3.0, 30.0, 1e3, 1e4)]
    ties = rng.choice([-1e4, 0.0, 1.0, 1e4], size=(16, size))
    rows = np.concatenate([*small, ties, np.zeros((1, size))])
    if calibrator.inputs != "logits":
        return sigmoid(rows) if size == 1 or calibrator.link == "sigmoid" else softmax(rows)
    if size > 1 and calibrator.link == "softmax":
        hidden = np.where(rng.random(rows.shape) < 0.3, -np.inf, rows)
        hidden[:, 0] = rows[:, 0]  # one class stays possible
        rows = np.concatenate([rows, hidden])
    return rows


class Graph:
    """The nodes and constants recorded so far."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}

    def input(self, name: str, shape: Sequence[int | str | None], dtype: Any) -> "Recorded":
        """Return an array that stands for an input of the graph; a name or None stands for an unknown size."""
        return Recorded(self, name, _type_of(shape, dtype))

    def add(self, kind: str, *inputs: Any, output: int = 0, **settings: Any) -> "Recorded":
        """Record a node, and return one of its outputs, whose type and shape onnx knows. Inputs may be constants."""
        arrays = [self._recorded(each) for each in inputs]
        name = f"{_PREFIX}{kind}_{len(self.nodes)}"
        outputs = [f"{name}_{number}" for number in range(defs.get_schema(kind, OPSET).min_output)]
        node = helper.make_node(kind, [array.name for array in arrays], outputs, name=name, **settings)
        types = {array.name: array.type for array in arrays}
        values = {array.name: self.constants[array.name] for array in arrays if array.name in self.constants}
        found = infer_node_outputs(defs.get_schema(kind, OPSET), node, types, values)
        self.nodes.append(node)
        return Recorded(self, outputs[output], found[outputs[output]])

    def finish(self, inputs: Sequence["Recorded"], outputs: Mapping[str, "Recorded"]) -> GraphProto:
        """Return the graph with its outputs by name."""
        for name, array in outputs.items():
            self.nodes.append(helper.make_node("Identity", [array.name], [name], name=_PREFIX + name))
        starts = [helper.make_value_info(array.name, array.type) for array in inputs]
        ends = [helper.make_value_info(name, array.type) for name, array in outputs.items()]
        return helper.make_graph(self.nodes, "calibration", starts, ends, initializer=list(self.constants.values()))

    def _recorded(self, array: Any) -> "Recorded":
        """Return a recorded array, or a constant of the graph."""
        if isinstance(array, Recorded):
            return array
        value = np.asarray(array)
        name = f"{_PREFIX}constant_{len(self.constants)}"
        self.constants[name] = numpy_helper.from_array(value, name)
        return Recorded(self, name, _type_of(value.shape, value.dtype))


def _type_of(shape: Sequence[int | str | None], dtype: Any) -> TypeProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    return helper.make_tensor_type_proto(kind, shape)


def _swapped(record: Callable[..., Any]) -> Callable[..., Any]:
    return lambda second, first: record(first, second)


def _node(kind: str) -> Callable[..., Any]:
    """Return the function that records a node of arrays, and of parameters and numbers in the type of these."""

    def record(*arrays: Any) -> "Recorded":
        *_, known = (each for each in arrays if isinstance(each, Recorded))  # the first one may be a condition
        typed = []
        for each in arrays:
            is_number = not isinstance(each, Recorded) and np.asarray(each).dtype != bool
            typed.append(np.asarray(each, known.dtype) if is_number else each)
        return known.graph.add(kind, *typed)

    return record


@dataclass(frozen=True, eq=False)
class Recorded:
    """An array whose entries are not known yet: an input of the graph, or the output of a node."""

    graph: Graph
    name: str
    type: TypeProto
    device: ClassVar[str] = "cpu"
    __array_ufunc__: ClassVar[None] = None  # so NumPy leaves `parameter * recorded` to this class

    @property
    def shape(self) -> tuple[int | None, ...]:
        """The sizes of the axes; None where only the run will know."""
        sizes = self.type.tensor_type.shape.dim
        return tuple(size.dim_value if size.HasField("dim_value") else None for size in sizes)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> "np.dtype[Any]":
        """The type of the entries."""
        return helper.tensor_dtype_to_np_dtype(self.type.tensor_type.elem_type)

    def __array_namespace__(self, api_version: str | None = None) -> Any:  # asked for by the standard
        return NAMESPACE

    __add__ = __radd__ = _node("Add")
    __mul__ = __rmul__ = _node("Mul")
    __sub__ = _node("Sub")
    __rsub__ = _swapped(__sub__)
    __truediv__ = _node("Div")
    __rtruediv__ = _swapped(__truediv__)
    __neg__ = _node("Neg")
    __invert__ = _node("Not")
    __and__ = _node("And")
    __or__ = _node("Or")
    __lt__ = _node("Less")
    __gt__ = _node("Greater")
    __le__ = _node("LessOrEqual")
    __ge__ = _node("GreaterOrEqual")
    __eq__ = _node("Equal")
    __hash__ = None  # type: ignore[assignment]  # as for any array

    def __getitem__(self, key: Any) -> "Recorded":
        """Take a slice of the last axis, `[..., 1:]`, or put an axis before all others, `[None, ...]`."""
        if key == (None, ...):
            return self.graph.add("Unsqueeze", self, [0])
        if type(key) is not tuple or key[0] is not ... or len(key) != 2:
            raise NotImplementedError(f"the index {key} is not recorded, only [..., start:stop] and [None, ...]")
        start, stop, _ = key[1].indices(self.shape[-1])
        return self.graph.add("Slice", self, [start], [stop], [self.ndim - 1])


def _reduced(kind: str) -> Callable[..., Any]:
    # With a negative axis, onnxruntime returns another shape for no rows.
    return lambda x, axis, keepdims=False: x.graph.add(kind, x, [axis % x.ndim], keepdims=int(keepdims))


def _astype(x: Recorded, dtype: Any) -> Recorded:
    return x.graph.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _clip(x: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002  # the names of the array API
    raised = x if min is None else NAMESPACE.maximum(x, min)
    return raised if max is None else NAMESPACE.minimum(raised, max)


def _sorted(output: int) -> Callable[..., Any]:
    """Return the function that records sorted values, or their places. Of equal ones, ONNX takes the first first."""
    return lambda x, axis=-1, descending=False, stable=True: x.graph.add(  # noqa: ARG005
        "TopK", x, [x.shape[axis]], output=output, axis=axis, largest=int(descending)
    )


def _zeros_like(x: Recorded, dtype: Any = None) -> Recorded:
    return _astype(x < x, dtype or x.dtype)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": _node("Abs"),
    "argmax": lambda x, axis, keepdims=False: x.graph.add("ArgMax", x, axis=axis % x.ndim, keepdims=int(keepdims)),
    "argsort": _sorted(output=1),
    "astype": _astype,
    "clip": _clip,
    "concat": lambda arrays, axis: arrays[0].graph.add("Concat", *arrays, axis=axis),
    "cumulative_sum": lambda x, axis: x.graph.add("CumSum", x, axis),
    "exp": _node("Exp"),
    "expm1": lambda x: NAMESPACE.exp(x) - 1.0,  # the lost digits are too small to matter in a log-probability
    "log": _node("Log"),
    "log1p": lambda x: NAMESPACE.log(1.0 + x),
    "matmul": _node("MatMul"),
    "max": _reduced("ReduceMax"),
    "maximum": _node("Max"),
    "mean": _reduced("ReduceMean"),
    "minimum": _node("Min"),
    "ones_like": lambda x: _zeros_like(x) + 1,
    "reshape": lambda x, shape: x.graph.add("Reshape", x, shape),
    "sort": _sorted(output=0),
    "sum": _reduced("ReduceSum"),
    "take": lambda x, places: places.graph.add("Gather", x, places),
    "take_along_axis": lambda x, places, axis: x.graph.add("GatherElements", x, places, axis=axis),
    "tanh": _node("Tanh"),
    "where": _node("Where"),
    "zeros_like": _zeros_like,
}


class _Namespace:
    """The functions of the array API: they record if an argument is recorded, and otherwise compute with NumPy."""

    def __getattr__(self, name: str) -> Any:
        if name not in _FUNCTIONS:
            return getattr(NUMPY, name)  # types, constants, and functions of parameters alone

        def function(*arrays: Any, **settings: Any) -> Any:
            given = arrays[0] if name == "concat" else arrays
            if any(isinstance(each, Recorded) for each in given):
                return _FUNCTIONS[name](*arrays, **settings)
            return getattr(NUMPY, name)(*arrays, **settings)

        return function


NAMESPACE: Any = _Namespace()
