"""The words of a page are those that somebody read: `GLAYERS_REDRAW=1` writes them anew, to be read again."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from glayers import Confidences, MultiLabelPredictions, Predictions, VectorScaling, compare, model_card
from glayers.arrays import Floats
from glayers.metrics import METRICS, Metric, register
from glayers.metrics.events import check_any
from glayers.report.answers import (
    Cell,
    Measurements,
    advice,
    answers,
    difference_cell,
    headline,
    measure,
    method_lines,
    verdict_sentence,
)
from glayers.report.figures import FIGURES, Shown
from glayers.text_tables import points
from tests.report.html_comparisons import Compared, overconfident, overconfident_page, page_of, sampled_rows

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def given() -> Compared:
    return overconfident()


@pytest.fixture(scope="module")
def measured(given: Compared) -> Measurements:
    return measure(given.found, n_resamples=200, random_state=0)


def words_of(found: Measurements) -> str:
    """The first screen and the findings of a page as text."""
    lines = ["".join(headline(found)), verdict_sentence(found), f"What to do: {advice(found)}"]
    lines += [f"{question} [{tile.tone}] {tile.value}. {tile.words}" for question, tile in answers(found).items()]
    lines += [f"{finding.subject}: {finding.found}. {finding.advice}".strip() for finding in found.findings]
    return "\n".join(lines) + "\n"


def of(calibration: Predictions, test: Predictions, methods: tuple[str, ...] = ("temperature",)) -> Measurements:
    return measure(compare(calibration, test, methods), 50, 0, calibration)


def sharpened(factor: float) -> Measurements:
    return of(sampled_rows(4_000, 1, sharpened=factor), sampled_rows(9_000, 2, sharpened=factor))


def does_not_help() -> Measurements:
    """Fitted on rows of a calibrated model, tested on rows of an overconfident one."""
    return of(sampled_rows(900, 1, sharpened=1.0), sampled_rows(1_100, 2))


def right_on_average() -> Measurements:
    """500 rows say 90 % and are right in 400 of them, 500 say 60 % and are right in 350: 75 % on average, twice."""
    said = np.repeat([[0.9, 0.06, 0.04], [0.6, 0.2, 0.2]], 500, axis=0)
    rows = Predictions.from_probabilities(said, np.repeat([0, 1, 0, 2], [400, 100, 350, 150]))
    return of(sampled_rows(300, 1, classes=3), rows)


def second_class_off() -> Measurements:
    """The top class is right in 600 of 1,000 rows, as the model says; the second class in 150 instead of 300."""
    said, labels = np.tile([0.6, 0.3, 0.05, 0.05], (9_000, 1)), np.repeat([0, 1, 2, 3], [5400, 1350, 1125, 1125])
    return of(sampled_rows(300, 1), Predictions.from_probabilities(said, labels))


def rows_in_both_sets() -> Measurements:
    calibration, test = sampled_rows(900, 1), sampled_rows(1_100, 2)
    logits = np.concatenate([test.logits, calibration.logits[:9]])
    return of(calibration, Predictions(logits, np.concatenate([test.labels, calibration.labels[:9]])))


def one_class_off() -> Measurements:
    """A calibrated model, except that rows predicted as the last of five classes are right far too seldom."""
    calibration, test = (sampled_rows(4_000, seed, sharpened=1.0, classes=5) for seed in (1, 2))
    last = np.flatnonzero(test.logits.argmax(axis=1) == 4)
    labels = test.labels.copy()
    labels[last[:60]] = 0
    kept = np.setdiff1d(np.arange(len(test)), last[60:])
    return of(calibration, Predictions(test.logits[kept], labels[kept]))


def class_shift() -> Measurements:
    """Test rows with few of one class."""
    rows = sampled_rows(2_500, 4, sharpened=1.0)
    kept = np.setdiff1d(np.arange(len(rows)), np.flatnonzero(rows.labels == 0)[40:])
    return of(sampled_rows(2_000, 3, sharpened=1.0), rows.take(kept))


def missing_classes() -> Measurements:
    """One class has no rows at all, and one only five to fit on."""
    parts = [sampled_rows(n, seed, classes=3) for n, seed in ((300, 1), (400, 2))]
    old, new = (Predictions(np.pad(rows.logits, ((0, 0), (0, 1)), constant_values=-9.0), rows.labels) for rows in parts)
    rare = np.flatnonzero(old.labels == 2)[5:]
    return of(old.take(np.setdiff1d(np.arange(len(old)), rare)), new)


def few_groups() -> Measurements:
    rows = sampled_rows(600, 2)
    grouped = Predictions(rows.logits, rows.labels, np.linspace(0.5, 1.5, 600), np.repeat(np.arange(6), 100))
    return of(sampled_rows(600, 1), grouped)


def confidences() -> Measurements:
    rng = np.random.default_rng(0)
    said = rng.uniform(0.2, 1.0, 3_000)
    rows = Confidences(said, rng.random(3_000) < said**2)
    calibration, test = rows.take(np.arange(1_000)), rows.take(np.arange(1_000, 3_000))
    return measure(compare(calibration, test, ["platt", "beta"]), 50, 0, calibration)


def nothing_fitted() -> Measurements:
    one_group = Predictions(sampled_rows(200, 1).logits, sampled_rows(200, 1).labels, groups=np.zeros(200, dtype=int))
    return measure(compare(one_group, sampled_rows(300, 2), ["vector"]), 50, 0)


def overconfident_measured() -> Measurements:
    """The comparison of `overconfident`, without the tests that other tests have made of it with other draws."""
    given = overconfident()
    return measure(replace(given.found), 100, 0, given.calibration)


CASES: dict[str, Callable[[], Measurements]] = {
    "overconfident": overconfident_measured,
    "underconfident": lambda: sharpened(0.4),
    "calibrated": lambda: sharpened(1.0),
    "does-not-help": does_not_help,
    "right-on-average": right_on_average,
    "second-class-off": second_class_off,
    "rows-in-both-sets": rows_in_both_sets,
    "one-class-off": one_class_off,
    "class-shift": class_shift,
    "missing-classes": missing_classes,
    "few-groups": few_groups,
    "confidences": confidences,
    "nothing-fitted": nothing_fitted,
}


@cache
def case(name: str) -> Measurements:
    return CASES[name]()


@pytest.mark.thorough
@pytest.mark.parametrize("name", CASES)
def test_a_page_says_what_somebody_read(name: str) -> None:
    said = words_of(case(name))
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("GLAYERS_REDRAW"):
        golden.write_text(said, encoding="utf-8")
    assert said == golden.read_text(encoding="utf-8")


def test_every_golden_text_has_its_case() -> None:
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(CASES)


@pytest.mark.parametrize("name", ["overconfident", "calibrated", "does-not-help", "right-on-average", "one-class-off"])
def test_no_two_statements_of_a_page_contradict_each_other(name: str) -> None:
    found = case(name)
    lines = method_lines(found)
    before, _, after = verdict_sentence(found).partition(" With ")
    after = after or before  # "with or without" the method
    for said, method in zip((before, after), [shown.name for shown in found.both], strict=True):
        test = found.tests[method]
        assert [cell.tone == "bad" for cell in lines[method][:4]] == [part in test.rejecting for part in test.tests]
        off = any(word in said for word in ("verconfident by", "nderconfident by", "ight on average"))
        assert off == bool({"ks", "ece"} & set(test.rejecting))
        assert not (off and "no miscalibration" in said)
    tiles = answers(found)
    if tiles["Is it calibrated now?"].tone == "good":
        assert found.tests[found.both[-1].name].verdict == "calibrated"
        assert tiles["Which predicted classes are off?"].value == "None"


def test_enough_rows_are_also_enough_for_single_classes_or_the_tile_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glayers.metrics.calibration_tests._DRAWS", 99)  # each is of 9,000 rows of 60 classes
    calibration, test = (sampled_rows(n, seed, sharpened=1.0, classes=60) for n, seed in ((5_000, 1), (9_000, 2)))
    tiles = answers(of(calibration, test))
    assert tiles["Which predicted classes are off?"].value == "Too few test rows per class"
    assert tiles["Enough rows?"] == Cell(
        "Not for single classes",
        "With 9,000 test rows, calibration errors above 1.7 points would show. "
        "To judge classes, label more rows of each.",
        "fair",
    )


def test_a_page_explains_only_the_tests_and_words_that_it_shows() -> None:
    two = page_of(compare(sampled_rows(200, 1, classes=2), sampled_rows(200, 2, classes=2), ["temperature"]))
    assert "the mean KS error of the classes" in two
    assert "second most probable class" not in two
    of_confidences = page_of(case("confidences").compared, n_resamples=50)
    for word in ("most probable class", "error of the classes", "given to the label"):
        assert word not in of_confidences
        assert word in overconfident_page()


def test_promised_errors_are_not_claimed_where_chance_alone_explains_the_difference() -> None:
    # 10 rows promise 1 error and make 2, as many as a calibrated model makes in 26 % of samples, or more.
    rows = Confidences([0.9] * 10, [True] * 8 + [False] * 2)
    [spec] = FIGURES["errors"].specs([Shown("model", check_any(rows))])
    assert spec.columns["said"][40] == (
        "automates 100 %, promised 100 errors per 1,000, made 200: within sampling error of 10 rows."
    )


def test_the_headline_says_the_numbers_of_the_scorecards(given: Compared, measured: Measurements) -> None:
    cards = given.found.scorecards
    said = "".join(headline(measured))
    before, after = cards["uncalibrated"], cards[given.found.recommended]
    numbers = [100 * card[metric] for card in (before, after) for metric in ("confidence", "accuracy")]
    assert re.findall(r"([\d.]+) %", said) == [f"{number:.1f}" for number in numbers]


def test_sixty_rows_of_any_model_get_no_green() -> None:
    for sharpening in (1.0, 1.2):
        calibration, test = (sampled_rows(60, seed, sharpened=sharpening) for seed in (1, 2))
        found = of(calibration, test)
        tiles = answers(found)
        assert tiles["Is it calibrated now?"].tone != "good"
        assert tiles["Enough rows?"].value == "Too few test rows"
        lines = method_lines(found)
        assert "good" not in {cell.tone for name in found.tests for cell in lines[name][:4]}
        card = model_card(found.compared.calibrators["temperature"], test)
        assert "60 rows are too few to tell" in card
        assert "60 rows are too few to tell" in verdict_sentence(found)
        assert " Label test rows until you have about " in f" {advice(found)}"


def test_sixty_rows_do_not_show_that_accuracy_stays_where_a_method_may_change_it() -> None:
    old, new = (sampled_rows(60, seed) for seed in (1, 2))
    vector = compare(old, new, {"mine": VectorScaling(strength=1e9)})  # which changes no answer of these rows
    assert vector.scorecards["mine"]["accuracy"] == vector.scorecards["uncalibrated"]["accuracy"]
    tile = answers(measure(vector, 50, 0))["Does accuracy change?"]
    assert (tile.value, tile.tone) == ("Too few rows to tell", "fair")
    assert tile.words.endswith("95 % interval of the change: -5.0 to +5.0 points.")  # 3 of 60 rows
    assert answers(of(old, new))["Does accuracy change?"].value == "No"  # temperature scaling


def test_the_headline_says_that_accuracy_rises() -> None:
    shift = np.array([3.0, 0.0, 0.0, 0.0])  # the network predicts the first class far too often
    parts = [sampled_rows(n, seed, sharpened=1.0) for n, seed in ((900, 1), (1_100, 2))]
    calibration, test = (rows.with_logits(rows.logits + shift) for rows in parts)
    found = of(calibration, test, ("vector",))
    before, after = (found.compared.scorecards[name]["accuracy"] for name in ("uncalibrated", "vector"))
    assert after > before + 0.05
    assert "".join(headline(found)).endswith(f" and is right {100 * after:.1f} %.")
    tile = answers(found)["Does accuracy change?"]
    assert (tile.value, tile.tone) == ("Yes, it rises", "good")
    assert tile.words.startswith(f"It rises from {100 * before:.1f} % to {100 * after:.1f} %")


@pytest.mark.parametrize("name", ["overconfident", "class-shift", "does-not-help"])
def test_tiles_figures_and_findings_are_all_of_the_method_that_the_page_names(name: str) -> None:
    found = case(name)
    chosen = found.chosen
    assert chosen == {"class-shift": "adapted temperature"}.get(name, "temperature")
    assert [shown.name for shown in found.both] == ["uncalibrated", chosen]
    assert answers(found)["Which method to use?"].value in (chosen, "No calibration")
    assert chosen in method_lines(found)
    card = found.compared.scorecards[chosen]
    assert points(card["confidence"] - card["accuracy"]) in answers(found)["Is it calibrated now?"].words
    assert chosen in verdict_sentence(found)
    assert "<select" not in overconfident_page()  # no menu could change a part of the page alone


def test_shared_rows_and_few_groups_leave_nothing_proven() -> None:
    shared = case("rows-in-both-sets")
    assert [tile.tone for tile in answers(shared).values()] == ["fair"]
    assert "confident" not in verdict_sentence(shared)
    few = case("few-groups")
    assert "+-" not in answers(few)["Is it calibrated now?"].words
    assert answers(few)["Which method to use?"].value == "temperature, unproven"
    assert "Use temperature" not in advice(few)
    assert "good" not in {cell.tone for cell in method_lines(few)["temperature"]}


def test_an_error_that_remains_makes_the_advice_provisional() -> None:
    off = case("one-class-off")
    assert advice(off) == (
        "Use temperature for now. Do not trust the confidence of predictions of class 4. "
        "Fit again on rows like those the model will see."
    )
    assert answers(off)["Is it calibrated now?"][::2] == ("Not where it predicts class 4", "bad")
    assert "".join(headline(case("right-on-average"))).startswith(
        "On average, your model says 75.0 % and is right 75.0 % of the time."
    )


def test_the_glossary_knows_that_a_calibrated_model_has_a_ks_error() -> None:
    assert case("calibrated").compared.scorecards["uncalibrated"]["ks"] > 0.001
    page = overconfident_page()
    assert "above zero even for a calibrated model" in page
    assert "zero for a calibrated" not in page


def test_where_class_frequencies_changed_the_page_adapts_if_that_helps() -> None:
    found = case("class-shift")
    (finding,) = found.findings
    assert finding.found == "class 0 is 24.9 % of the calibration rows but 2.1 % of the test rows"
    assert finding.advice == ""  # the page shows the numbers of the adapted method, and says so in what to do
    adapted = found.compared.scorecards["adapted temperature"]
    assert adapted["nll"] < found.compared.scorecards["temperature"]["nll"] - 0.1
    assert advice(found).startswith("Use temperature, adapted to the new class frequencies (glayers adapt). ")
    # Here the labels of one class are wrong; its frequency is not another.
    found = case("one-class-off")
    assert found.chosen == "temperature"
    assert "adapt" not in advice(found)


def test_auto_is_the_method_described_and_its_selection_is_on_the_page() -> None:
    found = compare(sampled_rows(300, 1), sampled_rows(400, 3), ["auto", "temperature"])
    page = page_of(found, n_resamples=50)
    assert " with temperature scaling." in page
    selection = found.calibrators["auto"].selection_
    heading, *lines = selection.table(seconds=False)
    assert "seconds" not in heading
    for cell in (*heading, *(line[0] for line in lines)):
        assert f">{cell}</" in page
    assert "Fits and tests: seed 0" in page


def test_lines_of_the_table_say_the_tests_and_the_scorecards_numbers(given: Compared, measured: Measurements) -> None:
    lines = method_lines(measured)
    headings = [cell.value for cell in lines.pop("method")]
    assert headings == ["confidence", "bins", "second class", "all classes", "NLL", "KS", "accuracy"]
    assert {cell.tone for cell in lines["uncalibrated"][:4]} == {"bad"}
    # 1,100 rows would not show an error of 2 points: nothing is green.
    assert {(cell.words, cell.tone) for cell in lines["temperature"][:4]} == {("no error found", "")}
    for name, card in given.found.scorecards.items():
        said = [cell.value for cell in lines[name][4:]]
        assert said == [METRICS[metric].format(card[metric]) for metric in ("nll", "ks", "accuracy")]


def test_differences_are_marked_by_what_they_are_worth(measured: Measurements) -> None:
    words = [difference_cell(measured, metric, "temperature").words for metric in ("nll", "ks", "accuracy")]
    # Temperature scaling corrects two errors and keeps every ranking.
    assert words == ["better", "better", "no significant difference"]
    assert difference_cell(measured, "accuracy", "temperature").value == "0.00 points"


def test_only_classes_that_are_predicted_are_counted() -> None:
    parts = [sampled_rows(n, seed, classes=3) for n, seed in ((300, 1), (400, 2))]
    old, new = (Predictions(np.pad(rows.logits, ((0, 0), (0, 1)), constant_values=-99), rows.labels) for rows in parts)
    tile = answers(of(old, new))["Which predicted classes are off?"]
    assert "Before: 3 overconfident" in tile.words  # the fourth is never predicted
    assert "No test rows: class 3." in tile.words


def test_a_class_of_rows_with_mixed_confidence_is_tested_exactly_and_list_and_figure_agree() -> None:
    # 25 rows say 99 %, 25 say 40 %; 24 + 4 hit. So few hits have a two-sided probability of 0.9 % (Poisson-binomial),
    # but of 6 % with the mean confidence of 69.5 % in every row; with three classes the limit is 1.7 %.
    said = np.repeat([[0.99, 0.005, 0.005], [0.4, 0.3, 0.3]], 25, axis=0)
    labels = np.repeat([0, 1, 0, 1], [24, 1, 4, 21])
    others = np.eye(3)[np.repeat([1, 2], 50)] * 0.97 + 0.01
    rows = Predictions.from_probabilities(np.concatenate([said, others]), np.append(labels, np.repeat([1, 2], 50)))
    found = measure(compare(sampled_rows(300, 1, classes=3), rows, ["temperature"]), 50, 0)
    assert found.both[0].predicted.off == [0]
    assert "Before: class 0 is overconfident by 13.5 points" in answers(found)["Which predicted classes are off?"].words
    [spec] = FIGURES["classes"].specs(found.both[:1])
    assert spec.columns["class"][0] == "class 0"
    assert list(spec.columns["significant"]).count("significant") == 1


def test_fits_are_listed_with_their_settings_and_warnings() -> None:
    page = overconfident_page()
    assert "1 parameter from 900 rows" in page
    assert "<code>VectorScaling(" in page
    rows = sampled_rows(600, 1)
    found = compare(rows.take(np.flatnonzero(rows.labels != 2)), sampled_rows(600, 2), {"a": VectorScaling()})
    assert found.remarks()[0] in page_of(found, n_resamples=50)


def test_registered_metrics_stand_in_the_table_of_methods(given: Compared) -> None:
    def lowest_score(scores: Floats, hits: Floats, weights: Floats) -> float:
        return float(scores[weights > 0].min())

    register(Metric.of_function(lowest_score, "lowest confidence", unit="percent", digits=1))
    try:
        compared = compare(given.calibration, given.test, ["temperature"])
        lines = method_lines(measure(compared, 50, 0))
    finally:
        del METRICS["lowest_score"]
    assert lines["method"][-1].value == "lowest score"
    assert lines["temperature"][-1].value == f"{100 * compared.scorecards['temperature']['lowest_score']:.1f} %"


def test_rows_of_several_labels_are_no_groups_to_warn_of() -> None:
    rng = np.random.default_rng(0)
    old, new = (MultiLabelPredictions(rng.normal(size=(90, 2)), rng.integers(0, 2, (90, 2))) for _ in range(2))
    assert new.groups is not None
    found = measure(compare(old, new, ["temperature"]), 50, 0)
    assert "Groups" not in {finding.subject for finding in found.findings}
