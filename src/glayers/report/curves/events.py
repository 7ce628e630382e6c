"""Probabilities and labels -> one event a row, chosen by rank, by "within the top r" or by class."""

from glayers.arrays import Bools, Floats
from glayers.errors import BadPredictions
from glayers.metrics.old.checks import check
from glayers.metrics.old.events import class_event, rank_event, within_top_event

_CHOICES = {"rank": rank_event, "within": within_top_event, "class_": class_event}
_NAMES = {"rank": "rank {}", "within": "within top {}", "class_": "class {}"}


def event_scores(
    probabilities: object,
    labels: object,
    *,
    rank: int | None = None,
    within: int | None = None,
    class_: int | None = None,
) -> tuple[Floats, Bools]:
    """Return the score each row gave an event and whether it happened; the top class is the label, unless chosen.

    >>> scores, hits = event_scores([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2], rank=2)
    >>> scores.tolist(), hits.tolist()
    ([0.2, 0.3], [False, True])
    """
    choice, number = _chosen(rank, within, class_)
    event = _CHOICES[choice](check(probabilities, labels), number)
    return event.scores, event.hits > 0


def event_name(*, rank: int | None = None, within: int | None = None, class_: int | None = None) -> str:
    """Return what people call the event of `event_scores`.

    >>> event_name(), event_name(within=3)
    ('top class', 'within top 3')
    """
    choice, number = _chosen(rank, within, class_)
    return "top class" if (choice, number) == ("rank", 1) else _NAMES[choice].format(number)


def _chosen(rank: int | None, within: int | None, class_: int | None) -> tuple[str, int]:
    given = {"rank": rank, "within": within, "class_": class_}
    chosen = [(choice, number) for choice, number in given.items() if number is not None]
    if len(chosen) > 1:
        raise BadPredictions(f"choose one of rank, within and class_; got {dict(chosen)}")
    return chosen[0] if chosen else ("rank", 1)
