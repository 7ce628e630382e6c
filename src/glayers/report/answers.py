"""A comparison -> what the page says: a headline, what to do, five answers, and the cells of its tables."""

import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from glayers.arrays import Bools
from glayers.calibrators import AutoCalibrator
from glayers.errors import BadPredictions, GlayersWarning, listed
from glayers.metrics import METRICS, OmnibusTest, PairedDifferences, label_tests, scorecard
from glayers.metrics.calibration_tests import FEWER_DRAWS, TOLERANCE
from glayers.metrics.events import Scored
from glayers.predictions import Confidences, MultiLabelPredictions, Predictions
from glayers.progress import progress_bar
from glayers.report.curves import PredictedGaps
from glayers.report.figures import FIGURES, Shown, Spec
from glayers.report.verdict import (
    BOTH_SETS,
    CLASS_FREQUENCIES,
    CLASS_TOLERANCE,
    FIT_AGAIN,
    OF_CONFIDENCE,
    Finding,
    Tone,
    Verdict,
    few_or_count,
    findings,
    verdict,
)
from glayers.text_tables import capital, percent, plural, points, shortened, two_digits

if TYPE_CHECKING:
    from glayers.comparison import Comparison

TESTS = {"ks": "confidence", "ece": "bins", "rank_2_ks": "second class", "classwise_ks": "all classes"}
_ADAPTED = "adapted "
_SPELLED = {"nll": "Log loss (NLL)"}
_STANDARD_ERRORS = 1.96  # on each side of a 95 % interval


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
        What the model shows before and after the method to use; one where there is no such method.
    tests
        The calibration test of each method.
    differences
        Between every two methods; None if there is one.
    findings
        What deserves attention.
    verdicts
        What the tests mean, before and after.
    """

    compared: "Comparison"
    both: list[Shown]
    tests: dict[str, OmnibusTest]
    differences: PairedDifferences | None
    findings: list[Finding]
    verdicts: list[Verdict]

    @property
    def n_classes(self) -> int:
        """The number of classes; 0 of confidences."""
        return self.compared.test.n_classes if isinstance(self.compared.test, Predictions) else 0

    @cached_property
    def label_tests(self) -> dict[str, OmnibusTest]:
        """The test of each label with the method to use; empty where a row has one label."""
        rows = self.compared.predictions(self.chosen)
        return label_tests(rows, random_state=self.compared.random_state) if self.several_labels else {}

    @property
    def several_labels(self) -> bool:
        """Whether a row may have several labels."""
        return isinstance(self.compared.test, MultiLabelPredictions)

    @property
    def chosen(self) -> str:
        """The method to use."""
        return self.both[-1].name

    @property
    def shares_rows(self) -> bool:
        """Whether test rows were also fitted on."""
        return any(finding.subject == BOTH_SETS for finding in self.findings)

    def panels(self) -> dict[str, list[Spec]]:
        """Return the panels of every figure that can be drawn."""
        panels = {}
        for name, figure in FIGURES.items():
            if figure.on_page and (self.n_classes or not figure.needs_classes):
                panels[name] = figure.specs(self.both)
        return panels


def measure(
    compared: "Comparison",
    n_resamples: int,
    random_state: int,
    calibration: Predictions | Confidences | None = None,
    progress: bool | None = False,
) -> Measurements:
    """Test every method of a comparison, compare them, and check the data."""
    tests = dict(compared.calibration_tests)
    problems = findings(compared, calibration)
    chosen = compared.recommended
    adapted = _ADAPTED + chosen
    if any(problem.subject == CLASS_FREQUENCIES for problem in problems):
        compared = _with_adapted(compared, adapted)
    metrics = [compared.loss, "ks"]
    if isinstance(compared.test, Predictions):
        metrics.append("accuracy")  # calibrating a confidence changes no answer
    between = None
    if len(compared.scorecards) > 1:
        between = compared.differences(metrics, n_resamples=n_resamples, random_state=random_state)
    if adapted in compared.scorecards and _change(between, compared.loss, chosen, adapted).tone == "good":
        chosen = adapted
        tests[chosen] = compared.calibration_test(chosen)
    remedy = "" if chosen == adapted else FIT_AGAIN
    problems = [each._replace(advice=remedy) if each.subject == CLASS_FREQUENCIES else each for each in problems]
    others = [name for name in compared.scorecards if name not in tests]
    with progress_bar(progress, "testing methods", len(others)) as advance:
        for name in others:
            tests[name] = compared.calibration_test(name, FEWER_DRAWS)  # shows pass or fail, not a p-value
            advance()
    names = dict.fromkeys([next(iter(compared.scorecards)), chosen])
    both = [Shown(name, compared.rows(name), random_state=random_state) for name in names]
    verdicts = []
    for method in both:
        gaps = method.predicted if isinstance(compared.test, Predictions) else None
        verdicts.append(verdict(tests[method.name], compared.scorecards[method.name], gaps))
    return Measurements(compared, both, tests, between, problems, verdicts)


def _with_adapted(compared: "Comparison", name: str) -> "Comparison":
    """Add the recommended method as adapted to the class frequencies of the test rows, whose labels it does not see."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GlayersWarning)  # the page shows whether adapting helped
        try:
            adapted = compared.calibrators[compared.recommended].adapt(compared.test)
        except BadPredictions:  # too few groups to tell
            return compared
    if not adapted.adaptation_.shifted:
        return compared
    return replace(
        compared,
        calibrators=compared.calibrators | {name: adapted},
        scorecards=compared.scorecards | {name: scorecard(adapted.apply(compared.test))},
    )


