"""The report in a real browser: it draws, answers to pointer and keyboard, keeps quiet, and fits every screen."""

import base64
import struct
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from glayers import Confidences, compare
from glayers.report.figures import FIGURES
from tests.browser.chromium import console, printed_pages, requests, show, start, violations
from tests.report.html_comparisons import overconfident_page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(overconfident_page(), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    started = start(tmp_path_factory.mktemp("profile"))
    yield started
    started.quit()


@pytest.fixture(scope="module")
def axe() -> str:
    return (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def shown(browser: Chrome, page: Path) -> Chrome:
    show(browser, page)
    return browser


def panels(browser: Chrome, figure: str) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, f"#{figure} .panel")


def attribute(of: WebElement, name: str) -> str:
    """What an attribute says, with no-break spaces as `text` gives them."""
    return str(of.get_attribute(name)).replace("\u00a0", " ")


def drawing(panel: WebElement) -> str:
    return str(panel.find_element(By.TAG_NAME, "svg").get_attribute("innerHTML"))


def background(browser: Chrome) -> str:
    return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))


def test_a_report_of_confidences_draws_its_figures(browser: Chrome, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    said = rng.uniform(0.2, 1.0, 400)
    rows = Confidences(said, rng.random(400) < said**2)
    old, new = rows.take(np.arange(200)), rows.take(np.arange(200, 400))
    compare(old, new, ["platt", "beta"]).to_html(tmp_path / "answers.html", calibration=old, n_resamples=20)
    show(browser, tmp_path / "answers.html")
    assert console(browser) == []
    for name, figure in FIGURES.items():
        assert bool(panels(browser, name)) == (figure.on_page and not figure.needs_classes)


def test_it_is_silent_asks_for_nothing_and_hostile_names_stay_names(browser: Chrome, page: Path) -> None:
    requests(browser)  # what the browser did before
    show(browser, page)
    assert console(browser) == []
    assert [address for address in requests(browser) if address not in (page.as_uri(), "data:,")] == []
    assert browser.execute_script("return document.images.length + document.querySelectorAll('b').length") == 0


def test_the_policy_stops_what_a_page_should_not_do(shown: Chrome) -> None:
    shown.execute_script(
        "document.body.insertAdjacentHTML('beforeend', '<img src=http://127.0.0.1:9/x onerror=\"window.hurt = 1\">');"
        "const more = document.createElement('script'); more.textContent = 'window.hurt = 1';"
        "document.body.append(more);"
    )
    assert shown.execute_script("return window.hurt === undefined")
    assert sum("Content Security Policy" in message for message in console(shown)) >= 2
    assert [address for address in requests(shown) if address.startswith("http")] == []


def test_every_figure_is_drawn_and_says_in_words_what_it_shows(shown: Chrome) -> None:
    for figure in (name for name, kind in FIGURES.items() if kind.on_page):
        found = panels(shown, figure)
        assert found
        for panel in found:
            svg = panel.find_element(By.TAG_NAME, "svg")
            assert svg.is_displayed()
            assert svg.size["width"] > 200
            assert svg.size["height"] > 80
            assert len(svg.find_elements(By.CSS_SELECTOR, "polyline, rect, circle, line")) > 5
            assert "NaN" not in drawing(panel)
            assert len(attribute(svg, "aria-label")) > 40


def test_a_dot_says_its_numbers(shown: Chrome) -> None:
    dots = panels(shown, "reliability")[0].find_elements(By.CSS_SELECTOR, "circle:is(.observed, .outside)")
    dots.sort(key=lambda dot: float(attribute(dot, "cx")))
    bins = shown.execute_script(
        "return JSON.parse(document.getElementById('report-data').textContent).reliability[0].columns"
    )
    assert len(dots) == len(bins["count"])
    said = str(dots[-1].find_element(By.TAG_NAME, "title").get_attribute("textContent")).replace("\u00a0", " ")
    assert f"predicted {100 * bins['confidence'][-1]:.2f} %, observed {100 * bins['accuracy'][-1]:.2f} %" in said
    assert f"rows {bins['count'][-1]:,.0f}" in said


def test_the_slider_tells_what_happens_above_each_threshold(shown: Chrome) -> None:
    slider = shown.find_element(By.ID, "threshold-slider")
    columns = shown.execute_script(
        "return JSON.parse(document.getElementById('report-data').textContent).errors[0].columns"
    )
    for keys, place in (("", 40), (Keys.ARROW_RIGHT, 41), (Keys.HOME, 0), (Keys.END, 49)):
        slider.send_keys(keys)
        assert shown.find_element(By.ID, "threshold").text == f"{50 + place} %"
        said = [part.text for part in shown.find_elements(By.CSS_SELECTOR, ".act p")]
        assert said == [columns["said"][place], columns["said"][50 + place]]
        fills = [bar.size["width"] for bar in shown.find_elements(By.CSS_SELECTOR, ".act .fill")]
        assert (fills[0] > fills[1]) == (columns["actual"][place] > columns["actual"][50 + place])


def test_everything_is_reached_by_keyboard(shown: Chrome) -> None:
    name = "const e = document.activeElement; return e.id || e.getAttribute('aria-labelledby') || e.tagName"
    reached: list[str] = []
    for _ in range(20):
        ActionChains(shown).send_keys(Keys.TAB).perform()
        reached.append(shown.execute_script(name))
    assert {"copy", "theme", "threshold-slider", "methods-caption", "SUMMARY"} <= set(reached)
    outline = shown.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_nothing_keeps_people_out(browser: Chrome, page: Path, axe: str, width: int, dark: bool) -> None:
    browser.set_script_timeout(300)
    show(browser, page, width=width, dark=dark)
    browser.find_element(By.CSS_SELECTOR, "#reliability summary").click()
    # The policy forbids other scripts in the page; the driver's own are not of the page.
    assert violations(browser, axe) == []


def test_a_phone_shows_cards_and_never_scrolls_sideways(browser: Chrome, page: Path) -> None:
    show(browser, page, width=390, height=844)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    # A line of a table is a card: its numbers stand below each other, each with its heading.
    cells = browser.find_elements(By.CSS_SELECTOR, "#by-method table.cards tbody tr:first-child td")
    assert len({cell.location["x"] for cell in cells}) == 1
    assert [attribute(cell, "data-label") for cell in cells[:2]] == ["confidence", "bins"]
    broken = browser.execute_script("return document.querySelector('h1').textContent.includes(' %')")
    assert not broken  # a line never begins with the sign
    left, right = (panel.location["x"] for panel in panels(browser, "reliability"))
    assert left == right  # one above the other
    assert (
        browser.execute_script("return parseFloat(getComputedStyle(document.querySelector('svg text')).fontSize)") >= 12
    )


def test_a_turned_screen_draws_anew(browser: Chrome, page: Path) -> None:
    show(browser, page, width=390, height=844)
    before = panels(browser, "reliability")[0].find_element(By.TAG_NAME, "svg").get_dom_attribute("viewBox")
    metrics = {"width": 844, "height": 390, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[arguments.length - 1]))")
    assert panels(browser, "reliability")[0].find_element(By.TAG_NAME, "svg").get_dom_attribute("viewBox") != before


