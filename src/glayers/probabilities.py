"""Numbers said to be probabilities -> known to be: between 0 and 1 and summing to 1, give or take rounding.

What counts as rounding is decided here, once, for everything that reads probabilities.
"""

import numpy as np

from glayers.arrays import Array, Bools, row_blocks
from glayers.errors import BadPredictions

_SUM_ROUNDING = 1e-2  # float16 probabilities of many classes, and rounded printouts, stray this far from a sum of 1
LOWEST = -1e-6  # where 1 - p was computed in float32, a zero may come out just below
HIGHEST = 1 + _SUM_ROUNDING
_IF_LOGITS = (
    "If these are logits, softmax them first, or use Predictions(logits=...) or a function whose name ends in "
    "_from_logits; in a file, name the array `logits`"
)


def check_probability_rows(probabilities: Array) -> None:
    """Refuse rows (n, k) that are not finite, lie outside 0..1, or do not sum to 1; a lone column need not sum."""
    for rows in row_blocks(*probabilities.shape):
        block = probabilities[rows].astype(np.float64)
        refuse_outside_unit_interval(block, "probabilities", first_row=rows.start)
        bad = np.flatnonzero(~rows_sum_to_one(block))
        if bad.size and block.shape[1] > 1:
            raise BadPredictions(
                f"each row of probabilities must sum to 1; row {rows.start + bad[0]} sums to "
                f"{block[bad[0]].sum():g}. Divide each row by its sum if that is what you mean. {_IF_LOGITS}"
            )


def refuse_outside_unit_interval(values: Array, name: str, first_row: int = 0, way_out: str = _IF_LOGITS) -> None:
    """Refuse values that are not numbers between 0 and 1, give or take rounding."""
    bad = np.argwhere(~((values >= LOWEST) & (values <= HIGHEST)))
    if len(bad):
        value = values[tuple(bad[0])]
        raise BadPredictions(
            f"{name} must be finite and lie between 0 and 1; row {first_row + bad[0][0]} has {value:g}. {way_out}"
        )


def rows_sum_to_one(block: Array) -> Bools:
    """Say of each row whether it sums to 1, give or take rounding.

    >>> rows_sum_to_one(np.array([[0.333, 0.667], [0.5, 0.4]])).tolist()
    [True, False]
    """
    with np.errstate(over="ignore"):  # huge logits are asked about too
        return np.abs(block.sum(axis=1, dtype=np.float64) - 1) <= _SUM_ROUNDING
