"""Predictions -> calibration errors: KS and Kuiper without bins, ECE and its variants in bins, and smooth ECE.

KS has no bins and no settings. Sort rows by score and add up weight * (score - hit): a calibrated model keeps the
running sum near zero. Rows of equal score enter together, so the order of rows never matters. Gupta et al.,
"Calibration of Neural Networks using Splines", ICLR 2021; ranks, top-r and subsets as in the g-layers paper.

For many weightings of the same rows (`running_gap`), rows are sorted once. The running sum rises at every row that
misses and falls at every row that hits, so its extremes lie where it turns, whatever the weights. All rows between two
turns can be added up first, and each block of weights is one sparse matrix product, segments x rows. Segments do not
cross the edges of bins either, so they also give the ECE of each class.

Equal-width bins are closed on the right, so a score of exactly 1 is in the last bin and exactly 0 in the first.
Equal-mass bins cut at weighted quantiles; equal scores are never split between two bins. In a bootstrap the edges stay
at the sample's quantiles.

Smooth ECE has no bins. Residuals (hit - score) are spread over [0, 1] by a Gaussian kernel reflected at both ends. The
error at bandwidth s is the area under their absolute value, and the bandwidth is the one equal to the error itself.
Blasiok and Nakkiran, "Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing", ICLR 2024. On a logarithmic
scale the error is nearly a straight line of the bandwidth (slope -1/2 for pure noise, 0 for a gap of one sign), so
Brent's method finds the bandwidth in a dozen steps.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from glayers.arrays import BLOCK_ENTRIES, Array, Bools, Floats, Ints, map_row_blocks, row_blocks
from glayers.checks import check_choice, refuse_outside_unit_interval, whole_number
from glayers.metrics.events import (
    BIN_EDGES,
    N_BINS,
    ROUNDING,
    Event,
    Rows,
    Scored,
    bin_of,
    check_event,
    check_rows,
    last_of_ties,
    rank_events,
    top,
)
from glayers.metrics.metric import Block, Metric, PlaceSums, column_sums, score

__all__ = [
    "classwise_ece",
    "classwise_ks",
    "ece",
    "ece_per_class",
    "ks",
    "ks_per_class",
    "kuiper",
    "mce",
    "mean_top_ks",
    "rms_calibration_error",
    "smooth_ece",
]


N_RANKS = 10
Binning: TypeAlias = Literal["equal_width", "equal_mass"]
_GRID = 4096  # cells of [0, 1]: well below any bandwidth that 1e6 rows can resolve


def ks(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
) -> float:
    """KS calibration error of an event: the largest gap between cumulative score and cumulative outcome.

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

    Returns
    -------
    float
        A number from 0 to 1. Gupta et al., ICLR 2021.

    Examples
    --------
    Sorted by score, the gaps are 0.6 - 0 = 0.6, then 0.6 + 0.7 - 1 = 0.3, over 2 rows.

    >>> round(ks([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]), 12)
    0.3
    >>> from glayers.metrics import within_top
    >>> round(ks([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 0], event=within_top(2)), 12)
    0.4
    """
    return score(_ks, check_event(probabilities, labels, sample_weight, event=event))


def kuiper(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
) -> float:
    """Kuiper calibration error of an event: the largest gap between score and outcome over any interval of scores.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `ks`.

    Returns
    -------
    float
        A number from 0 to 1, at least `ks` and at most twice that. Kuiper, Indagationes Mathematicae 1960;
        Arrieta-Ibarra et al., JMLR 2022.

    Examples
    --------
    The running gap rises to 0.5, and two hits at 0.6 take it down to -0.3: 0.8 over 3 rows.

    >>> from glayers import Confidences
    >>> rows = Confidences([0.5, 0.6, 0.6], [0, 1, 1])
    >>> round(3 * kuiper(rows), 12), round(3 * ks(rows), 12)
    (0.8, 0.5)
    """
    return score(_kuiper, check_event(probabilities, labels, sample_weight, event=event))


def mean_top_ks(
    probabilities: object, labels: object = None, *, sample_weight: object = None, n_ranks: int = N_RANKS
) -> float:
    """Mean of the KS errors of ranks 1 to `n_ranks`.

    Parameters
    ----------
    probabilities, labels, sample_weight
        As in `ks`; `Confidences` do not suffice.
    n_ranks
        The number of ranks, at most the number of classes.

    Returns
    -------
    float
        A number from 0 to 1. Rahimi et al., "Post-hoc Calibration of Neural Networks by g-Layers", 2020; its "top-10"
        figure for 10 classes is the mean over the first nine ranks: `n_ranks=9`.

    Examples
    --------
    >>> round(mean_top_ks([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2], n_ranks=2), 12)  # (0.3 + 0.25) / 2
    0.275
    """
    rows = check_rows(probabilities, labels, sample_weight)
    events = rank_events(rows, whole_number(n_ranks, "n_ranks", 1, rows.n_classes))
    return sum(score(_ks, event) for event in events) / len(events)


def classwise_ks(probabilities: object, labels: object = None, *, sample_weight: object = None) -> float:
    """Mean over classes of the KS error of "the label is this class".

    Parameters
    ----------
    probabilities, labels, sample_weight
        As in `ks`; `Confidences` do not suffice.

    Returns
    -------
    float
        A number from 0 to 1: the error of Gupta et al., ICLR 2021, for the class-wise calibration of Kull et al.,
        NeurIPS 2019.

    Examples
    --------
    >>> round(classwise_ks([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]), 12)  # (0.1 + 0.4 + 0.3) / 3
    0.266666666667
    """
    return float(ks_per_class(probabilities, labels, sample_weight=sample_weight).mean())


def ks_per_class(probabilities: object, labels: object = None, *, sample_weight: object = None) -> Floats:
    """KS error of "the label is this class", for each class.

    Parameters
    ----------
    probabilities, labels, sample_weight
        As in `ks`; `Confidences` do not suffice.

    Returns
    -------
    array (k,)
        One error per class.

    Examples
    --------
    >>> ks_per_class([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]).round(2).tolist()
    [0.1, 0.4, 0.3]
    """
    rows = check_rows(probabilities, labels, sample_weight)
    return error_of_each_class(rows, rows.weights)


def running_gap(event: Scored) -> tuple[Any, Ints]:
    """Find the segments of an event between its turns and between bins.

    Returns the sparse matrix (segments, rows) whose product with weights is what each segment adds to the running gap,
    and the first segment of each bin that holds a row.
    """
    from scipy.sparse import csr_array  # on first use: importing it takes longer than importing glayers

    order = np.argsort(event.scores)
    scores = event.scores[order]
    residuals = (event.scores - event.hits)[order]
    bins = bin_of(scores, BIN_EDGES)
    starts = _segment_starts(scores, residuals < 0, bins)
    pointers = np.append(starts, len(order)).astype(np.int32)
    matrix = csr_array((residuals, order.astype(np.int32), pointers), shape=(len(starts), len(order)))
    _, bin_starts = np.unique(bins[starts], return_index=True)
    return matrix, bin_starts


def gap_changes(block: Block, event: Scored) -> Floats:
    """Return what each segment adds to the running gap, (segments, b)."""
    matrix, _ = event.cached(running_gap)
    return np.asarray(matrix @ block.weights)


def _segment_starts(scores: Floats, falls: Bools, place: Ints) -> Ints:
    """Return where a new segment must start: at a new score, if the rows from the last score to this rise and fall."""
    first = np.flatnonzero(np.append(True, last_of_ties(scores)[:-1]))  # rows of equal score enter together
    any_falls = np.logical_or.reduceat(falls, first)
    any_rises = np.logical_or.reduceat(~falls, first)
    turns = (any_falls[1:] | any_falls[:-1]) & (any_rises[1:] | any_rises[:-1])
    new_bin = place[first[1:]] != place[first[:-1]]
    return first[np.append(True, turns | new_bin)]


def error_of_each_class(rows: Rows, weights: Floats) -> Floats:
    """Return the KS error of "the label is this class", for each of the rows' classes."""
    chosen = rows.classes or range(rows.n_classes)
    by_class = np.lexsort([rows.of_label, rows.labels])
    starts = np.searchsorted(rows.labels[by_class], np.arange(rows.n_classes + 1))

    equal = np.ptp(weights) == 0

    def errors(part: slice) -> list[float]:
        first = chosen.start + part.start
        columns = np.ascontiguousarray(rows.probabilities[:, first : chosen.start + part.stop].T)
        refuse_outside_unit_interval(columns.T, "probabilities")
        found = []
        for c, scores in enumerate(columns, start=first):
            hits = by_class[starts[c] : starts[c + 1]]
            found.append(_class_error(scores, weights, hits, equal))
        return found

    # A cache line of a row holds some columns; of many rows fewer are copied, which bounds the memory.
    width = max(1, min(32, 1_000_000 // len(weights)))
    return np.concatenate(map_row_blocks(errors, len(chosen), BLOCK_ENTRIES // width))


def _class_error(scores: Array, weights: Floats, hits: Ints, equal: bool) -> float:
    """Return the KS error of one event, given the rows that hit in ascending order of score.

    The running gap rises from one hit to the next, so its extremes lie just below a hit, just above it, or at the end.
    Scores below the lowest hit need no order.
    """
    own = scores[hits].astype(np.float64)
    last = last_of_ties(own)
    first = np.append(True, last[:-1])[: len(own)]
    edges = np.concatenate([own[first] - ROUNDING, own[last] + ROUNDING, [np.inf]])
    (above,) = np.nonzero(scores >= float(edges[0]))
    if equal:
        total = weights[0] * scores.sum(dtype=np.float64)
        ordered = np.sort(scores[above]).astype(np.float64)  # in a third of the time of finding the order
        steps = weights[0] * ordered
    else:
        total = np.vecdot(scores.astype(np.float64), weights)
        above = above[np.argsort(scores[above])]
        ordered = scores[above].astype(np.float64)
        steps = weights[above] * ordered
    running = np.append(0.0, np.cumsum(steps))
    running += total - running[-1]
    hits_below = np.append(0.0, np.cumsum(weights[hits]))
    gaps = running[np.searchsorted(ordered, edges)] - hits_below[np.searchsorted(own, edges)]
    return float(np.abs(gaps).max())


def _running_gaps(event: Scored, block: Block) -> Floats:
    """Return the running gap wherever it may turn, (points, b)."""
    if not block.single:
        return np.cumsum(block.cached(gap_changes, event), axis=0)
    order = np.argsort(event.scores)  # one sort is faster than finding the segments
    scores = event.scores[order]
    gap = np.cumsum(block.weights[order, 0] * (scores - event.hits[order]))
    return gap[last_of_ties(scores), None]


def _ks(event: Scored, block: Block) -> Floats:
    return np.abs(_running_gaps(event, block)).max(axis=0)


def _kuiper(event: Scored, block: Block) -> Floats:
    gaps = _running_gaps(event, block)
    return np.maximum(gaps.max(axis=0), 0.0) - np.minimum(gaps.min(axis=0), 0.0)  # the gap starts at 0


def ece(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event | str = top,
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
    event: Event | str = top,
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
    event: Event | str = top,
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


def smooth_ece(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
) -> float:
    """Smooth calibration error of an event.

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

    Returns
    -------
    float
        A number from 0 to 1. Blasiok and Nakkiran, ICLR 2024.

    Examples
    --------
    >>> round(smooth_ece([[0.75, 0.25]] * 4, [0, 0, 0, 1]), 6)
    0.0
    """
    return score(_smooth_ece, check_event(probabilities, labels, sample_weight, event=event))


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
    return event.scores[order][np.searchsorted(reached, edges * reached[-1] - ROUNDING, side="left")]


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


def _gaps(sums: Floats) -> Floats:
    """Mean score minus share of hits of each bin, 0 where it is empty."""
    weight, scores, hits = sums
    return (scores - hits) / np.where(weight > 0, weight, 1.0)


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


def _smooth_ece(event: Scored, block: Block) -> Floats:
    densities = np.ascontiguousarray(event.cached(_residual_sums).of(block).T)
    return np.array([_error_of_residuals(density) for density in densities])


def _residual_sums(event: Scored) -> PlaceSums:
    """Share each residual between the two nearest cell centres; cells beyond an end are the mirrored end cell."""
    position = np.clip(event.scores, 0.0, 1.0) * _GRID - 0.5
    left = np.floor(position).astype(np.int64)
    residual = (event.hits - event.scores) * _GRID
    to_right = position - left
    cells = np.clip(np.stack([left, left + 1], axis=1), 0, _GRID - 1)
    return PlaceSums(cells, np.stack([residual * (1 - to_right), residual * to_right], axis=1), _GRID)


def _error_of_residuals(density: Floats) -> float:
    """Return the smooth calibration error of a density of residuals (cells,)."""
    from scipy.fft import dct, idct  # on first use: importing it takes longer than importing glayers
    from scipy.optimize import brentq

    spectrum = dct(density)  # smoothing with reflection at both ends multiplies the cosine transform
    exponent = -((np.pi * np.arange(_GRID)) ** 2) / 2

    def excess(log_bandwidth: float) -> float:
        """How far log(error) lies above log(bandwidth): it falls with slope -1 or steeper."""
        variance = math.exp(2 * log_bandwidth)
        kept = np.searchsorted(-exponent, 45.0 / variance)  # e^-45 is lost in rounding
        smoothed = idct(spectrum[:kept] * np.exp(variance * exponent[:kept]), n=_GRID)
        return math.log(np.abs(smoothed).mean() + 1e-300) - log_bandwidth

    # Smoothing takes area away, but never so much that less than the integral is left.
    lowest = max(abs(float(density.mean())), 1e-15)
    highest = float(np.abs(density).mean())
    if lowest >= highest or excess(math.log(highest)) >= 0:
        return highest
    if excess(math.log(lowest)) <= 0:
        return lowest
    return math.exp(brentq(excess, math.log(lowest), math.log(highest), xtol=1e-13))


_GUPTA = "Gupta et al., ICLR 2021"
_RAHIMI = "Rahimi et al., 2020"
_ARRIETA = "Arrieta-Ibarra et al., JMLR 2022"
_NAEINI = "Naeini et al., AAAI 2015"
_KUMAR = "Kumar et al., NeurIPS 2019"
_BLASIOK = "Blasiok and Nakkiran, ICLR 2024"
_KULL = "Kull et al., NeurIPS 2019"
_LARGEST = "the largest of many bins"  # even where nothing else speaks against them, two intervals in ten cover
_FAR = 10.0  # standard errors: chance raises the sum in every bin; nearer to 0, 43 to 86 % of unflagged intervals cover
_noisy = partial(Metric, trusted_from=_FAR)


METRICS = (
    Metric("ks", "KS", _ks, _GUPTA),
    Metric("mean_top_ks", "KS, mean over top {} ranks", _ks, _RAHIMI, about="ranks", at_most=N_RANKS),
    Metric("classwise_ks", "KS, class-wise", _ks, _GUPTA, about="classes", over_classes=error_of_each_class),
    Metric("kuiper", "Kuiper", _kuiper, _ARRIETA),
    _noisy("ece", "ECE, 15 equal-width bins", _ece, _NAEINI),
    _noisy("ece_equal_mass", "ECE, 15 equal-mass bins", _ece_equal_mass, _NAEINI),
    _noisy("classwise_ece", "ECE, class-wise", _ece_of_segments, _KULL, about="classes", over_classes=_ece_per_class),
    Metric("smooth_ece", "ECE, smooth", _smooth_ece, _BLASIOK, trusted_from=6.0),
    _noisy("mce", "MCE", _mce, _NAEINI, unreliable=_LARGEST),
    _noisy("rms_calibration_error", "RMS calibration error, equal-width", _rms, _KUMAR),
)
