"""Rows -> sums over bins and narrow cells of scores, which add up over chunks; and the metrics of such sums.

All sums have one column per weighting of the rows: one for a score, many for the bootstrap.
"""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from glayers.arrays import Array, Floats, Ints, row_blocks, rows_in_a_block
from glayers.metrics import binned, scores, smooth
from glayers.metrics.events import Rows, Scored, bin_of
from glayers.metrics.ks import N_BINS, N_RANKS
from glayers.metrics.metric import Block, PlaceSums

SAME_SCORE = 1e-12  # as in `events`: scores this close are equal
_CLASS_CELLS = 2**20  # of all classes together, about: 8 MB for each of three sums
_EDGES = np.arange(1, N_BINS) / N_BINS


class Cells(NamedTuple):
    """Cells of [0, 1] whose width is a power of 2 times the score: `octaves` of 2**`bits` cells, and one for 1 itself.

    The cell of a score is read off its leading bits. The first cell also holds all smaller scores.
    """

    octaves: int
    bits: int

    @property
    def number(self) -> int:
        """The number of cells."""
        return self.octaves * 2**self.bits + 1

    def of(self, scores: Array) -> Ints:
        """Return the cell of each score.

        >>> Cells(3, 1).of(np.array([0.0, 0.126, 0.25, 0.375, 0.5, 0.75 - 1e-15, 0.9, 1.0])).tolist()
        [0, 0, 2, 3, 4, 5, 5, 6]
        """
        kind = np.int32 if scores.dtype == np.float32 else np.int64
        shift = np.finfo(scores.dtype).nmant - self.bits
        first = scores.dtype.type(2.0**-self.octaves).view(kind) >> shift
        leading = np.clip(scores + scores.dtype.type(SAME_SCORE), 0, 1).view(kind) >> shift
        return np.maximum(leading - first, 0)


FINE, RANKS, COARSE = Cells(14, 12), Cells(12, 11), Cells(10, 7)  # of the event, of other ranks, of each resample


def class_cells(n_classes: int) -> Cells:
    """Return cells that resolve the probability of one class of many, within about `_CLASS_CELLS` for all classes."""
    octaves = math.ceil(math.log2(n_classes)) + 4  # a sixteenth of an even share
    each = _CLASS_CELLS / (n_classes * octaves)
    return Cells(octaves, min(11, max(2, math.floor(math.log2(max(each, 1))))))


def sums_of(rows: Rows | Scored, event: Scored, weights: Floats, drawn: bool = False) -> dict[str, Floats]:
    """Return everything that adds up, for each column of weights; if `drawn`, coarsely and without the bounds."""
    cells, rank_cells = (COARSE, COARSE) if drawn else (FINE, RANKS)
    block = Block(weights, np.ones(weights.shape[1]))

    def in_places(place: Ints, values: Floats, number: int) -> Floats:
        return PlaceSums(place[:, None], values[:, None], number).of(block)

    one = np.ones(len(event.scores))
    loss = squares = top_k = np.zeros(len(event.scores))
    ranked = np.zeros((len(one), 0))
    if isinstance(rows, Rows):
        loss, squares = scores.row_losses(rows), scores.row_brier_sums(rows)
        ranked = rows.top_scores(min(N_RANKS, rows.n_classes))
        ranks = rows.label_ranks_within(ranked)
        top_k = (ranks < min(scores.TOP_K, rows.n_classes)).astype(np.float64)
    infinite = np.isinf(loss)
    means = [one, event.hits, top_k, event.scores, np.where(infinite, 0.0, loss), squares, infinite]
    held = one if rows.given_weights is None else rows.given_weights
    found = {
        "means": np.stack(means) @ weights,
        "squared": np.stack([held, held * event.hits]) @ weights,
        "residuals": smooth.residual_sums(event).of(block),
    }
    place, cell = bin_of(event.scores, _EDGES), cells.of(event.scores)
    for name, values in {"weight": one, "scores": event.scores, "hits": event.hits}.items():
        found[f"bin_{name}"] = in_places(place, values, N_BINS)
        found[f"cell_{name}"] = in_places(cell, values, cells.number)
    if not drawn:
        found["cell_rises"] = in_places(cell, event.scores * (1 - event.hits), cells.number)
    if ranked.shape[1] > 1:
        gaps, rises = [], []
        for r in range(1, ranked.shape[1]):
            score, hit, cell = ranked[:, r], ranks == r, rank_cells.of(ranked[:, r])
            gaps.append(in_places(cell, score - hit, rank_cells.number))
            if not drawn:
                rises.append(in_places(cell, score * ~hit, rank_cells.number))
        found |= {"rank_gaps": np.stack(gaps)} | ({} if drawn else {"rank_rises": np.stack(rises)})
    return found


