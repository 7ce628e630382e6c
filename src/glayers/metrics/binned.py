"""Predictions -> binned calibration errors: how far mean score and share of hits differ, bin by bin.

Equal-width bins are closed on the right, so a score of exactly 1 is in the last bin and exactly 0 in the first.
Equal-mass bins cut at weighted quantiles; equal scores are never split between two bins. In a bootstrap the edges stay
at the sample's quantiles.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from glayers.arrays import Floats, row_blocks
from glayers.checks import check_choice, refuse_outside_unit_interval, whole_number
from glayers.metrics.events import N_BINS, Event, Rows, Scored, bin_of, check_event, check_rows, top
from glayers.metrics.ks import gap_changes, running_gap
from glayers.metrics.metric import Block, Metric, PlaceSums, column_sums, exact_in_cells, score

__all__ = [
    "classwise_ece",
    "debiased_ece",
    "debiased_rms_calibration_error",
    "ece",
    "ece_per_class",
    "mce",
    "rms_calibration_error",
]

Binning: TypeAlias = Literal["equal_width", "equal_mass"]


def ece(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event = top,
    n_bins: int = N_BINS,
    binning: Binning = "equal_width",
) -> float:
    """Expected calibration error of an event: mean `|score - share of hits|` over bins.

    Parameters
    ----------
    probabilities
        Array (n, k), `Predictions` or `Confidences`.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    sample_weight
        Row weights (n,).
    event
        `top`, `rank(r)`, `within_top(r)`, `label(c)` or `one_of(classes)`.
    n_bins
        The number of bins.
    binning
        "equal_width" or "equal_mass".

    Returns
    -------
    float
        A number from 0 to 1. Naeini et al., AAAI 2015; 15 equal-width bins as in Guo et al., ICML 2017.

    Examples
    --------
    >>> round(ece([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.2, 0.2, 0.6]], [0, 2, 2]), 12)  # (2 * 0.4 + 0.4) / 3
    0.4
    """
    return _binned(_ece, check_event(probabilities, labels, sample_weight, event=event), n_bins, binning)


def mce(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event = top,
    n_bins: int = N_BINS,
    binning: Binning = "equal_width",
) -> float:
    """Maximum calibration error: the largest `|score - share of hits|` of any bin.

    Parameters
    ----------
    probabilities, labels, sample_weight, event, n_bins, binning
        As in `ece`.

    Returns
    -------
    float
        A number from 0 to 1. Naeini et al., AAAI 2015.

    Examples
    --------
    >>> round(mce([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.2, 0.2, 0.6]], [0, 1, 1]), 12)
    0.6
    """
    return _binned(_mce, check_event(probabilities, labels, sample_weight, event=event), n_bins, binning)


def rms_calibration_error(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event = top,
    n_bins: int = N_BINS,
    binning: Binning = "equal_width",
) -> float:
    """Root of the mean squared gap over bins: the l2 calibration error.

    Parameters
    ----------
    probabilities, labels, sample_weight, event, n_bins, binning
        As in `ece`.

    Returns
    -------
    float
        A number from 0 to 1. Kumar et al., NeurIPS 2019.

    Examples
    --------
    >>> round(rms_calibration_error([[0.9, 0.1], [0.4, 0.6]], [0, 0]), 6)  # the root of (0.1^2 + 0.6^2) / 2
    0.430116
    """
    return _binned(_rms, check_event(probabilities, labels, sample_weight, event=event), n_bins, binning)


def debiased_ece(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event = top,
    n_bins: int = N_BINS,
    binning: Binning = "equal_mass",
) -> float:
    """ECE less an estimate of what sampling noise adds to it: about 0.6 of the plain ECE for a calibrated model.

    Each bin's `|gap|` is reduced by `E|N(gap, a(1 - a)/n)| - |gap|`, with a its share of hits: the debiased estimator
    of Kumar et al., NeurIPS 2019, with the expectation in closed form instead of by resampling. n is the bin's share of
    the number of rows, or of Kish's effective size where rows have weights.

    Parameters
    ----------
    probabilities, labels, sample_weight, event, n_bins, binning
        As in `ece`.

    Returns
    -------
    float
        May be below 0.

    Examples
    --------
    >>> round(debiased_ece([[0.75, 0.25]] * 8, [0] * 4 + [1] * 4), 6)  # a gap of 0.25, and noise of 0.177
    0.237436
    """
    return _binned(_debiased_ece, check_event(probabilities, labels, sample_weight, event=event), n_bins, binning)


def debiased_rms_calibration_error(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event = top,
    n_bins: int = N_BINS,
    binning: Binning = "equal_mass",
) -> float:
    """Root of the mean squared gap less its sampling variance; 0 when noise explains it all.

    Each bin's squared gap is reduced by a(1 - a)/(n - 1), with a its share of hits and n its rows, counted as in
    `debiased_ece`. Kumar et al., NeurIPS 2019; Broecker, Climate Dynamics 2012.

    Parameters
    ----------
    probabilities, labels, sample_weight, event, n_bins, binning
        As in `ece`.

    Returns
    -------
    float
        A number from 0 to 1.

    Examples
    --------
    >>> round(debiased_rms_calibration_error([[0.9, 0.1]] * 8, [0] * 4 + [1] * 4), 6)  # root of 0.4^2 - 0.25 / 7
    0.352542
    """
    return _binned(_debiased_rms, check_event(probabilities, labels, sample_weight, event=event), n_bins, binning)


def classwise_ece(
    probabilities: object, labels: object = None, *, sample_weight: object = None, n_bins: int = N_BINS
) -> float:
    """Mean over classes of the equal-width ECE of "the label is this class".

    Parameters
    ----------
    probabilities, labels, sample_weight, n_bins
        As in `ece`; `Confidences` do not suffice.

    Returns
    -------
    float
        A number from 0 to 1. Kull et al., NeurIPS 2019.

    Examples
    --------
    >>> round(classwise_ece([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]), 12)  # (0.2 + 0.4 + 0.4) / 3
    0.333333333333
    """
    return float(ece_per_class(probabilities, labels, sample_weight=sample_weight, n_bins=n_bins).mean())


def ece_per_class(
    probabilities: object, labels: object = None, *, sample_weight: object = None, n_bins: int = N_BINS
) -> Floats:
    """Equal-width ECE of "the label is this class", for each class.

    Parameters
    ----------
    probabilities, labels, sample_weight, n_bins
        As in `ece`; `Confidences` do not suffice.

    Returns
    -------
    array (k,)
        One error per class. Kull et al., NeurIPS 2019.

    Examples
    --------
    >>> ece_per_class([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]).round(12).tolist()
    [0.2, 0.4, 0.4]
    """
    rows = check_rows(probabilities, labels, sample_weight)
    return _ece_per_class(rows, rows.weights, n_bins)


def _binned(evaluate: Callable[..., Floats], event: Scored, n_bins: int, binning: Binning) -> float:
    """Return a metric for these bins, after checking them."""
    check_choice(binning, get_args(Binning), "binning")
    return score(evaluate, event, whole_number(n_bins, "n_bins", least=1), binning)


def bin_sums(block: Block, event: Scored, n_bins: int, binning: Binning) -> Floats:
    """Return the share of the weight, of the scores and of the hits that each bin holds, (3, bins, b)."""
    return np.stack([values.of(block) for values in event.cached(_bin_members, n_bins, binning)])


def bin_edges(event: Scored, n_bins: int, binning: Binning) -> Floats:
    """Return the edges between the bins of an event."""
    check_choice(binning, get_args(Binning), "binning")
    edges = inner_edges(n_bins)
    if binning == "equal_width":
        return edges
    order = np.argsort(event.scores)
    reached = np.cumsum(event.weights[order])
    # The smallest score that this share of the weight does not exceed; the slack forgives rounding in the sum.
    return event.scores[order][np.searchsorted(reached, edges * reached[-1] - 1e-12, side="left")]


def inner_edges(n_bins: int) -> Floats:
    """Return the edges between equal-width bins."""
    number = whole_number(n_bins, "n_bins", least=1)
    return np.arange(1, number) / number


def _bin_members(event: Scored, n_bins: int, binning: Binning) -> list[PlaceSums]:
    edges = bin_edges(event, n_bins, binning)
    place = bin_of(event.scores, edges)[:, None]
    values = (np.ones(len(place)), event.scores, event.hits)
    return [PlaceSums(place, value[:, None], len(edges) + 1) for value in values]


def _ece(event: Scored, block: Block, n_bins: int = N_BINS, binning: Binning = "equal_width") -> Floats:
    _, scores, hits = block.cached(bin_sums, event, n_bins, binning)
    return np.abs(scores - hits).sum(axis=0)


def _ece_equal_mass(event: Scored, block: Block) -> Floats:
    return _ece(event, block, binning="equal_mass")


def _ece_of_segments(event: Scored, block: Block) -> Floats:
    """The ECE from what the KS error of many weightings needs too."""
    if block.single:
        return _ece(event, block)
    _, bin_starts = event.cached(running_gap)
    gaps = np.add.reduceat(block.cached(gap_changes, event), bin_starts, axis=0)
    return np.abs(gaps).sum(axis=0)


def _mce(event: Scored, block: Block, n_bins: int = N_BINS, binning: Binning = "equal_width") -> Floats:
    return np.abs(_gaps(block.cached(bin_sums, event, n_bins, binning))).max(axis=0)


def _rms(event: Scored, block: Block, n_bins: int = N_BINS, binning: Binning = "equal_width") -> Floats:
    sums = block.cached(bin_sums, event, n_bins, binning)
    return np.sqrt((sums[0] * _gaps(sums) ** 2).sum(axis=0))


def _debiased_ece(event: Scored, block: Block, n_bins: int = N_BINS, binning: Binning = "equal_mass") -> Floats:
    sums = block.cached(bin_sums, event, n_bins, binning)
    gaps = np.abs(_gaps(sums))
    expected = _mean_abs_normal(gaps, np.sqrt(_hit_variance(sums, sums[0] * block.totals)))
    return (sums[0] * (2 * gaps - expected)).sum(axis=0)


def _debiased_rms(event: Scored, block: Block, n_bins: int = N_BINS, binning: Binning = "equal_mass") -> Floats:
    sums = block.cached(bin_sums, event, n_bins, binning)
    debiased = _gaps(sums) ** 2 - _hit_variance(sums, sums[0] * block.totals - 1)
    return np.sqrt(np.maximum(0.0, (sums[0] * debiased).sum(axis=0)))


def _gaps(sums: Floats) -> Floats:
    """Mean score minus share of hits of each bin, 0 where it is empty."""
    weight, scores, hits = sums
    return (scores - hits) / np.where(weight > 0, weight, 1.0)


def _hit_variance(sums: Floats, divisor: Floats) -> Floats:
    """Variance of each bin's share of hits, 0 where there is nothing to divide by."""
    weight, _, hits = sums
    rate = hits / np.where(weight > 0, weight, 1.0)
    return np.where(divisor > 0, rate * (1 - rate) / np.where(divisor > 0, divisor, 1.0), 0.0)


