"""Probabilities and labels -> binned calibration errors: how far confidence and accuracy differ, bin by bin.

Equal-width bins are closed on the right, so a confidence of exactly 1 is in the last and exactly 0 in the first.
Equal-mass bins cut at weighted quantiles; equal confidences are never split between two bins.
"""

import math
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from glayers.arrays import Array, Floats, Ints, row_blocks
from glayers.errors import BadPredictions
from glayers.metrics.old.checks import Scored, check, check_scored, top
from glayers.probabilities import HIGHEST, LOWEST, refuse_outside_unit_interval
from glayers.settings import whole_number

Binning: TypeAlias = Literal["equal_width", "equal_mass"]


class BinSums(NamedTuple):
    """What falls into each bin: its share of the weight, of the confidence, of the hits, and its number of rows."""

    weight: Floats
    confidence: Floats
    hits: Floats
    rows: Floats

    def gaps(self) -> Floats:
        """Mean confidence minus accuracy of each bin, 0 where it is empty."""
        held = np.where(self.weight > 0, self.weight, 1.0)
        return (self.confidence - self.hits) / held


def ece(
    probabilities: object,
    labels: object,
    weights: object = None,
    bins: int = 15,
    binning: Binning = "equal_width",
) -> float:
    """Expected calibration error of the top class: mean |confidence - accuracy| over bins.

    Naeini et al., AAAI 2015; 15 equal-width bins as in Guo et al., ICML 2017, and the g-layers paper.

    >>> round(ece([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.2, 0.2, 0.6]], [0, 2, 2]), 12)  # (2 * 0.4 + 0.4) / 3
    0.4
    """
    return _ece(bin_sums(top(check(probabilities, labels, weights)), bins, binning))


def ece_of(
    scores: object,
    hits: object,
    weights: object = None,
    bins: int = 15,
    binning: Binning = "equal_width",
) -> float:
    """Expected calibration error of any event, from its scores and whether it happened. Naeini et al., AAAI 2015.

    >>> ece_of([0.0, 1.0, 1.0], [False, True, True])
    0.0
    """
    return _ece(bin_sums(check_scored(scores, hits, weights), bins, binning))


def mce(
    probabilities: object,
    labels: object,
    weights: object = None,
    bins: int = 15,
    binning: Binning = "equal_width",
) -> float:
    """Maximum calibration error: the largest |confidence - accuracy| of any bin. Naeini et al., AAAI 2015."""
    return float(np.abs(bin_sums(top(check(probabilities, labels, weights)), bins, binning).gaps()).max())


def rms_calibration_error(
    probabilities: object,
    labels: object,
    weights: object = None,
    bins: int = 15,
    binning: Binning = "equal_width",
) -> float:
    """Root of the mean squared gap over bins: the l2 calibration error. Kumar et al., NeurIPS 2019."""
    sums = bin_sums(top(check(probabilities, labels, weights)), bins, binning)
    return math.sqrt(sums.weight @ sums.gaps() ** 2)


def debiased_ece(
    probabilities: object,
    labels: object,
    weights: object = None,
    bins: int = 15,
    binning: Binning = "equal_mass",
) -> float:
    """ECE less an estimate of what sampling noise adds to it: about 0.6 of the plain ECE for a calibrated model.

    Each bin's |gap| is reduced by E|N(gap, a(1 - a)/n)| - |gap|, the debiased estimator of Kumar et al., NeurIPS 2019,
    with the expectation in closed form instead of by resampling. n is the bin's share of the number of rows, which
    is the sum of whole weights and Kish's effective size of others.
    """
    sums = bin_sums(top(check(probabilities, labels, weights)), bins, binning)
    gaps, deviations = np.abs(sums.gaps()), np.sqrt(_accuracy_variance(sums, sums.rows))
    expected = np.array([_mean_abs_normal(gap, deviation) for gap, deviation in zip(gaps, deviations, strict=True)])
    return float(sums.weight @ (2 * gaps - expected))


def debiased_rms_calibration_error(
    probabilities: object,
    labels: object,
    weights: object = None,
    bins: int = 15,
    binning: Binning = "equal_mass",
) -> float:
    """Root of the mean squared gap less its sampling variance, 0 when noise explains it all.

    Each bin's squared gap is reduced by a(1 - a)/(n - 1), a its accuracy and n its rows, counted as in `debiased_ece`.
    Kumar et al., NeurIPS 2019; Broecker, Climate Dynamics 2012.
    """
    sums = bin_sums(top(check(probabilities, labels, weights)), bins, binning)
    noise = _accuracy_variance(sums, sums.rows - 1)
    return math.sqrt(max(0.0, float(sums.weight @ (sums.gaps() ** 2 - noise))))


