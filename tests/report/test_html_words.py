from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest

from glayers import Predictions, compare
from glayers.metrics import old as metrics
from glayers.report.html.data_checks import data_checks
from glayers.report.html.fits import fits, seeds, stories, told_story, versions
from glayers.report.html.measuring import METRICS, Measurements, measure
from glayers.report.html.method_tables import DIFFERENCE_METRICS, difference_tables, method_lines
from glayers.report.html.verdict import judge
from tests.report.html_comparisons import Compared, overconfident, sampled_rows


@pytest.fixture(scope="module")
def given() -> Compared:
    return overconfident()


@pytest.fixture(scope="module")
def measured(given: Compared) -> Measurements:
    return measure(given.found, n_resamples=200, random_state=0)


def test_a_model_that_is_too_sure_is_overconfident_and_put_right(given: Compared, measured: Measurements) -> None:
    verdict = judge(given.found, measured, given.found.differences(n_resamples=200))
    before, after = given.found.scorecards["uncalibrated"], given.found.scorecards[verdict.method]
    assert verdict.sentence == (
        f"Overconfident: says {100 * before.confidence:.1f} %, right {100 * before.accuracy:.1f} %; "
        f"after calibration by {verdict.method} it says {100 * after.confidence:.1f} %, "
        f"right {100 * after.accuracy:.1f} %, within sampling error."
    )
    assert "p < 0.0001" in verdict.support[0]
    assert "lowers NLL by" in verdict.support[1]


@pytest.mark.parametrize(
    ("sharpened", "begins"), [(0.4, "Underconfident: says "), (1.0, "Calibrated, as far as 1,100 rows can tell: says ")]
)
def test_the_verdict_knows_the_truth(sharpened: float, begins: str) -> None:
    parts = sampled_rows(900, 1, sharpened=sharpened), sampled_rows(1_100, 2, sharpened=sharpened)
    found = compare(*parts, ["temperature"])
    verdict = judge(found, measure(found, 100, 0), found.differences(n_resamples=100))
    assert verdict.sentence.startswith(begins)
    assert verdict.sentence.endswith("within sampling error.")
    assert verdict.support[-1] == "Temperature is the one method that was fitted."


def test_right_on_average_is_not_yet_calibrated() -> None:
    # 500 rows say 90 % and are right in 400 of them, 500 say 60 % and are right in 350: 75 % on average, twice.
    said = np.repeat([[0.9, 0.06, 0.04], [0.6, 0.2, 0.2]], 500, axis=0)
    rows = Predictions.from_probabilities(said, np.repeat([0, 1, 0, 2], [400, 100, 350, 150]))
    found = compare(sampled_rows(300, 1, classes=3), rows, ["temperature"])
    sentence = judge(found, measure(found, 100, 0), found.differences(n_resamples=100)).sentence
    assert sentence.startswith("Right on average but not at every confidence: says 75.0 %, right 75.0 %; ")


def test_a_calibrator_that_is_no_help_is_said_to_be_none() -> None:
    # Calibrated on rows of a model that is right, judged on rows of one that is too sure.
    found = compare(sampled_rows(900, 1, sharpened=1.0), sampled_rows(1_100, 2), ["temperature"])
    sentence = judge(found, measure(found, 100, 0), found.differences(n_resamples=100)).sentence
    assert sentence.endswith("still overconfident beyond sampling error.")


def test_auto_is_the_method_to_speak_of_wherever_it_stands() -> None:
    parts = sampled_rows(300, 1), sampled_rows(400, 2)
    found = compare(*parts, ["auto", "temperature"])
    verdict = judge(found, measure(found, 50, 0), found.differences(n_resamples=50))
    assert verdict.method == "auto"
    (story,) = stories(found)
    assert story.heading[0] == "family"
    assert "seconds" not in story.heading
    assert {len(line) for line in story.lines} == {len(story.heading)}
    assert any(sentence.startswith("Kept: ") for sentence in story.after)
    assert seeds(found) == {"auto": "0"}


def test_a_report_without_a_table_is_all_sentences() -> None:
    assert told_story("mine", "One.\n\nTwo.").before == ["One.", "Two."]


def test_intervals_are_those_of_the_metrics_module(given: Compared, measured: Measurements) -> None:
    logits = given.found.logits("vector")
    expected = metrics.intervals_from_logits(logits, given.test.labels, n_resamples=200)
    for metric in METRICS:
        np.testing.assert_allclose(measured.named("vector").intervals[metric], expected[metric], rtol=1e-9, atol=1e-12)


