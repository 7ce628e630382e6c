"""Anything array-like -> NumPy arrays, read through the array protocols without importing the library behind them.

Also how work is cut into blocks of rows, so that large arrays are converted and computed inside the cache.
"""

import os
import sys
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any, TypeAlias, TypeVar

import array_api_compat
import numpy as np
import numpy.typing as npt

from glayers.errors import BadPredictions

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_Result = TypeVar("_Result")

# A block of this many entries is 1 MB in float64 and stays in a core's second-level cache.
BLOCK_ENTRIES = 131_072


class _NumPy:
    """What NumPy 2.0 lacks of the array API; `array_api_compat.numpy` would import all of NumPy, f2py included."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def clip(x: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002  # the names of the array API
        raised = x if min is None else np.maximum(x, min)
        return raised if max is None else np.minimum(raised, max)

    @staticmethod
    def cumulative_sum(x: Any, axis: int) -> Any:
        return np.cumsum(x, axis=axis)

    @staticmethod
    def sort(x: Any, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        if descending:
            return -np.sort(-x, axis=axis, stable=stable)
        return np.sort(x, axis=axis, stable=stable)

    @staticmethod
    def argsort(x: Any, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        return np.argsort(-x if descending else x, axis=axis, stable=stable)


NUMPY = _NumPy()


def array_namespace(array: Any) -> Any:
    """Return the functions of the array API for an array of any library; for NumPy, at little cost per call.

    >>> array_namespace(np.ones(3)).clip(np.array([-1.0, 0.5, 2.0]), min=0.0, max=1.0).tolist()
    [0.0, 0.5, 1.0]
    """
    if isinstance(array, (np.ndarray, np.generic)):  # torch.compile traces a tuple of types, but not their union
        return NUMPY
    if is_torch(array):
        import array_api_compat.torch as torch_namespace

        return torch_namespace
    return array_api_compat.array_namespace(array)


def device_of(array: Any) -> Any:
    """Return the device of an array of any library."""
    return array.device if is_torch(array) else array_api_compat.device(array)


def is_torch(array: Any) -> bool:
    """Return whether an array is a torch tensor: torch.compile traces this, but not the cached checks of others."""
    return type(array).__module__.partition(".")[0] == "torch"


def to_numpy(values: Any, name: str) -> Array:
    """Return `values` as a NumPy array, without a copy where the protocol allows it."""
    if type(values) is np.ndarray:
        return values
    rows = values if isinstance(values, list | tuple) else (values,)
    if any(isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in rows):
        raise BadPredictions(f"{name} has masked entries; drop those rows, or choose their values with .filled(value)")
    try:
        if is_torch(values):
            return _tensor_to_numpy(values.detach().cpu())
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadPredictions(
            f"{name}: a {type(values).__name__} cannot be converted to NumPy ({error}); pass something that np.asarray "
            f"accepts"
        ) from error


def _tensor_to_numpy(tensor: Any) -> Array:
    """Return a torch tensor in the memory of the processor, without its gradient."""
    try:
        return np.asarray(tensor)
    except TypeError:  # bfloat16, which NumPy lacks; float32 holds it exactly
        return np.asarray(tensor.float())


def to_numbers(values: object, name: str) -> Array:
    """Return `values` as a NumPy array; real numbers in an object array become float64."""
    array = to_numpy(values, name)
    if array.dtype != object or not all(isinstance(item, Real | np.bool_) for item in array.flat):
        return array
    try:
        return array.astype(np.float64)
    except OverflowError as error:
        raise BadPredictions(f"{name} holds a number too large for float64; scale it down") from error


def to_floats(values: object, name: str) -> Array:
    """Return `values` as float16, float32 or float64; integers and booleans become float64."""
    array = to_numbers(values, name)
    if array.dtype.kind in "iub" or array.dtype == np.longdouble:
        return array.astype(np.float64)
    if array.dtype.kind != "f":
        raise BadPredictions(
            f"{name} must be real numbers; got an array of {array.dtype}. Fill gaps and convert with .astype(float); "
            f"convert a sparse matrix with .toarray()"
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def column_names(values: object) -> tuple[str, ...] | None:
    """Return the columns of a data frame, of any library, if all of them are text.

    >>> column_names([[1.0, 2.0]]) is None
    True
    """
    names = getattr(values, "columns", None)
    if names is None or callable(names) or not all(isinstance(name, str) for name in names):
        return None
    return tuple(names) or None


def row_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Yield slices of rows that fit into the cache as float64.

    >>> list(row_blocks(5, 50_000))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, BLOCK_ENTRIES // max(1, n_columns))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def map_row_blocks(function: Callable[[slice], _Result], n_rows: int, n_columns: int) -> list[_Result]:
    """Return a function's result for each block of rows, in order, computed on all available cores.

    NumPy releases the interpreter lock while it computes. The blocks do not depend on the number of threads, so sums
    over their results do not either.

    >>> z = np.ones((5, 50_000))
    >>> map_row_blocks(lambda rows: float(z[rows].sum()), *z.shape)
    [100000.0, 100000.0, 50000.0]
    """
    blocks = list(row_blocks(n_rows, n_columns))
    n_threads = min(available_threads(), len(blocks))
    if n_threads <= 1:
        return [function(block) for block in blocks]
    from concurrent.futures import ThreadPoolExecutor  # on first use: one process in many needs it

    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(function, blocks))


def in_row_blocks(function: Callable[..., Array], *arrays: Array) -> Array:
    """Return a function of arrays (n, columns), computed for blocks of rows, so that what it allocates stays small."""
    blocks = map_row_blocks(lambda rows: function(*(each[rows] for each in arrays)), *arrays[0].shape)
    return np.concatenate(blocks or [function(*arrays)])


def kish(total: Any, squares: Any) -> Any:
    """Return the effective number of rows with this sum of weights and of squared weights; 0 without weight.

    It is total^2 / squares: that many rows of equal weight would be as informative. Kish, "Survey Sampling", 1965.
    """
    some = np.where(squares > 0, squares, 1.0)
    return np.where(squares > 0, total**2 / some, 0.0)


def effective_rows(weights: Array) -> float:
    """Return Kish's effective number of rows, or groups, with these weights.

    >>> effective_rows(np.array([2.0, 2.0, 0.0])), round(effective_rows(np.array([1.0, 10.0])), 3)
    (2.0, 1.198)
    """
    scaled = weights / (weights.max() or 1.0)  # squares of tiny weights would vanish
    return float(kish(scaled.sum(), scaled @ scaled))


def effective_units(weights: Array, groups: Array | None) -> float:
    """Return the effective number of rows with these weights, or of groups if there are any."""
    if groups is not None:
        weights = np.bincount(np.unique(groups, return_inverse=True)[1], weights)
    return effective_rows(weights)


def few_rows_note(weights: Array | None) -> str:
    """Say that rows count as fewer than ten, and as less than half, because few have most of the weight; else nothing.

    >>> few_rows_note(np.append(np.ones(99), 1e6))
    'the weights make 100 rows count as 1.0: few rows decide everything'
    """
    if weights is None:
        return ""
    n_rows = np.count_nonzero(weights)
    effective = effective_rows(weights)
    if n_rows < 10 or effective >= min(10, n_rows / 2):  # few rows, or of similar weight, are no surprise
        return ""
    return f"the weights make {n_rows:,} rows count as {effective:.1f}: few rows decide everything"


def available_threads() -> int:
    """Return the number of cores this process may use, limited by OMP_NUM_THREADS as in numerical libraries."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    if not limit.isdecimal() or int(limit) == 0:
        return cores
    return min(cores, int(limit))
