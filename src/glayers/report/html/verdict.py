"""Measurements -> what the page says: a verdict with its evidence, advice, and the cells of the tables."""

import math
from typing import NamedTuple, TypeAlias

from glayers.calibrators import CALIBRATORS, AutoCalibrator, Calibrator
from glayers.calibrators.estimator import clone
from glayers.errors import listed
from glayers.metrics import METRICS, Difference, OmnibusTest
from glayers.report.findings import LEVEL, class_shift_found
from glayers.report.html.measuring import Measured, Measurements
from glayers.report.words import (
    Tone,
    capital,
    ks_test_sentence,
    mean_sentence,
    outcome_of,
    p_text,
    plural,
    shortened,
)

_CONFIDENCE_TESTS = ("ks", "ece")
_CLASS_TESTS = ("rank_2_ks", "classwise_ks")
_NAMED = 2  # classes in the headline
_LISTED = 3  # classes among the facts


class BeforeAfter(NamedTuple):
    """A metric before and after calibration, and a word on the difference, if any, with its tone."""

    metric: str
    before: str
    after: str
    word: str = ""
    tone: Tone = ""


class Summary(NamedTuple):
    """The verdict in two words and in a sentence, facts by question, what it means, numbers, evidence, and the method.

    Without calibration the method is "".
    """

    badge: str
    sentence: str
    tone: Tone
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
    tone: Tone = ""


Lines: TypeAlias = list[tuple[str, list[Cell]]]  # a method or a class, and its cells


def summarise(found: Measurements) -> Summary:
    """Say how far the model was off and whether calibration corrected it, as far as these rows can tell."""
    before = found.before
    test = found.compared.calibration_tests[before.name]
    sentence = f"{capital(_finding_with_amount(before, test))}."
    support = [
        f"{capital(str(test))}.",
        f"{capital(mean_sentence(before.card))}.",
        f"{ks_test_sentence(before.test)}.",
    ]
    if found.differences is not None:
        return _summary_after(found, sentence, support)
    tone = outcome_of(test).tone
    badge = _badge(test, tone)
    return Summary(badge, sentence, tone, _facts(found, [before]), _meaning(found, before), [], support, "")


def _summary_after(found: Measurements, sentence: str, support: list[str]) -> Summary:
    """Return the summary of a comparison, given what is said of the model before calibration."""
    name = found.compared.recommended
    after = found.methods[name]
    test = found.compared.calibration_tests[name]
    shown = ("nll", "accuracy") if found.names else ("ks",)
    changes = [_difference(found, metric, name) for metric in shown]
    support = [
        *support,
        f"After {name}: {test}.",
        f"After {name}, {mean_sentence(after.card)}; {ks_test_sentence(after.test)}.",
        *(f"{capital(change.sentence())}." for change in changes),
        _reason(found),
    ]
    overlap = _overlap(found)
    off = _classes_off(after)
    tone = outcome_of(test).tone
    if tone == "good" and (off or overlap):
        tone = "fair"
    if tone == "bad" and _difference_cell(changes[0]).tone == "good":
        tone = "fair"
    badge = "Test rows not independent" if overlap else _badge(test, tone)
    sentence = f"{sentence} After calibration with {name}: {_result(found, after)}.{overlap}"
    facts = _facts(found, [found.before, after])
    return Summary(badge, sentence, tone, facts, _meaning(found, after), _changes(found, after), support, name)


def _result(found: Measurements, after: Measured) -> str:
    """Say what the tests found after calibration, compared with before."""
    tests = found.compared.calibration_tests
    test = tests[after.name]
    finding = _finding(after, test)
    if finding == _direction(after):
        was = _finding(found.before, tests[found.before.name])
        word = "still" if was == finding else "now"
        return f"{word} {_finding_with_amount(after, test)}"
    off = _classes_off(after)
    if not off or _off_at_the_top(test) or test.verdict == "too few groups":
        return finding
    named = [shortened(found.names[c]) for c in off[:_NAMED]]
    if len(off) > _NAMED:
        named.append(f"{len(off) - _NAMED} others")
    if test.verdict == "too few rows":
        return f"{finding}, but it is not where the prediction is {' or '.join(named)}"
    calibrated = test.finding.partition(", but ")[0]
    return f"{calibrated}, but not where the prediction is {' or '.join(named)}"


def _overlap(found: Measurements) -> str:
    """Say that test rows are also calibration rows, if they are."""
    for check in found.checks:
        if check.subject == "Rows in both sets" and check.status == "attention":
            return f" But {check.found}."
    return ""


def advise(found: Measurements) -> Advice | None:
    """Say which method to use and how; None if no method was fitted."""
    if found.differences is None:
        return None
    name = found.compared.recommended
    calibrator = found.compared.calibrators[name]
    size = sum(array.nbytes for array in calibrator.map_.parameters().values())
    parameters = plural(calibrator.diagnostics_.n_parameters, "parameter")
    costs = [f"Size: {parameters}, {max(1, round(size / 1000)):,} kB as a file."]
    if found.names:
        cell = _difference_cell(_difference(found, "accuracy", name))
        costs.insert(0, f"Accuracy: {cell.word}, {cell.value}.")
    shifted = class_shift_found(found.checks)
    if shifted is not None:
        costs.append(f"{shifted.advice}.")
    adapt = shifted is not None
    inputs = "logits" if found.names else "confidence"
    python = _python_lines(calibrator, inputs, adapt)
    shell = _shell_lines(name, adapt) if name in CALIBRATORS else ""
    return Advice(name, _reason(found), costs, _runner_up(found), python, shell, adapt)