def headline(found: Measurements) -> list[str]:
    """Return what the model says and how often it is right, before and after: words, number, words, ..."""
    says, right, *after = (
        percent(found.compared.scorecards[method.name][metric], 1)
        for method in found.both
        for metric in ("confidence", "accuracy")
    )
    before = found.verdicts[0]
    subject, link = "Your model", "and"
    if before.answer.startswith("Too few"):
        subject = f"On these {plural(len(found.compared.test), 'row')}, your model"
    elif "right on average" in before.sentence:
        subject = "On average, your model"
    elif before.answer == "Not calibrated" and not found.shares_rows:
        link = "but"
    parts = [f"{subject} says ", says, f" {link} is right ", right, " of the time."]
    if after:
        parts[-1] += " After correction, it says "
        parts += [after[0], " and is right ", after[1], "."]
    return parts


def verdict_sentence(found: Measurements) -> str:
    """Say how far the model was off and whether calibration corrected it, as far as these rows can tell."""
    if found.shares_rows:
        return "There is no verdict as long as some rows are in both sets."
    before, after = found.verdicts[0].sentence, found.verdicts[-1].sentence
    if len(found.both) == 1:
        return f"{capital(before)}."
    if before == after:
        return f"{capital(before)}, with or without {found.chosen}."
    method = f"{found.chosen} (not recommended)" if _worse_in(found) else found.chosen
    return f"{capital(before)}. With {method}, {after.replace('the model is', 'it is')}."


def advice(found: Measurements) -> str:
    """Say what to do about the model, and about what was found in the data."""
    if found.shares_rows:
        return "Leave the shared rows out of one of the two sets, and run this again."
    steps = [*_steps(found), *(finding.advice for finding in found.findings)]
    return " ".join(dict.fromkeys(filter(None, steps)))


def _steps(found: Measurements) -> list[str]:
    """Return what to do about the model."""
    before, after = found.verdicts[0], found.verdicts[-1]
    test = found.tests[found.chosen]
    if not found.compared.scorecards.keys() - {found.both[0].name}:
        if test.undecided:
            return [_label_more(test)]
        if before.tone == "good":
            return ["Use the model as it is."]
        return ["Calibrate the model: glayers fit, or glayers report with calibration rows and test rows."]
    if _worse_in(found):
        return [f"Do not use {found.chosen}.", before.limit, FIT_AGAIN]
    helps = _change_of_loss(found).tone == "good"
    if before.tone == "good" and not helps:
        return ["Use the model as it is: it is calibrated, and calibration does not change it significantly."]
    steps = [_use(found)]
    if not helps and after.tone != "good":
        steps = [f"Do not rely on {found.chosen} yet: these rows cannot tell whether it helps."]
    steps.append(after.limit)
    if after.tone == "bad":
        return [*steps, FIT_AGAIN]
    if test.verdict == "as calibrated as the rows allow":
        steps.append("Label more calibration rows to fit on.")
    elif not test.detectable <= TOLERANCE:
        steps.append(_label_more(test))
    return steps