def metrics_of(sums: dict[str, Floats], n_classes: int) -> dict[str, Floats]:
    """Return the metrics of each column, but for those of classes; equal-mass bins are those of column 0."""
    weight, hits, top_k, scores_sum, loss, squares, infinite = sums["means"]
    changes = (sums["cell_scores"] - sums["cell_hits"]) / weight
    found = {"accuracy": np.minimum(hits / weight, 1.0), "confidence": np.minimum(scores_sum / weight, 1.0)}
    found["ks"] = _largest(changes)
    if n_classes:
        found["top_5_accuracy"] = np.minimum(top_k / weight, 1.0)
        found["nll"] = np.where(infinite > 0, np.inf, loss / weight)
        found["brier_sum"], found["brier"] = squares / weight, squares / weight / n_classes
        ranks = [found["ks"], *(_largest(gaps / weight) for gaps in sums["rank_gaps"])]
        found["mean_top_ks"] = np.mean(ranks, axis=0)
    block = Block(np.zeros((0, len(weight))), weight**2 / sums["squared"][0])
    wide = [sums[f"bin_{name}"] / weight for name in ("weight", "scores", "hits")]
    block.know(
        binned.BinSums(wide[0], wide[1], wide[2], wide[0] * block.totals), binned.bin_sums, None, N_BINS, "equal_width"
    )
    block.know(equal_mass_sums(sums, slice(None)), binned.bin_sums, None, N_BINS, "equal_mass")
    for metric in binned.METRICS:
        if metric.about == "event":
            found[metric.name] = metric.evaluate(None, block)
    found["smooth_ece"] = smooth.errors_of(sums["residuals"] / weight)
    return found


def bounds_of(sums: dict[str, Floats], extremes: Floats, debiased_rms: float) -> dict[str, float]:
    """Return the bounds of the metrics of cells; scores that are all equal in a cell have no order within it."""
    total = sums["means"][0, 0]
    several = -extremes[1] - extremes[0] > SAME_SCORE
    change = (sums["cell_scores"] - sums["cell_hits"])[:, 0] / total
    rises = sums["cell_rises"][:, 0] / total
    bounds = {"ks": ks_with_bound(change, np.where(several, rises, np.maximum(change, 0.0)))[1]}
    if "rank_gaps" in sums:
        ranks = zip(sums["rank_gaps"][..., 0] / total, sums["rank_rises"][..., 0] / total, strict=True)
        each = [ks_with_bound(*pair)[1] for pair in ranks]
        bounds["mean_top_ks"] = (bounds["ks"] + sum(each)) / (1 + len(each))
    bins = equal_mass_sums(sums, slice(0, 1))
    edges = np.unique(equal_mass_cells(sums["cell_weight"][:, 0]))
    edges = edges[several[edges]]
    # What the rows may move from one bin to another, if the edge lies elsewhere in its cell.
    moved = max(0.0, float((2 * rises - change)[edges].sum()))
    mass = float(sums["cell_weight"][edges, 0].sum()) / total
    n_rows = total**2 / sums["squared"][0, 0]
    bounds["ece_equal_mass"] = 2 * moved
    bounds["debiased_ece"] = 6 * moved + math.sqrt(4 * N_BINS * mass / n_rows)
    room = bins.weight - mass
    steepest = min(1.0, float(((np.abs(bins.scores - bins.hits) + moved) / np.where(room > 0, room, 1e-9)).max()))
    squares = 4 * steepest * moved + 2 * steepest**2 * mass + (N_BINS / n_rows if len(edges) else 0.0)
    bounds["debiased_rms_calibration_error"] = squares / max(debiased_rms, math.sqrt(squares)) if squares else 0.0
    return bounds


def equal_mass_cells(weight: Floats) -> Ints:
    """Return the cell of each edge between equal-mass bins, as `binned.bin_edges` finds the score of each."""
    reached = np.cumsum(weight) / weight.sum()
    return np.searchsorted(reached, _EDGES * reached[-1] - 1e-12, side="left")


