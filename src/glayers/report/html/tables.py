"""Measurements -> what the page says: a summary in one sentence with its evidence, and the tables."""

from typing import Literal, NamedTuple, TypeAlias

from glayers.calibrators import AutoCalibrator
from glayers.metrics import METRICS, Difference, OmnibusTest
from glayers.report import p_text
from glayers.report.html.measuring import LEVEL, Measured, Measurements
from glayers.report.tables import ks_test_sentence, mean_sentence


class Summary(NamedTuple):
    """One sentence, the sentences that support it, and the method it describes, "" if none was fitted."""

    sentence: str
    support: list[str]
    method: str


class Cell(NamedTuple):
    """A number, the small print below it, and a word on its meaning, if any, with its tone."""

    value: str
    below: str = ""
    word: str = ""
    tone: Literal["", "good", "bad"] = ""


Lines: TypeAlias = list[tuple[str, list[Cell]]]  # a method or a class, and its cells


def summarise(found: Measurements) -> Summary:
    """Say how far the model was off and whether calibration corrected it, as far as these rows can tell."""
    before, tests = found.before, found.compared.calibration_tests
    ahead = _finding(before, tests[before.name])
    sentence = f"{_capital(ahead)}: {mean_sentence(before.card)}."
    support = [f"{_capital(str(tests[before.name]))}.", f"{ks_test_sentence(before.test)}."]
    if found.differences is None:
        return Summary(sentence, support, "")
    name = found.compared.recommended
    after = found.methods[name]
    result = _finding(after, tests[name])
    if result == _direction(after):
        result = f"{'still' if ahead == result else 'now'} {result}"
    support += [f"After {name}: {tests[name]}.", f"After {name}, {ks_test_sentence(after.test)}."]
    shown = ("nll", "accuracy") if found.names else ("ks",)
    changes = [found.differences.between(metric, name, before.name) for metric in shown]
    support += [*(f"{_capital(change.sentence())}." for change in changes), _reason(found)]
    return Summary(f"{sentence} After calibration with {name}: {mean_sentence(after.card)}; {result}.", support, name)


def method_lines(found: Measurements) -> Lines:
    """Return one line per method: the calibration test, and metrics with intervals."""
    methods = found.methods.items()
    return [
        (name, [_test_cell(m), *(_metric_cell(m, metric) for metric in found.shown_metrics)]) for name, m in methods
    ]


def difference_tables(found: Measurements) -> dict[str, Lines]:
    """Return the differences from the uncalibrated and, if it was fitted among others, from temperature scaling."""
    differences = found.differences
    if differences is None:
        return {}
    first, *others = found.methods
    baselines = [first] + [name for name in others if name == "temperature" and len(others) > 1]

    def cells(name: str, against: str) -> list[Cell]:
        return [_difference_cell(differences.between(metric, name, against)) for metric in found.difference_metrics]

    return {base: [(name, cells(name, base)) for name in found.methods if name != base] for base in baselines}


def class_lines(found: Measurements, shown: list[Measured]) -> Lines:
    """Return one line per class: rows, frequency, and for each method shown its mean probability and its KS."""
    gaps = {method.name: method.gaps for method in shown if method.gaps is not None}
    if not gaps:
        return []
    before = gaps[found.before.name]

    def cells(c: int) -> list[Cell]:
        rows = [counts[c] for counts in (before.counts, found.calibration_counts) if counts is not None]
        made = [Cell(f"{n:,.0f}") for n in rows] + [Cell(METRICS["confidence"].format(before.frequency[c]))]
        for method in shown:
            test = method.events[f"class {c}"]["ks"].test
            # Bonferroni's correction, which also counts the classes that are not shown.
            significant = test.p_value * len(found.names) <= 1 - LEVEL
            made.append(Cell(METRICS["confidence"].format(gaps[method.name].confidence[c])))
            made.append(Cell(METRICS["ks"].format(test.value), "", *(("significant", "bad") if significant else ())))
        return made

    return [(found.names[c], cells(c)) for c in found.classes.tolist()]


def _reason(found: Measurements) -> str:
    """Say why the summary describes the recommended method."""
    fitted, name = found.compared.calibrators, found.compared.recommended
    if isinstance(fitted[name], AutoCalibrator):
        return f"This summary describes {name}, which chose its families on the calibration rows alone."
    if len(fitted) == 1:
        return f"This summary describes {name}, the only method that was fitted."
    score = "NLL" if found.names else "Brier score"
    among = (
        f"which has the lowest {score} of {len(fitted)} methods on these test rows; its scores are slightly optimistic"
    )
    return f"This summary describes {name}, {among}."


def _finding(method: Measured, test: OmnibusTest) -> str:
    """Say in which direction the confidence is off if it is, else what all tests together found."""
    return _direction(method) if {"ks", "ece"} & set(test.rejecting) else test.finding


def _direction(method: Measured) -> str:
    """Over- or underconfident if the means differ by two standard errors, else miscalibrated around the mean."""
    gap = method.card["confidence"] - method.card["accuracy"]
    if abs(gap) <= 2 * method.intervals["accuracy"].standard_error:
        return "correct on average but miscalibrated at some confidences"
    return "overconfident" if gap > 0 else "underconfident"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _metric_cell(method: Measured, name: str) -> Cell:
    interval = method.intervals[name]
    value, low, high = (METRICS[name].format(number) for number in interval[:3])
    # Where all resamples lie on one side of the value, the interval means nothing.
    ends = _from_to(low, high) if interval.low <= interval.value <= interval.high else "no interval"
    return Cell(value, ends + ("*" if interval.unreliable else ""))


def _test_cell(method: Measured) -> Cell:
    if method.test.too_few_groups:
        return Cell("", "", "too few groups to tell")
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
