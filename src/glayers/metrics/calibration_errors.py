"""Predictions -> calibration errors: KS and Kuiper without bins, ECE and its variants in bins, and smooth ECE.

KS has no bins and no settings. Sort rows by score and add up weight * (score - hit): a calibrated model keeps the
running sum near zero. Rows of equal score enter together, so the order of rows never matters. Gupta et al.,
"Calibration of Neural Networks using Splines", ICLR 2021; ranks, top-r and subsets as in the g-layers paper.

For many weightings of the same rows (`running_gap`), rows are sorted once. The running sum rises at every row that
misses and falls at every row that hits, so its extremes lie where it turns, whatever the weights. All rows between two
turns can be added up first, and each block of weights is one sparse matrix product, segments x rows.

Bins have equal widths and are closed on the right, so a score of exactly 1 is in the last bin and exactly 0 in the
first.

Smooth ECE has no bins. Residuals (hit - score) are spread over [0, 1] by a Gaussian kernel reflected at both ends. The
error at bandwidth s is the area under their absolute value, and the bandwidth is the one equal to the error itself.
Blasiok and Nakkiran, "Smooth ECE: Principled Reliability Diagrams via Kernel Smoothing", ICLR 2024. On a logarithmic
scale the error is nearly a straight line of the bandwidth (slope -1/2 for pure noise, 0 for a gap of one sign), so
Brent's method finds the bandwidth in a dozen steps.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from glayers.arrays import Bools, Floats, Ints
from glayers.checks import whole_number
from glayers.metrics.events import (
    N_BINS,
    Event,
    Rows,
    Scored,
    bin_of,
    check_event,
    check_rows,
    class_events,
    last_of_ties,
    top,
)
from glayers.metrics.metric import (
    METRICS,
    Block,
    Evaluation,
    Metric,
    defined_by,
    in_table,
    of_each_class,
    sums_by_place,
)

__all__ = ["classwise_ece", "classwise_ks", "ece", "ece_per_class", "ks", "ks_per_class", "kuiper"]
__all__ += ["mean_top_ks", "smooth_ece"]


N_RANKS = 10
_GRID = 4096  # cells of [0, 1]: well below any bandwidth that 1e6 rows can resolve
_GUPTA = "Gupta et al., ICLR 2021"
_KULL = "Kull et al., NeurIPS 2019"
_FAR = 10.0  # standard errors: chance raises the sum in every bin; nearer to 0, 43 to 86 % of unflagged intervals cover
_noisy = partial(Metric, trusted_from=_FAR)
_rank_mean = partial(Metric, about="ranks", at_most=N_RANKS, trusted_from=4.0)


@defined_by("KS", _GUPTA)
def ks(event: Scored, block: Block) -> Floats:
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
    return np.abs(block.cached(_running_gaps, event)).max(axis=0)


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
    at_most = whole_number(n_ranks, "n_ranks", 1, rows.n_classes)
    return replace(METRICS["mean_top_ks"], at_most=at_most).score(rows)


in_table(
    _rank_mean(
        "mean_top_ks", "KS, mean over top {} ranks", METRICS["ks"].evaluate, "Rahimi et al., 2020", function=mean_top_ks
    )
)


@defined_by("KS, class-wise", _GUPTA, about="classes")
def classwise_ks(event: Scored, block: Block) -> Floats:
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
    return METRICS["ks"].evaluate(event, block)


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
    return _per_class(METRICS["ks"].evaluate, rows)


def _per_class(evaluate: Evaluation, rows: Rows) -> Floats:
    return of_each_class(evaluate, class_events(rows), rows.weights[:, None])[:, 0]


@defined_by("Kuiper", "Arrieta-Ibarra et al., JMLR 2022", trusted_from=4.0)
def kuiper(event: Scored, block: Block) -> Floats:
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
    gaps = block.cached(_running_gaps, event)
    return np.maximum(gaps.max(axis=0), 0.0) - np.minimum(gaps.min(axis=0), 0.0)  # the gap starts at 0


def _ece(event: Scored, block: Block, n_bins: int = N_BINS) -> Floats:
    return np.abs(event.cached(_bin_gaps, n_bins) @ block.weights).sum(axis=0)


def _bin_gaps(event: Scored, n_bins: int) -> Any:
    """Return what each row adds to the gap of its bin."""
    place = bin_of(event.scores, inner_edges(n_bins))
    return sums_by_place(place[:, None], (event.scores - event.hits)[:, None], n_bins)


def inner_edges(n_bins: int) -> Floats:
    """Return the edges between equal-width bins."""
    number = whole_number(n_bins, "n_bins", least=1)
    return np.arange(1, number) / number


def ece(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    event: Event | str = top,
    n_bins: int = N_BINS,
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
        The number of bins, of equal width.

    Returns
    -------
    float
        A number from 0 to 1. Naeini et al., AAAI 2015; 15 equal-width bins as in Guo et al., ICML 2017.

    Examples
    --------
    >>> round(ece([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.2, 0.2, 0.6]], [0, 2, 2]), 12)  # (2 * 0.4 + 0.4) / 3
    0.4
    """
    evaluate = partial(_ece, n_bins=whole_number(n_bins, "n_bins", least=1))
    return replace(METRICS["ece"], evaluate=evaluate).score(
        check_event(probabilities, labels, sample_weight, event=event)
    )


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


