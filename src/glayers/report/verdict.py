"""A comparison -> what the page says: a headline, five answers, and the cells of its tables."""

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from glayers.calibrators import AutoCalibrator
from glayers.errors import listed
from glayers.metrics import METRICS, OmnibusTest, PairedDifferences, calibration_test
from glayers.metrics.calibration_tests import TOLERANCE
from glayers.metrics.events import Scored
from glayers.predictions import Confidences, Predictions
from glayers.progress import progress_bar
from glayers.report.figures import FIGURES, Shown
from glayers.report.findings import BOTH_SETS, Finding, findings
from glayers.report.spec import Spec
from glayers.report.words import CONFIDENCE_TESTS, capital, class_names, direction, percent, plural, points, shortened

if TYPE_CHECKING:
    from glayers.comparison import Comparison

Tone: TypeAlias = Literal["", "good", "fair", "bad"]

TESTS = {"ks": "confidence", "ece": "bins", "rank_2_ks": "second class", "classwise_ks": "all classes"}
_DRAWS = 199  # of the tests of methods that are not recommended: they show pass or fail, not a p-value
_CLASS_TOLERANCE = 0.1  # single classes have few rows: gaps of ten points should show


class Cell(NamedTuple):
    """A number, a word on its meaning, if any, and its tone."""

    value: str
    word: str = ""
    tone: Tone = ""


class Answer(NamedTuple):
    """One tile of the first screen: a question, the answer in a few words, a sentence on it, and its tone."""

    question: str
    answer: str
    detail: str
    tone: Tone = ""


@dataclass(frozen=True, eq=False)
class Measurements:
    """Everything the page shows.

    Attributes
    ----------
    methods
        What each method shows, the uncalibrated first.
    tests
        The calibration test of each method.
    differences
        Between every two methods; None if no method could be fitted.
    names
        The names of all classes; of confidences there are none.
    findings
        What deserves attention.
    """

    compared: "Comparison"
    methods: dict[str, Shown]
    tests: dict[str, OmnibusTest]
    differences: PairedDifferences | None
    names: list[str]
    findings: list[Finding]

    @property
    def before(self) -> Shown:
        """The uncalibrated model."""
        return next(iter(self.methods.values()))

    @property
    def after(self) -> Shown:
        """The recommended method."""
        return self.methods[self.compared.recommended]

    @property
    def both(self) -> list[Shown]:
        """Before and after, or the one where nothing was fitted."""
        return list(dict.fromkeys([self.before, self.after]))

    def panels(self) -> dict[str, list[Spec]]:
        """Return the panels of every figure that can be drawn."""
        panels = {}
        for name, figure in FIGURES.items():
            shown = self.both if figure.least == 1 else list(self.methods.values())
            if len(shown) >= figure.least and (self.names or not figure.needs_classes):
                panels[name] = figure.specs(shown)
        return panels


def measure(
    compared: "Comparison",
    n_resamples: int,
    random_state: int,
    calibration: Predictions | Confidences | None = None,
    progress: bool | None = False,
) -> Measurements:
    """Test every method of a comparison, compare them, and check the data."""
    names = []
    metrics = [compared.loss, "ks"]
    if isinstance(compared.test, Predictions):
        names = class_names(compared.test.class_names, compared.test.n_classes)
        metrics.append("accuracy")  # calibrating a confidence changes no answer
    tests = {}
    draws: dict[str, Any] = {"n_resamples": _DRAWS, "random_state": compared.random_state, "progress": False}
    with progress_bar(progress, "testing methods", len(compared.scorecards)) as advance:
        for name in compared.scorecards:
            known = compared.calibration_tests.get(name)
            tests[name] = known or calibration_test(compared.rows(name), **draws)
            advance()
    between = None
    if compared.calibrators:
        between = compared.differences(metrics, n_resamples=n_resamples, random_state=random_state)
    methods = {}
    for name in compared.scorecards:
        methods[name] = Shown(name, partial(compared.rows, name), random_state=random_state, differences=between)
    return Measurements(compared, methods, tests, between, names, findings(compared, calibration))


