"""Predictions -> events: for each row the score a model gave, whether the event happened, and the weight of the row.

Every calibration metric is about one event per row: "the top class is the label", "the class at rank 2 is the label",
"the label is among the top 5", "the label is cat". A calibrated model is right about each of them.

This is also the one place that checks what a caller passes; metrics trust it.

Weights say how important a row is and are divided by their sum. Where a metric needs the number of rows, weights count
as Kish's effective size (sum w)^2 / sum w^2. Kish, "Survey Sampling", 1965. Rows that occurred several times have
counts instead (`Predictions`), and are repeated here.
"""

import warnings
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

import numpy as np

from glayers import checks
from glayers.activations import probabilities_and_losses
from glayers.arrays import Array, Bools, Floats, Ints, effective_rows, few_rows_note, row_blocks, to_floats
from glayers.checks import items_of, whole_number
from glayers.errors import WITHOUT_GROUPS, BadPredictions, GlayersWarning, shown
from glayers.predictions.predictions import Confidences, Predictions

__all__ = ["Event", "label", "one_of", "positive", "rank", "top", "within_top"]

_Made = TypeVar("_Made")
EventKind: TypeAlias = Literal["rank", "within top", "class", "positive class", "one of"]
N_BINS = 15  # of binned metrics, by default
BIN_EDGES = np.arange(1, N_BINS) / N_BINS  # between equal-width bins
ROUNDING = 1e-12  # numbers that are equal on paper differ by rounding: 0.1 + 0.2 + 0.3 exceeds 0.3 + 0.2 + 0.1


@dataclass(frozen=True)
class Event:
    """Something that happens or not in each row, to which the model gives a probability.

    Use `top`, `rank`, `within_top`, `label`, `positive` or `one_of` to make one, and pass it as `event=` to a metric,
    test, curve or figure. Events are hashable, and `name` says what they are.
    """

    kind: EventKind
    which: int | str | tuple[int | str, ...]

    def __post_init__(self) -> None:
        checks.check_choice(self.kind, get_args(EventKind), "kind")
        which: object = self.which
        if isinstance(which, np.ndarray) or (self.kind == "one of") != isinstance(which, tuple):
            raise BadPredictions(f"an event of kind {self.kind!r} cannot be about {shown(which)}")

    @property
    def name(self) -> str:
        """What the event is, in words."""
        if isinstance(self.which, tuple):
            return f"one of {len(self.which)} classes"
        if self == top:
            return "top class"
        return f"{self.kind} {self.which}"

    def of(self, rows: "Rows") -> "Scored":
        """Return the score and the outcome of each row."""
        if self == top and type(self.which) is int:  # not True, which equals 1
            return rows.top
        named = self.classes_of(rows)
        scores = np.take_along_axis(rows.probabilities, named, axis=1).sum(axis=1, dtype=np.float64)
        hits = (named == rows.labels[:, None]).any(axis=1)
        return rows.scored(scores, hits)

    def classes_of(self, rows: "Rows") -> Ints:
        """Return the classes (n, r) of each row that make the event happen if they are the label."""
        which: Any = self.which
        n_classes = rows.n_classes
        if self.kind == "rank":
            return rows.top_classes(whole_number(which, "rank", 1, n_classes))[:, -1:]
        if self.kind == "within top":
            return rows.top_classes(whole_number(which, "r", 1, n_classes))
        if self.kind == "positive class" and n_classes != 2:
            raise BadPredictions(f"these rows have {n_classes} classes, so none is positive; use label(c)")
        name = "one_of"
        if self.kind != "one of":
            name = "label"
            which = (which,)
        chosen = sorted({whole_number(_class_number(rows, c), name, 0, n_classes - 1) for c in which})
        return np.broadcast_to(np.asarray(chosen), (len(rows), len(chosen)))

    def __str__(self) -> str:
        return self.name


top = Event("rank", 1)


def rank(r: int) -> Event:
    """Return the event "the class at rank r of the row is the label".

    Parameters
    ----------
    r
        The rank, 1 for the class with the highest probability. Of equal probabilities the lower class number is first.

    Returns
    -------
    Event
        Its score is the probability of that class. `rank(1)` is `top`.

    Examples
    --------
    >>> rank(2).name, rank(1) == top
    ('rank 2', True)
    """
    return Event("rank", r)


