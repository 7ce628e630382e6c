"""Debian's Chromium, driven by selenium -> a page that tests can look at, point at and type into.

It runs without a screen and without background networking, so that the requests in its log are those of the page.
"""

import base64
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run --hide-scrollbars "
    "--disable-extensions --disable-software-rasterizer "
    "--disable-background-networking --disable-component-update --disable-sync --force-prefers-reduced-motion"
)


def program(name: str, package: str) -> str:
    """Return the path of a program, or fail: without a browser the report is not tested."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"the report is tested in a browser, and {name} is missing: apt-get install {package}")
    return found


def start(profile: Path) -> Chrome:
    """Start a browser with an empty profile."""
    options = Options()
    options.binary_location = program("chromium", "chromium")
    for flag in [*_FLAGS.split(), f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return Chrome(options=options, service=Service(program("chromedriver", "chromium-driver")))


def show(browser: Chrome, page: Path, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
    """Open a page anew on a screen of this size."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": [scheme]})
    browser.get(page.as_uri())


def console(browser: Chrome) -> list[str]:
    """Return the messages in the browser's console since this was last called."""
    return [entry["message"] for entry in browser.execute("getLog", {"type": "browser"})["value"]]


def requests(browser: Chrome) -> list[str]:
    """Return every address asked for since this was last called, except those that the page's policy blocked.

    The browser's own first page, chrome://new-tab-page, may still be loading; its requests are left out.
    """
    entries = browser.execute("getLog", {"type": "performance"})["value"]
    messages = [json.loads(entry["message"])["message"] for entry in entries]
    blocked = {
        message["params"]["requestId"]
        for message in messages
        if message["method"] == "Network.loadingFailed" and message["params"].get("blockedReason") == "csp"
    }
    sent = [
        message["params"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
        and not message["params"]["documentURL"].startswith("chrome://")
    ]
    return [asked["request"]["url"] for asked in sent if asked["requestId"] not in blocked]


def printed_pages(browser: Chrome) -> int:
    """Return how many pages the open page has on paper."""
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed["data"])))


def violations(browser: Chrome, axe: str) -> list[str]:
    """Return the accessibility violations that axe-core finds, with the first place of each."""
    browser.execute_script(axe)
    found: dict[str, Any] = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert found["passes"], "axe-core looked at nothing"
    return [f"{one['id']}: {one['help']}: {one['nodes'][0]['html']}" for one in found["violations"]]
