"""Measurements -> what the page says: a verdict with its evidence, advice, and the cells of the tables."""

import math
from typing import NamedTuple

import numpy as np

from glayers.calibrators import CALIBRATORS, AutoCalibrator, Calibrator
from glayers.calibrators.estimator import clone
from glayers.errors import listed
from glayers.metrics import METRICS
from glayers.metrics.events import Scored
from glayers.report.findings import ADAPT, BOTH_SETS, SHIFT, finding
from glayers.report.measuring import Measurements, shown_metrics
from glayers.report.words import (
    CONFIDENCE_TESTS,
    Tone,
    capital,
    direction,
    from_to,
    plural,
    shortened,
)
from glayers.text_tables import p_text


class Cell(NamedTuple):
    """A number, the small print below it, and a word on its meaning, if any, with its tone."""

    value: str
    below: str = ""
    word: str = ""
    tone: Tone = ""


class Summary(NamedTuple):
    """The verdict in a few words and in a sentence, its tone, the classes that are off, and what the tests found."""

    badge: str
    sentence: str
    tone: Tone
    off: dict[str, str]
    tests: dict[str, str]


class Advice(NamedTuple):
    """Which method to use, why, its size, the lines that use it, whether to adapt it, and whether it helps."""

    method: str
    why: str
    size: str
    python: str
    shell: str
    adapt: bool
    helps: bool


def summarise(found: Measurements) -> Summary:
    """Say how far the model was off and whether calibration corrected it, as far as these rows can tell."""
    name = found.compared.recommended
    tone = _tone(found, name)
    sentence = f"{capital(_state(found, found.before))}."
    if found.differences is not None:
        sentence = _both_states(found, name)
    overlap = finding(found.checks, BOTH_SETS)
    if overlap is not None:
        sentence += f" But {overlap.found}."
    off = {}
    tests = {}
    for method, test in found.compared.calibration_tests.items():
        when = "before" if method == found.before else f"after {method}"
        tests[f"Tests {when}"] = f"{capital(str(test))}."
        if found.names:
            off[f"Classes off {when}"] = f"{_off_words(found, method)}."
    return Summary(_badge(found, name, tone), sentence, tone, off, tests)


def _state(found: Measurements, method: str) -> str:
    """Say in which direction the confidence is off, and by how much, if it is; else what all tests together found."""
    test = found.compared.calibration_tests[method]
    card = found.compared.scorecards[method]
    word = direction(test, card)
    if word.endswith("confident"):
        return f"{word} by {100 * abs(card['confidence'] - card['accuracy']):.1f} points"
    return word or test.finding


def _both_states(found: Measurements, name: str) -> str:
    """Say what the model is before and after calibration; once, where that is the same."""
    before = _state(found, found.before)
    after = _state(found, name)
    sentence = f"{capital(before)}. After calibration with {name}: {after}."
    if after == before:
        sentence = f"Before and after calibration with {name}: {after}."
    off = found.off(name)
    if off and "confident" not in after:
        sentence += f" Off where it predicts {listed([shortened(found.names[c]) for c in off], 2)}."
    return sentence


def _tone(found: Measurements, name: str) -> Tone:
    """Return how good the news is: better than before is fair, but only calibrated everywhere is good."""
    test = found.compared.calibration_tests[name]
    if test.verdict == "calibrated" and not found.off(name) and finding(found.checks, BOTH_SETS) is None:
        return "good"
    if not test.rejected or difference_cell(found, found.compared.loss, name).tone == "good":
        return "fair"
    return "bad"


def _badge(found: Measurements, name: str, tone: Tone) -> str:
    """Return the verdict in a few words."""
    test = found.compared.calibration_tests[name]
    if finding(found.checks, BOTH_SETS) is not None:
        return "Test rows not independent"
    if test.undecided and found.off(name):
        return "Not every class is right"
    if test.undecided:
        return f"{capital(test.verdict)} to tell"
    if tone == "good":
        return "Calibrated"
    if tone == "bad":
        return "Not calibrated"
    if set(CONFIDENCE_TESTS) & set(test.rejecting):
        return "Better, not fixed"
    return "Confidence right, not every class"


def _off_words(found: Measurements, method: str) -> str:
    """Say how many of the classes that are predicted are off there, and name the worst."""
    gaps = found.curves[method].predicted
    off = gaps.off
    amount = f"{len(off) or 'none'} of {(gaps.count > 0).sum():,} predicted"
    if not off:
        return amount
    named = [f"{shortened(found.names[c])} {100 * gaps.gap[c]:+.1f}" for c in off]
    return f"{amount} (points, + means overconfident: {listed(named, 3)})"