def within_top(r: int) -> Event:
    """Return the event "the label is among the r classes with the highest probabilities".

    Parameters
    ----------
    r
        The number of classes.

    Returns
    -------
    Event
        Its score is the sum of the r highest probabilities. Gupta et al., ICLR 2021, call it within-top-r.

    Examples
    --------
    >>> within_top(5).name
    'within top 5'
    """
    return Event("within top", r)


def label(c: int | str) -> Event:
    """Return the event "the label is this class".

    Parameters
    ----------
    c
        A class number, or a class name if the metric is given `Predictions` with `class_names`.

    Returns
    -------
    Event
        Its score is the probability of the class.

    Examples
    --------
    >>> label("cat").name
    'class cat'
    """
    return Event("class", c)


def positive(c: int | str = 1) -> Event:
    """Return the event "the label is the positive class" of two classes.

    Parameters
    ----------
    c
        Its number, or its name, as in `label`.

    Returns
    -------
    Event
        Its score is the probability of the class. `event="positive"` stands for `positive()`. Rows with more than two
        classes are refused.

    Examples
    --------
    >>> positive("ill").name
    'positive class ill'
    """
    return Event("positive class", c)


def one_of(classes: Iterable[int | str]) -> Event:
    """Return the event "the label is one of these classes".

    Parameters
    ----------
    classes
        Class numbers or names, as in `label`.

    Returns
    -------
    Event
        Its score is the sum of their probabilities. Calibration in all classes at once implies it for every set:
        Rahimi et al., "Post-hoc Calibration of Neural Networks by g-Layers", 2020.

    Examples
    --------
    >>> one_of([0, 2, 5]).name
    'one of 3 classes'
    """
    several = items_of(list(classes) if isinstance(classes, Generator) else classes)
    if not several:
        raise BadPredictions(f"one_of needs several class numbers or names, such as [0, 1]; got {shown(classes)}")
    return Event("one of", tuple(several))