in_table(_noisy("ece", "ECE, 15 equal-width bins", _ece, "Naeini et al., AAAI 2015", function=ece))
in_table(_noisy("classwise_ece", "ECE, class-wise", _ece, _KULL, about="classes", function=classwise_ece))


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
    return _per_class(partial(_ece, n_bins=whole_number(n_bins, "n_bins", least=1)), rows)


@defined_by("ECE, smooth", "Blasiok and Nakkiran, ICLR 2024", trusted_from=6.0)
def smooth_ece(event: Scored, block: Block) -> Floats:
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
    densities = np.ascontiguousarray((event.cached(_residual_sums) @ block.weights).T)
    return np.array([_error_of_residuals(density) for density in densities])


def running_gap(event: Scored) -> Any:
    """Return the sparse matrix (segments, rows) whose product with weights is what each segment adds to the gap."""
    from scipy.sparse import csr_array  # on first use: importing it takes longer than importing glayers

    order = np.argsort(event.scores)
    residuals = (event.scores - event.hits)[order]
    starts = _segment_starts(event.scores[order], residuals < 0)
    pointers = np.append(starts, len(order)).astype(np.int32)
    return csr_array((residuals, order.astype(np.int32), pointers), shape=(len(starts), len(order)))


def _running_gaps(block: Block, event: Scored) -> Floats:
    """Return the running gap wherever it may turn, (points, b)."""
    return np.cumsum(event.cached(running_gap) @ block.weights, axis=0)


def _segment_starts(scores: Floats, falls: Bools) -> Ints:
    """Return where a new segment must start: at a new score, if the rows from the last score to this rise and fall."""
    first = np.flatnonzero(np.append(True, last_of_ties(scores)[:-1]))  # rows of equal score enter together
    any_falls = np.logical_or.reduceat(falls, first)
    any_rises = np.logical_or.reduceat(~falls, first)
    turns = (any_falls[1:] | any_falls[:-1]) & (any_rises[1:] | any_rises[:-1])
    return first[np.append(True, turns)]


def _residual_sums(event: Scored) -> Any:
    """Share each residual between the two nearest cell centres; cells beyond an end are the mirrored end cell."""
    position = np.clip(event.scores, 0.0, 1.0) * _GRID - 0.5
    left = np.floor(position).astype(np.int64)
    residual = (event.hits - event.scores) * _GRID
    to_right = position - left
    cells = np.clip(np.stack([left, left + 1], axis=1), 0, _GRID - 1)
    return sums_by_place(cells, np.stack([residual * (1 - to_right), residual * to_right], axis=1), _GRID)


def _error_of_residuals(density: Floats) -> float:
    """Return the smooth calibration error of a density of residuals (cells,)."""
    from scipy.fft import dct, idct  # on first use: importing it takes longer than importing glayers
    from scipy.optimize import brentq

    spectrum = dct(density)  # smoothing with reflection at both ends multiplies the cosine transform
    exponent = -((np.pi * np.arange(_GRID)) ** 2) / 2

    def excess(log_bandwidth: float) -> float:
        """How far log(error) lies above log(bandwidth): it falls with slope -1 or steeper."""
        smoothed = idct(spectrum * np.exp(math.exp(2 * log_bandwidth) * exponent))
        return math.log(np.abs(smoothed).mean() + 1e-300) - log_bandwidth

    # Smoothing takes area away, but never so much that less than the integral is left.
    lowest = max(abs(float(density.mean())), 1e-15)
    highest = float(np.abs(density).mean())
    if lowest >= highest or excess(math.log(highest)) >= 0:
        return highest
    if excess(math.log(lowest)) <= 0:
        return lowest
    return math.exp(brentq(excess, math.log(lowest), math.log(highest), xtol=1e-13))