def headline(found: Measurements) -> list[str]:
    """Return what the model says, how often it is right, and what it says once calibrated: words, number, words, ..."""
    before = found.compared.scorecards[found.before.name]
    after = found.compared.scorecards[found.after.name]
    digits = 0 if abs(before["confidence"] - before["accuracy"]) >= 0.01 else 1
    says = percent(before["confidence"], digits)
    right = percent(before["accuracy"], digits)
    link = "but" if direction(found.tests[found.before.name], before) else "and"
    parts = ["Your model says ", says, f" {link} is right ", right, " of the time."]
    if found.compared.calibrators:
        parts[-1] += " Calibrated, it says "
        parts += [percent(after["confidence"], digits), "."]
        if difference_cell(found, "accuracy", found.after.name).tone:
            parts[-1:] = [" and is right ", percent(after["accuracy"], digits), "."]
    return parts


def verdict_sentence(found: Measurements) -> str:
    """Say how far the model was off and whether calibration corrected it, as far as these rows can tell."""
    before = _state(found, found.before.name)
    sentence = f"{capital(before)}."
    if found.compared.calibrators:
        after = _state(found, found.after.name)
        sentence += f" After calibration with {found.after.name}: {after}."
    return sentence


def _state(found: Measurements, method: str) -> str:
    """Say in which direction the confidence is off, and by how much, if it is; else what all tests together found."""
    card = found.compared.scorecards[method]
    word = direction(found.tests[method], card)
    if word.endswith("confident"):
        return f"{word} by {100 * abs(card['confidence'] - card['accuracy']):.1f} points"
    return word or found.tests[method].finding


def answers(found: Measurements) -> list[Answer]:
    """Return the tiles of the first screen."""
    tiles = [_calibrated(found)]
    if found.compared.calibrators:
        tiles += [_method(found), _cost(found)]
    if found.names:
        tiles.append(_classes(found))
    return [*tiles, _enough_rows(found)]


def _calibrated(found: Measurements) -> Answer:
    """Answer whether the model is calibrated: better than before is fair, but only calibrated everywhere is good."""
    test = found.tests[found.after.name]
    gaps = " \N{RIGHTWARDS ARROW} ".join(_gap_words(method.scored) for method in found.both)
    answer = "Not calibrated"
    tone: Tone = "bad"
    if any(each.subject == BOTH_SETS for each in found.findings):
        answer, tone = "Test rows not independent", "fair"
    elif test.undecided:
        answer, tone = f"{capital(test.verdict)} to tell", "fair"
    elif test.verdict == "calibrated":
        answer, tone = "Yes", "good"
    elif not set(CONFIDENCE_TESTS) & set(test.rejecting):
        answer, tone = "Not below the top class", "fair"
    elif difference_cell(found, found.compared.loss, found.after.name).tone == "good":
        answer, tone = "Better, not fixed", "fair"
    return Answer("Is it calibrated now?", answer, f"Gap {gaps} points. {_failures(test)}", tone)


def _failures(test: OmnibusTest) -> str:
    """Name the tests that fail."""
    if test.rejecting:
        return f"Fails: {', '.join(TESTS[name] for name in test.rejecting)}."
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


def _method(found: Measurements) -> Answer:
    """Answer which method to use, and why, and what temperature scaling would do instead."""
    question = "Which method?"
    name = found.after.name
    # No worse than no calibration: in log loss or, where that does not differ, in KS.
    tones = [difference_cell(found, metric, name).tone for metric in (found.compared.loss, "ks")]
    if tones[0] != "good" and "bad" in tones:
        detail = f"{capital(name)} makes these rows worse. Fit again on rows like those the model will see."
        return Answer(question, "No calibration", detail, "bad")
    loss = METRICS[found.compared.loss]
    losses = {method: loss.format(card[loss.name]) for method, card in found.compared.scorecards.items()}
    detail = f"{loss.short_label} {losses[name]}."
    if isinstance(found.compared.calibrators[name], AutoCalibrator):
        detail += " It chose its parts by cross-validation."
    elif len(losses) > 2:
        detail += " The lowest of these methods on the test rows, so slightly optimistic."
    if "temperature" in losses and name != "temperature":
        detail += f" Temperature scaling: {losses['temperature']}. {_failures(found.tests['temperature'])}"
    return Answer(question, name, detail, "good")


