"""The report in a real browser: it draws, answers to pointer and keyboard, keeps quiet, and fits every screen."""

import base64
import csv
import io
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from glayers import Confidences, compare
from tests.browser.chromium import console, requests, show, start, violations
from tests.report.html_comparisons import HOSTILE, overconfident_page

FIGURES = {"before-after": 1, "class-gaps": 1, "classes": 2, "differences": 8, "reliability": 2, "ks": 2}


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
    unfold(browser)
    return browser


def unfold(browser: Chrome) -> None:
    """Open every folded part; the browser then reports that they were opened, and the figures in them are drawn."""
    browser.execute_async_script(
        "for (const part of document.querySelectorAll('details.more')) part.open = true;"
        "requestAnimationFrame(() => setTimeout(arguments[arguments.length - 1], 0))"
    )


def once_there(browser: Chrome, selector: str) -> list[WebElement]:
    """Wait for elements of a part just opened: the browser reports that it was opened a moment later."""
    return WebDriverWait(browser, 60).until(lambda page: page.find_elements(By.CSS_SELECTOR, selector))


def panels(browser: Chrome, figure: str) -> list[WebElement]:
    return browser.find_elements(By.CSS_SELECTOR, f"#{figure} .panel")


def reading(panel: WebElement) -> str:
    return panel.find_element(By.TAG_NAME, "output").text


def attribute(of: WebElement, name: str) -> str:
    """What an attribute says, with no-break spaces as `text` gives them."""
    return str(of.get_attribute(name)).replace("\u00a0", " ")


def choose(browser: Chrome, menu: str, words: str) -> None:
    Select(browser.find_element(By.ID, menu)).select_by_visible_text(words)


def titles(browser: Chrome, figure: str) -> list[str]:
    return [panel.find_element(By.TAG_NAME, "h4").text for panel in panels(browser, figure)]


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
    expected = FIGURES | {"differences": 3, "classes": 0, "class-gaps": 0}
    assert {figure: len(panels(browser, figure)) for figure in FIGURES} == expected


def test_it_is_silent_asks_for_nothing_and_hostile_names_stay_names(browser: Chrome, page: Path) -> None:
    requests(browser)  # what the browser did before
    show(browser, page)
    for event in Select(browser.find_element(By.ID, "event")).options:
        event.click()
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


@pytest.mark.parametrize(("figure", "n_panels"), FIGURES.items())
def test_every_figure_is_drawn_and_says_in_words_what_it_shows(shown: Chrome, figure: str, n_panels: int) -> None:
    found = panels(shown, figure)
    assert len(found) == n_panels
    for panel in found:
        svg = panel.find_element(By.TAG_NAME, "svg")
        assert svg.is_displayed()
        assert svg.size["width"] > 200
        assert svg.size["height"] > 100
        assert len(svg.find_elements(By.CSS_SELECTOR, "path, rect, circle, line")) > 5
        assert "NaN" not in drawing(panel)
        assert reading(panel)
        assert reading(panel) in " ".join(attribute(svg, "aria-label").split())  # `text` has single spaces


@pytest.mark.parametrize("figure", FIGURES)
def test_pointing_reads_a_value_and_leaving_puts_the_summary_back(shown: Chrome, figure: str) -> None:
    panel = panels(shown, figure)[0]
    svg, summary = panel.find_element(By.TAG_NAME, "svg"), reading(panel)
    # Somewhere off the middle, where the largest cell of the matrix is not.
    ActionChains(shown).scroll_to_element(svg).move_to_element_with_offset(svg, 55, -20).perform()
    assert reading(panel) != summary
    assert re.search(r"\d", reading(panel))
    assert svg.find_element(By.CLASS_NAME, "cursor").get_attribute("visibility") == "visible"
    ActionChains(shown).move_to_element(panel.find_element(By.TAG_NAME, "output")).perform()
    assert reading(panel) == summary


def test_the_value_under_the_pointer_is_that_of_the_data(shown: Chrome) -> None:
    panel = panels(shown, "reliability")[0]
    dots = panel.find_elements(By.CSS_SELECTOR, "circle:is(.observed, .outside)")
    dots.sort(key=lambda dot: float(attribute(dot, "cx")))
    bins = shown.execute_script(
        "const data = JSON.parse(document.getElementById('report-data').textContent);"
        "const [first] = data.figures.reliability.vector['top class'];"
        "return data.tables[data.specs[first][1]]"
    )
    assert len(dots) == len(bins["count"])
    ActionChains(shown).scroll_to_element(panel).move_to_element(dots[-1]).perform()
    expected = f"predicted {100 * bins['confidence'][-1]:.2f} %, observed {100 * bins['accuracy'][-1]:.2f} %"
    assert expected in reading(panel)
    assert f"{bins['count'][-1]:,.0f} rows" in reading(panel)


