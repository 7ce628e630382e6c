"""Reports test calibration with few draws; `tests/metrics` looks at the test itself."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="package")  # comparisons are kept from one test to the next
def few_draws_in_reports() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("glayers.metrics.omnibus._DRAWS", 199)
        yield
