"""The live report of the site -> its pictures in docs/screenshots: `python -m tests.browser.screenshots`."""

import base64
import tempfile
from pathlib import Path

from docs.live_report import write
from selenium.webdriver import Chrome

from tests.browser.chromium import show, start

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write(page)
        browser = start(Path(folder) / "profile")
        show(browser, page, height=800)
        picture(browser, "report.png")
        show(browser, page, height=800, dark=True)
        picture(browser, "report-dark.png")
        show(browser, page, width=390, height=800)
        picture(browser, "report-phone.png")
        browser.quit()


def picture(browser: Chrome, name: str) -> None:
    shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    (FOLDER / name).write_bytes(base64.b64decode(shot["data"]))


if __name__ == "__main__":
    main()
