"""Scores and hits -> binned calibration errors as functions of row weights, for many resamples at once.

The bins of `bins.py`. Equal-mass edges are cut once, at the sample's quantiles, and stay there for every resample.
"""

from collections.abc import Callable

import numpy as np

from glayers.arrays import Array, Floats, Ints
from glayers.metrics.old.bins import BinSums, _accuracy_variance, _inner_edges, _mean_abs_normal, _quantile_edges
from glayers.metrics.old.checks import Scored
from glayers.metrics.old.resampling import Batch

BINS = 15


def equal_width_errors(event: Scored) -> Callable[[Batch], dict[str, Floats]]:
    """Return the function from row weights to the errors in equal-width bins."""
    sums_of = _bin_sums(event, _inner_edges(BINS))

    def errors(batch: Batch) -> dict[str, Floats]:
        sums = sums_of(batch)
        gaps = np.abs(sums.gaps())
        return {
            "ece": _ece(sums),
            "mce": gaps.max(axis=0),
            "rms_calibration_error": np.sqrt((sums.weight * gaps**2).sum(axis=0)),
        }

    return errors


def equal_mass_errors(event: Scored) -> Callable[[Batch], dict[str, Floats]]:
    """Return the function from row weights to the errors in equal-mass bins."""
    sums_of = _bin_sums(event, _quantile_edges(event, BINS))

    def errors(batch: Batch) -> dict[str, Floats]:
        sums = sums_of(batch)
        gaps, deviations = np.abs(sums.gaps()), np.sqrt(_accuracy_variance(sums, sums.rows))
        expected = np.vectorize(_mean_abs_normal, otypes=[np.float64])(gaps, deviations)
        squares = gaps**2 - _accuracy_variance(sums, sums.rows - 1)
        return {
            "ece_equal_mass": _ece(sums),
            "debiased_ece": (sums.weight * (2 * gaps - expected)).sum(axis=0),
            "debiased_rms_calibration_error": np.sqrt(np.maximum(0.0, (sums.weight * squares).sum(axis=0))),
        }

    return errors


def _ece(sums: BinSums) -> Floats:
    return np.abs(sums.confidence - sums.hits).sum(axis=0)


def _bin_sums(event: Scored, inner_edges: Floats) -> Callable[[Batch], BinSums]:
    """Return the function from row weights to what falls into each bin, (bins, b)."""
    place = np.searchsorted(inner_edges, event.scores, side="left")
    weight, confidence, hits = (
        _membership(place, values, len(inner_edges) + 1) for values in (np.ones(len(place)), event.scores, event.hits)
    )

    def sums(batch: Batch) -> BinSums:
        held = weight @ batch.shares
        return BinSums(held, confidence @ batch.shares, hits @ batch.shares, rows=held * batch.totals)

    return sums


def _membership(place: Ints, values: Floats, bins: int) -> Array:
    """The sparse matrix (bins, rows) with each row's value in its bin."""
    from scipy.sparse import csc_array  # on first use: it takes longer to import than all of glayers

    pointer = np.arange(len(place) + 1, dtype=np.int32)
    return csc_array((values, place.astype(np.int32), pointer), shape=(bins, len(place)))