def _runner_up(found: Measurements) -> str:
    """Name the best of the other methods, with its difference from the recommended one; "" if there is none."""
    name = found.compared.recommended
    others = [other for other in found.compared.calibrators if other != name]
    if not others:
        return ""
    score = "nll" if found.names else "ks"
    second = min(others, key=lambda other: found.methods[other].intervals[score].value)
    cell = _difference_cell(_difference(found, score, second, name))
    label = METRICS[score].short_label
    return f"{second}. Its {label} differs from that of {name} by {cell.value} ({cell.word}; {cell.below})"


def _python_lines(calibrator: Calibrator, inputs: str, adapt: bool) -> str:
    unfitted = clone(calibrator)
    if "progress" in unfitted.get_params():  # a comparison shows a bar of its own
        unfitted.set_params(progress=None)
    lines = [
        "import glayers",
        "",
        f"calibrator = glayers.{' '.join(str(unfitted).split())}",
        f"calibrator.fit(calibration_{inputs}, calibration_labels)",
        'calibrator.save("model.safetensors")',
    ]
    if adapt:
        lines.append("# Class frequencies differ: adapt to the new rows, without labels.")
        lines.append(f"calibrator = calibrator.adapt(new_{inputs})")
    return "\n".join([*lines, f"probabilities = calibrator.predict_proba(new_{inputs})"])


def _shell_lines(name: str, adapt: bool) -> str:
    lines = [f"glayers fit calibration.npz --method {name} -o model.safetensors"]
    model = "model.safetensors"
    if adapt:
        lines.append(f"glayers adapt {model} new.npz -o adapted.safetensors")
        model = "adapted.safetensors"
    return "\n".join([*lines, f"glayers apply {model} new.npz -o calibrated.npz"])


def method_lines(found: Measurements) -> Lines:
    """Return one line per method: the calibration test, and metrics with intervals."""
    lines = []
    for name, method in found.methods.items():
        metrics = [_metric_cell(method, metric) for metric in found.shown_metrics]
        lines.append((name, [_test_cell(method), *metrics]))
    return lines


def difference_tables(found: Measurements) -> dict[str, Lines]:
    """Return the differences from the uncalibrated and, if it was fitted among others, from temperature scaling."""
    if found.differences is None:
        return {}
    first, *others = found.methods
    baselines = [first]
    if "temperature" in others and len(others) > 1:
        baselines.append("temperature")
    tables: dict[str, Lines] = {}
    for against in baselines:
        tables[against] = []
        for name in found.methods:
            if name != against:
                differences = [_difference(found, metric, name, against) for metric in found.difference_metrics]
                tables[against].append((name, [_difference_cell(each) for each in differences]))
    return tables


def _difference(found: Measurements, metric: str, method: str, against: str | None = None) -> Difference:
    """Return the difference of a method from another, by default from the uncalibrated."""
    if found.differences is None:
        raise ValueError("without calibration there are no differences")
    return found.differences.between(metric, method, against or found.before.name)


def _reason(found: Measurements) -> str:
    """Say why this method is recommended."""
    fitted, name = found.compared.calibrators, found.compared.recommended
    if isinstance(fitted[name], AutoCalibrator):
        return f"{name} is recommended: it chose its parts on the calibration rows alone, by cross-validation."
    if len(fitted) == 1:
        return f"{name} is the only method that was fitted."
    score = "NLL" if found.names else "Brier score"
    among = f"the lowest {score} of {len(fitted)} methods on these test rows, so its scores are slightly optimistic"
    return f"{name} is recommended: it has {among}."


def _finding(method: Measured, test: OmnibusTest) -> str:
    """Say in which direction the confidence is off if it is, else what all tests together found."""
    if _off_at_the_top(test):
        return _direction(method)
    return test.finding


def _finding_with_amount(method: Measured, test: OmnibusTest) -> str:
    """Say the finding, and by how much the mean confidence is off if its direction is certain."""
    finding = _finding(method, test)
    if finding not in ("overconfident", "underconfident"):
        return finding
    return f"{finding} by {100 * abs(_mean_gap(method)):.1f} points"


def _off_at_the_top(test: OmnibusTest) -> bool:
    return bool(set(_CONFIDENCE_TESTS) & set(test.rejecting))


def _mean_gap(method: Measured) -> float:
    return method.card["confidence"] - method.card["accuracy"]


def _direction(method: Measured) -> str:
    """Over- or underconfident if the means differ by two standard errors, else miscalibrated around the mean."""
    gap = _mean_gap(method)
    if abs(gap) <= 2 * method.intervals["accuracy"].standard_error:
        return "correct on average but miscalibrated at some confidences"
    return "overconfident" if gap > 0 else "underconfident"