def _mean_abs_normal(mean: Floats, deviation: Floats) -> Floats:
    """E|X| for X normal: the folded normal mean."""
    from scipy.special import erf  # on first use: importing it takes longer than importing glayers

    z = mean / np.where(deviation > 0, deviation, 1.0)
    folded = deviation * math.sqrt(2 / math.pi) * np.exp(-z * z / 2) + mean * erf(z / math.sqrt(2))
    return np.where(deviation > 0, folded, mean)


def _ece_per_class(rows: Rows, weights: Floats, n_bins: int = N_BINS) -> Floats:
    """In a wide row nearly all entries fall into the first bin: sum every column once, and move only the rest."""
    edges = inner_edges(n_bins)
    n_classes = rows.n_classes
    gap = np.zeros((n_classes, n_bins))
    for some in row_blocks(len(rows), n_classes):
        block = rows.probabilities[some]
        refuse_outside_unit_interval(block, "probabilities", first_row=some.start)
        gap[:, 0] += column_sums(block, weights[some])
        row, column = np.nonzero(block > 0.99 / n_bins)  # with some of the first bin, which move nowhere
        value = block[row, column].astype(np.float64)
        moved = weights[some][row] * value
        gap[:, 0] -= np.bincount(column, moved, n_classes)
        gap += np.bincount(column * n_bins + bin_of(value, edges), moved, gap.size).reshape(gap.shape)
    own = rows.labels * n_bins + bin_of(rows.of_label, edges)
    gap -= np.bincount(own, weights, gap.size).reshape(gap.shape)
    chosen = rows.classes or range(n_classes)
    return np.abs(gap[chosen.start : chosen.stop]).sum(axis=1)


