"""Predictions -> the scorecard with confidence intervals: how far each metric would move on other rows.

The bootstrap does not know that an error cannot be negative. ECE and similar errors of a calibrated model are too high
on every sample and higher still on every resample, so their intervals never reach 0. `docs/intervals.md` says which
intervals to trust where, from simulations.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from glayers.metrics.bootstrap import Bootstrap, Interval, Method
from glayers.metrics.events import Event, top
from glayers.metrics.metric import markdown_line
from glayers.metrics.registry import METRICS, chosen_metrics
from glayers.metrics.scorecard import Scorecard, card_of, rows_to_score

_FOOTNOTE = (
    "* unreliable: the MCE always, others where the resamples are off by more than a quarter of a standard error"
)


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
    def unreliable(self) -> tuple[str, ...]:
        """The metrics whose intervals should not be trusted: those `Interval.unreliable` names, and always the MCE."""
        # The MCE is the largest of many noisy bins: even without bias, two intervals in ten cover the truth.
        return tuple(metric for metric, interval in self.items() if metric == "mce" or interval.unreliable)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return value, low, high, standard error and bias by metric, ready for JSON."""
        return {metric: interval._asdict() for metric, interval in self.items()}

    def printed(self) -> list[tuple[str, str, str, str]]:
        """Return label, value, interval and standard error of each metric as people read them."""
        lines = []
        for name, found in self.items():
            metric, star = METRICS[name], " *" if name in self.unreliable else "  "
            ends = f"{metric.format(found.low).removesuffix(' %')} to {metric.format(found.high)}{star}"
            label = metric.label_for(self.value.classes)
            lines.append((label, metric.format(found.value), ends, metric.format(found.standard_error)))
        return lines

    def to_markdown(self) -> str:
        """Return a Markdown table with one line per metric; a star marks unreliable intervals."""
        lines = [f"| metric | value | {100 * self.level:g} % interval | standard error |", "|---|---:|---:|---:|"]
        return "\n".join([*lines, *map(markdown_line, self.printed()), "", _FOOTNOTE.replace("*", r"\*")])

    def __str__(self) -> str:
        lines = [("", "", f"{100 * self.level:g} % interval", "std. error"), *self.printed()]
        first, *widths = (max(map(len, column)) for column in zip(*lines, strict=True))
        texts = ["  ".join([label.ljust(first), *map(str.rjust, cells, widths)]).rstrip() for label, *cells in lines]
        return "\n".join([*texts, _FOOTNOTE])


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
        A mapping from metric names to `Interval`. Equal-mass bins keep the sample's edges. Efron, Journal of the
        American Statistical Association, 1987.

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
