"""The words of a page are those that somebody read: `GLAYERS_REDRAW=1` writes them anew, to be read again."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from glayers import Confidences, GlayersWarning, Predictions, VectorScaling, compare, metrics
from glayers.metrics import METRICS
from glayers.report.findings import data_checks
from glayers.report.measuring import SHOWN_METRICS, Measurements, measure
from glayers.report.page import page_data
from glayers.report.verdict import advise, changes, difference_cell, method_lines, summarise
from glayers.report.words import typeset
from tests.report.html_comparisons import Compared, overconfident, overconfident_page, page_of, sampled_rows

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(scope="module")
def given() -> Compared:
    return overconfident()


@pytest.fixture(scope="module")
def measured(given: Compared) -> Measurements:
    return measure(given.found, n_resamples=200, random_state=0)


def words_of(found: Measurements) -> str:
    """The first screen, the advice and the checks of a page as text."""
    summary = summarise(found)
    lines = [f"[{summary.tone}] {summary.badge}", summary.sentence]
    lines += [f"{question}: {answer}" for question, answer in (summary.off | summary.tests).items()]
    if found.differences is not None:
        table = changes(found, found.compared.recommended)
        lines += [f"{name}: {before} -> {after} {cell.word}" for name, (before, after, cell) in table.items()]
    advice = advise(found)
    if advice is not None:
        lines += [
            f"{'USE' if advice.helps else 'DO NOT USE'} {advice.method}. {advice.why}",
            advice.size,
            advice.python,
            advice.shell,
        ]
    lines += [f"{check.status.upper()} {check.subject}: {check.found}. {check.advice}" for check in found.checks]
    return "\n".join(line for line in lines if line) + "\n"


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


@pytest.mark.parametrize("name", CASES)
def test_a_page_says_what_somebody_read(name: str) -> None:
    said = words_of(CASES[name]())
    golden = GOLDEN / f"{name}.txt"
    if os.environ.get("GLAYERS_REDRAW"):
        golden.write_text(said, encoding="utf-8")
    assert said == golden.read_text(encoding="utf-8")


def test_every_golden_text_has_its_case() -> None:
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(CASES)


@pytest.mark.parametrize("name", ["overconfident", "calibrated", "does-not-help", "right-on-average", "one-class-off"])
def test_no_two_statements_of_a_page_contradict_each_other(name: str) -> None:
    found = CASES[name]()
    cells = dict(method_lines(found))
    before, _, after = summarise(found).sentence.partition("fter calibration with")
    if before == "Before and a":
        before = after
    for said, (method, test) in zip((before, after), found.compared.calibration_tests.items(), strict=True):
        assert (cells[method][0].word == "rejected") == ("ks" in test.rejecting)
        off = any(word in said for word in ("verconfident by", "nderconfident by", "orrect on average"))
        assert off == bool({"ks", "ece"} & set(test.rejecting))
        assert not (off and "alibrated, as far as" in said)


def test_adapting_is_advised_where_it_lowers_the_loss_of_these_rows() -> None:
    found = class_shift()
    (check,) = [each for each in found.checks if each.subject == "Calibration and test rows"]
    test = found.compared.test
    with pytest.warns(GlayersWarning, match="class shift does not explain"):
        adapted = found.compared.calibrators["temperature"].adapt(test).apply(test)
    before, after = (metrics.nll(rows) for rows in (found.compared.rows("temperature"), adapted))
    assert after < before
    assert f"NLL {before:.4f} without, {after:.4f} with it" in check.advice
    advice = advise(found)
    assert advice is not None
    assert advice.adapt
    assert max(map(len, advice.python.splitlines())) <= 70  # as many as the box of the lines shows


def test_the_lines_of_the_advice_run(given: Compared, measured: Measurements) -> None:
    advice = advise(measured)
    assert advice is not None
    space = {"calibration_logits": given.calibration.logits, "calibration_labels": given.calibration.labels}
    space["new_logits"] = given.test.logits
    exec(advice.python.replace('calibrator.save("model.safetensors")', ""), space)  # the lines that readers copy
    expected = given.found.predictions(advice.method)
    assert isinstance(expected, Predictions)
    np.testing.assert_allclose(space["probabilities"], softmax(expected.logits, axis=1))


def test_auto_is_the_method_described_and_its_selection_is_on_the_page() -> None:
    found = compare(sampled_rows(300, 1), sampled_rows(400, 2), ["auto", "temperature"])
    page = page_of(found, n_resamples=50)
    assert "Auto is recommended: it chose its parts on the calibration rows alone" in page
    selection = found.calibrators["auto"].selection_
    heading, *lines = selection.table(seconds=False)
    assert "seconds" not in heading
    for cell in (*heading, *(line[0] for line in lines)):
        assert f">{cell}</th>" in page
    assert "Seeds of the fits: <bdi>auto</bdi> 0." in page


def test_intervals_are_those_of_the_metrics_module(given: Compared, measured: Measurements) -> None:
    after = given.found.predictions("vector")
    expected = metrics.intervals(after, n_resamples=200)
    for metric in SHOWN_METRICS:
        found = measured.intervals["vector"][metric]
        np.testing.assert_allclose(found[:5], expected[metric][:5], rtol=1e-9, atol=1e-12)
        assert found.unreliable == expected[metric].unreliable


def test_lines_of_the_table_say_the_scorecards_numbers(given: Compared, measured: Measurements) -> None:
    lines = dict(method_lines(measured))
    assert [cells[0].word for cells in lines.values()] == ["rejected", "not rejected", "not rejected"]
    for name, card in given.found.scorecards.items():
        said = [cell.value for cell in lines[name][1:]]
        assert said == [METRICS[metric].format(card[metric]) for metric in SHOWN_METRICS]


def test_an_interval_without_its_value_is_not_shown(measured: Measurements) -> None:
    given = measured.intervals["uncalibrated"]
    value = given["ks"].value
    far = given["ks"]._replace(low=value + 0.01, high=value + 0.02)
    moved = replace(given, by_name=given.by_name | {"ks": far})
    off = replace(measured, intervals=measured.intervals | {"uncalibrated": moved})
    cells = dict(method_lines(off))["uncalibrated"]
    assert [cell.below.startswith("no interval") for cell in cells].count(True) == 1


def test_differences_are_marked_by_what_they_are_worth(measured: Measurements) -> None:
    words = [difference_cell(measured, metric, "temperature").word for metric in ("nll", "brier", "ks", "accuracy")]
    # Temperature scaling corrects three errors and keeps every ranking.
    assert words == ["better", "better", "better", "no significant difference"]
    assert difference_cell(measured, "accuracy", "temperature").value == "0.00 points"
    titles = [spec.title for spec in measured.panels["differences"]]
    assert titles[::4] == ["NLL, method minus uncalibrated", "NLL, method minus temperature"]


def test_the_numbers_after_are_those_of_the_method_asked_for(measured: Measurements) -> None:
    cards = measured.compared.scorecards
    for method in ("temperature", "vector"):
        table = changes(measured, method)
        assert table["NLL"][:2] == tuple(f"{cards[name]['nll']:.4f}" for name in ("uncalibrated", method))
        assert [line[0] for line in page_data(measured)["changes"][method]] == [
            typeset(after) for _, after, _ in table.values()
        ]


def test_a_p_value_at_the_floor_of_the_draws_is_no_more_than_that(measured: Measurements) -> None:
    test = measured.compared.calibration_tests["uncalibrated"]
    assert test.p_value == 1 / (1 + test.n_resamples)
    assert f"(p <= {test.p_value:.2g})" in summarise(measured).tests["Tests before"]
    assert method_lines(measured)[0][1][0].value.startswith("p <= ")
    assert "p = 0 " not in words_of(measured)
    assert typeset("p <= 0.001") == "p\u00a0\u2264\u00a00.001"


def test_only_classes_that_are_predicted_are_counted() -> None:
    parts = [sampled_rows(n, seed, classes=3) for n, seed in ((300, 1), (400, 2))]
    old, new = (Predictions(np.pad(rows.logits, ((0, 0), (0, 1)), constant_values=-99), rows.labels) for rows in parts)
    said = summarise(of(old, new)).off["Classes off after temperature"]
    assert said == "none of 3 predicted."  # the fourth is never predicted


def test_fits_are_listed_with_their_settings_and_warnings() -> None:
    page = overconfident_page()
    assert "1 from 900 rows" in page
    assert "<code>VectorScaling(" in page
    rows = sampled_rows(600, 1)
    found = compare(
        rows.take(np.flatnonzero(rows.labels != 2)), sampled_rows(600, 2), {"a": VectorScaling(), "b": VectorScaling()}
    )
    page = page_of(found, n_resamples=50)
    assert "Warnings from <bdi>a</bdi>, <bdi>b</bdi>:" in page  # the same warning, once
    assert found.notes["a"][0] in page


def test_checks_without_findings_are_listed(given: Compared) -> None:
    checks = data_checks(given.found, given.calibration)
    assert {check.status for check in checks} == {"fine"}
    without = data_checks(given.found, None)
    assert {check.subject for check in checks} - {check.subject for check in without} == {"Rows in both sets"}


def test_many_rare_classes_are_counted() -> None:
    found = compare(sampled_rows(300, 1, classes=30), sampled_rows(900, 2, classes=30), ["temperature"])
    (few,) = [check.found for check in data_checks(found, None) if "Rare classes, calibration" in check.subject]
    n_few = int((sampled_rows(300, 1, classes=30).label_counts() < 20).sum())
    assert f"and {n_few - 5} more: estimates for them are imprecise" in few


def test_shift_in_confidence_alone_needs_attention() -> None:
    calibration = sampled_rows(900, 1)
    moved = Predictions(sampled_rows(500, 5).logits / 3, sampled_rows(500, 5).labels)
    checks = {check.subject: check for check in data_checks(compare(calibration, moved, ["temperature"]), calibration)}
    check = checks["Calibration and test rows"]
    assert check.status == "attention"
    assert "confidence (p" in check.found
    assert "labels (p" not in check.found
