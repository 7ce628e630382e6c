"""What a fit has to say for itself: whether it converged, what it gained, what it never saw."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from glayers.predictions import Predictions


@dataclass(frozen=True)
class Diagnostics:
    """The facts of one fit. Losses are means over the calibration rows; `notes` are the warnings that `fit` issues."""

    method: str
    converged: bool
    reason: str
    iterations: int
    loss_before: float
    loss_after: float
    moved: bool
    rows: int
    labels_per_class: tuple[int, ...]
    classes_never_seen: tuple[int, ...]
    n_parameters: int
    seconds: float
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the facts by name, as JSON would have them."""
        return asdict(self)


def label_facts(given: Predictions) -> dict[str, Any]:
    """Return what the rows that count tell: how many, how many of each class, which never."""
    counted = given.labels if given.weights is None else given.labels[given.weights > 0]
    counts = np.bincount(counted, minlength=given.n_classes)
    return {
        "rows": len(counted),
        "labels_per_class": tuple(counts.tolist()),
        "classes_never_seen": tuple((counts == 0).nonzero()[0].tolist()),
    }
