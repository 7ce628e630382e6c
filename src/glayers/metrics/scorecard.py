"""Predictions -> every metric at once: alone, with confidence intervals, or as differences between methods.

To add a metric, write its evaluation in the module of its idea, under `defined_by`, which puts it into `METRICS`.
Scorecard, intervals, differences, tables, command line and report then show it.

Intervals say how far a metric would move on other rows of the same kind. The bootstrap does not know that an error
cannot be negative. ECE and similar errors of a calibrated model are too high on every sample and higher still on every
resample, so their intervals never reach 0, and they get an upper bound instead. `docs/how-to/intervals.md` says which
intervals to trust where.

In `paired_differences` every method is scored on the same resamples, so what makes a row hard is the same for both and
cancels: a difference is known far better than either score.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from glayers.arrays import Floats, to_floats
from glayers.checks import items_of
from glayers.errors import BadPredictions, shown
from glayers.metrics.bootstrap import Bootstrap, Bootstrapped, Interval
from glayers.metrics.events import Event, Rows, Scored, check_any, check_event, top
from glayers.metrics.metric import METRICS, Metric, evaluate_once, metric_named, metric_of
from glayers.text_tables import Tabled, json_ready, markdown_table

__all__ = ["Difference", "Intervals", "PairedDifferences", "Scorecard", "adjust"]
__all__ += ["intervals", "paired_differences", "scorecard"]

_Value = TypeVar("_Value")


def chosen_metrics(rows: Rows | Scored, chosen: object = None) -> list[Metric]:
    """Return metrics by name or function, or all that these rows allow: `Confidences` allow those of an event."""
    possible = [metric for metric in METRICS.values() if isinstance(rows, Rows) or metric.about == "event"]
    if chosen is None:
        return possible
    found: dict[str, Metric] = {}
    for choice in items_of(chosen) or [chosen]:
        metric = metric_of(choice, "rows" if isinstance(rows, Rows) else "event")
        if isinstance(rows, Scored) and metric.about != "event":
            names = ", ".join(metric.name for metric in possible)
            raise BadPredictions(f"{metric.name}: needs the probabilities of all classes; choose from {names}")
        if metric.evaluate is not found.setdefault(metric.name, metric).evaluate:
            raise BadPredictions(f"two functions are called {metric.name}; give them different names")
    return list(found.values())


@dataclass(frozen=True)
class ByName(Mapping[str, _Value]):
    """A mapping from names that is part of a larger record."""

    by_name: dict[str, _Value]

    def __getitem__(self, name: str) -> _Value:
        if name not in self.by_name:
            raise KeyError(f"there is no {name!r}; choose from {', '.join(self.by_name)}")
        return self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)


@dataclass(frozen=True)
class Scorecard(ByName[float], Tabled):
    """Every metric of one set of predictions, by name: `card["nll"]`.

    Accuracy, confidence and calibration errors are fractions here and percentages in print. `mean_top_ks` covers the
    ten highest ranks and `top_5_accuracy` the five highest, or all of them where there are fewer classes.

    Attributes
    ----------
    by_name
        The numbers, in the order of `METRICS`.
    rows
        The number of rows.
    classes
        The number of classes, or None where only the scores of one event are known.
    """

    rows: int
    classes: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the number of rows and of classes, and all metrics by name, ready for JSON: None if infinite."""
        return json_ready({**self._sizes(), **self.by_name})

    def _sizes(self) -> dict[str, float]:
        if self.classes is None:
            return {"rows": self.rows}
        return {"rows": self.rows, "classes": self.classes}

    def printed(self, names: Iterable[str] | None = None) -> dict[str, str]:
        """Return the label of each metric, or of the named ones, with its value as people read it."""
        printed = {name: f"{value:,}" for name, value in self._sizes().items()}
        for name in names or self:
            metric = metric_named(name)
            printed[metric.label_for(self.classes)] = metric.format(self[name])
        return printed

    def cells(self) -> list[tuple[str, str]]:
        """Return a line per metric."""
        return [("metric", "value"), *self.printed().items()]


