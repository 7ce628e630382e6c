"""Measurements -> what the page says: a summary in one sentence with its evidence, and the tables."""

import math
from typing import Literal, NamedTuple, TypeAlias

from sklearn.base import clone

from glayers.calibrators import CALIBRATORS, AutoCalibrator
from glayers.calibrators.artifact import arrays_of
from glayers.errors import listed
from glayers.metrics import METRICS, Difference, OmnibusTest
from glayers.report.findings import LEVEL, class_shift_found
from glayers.report.html.measuring import Measured, Measurements
from glayers.report.words import ks_test_sentence, mean_sentence, p_text, shortened


class BeforeAfter(NamedTuple):
    """A metric before and after calibration, and a word on the difference, if any, with its tone."""

    metric: str
    before: str
    after: str
    word: str = ""
    tone: str = ""


class Summary(NamedTuple):
    """The verdict in two words and in a sentence, facts by question, what it means, numbers, evidence, and the method.

    Without calibration the method is "".
    """

    badge: str
    sentence: str
    tone: Literal["good", "fair", "bad"]
    facts: dict[str, str]
    meaning: str
    changes: list[BeforeAfter]
    support: list[str]
    method: str


class Advice(NamedTuple):
    """Which method to use, why, what it costs, which one comes next, the lines that use it, and whether to adapt it."""

    method: str
    why: str
    costs: list[str]
    runner_up: str
    python: str
    shell: str
    adapt: bool = False


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
    first, ahead = tests[before.name], _finding(before, tests[before.name])
    sentence = f"{_capital(ahead)}{_amount(before) if ahead == _direction(before) else ''}."
    support = [
        f"{_capital(str(first))}.",
        f"{_capital(mean_sentence(before.card))}.",
        f"{ks_test_sentence(before.test)}.",
    ]
    if found.differences is None:
        tone: Literal["good", "fair", "bad"] = "bad" if first.rejected else "fair" if first.undecided else "good"
        facts = _facts(found, [before])
        return Summary(_badge(first, tone), sentence, tone, facts, _meaning(found, before), [], support, "")
    name = found.compared.recommended
    after, test = found.methods[name], tests[name]
    result = _finding(after, test)
    if result == _direction(after):
        result = f"{'still' if ahead == result else 'now'} {result}{_amount(after)}"
    off = [] if after.predicted is None else after.predicted.significant(LEVEL).tolist()
    if off and not (_off_at_the_top(test) or test.undecided):
        named = [shortened(found.names[c]) for c in off[:2]] + ([f"{len(off) - 2} others"] if len(off) > 2 else [])
        result = f"{test.finding.partition(', but ')[0]}, but not where the prediction is {' or '.join(named)}"
    support += [f"After {name}: {test}.", f"After {name}, {mean_sentence(after.card)}; {ks_test_sentence(after.test)}."]
    shown = ("nll", "accuracy") if found.names else ("ks",)
    differences = [found.differences.between(metric, name, before.name) for metric in shown]
    support += [*(f"{_capital(change.sentence())}." for change in differences), _reason(found)]
    shared = next((check.found for check in found.checks if check.subject == "Rows in both sets"), "")
    overlap = f" But {shared}." if "optimistic" in shared else ""
    tone = "good" if not (test.rejected or test.undecided or off or overlap) else "fair"
    if test.rejected and _difference_cell(differences[0]).tone != "good":
        tone = "bad"
    sentence = f"{sentence} After calibration with {name}: {result}.{overlap}"
    meaning, changes = _meaning(found, after), _changes(found, after)
    badge = "Test rows not independent" if overlap else _badge(test, tone)
    return Summary(badge, sentence, tone, _facts(found, [before, after]), meaning, changes, support, name)


