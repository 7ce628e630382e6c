"""Logits -> logits in the same order of classes.

`Invariant` preserves it by construction: f(x) = S(x)^-1 U w(x), Rahimi et al. 2020. S(x) sorts a row, w holds the gaps
between neighbours, positive wherever the logits differ, and U adds them up from the highest class. The order is exact,
to the last bit: the temperature is part of the step, because multiplying first could round two different logits to the
same number.

`KeepOrder` restores the order after any map. From the highest logit down, each class gets the map's value, or less: at
most the value of the class above, minus a small part of the original gap. With u the map's values, z the
log-probabilities of the input and s the least slope: out = s z + running minimum of (u - s z).
"""

from typing import Annotated, Any, Self

import numpy as np

from glayers.activations import keep_impossible, log_sigmoid, log_softmax, with_reference_class
from glayers.arrays import array_namespace, is_torch
from glayers.maps.steps import Chain, Constant, Numbers, Scalar, Step, at_mean_of_others

__all__ = ["KeepOrder"]

_LEAST_GAP_FACTOR = 1e-6  # a factor of 0 would lose the order


class Invariant(Step):
    """Each gap between sorted logits times a positive number from a small network, which reads the sorted row.

    Permuting the classes permutes the output. `factor` is the initial inverse temperature.
    """

    factor: Scalar
    weight_in: Annotated[Any, Numbers("in hidden")]
    bias_in: Annotated[Any, Numbers("hidden")]
    weight_out: Annotated[Any, Numbers("hidden in-1")]
    bias_out: Annotated[Any, Numbers("in-1")]

    def __call__(self, logits: Any) -> Any:
        """Return logits in exactly the same order: equal logits stay equal, different ones stay different."""
        xp = array_namespace(logits)
        limits = xp.finfo(logits.dtype)
        eps = float(limits.eps)
        order = xp.argsort(logits, axis=-1, descending=True, stable=True)
        ordered = _gathered(logits, order)
        upper = ordered[..., :-1]
        lower = ordered[..., 1:]
        # No gap leads down to an impossible class: it would be infinite.
        differ = xp.astype((upper > lower) & (lower > -xp.inf), logits.dtype)
        # From the highest class down: a sum from a class of -1e30 up would lose all other gaps.
        depths = _added_up(self._gaps(_possible(ordered)) * differ)
        # Sums round, so each level is lowered by a few rounding errors more than the one above: no two can coincide.
        step = 8 * eps * depths + float(limits.smallest_normal) / eps
        depths = depths + step * _added_up(differ)
        back = xp.argsort(order, axis=-1, stable=True)
        back = back + xp.zeros_like(depths, dtype=order.dtype)  # also for members
        return keep_impossible(-_gathered(depths, back), logits)

    def _gaps(self, ordered: Any) -> Any:
        """Return the non-negative gap between each sorted logit and the next."""
        xp = array_namespace(ordered)
        factor = self.factor[..., None, None]
        below_top = xp.clip(ordered - ordered[..., :1], min=-_wide(ordered))
        log_p = log_softmax(below_top * factor)
        read = xp.clip(log_p, min=-30.0) / 10 + 1  # from -2 to 1: tanh is not saturated
        hidden = xp.tanh(xp.matmul(read, self.weight_in) + self.bias_in[..., None, :])
        output = xp.matmul(hidden, self.weight_out) + self.bias_out[..., None, :]
        gaps = xp.clip(ordered[..., :-1] - ordered[..., 1:], max=_wide(ordered))
        return gaps * factor * (_LEAST_GAP_FACTOR - log_sigmoid(-output))

    @classmethod
    def start(cls, factor: float, n_logits: int, n_hidden: int, seed: int) -> Self:
        """Start as temperature scaling: the network returns 1 for every input, and its first layer is random."""
        rng = np.random.default_rng(seed)
        return cls(
            np.asarray(factor),
            rng.normal(size=(n_logits, n_hidden)) / np.sqrt(n_logits),
            np.zeros(n_hidden),
            np.zeros((n_hidden, n_logits - 1)),
            np.full(n_logits - 1, np.log(np.expm1(1 - _LEAST_GAP_FACTOR))),
        )


class KeepOrder(Step):
    """A branch whose output keeps the order of the classes, so that accuracy and every top-k accuracy stay the same.

    Exact up to rounding: logits so close that `slope` times their gap is lost in rounding become a tie.
    """

    slope: Constant
    branches: tuple[Chain]
    completes = True

    def __call__(self, logits: Any) -> Any:
        """Apply the branch and restore the order of the input."""
        (branch,) = self.branches
        return in_order_of(logits, with_reference_class(branch(logits)), self.slope)

    @classmethod
    def of(cls, branch: Chain, factor: float = 1.0) -> Self:
        """Keep the order of a branch's input, which has the scale of the output after multiplication by `factor`."""
        return cls(np.asarray(1e-3 * factor), (branch,))


def in_order_of(reference: Any, outputs: Any, slope: Any) -> Any:
    """Lower outputs by as little as gives them the order of the reference; ties go to the first class.

    >>> in_order_of(np.array([[2.0, 1.0, 0.0]]), np.array([[0.5, 0.9, 0.1]]), 0.0).tolist()
    [[0.5, 0.5, 0.1]]
    """
    xp = array_namespace(outputs)
    reference = xp.clip(log_softmax(with_reference_class(reference)), min=-_wide(outputs))
    order = xp.argsort(reference, axis=-1, descending=True, stable=True)
    least = slope * _gathered(reference, order)
    lowest = _gathered(outputs, order) - least
    shift = 1
    while shift < lowest.shape[-1]:  # each round doubles the number of classes above that the minimum covers
        lower = xp.minimum(lowest[..., shift:], lowest[..., :-shift])
        lowest = xp.concat([lowest[..., :shift], lower], axis=-1)
        shift *= 2
    return _gathered(lowest + least, xp.argsort(order, axis=-1, stable=True))


def _possible(logits: Any) -> Any:
    """Put impossible classes at the mean of the others, and clip logits whose differences would overflow."""
    xp = array_namespace(logits)
    widest = float(xp.finfo(logits.dtype).max) / 4
    return at_mean_of_others(xp.clip(logits, min=-widest, max=widest), logits == -xp.inf)


def _gathered(values: Any, places: Any) -> Any:
    """Return take_along_axis of the last axis; that of torch would fix the number of rows in an exported program."""
    if is_torch(values):
        return values.gather(-1, places)
    return array_namespace(values).take_along_axis(values, places, axis=-1)


def _added_up(gaps: Any) -> Any:
    """Sum gaps (..., k - 1) from the first one on into depths (..., k), the first of which is 0."""
    xp = array_namespace(gaps)
    return xp.concat([xp.zeros_like(gaps[..., :1]), xp.cumulative_sum(gaps, axis=-1)], axis=-1)


def _wide(logits: Any) -> float:
    """Return the square root of the largest number: wider gaps are clipped to it, so that products stay finite."""
    return float(array_namespace(logits).finfo(logits.dtype).max) ** 0.5
