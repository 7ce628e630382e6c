"""Probabilities and labels -> the scorecard with error bars: what it would have been on other rows of the same kind.

The bootstrap answers how far a metric would move had other rows been drawn. It does not know that an error cannot be
negative: of a model that is calibrated, ECE and its kin come out too high on every sample and higher still on every
resample, and no interval of theirs reaches 0. `docs/intervals.md` says which metrics to trust where, from simulations.
"""

from dataclasses import dataclass, fields

from glayers.logits import check_logits
from glayers.metrics.old.bootstrap import Bootstrapped, Interval, Method, Settings
from glayers.metrics.old.reweighted import STATISTICS, Rows, evaluate, passes
from glayers.metrics.old.scorecard import Scorecard, score_checked_logits, scorecard
from glayers.metrics.old.waiting import waiting_bar
from glayers.metrics.old.wording import markdown_line

_DOUBT = "* not to be trusted: the MCE never is, others where resamples lie off by over a quarter of a standard error"


@dataclass(frozen=True)
class Intervals:
    """The scorecard, and scorecards of the ends, standard errors and biases of its metrics: `result.low.nll`.

    `result["nll"]` has those of one metric together. Efron, Journal of the American Statistical Association, 1987.
    """

    value: Scorecard
    low: Scorecard
    high: Scorecard
    standard_error: Scorecard
    bias: Scorecard
    level: float
    method: Method
    n_resamples: int

    def __getitem__(self, metric: str) -> Interval:
        if metric not in STATISTICS:
            raise KeyError(f"{metric!r} is no metric of the scorecard; choose from {', '.join(STATISTICS)}")
        cards = (self.value, self.low, self.high, self.standard_error, self.bias)
        return Interval(*(getattr(card, metric) for card in cards))

    @property
    def doubtful(self) -> tuple[str, ...]:
        """The metrics whose intervals are not to be trusted: those `Interval.doubtful` says, and always the MCE."""
        # The largest of many noisy bins: even where resamples do not lie off, two intervals in ten cover.
        return tuple(metric for metric in STATISTICS if metric == "mce" or self[metric].doubtful)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return value, low, high, standard error and bias by metric, as JSON would have them."""
        return {metric: self[metric]._asdict() for metric in STATISTICS}

    def to_markdown(self) -> str:
        """Return a Markdown table, one metric a line; a star marks intervals that are not to be trusted."""
        lines = [f"| metric | value | {100 * self.level:g} % interval | standard error |", "|---|---:|---:|---:|"]
        lines += [markdown_line(line) for line in self._lines()]
        return "\n".join([*lines, "", _DOUBT.replace("*", r"\*")])

    def __str__(self) -> str:
        lines = [("", "", f"{100 * self.level:g} % interval", "std. error"), *self._lines()]
        name_width, *widths = (max(map(len, column)) for column in zip(*lines, strict=True))
        printed = [
            "  ".join([name.ljust(name_width), *map(str.rjust, cells, widths)]).rstrip() for name, *cells in lines
        ]
        return "\n".join([*printed, _DOUBT])

    def _lines(self) -> list[tuple[str, str, str, str]]:
        """Each metric in words, its value, interval and standard error as people read them."""
        cards = (self.value, self.low, self.high, self.standard_error)
        named = zip(fields(Scorecard), *(card.printed().items() for card in cards), strict=True)
        doubtful = self.doubtful
        return [
            (words, value, f"{low.removesuffix(' %')} to {high}" + (" *" if field.name in doubtful else "  "), error)
            for field, (words, value), (_, low), (_, high), (_, error) in named
            if field.name in STATISTICS
        ]


def intervals(
    probabilities: object,
    labels: object,
    weights: object = None,
    groups: object = None,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    method: Method = "bca",
    stratify: bool = False,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> Intervals:
    """Bootstrap intervals of every metric of the scorecard, from the same resamples.

    Rows are drawn with replacement; with `groups`, whole groups are; with `stratify`, each class keeps its number of
    rows. Equal-mass bins keep the sample's edges. Efron, Journal of the American Statistical Association, 1987.

    >>> p, y = [[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2]] * 25, [0, 2, 2, 0] * 25
    >>> found = intervals(p, y)["accuracy"]
    >>> round(found.value, 2), round(found.low, 2), round(found.high, 2)
    (0.75, 0.65, 0.83)
    """
    rows = Rows.of_probabilities(probabilities, labels, weights)
    card = scorecard(rows.given.probabilities, rows.given.labels, weights)
    settings = Settings(n_resamples, level, method, stratify, random_state, progress)
    return _intervals(card, rows, weights, groups, settings)


def intervals_from_logits(
    logits: object,
    labels: object,
    weights: object = None,
    groups: object = None,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    method: Method = "bca",
    stratify: bool = False,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> Intervals:
    """Bootstrap intervals of the scorecard of softmax(logits); the NLL comes from the logits themselves.

    Settings as in `intervals`. Efron, Journal of the American Statistical Association, 1987.
    """
    checked = check_logits(logits)
    rows = Rows.of_logits(checked, labels, weights)
    card = score_checked_logits(checked, labels, weights)
    settings = Settings(n_resamples, level, method, stratify, random_state, progress)
    return _intervals(card, rows, weights, groups, settings)


def _intervals(card: Scorecard, rows: Rows, weights: object, groups: object, settings: Settings) -> Intervals:
    resampling = settings.plan(rows.given.labels, weights, groups)
    n_pieces = len(passes(rows.given, STATISTICS)) * resampling.n_batches
    with waiting_bar(settings.progress, "resampling", n_pieces) as advance:
        found = evaluate(rows, STATISTICS, resampling, advance)
    ends = {name: Bootstrapped.of(columns, resampling).interval(settings.level) for name, columns in found.items()}
    size = (card.rows, card.classes)
    return Intervals(
        value=card,
        low=Scorecard(*size, *(ends[name].low for name in STATISTICS)),
        high=Scorecard(*size, *(ends[name].high for name in STATISTICS)),
        standard_error=Scorecard(*size, *(ends[name].standard_error for name in STATISTICS)),
        bias=Scorecard(*size, *(ends[name].bias for name in STATISTICS)),
        level=settings.level,
        method=settings.method,
        n_resamples=settings.n_resamples,
    )