def test_the_menus_choose_method_and_event(shown: Chrome) -> None:
    others = {"temperature": "vector", "vector": "temperature"}
    other = others[Select(shown.find_element(By.ID, "method")).first_selected_option.text]
    choose(shown, "method", other)
    assert titles(shown, "reliability") == ["uncalibrated, top class", f"{other}, top class"]
    assert titles(shown, "classes") == ["uncalibrated", other]
    after = [cell.text for cell in shown.find_elements(By.CSS_SELECTOR, "#changes tr > :nth-child(3)")]
    numbers = shown.execute_script(
        "return JSON.parse(document.getElementById('report-data').textContent).changes[arguments[0]]", other
    )
    assert after == [f"after {other}", *(value.replace("\u00a0", " ") for value, _, _ in numbers)]
    assert titles(shown, "differences")[0] == "NLL, method minus uncalibrated"
    choose(shown, "event", "rank 2")
    for figure in ("reliability", "ks"):
        assert titles(shown, figure) == ["uncalibrated, rank 2", f"{other}, rank 2"]


def test_a_class_has_its_own_curves(shown: Chrome) -> None:
    for name in HOSTILE[:3]:
        choose(shown, "event", name)
        assert titles(shown, "reliability")[0] == f"uncalibrated, {name}"
        assert titles(shown, "ks")[1].endswith(name)


def test_everything_is_reached_and_read_by_keyboard(shown: Chrome) -> None:
    name = "const e = document.activeElement; return e.id || e.getAttribute('aria-label') || e.tagName"
    reached: list[str] = []
    for _ in range(140):
        ActionChains(shown).send_keys(Keys.TAB).perform()
        reached.append(shown.execute_script(name))
    assert {
        "theme",
        "class-search",
        "Sort by class",
        "method",
        "event",
    } <= set(reached)
    assert len({name for name in reached if name.startswith("Read values: ")}) == sum(FIGURES.values())
    panel = panels(shown, "ks")[1]
    slider = panel.find_element(By.TAG_NAME, "input")
    slider.send_keys(Keys.HOME)
    first = reading(panel)
    slider.send_keys(Keys.ARROW_RIGHT)
    assert reading(panel) != first
    assert attribute(slider, "aria-valuetext") == reading(panel)
    outline = shown.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_the_numbers_of_a_figure_are_a_table(shown: Chrome) -> None:
    figure = shown.find_element(By.ID, "reliability")
    figure.find_element(By.TAG_NAME, "summary").click()
    before = [line.text for line in once_there(shown, "#reliability tbody tr")]
    choose(shown, "event", "rank 2")
    assert [line.text for line in figure.find_elements(By.CSS_SELECTOR, "tbody tr")] != before


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False), (390, True)])
def test_nothing_keeps_people_out(browser: Chrome, page: Path, axe: str, width: int, dark: bool) -> None:
    show(browser, page, width=width, dark=dark)
    browser.find_element(By.CSS_SELECTOR, "#reliability summary").click()
    # The policy forbids other scripts in the page; the driver's own are not of the page.
    assert violations(browser, axe) == []


def test_a_phone_shows_cards_and_never_scrolls_sideways(browser: Chrome, page: Path) -> None:
    show(browser, page, width=390, height=844)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    unfold(browser)
    # A line of a table is a card: its numbers stand below each other, each with its heading.
    cells = browser.find_elements(By.CSS_SELECTOR, "#methods table.cards tbody tr:first-child td")
    assert len({cell.location["x"] for cell in cells}) == 1
    assert [attribute(cell, "data-label") for cell in cells[:2]] == ["KS test", "accuracy"]
    broken = browser.execute_script("return document.querySelector('.summary').textContent.includes(' %')")
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
    assert not panels(browser, "reliability")[0].find_element(By.TAG_NAME, "input").is_displayed()
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    # What is folded on the screen is printed: the table of the methods.
    assert (
        browser.execute_script("return document.querySelector('#methods .scroll').getBoundingClientRect().height") > 50
    )
    paper = base64.b64decode(printed["data"])
    assert paper.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) >= 3


def test_a_heading_sorts_its_column_both_ways(shown: Chrome) -> None:
    def column(place: int) -> list[str]:
        return [row.text for row in shown.find_elements(By.CSS_SELECTOR, f"#class-table tbody tr :nth-child({place})")]

    for name in ("Sort by test rows", "Sort by class"):
        place = ["Sort by class", "", "", "Sort by test rows"].index(name) + 1
        button = shown.find_element(By.CSS_SELECTOR, f"#class-table [aria-label='{name}']")
        for direction in ("ascending", "descending"):
            button.click()
            assert attribute(button.find_element(By.XPATH, ".."), "aria-sort") == direction
            keys = [int(text.replace(",", "")) if place > 1 else text.lower() for text in column(place)]
            assert keys == sorted(keys, reverse=direction == "descending")