def advise(found: Measurements) -> Advice | None:
    """Say which method to use and how; None if no method was fitted."""
    if found.differences is None:
        return None
    compared, name = found.compared, found.compared.recommended
    calibrator = compared.calibrators[name]
    facts, size = calibrator.diagnostics_, sum(array.nbytes for array in arrays_of(calibrator).values())
    plural = "s" * (facts.n_parameters != 1)
    costs = [f"Size: {facts.n_parameters:,} parameter{plural}, {max(1, round(size / 1000)):,} kB as a file."]
    if found.names:
        change = found.differences.between("accuracy", name, found.before.name)
        costs.insert(0, f"Accuracy: {_difference_cell(change).word}, {_difference_cell(change).value}.")
    score = "nll" if found.names else "ks"
    others = [other for other in compared.calibrators if other != name]
    runner_up = ""
    if others:
        second = min(others, key=lambda other: found.methods[other].intervals[score].value)
        cell = _difference_cell(found.differences.between(score, second, name))
        label = METRICS[score].short_label
        runner_up = f"{second}. Its {label} differs from that of {name} by {cell.value} ({cell.word}; {cell.below})"
    unfitted = clone(calibrator)
    if "progress" in unfitted.get_params():  # a comparison shows a bar of its own
        unfitted.set_params(progress=None)
    settings = " ".join(str(unfitted).split())
    inputs = "confidence" if not found.names else "logits"
    python = (
        f"import glayers\n\ncalibrator = glayers.{settings}\n"
        f"calibrator.fit(calibration_{inputs}, calibration_labels)\n"
        f'calibrator.save("model.safetensors")\n'
    )
    shell, model = f"glayers fit calibration.npz --method {name} -o model.safetensors\n", "model.safetensors"
    shifted = class_shift_found(found.checks)
    if shifted is not None:
        python += "# Class frequencies differ: adapt to the new rows, without labels.\n"
        python += f"calibrator = calibrator.adapt(new_{inputs})\n"
        shell += f"glayers adapt {model} new.npz -o adapted.safetensors\n"
        model = "adapted.safetensors"
        costs.append(f"{shifted.advice}.")
    python += f"probabilities = calibrator.predict_proba(new_{inputs})"
    shell += f"glayers apply {model} new.npz -o calibrated.npz"
    return Advice(
        name, _reason(found), costs, runner_up, python, shell if name in CALIBRATORS else "", shifted is not None
    )


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


def _reason(found: Measurements) -> str:
    """Say why this method is recommended."""
    fitted, name = found.compared.calibrators, found.compared.recommended
    if isinstance(fitted[name], AutoCalibrator):
        return f"{name} is recommended: it chose its families on the calibration rows alone, by cross-validation."
    if len(fitted) == 1:
        return f"{name} is the only method that was fitted."
    score = "NLL" if found.names else "Brier score"
    among = f"the lowest {score} of {len(fitted)} methods on these test rows, so its scores are slightly optimistic"
    return f"{name} is recommended: it has {among}."


def _finding(method: Measured, test: OmnibusTest) -> str:
    """Say in which direction the confidence is off if it is, else what all tests together found."""
    return _direction(method) if _off_at_the_top(test) else test.finding


def _off_at_the_top(test: OmnibusTest) -> bool:
    return bool({"ks", "ece"} & set(test.rejecting))


def _direction(method: Measured) -> str:
    """Over- or underconfident if the means differ by two standard errors, else miscalibrated around the mean."""
    gap = method.card["confidence"] - method.card["accuracy"]
    if abs(gap) <= 2 * method.intervals["accuracy"].standard_error:
        return "correct on average but miscalibrated at some confidences"
    return "overconfident" if gap > 0 else "underconfident"


def _badge(test: OmnibusTest, tone: str) -> str:
    """Return the verdict in two words."""
    if test.undecided:
        return "Too few groups to tell"
    if tone == "fair":
        return "Better, not fixed" if _off_at_the_top(test) else "Confidence right, not every class"
    return {"good": "Calibrated", "bad": "Not calibrated"}[tone]


