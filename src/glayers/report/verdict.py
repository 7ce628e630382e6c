"""Measurements -> what the page says: a verdict with its evidence, advice, and the cells of the tables."""

import math
from typing import NamedTuple, TypeAlias

from glayers.calibrators import CALIBRATORS, AutoCalibrator, Calibrator
from glayers.calibrators.estimator import clone
from glayers.errors import listed
from glayers.metrics import METRICS, Difference, OmnibusTest
from glayers.report.findings import BOTH_SETS, CLASS_SHIFT, advises_adapting, finding
from glayers.report.measuring import Measured, Measurements
from glayers.report.words import (
    CONFIDENCE_TESTS,
    Tone,
    capital,
    confidence_sentence,
    direction,
    ks_sentence,
    p_text,
    plural,
    shortened,
)


class Cell(NamedTuple):
    """A number, the small print below it, and a word on its meaning, if any, with its tone."""

    value: str
    below: str = ""
    word: str = ""
    tone: Tone = ""


class Summary(NamedTuple):
    """The verdict in two words and in a sentence, facts by question, numbers, evidence, and the method.

    `changes` have the numbers of the first screen by metric: before, after, and what the difference is worth. Without
    calibration the method is "".
    """

    badge: str
    sentence: str
    tone: Tone
    facts: dict[str, str]
    changes: dict[str, tuple[str, str, Cell]]
    support: list[str]
    method: str


class Advice(NamedTuple):
    """Which method to use, why, what it costs, the lines that use it, whether to adapt it, and whether it helps."""

    method: str
    why: str
    costs: list[str]
    python: str
    shell: str
    adapt: bool
    helps: bool


Lines: TypeAlias = list[tuple[str, list[Cell]]]  # a method, and its cells


def summarise(found: Measurements) -> Summary:
    """Say how far the model was off and whether calibration corrected it, as far as these rows can tell."""
    tests = found.compared.calibration_tests
    name = found.compared.recommended
    shown = [found.methods[method] for method in tests]  # the uncalibrated, and the recommended if there is one
    after = shown[-1]
    test = tests[name]
    sentence = f"{capital(_state(found.before, tests[found.before.name]))}."
    support = _evidence(found.before, tests[found.before.name])
    facts = _facts(found, shown)
    tone = _tone(found, after, test)
    if found.differences is None:
        return Summary(_badge(test, tone), sentence, tone, facts, {}, support, "")
    sentence = _both_states(found, after, test)
    badge = _badge(test, tone)
    if test.undecided and after.off:
        badge = "Not every class is right"
    overlap = finding(found.checks, BOTH_SETS)
    if overlap is not None:
        sentence += f" But {overlap.found}."
        badge = "Test rows not independent"
    support += [f"After {name}: {line}" for line in _evidence(after, test)]
    for metric in ("nll", "accuracy") if found.names else ("confidence_nll", "ks"):
        support.append(f"{capital(_difference(found, metric, name).sentence())}.")
    return Summary(badge, sentence, tone, facts, _changes(found, after), [*support, _reason(found)], name)


def _both_states(found: Measurements, after: Measured, test: OmnibusTest) -> str:
    """Say what the model is before and after calibration; once, where that is the same."""
    first = found.compared.calibration_tests[found.before.name]
    before = _state(found.before, first)
    state = _state(after, test)
    word = direction(test, after.card)
    if word:
        state = f"still {state}" if word == direction(first, found.before.card) else f"now {state}"
    if state == before:
        sentence = f"Before and after calibration with {after.name}: {state}."
    else:
        sentence = f"{capital(before)}. After calibration with {after.name}: {state}."
    if after.off and not word:
        off = listed([shortened(found.names[c]) for c in after.off], 2)
        sentence += f" Off where it predicts {off}."
    return sentence


