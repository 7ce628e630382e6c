"""Array expressions -> an ONNX graph: an array library that records what is to be computed instead of computing it.

The steps of a map are written against the array API. Called on a `Recorded` array, they leave a graph behind, so no
step needs code for ONNX. Parameters stay NumPy arrays: what depends on them alone is computed at once, and only what
depends on the input becomes a node. `NAMESPACE` has the functions that the steps use. A size that only the run will
know, such as the number of rows, is None in a `shape`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
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

    def add(self, kind: str, inputs: Sequence[Any], shape: Shape, dtype: Any, **settings: Any) -> "Recorded":
        """Record a node with one output, and return this."""
        return self.add_node(kind, inputs, [(shape, dtype)], **settings)[0]

    def add_node(
        self, kind: str, inputs: Sequence[Any], outputs: Sequence[tuple[Shape, Any]], **settings: Any
    ) -> "list[Recorded]":
        """Record a node and return its outputs, given their shapes and types. Inputs may be constants."""
        given = [each.name if isinstance(each, Recorded) else self._constant(np.asarray(each)) for each in inputs]
        names = [f"{self.prefix}{kind}_{len(self.nodes)}_{number}" for number in range(len(outputs))]
        self.nodes.append(
            helper.make_node(kind, given, names, name=f"{self.prefix}{kind}_{len(self.nodes)}", **settings)
        )
        return [
            Recorded(self, name, shape, np.dtype(dtype)) for name, (shape, dtype) in zip(names, outputs, strict=True)
        ]

    def finish(self, inputs: Sequence["Recorded"], outputs: Mapping[str, "Recorded"]) -> GraphProto:
        """Return the graph with its outputs by name; sizes that are not known are called `rows`."""
        for name, array in outputs.items():
            self.nodes.append(helper.make_node("Identity", [array.name], [name], name=f"{self.prefix}{name}"))
        ends = [_end(array.name, array) for array in inputs], [_end(*each) for each in outputs.items()]
        return helper.make_graph(self.nodes, "calibration", *ends, initializer=list(self.constants.values()))

    def _constant(self, value: Array) -> str:
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self.constants:
            self.constants[key] = numpy_helper.from_array(value, f"{self.prefix}constant_{len(self.constants)}")
        return self.constants[key].name


def _end(name: str, array: "Recorded") -> ValueInfoProto:
    sizes = ["rows" if size is None else size for size in array.shape]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), sizes)


def _broadcast(first: Shape, second: Shape) -> Shape:
    """Return the shape of two arrays together. Of a known and an unknown size, the known one is 1."""
    wide, narrow = (first, second) if len(first) >= len(second) else (second, first)
    narrow = (1,) * (len(wide) - len(narrow)) + narrow
    return tuple(a if b == 1 else b for a, b in zip(wide, narrow, strict=True))


def _elementwise(kind: str, dtype: Any = None, swapped: bool = False) -> Callable[..., Any]:
    """Return the function that records an element-wise node; its output has the type of its input, or `dtype`."""

    def record(*arrays: Any) -> "Recorded":
        known = next(each for each in arrays if isinstance(each, Recorded))
        # Numbers and parameters follow the type of the recorded array.
        same = [each if isinstance(each, Recorded) else np.asarray(each, known.dtype) for each in arrays]
        shape = reduce(_broadcast, (each.shape for each in same))
        return known.graph.add(kind, same[::-1] if swapped else same, shape, dtype or known.dtype)

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
    __sub__, __rsub__ = _elementwise("Sub"), _elementwise("Sub", swapped=True)
    __truediv__, __rtruediv__ = _elementwise("Div"), _elementwise("Div", swapped=True)
    __floordiv__ = _elementwise("Div")  # of whole numbers from 0: the steps divide no others
    __neg__, __invert__ = _elementwise("Neg"), _elementwise("Not")
    __and__, __or__ = _elementwise("And"), _elementwise("Or")
    __lt__, __gt__ = _elementwise("Less", bool), _elementwise("Greater", bool)
    __le__, __ge__ = _elementwise("LessOrEqual", bool), _elementwise("GreaterOrEqual", bool)
    __eq__ = _elementwise("Equal", bool)
    __hash__ = None  # type: ignore[assignment]  # as for any array

    def __getitem__(self, key: Any) -> "Recorded":
        """Take slices along axes of known size, and add an axis for each None."""
        keys = list(key if isinstance(key, tuple) else (key,))
        rest = keys.index(...) if ... in keys else len(keys)
        keys[rest : rest + 1] = [slice(None)] * (self.ndim - sum(isinstance(each, slice) for each in keys))
        slices = [each for each in keys if each is not None]
        cut = [axis for axis, each in enumerate(slices) if each != slice(None)]
        shape, result = list(self.shape), self
        if cut:
            ranges = [range(self.shape[axis] or 0)[slices[axis]] for axis in cut]
            for axis, kept in zip(cut, ranges, strict=True):
                shape[axis] = len(kept)
            limits = [np.array([getattr(kept, end) for kept in ranges]) for end in ("start", "stop")]
            result = self.graph.add("Slice", [self, *limits, np.array(cut)], tuple(shape), self.dtype)
        new = [place for place, each in enumerate(keys) if each is None]
        for place in new:
            shape.insert(place, 1)
        return self.graph.add("Unsqueeze", [result, np.array(new)], tuple(shape), self.dtype) if new else result


def _reduced(kind: str) -> Callable[..., Recorded]:
    def record(x: Recorded, axis: int, keepdims: bool = False) -> Recorded:
        place, settings = axis % x.ndim, {"keepdims": int(keepdims)}
        shape = (*x.shape[:place], *([1] if keepdims else []), *x.shape[place + 1 :])
        if kind == "ArgMax":
            return x.graph.add(kind, [x], shape, np.int64, axis=place, **settings)
        return x.graph.add(kind, [x, np.array([place])], shape, x.dtype, **settings)

    return record


def _where(condition: Any, first: Any, second: Any) -> Recorded:
    known = next(each for each in (first, second, condition) if isinstance(each, Recorded))
    values = [each if isinstance(each, Recorded) else np.asarray(each, known.dtype) for each in (first, second)]
    shape = reduce(_broadcast, (each.shape for each in (condition, *values)))
    return known.graph.add("Where", [condition, *values], shape, known.dtype)


def _astype(x: Recorded, dtype: Any) -> Recorded:
    if x.dtype == dtype:
        return x
    return x.graph.add("Cast", [x], x.shape, dtype, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _clip(x: Recorded, min: Any = None, max: Any = None) -> Recorded:  # noqa: A002  # the names of the array API
    raised = x if min is None else NAMESPACE.maximum(x, min)
    return raised if max is None else NAMESPACE.minimum(raised, max)


def _log1p(x: Recorded) -> Recorded:
    """Return log(1 + x) to full precision: the rounding of u = 1 + x cancels in log(u) / (u - 1)."""
    u = 1.0 + x
    exact = NAMESPACE.log(u) * (x / _where(u == 1.0, 1.0, u - 1.0))
    return _where(u == 1.0, x, exact)


def _expm1(x: Recorded) -> Recorded:
    """Return exp(x) - 1 to full precision for x <= 0, in the same way."""
    u = NAMESPACE.exp(x)
    rounded = (u == 1.0) | (u == 0.0)
    log_u = NAMESPACE.log(_where(rounded, 0.5, u))
    return _where(u == 1.0, x, (u - 1.0) * _where(rounded, 1.0, x / log_u))


def _logaddexp(first: Any, second: Any) -> Recorded:
    """Return log(exp(first) + exp(second)), also if both are -inf."""
    higher = NAMESPACE.maximum(first, second)
    gap = _where(higher == -np.inf, 0.0, NAMESPACE.abs(first - second))
    return higher + _log1p(NAMESPACE.exp(-gap))


def _sorted(x: Recorded, axis: int = -1, descending: bool = False, stable: bool = True) -> list[Recorded]:  # noqa: ARG001
    """Return the sorted values and their places. Of equal values, ONNX takes the first one first."""
    shape, size = x.shape, np.array([x.shape[axis]])
    return x.graph.add_node(
        "TopK", [x, size], [(shape, x.dtype), (shape, np.int64)], axis=axis, largest=int(descending)
    )


def _full_like(x: Recorded, value: Any, dtype: Any = None) -> Recorded:
    dtype = dtype or x.dtype
    size = x.graph.add("Shape", [x], (x.ndim,), np.int64)
    return x.graph.add("Expand", [np.asarray(value, dtype), size], x.shape, dtype)


def _concat(arrays: Sequence[Recorded], axis: int) -> Recorded:
    shape, place = list(arrays[0].shape), axis % arrays[0].ndim
    shape[place] = sum(each.shape[place] or 0 for each in arrays)
    return arrays[0].graph.add("Concat", arrays, tuple(shape), arrays[0].dtype, axis=place)


def _reshape(x: Recorded, shape: Sequence[int]) -> Recorded:
    return x.graph.add("Reshape", [x, np.array(shape)], tuple(None if size == -1 else size for size in shape), x.dtype)


def _matmul(first: Any, second: Any) -> Recorded:
    known = next(each for each in (first, second) if isinstance(each, Recorded))
    shape = (*_broadcast(first.shape[:-2], second.shape[:-2]), first.shape[-2], second.shape[-1])
    return known.graph.add("MatMul", [first, second], shape, known.dtype)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _elementwise(name.capitalize()) for name in ("abs", "exp", "log", "tanh")},
    **{name: _reduced(f"Reduce{name.capitalize()}") for name in ("max", "mean", "min", "sum")},
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
    "ones_like": partial(_full_like, value=1),
    "reshape": _reshape,
    "sort": lambda x, **settings: _sorted(x, **settings)[0],
    "take": lambda x, indices: indices.graph.add("Gather", [x, indices], indices.shape, x.dtype),
    "take_along_axis": lambda x, indices, axis: x.graph.add(
        "GatherElements", [x, indices], indices.shape, x.dtype, axis=axis
    ),
    "where": _where,
    "zeros_like": partial(_full_like, value=0),
}


def _of_any(name: str) -> Callable[..., Any]:
    """Return the function that records if an argument is recorded, and otherwise computes with NumPy."""
    compute, record = getattr(NUMPY, name), _FUNCTIONS[name]

    def function(*arrays: Any, **settings: Any) -> Any:
        flat = arrays[0] if name == "concat" else arrays
        return (record if any(isinstance(each, Recorded) for each in flat) else compute)(*arrays, **settings)

    return function


class _Namespace(SimpleNamespace):
    def __getattr__(self, name: str) -> Any:
        return getattr(NUMPY, name)  # types, constants, and functions of parameters alone


NAMESPACE = _Namespace(**{name: _of_any(name) for name in _FUNCTIONS})
