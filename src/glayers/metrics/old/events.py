"""Checked probabilities and labels -> one event a row: the score it was given and whether it happened.

"The class at this rank is the label", "the label is among the r highest", "the label is this class", "in this set": a
calibrated model is right about each of them, so each can be measured and tested.
"""

from collections.abc import Iterable

import numpy as np

from glayers.metrics.old.checks import Checked, Scored, top
from glayers.metrics.old.ranking import label_ranks_within, top_scores
from glayers.probabilities import refuse_outside_unit_interval
from glayers.settings import class_numbers, whole_number


def rank_event(checked: Checked, rank: int) -> Scored:
    """The class at this rank of the row, 1 for the highest, is the label."""
    rank = whole_number(rank, "rank", 1, checked.probabilities.shape[1])
    if rank == 1:
        return top(checked)
    scores = top_scores(checked, rank)
    return checked.event(scores[:, -1], label_ranks_within(checked, scores) == rank - 1)


def within_top_event(checked: Checked, r: int) -> Scored:
    """The label is among the r highest classes; the score is the sum of their probabilities."""
    r = whole_number(r, "r", 1, checked.probabilities.shape[1])
    scores = top_scores(checked, r)
    sums = scores.sum(axis=1)
    refuse_outside_unit_interval(sums, f"sums of the {r} highest probabilities")
    return checked.event(sums, label_ranks_within(checked, scores) < r)


def class_event(checked: Checked, class_number: int) -> Scored:
    """The label is this class."""
    c = whole_number(class_number, "class_number", 0, checked.probabilities.shape[1] - 1)
    scores = checked.probabilities[:, c].astype(np.float64)
    refuse_outside_unit_interval(scores, "probabilities")
    return checked.event(scores, checked.labels == c)


def subset_event(checked: Checked, subset: Iterable[int]) -> Scored:
    """The label is in this set of classes; the score is the sum of their probabilities."""
    chosen = class_numbers(subset, "subset", checked.probabilities.shape[1])
    scores = checked.probabilities[:, chosen].sum(axis=1, dtype=np.float64)
    refuse_outside_unit_interval(scores, "sums of the probabilities of the subset")
    return checked.event(scores, np.isin(checked.labels, chosen))
