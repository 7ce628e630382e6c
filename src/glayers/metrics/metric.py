"""What a metric is: how it is named and printed, and one evaluation over a block of row weights. Also all of them.

A block holds several weightings of the same rows side by side, one per column: the bootstrap evaluates many columns at
once, and a single score is one column. Results that several metrics need, such as the sums of each bin, are kept on the
block (`cached`), so that every metric can be written as if it were alone.

A metric is defined by its evaluation: `defined_by` puts it into `METRICS`, and makes the function that users call. A
function of their own becomes a metric by `Metric.of_function` and `register`, or by an entry point.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial, wraps
from typing import Any, Literal, Protocol, TypeAlias, cast

import numpy as np

from glayers.arrays import Array, Floats, Ints, kish, to_floats
from glayers.checks import check_choice, to_float, whole_number
from glayers.errors import BadPredictions, GlayersError, shown
from glayers.metrics.events import (
    Event,
    Memoized,
    Rows,
    Scored,
    check_event,
    check_rows,
    class_events,
    rank_events,
    top,
)
from glayers.registry import Registry

__all__ = ["METRICS", "Metric", "register"]

_NAMES = ("__module__", "__name__", "__qualname__", "__doc__")
_SPELLED = {word.lower(): word for word in ("NLL", "KS", "ECE", "Brier", "Kuiper", "AUROC", "AURC")}
_KEPT_ENTRIES = 5_000_000  # probabilities whose classes stay sorted from block to block, in 200 MB
_CHOICES = {
    "about": ("event", "ranks", "classes", "rows"),
    "unit": ("percent", "plain"),
    "kind": ("error", "loss", "share", "scores"),
}

Evaluation: TypeAlias = Callable[..., Floats]


class Block(Memoized):
    """Weightings side by side: row weights (n, b), each column summing to 1."""

    def __init__(self, weights: Floats) -> None:
        self.weights = weights

    @classmethod
    def of(cls, rows: Rows | Scored) -> "Block":
        """Return the one column of the rows' own weights."""
        return cls(rows.weights[:, None])

    @property
    def single(self) -> bool:
        """Whether there is one column only, for which some metrics have a faster form."""
        return self.weights.shape[1] == 1