def _equal_mass_error(cells: Any, _value: float) -> float:
    """Return what may be in another bin, because an edge between equal-mass bins lies somewhere inside its cell."""
    edges = bin_edges(cells.rows(), N_BINS, "equal_mass")
    at_edges = np.unique(np.searchsorted(cells.high, edges))
    at_edges = at_edges[cells.varied[at_edges]]
    return 2 * float((cells.rises + cells.falls)[at_edges].sum())


_NAEINI = "Naeini et al., AAAI 2015"
_KUMAR = "Kumar et al., NeurIPS 2019"
_KULL = "Kull et al., NeurIPS 2019"
_LARGEST = "the largest of many bins"  # even where nothing else speaks against them, two intervals in ten cover
_FAR = 10.0  # standard errors: chance raises the sum in every bin; nearer to 0, 43 to 86 % of unflagged intervals cover
_exact = partial(Metric, cell_error=exact_in_cells, trusted_from=_FAR)
_equal_mass = partial(Metric, cell_error=_equal_mass_error, trusted_from=_FAR)
METRICS = (
    _exact("ece", "ECE, 15 equal-width bins", _ece, _NAEINI),
    _equal_mass("ece_equal_mass", "ECE, 15 equal-mass bins", _ece_equal_mass, _NAEINI),
    Metric("debiased_ece", "ECE, debiased, equal-mass", _debiased_ece, _KUMAR, lowest=-1.0),
    _exact("classwise_ece", "ECE, class-wise", _ece_of_segments, _KULL, about="classes", over_classes=_ece_per_class),
    _exact("mce", "MCE", _mce, _NAEINI, unreliable=_LARGEST),
    _exact("rms_calibration_error", "RMS calibration error, equal-width", _rms, _KUMAR),
    Metric("debiased_rms_calibration_error", "RMS calibration error, debiased, equal-mass", _debiased_rms, _KUMAR),
)