def classwise_ece(probabilities: object, labels: object, weights: object = None, bins: int = 15) -> float:
    """Mean over classes of the equal-width ECE of "the label is this class". Kull et al., NeurIPS 2019.

    >>> round(classwise_ece([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]), 12)  # (0.2 + 0.4 + 0.4) / 3
    0.333333333333
    """
    return float(class_ece(probabilities, labels, weights, bins).mean())


def class_ece(probabilities: object, labels: object, weights: object = None, bins: int = 15) -> Floats:
    """Equal-width ECE of "the label is this class", for each class, (k,). Kull et al., NeurIPS 2019."""
    checked = check(probabilities, labels, weights)
    shape = checked.probabilities.shape
    inner = _inner_edges(bins)
    bins = len(inner) + 1
    first_edge = inner[0] if bins > 1 else 1.0
    # In a wide row nearly all entries fall into the first bin: sum every column once, and move only the rest.
    gap = np.zeros((shape[1], bins))
    for rows in row_blocks(*shape):
        block, weight = checked.probabilities[rows], checked.weights[rows]
        beyond = np.flatnonzero(block > _rounded_down(first_edge, block.dtype))
        row, column = np.divmod(beyond, shape[1])
        value = block.reshape(-1)[beyond].astype(np.float64)
        if not (block.min() >= LOWEST and value.max(initial=0.0) <= HIGHEST):  # cheaper than a mask of the whole block
            refuse_outside_unit_interval(block, "probabilities", first_row=rows.start)
        gap[:, 0] += _column_sums(block, weight)
        share = weight[row] * value
        cell = column * bins + np.searchsorted(inner, value, side="left")
        gap += _sums(cell, share, gap.size).reshape(gap.shape)
        gap[:, 0] -= _sums(column, share, shape[1])
    own = checked.probabilities[np.arange(shape[0]), checked.labels].astype(np.float64)
    cell = checked.labels * bins + np.searchsorted(inner, own, side="left")
    gap -= _sums(cell, checked.weights, gap.size).reshape(gap.shape)
    return np.abs(gap).sum(axis=1)


def bin_sums(event: Scored, bins: int, binning: Binning = "equal_width") -> BinSums:
    """Sort the rows of one event into bins and add each bin up."""
    if binning == "equal_width":
        edges = _inner_edges(bins)
    elif binning == "equal_mass":
        edges = _quantile_edges(event, bins)
    else:
        raise BadPredictions(f"binning must be 'equal_width' or 'equal_mass'; got {binning!r}")
    bins = len(edges) + 1
    place = np.searchsorted(edges, event.scores, side="left")
    weight = _sums(place, event.weights, bins)
    return BinSums(
        weight=weight,
        confidence=_sums(place, event.weights * event.scores, bins),
        hits=_sums(place, event.weights * event.hits, bins),
        rows=weight * event.total,
    )


def _sums(place: Ints, values: Floats, bins: int) -> Floats:
    """Add the values up by the place each belongs to."""
    return np.bincount(place, weights=values, minlength=bins).astype(np.float64, copy=False)


def _inner_edges(bins: int) -> Floats:
    number = whole_number(bins, "bins", least=1)
    return np.arange(1, number) / number


def _quantile_edges(event: Scored, bins: int) -> Floats:
    shares = _inner_edges(bins)
    order = np.argsort(event.scores)
    reached = np.cumsum(event.weights[order])
    # The smallest score that at least this share of the weight does not exceed; the slack forgives rounding in the sum.
    return event.scores[order][np.searchsorted(reached, shares * reached[-1] - 1e-12, side="left")]


def _ece(sums: BinSums) -> float:
    return float(np.abs(sums.confidence - sums.hits).sum())


def _accuracy_variance(sums: BinSums, divisor: Floats) -> Floats:
    """Variance of each bin's observed accuracy, 0 where there is nothing to divide by."""
    rate = sums.hits / np.where(sums.weight > 0, sums.weight, 1.0)
    return np.where(divisor > 0, rate * (1 - rate) / np.where(divisor > 0, divisor, 1.0), 0.0)


def _mean_abs_normal(mean: float, deviation: float) -> float:
    """E|X| for X normal: the folded normal mean."""
    if deviation == 0:
        return abs(mean)
    z = mean / deviation
    return deviation * math.sqrt(2 / math.pi) * math.exp(-z * z / 2) + mean * math.erf(z / math.sqrt(2))


def _column_sums(block: Array, weight: Floats) -> Floats:
    if np.ptp(weight) == 0:  # summing first halves the work where all rows weigh the same
        return block.sum(axis=0, dtype=np.float64) * weight[0]
    return weight @ block.astype(np.float64)


def _rounded_down(edge: float, dtype: np.dtype[np.floating]) -> np.floating:
    """The edge in the array's own type, never above it: then a value exceeds one just when it exceeds the other."""
    near = dtype.type(edge)
    return near if float(near) <= edge else np.nextafter(near, dtype.type(0))
