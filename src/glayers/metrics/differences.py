"""Several sets of predictions for the same rows -> how far each pair differs in each metric, with intervals.

Every method is scored on the same resamples, so what makes a row hard is the same for both and cancels: a difference is
known far better than either score.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from glayers.arrays import Floats, to_floats
from glayers.errors import BadPredictions, shown
from glayers.metrics.bootstrap import Bootstrap, Bootstrapped, Interval
from glayers.metrics.events import Event, Rows, Scored, top
from glayers.metrics.scorecard import METRICS, chosen_metrics, rows_to_score
from glayers.text_tables import data_frame, markdown_table

__all__ = ["Difference", "PairedDifferences", "adjust", "paired_differences"]


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
        metric = METRICS[self.metric]
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

    def to_dict(self) -> dict[str, object]:
        """Return one flat record, ready for JSON or a data frame."""
        numbers = {"difference": self.interval.value, **self.interval._asdict()}
        del numbers["value"]
        names = {"metric": self.metric, "method": self.method, "against": self.against}
        return {**names, **numbers, "p_value": self.p_value, "significant": self.significant}

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

    def to_dicts(self) -> list[dict[str, object]]:
        """Return one record per difference."""
        return [found.to_dict() for found in self.differences]

    def to_frame(self) -> Any:
        """Return a pandas data frame with one line per difference."""
        return data_frame(self.to_dicts())

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
    event: Event = top,
    metrics: Iterable[str] | None = None,
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
        Names from `METRICS`; by default NLL, Brier score, KS and accuracy, as far as the predictions allow.
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
    if len(methods) < 2:
        raise BadPredictions(f"a comparison needs at least 2 methods, by name; got {list(methods)}")
    columns: dict[str, dict[str, Bootstrapped]] = {}
    first: Rows | Scored | None = None
    for name, given in methods.items():
        try:
            rows = rows_to_score(given, labels, sample_weight, groups, event)
            first = first or rows
            _check_same_rows(rows, first)
        except BadPredictions as error:
            raise BadPredictions(f"{name}: {error}") from error
        if metrics is None:
            possible = [metric.name for metric in chosen_metrics(rows)]
            metrics = [metric for metric in ("nll", "brier", "ks", "accuracy") if metric in possible]
        chosen = chosen_metrics(rows, metrics)
        columns[name] = settings.columns(rows, chosen, f"resampling {name}")  # one seed: the same for every method
        if "nll" in columns[name] and np.isinf(columns[name]["nll"].value):
            raise BadPredictions(
                f"{name}: the NLL is infinite, because a label was given probability 0, so it has no differences. Pass "
                f"Predictions of the logits, or leave 'nll' out of metrics"
            )
    found = []
    for metric in chosen:
        found += _compare({name: by_metric[metric.name] for name, by_metric in columns.items()}, level)
    return PairedDifferences(tuple(found), level, n_resamples)


def _compare(columns: dict[str, Bootstrapped], level: float) -> list[Difference]:
    """Return the differences of every two methods by one metric."""
    pairs = {(a, b): columns[b].minus(columns[a]) for a, b in combinations(columns, 2)}
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
        One number per test.

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
    if given.ndim != 1 or not ((given >= 0) & (given <= 1)).all():
        raise BadPredictions(f"p_values must be one number between 0 and 1 for each test; got {shown(p_values)}")
    order = np.argsort(given, kind="stable")
    times = np.arange(len(given), 0, -1)
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