def _cost(found: Measurements) -> Answer:
    """Answer what calibration does to the predictions, and how large the calibrator is."""
    fitted = found.compared.calibrators[found.after.name]
    n_bytes = sum(array.nbytes for array in fitted.map_.parameters().values())
    size = f"{plural(fitted.diagnostics_.n_parameters, 'parameter')}, {max(1, round(n_bytes / 1000)):,} kB as a file."
    cell = difference_cell(found, "accuracy", found.after.name)
    if cell.tone:
        words = f"Accuracy {cell.value}"
        return Answer("What does it change?", words, f"Significantly {cell.word}. {size}", cell.tone)
    detail = "Calibrating a confidence changes no answer."
    if cell.value:
        detail = f"Accuracy changes by {cell.value}: no significant difference."
    return Answer("What does it change?", "Accuracy stays", f"{detail} {size}", "good")


def _classes(found: Measurements) -> Answer:
    """Answer which classes are off where they are predicted, if these rows can tell."""
    question = "Which classes are off?"
    said = [f"{when}: {_off(found, method)}." for when, method in zip(("Before", "After"), found.both, strict=False)]
    gaps = found.after.predicted
    if gaps.off:
        return Answer(question, f"{len(gaps.off)} of {(gaps.count > 0).sum():,}", " ".join(said), "bad")
    width = float(np.nanmedian(gaps.gap_high - gaps.gap_low)) / 2
    detail = f"{' '.join(said)} Gaps above about {100 * width:.0f} points would show in most classes."
    if width > _CLASS_TOLERANCE:
        return Answer(question, "Too few rows per class", detail, "fair")
    return Answer(question, "None", detail, "good")


def _off(found: Measurements, method: Shown) -> str:
    """Say how many of the predicted classes are off, and name the worst with their gaps in points."""
    gaps = method.predicted
    if not gaps.off:
        return "none"
    named = [f"{shortened(found.names[c])} {points(gaps.gap[c])}" for c in gaps.off]
    return f"{len(named)} of {(gaps.count > 0).sum():,} predicted (points: {listed(named, 3)})"


def _enough_rows(found: Measurements) -> Answer:
    """Answer whether an error that matters would have shown."""
    test = found.tests[found.after.name]
    question = "Enough test rows?"
    rows = plural(found.compared.scorecards[found.before.name].rows, "row")
    if math.isnan(test.detectable):
        return Answer(question, "Too few groups", f"{rows} in {test.groups} groups.", "fair")
    detail = f"{rows} would show a confidence that is off by {100 * test.detectable:.2g} points."
    if test.detectable <= TOLERANCE:
        return Answer(question, "Yes", detail, "good")
    return Answer(question, "Not yet", f"{detail} Label more rows.", "fair")


def method_lines(found: Measurements) -> dict[str, list[Cell]]:
    """Return one line per method: pass or fail of each test, and scores with what they are worth."""
    lines = {"method": [Cell(TESTS[name]) for name in found.tests[found.before.name].tests]}
    metrics = [METRICS[name] for name in (found.compared.loss, "ks", "accuracy")]
    lines["method"] += [Cell(metric.short_label) for metric in metrics]
    for name, test in found.tests.items():
        cells = [_test_cell(test, part) for part in test.tests]
        for metric in metrics:
            word = difference_cell(found, metric.name, name)
            value = metric.format(found.compared.scorecards[name][metric.name])
            cells.append(Cell(value, word.word, word.tone))
        lines[name] = cells
    return lines


def _test_cell(test: OmnibusTest, part: str) -> Cell:
    if test.tests[part].too_few_groups:
        return Cell("", "too few groups")
    if part in test.rejecting:
        return Cell("", "\N{BALLOT X} fails", "bad")
    return Cell("", "\N{CHECK MARK} passes", "good")


def difference_cell(found: Measurements, metric: str, method: str) -> Cell:
    """Return the difference of a method from the uncalibrated; nothing where the two were not compared."""
    between = found.differences
    if between is None or method == found.before.name or metric not in {each.metric for each in between.differences}:
        return Cell("")
    difference = between.between(metric, method, found.before.name)
    described = METRICS[metric]
    value = described.format_difference(difference.interval.value)
    if not difference.significant:
        return Cell(value, "no significant difference")
    rises = difference.interval.value > 0
    if rises == (described.better == "higher"):
        return Cell(value, "better", "good")
    return Cell(value, "worse", "bad")