def changes(found: Measurements, method: str) -> dict[str, tuple[str, str, Cell]]:
    """Return the numbers of the first screen by metric: before, after, and what the difference is worth."""
    cards = found.compared.scorecards
    rows = {}
    for metric in ("confidence", "accuracy", "ks", found.compared.loss):
        if metric == "ks":
            rows["gap"] = (_gap_words(found, found.before), _gap_words(found, method), Cell("", word="points"))
        described = METRICS[metric]
        before = described.format(cards[found.before][metric])
        after = described.format(cards[method][metric])
        rows[described.short_label] = (before, after, difference_cell(found, metric, method))
    return rows


def _gap_words(found: Measurements, method: str) -> str:
    """Return mean confidence minus accuracy in points, and two standard errors."""
    gap, error = _mean_gap(found.curves[method].scored)
    return f"{round(100 * gap, 1) + 0.0:+.1f} +- {200 * error:.1f}"


def _mean_gap(event: Scored) -> tuple[float, float]:
    """Return the weighted mean of score minus hit, and its standard error; rows of a group count as one unit."""
    gaps = event.scores - event.hits
    mean = float(event.weights @ gaps)
    parts = np.bincount(event.group_numbers, event.weights * (gaps - mean))
    n_units = len(parts)
    return mean, math.sqrt(float((parts**2).sum()) * n_units / max(1, n_units - 1))


def advise(found: Measurements) -> Advice | None:
    """Say which method to use and how; None if no method was fitted."""
    if found.differences is None:
        return None
    name = found.compared.recommended
    calibrator = found.compared.calibrators[name]
    n_bytes = sum(array.nbytes for array in calibrator.map_.parameters().values())
    parameters = plural(calibrator.diagnostics_.n_parameters, "parameter")
    size = f"Size: {parameters}, {max(1, round(n_bytes / 1000)):,} kB as a file."
    shifted = finding(found.checks, SHIFT)
    adapt = shifted is not None and shifted.advice.startswith(ADAPT)
    # No worse than no calibration: in log loss or, where that does not differ, in KS.
    tones = [difference_cell(found, metric, name).tone for metric in (found.compared.loss, "ks")]
    helps = tones[0] == "good" or "bad" not in tones
    why = f"On these test rows {name} is worse than no calibration. Fit again on rows like those the model will see."
    if helps:
        why = _reason(found)
    python = _python_lines(calibrator, "logits" if found.names else "confidence", adapt)
    shell = _shell_lines(name, adapt) if name in CALIBRATORS else ""
    return Advice(name, why, size, python, shell, adapt, helps)


def _reason(found: Measurements) -> str:
    """Say why this method is recommended."""
    fitted = found.compared.calibrators
    name = found.compared.recommended
    if isinstance(fitted[name], AutoCalibrator):
        return f"{capital(name)} is recommended: it chose its parts on the calibration rows alone, by cross-validation."
    if len(fitted) == 1:
        return f"{capital(name)} is the only method that was fitted."
    score = METRICS[found.compared.loss].short_label
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


def method_lines(found: Measurements) -> list[tuple[str, list[Cell]]]:
    """Return one line per method: the KS test of the confidence, and metrics with intervals."""
    lines = []
    for name in found.curves:
        cells = [_metric_cell(found, name, metric) for metric in shown_metrics(found.names)]
        lines.append((name, [_test_cell(found, name), *cells]))
    return lines


def _test_cell(found: Measurements, method: str) -> Cell:
    """Return what the KS test found; where the verdict has tested the method, what it found there."""
    ks = found.curves[method].ks.test
    said = p_text(ks.p_value)
    rejected = ks.rejected
    verdict = found.compared.calibration_tests.get(method)
    if verdict is not None:
        said = p_text(verdict.adjusted["ks"], verdict.n_resamples)
        rejected = "ks" in verdict.rejecting
    if ks.too_few_groups:
        return Cell("", word="too few groups to tell")
    if rejected:
        return Cell(said, word="rejected", tone="bad")
    return Cell(said, word="not rejected", tone="good")


def _metric_cell(found: Measurements, method: str, name: str) -> Cell:
    interval = found.intervals[method][name]
    written = METRICS[name].format
    ends = "no interval"  # where all resamples lie on one side of the value, the interval means nothing
    if interval.low <= interval.value <= interval.high:
        ends = from_to(written, interval)
    if interval.unreliable:
        ends += "*"
    return Cell(written(interval.value), ends)


def difference_cell(found: Measurements, metric: str, method: str) -> Cell:
    """Return the difference of a method from the uncalibrated; nothing where the two were not compared."""
    between = found.differences
    if between is None or method == found.before or metric not in {each.metric for each in between.differences}:
        return Cell("")
    difference = between.between(metric, method, found.before)
    described = METRICS[metric]
    value = described.format_difference(difference.interval.value)
    if not difference.significant:
        return Cell(value, word="no significant difference")
    if described.better is None:
        return Cell(value, word="significant difference")
    rises = difference.interval.value > 0
    if rises == (described.better == "higher"):
        return Cell(value, word="better", tone="good")
    return Cell(value, word="worse", tone="bad")
