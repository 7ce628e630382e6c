"""Old place of these names, until every import has moved to glayers.predictions.formats and contents."""

from typing import Any

from glayers.predictions.contents import Contents
from glayers.predictions.formats import WRITERS, to_bytes


class Written(Contents):
    """Use Contents(logits=...) or Contents(probabilities=...) instead."""

    def __init__(self, kind: str, scores: Any, labels: Any = None, **rest: Any) -> None:
        super().__init__(**{kind: scores}, labels=labels, **rest)


__all__ = ["WRITERS", "Written", "to_bytes"]