def _use(found: Measurements) -> str:
    name = found.chosen.removeprefix(_ADAPTED)
    use = f"Use {name}"
    if isinstance(found.compared.calibrators[found.chosen], AutoCalibrator):
        use += " (a weighted mixture of methods)"
    if name != found.chosen:
        use += ", adapted to the new class frequencies (glayers adapt)"
    if found.verdicts[-1].tone == "bad" or FIT_AGAIN in {finding.advice for finding in found.findings}:
        use += " for now"
    return f"{use}."


def _label_more(test: OmnibusTest) -> str:
    """Say how many test rows it takes."""
    if math.isnan(test.detectable):
        return "Label test rows of more groups."
    return f"Label test rows until you have about {_wanted_rows(test)}, to detect errors of 2 points."


def _wanted_rows(test: OmnibusTest) -> str:
    """Return how many rows would show an error that matters: the error that shows falls with the root of the rows."""
    wanted = test.rows * (test.detectable / TOLERANCE) ** 2
    return f"{float(f'{wanted:.2g}'):,.0f}"


def answers(found: Measurements) -> dict[str, Cell]:
    """Return the tiles of the first screen by their questions."""
    if found.shares_rows:
        return {"Is it calibrated now?": Cell("Cannot tell", "Some test rows are also calibration rows.", "fair")}
    tiles = {"Is it calibrated now?": _calibrated(found)}
    if len(found.both) > 1:
        tiles["Which method to use?"] = _method(found)
        tiles["Does accuracy change?"] = _accuracy(found)
    if found.several_labels:
        tiles["Which labels are off?"] = _labels(found)
    elif isinstance(found.compared.test, Predictions):
        tiles["Which predicted classes are off?"] = _classes(found, found.compared.test.label_counts() == 0)
    tiles["Enough rows?"] = _enough_rows(found)
    return tiles


def _calibrated(found: Measurements) -> Cell:
    """Answer whether the model is calibrated: better than before is fair, but only calibrated everywhere is good."""
    said = found.verdicts[-1]
    if said.answer == "Not calibrated" and _change_of_loss(found).tone == "good":
        said = said._replace(answer="Better, not fixed", tone="fair")
    gaps = [_gap_words(method.scored, found.tests[method.name]) for method in found.both]
    words = f"Confidence minus accuracy: {gaps[0]} points"
    if len(gaps) > 1:
        words += f" before, {gaps[1]} after"
    return Cell(said.answer, f"{words}.", said.tone)


def _gap_words(event: Scored, test: OmnibusTest) -> str:
    """Return the mean of score minus hit in points, and its error; rows of a group count as one unit."""
    gaps = event.scores - event.hits
    mean = float(event.weights @ gaps)
    if math.isnan(test.detectable):  # so few groups do not tell the error
        return points(mean)
    parts = np.bincount(event.group_numbers, event.weights * (gaps - mean))
    error = math.sqrt(float((parts**2).sum()) * len(parts) / max(1, len(parts) - 1))
    return f"{points(mean)} +- {100 * _STANDARD_ERRORS * error:.1f}"


def _change_of_loss(found: Measurements) -> Cell:
    return difference_cell(found, found.compared.loss, found.chosen)


def _worse_in(found: Measurements) -> str:
    """Return the metric in which the method is worse than none: its loss or, where that does not differ, KS."""
    tones = {metric: difference_cell(found, metric, found.chosen).tone for metric in (found.compared.loss, "ks")}
    if tones[found.compared.loss] == "good":
        return ""
    return next((metric for metric, tone in tones.items() if tone == "bad"), "")