def _amount(method: Measured) -> str:
    """Return how far the mean confidence is from the accuracy; "" if the direction is not certain."""
    gap = method.card["confidence"] - method.card["accuracy"]
    return f" by {100 * abs(gap):.1f} points" if "confident" in _direction(method) else ""


def _meaning(found: Measurements, after: Measured) -> str:
    """Say in numbers of predictions what the gap means where it matters most."""
    said, right = found.before.example
    made = f"of 1,000 predictions made with about {100 * said:.3g} % confidence, {1000 * right:.0f} were right."
    words = f"Where the gap matters most: {made}"
    if after is found.before:
        return words
    now, still = after.example
    return f"{words} With {after.name}, the same rows say {100 * now:.3g} %, and {1000 * still:.0f} of 1,000 are right."


def _facts(found: Measurements, shown: list[Measured]) -> dict[str, str]:
    """Say which classes are off, and how sure all of this is; `shown` is one method, or before and after."""
    tests = [found.compared.calibration_tests[method.name] for method in shown]
    facts = {"Classes": _classes_off(found, shown)} if found.names else {}
    rows = f"{tests[0].rows:,} test rows" + ("" if tests[0].groups is None else f" in {tests[0].groups:,} groups")
    if any(test.undecided for test in tests):
        return facts | {"How sure": f"not sure: {rows} are too few."}
    asked = {"Confidence": ("ks", "ece")} | ({"Classes": ("rank_2_ks", "classwise_ks")} if found.names else {})
    when = (" before", " after") if len(tests) > 1 else ("",)
    for what, names in asked.items():
        rows += f". {what}: {', '.join(_passed(test, names, then) for test, then in zip(tests, when, strict=True))}"
    return facts | {"How sure": f"{rows}."}


def _passed(test: OmnibusTest, names: tuple[str, ...], when: str) -> str:
    """Return whether some of the tests of calibration passed, with their smallest p-value; NaN is of too few groups."""
    p_values = [p for name, p in test.adjusted.items() if name in names and not math.isnan(p)]
    if not p_values:
        return f"too few groups to test{when}"
    return f"test {'failed' if set(names) & set(test.rejecting) else 'passed'}{when} ({p_text(min(p_values))})"


def _classes_off(found: Measurements, shown: list[Measured]) -> str:
    """Name the classes that are off where they are predicted, after calibration first."""
    words = []
    for method, when in zip(reversed(shown), ("after calibration", "before") if len(shown) > 1 else ("",), strict=True):
        gaps = method.predicted
        off = [] if gaps is None else gaps.significant(LEVEL).tolist()
        named = [f"{shortened(found.names[c])} {100 * gaps.gap[c]:+.1f}" for c in off if gaps is not None]
        verbs = ("was", "were") if when == "before" else ("is", "are")
        amount = f"{len(off) or 'none'} of {len(found.names):,} {verbs[len(off) > 1]} off"
        details = f" (points, + means overconfident: {listed(named, 3)})" if named else " beyond chance"
        words.append(f"{amount} {when}".strip() + details)
    return f"{'; '.join(words)}."


def _changes(found: Measurements, after: Measured) -> list[BeforeAfter]:
    """Return the numbers of the first screen, before and after."""
    shown = [metric for metric in ("confidence", "accuracy", "ks", "nll") if metric in found.shown_metrics]
    changes = []
    for metric in shown:
        word, tone = "", ""
        if found.differences is not None and metric in found.difference_metrics:
            cell = _difference_cell(found.differences.between(metric, after.name, found.before.name))
            word, tone = cell.word, cell.tone
        first, last = (METRICS[metric].format(method.card[metric]) for method in (found.before, after))
        changes.append(BeforeAfter(METRICS[metric].short_label, first, last, word, tone))
    first, last = (f"{100 * gap:+.1f} +- {200 * error:.1f}" for gap, error in (found.before.gap, after.gap))
    return [*changes[:2], BeforeAfter("gap", first, last, "points"), *changes[2:]]


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
