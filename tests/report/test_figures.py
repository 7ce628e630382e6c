"""A spec says everything that a renderer needs, and both renderers know every word in it."""

from importlib.resources import files

import numpy as np
import pytest

from glayers.report.answers import measure
from glayers.report.figures import HEADINGS, Axis, Mark, Spec
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
