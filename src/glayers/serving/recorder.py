"""Array expressions -> an ONNX graph: an array library that records what is to be computed instead of computing it.

The steps of a map are written against the array API. Called on a `Recorded` array, they leave a graph behind, so no
step needs code for ONNX. Parameters stay NumPy arrays: what depends on them alone is computed at once, and only what
depends on the input becomes a node. `NAMESPACE` has the functions that the steps use. A size that only the run will
know, such as the number of rows, is None in a `shape`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, TypeAlias

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from glayers.arrays import NUMPY, Array

Shape: TypeAlias = tuple[int | None, ...]


@dataclass
class Graph:
    """The nodes and constants recorded so far. Their names begin with `prefix`, so that graphs can be joined."""

    prefix: str = "calibration/"
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[tuple[Any, ...], TensorProto] = field(default_factory=dict)

    def input(self, name: str, shape: Shape, dtype: Any) -> "Recorded":
        """Return an array that stands for an input of the graph."""
        return Recorded(self, name, shape, np.dtype(dtype))

    def add(self, kind: str, inputs: Sequence[Any], shape: Shape, *dtypes: Any, **settings: Any) -> Any:
        """Record a node, and return its output; for several types, a list of outputs. Inputs may be constants."""
        own_name = f"{self.prefix}{kind}_{len(self.nodes)}"
        outputs = [self.input(f"{own_name}_{number}", shape, dtype) for number, dtype in enumerate(dtypes)]
        names = [each.name if isinstance(each, Recorded) else self._constant(np.asarray(each)) for each in inputs]
        self.nodes.append(helper.make_node(kind, names, [each.name for each in outputs], name=own_name, **settings))
        return outputs[0] if len(outputs) == 1 else outputs

    def finish(self, inputs: Sequence["Recorded"], outputs: Mapping[str, "Recorded"]) -> GraphProto:
        """Return the graph with its outputs by name; sizes that are not known are called `rows`."""
        for name, array in outputs.items():
            self.nodes.append(helper.make_node("Identity", [array.name], [name], name=f"{self.prefix}{name}"))
        starts = [_described(array.name, array) for array in inputs]
        ends = [_described(name, array) for name, array in outputs.items()]
        return helper.make_graph(self.nodes, "calibration", starts, ends, initializer=list(self.constants.values()))

    def _constant(self, value: Array) -> str:
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(value, f"{self.prefix}constant_{len(self.constants)}")
        return self.constants[key].name


def _described(name: str, array: "Recorded") -> ValueInfoProto:
    sizes = ["rows" if size is None else size for size in array.shape]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), sizes)


def _broadcast(*shapes: Shape) -> Shape:
    """Return the shape of several arrays together. Of a known and an unknown size, the known one is 1."""
    n_axes = max(map(len, shapes))
    result: list[int | None] = [1] * n_axes
    for shape in shapes:
        for place, size in enumerate(shape, n_axes - len(shape)):
            if size != 1:
                result[place] = size
    return tuple(result)


def _as_type_of(known: "Recorded", array: Any) -> Any:
    """Return numbers and parameters in the type of a recorded array."""
    return array if isinstance(array, Recorded) else np.asarray(array, known.dtype)


def _elementwise(kind: str, dtype: Any = None, swapped: bool = False) -> Callable[..., Any]:
    """Return the function that records an element-wise node; its output has the type of its input, or `dtype`."""

    def record(*arrays: Any) -> "Recorded":
        known = next(each for each in arrays if isinstance(each, Recorded))
        same = [_as_type_of(known, each) for each in arrays]
        if swapped:
            same.reverse()
        shape = _broadcast(*(each.shape for each in same))
        return known.graph.add(kind, same, shape, dtype or known.dtype)

    return record


@dataclass(frozen=True, eq=False)
class Recorded:
    """An array whose entries are not known yet: an input of the graph, or the output of a node."""

    graph: Graph
    name: str
    shape: Shape
    dtype: np.dtype[Any]
    device: ClassVar[str] = "cpu"
    __array_ufunc__: ClassVar[None] = None  # so NumPy leaves `parameter * recorded` to this class

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __array_namespace__(self, api_version: str | None = None) -> Any:  # asked for by the standard
        return NAMESPACE

    __add__ = __radd__ = _elementwise("Add")
    __mul__ = __rmul__ = _elementwise("Mul")
    __sub__ = _elementwise("Sub")
    __rsub__ = _elementwise("Sub", swapped=True)
    __truediv__ = _elementwise("Div")
    __rtruediv__ = _elementwise("Div", swapped=True)
    __floordiv__ = _elementwise("Div")  # of whole numbers from 0: the steps divide no others
    __neg__ = _elementwise("Neg")
    __invert__ = _elementwise("Not")
    __and__ = _elementwise("And")
    __or__ = _elementwise("Or")
    __lt__ = _elementwise("Less", bool)
    __gt__ = _elementwise("Greater", bool)
    __le__ = _elementwise("LessOrEqual", bool)
    __ge__ = _elementwise("GreaterOrEqual", bool)
    __eq__ = _elementwise("Equal", bool)
    __hash__ = None  # type: ignore[assignment]  # as for any array

    def __getitem__(self, key: Any) -> "Recorded":
        """Take slices along axes of known size, and add an axis for each None."""
        keys = list(key) if isinstance(key, tuple) else [key]
        n_slices = sum(isinstance(each, slice) for each in keys)
        rest = keys.index(...) if ... in keys else len(keys)
        keys[rest : rest + 1] = [slice(None)] * (self.ndim - n_slices)
        result = self
        axis = 0
        for place, each in enumerate(keys):
            if each is None:
                shape = (*result.shape[:place], 1, *result.shape[place:])
                result = self.graph.add("Unsqueeze", [result, np.array([place])], shape, self.dtype)
            elif each != slice(None):
                kept = range(self.shape[axis] or 0)[each]
                shape = (*result.shape[:place], len(kept), *result.shape[place + 1 :])
                limits = [np.array([kept.start]), np.array([kept.stop]), np.array([place])]
                result = self.graph.add("Slice", [result, *limits], shape, self.dtype)
            if each is not None:
                axis += 1
        return result


def _reduced(kind: str) -> Callable[..., Any]:
    def record(x: Recorded, axis: int, keepdims: bool = False) -> Any:
        place = axis % x.ndim  # with a negative axis, onnxruntime returns another shape for no rows
        shape = (*x.shape[:place], *([1] if keepdims else []), *x.shape[place + 1 :])
        if kind == "ArgMax":
            return x.graph.add(kind, [x], shape, np.int64, axis=place, keepdims=int(keepdims))
        return x.graph.add(kind, [x, np.array([place])], shape, x.dtype, keepdims=int(keepdims))

    return record


def _where(condition: Any, first: Any, second: Any) -> Any:
    known = next(each for each in (first, second, condition) if isinstance(each, Recorded))
    first = _as_type_of(known, first)
    second = _as_type_of(known, second)
    shape = _broadcast(condition.shape, first.shape, second.shape)
    return known.graph.add("Where", [condition, first, second], shape, known.dtype)


def _astype(x: Recorded, dtype: Any) -> Any:
    if x.dtype == dtype:
        return x
    return x.graph.add("Cast", [x], x.shape, dtype, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _clip(x: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002  # the names of the array API
    if min is not None:
        x = NAMESPACE.maximum(x, min)
    if max is not None:
        x = NAMESPACE.minimum(x, max)
    return x


def _log1p(x: Recorded) -> Any:
    """Return log(1 + x) to full precision: the rounding of u = 1 + x cancels in log(u) / (u - 1)."""
    u = 1.0 + x
    exact = NAMESPACE.log(u) * (x / _where(u == 1.0, 1.0, u - 1.0))
    return _where(u == 1.0, x, exact)


def _expm1(x: Recorded) -> Any:
    """Return exp(x) - 1 to full precision for x <= 0, in the same way."""
    u = NAMESPACE.exp(x)
    rounded = (u == 1.0) | (u == 0.0)
    log_u = NAMESPACE.log(_where(rounded, 0.5, u))
    return _where(u == 1.0, x, (u - 1.0) * _where(rounded, 1.0, x / log_u))


def _logaddexp(first: Any, second: Any) -> Any:
    """Return log(exp(first) + exp(second)), also if both are -inf."""
    higher = NAMESPACE.maximum(first, second)
    gap = _where(higher == -np.inf, 0.0, NAMESPACE.abs(first - second))
    return higher + _log1p(NAMESPACE.exp(-gap))


def _sorted(x: Recorded, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:  # noqa: ARG001
    """Return the sorted values and their places. Of equal values, ONNX takes the first one first."""
    size = np.array([x.shape[axis]])
    return x.graph.add("TopK", [x, size], x.shape, x.dtype, np.int64, axis=axis, largest=int(descending))


def _zeros_like(x: Recorded, dtype: Any = None) -> Any:
    dtype = dtype or x.dtype
    size = x.graph.add("Shape", [x], (x.ndim,), np.int64)
    return x.graph.add("Expand", [np.asarray(0, dtype), size], x.shape, dtype)


def _concat(arrays: Sequence[Recorded], axis: int) -> Any:
    place = axis % arrays[0].ndim
    shape = list(arrays[0].shape)
    shape[place] = sum(each.shape[place] or 0 for each in arrays)
    return arrays[0].graph.add("Concat", arrays, tuple(shape), arrays[0].dtype, axis=place)


def _reshape(x: Recorded, shape: Sequence[int]) -> Any:
    known = tuple(None if size == -1 else size for size in shape)
    return x.graph.add("Reshape", [x, np.array(shape)], known, x.dtype)


def _matmul(first: Any, second: Any) -> Any:
    known = first if isinstance(first, Recorded) else second
    shape = (*_broadcast(first.shape[:-2], second.shape[:-2]), first.shape[-2], second.shape[-1])
    return known.graph.add("MatMul", [first, second], shape, known.dtype)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _elementwise(name.capitalize()) for name in ("abs", "exp", "log", "tanh")},
    **{name: _reduced(f"Reduce{name.capitalize()}") for name in ("max", "mean", "sum")},
    "argmax": _reduced("ArgMax"),
    "argsort": lambda x, **settings: _sorted(x, **settings)[1],
    "astype": _astype,
    "clip": _clip,
    "concat": _concat,
    "cumulative_sum": lambda x, axis: x.graph.add("CumSum", [x, np.array(axis)], x.shape, x.dtype),
    "expm1": _expm1,
    "log1p": _log1p,
    "logaddexp": _logaddexp,
    "matmul": _matmul,
    "maximum": _elementwise("Max"),
    "minimum": _elementwise("Min"),
    "ones_like": lambda x: _zeros_like(x) + 1,
    "reshape": _reshape,
    "sort": lambda x, **settings: _sorted(x, **settings)[0],
    "take": lambda x, places: places.graph.add("Gather", [x, places], places.shape, x.dtype),
    "take_along_axis": lambda x, places, axis: x.graph.add(
        "GatherElements", [x, places], places.shape, x.dtype, axis=axis
    ),
    "where": _where,
    "zeros_like": _zeros_like,
}


def _of_any(name: str) -> Callable[..., Any]:
    """Return the function that records if an argument is recorded, and otherwise computes with NumPy."""

    def function(*arrays: Any, **settings: Any) -> Any:
        flat = arrays[0] if name == "concat" else arrays
        if any(isinstance(each, Recorded) for each in flat):
            return _FUNCTIONS[name](*arrays, **settings)
        return getattr(NUMPY, name)(*arrays, **settings)

    return function


class _Namespace(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        return getattr(NUMPY, name)  # types, constants, and functions of parameters alone


NAMESPACE = _Namespace(**{name: _of_any(name) for name in _FUNCTIONS})
