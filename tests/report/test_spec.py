"""A spec says everything that a renderer needs, and both renderers know every word in it."""

import json
from importlib.resources import files

import numpy as np
import pytest

from glayers.report.measuring import Measurements, measure
from glayers.report.page import page_data, script_json
from glayers.report.plots import LOOKS
from glayers.report.spec import HEADINGS, Axis, Mark, Spec, View
from tests.report.html_comparisons import overconfident


@pytest.fixture(scope="module")
def measured() -> Measurements:
    return measure(overconfident().found, n_resamples=20, random_state=0)


def leaves(tree: object) -> list[Spec]:
    if isinstance(tree, dict):
        return [spec for branch in tree.values() for spec in leaves(branch)]
    assert isinstance(tree, list)
    return [*tree, *(spec.strip for spec in tree if spec.strip is not None)]


@pytest.fixture(scope="module")
def specs(measured: Measurements) -> list[Spec]:
    return [spec for panels in measured.panels.values() for spec in leaves(panels)]


def test_every_look_is_known_on_paper_and_on_the_page(specs: list[Spec]) -> None:
    style = (files("glayers.report") / "assets" / "css" / "figures.css").read_text("utf-8")
    drawn_by_the_browser = {"cell", "words"}  # words as the style of the page has them, cells by their strength
    for look in {mark.look for spec in specs for mark in spec.view.marks}:
        assert look in LOOKS
        assert look in drawn_by_the_browser or all(f".{word}" in style for word in look.split())


def test_every_column_that_is_told_has_a_heading_and_as_many_numbers_as_points(specs: list[Spec]) -> None:
    for spec in specs:
        view = spec.view
        assert set(view.table) <= set(spec.columns)
        for name in set(view.table) - set(HEADINGS):
            assert all(isinstance(text, str) for text in spec.columns[name])
        lengths = {len(spec.columns[name]) for name in (*view.table, *view.point) if name in spec.columns}
        assert len(lengths) <= 1
        for mark in view.marks:
            assert len({len(values) for values in spec.values(mark)}) == 1


def test_what_the_page_holds_is_strict_json_and_refers_to_what_is_there(measured: Measurements) -> None:
    data = json.loads(script_json(page_data(measured)), parse_constant=pytest.fail)
    for view, table, strip, *texts in data["specs"]:
        assert view < len(data["views"])
        assert table < len(data["tables"])
        assert strip is None or strip < len(data["specs"])
        assert max(texts) < len(data["texts"])
    everything = [number for columns in data["tables"] for values in columns.values() for number in values]
    assert len(everything) > 1000
    # Equal numbers are written once.
    tables = [json.dumps(columns) for columns in data["tables"]]
    assert len(tables) == len(set(tables))


def test_a_mark_may_draw_a_part_of_a_column_beside_one_number() -> None:
    view = View(Axis(), Axis(), (Mark("dots", "observed", ("x", 0.5), only=("kind", "a", "b")),))
    spec = Spec(view, {"x": np.array([1.0, 2.0, 3.0]), "kind": ["a", "c", "b"]})
    x, y = spec.values(view.marks[0])
    assert (x.tolist(), y.tolist()) == ([1.0, 3.0], [0.5, 0.5])
