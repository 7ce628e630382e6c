"""Probabilities and labels -> KS calibration errors: the largest gap between cumulative score and cumulative truth.

No bins and no settings. Sort rows by score and add up (score - hit) / n; a calibrated model keeps the running sum near
zero. Rows of equal score enter together, so the order of rows never matters. Gupta et al., "Calibration of Neural
Networks using Splines", ICLR 2021; ranks, top-r and subsets as in the g-layers paper.
"""

from collections.abc import Iterable

import numpy as np

from glayers.arrays import Floats
from glayers.metrics.old.checks import Checked, Scored, check, check_scored, top
from glayers.metrics.old.ranking import label_ranks_within, top_scores
from glayers.probabilities import refuse_outside_unit_interval
from glayers.settings import class_numbers, whole_number

_COLUMNS_AT_ONCE = 32  # columns copied together: a cache line of a row is used whole


def ks_error_of(scores: object, hits: object, weights: object = None) -> float:
    """KS error of any event: the score each row gave it, and whether it happened. Gupta et al., ICLR 2021.

    Sorted, the gaps are 0.6 - 1 = -0.4, then -0.4 + 0.8 - 1 = -0.6, over 2 rows.

    >>> round(ks_error_of([0.8, 0.6], [True, True]), 12)
    0.3
    """
    return _largest_gap(check_scored(scores, hits, weights))


def ks_error(probabilities: object, labels: object, weights: object = None, rank: int = 1) -> float:
    """KS error of the class at the given rank of each row: 1 for the highest, the usual top-1 error.

    Gupta et al., ICLR 2021.

    >>> round(ks_error([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]), 12)
    0.3
    """
    checked = check(probabilities, labels, weights)
    rank = whole_number(rank, "rank", 1, _n_classes(checked))
    if rank == 1:
        return _largest_gap(top(checked))
    scores = top_scores(checked, rank)
    hits = label_ranks_within(checked, scores) == rank - 1
    return _largest_gap(checked.event(scores[:, -1], hits))


def ks_within_top(probabilities: object, labels: object, r: int, weights: object = None) -> float:
    """KS error of "the label is among the r highest": the score is the sum of those probabilities.

    Gupta et al., ICLR 2021, who call it within-top-r.

    >>> round(ks_within_top([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 0], r=2), 12)
    0.4
    """
    checked = check(probabilities, labels, weights)
    r = whole_number(r, "r", 1, _n_classes(checked))
    scores = top_scores(checked, r)
    sums = scores.sum(axis=1)
    refuse_outside_unit_interval(sums, f"sums of the {r} highest probabilities")
    hits = label_ranks_within(checked, scores) < r
    return _largest_gap(checked.event(sums, hits))


def mean_top_ks(probabilities: object, labels: object, weights: object = None, ranks: int = 10) -> float:
    """Mean of the KS errors of rank 1 to `ranks`, which must not exceed the number of classes.

    Rahimi et al., "Post-hoc Calibration of Neural Networks by g-Layers", 2020; its "top-10" figure for 10 classes is
    the mean over the first nine ranks: `ranks=9` gives it.
    """
    checked = check(probabilities, labels, weights)
    ranks = whole_number(ranks, "ranks", 1, _n_classes(checked))
    scores = top_scores(checked, ranks)
    place = label_ranks_within(checked, scores)
    return float(np.mean([_largest_gap(checked.event(scores[:, rank], place == rank)) for rank in range(ranks)]))


def classwise_ks(probabilities: object, labels: object, weights: object = None) -> float:
    """Mean over classes of the KS error of "the label is this class".

    The error of Gupta et al., ICLR 2021, for the class-wise calibration of Kull et al., NeurIPS 2019.
    """
    return float(class_ks(probabilities, labels, weights).mean())


def class_ks(probabilities: object, labels: object, weights: object = None) -> Floats:
    """KS error of "the label is this class", for each class, (k,). Gupta et al., ICLR 2021.

    >>> class_ks([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2]).round(2).tolist()
    [0.1, 0.4, 0.3]
    """
    checked = check(probabilities, labels, weights)
    n_classes = _n_classes(checked)
    result = np.empty(n_classes)
    for first in range(0, n_classes, _COLUMNS_AT_ONCE):
        columns = checked.probabilities[:, first : first + _COLUMNS_AT_ONCE].T.astype(np.float64, order="C")
        refuse_outside_unit_interval(columns.T, "probabilities")
        for offset, scores in enumerate(columns):
            hits = checked.labels == first + offset
            result[first + offset] = _largest_gap(checked.event(scores, hits))
    return result


def subset_ks(probabilities: object, labels: object, subset: Iterable[int], weights: object = None) -> float:
    """KS error of "the label is in this set of classes"; calibration of all classes at once implies it for every set.

    Rahimi et al., "Post-hoc Calibration of Neural Networks by g-Layers", 2020.

    >>> round(subset_ks([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2], subset=[0, 2]), 12)
    0.4
    """
    checked = check(probabilities, labels, weights)
    chosen = class_numbers(subset, "subset", _n_classes(checked))
    scores = checked.probabilities[:, chosen].sum(axis=1, dtype=np.float64)
    refuse_outside_unit_interval(scores, "sums of the probabilities of the subset")
    return _largest_gap(checked.event(scores, np.isin(checked.labels, chosen)))


def _n_classes(checked: Checked) -> int:
    return checked.probabilities.shape[1]


def _largest_gap(event: Scored) -> float:
    order = np.argsort(event.scores)
    scores = event.scores[order]
    gap = np.cumsum(event.weights[order] * (scores - event.hits[order]))
    last_of_ties = np.append(scores[1:] != scores[:-1], True)
    return float(np.abs(gap[last_of_ties]).max())