@dataclass(frozen=True)
class Metric:
    """One metric of the scorecard: everything that tables, intervals, tests and reports need to know about it.

    `Metric.of_function` makes one of a function of your own, and `register` puts it into all tables.

    Attributes
    ----------
    name
        The key in `METRICS`, `Scorecard` and `Intervals`.
    label
        The name in tables. `{}` stands for `at_most`.
    evaluate
        A function of an event (`Scored`) and a `Block`, giving one value per column. Of a metric with `per_row`, a
        function of the event that gives one value per row. Of one about "rows", the same of `Rows`.
    about
        "event": the metric is the value of one event. "ranks" and "classes": the mean over the events of the `at_most`
        highest ranks, or over those of all classes. "rows": the value of the probabilities of all classes (`Rows`).
    per_row
        Whether the metric is the weighted mean of a value per row. Streamed rows give such means exactly.
    unit
        "percent" if the value prints as a percentage, otherwise "plain".
    digits
        Decimal places in print.
    better
        Whether "lower" or "higher" values are better; None if neither.
    reference
        Where the metric was defined.
    at_most
        The number of ranks or classes it looks at, fewer where there are fewer classes.
    kind
        What decides about its interval: a calibration "error", a "loss", a "share" of rows, or a mean of "scores" that
        does not depend on labels.
    trusted_from
        How many standard errors above 0 an error must be for its interval to have a lower end.
    unreliable
        Why its interval should never be trusted; empty for most.
    lowest, highest
        The smallest and the largest value that any rows can give.
    function
        What users call to compute the metric alone, or the function of theirs that it was made of.
    """

    name: str
    label_template: str
    evaluate: Evaluation
    reference: str
    about: Literal["event", "ranks", "classes", "rows"] = "event"
    per_row: bool = False
    unit: Literal["percent", "plain"] = "percent"
    digits: int = 2
    better: Literal["lower", "higher"] | None = "lower"
    at_most: int = 0
    kind: Literal["error", "loss", "share", "scores"] = "error"
    trusted_from: float = 3.0
    unreliable: str = ""
    lowest: float = 0.0
    highest: float = 1.0
    function: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            check_choice(getattr(self, name), known, name)
        if self.better is not None:
            check_choice(self.better, ("lower", "higher"), "better")
        if self.per_row and self.about in ("ranks", "classes"):
            raise BadPredictions(f"a metric with a value per row is about 'event' or 'rows'; got {self.about!r}")
        whole_number(self.digits, "digits", 0, 15)
        whole_number(self.at_most, "at_most", int(self.about == "ranks"))

    @classmethod
    def of_function(cls, function: Callable[..., Any], label_template: str = "", **described: Any) -> "Metric":
        """Return the metric that a function of your own computes.

        Parameters
        ----------
        function
            Of one event: a function of scores (n,), hits (n,), which are 1 or 0, and weights (n,). With
            `about="rows"`: of probabilities (n, k), labels (n,) and weights (n,). It returns one number. Weights sum to
            1 and may be 0: a row without weight must not count. With `per_row=True` it gets no weights and returns a
            value per row, whose weighted mean is the metric. The arrays cannot be written to.
        label_template
            The name in tables; by default that of the function.
        **described
            Other attributes of `Metric`. The name is that of the function, the unit "plain" with 4 digits, the kind
            "loss", and any value is possible. A calibration error, which chance only raises, should be
            `kind="error"` and `lowest=0.0`: its interval may then be an upper bound alone.

        Returns
        -------
        Metric
            Pass it to `register`. `intervals` also takes it, or the function, without that.

        Examples
        --------
        >>> def sure_and_wrong(scores, hits, weights):
        ...     return weights @ ((scores > 0.75) & (hits == 0))
        >>> metric = Metric.of_function(sure_and_wrong, "sure and wrong")
        >>> metric.label, metric.format(0.5)
        ('sure and wrong', '0.5000')
        """
        if not callable(function):
            raise BadPredictions(f"a metric is made of a function; got {shown(function)}")
        for name in described.keys() - {field.name for field in fields(cls)}:
            raise BadPredictions(f"a metric has no attribute {name!r}; see help(Metric)")
        own_name = getattr(function, "__name__", type(function).__name__)
        plain: dict[str, Any] = {"unit": "plain", "digits": 4, "kind": "loss", "lowest": -math.inf, "highest": math.inf}
        described = {"name": own_name, "reference": "", **plain, **described}

        @wraps(function, _NAMES)
        def evaluate(subject: Rows | Scored, *blocks: Block) -> Floats:
            call = partial(_called, function, described["name"], subject)
            if described.get("per_row"):
                return _one_per_row(call(), described["name"], len(subject))
            return np.array([_one_number(call(weights), described["name"]) for weights in blocks[0].weights.T])

        described["label_template"] = label_template or described["name"]
        return cls(evaluate=evaluate, function=function, **described)

    def row_values(self, rows: Rows | Scored) -> Floats:
        """Return the values per row whose mean the metric is."""
        subject = rows if self.about == "rows" else rows.top
        return subject.cached(self.evaluate)

    def values(self, rows: Rows | Scored, block: Block) -> Floats:
        """Return the metric for each column."""
        if self.per_row:
            return np.clip(mean(self.row_values(rows), block), self.lowest, self.highest)
        if isinstance(rows, Scored) or self.about == "event":
            return self.evaluate(rows.top, block)
        if self.about == "rows":
            return self.evaluate(rows, block)
        if self.about == "ranks":
            events = rows.cached(rank_events, min(self.at_most, rows.n_classes))
            return np.mean([self.evaluate(event, block) for event in events], axis=0)
        classes: Iterable[Scored] = class_events(rows)
        if not block.single and rows.probabilities.size <= _KEPT_ENTRIES:
            classes = rows.cached(_kept_class_events)
        return np.mean(of_each_class(self.evaluate, classes, block.weights), axis=0)

    def score(self, rows: Rows | Scored) -> float:
        """Return the metric for the rows' own weights."""
        return float(self.values(rows, Block.of(rows))[0])

    @property
    def label(self) -> str:
        """The name in tables, such as "ECE, 15 equal-width bins"."""
        return self.label_for(None)

    def label_for(self, n_classes: int | None) -> str:
        """Return the name in tables where there may be fewer classes than the metric looks at."""
        number = self.at_most
        if n_classes is not None:
            number = min(number, n_classes)
        return self.label_template.replace("{}", str(number))

    @property
    def short_label(self) -> str:
        """The name within a sentence, such as "mean top KS"."""
        return " ".join(_SPELLED.get(word, word) for word in self.name.split("_"))

    def format(self, value: float) -> str:
        """Return a value as people read it, such as "1.52 %" or "0.2341"."""
        if self.unit == "percent":
            return f"{100 * value:.{self.digits}f} %"
        return f"{value:.{self.digits}f}"

    def format_difference(self, value: float) -> str:
        """Return a difference with its sign, such as "+0.10 points" or "-0.0120"; zero has no sign."""
        scale, unit = self._scale()
        text = f"{scale * value:+.{self.digits}f}"
        if float(text) == 0:
            text = text[1:]
        return text + unit

    def format_change(self, value: float, low: float, high: float, error: float, level: float) -> str:
        """Return a difference with its interval, to the digits the standard error allows; percentages become points.

        >>> Metric("nll", "NLL", lambda: None, "", unit="plain").format_change(0.1052, 0.0931, 0.1168, 0.006, 0.95)
        '0.105 (95 % interval 0.093 to 0.117)'
        """
        scale, unit = self._scale()
        digits = 4
        if 0 < error < math.inf:
            magnitude = math.floor(math.log10(scale * error))
            digits = max(0, -magnitude)
            if scale * error / 10**magnitude < 2.95:  # rounding to a single 1 or 2 would change the error much
                digits = max(0, 1 - magnitude)
        number = f"{scale * value:.{digits}f}{unit}"
        return f"{number} ({100 * level:g} % interval {scale * low:.{digits}f} to {scale * high:.{digits}f})"

    def _scale(self) -> tuple[float, str]:
        """Return the factor and the unit of printed differences."""
        if self.unit == "percent":
            return 100.0, " points"
        return 1.0, ""


