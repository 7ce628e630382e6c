"""What a notebook shows is what is printed, as a table; names stay text."""

import re

import numpy as np
import pytest

from glayers import AutoCalibrator, Predictions, compare, metrics


@pytest.fixture(scope="module")
def rows() -> Predictions:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(300, 3))
    labels = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
    return Predictions(3 * z, labels, class_names=("<b>", "&", "c"))


def cells(record: object) -> list[list[str]]:
    """The cells of a table in HTML, line by line."""
    page = record._repr_html_()  # type: ignore[attr-defined]
    assert page.startswith("<table>")
    assert "<b>" not in page
    return [re.findall(r"<t[hd]>(.*?)</t[hd]>", line) for line in re.findall(r"<tr>(.*?)</tr>", page)]


def test_a_scorecard_and_its_intervals_are_tables(rows: Predictions) -> None:
    card = metrics.scorecard(rows)
    assert [tuple(line) for line in cells(card)[1:]] == list(card.printed().items())
    found = metrics.intervals(rows, metrics=["nll", "accuracy"], n_resamples=50)
    assert cells(found)[1:] == [[cell.strip() for cell in line] for line in found.printed()]


def test_tests_are_tables_with_a_line_per_test(rows: Predictions) -> None:
    found = metrics.calibration_test(rows, n_resamples=99)
    headings, *lines = cells(found)
    assert [line[0] for line in lines] == [
        "KS (confidence)",
        "ECE (confidence)",
        "KS (second class)",
        "KS (all classes)",
    ]
    assert lines[0][1] == f"{found.tests['ks'].value:.4g}"
    assert cells(found.tests["ks"]) == [headings[1:5], lines[0][1:5]]
    assert "not calibrated" in found._repr_html_()


def test_comparisons_and_selections_are_tables(rows: Predictions) -> None:
    found = compare(rows, rows.take(np.arange(200)), {"<b>": AutoCalibrator(time_budget=0, progress=False)})
    assert [line[0] for line in cells(found)] == ["", "uncalibrated", "&lt;b&gt;"]
    selection = found.calibrators["<b>"].selection_
    assert cells(selection) == [[cell.replace(">", "&gt;") for cell in line] for line in selection.table()]