def _badge(test: OmnibusTest, tone: Tone) -> str:
    """Return the verdict in two words."""
    outcome = outcome_of(test)
    if not outcome.decided:
        return capital(outcome.word)
    if tone == "good":
        return "Calibrated"
    if tone == "bad":
        return "Not calibrated"
    return "Better, not fixed" if _off_at_the_top(test) else "Confidence right, not every class"


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
    facts = {}
    asked = {"Confidence": _CONFIDENCE_TESTS}
    if found.names:
        facts["Classes"] = _classes_sentence(found, shown)
        asked["Classes"] = _CLASS_TESTS
    rows = f"{tests[0].rows:,} test rows"
    if tests[0].groups is not None:
        rows += f" in {tests[0].groups:,} groups"
    if not all(outcome_of(test).decided for test in tests):
        return facts | {"How sure": f"not sure: {rows} are too few."}
    when = [" before", " after"] if len(tests) > 1 else [""]
    for what, names in asked.items():
        rows += f". {what}: {', '.join(_passed(test, names, then) for test, then in zip(tests, when, strict=True))}"
    return facts | {"How sure": f"{rows}."}


def _passed(test: OmnibusTest, names: tuple[str, ...], when: str) -> str:
    """Return whether some of the tests of calibration passed, with their smallest p-value; NaN is of too few groups."""
    p_values = [p for name, p in test.adjusted.items() if name in names and not math.isnan(p)]
    if not p_values:
        return f"too few groups to test{when}"
    result = "failed" if set(names) & set(test.rejecting) else "passed"
    return f"test {result}{when} ({p_text(min(p_values))})"


def _classes_off(method: Measured) -> list[int]:
    """Return the classes with a significant gap where they are predicted, the largest gap first."""
    if method.predicted is None:
        return []
    classes: list[int] = method.predicted.significant(LEVEL).tolist()
    return classes


def _classes_sentence(found: Measurements, shown: list[Measured]) -> str:
    """Name the classes that are off where they are predicted, after calibration first."""
    if len(shown) == 1:
        return f"{_off_words(found, shown[0], 'is', 'are')}."
    before, after = shown
    now = _off_words(found, after, "is", "are", " after calibration")
    return f"{now}; {_off_words(found, before, 'was', 'were', ' before')}."


def _off_words(found: Measurements, method: Measured, singular: str, several: str, when: str = "") -> str:
    off = _classes_off(method)
    verb = several if len(off) > 1 else singular
    amount = f"{len(off) or 'none'} of {len(found.names):,} {verb} off{when}"
    if method.predicted is None or not off:
        return f"{amount} beyond chance"
    named = [f"{shortened(found.names[c])} {100 * method.predicted.gap[c]:+.1f}" for c in off]
    return f"{amount} (points, + means overconfident: {listed(named, _LISTED)})"


def _changes(found: Measurements, after: Measured) -> list[BeforeAfter]:
    """Return the numbers of the first screen, before and after."""
    changes = []
    for metric in ("confidence", "accuracy", "ks", "nll"):
        if metric in found.shown_metrics:
            first, last = (METRICS[metric].format(method.card[metric]) for method in (found.before, after))
            cell = Cell("")
            if metric in found.difference_metrics:
                cell = _difference_cell(_difference(found, metric, after.name))
            changes.append(BeforeAfter(METRICS[metric].short_label, first, last, cell.word, cell.tone))
    first, last = (f"{100 * gap:+.1f} +- {200 * error:.1f}" for gap, error in (found.before.gap, after.gap))
    return [*changes[:2], BeforeAfter("gap", first, last, "points"), *changes[2:]]


def _metric_cell(method: Measured, name: str) -> Cell:
    interval = method.intervals[name]
    value, low, high = (METRICS[name].format(number) for number in interval[:3])
    ends = "no interval"  # where all resamples lie on one side of the value, the interval means nothing
    if interval.low <= interval.value <= interval.high:
        ends = _from_to(low, high)
    if interval.unreliable:
        ends += "*"
    return Cell(value, ends)


def _test_cell(method: Measured) -> Cell:
    outcome = outcome_of(method.test)
    if not outcome.decided:
        return Cell("", "", outcome.word)
    return Cell(p_text(method.test.p_value), "", outcome.word, outcome.tone)


def _difference_cell(difference: Difference) -> Cell:
    metric = METRICS[difference.metric]
    value, *ends = (metric.format_difference(number) for number in difference.interval[:3])
    below = f"{_from_to(*ends)}, {p_text(difference.p_value)}"
    if not difference.significant:
        return Cell(value, below, "no significant difference")
    rises = difference.interval.value > 0
    if rises == (metric.better == "higher"):
        return Cell(value, below, "better", "good")
    return Cell(value, below, "worse", "bad")


def _from_to(low: str, high: str) -> str:
    """Return the ends of an interval, with the unit once."""
    return f"{low.split(' ')[0]} to {high}"