def _state(method: Measured, test: OmnibusTest) -> str:
    """Say in which direction the confidence is off, and by how much, if it is; else what all tests together found."""
    word = direction(test, method.card)
    if word in ("overconfident", "underconfident"):
        return f"{word} by {100 * abs(method.gap[0]):.1f} points"
    return word or test.finding


def _evidence(method: Measured, test: OmnibusTest) -> list[str]:
    sentences = [str(test), confidence_sentence(test, method.card), ks_sentence(test.tests["ks"])]
    return [f"{capital(sentence)}." for sentence in sentences]


def _tone(found: Measurements, after: Measured, test: OmnibusTest) -> Tone:
    """Return how good the news is: better than before is fair, but only calibrated everywhere is good."""
    if test.verdict == "calibrated" and not after.off and finding(found.checks, BOTH_SETS) is None:
        return "good"
    if not test.rejected:
        return "fair"
    score = "nll" if found.names else "confidence_nll"
    if found.differences is not None and _difference_cell(_difference(found, score, after.name)).tone == "good":
        return "fair"
    return "bad"


def _badge(test: OmnibusTest, tone: Tone) -> str:
    """Return the verdict in two words."""
    if test.undecided:
        return f"{capital(test.verdict)} to tell"
    if tone != "fair":
        return "Calibrated" if tone == "good" else "Not calibrated"
    if set(CONFIDENCE_TESTS) & set(test.rejecting):
        return "Better, not fixed"
    return "Confidence right, not every class"


def _facts(found: Measurements, shown: list[Measured]) -> dict[str, str]:
    """Say which classes are off, and how sure all of this is; `shown` is one method, or before and after."""
    tests = [found.compared.calibration_tests[method.name] for method in shown]
    when = ["before", "after"] if len(shown) > 1 else [""]
    facts = {}
    if found.names:
        said = [_off_words(found, method, then) for method, then in zip(shown, when, strict=True)]
        facts["Classes"] = f"{'; '.join(said)}."
    rows = f"{tests[0].rows:,} test rows"
    if tests[0].groups is not None:
        rows += f" in {tests[0].groups:,} groups"
    if all(test.undecided for test in tests):
        return facts | {"How sure": f"not sure: {rows} are too few."}
    said = []
    for test, then in zip(tests, when, strict=True):
        words = f"{test.verdict} to tell" if test.undecided else p_text(test.p_value)
        said.append(f"{words} {then}".rstrip())
    return facts | {"How sure": f"{rows}; of all tests together, {', '.join(said)}."}


def _off_words(found: Measurements, method: Measured, when: str) -> str:
    """Say how many classes are off where they are predicted, and name the worst."""
    amount = f"{len(method.off) or 'none'} of {len(found.names):,} significantly off {when}".rstrip()
    if not method.off:
        return amount
    gaps = method.curves.predicted.gap
    named = [f"{shortened(found.names[c])} {100 * gaps[c]:+.1f}" for c in method.off]
    return f"{amount} (points, + means overconfident: {listed(named, 3)})"


def _changes(found: Measurements, after: Measured) -> dict[str, tuple[str, str, Cell]]:
    """Return the numbers of the first screen, before and after."""
    changes: dict[str, tuple[str, str, Cell]] = {}
    for metric in ("confidence", "accuracy", "ks", "nll" if found.names else "confidence_nll"):
        if metric == "ks":
            gaps = [
                f"{round(100 * gap, 1) + 0.0:+.1f} +- {200 * error:.1f}" for gap, error in (found.before.gap, after.gap)
            ]
            changes["gap"] = (gaps[0], gaps[1], Cell("", word="points"))
        if metric in found.shown_metrics:
            described = METRICS[metric]
            cell = Cell("")
            if metric in found.difference_metrics:
                cell = _difference_cell(_difference(found, metric, after.name))
            before, now = (described.format(method.card[metric]) for method in (found.before, after))
            changes[described.short_label] = (before, now, cell)
    return changes


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
    shifted = finding(found.checks, CLASS_SHIFT)
    if shifted is not None:
        costs.append(f"{shifted.advice}.")
    adapt = advises_adapting(shifted)
    inputs = "logits" if found.names else "confidence"
    shell = _shell_lines(name, adapt) if name in CALIBRATORS else ""
    python = _python_lines(calibrator, inputs, adapt)
    helps = _helps(found, name)
    why = _reason(found)
    if not helps:
        why = (
            f"On these test rows {name} is worse than no calibration. Fit again on rows like those the model will see."
        )
    return Advice(name, why, costs, python, shell, adapt, helps)


