"""One browser for all pages."""

from collections.abc import Iterator

import pytest
from selenium.webdriver import Chrome

from tests.browser.chromium import start


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    started = start(tmp_path_factory.mktemp("profile"))
    yield started
    started.quit()
