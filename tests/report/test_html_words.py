import re
import warnings
from dataclasses import replace
from importlib.metadata import PackageNotFoundError

import numpy as np
import pytest
from scipy.special import softmax

from glayers import Predictions, compare, metrics
from glayers.comparison import Comparison
from glayers.metrics import METRICS
from glayers.report.findings import data_checks
from glayers.report.html.measuring import SHOWN_METRICS, Measurements, example_rows, measure
from glayers.report.html.page import versions
from glayers.report.html.verdict import Summary, advise, difference_tables, method_lines, summarise
from tests.report.html_comparisons import Compared, overconfident, overconfident_page, page_of, sampled_rows


@pytest.fixture(scope="module")
def given() -> Compared:
    return overconfident()


@pytest.fixture(scope="module")
def measured(given: Compared) -> Measurements:
    return measure(given.found, n_resamples=200, random_state=0)


def summary_of(found: Comparison) -> Summary:
    return summarise(measure(found, 50, 0))


def test_an_overconfident_model_and_its_correction_are_described(given: Compared, measured: Measurements) -> None:
    summary = summarise(measured)
    card = given.found.scorecards["uncalibrated"]
    assert summary.sentence == (
        f"Overconfident by {100 * (card['confidence'] - card['accuracy']):.1f} points. "
        f"After calibration with {summary.method}: too few rows to tell whether the model is calibrated: 1,100 rows."
    )
    assert (summary.tone, summary.badge) == ("fair", "Too few rows to tell")
    # The smallest p-value depends on the number of draws, which tests reduce.
    assert re.match(r"Not calibrated \(p = 0\.00[15]\); significant: KS \(confidence\), ", summary.support[0])
    assert summary.support[1] == (
        f"Mean confidence {100 * card['confidence']:.2f} %, accuracy {100 * card['accuracy']:.2f} %."
    )
    assert "p < 0.0001" in summary.support[2]
    assert summary.support[3].startswith(
        f"After {summary.method}: too few rows to tell whether the model is calibrated"
    )
    assert "NLL" in summary.support[5]
    changes = {change.metric: change for change in summary.changes}
    assert changes["KS"].before == METRICS["ks"].format(card["ks"])
    assert [changes[name].word for name in ("accuracy", "KS", "NLL")] == [
        "no significant difference",
        "better",
        "better",
    ]


def test_the_meaning_counts_the_rows_that_are_furthest_off_together(given: Compared, measured: Measurements) -> None:
    rows, method = example_rows(metrics.events.check_event(given.test)), summarise(measured).method
    logits = [given.found.logits(name)[rows] for name in ("uncalibrated", method)]
    said, now = (softmax(each, axis=1).max(axis=1).mean() for each in logits)
    right = 1000 * (logits[0].argmax(axis=1) == given.test.labels[rows]).mean()
    meaning = summarise(measured).meaning
    made = f"of 1,000 predictions made with about {100 * said:.3g} % confidence, {right:.0f} were right. "
    assert meaning.startswith(f"Where the gap matters most: {made}")
    assert f"the same rows say {100 * now:.3g} %" in meaning
    assert 100 < len(rows) < 120  # a tenth of 1,100


@pytest.mark.parametrize(
    ("sharpened", "begins"),
    [(0.4, "Underconfident by "), (1.0, "Calibrated, as far as 9,000 rows can tell. ")],
)
def test_the_summary_knows_the_truth(sharpened: float, begins: str) -> None:
    parts = sampled_rows(4_000, 1, sharpened=sharpened), sampled_rows(9_000, 2, sharpened=sharpened)
    summary = summary_of(compare(*parts, ["temperature"]))
    assert summary.sentence.startswith(begins)
    assert summary.sentence.endswith(": calibrated, as far as 9,000 rows can tell.")
    assert (summary.tone, summary.badge) == ("good", "Calibrated")
    assert summary.support[-1] == "temperature is the only method that was fitted."


def test_correct_on_average_is_not_yet_calibrated() -> None:
    # 500 rows say 90 % and are right in 400 of them, 500 say 60 % and are right in 350: 75 % on average, twice.
    said = np.repeat([[0.9, 0.06, 0.04], [0.6, 0.2, 0.2]], 500, axis=0)
    rows = Predictions.from_probabilities(said, np.repeat([0, 1, 0, 2], [400, 100, 350, 150]))
    found = compare(sampled_rows(300, 1, classes=3), rows, ["temperature"])
    assert summary_of(found).sentence.startswith("Correct on average but miscalibrated at some confidences. ")