def _method(found: Measurements) -> Cell:
    """Answer which method to use, and why, and what temperature scaling would do instead."""
    name = found.chosen
    loss = METRICS[_worse_in(found) or found.compared.loss]
    losses = {method: loss.format(card[loss.name]) for method, card in found.compared.scorecards.items()}
    label = _SPELLED.get(loss.name, loss.label)
    numbers = f"{label}, lower is better: {losses[found.both[0].name]} before, {losses[name]} after"
    if _worse_in(found):
        return Cell("No calibration", f"{capital(name)} makes the probabilities worse on these rows. {numbers}.", "bad")
    change = _change_of_loss(found)
    if change.tone != "good":
        value = "None needed" if found.verdicts[0].tone == "good" else f"{name}, unproven"
        return Cell(value, f"{numbers}: {change.words}.", "good" if value == "None needed" else "fair")
    if "temperature" in losses and name != "temperature":
        numbers += f", {losses['temperature']} with temperature scaling"
    elif len(losses) > 2 and not isinstance(found.compared.calibrators.get(name), AutoCalibrator):
        numbers += ". The method was chosen on these test rows, so its loss is slightly too low"
    return Cell(name, f"{numbers}.", "good")


def _accuracy(found: Measurements) -> Cell:
    """Answer what calibration does to the accuracy."""
    name = found.chosen
    before, after = (percent(found.compared.scorecards[each.name]["accuracy"], 1) for each in found.both)
    cell = difference_cell(found, "accuracy", name)
    if cell.tone:
        verb = "rises" if cell.tone == "good" else "falls"
        words = f"It {verb} from {before} to {after}: {name} changes predictions, too."
        return Cell(f"Yes, it {verb}", words, cell.tone)
    if not cell.value or found.differences is None:
        return Cell("No", f"It is {before}: calibrating a confidence changes no answer.", "good")
    _, low, high, *_ = found.differences.between("accuracy", name, found.both[0].name).interval
    methods = found.compared.calibrators[name].methods
    if low == high and (not methods or methods[0].keeps == "nothing"):
        high = 3 / len(found.compared.test)  # the rule of three: these rows would have shown more changes
        low = -high
    if high - low > 2 * TOLERANCE:
        detail = f"{before} before, {after} after. 95 % interval of the change: {points(low)} to {points(high)} points."
        return Cell("Too few rows to tell", detail, "fair")
    if before == after:
        return Cell("No", f"{before}, unchanged.", "good")
    return Cell("No", f"{before} before, {after} after: no significant difference.", "good")


def _classes(found: Measurements, empty: Bools) -> Cell:
    """Answer which classes are off where they are predicted, if these rows can tell."""
    gaps = found.both[-1].predicted
    cannot_tell = not gaps.off and gaps.detectable > CLASS_TOLERANCE
    words = _off(gaps, 4)
    if cannot_tell:
        words += f", but only errors above {plural(100 * gaps.detectable, 'point')} would show"
    if len(found.both) > 1:
        words = f"before: {_off(found.both[0].predicted)}. After: {words}"
    words = f"{capital(words)}."
    untested = ""
    if empty.any():
        untested = f", {empty.sum()} untested"
        words += f" No test rows: {few_or_count(gaps.names, empty)}."
    if len(gaps.off) == 1:
        return Cell(shortened(gaps.names[gaps.off[0]], 24), words, "bad")
    if gaps.off:
        return Cell(f"{len(gaps.off)} of {gaps.n_predicted:,}", words, "bad")
    if cannot_tell:
        return Cell("Too few test rows per class", words, "fair")
    if untested or found.verdicts[-1].tone != "good":
        return Cell(f"None found{untested}", words, "fair")
    return Cell("None", words, "good")


