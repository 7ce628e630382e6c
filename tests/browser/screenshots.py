"""The sample data -> the three pictures of the report in docs/screenshots: `python -m tests.browser.screenshots`."""

import base64
import tempfile
from pathlib import Path

from selenium.webdriver import Chrome

import glayers
from glayers.report.page import write_report
from tests.browser.chromium import show, start

FOLDER = Path(__file__).parents[2] / "docs" / "screenshots"
METHODS = ("temperature", "vector", "matrix-odir", "auto")


def main() -> None:
    calibration, test = glayers.datasets.load_fashion_mnist()
    found = glayers.compare(calibration, test, METHODS)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        write_report(found, page, calibration=calibration, title="Fashion-MNIST, a small network")
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