def register(metric: Metric) -> Metric:
    """Put a metric into `METRICS`, and so into every scorecard, table and interval of this process.

    A package does the same for all its users by an entry point of the group `glayers.metrics` that names a `Metric`.

    Parameters
    ----------
    metric
        Such as `Metric.of_function` makes. One whose function has the same name and module is replaced.

    Returns
    -------
    Metric
        The same.

    Examples
    --------
    >>> from glayers.metrics import scorecard
    >>> def lowest_score(scores, hits, weights):
    ...     return scores[weights > 0].min()
    >>> metric = register(Metric.of_function(lowest_score, "lowest confidence", unit="percent", digits=1))
    >>> card = scorecard([[0.7, 0.3], [0.2, 0.8]], [0, 0])
    >>> card["lowest_score"], card.printed()["lowest confidence"]
    (0.7, '70.0 %')
    >>> del METRICS["lowest_score"]  # take it out again
    """
    if not isinstance(metric, Metric):
        raise BadPredictions(f"register takes a Metric, such as Metric.of_function(my_function); got {shown(metric)}")
    if not re.fullmatch("[a-z][a-z0-9_]*", metric.name):
        raise BadPredictions(
            f"the name of a metric must be small letters, digits and underscores, such as 'tail_error'; got "
            f"{metric.name!r}"
        )
    _refuse_taken_name(metric)
    if metric.function is not None and metric.about != "rows":
        _try(metric)
    return in_table(metric)


METRICS: Registry[Metric] = Registry("glayers.metrics", register)


def in_table(metric: Metric) -> Metric:
    """Put a metric of this library into `METRICS`; those of packages are read later."""
    METRICS.add(metric.name, metric)
    return metric


def _try(metric: Metric) -> None:
    """Refuse a function that fails on events: every later scorecard would fail with it."""
    sure = np.linspace(0.2, 0.9, 20)
    rows = check_rows(np.column_stack([sure, 1 - sure]), np.arange(20) % 2)
    try:
        metric.score(rows)
    except GlayersError as error:
        raise BadPredictions(
            f"not registered: {error}. It was called with scores (n,) and hits (n,) of an event; for a function of "
            f'probabilities (n, k) and labels (n,), pass about="rows"'
        ) from error


def _refuse_taken_name(metric: Metric) -> None:
    """Refuse a metric with the name of another one, unless both are the same function, defined again."""
    known = METRICS.known(metric.name) or metric
    origins = [(each.evaluate.__module__, each.evaluate.__qualname__) for each in (known, metric)]
    if origins[0] != origins[1]:
        raise BadPredictions(f"{metric.name!r} is the name of another metric, of {origins[0][0]}; choose another name")


def metric_of(choice: object, about: Literal["event", "rows"]) -> Metric:
    """Return a metric by its name, or by the function that computes it."""
    if isinstance(choice, str) and choice in METRICS:
        return METRICS[choice]
    for metric in METRICS.values():
        if choice is metric.function:
            return metric
    if callable(choice):
        choice = Metric.of_function(choice, about=about)
    if not isinstance(choice, Metric):
        names = ", ".join(METRICS)
        raise BadPredictions(f"metrics must be a list of some of {names}, or of functions; got {shown(choice)}")
    _refuse_taken_name(choice)
    return choice


def metric_named(name: str) -> Metric:
    """Return a metric of `METRICS`; of a function that is not there, how its values print."""
    return METRICS.get(name) or Metric.of_function(_unknown, name, name=name)


def _unknown(*_: Array) -> float:
    raise NotImplementedError("only the name of this metric is known")


class MetricFunction(Protocol):
    """The public function of a metric; only metrics of one event take `event`."""

    def __call__(
        self, probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
    ) -> float: ...


