"""Numbers said to be logits -> known to be finite and no probabilities -> the probabilities they stand for."""

import warnings

import numpy as np

from glayers.activations import softmax, with_reference_class
from glayers.arrays import Array, row_blocks, to_floats, two_dimensional
from glayers.errors import BadPredictions, GlayersWarning
from glayers.probabilities import rows_sum_to_one

_IF_PROBABILITIES = (
    "pass them to Predictions.from_probabilities or to the metric without _from_logits; in a file, name the array "
    "`probabilities`, the columns of a table probability_<class>"
)


def check_logits(values: object) -> Array:
    """Return the logits (n, m) a user passed, or say which row is not finite; refuse rows that are probabilities."""
    logits = finite_logits(values)
    if logits.shape[1] > 1 and _look_like_probabilities(logits):
        raise BadPredictions(
            "these logits are non-negative and every row sums to 1: they look like probabilities. "
            f"If they are, {_IF_PROBABILITIES}. "
            "If they truly are logits, subtract 1 from all of them, which changes no probability"
        )
    if logits.shape[1] == 1 and len(logits) > 1 and logits.min() >= 0 and logits.max() <= 1:
        warnings.warn(
            f"all one-column logits lie between 0 and 1: if they are probabilities of class 1, {_IF_PROBABILITIES}",
            GlayersWarning,
            stacklevel=3,  # whoever called the function that checks its logits
        )
    return logits


def finite_logits(values: object) -> Array:
    """Return logits (n, m) that may look like anything, or say which row is not finite."""
    logits = two_dimensional(to_floats(values, "logits"), "logits")
    for rows in row_blocks(*logits.shape):
        finite = np.isfinite(logits[rows])
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise BadPredictions(
                f"logits must be finite; row {rows.start + row}, column {column} has {logits[rows][row, column]}. "
                f"Remove those rows, or clip masked classes to a finite value such as -1e4"
            )
    return logits


def probabilities_of(logits: Array) -> Array:
    """Softmax in float64, block by block: (n, classes) in float64 for float64 logits, else in float32.

    >>> probabilities_of(np.array([[0.0], [np.log(3)]])).round(2).tolist()
    [[0.5, 0.5], [0.25, 0.75]]
    """
    dtype = np.float64 if logits.dtype == np.float64 else np.float32
    result = np.empty((len(logits), max(2, logits.shape[1])), dtype=dtype)
    with np.errstate(over="ignore"):  # logits 1e308 apart differ by infinity, and its exponential is right
        for rows in row_blocks(*result.shape):
            result[rows] = softmax(with_reference_class(logits[rows].astype(np.float64)))
    return result


def _look_like_probabilities(logits: Array) -> bool:
    for rows in row_blocks(*logits.shape):
        block = logits[rows]
        if block.min() < 0 or not rows_sum_to_one(block).all():
            return False
    return True