def _helps(found: Measurements, name: str) -> bool:
    """Return whether a method is no worse than none: in log loss or, where that does not differ, in KS."""
    tones = [
        _difference_cell(_difference(found, metric, name)).tone
        for metric in ("nll" if found.names else "confidence_nll", "ks")
    ]
    return tones[0] == "good" or "bad" not in tones


def _reason(found: Measurements) -> str:
    """Say why this method is recommended."""
    fitted = found.compared.calibrators
    name = found.compared.recommended
    if isinstance(fitted[name], AutoCalibrator):
        return f"{capital(name)} is recommended: it chose its parts on the calibration rows alone, by cross-validation."
    if len(fitted) == 1:
        return f"{capital(name)} is the only method that was fitted."
    score = METRICS["nll" if found.names else "confidence_nll"].short_label
    among = f"the lowest {score} of {len(fitted)} methods on these test rows, so its scores are slightly optimistic"
    return f"{capital(name)} is recommended: it has {among}."


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
    """Return one line per method: the KS test of the confidence, and metrics with intervals."""
    lines = []
    for name, method in found.methods.items():
        metrics = [_metric_cell(method, metric) for metric in found.shown_metrics]
        lines.append((name, [_test_cell(found, method), *metrics]))
    return lines


def _test_cell(found: Measurements, method: Measured) -> Cell:
    """Return what the KS test found; where the verdict has tested the method, what it found there."""
    ks = method.curves.ks.test
    p_value = ks.p_value
    rejected = ks.rejected
    verdict = found.compared.calibration_tests.get(method.name)
    if verdict is not None:
        p_value = verdict.adjusted["ks"]
        rejected = "ks" in verdict.rejecting
    if math.isnan(p_value):
        return Cell("", "", "too few groups to tell")
    if rejected:
        return Cell(p_text(p_value), "", "rejected", "bad")
    return Cell(p_text(p_value), "", "not rejected", "good")


def _metric_cell(method: Measured, name: str) -> Cell:
    interval = method.intervals[name]
    value, low, high = (METRICS[name].format(number) for number in interval[:3])
    ends = "no interval"  # where all resamples lie on one side of the value, the interval means nothing
    if interval.low <= interval.value <= interval.high:
        ends = _from_to(low, high)
    if interval.unreliable:
        ends += "*"
    return Cell(value, ends)


def difference_tables(found: Measurements) -> dict[str, Lines]:
    """Return the differences from the uncalibrated and, if it was fitted among others, from temperature scaling."""
    if found.differences is None:
        return {}
    tables: dict[str, Lines] = {}
    for against in (found.before.name, "temperature"):
        others = [name for name in found.methods if name != against]
        if against in found.methods and (against == found.before.name or len(others) > 1):
            tables[against] = [(name, _difference_cells(found, name, against)) for name in others]
    return tables


def _difference_cells(found: Measurements, name: str, against: str) -> list[Cell]:
    return [_difference_cell(_difference(found, metric, name, against)) for metric in found.difference_metrics]


def _difference(found: Measurements, metric: str, method: str, against: str | None = None) -> Difference:
    """Return the difference of a method from another, by default from the uncalibrated."""
    if found.differences is None:
        raise ValueError("without calibration there are no differences")
    return found.differences.between(metric, method, against or found.before.name)


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