def test_a_class_is_found_by_a_part_of_its_name(shown: Chrome) -> None:
    search = shown.find_element(By.ID, "class-search")
    search.send_keys("BOLD")
    assert [row.text for row in shown.find_elements(By.CSS_SELECTOR, "#class-table tbody th")] == [HOSTILE[1]]
    assert shown.find_element(By.ID, "class-count").text.startswith("1 of 4 classes.")
    search.clear()
    search.send_keys("no such class")
    assert shown.find_elements(By.CSS_SELECTOR, "#class-table tbody tr") == []


def test_the_table_of_classes_follows_the_method(shown: Chrome) -> None:
    for method in ("temperature", "vector"):
        choose(shown, "method", method)
        headings = [th.text for th in shown.find_elements(By.CSS_SELECTOR, "#class-table thead th")]
        assert headings[1:3] == ["gap in points, before", f"gap in points, {method}"]


def test_a_link_shows_the_choices_of_the_page_it_was_taken_from(browser: Chrome, page: Path) -> None:
    show(browser, page)
    choose(browser, "method", "temperature")
    choose(browser, "event", "rank 2")
    browser.find_element(By.ID, "theme").click()
    link = browser.current_url
    browser.get("about:blank")
    browser.get(link)
    assert titles(browser, "reliability") == ["uncalibrated, rank 2", "temperature, rank 2"]
    assert background(browser) == "rgb(20, 23, 27)"
    browser.get("about:blank")
    browser.get(f"{page.as_uri()}#method=nothing&event=&theme=pink&data=x")
    assert len(panels(browser, "reliability")) == 2
    assert console(browser) == []


def test_the_theme_changes_at_a_press(shown: Chrome) -> None:
    button = shown.find_element(By.ID, "theme")
    for text, colour in (("Dark", "rgb(20, 23, 27)"), ("Light", "rgb(255, 255, 255)")):
        assert button.text == text
        button.click()
        assert background(shown) == colour


def test_figures_can_be_taken_away_as_picture_and_as_numbers(shown: Chrome) -> None:
    shown.execute_script("URL.createObjectURL = (blob) => { window.taken = blob; return '#'; }")
    shown.find_element(By.CSS_SELECTOR, "#class-gaps .numbers summary").click()
    files = {}
    for button in once_there(shown, "#class-gaps .downloads button"):
        button.click()
        files[button.text] = shown.execute_async_script("taken.text().then(arguments[arguments.length - 1])")
    assert list(files) == ["class-gaps.svg", "class-gaps.csv"]
    picture = ElementTree.fromstring(files["class-gaps.svg"])
    circles = picture.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == 8
    assert all(str(circle.get("fill")).startswith("rgb") for circle in circles)
    heading, *lines = csv.reader(io.StringIO(files["class-gaps.csv"]))
    assert heading[:3] == ["class", "method", "gap in points"]
    assert {line[0] for line in lines} == set(HOSTILE)


def test_a_legend_names_what_is_drawn_and_nothing_else(shown: Chrome) -> None:
    def legend() -> list[str]:
        entries = shown.find_elements(By.CSS_SELECTOR, "#reliability .legend li")
        return [entry.text for entry in entries if entry.is_displayed()]

    band = "95 % of calibrated models"
    assert legend() == [band, "calibrated", "observed", "observed, outside the band"]
    choose(shown, "event", "rank 4")
    assert set(legend()) <= {band, "calibrated", "observed", "observed, outside the band"}


def test_panels_side_by_side_share_a_scale_and_read_the_same_place(shown: Chrome) -> None:
    left, right = panels(shown, "ks")
    ticks = [[text.text for text in panel.find_elements(By.CSS_SELECTOR, "svg text")] for panel in (left, right)]
    assert ticks[0] == ticks[1]
    svg = left.find_element(By.TAG_NAME, "svg")
    ActionChains(shown).scroll_to_element(svg).move_to_element_with_offset(svg, 40, 0).perform()
    places = [re.findall(r"^fraction of rows ([\d.]+) %", reading(panel)) for panel in (left, right)]
    assert places[0] == places[1] != []
    assert left.find_element(By.CLASS_NAME, "tip").text == reading(left)


def test_a_term_shows_its_meaning_and_leads_to_the_glossary(shown: Chrome) -> None:
    term = shown.find_element(By.CSS_SELECTOR, "#summary .term[href='#term-ks']")
    ActionChains(shown).move_to_element(term).perform()
    meaning = shown.execute_script("return getComputedStyle(arguments[0], '::after').content", term)
    assert meaning.startswith('"Sort the rows by confidence')
    term.click()
    assert shown.execute_script("return document.querySelector(':target').textContent") == "KS"
