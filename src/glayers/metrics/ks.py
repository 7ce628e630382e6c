"""Predictions -> KS calibration errors: the largest gap between cumulative score and cumulative truth.

KS has no bins and no settings. Sort rows by score and add up weight * (score - hit): a calibrated model keeps the
running sum near zero. Rows of equal score enter together, so the order of rows never matters. Gupta et al.,
"Calibration of Neural Networks using Splines", ICLR 2021; ranks, top-r and subsets as in the g-layers paper.

For many weightings of the same rows (`running_gap`), rows are sorted once. The running sum rises at every row that
misses and falls at every row that hits, so its extremes lie where it turns, whatever the weights. All rows between two
turns can be added up first, and each block of weights is one sparse matrix product, segments x rows. Segments do not
cross the edges of bins either, so they also give the ECE of each class.
"""

from typing import Any

import numpy as np

from glayers.arrays import BLOCK_ENTRIES, Array, Bools, Floats, Ints, map_row_blocks
from glayers.checks import refuse_outside_unit_interval, whole_number
from glayers.metrics.events import (
    BIN_EDGES,
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
from glayers.metrics.metric import Block, Metric, score

__all__ = ["classwise_ks", "ks", "ks_per_class", "kuiper", "mean_top_ks"]

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


def kuiper(probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event = top) -> float:
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


def _gaps(event: Scored, block: Block) -> Floats:
    """Return the running gap wherever it may turn, (points, b)."""
    if not block.single:
        return np.cumsum(block.cached(gap_changes, event), axis=0)
    order = np.argsort(event.scores)  # one sort is faster than finding the segments
    scores = event.scores[order]
    gap = np.cumsum(block.weights[order, 0] * (scores - event.hits[order]))
    return gap[last_of_ties(scores), None]


def _ks(event: Scored, block: Block) -> Floats:
    return np.abs(_gaps(event, block)).max(axis=0)


def _kuiper(event: Scored, block: Block) -> Floats:
    gaps = _gaps(event, block)
    return np.maximum(gaps.max(axis=0), 0.0) - np.minimum(gaps.min(axis=0), 0.0)  # the gap starts at 0


_GUPTA = "Gupta et al., ICLR 2021"
_RAHIMI = "Rahimi et al., 2020"
_ARRIETA = "Arrieta-Ibarra et al., JMLR 2022"
METRICS = (
    Metric("ks", "KS", _ks, _GUPTA),
    Metric("mean_top_ks", "KS, mean over top {} ranks", _ks, _RAHIMI, about="ranks", at_most=N_RANKS),
    Metric("classwise_ks", "KS, class-wise", _ks, _GUPTA, about="classes", over_classes=error_of_each_class),
    Metric("kuiper", "Kuiper", _kuiper, _ARRIETA),
)
