"""Measurements -> the tables of the page: every method with intervals, differences from a baseline, classes."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from glayers.arrays import Ints
from glayers.metrics import METRICS, Difference, PairedDifferences
from glayers.report import p_text
from glayers.report.html.measuring import LEVEL, SHOWN_METRICS, Measured, Measurements

DIFFERENCE_METRICS = ("nll", "brier", "ks", "accuracy")


@dataclass(frozen=True)
class Cell:
    """A number, the small print below it, and a word on its meaning, if any, with its tone."""

    value: str
    below: str = ""
    word: str = ""
    tone: Literal["", "good", "bad"] = ""


Lines: TypeAlias = list[tuple[str, list[Cell]]]  # a method or a class, and its cells


def method_lines(found: Measurements) -> Lines:
    """Return one line per method: the calibration test, and metrics with intervals."""
    methods = found.methods.items()
    return [(name, [_test_cell(m), *(_metric_cell(m, metric) for metric in SHOWN_METRICS)]) for name, m in methods]


def difference_tables(found: Measurements, differences: PairedDifferences | None) -> dict[str, Lines]:
    """Return the differences from the uncalibrated and, if it was fitted among others, from temperature scaling."""
    if differences is None:
        return {}
    first, *others = found.methods
    baselines = [first] + [name for name in others if name == "temperature" and len(others) > 1]

    def cells(name: str, against: str) -> list[Cell]:
        return [_difference_cell(differences.between(metric, name, against)) for metric in DIFFERENCE_METRICS]

    return {base: [(name, cells(name, base)) for name in found.methods if name != base] for base in baselines}


def class_lines(found: Measurements, shown: list[Measured], names: list[str], calibration_counts: Ints | None) -> Lines:
    """Return one line per class: rows, frequency, and for each method shown its mean probability and its KS."""
    counts, frequency = found.before.gaps.counts, found.before.gaps.frequency

    def cells(c: int) -> list[Cell]:
        rows = [counts[c], *([] if calibration_counts is None else [calibration_counts[c]])]
        made = [Cell(f"{n:,.0f}") for n in rows] + [Cell(METRICS["confidence"].format(frequency[c]))]
        for method in shown:
            test = method.events[f"class {c}"]["ks"].test
            # Bonferroni's correction, which also counts the classes that are not shown.
            significant = test.p_value * len(names) <= 1 - LEVEL
            made.append(Cell(METRICS["confidence"].format(method.gaps.confidence[c])))
            made.append(Cell(METRICS["ks"].format(test.value), "", *(("significant", "bad") if significant else ())))
        return made

    return [(names[c], cells(c)) for c in found.classes.tolist()]


def _metric_cell(method: Measured, name: str) -> Cell:
    interval = method.intervals[name]
    value, low, high = (METRICS[name].format(number) for number in interval[:3])
    # Where all resamples lie on one side of the value, the interval means nothing.
    ends = _from_to(low, high) if interval.low <= interval.value <= interval.high else "no interval"
    return Cell(value, ends + ("*" if interval.unreliable else ""))


def _test_cell(method: Measured) -> Cell:
    p = p_text(method.test.p_value)
    return Cell(p, "", "rejected", "bad") if method.test.rejected else Cell(p, "", "not rejected", "good")


def _difference_cell(difference: Difference) -> Cell:
    value, *ends = (METRICS[difference.metric].format_difference(number) for number in difference.interval[:3])
    below = f"{_from_to(*ends)}, {p_text(difference.p_value)}"
    if not difference.significant:
        return Cell(value, below, "no significant difference")
    better = (difference.interval.value > 0) == (METRICS[difference.metric].better == "higher")
    return Cell(value, below, "better", "good") if better else Cell(value, below, "worse", "bad")


def _from_to(low: str, high: str) -> str:
    """Return the ends of an interval, with the unit once."""
    return f"{low.split(' ')[0]} to {high}"