def test_light_dark_and_paper(browser: Chrome, page: Path) -> None:
    show(browser, page)
    assert background(browser) == "rgb(255, 255, 255)"
    show(browser, page, dark=True)
    assert background(browser) == "rgb(20, 23, 27)"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert background(browser) == "rgb(255, 255, 255)"
    assert not browser.find_element(By.ID, "threshold-slider").is_displayed()
    assert 2 <= printed_pages(browser) <= 4


def test_the_theme_changes_at_a_press(shown: Chrome) -> None:
    button = shown.find_element(By.ID, "theme")
    for text, colour in (("Dark", "rgb(20, 23, 27)"), ("Light", "rgb(255, 255, 255)")):
        assert button.text == text
        button.click()
        assert background(shown) == colour


def test_the_summary_can_be_copied(shown: Chrome) -> None:
    shown.execute_script(
        "Object.defineProperty(navigator, 'clipboard', { value: {"
        " writeText: (text) => { window.copied = text; return Promise.resolve(); } } })"
    )
    shown.find_element(By.ID, "copy").click()
    copied = str(shown.execute_script("return window.copied"))
    assert copied.startswith("Your model says ")
    assert "Is it calibrated now?" in copied


def test_the_card_is_a_picture_to_share_made_without_a_request(shown: Chrome) -> None:
    requests(shown)
    shown.set_script_timeout(30)
    picture = shown.execute_async_script(
        "const done = arguments[0];"
        "HTMLAnchorElement.prototype.click = function () { done([this.download, this.href]); };"
        "document.getElementById('card').click();"
    )
    name, address = picture
    assert name == "calibration.png"
    image = base64.b64decode(address.removeprefix("data:image/png;base64,"))
    assert struct.unpack(">II", image[16:24]) == (1200, 630)
    assert len(set(image)) > 200  # not an empty sheet
    assert console(shown) == []
    assert [asked for asked in requests(shown) if not asked.startswith("data:")] == []


def test_a_legend_names_what_is_drawn_and_nothing_else(shown: Chrome) -> None:
    legend = [entry.text for entry in shown.find_elements(By.CSS_SELECTOR, "#reliability .legend li")]
    assert legend == ["95 % of calibrated models", "calibrated", "observed", "observed, outside the band"]


def test_panels_side_by_side_share_a_scale(shown: Chrome) -> None:
    left, right = panels(shown, "ks")
    ticks = [[text.text for text in panel.find_elements(By.CSS_SELECTOR, "svg text")] for panel in (left, right)]
    assert ticks[0] == ticks[1]