def defined_by(label: str, reference: str, *, name: str = "", **described: Any) -> Callable[[Any], MetricFunction]:
    """Define a metric by its evaluation, whose name and docstring are those of the function that users call."""

    def defined(evaluate: Evaluation) -> MetricFunction:
        def of_event(
            probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
        ) -> float:
            return metric.score(check_event(probabilities, labels, sample_weight, event=event))

        def of_rows(probabilities: object, labels: object = None, *, sample_weight: object = None) -> float:
            return metric.score(check_rows(probabilities, labels, sample_weight))

        function: Any = of_event if described.get("about", "event") == "event" else of_rows
        for attribute in _NAMES:
            setattr(function, attribute, getattr(evaluate, attribute))
        metric = in_table(Metric(name or evaluate.__name__, label, evaluate, reference, function=function, **described))
        return cast("MetricFunction", function)

    return defined


def _called(function: Callable[..., Any], name: str, subject: Rows | Scored, *weights: Floats) -> Any:
    """Return what a function of the user makes of rows or of an event, or say what is wrong with it."""
    arrays = [subject.scores, subject.hits] if isinstance(subject, Scored) else [subject.probabilities, subject.labels]
    views = [array.view() for array in [*arrays, *weights]]
    for view in views:
        view.flags.writeable = False  # other metrics read the same numbers
    try:
        return function(*views)
    except Exception as error:
        raise GlayersError(f"the metric {name} failed: {type(error).__name__}: {error}") from error


def _one_number(value: object, name: str) -> float:
    number = to_float(value)
    if math.isnan(number):
        raise GlayersError(
            f"the metric {name} must return one number; got {shown(value)}. Where it is undefined, as without hits or "
            f"misses of positive weight, choose a number too: resamples may have none"
        )
    return number


def _one_per_row(values: Any, name: str, n_rows: int) -> Floats:
    found = to_floats(values, f"values of the metric {name}").astype(np.float64)
    if found.shape != (n_rows,) or np.isnan(found).any():
        raise GlayersError(f"the metric {name} must return a number for each of {n_rows} rows; got {shown(values)}")
    if (found == np.inf).any() and (found == -np.inf).any():
        raise GlayersError(f"the metric {name} returns inf for some rows and -inf for others, which have no mean")
    return found


def mean(values: Floats, block: Block) -> Floats:
    """Return weighted means of one value per row; infinite values, all of one sign, count where they have weight."""
    infinite = np.isinf(values)
    if not infinite.any():
        return values @ block.weights
    means = np.where(infinite, 0.0, values) @ block.weights
    return np.where(infinite @ block.weights > 0, values[infinite][0], means)


def membership(place: Ints, n_places: int) -> Any:
    """Return the sparse matrix (places, rows) whose product adds up the rows of each place."""
    return sums_by_place(place[:, None], np.ones((len(place), 1)), n_places)


def weight_in(place: Ints, weights: Array, n_places: int = 0) -> tuple[Floats, Floats, Floats]:
    """Return the weight of the rows of each place, that of their squares, and the effective number of these rows."""
    total = np.bincount(place, weights, n_places).astype(np.float64)
    squares = np.bincount(place, weights**2, n_places).astype(np.float64)
    return total, squares, kish(total, squares)


def sums_by_place(place: Ints, values: Floats, n_places: int) -> Any:
    """Return the sparse matrix (places, rows) with each row's values (n, m) at their places (n, m)."""
    from scipy.sparse import csc_array  # on first use: importing it takes longer than importing glayers

    pointer = np.arange(0, place.size + 1, place.shape[1], dtype=np.int32)
    entries = (values.ravel(), place.astype(np.int32).ravel(), pointer)
    return csc_array(entries, shape=(n_places, len(place)))


def of_each_class(evaluate: Evaluation, classes: Iterable[Scored], weights: Floats) -> Floats:
    """Return an evaluation of each class, (k, b); what it keeps of one class is dropped before the next."""
    return np.array([evaluate(event, Block(weights)) for event in classes])


def _kept_class_events(rows: Rows) -> list[Scored]:
    return list(class_events(rows))


def evaluate_once(rows: Rows | Scored, metrics: Iterable[Metric]) -> dict[str, float]:
    """Return each metric for the rows' own weights."""
    block = Block.of(rows)
    return {metric.name: float(metric.values(rows, block)[0]) for metric in metrics}


def evaluate(rows: Rows | Scored, metrics: Sequence[Metric], blocks: Iterable[Block]) -> dict[str, Floats]:
    """Return each metric for every column of the blocks."""
    columns: dict[str, list[Floats]] = {metric.name: [] for metric in metrics}
    for block in blocks:
        for metric in metrics:
            columns[metric.name].append(metric.values(rows, block))
        del block  # with what it keeps, before the next is made
    return {name: np.concatenate(values) for name, values in columns.items()}
