"""Several sets of probabilities for the same rows -> how far each pair differs, with error bars.

Every method is scored on the same resamples, so what is hard about a row is hard for both and cancels: a difference is
known far better than either score.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from glayers.arrays import Floats
from glayers.errors import BadPredictions
from glayers.logits import check_logits
from glayers.metrics.old.bootstrap import Bootstrapped, Interval, Method, Settings
from glayers.metrics.old.corrections import Correction, adjust
from glayers.metrics.old.resampling import Resampling
from glayers.metrics.old.reweighted import STATISTICS, Rows, evaluate, passes
from glayers.metrics.old.waiting import waiting_bar
from glayers.metrics.old.wording import markdown_line, metric_words, with_error

_DEFAULT = ("nll", "brier", "ks", "accuracy")


@dataclass(frozen=True)
class Difference:
    """One metric of `method` minus the same of `against`, and the p-value of there being none.

    Efron and Tibshirani, "An Introduction to the Bootstrap", 1993.
    """

    metric: str
    method: str
    against: str
    interval: Interval
    p_value: float
    significant: bool

    def sentence(self) -> str:
        """Say it plainly, with the standard error.

        >>> interval = Interval(-0.105, -0.117, -0.093, 0.006, 0.0)
        >>> Difference("nll", "shared g-layers", "temperature scaling", interval, 0.0, True).sentence()
        'shared g-layers lower NLL by 0.105 ± 0.006 against temperature scaling'
        """
        words, both = metric_words(self.metric), f"{self.method} and {self.against}"
        if self.interval.standard_error == 0 and self.p_value == 1:
            return f"{both} have the same {words}"
        by = with_error(self.metric, abs(self.interval.value), self.interval.standard_error)
        if not self.significant:
            return f"{both} are not told apart by {words}: {by}"
        verb = "lower" if self.interval.value < 0 else "raise"
        ending = "" if self.method.endswith("s") else "s"  # g-layers lower, temperature scaling lowers
        return f"{self.method} {verb}{ending} {words} by {by} against {self.against}"

    def to_dict(self) -> dict[str, object]:
        """Return one flat record, as JSON or a data frame would have it."""
        value, low, high, error, bias = self.interval
        numbers = {"difference": value, "low": low, "high": high, "standard_error": error, "bias": bias}
        names: dict[str, object] = {"metric": self.metric, "method": self.method, "against": self.against}
        return names | numbers | {"p_value": self.p_value, "significant": self.significant}

    def reversed(self) -> "Difference":
        """The same seen from the other method."""
        value, low, high, error, bias = self.interval
        turned = Interval(-value, -high, -low, error, -bias)
        return Difference(self.metric, self.against, self.method, turned, self.p_value, self.significant)


@dataclass(frozen=True)
class PairedDifferences:
    """Every pair of methods by every metric, later minus earlier. Efron and Tibshirani, 1993."""

    differences: tuple[Difference, ...]
    level: float
    correction: Correction | None
    n_resamples: int

    def between(self, metric: str, method: str, against: str) -> Difference:
        """Return the difference of two methods, whichever of them came first."""
        for found in self.differences:
            if found.metric == metric and {found.method, found.against} == {method, against}:
                return found if found.method == method else found.reversed()
        raise KeyError(f"no difference of {method!r} and {against!r} by {metric!r}; there are {self._names()}")

    def sentences(self) -> list[str]:
        """One sentence for every difference."""
        return [found.sentence() for found in self.differences]

    def to_dicts(self) -> list[dict[str, object]]:
        """One record for every difference."""
        return [found.to_dict() for found in self.differences]

    def to_markdown(self) -> str:
        """Return a Markdown table, one difference a line; a star marks what is significant."""
        p_value = "p-value" if self.correction is None else f"p-value, {self.correction.replace('_', '-')}"
        lines = [
            f"| metric | method | against | difference | {100 * self.level:g} % interval | {p_value} |",
            "|---|---|---|---:|---:|---:|",
        ]
        for found in self.differences:
            value, low, high, error, _ = found.interval
            by = f"{value:.4g} ± {error:.2g}" + (" *" if found.significant else "")
            numbers = (by, f"{low:.4g} to {high:.4g}", f"{found.p_value:.2g}")
            lines.append(markdown_line([found.metric, found.method, found.against, *numbers]))
        return "\n".join(lines)

    def __str__(self) -> str:
        return "\n".join(self.sentences())

    def _names(self) -> str:
        return ", ".join(sorted({name for d in self.differences for name in (d.metric, d.method, d.against)}))


def paired_differences(
    probabilities: Mapping[str, object],
    labels: object,
    weights: object = None,
    groups: object = None,
    metrics: Sequence[str] = _DEFAULT,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    method: Method = "bca",
    correction: Correction | None = "holm",
    stratify: bool = False,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> PairedDifferences:
    """Differences between the metrics of every two methods, later minus earlier, by a paired bootstrap.

    A difference is significant where its p-value, 2 Phi(-|difference| / standard error), corrected over the pairs of a
    metric, is at most 1 - level. Other settings as in `intervals`. Efron and Tibshirani, 1993; Holm, 1979.

    >>> p, y = np.tile([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]], (100, 1)), np.tile([0, 1, 1, 1], 50)
    >>> print(paired_differences({"none": p, "sharpened": p**2 / (p**2).sum(1, keepdims=True)}, y, metrics=["nll"]))
    sharpened lowers NLL by 0.089 ± 0.022 against none
    """

    def rows(values: object) -> Rows:
        return Rows.of_probabilities(values, labels, weights)

    settings = Settings(n_resamples, level, method, stratify, random_state, progress)
    return _compare(probabilities, rows, weights, groups, metrics, correction, settings)


def paired_differences_from_logits(
    logits: Mapping[str, object],
    labels: object,
    weights: object = None,
    groups: object = None,
    metrics: Sequence[str] = _DEFAULT,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    method: Method = "bca",
    correction: Correction | None = "holm",
    stratify: bool = False,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> PairedDifferences:
    """As `paired_differences`, of softmax(logits); the NLL comes from the logits, so that no probability rounds to 0.

    Log-probabilities are logits too. Efron and Tibshirani, "An Introduction to the Bootstrap", 1993.
    """

    def rows(values: object) -> Rows:
        return Rows.of_logits(check_logits(values), labels, weights)

    settings = Settings(n_resamples, level, method, stratify, random_state, progress)
    return _compare(logits, rows, weights, groups, metrics, correction, settings)


def _compare(
    methods: Mapping[str, object],
    rows_of: Callable[[object], Rows],
    weights: object,
    groups: object,
    metrics: Sequence[str],
    correction: Correction | None,
    settings: Settings,
) -> PairedDifferences:
    _check(methods, metrics)
    columns = {}
    n_classes: dict[str, int] = {}
    for name, values in methods.items():
        rows = _named(name, rows_of, values)
        n_classes[name] = rows.given.probabilities.shape[1]
        if len(set(n_classes.values())) > 1:
            raise BadPredictions(f"methods must speak of the same classes; their numbers of classes are {n_classes}")
        resampling = settings.plan(rows.given.labels, weights, groups)  # one seed: the same for every method
        columns[name] = _columns(name, rows, metrics, resampling, settings.progress)
    differences: list[Difference] = []
    for metric in metrics:
        pairs = list(combinations(methods, 2))
        bootstrapped = [Bootstrapped.of(columns[b][metric] - columns[a][metric], resampling) for a, b in pairs]
        intervals = [difference.interval(settings.level) for difference in bootstrapped]
        p_values = np.array([_p_value(interval) for interval in intervals])
        adjusted = p_values if correction is None else adjust(p_values, correction)
        differences += [
            Difference(metric, b, a, interval, float(p), bool(p <= 1 - settings.level))
            for (a, b), interval, p in zip(pairs, intervals, adjusted, strict=True)
        ]
    return PairedDifferences(tuple(differences), settings.level, correction, settings.n_resamples)


def _check(methods: Mapping[str, object], metrics: Sequence[str]) -> None:
    if not isinstance(methods, Mapping):
        raise BadPredictions(f"methods must be a dict of arrays by name; got a {type(methods).__name__}")
    if len(methods) < 2:
        raise BadPredictions(f"a comparison needs at least 2 methods, by name; got {list(methods)}")
    listed = isinstance(metrics, Collection) and not isinstance(metrics, str)
    if not listed or not metrics or any(metric not in STATISTICS for metric in metrics):
        raise BadPredictions(f"metrics must be a list of some of {', '.join(STATISTICS)}; got {metrics!r}")


def _named(name: str, rows_of: Callable[[object], Rows], values: object) -> Rows:
    """Check one method's numbers; a complaint says whose they are."""
    try:
        return rows_of(values)
    except BadPredictions as error:
        raise BadPredictions(f"{name}: {error}") from error


def _columns(
    name: str, rows: Rows, metrics: Sequence[str], resampling: Resampling, progress: bool | None
) -> dict[str, Floats]:
    n_pieces = len(passes(rows.given, metrics)) * resampling.n_batches
    with waiting_bar(progress, f"resampling {name}", n_pieces) as advance:
        found = evaluate(rows, metrics, resampling, advance)
    if "nll" in found and np.isinf(found["nll"][0]):
        raise BadPredictions(
            f"{name}: the NLL is infinite, as a label was given probability 0; no difference of it has a meaning. "
            f"Use paired_differences_from_logits, or leave 'nll' out of metrics"
        )
    return found


def _p_value(interval: Interval) -> float:
    """Two-sided, from a normal distribution: counting resamples could not tell 0.001 from 0.00001."""
    if interval.standard_error == 0:
        return 1.0 if abs(interval.value) < 1e-12 else 0.0
    return math.erfc(abs(interval.value) / interval.standard_error / math.sqrt(2))