def _labels(found: Measurements) -> Cell:
    """Answer which of several labels are off, by the test of each."""
    tests = found.label_tests
    wrong = [name for name, test in tests.items() if test.rejected]
    if wrong:
        worst_first = sorted(wrong, key=lambda name: -tests[name].tests["ks"].value)
        words = f"With {found.chosen}: {listed([shortened(name) for name in worst_first], 6)}."
        return Cell(f"{len(wrong)} of {plural(len(tests), 'label')}", words, "bad")
    detectable = float(np.nanmedian([test.detectable for test in tests.values()]))
    words = f"For most labels, only errors above {two_digits(100 * detectable)} points would show."
    if math.isnan(detectable):
        return Cell("Too few groups", "", "fair")
    if detectable > CLASS_TOLERANCE:
        return Cell("Too few test rows per label", words, "fair")
    return Cell("None found", words, "fair" if found.verdicts[-1].tone != "good" else "good")


def _off(gaps: PredictedGaps, n_others: int = 0) -> str:
    """Say how many of the predicted classes are off, in which direction, and which is the worst; name some others."""
    if not gaps.off:
        return "none found"
    directions = np.sign(gaps.gap[gaps.off])
    word = "off"
    if abs(directions.sum()) == len(directions):
        word = "overconfident" if directions[0] > 0 else "underconfident"
    worst, *others = (shortened(gaps.names[c]) for c in gaps.off)
    by = f"by {abs(100 * gaps.gap[gaps.off[0]]):.1f} points"
    if not others:
        return f"{worst} is {word} {by}"
    also = f"; also {listed(others, n_others)}" if n_others else ""
    return f"{len(gaps.off)} {word} (worst: {worst}, {by}{also})"


def _enough_rows(found: Measurements) -> Cell:
    """Answer whether an error that matters would have shown, and whether more calibration rows would help."""
    test = found.tests[found.chosen]
    rows = plural(test.rows, "test row")
    if math.isnan(test.detectable):
        return Cell("Too few groups", f"{rows} in {test.groups} groups; the tests need 8 groups.", "fair")
    shows = f"With {rows}, calibration errors above {two_digits(100 * test.detectable)} points would show."
    if test.verdict == "as calibrated as the rows allow":
        fitted_on = found.compared.calibrators[found.chosen].diagnostics_.rows
        words = f"Fitted on {fitted_on:,} rows. {shows}"
        if test.rows_needed:
            words += f" With about {test.rows_needed:,} calibration rows, they would no longer show an error."
        return Cell("Too few calibration rows", words, "fair")
    if test.detectable > TOLERANCE and not OF_CONFIDENCE & set(test.rejecting):
        return Cell("Too few test rows", f"{shows} For 2 points, it takes about {_wanted_rows(test)}.", "fair")
    if found.n_classes and found.both[-1].predicted.detectable > CLASS_TOLERANCE:
        return Cell("Not for single classes", f"{shows} To judge classes, label more rows of each.", "fair")
    answer = "Yes" if found.verdicts[-1].tone == "good" else "Enough to find the error"
    return Cell(answer, shows, "good")


def method_lines(found: Measurements) -> dict[str, list[Cell]]:
    """Return one line per method: pass or fail of each test, and scores with what they are worth."""
    metrics = [METRICS[name] for name in (found.compared.loss, "ks", "accuracy")]
    known = found.compared.scorecards[found.both[0].name]
    metrics += [METRICS[name] for name in known if not METRICS[name].evaluate.__module__.startswith("glayers.")]
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
    before = found.both[0].name
    if method == before:
        return Cell("")
    return _change(found.differences, metric, before, method)


def _change(between: PairedDifferences | None, metric: str, before: str, after: str) -> Cell:
    """Return the difference of two methods, and what it is worth."""
    if between is None or metric not in {each.metric for each in between.differences}:
        return Cell("")
    difference = between.between(metric, after, before)
    described = METRICS[metric]
    value = described.format_difference(difference.interval.value)
    if difference.interval.unreliable.startswith("too few groups"):
        return Cell(value, "too few groups to tell")
    if not difference.significant:
        return Cell(value, "no significant difference")
    rises = difference.interval.value > 0
    if rises == (described.better == "higher"):
        return Cell(value, "better", "good")
    return Cell(value, "worse", "bad")