def test_a_right_confidence_is_not_called_calibrated_where_single_classes_are_off() -> None:
    # The top class is right in 600 of 1,000 rows, as the model says; the second class in 150 instead of 300.
    said, labels = np.tile([0.6, 0.3, 0.05, 0.05], (9_000, 1)), np.repeat([0, 1, 2, 3], [5400, 1350, 1125, 1125])
    found = compare(sampled_rows(300, 1), Predictions.from_probabilities(said, labels), ["temperature"])
    begins = "The confidence is calibrated, as far as 9,000 rows can tell, but classes below the top are not. "
    assert summary_of(found).sentence.startswith(begins)


def test_rows_in_both_sets_are_in_the_headline() -> None:
    calibration, test = sampled_rows(900, 1), sampled_rows(1_100, 2)
    both = Predictions(
        np.concatenate([test.logits, calibration.logits[:9]]), np.concatenate([test.labels, calibration.labels[:9]])
    )
    summary = summarise(measure(compare(calibration, both, ["temperature"]), 50, 0, calibration))
    ends = "But 9 of 1,109 test rows are also calibration rows: scores on them are too optimistic."
    assert summary.sentence.endswith(ends)
    assert (summary.tone, summary.badge) == ("fair", "Test rows not independent")


def one_class_off() -> Compared:
    """A calibrated model, except that rows predicted as the last of five classes are right far too seldom."""
    calibration, test = (sampled_rows(4_000, seed, sharpened=1.0, classes=5) for seed in (1, 2))
    wrong = np.flatnonzero(test.logits.argmax(axis=1) == 4)[:60]
    labels = test.labels.copy()
    labels[wrong] = 0
    rare = np.flatnonzero(test.logits.argmax(axis=1) == 4)[60:]
    kept = np.setdiff1d(np.arange(len(test)), rare)
    moved = Predictions(test.logits[kept], labels[kept])
    return Compared(calibration, moved, compare(calibration, moved, ["temperature"]))


def test_a_single_class_that_is_off_is_a_finding_with_advice() -> None:
    given = one_class_off()
    (check,) = [each for each in data_checks(given.found, None) if each.subject == "Single classes, temperature"]
    assert check.status == "attention"
    assert check.found.startswith("where class 4 is predicted (60 rows), mean confidence is ")
    assert check.found.endswith(" and accuracy 0.00 %")
    assert "collect more" in check.advice
    assert summary_of(given.found).tone != "good"


def test_the_headline_names_the_class_and_the_facts_say_how_sure(measured: Measurements) -> None:
    summary = summary_of(one_class_off().found)
    assert summary.sentence.endswith("is calibrated: 3,231 rows, but it is not where the prediction is class 4.")
    assert summary.badge == "Too few rows to tell"
    assert re.match(
        r"1 of 5 is off after calibration \(points, \+ means overconfident: class 4 \+\d\d\.\d\); 1 of 5 was off",
        summary.facts["Classes"],
    )
    facts = summarise(measured).facts
    assert facts["Classes"].startswith("none of 4 is off after calibration beyond chance; 4 of 4 were off before (")
    assert facts["How sure"] == "not sure: 1,100 test rows are too few."
    many = compare(sampled_rows(4_000, 1, sharpened=3.0), sampled_rows(9_000, 2, sharpened=3.0), ["temperature"])
    sure = (
        r"9,000 test rows\. Confidence: test failed before \(p = 0\.0\d+\), test passed after "
        r"\(p = 0\.\d+\)\. Classes: "
    )
    assert re.match(sure, summary_of(many).facts["How sure"])
    gap = next(change for change in summarise(measured).changes if change.metric == "gap")
    value, error = measured.before.gap
    assert gap.before == f"{100 * value:+.1f} +- {200 * error:.1f}"


