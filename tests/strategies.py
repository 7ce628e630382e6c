"""Random predictions for property-based tests: peaked like a real model's, with ties, labels unsorted."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from glayers import Confidences
from glayers.maps import Chain, Stack
from glayers.metrics import Event
from glayers.metrics.events import check_event


def stack_of_two(share: float, branch: Chain) -> Stack:
    """Return a share of a branch, and the rest of the input itself."""
    return Stack(np.array([1 - share, share]), (Chain(()), branch))


class Case(NamedTuple):
    probabilities: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]


def make_case(seed: int, rows: int, classes: int, ties: bool = False) -> Case:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 3
    if ties:
        logits = np.round(logits)
    powers = np.exp(logits)
    return Case(
        probabilities=powers / powers.sum(axis=1, keepdims=True),
        labels=rng.integers(0, classes, rows),
        weights=rng.uniform(0.1, 3.0, rows),
    )


def confidences_of(event: Event, given: Any, labels: Any = None, *, sample_weight: Any = None) -> Confidences:
    """Return the score and the outcome of each row, which is all that `Confidences` know."""
    rows = check_event(given, labels, sample_weight, event=event)
    return Confidences(rows.scores, rows.hits, rows.given_weights, rows.groups)


def cases(max_rows: int = 60, max_classes: int = 9) -> st.SearchStrategy[Case]:
    return st.builds(
        make_case,
        seed=st.integers(0, 2**32 - 1),
        rows=st.integers(2, max_rows),
        classes=st.integers(2, max_classes),
        ties=st.booleans(),
    )


Numbers = npt.NDArray[Any]
