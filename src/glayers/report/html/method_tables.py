"""What was measured -> the tables of the page: every method with intervals, and its differences from a baseline."""

from dataclasses import dataclass
from typing import Any, Literal

from glayers.metrics.old import Difference, PairedDifferences
from glayers.report.html.measuring import METRICS, Measured, Measurements
from glayers.report.html.numbers import difference_text, from_to, metric_text, p_text, plain

HEADINGS = {
    "nll": "NLL",
    "brier": "Brier",
    "ks": "KS",
    "ece": "ECE",
    "smooth_ece": "smooth ECE",
    "accuracy": "accuracy",
    "confidence": "mean confidence",
}
DIFFERENCE_METRICS = ("nll", "brier", "ks", "accuracy")
_HIGHER_IS_BETTER = {"accuracy"}


@dataclass(frozen=True)
class Cell:
    """A number, what stands below it in small print, and a word on what it means, if any, with its tone."""

    value: str
    below: str
    word: str = ""
    tone: Literal["", "good", "bad"] = ""


@dataclass(frozen=True)
class Line:
    """A method and its cells."""

    method: str
    cells: list[Cell]


@dataclass(frozen=True)
class DifferenceTable:
    """Every other method against one."""

    against: str
    lines: list[Line]


def method_lines(found: Measurements) -> list[Line]:
    """Return one line a method: whether a test finds it calibrated, and metrics with intervals."""
    return [Line(method.name, [_test_cell(method), *_metric_cells(method)]) for method in found.methods]


def difference_tables(found: Measurements, differences: PairedDifferences | None) -> list[DifferenceTable]:
    """Return the differences from the uncalibrated and, where it was fitted among others, from temperature scaling."""
    if differences is None:
        return []
    names = [method.name for method in found.methods]
    baselines = [names[0]] + [name for name in names[1:] if name == "temperature" and len(names) > 2]

    def line(name: str, against: str) -> Line:
        return Line(name, [_difference_cell(differences.between(m, name, against)) for m in DIFFERENCE_METRICS])

    return [DifferenceTable(base, [line(name, base) for name in names if name != base]) for base in baselines]


def difference_records(differences: PairedDifferences | None) -> list[dict[str, Any]]:
    """Return every difference, both ways round, for the forest plot."""
    found = [] if differences is None else list(differences.differences)
    return [plain(seen.to_dict()) for one in found for seen in (one, one.reversed())]


def _metric_cells(method: Measured) -> list[Cell]:
    def cell(metric: str) -> Cell:
        interval = method.intervals[metric]
        value, low, high = (metric_text(metric, number) for number in interval[:3])
        # Where resamples all lie on one side, what is left of an interval says nothing.
        ends = from_to(low, high) if interval.low <= interval.value <= interval.high else "no interval"
        return Cell(value, ends + ("*" if interval.doubtful else ""))

    return [cell(metric) for metric in METRICS]


def _test_cell(method: Measured) -> Cell:
    if method.test.rejected:
        return Cell(p_text(method.test.p_value), "", "no", "bad")
    return Cell(p_text(method.test.p_value), "", "not refuted", "good")


def _difference_cell(difference: Difference) -> Cell:
    metric = difference.metric
    value, low, high, _, _ = difference.interval
    by, *ends = (difference_text(metric, number) for number in (value, low, high))
    below = f"{from_to(*ends)}, {p_text(difference.p_value)}"
    if not difference.significant:
        return Cell(by, below, "not told apart")
    better = (value > 0) == (metric in _HIGHER_IS_BETTER)
    return Cell(by, below, "better", "good") if better else Cell(by, below, "worse", "bad")