class Memoized:
    """Keeps what several metrics need, so that it is computed once per object."""

    def cached(self, make: Callable[..., _Made], *settings: Hashable) -> _Made:
        """Return make(self, *settings), computed at the first call only."""
        cache: dict[Any, _Made] = vars(self).setdefault("_cache", {})
        key = (make, *settings)
        if key not in cache:
            cache[key] = make(self, *settings)
        return cache[key]

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what was computed: it is large, and pickle has no names for the functions."""
        return {name: value for name, value in vars(self).items() if name != "_cache"}


@dataclass(frozen=True, eq=False, kw_only=True)
class Weighted(Memoized):
    """Rows with optional weights and groups, both as passed."""

    given_weights: Floats | None = None
    groups: Array | None = None

    @cached_property
    def own_weights(self) -> Floats:
        """The weights as passed, or ones."""
        if self.given_weights is None:
            return np.ones(len(self))
        return self.given_weights

    @cached_property
    def weights(self) -> Floats:
        """Weights that sum to 1."""
        return self.own_weights / self.own_weights.sum()

    @cached_property
    def total(self) -> float:
        """The effective number of rows."""
        return effective_rows(self.own_weights)

    @cached_property
    def group_numbers(self) -> Ints:
        """The groups, numbered from 0; every row is a group of its own if none are given."""
        if self.groups is None:
            return np.arange(len(self))
        names, numbers = np.unique(self.groups, return_inverse=True)
        if len(names) < 2:
            reason = "groups must hold at least 2 different values; one group says nothing about chance"
            raise BadPredictions(f"{reason}. {WITHOUT_GROUPS}")
        return numbers

    @cached_property
    def n_units(self) -> float:
        """The effective number of groups, or of rows if there are no groups."""
        if self.groups is None:
            return self.total
        return effective_rows(np.bincount(self.group_numbers, self.weights))

    def __len__(self) -> int:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Scored(Weighted):
    """One event per row: its score, and whether it happened (1 or 0).

    With `counts`, a row stands for that many rows: its score is their mean, and its hit their share of hits. Weights
    count as Kish's effective number of rows.
    """

    scores: Floats
    hits: Floats
    counts: Floats | None = None
    n_classes: ClassVar[int] = 0  # only one event is known

    def __len__(self) -> int:
        return len(self.hits)

    @property
    def top(self) -> "Scored":
        """The event itself."""
        return self

    @cached_property
    def ascending(self) -> Ints:
        """The rows of positive weight, in ascending order of score."""
        order = np.argsort(self.scores, kind="stable")
        return order[self.weights[order] > 0]


@dataclass(frozen=True, eq=False)
class Rows(Weighted):
    """Probabilities (n, k) and labels (n,)."""

    probabilities: Array
    labels: Ints
    class_names: tuple[str, ...] | None = None
    losses: Floats | None = None  # log loss of each row, where logits are known

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_classes(self) -> int:
        """The number of classes."""
        return int(self.probabilities.shape[1])

    def scored(self, scores: Floats, hits: Bools) -> Scored:
        """Return an event of these rows."""
        return Scored(scores, hits.astype(np.float64), given_weights=self.given_weights, groups=self.groups)

    def is_class(self, classes: Ints) -> Scored:
        """Return the event "the label is the class that the row names", one class per row."""
        scores = self.probabilities[np.arange(len(self)), classes]
        return self.scored(scores.astype(np.float64), classes == self.labels)

    @cached_property
    def top(self) -> Scored:
        """The event "the top class is the label"; of equal classes the first counts."""
        return self.is_class(self.top_classes(1)[:, 0])

    @cached_property
    def of_label(self) -> Floats:
        """The probability given to the label of each row."""
        return self.probabilities[np.arange(len(self)), self.labels].astype(np.float64)

    def top_classes(self, ranks: int) -> Ints:
        """Return the classes of the highest probabilities of each row, highest first, (n, ranks)."""
        found = np.empty((len(self), ranks), dtype=np.int64)
        for rows in row_blocks(*self.probabilities.shape):
            block = self.probabilities[rows].copy()
            for r in range(ranks):
                found[rows, r] = block.argmax(axis=1)
                block[np.arange(len(block)), found[rows, r]] = -np.inf
        return found


def rank_events(rows: Rows, n_ranks: int) -> list[Scored]:
    """Return the events of the highest ranks, the top class first."""
    return [rows.is_class(classes) for classes in rows.cached(Rows.top_classes, n_ranks).T]


def class_events(rows: Rows) -> Iterator[Scored]:
    """Yield the events "the label is this class" of all classes."""
    for first in range(0, rows.n_classes, 32):  # a cache line of a row is used whole
        columns = rows.probabilities[:, first : first + 32].T.astype(np.float64, order="C")
        for c, scores in enumerate(columns, start=first):
            yield rows.scored(scores, rows.labels == c)


def _class_number(rows: Rows, c: int | str) -> int:
    """Return the number of a class given by number or by name."""
    if not isinstance(c, str):
        return c
    if rows.class_names is None:
        raise BadPredictions(f"class names are unknown; pass the number of {c!r}, or Predictions with class_names")
    if c not in rows.class_names:
        raise BadPredictions(f"there is no class {c!r}; the classes are {', '.join(rows.class_names):.200}")
    return rows.class_names.index(c)


def last_of_ties(ascending: Array) -> Bools:
    """Whether each of these sorted scores is the last of those that are equal, or differ by rounding only.

    >>> last_of_ties(np.array([0.1, 0.3, 0.1 + 0.2, 0.6])).tolist()
    [True, False, True, True]
    """
    return np.append(np.diff(ascending) > ROUNDING, True)[: len(ascending)]


def distinct_scores(scores: Floats) -> tuple[Floats, Ints]:
    """Return the different scores in ascending order, and which of them each row has."""
    order = np.argsort(scores, kind="stable")
    last = last_of_ties(scores[order])
    which = np.empty(len(scores), dtype=np.int64)
    which[order] = np.cumsum(last) - last
    return scores[order][last], which


def bin_of(scores: Floats, edges: Floats) -> Ints:
    """Return the bin of each score; bins are closed on the right, and 0.1 + 0.2 lies on the edge 0.3."""
    return np.searchsorted(edges + ROUNDING, scores, side="left")


def check_rows(given: object, labels: object = None, sample_weight: object = None, groups: object = None) -> Rows:
    """Check the probabilities of all classes and what comes with them."""
    rows = check_any(given, labels, sample_weight, groups)
    if isinstance(rows, Scored):
        raise BadPredictions("this needs the probabilities of all classes: pass an array or Predictions")
    return rows


def check_event(
    given: object, labels: object = None, sample_weight: object = None, groups: object = None, event: Event | str = top
) -> Scored:
    """Check what was passed and return one event of it."""
    rows = check_any(given, labels, sample_weight, groups)
    event = as_event(event)
    if isinstance(rows, Rows):
        return event.of(rows)
    if event != top:
        raise BadPredictions(f"Confidences hold one event: there is no {event}; leave event out, or pass Predictions")
    return rows


def as_event(event: object) -> Event:
    """Return an event, which "positive" names too; refuse what is none."""
    if isinstance(event, str) and event == "positive":
        return positive()
    if not isinstance(event, Event):
        raise BadPredictions(
            f"event must be top, rank(r), within_top(r), label(c), one_of(classes) or 'positive'; got {shown(event)}"
        )
    return event


def check_any(
    given: object, labels: object = None, sample_weight: object = None, groups: object = None
) -> Rows | Scored:
    """Check an array of probabilities with its labels, `Predictions` or `Confidences`; warn of few effective rows."""
    if isinstance(given, Rows | Scored):  # checked before, by another metric
        return given
    rows = check_part(given, labels, sample_weight, groups)
    warn_of_few_rows(rows)
    return rows


def warn_of_few_rows(rows: Rows | Scored) -> None:
    """Warn if few rows have most of the weight."""
    note = few_rows_note(rows.given_weights)
    if note:
        warnings.warn(note, GlayersWarning, stacklevel=4)


def check_part(given: object, labels: object, sample_weight: object, groups: object = None) -> Rows | Scored:
    """Check some of the rows of a larger set as `check_any` does; few effective rows are no surprise there."""
    if isinstance(given, Predictions | Confidences):
        for name, value in {"labels": labels, "sample_weight": sample_weight, "groups": groups}.items():
            if value is not None:
                raise BadPredictions(f"{name} come with the {type(given).__name__}; leave {name} out here")
        return _of_record(given)
    probabilities = to_floats(given, "probabilities")
    if probabilities.ndim != 2 or probabilities.shape[1] < 2 or len(probabilities) == 0:
        raise BadPredictions(
            f"probabilities must have shape (rows, classes) with at least 1 row and 2 classes; got "
            f"{probabilities.shape}. For p of class 1 alone, pass np.column_stack([1 - p, p]); for a confidence and "
            f"whether it was correct, pass Confidences(confidence, correct)"
        )
    if labels is None:
        raise BadPredictions("labels are missing; pass the class number of each row after the probabilities")
    truth = checks.check_labels(labels, *probabilities.shape)
    weights = None
    if sample_weight is not None:
        weights = checks.check_weights(sample_weight, len(truth))
    if groups is not None:
        groups = checks.check_groups(groups, len(truth))
    checks.check_probability_rows(probabilities)
    return Rows(probabilities, truth, given_weights=weights, groups=groups)


def _of_record(given: Predictions | Confidences) -> Rows | Scored:
    extras: dict[str, Any] = {"given_weights": given.weights, "groups": given.groups}
    if isinstance(given, Confidences):
        return Scored(given.confidence, given.correct.astype(np.float64), **extras)
    probabilities, losses = probabilities_and_losses(given.logits, given.labels)
    return Rows(probabilities, given.labels, given.class_names, losses=losses, **extras)


def check_seed(random_state: int | None) -> int | None:
    """Return a seed that is a whole number, or None for other draws each time."""
    return None if random_state is None else whole_number(random_state, "random_state", 0, 2**128)
