"""Predictions -> KS calibration errors: the largest gap between cumulative score and cumulative truth.

KS has no bins and no settings. Sort rows by score and add up weight * (score - hit): a calibrated model keeps the
running sum near zero. Rows of equal score enter together, so the order of rows never matters. Gupta et al.,
"Calibration of Neural Networks using Splines", ICLR 2021; ranks, top-r and subsets as in the g-layers paper.

For many weightings of the same rows (`running_gap`), rows are sorted once. The running sum rises at every row that
misses and falls at every row that hits, so its extremes lie where it turns, whatever the weights. All rows between two
turns can be added up first, and each block of weights is one sparse matrix product, segments x rows. Segments do not
cross the edges of bins either, so they also give the ECE of each class.
"""

import math
from typing import Any

import numpy as np

from glayers.arrays import BLOCK_ENTRIES, Array, Bools, Floats, Ints, map_row_blocks, row_blocks
from glayers.checks import HIGHEST, LOWEST, refuse_outside_unit_interval, whole_number
from glayers.metrics.events import (
    N_BINS,
    SAME_SCORE,
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
from glayers.metrics.metric import Block, Metric, score

__all__ = ["classwise_ks", "ks", "ks_per_class", "mean_top_ks"]

N_RANKS = 10


def ks(probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event = top) -> float:
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
    return _class_errors(rows, rows.weights)


def running_gap(event: Scored) -> tuple[Any, Ints]:
    """Find the segments of an event between its turns and between bins.

    Returns the sparse matrix (segments, rows) whose product with weights is what each segment adds to the running gap,
    and the first segment of each bin that holds a row.
    """
    from scipy.sparse import csr_array  # on first use: importing it takes longer than importing glayers

    order = np.argsort(event.scores)
    scores = event.scores[order]
    residuals = (event.scores - event.hits)[order]
    bins = bin_of(scores, np.arange(1, N_BINS) / N_BINS)
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


def _class_errors(rows: Rows, weights: Floats) -> Floats:
    """Return the KS error of "the label is this class", for each of the rows' classes.

    The running gap rises from one hit to the next, so its extremes lie at hits and at the end. Of all scores, only the
    sum below each hit matters. Up to some hit the gap is at most the sum of the hits or of the scores there. So a few
    of the lowest hits are left out at first, and with them most scores; they count only if no larger gap is found.
    """
    chosen = rows.classes or range(rows.n_classes)
    starts, edges, hits_below = _hits_of(rows, weights)
    hit_totals = np.bincount(rows.labels, weights, rows.n_classes).tolist()
    different = weights if np.ptp(weights) > 0 else weights[:1]

    def error(c: int, scores: Array, total: float) -> float:
        start, stop = starts[c : c + 2]
        largest = abs(total - hit_totals[c])
        if start == stop:
            return largest
        left_out = int(0.4 * math.sqrt(stop - start))  # a gap by chance mostly exceeds so many hits
        for begin in (start + left_out, start):
            sums = _sums_below(edges[:, begin:stop], scores, different, total)
            largest = max(largest, float(np.abs(sums - hits_below[:, begin:stop]).max()))
            if largest >= max(sums[0, 0], hits_below[0, begin]):
                break
        return largest

    def errors(part: slice) -> list[float]:
        first = chosen.start + part.start
        columns = _columns(rows.probabilities, slice(first, chosen.start + part.stop))
        if len(different) == 1:
            totals = different * columns.sum(axis=1, dtype=np.float64)
        else:
            totals = np.einsum("cn,n->c", columns, weights)  # a product would start threads
        return list(map(error, range(first, first + len(columns)), columns, totals.tolist()))

    # A cache line of a row holds some columns; of many rows fewer are copied, which bounds the memory.
    width = max(1, min(32, 1_000_000 // len(weights)))
    return np.concatenate(map_row_blocks(errors, len(chosen), BLOCK_ENTRIES // width))


@np.errstate(invalid="ignore")  # NaN and infinity are refused with the columns
def _hits_of(rows: Rows, weights: Floats) -> tuple[list[int], Floats, Floats]:
    """Sort the scores of hits by class; those that differ by rounding are one.

    Returns where each class starts, edges (2, scores) just below and just above each score, and the weight of the hits
    of the class below each edge.
    """
    order = rows.of_label.argsort()
    small = rows.labels.astype(np.min_scalar_type(rows.n_classes))  # small numbers are sorted by their digits
    order = order[small[order].argsort(kind="stable")]
    scores = rows.of_label[order]
    classes = rows.labels[order]
    last = last_of_ties(scores) | np.append(classes[1:] != classes[:-1], True)
    first = np.append(True, last[:-1])
    edges = np.stack([scores[first] - SAME_SCORE, scores[last] + SAME_SCORE])
    starts = np.searchsorted(classes[first], np.arange(rows.n_classes + 1)).tolist()
    units = weights[order] / weights.max()  # whole numbers if all are equal, whose sums are exact
    running = np.cumsum(units)
    totals = np.bincount(classes, units, rows.n_classes)
    earlier_classes = (np.cumsum(totals) - totals)[classes[first]]
    hits_below = np.stack([(running - units)[first], running[last]]) - earlier_classes
    return starts, edges, weights.max() * hits_below


def _sums_below(edges: Floats, scores: Array, weights: Floats, total: float) -> Floats:
    """Return the weighted sum of the scores below each edge, of which the first is the lowest; `total` is that of all.

    Scores below the lowest edge need no order. A single weight is that of every row.
    """
    (above,) = (scores >= float(edges[0, 0])).nonzero()
    ordered = scores[above]
    if len(weights) == 1:
        ordered.sort()  # in a third of the time of finding the order
    else:
        order = ordered.argsort()
        ordered = ordered[order]
        weights = weights[above[order]]
    ordered = ordered.astype(np.float64, copy=False)
    running = np.zeros(len(above) + 1)
    np.add.accumulate(weights * ordered, out=running[1:])
    running += max(0.0, total - running[-1])
    return running[ordered.searchsorted(edges)]


def _columns(probabilities: Array, columns: slice) -> Array:
    """Return some columns as rows (columns, n) in float32 or float64, copied block by block inside the cache."""
    dtype = np.float64 if probabilities.dtype == np.float64 else np.float32
    each = np.empty((columns.stop - columns.start, len(probabilities)), dtype)
    for rows in row_blocks(len(probabilities), BLOCK_ENTRIES // 500):
        each[:, rows] = probabilities[rows, columns].T
    if not (each.min() >= LOWEST and each.max() <= HIGHEST):
        refuse_outside_unit_interval(each.T, "probabilities")
    return each


def _ks(event: Scored, block: Block) -> Floats:
    if not block.single:
        return np.abs(np.cumsum(block.cached(gap_changes, event), axis=0)).max(axis=0)
    order = np.argsort(event.scores)  # one sort is faster than finding the segments
    scores = event.scores[order]
    gap = np.cumsum(block.weights[order, 0] * (scores - event.hits[order]))
    return np.abs(gap[last_of_ties(scores)]).max(keepdims=True)


def _cell_error(cells: Any, *_: object) -> float:
    """Return how far the largest gap inside a cell may exceed the largest at the ends of cells.

    Inside a cell the gap lies between its start less all falls, and its start plus all rises.
    """
    ends = np.cumsum(cells.changes)
    starts = ends - cells.changes
    at_ends = float(np.abs(ends).max())
    highest = float((starts + cells.rises).max())
    lowest = float((starts - cells.falls).min())
    return max(highest - at_ends, -lowest - at_ends, 0.0)


_GUPTA = "Gupta et al., ICLR 2021"
METRICS = (
    Metric("ks", "KS", _ks, _GUPTA, cell_error=_cell_error),
    Metric(
        "mean_top_ks",
        "KS, mean over top {} ranks",
        _ks,
        "Rahimi et al., 2020",
        about="ranks",
        at_most=N_RANKS,
        cell_error=_cell_error,
    ),
    Metric(
        "classwise_ks",
        "KS, class-wise",
        _ks,
        _GUPTA,
        about="classes",
        over_classes=_class_errors,
        cell_error=_cell_error,
    ),
)
