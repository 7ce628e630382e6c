"""Anything array-like -> checked NumPy arrays, through the array protocols, never importing where they came from."""

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from numbers import Real
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from glayers.errors import BadPredictions

Array: TypeAlias = npt.NDArray[Any]
Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

_Result = TypeVar("_Result")

# A block of this many entries is 1 MB in float64 and stays in a core's second-level cache.
_BLOCK_ENTRIES = 131_072


@runtime_checkable
class _Tensor(Protocol):
    """The part of a torch tensor that leads to NumPy from any device, with or without a gradient."""

    def detach(self) -> "_Tensor": ...
    def cpu(self) -> "_Tensor": ...
    def float(self) -> "_Tensor": ...


def to_numpy(values: object, name: str) -> Array:
    """Return `values` as a NumPy array, without a copy where the protocol allows it."""
    _refuse_masked(values, name)
    try:
        if isinstance(values, _Tensor):
            return _tensor_to_numpy(values.detach().cpu())
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadPredictions(
            f"{name}: a {type(values).__name__} does not turn into a NumPy array ({error}); "
            f"pass something np.asarray understands"
        ) from error


def _tensor_to_numpy(tensor: _Tensor) -> Array:
    try:
        return np.asarray(tensor)
    except TypeError:  # bfloat16, which NumPy lacks and float32 holds exactly
        return np.asarray(tensor.float())


def _refuse_masked(values: object, name: str) -> None:
    """Refuse masked entries, alone or in a list of rows: NumPy would hand over what lies under the mask."""
    rows = values if isinstance(values, list | tuple) else (values,)
    if any(isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in rows):
        raise BadPredictions(
            f"{name} has masked entries, which would lose their mask; drop those rows, "
            f"or choose what they mean with .filled(value)"
        )


def to_numbers(values: object, name: str) -> Array:
    """Return `values` as a NumPy array; objects that are all real numbers, as in mixed data frames, become float64."""
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
        array = array.astype(np.float64)
    if array.dtype == object:
        odd = next(item for item in array.flat if not isinstance(item, Real | np.bool_))
        raise BadPredictions(
            f"{name} must be real numbers; got objects, one of them a {type(odd).__name__}. Fill gaps and convert with "
            f".astype(float), a sparse matrix with .toarray()"
        )
    if array.dtype.kind != "f":
        raise BadPredictions(f"{name} must be real numbers; got an array of {array.dtype}. Convert with .astype(float)")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def two_dimensional(array: Array, name: str) -> Array:
    """Return an array that is (rows, classes) and holds something, or say what shape it has instead."""
    if array.ndim != 2:
        way_out = "; for one column, reshape(-1, 1)" if array.ndim == 1 else ""
        raise BadPredictions(f"{name} must have shape (rows, classes); got {array.shape}{way_out}")
    if array.size == 0:
        raise BadPredictions(f"{name} are empty: shape {array.shape}; give at least one row and one column")
    return array


def check_labels(values: object, n_rows: int, n_classes: int) -> Ints:
    """Return labels as int64 in 0..n_classes-1, or name the first one that is not."""
    labels = to_numbers(values, "labels")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 2 and labels.shape == (n_rows, n_classes):
        raise BadPredictions(
            f"labels must be one class number a row; got shape {labels.shape}, as one-hot labels have. "
            f"Pass labels.argmax(axis=1)"
        )
    if labels.shape != (n_rows,):
        raise BadPredictions(f"labels must have shape ({n_rows},), one a row of logits; got {labels.shape}")
    if labels.dtype.kind not in "iubf":
        raise BadPredictions(
            f"labels must be class numbers 0..{n_classes - 1}; got an array of {labels.dtype}. "
            f"np.unique(labels, return_inverse=True) numbers names in sorted order; fill gaps first"
        )
    # Compared before the cast: a huge or fractional number must not wrap round into range.
    bad = np.flatnonzero(~((labels >= 0) & (labels < n_classes)) | (labels != np.floor(labels)))
    if bad.size:
        hint = " (are they numbered from 1?)" if labels.min() == 1 and labels.max() == n_classes else ""
        raise BadPredictions(
            f"labels must be whole numbers in 0..{n_classes - 1}; row {bad[0]} has {labels[bad[0]]}{hint}"
        )
    return labels.astype(np.int64)


def check_weights(values: object, n_rows: int) -> Floats:
    """Return row weights as float64: finite, none negative, not all zero, with a sum that float64 can hold."""
    weights = to_floats(values, "weights").astype(np.float64)
    if weights.shape != (n_rows,):
        raise BadPredictions(f"weights must have shape ({n_rows},), one a row; got {weights.shape}")
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if bad.size:
        raise BadPredictions(f"weights must be finite and not negative; row {bad[0]} has {weights[bad[0]]}")
    with np.errstate(over="ignore"):
        total = weights.sum()
    if not total > 0:
        raise BadPredictions("weights must not all be zero")
    if not np.isfinite(total):
        raise BadPredictions("weights must have a finite sum; divide them by the largest first")
    return weights


def row_blocks(n_rows: int, n_columns: int) -> Iterator[slice]:
    """Yield slices of rows small enough to convert to float64 without leaving the cache.

    >>> list(row_blocks(5, 50_000))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = rows_in_a_block(n_rows, n_columns)
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def rows_in_a_block(n_rows: int, n_columns: int) -> int:
    """Return how many rows `row_blocks` puts into one block."""
    return max(1, min(n_rows, _BLOCK_ENTRIES // max(1, n_columns)))


def map_row_blocks(function: Callable[[slice], _Result], n_rows: int, n_columns: int) -> list[_Result]:
    """Return what a function makes of each block of rows, in order, from as many threads as there are cores.

    NumPy lets go of the interpreter while it computes. Blocks are the same for any number of threads, and so is what
    their results add up to.

    >>> z = np.ones((5, 50_000))
    >>> map_row_blocks(lambda rows: float(z[rows].sum()), *z.shape)
    [100000.0, 100000.0, 50000.0]
    """
    blocks = list(row_blocks(n_rows, n_columns))
    n_threads = min(available_threads(), len(blocks))
    if n_threads == 1:
        return [function(block) for block in blocks]
    with ThreadPoolExecutor(n_threads) as pool:
        return list(pool.map(function, blocks))


def available_threads() -> int:
    """Return the number of cores, or fewer where OMP_NUM_THREADS says so, as it does to numerical libraries."""
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(_cores(), int(limit)) if limit.isdecimal() and int(limit) > 0 else _cores()


def _cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
