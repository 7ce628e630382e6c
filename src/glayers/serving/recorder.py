"""Array expressions -> an ONNX graph: an array library that records what is to be computed instead of computing it.

The steps of a map are written against the array API. Called on a `Recorded` array, they leave a graph behind, so no
step needs code for ONNX. Parameters stay NumPy arrays: what depends on them alone is computed at once, and only what
depends on the input becomes a node. `NAMESPACE` has the functions that the steps use. A size that only the run will
know, such as the number of rows, is None in a `shape`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, defs, helper, numpy_helper
from onnx.shape_inference import infer_node_outputs

from glayers.arrays import NUMPY

OPSET = 18  # onnxruntime 1.14 and newer
_PREFIX = "calibration/"  # of all names, so that the graph can be joined with that of a network


class Graph:
    """The nodes and constants recorded so far."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, TensorProto] = {}

    def input(self, name: str, shape: Sequence[int | str | None], dtype: Any) -> "Recorded":
        """Return an array that stands for an input of the graph; a name or None stands for an unknown size."""
        return Recorded(self, name, _type_of(shape, dtype))

    def add(self, kind: str, *inputs: Any, **settings: Any) -> "Recorded":
        """Record a node, and return its output. Inputs may be constants."""
        return self.add_with_outputs(1, kind, *inputs, **settings)[0]

    def add_with_outputs(self, n_outputs: int, kind: str, *inputs: Any, **settings: Any) -> "list[Recorded]":
        """Record a node with several outputs, and return them; onnx knows their types and shapes."""
        arrays = [self._recorded(each) for each in inputs]
        name = f"{_PREFIX}{kind}_{len(self.nodes)}"
        outputs = [f"{name}_{number}" for number in range(n_outputs)]
        node = helper.make_node(kind, [array.name for array in arrays], outputs, name=name, **settings)
        types = {array.name: array.type for array in arrays}
        values = {array.name: self.constants[array.name] for array in arrays if array.name in self.constants}
        found = infer_node_outputs(defs.get_schema(kind, OPSET), node, types, values)
        self.nodes.append(node)
        return [Recorded(self, output, found[output]) for output in outputs]

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


def _elementwise(kind: str) -> Callable[..., Any]:
    """Return the function that records an element-wise node of arrays, parameters and numbers."""

    def record(*arrays: Any) -> "Recorded":
        known = next(each for each in arrays if isinstance(each, Recorded))
        return known.graph.add(kind, *(_as_type_of(known, each) for each in arrays))

    return record


def _as_type_of(known: "Recorded", array: Any) -> Any:
    """Return numbers and parameters in the type of a recorded array."""
    if isinstance(array, Recorded):
        return array
    return np.asarray(array, known.dtype)


def _swapped(kind: str) -> Callable[..., Any]:
    record = _elementwise(kind)
    return lambda second, first: record(first, second)


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
        return np.dtype(helper.tensor_dtype_to_np_dtype(self.type.tensor_type.elem_type))

    def __array_namespace__(self, api_version: str | None = None) -> Any:  # asked for by the standard
        return NAMESPACE

    __add__ = __radd__ = _elementwise("Add")
    __mul__ = __rmul__ = _elementwise("Mul")
    __sub__ = _elementwise("Sub")
    __rsub__ = _swapped("Sub")
    __truediv__ = _elementwise("Div")
    __rtruediv__ = _swapped("Div")
    __floordiv__ = _elementwise("Div")  # of whole numbers from 0: the steps divide no others
    __neg__ = _elementwise("Neg")
    __invert__ = _elementwise("Not")
    __and__ = _elementwise("And")
    __or__ = _elementwise("Or")
    __lt__ = _elementwise("Less")
    __gt__ = _elementwise("Greater")
    __le__ = _elementwise("LessOrEqual")
    __ge__ = _elementwise("GreaterOrEqual")
    __eq__ = _elementwise("Equal")
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
    def record(x: Recorded, axis: int, keepdims: bool = False) -> Recorded:
        # With a negative axis, onnxruntime returns another shape for no rows.
        return x.graph.add(kind, x, [axis % x.ndim], keepdims=int(keepdims))

    return record


def _argmax(x: Recorded, axis: int, keepdims: bool = False) -> Recorded:
    return x.graph.add("ArgMax", x, axis=axis % x.ndim, keepdims=int(keepdims))


def _where(condition: Recorded, first: Any, second: Any) -> Recorded:
    known = next(each for each in (first, second, condition) if isinstance(each, Recorded))
    return known.graph.add("Where", condition, _as_type_of(known, first), _as_type_of(known, second))


def _astype(x: Recorded, dtype: Any) -> Recorded:
    return x.graph.add("Cast", x, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _clip(x: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002  # the names of the array API
    if min is not None:
        x = NAMESPACE.maximum(x, min)
    if max is not None:
        x = NAMESPACE.minimum(x, max)
    return x


def _sorted(x: Recorded, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:  # noqa: ARG001
    """Return the sorted values and their places. Of equal values, ONNX takes the first one first."""
    return x.graph.add_with_outputs(2, "TopK", x, [x.shape[axis]], axis=axis, largest=int(descending))


def _zeros_like(x: Recorded, dtype: Any = None) -> Recorded:
    return _astype(x < x, dtype or x.dtype)


def _matmul(first: Any, second: Any) -> Recorded:
    known = first if isinstance(first, Recorded) else second
    return known.graph.add("MatMul", first, second)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": _elementwise("Abs"),
    "argmax": _argmax,
    "argsort": lambda x, **settings: _sorted(x, **settings)[1],
    "astype": _astype,
    "clip": _clip,
    "concat": lambda arrays, axis: arrays[0].graph.add("Concat", *arrays, axis=axis),
    "cumulative_sum": lambda x, axis: x.graph.add("CumSum", x, axis),
    "exp": _elementwise("Exp"),
    "expm1": lambda x: NAMESPACE.exp(x) - 1.0,  # the lost digits are too small to matter in a log-probability
    "log": _elementwise("Log"),
    "log1p": lambda x: NAMESPACE.log(1.0 + x),
    "matmul": _matmul,
    "max": _reduced("ReduceMax"),
    "maximum": _elementwise("Max"),
    "mean": _reduced("ReduceMean"),
    "minimum": _elementwise("Min"),
    "ones_like": lambda x: _zeros_like(x) + 1,
    "reshape": lambda x, shape: x.graph.add("Reshape", x, shape),
    "sort": lambda x, **settings: _sorted(x, **settings)[0],
    "sum": _reduced("ReduceSum"),
    "take": lambda x, places: places.graph.add("Gather", x, places),
    "take_along_axis": lambda x, places, axis: x.graph.add("GatherElements", x, places, axis=axis),
    "tanh": _elementwise("Tanh"),
    "where": _where,
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