def test_a_test_that_too_few_groups_leave_open_is_not_called_passed_or_failed(
    measured: Measurements, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_tests = {"ks": np.nan, "ece": np.nan, "rank_2_ks": np.nan, "classwise_ks": 0.001}
    tests = {name: replace(test, adjusted=open_tests) for name, test in measured.compared.calibration_tests.items()}
    monkeypatch.setitem(vars(measured.compared), "calibration_tests", tests)
    assert summarise(measured).facts["How sure"] == (
        "1,100 test rows. Confidence: too few groups to test before, too few groups to test after. "
        "Classes: test failed before (p = 0.001), test failed after (p = 0.001)."
    )


def test_classes_that_are_missing_in_both_sets_are_one_finding() -> None:
    parts = [sampled_rows(n, seed, classes=3) for n, seed in ((300, 1), (400, 2))]
    old, new = (Predictions(np.pad(rows.logits, ((0, 0), (0, 1)), constant_values=-9.0), rows.labels) for rows in parts)
    found = compare(old, new, ["temperature"])
    (check,) = [each for each in data_checks(found, old) if each.subject.startswith("Missing classes")]
    assert check.found == "no calibration or test row has the label class 3"


def thinned(rows: Predictions, label: int, kept: int) -> Predictions:
    """The same rows, with only so many of one class."""
    return rows.take(np.setdiff1d(np.arange(len(rows)), np.flatnonzero(rows.labels == label)[kept:]))


@pytest.mark.parametrize(("sharpened", "explains"), [(1.0, "the shift explains the rest"), (3.0, "explains only part")])
def test_class_shift_brings_the_lines_that_adapt_and_what_they_achieve(sharpened: float, explains: str) -> None:
    # Test rows with few of one class. In the second case they are overconfident too, which no class shift explains.
    calibration = sampled_rows(2_000, 3, sharpened=1.0)
    test = thinned(sampled_rows(2_500, 4, sharpened=sharpened), 0, 40)
    found = measure(compare(calibration, test, ["temperature"]), 50, 0, calibration)
    (check,) = [each for each in found.checks if each.subject.endswith("class frequencies")]
    calibrator = found.compared.calibrators["temperature"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that class shift does not explain the second case
        adapted = calibrator.adapt(test.logits).apply(test)
    assert f"mean confidence {100 * metrics.mean_confidence(adapted):.2f} %" in check.advice
    assert explains in check.advice
    advice = advise(found)
    assert advice is not None
    assert "calibrator = calibrator.adapt(new_logits)" in advice.python
    assert "glayers adapt model.safetensors new.npz -o adapted.safetensors" in advice.shell
    assert advice.shell.endswith("glayers apply adapted.safetensors new.npz -o calibrated.npz")
    assert any(explains in cost for cost in advice.costs)
    assert advice.adapt
    assert advice.costs[1].startswith("Size: 1 parameter, ")
    assert max(map(len, advice.python.splitlines())) <= 70  # as many as the box of the lines shows


def test_a_calibrator_that_does_not_help_is_reported() -> None:
    # Fitted on rows of a calibrated model, tested on rows of an overconfident one.
    found = compare(sampled_rows(900, 1, sharpened=1.0), sampled_rows(1_100, 2), ["temperature"])
    summary = summary_of(found)
    assert "; still overconfident" not in summary.sentence
    assert ": still overconfident by " in summary.sentence
    assert (summary.tone, summary.badge) == ("bad", "Not calibrated")


def test_the_advice_names_the_method_its_costs_and_lines_that_run(given: Compared, measured: Measurements) -> None:
    advice = advise(measured)
    assert advice is not None
    assert advice.method == given.found.recommended
    other = next(name for name in given.found.calibrators if name != advice.method)
    assert advice.runner_up.startswith(f"{other}. Its NLL differs from that of {advice.method} by ")
    assert advice.costs[0].startswith("Accuracy: no significant difference, ")
    assert "parameter" in advice.costs[1]
    names = {"calibration_logits": given.calibration.logits, "calibration_labels": given.calibration.labels}
    lines = advice.python.replace('calibrator.save("model.safetensors")', "")
    space = {**names, "new_logits": given.test.logits}
    exec(lines, space)  # these are the lines that readers copy
    np.testing.assert_allclose(space["probabilities"], softmax(given.found.logits(advice.method), axis=1))
    assert advice.shell.startswith(f"glayers fit calibration.npz --method {advice.method} -o model.safetensors")


def test_auto_is_the_method_described_and_its_selection_is_on_the_page() -> None:
    found = compare(sampled_rows(300, 1), sampled_rows(400, 2), ["auto", "temperature"])
    page = page_of(found, n_resamples=50)
    assert "auto is recommended: it chose its parts on the calibration rows alone" in page
    selection = found.calibrators["auto"].selection_
    heading, *lines = selection.table(seconds=False)
    assert "seconds" not in heading
    for cell in (*heading, *(line[0] for line in lines)):
        assert f">{cell}</th>" in page
    assert "Seeds of the fits: <bdi>auto</bdi> 0." in page


def test_intervals_are_those_of_the_metrics_module(given: Compared, measured: Measurements) -> None:
    after = given.test.with_logits(given.found.logits("vector"))
    expected = metrics.intervals(after, n_resamples=200)
    for metric in SHOWN_METRICS:
        found = measured.methods["vector"].intervals[metric]
        np.testing.assert_allclose(found[:5], expected[metric][:5], rtol=1e-9, atol=1e-12)
        assert found.unreliable == expected[metric].unreliable


def test_lines_of_the_table_say_the_scorecards_numbers(given: Compared, measured: Measurements) -> None:
    lines = dict(method_lines(measured))
    assert [cells[0].word for cells in lines.values()] == ["rejected", "not rejected", "not rejected"]
    for name, card in given.found.scorecards.items():
        cells = dict(zip(SHOWN_METRICS, lines[name][1:], strict=True))
        assert {metric: cell.value for metric, cell in cells.items()} == {
            metric: METRICS[metric].format(card[metric]) for metric in SHOWN_METRICS
        }
    assert lines["uncalibrated"][1].value == f"{100 * given.found.scorecards['uncalibrated']['accuracy']:.2f} %"


def test_an_interval_without_its_value_is_not_shown(measured: Measurements) -> None:
    first = measured.before
    value = first.intervals["ks"].value
    far = first.intervals["ks"]._replace(low=value + 0.01, high=value + 0.02)
    moved = replace(first.intervals, by_name=first.intervals.by_name | {"ks": far})
    off = replace(measured, methods={first.name: replace(first, intervals=moved)})
    ((_, cells),) = method_lines(off)
    assert [cell.below.startswith("no interval") for cell in cells].count(True) == 1


def test_differences_are_marked_by_what_they_are_worth(measured: Measurements) -> None:
    tables = difference_tables(measured)
    assert list(tables) == ["uncalibrated", "temperature"]
    words = {name: [cell.word for cell in cells] for name, cells in tables["uncalibrated"]}
    # Temperature scaling corrects three errors and keeps every ranking.
    assert words["temperature"] == ["better", "better", "better", "no significant difference"]
    back = {name: [cell.word for cell in cells] for name, cells in tables["temperature"]}
    assert back["uncalibrated"] == ["worse", "worse", "worse", "no significant difference"]
    assert tables["uncalibrated"][0][1][3].value == "0.00 points"


def test_fits_are_listed_with_their_settings() -> None:
    page = overconfident_page()
    assert "1 from 900 rows" in page
    assert "<code>VectorScaling(" in page


def test_a_missing_package_is_listed_as_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = versions()
    assert installed["numpy"] == np.__version__

    def without_torch(package: str) -> str:
        if package == "torch":
            raise PackageNotFoundError(package)
        return installed[package]

    monkeypatch.setattr("glayers.report.html.page.version", without_torch)
    assert versions() == installed | {"torch": "not installed"}


def test_checks_without_findings_are_listed(given: Compared) -> None:
    checks = data_checks(given.found, given.calibration)
    assert {check.status for check in checks} == {"fine"}
    assert len(checks) == 7
    assert [check.status for check in data_checks(given.found, None)] == ["not tested", "fine", "fine", "fine"]


def test_missing_and_rare_classes_are_named() -> None:
    rows = sampled_rows(600, 1, names=("owl", "cat", "dog", "hen"))
    never, rare = rows.labels == 2, np.flatnonzero(rows.labels == 3)[5:]
    keep = np.setdiff1d(np.flatnonzero(~never), rare)
    found = compare(rows.take(keep), sampled_rows(600, 2, names=rows.class_names), ["temperature", "vector"])
    checks = {check.subject: check for check in data_checks(found, None)}
    missing, few = checks["Missing classes, calibration rows"], checks["Rare classes, calibration rows"]
    assert missing.found == "no calibration row has the label dog"
    assert few.found == "fewer than 20 calibration rows have the label hen: estimates for it are imprecise"
    assert missing.status == few.status == "attention"
    page = page_of(found, n_resamples=50)
    assert "Warnings from <bdi>temperature</bdi>, <bdi>vector</bdi>:" in page  # the same warning, once
    assert found.notes["temperature"][0] in page


def test_many_rare_classes_are_counted() -> None:
    found = compare(sampled_rows(300, 1, classes=30), sampled_rows(900, 2, classes=30), ["temperature"])
    (few,) = [check.found for check in data_checks(found, None) if "Rare classes, calibration" in check.subject]
    n_few = int((sampled_rows(300, 1, classes=30).label_counts() < 20).sum())
    assert f"and {n_few - 5} more: estimates for them are imprecise" in few


def test_shift_and_rows_in_both_sets_need_attention() -> None:
    calibration = sampled_rows(900, 1)
    moved = Predictions(calibration.logits[:400] / 3, calibration.labels[:400])
    test = Predictions(
        np.concatenate([moved.logits, calibration.logits[400:500]]),
        np.concatenate([moved.labels, calibration.labels[400:500]]),
    )
    checks = {check.subject: check for check in data_checks(compare(calibration, test, ["temperature"]), calibration)}
    assert checks["Rows in both sets"].found.startswith("100 of 500 test rows are also calibration rows")
    assert checks["Shift between calibration and test rows: mean confidence"].status == "attention"
    assert checks["Shift between calibration and test rows: accuracy"].status == "fine"
