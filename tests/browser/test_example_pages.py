"""Pages of every kind of data look designed for it: full panels, whole words, and a size that a mail can carry."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from tests.browser.chromium import console, printed_pages, show, start
from tests.report.example_pages import KINDS, example_page

MOST_BYTES = 300_000

# For every panel: its marks besides grid and words, and the words that its edges cut off.
LOOK = """
requestAnimationFrame(() => setTimeout(() => arguments[arguments.length - 1](
  [...document.querySelectorAll(".panel svg")].map((svg) => {
    const edge = svg.getBoundingClientRect();
    const outside = (word) => {
      const box = word.getBoundingClientRect();
      const [low, high] = [["left", "top"], ["right", "bottom"]];
      return low.some((side) => box[side] < edge[side] - 1) || high.some((side) => box[side] > edge[side] + 1);
    };
    return {
      name: svg.getAttribute("aria-label"),
      marks: svg.querySelectorAll(":is(polyline, rect, circle, line):not(.grid, .ideal)").length,
      cut: [...svg.querySelectorAll("text")].filter(outside).map((word) => word.textContent),
    };
  })), 0));
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    started = start(tmp_path_factory.mktemp("profile"))
    yield started
    started.quit()


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_has_full_panels_whole_words_few_bytes_and_four_sheets(
    browser: Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("glayers.metrics.calibration_tests._DRAWS", 99)  # the page looks the same with any p-value
    page = tmp_path / "page.html"
    page.write_text(example_page(kind), encoding="utf-8")
    assert page.stat().st_size < MOST_BYTES
    for width in (390, 1280):
        show(browser, page, width=width)
        seen = browser.execute_async_script(LOOK)
        assert [panel["name"] for panel in seen if panel["marks"] == 0] == []
        assert [panel for panel in seen if panel["cut"]] == []
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        words = browser.execute_script("return document.body.innerText")
        assert not {"NaN", "undefined", "null"} & set(words.replace("(", " ").split())
        assert console(browser) == []
    assert printed_pages(browser) <= 4
