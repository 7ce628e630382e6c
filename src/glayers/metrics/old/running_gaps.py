"""Scores and hits -> KS and binned errors as functions of row weights: sort once, then every resample is one product.

Sorted by score, the running gap of an event rises at every row that misses and falls at every row that hits. Its
extremes lie where it turns, whatever the weights, so all rows between two turns can be added up first: a sparse matrix,
segments x rows. A bin's gap is the sum of its segments, as no segment crosses an edge.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from glayers.arrays import Bools, Floats, Ints


@dataclass(frozen=True)
class RunningGaps:
    """The segments of one event or of many, each event's segments in order of score."""

    matrix: Any  # scipy's csr_array, (segments, rows)
    events: tuple[slice, ...]
    bin_starts: tuple[Ints, ...]  # first segment of each bin that holds a row, counted from the event's first

    def changes(self, shares: Floats) -> Floats:
        """What each segment adds to its event's running gap, (segments, b), for row shares (n, b)."""
        return self.matrix @ shares

    def summed_ks(self, changes: Floats) -> Floats:
        """The largest size of each event's running gap, added over events, (b,)."""
        return np.sum([np.abs(np.cumsum(changes[event], axis=0)).max(axis=0) for event in self.events], axis=0)

    def summed_ece(self, changes: Floats) -> Floats:
        """The size of each bin's gap, added over bins and events, (b,)."""
        binned = [
            np.abs(np.add.reduceat(changes[event], starts, axis=0)).sum(axis=0)
            for event, starts in zip(self.events, self.bin_starts, strict=True)
        ]
        return np.sum(binned, axis=0)


def running_gaps(events: Iterable[tuple[Floats, Floats]], inner_edges: Floats) -> RunningGaps:
    """Sort each event, given as scores and hits, and find the segments between its turns and between bins."""
    from scipy.sparse import csr_array  # on first use: it takes longer to import than all of glayers

    orders, residuals, pointers, slices, bin_starts = [], [], [], [], []
    n_rows = n_segments = n_entries = 0
    for scores, hits in events:
        order = np.argsort(scores)
        sorted_scores, residual = scores[order], (scores - hits)[order]
        place = np.searchsorted(inner_edges, sorted_scores, side="left")
        starts = _segment_starts(sorted_scores, residual < 0, place)
        n_rows = len(scores)
        orders.append(order.astype(np.int32))
        residuals.append(residual)
        pointers.append(starts + n_entries)
        slices.append(slice(n_segments, n_segments + len(starts)))
        bin_starts.append(np.unique(place[starts], return_index=True)[1])
        n_segments, n_entries = n_segments + len(starts), n_entries + n_rows
    pointer = np.append(np.concatenate(pointers), n_entries)
    data = (np.concatenate(residuals), np.concatenate(orders), pointer.astype(np.int32))
    return RunningGaps(csr_array(data, shape=(n_segments, n_rows)), tuple(slices), tuple(bin_starts))


def _segment_starts(scores: Floats, falls: Bools, place: Ints) -> Ints:
    """Where a new segment must start: at a new score, if the rows from the last score to this one rise and fall."""
    new_score = np.append(True, scores[1:] != scores[:-1])
    first = np.flatnonzero(new_score)  # rows of equal score enter together
    any_falls, any_rises = np.logical_or.reduceat(falls, first), np.logical_or.reduceat(~falls, first)
    turns = (any_falls[1:] | any_falls[:-1]) & (any_rises[1:] | any_rises[:-1])
    new_bin = place[first[1:]] != place[first[:-1]]
    return first[np.append(True, turns | new_bin)]