@dataclass(frozen=True)
class Intervals(ByName[Interval], Tabled):
    """Bootstrap intervals by metric: `result["nll"].low`.

    Attributes
    ----------
    by_name
        The interval of each metric, in the order of `METRICS`.
    value
        The scorecard.
    level, n_resamples
        The settings of the bootstrap.
    """

    value: Scorecard
    level: float
    n_resamples: int

    @property
    def unreliable(self) -> dict[str, str]:
        """The metrics whose intervals should not be trusted, and why."""
        return {metric: interval.unreliable for metric, interval in self.items() if interval.unreliable}

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return value, low, high, standard error, bias and what restricts the interval, ready for JSON."""
        return json_ready({metric: interval._asdict() for metric, interval in self.items()})

    def footnote(self) -> str:
        """Say which intervals are unreliable and why; empty if none is.

        >>> p, y = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]] * 30, [0, 1] * 30
        >>> intervals(p, y, metrics=["accuracy", "nll", "ks"]).footnote()
        '* unreliable: NLL, KS (too few errors seen: 0)'
        """
        by_reason: dict[str, list[str]] = {}
        for metric, reason in self.unreliable.items():
            by_reason.setdefault(reason, []).append(metric_named(metric).short_label)
        listed = [f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()]
        return f"* unreliable: {'; '.join(listed)}" if listed else ""

    def printed(self) -> list[tuple[str, str, str, str]]:
        """Return label, value, interval and standard error of each metric as people read them."""
        lines = []
        for name, found in self.items():
            metric = metric_named(name)
            start = f"{metric.format(found.low).removesuffix(' %')} to"
            if found.one_sided:
                start = "at most"
            star = " *" if found.unreliable else "  "
            ends = f"{start} {metric.format(found.high)}{star}"
            label = metric.label_for(self.value.classes)
            lines.append((label, metric.format(found.value), ends, metric.format(found.standard_error)))
        return lines

    def cells(self) -> list[tuple[str, ...]]:
        """Return a line per metric; a star marks unreliable intervals.

        "at most" says that only an upper bound is known with the stated confidence.
        """
        return [("metric", "value", f"{100 * self.level:g} % interval", "standard error"), *self.printed()]

    def footnotes(self) -> list[str]:
        """Return the footnote, if there is one."""
        return list(filter(None, [self.footnote()]))


def scorecard(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event | str = top
) -> Scorecard:
    """Score predictions by every metric, after checking that they are probabilities.

    Parameters
    ----------
    probabilities
        Array (n, k), `Predictions` or `Confidences`. With `Predictions` the NLL comes from the logits; with
        `Confidences` the scorecard holds the metrics that need only one event.
    labels
        Class numbers (n,); left out with `Predictions` and `Confidences`.
    sample_weight
        Row weights (n,).
    event
        An event other than `top` gives the metrics of that event alone.

    Returns
    -------
    Scorecard
        A mapping from metric names to numbers, which prints as a table.

    Examples
    --------
    >>> card = scorecard([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]], [0, 2])
    >>> card["accuracy"]
    0.5
    >>> print(card.to_markdown().splitlines()[4])
    | accuracy | 50.00 % |
    """
    return card_of(rows_to_score(probabilities, labels, sample_weight, None, event))


def card_of(rows: Rows | Scored, metrics: Collection[str] = METRICS) -> Scorecard:
    """Score checked rows by those of the metrics that they allow."""
    chosen = [metric for metric in chosen_metrics(rows) if metric.name in metrics]
    return Scorecard(evaluate_once(rows, chosen), len(rows), rows.n_classes or None)


def intervals(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    event: Event | str = top,
    metrics: object = None,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> Intervals:
    """Return bootstrap intervals of every metric of the scorecard, from the same resamples.

    Parameters
    ----------
    probabilities, labels, sample_weight, event
        As in `scorecard`.
    groups
        Group of each row (n,); whole groups are drawn where rows of a group depend on each other.
    metrics
        Names of some metrics; all by default. Also functions of your own, of probabilities (n, k), labels (n,) and
        weights (n,) that return one number; with `Confidences` or an event, of scores, hits and weights, as in
        `Metric.of_function`.
    n_resamples
        The number of resamples.
    level
        The probability with which an interval should cover.
    random_state
        Seed; None draws other resamples each time.
    progress
        Whether to show a progress bar; None shows it at a terminal.

    Returns
    -------
    Intervals
        A mapping from metric names to `Interval`, by BCa (bias-corrected and accelerated). Those of accuracies are
        exact and need no resamples. Small calibration errors have an upper bound only, and `low` is 0. Efron, Journal
        of the American Statistical Association, 1987.

    Examples
    --------
    >>> p, y = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2]] * 25, [0, 2, 2, 0] * 25
    >>> found = intervals(p, y)["accuracy"]
    >>> round(found.value, 2), round(found.low, 2), round(found.high, 2)
    (0.75, 0.65, 0.83)
    """
    rows = rows_to_score(probabilities, labels, sample_weight, groups, event)
    chosen = chosen_metrics(rows, metrics)
    settings = Bootstrap(n_resamples, level, random_state, progress)
    found = settings.columns(rows, chosen, "resampling")
    ends = {metric.name: found[metric.name].interval(level) for metric in chosen}
    values = {name: interval.value for name, interval in ends.items()}
    card = Scorecard(values, len(rows), rows.n_classes or None)
    return Intervals(ends, card, level, n_resamples)


def rows_to_score(
    given: object,
    labels: object = None,
    sample_weight: object = None,
    groups: object = None,
    event: Event | str = top,
) -> Rows | Scored:
    """Check predictions that all metrics will read, and keep only one event of them if that is not the top class."""
    rows = check_any(given, labels, sample_weight, groups)
    if event is top:
        return rows
    return check_event(rows, event=event)


@dataclass(frozen=True)
class Difference:
    """One metric of `method` minus the same metric of `against`.

    Attributes
    ----------
    metric, method, against
        What is compared.
    interval
        The difference, its confidence interval and its standard error.
    p_value
        Of the hypothesis that there is no difference, by Holm's correction over the pairs of a metric.
    significant
        Whether the p-value is at most 1 - level.
    level
        The level of the interval and of the comparison.
    """

    metric: str
    method: str
    against: str
    interval: Interval
    p_value: float
    significant: bool
    level: float = 0.95

    def sentence(self) -> str:
        """Say it in a sentence, with the confidence interval.

        >>> interval = Interval(-0.105, -0.117, -0.093, 0.006, 0.0)
        >>> Difference("nll", "shared g-layers", "temperature scaling", interval, 0.0, True).sentence()
        'shared g-layers lower NLL by 0.105 (95 % interval 0.093 to 0.117) against temperature scaling'
        """
        metric = metric_named(self.metric)
        name = metric.short_label
        value, low, high, error, _, unreliable, _ = self.interval
        doubt = ""
        if unreliable:
            doubt = f" (unreliable: {unreliable})"
        if error == 0 and self.p_value == 1:
            return f"{self.method} and {self.against} have the same {name}{doubt}"
        if not self.significant:
            by = metric.format_change(value, low, high, error, self.level)
            return f"{name} of {self.method} differs by {by} from {self.against}: no significant difference{doubt}"
        verb = "raise"
        if value < 0:
            verb = "lower"
            value, low, high = -value, -high, -low
        if not self.method.endswith("s"):  # g-layers lower, temperature scaling lowers
            verb += "s"
        by = metric.format_change(value, low, high, error, self.level)
        return f"{self.method} {verb} {name} by {by} against {self.against}{doubt}"

    def to_dict(self) -> dict[str, Any]:
        """Return one flat record, ready for JSON or a data frame."""
        numbers = {"difference": self.interval.value, **self.interval._asdict()}
        del numbers["value"]
        names = {"metric": self.metric, "method": self.method, "against": self.against}
        return json_ready({**names, **numbers, "p_value": self.p_value, "significant": self.significant})

    def reversed(self) -> "Difference":
        """Return the same difference seen from the other method."""
        value, low, high, error, bias, unreliable, _ = self.interval
        turned = Interval(-value, -high, -low, error, -bias, unreliable)
        return replace(self, method=self.against, against=self.method, interval=turned)


@dataclass(frozen=True)
class PairedDifferences:
    """Every pair of methods by every metric, later minus earlier. Efron and Tibshirani, 1993."""

    differences: tuple[Difference, ...]
    level: float
    n_resamples: int

    def between(self, metric: str, method: str, against: str) -> Difference:
        """Return the difference of two methods, whichever of them came first."""
        for found in self.differences:
            if found.metric == metric and {found.method, found.against} == {method, against}:
                if found.method == method:
                    return found
                return found.reversed()
        names = sorted({name for d in self.differences for name in (d.metric, d.method, d.against)})
        raise KeyError(f"no difference of {method!r} and {against!r} by {metric!r}; there are {', '.join(names)}")

    def sentences(self) -> list[str]:
        """Return one sentence per difference."""
        return [found.sentence() for found in self.differences]

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one record per difference."""
        return [found.to_dict() for found in self.differences]

    def to_markdown(self) -> str:
        """Return a Markdown table with one line per difference; a star marks significant ones."""
        lines = [["metric", "method", "against", "difference", f"{100 * self.level:g} % interval", "p-value, holm"]]
        for found in self.differences:
            value, low, high, error, *_ = found.interval
            by = f"{value:.4g} ± {error:.2g}"
            if found.significant:
                by += " *"
            numbers = (by, f"{low:.4g} to {high:.4g}", f"{found.p_value:.2g}")
            lines.append([found.metric, found.method, found.against, *numbers])
        return markdown_table(lines, text_columns=3)

    def __str__(self) -> str:
        return "\n".join(self.sentences())


