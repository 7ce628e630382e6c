"""Reports test calibration with few draws; `tests/metrics` looks at the test itself."""

import pytest


# For each test anew: a worker may run a doctest between two of them.
@pytest.fixture(autouse=True)
def few_draws_in_reports(few_draws: None) -> None:
    """Use the draws of `few_draws` in every test of this folder."""