def test_lines_of_the_table_say_the_scorecards_numbers(given: Compared, measured: Measurements) -> None:
    lines = {line.method: line.cells for line in method_lines(measured)}
    assert [cells[0].word for cells in lines.values()] == ["no", "not refuted", "not refuted"]
    for name, card in given.found.scorecards.items():
        said = dict(zip(METRICS, lines[name][1:], strict=True))
        assert said["accuracy"].value == f"{100 * card.accuracy:.2f} %"
        assert said["nll"].value == f"{card.nll:.4f}"


def test_differences_are_marked_by_what_they_are_worth(given: Compared, measured: Measurements) -> None:
    differences = given.found.differences(DIFFERENCE_METRICS, n_resamples=200)
    uncalibrated, temperature = difference_tables(measured, differences)
    assert (uncalibrated.against, temperature.against) == ("uncalibrated", "temperature")
    words = {line.method: [cell.word for cell in line.cells] for line in uncalibrated.lines}
    # Temperature scaling mends three errors and leaves every ranking alone.
    assert words["temperature"] == ["better", "better", "better", "not told apart"]
    back = {line.method: [cell.word for cell in line.cells] for line in temperature.lines}
    assert back["uncalibrated"] == ["worse", "worse", "worse", "not told apart"]
    assert uncalibrated.lines[0].cells[3].value == "0.00 points"


def test_what_was_fitted_is_told_with_its_settings(given: Compared) -> None:
    told = {fit.method: fit for fit in fits(given.found)}
    assert told["temperature"].learned == "1 from 900 rows"
    assert told["vector"].made_by.startswith("VectorScaling(")
    assert all(fit.converged for fit in told.values())


def test_what_is_not_installed_is_said_not_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = versions()
    assert installed["numpy"] == np.__version__

    def without_torch(package: str) -> str:
        if package == "torch":
            raise PackageNotFoundError(package)
        return installed[package]

    monkeypatch.setattr("glayers.report.html.fits.version", without_torch)
    assert versions() == installed | {"torch": "not installed"}


def test_rows_that_are_in_order_are_said_to_be(given: Compared) -> None:
    checks = data_checks(given.found, given.calibration)
    assert {check.status for check in checks} == {"fine"}
    assert len(checks) == 6
    assert [check.status for check in data_checks(given.found, None)] == ["not tested", "fine", "fine"]


def test_missing_and_rare_classes_are_named() -> None:
    rows = sampled_rows(600, 1, names=("owl", "cat", "dog", "hen"))
    never, rare = rows.labels == 2, np.flatnonzero(rows.labels == 3)[5:]
    keep = np.setdiff1d(np.flatnonzero(~never), rare)
    found = compare(rows.take(keep), sampled_rows(600, 2, names=rows.class_names), ["temperature"])
    told = {check.subject: check for check in data_checks(found, None)}
    missing, few = told["Missing classes, calibration rows"], told["Rare classes, calibration rows"]
    assert missing.found == "no calibration row is labelled dog: nothing is known about it"
    assert few.found == "fewer than 20 calibration rows are labelled hen: little is known about it"
    assert missing.status == few.status == "attention"
    assert fits(found)[0].notes  # and what the fit said of it is on the page


def test_many_rare_classes_are_counted() -> None:
    found = compare(sampled_rows(300, 1, classes=30), sampled_rows(900, 2, classes=30), ["temperature"])
    (few,) = [check.found for check in data_checks(found, None) if "Rare classes, calibration" in check.subject]
    n_few = int((sampled_rows(300, 1, classes=30).label_counts() < 20).sum())
    assert f"and {n_few - 5} others: little is known about them" in few


def test_shift_and_rows_in_both_sets_need_attention() -> None:
    calibration = sampled_rows(900, 1)
    moved = Predictions(calibration.logits[:400] / 3, calibration.labels[:400])
    test = Predictions(
        np.concatenate([moved.logits, calibration.logits[400:500]]),
        np.concatenate([moved.labels, calibration.labels[400:500]]),
    )
    told = {check.subject: check for check in data_checks(compare(calibration, test, ["temperature"]), calibration)}
    assert told["Rows in both sets"].found.startswith("100 of 500 test rows are calibration rows too")
    assert told["Shift between calibration and test rows: mean confidence"].status == "attention"
    assert told["Shift between calibration and test rows: accuracy"].status == "fine"
