"""A comparison -> what the page says: a headline, five answers, and the cells of its tables."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glayers.calibrators import AutoCalibrator
from glayers.errors import listed
from glayers.metrics import METRICS, OmnibusTest, PairedDifferences
from glayers.metrics.calibration_tests import FEWER_DRAWS, TOLERANCE
from glayers.metrics.events import Scored
from glayers.predictions import Confidences, Predictions
from glayers.progress import progress_bar
from glayers.report.curves import PredictedGaps
from glayers.report.figures import FIGURES, Shown, Spec
from glayers.report.verdict import BOTH_SETS, Finding, Tone, Verdict, findings, verdict
from glayers.text_tables import capital, percent, plural, points, shortened, two_digits

if TYPE_CHECKING:
    from glayers.comparison import Comparison

TESTS = {"ks": "confidence", "ece": "bins", "rank_2_ks": "second class", "classwise_ks": "all classes"}
_CLASS_TOLERANCE = 0.1  # single classes have few rows: gaps of ten points should show


class Cell(NamedTuple):
    """A value, words on its meaning, if any, and its tone; of a tile of the first screen, an answer and its reasons."""

    value: str
    words: str = ""
    tone: Tone = ""


@dataclass(frozen=True, eq=False)
class Measurements:
    """Everything the page shows.

    Attributes
    ----------
    compared
        The comparison.
    both
        What the model shows before and after the recommended method; one where nothing was fitted.
    tests
        The calibration test of each method.
    differences
        Between every two methods; None if no method could be fitted.
    findings
        What deserves attention.
    verdicts
        What the tests mean, before and after the recommended method.
    """

    compared: "Comparison"
    both: list[Shown]
    tests: dict[str, OmnibusTest]
    differences: PairedDifferences | None
    findings: list[Finding]
    verdicts: dict[str, Verdict]

    @property
    def n_classes(self) -> int:
        """The number of classes; 0 of confidences."""
        return self.compared.test.n_classes if isinstance(self.compared.test, Predictions) else 0

    def panels(self) -> dict[str, list[Spec]]:
        """Return the panels of every figure that can be drawn."""
        on_page = {name: figure for name, figure in FIGURES.items() if figure.on_page}
        possible = [name for name, figure in on_page.items() if self.n_classes or not figure.needs_classes]
        return {name: on_page[name].specs(self.both) for name in possible}


def measure(
    compared: "Comparison",
    n_resamples: int,
    random_state: int,
    calibration: Predictions | Confidences | None = None,
    progress: bool | None = False,
) -> Measurements:
    """Test every method of a comparison, compare them, and check the data."""
    tests = dict(compared.calibration_tests)
    others = [name for name in compared.scorecards if name not in tests]
    with progress_bar(progress, "testing methods", len(others)) as advance:
        for name in others:
            tests[name] = compared.calibration_test(name, FEWER_DRAWS)  # shows pass or fail, not a p-value
            advance()
    metrics = [compared.loss, "ks"]
    if isinstance(compared.test, Predictions):
        metrics.append("accuracy")  # calibrating a confidence changes no answer
    between = None
    if compared.calibrators:
        between = compared.differences(metrics, n_resamples=n_resamples, random_state=random_state)
    both = []
    verdicts = {}
    for name, test in compared.calibration_tests.items():
        both.append(Shown(name, compared.rows(name), random_state=random_state))
        gaps = both[-1].predicted if isinstance(compared.test, Predictions) else None
        verdicts[name] = verdict(test, compared.scorecards[name], gaps)
    return Measurements(compared, both, tests, between, findings(compared, calibration), verdicts)


def headline(found: Measurements) -> list[str]:
    """Return what the model says, how often it is right, and what it says once calibrated: words, number, words, ..."""
    cards = [found.compared.scorecards[method.name] for method in found.both]
    before = cards[0]
    digits = 0 if abs(before["confidence"] - before["accuracy"]) >= 0.01 else 1
    says = percent(before["confidence"], digits)
    right = percent(before["accuracy"], digits)
    link = "but" if found.verdicts[found.both[0].name].tone == "bad" else "and"
    parts = ["Your model says ", says, f" {link} is right ", right, " of the time."]
    for after in cards[1:]:
        parts[-1] += " Calibrated, it says "
        parts += [percent(after["confidence"], digits), "."]
        if difference_cell(found, "accuracy", found.both[-1].name).tone:
            parts[-1:] = [" and is right ", percent(after["accuracy"], digits), "."]
    return parts


def verdict_sentence(found: Measurements) -> str:
    """Say how far the model was off and whether calibration corrected it, as far as these rows can tell."""
    before, *calibrated = found.verdicts.items()
    sentence = f"{capital(before[1].sentence)}."
    for name, after in calibrated:
        sentence += f" After calibration with {name}: {after.sentence}."
    if any(finding.subject == BOTH_SETS for finding in found.findings):
        sentence += " This is too optimistic, because the two sets share rows."
    return sentence


def answers(found: Measurements) -> dict[str, Cell]:
    """Return the tiles of the first screen by their questions."""
    tiles = {"Is it calibrated now?": _calibrated(found)}
    if found.compared.calibrators:
        tiles["Which method to use?"] = _method(found)
        tiles["What does it change?"] = _cost(found)
    if found.n_classes:
        tiles["Which classes are off?"] = _classes(found)
    tiles["Enough test rows?"] = _enough_rows(found)
    return tiles


def _calibrated(found: Measurements) -> Cell:
    """Answer whether the model is calibrated: better than before is fair, but only calibrated everywhere is good."""
    name, said = list(found.verdicts.items())[-1]
    answer, tone = said.answer, said.tone
    if any(finding.subject == BOTH_SETS for finding in found.findings):
        answer, tone = "Cannot tell: shared rows", "fair"
    elif tone == "bad" and difference_cell(found, found.compared.loss, name).tone == "good":
        answer, tone = "Better, not fixed", "fair"
    others = ["single classes"] if found.n_classes and found.both[-1].predicted.off else []
    reason = _failures(found.tests[name], *others)
    gaps = " \N{RIGHTWARDS ARROW} ".join(_gap_words(method.scored) for method in found.both)
    return Cell(answer, f"Gap {gaps} points. {reason}", tone)


def _failures(test: OmnibusTest, *others: str) -> str:
    """Name the tests that fail, and what else does."""
    failing = [TESTS[name] for name in test.rejecting] + list(others)
    if failing:
        return f"Fails: {', '.join(failing)}."
    if test.verdict == "too few groups":
        return "Tests need at least 8 groups."
    return "No test finds an error."


def _gap_words(event: Scored) -> str:
    """Return the mean of score minus hit in points, and two standard errors; rows of a group count as one unit."""
    gaps = event.scores - event.hits
    mean = float(event.weights @ gaps)
    parts = np.bincount(event.group_numbers, event.weights * (gaps - mean))
    error = math.sqrt(float((parts**2).sum()) * len(parts) / max(1, len(parts) - 1))
    return f"{points(mean)} +- {200 * error:.1f}"


def _method(found: Measurements) -> Cell:
    """Answer which method to use, and why, and what temperature scaling would do instead."""
    name = found.both[-1].name
    loss = METRICS[found.compared.loss]
    # No worse than no calibration: in log loss or, where that does not differ, in KS.
    tones = [difference_cell(found, metric, name).tone for metric in (loss.name, "ks")]
    if tones[0] != "good" and "bad" in tones:
        detail = f"{capital(name)} makes these rows worse. Fit again on rows like those the model will see."
        return Cell("No calibration", detail, "bad")
    losses = {method: loss.format(card[loss.name]) for method, card in found.compared.scorecards.items()}
    detail = f"{loss.short_label} {losses[name]}."
    if tones[0] != "good":
        detail = f"{loss.short_label} {losses[name]}: no significant difference from no calibration."
    if isinstance(found.compared.calibrators[name], AutoCalibrator):
        detail += " It chose its parts by cross-validation."
    elif len(losses) > 2:
        detail += " Chosen for its loss on these test rows, so slightly optimistic."
    if "temperature" in losses and name != "temperature":
        detail += f" Temperature scaling: {losses['temperature']}. {_failures(found.tests['temperature'])}"
    return Cell(name, detail, tones[0])


def _cost(found: Measurements) -> Cell:
    """Answer what calibration does to the predictions, and how large the calibrator is."""
    name = found.both[-1].name
    fitted = found.compared.calibrators[name]
    n_bytes = sum(array.nbytes for array in (fitted.map_.parameters() | fitted._posterior_arrays()).values())
    size = f"{plural(fitted.diagnostics_.n_parameters, 'parameter')}, {max(1, round(n_bytes / 1000)):,} kB as a file."
    cell = difference_cell(found, "accuracy", name)
    if cell.tone:
        return Cell(f"Accuracy {cell.value}", f"Significantly {cell.words}. {size}", cell.tone)
    if found.differences is None or not cell.value:
        return Cell("Accuracy stays", f"Calibrating a confidence changes no answer. {size}", "good")
    _, low, high, *_ = found.differences.between("accuracy", name, found.both[0].name).interval
    detail = f"Accuracy changes by {cell.value}: no significant difference. {size}"
    if low == high and fitted.methods[0].keeps == "nothing":
        high = 3 / len(found.compared.test)  # the rule of three: these rows would have shown more changes
        low = -high
    if high - low > 2 * TOLERANCE:
        interval = f"95 % interval {points(low)} to {points(high)} points."
        return Cell("Too few rows to tell", f"{interval} {detail}", "fair")
    return Cell("Accuracy stays", detail, "good")


def _classes(found: Measurements) -> Cell:
    """Answer which classes are off where they are predicted, if these rows can tell."""
    said = [f"{when}: {_off(method.predicted)}." for when, method in zip(("Before", "After"), found.both, strict=False)]
    gaps = found.both[-1].predicted
    if gaps.off:
        return Cell(f"{len(gaps.off)} of {gaps.n_predicted:,}", " ".join(said), "bad")
    detail = f"{' '.join(said)} Gaps above about {plural(100 * gaps.detectable, 'point')} would show in most classes."
    if gaps.detectable > _CLASS_TOLERANCE:
        return Cell("Too few rows per class", detail, "fair")
    if found.verdicts[found.both[-1].name].tone != "good":
        return Cell("None found", detail, "fair")
    return Cell("None", detail, "good")


def _off(gaps: PredictedGaps) -> str:
    """Say how many of the predicted classes are off, and name the worst with their gaps in points."""
    if not gaps.off:
        return "none"
    named = [f"{shortened(gaps.names[c])} {points(gaps.gap[c])}" for c in gaps.off]
    return f"{len(named)} of {gaps.n_predicted:,} predicted (points: {listed(named, 3)})"


def _enough_rows(found: Measurements) -> Cell:
    """Answer whether an error that matters would have shown."""
    test = found.tests[found.both[-1].name]
    rows = plural(test.rows, "row")
    if math.isnan(test.detectable):
        return Cell("Too few groups", f"{rows} in {test.groups} groups.", "fair")
    detail = f"{rows} would show a confidence that is off by {two_digits(100 * test.detectable)} points."
    if test.detectable > TOLERANCE:
        return Cell("Not yet", f"{detail} Label more rows.", "fair")
    if found.n_classes and found.both[-1].predicted.detectable > _CLASS_TOLERANCE:
        return Cell("Not for single classes", f"{detail} To judge classes, label more rows of each.", "fair")
    return Cell("Yes", detail, "good")


def method_lines(found: Measurements) -> dict[str, list[Cell]]:
    """Return one line per method: pass or fail of each test, and scores with what they are worth."""
    metrics = [METRICS[name] for name in (found.compared.loss, "ks", "accuracy")]
    parts = found.tests[found.both[0].name].tests
    headings = [TESTS[part] for part in parts] + [metric.short_label for metric in metrics]
    lines = {"method": [Cell(heading) for heading in headings]}
    for name, card in found.compared.scorecards.items():
        test = found.tests[name]
        lines[name] = [_test_cell(test, part) for part in test.tests]
        for metric in metrics:
            value = metric.format(card[metric.name])
            lines[name].append(difference_cell(found, metric.name, name)._replace(value=value))
    return lines


def _test_cell(test: OmnibusTest, part: str) -> Cell:
    if test.tests[part].too_few_groups:
        return Cell("", "too few groups")
    if part in test.rejecting:
        return Cell("", "\N{BALLOT X} fails", "bad")
    if test.detectable > TOLERANCE:
        return Cell("", "no error found")
    return Cell("", "\N{CHECK MARK} passes", "good")


def difference_cell(found: Measurements, metric: str, method: str) -> Cell:
    """Return the difference of a method from the uncalibrated; nothing where the two were not compared."""
    between = found.differences
    before = found.both[0].name
    if between is None or method == before or metric not in {each.metric for each in between.differences}:
        return Cell("")
    difference = between.between(metric, method, before)
    described = METRICS[metric]
    value = described.format_difference(difference.interval.value)
    if not difference.significant:
        return Cell(value, "no significant difference")
    rises = difference.interval.value > 0
    if rises == (described.better == "higher"):
        return Cell(value, "better", "good")
    return Cell(value, "worse", "bad")