def paired_differences(
    methods: Mapping[str, object],
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    event: Event | str = top,
    metrics: object = None,
    n_resamples: int = 1000,
    level: float = 0.95,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> PairedDifferences:
    """Compare the metrics of every two methods by a paired bootstrap, later minus earlier.

    Parameters
    ----------
    methods
        Probabilities (n, k), `Predictions` or `Confidences` of each method by name, all for the same rows. With
        `Predictions` the NLL comes from the logits, so that no probability rounds to 0.
    labels, sample_weight, groups
        As in `intervals`; left out with `Predictions` and `Confidences`.
    event
        The event, for metrics of one event.
    metrics
        Names from `METRICS`, or functions as in `intervals`; by default NLL, Brier score, KS and accuracy, as far as
        the predictions allow.
    n_resamples, level, random_state, progress
        As in `intervals`.

    Returns
    -------
    PairedDifferences
        A difference is significant where its p-value, after Holm's correction over the pairs of a metric, is at most
        1 - level. Before correction, the p-value is the smallest 1 - level whose interval excludes 0. Beyond the last
        resample it is that of a normal distribution. Efron and Tibshirani, "An Introduction to the Bootstrap", 1993.

    Examples
    --------
    >>> p, y = np.tile([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]], (100, 1)), np.tile([0, 1, 1, 1], 50)
    >>> print(paired_differences({"none": p, "sharpened": p**2 / (p**2).sum(1, keepdims=True)}, y, metrics=["nll"]))
    sharpened lowers NLL by 0.089 (95 % interval 0.041 to 0.131) against none
    """
    settings = Bootstrap(n_resamples, level, random_state, progress)
    if not isinstance(methods, Mapping):
        raise BadPredictions(f"methods must be a dict of predictions by name; got a {type(methods).__name__}")
    rows = _checked_rows(methods, labels, sample_weight, groups, event)
    return differences_of(rows, metrics, settings)


def _checked_rows(methods: Mapping[str, object], *given: Any) -> Iterator[tuple[str, Rows | Scored]]:
    """Yield the rows of each method by name, after checking that they are those of the first."""
    first: Rows | Scored | None = None
    for name, predictions in methods.items():
        try:
            rows = rows_to_score(predictions, *given)
            first = first or rows
            _check_same_rows(rows, first)
        except BadPredictions as error:
            raise BadPredictions(f"{name}: {error}") from error
        yield name, rows


def differences_of(
    methods: Iterable[tuple[str, Rows | Scored]], metrics: object, settings: Bootstrap
) -> PairedDifferences:
    """Compare every two methods; their rows are read one after the other, as those of all may not fit in memory."""
    columns: dict[str, dict[str, Bootstrapped]] = {}
    for name, rows in methods:
        if metrics is None:
            possible = [metric.name for metric in chosen_metrics(rows)]
            metrics = [metric for metric in ("nll", "brier", "ks", "accuracy") if metric in possible]
        chosen = chosen_metrics(rows, metrics)
        columns[name] = settings.columns(rows, chosen, f"resampling {name}")  # one seed: the same for every method
        _refuse_infinite(name, columns[name])
    if len(columns) < 2:
        raise BadPredictions(f"a comparison needs at least 2 methods, by name; got {list(columns)}")
    found = []
    for metric in chosen:
        found += _compare({name: by_metric[metric.name] for name, by_metric in columns.items()}, settings.level)
    return PairedDifferences(tuple(found), settings.level, settings.n_resamples)


def _refuse_infinite(method: str, columns: dict[str, Bootstrapped]) -> None:
    """Refuse metrics that are infinite, also if only on some resamples: infinity less infinity is no number."""
    for name, found in columns.items():
        if not np.isfinite([found.value, *found.drawn]).all():
            reason = ""
            if name == "nll":
                reason = ", because a label was given probability 0: pass Predictions of the logits"
            short = found.metric.short_label
            raise BadPredictions(
                f"{method}: {short} is infinite{reason}. It has no differences; leave {name!r} out of metrics"
            )


def _compare(columns: dict[str, Bootstrapped], level: float) -> list[Difference]:
    """Return the differences of every two methods by one metric."""
    pairs = {(a, b): columns[b].minus(columns[a]) for a, b in itertools.combinations(columns, 2)}
    p_values = adjust([pair.p_value() for pair in pairs.values()]).tolist()
    differences = []
    for ((a, b), pair), p in zip(pairs.items(), p_values, strict=True):
        differences.append(Difference(pair.metric.name, b, a, pair.interval(level), p, p <= 1 - level, level))
    return differences


def adjust(p_values: object) -> Floats:
    """Correct p-values for testing many hypotheses: reject those that are at most 1 - level.

    Parameters
    ----------
    p_values
        One number per test; NaN for a test that could not be made, which does not count and stays NaN.

    Returns
    -------
    array
        Corrected p-values, in the order given. They bound the probability of any false rejection, whatever the
        dependence between the tests: the i-th smallest of m is multiplied by m - i + 1. Holm, Scandinavian Journal of
        Statistics 1979.

    Examples
    --------
    >>> adjust([0.01, 0.04, 0.03]).round(4).tolist()
    [0.03, 0.06, 0.06]
    """
    given = to_floats(p_values, "p_values").astype(np.float64)
    if given.ndim != 1 or ((given < 0) | (given > 1)).any():
        raise BadPredictions(f"p_values must be one number between 0 and 1 for each test; got {shown(p_values)}")
    order = np.argsort(given, kind="stable")  # NaN last
    times = np.count_nonzero(~np.isnan(given)) - np.arange(len(given))
    adjusted = np.empty(len(given))
    adjusted[order] = np.maximum.accumulate(given[order] * times)
    return np.minimum(adjusted, 1.0)


def _check_same_rows(rows: Rows | Scored, first: Rows | Scored) -> None:
    """Refuse methods that are not about the same rows and classes."""
    if type(rows) is not type(first) or len(rows) != len(first):
        raise BadPredictions("all methods must be given in the same form and for the same rows")
    if isinstance(rows, Rows) and isinstance(first, Rows):
        if rows.n_classes != first.n_classes:
            raise BadPredictions(f"{rows.n_classes} classes, and {first.n_classes} in the first method")
        if not np.array_equal(rows.labels, first.labels):
            raise BadPredictions("the labels differ from those of the first method; pass the same rows")