def equal_mass_sums(sums: dict[str, Floats], columns: slice) -> binned.BinSums:
    """Add up the cells of each equal-mass bin; the cell of an edge belongs to the bin below it."""
    weight = sums["means"][0, columns]
    inner = equal_mass_cells(sums["cell_weight"][:, 0]) + 1
    edges = [0, *inner.tolist(), len(sums["cell_weight"])]
    parts = (sums[f"cell_{name}"][:, columns] for name in ("weight", "scores", "hits"))
    found = [np.stack([part[low:high].sum(axis=0) for low, high in pairwise(edges)]) / weight for part in parts]
    rows = found[0] * weight**2 / sums["squared"][0, columns]
    return binned.BinSums(found[0], found[1], found[2], rows)


def add_classes(rows: Rows, weights: Floats, totals: dict[str, Floats]) -> Floats:
    """Add up the cells of every class in place, and return the gap in each equal-width bin (k, bins).

    `totals` holds what the cells of each class were said to contain, the hits, and what was said of the hits. In a wide
    row most probabilities fall into the first cell. It is not added up: it is what the other cells leave of `columns`.
    """
    n_classes, cells = rows.n_classes, class_cells(rows.n_classes)
    for name in ("said", "hits", "of_hits"):
        totals.setdefault(name, np.zeros(n_classes * cells.number))
    columns, gaps = np.zeros(n_classes), np.zeros(n_classes * N_BINS)
    even = np.ptp(weights) == 0
    block_rows = rows_in_a_block(*rows.probabilities.shape)
    cell_zero = np.tile(np.arange(n_classes) * cells.number, block_rows)  # of the class of each entry of a block
    for some in row_blocks(*rows.probabilities.shape):
        p = _at_least_float32(rows.probabilities[some])
        columns += p.sum(axis=0, dtype=np.float64) * weights[0] if even else weights[some] @ p
        beyond = np.flatnonzero(p > p.dtype.type(2.0**-cells.octaves))
        value = p.reshape(-1)[beyond]
        weighted = value * (weights[0] if even else weights[some][beyond // n_classes])
        np.add.at(totals["said"], cell_zero[beyond] + cells.of(value), weighted)
        high = np.flatnonzero(value > _EDGES[0])
        first, weighted = beyond[high] % n_classes * N_BINS, weighted[high]
        np.add.at(gaps, first + bin_of(value[high].astype(np.float64), _EDGES), weighted)
        np.subtract.at(gaps, first, weighted)
    gaps[::N_BINS] += columns
    totals["columns"] = totals.get("columns", 0.0) + columns
    own = _at_least_float32(rows.probabilities[np.arange(len(weights)), rows.labels])
    np.subtract.at(gaps, rows.labels * N_BINS + bin_of(own.astype(np.float64), _EDGES), weights)
    place = rows.labels * cells.number + cells.of(own)
    np.add.at(totals["hits"], place, weights)
    np.add.at(totals["of_hits"], place, weights * own)
    return gaps.reshape(n_classes, N_BINS)


def class_changes(totals: dict[str, Floats], n_classes: int, total: float) -> Iterator[tuple[Floats, Floats]]:
    """Yield what each cell of each class adds to its running gap, and what its misses alone add."""
    said, hits, of_hits = (totals[name].reshape(n_classes, -1) for name in ("said", "hits", "of_hits"))
    for c in range(n_classes):
        own = said[c].copy()
        own[0] = totals["columns"][c] - own[1:].sum()
        yield (own - hits[c]) / total, (own - of_hits[c]) / total


def _at_least_float32(p: Array) -> Array:
    return p.astype(np.float32) if p.dtype == np.float16 else p


def _largest(changes: Floats) -> Floats:
    """Return the largest running gap of each column."""
    return np.abs(np.cumsum(changes, axis=0)).max(axis=0)


def ks_with_bound(changes: Floats, rises: Floats) -> tuple[float, float]:
    """Return the largest running gap at the ends of cells, and how much larger it may be inside one.

    Inside a cell the gap lies between its start less all falls, and its start plus all rises.
    """
    ends = np.cumsum(changes)
    largest = float(np.abs(ends).max())
    starts = ends - changes
    inside = max(float((starts + rises).max()), float((rises - ends).max()))  # starts - falls = ends - rises
    return largest, max(inside - largest, 0.0)


def add_extremes(scores: Floats, found: Floats) -> None:
    """Update the smallest score and the smallest -score in each cell."""
    cell = FINE.of(scores)
    np.minimum.at(found[0], cell, scores)
    np.minimum.at(found[1], cell, -scores)
