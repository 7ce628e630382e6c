"""Classes and ranks -> the events a reader may choose to look at: "the top class is right", "the label is cat".

Every event costs a curve for every method, so of many classes only those are drawn that have most to tell.
"""

from dataclasses import dataclass

import numpy as np

from glayers.arrays import Bools, Floats, Ints
from glayers.report import shortened
from glayers.report.curves import ClassGaps, event_scores

_RANKS = 5
_WITHIN = (2, 3, 5)
_CLASSES = 50
_CURVES = 320  # of all methods together: at 6 kB each, 2 MB
_FEWEST_CLASSES = 5


@dataclass(frozen=True)
class Event:
    """What a reader chooses: a key for the page, the heading it stands under, its words, and how it is computed."""

    key: str
    group: str
    label: str
    choice: dict[str, int]

    def scores(self, probabilities: Floats, labels: Ints) -> tuple[Floats, Bools]:
        """Return the score of each row and whether it happened."""
        return event_scores(probabilities, labels, **self.choice)

    @property
    def is_top(self) -> bool:
        """Whether this is the event most people mean: the top class is right."""
        return self.choice == {"rank": 1}


def rank_events(n_classes: int) -> list[Event]:
    """Return the events by rank, highest first, and "the label is among the r highest"."""
    ranks = [
        Event(f"rank-{r}", "By rank", "top class" if r == 1 else f"class at rank {r}", {"rank": r})
        for r in range(1, min(_RANKS, n_classes) + 1)
    ]
    within = [
        Event(f"within-{r}", "Within the top", f"within top {r}", {"within": r}) for r in _WITHIN if r < n_classes
    ]
    return ranks + within


def class_events(classes: Ints, names: list[str]) -> list[Event]:
    """Return the events "the label is this class"."""
    return [Event(f"class-{c}", "By class", shortened(names[c]), {"class_": c}) for c in classes.tolist()]


def classes_that_matter(gaps: ClassGaps, n_methods: int, n_rank_events: int) -> Ints:
    """Return the classes to draw, in order: all if few, else half the most frequent and half the most miscalibrated.

    A class's KS is judged by its chance size: with frequency f and n rows, about the root of f / n.
    """
    n_classes = len(gaps.counts)
    room = min(_CLASSES, max(_FEWEST_CLASSES, _CURVES // n_methods - n_rank_events))
    if n_classes <= room:
        return np.arange(n_classes)
    by_rows = np.argsort(-gaps.counts, kind="stable")
    by_error = np.argsort(-gaps.ks / np.sqrt(np.maximum(gaps.confidence, 1e-12)), kind="stable")
    frequent = by_rows[: room // 2]
    others = by_error[~np.isin(by_error, frequent)][: room - len(frequent)]
    return np.sort(np.concatenate([frequent, others]))
