"""A spec says everything that a renderer needs, and both renderers know every word in it."""

from importlib.resources import files

import numpy as np
import pytest

from glayers import Confidences, net_benefit
from glayers.metrics.events import check_any
from glayers.report.answers import measure
from glayers.report.figures import FIGURES, HEADINGS, Axis, Mark, Shown, Spec
from glayers.report.plots import LOOKS
from tests.report.html_comparisons import overconfident


@pytest.fixture(scope="module")
def specs() -> list[Spec]:
    panels = measure(overconfident().found, n_resamples=20, random_state=0).panels()
    return [spec for figure in panels.values() for spec in figure]


def test_every_look_is_known_on_paper_and_on_the_page(specs: list[Spec]) -> None:
    style = (files("glayers.report") / "assets" / "css" / "figures.css").read_text("utf-8")
    for look in {mark.look for spec in specs for mark in spec.marks}:
        for word in look.split():
            assert word in LOOKS
            assert f".{word}" in style


def test_every_column_that_is_told_has_a_heading_and_as_many_numbers_as_points(specs: list[Spec]) -> None:
    for spec in specs:
        assert set(spec.table) <= set(spec.columns)
        for name in set(spec.table) - set(HEADINGS):
            assert all(isinstance(text, str) for text in spec.columns[name])
        headings, *lines = spec.cells()
        assert len(headings) == len(spec.table)
        assert {len(line) for line in lines} == {len(headings)}
        for mark in spec.marks:
            assert len({len(values) for values in spec.values(mark)}) == 1


def test_a_mark_may_draw_a_part_of_a_column_beside_one_number() -> None:
    mark = Mark("dots", "observed", ("x", 0.5), "seen", only=("kind", "a"))
    other = Mark("dots", "outside", ("x", 0.5), "never seen", only=("kind", "b"))
    columns = {"x": np.array([1.0, 2.0, 3.0]), "kind": ["a", "c", "a"]}
    spec = Spec(Axis(), Axis(), (mark, other), columns, ("kind",))
    x, y = spec.values(mark)
    assert (x.tolist(), y.tolist()) == ([1.0, 3.0], [0.5, 0.5])
    assert spec.legend() == [mark]  # the other draws nothing
    assert spec.cells() == [["kind"], ["a"], ["c"], ["a"]]


def test_the_decision_curve_says_at_how_many_thresholds_the_model_is_better_than_all_and_none() -> None:
    # From 0.1 on treating all costs more, and from 0.9 on nobody is treated.
    rows = Confidences(np.repeat([0.9, 0.1], 400), np.repeat([1, 0, 1, 0], [360, 40, 40, 360]))
    found = net_benefit(rows)
    better = [line["model"].low > 0 and line["gain"].low > 0 for line in found.lines.values()]
    pays = np.array(list(found.lines), dtype=float)[better]
    assert 0.1 < pays.min() < 0.2
    assert 0.8 < pays.max() < 0.9
    (spec,) = FIGURES["decision-curve"].specs([Shown("model", check_any(rows))])
    assert spec.summary == f"The model is worth using at {len(pays)} of {len(better)} thresholds."


def test_the_errors_that_are_told_are_those_at_a_threshold_of_90_percent() -> None:
    rows = Confidences(np.repeat([0.6, 0.95], 20), np.repeat([1, 0, 1], [12, 8, 20]))
    (spec,) = FIGURES["errors"].specs([Shown("model", check_any(rows))])
    assert spec.summary.startswith("model at 90 %: automates 50 %, promised 50 errors per 1,000, made 0")
