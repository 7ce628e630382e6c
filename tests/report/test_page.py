import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glayers import BadFile, MultiLabelPredictions, Predictions, VectorScaling, compare
from glayers.report.answers import answers, measure
from glayers.report.figures import FIGURES
from glayers.report.page import script_json, write_report
from tests.report.html_comparisons import HOSTILE, overconfident, overconfident_page, page_of, sampled_rows, small


class Elements(HTMLParser):
    """Every element of a page with its attributes, what is in its scripts, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.inside = tag

    def handle_data(self, data: str) -> None:
        if self.inside == "script":
            self.scripts.append(data)
        elif self.inside != "style":
            self.text += data

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside if tag != self.inside else ""

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def page() -> str:
    return overconfident_page()


@pytest.fixture(scope="module")
def elements(page: str) -> Elements:
    return Elements(page)


def data_of(elements: Elements) -> Any:
    return json.loads(elements.scripts[0])


def test_hostile_class_names_are_text_everywhere(elements: Elements) -> None:
    assert elements.named("img") == []
    assert elements.named("b") == []
    assert len(elements.named("script")) == 2
    assert set(data_of(elements)["classes"][0]["columns"]["class"]) == set(HOSTILE)


def test_the_policy_allows_the_script_and_the_style_of_the_page_and_no_network(page: str, elements: Elements) -> None:
    policies = [
        meta["content"] for meta in elements.named("meta") if meta.get("http-equiv") == "Content-Security-Policy"
    ]
    (policy,) = policies
    assert policy is not None
    style = page[page.index("<style>") + 7 : page.index("</style>")]
    for text in (style, elements.scripts[1]):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    # Nothing that would ask for something: the one link is an empty icon.
    assert [link["href"] for link in elements.named("link")] == ["data:,"]
    assert all("src" not in attributes for _, attributes in elements.found)
    # Links lead to parts of this page.
    places = {f"#{attributes['id']}" for _, attributes in elements.found if "id" in attributes}
    assert {attributes["href"] for attributes in elements.named("a")} <= places


@pytest.mark.parametrize("folder", ["css", "js"])
def test_every_style_and_every_script_is_on_the_page(page: str, folder: str) -> None:
    for file in (files("glayers.report") / "assets" / folder).iterdir():
        assert file.read_text(encoding="utf-8") in page, file.name


def test_every_table_has_a_caption_and_headings_and_every_figure_a_title(elements: Elements) -> None:
    assert len(elements.named("caption")) == len(elements.named("table")) > 5
    assert all(heading["scope"] in ("col", "row", "colgroup") for heading in elements.named("th"))
    titles = {figure["aria-labelledby"] for figure in elements.named("figure")}
    assert titles <= {attributes.get("id") for _, attributes in elements.found}
    assert titles == {f"{name}-title" for name, figure in FIGURES.items() if figure.on_page}


def test_the_same_inputs_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one.html", "two.html"):
        calibration, test = sampled_rows(200, 1), sampled_rows(300, 2)
        found = compare(calibration, test, ["vector"])
        write_report(found, tmp_path / name, calibration=calibration, n_resamples=50, random_state=3)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path) -> None:
    found = small()
    target = tmp_path / "report.html"
    target.write_text("mine")
    with pytest.raises(BadFile, match=r"report\.html: exists already; pass force=True to replace it"):
        write_report(found, target, n_resamples=50)
    assert target.read_text() == "mine"
    write_report(found, target, n_resamples=50, force=True, title="Night & day")
    assert "<title>Night &amp; day</title>" in target.read_text(encoding="utf-8")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    found = small()
    with pytest.raises(BadFile, match="is a directory, a pipe or a device; choose another name"):
        write_report(found, tmp_path, force=True)
    with pytest.raises(BadFile, match=r"there is no folder .*nowhere; make it first"):
        write_report(found, tmp_path / "nowhere" / "report.html")


def test_curves_on_the_page_are_those_of_the_test_rows(elements: Elements) -> None:
    _, test, found = overconfident()
    data = data_of(elements)
    for place, method in enumerate(("uncalibrated", found.recommended)):
        shown = data["reliability"][place]["columns"]
        weights = np.array(shown["count"]) / len(test)
        assert sum(shown["count"]) == pytest.approx(len(test), abs=1e-9)
        assert weights @ shown["confidence"] == pytest.approx(found.scorecards[method]["confidence"], abs=1e-9)
        assert weights @ shown["accuracy"] == pytest.approx(found.scorecards[method]["accuracy"], abs=1e-9)
        shown = data["ks"][place]["columns"]
        gaps = np.abs(np.array(shown["cumulative_score"]) - shown["cumulative_hits"])
        assert gaps.max() == pytest.approx(found.scorecards[method]["ks"], abs=1e-9)


def test_the_slider_has_an_entry_for_every_threshold_before_and_after(elements: Elements) -> None:
    columns = data_of(elements)["errors"][0]["columns"]
    assert columns["threshold"] == pytest.approx([percent / 100 for percent in range(50, 100)] * 2)
    assert len(columns["said"]) == 100
    assert columns["said"][40] in elements.text.replace("\u00a0", " ")


def test_a_figure_whose_numbers_are_not_finite_holds_null(elements: Elements) -> None:
    assert script_json({"x": np.array([np.nan, np.inf, 0.5])}) == '{"x":[null,null,0.5]}'
    assert script_json({"x": float("nan"), "y": [-np.inf, 1.5]}) == '{"x":null,"y":[null,1.5]}'


@pytest.mark.thorough
def test_a_page_of_a_thousand_classes_is_small() -> None:
    calibration, test = sampled_rows(400, 1, classes=1_000), sampled_rows(300, 2, classes=1_000)
    found = compare(calibration, test, ["temperature"])
    page = page_of(found, calibration=calibration, n_resamples=50)
    assert len(page.encode()) < 300_000
    assert "15 of 1,000 classes" in page


def test_a_comparison_in_which_nothing_could_be_fitted_still_has_a_page() -> None:
    one_group = Predictions(sampled_rows(200, 1).logits, sampled_rows(200, 1).labels, groups=np.zeros(200, dtype=int))
    found = compare(one_group, sampled_rows(300, 2), ["vector"])
    text = Elements(page_of(found, n_resamples=50)).text
    assert "could not be fitted" in text
    assert "groups must hold at least 2" in text
    assert "The model is overconfident by " in text
    assert "What to do: Calibrate the model" in " ".join(text.split())
    assert "Not calibrated" in text


def test_weights_groups_and_names_that_are_no_characters_are_taken(tmp_path: Path) -> None:
    rows = sampled_rows(300, 2)
    groups, weights = np.repeat(np.arange(100), 3), np.linspace(0.5, 1.5, 300)
    test = Predictions(rows.logits, rows.labels, weights, groups, class_names=("a", "\ud800", "c\x00", "d" * 500))
    calibration = Predictions(sampled_rows(300, 1).logits, sampled_rows(300, 1).labels, groups=groups)
    found = compare(calibration, test, ["temperature"])
    write_report(found, tmp_path / "report.html", calibration=calibration, n_resamples=50)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "test rows are in 100 groups" in page
    assert max(len(name) for name in data_of(Elements(page))["classes"][0]["y"]["names"]) == 24


def test_a_class_name_turns_no_text_around() -> None:
    names = ("a", "\u202eb", "\u2067\u05d0", "d")
    found = compare(sampled_rows(200, 1, names=names), sampled_rows(200, 2, names=names), ["temperature"])
    page = page_of(found, n_resamples=50)
    assert set(data_of(Elements(page))["classes"][0]["y"]["names"]) == {"a", "\\u202eb", "\\u2067\u05d0", "d"}
    assert "\u202e" not in page


def test_a_page_of_several_labels_says_how_many_and_counts_decisions() -> None:
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 3))
    labels = (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(int)
    old, new = (MultiLabelPredictions(3 * z[part], labels[part]) for part in (slice(120), slice(120, 200)))
    page = page_of(compare(old, new, ["temperature"]), n_resamples=20)
    assert "3 labels per row · 240 decisions" in page


def test_the_page_of_several_labels_names_those_that_are_off_and_no_worse_method() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(4000, 2))
    labels = (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(int)
    old, new = (MultiLabelPredictions(z * [1, size], labels, label_names=["rain", "wind"]) for size in (1, 3))
    found = measure(compare(old, new, ["temperature"]), 20, 0)
    tile = answers(found)["Which labels are off?"]
    assert tile.value == "1 of 2 labels"
    assert "wind" in tile.words
    assert "rain" not in tile.words
    assert "Which predicted classes are off?" not in answers(found)


def test_a_model_with_one_logit_has_a_page() -> None:
    rng = np.random.default_rng(0)
    z = 2 * rng.normal(size=(600, 1))
    labels = (rng.random(600) < 1 / (1 + np.exp(-z[:, 0]))).astype(int)
    calibration, test = Predictions(2 * z[:300], labels[:300]), Predictions(2 * z[300:], labels[300:])
    page = page_of(compare(calibration, test, {"mine": VectorScaling()}), n_resamples=50)
    assert "2 classes · 300 test rows" in page


def test_the_script_never_ends_its_own_element(page: str) -> None:
    assert re.findall(r"</script", page) == ["</script"] * 2
    assert "<!--" not in page
