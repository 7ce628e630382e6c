"""Predictions -> every metric at once, alone or with confidence intervals, as a table that prints and converts.

Intervals say how far a metric would move on other rows of the same kind. The bootstrap does not know that an error
cannot be negative. ECE and similar errors of a calibrated model are too high on every sample and higher still on every
resample, so their intervals never reach 0. `docs/how-to/intervals.md` says which intervals to trust where.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from glayers.metrics.bootstrap import Bootstrap, Interval, Method
from glayers.metrics.events import Event, Rows, Scored, check_any, check_event, top
from glayers.metrics.registry import METRICS, chosen_metrics, evaluate_once
from glayers.text_tables import aligned_table, markdown_table

__all__ = ["Intervals", "Scorecard", "intervals", "scorecard"]


@dataclass(frozen=True)
class Scorecard(Mapping[str, float]):
    """Every metric of one set of predictions, by name: `card["nll"]`.

    Accuracy, confidence and calibration errors are fractions here and percentages in print. `mean_top_ks` covers the
    ten highest ranks and `top_5_accuracy` the five highest, or all of them where there are fewer classes.

    Attributes
    ----------
    values_by_name
        The numbers, in the order of `METRICS`.
    rows
        The number of rows.
    classes
        The number of classes, or None where only the scores of one event are known.
    """

    values_by_name: dict[str, float]
    rows: int
    classes: int | None

    def __getitem__(self, metric: str) -> float:
        return self.values_by_name[metric]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def to_dict(self) -> dict[str, float]:
        """Return the number of rows and of classes, and all metrics by name, ready for JSON."""
        return {**self._sizes(), **self.values_by_name}

    def _sizes(self) -> dict[str, float]:
        if self.classes is None:
            return {"rows": self.rows}
        return {"rows": self.rows, "classes": self.classes}

    def printed(self) -> dict[str, str]:
        """Return each label with its value as people read it."""
        printed = {name: f"{value:,}" for name, value in self._sizes().items()}
        for name, value in self.items():
            metric = METRICS[name]
            printed[metric.label_for(self.classes)] = metric.format(value)
        return printed

    def to_markdown(self) -> str:
        """Return a Markdown table with one line per metric."""
        return markdown_table([("metric", "value"), *self.printed().items()])

    def __str__(self) -> str:
        printed = self.printed()
        width = max(map(len, printed))
        return "\n".join(f"{label:<{width}}  {value:>10}" for label, value in printed.items())


@dataclass(frozen=True)
class Intervals(Mapping[str, Interval]):
    """Bootstrap intervals by metric: `result["nll"].low`.

    Attributes
    ----------
    intervals
        The interval of each metric, in the order of `METRICS`.
    value
        The scorecard.
    level, method, n_resamples
        The settings of the bootstrap.
    """

    intervals: dict[str, Interval]
    value: Scorecard
    level: float
    method: Method
    n_resamples: int

    def __getitem__(self, metric: str) -> Interval:
        if metric not in self.intervals:
            raise KeyError(f"there is no interval of {metric!r}; choose from {', '.join(self.intervals)}")
        return self.intervals[metric]

    def __iter__(self) -> Iterator[str]:
        return iter(self.intervals)

    def __len__(self) -> int:
        return len(self.intervals)

    @property
    def unreliable(self) -> dict[str, str]:
        """The metrics whose intervals should not be trusted, and why."""
        return {metric: interval.unreliable for metric, interval in self.items() if interval.unreliable}

    def to_dict(self) -> dict[str, dict[str, float | str]]:
        """Return value, low, high, standard error, bias and why the interval is unreliable, ready for JSON."""
        return {metric: interval._asdict() for metric, interval in self.items()}

    def footnote(self) -> str:
        """Say which intervals are unreliable and why; empty if none is.

        >>> p, y = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]] * 30, [0, 1] * 30
        >>> intervals(p, y, metrics=["accuracy", "nll", "ks"]).footnote()
        '* unreliable: NLL, KS (too few errors seen: 0)'
        """
        by_reason: dict[str, list[str]] = {}
        for metric, reason in self.unreliable.items():
            by_reason.setdefault(reason, []).append(METRICS[metric].short_label)
        if not by_reason:
            return ""
        listed = [f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()]
        return f"* unreliable: {'; '.join(listed)}"

    def printed(self) -> list[tuple[str, str, str, str]]:
        """Return label, value, interval and standard error of each metric as people read them."""
        lines = []
        for name, found in self.items():
            metric = METRICS[name]
            star = " *" if found.unreliable else "  "
            ends = f"{metric.format(found.low).removesuffix(' %')} to {metric.format(found.high)}{star}"
            label = metric.label_for(self.value.classes)
            lines.append((label, metric.format(found.value), ends, metric.format(found.standard_error)))
        return lines

    def to_markdown(self) -> str:
        """Return a Markdown table with one line per metric; a star marks unreliable intervals."""
        heading = ("metric", "value", f"{100 * self.level:g} % interval", "standard error")
        table = markdown_table([heading, *self.printed()])
        footnote = self.footnote().replace("*", r"\*")
        return f"{table}\n\n{footnote}".rstrip()

    def __str__(self) -> str:
        lines = [("", "", f"{100 * self.level:g} % interval", "std. error"), *self.printed()]
        return f"{aligned_table(lines)}\n{self.footnote()}".rstrip()


def scorecard(
    probabilities: object, labels: object = None, *, sample_weight: object = None, event: Event = top
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
    rows = rows_to_score(probabilities, labels, sample_weight, None, event)
    return card_of(rows, evaluate_once(rows, chosen_metrics(rows)))


def intervals(
    probabilities: object,
    labels: object = None,
    *,
    sample_weight: object = None,
    groups: object = None,
    event: Event = top,
    metrics: Iterable[str] | None = None,
    n_resamples: int = 1000,
    level: float = 0.95,
    method: Method = "bca",
    stratify: bool = False,
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
        Names of some metrics; all by default.
    n_resamples
        The number of resamples.
    level
        The probability with which an interval should cover.
    method
        "bca" (bias-corrected and accelerated) or "percentile".
    stratify
        Whether every class keeps its number of rows in each resample.
    random_state
        Seed; None draws other resamples each time.
    progress
        Whether to show a progress bar; None shows it at a terminal.

    Returns
    -------
    Intervals
        A mapping from metric names to `Interval`. Those of accuracies are exact and need no resamples. Equal-mass bins
        keep the sample's edges. Efron, Journal of the American Statistical Association, 1987.

    Examples
    --------
    >>> p, y = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2]] * 25, [0, 2, 2, 0] * 25
    >>> found = intervals(p, y)["accuracy"]
    >>> round(found.value, 2), round(found.low, 2), round(found.high, 2)
    (0.75, 0.65, 0.83)
    """
    rows = rows_to_score(probabilities, labels, sample_weight, groups, event)
    chosen = chosen_metrics(rows, metrics)
    settings = Bootstrap(n_resamples, level, method, stratify, random_state, progress)
    found = settings.columns(rows, chosen, "resampling")
    ends = {metric.name: found[metric.name].interval(level) for metric in chosen}
    card = card_of(rows, {name: interval.value for name, interval in ends.items()})
    return Intervals(ends, card, level, method, n_resamples)


def rows_to_score(given: object, labels: object, sample_weight: object, groups: object, event: Event) -> Rows | Scored:
    """Check predictions that all metrics will read, and keep only one event of them if that is not the top class."""
    rows = check_any(given, labels, sample_weight, groups, strict=True)
    if event is top:
        return rows
    return check_event(rows, event=event)


def card_of(rows: Rows | Scored, values: dict[str, float]) -> Scorecard:
    """Return the scorecard of checked rows with these values."""
    return Scorecard(values, len(rows.weights), rows.n_classes or None)
